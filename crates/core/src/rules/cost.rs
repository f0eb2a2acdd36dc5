//! How a rule computes the cost of a request.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::request::attributes::Attributes;

/// How a rule computes the cost of a request.
#[derive(Clone, Debug)]
pub enum Cost {
    /// The cost in the request, or 1 if it has none.
    FromRequest,
    /// One unit, whatever the cost in the request, and none if that is 0. The default under a concurrency limit: a request
    /// takes one lease.
    One,
    /// The same for every request.
    Constant(u64),
    /// Depends on the value of an attribute.
    Table {
        /// The attribute.
        attribute: String,
        /// Cost per value.
        costs: HashMap<String, u64>,
        /// Cost for other values, and if the attribute is absent.
        default: u64,
    },
    /// Computed by an expression over the attributes.
    Expression {
        /// The source text, for explanations.
        text: String,
        /// The compiled expression.
        value: Expression,
        /// Cost if the expression fails.
        default: u64,
    },
}

/// A compiled expression. Core does not know its language.
#[derive(Clone)]
pub struct Expression(Arc<Evaluate>);

/// Returns `None` if the expression fails.
type Evaluate = dyn Fn(&Attributes<'_>) -> Option<u64> + Send + Sync;

/// The cost of one request, and whether the expression failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResolvedCost {
    /// The cost.
    pub cost: u64,
    /// Whether the expression failed, so that the default applies. The caller counts and logs this.
    pub failed: bool,
}

impl Cost {
    /// Returns the cost of a request. `requested` is the cost in the request itself. If its path has several readings,
    /// the highest cost counts.
    #[inline]
    pub fn resolve(&self, attributes: &Attributes<'_>, requested: u64) -> ResolvedCost {
        if attributes.path_readings().is_empty() {
            return self.resolve_reading(attributes, requested);
        }
        let costs = attributes.each_reading().map(|reading| self.resolve_reading(&reading, requested));
        let highest = |one: ResolvedCost, other: ResolvedCost| ResolvedCost {
            cost: one.cost.max(other.cost),
            failed: one.failed || other.failed,
        };
        costs.fold(ResolvedCost { cost: 0, failed: false }, highest)
    }

    #[inline]
    fn resolve_reading(&self, attributes: &Attributes<'_>, requested: u64) -> ResolvedCost {
        let ok = |cost| ResolvedCost { cost, failed: false };
        match self {
            Cost::FromRequest => ok(requested),
            Cost::One => ok(requested.min(1)),
            Cost::Constant(cost) => ok(*cost),
            Cost::Table { attribute, costs, default } => {
                let value = attributes.get(attribute);
                ok(value.and_then(|value| costs.get(value)).copied().unwrap_or(*default))
            }
            Cost::Expression { value, default, .. } => match (value.0)(attributes) {
                Some(cost) => ok(cost),
                None => ResolvedCost { cost: *default, failed: true },
            },
        }
    }

    /// Returns the cost that a postpaid rule books. 0 if the request states none, and if an expression fails: what it reads
    /// is not known before the work is done.
    pub fn resolve_postpaid(&self, attributes: &Attributes<'_>, stated: Option<u64>) -> ResolvedCost {
        match self {
            Cost::Expression { .. } => match self.resolve(attributes, 0) {
                ResolvedCost { failed: true, .. } => ResolvedCost { cost: 0, failed: false },
                resolved => resolved,
            },
            _ => ResolvedCost { cost: stated.unwrap_or(0), failed: false },
        }
    }

    /// Whether the rule sets the cost itself, so that neither the request nor a settlement changes it.
    pub const fn is_fixed(&self) -> bool {
        matches!(self, Cost::One | Cost::Constant(_) | Cost::Table { .. })
    }

    /// Returns the largest possible cost, or `None` if it depends on the request.
    pub fn max_cost(&self) -> Option<u64> {
        match self {
            Cost::FromRequest | Cost::Expression { .. } => None,
            Cost::One => Some(1),
            Cost::Constant(cost) => Some(*cost),
            Cost::Table { costs, default, .. } => Some(costs.values().copied().fold(*default, u64::max)),
        }
    }
}

impl Expression {
    /// Creates an expression from a function that returns `None` on failure.
    pub fn new(evaluate: impl Fn(&Attributes<'_>) -> Option<u64> + Send + Sync + 'static) -> Expression {
        Expression(Arc::new(evaluate))
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Expression")
    }
}
