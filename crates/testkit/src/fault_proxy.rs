//! A TCP proxy between a client and a server that speaks RESP2, which breaks things on purpose.
//!
//! It works with real sockets and threads of its own, so a client sees what a real network would show it, and no
//! runtime under test schedules it. Faults can be set at any time, and take effect on open connections too. What
//! was really injected is counted, so that a test can tell a fault that was survived from one that never happened.

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

use crate::redis::ports;

pub use faults::{Faults, Injected, Line};

/// A proxy, stopped with all its connections when it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    shared: Arc<Shared>,
    /// None while new connections are refused.
    acceptor: Mutex<Option<Acceptor>>,
}

impl FaultProxy {
    /// Starts a proxy without faults, on a free port of 127.0.0.1, to this port of it. Chances are drawn from the
    /// seed.
    pub fn start(server_port: u16, seed: u64) -> io::Result<FaultProxy> {
        let shared = Arc::new(Shared::new(server_port, seed));
        let listener = listen_anywhere()?;
        let port = listener.local_addr()?.port();
        let acceptor = Acceptor::start(listener, &shared)?;
        Ok(FaultProxy { port, shared, acceptor: Mutex::new(Some(acceptor)) })
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where clients of the server connect to.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The faults that are set.
    pub fn faults(&self) -> Faults {
        self.shared.faults()
    }

    /// Sets all faults: `Faults::default()` sets none. When it returns, they are in effect.
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

    /// Ends the connections that are open, as a process does that exits. New ones are none of its business.
    pub fn disconnect(&self) {
        self.shared.close_all();
    }

    /// How often each fault was injected so far.
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

/// A thread that panicked leaves nothing half done behind these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
