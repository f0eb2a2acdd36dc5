//! The suite of servers: what one decision costs that is asked for over the network.

mod contender;
mod cpu;
mod lane;
mod process;
mod rounds;
mod servers;

use contender::Entrant;
use rounds::Row;

pub(crate) use rounds::run;
pub(crate) use servers::Programs;

/// So many clients are connected to whoever is asked.
const CONNECTIONS: usize = 64;

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

/// What is run, in order.
fn rows() -> Vec<Row> {
    let resp = |id, title, pipeline| Row { id, title, pipeline, entrants: &OVER_RESP };
    vec![
        resp("resp-1", "RESP, one command at once", 1),
        resp("resp-16", "RESP, 16 commands at once", 16),
        resp("resp-64", "RESP, 64 commands at once", 64),
        Row { id: "http", title: "HTTP, one request at once", pipeline: 1, entrants: &OVER_HTTP },
    ]
}
