//! The input of the lints: each resolved rule with the source nodes it came from.
//!
//! The keys of a preset's rule are in the preset; in the file it is the entry with `use`.

use std::collections::HashMap;
use std::sync::LazyLock;

use tollgate_core::Span;
use tollgate_core::rules::rule_set::ListEntry;
use tollgate_core::rules::{Cost, Mode, Override, Rule, RuleLimit, RuleSet};

use super::conditions::{ComparisonBudget, WrittenCondition, written_conditions};
use super::{Findings, LintOptions};
use crate::rules::renamed_keys::OldKey;
use crate::rules::{LoadedFile, presets};
use crate::shorthand::{self, Rate};
use tollgate_document::{Node, Problems, Source, SourceSpan, parse};

/// Maximum number of names in a message.
const NAMES_MAX: usize = 6;

/// A rules file: its tree, its rule set, and the source of each rule.
pub(super) struct Context<'a> {
    pub(super) source: &'a Source,
    pub(super) root: &'a Node,
    pub(super) set: &'a RuleSet,
    pub(super) options: &'a LintOptions,
    /// Every rule, in the order of the file.
    pub(super) rules: Vec<WrittenRule<'a>>,
    pub(super) exceptions: Vec<WrittenException<'a>>,
    pub(super) old_keys: &'a [OldKey],
    /// The remaining budget for comparing conditions.
    pub(super) budget: ComparisonBudget,
}

/// A rule and its source.
pub(super) struct WrittenRule<'a> {
    pub(super) rule: &'a Rule,
    /// The entry in the file: the rule, or the use of a preset.
    pub(super) entry: &'a Node,
    /// The node with the rule's keys: the same entry, or the rule in the preset.
    pub(super) text: &'a Node,
    pub(super) conditions: Vec<WrittenCondition<'a>>,
    /// In order of precedence.
    pub(super) overrides: Vec<WrittenOverride<'a>>,
}

/// An override and its source.
pub(super) struct WrittenOverride<'a> {
    pub(super) change: &'a Override,
    pub(super) node: &'a Node,
    pub(super) conditions: Vec<WrittenCondition<'a>>,
}

/// An exception and its source.
pub(super) struct WrittenException<'a> {
    /// `deny` or `bypass`.
    pub(super) list: &'static str,
    pub(super) node: &'a Node,
    pub(super) conditions: Vec<WrittenCondition<'a>>,
}

/// The limit of a rule or an override, and its source.
pub(super) struct WrittenLimit<'a> {
    /// The owner of the limit, for messages.
    pub(super) whose: String,
    pub(super) limit: &'a RuleLimit,
    pub(super) cost: &'a Cost,
    /// The value of `limit:`.
    node: &'a Node,
    /// The span to point at if the limit is written in a preset.
    preset_span: Option<SourceSpan>,
}

impl<'a> Context<'a> {
    pub(super) fn new(source: &'a Source, file: &'a LoadedFile, options: &'a LintOptions) -> Context<'a> {
        let (root, set) = (&file.root, &file.rules);
        let written = written(root);
        let mut changes = changes(root);
        let rules = set.rules().iter().enumerate().filter_map(|(index, rule)| {
            let (entry, text) = *written.get(rule.keyspace.rule())?;
            let nodes = changes.remove(rule.keyspace.rule()).unwrap_or_default();
            Some(WrittenRule {
                rule,
                entry,
                text,
                conditions: rule_conditions(rule, entry, text),
                overrides: written_overrides(set.overrides_of(index), nodes),
            })
        });
        let rules = rules.collect();
        let mut exceptions = written_exceptions("deny", set.deny(), root);
        exceptions.extend(written_exceptions("bypass", set.bypass(), root));
        let old_keys = &file.old_keys;
        Context { source, root, set, options, rules, exceptions, old_keys, budget: ComparisonBudget::new() }
    }

    /// The rules that are not off.
    pub(super) fn live(&self) -> impl Iterator<Item = &WrittenRule<'a>> + Clone {
        self.rules.iter().filter(|written| written.rule.mode != Mode::Off)
    }

    /// Every limit that can be in force.
    pub(super) fn limits(&self) -> Vec<WrittenLimit<'a>> {
        let mut limits = Vec::new();
        for written in self.live() {
            let Some(node) = written.text.get("limit") else { continue };
            limits.push(WrittenLimit {
                whose: format!("rule `{}`", written.id()),
                limit: &written.rule.limit,
                cost: &written.rule.cost,
                node,
                preset_span: written.is_of_a_preset().then(|| written.span()),
            });
            for change in written.overrides.iter().filter(|change| !change.has_ended(self.options)) {
                let Some(node) = change.node.get("limit") else { continue };
                limits.push(WrittenLimit {
                    whose: format!("this override of rule `{}`", written.id()),
                    limit: &change.change.limit,
                    cost: &written.rule.cost,
                    node,
                    preset_span: None,
                });
            }
        }
        limits
    }

    /// Whether one request can match both rules. Returns `false` if unknown.
    pub(super) fn can_match_together(&self, one: &WrittenRule<'_>, other: &WrittenRule<'_>) -> bool {
        self.budget.can_hold_together(&one.conditions, &other.conditions) == Some(true)
    }
}

impl WrittenRule<'_> {
    pub(super) fn id(&self) -> &str {
        self.rule.keyspace.rule()
    }

    pub(super) fn is_of_a_preset(&self) -> bool {
        !std::ptr::eq(self.entry, self.text)
    }

    /// The span of the rule's id, or of the preset's name.
    pub(super) fn span(&self) -> SourceSpan {
        let name = self.entry.get("use").or_else(|| self.entry.get("id"));
        name.map_or(self.entry.span, |node| node.span)
    }

    /// The span of the value of a key, or of the rule if the file does not have the key.
    pub(super) fn span_of(&self, key: &str) -> SourceSpan {
        self.entry.get(key).map_or_else(|| self.span(), |node| node.span)
    }
}

impl WrittenOverride<'_> {
    pub(super) fn has_ended(&self, options: &LintOptions) -> bool {
        self.change.until.is_some_and(|until| until <= options.now)
    }

    /// The span of the value of a key, or of the override.
    pub(super) fn span_of(&self, key: &str) -> SourceSpan {
        self.node.get(key).map_or(self.node.span, |node| node.span)
    }
}

impl WrittenLimit<'_> {
    /// The span of the value of a key, or of the limit if the file does not have the key.
    pub(super) fn span_of(&self, key: &str) -> SourceSpan {
        self.preset_span.unwrap_or_else(|| self.node.get(key).map_or(self.node.span, |node| node.span))
    }

    /// Adapts a fix to limits that are written in a preset.
    pub(super) fn fix(&self, text: String) -> String {
        match self.preset_span {
            Some(_) => format!("write the rule out instead of using the preset; then: {text}"),
            None => text,
        }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.node.get(key).is_some()
    }

    /// The rate that is written under one of these keys.
    pub(super) fn rate(&self, keys: &[&'static str]) -> Option<(&'static str, Rate)> {
        keys.iter().find_map(|&key| {
            let text = self.node.get(key)?.text()?;
            shorthand::rate(text).ok().map(|rate| (key, rate))
        })
    }
}

/// Reports that the budget was too small to compare everything.
pub(super) fn incomplete(context: &Context<'_>, found: &mut Findings<'_>) {
    if context.budget.is_used_up() {
        let message = "too many rules or conditions to compare: some lints are incomplete".to_owned();
        let span = context.root.entry("rules").map_or(context.root.span, |entry| entry.key.span);
        found.push(found.note(
            span,
            message,
            "shorten the lists of values, or divide the file into several rule sets",
        ));
    }
}

/// Rounds a span up to a readable one with at least two significant digits.
pub(super) fn readable(span: Span) -> Span {
    const UNITS_US: [u64; 6] = [86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000, 1_000, 1];
    let unit = UNITS_US.into_iter().find(|unit| span.us() >= 10 * unit).unwrap_or(1);
    Span::from_us(span.us().div_ceil(unit).saturating_mul(unit))
}

/// Formats a rate as in a rules file: `100/min`, `5/10s`.
pub(super) fn rate_text(amount: u64, period: Span) -> String {
    let period = period.to_string();
    let unit = period.strip_prefix('1').filter(|unit| unit.starts_with(|c: char| c.is_ascii_alphabetic()));
    format!("{amount}/{}", unit.unwrap_or(&period))
}

/// Formats names as "`a`, `b` and `c`". Of many names, lists the first few and the number of the rest.
pub(super) fn names<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let mut quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    if quoted.len() > NAMES_MAX {
        let more = quoted.split_off(NAMES_MAX - 1).len();
        quoted.push(format!("{more} more"));
    }
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{} and {last}", before.join(", ")),
        None => String::new(),
    }
}

fn items<'n>(root: &'n Node, key: &str) -> &'n [Node] {
    root.get(key).and_then(Node::list).unwrap_or(&[])
}

/// By rule id: the entry in the file, and the node with the rule's keys.
fn written(root: &Node) -> HashMap<String, (&Node, &Node)> {
    static PRESETS: LazyLock<HashMap<&str, Option<Node>>> = LazyLock::new(|| {
        let read = |preset: &presets::Preset| {
            parse(&Source::new(preset.name, preset.text.as_bytes()), &mut Problems::new())
        };
        presets::ALL.iter().map(|preset| (preset.name, read(preset))).collect()
    });
    let mut rules = HashMap::new();
    for entry in items(root, "rules") {
        let id = entry.get("id").and_then(Node::text);
        match entry.get("use").and_then(Node::text) {
            None => {
                rules.extend(id.map(|id| (id.to_owned(), (entry, entry))));
            }
            Some(name) => {
                let Some(Some(preset)) = PRESETS.get(name) else { continue };
                let base = id.unwrap_or(name);
                for text in items(preset, "rules") {
                    let suffix = text.get("id").and_then(Node::text).unwrap_or_default();
                    rules.insert(format!("{base}-{suffix}"), (entry, text));
                }
            }
        }
    }
    rules
}

fn rule_conditions<'a>(rule: &'a Rule, entry: &'a Node, text: &'a Node) -> Vec<WrittenCondition<'a>> {
    let conditions_of = |node: &'a Node| node.get("match").map_or(&[][..], Node::entries).iter();
    let own = conditions_of(entry).map(|entry| (&entry.value, entry.value.span));
    if std::ptr::eq(entry, text) {
        return written_conditions(&rule.conditions, own);
    }
    let span = entry.get("use").map_or(entry.span, |name| name.span);
    let of_the_preset = conditions_of(text).map(|entry| (&entry.value, span));
    written_conditions(&rule.conditions, of_the_preset.chain(own))
}

/// The override nodes of each rule in order of precedence.
fn changes(root: &Node) -> HashMap<&str, Vec<&Node>> {
    let mut changes: HashMap<&str, Vec<&Node>> = HashMap::new();
    for node in items(root, "overrides").iter().rev() {
        if let Some(rule) = node.get("rule").and_then(Node::text) {
            changes.entry(rule).or_default().push(node);
        }
    }
    let rank = |node: &&Node| {
        let conditions = node.get("when").map_or(0, |when| when.entries().len());
        std::cmp::Reverse((node.get("until").is_some(), conditions))
    };
    changes.values_mut().for_each(|nodes| nodes.sort_by_key(rank));
    changes
}

fn written_overrides<'a>(overrides: &'a [Override], nodes: Vec<&'a Node>) -> Vec<WrittenOverride<'a>> {
    let written = overrides.iter().filter(|change| !change.is_part).zip(nodes).map(|(change, node)| {
        let entries = node.get("when").map_or(&[][..], Node::entries).iter();
        let conditions =
            written_conditions(&change.conditions, entries.map(|entry| (&entry.value, entry.value.span)));
        WrittenOverride { change, node, conditions }
    });
    written.collect()
}

fn written_exceptions<'a>(
    list: &'static str,
    exceptions: &'a [ListEntry],
    root: &'a Node,
) -> Vec<WrittenException<'a>> {
    let written = exceptions.iter().zip(items(root, list)).map(|(exception, node)| {
        let entries = node.get("when").map_or(&[][..], Node::entries).iter();
        let conditions =
            written_conditions(&exception.conditions, entries.map(|entry| (&entry.value, entry.value.span)));
        WrittenException { list, node, conditions }
    });
    written.collect()
}
