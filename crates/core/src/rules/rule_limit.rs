//! A rule's limit: numbers that stand for themselves, or a calendar from which they follow.

use crate::algorithm::quota::{Quota, QuotaPeriod};
use crate::calendar::Calendar;
use crate::limit::error::LimitError;
use crate::limit::{Algorithm, Limit};
use crate::time::Time;

/// What a rule or an override allows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RuleLimit {
    /// Nothing.
    Deny,
    /// The same numbers at any time.
    Fixed(Limit),
    /// A quota by the calendar.
    Calendar {
        /// Units per period.
        allowance: u64,
        /// Units on top.
        grace: u64,
        /// When periods begin.
        calendar: Calendar,
    },
}

impl RuleLimit {
    /// A quota by the calendar, if the numbers make one.
    pub fn quota(allowance: u64, grace: u64, calendar: Calendar) -> Result<RuleLimit, LimitError> {
        Quota::new(allowance, grace, QuotaPeriod::Calendar(calendar.around(Time::ZERO)))?;
        Ok(RuleLimit::Calendar { allowance, grace, calendar })
    }

    /// The limit for a Plan made at `now`; `None` if nothing is allowed.
    pub fn at(&self, now: Time) -> Option<Limit> {
        match self {
            RuleLimit::Deny => None,
            RuleLimit::Fixed(limit) => Some(*limit),
            RuleLimit::Calendar { allowance, grace, calendar } => {
                // The numbers were checked when the rule was made.
                Quota::new(*allowance, *grace, QuotaPeriod::Calendar(calendar.around(now)))
                    .ok()
                    .map(Limit::Quota)
            }
        }
    }

    /// Its algorithm; `None` if nothing is allowed.
    pub fn algorithm(&self) -> Option<Algorithm> {
        match self {
            RuleLimit::Deny => None,
            RuleLimit::Fixed(limit) => Some(limit.algorithm()),
            RuleLimit::Calendar { .. } => Some(Algorithm::Quota),
        }
    }

    /// The largest cost that could ever be admitted.
    pub fn capacity(&self) -> u64 {
        match self {
            RuleLimit::Deny => 0,
            RuleLimit::Fixed(limit) => limit.capacity(),
            RuleLimit::Calendar { allowance, grace, .. } => allowance + grace,
        }
    }
}
