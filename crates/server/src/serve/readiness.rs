//! Whether a server should be asked, and how it is.

use serde_json::{Value, json};

use super::shared::Shared;
use super::store_status::StoreStatus;

/// Whether it is ready, and what people and probes may want to know.
///
/// A server whose store is down is ready: it answers by the rules' failure policies, which is what they are for. Only one
/// that is about to end is not.
///
/// Anybody may ask this, so it says that something is wrong and not what: that is for the log and for whoever may read.
pub(crate) fn readiness(shared: &Shared) -> (bool, Value) {
    let is_ready = !shared.ending.is_cancelled();
    let store = shared.gate.store_status();
    let kind = match &store {
        StoreStatus::Memory(_) => "memory",
        StoreStatus::Redis(_) => "redis",
    };
    let rules = shared.rules.in_force();
    let told = json!({
        "ready": is_ready,
        "store": { "kind": kind, "up": store.trouble().is_none() },
        "fleet": shared.others.as_ref().map(|others| others.borrow().to_json()),
        "rules": {
            "version": rules.version,
            "fingerprint": rules.fingerprint,
            "refused": rules.refused.is_some(),
        },
    });
    (is_ready, told)
}
