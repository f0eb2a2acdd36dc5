//! The server suite: the cost of one decision over the network.

mod calls;
mod client;
mod contender;
mod cpu;
mod message;
mod process;
mod rounds;
mod servers;

use contender::Entrant;
use rounds::Row;

pub(crate) use rounds::run;
pub(crate) use servers::Programs;

const OVER_RESP: [Entrant; 4] =
    [contender::THROTTLE, contender::TG_CHECK, contender::THROTTLECRAB_RESP, contender::BARE_ECHO];

const OVER_HTTP: [Entrant; 6] = [
    contender::CHECK,
    contender::AUTHORIZE,
    contender::THROTTLECRAB_HTTP,
    contender::NGINX,
    contender::BARE_POST,
    contender::BARE_GET,
];

const OVER_GRPC: [Entrant; 3] = [contender::RLS, contender::THROTTLECRAB_GRPC, contender::BARE_TONIC];

/// The rows, in order.
fn rows() -> Vec<Row> {
    let resp = |id, title, pipeline| Row { id, title, pipeline, entrants: &OVER_RESP };
    vec![
        resp("resp-1", "RESP, one command at once", 1),
        resp("resp-16", "RESP, 16 commands at once", 16),
        resp("resp-64", "RESP, 64 commands at once", 64),
        Row { id: "http", title: "HTTP, one request at once", pipeline: 1, entrants: &OVER_HTTP },
        Row { id: "grpc", title: "gRPC, 32 calls at once", pipeline: 32, entrants: &OVER_GRPC },
    ]
}
