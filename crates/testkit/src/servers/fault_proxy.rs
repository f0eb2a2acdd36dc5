//! A TCP proxy between a client and a RESP2 server that injects faults.
//!
//! It uses real sockets and separate threads, so a client sees the same as on a real network, and the runtime under test
//! does not schedule the proxy. Faults can be set at any time and also affect open connections. The proxy counts the faults
//! that it injected, so that a test can distinguish a survived fault from one that never happened.

mod acceptor;
mod connection;
mod faults;
mod gate;
mod pump;

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use acceptor::Acceptor;
use connection::Shared;

use crate::servers::ports;

pub use faults::{Faults, Injected, Line};

/// A proxy. Dropping it closes all its connections.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    shared: Arc<Shared>,
    /// `None` while new connections are refused.
    acceptor: Mutex<Option<Acceptor>>,
}

impl FaultProxy {
    /// Starts a proxy without faults on a free port of 127.0.0.1. It connects to `server_port` there. The seed determines
    /// random faults.
    pub fn start(server_port: u16, seed: u64) -> io::Result<FaultProxy> {
        let shared = Arc::new(Shared::new(server_port, seed));
        let listener = listen_anywhere()?;
        let port = listener.local_addr()?.port();
        let acceptor = Acceptor::start(listener, &shared)?;
        Ok(FaultProxy { port, shared, acceptor: Mutex::new(Some(acceptor)) })
    }

    /// Returns the port for clients.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the faults that are set.
    pub fn faults(&self) -> Faults {
        self.shared.faults()
    }

    /// Sets all faults. They are in effect when it returns. `Faults::default()` removes all faults.
    pub fn set(&self, faults: Faults) -> io::Result<()> {
        let mut acceptor = lock(&self.acceptor);
        if faults.refuse {
            drop(acceptor.take());
        } else if acceptor.is_none() {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port))?;
            *acceptor = Some(Acceptor::start(listener, &self.shared)?);
        }
        self.shared.set_faults(faults);
        Ok(())
    }

    /// Closes all open connections, like a process that exits. New connections are still accepted.
    pub fn disconnect(&self) {
        self.shared.close_all();
    }

    /// Returns how often each fault was injected so far.
    pub fn injected(&self) -> Injected {
        self.shared.injected()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        drop(lock(&self.acceptor).take());
        self.shared.close_all();
    }
}

fn listen_anywhere() -> io::Result<TcpListener> {
    let mut last = io::ErrorKind::AddrInUse.into();
    for _ in 0..ports::TRIES {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, ports::next())) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Ignores poisoning: a thread that panics leaves no inconsistent state behind these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
