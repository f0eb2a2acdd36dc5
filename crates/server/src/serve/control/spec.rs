//! Live changes as callers write them: JSON, checked, with secrets replaced by keyed hashes.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate::core::rules::{LiveChanges, RuleSet};
use tollgate::core::{SubjectHashers, Time};
use tollgate::rules::live::{LiveEffect, LiveReader, LiveText};
use tollgate_database::changes::{ChangeKind, LiveChange};

use super::now_us;

/// The longest time until a change ends, unless it is permanent.
const UNTIL_MAX_US: i64 = 30 * 86_400 * 1_000_000;
const REASON_CHARS_MAX: usize = 300;
const ID_CHARS_MAX: usize = 64;
/// Characters of what a change says, as it is kept.
const SPEC_BYTES_MAX: usize = 16 * 1024;

/// The body of a call that adds a change or replaces parts of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeBody {
    pub(crate) id: Option<String>,
    pub(crate) rule: Option<String>,
    pub(crate) when: Option<Map<String, Value>>,
    pub(crate) limit: Option<Value>,
    pub(crate) scale: Option<Value>,
    pub(crate) subject: Option<String>,
    #[serde(rename = "for")]
    pub(crate) for_: Option<String>,
    pub(crate) until: Option<String>,
    pub(crate) permanent: Option<bool>,
    pub(crate) all: Option<bool>,
    pub(crate) allow_lower: Option<bool>,
    pub(crate) reason: Option<String>,
}

/// Why a body is no change. The text names the fault and the fix.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidChange(pub(crate) String);

fn invalid<T>(message: impl Into<String>) -> Result<T, InvalidChange> {
    Err(InvalidChange(message.into()))
}

impl ChangeBody {
    /// The reason, which every change needs.
    pub(crate) fn reason(&self) -> Result<&str, InvalidChange> {
        reason(self.reason.as_deref())
    }

    /// The id, if the caller chose one.
    pub(crate) fn id(&self) -> Result<Option<&str>, InvalidChange> {
        match self.id.as_deref() {
            Some(id) if is_id(id) => Ok(Some(id)),
            Some(_) => invalid("invalid `id`; use up to 64 letters, digits, `-`, `_` and `.`"),
            None => Ok(None),
        }
    }

    /// When it ends. `None` for a permanent change.
    pub(crate) fn until_us(&self, kind: ChangeKind) -> Result<Option<i64>, InvalidChange> {
        let now = now_us();
        let end = match (&self.for_, &self.until, self.permanent) {
            (Some(text), None, None | Some(false)) => {
                let span = tollgate::shorthand::span(text)
                    .map_err(|error| InvalidChange(format!("`for`: {error}")))?;
                now.saturating_add(i64::try_from(span.us()).unwrap_or(i64::MAX))
            }
            (None, Some(text), None | Some(false)) => match text.parse::<Timestamp>() {
                Ok(at) => at.as_microsecond(),
                Err(_) => return invalid("invalid `until`; write an instant like 2026-12-01T00:00:00Z"),
            },
            (None, None, Some(true)) => return Ok(None),
            (None, None, None | Some(false)) if kind == ChangeKind::Deny => return Ok(None),
            (None, None, None | Some(false)) => {
                return invalid("missing end; write `for`, `until`, or `permanent: true`");
            }
            _ => return invalid("write one of `for`, `until` and `permanent`"),
        };
        if end <= now {
            return invalid("the end is in the past; write a later one");
        }
        if end - now > UNTIL_MAX_US {
            return invalid("the end is more than 30 days away; write an earlier one, or `permanent: true`");
        }
        Ok(Some(end))
    }

    /// Whether it says when the change ends.
    pub(crate) fn has_end(&self) -> bool {
        self.for_.is_some() || self.until.is_some() || self.permanent.is_some()
    }

    /// What the change says, as it is kept: secrets are hashes. Members that are absent come from `before`.
    pub(crate) fn spec(
        &self,
        kind: ChangeKind,
        before: Option<&str>,
        rules: &RuleSet,
        hashers: &SubjectHashers,
    ) -> Result<String, InvalidChange> {
        let mut spec: Map<String, Value> = match before.map(serde_json::from_str) {
            Some(Ok(Value::Object(spec))) => spec,
            _ => Map::new(),
        };
        if kind != ChangeKind::Override && (self.limit.is_some() || self.scale.is_some()) {
            return invalid(format!(
                "a {} entry has no `limit` and no `scale`; make an override",
                kind.name()
            ));
        }
        if kind != ChangeKind::Deny && self.subject.is_some() {
            return invalid("only a deny entry has a `subject`; use `when`");
        }
        if let Some(rule) = &self.rule {
            spec.insert("rule".to_owned(), json!(rule));
        }
        if let Some(when) = &self.when {
            let when =
                when.iter().map(|(name, value)| Ok((name.clone(), redacted(name, value, rules, hashers)?)));
            spec.insert("when".to_owned(), Value::Object(when.collect::<Result<_, InvalidChange>>()?));
        }
        if let Some(subject) = &self.subject {
            spec.insert("subject".to_owned(), json!(subject));
        }
        if let Some(limit) = &self.limit {
            spec.remove("scale");
            spec.insert("limit".to_owned(), limit.clone());
        }
        if let Some(scale) = &self.scale {
            let scale = match scale {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return invalid("invalid `scale`; write a number like 2 or 0.5"),
            };
            if self.limit.is_none() {
                spec.remove("limit");
            }
            spec.insert("scale".to_owned(), json!(scale));
        }
        let is_empty = |name: &str| spec.get(name).and_then(Value::as_object).is_none_or(Map::is_empty);
        if is_empty("when") && !spec.contains_key("subject") && self.all != Some(true) {
            return invalid("missing `when`; for a change to all requests, write `all: true`");
        }
        if kind != ChangeKind::Override && spec.contains_key("rule") != spec.contains_key("subject") {
            return invalid("`rule` and `subject` belong together: a subject has its hash under one rule");
        }
        if spec.contains_key("subject") && !is_empty("when") {
            return invalid("write `when` or `subject`, not both");
        }
        let text = Value::Object(spec).to_string();
        if text.len() > SPEC_BYTES_MAX {
            return invalid("the change is longer than 16 KiB; make several, or use the rules file");
        }
        Ok(text)
    }
}

/// The reason of a call.
pub(crate) fn reason(text: Option<&str>) -> Result<&str, InvalidChange> {
    match text.map(str::trim) {
        None | Some("") => invalid("missing `reason`; say why, for the audit trail"),
        Some(text) if text.chars().count() > REASON_CHARS_MAX => {
            invalid("`reason` has more than 300 characters; write fewer")
        }
        Some(text) => Ok(text),
    }
}

/// Whether a text is an id of a change.
pub(crate) fn is_id(id: &str) -> bool {
    (1..=ID_CHARS_MAX).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// A condition with the hashes of its values, if the attribute is a secret.
fn redacted(
    name: &str,
    value: &Value,
    rules: &RuleSet,
    hashers: &SubjectHashers,
) -> Result<Value, InvalidChange> {
    let is_hashed = value.as_object().is_some_and(|object| object.contains_key("hashed"));
    if is_hashed || !rules.preparation().is_secret(name) {
        return Ok(value.clone());
    }
    let values = match value {
        Value::Object(object) if object.len() == 1 => object.get("is").unwrap_or(value),
        value => value,
    };
    let values = match values {
        Value::Array(values) => values.clone(),
        value => vec![value.clone()],
    };
    let hash = |value: &Value| {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return invalid(format!("`{name}` is a secret: write exact values, not patterns")),
        };
        let normal = rules.preparation().normal(name, &text);
        Ok(json!(hashers.current().subject([(name, &*normal)]).to_string()))
    };
    let hashes = values.iter().map(hash).collect::<Result<Vec<Value>, InvalidChange>>()?;
    Ok(json!({ "hashed": hashes }))
}

/// Reads all changes that have not ended, and names those that do not fit the rules.
pub(crate) fn read_all(
    rules: &RuleSet,
    hashers: &SubjectHashers,
    changes: &[LiveChange],
) -> (LiveChanges, Vec<(String, String)>) {
    let reader = LiveReader::new(rules, hashers);
    let now_us = now_us();
    let (mut live, mut unfit) = (LiveChanges::default(), Vec::new());
    for change in changes.iter().filter(|change| change.until_us.is_none_or(|until| until > now_us)) {
        let written = text_of(change);
        let read = match change.kind {
            ChangeKind::Override => reader.read_override(written).map(|read| live.overrides.push(read)),
            ChangeKind::Deny => reader.read_entry("deny", written).map(|entry| live.deny.push(entry)),
            ChangeKind::Bypass => reader.read_entry("bypass", written).map(|entry| live.bypass.push(entry)),
        };
        if let Err(why) = read {
            unfit.push((change.id.clone(), why));
        }
    }
    (live, unfit)
}

/// Checks one change against the rules and the other live changes, and returns how an override compares with what applies
/// without it.
pub(crate) fn check(
    rules: &RuleSet,
    hashers: &SubjectHashers,
    others: &[LiveChange],
    change: &LiveChange,
) -> Result<Option<LiveEffect>, InvalidChange> {
    let others: Vec<LiveChange> = others.iter().filter(|other| other.id != change.id).cloned().collect();
    let (mut live, _) = read_all(rules, hashers, &others);
    let without = rules.with_live(live.clone()).unwrap_or_else(|_| rules.clone());
    let reader = LiveReader::new(&without, hashers);
    let written = text_of(change);
    let effect = match change.kind {
        ChangeKind::Override => {
            // Read with the rules of the file: scales of live changes do not multiply each other.
            let (rule, draft) =
                LiveReader::new(rules, hashers).read_override(written).map_err(InvalidChange)?;
            let effect = reader.effect_of(&rule, &draft);
            live.overrides.push((rule, draft));
            Some(effect)
        }
        ChangeKind::Deny => {
            live.deny.push(reader.read_entry("deny", written).map_err(InvalidChange)?);
            None
        }
        ChangeKind::Bypass => {
            live.bypass.push(reader.read_entry("bypass", written).map_err(InvalidChange)?);
            None
        }
    };
    rules.with_live(live).map_err(|error| InvalidChange(error.to_string()))?;
    Ok(effect)
}

fn text_of(change: &LiveChange) -> LiveText<'_> {
    let until = change.until_us.map(|us| Time::from_us(u64::try_from(us).unwrap_or(0)));
    LiveText { id: &change.id, text: &change.spec, until, reason: &change.reason }
}
