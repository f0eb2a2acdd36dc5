//! What the checker found, in numbers for programs and in words for people.

use std::collections::BTreeMap;
use std::fmt;

use tollgate_core::Time;

use super::ids::IdConflict;
use super::{Answer, Record};

/// How many findings of one kind a report spells out.
const SHOWN_MAX: usize = 10;

/// All that a history says about a limit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Spans with more admitted than promised.
    pub over_admitted: Vec<Violation>,
    /// Refusals for which there was room, each by itself.
    pub falsely_refused: Vec<Violation>,
    /// Request ids that broke their promise.
    pub id_conflicts: Vec<IdConflict>,
    /// How many records could not be checked, by the reason.
    pub unchecked: BTreeMap<Unchecked, u64>,
    /// What the history consists of.
    pub counts: Counts,
}

/// One promise broken on one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The key.
    pub key: String,
    /// The promise, in words.
    pub promise: String,
    /// First instant of the span, or of the refusal's interval.
    pub first: Time,
    /// Last instant of it.
    pub last: Time,
    /// Cost that certainly fell into the span; or the most that can have counted against the refusal, plus the
    /// refused cost.
    pub sum: u128,
    /// What `sum` should not have been above; or, for a refusal, should have been above.
    pub bound: u128,
    /// The refusal.
    pub refused: Option<Record>,
    /// Some of the records that `sum` is made of; none for the later ones of a key with very many violations.
    pub evidence: Vec<Record>,
    /// How many more there are; calls with one request id count as one.
    pub evidence_left_out: usize,
}

/// Why a record says nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unchecked {
    /// Its end is before its start.
    EndBeforeStart,
    /// It lies, or may lie, outside the calendar periods that the limit carries.
    OutsidePeriods,
    /// The limit is a penalty, which promises nothing about charges.
    Penalty,
}

/// What a history consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Records.
    pub records: u64,
    /// Keys.
    pub keys: u64,
    /// Records answered [`Answer::Allow`].
    pub allowed: u64,
    /// Records answered [`Answer::Refuse`].
    pub refused: u64,
    /// Records answered [`Answer::Degraded`]: they are only counted.
    pub degraded: u64,
    /// Records answered [`Answer::Unknown`].
    pub unknown: u64,
    /// Records that repeat the id of another.
    pub repeated: u64,
}

impl Verdict {
    /// Whether every record was checked and nothing was found.
    pub fn is_clean(&self) -> bool {
        self.over_admitted.is_empty()
            && self.falsely_refused.is_empty()
            && self.id_conflicts.is_empty()
            && self.unchecked.is_empty()
    }

    /// Cost admitted above what was promised, over all spans reported. Spans of one key may overlap, so this
    /// can count a part of it twice.
    pub fn excess(&self) -> u128 {
        self.over_admitted.iter().map(Violation::excess).sum()
    }
}

impl Violation {
    /// By how much the bound was missed; for a false refusal, how much room there was left with it.
    pub const fn excess(&self) -> u128 {
        self.sum.abs_diff(self.bound)
    }
}

impl Counts {
    pub(super) fn add(&mut self, answer: Answer) {
        self.records += 1;
        *match answer {
            Answer::Allow => &mut self.allowed,
            Answer::Refuse => &mut self.refused,
            Answer::Degraded => &mut self.degraded,
            Answer::Unknown => &mut self.unknown,
        } += 1;
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { records, keys, allowed, refused, degraded, unknown, repeated } = self.counts;
        write!(
            f,
            "{records} calls on {keys} keys: {allowed} allowed, {refused} refused, {degraded} degraded, "
        )?;
        writeln!(f, "{unknown} unknown; {repeated} repeat an id")?;
        list(f, "over-admitted", &self.over_admitted)?;
        list(f, "falsely refused", &self.falsely_refused)?;
        list(f, "request ids broken", &self.id_conflicts)?;
        self.unchecked.iter().try_for_each(|(why, count)| writeln!(f, "not checked: {count} records, {why}"))
    }
}

fn list(f: &mut fmt::Formatter<'_>, what: &str, found: &[impl fmt::Display]) -> fmt::Result {
    writeln!(f, "{what}: {}", found.len())?;
    for one in found.iter().take(SHOWN_MAX) {
        writeln!(f, "  {one}")?;
    }
    match found.len().saturating_sub(SHOWN_MAX) {
        0 => Ok(()),
        more => writeln!(f, "  and {more} more"),
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { key, promise, first, last, sum, bound, .. } = self;
        match &self.refused {
            None => {
                write!(
                    f,
                    "key {key:?}: {sum} certainly admitted in [{first:?}, {last:?}], at most {bound} "
                )?;
                write!(f, "promised, {} too much ({promise})", self.excess())?;
            }
            Some(refused) => {
                write!(
                    f,
                    "key {key:?}: {refused}, though with it at most {sum} of {bound} can have counted, "
                )?;
                write!(f, "{} left ({promise})", self.excess())?;
            }
        }
        for record in &self.evidence {
            write!(f, "\n    {record}")?;
        }
        match self.evidence_left_out {
            0 => Ok(()),
            more => write!(f, "\n    and {more} more"),
        }
    }
}

impl fmt::Display for Unchecked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unchecked::EndBeforeStart => "their end is before their start",
            Unchecked::OutsidePeriods => "they may lie outside the calendar periods that the limit carries",
            Unchecked::Penalty => "a penalty promises nothing about charges",
        })
    }
}
