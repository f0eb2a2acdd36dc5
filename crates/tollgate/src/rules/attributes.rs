//! The attributes that a file declares, and the settings of paths: how requests are prepared before rules see them.

use std::borrow::Cow;

use tollgate_core::request::path::{PATH, PathCase, canonical_pattern};
use tollgate_core::rules::{AmbiguousPaths, Normalization, Preparation, Test};

use super::{expression, notation};
use tollgate_document::{Node, Problem, Problems, quote, suggest};

/// Attributes that the server or the tower layer sets. They need no declaration.
const BUILT_IN: &[&str] = &["descriptor", "descriptor_index", "domain", "host", "ip", "method", "path"];

/// How many undeclared names are compared with the declared ones for a suggestion. This bounds the time.
const COMPARED_MAX: usize = 64;

/// Reads `attributes`, `ambiguous_paths` and `path_case`.
pub(super) fn preparation(root: &Node) -> Preparation {
    let text = |key| root.get(key).and_then(Node::text);
    Preparation {
        normalize: declared(root)
            .filter_map(|(name, node)| Some((name.to_owned(), normalization(node)?)))
            .collect(),
        path_case: match text("path_case") {
            Some("insensitive") => PathCase::Insensitive,
            _ => PathCase::Sensitive,
        },
        ambiguous_paths: match text("ambiguous_paths") {
            Some("refuse") => AmbiguousPaths::Refuse,
            _ => AmbiguousPaths::Match,
        },
        secrets: declared(root)
            .filter(|(_, node)| node.get("secret").and_then(Node::bool) == Some(true))
            .map(|(name, _)| name.to_owned())
            .collect(),
    }
}

/// Adds the normal forms of a preset. What the file declares itself takes precedence.
pub(super) fn add_preset(own: &mut Preparation, preset: &Preparation) {
    for (name, normalization) in &preset.normalize {
        if !own.normalize.iter().any(|(known, _)| known == name) {
            own.normalize.push((name.clone(), *normalization));
        }
    }
}

fn declared(root: &Node) -> impl Iterator<Item = (&str, &Node)> {
    let entries = root.get("attributes").map_or(&[][..], Node::entries).iter();
    entries.filter_map(|entry| Some((entry.key.text()?, &entry.value)))
}

fn normalization(node: &Node) -> Option<Normalization> {
    let steps = node.get("normalize")?.one_or_many();
    let has = |step| steps.iter().any(|node| node.text() == Some(step));
    Some(Normalization { nfkc: has("nfkc"), lower: has("lower"), trim: has("trim") })
}

/// Reports every use of an attribute that the file does not declare, if it declares any. `of_presets` are the attributes
/// of the presets that it uses.
pub(super) fn check_declared(root: &Node, of_presets: &[String], problems: &mut Problems) {
    if root.get("attributes").is_none() {
        return;
    }
    let mut known: Vec<&str> = declared(root).map(|(name, _)| name).chain(BUILT_IN.iter().copied()).collect();
    known.extend(of_presets.iter().map(String::as_str));
    let mut unknown = 0;
    for (name, node) in uses(root) {
        if known.contains(&&*name) {
            continue;
        }
        unknown += 1;
        let near = (unknown <= COMPARED_MAX).then(|| suggest(&name, known.iter().copied())).flatten();
        problems.push_error_with(|| {
            let message = format!("undeclared attribute {}", quote(&name));
            let problem = Problem::error("undeclared-attribute", node.span, message);
            match near {
                Some(near) => problem.label(format!("did you mean `{near}`?")),
                None => problem,
            }
            .help(format!("if requests have it, declare it: `attributes: {{ {name}: {{}} }}`"))
        });
    }
}

/// Reports accounts of the ledger that are named by a secret: names are readable in the database and in exports.
pub(super) fn check_names(root: &Node, preparation: &Preparation, problems: &mut Problems) {
    let rules = root.get("rules").and_then(Node::list).unwrap_or(&[]).iter();
    for node in rules.filter_map(|rule| rule.get("ledger")?.get("name")) {
        let Some(name) = node.text().filter(|name| preparation.is_secret(name)) else { continue };
        let message = format!("attribute {} is a secret and cannot be a name in the ledger", quote(name));
        problems.push_error_with(|| {
            Problem::error("ledger-name", node.span, message)
                .help("name accounts by an attribute that may be read, such as `tenant`, or remove `name`")
        });
    }
}

/// Every attribute that the file names, and the node that names it.
fn uses(root: &Node) -> Vec<(Cow<'_, str>, &Node)> {
    let mut uses = Vec::new();
    let items = |key| root.get(key).and_then(Node::list).unwrap_or(&[]).iter();
    for rule in items("rules") {
        keys(rule.get("match"), &mut uses);
        let parts =
            rule.get("per").filter(|per| per.text() != Some("all")).map_or(&[][..], Node::one_or_many);
        for part in parts {
            let chain = part.text().and_then(|text| notation::chain(text).ok()).unwrap_or_default();
            uses.extend(chain.into_iter().map(|name| (Cow::Owned(name), part)));
        }
        let (cost, on_failure) = (rule.get("cost"), rule.get("on_failure"));
        let shown = rule.get("show").map_or(&[][..], Node::one_or_many).iter();
        uses.extend(shown.filter_map(|node| Some((Cow::Borrowed(node.text()?), node))));
        let named = rule.get("ledger").and_then(|ledger| ledger.get("name"));
        uses.extend(named.and_then(|node| Some((Cow::Borrowed(node.text()?), node))));
        keys(cost.and_then(|cost| cost.get("by")), &mut uses);
        keys(on_failure.and_then(|policy| policy.get("by")), &mut uses);
        if let Some(node) = cost.and_then(|cost| cost.get("expression")) {
            let names = node.text().map(expression::attributes).unwrap_or_default();
            uses.extend(names.into_iter().map(|name| (Cow::Owned(name), node)));
        }
    }
    for exception in items("overrides").chain(items("deny")).chain(items("bypass")) {
        keys(exception.get("when"), &mut uses);
    }
    let partition = root.get("partition").map_or(&[][..], Node::one_or_many).iter();
    uses.extend(partition.filter_map(|node| Some((Cow::Borrowed(node.text()?), node))));
    uses
}

fn keys<'n>(node: Option<&'n Node>, uses: &mut Vec<(Cow<'n, str>, &'n Node)>) {
    let entries = node.map_or(&[][..], Node::entries).iter();
    uses.extend(entries.filter_map(|entry| Some((Cow::Borrowed(entry.key.text()?), &entry.key))));
}

/// Reports a test whose values no request has, because requests are prepared. The help is the value to write instead.
pub(super) fn check_canonical(
    preparation: &Preparation,
    attribute: &str,
    test: &Test,
    node: &Node,
    problems: &mut Problems,
) {
    let mut report = |written: &str, canonical: &str| {
        if written != canonical {
            problems.push_error_with(|| not_canonical(attribute, written, canonical, node));
        }
    };
    let normal = |text: &str, is_whole: bool| {
        let mut steps =
            preparation.normalize.iter().find(|(name, _)| name == attribute).map(|(_, steps)| *steps);
        if let Some(steps) = &mut steps {
            steps.trim &= is_whole;
        }
        steps.map_or_else(|| text.to_owned(), |steps| steps.apply(text).into_owned())
    };
    match test {
        Test::OneOf(values) => {
            values.iter().for_each(|value| report(value, &canonical_value(preparation, attribute, value)))
        }
        Test::Prefix(pattern) | Test::Glob(pattern) if attribute == PATH => {
            report(pattern, &canonical_pattern(pattern, preparation.path_case));
        }
        Test::Prefix(pattern) | Test::Glob(pattern) => report(pattern, &normal(pattern, false)),
        Test::Path(_) => {
            let pattern = node.scalar().unwrap_or_default();
            report(pattern, &canonical_pattern(pattern, preparation.path_case));
        }
        // An excluded value that no request has excludes nothing, so the rule applies to more.
        Test::Address(_) | Test::Except(_) | Test::Hashed(_) => (),
    }
}

/// Reports the keys of a table by attribute that no request has as a value.
pub(super) fn check_canonical_keys(
    preparation: &Preparation,
    attribute: &str,
    table: &Node,
    problems: &mut Problems,
) {
    for entry in table.entries() {
        let Some(written) = entry.key.text() else { continue };
        let canonical = canonical_value(preparation, attribute, written);
        if written != canonical {
            problems.push_error_with(|| not_canonical(attribute, written, &canonical, &entry.key));
        }
    }
}

fn canonical_value(preparation: &Preparation, attribute: &str, value: &str) -> String {
    if attribute == PATH {
        let path =
            if value.starts_with('/') { value.split(['?', '#']).next().unwrap_or(value) } else { value };
        return canonical_pattern(path, preparation.path_case);
    }
    preparation.normal(attribute, value).into_owned()
}

fn not_canonical(attribute: &str, written: &str, canonical: &str, node: &Node) -> Problem {
    let message =
        format!("`{attribute}`: {} is not in its canonical form, so no request matches it", quote(written));
    Problem::error("not-canonical", node.span, message).help(format!("write {}", quote(canonical)))
}
