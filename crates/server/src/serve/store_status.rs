//! How the store does, for those who watch.

use tollgate::store::memory::Usage;
use tollgate::store::redis::ServerStatus;

use super::observe::{Exposition, Kind};

/// What a store tells of itself.
pub(crate) enum StoreStatus {
    Memory(Usage),
    Redis(Vec<ServerStatus>),
}

impl StoreStatus {
    /// Why checks are answered by failure policies, if they are.
    pub(crate) fn trouble(&self) -> Option<String> {
        let StoreStatus::Redis(servers) = self else { return None };
        let down = servers.iter().filter_map(|server| server.down.as_ref());
        let told: Vec<String> = down.map(ToString::to_string).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        match self {
            StoreStatus::Memory(usage) => {
                page.single("rate_limit_keys", Kind::Gauge, "Keys that have state.", usage.keys);
                page.single(
                    "rate_limit_keys_max",
                    Kind::Gauge,
                    "The most keys there can be.",
                    usage.keys_max,
                );
                page.single(
                    "rate_limit_overflowed_total",
                    Kind::Counter,
                    "Answers from an account that subjects share for whom there was no room.",
                    usage.overflowed,
                );
            }
            StoreStatus::Redis(servers) => {
                // By number, because addresses come and go and the number of servers does not.
                let numbers: Vec<String> = (0..servers.len()).map(|number| number.to_string()).collect();
                let mut family = page.family(
                    "rate_limit_breaker_open",
                    Kind::Gauge,
                    "Whether a server of the store is taken for down.",
                );
                for (server, number) in servers.iter().zip(&numbers) {
                    family.sample(&[("server", number)], u8::from(server.down.is_some()));
                }
                let mut family = page.family(
                    "rate_limit_breaker_opened_total",
                    Kind::Counter,
                    "How often a server of the store was taken for down.",
                );
                for (server, number) in servers.iter().zip(&numbers) {
                    family.sample(&[("server", number)], server.opened);
                }
            }
        }
    }
}
