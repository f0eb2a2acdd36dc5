//! Reads the counters once per second, for the history and for the browsers that follow it.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tollgate::{Clock, SystemClock};

use super::observe::history::SAMPLE_EVERY;
use super::readiness::readiness;
use super::server_state::ServerState;

/// Samples every second until the server shuts down. The first sample was taken before the server accepted connections.
pub(crate) async fn run(state: Arc<ServerState>) {
    let mut ticks = interval_at(Instant::now() + SAMPLE_EVERY, SAMPLE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            () = state.ending.cancelled() => break,
            _ = ticks.tick() => sample(&state),
        }
    }
}

/// Reads the counters once.
pub(crate) fn sample(state: &ServerState) {
    let now = SystemClock.now();
    state.history.note(&state.gate.sample(now.us() / 1_000_000));
    if state.history.has_viewers() {
        state.history.publish(event(state));
    }
}

/// The latest second and the state of the server, in the form of server-sent events. Written once for all viewers.
pub(crate) fn event(state: &ServerState) -> Bytes {
    let (_, mut server) = readiness(state);
    let rules = state.rules.in_force();
    server["name"] = state.gate.references().server().into();
    server["rules"]["name"] = rules.name.as_str().into();
    server["rules"]["loaded_at"] = rules.loaded_at.to_string().into();
    let event = json!({ "second": state.history.latest_second(), "server": server });
    Bytes::from(format!("data: {event}\n\n"))
}
