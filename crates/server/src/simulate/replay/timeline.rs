//! Numbers over time, in at most as many slots as a chart can show.

use tollgate::core::Time;

const SECOND_US: u64 = 1_000_000;
/// Lengths of a slot in seconds. Each is a multiple of the one before.
const LADDER: &[u64] =
    &[1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 21_600, 86_400, 604_800, 6_048_000, 60_480_000];
/// Slots of a timeline.
const SLOTS_MAX: usize = 720;

/// The numbers of one slot.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(in crate::simulate) struct Slot {
    pub(in crate::simulate) checks: u64,
    pub(in crate::simulate) refused: u64,
}

/// Numbers over time. The slots become longer as the time does.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(in crate::simulate) struct Timeline {
    /// The number of the first slot, counted from 1970.
    first: u64,
    step: usize,
    slots: Vec<Slot>,
}

impl Timeline {
    /// Adds a check to the slot of its time. Times before the first slot count in it.
    #[inline]
    pub(super) fn note(&mut self, at: Time, refused: bool) {
        let slot = self.slot_of(at);
        let slot = &mut self.slots[slot];
        slot.checks += 1;
        slot.refused += u64::from(refused);
    }

    #[inline]
    fn slot_of(&mut self, at: Time) -> usize {
        if self.slots.is_empty() {
            self.first = at.us() / self.slot_us();
        }
        loop {
            let index = (at.us() / self.slot_us()).saturating_sub(self.first);
            match usize::try_from(index) {
                Ok(index) if index < self.slots.len() => return index,
                Ok(index) if index < SLOTS_MAX => {
                    self.slots.resize(index + 1, Slot::default());
                    return index;
                }
                // The last length covers thousands of years.
                _ if self.step + 1 == LADDER.len() => return self.slots.len() - 1,
                _ => self.lengthen(),
            }
        }
    }

    /// Changes to the next length.
    #[cold]
    fn lengthen(&mut self) {
        let factor = LADDER[self.step + 1] / LADDER[self.step];
        let first = self.first / factor;
        let mut longer = Vec::new();
        for (number, slot) in (self.first..).zip(&self.slots) {
            let at = (number / factor - first) as usize;
            if at == longer.len() {
                longer.push(Slot::default());
            }
            longer[at].checks += slot.checks;
            longer[at].refused += slot.refused;
        }
        (self.first, self.slots) = (first, longer);
        self.step += 1;
    }

    fn slot_us(&self) -> u64 {
        LADDER[self.step] * SECOND_US
    }

    /// The length of a slot.
    pub(in crate::simulate) fn slot_seconds(&self) -> u64 {
        LADDER[self.step]
    }

    /// The slots and when each begins.
    pub(in crate::simulate) fn slots(&self) -> impl Iterator<Item = (Time, Slot)> + '_ {
        (self.first..).zip(&self.slots).map(|(number, slot)| (Time::from_us(number * self.slot_us()), *slot))
    }

    /// Makes the slots as long as those of another timeline, so that both can be drawn on one axis.
    pub(in crate::simulate) fn align(&mut self, other: &mut Timeline) {
        while self.step < other.step {
            self.lengthen();
        }
        while other.step < self.step {
            other.lengthen();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_become_longer_and_lose_nothing() {
        let mut timeline = Timeline::default();
        for n in 0..100_000_u64 {
            timeline.note(Time::from_us((1_700_000_003 + n) * SECOND_US), n.is_multiple_of(10));
        }
        assert_eq!(timeline.slot_seconds(), 300);
        let slots: Vec<_> = timeline.slots().collect();
        assert!(slots.len() <= SLOTS_MAX);
        assert_eq!(slots.iter().map(|(_, slot)| slot.checks).sum::<u64>(), 100_000);
        assert_eq!(slots.iter().map(|(_, slot)| slot.refused).sum::<u64>(), 10_000);
        assert_eq!(slots[0].0.us() % (300 * SECOND_US), 0, "slots begin at round times");
        assert_eq!(slots[1].1.checks, 300);
        timeline.note(Time::from_us(5), true);
        assert_eq!(timeline.slots().next().map(|(_, slot)| slot.refused), Some(slots[0].1.refused + 1));
        timeline.note(Time::MAX, true);
    }
}
