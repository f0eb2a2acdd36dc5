//! Lints of rules that meet in one request.

use tollgate_core::algorithm::bucket::{Bucket, BucketKind};
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::rules::{Mode, Rule, RuleLimit};
use tollgate_core::{Limit, Span};

use super::Findings;
use super::context::{Context, WrittenRule, names, readable};
use tollgate_document::SourceSpan;

/// How many rules a finding points at.
const SPANS_MAX: usize = 6;

pub(super) fn several_slots(context: &Context<'_>, found: &mut Findings<'_>) {
    if !context.options.cluster {
        return;
    }
    let stored: Vec<&WrittenRule<'_>> = context.live().filter(|written| asks_a_store(written)).collect();
    let tags: Vec<_> = stored.iter().map(|written| tag(written.rule, context.set.partition())).collect();
    let mut groups = Groups::new(stored.len());
    for (at, one) in stored.iter().enumerate() {
        for (other_at, other) in stored.iter().enumerate().skip(at + 1) {
            if context.work.spend(1).is_none() {
                return;
            }
            if tags[at] != tags[other_at] && context.can_meet(one, other) {
                groups.join(at, other_at);
            }
        }
    }
    for group in groups.of_several() {
        let rules: Vec<&WrittenRule<'_>> = group.into_iter().map(|at| stored[at]).collect();
        report_slots(context, &rules, found);
    }
}

fn report_slots(context: &Context<'_>, rules: &[&WrittenRule<'_>], found: &mut Findings<'_>) {
    let message = format!(
        "rules {} can meet in one request and lie in different slots: on a cluster it is not one step",
        names(rules.iter().map(|written| written.id())),
    );
    let spans = rules.iter().map(|written| written.span_of("per"));
    let mut spans: Vec<SourceSpan> = spans.take(SPANS_MAX).collect();
    spans.dedup();
    let Some((&first, others)) = spans.split_first() else { return };
    let problem = match common_attribute(rules).filter(|_| context.set.partition().is_empty()) {
        Some(common) => {
            let fix = format!("`partition: [{common}]` puts all that one `{common}` uses into one slot");
            found.warning(first, message, fix)
        }
        None => {
            let fix = "rules share a slot if their `per` has the attributes of `partition` as parts of their \
                       own; across slots nothing is admitted too much, but a request may be refused too \
                       early";
            found.note(first, message, fix)
        }
    };
    found.push(others.iter().fold(problem, |problem, &span| problem.also(span, "and this one")));
}

/// An attribute that is in every subject of all these rules.
fn common_attribute<'r>(rules: &[&WrittenRule<'r>]) -> Option<&'r str> {
    let single = |chain: &'r Vec<String>| match chain.as_slice() {
        [only] => Some(only.as_str()),
        _ => None,
    };
    let first: &'r Rule = rules.first()?.rule;
    let mut always = first.per.parts.iter().filter_map(single);
    always.find(|name| rules.iter().all(|written| written.rule.per.always_includes(name)))
}

/// Whether requests under the rule go to a store.
fn asks_a_store(written: &WrittenRule<'_>) -> bool {
    written.rule.limit != RuleLimit::Deny || !written.overrides.is_empty()
}

/// The parts of the subject that decide its slot. Equal parts are in one slot, others in any.
fn tag<'r>(rule: &'r Rule, partition: &[String]) -> Vec<&'r [String]> {
    let parts = rule.per.parts.iter().map(Vec::as_slice);
    if !partition.is_empty() && partition.iter().all(|name| rule.per.always_includes(name)) {
        let mut shared: Vec<_> =
            parts.filter(|chain| matches!(chain, [only] if partition.contains(only))).collect();
        // A tag takes them in the partition's order, whatever the rule's.
        shared.sort();
        shared
    } else {
        parts.collect()
    }
}

/// Numbers that belong together.
struct Groups {
    /// A smaller one of the same group, or itself.
    towards: Vec<usize>,
}

impl Groups {
    fn new(len: usize) -> Groups {
        Groups { towards: (0..len).collect() }
    }

    fn smallest(&mut self, mut at: usize) -> usize {
        while self.towards[at] != at {
            self.towards[at] = self.towards[self.towards[at]];
            at = self.towards[at];
        }
        at
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.smallest(one), self.smallest(other));
        self.towards[one.max(other)] = one.min(other);
    }

    /// The groups with more than one member, in order.
    fn of_several(mut self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = vec![Vec::new(); self.towards.len()];
        for at in 0..self.towards.len() {
            let smallest = self.smallest(at);
            groups[smallest].push(at);
        }
        groups.retain(|group| group.len() > 1);
        groups
    }
}

pub(super) fn shaper_with_others(context: &Context<'_>, found: &mut Findings<'_>) {
    for (shaper, bucket) in shapers(context) {
        let longest = longest_delay(&bucket);
        let counts_at_once = |other: &&WrittenRule<'_>| {
            other.rule.mode == Mode::Enforce
                && shaped(other.rule).is_none()
                && other.rule.limit != RuleLimit::Deny
                // That is a finding of its own.
                && leased(other.rule).is_none_or(|concurrency| concurrency.lease() > longest)
                && context.can_meet(shaper, other)
        };
        let others: Vec<&WrittenRule<'_>> = context.live().filter(counts_at_once).collect();
        if others.is_empty() {
            continue;
        }
        let (count, verb) = if others.len() == 1 { ("rule", "counts") } else { ("rules", "count") };
        let message = format!(
            "rule `{}` can make a request wait up to {longest}, and {count} {} {verb} it before that",
            shaper.id(),
            names(others.iter().map(|written| written.id())),
        );
        let fix = "ask the shaper alone, by an action of its own, if the others must count what goes ahead, \
                   not what asks";
        found.push(found.note(shaper.span_of("limit"), message, fix));
    }
}

pub(super) fn lease_ends_in_queue(context: &Context<'_>, found: &mut Findings<'_>) {
    for (shaper, bucket) in shapers(context) {
        let longest = longest_delay(&bucket);
        for other in context.live() {
            let Some(concurrency) = leased(other.rule).filter(|concurrency| concurrency.lease() <= longest)
            else {
                continue;
            };
            if !context.can_meet(shaper, other) {
                continue;
            }
            let message = format!(
                "a lease under rule `{}` lasts {}, but rule `{}` can make the request wait {longest} before \
                 it begins",
                other.id(),
                concurrency.lease(),
                shaper.id(),
            );
            let fix = format!(
                "a `lease` longer than {longest}, a shorter `queue`, or renewing the lease while waiting"
            );
            let problem = found.warning(other.span_of("limit"), message, fix);
            found.push(problem.also(shaper.span_of("limit"), "it waits here"));
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

/// How long the last of a full queue waits, rounded up.
fn longest_delay(bucket: &Bucket) -> Span {
    let (drain, scale) = bucket.rate();
    let queue = bucket.capacity().saturating_sub(1);
    // At most half of what is exact, by the bucket's own check.
    let ticks = queue.saturating_mul(scale).div_ceil(drain);
    readable(Span::from_us(ticks.saturating_mul(bucket.tick().us())))
}
