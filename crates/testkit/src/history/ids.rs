//! I10: an admitted request id has one content and keeps its answer.

use std::collections::BTreeMap;
use std::fmt;

use tollgate_core::Span;

use super::{CallResult, Record};

/// Two calls with one id that contradict each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdConflict {
    /// How they contradict each other.
    pub broken: Broken,
    /// The admission.
    pub admitted: Record,
    /// The later call.
    pub later: Record,
}

/// Which guarantee of request ids was broken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Broken {
    /// The store admitted another key or cost under an id it had admitted before.
    OtherContent,
    /// The store refused what it had admitted before under the same id.
    AdmittedThenRefused,
}

/// Returns all conflicts between calls for which the store must have remembered the id.
pub(super) fn conflicts<'h>(calls: impl Iterator<Item = &'h Record>, horizon: Span) -> Vec<IdConflict> {
    let mut by_id: BTreeMap<u128, Vec<&Record>> = BTreeMap::new();
    for call in calls.filter(|call| call.cost > 0) {
        if let Some(id) = call.id {
            by_id.entry(id).or_default().push(call);
        }
    }
    by_id.into_values().flat_map(|calls| of_one_id(calls, horizon)).collect()
}

fn of_one_id(mut calls: Vec<&Record>, horizon: Span) -> Vec<IdConflict> {
    // The horizon of an id starts with its charge, which the earliest call may have made.
    let since = calls.iter().filter(|call| call.answer.may_charge()).map(|call| call.start).min();
    let Some(since) = since else { return Vec::new() };
    calls.retain(|call| call.end.since(since) < horizon);
    calls.sort_by_key(|call| (call.start, call.end));

    let admissions: Vec<&Record> =
        calls.iter().copied().filter(|call| call.answer == CallResult::Allow).collect();
    let mut found = Vec::new();
    for pair in admissions.windows(2) {
        if !same_content(pair[0], pair[1]) {
            found.push(conflict(Broken::OtherContent, pair[0], pair[1]));
        }
    }
    let Some(first) = admissions.iter().copied().min_by_key(|call| call.end) else { return found };
    for &refusal in calls.iter().filter(|call| call.answer == CallResult::Refuse) {
        if first.end < refusal.start && same_content(first, refusal) {
            found.push(conflict(Broken::AdmittedThenRefused, first, refusal));
        }
    }
    found
}

fn same_content(a: &Record, b: &Record) -> bool {
    a.key == b.key && a.cost == b.cost
}

fn conflict(broken: Broken, admitted: &Record, later: &Record) -> IdConflict {
    IdConflict { broken, admitted: admitted.clone(), later: later.clone() }
}

impl fmt::Display for IdConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.broken {
            Broken::OtherContent => "one id was admitted with two contents",
            Broken::AdmittedThenRefused => "an admitted id was refused later",
        };
        writeln!(f, "{what}:")?;
        writeln!(f, "    key {:?}: {}", self.admitted.key, self.admitted)?;
        write!(f, "    key {:?}: {}", self.later.key, self.later)
    }
}
