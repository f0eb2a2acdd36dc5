//! The limit of a rule or override: deny, fixed numbers, or a calendar quota.

use crate::algorithm::quota::{Quota, QuotaPeriod};
use crate::limit::error::LimitError;
use crate::limit::room::room_for;
use crate::limit::{Algorithm, Limit};
use crate::plan::slice::SliceHold;
use crate::time::Time;
use crate::time::calendar::Calendar;

/// What a rule or an override allows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RuleLimit {
    /// Refuses everything.
    Deny,
    /// The same numbers at any time.
    Fixed(Limit),
    /// A quota per calendar period.
    Calendar {
        /// Units per period.
        allowance: u64,
        /// Extra units that are admitted.
        grace: u64,
        /// When the periods begin.
        calendar: Calendar,
    },
}

impl RuleLimit {
    /// Creates a quota per calendar period.
    pub fn quota(allowance: u64, grace: u64, calendar: Calendar) -> Result<RuleLimit, LimitError> {
        Quota::new(allowance, grace, QuotaPeriod::Calendar(calendar.around(Time::ZERO)))?;
        Ok(RuleLimit::Calendar { allowance, grace, calendar })
    }

    /// Returns the limit for a Plan made at `now`, or `None` if it refuses everything.
    pub fn at(&self, now: Time) -> Option<Limit> {
        match self {
            RuleLimit::Deny => None,
            RuleLimit::Fixed(limit) => Some(*limit),
            RuleLimit::Calendar { allowance, grace, calendar } => {
                // Cannot fail: `quota` validated the numbers.
                Quota::new(*allowance, *grace, QuotaPeriod::Calendar(calendar.around(now)))
                    .ok()
                    .map(Limit::Quota)
            }
        }
    }

    /// Returns the same limit with room for records (see [`Limit::with_room_for_records`]).
    pub fn with_room_for_records(self) -> Result<RuleLimit, LimitError> {
        Ok(match self {
            RuleLimit::Fixed(limit) => RuleLimit::Fixed(limit.with_room_for_records()?),
            RuleLimit::Calendar { allowance, .. } => {
                room_for(allowance)?;
                self
            }
            RuleLimit::Deny => self,
        })
    }

    /// Returns the limit that the store enforces under slices (see [`Limit::with_slice_margin`]), or `None` if nothing is
    /// left of it.
    pub fn with_slice_margin(self, hold: SliceHold) -> Option<RuleLimit> {
        Some(match self {
            RuleLimit::Fixed(limit) => RuleLimit::Fixed(limit.with_slice_margin(hold)?),
            limit => limit,
        })
    }

    /// Returns its algorithm, or `None` if it refuses everything.
    pub fn algorithm(&self) -> Option<Algorithm> {
        match self {
            RuleLimit::Deny => None,
            RuleLimit::Fixed(limit) => Some(limit.algorithm()),
            RuleLimit::Calendar { .. } => Some(Algorithm::Quota),
        }
    }

    /// Returns the largest cost that it could ever admit.
    pub fn capacity(&self) -> u64 {
        match self {
            RuleLimit::Deny => 0,
            RuleLimit::Fixed(limit) => limit.capacity(),
            RuleLimit::Calendar { allowance, grace, .. } => allowance + grace,
        }
    }
}
