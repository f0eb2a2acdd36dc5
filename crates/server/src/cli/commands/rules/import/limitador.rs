//! Converts limits files of Limitador.
//!
//! Limitador evaluates a limit once per request, on the list of its descriptors. Tollgate checks each descriptor by
//! itself. So a limit becomes a rule for the descriptor with the index that its conditions and variables name.

use std::collections::{BTreeSet, HashMap};

use tollgate::core::EXACT_MAX;
use tollgate_document::{Kind, Node, Problem, Problems, SourceSpan};

use super::expression::{self, Entry};
use super::fields::{item, list, number_up_to, reject_unknown, required, text};
use super::input::{Input, Location};
use super::rules_file::{Condition, Rule, RulesFile, WindowLimit, WindowStart};
use super::value_test::{Pattern, ValueTest};

const KEYS: &[&str] = &["namespace", "max_value", "seconds", "name", "conditions", "variables", "id"];
/// The largest index of a descriptor: a message has at most 32.
const INDEX_MAX: u32 = 31;
/// A year.
const SECONDS_MAX: u64 = 366 * 86_400;

/// What makes two limits the same for Limitador: namespace, seconds, conditions, variables.
type Identity = (String, u64, BTreeSet<String>, BTreeSet<String>);

pub(super) fn convert(inputs: &mut [Input]) -> RulesFile {
    let mut rules_file = RulesFile::new(
        "Limitador",
        &[
            "If the store does not answer, requests are allowed (`on_failure: open`). Remove the line to refuse them.",
            "`descriptor_index` is the index of a descriptor in its request. A limit without conditions and variables counts \
             the first descriptor, so that it counts every request once.",
        ],
    );
    let mut seen: HashMap<Identity, Location> = HashMap::new();
    for file in 0..inputs.len() {
        let root = inputs[file].take_root();
        let problems = &mut inputs[file].problems;
        match root.list() {
            Some(limits) => {
                for limit in limits {
                    convert_limit(limit, file, &mut seen, inputs, &mut rules_file);
                }
            }
            None if root.kind() == Kind::Invalid => {}
            None => {
                let message = format!("expected a list of limits, found {}", root.found());
                problems.push(Problem::error("no-limits", root.span, message));
            }
        }
    }
    rules_file
}

fn convert_limit(
    limit: &Node,
    file: usize,
    seen: &mut HashMap<Identity, Location>,
    inputs: &mut [Input],
    rules_file: &mut RulesFile,
) {
    let problems = &mut inputs[file].problems;
    reject_unknown(limit, KEYS, problems);
    let namespace = required(limit, "namespace", problems);
    let units = number_up_to(limit, "max_value", EXACT_MAX, problems);
    let seconds = number_up_to(limit, "seconds", SECONDS_MAX, problems);
    if seconds == Some(0) {
        problems.push(Problem::error("bad-number", limit.span, "invalid `seconds`: 0"));
    }
    let (name, id) = (text(limit, "name", problems), text(limit, "id", problems));
    let conditions = texts(limit, "conditions", problems);
    let variables = texts(limit, "variables", problems);
    let selection = select(&conditions, &variables, problems);
    let (Some(namespace), Some(units), Some(seconds), Some(selection)) =
        (namespace, units, seconds, selection)
    else {
        return;
    };
    let sources = |texts: &[(&str, SourceSpan)]| texts.iter().map(|(text, _)| (*text).to_owned()).collect();
    let identity = (namespace.to_owned(), seconds, sources(&conditions), sources(&variables));
    let location = Location { file, span: limit.span };
    if let Some(first) = seen.insert(identity, location) {
        let message = "duplicate limit: same namespace, seconds, conditions and variables";
        let position = inputs[first.file].position(first.span);
        inputs[file].problems.push(
            Problem::error("duplicate", limit.span, message)
                .label(format!("the first one is in {position}"))
                .help("Limitador uses only one of them; remove the other"),
        );
        return;
    }
    let Selection { index, tests, per } = selection;
    let id = match name.or(id) {
        Some(name) => rules_file.unique_id([name]),
        None => {
            let subject = if per.is_empty() { "all".to_owned() } else { per.join("-") };
            rules_file.unique_id([namespace, &subject])
        }
    };
    let mut conditions: Vec<Condition> = vec![
        ("domain".to_owned(), ValueTest::is(namespace)),
        ("descriptor_index".to_owned(), ValueTest::is(&index.to_string())),
    ];
    conditions.extend(tests);
    // A limit applies only if all its variables are present.
    for name in &per {
        if !conditions.iter().any(|(other, _)| other == name) {
            conditions.push((name.clone(), ValueTest::like(Pattern::ANY)));
        }
    }
    let limit = WindowLimit { units, seconds, start: WindowStart::FirstUse };
    rules_file.rules.push(Rule { comments: Vec::new(), id, conditions, per, limit, shadow: false });
}

fn texts<'n>(limit: &'n Node, key: &str, problems: &mut Problems) -> Vec<(&'n str, SourceSpan)> {
    let items = list(limit, key, problems).iter();
    items.filter_map(|node| Some((item(node, key, problems)?, node.span))).collect()
}

/// Which descriptors a limit counts, and by what.
struct Selection {
    index: u32,
    tests: Vec<Condition>,
    per: Vec<String>,
}

/// Reads conditions and variables. All must name the same descriptor.
fn select(
    conditions: &[(&str, SourceSpan)],
    variables: &[(&str, SourceSpan)],
    problems: &mut Problems,
) -> Option<Selection> {
    let mut index = None;
    let mut tests: Vec<Condition> = Vec::new();
    let mut per: Vec<String> = Vec::new();
    let mut is_valid = true;
    let mut refuse = |what: &str, text: &str, span, why: &str| {
        let message = format!("unsupported {what} `{text}`: {why}");
        problems.push(Problem::error("unsupported", span, message));
        is_valid = false;
    };
    let mut check = |entry: &Entry| match index {
        _ if entry.index > INDEX_MAX => Err("a request has at most 32 descriptors"),
        Some(other) if other != entry.index => {
            Err("a limit that depends on several descriptors is not supported")
        }
        _ => {
            index = Some(entry.index);
            check_key(&entry.key)
        }
    };
    for &(text, span) in conditions {
        match expression::conditions(text) {
            Err(why) => refuse("condition", text, span, why),
            Ok(found) => {
                for (entry, test) in found {
                    let joined = check(&entry).and_then(|()| {
                        match tests.iter().position(|(name, _)| *name == entry.key) {
                            Some(at) => {
                                expression::both(tests[at].1.clone(), test).map(|both| tests[at].1 = both)
                            }
                            None => {
                                tests.push((entry.key.clone(), test));
                                Ok(())
                            }
                        }
                    });
                    if let Err(why) = joined {
                        refuse("condition", text, span, why);
                    }
                }
            }
        }
    }
    for &(text, span) in variables {
        match expression::variable(text).and_then(|entry| check(&entry).map(|()| entry)) {
            Err(why) => refuse("variable", text, span, why),
            Ok(entry) if per.contains(&entry.key) => {}
            Ok(entry) => per.push(entry.key),
        }
    }
    is_valid.then(|| Selection { index: index.unwrap_or(0), tests, per })
}

/// Reports keys that no condition of a rules file can name.
fn check_key(key: &str) -> Result<(), &'static str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match key {
        "domain" | "descriptor" | "descriptor_index" => Err("Tollgate uses this key for its own attributes"),
        key if !(1..=64).contains(&key.len()) || !key.chars().all(fits) => {
            Err("a key must have 1 to 64 letters, digits, `_`, `-` or `.`")
        }
        _ => Ok(()),
    }
}
