//! Which layers of the guard may answer for an item before the store is asked.

use crate::time::Span;

/// What a rule says about the layers between the limiter and a remote store. Stores do not read it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layers {
    /// The prefilter's share of the limit in percent; 0 if the rule has no prefilter.
    pub prefilter_percent: u16,
    /// Whether a refusal of the store may be repeated without asking it again.
    pub refusal_memory: bool,
    /// Whether the rule is postpaid. No layer answers for a Plan with such a rule.
    pub postpaid: bool,
}

impl Layers {
    /// No layer: the store is always asked.
    pub const NONE: Layers = Layers { prefilter_percent: 0, refusal_memory: false, postpaid: false };
}

/// What a rule gets that says nothing about layers.
impl Default for Layers {
    fn default() -> Layers {
        Layers { refusal_memory: true, ..Layers::NONE }
    }
}

/// What one layer of this process would do with one item now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayerView {
    /// The prefilter counts attempts.
    Prefilter {
        /// How many it admits.
        limit: u64,
        /// How many more fit.
        remaining: u64,
        /// Whether it would refuse.
        refuses: bool,
    },
    /// The refusal memory.
    Memory {
        /// For how long it repeats a refusal. `None` if it remembers none.
        refuses_for: Option<Span>,
    },
    /// Parts of the limit that this process has booked.
    Slices {
        /// Unspent units.
        held: u64,
        /// Whether they pay for the item.
        pays: bool,
    },
}
