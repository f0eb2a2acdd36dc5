//! gRPC clients: connections with many calls in flight on each.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use h2::client::{SendRequest, handshake};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use tokio::time::timeout;

use super::client::Requests;
use super::contender::Entrant;

/// The longest wait for a response.
const SILENT_MAX: Duration = Duration::from_secs(10);

/// All connections to one server.
pub(super) struct Calls {
    runtime: Runtime,
    connections: Vec<SendRequest<Bytes>>,
    at_once: usize,
}

impl Calls {
    /// Opens this number of connections, each with this number of calls in flight.
    pub(super) fn open(port: u16, connections: usize, at_once: usize) -> Result<Calls> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let connections = runtime.block_on(async {
            let mut open = Vec::new();
            for _ in 0..connections {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
                stream.set_nodelay(true)?;
                let (connection, driver) = handshake(stream).await?;
                // The calls on the connection report how it ended.
                tokio::spawn(async move { driver.await.ok() });
                open.push(connection);
            }
            anyhow::Ok(open)
        })?;
        Ok(Calls { runtime, connections, at_once })
    }

    /// Sends all calls and returns when the last response has arrived.
    pub(super) fn ask(&self, entrant: &'static Entrant, requests: &[Requests]) -> Result<()> {
        let waiting: Rc<RefCell<Vec<Bytes>>> = Rc::new(RefCell::new(
            requests.iter().map(|requests| Bytes::copy_from_slice(requests.bytes())).collect(),
        ));
        let tasks = LocalSet::new();
        let mut callers = Vec::new();
        for connection in &self.connections {
            for _ in 0..self.at_once {
                let (connection, waiting) = (connection.clone(), Rc::clone(&waiting));
                callers.push(tasks.spawn_local(async move {
                    // Not held while waiting for a response.
                    while let Some(request) = { waiting.borrow_mut().pop() } {
                        let called = timeout(SILENT_MAX, call(connection.clone(), entrant, request));
                        called.await.context("the server does not answer")??;
                    }
                    anyhow::Ok(())
                }));
            }
        }
        self.runtime.block_on(tasks.run_until(async {
            for caller in callers {
                caller.await??;
            }
            Ok(())
        }))
    }
}

async fn call(connection: SendRequest<Bytes>, entrant: &Entrant, message: Bytes) -> Result<()> {
    let request = Request::post(format!("http://127.0.0.1{}", entrant.path))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())?;
    let mut connection = connection.ready().await?;
    let (response, mut stream) = connection.send_request(request, false)?;
    stream.send_data(message, true)?;
    let response = response.await?;
    ensure!(response.status() == StatusCode::OK, "{} answers {}", entrant.name, response.status());
    let mut body = response.into_body();
    let mut answer = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        answer.extend_from_slice(&data);
    }
    let trailers = body.trailers().await?;
    let status = trailers.as_ref().and_then(|trailers| trailers.get("grpc-status"));
    ensure!(
        entrant.answer(&answer)? == Some(answer.len()) && status.is_some_and(|status| status == "0"),
        "{} answers {answer:?} and {trailers:?}",
        entrant.name
    );
    Ok(())
}
