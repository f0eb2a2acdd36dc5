//! The decision of a check, a pure function of the Plan and its Outcome.
//!
//! Only this module rounds numbers for callers: waits up, remaining units down.

pub mod exactness;

use std::cmp::Reverse;

use smallvec::SmallVec;

use crate::decision::exactness::Exactness;
use crate::limit::Algorithm;
use crate::plan::answer::{Answer, AnsweredBy, Decline, PolicyKind, Retry, Verdict};
use crate::plan::operation::{Mark, Operation};
use crate::plan::{INLINE, Item, Outcome, Plan};
use crate::time::{Span, Time};

/// A failure policy: what to answer if the store cannot decide.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnFailure {
    /// Allow the request.
    Open,
    /// Refuse the request.
    #[default]
    Closed,
    /// Allow the request and flag the decision, so that the caller can save work.
    Degraded,
    /// Ask a limiter in this process that has a share of the rule's limit.
    Local {
        /// The share in percent, 1 to 100; `None` for a fair share, one part per server.
        percent: Option<u8>,
    },
    /// Ask a token bucket in this process that all subjects of the rule share.
    Cap {
        /// Units per period.
        amount: u64,
        /// The period.
        period: Span,
    },
}

impl OnFailure {
    /// Returns its kind.
    pub const fn kind(self) -> PolicyKind {
        match self {
            OnFailure::Open => PolicyKind::Open,
            OnFailure::Closed => PolicyKind::Closed,
            OnFailure::Degraded => PolicyKind::Degraded,
            OnFailure::Local { .. } => PolicyKind::Local,
            OnFailure::Cap { .. } => PolicyKind::Cap,
        }
    }
}

/// What made the decision.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// The store.
    Store,
    /// Parts of the limits that this process had taken from the store before.
    Slice,
    /// A refusal of the store that this process remembers.
    Memory,
    /// A limiter in this process that refuses a flood of attempts before the store is asked.
    Prefilter,
    /// The rules' failure policies, because the store could not decide.
    Fallback,
    /// No rule counts the request. It is allowed, unless the rules say `unmatched: refuse`.
    Unmatched,
    /// The deny list or the bypass list. No rule was checked.
    List,
    /// A rule that refuses without the store: it denies everything, or its required subject is missing.
    Rule,
}

impl Source {
    /// Returns its name in decisions.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Store => "store",
            Source::Slice => "slice",
            Source::Memory => "memory",
            Source::Prefilter => "prefilter",
            Source::Fallback => "fallback",
            Source::Unmatched => "unmatched",
            Source::List => "list",
            Source::Rule => "rule",
        }
    }
}

/// The decision of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanDecision {
    /// Whether the request may proceed.
    pub allowed: bool,
    /// The rule that headers and error bodies describe, as an index into `rules`. If refused, the refusing rule with the
    /// longest wait. If allowed, the rule with the fewest requests of this cost left.
    pub headline: Option<usize>,
    /// Each rule's result, in the order of the Plan's items.
    pub rules: SmallVec<[RuleOutcome; INLINE]>,
    /// What made the decision.
    pub source: Source,
    /// What the decision guarantees: the worst exactness class of the blocking rules.
    pub exactness: Exactness,
    /// Allowed by a failure policy that admits everything (`open` or `degraded`), without the store's answer.
    pub degraded: bool,
    /// How long to wait before proceeding, in milliseconds: the longest delay of all rules.
    pub delay_ms: u64,
}

/// One rule's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleOutcome {
    /// Index of the rule in the rule set.
    pub rule_index: u32,
    /// Which of the rule's limits was in force (see [`Item::variant`]).
    pub variant: u32,
    /// Its algorithm. `None` if the rule denies everything.
    pub algorithm: Option<Algorithm>,
    /// Whether this rule alone would allow the request.
    pub allowed: bool,
    /// Whether its refusal refuses the request. Shadow rules do not block.
    pub blocking: bool,
    /// The cost under this rule.
    pub cost: u64,
    /// Who answered for it.
    pub by: AnsweredBy,
    /// Its numbers, unless a failure policy answered that has none.
    pub numbers: Option<Numbers>,
}

/// A rule's numbers, rounded for callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// The limit in force.
    pub limit: u64,
    /// Whole units left.
    pub remaining: u64,
    /// How long to wait before the request is admitted. Zero if it was admitted.
    pub retry_after: RetryAfter,
    /// When `remaining` is back to `limit`, in milliseconds since 1970.
    pub reset_at_ms: u64,
    /// How long until `remaining` is back to `limit`, in milliseconds.
    pub reset_after_ms: u64,
    /// How long to wait before proceeding, in milliseconds.
    pub delay_ms: u64,
    /// Where the charge was recorded.
    pub mark: Mark,
}

/// How long to wait. Ordered from shortest to longest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RetryAfter {
    /// This many milliseconds.
    Ms(u64),
    /// Waiting does not help.
    Never,
}

/// The store declined a blocking item: the Plan must be made again, or is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("rule {rule:?}: {why}")]
pub struct Undecided {
    /// The rule of the declined item.
    pub rule: String,
    /// Why it was declined.
    #[source]
    pub why: Decline,
}

impl PlanDecision {
    /// Decides a check from its Plan and its Outcome.
    pub fn new(plan: &Plan<'_>, outcome: &Outcome) -> Result<PlanDecision, Undecided> {
        let mut decision = PlanDecision::from_list(false);
        decision.decide(plan, outcome)?;
        Ok(decision)
    }

    /// Overwrites `self` with the decision of a check. Moving a decision costs more than computing it.
    pub fn decide(&mut self, plan: &Plan<'_>, outcome: &Outcome) -> Result<(), Undecided> {
        self.rules.clear();
        self.allowed = true;
        for (item, answer) in plan.items().iter().zip(&outcome.answers) {
            match answer.verdict {
                Verdict::Declined(why) if item.blocking => {
                    return Err(Undecided { rule: item.key.keyspace().rule().to_owned(), why });
                }
                _ => self.push_rule(item, answer, outcome.now),
            }
        }
        self.finish(plan);
        Ok(())
    }

    /// Adds what postpaid rules booked beside the check. It has happened, so they allow the request. A shadow rule whose
    /// limit it exceeded would have refused it. Without answers the store did not book it.
    pub fn add_records(&mut self, items: &[Item<'_>], answers: Option<&[(Time, Answer)]>) {
        for (index, item) in items.iter().enumerate() {
            let answered = answers.and_then(|answers| answers.get(index));
            let (overdrawn, by, numbers) = match answered {
                Some((now, answer)) => {
                    let overdrawn = matches!(answer.verdict, Verdict::Recorded { overdraft: 1.., .. });
                    (overdrawn, answer.by, Some(numbers(answer, *now)))
                }
                None => (false, AnsweredBy::Policy(PolicyKind::Open), None),
            };
            let cost = match item.operation {
                Operation::Record { cost } => cost,
                _ => 0,
            };
            let rule = RuleOutcome { cost, ..rule_outcome(item, item.blocking || !overdrawn, by, numbers) };
            // Not `push`: with a single caller the compiler inlines it there, where every check needs it.
            self.rules.insert(self.rules.len(), rule);
            if self.source == Source::Unmatched {
                self.source = Source::Store;
            }
            if answered.is_none() {
                self.source = Source::Fallback;
            }
            if item.blocking && self.allowed {
                let lowest = self.headline().map(RuleOutcome::headroom);
                if lowest.is_none_or(|lowest| rule.headroom() < lowest) {
                    self.headline = Some(self.rules.len() - 1);
                }
                self.exactness = self.exactness.max(by.exactness(&item.limit));
            }
        }
    }

    /// Returns the decision of the deny list or the bypass list.
    // Always inlined: a returned decision would be copied to its place, which costs more than the decision.
    #[inline(always)]
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

    /// Returns the refusal of a rule that does not need the store. Waiting does not help.
    pub fn refused_by_rule(rule: RuleOutcome) -> PlanDecision {
        let rules = SmallVec::from_iter([rule]);
        PlanDecision { headline: Some(0), rules, source: Source::Rule, ..PlanDecision::from_list(false) }
    }

    /// Returns the refusal of a request that no rule counts. Waiting does not help.
    pub fn refused_as_unmatched() -> PlanDecision {
        PlanDecision { source: Source::Unmatched, ..PlanDecision::from_list(false) }
    }

    /// Returns the rule that headers and error bodies describe.
    pub fn headline(&self) -> Option<&RuleOutcome> {
        self.headline.and_then(|index| self.rules.get(index))
    }

    /// Returns the shadow rules that would have refused the request.
    pub fn shadow_rejected(&self) -> impl Iterator<Item = &RuleOutcome> {
        self.rules.iter().filter(|rule| !rule.blocking && !rule.allowed)
    }

    /// Records one rule's result.
    #[inline]
    fn push_rule(&mut self, item: &Item<'_>, answer: &Answer, now: Time) {
        let allowed = answer.is_admitted();
        self.allowed &= allowed || !item.blocking;
        let numbers = answer.by.has_numbers().then(|| numbers(answer, now));
        self.rules.push(rule_outcome(item, allowed, answer.by, numbers));
    }

    /// Computes source, headline, exactness and delay from the rules' results.
    fn finish(&mut self, plan: &Plan<'_>) {
        let (rules, allowed) = (self.rules.as_slice(), self.allowed);
        // Most requests match one rule, which needs no ranking.
        if let ([rule], [item]) = (rules, plan.items())
            && rule.blocking
        {
            self.delay_ms = if allowed { rule.delay_ms() } else { 0 };
            (self.source, self.degraded) = (rule.source(), allowed && rule.is_unlimited());
            (self.headline, self.exactness) = (Some(0), exactness_of(rule, item));
            return;
        }
        let mut headline: Option<(usize, HeadlineRank)> = None;
        let (mut exactness, mut delay_ms, mut degraded) = (Exactness::Exact, 0, false);
        let mut source = if rules.is_empty() { Source::Unmatched } else { Source::Slice };
        for (index, (rule, item)) in rules.iter().zip(plan.items()).enumerate() {
            if rank(rule.source()) > rank(source) {
                source = rule.source();
            }
            if !rule.blocking {
                continue;
            }
            exactness = exactness.max(exactness_of(rule, item));
            degraded |= rule.is_unlimited();
            if rule.allowed != allowed {
                continue;
            }
            if allowed {
                delay_ms = delay_ms.max(rule.delay_ms());
            }
            let rank = if allowed {
                HeadlineRank::Headroom(rule.headroom())
            } else {
                HeadlineRank::Wait(Reverse(rule.wait()))
            };
            // The first of equals wins.
            if headline.is_none_or(|(_, lowest)| rank < lowest) {
                headline = Some((index, rank));
            }
        }
        self.headline = headline.map(|(index, _)| index);
        (self.source, self.degraded) = (source, allowed && degraded);
        (self.exactness, self.delay_ms) = (exactness, delay_ms);
    }
}

/// Decides which rule is the headline: the lowest rank.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum HeadlineRank {
    Headroom(u64),
    Wait(Reverse<RetryAfter>),
}

/// Which source names a decision to which several contributed: the highest.
const fn rank(source: Source) -> u8 {
    match source {
        Source::Slice => 0,
        Source::Store | Source::Rule | Source::List | Source::Unmatched => 1,
        Source::Memory => 2,
        Source::Prefilter => 3,
        Source::Fallback => 4,
    }
}

impl RuleOutcome {
    #[inline]
    const fn source(&self) -> Source {
        match self.by {
            // A rule is not asked only beside one that refuses, which names the decision.
            AnsweredBy::Store | AnsweredBy::NotAsked => Source::Store,
            AnsweredBy::Slice => Source::Slice,
            AnsweredBy::Memory => Source::Memory,
            AnsweredBy::Prefilter => Source::Prefilter,
            AnsweredBy::Rule => Source::Rule,
            AnsweredBy::Policy(_) => Source::Fallback,
        }
    }

    /// Whether its failure policy admits everything.
    #[inline]
    const fn is_unlimited(&self) -> bool {
        matches!(self.by, AnsweredBy::Policy(PolicyKind::Open | PolicyKind::Degraded))
    }

    /// Returns how many more requests of this cost would fit.
    #[inline]
    fn headroom(&self) -> u64 {
        let Some(numbers) = &self.numbers else { return 0 };
        // Most requests cost 1. This avoids a division, the most expensive step of a decision.
        if self.cost <= 1 { numbers.remaining } else { fit(numbers.remaining, self.cost) }
    }

    #[inline]
    fn delay_ms(&self) -> u64 {
        self.numbers.as_ref().map_or(0, |numbers| numbers.delay_ms)
    }

    fn wait(&self) -> RetryAfter {
        self.numbers.map_or(RetryAfter::Ms(0), |numbers| numbers.retry_after)
    }
}

/// What one rule's answer guarantees. A shard refuses while another one may still have room.
#[inline]
fn exactness_of(rule: &RuleOutcome, item: &Item<'_>) -> Exactness {
    let exactness = rule.by.exactness(&item.limit);
    if item.shard.is_some() { exactness.max(Exactness::Conservative) } else { exactness }
}

// Never inlined: otherwise the compiler divides every time and selects the result afterwards.
#[inline(never)]
const fn fit(remaining: u64, cost: u64) -> u64 {
    remaining / cost
}

fn rule_outcome(item: &Item<'_>, allowed: bool, by: AnsweredBy, numbers: Option<Numbers>) -> RuleOutcome {
    RuleOutcome {
        rule_index: item.rule_index,
        variant: item.variant,
        algorithm: Some(item.limit.algorithm()),
        allowed,
        blocking: item.blocking,
        cost: item.operation.cost().unwrap_or(0),
        by,
        numbers,
    }
}

fn numbers(answer: &Answer, now: Time) -> Numbers {
    let (retry_after, delay_ms) = match answer.verdict {
        Verdict::Refused(Retry::At(at)) => (RetryAfter::Ms((at - now).ms_ceil()), 0),
        Verdict::Refused(Retry::Never) => (RetryAfter::Never, 0),
        Verdict::Admitted { delay } => (RetryAfter::Ms(0), delay.ms_ceil()),
        Verdict::Recorded { free_at, .. } => (RetryAfter::Ms((free_at - now).ms_ceil()), 0),
        Verdict::Done { .. } | Verdict::Usage { .. } | Verdict::BookedLate { .. } | Verdict::Declined(_) => {
            (RetryAfter::Ms(0), 0)
        }
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
