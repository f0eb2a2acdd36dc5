//! Answers that need less than a whole evaluation. Each file states its measured gain; docs/decisions/0004 has the table.

pub(crate) mod admitted_charge;
pub(crate) mod last_refusal;
pub(crate) mod plan_charges;
