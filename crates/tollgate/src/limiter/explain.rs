//! Why a request gets the answer it gets: every rule, and every number with its reason.
//!
//! Which rules match is core's knowledge (`RuleSet::explain`), what the numbers are is the store's; here they meet.

mod reasons;

use std::fmt;
use std::sync::Arc;

use arc_swap::Guard;
use tollgate_core::Store;
use tollgate_core::decision::{Numbers, RuleOutcome};
use tollgate_core::rules::cost::ResolvedCost;
use tollgate_core::rules::rule_set::ListEntry;
use tollgate_core::rules::{
    Condition, Mode, Origin, Override, Planned, Request, Rule, RuleLimit, RuleTrace, SubjectParts,
};

use super::{CheckError, Decision, Intent, Limiter, RuleView, at_once};
use crate::clock::Clock;
use crate::store::memory::MemoryStore;

pub use reasons::Reason;

/// Everything that leads to the answer. It owns what it tells, so it can be kept, logged or sent.
#[derive(Debug)]
pub struct Explanation {
    /// What a check would answer, or why it could not be decided.
    pub answer: Result<Decision, CheckError>,
    /// The entry of the deny list or the bypass list that settles it before any rule is asked.
    pub exception: Option<ListEntry>,
    /// Every rule in the order of the file, whether it applies or not.
    pub rules: Vec<RuleExplanation>,
}

/// How one rule looks at the request.
#[derive(Clone, Debug)]
pub struct RuleExplanation {
    /// The rule, as it was in force.
    pub rule: Rule,
    /// Whether it applies: all its conditions hold and it is not off.
    pub applies: bool,
    /// The conditions that do not hold.
    pub unmet: Vec<Condition>,
    /// Who is counted, or the chain of attributes none of which is there.
    pub subject: Result<Counted, Vec<String>>,
    /// The override that gives the limit in force, if one does.
    pub changed_by: Option<Override>,
    /// What the request costs, and whether that is the default because an expression failed.
    pub cost: ResolvedCost,
    /// Whether the subject is in the rollout.
    pub in_rollout: bool,
    /// Whether its refusal counts. A rule that applies and does not block is a shadow.
    pub blocking: bool,
    /// The numbers. None if the rule is not asked, two while one hash key takes the place of another.
    pub accounts: Vec<Account>,
}

/// Who is counted: each part's kind and value. `Debug` shows the kinds only: values may be keys, addresses and people.
#[derive(Clone, PartialEq, Eq)]
pub struct Counted {
    /// In the order of the rule; none means everybody together.
    pub parts: Vec<(String, String)>,
}

/// One account of a rule, before and after.
#[derive(Clone, Debug)]
pub struct Account {
    /// How it stands, nothing asked. None if the store could not tell.
    pub before: Option<Standing>,
    /// What the rule answers to the request.
    pub outcome: RuleOutcome,
    /// What a check would leave. If the request is refused, by this rule or another, that is what there was before.
    pub after: Option<Standing>,
}

/// Numbers, each with its reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The numbers.
    pub numbers: Numbers,
    /// A sentence for each of them that says something.
    pub why: Vec<Reason>,
}

impl<S: Store> Limiter<S> {
    /// Why [`check`](Limiter::check) would answer what it would answer. Charges nothing and is not for the hot path:
    /// the store is asked twice, once for how things stand and once for what the request would leave.
    ///
    /// A penalty that counts refused attempts would make the wait longer for a check than is said here: looking is not
    /// asking.
    pub async fn explain<'a>(&self, request: impl Into<Request<'a>>) -> Explanation {
        let request = request.into();
        // Both questions and the story are about the same rules, also if they are replaced meanwhile.
        let in_force = self.inner.rules.load_full();
        let before = self.decide(Guard::from_inner(Arc::clone(&in_force)), request, Intent::Look).await;
        let answer = self.decide(Guard::from_inner(Arc::clone(&in_force)), request, Intent::Peek).await;

        let now = self.inner.store.now();
        let (rules, hashers) = (&in_force.rules, &self.inner.hashers);
        let exception = match rules.plan(&request, hashers, now) {
            Ok(Planned::Denied(exception) | Planned::Bypassed(exception)) => Some(exception.clone()),
            _ => None,
        };
        let explained = rules.explain(&request, hashers.current(), now);
        let rules = explained.into_iter().enumerate().map(|(place, explained)| {
            let accounts = accounts(place, before.as_ref().ok(), answer.as_ref().ok());
            RuleExplanation::new(&explained, accounts)
        });
        Explanation { rules: rules.collect(), exception, answer }
    }
}

/// Memory answers at once, so nothing has to be awaited.
impl<C: Clock> Limiter<MemoryStore<C>> {
    /// [`explain`](Limiter::explain), without a runtime.
    pub fn explain_now<'a>(&self, request: impl Into<Request<'a>>) -> Explanation {
        at_once(self.explain(request))
    }
}

fn accounts(place: usize, before: Option<&Decision>, answer: Option<&Decision>) -> Vec<Account> {
    let of_rule = |rule: &RuleView<'_>| rule.rule_index as usize == place;
    let after = answer.into_iter().flat_map(Decision::rules).filter(of_rule);
    let mut before = before.into_iter().flat_map(Decision::rules).filter(of_rule);
    after
        .map(|after| Account {
            before: before.next().and_then(|before| standing(&before)),
            outcome: *after.outcome(),
            after: standing(&after),
        })
        .collect()
}

fn standing(rule: &RuleView<'_>) -> Option<Standing> {
    let (numbers, limit) = (rule.numbers?, rule.limit()?);
    Some(Standing { numbers, why: reasons::reasons(&limit, &numbers, rule.cost) })
}

impl Explanation {
    /// The rules that apply.
    pub fn applying(&self) -> impl Iterator<Item = &RuleExplanation> {
        self.rules.iter().filter(|rule| rule.applies)
    }

    /// The rule with this id.
    pub fn rule(&self, id: &str) -> Option<&RuleExplanation> {
        self.rules.iter().find(|rule| rule.id() == id)
    }
}

impl RuleExplanation {
    fn new(explained: &RuleTrace<'_, '_>, accounts: Vec<Account>) -> RuleExplanation {
        let applies = explained.unmet.is_empty() && explained.rule.mode != Mode::Off;
        RuleExplanation {
            rule: explained.rule.clone(),
            applies,
            unmet: explained.unmet.iter().copied().cloned().collect(),
            subject: explained.subject.as_ref().map(Counted::new).map_err(|chain| chain.to_vec()),
            changed_by: explained.changed_by.cloned(),
            cost: explained.cost,
            in_rollout: explained.in_rollout,
            blocking: applies && explained.blocking,
            accounts,
        }
    }

    /// The rule's id.
    pub fn id(&self) -> &str {
        self.rule.keyspace.rule()
    }

    /// The limit in force: the override's, if there is one, or the rule's own.
    pub fn limit(&self) -> &RuleLimit {
        self.changed_by.as_ref().map_or(&self.rule.limit, |change| &change.limit)
    }

    /// Where that limit is written.
    pub fn written_at(&self) -> &Origin {
        self.changed_by.as_ref().map_or(&self.rule.origin, |change| &change.origin)
    }
}

impl Counted {
    fn new(subjects: &SubjectParts<'_>) -> Counted {
        let own = |(kind, value): &(&str, &str)| ((*kind).to_owned(), (*value).to_owned());
        Counted { parts: subjects.parts.iter().map(own).collect() }
    }

    /// What kind of subject it is: the attributes that were found.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|(kind, _)| kind.as_str())
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kinds()).finish()
    }
}

/// A few lines for a log: the answer, then each rule that applies with its numbers. Subjects by their kinds only.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.answer {
            Ok(decision) if decision.allowed => write!(f, "allowed")?,
            Ok(_) => write!(f, "refused")?,
            Err(error) => write!(f, "undecided: {error}")?,
        }
        if let Some(exception) = &self.exception {
            write!(f, ", by the entry at {}: {}", place(&exception.origin), exception.reason)?;
        }
        self.applying().try_for_each(|rule| write!(f, "\n{rule}"))
    }
}

impl fmt::Display for RuleExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.id(), place(&self.rule.origin))?;
        let unmet: Vec<&str> = self.unmet.iter().map(|condition| condition.attribute.as_str()).collect();
        match &self.subject {
            _ if !unmet.is_empty() => return write!(f, ": does not apply, because of {}", unmet.join(", ")),
            _ if !self.applies => return write!(f, ": is off"),
            Err(chain) => return write!(f, ": nobody to count, none of {} is there", chain.join(", ")),
            Ok(counted) if counted.parts.is_empty() => write!(f, ": counts everybody together")?,
            Ok(counted) => write!(f, ": counts each {}", counted.kinds().collect::<Vec<_>>().join(" and "))?,
        }
        write!(f, ", cost {}, limit from {}", self.cost.cost, place(self.written_at()))?;
        if !self.blocking {
            write!(f, ", a shadow")?;
        }
        let after = self.accounts.iter().filter_map(|account| account.after.as_ref());
        after.flat_map(|after| &after.why).try_for_each(|reason| write!(f, "\n  {reason}"))
    }
}

/// `rules.yaml:12`.
fn place(origin: &Origin) -> String {
    match origin.line {
        0 => origin.file.clone(),
        line => format!("{}:{line}", origin.file),
    }
}
