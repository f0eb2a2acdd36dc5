//! Where connections come in. Every thread listens on a socket of its own, and the kernel spreads connections over them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::protocol::Protocol;
use crate::serve::edge::{grpc, http, resp};
use crate::serve::observe::log::Throttle;
use crate::serve::shared::{Peer, Shared};

/// One thread's share of a port.
pub(crate) struct Listener {
    protocol: Protocol,
    socket: TcpListener,
}

/// After an error that is not the client's, like too many open files: a moment for some of them to be closed.
const PAUSE: Duration = Duration::from_millis(50);
const BACKLOG: i32 = 1_024;
/// How long a client may take to agree on TLS.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

impl Listener {
    /// A socket on an address, which sockets of the same user may share.
    pub(crate) fn bind(protocol: Protocol, address: SocketAddr) -> io::Result<Listener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(socket2::Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(Listener { protocol, socket: socket.into() })
    }

    /// An error if another process listens there: sockets that may be shared would be shared with it too, and each
    /// would count half of what comes.
    pub(crate) fn probe(address: SocketAddr) -> io::Result<()> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(socket2::Protocol::TCP))?;
        // Connections of a server that has just ended do not matter.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())
    }

    /// Where it listens: the port that was found if any was asked for.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts until the server ends.
    pub(crate) async fn accept(self, shared: Arc<Shared>, tasks: TaskTracker) -> io::Result<()> {
        let socket = tokio::net::TcpListener::from_std(self.socket)?;
        let told = Throttle::default();
        loop {
            let accepted = tokio::select! {
                () = shared.ending.cancelled() => return Ok(()),
                accepted = socket.accept() => accepted,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_of_client(&error) => continue,
                Err(error) => {
                    if let Some(untold) = told.pass(1) {
                        tracing::warn!(
                            event = "accept_failed",
                            protocol = self.protocol.name(),
                            untold,
                            "{error}"
                        );
                    }
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            // Closed at once: whoever comes when there is no room is told so by that, and can go elsewhere.
            let Some(place) = shared.connections.enter(self.protocol) else { continue };
            let shared = Arc::clone(&shared);
            tasks.spawn(async move {
                greet(self.protocol, stream, address, shared).await;
                drop(place);
            });
        }
    }
}

/// Agrees on TLS, if there is any, and serves.
async fn greet(protocol: Protocol, stream: TcpStream, address: SocketAddr, shared: Arc<Shared>) {
    // Answers are small and complete, so nothing is gained by waiting for more of them.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let peer = Peer { address: address.ip(), is_certified: false };
    let Some(tls) = &shared.tls else { return serve(protocol, stream, peer, shared).await };
    let acceptor = tls.acceptor(protocol);
    match timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let is_certified = stream.get_ref().1.peer_certificates().is_some();
            serve(protocol, stream, Peer { is_certified, ..peer }, shared).await;
        }
        Ok(Err(error)) => tracing::debug!(event = "tls_failed", protocol = protocol.name(), "{error}"),
        Err(_) => tracing::debug!(event = "tls_failed", protocol = protocol.name(), "it took too long"),
    }
}

async fn serve<T>(protocol: Protocol, stream: T, peer: Peer, shared: Arc<Shared>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match protocol {
        Protocol::Http => http::serve(stream, peer, shared).await,
        Protocol::Resp => resp::serve(stream, peer, shared).await,
        Protocol::Grpc => grpc::serve(stream, peer, shared).await,
    }
}

fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
