//! Live changes: what an operator adds over a rules file while it is in force.
//!
//! A change is written like the same entry of the file. It is read with the rules that it applies over, so that it can be
//! refused with the same messages.

use std::sync::LazyLock;

use tollgate_core::rules::rule_set::ListEntry;
use tollgate_core::rules::{
    Condition, HashedValues, LimitChange, LiveChanges, Origin, Override, OverrideDraft, Rule, RuleSet,
    SubjectTest, Test,
};
use tollgate_core::{Subject, SubjectHashers, Time};
use tollgate_document::shape::{check_with_hints, one_of};
use tollgate_document::{Node, Problem, Problems, Shape, Source, parse, quote, suggest};

use super::lint::effect::{Effect as Order, effect};
use super::resolve::{FileReader, limit_for_rule};
use super::{file_shape, foreign_words, limit};

/// The name of a change in messages.
const NAME: &str = "change";
/// Characters of the shortest hash that a change can name: those that logs and pages show.
const HASH_CHARS_MIN: usize = 10;
const HASH_CHARS_MAX: usize = 22;

/// A change as it is kept: a YAML mapping with `rule`, `when`, `limit`, `scale` or `subject`.
#[derive(Clone, Copy, Debug)]
pub struct LiveText<'a> {
    /// Names it in explanations.
    pub id: &'a str,
    /// What it says.
    pub text: &'a str,
    /// When it ends.
    pub until: Option<Time>,
    /// Why it was made.
    pub reason: &'a str,
}

/// How an override compares with what applied before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LiveEffect {
    /// No number is lower.
    Raises,
    /// No number is higher, and one is lower.
    Lowers,
    /// Some requests get more, or a higher number, and others less.
    Mixed,
}

impl LiveEffect {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            LiveEffect::Raises => "raises",
            LiveEffect::Lowers => "lowers",
            LiveEffect::Mixed => "mixed",
        }
    }
}

/// Reads changes with the rules that they apply over.
pub struct LiveReader<'r> {
    rules: &'r RuleSet,
    hashers: &'r SubjectHashers,
}

impl<'r> LiveReader<'r> {
    /// Creates a reader for these rules and hash keys.
    pub const fn new(rules: &'r RuleSet, hashers: &'r SubjectHashers) -> LiveReader<'r> {
        LiveReader { rules, hashers }
    }

    /// Reads an override. The error says what is wrong and how to fix it.
    pub fn read_override(&self, written: LiveText<'_>) -> Result<(String, OverrideDraft), String> {
        let read = |reader: &FileReader<'_>, node: &Node, problems: &mut Problems| {
            let rule = self.rule(node, problems)?;
            let conditions = self.conditions(reader, node, problems)?;
            let change = change(node, rule, problems)?;
            let draft = OverrideDraft {
                conditions,
                change,
                until: written.until,
                reason: written.reason.to_owned(),
                origin: origin("override", written.id),
            };
            Some((rule.keyspace.rule().to_owned(), draft))
        };
        let found = self.read(written.text, read)?;
        let changes = LiveChanges { overrides: vec![found.clone()], ..LiveChanges::default() };
        self.rules.with_live(changes).map_err(|error| error.to_string())?;
        Ok(found)
    }

    /// Reads an entry of the deny list or the bypass list, which `list` names.
    pub fn read_entry(&self, list: &str, written: LiveText<'_>) -> Result<ListEntry, String> {
        let read = |reader: &FileReader<'_>, node: &Node, problems: &mut Problems| {
            let (conditions, subject) = match node.get("subject") {
                None => (self.conditions(reader, node, problems)?, None),
                Some(hash) => {
                    let rule = self.rule(node, problems)?;
                    let hash = checked_hash(hash, problems)?;
                    let (per, hashers) = (rule.per.clone(), self.hashers.clone());
                    (rule.conditions.clone(), Some(SubjectTest { per, hashers, hash }))
                }
            };
            Some(ListEntry {
                conditions,
                subject,
                until: written.until,
                reason: written.reason.to_owned(),
                origin: origin(list, written.id),
            })
        };
        self.read(written.text, read)
    }

    /// Returns how an override compares with what applies without it: the rule's own limit and the other overrides that can
    /// meet the same request and that it replaces.
    pub fn effect_of(&self, rule: &str, draft: &OverrideDraft) -> LiveEffect {
        let Some((at, rule)) = self.rules.find(rule) else { return LiveEffect::Mixed };
        let (mut raises, mut lowers) = (false, false);
        let below = self.rules.overrides_of(at).iter();
        let replaces = |other: &&Override| !other.live || other.rank() <= draft.rank();
        let below = below.filter(replaces);
        let below = below.filter(|other| !other.is_part && can_meet(&draft.conditions, &other.conditions));
        for before in below.map(|other| &other.limit).chain([&rule.limit]) {
            let after = match &draft.change {
                LimitChange::To(limit) => Ok(limit.clone()),
                LimitChange::Scale(scale) => scale.of_limit(before),
            };
            match after.ok().and_then(|after| effect(before, &after)) {
                Some(Order::RaisesOrKeeps) => raises = true,
                Some(Order::Lowers) => lowers = true,
                Some(Order::Mixed) | None => (raises, lowers) = (true, true),
            }
        }
        match (raises, lowers) {
            (_, false) => LiveEffect::Raises,
            (false, true) => LiveEffect::Lowers,
            (true, true) => LiveEffect::Mixed,
        }
    }

    fn read<T>(
        &self,
        text: &str,
        read: impl FnOnce(&FileReader<'_>, &Node, &mut Problems) -> Option<T>,
    ) -> Result<T, String> {
        let source = Source::new(NAME, text.as_bytes());
        let mut problems = Problems::new();
        let found = parse(&source, &mut problems).and_then(|node| {
            let reader = FileReader::new(&source, self.rules.preparation().clone());
            read(&reader, &node, &mut problems)
        });
        match found.filter(|_| !problems.has_errors()) {
            Some(found) => Ok(found),
            None => Err(message(&problems)),
        }
    }

    fn rule(&self, node: &Node, problems: &mut Problems) -> Option<&'r Rule> {
        let name = node.get("rule").and_then(Node::text).unwrap_or_default();
        if let Some((_, rule)) = self.rules.find(name) {
            return Some(rule);
        }
        let ids = self.rules.rules().iter().map(|rule| rule.keyspace.rule());
        let near = suggest(name, ids).map_or(String::new(), |near| format!("did you mean `{near}`? "));
        problems.push(
            Problem::error("unknown-rule", node.span, format!("unknown rule {}", quote(name)))
                .help(format!("{near}`tollgate explain` lists the ids of all rules")),
        );
        None
    }

    /// The conditions of `when`. Those with `hashed` hold for values with these hashes.
    fn conditions(
        &self,
        reader: &FileReader<'_>,
        node: &Node,
        problems: &mut Problems,
    ) -> Option<Vec<Condition>> {
        let Some(when) = node.get("when") else { return Some(Vec::new()) };
        let mut conditions = Vec::new();
        for entry in when.entries() {
            let attribute = entry.key.text()?.to_owned();
            let Some(hashed) = entry.value.get("hashed") else {
                continue;
            };
            let hashes = hashed.one_or_many().iter().map(|hash| hash.text()?.parse::<Subject>().ok());
            let Some(hashes) = hashes.collect::<Option<Vec<Subject>>>() else {
                problems.push(
                    Problem::error("bad-hash", hashed.span, format!("`{attribute}`: invalid hash"))
                        .help("write the value itself; it is hashed before it is stored"),
                );
                return None;
            };
            let values = HashedValues { attribute: attribute.clone(), hashers: self.hashers.clone(), hashes };
            conditions.push(Condition { attribute, test: Test::Hashed(Box::new(values)) });
        }
        let plain = without_hashed(when);
        check_with_hints(conditions_shape(), &plain, foreign_words::find_hint, problems);
        if problems.has_errors() {
            return None;
        }
        conditions.extend(reader.conditions(&plain, problems));
        Some(conditions)
    }
}

/// The mapping without the conditions on hashes.
fn without_hashed(when: &Node) -> Node {
    let mut plain = when.clone();
    if let tollgate_document::Value::Map(entries) = &mut plain.value {
        entries.retain(|entry| entry.value.get("hashed").is_none());
    }
    plain
}

fn conditions_shape() -> &'static Shape {
    static SHAPE: LazyLock<Shape> =
        LazyLock::new(|| one_of("conditions").or("Conditions.", file_shape::conditions()).into());
    &SHAPE
}

fn change(node: &Node, rule: &Rule, problems: &mut Problems) -> Option<LimitChange> {
    match (node.get("limit"), node.get("scale")) {
        (Some(written), None) => {
            check_with_hints(file_shape::limit_shape(), written, foreign_words::find_hint_in_limit, problems);
            let limit = limit::limit(written, problems).filter(|_| !problems.has_errors())?;
            Some(LimitChange::To(limit_for_rule(rule, limit, written, problems)?))
        }
        (None, Some(written)) => super::resolve::scale_for_rule(rule, written, problems),
        _ => {
            let message = "an override has either a `limit` or a `scale`";
            let help = "write `limit: { token-bucket: 20/s, burst: 40 }`, or `scale: 2`";
            problems.push(Problem::error("override-change", node.span, message).help(help));
            None
        }
    }
}

fn checked_hash(node: &Node, problems: &mut Problems) -> Option<String> {
    let hash = node.text().unwrap_or_default();
    let is_hash = (HASH_CHARS_MIN..=HASH_CHARS_MAX).contains(&hash.len())
        && hash.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if !is_hash {
        problems.push(
            Problem::error("bad-hash", node.span, format!("invalid subject {}", quote(hash)))
                .help("write the hash as the log and `tollgate explain` show it, like AAk3JxQ0b1"),
        );
        return None;
    }
    Some(hash.to_owned())
}

/// Whether a request could meet both: no attribute has two lists of values without a common one.
fn can_meet(one: &[Condition], other: &[Condition]) -> bool {
    let excludes = |one: &Condition, other: &Condition| {
        one.attribute == other.attribute
            && match (&one.test, &other.test) {
                (Test::OneOf(some), test) | (test, Test::OneOf(some)) if !matches!(test, Test::Hashed(_)) => {
                    !some.iter().any(|value| test.holds(value))
                }
                (Test::Hashed(one), Test::Hashed(other)) => {
                    !one.hashes.iter().any(|hash| other.hashes.contains(hash))
                }
                (Test::OneOf(some), Test::Hashed(hashed)) | (Test::Hashed(hashed), Test::OneOf(some)) => {
                    !some.iter().any(|value| hashed.holds(value))
                }
                _ => false,
            }
    };
    !one.iter().any(|one| other.iter().any(|other| excludes(one, other)))
}

fn origin(kind: &str, id: &str) -> Origin {
    Origin { file: format!("live {kind} {id}"), line: 0 }
}

/// The first problem and its fix, on one line.
fn message(problems: &Problems) -> String {
    match problems.in_order().first() {
        None => "invalid value".to_owned(),
        Some(problem) => match &problem.help {
            None => problem.message.clone(),
            Some(help) => format!("{}; {help}", problem.message),
        },
    }
}

#[cfg(test)]
mod tests;
