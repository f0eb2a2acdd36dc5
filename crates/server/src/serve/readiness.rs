//! Whether the server should get requests, and the state of its parts.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_database::Bound;

use super::server_state::ServerState;
use super::store::status::StoreStatus;

/// A database that was silent for longer is reported as down. A heartbeat is sent every second.
const LEDGER_SILENT_MAX: Duration = Duration::from_secs(3);

/// Whether the server is ready, and details for people and probes.
///
/// A server whose store is down is ready: it answers by the failure policies of its rules. A server that shuts down is not, and
/// for 30 seconds one that does not know the live changes.
///
/// Anonymous callers may read this, so it says that something is wrong but not what. The log has the details.
pub(crate) fn readiness(state: &ServerState) -> (bool, Value) {
    let knows = state.control.as_ref().is_none_or(|control| control.is_ready());
    let is_ready = !state.ending.is_cancelled() && knows;
    let store = state.gate.store_status();
    let kind = match &store {
        StoreStatus::Memory(_) => "memory",
        StoreStatus::Redis { .. } => "redis",
    };
    let is_evicting = state.evictions.as_ref().and_then(|evictions| evictions.borrow().is_evicting);
    let rules = state.rules.in_force();
    let details = json!({
        "ready": is_ready,
        "store": { "kind": kind, "up": store.down_reason().is_none(), "evicting": is_evicting },
        "ledger": state.gate.ledger().map(|ledger| {
            let status = ledger.status();
            json!({
                "up": status.silent_for < LEDGER_SILENT_MAX,
                "unposted": status.unposted,
                "near": status.near.map(Bound::name),
            })
        }),
        "live_changes": state.control.as_ref().map(|control| {
            let known = control.known();
            json!({ "from": known.from.name(), "version": known.version.number, "up": control.is_up() })
        }),
        "fleet": state.others.as_ref().map(|others| others.borrow().to_json()),
        "rules": {
            "version": rules.version,
            "fingerprint": rules.fingerprint,
            "refused": rules.refused.is_some(),
        },
    });
    (is_ready, details)
}
