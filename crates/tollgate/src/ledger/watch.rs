//! Watches the writers of a ledger, to know which of their entries can still be missing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tollgate_database::OpenWriter;
use tollgate_database::ledger::Id;

/// What was seen of the writers. It uses only its own clock, because theirs may differ.
#[derive(Default)]
pub(super) struct Watch {
    /// What each writer last reported, and when that was first seen here.
    writers: HashMap<Id, (i64, Instant)>,
}

/// What the writers say together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Watched {
    /// What was sent to the store before this instant of its clock is in the ledger, or was never acknowledged.
    CleanAt(i64),
    /// There is no writer that counts.
    NoWriter,
    /// A writer has reported more than the database knows: it was set back.
    SetBack,
}

impl Watch {
    /// Looks at all open writers. A writer that was not seen to live for `silent_max` has stopped by itself, and is ignored.
    pub(super) fn see(&mut self, open: &[OpenWriter], now: Instant, silent_max: Duration) -> Watched {
        let is_set_back = open.iter().any(|writer| {
            self.writers.get(&writer.id).is_some_and(|(last_seen_us, _)| writer.last_seen_us < *last_seen_us)
        });
        let before = std::mem::take(&mut self.writers);
        let mut clean_at_us = None;
        for writer in open {
            let seen =
                before.get(&writer.id).filter(|(last_seen_us, _)| *last_seen_us == writer.last_seen_us);
            let since = seen.map_or(now, |(_, since)| *since);
            self.writers.insert(writer.id, (writer.last_seen_us, since));
            if now.saturating_duration_since(since) < silent_max {
                clean_at_us =
                    Some(clean_at_us.map_or(writer.clean_at_us, |least: i64| least.min(writer.clean_at_us)));
            }
        }
        match clean_at_us {
            _ if is_set_back => Watched::SetBack,
            Some(clean_at_us) => Watched::CleanAt(clean_at_us),
            None => Watched::NoWriter,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(id: u8, last_seen_us: i64, clean_at_us: i64) -> OpenWriter {
        OpenWriter { id: Id([id; 16]), last_seen_us, clean_at_us }
    }

    #[test]
    fn a_silent_writer_holds_back_until_it_was_watched_for_the_whole_time() {
        let (mut watch, start, max) = (Watch::default(), Instant::now(), Duration::from_secs(10));
        let at = |seconds| start + Duration::from_secs(seconds);
        // Its last report is long ago by its own clock. Only the clock of the watch counts.
        assert_eq!(watch.see(&[writer(1, 5, 50), writer(2, 900, 90)], at(0), max), Watched::CleanAt(50));
        assert_eq!(watch.see(&[writer(1, 5, 50), writer(2, 901, 91)], at(9), max), Watched::CleanAt(50));
        assert_eq!(watch.see(&[writer(1, 5, 50), writer(2, 902, 92)], at(10), max), Watched::CleanAt(92));
        assert_eq!(watch.see(&[writer(1, 6, 60), writer(2, 903, 93)], at(11), max), Watched::CleanAt(60));
        assert_eq!(watch.see(&[], at(12), max), Watched::NoWriter);
    }

    #[test]
    fn a_database_that_was_set_back_is_noticed_once() {
        let (mut watch, now, max) = (Watch::default(), Instant::now(), Duration::from_secs(10));
        assert_eq!(watch.see(&[writer(1, 100, 50)], now, max), Watched::CleanAt(50));
        assert_eq!(watch.see(&[writer(1, 40, 30)], now, max), Watched::SetBack);
        assert_eq!(watch.see(&[writer(1, 41, 30)], now, max), Watched::CleanAt(30));
    }
}
