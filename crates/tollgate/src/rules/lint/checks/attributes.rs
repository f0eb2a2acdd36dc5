//! The lint about unknown attributes, and the positions of attributes in a file.

use std::collections::{BTreeMap, HashMap, HashSet};

use cel::Program;
use tollgate_core::rules::Cost;

use crate::rules::lint::Findings;
use crate::rules::lint::conditions::WrittenCondition;
use crate::rules::lint::context::{Context, WrittenRule};
use tollgate_document::problem::PROBLEMS_MAX;
use tollgate_document::{Node, Source, SourceSpan, suggest};

/// For attributes of `per` beyond this number, findings point at the whole of `per`.
const SPANS_MAX: usize = 64;

pub(in crate::rules::lint) fn unknown_attribute(context: &Context<'_>, found: &mut Findings<'_>) {
    // The use of an undeclared attribute is an error in a file that declares attributes, so that nothing is left to say.
    if context.root.get("attributes").is_some() {
        return;
    }
    let known: HashSet<&str> = context.options.known_attributes.iter().map(String::as_str).collect();
    let mut unknown: BTreeMap<String, Vec<SourceSpan>> = BTreeMap::new();
    for (name, span) in uses(context) {
        if !known.contains(name.as_str()) {
            unknown.entry(name).or_default().push(span);
        }
    }
    for (at, (name, spans)) in unknown.into_iter().enumerate() {
        let Some(&first) = spans.iter().min() else { continue };
        let others = match spans.len() {
            1 => String::new(),
            count => format!(", used {count} times"),
        };
        let message = format!("unknown attribute `{name}`{others}");
        let names = || context.options.known_attributes.iter().map(String::as_str);
        // Findings beyond the maximum are not listed, so they need no suggestion.
        let near = (at < PROBLEMS_MAX).then(|| suggest(&name, names())).flatten();
        found.push(match near {
            Some(near) => found.warning(first, message, format!("did you mean `{near}`?")),
            None => {
                let fix = "if requests have it, add it to the known attributes; if not, conditions on it never \
                           hold and it is not counted by";
                found.note(first, message, fix)
            }
        });
    }
}

/// Every attribute that the file uses, with its span.
fn uses(context: &Context<'_>) -> Vec<(String, SourceSpan)> {
    let mut uses = Vec::new();
    for written in context.live() {
        uses.extend(keys(&written.conditions, written.entry.get("match")));
        for (at, name) in written.rule.per.parts.iter().flatten().enumerate() {
            let span = match at < SPANS_MAX {
                true => subject_span(context.source, written, name),
                false => written.span_of("per"),
            };
            uses.push((name.clone(), span));
        }
        uses.extend(cost_attributes(written));
        if let Some((name, _)) = &written.rule.on_failure.by {
            uses.push((name.clone(), by_span(written, "on_failure", name)));
        }
        for change in &written.overrides {
            uses.extend(keys(&change.conditions, change.node.get("when")));
        }
    }
    for exception in &context.exceptions {
        uses.extend(keys(&exception.conditions, exception.node.get("when")));
    }
    let partition = context.root.get("partition").map_or(&[][..], Node::one_or_many);
    uses.extend(partition.iter().filter_map(|node| Some((node.text()?.to_owned(), node.span))));
    uses
}

/// The attributes of conditions, with the spans of their keys in `node`.
fn keys(conditions: &[WrittenCondition<'_>], node: Option<&Node>) -> Vec<(String, SourceSpan)> {
    let entries = node.map_or(&[][..], Node::entries).iter();
    let keys: HashMap<SourceSpan, SourceSpan> =
        entries.map(|entry| (entry.value.span, entry.key.span)).collect();
    let key = |condition: &WrittenCondition<'_>| keys.get(&condition.span).copied().unwrap_or(condition.span);
    conditions.iter().map(|condition| (condition.attribute.to_owned(), key(condition))).collect()
}

/// The attributes that a cost depends on.
fn cost_attributes(written: &WrittenRule<'_>) -> Vec<(String, SourceSpan)> {
    match &written.rule.cost {
        Cost::FromRequest | Cost::One | Cost::Constant(_) => Vec::new(),
        Cost::Table { attribute, .. } => vec![(attribute.clone(), by_span(written, "cost", attribute))],
        Cost::Expression { text, .. } => {
            let Ok(program) = Program::compile(text) else { return Vec::new() };
            let node = written.entry.get("cost").and_then(|cost| cost.get("expression"));
            let span = node.map_or_else(|| written.span_of("cost"), |node| node.span);
            program.references().variables().into_iter().map(|name| (name.to_owned(), span)).collect()
        }
    }
}

/// The span of an attribute below the `by` of a key.
fn by_span(written: &WrittenRule<'_>, key: &str, attribute: &str) -> SourceSpan {
    let by = written.entry.get(key).and_then(|node| node.get("by"));
    by.and_then(|by| by.entry(attribute)).map_or_else(|| written.span_of(key), |entry| entry.key.span)
}

/// The span of an attribute in `per`.
pub(super) fn subject_span(source: &Source, written: &WrittenRule<'_>, attribute: &str) -> SourceSpan {
    let parts = written.entry.get("per").map_or(&[][..], Node::one_or_many);
    parts.iter().find_map(|part| word(source, part.span, attribute)).unwrap_or_else(|| written.span_of("per"))
}

/// The span of an attribute name inside `span`, as a whole word.
fn word(source: &Source, span: SourceSpan, name: &str) -> Option<SourceSpan> {
    let text = source.slice(span);
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let (at, _) = text
        .match_indices(name)
        .find(|&(at, _)| !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part))?;
    Some(SourceSpan::new(span.start + at, span.start + at + name.len()))
}
