//! How rules treat a request, in words. The command `explain`, the API and the dashboard use the same words.

pub(crate) mod describe;
pub(crate) mod document;
pub(crate) mod json;
pub(crate) mod rules_text;
pub(crate) mod text;
mod unused_attributes;

use tollgate::core::algorithm::quota::QuotaPeriod;
use tollgate::core::rules::{Mode, Planned, Request, RuleLimit, RuleSet, RuleTrace, SubjectParts};
use tollgate::core::{Limit, Plan, PlanError, Subject, SubjectHashers, Time, Token};

use rules_text::RulesText;

/// All data that an explanation contains.
pub(crate) struct Explanation<'a> {
    rules: &'a RuleSet,
    request: Request<'a>,
    now: Time,
    hashers: &'a SubjectHashers,
    /// Whether the hash key is the example key.
    example_key: bool,
    /// Every rule, in the order of the file; empty if the deny or bypass list decides.
    traces: Vec<RuleTrace<'a, 'a>>,
    planned: Result<Planned<'a>, PlanError>,
    /// What postpaid rules book beside the Plan.
    records: Plan<'a>,
    rules_text: &'a RulesText,
}

impl<'a> Explanation<'a> {
    /// Explains a request at `now`. Charges nothing and uses no store. Its attributes are prepared (see `RuleSet::prepare`).
    pub(crate) fn new(
        rules: &'a RuleSet,
        rules_text: &'a RulesText,
        request: Request<'a>,
        (hashers, example_key): (&'a SubjectHashers, bool),
        now: Time,
    ) -> Explanation<'a> {
        // A lease needs a token; this one is never used.
        let request = Request { token: Token(1), id: None, ..request };
        let (mut plan, mut records) = (Plan::new(), Plan::new());
        let planned = rules.plan_postpaid(&request, hashers, now, &mut plan, &mut records);
        let planned = planned.map(|planned| planned.with_plan(plan));
        let traces = match planned {
            Ok(Planned::Denied(_) | Planned::Bypassed(_)) => Vec::new(),
            _ => rules.explain(&request, hashers.current(), now),
        };
        Explanation { rules, request, now, hashers, example_key, traces, planned, records, rules_text }
    }

    fn hash(&self, subjects: &SubjectParts<'_>) -> Subject {
        subjects.hash(self.hashers.current())
    }

    /// The current calendar period of a quota.
    fn period(&self, limit: &RuleLimit) -> Option<(Time, Time)> {
        match limit.at(self.now)? {
            Limit::Quota(quota) => match quota.period() {
                QuotaPeriod::Calendar(periods) => periods.containing(self.now),
                QuotaPeriod::Rolling(_) => None,
            },
            _ => None,
        }
    }
}

fn matches(trace: &RuleTrace<'_, '_>) -> bool {
    trace.unmet.is_empty() && trace.rule.mode != Mode::Off
}
