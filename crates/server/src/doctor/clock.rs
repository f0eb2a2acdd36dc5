//! The clock of the store.

use std::time::Duration;

use tollgate::store::redis::{InspectedServer, RedisReply};
use tollgate::{Clock, SystemClock};

use super::Finding;
use super::info::could_not_look;

const ATTEMPTS: usize = 5;
const WARN_ABOVE: Duration = Duration::from_millis(500);
/// What a caller's time may differ by. See `TimeSource::Caller`.
const FAIL_ABOVE: Duration = Duration::from_secs(2);

/// Compares the clock of the store with the clock here. The shortest of a few round trips is the most exact.
pub(super) async fn examine(server: &mut InspectedServer) -> Finding {
    const CHECK: &str = "store-clock";
    let mut best: Option<(u64, i64)> = None;
    for _ in 0..ATTEMPTS {
        let before = SystemClock.now().us();
        let reply = match server.command(&[b"TIME"]).await {
            Ok(reply) => reply,
            Err(error) => return could_not_look(CHECK, &error, "+time"),
        };
        let took = SystemClock.now().us().saturating_sub(before);
        let Some(theirs) = time_of(&reply) else {
            return Finding::skip(CHECK, "the reply to TIME is not understood");
        };
        let ahead = theirs as i64 - (before + took / 2) as i64;
        if best.is_none_or(|(shortest, _)| took < shortest) {
            best = Some((took, ahead));
        }
    }
    let Some((took, ahead)) = best else { return Finding::skip(CHECK, "the server did not answer") };
    // What the round trip cannot explain.
    let difference = Duration::from_micros(ahead.unsigned_abs().saturating_sub(took / 2));
    let direction = if ahead >= 0 { "ahead of" } else { "behind" };
    let at = &server.address;
    if difference <= WARN_ABOVE {
        return Finding::pass(CHECK, format!("{at}: the clock agrees with the clock here"));
    }
    let reason = format!("{at}: the clock is {difference:.1?} {direction} the clock here");
    let fix =
        "synchronise both clocks with NTP; the clock of the store decides, so quotas end at its midnight";
    if difference > FAIL_ABOVE {
        Finding::fail(CHECK, reason, fix)
    } else {
        Finding::warn(CHECK, reason, fix)
    }
}

/// Microseconds since 1970.
fn time_of(reply: &RedisReply) -> Option<u64> {
    let [seconds, us] = reply.list() else { return None };
    seconds.number::<u64>()?.checked_mul(1_000_000)?.checked_add(us.number()?)
}
