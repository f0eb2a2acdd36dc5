//! The checks of one rule, kept for suggestions.

use tollgate::core::{Subject, Time};

/// Checks that are kept. Beyond that, half of the subjects are dropped, again and again.
const CHECKS_MAX: usize = 1 << 21;

/// One check under a rule's own limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::simulate) struct TracedCheck {
    /// Part of the subject's hash: enough to tell subjects apart.
    pub(in crate::simulate) subject: u64,
    pub(in crate::simulate) at_us: u64,
    pub(in crate::simulate) cost: u32,
}

/// The checks of a sample of subjects, chosen by their hash.
#[derive(Clone, Default, Debug)]
pub(in crate::simulate) struct Trace {
    checks: Vec<TracedCheck>,
    /// Subjects whose hash has any of these bits are left out.
    left_out: u64,
}

impl Trace {
    #[inline]
    pub(super) fn push(&mut self, at: Time, subject: Subject, cost: u64) {
        let subject = subject.to_u128() as u64;
        if subject & self.left_out != 0 {
            return;
        }
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        self.checks.push(TracedCheck { subject, at_us: at.us(), cost });
        if self.checks.len() == CHECKS_MAX {
            self.halve();
        }
    }

    #[cold]
    fn halve(&mut self) {
        self.left_out = self.left_out << 1 | 1;
        let left_out = self.left_out;
        self.checks.retain(|check| check.subject & left_out == 0);
        if self.checks.len() == CHECKS_MAX {
            // One subject has all checks: the first ones are kept.
            self.left_out = u64::MAX;
        }
    }

    /// Sorts the checks by subject. Those of a subject stay in the order of time.
    pub(in crate::simulate) fn sort(&mut self) {
        self.checks.sort_by_key(|check| check.subject);
    }

    pub(in crate::simulate) fn checks(&self) -> &[TracedCheck] {
        &self.checks
    }
}
