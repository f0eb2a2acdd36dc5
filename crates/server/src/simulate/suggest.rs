//! `--suggest 'refused < 0.1%'`: one number for each rate rule that refuses more.
//!
//! The checks of each rule are kept, decided again under larger numbers, each rule alone. The number is the smallest one, rounded up
//! to two digits, with which the rule's share of refusals is below the bound.

use tollgate::core::rules::RuleSet;
use tollgate::core::{Limit, Operation, State, Time, Token};
use tollgate::rules::load;
use tollgate_document::{Node, Problems, Source, SourceSpan, parse};

use super::replay::Trace;

/// The limits whose number is a rate, by their keys in a rules file.
const RATES: [&str; 5] = ["fixed-window", "sliding-window", "sliding-log", "token-bucket", "leaky-bucket"];
/// The second number of a limit, for rules whose first number does not help.
const CAPACITIES: [&str; 2] = ["burst", "capacity"];
/// How often a number is doubled before the search gives up.
const DOUBLINGS: u32 = 24;

/// What is proposed for one rule.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Suggestion {
    pub(crate) rule: String,
    /// The share of refused checks now, in percent.
    pub(crate) percent_now: f64,
    pub(crate) proposal: Proposal,
}

/// A change of the rules file, or why nothing is proposed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Proposal {
    Change {
        /// The line, counted from 1.
        line: usize,
        before: String,
        after: String,
        /// The share of refused checks with the change, in percent.
        percent: f64,
    },
    /// The rule is within the bound.
    Within,
    /// Why no number helps.
    Impossible(&'static str),
}

/// Proposes a number for every rule that was traced.
pub(super) fn suggest(
    source: &Source,
    rules: &RuleSet,
    traces: Vec<(String, Trace)>,
    percent_max: f64,
) -> Vec<Suggestion> {
    let root = parse(source, &mut Problems::new());
    traces
        .into_iter()
        .filter_map(|(rule, mut trace)| {
            let limit = limit_of(rules, &rule)?;
            trace.sort();
            let percent_now = percent(&limit, &trace);
            let proposal = if percent_now < percent_max {
                Proposal::Within
            } else {
                propose(source, root.as_ref(), &rule, &trace, percent_max)
            };
            Some(Suggestion { rule, percent_now, proposal })
        })
        .collect()
}

fn limit_of(rules: &RuleSet, rule: &str) -> Option<Limit> {
    // A rate does not depend on the time.
    rules.find(rule)?.1.limit.at(Time::from_us(1))
}

fn propose(source: &Source, root: Option<&Node>, rule: &str, trace: &Trace, percent_max: f64) -> Proposal {
    let Some(limit) = root.and_then(|root| node_of(root, rule)).and_then(|node| node.get("limit")) else {
        return Proposal::Impossible("the rule comes from a preset");
    };
    let numbers = RATES.iter().chain(&CAPACITIES).filter_map(|key| number_in(source, limit.get(key)?));
    let mut found = false;
    for (span, number) in numbers {
        found = true;
        let share = |number: u64| {
            let changed = source.with(span, &number.to_string());
            let rules = load(&changed, &mut Problems::new())?;
            Some(percent(&limit_of(&rules, rule)?, trace))
        };
        if let Some((number, percent)) = smallest(number, percent_max, share) {
            let line = source.position(span.start).line;
            let changed = source.with(span, &number.to_string());
            return Proposal::Change {
                line,
                before: source.slice(source.line_at(span.start)).to_owned(),
                after: changed.slice(changed.line_at(span.start)).to_owned(),
                percent,
            };
        }
    }
    Proposal::Impossible(if found {
        "no number that a rules file can have is large enough"
    } else {
        "the limit has no rate"
    })
}

/// The smallest number above `now` with a share below the bound, rounded up to two digits.
fn smallest(now: u64, percent_max: f64, share: impl Fn(u64) -> Option<f64>) -> Option<(u64, f64)> {
    let (mut low, mut high) = (now, now.max(1));
    let mut doublings = 0;
    loop {
        high = high.checked_mul(2)?;
        doublings += 1;
        if share(high)? < percent_max {
            break;
        }
        low = high;
        if doublings == DOUBLINGS {
            return None;
        }
    }
    while high - low > 1 && high - low > high / 128 {
        let middle = low + (high - low) / 2;
        if share(middle)? < percent_max { high = middle } else { low = middle }
    }
    let mut unit = 1;
    while high / unit >= 100 {
        unit *= 10;
    }
    let rounded = high.div_ceil(unit) * unit;
    Some((rounded, share(rounded)?))
}

fn node_of<'n>(root: &'n Node, rule: &str) -> Option<&'n Node> {
    let mut rules = root.get("rules")?.list()?.iter();
    rules.find(|node| node.get("id").and_then(Node::scalar) == Some(rule))
}

/// The number at the beginning of a scalar, such as the 100 of `100/min`.
fn number_in(source: &Source, node: &Node) -> Option<(SourceSpan, u64)> {
    let text = source.slice(node.span);
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let len = text[start..].find(|c: char| !(c.is_ascii_digit() || c == '_')).unwrap_or(text.len() - start);
    let number = text[start..start + len].replace('_', "").parse().ok()?;
    let start = node.span.start + start;
    Some((SourceSpan::new(start, start + len), number))
}

/// The share of the checks that the limit refuses, in percent.
fn percent(limit: &Limit, trace: &Trace) -> f64 {
    let (mut refused, mut subject, mut state) = (0_u64, None, None::<State>);
    for check in trace.checks() {
        if subject != Some(check.subject) {
            (subject, state) = (Some(check.subject), None);
        }
        let operation = Operation::Charge { cost: check.cost.into(), token: Token::NONE };
        let step = limit.decide(state.as_ref(), Time::from_us(check.at_us), &operation);
        refused += u64::from(!step.answer.is_admitted());
        if let Some(write) = step.write {
            State::commit(&mut state, write.change);
        }
    }
    refused as f64 * 100.0 / (trace.checks().len() as f64).max(1.0)
}
