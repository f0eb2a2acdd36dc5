//! How many subjects of a rule have state at once.

use tollgate::core::Time;

/// Slots of the ring. The end of a state is rounded up to a slot.
const SLOTS: usize = 2_048;
/// The shortest slot.
const SLOT_US_MIN: u64 = 1_000_000;

/// Counts the subjects whose state has not ended, and remembers the peak.
#[derive(Clone, Debug)]
pub(super) struct Live {
    slot_us: u64,
    /// States that end in each slot, from `first` on.
    ending: Vec<u32>,
    /// The slot of now, counted from 1970.
    first: u64,
    live: u64,
    peak: u64,
}

impl Live {
    /// `window_us` is how long the rule remembers a subject, about. States that end later than four times this count as ending
    /// then.
    pub(super) fn new(window_us: u64) -> Live {
        let slot_us = (window_us.saturating_mul(4) / SLOTS as u64).max(SLOT_US_MIN);
        Live { slot_us, ending: vec![0; SLOTS], first: 0, live: 0, peak: 0 }
    }

    pub(super) const fn peak(&self) -> u64 {
        self.peak
    }

    /// Notes that a subject's state now lasts until `until`. `ends_in` is what the last call for the subject returned, and 0
    /// for its first call.
    #[inline]
    pub(super) fn note(&mut self, now: Time, until: Time, ends_in: u32) -> u32 {
        self.advance(now.us() / self.slot_us);
        let last = self.first + SLOTS as u64 - 1;
        let slot = (until.us() / self.slot_us).clamp(self.first, last);
        if u64::from(ends_in) >= self.first {
            let at = place(ends_in.into());
            self.ending[at] = self.ending[at].saturating_sub(1);
        } else {
            self.live += 1;
            self.peak = self.peak.max(self.live);
        }
        self.ending[place(slot)] += 1;
        // A slot has at least a second, so that its number fits until the year 2106.
        slot as u32
    }

    /// Ends the states of all slots before this one.
    fn advance(&mut self, slot: u64) {
        if slot <= self.first {
            return;
        }
        if slot - self.first >= SLOTS as u64 || self.first == 0 {
            self.ending.fill(0);
            self.live = 0;
        } else {
            for past in self.first..slot {
                let ended = std::mem::take(&mut self.ending[place(past)]);
                self.live = self.live.saturating_sub(ended.into());
            }
        }
        self.first = slot;
    }
}

const fn place(slot: u64) -> usize {
    (slot % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_largest_number_of_states_at_once() {
        let mut live = Live::new(10_000_000);
        let second = |s: u64| Time::from_us((1_700_000_000 + s) * 1_000_000);
        let first = live.note(second(0), second(10), 0);
        let other = live.note(second(1), second(5), 0);
        assert_eq!(live.peak(), 2);
        // The second one ends at 5 and returns at 8; the first one is renewed.
        live.note(second(8), second(18), first);
        live.note(second(8), second(12), other);
        assert_eq!(live.peak(), 2);
        live.note(second(9), second(30), 0);
        assert_eq!(live.peak(), 3);
        // Much later all have ended.
        live.note(second(100_000), second(100_010), 0);
        assert_eq!((live.peak(), live.live), (3, 1));
    }
}
