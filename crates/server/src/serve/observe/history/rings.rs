//! Counts per second, per ten seconds and per minute, in rings.

/// One ring: its step in seconds and its number of slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) step_s: u64,
    pub(super) slots: usize,
}

/// From the finest to the coarsest.
pub(super) const SHAPES: [Shape; 3] =
    [Shape { step_s: 1, slots: 120 }, Shape { step_s: 10, slots: 360 }, Shape { step_s: 60, slots: 1_440 }];

/// What is counted per rule, and for all checks together.
pub(crate) struct Columns;

impl Columns {
    pub(crate) const ALLOWED: usize = 0;
    pub(crate) const REFUSED: usize = 1;
    pub(crate) const SHADOW_REFUSED: usize = 2;
    pub(crate) const FALLBACK: usize = 3;
    pub(crate) const NEAR_LIMIT: usize = 4;
    pub(crate) const COUNT: usize = 5;
    pub(super) const NAMES: [&'static str; Columns::COUNT] =
        ["allowed", "refused", "shadow_refused", "fallback", "near_limit"];
}

/// Which instants the slots of all rings belong to.
pub(super) struct Timeline {
    /// The number of the newest slot of each ring, counted from 1970; `None` before the first sample.
    newest: Option<[u64; SHAPES.len()]>,
    /// For each slot, the number that it was last sampled for. Other numbers are gaps.
    sampled: [Box<[u64]>; SHAPES.len()],
    /// The slots of each ring that the last advance opened: first and last number.
    opened: [Option<(u64, u64)>; SHAPES.len()],
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline {
            newest: None,
            sampled: SHAPES.map(|shape| vec![u64::MAX; shape.slots].into_boxed_slice()),
            opened: [None; SHAPES.len()],
        }
    }
}

impl Timeline {
    pub(super) fn is_empty(&self) -> bool {
        self.newest.is_none()
    }

    /// Moves to this instant. A clock that steps back adds to the newest slot.
    pub(super) fn advance(&mut self, at_s: u64) {
        let before = self.newest;
        let mut newest = SHAPES.map(|shape| at_s / shape.step_s);
        for (ring, (number, shape)) in newest.iter_mut().zip(SHAPES).enumerate() {
            self.opened[ring] = match before.map(|before| before[ring]) {
                Some(before) if *number <= before => {
                    *number = before;
                    None
                }
                // A sampler that is late by one slot is a busy machine. More is a process that stood still: a gap.
                Some(before) if *number == before + 2 => Some((before + 1, *number)),
                Some(_) | None => Some((*number, *number)),
            };
            for number in self.opened[ring].into_iter().flat_map(|(first, last)| first..=last) {
                self.sampled[ring][index(number, shape)] = number;
            }
        }
        self.newest = Some(newest);
    }

    /// The newest slot of a ring.
    pub(super) fn newest(&self, ring: usize) -> Option<u64> {
        self.newest.map(|newest| newest[ring])
    }

    /// Whether the slot of this number was sampled.
    pub(super) fn is_valid(&self, ring: usize, number: u64) -> bool {
        self.sampled[ring][index(number, SHAPES[ring])] == number
    }
}

/// The number of the oldest slot that a ring still has.
pub(super) fn first_number(newest: u64, shape: Shape) -> u64 {
    newest.saturating_sub(shape.slots as u64 - 1)
}

/// The counts of all rings. 1,920 slots.
pub(super) struct Rings<const COLUMNS: usize> {
    slots: [Box<[[u32; COLUMNS]]>; SHAPES.len()],
}

impl<const COLUMNS: usize> Rings<COLUMNS> {
    pub(super) fn new() -> Rings<COLUMNS> {
        Rings { slots: SHAPES.map(|shape| vec![[0; COLUMNS]; shape.slots].into_boxed_slice()) }
    }

    /// Adds to the newest slot of every ring. Slots that the timeline has just opened begin at zero.
    pub(super) fn add(&mut self, timeline: &Timeline, gained: &[u32; COLUMNS]) {
        for (ring, shape) in SHAPES.iter().enumerate() {
            let slots = &mut self.slots[ring];
            for number in timeline.opened[ring].into_iter().flat_map(|(first, last)| first..=last) {
                slots[index(number, *shape)] = [0; COLUMNS];
            }
            let Some(newest) = timeline.newest(ring) else { continue };
            for (slot, gained) in slots[index(newest, *shape)].iter_mut().zip(gained) {
                *slot = slot.saturating_add(*gained);
            }
        }
    }

    /// The memory of all slots. It never grows.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.slots.iter().map(|slots| size_of_val(&**slots)).sum()
    }

    /// The counts of one slot.
    pub(super) fn slot(&self, ring: usize, number: u64) -> &[u32; COLUMNS] {
        &self.slots[ring][index(number, SHAPES[ring])]
    }
}

fn index(number: u64, shape: Shape) -> usize {
    (number % shape.slots as u64) as usize
}
