//! The result of a check, as data and as text.

use std::collections::BTreeMap;
use std::fmt;

use tollgate_core::Time;

use super::ids::IdConflict;
use super::{CallResult, Record};

/// Largest number of findings of one kind that a report lists.
const SHOWN_MAX: usize = 10;

/// The result of checking a history against a limit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Spans in which more was admitted than allowed.
    pub over_admitted: Vec<Violation>,
    /// Refusals for which there was room.
    pub falsely_refused: Vec<Violation>,
    /// Request ids with contradicting answers.
    pub id_conflicts: Vec<IdConflict>,
    /// Number of records that could not be checked, by reason.
    pub unchecked: BTreeMap<Unchecked, u64>,
    /// Number of records by kind.
    pub counts: Counts,
}

/// One broken guarantee on one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The key.
    pub key: String,
    /// The guarantee, as text.
    pub promise: String,
    /// First instant of the span, or of the refusal's interval.
    pub first: Time,
    /// Last instant of the span or interval.
    pub last: Time,
    /// Cost that was certainly admitted in the span; or the most that can have counted against the refusal, plus the
    /// refused cost.
    pub sum: u128,
    /// The bound that `sum` exceeded; or, for a refusal, that `sum` should have exceeded.
    pub bound: u128,
    /// The false refusal, if it is one.
    pub refused: Option<Record>,
    /// Some of the records in `sum`. Empty for later violations of a key with very many.
    pub evidence: Vec<Record>,
    /// Number of further records. Calls with one request id count as one.
    pub evidence_left_out: usize,
}

/// Why a record was not checked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unchecked {
    /// Its end is before its start.
    EndBeforeStart,
    /// It may be outside the calendar periods of the limit.
    OutsidePeriods,
    /// The limit is a penalty, which guarantees nothing about charges.
    Penalty,
}

/// Numbers of records by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// All records.
    pub records: u64,
    /// Keys.
    pub keys: u64,
    /// Records answered [`CallResult::Allow`].
    pub allowed: u64,
    /// Records answered [`CallResult::Refuse`].
    pub refused: u64,
    /// Records answered [`CallResult::Degraded`].
    pub degraded: u64,
    /// Records answered [`CallResult::Unknown`].
    pub unknown: u64,
    /// Records answered [`CallResult::Recorded`].
    pub recorded: u64,
    /// Records answered [`CallResult::Credited`].
    pub credited: u64,
    /// Records that repeat an earlier id.
    pub repeated: u64,
}

impl Verdict {
    /// Whether every record was checked and no violation was found.
    pub fn is_clean(&self) -> bool {
        self.over_admitted.is_empty()
            && self.falsely_refused.is_empty()
            && self.id_conflicts.is_empty()
            && self.unchecked.is_empty()
    }

    /// Returns the cost admitted beyond the bounds, over all reported spans. Spans of one key may overlap, so some of it
    /// can be counted twice.
    pub fn excess(&self) -> u128 {
        self.over_admitted.iter().map(Violation::excess).sum()
    }
}

impl Violation {
    /// Returns by how much the bound was exceeded; for a false refusal, how much room was left.
    pub const fn excess(&self) -> u128 {
        self.sum.abs_diff(self.bound)
    }
}

impl Counts {
    pub(super) fn add(&mut self, answer: CallResult) {
        self.records += 1;
        *match answer {
            CallResult::Allow => &mut self.allowed,
            CallResult::Refuse => &mut self.refused,
            CallResult::Degraded => &mut self.degraded,
            CallResult::Unknown => &mut self.unknown,
            CallResult::Recorded => &mut self.recorded,
            CallResult::Credited => &mut self.credited,
        } += 1;
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { records, keys, allowed, refused, degraded, unknown, recorded, credited, repeated } =
            self.counts;
        write!(
            f,
            "{records} calls on {keys} keys: {allowed} allowed, {refused} refused, {degraded} degraded, "
        )?;
        if recorded + credited > 0 {
            write!(f, "{recorded} recorded, {credited} credited, ")?;
        }
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
            Unchecked::OutsidePeriods => "they may be outside the calendar periods of the limit",
            Unchecked::Penalty => "a penalty guarantees nothing about charges",
        })
    }
}
