//! Accepts connections until it is dropped.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::connection::Shared;

/// A listening thread. Dropping it closes the port.
#[derive(Debug)]
pub(super) struct Acceptor {
    port: u16,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    pub(super) fn start(listener: TcpListener, shared: &Arc<Shared>) -> io::Result<Acceptor> {
        let port = listener.local_addr()?.port();
        let stopped = Arc::new(AtomicBool::new(false));
        let (shared, is_stopped) = (Arc::clone(shared), Arc::clone(&stopped));
        let thread = thread::Builder::new()
            .name("fault-proxy".to_owned())
            .spawn(move || accept(&listener, &shared, &is_stopped))?;
        Ok(Acceptor { port, stopped, thread: Some(thread) })
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes the blocking accept with a connection. If connecting fails, it is not waiting any more.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the fault proxy on port {} panicked", self.port);
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>, stopped: &AtomicBool) {
    loop {
        let accepted = listener.accept();
        if stopped.load(Ordering::SeqCst) {
            return;
        }
        let served = accepted.and_then(|(client, _)| Shared::serve(shared, client));
        if let Err(error) = served {
            eprintln!("the fault proxy cannot take a connection: {error}");
        }
    }
}
