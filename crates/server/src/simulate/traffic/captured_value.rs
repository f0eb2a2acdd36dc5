//! The values of a capture: hashed one by one, so that a file shows no key, user or address.

use std::collections::HashMap;

use tollgate::core::SubjectHasher;
use tollgate::core::rules::{Condition, Cost, Rule, Test};

use super::format::capture::CLEAR;
use crate::simulate::rule_set::{CaptureKey, values_of};

/// Domain of the hashes: they differ from subjects and from hashes of other purposes.
const PURPOSE: &str = "attribute of a capture";

/// Returns the hash of a value: 24 hexadecimal digits. They survive every normalisation of account names.
pub(crate) fn hash(hasher: &SubjectHasher, attribute: &str, value: &str) -> String {
    let hash = hasher.subject([(PURPOSE, attribute), ("value", value)]).to_u128();
    format!("{:024x}", hash & ((1 << 96) - 1))
}

/// Whether values of this attribute are hashed in a capture.
pub(crate) fn is_hashed(attribute: &str) -> bool {
    !CLEAR.contains(&attribute)
}

/// Makes rules compare with hashes.
pub(in crate::simulate) struct CapturedValues<'h> {
    key: CaptureKey<'h>,
}

impl<'h> CapturedValues<'h> {
    pub(in crate::simulate) const fn new(key: CaptureKey<'h>) -> CapturedValues<'h> {
        CapturedValues { key }
    }

    pub(in crate::simulate) fn is_hashed(attribute: &str) -> bool {
        is_hashed(attribute)
    }

    /// Rewrites the conditions and the cost of a rule, or says why that is impossible.
    pub(in crate::simulate) fn rewrite_rule(&self, rule: &mut Rule) -> Result<(), String> {
        self.rewrite(&mut rule.conditions)?;
        match &mut rule.cost {
            Cost::Table { attribute, costs, .. } if is_hashed(attribute) => {
                let hasher = self.hasher(attribute)?;
                let hashed = costs.drain().map(|(value, cost)| (hash(hasher, attribute, &value), cost));
                *costs = hashed.collect::<HashMap<_, _>>();
                Ok(())
            }
            Cost::Expression { .. } => {
                Err("a cost expression; it may read attributes that a capture has only as hashes".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Rewrites conditions, or says why that is impossible.
    pub(in crate::simulate) fn rewrite(&self, conditions: &mut [Condition]) -> Result<(), String> {
        for condition in conditions.iter_mut().filter(|condition| is_hashed(&condition.attribute)) {
            let attribute = condition.attribute.clone();
            let Some(values) = values_of(&condition.test) else {
                return Err(format!("a pattern of `{attribute}`; a capture has hashes of it"));
            };
            let hasher = self.hasher(&attribute)?;
            condition.test =
                Test::OneOf(values.iter().map(|value| hash(hasher, &attribute, value)).collect());
        }
        Ok(())
    }

    fn hasher(&self, attribute: &str) -> Result<&'h SubjectHasher, String> {
        match self.key {
            CaptureKey::Known(hasher) => Ok(hasher),
            CaptureKey::Unknown => Err(format!(
                "values of `{attribute}`; the capture was written with another hash key than --hash-key-file"
            )),
        }
    }
}
