//! What lists of subjects and references cost, in instructions of a call without its connection: the body is read, the check is
//! decided and counted, and the response is built.
//!
//! The test runs itself under callgrind, as `crates/tollgate/tests/hot_paths.rs` does: a busy machine cannot fail it.

use std::env;
use std::hint::black_box;

use futures_util::FutureExt;
use http::HeaderMap;

use super::check;
use crate::access::Scopes;
use crate::serve::edge::auth::Caller;
use crate::serve::edge::resp::tests::server_state;

/// Calls of one thread within a second. Every second, a thread notes the first 500 of a kind, and samples of the others.
const CALLS: u32 = 10_000;
/// The variable that names the calls of a run under callgrind.
const VARIABLE: &str = "TOLLGATE_COST_OF";
const TEST: &str = "serve::edge::http::routes::check::cost::lists_and_references_cost_little";

/// Callgrind counts what happens inside this function. Returns how many calls had this status.
#[inline(never)]
fn measured_calls(state: &crate::serve::server_state::ServerState, bodies: &[String], status: u16) -> usize {
    let (headers, caller) = (HeaderMap::new(), Caller::NOBODY);
    let answered = bodies.iter().filter(|body| {
        let call = check(&headers, body.as_bytes(), &caller, state);
        // The memory store decides at once.
        let response = black_box(call.now_or_never().expect("it is decided").expect("it is valid"));
        response.status().as_u16() == status
    });
    answered.count()
}

fn run(calls: &str) {
    let state = server_state(Scopes::CHECK);
    let user = |number: u32| if calls == "refused" { 0 } else { number };
    let body = |number| format!(r#"{{"attributes":{{"action":"search","user":"u-{}"}}}}"#, user(number));
    let bodies: Vec<String> = (0..CALLS).map(body).collect();
    let status = if calls == "refused" { 429 } else { 200 };
    // The limit refills while the test runs.
    let expected = CALLS as usize * 9 / 10;
    assert!(measured_calls(&state, &bodies, status) > expected, "{calls}");
}

/// Instructions inside a function, per call.
fn instructions(calls: &str, function: &str) -> u64 {
    tollgate_testkit::callgrind::instructions(TEST, function, (VARIABLE, calls)) / u64::from(CALLS)
}

#[test]
fn lists_and_references_cost_little() {
    if let Ok(calls) = env::var(VARIABLE) {
        return run(&calls);
    }
    // Decision 0047 says why a reference may cost more.
    for (calls, function, percent_max) in
        [("admitted", "note_subjects", 3), ("refused", "note_subjects", 3), ("refused", "seal_decision", 20)]
    {
        let (whole, part) = (instructions(calls, "measured_calls"), instructions(calls, function));
        let rest = whole - part;
        println!(
            "{calls}: {function} takes {part} of {whole} instructions, {:.1} % more",
            part as f64 * 100.0 / rest as f64
        );
        assert!(part * 100 <= rest * percent_max, "{calls}: {function} takes {part} of {whole} instructions");
    }
}
