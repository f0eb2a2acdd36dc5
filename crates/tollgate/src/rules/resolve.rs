//! From checked nodes to a rule set. What only the meaning can show is reported here.

use std::collections::HashMap;

use jiff::Timestamp;
use tollgate_core::rules::condition::PathPattern;
use tollgate_core::rules::rule_set::ListEntry;
use tollgate_core::rules::{
    Condition, Cost, FailurePolicy, Missing, Mode, Origin, Override, Placement, Rollout, Rule, RuleLimit,
    RuleSet, RuleSetError, SubjectSelector, Test,
};
use tollgate_core::{Keyspace, OnFailure, Time};

use super::{expression, limit, presets, words};
use tollgate_document::{Kind, Node, Problem, Problems, Source, SourceSpan, quote, suggest};

/// What a file without a namespace is called in keys.
const NAMESPACE_DEFAULT: &str = "default";

/// How many names of nothing are compared with all ids. Whoever has more of them slipped in another way.
const NEAR_IDS_MAX: usize = 16;

/// How many ids a message lists.
const LISTED_IDS_MAX: usize = 8;

/// The rule set, as far as it could be read; `None` if not even its rules go together.
pub(super) fn resolve(source: &Source, root: &Node, problems: &mut Problems) -> Option<RuleSet> {
    let namespace = root.get("namespace").and_then(Node::text).filter(|name| words::id(name).is_ok());
    let file = File { source, namespace: namespace.unwrap_or(NAMESPACE_DEFAULT) };
    let mut rules = Rules::default();
    for node in items(root, "rules") {
        if enough(problems) {
            return None;
        }
        match node.entry("use") {
            Some(entry) => file.preset(node, &entry.value, &mut rules, problems),
            None => {
                let is_new = node.get("id").is_none_or(|id| rules.name(id, problems));
                let rule = whole(file.rule(node, problems), node, problems);
                rules.made.extend(rule.filter(|_| is_new));
            }
        }
    }
    rules.number();
    let mut changes = Vec::new();
    for node in items(root, "overrides") {
        if enough(problems) {
            return None;
        }
        let change = file.change(node, &mut rules, problems);
        changes.extend(whole(change, node, problems));
    }
    let mut exceptions = |key| -> Vec<ListEntry> {
        let read = |node: &Node| whole(file.exception(node, problems), node, problems);
        items(root, key).iter().filter_map(read).collect()
    };
    let (deny, bypass) = (exceptions("deny"), exceptions("bypass"));
    let partition = root.get("partition").map_or(&[][..], Node::one_or_many);
    let partition = partition.iter().filter_map(|node| node.text().map(str::to_owned)).collect();
    let slots = root.get("slots").and_then(Node::u64).and_then(|slots| u16::try_from(slots).ok());
    match RuleSet::new(rules.made, changes, deny, bypass, Placement { partition, slots }) {
        Ok(set) => Some(set),
        // All that can be wrong here was reported with its place; this only keeps a gap from going unseen.
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
    }
}

/// Whether the list is full of errors. More would not be seen, and some take long to find.
fn enough(problems: &Problems) -> bool {
    problems.has_errors() && problems.left_out() > 0
}

/// What was read of a node. Nothing is left out unsaid: where it is nothing, there is an error.
fn whole<T>(read: Option<T>, node: &Node, problems: &mut Problems) -> Option<T> {
    if read.is_none() && !problems.has_errors() {
        problems.push(Problem::error("unreadable", node.span, "this cannot be read"));
    }
    read
}

fn items<'n>(root: &'n Node, key: &str) -> &'n [Node] {
    root.get(key).and_then(Node::list).unwrap_or(&[])
}

/// The rules read so far.
#[derive(Default)]
struct Rules {
    made: Vec<Rule>,
    /// Every id in the file and where it stands, whether its rule could be read or not.
    ids: HashMap<String, SourceSpan>,
    /// Where the rule of an id is among those made.
    numbers: HashMap<String, usize>,
    /// How many names were of no rule.
    unknown: usize,
    /// The rules of presets that were used, because to read one takes longer than to use it.
    presets: HashMap<&'static str, Vec<Rule>>,
}

impl Rules {
    /// Takes the id of a rule that is written here; `false` if another has it.
    fn name(&mut self, id: &Node, problems: &mut Problems) -> bool {
        id.text().is_none_or(|text| self.take(text, id.span, "give one of them another id", problems))
    }

    fn take(&mut self, id: &str, span: SourceSpan, help: &str, problems: &mut Problems) -> bool {
        let Some(&first) = self.ids.get(id) else {
            self.ids.insert(id.to_owned(), span);
            return true;
        };
        problems.push_error_with(|| {
            Problem::error("duplicate-id", span, format!("two rules have the id {}", quote(id)))
                .also(first, "the first is here")
                .help(format!("rules of one id would share their counters; {help}"))
        });
        false
    }

    /// Numbers the rules when all of them are there.
    fn number(&mut self) {
        let ids = self.made.iter().map(|rule| rule.keyspace.rule().to_owned());
        self.numbers = ids.zip(0..).collect();
    }

    /// The rule of this name; `None` after saying that there is none, or if it could not be read.
    fn find(&mut self, name: &Node, problems: &mut Problems) -> Option<&Rule> {
        let id = name.text().filter(|id| words::id(id).is_ok())?;
        if !self.ids.contains_key(id) {
            self.unknown += 1;
            let near = (self.unknown <= NEAR_IDS_MAX).then(|| self.near(id)).flatten();
            problems.push_error_with(|| {
                let problem = Problem::error("unknown-rule", name.span, format!("no rule has the id `{id}`"));
                match near {
                    Some(near) => problem.label(format!("did you mean {near}?")),
                    None => problem,
                }
                .help("an override names a rule of the same file; a preset's rules are called `id-suffix`")
            });
        }
        self.made.get(*self.numbers.get(id)?)
    }

    /// Ids for which this one may have been meant: one by its letters, or all that a preset made of it.
    fn near(&self, id: &str) -> Option<String> {
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

/// The file being read.
struct File<'s> {
    source: &'s Source,
    namespace: &'s str,
}

impl File<'_> {
    fn origin(&self, node: &Node) -> Origin {
        let line = self.source.position(node.span.start).line;
        Origin { file: self.source.name().to_owned(), line: u32::try_from(line).unwrap_or(u32::MAX) }
    }

    fn rule(&self, node: &Node, problems: &mut Problems) -> Option<Rule> {
        // Everything is read before anything is given up, so that all problems are found.
        let scope = node.get("id").and_then(Node::text).and_then(|id| Keyspace::new(self.namespace, id).ok());
        let conditions = node.get("match").map(|node| conditions(node, problems)).unwrap_or_default();
        let per = node.get("per").and_then(per);
        let limit = node.get("limit").and_then(|node| limit::limit(node, problems));
        let cost = node.get("cost").map_or(Some(Cost::FromRequest), |node| cost(node, problems));
        let on_failure = node
            .get("on_failure")
            .map_or(Some(FailurePolicy::default()), |node| failure_rule(node, problems));
        let rollout = node.get("rollout").and_then(Node::text).map_or(Ok(Rollout::ALL), words::rollout).ok();
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
            on_failure: on_failure?,
            mode: mode(node).unwrap_or_default(),
            rollout: rollout?,
            tags: tags.iter().filter_map(|tag| tag.scalar().map(str::to_owned)).collect(),
            origin: self.origin(node),
        };
        if let Some(limit_node) = node.get("limit") {
            fits(&rule.cost, &rule.limit, limit_node, node.get("cost"), problems);
        }
        Some(rule)
    }

    fn preset(&self, node: &Node, name: &Node, rules: &mut Rules, problems: &mut Problems) {
        let Some(wanted) = name.text() else { return };
        let Some(preset) = presets::find(wanted) else {
            let names = || presets::ALL.iter().map(|preset| preset.name);
            let problem =
                Problem::error("unknown-preset", name.span, format!("no preset is called {}", quote(wanted)));
            let problem = problem.help(format!("there are {}", names().collect::<Vec<_>>().join(", ")));
            problems.push(match suggest(wanted, names()) {
                Some(near) => problem.label(format!("did you mean `{near}`?")),
                None => problem,
            });
            return;
        };
        let named = node.get("id").unwrap_or(name);
        let base = node.get("id").and_then(Node::text).unwrap_or(preset.name);
        let extra = node.get("match").map(|node| conditions(node, problems)).unwrap_or_default();
        let made = rules.presets.entry(preset.name).or_insert_with(|| preset.rules(self.namespace));
        for mut rule in made.clone() {
            let id = format!("{base}-{}", rule.keyspace.rule());
            let Ok(scope) = Keyspace::new(self.namespace, &id) else {
                // What is wrong with the name itself was reported.
                if words::id(base).is_ok() {
                    let message = format!("the preset's rule {} would have too long an id", quote(&id));
                    problems.push(
                        Problem::error("bad-id", named.span, message).help("give the preset a shorter `id`"),
                    );
                }
                return;
            };
            if !rules.take(&id, named.span, "give one of the presets another `id`", problems) {
                return;
            }
            rule.keyspace = scope;
            rule.conditions.extend(extra.iter().cloned());
            rule.mode = mode(node).unwrap_or(rule.mode);
            rules.made.push(rule);
        }
    }

    fn change(&self, node: &Node, rules: &mut Rules, problems: &mut Problems) -> Option<(String, Override)> {
        // Everything is read before anything is given up, so that all problems are found.
        let conditions = node.get("when").map(|node| conditions(node, problems)).unwrap_or_default();
        let limit = node.get("limit").and_then(|node| limit::limit(node, problems));
        let until = node.get("until").map(|node| instant(node, problems));
        let rule = node.get("rule").and_then(|name| rules.find(name, problems))?;
        let (limit, limit_node, id) = (limit?, node.get("limit")?, rule.keyspace.rule());
        if let (Some(own), Some(other)) = (rule.limit.algorithm(), limit.algorithm())
            && own != other
        {
            let message = format!(
                "an override cannot make a {} of rule `{id}`, which is a {}",
                other.name(),
                own.name()
            );
            problems.push(Problem::error("other-algorithm", limit_node.span, message).help(
                "what was consumed would be forgotten at every switch; change the numbers, or write `deny`",
            ));
            return None;
        }
        fits(&rule.cost, &limit, limit_node, None, problems);
        let until = match until {
            Some(until) => Some(until?),
            None => None,
        };
        let reason = text_of(node, "reason");
        Some((id.to_owned(), Override { conditions, limit, until, reason, origin: self.origin(node) }))
    }

    fn exception(&self, node: &Node, problems: &mut Problems) -> Option<ListEntry> {
        let when = node.get("when")?;
        let conditions = conditions(when, problems);
        if when.kind() == Kind::Map && when.entries().is_empty() {
            problems.push(
                Problem::error(
                    "no-conditions",
                    when.span,
                    "an exception without conditions takes every request",
                )
                .help("say which requests, like `api_key: k-123`"),
            );
            return None;
        }
        Some(ListEntry { conditions, reason: text_of(node, "reason"), origin: self.origin(node) })
    }
}

fn text_of(node: &Node, key: &str) -> String {
    node.get(key).and_then(Node::scalar).unwrap_or_default().to_owned()
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
    let chains = node.one_or_many().iter().map(|part| words::chain(part.text()?).ok());
    chains.collect::<Option<Vec<_>>>().map(|parts| SubjectSelector { parts })
}

fn conditions(node: &Node, problems: &mut Problems) -> Vec<Condition> {
    let entries = node.entries().iter();
    entries
        .filter_map(|entry| {
            let attribute = entry.key.text()?.to_owned();
            let test = whole(test(&attribute, &entry.value, problems), &entry.value, problems)?;
            Some(Condition { attribute, test })
        })
        .collect()
}

fn test(attribute: &str, node: &Node, problems: &mut Problems) -> Option<Test> {
    if let Some(exact) = node.get("is") {
        return Some(Test::OneOf(vec![exact.scalar()?.to_owned()]));
    }
    if let Some(prefix) = node.get("prefix") {
        return Some(Test::Prefix(prefix.scalar()?.to_owned()));
    }
    let is_path_pattern = |text: &str| attribute == "path" && text.contains('{');
    if let Some(values) = node.list() {
        let is_pattern = |text: &str| text.contains('*') || is_path_pattern(text);
        for value in values.iter().filter(|value| value.text().is_some_and(is_pattern)) {
            problems.push_error_with(|| {
                Problem::error("pattern-in-list", value.span, "a list holds whole values, no patterns")
                    .help("write one rule per pattern, or use a `prefix`")
            });
        }
        return values
            .iter()
            .map(|value| value.scalar().map(str::to_owned))
            .collect::<Option<_>>()
            .map(Test::OneOf);
    }
    let text = node.scalar()?;
    if is_path_pattern(text) {
        return path_test(text, node, problems);
    }
    Some(match text.split_once('*') {
        None => Test::OneOf(vec![text.to_owned()]),
        Some((prefix, "")) => Test::Prefix(prefix.to_owned()),
        Some(_) => Test::Glob(text.to_owned()),
    })
}

fn path_test(text: &str, node: &Node, problems: &mut Problems) -> Option<Test> {
    // Segment by segment a `*` would be a star and nothing else, which nobody means.
    let starred = text.split('/').any(|segment| segment.contains('*') && !segment.starts_with("{*"));
    let message = match PathPattern::parse(text) {
        Ok(_) if starred => "a path with names in braces takes no `*` besides {*rest}".to_owned(),
        Ok(pattern) => return Some(Test::Path(pattern)),
        Err(error) => error.to_string(),
    };
    problems.push(
        Problem::error("bad-path", node.span, format!("`path`: {message}"))
            .help("like /v1/items/{id} or /files/{*rest}"),
    );
    None
}

fn cost(node: &Node, problems: &mut Problems) -> Option<Cost> {
    if let Some(cost) = node.u64() {
        return Some(Cost::Constant(cost));
    }
    let default = node.get("default").map_or(Some(1), Node::u64);
    if let Some(entry) = node.get("expression") {
        let text = entry.text()?;
        return match expression::compile(text) {
            Ok(value) => Some(Cost::Expression { text: text.to_owned(), value, default: default? }),
            Err(message) => {
                let message = format!("`expression`: {message}");
                problems.push(Problem::error("bad-expression", entry.span, message));
                None
            }
        };
    }
    let several = "for several attributes write an `expression`";
    let (attribute, table) = only_entry(node.get("by")?, several, problems)?;
    let costs = table.entries().iter().map(|entry| Some((entry.key.text()?.to_owned(), entry.value.u64()?)));
    Some(Cost::Table { attribute, costs: costs.collect::<Option<_>>()?, default: default? })
}

fn failure_rule(node: &Node, problems: &mut Problems) -> Option<FailurePolicy> {
    let policy = |node: &Node| words::on_failure(node.text()?).ok();
    let Some(by) = node.get("by") else {
        return Some(FailurePolicy { default: policy(node)?, by: None });
    };
    let several = "write one rule per value of the other attribute";
    let (attribute, table) = only_entry(by, several, problems)?;
    let policies =
        table.entries().iter().map(|entry| Some((entry.key.text()?.to_owned(), policy(&entry.value)?)));
    let policies = policies.collect::<Option<HashMap<String, OnFailure>>>()?;
    Some(FailurePolicy { default: policy(node.get("default")?)?, by: Some((attribute, policies)) })
}

/// The one attribute of a `by` and its table.
fn only_entry<'n>(by: &'n Node, several: &str, problems: &mut Problems) -> Option<(String, &'n Node)> {
    match by.entries() {
        [entry] => Some((entry.key.text()?.to_owned(), &entry.value)),
        [] => {
            if by.kind() == Kind::Map {
                problems.push(
                    Problem::error("no-attribute", by.span, "`by` names no attribute")
                        .help("like `by: { method: { POST: … } }`"),
                );
            }
            None
        }
        [first, second, ..] => {
            problems.push(
                Problem::error("several-attributes", second.key.span, "`by` looks at one attribute only")
                    .also(first.key.span, "this is one")
                    .help(several),
            );
            None
        }
    }
}

fn instant(node: &Node, problems: &mut Problems) -> Option<Time> {
    let read = node.text()?.parse::<Timestamp>();
    let wrong = match read.map(|at| u64::try_from(at.as_microsecond())) {
        Ok(Ok(us)) => return Some(Time::from_us(us)),
        Ok(Err(_)) => "before 1970",
        Err(_) => "no instant",
    };
    let message = format!("`until`: {} is {wrong}", node.found());
    problems.push(
        Problem::error("bad-instant", node.span, message)
            .help("write a date, a time and an offset, like 2026-12-01T00:00:00Z"),
    );
    None
}

/// A cost that could never be admitted is a mistake of the file, not of each request.
fn fits(
    cost: &Cost,
    limit: &RuleLimit,
    limit_node: &Node,
    cost_node: Option<&Node>,
    problems: &mut Problems,
) {
    let largest = match cost {
        Cost::Expression { default, .. } => Some(*default),
        _ => cost.largest(),
    };
    let (Some(largest), capacity) = (largest, limit.capacity()) else { return };
    if *limit != RuleLimit::Deny && largest > capacity {
        let message =
            format!("a request may cost {largest}, but the limit never admits more than {capacity}");
        let problem = |span| {
            Problem::error("cost-above-capacity", span, &*message)
                .help("raise the capacity, or lower the cost")
        };
        problems.push(match cost_node {
            Some(cost) => problem(cost.span).also(limit_node.span, format!("at most {capacity}")),
            None => problem(limit_node.span),
        });
    }
}
