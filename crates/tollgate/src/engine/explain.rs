//! Why a request gets its decision: every rule, and every number with its reason.
//!
//! `RuleSet::explain` says which rules match, and the store has the numbers; this module combines them.

mod reasons;

use std::fmt;
use std::sync::Arc;

use arc_swap::Guard;
use tollgate_core::decision::{Numbers, RuleOutcome, Source};
use tollgate_core::plan::layers::LayerView;
use tollgate_core::rules::cost::ResolvedCost;
use tollgate_core::rules::rule_set::ListEntry;
use tollgate_core::rules::{
    Condition, Mode, Origin, Override, Planned, Request, Rule, RuleLimit, RuleTrace, SubjectParts,
};
use tollgate_core::{Plan, Store, Subject, SubjectHasher};

use super::{CheckError, Decision, Engine, Intent, RuleDecision, RuleUsage};

pub use reasons::Reason;

/// Every rule and number that leads to a decision. Owns its data, so it can be stored, logged or sent.
#[derive(Debug)]
pub struct Explanation {
    /// The decision that a check would make, or why it could not be decided.
    pub answer: Result<Decision, CheckError>,
    /// The entry of the deny list or bypass list that decides before any rule is checked.
    pub exception: Option<ListEntry>,
    /// Every rule in the order of the rules file, whether it applies or not.
    pub rules: Vec<RuleExplanation>,
}

/// What one rule does with the request.
#[derive(Clone, Debug)]
pub struct RuleExplanation {
    /// The rule.
    pub rule: Rule,
    /// Whether the rule applies: all its conditions are met and its mode is not `off`.
    pub applies: bool,
    /// The conditions that are not met.
    pub unmet: Vec<Condition>,
    /// The subject, or the fallback chain of attributes of which none is present.
    pub subject: Result<Counted, Vec<String>>,
    /// The keyed hash of the subject under the current hash key. `None` if there is no subject.
    pub subject_hash: Option<Subject>,
    /// The override that sets the limit, if one applies.
    pub changed_by: Option<Override>,
    /// The cost of the request, and whether it is the default because an expression failed.
    pub cost: ResolvedCost,
    /// Whether the subject is in the rollout.
    pub in_rollout: bool,
    /// Whether the rule can refuse. A rule that applies and does not block is a shadow rule.
    pub blocking: bool,
    /// The numbers. Empty if the rule is not checked; two while a hash key is being replaced. Those of a sharded rule are of
    /// the shard that the request asks.
    pub accounts: Vec<Account>,
    /// What all shards of a sharded rule have used together. `None` if the rule has one key, or the store did not answer.
    pub all_shards: Option<RuleUsage>,
    /// What the layers before a remote store would do now, charging nothing. Empty for the memory store.
    pub layers: Vec<LayerView>,
}

/// A subject: the name and value of each attribute. `Debug` shows the names only: values may be secrets or personal data.
#[derive(Clone, PartialEq, Eq)]
pub struct Counted {
    /// In the order of `per`. Empty if the rule counts all requests together.
    pub parts: Vec<(String, String)>,
}

/// The numbers of one subject under one rule, before and after the request.
#[derive(Clone, Debug)]
pub struct Account {
    /// The numbers before the request. `None` if the store did not answer.
    pub before: Option<ExplainedNumbers>,
    /// The rule's answer to the request.
    pub outcome: RuleOutcome,
    /// The numbers after a check. If any rule refuses the request, they equal those before.
    pub after: Option<ExplainedNumbers>,
}

/// Numbers, each with its reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExplainedNumbers {
    /// The numbers.
    pub numbers: Numbers,
    /// One sentence for each number that matters.
    pub why: Vec<Reason>,
}

impl<S: Store> Engine<S> {
    /// Explains what [`check`](Engine::check) would decide. See [`Limiter::explain`](crate::Limiter::explain).
    pub async fn explain(&self, request: Request<'_>) -> Explanation {
        // Both decisions and the explanation use the same rules, also if they are replaced meanwhile.
        let active = self.inner.rules.load_full();
        // Both decisions ask the same shards.
        let request = Request { seed: self.inner.new_seed(), ..request };
        let mut usage = match active.rules.has_shards() {
            // Without an answer the decisions say why.
            true => self.usage_of(&active, request, |rule| rule.shards.is_some()).await.unwrap_or_default(),
            false => Vec::new(),
        };
        let before = self.decide(Guard::from_inner(Arc::clone(&active)), request, Intent::Look).await;
        let answer = self.decide(Guard::from_inner(Arc::clone(&active)), request, Intent::Peek).await;

        let now = self.inner.store.now();
        let (rules, hashers) = (&active.rules, &self.inner.hashers);
        let (mut exception, mut layers) = (None, Vec::new());
        match rules.plan(&request, hashers, now) {
            Ok(Planned::Denied(entry) | Planned::Bypassed(entry)) => exception = Some(entry.clone()),
            // No layer answers for a request with an id.
            Ok(Planned::Plan { plan, .. }) if request.id.is_none() => layers = self.layers_of(plan),
            _ => (),
        }
        let values = rules.prepare(request.attributes);
        let replaced = values.as_ref().map(|values| values.replace_in(request.attributes));
        let request = Request { attributes: replaced.as_ref().unwrap_or(request.attributes), ..request };
        let explained = rules.explain(&request, hashers.current(), now);
        let rules = explained.into_iter().enumerate().map(|(index, explained)| {
            let accounts = accounts(index, before.as_ref().ok(), answer.as_ref().ok());
            let id = explained.rule.keyspace.rule();
            let usage = usage.iter().position(|usage| usage.rule == id).map(|at| usage.swap_remove(at));
            let of_rule = layers.iter().filter(|(rule_index, _)| *rule_index as usize == index);
            let layers = of_rule.map(|(_, view)| *view).collect();
            RuleExplanation::new(&explained, hashers.current(), accounts, usage, layers)
        });
        Explanation { rules: rules.collect(), exception, answer }
    }

    /// What the layers before the store would do with a Plan of charges, by rule.
    fn layers_of(&self, mut plan: Plan<'_>) -> Vec<(u32, LayerView)> {
        self.inner.store.place_subjects(&mut plan);
        let views = self.inner.store.view_layers(&plan);
        let of_rule = |(index, view): (usize, LayerView)| Some((plan.items().get(index)?.rule_index, view));
        views.into_iter().filter_map(of_rule).collect()
    }
}

fn accounts(index: usize, before: Option<&Decision>, answer: Option<&Decision>) -> Vec<Account> {
    let of_rule = |rule: &RuleDecision<'_>| rule.outcome().rule_index as usize == index;
    let after = answer.into_iter().flat_map(Decision::rules).filter(of_rule);
    let mut before = before.into_iter().flat_map(Decision::rules).filter(of_rule);
    after
        .map(|after| Account {
            before: before.next().and_then(|before| explained_numbers(&before)),
            outcome: *after.outcome(),
            after: explained_numbers(&after),
        })
        .collect()
}

fn explained_numbers(rule: &RuleDecision<'_>) -> Option<ExplainedNumbers> {
    let (numbers, limit) = (rule.outcome().numbers?, rule.limit_in_force()?);
    Some(ExplainedNumbers { numbers, why: reasons::reasons(&limit, &numbers, rule.cost()) })
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
    fn new(
        explained: &RuleTrace<'_, '_>,
        hasher: &SubjectHasher,
        accounts: Vec<Account>,
        all_shards: Option<RuleUsage>,
        layers: Vec<LayerView>,
    ) -> RuleExplanation {
        let applies = explained.unmet.is_empty() && explained.rule.mode != Mode::Off;
        RuleExplanation {
            rule: explained.rule.clone(),
            applies,
            unmet: explained.unmet.iter().copied().cloned().collect(),
            subject: explained.subject.as_ref().map(Counted::new).map_err(|chain| chain.to_vec()),
            subject_hash: explained.subject.as_ref().ok().map(|subject| subject.hash(hasher)),
            changed_by: explained.changed_by.cloned(),
            cost: explained.cost,
            in_rollout: explained.in_rollout,
            blocking: applies && explained.blocking,
            accounts,
            all_shards,
            layers,
        }
    }

    /// The rule's id.
    pub fn id(&self) -> &str {
        self.rule.keyspace.rule()
    }

    /// The limit that applies: the override's limit, or else the rule's own.
    pub fn limit(&self) -> &RuleLimit {
        self.changed_by.as_ref().map_or(&self.rule.limit, |change| &change.limit)
    }

    /// The file and line of that limit.
    pub fn written_at(&self) -> &Origin {
        self.changed_by.as_ref().map_or(&self.rule.origin, |change| &change.origin)
    }
}

impl Counted {
    fn new(subjects: &SubjectParts<'_>) -> Counted {
        let own = |(kind, value): &(&str, &str)| ((*kind).to_owned(), (*value).to_owned());
        Counted { parts: subjects.parts.iter().map(own).collect() }
    }

    /// The names of the attributes that make up the subject.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|(kind, _)| kind.as_str())
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kinds()).finish()
    }
}

/// A few lines for a log: the decision, then each rule that applies with its numbers. Attribute values are left out.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.answer {
            Ok(decision) if decision.allowed() => write!(f, "allowed")?,
            Ok(decision) if decision.source() == Source::Unmatched => {
                write!(f, "refused, because no rule counts it (`unmatched: refuse`)")?;
            }
            Ok(_) => write!(f, "refused")?,
            Err(error) => write!(f, "undecided: {error}")?,
        }
        if let Some(exception) = &self.exception {
            write!(f, ", by the entry at {}: {}", location(&exception.origin), exception.reason)?;
        }
        self.applying().try_for_each(|rule| write!(f, "\n{rule}"))
    }
}

impl fmt::Display for RuleExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.id(), location(&self.rule.origin))?;
        let unmet: Vec<&str> = self.unmet.iter().map(|condition| condition.attribute.as_str()).collect();
        match &self.subject {
            _ if !unmet.is_empty() => return write!(f, ": does not apply because of {}", unmet.join(", ")),
            _ if !self.applies => return write!(f, ": is off"),
            Err(chain) => return write!(f, ": no subject, because none of {} is present", chain.join(", ")),
            Ok(counted) if counted.parts.is_empty() => write!(f, ": counts all requests together")?,
            Ok(counted) => write!(f, ": counts each {}", counted.kinds().collect::<Vec<_>>().join(" and "))?,
        }
        write!(f, ", cost {}, limit from {}", self.cost.cost, location(self.written_at()))?;
        if !self.blocking {
            write!(f, ", shadow")?;
        }
        let after = self.accounts.iter().filter_map(|account| account.after.as_ref());
        after.flat_map(|after| &after.why).try_for_each(|reason| write!(f, "\n  {reason}"))?;
        if let (Some(shards), Some(all)) = (self.rule.shards, &self.all_shards) {
            let RuleUsage { limit, used, remaining, .. } = all;
            let count = shards.count();
            write!(
                f,
                "\n  these are the numbers of one of {count} shards; all of them have used {used} of {limit}, "
            )?;
            write!(f, "and {remaining} remain")?;
        }
        self.layers.iter().try_for_each(|view| write!(f, "\n  {}", layer_sentence(view)))
    }
}

/// `rules.yaml:12`.
fn location(origin: &Origin) -> String {
    match origin.line {
        0 => origin.file.clone(),
        line => format!("{}:{line}", origin.file),
    }
}

/// What a layer would do, in words.
pub fn layer_sentence(view: &LayerView) -> String {
    match *view {
        LayerView::Prefilter { limit, remaining, refuses } => {
            let would = if refuses { "refuses without asking the store" } else { "lets it pass" };
            format!("prefilter: {would}; {remaining} of {limit} attempts are left on this server")
        }
        LayerView::Memory { refuses_for: None } => {
            "refusal memory: lets it pass; it remembers no refusal".to_owned()
        }
        LayerView::Memory { refuses_for: Some(left) } => {
            format!("refusal memory: refuses without asking the store for another {} ms", left.ms_ceil())
        }
        LayerView::Slices { held, pays: true } => {
            format!("slices: pay for it without asking the store; this server holds {held} units")
        }
        LayerView::Slices { held, pays: false } => {
            format!("slices: ask the store; this server holds {held} units")
        }
    }
}
