//! Accepts connections. Every thread has its own socket, and the kernel distributes connections over them.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::connections::ConnectionPermit;
use super::proxy_protocol::{self, Source};
use crate::protocol::Protocol;
use crate::serve::edge::auth::Peer;
use crate::serve::edge::http::Surface;
use crate::serve::edge::{grpc, http, resp};
use crate::serve::observe::log::LogThrottle;
use crate::serve::server_state::ServerState;

/// The socket of one thread for a port.
pub(crate) struct Listener {
    protocol: Protocol,
    socket: TcpListener,
}

/// Wait after an error of the system, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);
const BACKLOG: i32 = 1_024;
/// Timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a PROXY protocol header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

impl Listener {
    /// Binds a socket. Other sockets of the same user can use the same address.
    pub(crate) fn bind(protocol: Protocol, address: SocketAddr) -> io::Result<Listener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(socket2::Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(Listener { protocol, socket: socket.into() })
    }

    /// Fails if another process listens on the address. The sockets would be divided between the processes, and each would
    /// count half of the requests.
    pub(crate) fn probe(address: SocketAddr) -> io::Result<()> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(socket2::Protocol::TCP))?;
        // Connections of a server that has just stopped do not matter.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())
    }

    /// The bound address, with the real port if port 0 was requested.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts connections until the server shuts down.
    pub(crate) async fn accept(self, state: Arc<ServerState>, tasks: TaskTracker) -> io::Result<()> {
        let surface = match self.protocol {
            Protocol::Admin => Surface::CONTROL,
            _ => Surface::of_http(self.address()?, state.control_on_http),
        };
        let socket = tokio::net::TcpListener::from_std(self.socket)?;
        let errors = LogThrottle::default();
        let header_errors = Arc::<LogThrottle>::default();
        loop {
            let accepted = tokio::select! {
                () = state.ending.cancelled() => return Ok(()),
                accepted = socket.accept() => accepted,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_client_error(&error) => continue,
                Err(error) => {
                    if let Some(suppressed) = errors.pass(1) {
                        tracing::warn!(
                            event = "accept_failed",
                            protocol = self.protocol.name(),
                            suppressed,
                            "{error}"
                        );
                    }
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            // Above the limit, the connection is closed at once, so that the client can use another server.
            let from = address.ip();
            let is_load_balancer = state.proxy_protocol.trusts(from);
            let admitted = if is_load_balancer {
                state.connections.admit_unidentified(self.protocol, from)
            } else {
                state.connections.admit(self.protocol, from)
            };
            let Some(mut permit) = admitted else { continue };
            let (state, header_errors) = (Arc::clone(&state), Arc::clone(&header_errors));
            tasks.spawn(async move {
                let mut stream = stream;
                let client = if is_load_balancer {
                    identify(&mut stream, &mut permit, from, &header_errors).await
                } else {
                    Some(from)
                };
                if let Some(address) = client {
                    let peer = Peer {
                        address,
                        is_certified: false,
                        connection: permit.number,
                        is_for_health: permit.is_for_health,
                        in_flight: Arc::clone(&permit.share.in_flight),
                    };
                    start((self.protocol, surface), stream, peer, state).await;
                }
                drop(permit);
            });
        }
    }
}

/// Returns the address of the client that a load balancer sends first. `None` if it sends none, or if the client has too many
/// connections.
///
/// Others cannot send an address: their bytes are read as a request, which a header is not.
async fn identify(
    stream: &mut TcpStream,
    permit: &mut ConnectionPermit,
    load_balancer: IpAddr,
    errors: &LogThrottle,
) -> Option<IpAddr> {
    let header = timeout(HEADER_TIMEOUT, proxy_protocol::read(stream)).await;
    match header.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(Source::Client(client)) => permit.identify(client).then_some(client),
        Ok(Source::Unknown) => Some(load_balancer),
        Err(error) => {
            if let Some(suppressed) = errors.pass(1) {
                tracing::warn!(event = "proxy_protocol_failed", %load_balancer, suppressed, "{error}");
            }
            None
        }
    }
}

/// Completes the TLS handshake, if TLS is on, and serves the connection.
async fn start(
    (protocol, surface): (Protocol, Surface),
    stream: TcpStream,
    peer: Peer,
    state: Arc<ServerState>,
) {
    // Responses are small and complete, so there is nothing to wait for.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let Some(tls) = &state.tls else {
        return serve((protocol, surface), stream, peer, state).await;
    };
    let acceptor = tls.acceptor(protocol);
    match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let is_certified = stream.get_ref().1.peer_certificates().is_some();
            serve((protocol, surface), stream, Peer { is_certified, ..peer }, state).await;
        }
        Ok(Err(error)) => tracing::debug!(event = "tls_failed", protocol = protocol.name(), "{error}"),
        Err(_) => {
            tracing::debug!(event = "tls_failed", protocol = protocol.name(), "the handshake timed out")
        }
    }
}

async fn serve<T>((protocol, surface): (Protocol, Surface), stream: T, peer: Peer, state: Arc<ServerState>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match protocol {
        Protocol::Http | Protocol::Admin => http::serve(stream, peer, surface, state).await,
        Protocol::Resp => resp::serve(stream, peer, state).await,
        Protocol::Grpc => grpc::serve(stream, peer, state).await,
    }
}

fn is_client_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
