//! HTTP: translates requests into questions to the gate, and answers into responses.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::shared::{Peer, Shared};

/// Serves one connection until it ends, or until the server does.
pub(crate) async fn serve<T>(_stream: T, _peer: Peer, _shared: Arc<Shared>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
}
