//! Converts checked nodes to a rule set, and reports the problems that the shape cannot express.

use std::collections::HashMap;

use jiff::Timestamp;
use tollgate_core::limit::scale::Scale;
use tollgate_core::rules::rule_set::ListEntry;
use tollgate_core::rules::{
    Condition, Cost, FailurePolicy, LimitChange, Missing, Mode, Origin, OverrideDraft, Placement,
    Preparation, Rollout, Rule, RuleLimit, RuleSet, RuleSetError, SubjectSelector, Unmatched,
};
use tollgate_core::{Keyspace, Layers, OnFailure, Time};

mod conditions;
mod cost;
mod known_rules;

use self::conditions::test;
use self::cost::{check_cost_fits, default_cost, expression_cost, only_entry};
use self::known_rules::Rules;
use super::{attributes, ledger, limit, notation, postpaid, presets, shards, slices};
use tollgate_document::{Kind, Node, Problem, Problems, Source, quote, suggest};

/// The namespace of a file that does not set one.
const NAMESPACE_DEFAULT: &str = "default";

/// Converts a checked tree to a rule set. Returns `None` after an error in the rule set as a whole.
pub(super) fn resolve(source: &Source, root: &Node, problems: &mut Problems) -> Option<RuleSet> {
    let namespace =
        root.get("namespace").and_then(Node::text).filter(|name| notation::check_id(name).is_ok());
    let mut rules = Rules::default();
    let mut preparation = attributes::preparation(root);
    for name in items(root, "rules").iter().filter_map(|node| node.get("use")?.text()) {
        if let Some(preset) = presets::find(name) {
            attributes::add_preset(&mut preparation, rules.preset(preset).preparation());
        }
    }
    let file = FileReader { source, namespace: namespace.unwrap_or(NAMESPACE_DEFAULT), preparation };
    for node in items(root, "rules") {
        if is_full_of_errors(problems) {
            return None;
        }
        match node.entry("use") {
            Some(entry) => file.read_preset(node, &entry.value, &mut rules, problems),
            None => {
                let is_new = node.get("id").is_none_or(|id| rules.add_id(id, problems));
                let rule = read_or_report(file.read_rule(node, problems), node, problems);
                if let Some(rule) = rule.filter(|_| is_new) {
                    if node.get("cost").is_none() {
                        rules.default_costs.insert(rule.keyspace.rule().to_owned());
                    }
                    rules.resolved.push(rule);
                }
            }
        }
    }
    rules.index();
    let mut changes = Vec::new();
    for node in items(root, "overrides") {
        if is_full_of_errors(problems) {
            return None;
        }
        let change = file.read_override(node, &mut rules, problems);
        changes.extend(read_or_report(change, node, problems));
    }
    let mut exceptions = |key| -> Vec<ListEntry> {
        let read = |node: &Node| read_or_report(file.read_exception(node, problems), node, problems);
        items(root, key).iter().filter_map(read).collect()
    };
    let (deny, bypass) = (exceptions("deny"), exceptions("bypass"));
    let partition = root.get("partition").map_or(&[][..], Node::one_or_many);
    let partition = partition.iter().filter_map(|node| node.text().map(str::to_owned)).collect();
    attributes::check_names(root, &file.preparation, problems);
    attributes::check_declared(root, &rules.attributes_of_presets(), problems);
    let slots = root.get("slots").and_then(Node::u64).and_then(|slots| u16::try_from(slots).ok());
    let unmatched = match root.get("unmatched").and_then(Node::text) {
        Some("refuse") => Unmatched::Refuse,
        _ => Unmatched::Allow,
    };
    match RuleSet::new(rules.resolved, changes, deny, bypass, Placement { partition, slots }) {
        Ok(set) => Some(set.with_unmatched(unmatched).with_preparation(file.preparation)),
        // These errors were reported with their positions. This only guards against one that was missed.
        Err(error) => {
            if !problems.has_errors() {
                problems.push(Problem::error(code_of(&error), root.span, error.to_string()));
            }
            None
        }
    }
}

fn code_of(error: &RuleSetError) -> &'static str {
    match error {
        RuleSetError::DuplicateId { .. } => "duplicate-id",
        RuleSetError::UnknownRule { .. } => "unknown-rule",
        RuleSetError::OtherAlgorithm { .. } => "other-algorithm",
        RuleSetError::NotScalable { .. } => "no-scale",
        RuleSetError::TooManyLimits { .. } => "too-many-limits",
    }
}

/// Whether the list is full. Further errors would not be listed, and some take long to find.
fn is_full_of_errors(problems: &Problems) -> bool {
    problems.has_errors() && problems.left_out() > 0
}

/// Reports an error if nothing was read and no error was reported, so that no node is dropped silently.
fn read_or_report<T>(read: Option<T>, node: &Node, problems: &mut Problems) -> Option<T> {
    if read.is_none() && !problems.has_errors() {
        problems.push(Problem::error("unreadable", node.span, "invalid value"));
    }
    read
}

fn items<'n>(root: &'n Node, key: &str) -> &'n [Node] {
    root.get(key).and_then(Node::list).unwrap_or(&[])
}

/// Reads the nodes of one file.
pub(super) struct FileReader<'s> {
    source: &'s Source,
    namespace: &'s str,
    preparation: Preparation,
}

impl<'s> FileReader<'s> {
    /// A reader of conditions, which need no namespace.
    pub(super) const fn new(source: &'s Source, preparation: Preparation) -> FileReader<'s> {
        FileReader { source, namespace: NAMESPACE_DEFAULT, preparation }
    }

    fn origin(&self, node: &Node) -> Origin {
        let line = self.source.position(node.span.start).line;
        let file = self.source.name_at(node.span.start).to_owned();
        Origin { file, line: u32::try_from(line).unwrap_or(u32::MAX) }
    }

    fn read_rule(&self, node: &Node, problems: &mut Problems) -> Option<Rule> {
        // Read everything before returning, so that all problems are reported.
        let scope = node.get("id").and_then(Node::text).and_then(|id| Keyspace::new(self.namespace, id).ok());
        let conditions = node.get("match").map(|node| self.conditions(node, problems)).unwrap_or_default();
        let per = node.get("per").and_then(per);
        let limit = node.get("limit").and_then(|node| limit::limit(node, problems));
        let cost = match node.get("cost") {
            Some(node) => self.cost(node, problems),
            None => Some(limit.as_ref().map_or(Cost::FromRequest, default_cost)),
        };
        let on_failure = node
            .get("on_failure")
            .map_or(Some(FailurePolicy::default()), |node| self.failure_rule(node, problems));
        let rollout =
            node.get("rollout").and_then(Node::text).map_or(Ok(Rollout::ALL), notation::rollout).ok();
        let tags = node.get("tags").map_or(&[][..], Node::one_or_many);
        let rule = Rule {
            keyspace: scope?,
            description: text_of(node, "description"),
            conditions,
            per: per?,
            ip_subjects_max: node
                .get("ip_subjects_max")
                .and_then(Node::text)
                .and_then(|text| text.parse().ok()),
            missing: match node.get("missing").and_then(Node::text) {
                Some("refuse") => Missing::Refuse,
                _ => Missing::Skip,
            },
            limit: limit?,
            cost: cost?,
            postpaid: node.get("postpaid").and_then(Node::bool).unwrap_or(false),
            slices: slices::read(node),
            shards: shards::read(node),
            ledger: ledger::read(node),
            ledger_name: ledger::name(node),
            on_failure: on_failure?,
            layers: layers(node),
            mode: mode(node).unwrap_or_default(),
            rollout: rollout?,
            tags: tags.iter().filter_map(|tag| tag.scalar().map(str::to_owned)).collect(),
            show: names(node, "show"),
            origin: self.origin(node),
        };
        ledger::check(&rule, node, problems)?;
        shards::check(&rule, node, problems)?;
        if rule.postpaid {
            return slices::check(postpaid::check(rule, node, problems)?, node, problems);
        }
        if let Some(limit_node) = node.get("limit") {
            check_cost_fits(&rule.cost, &rule.limit, limit_node, node.get("cost"), problems);
        }
        slices::check(rule, node, problems)
    }

    fn read_preset(&self, node: &Node, name: &Node, rules: &mut Rules, problems: &mut Problems) {
        let Some(wanted) = name.text() else { return };
        let Some(preset) = presets::find(wanted) else {
            let names = || presets::ALL.iter().map(|preset| preset.name);
            let problem =
                Problem::error("unknown-preset", name.span, format!("unknown preset {}", quote(wanted)));
            let problem =
                problem.help(format!("available presets: {}", names().collect::<Vec<_>>().join(", ")));
            problems.push(match suggest(wanted, names()) {
                Some(near) => problem.label(format!("did you mean `{near}`?")),
                None => problem,
            });
            return;
        };
        let named = node.get("id").unwrap_or(name);
        let base = node.get("id").and_then(Node::text).unwrap_or(preset.name);
        let extra = node.get("match").map(|node| self.conditions(node, problems)).unwrap_or_default();
        for mut rule in rules.preset(preset).rules().to_vec() {
            let id = format!("{base}-{}", rule.keyspace.rule());
            let Ok(scope) = Keyspace::new(self.namespace, &id) else {
                // The check reported an invalid name.
                if notation::check_id(base).is_ok() {
                    let message = format!("rule id {} of the preset is too long", quote(&id));
                    problems.push(
                        Problem::error("bad-id", named.span, message).help("give the preset a shorter `id`"),
                    );
                }
                return;
            };
            if !rules.add_id_at(&id, named.span, "give one of the presets another `id`", problems) {
                return;
            }
            rule.keyspace = scope;
            rule.conditions.extend(extra.iter().cloned());
            rule.mode = mode(node).unwrap_or(rule.mode);
            rules.resolved.push(rule);
        }
    }

    fn read_override(
        &self,
        node: &Node,
        rules: &mut Rules,
        problems: &mut Problems,
    ) -> Option<(String, OverrideDraft)> {
        // Read everything before returning, so that all problems are reported.
        let conditions = node.get("when").map(|node| self.conditions(node, problems)).unwrap_or_default();
        let (written, scale) = (node.get("limit"), node.get("scale"));
        let limit = written.and_then(|node| limit::limit(node, problems));
        let until = node.get("until").map(|node| instant(node, problems));
        if written.is_some() == scale.is_some() {
            let message = match written {
                Some(_) => "an override cannot have both a `limit` and a `scale`",
                None => "missing `limit` or `scale`",
            };
            problems.push(Problem::error("override-change", node.span, message).help(
                "`limit` replaces the numbers of the rule; `scale: 2` doubles what would otherwise apply",
            ));
        }
        let index = node.get("rule").and_then(|name| rules.find(name, problems))?;
        let rule = &rules.resolved[index];
        let id = rule.keyspace.rule().to_owned();
        let change = match (written, scale) {
            (Some(limit_node), None) => {
                let limit = limit_for_rule(rule, limit?, limit_node, problems)?;
                if rule.limit == RuleLimit::Deny && rules.default_costs.contains(&id) {
                    // The algorithm of this rule is that of its overrides.
                    rules.resolved[index].cost = default_cost(&limit);
                }
                LimitChange::To(limit)
            }
            (None, Some(scale)) => scale_for_rule(rule, scale, problems)?,
            _ => return None,
        };
        let until = match until {
            Some(until) => Some(until?),
            None => None,
        };
        let reason = text_of(node, "reason");
        Some((id, OverrideDraft { conditions, change, until, reason, origin: self.origin(node) }))
    }

    fn read_exception(&self, node: &Node, problems: &mut Problems) -> Option<ListEntry> {
        let when = node.get("when")?;
        let conditions = self.conditions(when, problems);
        if when.kind() == Kind::Map && when.entries().is_empty() {
            problems.push(
                Problem::error(
                    "no-conditions",
                    when.span,
                    "an exception without conditions matches every request",
                )
                .help("add a condition, like `api_key: k-123`"),
            );
            return None;
        }
        let (reason, origin) = (text_of(node, "reason"), self.origin(node));
        Some(ListEntry { conditions, reason, origin, ..ListEntry::default() })
    }
}

impl FileReader<'_> {
    pub(super) fn conditions(&self, node: &Node, problems: &mut Problems) -> Vec<Condition> {
        let entries = node.entries().iter();
        entries
            .filter_map(|entry| {
                let attribute = entry.key.text()?.to_owned();
                let test = read_or_report(test(&attribute, &entry.value, problems), &entry.value, problems)?;
                attributes::check_canonical(&self.preparation, &attribute, &test, &entry.value, problems);
                Some(Condition { attribute, test })
            })
            .collect()
    }

    fn cost(&self, node: &Node, problems: &mut Problems) -> Option<Cost> {
        if node.text() == Some("request") {
            return Some(Cost::FromRequest);
        }
        if let Some(cost) = node.u64() {
            return Some(Cost::Constant(cost));
        }
        if let Some(entry) = node.get("expression") {
            return expression_cost(entry, node.get("default"), problems);
        }
        let default = node.get("default").map_or(Some(1), Node::u64);
        let several = "for several attributes use an `expression`";
        let (attribute, table) = only_entry(node.get("by")?, several, problems)?;
        attributes::check_canonical_keys(&self.preparation, &attribute, table, problems);
        let costs =
            table.entries().iter().map(|entry| Some((entry.key.text()?.to_owned(), entry.value.u64()?)));
        Some(Cost::Table { attribute, costs: costs.collect::<Option<_>>()?, default: default? })
    }

    fn failure_rule(&self, node: &Node, problems: &mut Problems) -> Option<FailurePolicy> {
        let policy = |node: &Node| notation::on_failure(node.text()?).ok();
        let Some(by) = node.get("by") else {
            return Some(FailurePolicy { default: policy(node)?, by: None });
        };
        let several = "write one rule per value of the other attribute";
        let (attribute, table) = only_entry(by, several, problems)?;
        attributes::check_canonical_keys(&self.preparation, &attribute, table, problems);
        let policies =
            table.entries().iter().map(|entry| Some((entry.key.text()?.to_owned(), policy(&entry.value)?)));
        let policies = policies.collect::<Option<HashMap<String, OnFailure>>>()?;
        Some(FailurePolicy { default: policy(node.get("default")?)?, by: Some((attribute, policies)) })
    }
}

/// Returns the limit of an override as its rule needs it, or reports why the rule cannot have it.
pub(super) fn limit_for_rule(
    rule: &Rule,
    limit: RuleLimit,
    node: &Node,
    problems: &mut Problems,
) -> Option<RuleLimit> {
    let id = rule.keyspace.rule();
    if let (Some(own), Some(other)) = (rule.limit.algorithm(), limit.algorithm())
        && own != other
    {
        let message =
            format!("override changes the algorithm of rule `{id}` from {} to {}", own.name(), other.name());
        problems
            .push(Problem::error("other-algorithm", node.span, message).help(
                "every switch would discard the consumption; change only the numbers, or write `deny`",
            ));
        return None;
    }
    let limit = if rule.postpaid {
        postpaid::with_room(limit, node, problems)?
    } else {
        check_cost_fits(&rule.cost, &limit, node, None, problems);
        limit
    };
    let limit = match rule.slices {
        Some(hold) => slices::with_margin(limit, hold, &rule.cost, node, problems)?,
        None => limit,
    };
    if let Some(shards) = rule.shards {
        shards::check_parts(&limit, shards, &rule.cost, node.span, problems)?;
    }
    Some(limit)
}

/// Returns the scale of an override, or reports why the limit of its rule cannot be multiplied by it.
pub(super) fn scale_for_rule(rule: &Rule, node: &Node, problems: &mut Problems) -> Option<LimitChange> {
    let id = rule.keyspace.rule();
    // The shape of an override has reported a text that is no scale.
    let scale = node.scalar()?.parse::<Scale>().ok()?;
    let fault = match (&rule.limit, scale.of_limit(&rule.limit)) {
        (RuleLimit::Deny, _) => format!("rule `{id}` denies everything, which cannot be multiplied"),
        (_, Err(error)) => format!("rule `{id}`: {error}"),
        (_, Ok(limit)) => {
            check_cost_fits(&rule.cost, &limit, node, None, problems);
            if let Some(shards) = rule.shards {
                shards::check_parts(&limit, shards, &rule.cost, node.span, problems)?;
            }
            return Some(LimitChange::Scale(scale));
        }
    };
    problems
        .push(Problem::error("no-scale", node.span, fault).help("write a `limit` instead of the `scale`"));
    None
}

/// The texts of a list, or of one value.
fn names(node: &Node, key: &str) -> Vec<String> {
    let nodes = node.get(key).map_or(&[][..], Node::one_or_many).iter();
    nodes.filter_map(|node| node.text().map(str::to_owned)).collect()
}

fn text_of(node: &Node, key: &str) -> String {
    node.get(key).and_then(Node::scalar).unwrap_or_default().to_owned()
}

/// Which layers may answer before a remote store is asked.
fn layers(node: &Node) -> Layers {
    let text = |key| node.get(key).and_then(Node::text);
    Layers {
        prefilter_percent: text("prefilter").and_then(|text| notation::prefilter(text).ok()).unwrap_or(0),
        refusal_memory: text("refusal_memory") != Some("off"),
        postpaid: node.get("postpaid").and_then(Node::bool).unwrap_or(false),
    }
}

fn mode(node: &Node) -> Option<Mode> {
    match node.get("mode").and_then(Node::text)? {
        "enforce" => Some(Mode::Enforce),
        "shadow" => Some(Mode::Shadow),
        "off" => Some(Mode::Off),
        _ => None,
    }
}

fn per(node: &Node) -> Option<SubjectSelector> {
    if node.text() == Some("all") {
        return Some(SubjectSelector::default());
    }
    let chains = node.one_or_many().iter().map(|part| notation::chain(part.text()?).ok());
    chains.collect::<Option<Vec<_>>>().map(|parts| SubjectSelector { parts })
}

fn instant(node: &Node, problems: &mut Problems) -> Option<Time> {
    let text = node.text()?;
    let message = match text.parse::<Timestamp>().map(|at| u64::try_from(at.as_microsecond())) {
        Ok(Ok(us)) => return Some(Time::from_us(us)),
        Ok(Err(_)) => format!("`until`: instant {} is before 1970", quote(text)),
        Err(_) => format!("`until`: invalid instant {}", quote(text)),
    };
    problems.push(
        Problem::error("bad-instant", node.span, message)
            .help("write a date, a time and an offset, like 2026-12-01T00:00:00Z"),
    );
    None
}
