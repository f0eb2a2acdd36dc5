//! Lints about rules that match the same request.

use tollgate_core::algorithm::bucket::{Bucket, BucketKind};
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::rules::{Mode, Rule, RuleLimit};
use tollgate_core::{Limit, Span};

use crate::rules::lint::Findings;
use crate::rules::lint::context::{Context, WrittenRule, names, readable};
use tollgate_document::SourceSpan;

/// Maximum number of rules that a finding points at.
const SPANS_MAX: usize = 6;

pub(in crate::rules::lint) fn several_slots(context: &Context<'_>, found: &mut Findings<'_>) {
    if !context.options.cluster {
        return;
    }
    let stored: Vec<&WrittenRule<'_>> = context.live().filter(|written| uses_the_store(written)).collect();
    let tags: Vec<_> = stored.iter().map(|written| tag(written.rule, context.set.partition())).collect();
    let mut groups = Groups::new(stored.len());
    for (at, one) in stored.iter().enumerate() {
        for (other_at, other) in stored.iter().enumerate().skip(at + 1) {
            if context.budget.spend(1).is_none() {
                return;
            }
            if is_apart(one, other, &tags[at], &tags[other_at]) && context.can_match_together(one, other) {
                groups.union(at, other_at);
            }
        }
    }
    for group in groups.with_several_members() {
        let rules: Vec<&WrittenRule<'_>> = group.into_iter().map(|at| stored[at]).collect();
        report_slots(context, &rules, found);
    }
}

/// Whether the keys of two rules for one request are in different slots. The shards of a rule have separate slots.
fn is_apart(
    one: &WrittenRule<'_>,
    other: &WrittenRule<'_>,
    tag: &[&[String]],
    other_tag: &[&[String]],
) -> bool {
    is_sharded(one) || is_sharded(other) || tag != other_tag
}

const fn is_sharded(written: &WrittenRule<'_>) -> bool {
    written.rule.shards.is_some()
}

fn report_slots(context: &Context<'_>, rules: &[&WrittenRule<'_>], found: &mut Findings<'_>) {
    let message = format!(
        "rules {} can match one request but use different hash slots: on a cluster its check is not atomic",
        names(rules.iter().map(|written| written.id())),
    );
    let spans = rules.iter().map(|written| written.span_of("per"));
    let mut spans: Vec<SourceSpan> = spans.take(SPANS_MAX).collect();
    spans.dedup();
    let Some((&first, others)) = spans.split_first() else { return };
    let can_share = context.set.partition().is_empty() && !rules.iter().any(|written| is_sharded(written));
    let problem = match common_attribute(rules).filter(|_| can_share) {
        Some(common) => {
            let fix = format!("`partition: [{common}]` puts all counts of one `{common}` into one slot");
            found.warning(first, message, fix)
        }
        None => {
            let fix = "rules share a slot if each attribute of `partition` is a separate part of their `per`; \
                       across slots no limit is exceeded, but a request may be refused too early";
            found.note(first, message, fix)
        }
    };
    found.push(others.iter().fold(problem, |problem, &span| problem.also(span, "and this rule")));
}

/// An attribute that is part of every subject of all these rules.
fn common_attribute<'r>(rules: &[&WrittenRule<'r>]) -> Option<&'r str> {
    let single = |chain: &'r Vec<String>| match chain.as_slice() {
        [only] => Some(only.as_str()),
        _ => None,
    };
    let first: &'r Rule = rules.first()?.rule;
    let mut always = first.per.parts.iter().filter_map(single);
    always.find(|name| rules.iter().all(|written| written.rule.per.always_includes(name)))
}

/// Whether checks of the rule use the store.
fn uses_the_store(written: &WrittenRule<'_>) -> bool {
    written.rule.limit != RuleLimit::Deny || !written.overrides.is_empty()
}

/// The parts of the subject that determine its slot. Rules with equal parts share a slot.
fn tag<'r>(rule: &'r Rule, partition: &[String]) -> Vec<&'r [String]> {
    let parts = rule.per.parts.iter().map(Vec::as_slice);
    if !partition.is_empty() && partition.iter().all(|name| rule.per.always_includes(name)) {
        let mut shared: Vec<_> =
            parts.filter(|chain| matches!(chain, [only] if partition.contains(only))).collect();
        // A tag uses the order of the partition, not of the rule.
        shared.sort();
        shared
    } else {
        parts.collect()
    }
}

/// Disjoint sets of indexes (union-find).
struct Groups {
    /// For each index, a smaller index of the same group, or itself.
    parent: Vec<usize>,
}

impl Groups {
    fn new(len: usize) -> Groups {
        Groups { parent: (0..len).collect() }
    }

    fn root(&mut self, mut at: usize) -> usize {
        while self.parent[at] != at {
            self.parent[at] = self.parent[self.parent[at]];
            at = self.parent[at];
        }
        at
    }

    fn union(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.parent[one.max(other)] = one.min(other);
    }

    /// The groups with more than one member, in order.
    fn with_several_members(mut self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = vec![Vec::new(); self.parent.len()];
        for at in 0..self.parent.len() {
            let root = self.root(at);
            groups[root].push(at);
        }
        groups.retain(|group| group.len() > 1);
        groups
    }
}

pub(in crate::rules::lint) fn shaper_with_others(context: &Context<'_>, found: &mut Findings<'_>) {
    for (shaper, bucket) in shapers(context) {
        let longest = longest_delay(&bucket);
        let counts_before_the_delay = |other: &&WrittenRule<'_>| {
            other.rule.mode == Mode::Enforce
                && shaped(other.rule).is_none()
                && other.rule.limit != RuleLimit::Deny
                // `lease_ends_in_queue` reports that case.
                && leased(other.rule).is_none_or(|concurrency| concurrency.lease() > longest)
                && context.can_match_together(shaper, other)
        };
        let others: Vec<&WrittenRule<'_>> = context.live().filter(counts_before_the_delay).collect();
        if others.is_empty() {
            continue;
        }
        let (count, verb) = if others.len() == 1 { ("rule", "counts") } else { ("rules", "count") };
        let message = format!(
            "rule `{}` can delay a request up to {longest}, and {count} {} {verb} it before the delay",
            shaper.id(),
            names(others.iter().map(|written| written.id())),
        );
        let fix =
            "if the other rules must count after the delay, check the shaper alone with a separate action";
        found.push(found.note(shaper.span_of("limit"), message, fix));
    }
}

pub(in crate::rules::lint) fn lease_ends_in_queue(context: &Context<'_>, found: &mut Findings<'_>) {
    for (shaper, bucket) in shapers(context) {
        let longest = longest_delay(&bucket);
        for other in context.live() {
            let Some(concurrency) = leased(other.rule).filter(|concurrency| concurrency.lease() <= longest)
            else {
                continue;
            };
            if !context.can_match_together(shaper, other) {
                continue;
            }
            let message = format!(
                "a lease under rule `{}` lasts {}, but rule `{}` can delay the request {longest} before it \
                 starts",
                other.id(),
                concurrency.lease(),
                shaper.id(),
            );
            let fix = format!(
                "set a `lease` longer than {longest} or a shorter `queue`, or renew the lease while waiting"
            );
            let problem = found.warning(other.span_of("limit"), message, fix);
            found.push(problem.also(shaper.span_of("limit"), "the delay is here"));
        }
    }
}

/// Attributes that only Envoy's rate limit service sets.
const GATEWAY_ATTRIBUTES: [&str; 2] = ["descriptor", "domain"];

pub(in crate::rules::lint) fn lease_behind_gateway(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live().filter(|written| leased(written.rule).is_some()) {
        let Rule { conditions, per, .. } = written.rule;
        let conditions = conditions.iter().map(|condition| condition.attribute.as_str());
        let required = per.parts.iter().filter(|chain| chain.len() == 1).flatten().map(String::as_str);
        let mut names = conditions.chain(required);
        if let Some(name) = names.find(|name| GATEWAY_ATTRIBUTES.contains(name)) {
            let message = format!(
                "only Envoy sets `{name}`, and it cannot release the leases of rule `{}`: the server refuses these requests",
                written.id(),
            );
            let fix = "limit Envoy's requests by a rate, or take leases with POST /v1/leases in the service behind it";
            found.push(found.warning(written.span_of("limit"), message, fix));
        }
    }
}

fn shapers<'c, 'a>(context: &'c Context<'a>) -> impl Iterator<Item = (&'c WrittenRule<'a>, Bucket)> {
    context.live().filter_map(|written| Some((written, shaped(written.rule)?)))
}

fn shaped(rule: &Rule) -> Option<Bucket> {
    match rule.limit {
        RuleLimit::Fixed(Limit::Bucket(bucket)) if bucket.kind() == BucketKind::Queue => Some(bucket),
        _ => None,
    }
}

fn leased(rule: &Rule) -> Option<Concurrency> {
    match rule.limit {
        RuleLimit::Fixed(Limit::Concurrency(concurrency)) => Some(concurrency),
        _ => None,
    }
}

/// The delay of the last request in a full queue, rounded up.
fn longest_delay(bucket: &Bucket) -> Span {
    let (drain, scale) = bucket.rate();
    let queue = bucket.capacity().saturating_sub(1);
    // The bucket's constructor bounds this to half of the exact range.
    let ticks = queue.saturating_mul(scale).div_ceil(drain);
    readable(Span::from_us(ticks.saturating_mul(bucket.tick().us())))
}
