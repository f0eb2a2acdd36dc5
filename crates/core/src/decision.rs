//! The one answer, built once, by a pure function of the Plan and what the store found.
//!
//! The only place where numbers are rounded: waits up, what remains down.

use std::cmp::Reverse;

use smallvec::SmallVec;

use crate::answer::{Answer, Decline, Retry, Verdict};
use crate::exactness::Exactness;
use crate::limit::Algorithm;
use crate::plan::operation::Mark;
use crate::plan::{INLINE, Item, Outcome, Plan};
use crate::store::StoreError;
use crate::time::{Span, Time};

/// What to answer if the store cannot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnFailure {
    /// Let it pass.
    Open,
    /// Refuse it.
    #[default]
    Closed,
    /// Let it pass, flagged, so that the caller can switch expensive features off.
    Degraded,
    /// Ask a limiter in this process with a share of the rule's own capacity.
    Local {
        /// The share, 1 to 100.
        percent: u8,
    },
    /// Ask a limiter in this process with these numbers, the same for every rule and subject.
    Cap {
        /// Units.
        amount: u64,
        /// Per this long.
        period: Span,
    },
}

impl OnFailure {
    /// Whether it passes when nobody else is there to ask. A local limiter answers before it comes to that.
    const fn passes(self) -> bool {
        matches!(self, OnFailure::Open | OnFailure::Degraded)
    }
}

/// Who decided.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// The store.
    Store,
    /// The rules' failure policies, because the store could not.
    Fallback,
    /// Nobody had to: no rule matched.
    Unmatched,
    /// The deny list or the bypass list, before any rule was looked at.
    List,
    /// A rule that refuses without asking the store: it allows nothing, or the subject it demands is missing.
    Rule,
}

/// May it proceed?
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanDecision {
    /// Whether it may.
    pub allowed: bool,
    /// The rule to tell the caller about, as an index into `rules`: of a refusal, the refusing rule with the
    /// longest wait; of an admission, the one with the least left for its cost.
    pub headline: Option<usize>,
    /// Every rule's own outcome, in the order of the Plan's items.
    pub rules: SmallVec<[RuleOutcome; INLINE]>,
    /// Who decided.
    pub source: Source,
    /// What the answer is worth: the worst of the rules that block.
    pub exactness: Exactness,
    /// Allowed although the store could not decide.
    pub degraded: bool,
    /// How long to wait before proceeding, in milliseconds: the longest of all delays.
    pub delay_ms: u64,
}

/// What one rule said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleOutcome {
    /// Where the rule stands in the rule set.
    pub rule_index: u32,
    /// Which of the rule's limits was in force (see [`Item::variant`]).
    pub variant: u32,
    /// Its algorithm; none if it allows nothing.
    pub algorithm: Option<Algorithm>,
    /// Whether this rule alone would let it pass.
    pub allowed: bool,
    /// Whether its refusal counts; shadow rules do not block.
    pub blocking: bool,
    /// What was asked for.
    pub cost: u64,
    /// The numbers, if the store could tell them.
    pub numbers: Option<Numbers>,
}

/// A rule's numbers, rounded for people and wires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// The limit in force.
    pub limit: u64,
    /// Whole units left.
    pub remaining: u64,
    /// The wait until it would be admitted; zero if it was.
    pub retry_after: RetryAfter,
    /// When everything is there again, in milliseconds since 1970.
    pub reset_at_ms: u64,
    /// The same as a wait in milliseconds.
    pub reset_after_ms: u64,
    /// How long to wait before proceeding.
    pub delay_ms: u64,
    /// Where an admission was booked.
    pub mark: Mark,
}

/// How long to wait, longest last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RetryAfter {
    /// So many milliseconds.
    Ms(u64),
    /// Waiting does not help.
    Never,
}

/// The store answered, but not with a decision; the Plan must be made anew or was wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("rule {rule:?}: {why}")]
pub struct Undecided {
    /// The rule that could not decide.
    pub rule: String,
    /// Why.
    #[source]
    pub why: Decline,
}

impl PlanDecision {
    /// The decision of a check.
    pub fn new(plan: &Plan<'_>, found: Result<&Outcome, &StoreError>) -> Result<PlanDecision, Undecided> {
        let mut decision = PlanDecision::from_list(false);
        decision.decide(plan, found)?;
        Ok(decision)
    }

    /// Turns any decision into that of a check, in place: a decision is large, and moving it costs more than making it.
    pub fn decide(&mut self, plan: &Plan<'_>, found: Result<&Outcome, &StoreError>) -> Result<(), Undecided> {
        self.rules.clear();
        match found {
            Ok(outcome) => self.decide_by_store(plan, outcome),
            Err(error) => {
                self.decide_by_policies(plan, error);
                Ok(())
            }
        }
    }

    /// The answer of the deny list or of the bypass list.
    pub fn from_list(allowed: bool) -> PlanDecision {
        PlanDecision {
            allowed,
            headline: None,
            rules: SmallVec::new(),
            source: Source::List,
            exactness: Exactness::Exact,
            degraded: false,
            delay_ms: 0,
        }
    }

    /// The refusal of a rule that does not ask the store. Waiting does not help.
    pub fn refused_by_rule(rule: RuleOutcome) -> PlanDecision {
        let rules = SmallVec::from_iter([rule]);
        PlanDecision { headline: Some(0), rules, source: Source::Rule, ..PlanDecision::from_list(false) }
    }

    /// The rule to tell the caller about.
    pub fn headline(&self) -> Option<&RuleOutcome> {
        self.headline.and_then(|index| self.rules.get(index))
    }

    /// Rules that would have refused had they been enforced.
    pub fn shadow_rejected(&self) -> impl Iterator<Item = &RuleOutcome> {
        self.rules.iter().filter(|rule| !rule.blocking && !rule.allowed)
    }

    fn decide_by_store(&mut self, plan: &Plan<'_>, outcome: &Outcome) -> Result<(), Undecided> {
        self.allowed = true;
        for (item, answer) in plan.items().iter().zip(&outcome.answers) {
            match answer.verdict {
                Verdict::Declined(why) if item.blocking => {
                    return Err(Undecided { rule: item.key.keyspace().rule().to_owned(), why });
                }
                _ => self.note(item, answer.is_admitted(), Some(numbers(answer, outcome.now))),
            }
        }
        self.source = if self.rules.is_empty() { Source::Unmatched } else { Source::Store };
        self.conclude(plan, false);
        Ok(())
    }

    fn decide_by_policies(&mut self, plan: &Plan<'_>, error: &StoreError) {
        // Wrong credentials are never a reason to let everything pass.
        let may_open = !matches!(error, StoreError::Misconfigured(_));
        self.allowed = true;
        for item in plan.items() {
            self.note(item, may_open && item.on_failure.passes(), None);
        }
        self.source = Source::Fallback;
        let degraded =
            plan.items().iter().any(|item| item.blocking && item.on_failure == OnFailure::Degraded);
        self.conclude(plan, degraded);
    }

    /// What one rule said.
    #[inline]
    fn note(&mut self, item: &Item<'_>, allowed: bool, numbers: Option<Numbers>) {
        self.allowed &= allowed || !item.blocking;
        self.rules.push(rule_outcome(item, allowed, numbers));
    }

    /// Everything that follows from what the rules said.
    fn conclude(&mut self, plan: &Plan<'_>, degraded: bool) {
        let (rules, allowed) = (self.rules.as_slice(), self.allowed);
        let mut headline: Option<(usize, Lead)> = None;
        let (mut exactness, mut delay_ms) = (Exactness::Exact, 0);
        for (index, (rule, item)) in rules.iter().zip(plan.items()).enumerate() {
            if !rule.blocking {
                continue;
            }
            exactness = exactness.max(match self.source {
                Source::Fallback => Exactness::Bounded,
                _ => item.limit.exactness(),
            });
            if rule.allowed != allowed {
                continue;
            }
            if allowed {
                delay_ms = delay_ms.max(rule.numbers.map_or(0, |numbers| numbers.delay_ms));
            }
            // The first of equals.
            let lead =
                if allowed { Lead::Headroom(rule.headroom()) } else { Lead::Wait(Reverse(rule.wait())) };
            if headline.is_none_or(|(_, leader)| lead < leader) {
                headline = Some((index, lead));
            }
        }
        self.headline = headline.map(|(index, _)| index);
        self.degraded = degraded && allowed;
        (self.exactness, self.delay_ms) = (exactness, delay_ms);
    }
}

/// What makes a rule the headline; the least leads.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Lead {
    Headroom(u64),
    Wait(Reverse<RetryAfter>),
}

impl RuleOutcome {
    /// How many more requests like this one would fit.
    #[inline]
    fn headroom(&self) -> u64 {
        let Some(numbers) = &self.numbers else { return 0 };
        // Most requests cost one: a division is the dearest step of a decision.
        if self.cost <= 1 { numbers.remaining } else { fit(numbers.remaining, self.cost) }
    }

    fn wait(&self) -> RetryAfter {
        self.numbers.map_or(RetryAfter::Ms(0), |numbers| numbers.retry_after)
    }
}

// Never inlined: next to the branch that spares it, the compiler would rather divide every time and choose afterwards.
#[inline(never)]
const fn fit(remaining: u64, cost: u64) -> u64 {
    remaining / cost
}

fn rule_outcome(item: &Item<'_>, allowed: bool, numbers: Option<Numbers>) -> RuleOutcome {
    RuleOutcome {
        rule_index: item.rule_index,
        variant: item.variant,
        algorithm: Some(item.limit.algorithm()),
        allowed,
        blocking: item.blocking,
        cost: item.operation.cost().unwrap_or(0),
        numbers,
    }
}

fn numbers(answer: &Answer, now: Time) -> Numbers {
    let (retry_after, delay_ms) = match answer.verdict {
        Verdict::Refused(Retry::At(at)) => (RetryAfter::Ms((at - now).ms_ceil()), 0),
        Verdict::Refused(Retry::Never) => (RetryAfter::Never, 0),
        Verdict::Admitted { delay } => (RetryAfter::Ms(0), delay.ms_ceil()),
        Verdict::Done { .. } | Verdict::Declined(_) => (RetryAfter::Ms(0), 0),
    };
    Numbers {
        limit: answer.limit,
        remaining: answer.remaining,
        retry_after,
        reset_at_ms: answer.reset_at.us().div_ceil(1_000),
        reset_after_ms: (answer.reset_at - now).ms_ceil(),
        delay_ms,
        mark: answer.mark,
    }
}

#[cfg(test)]
mod tests;
