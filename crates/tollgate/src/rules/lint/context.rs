//! What the lints look at: each compiled rule beside the text it came from.
//!
//! A rule of a preset is written in the preset, and stands in the file as the entry that uses it.

use std::collections::HashMap;
use std::sync::LazyLock;

use tollgate_core::Span;
use tollgate_core::rules::rule_set::ListEntry;
use tollgate_core::rules::{Cost, Mode, Override, Rule, RuleLimit, RuleSet};

use super::claims::{Claim, Work, claims};
use super::{Findings, LintOptions};
use crate::rules::presets;
use crate::shorthand::{self, Rate};
use tollgate_document::{Node, Problems, Source, SourceSpan, parse};

/// How many names a message lists.
const NAMES_MAX: usize = 6;

/// A file and everything in it.
pub(super) struct Context<'a> {
    pub(super) source: &'a Source,
    pub(super) root: &'a Node,
    pub(super) set: &'a RuleSet,
    pub(super) options: &'a LintOptions,
    /// Every rule, in the order of the file.
    pub(super) rules: Vec<WrittenRule<'a>>,
    pub(super) exceptions: Vec<WrittenException<'a>>,
    /// What comparing conditions may still cost.
    pub(super) work: Work,
}

/// A rule and where it is written.
pub(super) struct WrittenRule<'a> {
    pub(super) rule: &'a Rule,
    /// What stands in the file: the rule, or the use of a preset.
    pub(super) entry: &'a Node,
    /// What holds the rule's keys: the same, or the rule in the preset.
    pub(super) text: &'a Node,
    pub(super) claims: Vec<Claim<'a>>,
    /// The one that wins first.
    pub(super) overrides: Vec<WrittenOverride<'a>>,
}

/// An override and where it is written.
pub(super) struct WrittenOverride<'a> {
    pub(super) change: &'a Override,
    pub(super) node: &'a Node,
    pub(super) claims: Vec<Claim<'a>>,
}

/// An exception and where it is written.
pub(super) struct WrittenException<'a> {
    /// `deny` or `bypass`.
    pub(super) list: &'static str,
    pub(super) node: &'a Node,
    pub(super) claims: Vec<Claim<'a>>,
}

/// A limit, of a rule or of an override, and where it is written.
pub(super) struct WrittenLimit<'a> {
    /// Whose limit it is, for messages.
    pub(super) whose: String,
    pub(super) limit: &'a RuleLimit,
    pub(super) cost: &'a Cost,
    /// The value of `limit:`.
    node: &'a Node,
    /// Where to point if the limit is written in a preset.
    preset_span: Option<SourceSpan>,
}

impl<'a> Context<'a> {
    pub(super) fn new(
        source: &'a Source,
        root: &'a Node,
        set: &'a RuleSet,
        options: &'a LintOptions,
    ) -> Context<'a> {
        let written = written(root);
        let mut changes = changes(root);
        let rules = set.rules().iter().enumerate().filter_map(|(span, rule)| {
            let (entry, text) = *written.get(rule.keyspace.rule())?;
            let nodes = changes.remove(rule.keyspace.rule()).unwrap_or_default();
            Some(WrittenRule {
                rule,
                entry,
                text,
                claims: rule_claims(rule, entry, text),
                overrides: written_overrides(set.overrides_of(span), nodes),
            })
        });
        let rules = rules.collect();
        let mut exceptions = written_exceptions("deny", set.deny(), root);
        exceptions.extend(written_exceptions("bypass", set.bypass(), root));
        Context { source, root, set, options, rules, exceptions, work: Work::new() }
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

    /// Whether it is certain that one request can meet both rules.
    pub(super) fn can_meet(&self, one: &WrittenRule<'_>, other: &WrittenRule<'_>) -> bool {
        self.work.together(&one.claims, &other.claims) == Some(true)
    }
}

impl WrittenRule<'_> {
    pub(super) fn id(&self) -> &str {
        self.rule.keyspace.rule()
    }

    pub(super) fn is_of_a_preset(&self) -> bool {
        !std::ptr::eq(self.entry, self.text)
    }

    /// Where the rule is named.
    pub(super) fn span(&self) -> SourceSpan {
        let name = self.entry.get("use").or_else(|| self.entry.get("id"));
        name.map_or(self.entry.span, |node| node.span)
    }

    /// Where the value of one of its keys stands in the file, or else the rule.
    pub(super) fn span_of(&self, key: &str) -> SourceSpan {
        self.entry.get(key).map_or_else(|| self.span(), |node| node.span)
    }
}

impl WrittenOverride<'_> {
    pub(super) fn has_ended(&self, options: &LintOptions) -> bool {
        self.change.until.is_some_and(|until| until <= options.now)
    }

    /// Where the value of one of its keys stands.
    pub(super) fn span_of(&self, key: &str) -> SourceSpan {
        self.node.get(key).map_or(self.node.span, |node| node.span)
    }
}

impl WrittenLimit<'_> {
    /// Where the value of one of its keys stands in the file, or else the limit.
    pub(super) fn span_of(&self, key: &str) -> SourceSpan {
        self.preset_span.unwrap_or_else(|| self.node.get(key).map_or(self.node.span, |node| node.span))
    }

    /// How to change it as `text` says.
    pub(super) fn fix(&self, text: String) -> String {
        match self.preset_span {
            Some(_) => format!("write the rule out in span of the preset, and then: {text}"),
            None => text,
        }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.node.get(key).is_some()
    }

    /// The rate as it is written after one of these keys.
    pub(super) fn rate(&self, keys: &[&'static str]) -> Option<(&'static str, Rate)> {
        keys.iter().find_map(|&key| {
            let text = self.node.get(key)?.text()?;
            shorthand::rate(text).ok().map(|rate| (key, rate))
        })
    }
}

/// Says that not everything could be compared.
pub(super) fn incomplete(context: &Context<'_>, found: &mut Findings<'_>) {
    if context.work.is_used_up() {
        let message = "these rules take too long to compare: not everything was looked at".to_owned();
        let span = context.root.entry("rules").map_or(context.root.span, |entry| entry.key.span);
        found.push(found.note(
            span,
            message,
            "shorter lists of values, or several rule sets, can be compared whole",
        ));
    }
}

/// A span that is easily read: rounded up, and at least two digits of it left.
pub(super) fn readable(span: Span) -> Span {
    const UNITS_US: [u64; 6] = [86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000, 1_000, 1];
    let unit = UNITS_US.into_iter().find(|unit| span.us() >= 10 * unit).unwrap_or(1);
    Span::from_us(span.us().div_ceil(unit).saturating_mul(unit))
}

/// A rate as a rules file has it: `100/min`, `5/10s`.
pub(super) fn rate_text(amount: u64, period: Span) -> String {
    let period = period.to_string();
    let unit = period.strip_prefix('1').filter(|unit| unit.starts_with(|c: char| c.is_ascii_alphabetic()));
    format!("{amount}/{}", unit.unwrap_or(&period))
}

/// `a`, `b` and `c`; of many, the first few and how many more.
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

/// By id, what stands in the file and what holds the keys.
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

fn rule_claims<'a>(rule: &'a Rule, entry: &'a Node, text: &'a Node) -> Vec<Claim<'a>> {
    let conditions_of = |node: &'a Node| node.get("match").map_or(&[][..], Node::entries).iter();
    let own = conditions_of(entry).map(|entry| (&entry.value, entry.value.span));
    if std::ptr::eq(entry, text) {
        return claims(&rule.conditions, own);
    }
    let span = entry.get("use").map_or(entry.span, |name| name.span);
    let of_the_preset = conditions_of(text).map(|entry| (&entry.value, span));
    claims(&rule.conditions, of_the_preset.chain(own))
}

/// The overrides of each rule as they are written, the one that wins first.
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
    let written = overrides.iter().zip(nodes).map(|(change, node)| {
        let conditions = node.get("when").map_or(&[][..], Node::entries).iter();
        let claims = claims(&change.conditions, conditions.map(|entry| (&entry.value, entry.value.span)));
        WrittenOverride { change, node, claims }
    });
    written.collect()
}

fn written_exceptions<'a>(
    list: &'static str,
    exceptions: &'a [ListEntry],
    root: &'a Node,
) -> Vec<WrittenException<'a>> {
    let written = exceptions.iter().zip(items(root, list)).map(|(exception, node)| {
        let conditions = node.get("when").map_or(&[][..], Node::entries).iter();
        let claims = claims(&exception.conditions, conditions.map(|entry| (&entry.value, entry.value.span)));
        WrittenException { list, node, claims }
    });
    written.collect()
}
