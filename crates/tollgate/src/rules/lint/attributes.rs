//! The lint of attributes that nobody sets, and where attributes stand in a file.

use std::collections::{BTreeMap, HashMap, HashSet};

use cel::Program;
use tollgate_core::rules::Cost;

use super::Findings;
use super::claims::Claim;
use super::context::{Context, WrittenRule};
use tollgate_document::problem::PROBLEMS_MAX;
use tollgate_document::{Node, Source, SourceSpan, suggest};

/// Who is counted by more attributes than this is told only the line.
const SPANS_MAX: usize = 64;

pub(super) fn unknown_attribute(context: &Context<'_>, found: &mut Findings<'_>) {
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
            count => format!(", which stands in {count} places"),
        };
        let message = format!("nobody is known to set the attribute `{name}`{others}");
        let names = || context.options.known_attributes.iter().map(String::as_str);
        // What there is no room for is not worth looking for.
        let near = (at < PROBLEMS_MAX).then(|| suggest(&name, names())).flatten();
        found.push(match near {
            Some(near) => found.warning(first, message, format!("did you mean `{near}`?")),
            None => {
                let fix = "if requests carry it, add it to the known attributes; until then no condition on \
                           it holds and nobody is counted by it";
                found.note(first, message, fix)
            }
        });
    }
}

/// Every attribute that is looked at, and where.
fn uses(context: &Context<'_>) -> Vec<(String, SourceSpan)> {
    let mut uses = Vec::new();
    for written in context.live() {
        uses.extend(keys(&written.claims, written.entry.get("match")));
        for (at, name) in written.rule.per.parts.iter().flatten().enumerate() {
            let span = match at < SPANS_MAX {
                true => subject_span(context.source, written, name),
                false => written.span_of("per"),
            };
            uses.push((name.clone(), span));
        }
        uses.extend(priced_by(written));
        if let Some((name, _)) = &written.rule.on_failure.by {
            uses.push((name.clone(), by_span(written, "on_failure", name)));
        }
        for change in &written.overrides {
            uses.extend(keys(&change.claims, change.node.get("when")));
        }
    }
    for exception in &context.exceptions {
        uses.extend(keys(&exception.claims, exception.node.get("when")));
    }
    let partition = context.root.get("partition").map_or(&[][..], Node::one_or_many);
    uses.extend(partition.iter().filter_map(|node| Some((node.text()?.to_owned(), node.span))));
    uses
}

/// The attributes of conditions, at their keys as far as they stand in `node`.
fn keys(claims: &[Claim<'_>], node: Option<&Node>) -> Vec<(String, SourceSpan)> {
    let entries = node.map_or(&[][..], Node::entries).iter();
    let keys: HashMap<SourceSpan, SourceSpan> =
        entries.map(|entry| (entry.value.span, entry.key.span)).collect();
    let key = |claim: &Claim<'_>| keys.get(&claim.span).copied().unwrap_or(claim.span);
    claims.iter().map(|claim| (claim.attribute.to_owned(), key(claim))).collect()
}

/// The attributes that a cost depends on.
fn priced_by(written: &WrittenRule<'_>) -> Vec<(String, SourceSpan)> {
    match &written.rule.cost {
        Cost::FromRequest | Cost::Constant(_) => Vec::new(),
        Cost::Table { attribute, .. } => vec![(attribute.clone(), by_span(written, "cost", attribute))],
        Cost::Expression { text, .. } => {
            let Ok(program) = Program::compile(text) else { return Vec::new() };
            let node = written.entry.get("cost").and_then(|cost| cost.get("expression"));
            let span = node.map_or_else(|| written.span_of("cost"), |node| node.span);
            program.references().variables().into_iter().map(|name| (name.to_owned(), span)).collect()
        }
    }
}

/// Where an attribute stands below the `by` of a key.
fn by_span(written: &WrittenRule<'_>, key: &str, attribute: &str) -> SourceSpan {
    let by = written.entry.get(key).and_then(|node| node.get("by"));
    by.and_then(|by| by.entry(attribute)).map_or_else(|| written.span_of(key), |entry| entry.key.span)
}

/// Where an attribute stands in who is counted.
pub(super) fn subject_span(source: &Source, written: &WrittenRule<'_>, attribute: &str) -> SourceSpan {
    let parts = written.entry.get("per").map_or(&[][..], Node::one_or_many);
    parts.iter().find_map(|part| word(source, part.span, attribute)).unwrap_or_else(|| written.span_of("per"))
}

/// Where a whole attribute's name stands within a place.
fn word(source: &Source, span: SourceSpan, name: &str) -> Option<SourceSpan> {
    let text = source.slice(span);
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let (at, _) = text
        .match_indices(name)
        .find(|&(at, _)| !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part))?;
    Some(SourceSpan::new(span.start + at, span.start + at + name.len()))
}
