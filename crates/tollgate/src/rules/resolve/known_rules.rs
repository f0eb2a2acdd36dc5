//! The rules of a file that were read so far, and how an override finds one by its id.

use std::collections::{HashMap, HashSet};

use tollgate_core::rules::{Cost, Rule, RuleSet};
use tollgate_document::{Node, Problem, Problems, SourceSpan, quote, suggest};

use super::super::{expression, notation, presets};

/// How many unknown rule names are compared with all ids for a suggestion. This bounds the time.
const COMPARED_IDS_MAX: usize = 16;

/// Maximum number of ids in a message.
const LISTED_IDS_MAX: usize = 8;

/// The rules read so far.
#[derive(Default)]
pub(super) struct Rules {
    pub(super) resolved: Vec<Rule>,
    /// Every id in the file with its span, including ids of invalid rules.
    ids: HashMap<String, SourceSpan>,
    /// The index of each id in `resolved`.
    indexes: HashMap<String, usize>,
    /// The ids of the rules without `cost`.
    pub(super) default_costs: HashSet<String>,
    /// The number of unknown rule names so far.
    unknown: usize,
    /// The rule sets of used presets, because parsing a preset is slow.
    presets: HashMap<&'static str, RuleSet>,
}

impl Rules {
    /// Adds the id of a rule in the file. Reports an error and returns `false` if another rule has it.
    pub(super) fn add_id(&mut self, id: &Node, problems: &mut Problems) -> bool {
        id.text().is_none_or(|text| self.add_id_at(text, id.span, "give one of them another id", problems))
    }

    pub(super) fn add_id_at(
        &mut self,
        id: &str,
        span: SourceSpan,
        help: &str,
        problems: &mut Problems,
    ) -> bool {
        let Some(&first) = self.ids.get(id) else {
            self.ids.insert(id.to_owned(), span);
            return true;
        };
        problems.push_error_with(|| {
            Problem::error("duplicate-id", span, format!("duplicate rule id {}", quote(id)))
                .also(first, "first here")
                .help(format!("rules with the same id would share their counts; {help}"))
        });
        false
    }

    pub(super) fn preset(&mut self, preset: &'static presets::Preset) -> &RuleSet {
        self.presets.entry(preset.name).or_insert_with(|| preset.rule_set())
    }

    /// The attributes that the rules of used presets read.
    pub(super) fn attributes_of_presets(&self) -> Vec<String> {
        let rules = self.presets.values().flat_map(RuleSet::rules);
        let of_rule = |rule: &Rule| -> Vec<String> {
            let conditions = rule.conditions.iter().map(|condition| condition.attribute.clone());
            let cost_attributes = match &rule.cost {
                Cost::Table { attribute, .. } => vec![attribute.clone()],
                Cost::Expression { text, .. } => expression::attributes(text),
                Cost::FromRequest | Cost::One | Cost::Constant(_) => Vec::new(),
            };
            conditions.chain(rule.per.parts.iter().flatten().cloned()).chain(cost_attributes).collect()
        };
        rules.flat_map(of_rule).collect()
    }

    /// Builds the index of rules, after all of them were read.
    pub(super) fn index(&mut self) {
        let ids = self.resolved.iter().map(|rule| rule.keyspace.rule().to_owned());
        self.indexes = ids.zip(0..).collect();
    }

    /// The index of the rule of this id. `None` if the rule is invalid, or after reporting that it is unknown.
    pub(super) fn find(&mut self, name: &Node, problems: &mut Problems) -> Option<usize> {
        let id = name.text().filter(|id| notation::check_id(id).is_ok())?;
        if !self.ids.contains_key(id) {
            self.unknown += 1;
            let near = (self.unknown <= COMPARED_IDS_MAX).then(|| self.similar_ids(id)).flatten();
            problems.push_error_with(|| {
                let problem = Problem::error("unknown-rule", name.span, format!("unknown rule `{id}`"));
                match near {
                    Some(near) => problem.label(format!("did you mean {near}?")),
                    None => problem,
                }
                .help(
                    "an override names a rule in the same file; the ids of a preset's rules are `id-suffix`",
                )
            });
        }
        self.indexes.get(id).copied()
    }

    /// Ids to suggest: those of a preset with this id as their prefix, or the most similar one.
    fn similar_ids(&self, id: &str) -> Option<String> {
        let mut ids: Vec<&str> = self.ids.keys().map(String::as_str).collect();
        ids.sort_unstable();
        let of_preset = |other: &&&str| other.strip_prefix(id).is_some_and(|rest| rest.starts_with('-'));
        let suffixed: Vec<String> =
            ids.iter().filter(of_preset).take(LISTED_IDS_MAX).map(|id| format!("`{id}`")).collect();
        match suffixed.as_slice() {
            [] => suggest(id, ids).map(|near| format!("`{near}`")),
            _ => Some(suffixed.join(" or ")),
        }
    }
}
