//! How many servers share a store.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For how long a number of servers counts after it was seen.
const REMEMBERED: Duration = Duration::from_secs(3_600);

/// The number of servers that share a store: what the operator states, or the most that were alive within the last hour,
/// whichever is more. A server that has just stopped may still have admitted, so its share is not given to the others.
#[derive(Debug, Default)]
pub struct FleetSize {
    stated: u32,
    most_seen: AtomicU32,
    /// Numbers with the instant at which each was last seen: instants rise, numbers fall.
    seen: Mutex<VecDeque<(Instant, u32)>>,
}

impl FleetSize {
    /// Creates the size that an operator states; 0 if it is not stated.
    pub fn stated(servers: u32) -> FleetSize {
        FleetSize { stated: servers, ..FleetSize::default() }
    }

    /// Notes how many servers are alive at `now`.
    pub fn note(&self, servers: u32, now: Instant) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        while seen.back().is_some_and(|&(_, fewer)| fewer <= servers) {
            seen.pop_back();
        }
        seen.push_back((now, servers));
        while seen.front().is_some_and(|&(at, _)| now.saturating_duration_since(at) >= REMEMBERED) {
            seen.pop_front();
        }
        let most = seen.front().map_or(servers, |&(_, most)| most);
        self.most_seen.store(most, Ordering::Relaxed);
    }

    /// Returns the number, or `None` if it is neither stated nor seen.
    pub fn servers(&self) -> Option<u32> {
        let servers = self.stated.max(self.most_seen.load(Ordering::Relaxed));
        (servers > 0).then_some(servers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_servers_of_the_last_hour_count() {
        let fleet = FleetSize::default();
        assert_eq!(fleet.servers(), None);
        let start = Instant::now();
        let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
        for (minutes, alive, expected) in
            [(0, 3, 3), (1, 5, 5), (30, 2, 5), (60, 4, 5), (61, 1, 4), (121, 1, 1)]
        {
            fleet.note(alive, at(minutes));
            assert_eq!(fleet.servers(), Some(expected), "after {minutes} minutes");
        }
    }

    #[test]
    fn what_the_operator_states_is_a_minimum() {
        let fleet = FleetSize::stated(4);
        fleet.note(2, Instant::now());
        assert_eq!(fleet.servers(), Some(4));
        fleet.note(6, Instant::now());
        assert_eq!(fleet.servers(), Some(6));
    }
}
