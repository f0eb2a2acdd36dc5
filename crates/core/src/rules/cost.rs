//! What a request costs under a rule.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::attributes::Attributes;

/// How a rule prices a request.
#[derive(Clone, Debug)]
pub enum Cost {
    /// What the caller says; 1 if it says nothing.
    FromRequest,
    /// Always this.
    Constant(u64),
    /// By the value of an attribute.
    Table {
        /// The attribute.
        attribute: String,
        /// Costs by its value.
        costs: HashMap<String, u64>,
        /// For other values and for none.
        default: u64,
    },
    /// By an expression over the attributes.
    Expression {
        /// As it was written, for people who ask why.
        text: String,
        /// The expression.
        value: Expression,
        /// If it fails.
        default: u64,
    },
}

/// A compiled expression. Its language is not core's business.
#[derive(Clone)]
pub struct Expression(Arc<Evaluate>);

/// Answers `None` when it fails.
type Evaluate = dyn Fn(&Attributes<'_>) -> Option<u64> + Send + Sync;

/// A price, and whether the rule had to fall back to its default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResolvedCost {
    /// The cost.
    pub cost: u64,
    /// The expression failed and the default was charged: to be counted and logged.
    pub failed: bool,
}

impl Cost {
    /// The price of a request for which the caller asks `asked`.
    pub fn of(&self, attributes: &Attributes<'_>, asked: u64) -> ResolvedCost {
        let fine = |cost| ResolvedCost { cost, failed: false };
        match self {
            Cost::FromRequest => fine(asked),
            Cost::Constant(cost) => fine(*cost),
            Cost::Table { attribute, costs, default } => {
                let value = attributes.get(attribute);
                fine(value.and_then(|value| costs.get(value)).copied().unwrap_or(*default))
            }
            Cost::Expression { value, default, .. } => match (value.0)(attributes) {
                Some(cost) => fine(cost),
                None => ResolvedCost { cost: *default, failed: true },
            },
        }
    }

    /// The largest cost that can be told without a request; `None` if only a request can tell.
    pub fn largest(&self) -> Option<u64> {
        match self {
            Cost::FromRequest | Cost::Expression { .. } => None,
            Cost::Constant(cost) => Some(*cost),
            Cost::Table { costs, default, .. } => Some(costs.values().copied().fold(*default, u64::max)),
        }
    }
}

impl Expression {
    /// An expression that this function evaluates; it answers `None` when it fails.
    pub fn new(evaluate: impl Fn(&Attributes<'_>) -> Option<u64> + Send + Sync + 'static) -> Expression {
        Expression(Arc::new(evaluate))
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Expression")
    }
}
