//! Where connections come in. Every thread listens on a socket of its own, and the kernel spreads connections over them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::shared::{Peer, Shared};
use super::{http, resp};
use crate::serve::access::Scopes;

/// What is spoken on a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocols {
    Http,
    Resp,
}

/// One thread's share of a port.
pub(crate) struct Listener {
    pub(crate) speaks: Protocols,
    pub(crate) socket: TcpListener,
}

/// After an error that is not the client's, like too many open files: a moment for some of them to be closed.
const PAUSE: Duration = Duration::from_millis(50);
const BACKLOG: i32 = 1_024;

impl Listener {
    /// A socket on an address, which others may share if they are of the same user.
    pub(crate) fn bind(speaks: Protocols, address: SocketAddr) -> io::Result<Listener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(Listener { speaks, socket: socket.into() })
    }

    /// Accepts until the server ends.
    pub(crate) async fn accept(
        self,
        shared: Arc<Shared>,
        anonymous: Scopes,
        room: Arc<Semaphore>,
        tasks: TaskTracker,
    ) -> io::Result<()> {
        let socket = tokio::net::TcpListener::from_std(self.socket)?;
        loop {
            let accepted = tokio::select! {
                () = shared.ending.cancelled() => return Ok(()),
                accepted = socket.accept() => accepted,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_of_client(&error) => continue,
                Err(_) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            // Closed at once: whoever comes when there is no room is told so by that, and can go elsewhere.
            let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
            let peer = Peer { address: address.ip(), scopes: anonymous };
            let shared = Arc::clone(&shared);
            tasks.spawn(async move {
                serve(self.speaks, stream, peer, shared).await;
                drop(place);
            });
        }
    }
}

async fn serve(speaks: Protocols, stream: TcpStream, peer: Peer, shared: Arc<Shared>) {
    // Answers are small and complete: nothing is gained by waiting for more. If it fails, the connection is gone.
    let _gone = stream.set_nodelay(true).is_err();
    match speaks {
        Protocols::Http => http::serve(stream, peer, shared).await,
        Protocols::Resp => resp::serve(stream, peer, shared).await,
    }
}

fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
