//! The connections of a proxy, and their shared state.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::SockRef;

use super::faults::{Counts, Event, Faults, Injected};
use super::gate::Gate;
use super::{lock, pump};
use crate::servers::random::Random;

/// Timeout for connecting. A stopped server still accepts connections until its backlog is full.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// Shared state of all connections of a proxy.
#[derive(Debug)]
pub(super) struct Shared {
    server_port: u16,
    faults: Mutex<Faults>,
    random: Mutex<Random>,
    counts: Counts,
    connections: Mutex<Vec<Served>>,
}

/// A connection and the thread that serves it. The thread owns the sockets, so that they are closed when it ends.
#[derive(Debug)]
struct Served {
    connection: Weak<Connection>,
    thread: JoinHandle<()>,
}

/// The two sockets of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: TcpStream,
    pub(super) server: TcpStream,
    pub(super) gate: Gate,
    /// Whether bytes were dropped. Then nothing may pass any more.
    silent: AtomicBool,
}

impl Shared {
    pub(super) fn new(server_port: u16, seed: u64) -> Shared {
        Shared {
            server_port,
            faults: Mutex::default(),
            random: Mutex::new(Random::new(seed)),
            counts: Counts::default(),
            connections: Mutex::default(),
        }
    }

    pub(super) fn faults(&self) -> Faults {
        *lock(&self.faults)
    }

    pub(super) fn set_faults(&self, faults: Faults) {
        *lock(&self.faults) = faults;
    }

    pub(super) fn count(&self, event: Event) {
        self.counts.add(event);
    }

    pub(super) fn injected(&self) -> Injected {
        self.counts.injected()
    }

    pub(super) fn random_fraction(&self) -> f64 {
        lock(&self.random).fraction()
    }

    /// Connects to the server, and serves the client in a separate thread.
    pub(super) fn serve(shared: &Arc<Shared>, client: TcpStream) -> io::Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, shared.server_port));
        let Ok(server) = TcpStream::connect_timeout(&address, CONNECT_MAX) else {
            shared.count(Event::Unreachable);
            return reset_on_close(&client);
        };
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        shared.count(Event::Connection);
        let silent = AtomicBool::new(false);
        let connection = Arc::new(Connection { client, server, gate: Gate::default(), silent });
        let (weak, all) = (Arc::downgrade(&connection), Arc::clone(shared));
        let thread = thread::Builder::new()
            .name("fault-proxy".to_owned())
            .spawn(move || pump::run(&all, &connection))?;
        let mut connections = lock(&shared.connections);
        connections.retain(|served| !served.thread.is_finished());
        connections.push(Served { connection: weak, thread });
        Ok(())
    }

    /// Closes every connection and waits for their threads. While there is an acceptor, new connections may arrive
    /// meanwhile and stay.
    pub(super) fn close_all(&self) {
        let connections = std::mem::take(&mut *lock(&self.connections));
        for served in &connections {
            if let Some(connection) = served.connection.upgrade() {
                connection.close();
            }
        }
        for served in connections {
            if served.thread.join().is_err() {
                eprintln!("a connection of the fault proxy panicked");
            }
        }
    }

    /// Whether this connection drops all bytes.
    pub(super) fn drops_bytes(&self, connection: &Connection) -> bool {
        if self.faults().half_open && !connection.silent.swap(true, Ordering::SeqCst) {
            self.count(Event::HalfOpen);
        }
        connection.silent.load(Ordering::SeqCst)
    }
}

impl Connection {
    /// Closes both sockets, like a process that exits.
    pub(super) fn close(&self) {
        self.gate.close();
        shut_down(&self.client, Shutdown::Both);
        shut_down(&self.server, Shutdown::Both);
    }

    /// Ends the connection to the client with a reset, which is sent when the threads drop the socket.
    pub(super) fn reset(&self) -> io::Result<()> {
        reset_on_close(&self.client)?;
        self.gate.close();
        // Only the read half: shutting the write half would close the connection in order.
        shut_down(&self.client, Shutdown::Read);
        shut_down(&self.server, Shutdown::Both);
        Ok(())
    }
}

/// Shuts a socket down. Errors are ignored, because they mean that it is already closed.
pub(super) fn shut_down(socket: &TcpStream, how: Shutdown) {
    if let Err(error) = socket.shutdown(how) {
        drop(error);
    }
}

/// Makes the socket send a reset when it is closed.
fn reset_on_close(socket: &TcpStream) -> io::Result<()> {
    SockRef::from(socket).set_linger(Some(Duration::ZERO))
}
