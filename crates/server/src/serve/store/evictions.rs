//! Notices that the store evicts keys. For a limit, an evicted key means that nothing was used.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tollgate::core::StoreError;
use tollgate::store::redis::RedisStore;

use crate::failure::error_chain;
use crate::serve::observe::{Exposition, Kind};

/// How often the servers of the store are asked.
const EVERY: Duration = Duration::from_secs(5);
/// After this time without an eviction, an episode is over.
const QUIET: Duration = Duration::from_secs(60);

/// What is known about evictions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Evictions {
    /// Keys evicted since this server started.
    pub(crate) total: u64,
    /// Whether keys were evicted in the last minute. `None` until the store has answered, and if it does not say.
    pub(crate) is_evicting: Option<bool>,
}

impl Evictions {
    pub(crate) fn write(&self, page: &mut Exposition) {
        page.single(
            "rate_limit_store_evicted_keys_total",
            Kind::Counter,
            "Keys that the store has evicted since this server started, of any user of the store.",
            self.total,
        );
    }
}

/// Counts evictions, and divides them into episodes.
#[derive(Debug, Default)]
struct EvictionCounter {
    /// The last count of each server.
    counts: HashMap<String, u64>,
    last: Option<Instant>,
    /// Whether the store's user lacks the permission to ask.
    is_denied: bool,
    evictions: Evictions,
}

impl EvictionCounter {
    /// Records the counts of all servers.
    fn update(&mut self, counts: Vec<(String, u64)>, now: Instant) {
        let mut evicted = 0;
        for (address, count) in &counts {
            // Evictions before the first count may be old. A smaller count is that of a restarted server.
            let before = self.counts.get(address).copied().unwrap_or(*count);
            evicted += count.checked_sub(before).unwrap_or(*count);
        }
        self.counts.extend(counts);
        self.evictions.total += evicted;
        if evicted > 0 {
            self.last = Some(now);
        }
        let is_recent = self.last.is_some_and(|last| now.duration_since(last) < QUIET);
        let was_evicting = self.evictions.is_evicting == Some(true);
        self.evictions.is_evicting = Some(is_recent);
        match (was_evicting, is_recent) {
            (false, true) => tracing::error!(
                event = "keys_evicted",
                evicted,
                "the store evicts keys, and their subjects start again; give it more memory and the maxmemory-policy noeviction"
            ),
            (true, false) => {
                tracing::info!(
                    event = "evictions_ended",
                    total = self.evictions.total,
                    "the store evicts no more keys"
                );
            }
            _ => (),
        }
    }

    /// Records that the store did not say. Only a missing permission is logged here: checks log the other failures.
    fn update_unknown(&mut self, error: &StoreError) {
        let is_denied = matches!(error, StoreError::Misconfigured(_));
        if is_denied && !self.is_denied {
            tracing::warn!(
                event = "evictions_unknown",
                "{}; evictions are not noticed; add +info to the ACL line of the store's user",
                error_chain(error)
            );
        }
        self.is_denied = is_denied;
        self.evictions.is_evicting = None;
    }
}

/// Asks the store until shutdown.
pub(crate) async fn watch(store: RedisStore, sender: watch::Sender<Evictions>, ending: CancellationToken) {
    watch_every(EVERY, store, sender, ending).await;
}

async fn watch_every(
    every: Duration,
    store: RedisStore,
    sender: watch::Sender<Evictions>,
    ending: CancellationToken,
) {
    let mut counter = EvictionCounter::default();
    loop {
        let found = tokio::select! {
            () = ending.cancelled() => return,
            found = store.evicted_keys() => found,
        };
        match found {
            Ok(counts) => counter.update(counts, Instant::now()),
            Err(error) => counter.update_unknown(&error),
        }
        sender.send_replace(counter.evictions);
        tokio::select! {
            () = ending.cancelled() => return,
            () = sleep(every) => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate::store::redis::RedisSettings;
    use tollgate_testkit::redis::{Flavour, Server};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn evictions_are_counted_from_the_first_count_and_episodes_end_after_a_minute() {
        let began = Instant::now();
        let mut counter = EvictionCounter::default();
        for (after_s, counts, total, is_evicting) in [
            (0, [("a", 7), ("b", 0)], 0, false),
            (5, [("a", 7), ("b", 0)], 0, false),
            (10, [("a", 9), ("b", 1)], 3, true),
            (15, [("a", 9), ("b", 1)], 3, true),
            // A restarted.
            (60, [("a", 2), ("b", 1)], 5, true),
            (119, [("a", 2), ("b", 1)], 5, true),
            (120, [("a", 2), ("b", 1)], 5, false),
            // A failover to another server.
            (125, [("c", 900), ("b", 1)], 5, false),
            (130, [("c", 901), ("b", 1)], 6, true),
        ] {
            let counts = counts.map(|(address, count)| (address.to_owned(), count)).to_vec();
            counter.update(counts, began + Duration::from_secs(after_s));
            let expected = Evictions { total, is_evicting: Some(is_evicting) };
            assert_eq!(counter.evictions, expected, "after {after_s} s");
        }
    }

    #[tokio::test]
    async fn evictions_of_a_full_redis_are_noticed() {
        let arguments = ["--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru"];
        for flavour in Flavour::ALL {
            let server = Server::builder(flavour).arguments(arguments).start().expect("a server starts");
            let store = RedisSettings::url(&server.url()).expect("a URL").connect().await.expect("a store");
            let (sender, mut receiver) = watch::channel(Evictions::default());
            let ending = CancellationToken::new();
            tokio::spawn(watch_every(Duration::from_millis(20), store, sender, ending.clone()));
            let known =
                tokio::time::timeout(SOON, receiver.wait_for(|found| found.is_evicting.is_some())).await;
            let known = *known.expect("in time").expect("it goes on");
            assert_eq!(known, Evictions { total: 0, is_evicting: Some(false) }, "{flavour}");
            let mut admin = server.admin().expect("a connection");
            for number in 0..64 {
                let key = format!("filler:{number}");
                admin.command(&[b"SET", key.as_bytes(), &[b'x'; 100_000]]).expect("it evicts");
            }
            let found = tokio::time::timeout(SOON, receiver.wait_for(|found| found.total > 0)).await;
            let found = *found.expect("in time").expect("it goes on");
            assert_eq!(found.is_evicting, Some(true), "{flavour}");
            ending.cancel();
        }
    }
}
