//! Responds without deciding: the cost of runtime, sockets and protocols below `tollgate serve`.
//!
//! Threads, sockets and allocator are the same: one runtime per core, each with separate sockets on the same ports.

mod grpc;
mod http;
mod resp;

use std::net::{SocketAddr, TcpListener};
use std::thread;

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpStream;
use tokio::runtime::Builder;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BACKLOG: i32 = 1_024;

#[derive(Parser)]
struct Arguments {
    #[arg(long)]
    http: SocketAddr,
    #[arg(long)]
    resp: SocketAddr,
    #[arg(long)]
    grpc: SocketAddr,
}

fn main() -> Result<()> {
    let Arguments { http, resp, grpc } = Arguments::parse();
    let mut workers = Vec::new();
    for _ in 0..thread::available_parallelism()?.get() {
        let (http, resp, grpc) = (listener(http)?, listener(resp)?, listener(grpc)?);
        workers.push(thread::spawn(move || work(http, resp, grpc)));
    }
    for worker in workers {
        worker.join().map_err(|_| anyhow!("a thread has panicked"))??;
    }
    Ok(())
}

fn listener(address: SocketAddr) -> Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into()).with_context(|| format!("cannot listen on {address}"))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn work(http: TcpListener, resp: TcpListener, grpc: TcpListener) -> Result<()> {
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let http = tokio::spawn(accept(http, http::serve));
        let resp = tokio::spawn(accept(resp, resp::serve));
        let grpc = tokio::spawn(grpc::serve(grpc));
        http.await??;
        grpc.await??;
        resp.await?
    })
}

async fn accept<F>(socket: TcpListener, serve: fn(TcpStream) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let socket = tokio::net::TcpListener::from_std(socket)?;
    loop {
        let (stream, _) = socket.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(serve(stream));
    }
}
