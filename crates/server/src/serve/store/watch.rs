//! Logs when the store goes down and when it is back, once each.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tollgate::store::redis::RedisStore;

use super::status::down_reason;

/// How often the state of the connections is read. Nothing is sent to the store.
const EVERY: Duration = Duration::from_millis(100);

/// Whether the store is up, and since when it is not.
#[derive(Debug)]
pub(crate) struct StoreState {
    down_since: Option<Instant>,
}

/// What has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Change {
    Down { cause: String },
    Back { after: Duration },
}

impl StoreState {
    /// Logs the state at the start: `down` is why the store does not answer.
    pub(crate) fn at_start(down: Option<String>) -> StoreState {
        match &down {
            None => tracing::info!(event = "store_up", "the store is up"),
            Some(cause) => log(&Change::Down { cause: cause.clone() }),
        }
        StoreState { down_since: down.map(|_| Instant::now()) }
    }

    pub(crate) const fn is_up(&self) -> bool {
        self.down_since.is_none()
    }

    /// Takes over the current state, and returns what has changed.
    fn update(&mut self, down: Option<String>, now: Instant) -> Option<Change> {
        match (self.down_since, down) {
            (None, Some(cause)) => {
                self.down_since = Some(now);
                Some(Change::Down { cause })
            }
            (Some(since), None) => {
                self.down_since = None;
                Some(Change::Back { after: now.duration_since(since) })
            }
            _ => None,
        }
    }
}

/// Follows the store until shutdown.
pub(crate) async fn watch(store: RedisStore, mut state: StoreState, ending: CancellationToken) {
    loop {
        tokio::select! {
            () = ending.cancelled() => return,
            () = sleep(EVERY) => (),
        }
        let down = down_reason(&store.servers());
        if let Some(change) = state.update(down, Instant::now()) {
            log(&change);
        }
    }
}

fn log(change: &Change) {
    match change {
        Change::Down { cause } => {
            tracing::error!(event = "store_down", cause, "the store is down; failure policies answer");
        }
        Change::Back { after } => {
            tracing::info!(event = "store_back", down_ms = after.as_millis() as u64, "the store is back");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_reported_once_with_its_cause_and_its_duration() {
        let start = Instant::now();
        let mut state = StoreState { down_since: None };
        let at = |ms| start + Duration::from_millis(ms);
        let refused = || Some("connection refused".to_owned());
        assert_eq!(state.update(None, at(0)), None);
        assert_eq!(state.update(refused(), at(100)), Some(Change::Down { cause: refused().unwrap() }));
        assert_eq!(state.update(Some("no route".to_owned()), at(200)), None, "the same outage");
        assert!(!state.is_up());
        let back = Change::Back { after: Duration::from_millis(300) };
        assert_eq!(state.update(None, at(400)), Some(back));
        assert_eq!(state.update(None, at(500)), None);
    }
}
