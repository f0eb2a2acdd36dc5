//! A collector of traces.

use std::net::{SocketAddr, TcpListener};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// Spans are sent in batches, every five seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    spans: Receiver<Span>,
}

struct SpanReceiver(Mutex<Sender<Span>>);

#[tonic::async_trait]
impl TraceService for SpanReceiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let sent = request.into_inner().resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        for span in sent.flat_map(|scope| scope.spans) {
            // The receiver may be gone.
            drop(self.0.lock().expect("no thread panics with the lock").send(span));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Collects until the test ends.
    pub(crate) fn start() -> Collector {
        let socket = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = socket.local_addr().expect("it has an address");
        socket.set_nonblocking(true).expect("a socket can be set");
        let (sender, spans) = channel();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let socket = tokio::net::TcpListener::from_std(socket).expect("it listens");
                let service = TraceServiceServer::new(SpanReceiver(Mutex::new(sender)));
                Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(socket)).await
            })
        });
        Collector { address, spans }
    }

    pub(crate) fn next(&self) -> Span {
        self.spans.recv_timeout(TIMEOUT).expect("a span comes")
    }
}
