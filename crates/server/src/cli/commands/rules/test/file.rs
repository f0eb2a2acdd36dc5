//! Reads test files: from the checked nodes to tests with resolved times and loaded rules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tollgate::core::decision::RetryAfter;
use tollgate::core::rules::RuleSet;
use tollgate::core::{Span, Time};
use tollgate::rules::load;
use tollgate::shorthand;
use tollgate_document::{Node, Problem, Problems, Source, check, parse, quote, suggest};

use super::file_shape;
use crate::cli::request_args::instant;
use crate::files::{self, STDIN};

/// 2026-01-01T00:00:00Z. A fixed time makes tests of calendars repeatable.
const START: Time = Time::from_us(1_767_225_600_000_000);

/// One test, ready to run.
pub(super) struct Test {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) rules: Rc<RuleSet>,
    pub(super) start: Time,
    pub(super) steps: Vec<Step>,
}

/// Requests at one time, and what is expected of them.
pub(super) struct Step {
    pub(super) line: usize,
    pub(super) at: Time,
    pub(super) attributes: Vec<(String, String)>,
    pub(super) cost: Option<u64>,
    pub(super) times: u64,
    pub(super) expected: Expected,
}

/// What a step expects. `None` is not compared.
pub(super) struct Expected {
    pub(super) allowed: u64,
    pub(super) decided_by: Option<Decider>,
    pub(super) remaining: Option<u64>,
    pub(super) retry_after: Option<RetryAfter>,
    pub(super) shadow_refused: Option<u64>,
}

/// What decides a request.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Decider {
    Rule(String),
    DenyList,
    BypassList,
    /// No rule counts the request.
    Unmatched,
}

/// The time of a step as written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StepTime {
    Instant(Time),
    SinceStart(Span),
    SincePrevious(Span),
}

impl StepTime {
    /// Parses `5s`, `+5s` or an instant.
    pub(super) fn parse(text: &str) -> Result<StepTime, String> {
        let text = text.trim();
        let (duration, kind): (_, fn(Span) -> StepTime) = match text.strip_prefix('+') {
            Some(duration) => (duration, StepTime::SincePrevious),
            None => (text, StepTime::SinceStart),
        };
        if let Ok(span) = shorthand::span(duration) {
            return Ok(kind(span));
        }
        instant(text).map(StepTime::Instant).map_err(|_| {
            format!("invalid time {}; write a duration like 5s or +500ms, or an instant", quote(text))
        })
    }
}

/// The rules files that tests name, each read once.
#[derive(Default)]
pub(super) struct RulesFiles {
    loaded: BTreeMap<PathBuf, Result<Rc<RuleSet>, String>>,
    invalid: Vec<(Source, Problems)>,
}

impl RulesFiles {
    fn get(&mut self, path: &Path) -> Result<Rc<RuleSet>, String> {
        if let Some(known) = self.loaded.get(path) {
            return known.clone();
        }
        let rules = self.load(path);
        self.loaded.insert(path.to_owned(), rules.clone());
        rules
    }

    fn load(&mut self, path: &Path) -> Result<Rc<RuleSet>, String> {
        let source = files::read_rules(path).map_err(|failure| failure.to_string())?;
        let mut problems = Problems::new();
        load(&source, &mut problems).map(Rc::new).ok_or_else(|| {
            let message = format!("invalid rules file {}", source.name());
            self.invalid.push((source, problems));
            message
        })
    }

    /// The rules files with errors, and their problems.
    pub(super) fn into_invalid(self) -> Vec<(Source, Problems)> {
        self.invalid
    }
}

/// Reads a test file. Returns `None` if `problems` contains an error.
pub(super) fn read(
    source: &Source,
    path: &Path,
    rules: &mut RulesFiles,
    problems: &mut Problems,
) -> Option<Vec<Test>> {
    let root = parse(source, problems)?;
    check(file_shape(), &root, problems);
    let folder = match path.parent() {
        Some(folder) if path.as_os_str() != STDIN => folder,
        _ => Path::new(""),
    };
    let mut reader = Reader { source, folder, rules, problems, names: BTreeMap::new() };
    let tests: Vec<_> = root
        .get("tests")
        .and_then(Node::list)
        .unwrap_or_default()
        .iter()
        .map(|test| reader.test(test, root.get("rules")))
        .collect();
    if problems.has_errors() { None } else { tests.into_iter().collect() }
}

struct Reader<'a> {
    source: &'a Source,
    folder: &'a Path,
    rules: &'a mut RulesFiles,
    problems: &'a mut Problems,
    /// The nodes of the names of tests so far.
    names: BTreeMap<String, Node>,
}

impl Reader<'_> {
    /// Reads a test whose problems of shape are reported. Returns `None` if a part that it needs is invalid.
    fn test(&mut self, node: &Node, default_rules: Option<&Node>) -> Option<Test> {
        let name = node.get("name").and_then(|name| Some((name, name.text()?)));
        if let Some((name_node, name)) = name {
            match self.names.get(name) {
                Some(first) => self.problems.push(
                    Problem::error(
                        "duplicate-name",
                        name_node.span,
                        format!("duplicate test {}", quote(name)),
                    )
                    .also(first.span, "the first test with this name")
                    .help("give each test another name"),
                ),
                None => drop(self.names.insert(name.to_owned(), name_node.clone())),
            }
        }
        let rules = match node.get("rules").or(default_rules) {
            Some(path) => self.load_rules(path),
            None => {
                self.problems.push(
                    Problem::error("missing-rules", node.span, "missing rules file of the test")
                        .help("write `rules: rules.yaml` in the test, or at the top for all tests"),
                );
                None
            }
        };
        let start =
            node.get("start").and_then(Node::text).and_then(|text| instant(text).ok()).unwrap_or(START);
        let shared = attributes(node.get("request"));
        let mut previous = start;
        let mut steps = Vec::new();
        for step in node.get("steps").and_then(Node::list).unwrap_or_default() {
            previous = self.time(step, start, previous);
            steps.push(self.step(step, previous, &shared, rules.as_deref()));
        }
        Some(Test {
            name: name?.1.to_owned(),
            line: self.line(node),
            rules: rules?,
            start,
            steps: steps.into_iter().collect::<Option<_>>()?,
        })
    }

    fn load_rules(&mut self, node: &Node) -> Option<Rc<RuleSet>> {
        let path = self.folder.join(node.text()?);
        match self.rules.get(&path) {
            Ok(rules) => Some(rules),
            Err(message) => {
                self.problems.push(
                    Problem::error("bad-rules", node.span, message)
                        .help("the path is relative to the folder of the test file; `tollgate lint` checks a rules file"),
                );
                None
            }
        }
    }

    /// Resolves the time of a step, which is never before the previous one.
    fn time(&mut self, step: &Node, start: Time, previous: Time) -> Time {
        let Some((node, text)) = step.get("at").and_then(|at| Some((at, at.text()?))) else {
            return previous;
        };
        let at = match StepTime::parse(text) {
            Ok(StepTime::Instant(time)) => time,
            Ok(StepTime::SinceStart(span)) => start.plus(span),
            Ok(StepTime::SincePrevious(span)) => previous.plus(span),
            // Reported by the check of the shape.
            Err(_) => return previous,
        };
        if at < previous {
            let message = format!("time {} is before the previous step", quote(text));
            self.problems
                .push(Problem::error("time-goes-back", node.span, message).help(
                    "write the steps in the order of their times; `+1s` counts from the previous step",
                ));
        }
        at.max(previous)
    }

    fn step(
        &mut self,
        node: &Node,
        at: Time,
        shared: &[(String, String)],
        rules: Option<&RuleSet>,
    ) -> Option<Step> {
        let times = node.get("times").map_or(Some(1), Node::u64);
        let allowed = node.get("allowed").and_then(|allowed| Some((allowed, allowed.u64()?)));
        if let (Some(times), Some((node, allowed))) = (times, allowed)
            && allowed > times
        {
            let message = format!("`allowed` {allowed} exceeds `times` {times}");
            self.problems.push(Problem::error("allowed-above-times", node.span, message));
        }
        let decided_by = self.decider(node, rules);
        let mut own = shared.to_vec();
        for (name, value) in attributes(node.get("request")) {
            match own.iter_mut().find(|(known, _)| *known == name) {
                Some(known) => known.1 = value,
                None => own.push((name, value)),
            }
        }
        Some(Step {
            line: self.line(node),
            at,
            attributes: own,
            cost: node.get("cost").and_then(Node::u64),
            times: times?,
            expected: Expected {
                allowed: allowed?.1,
                decided_by,
                remaining: node.get("remaining").and_then(Node::u64),
                retry_after: node.get("retry_after").and_then(Node::text).and_then(retry_after),
                shadow_refused: node.get("shadow_refused").and_then(Node::u64),
            },
        })
    }

    fn decider(&mut self, step: &Node, rules: Option<&RuleSet>) -> Option<Decider> {
        let rule = step.get("rule").and_then(|rule| Some((rule, rule.text()?)));
        let by = step.entry("by");
        if let (Some((rule, _)), Some(by)) = (rule, by) {
            self.problems.push(
                Problem::error("two-deciders", by.key.span, "`by` and `rule` in one step")
                    .also(rule.span, "the rule")
                    .help("one thing decides a request: keep `rule` or `by`"),
            );
        }
        if let (Some((node, id)), Some(rules)) = (rule, rules) {
            let ids = || rules.rules().iter().map(|rule| rule.keyspace.rule());
            if !ids().any(|known| known == id) {
                let mut problem =
                    Problem::error("unknown-rule", node.span, format!("unknown rule {}", quote(id)));
                if let Some(near) = suggest(id, ids()) {
                    problem = problem.label(format!("did you mean `{near}`?"));
                }
                self.problems.push(problem.help("`rule` names a rule of the test's rules file"));
            }
        }
        match (rule, by.and_then(|by| by.value.text())) {
            (Some((_, id)), _) => Some(Decider::Rule(id.to_owned())),
            (None, Some("deny")) => Some(Decider::DenyList),
            (None, Some("bypass")) => Some(Decider::BypassList),
            (None, Some("unmatched")) => Some(Decider::Unmatched),
            (None, _) => None,
        }
    }

    fn line(&self, node: &Node) -> usize {
        self.source.position(node.span.start).line
    }
}

fn attributes(node: Option<&Node>) -> Vec<(String, String)> {
    let entries = node.map(Node::entries).unwrap_or_default();
    let pair = |entry: &tollgate_document::Entry| {
        Some((entry.key.text()?.to_owned(), entry.value.text()?.to_owned()))
    };
    entries.iter().filter_map(pair).collect()
}

/// Waits are stated in milliseconds, rounded up.
fn retry_after(text: &str) -> Option<RetryAfter> {
    if text == "never" {
        return Some(RetryAfter::Never);
    }
    shorthand::span(text).ok().map(|span| RetryAfter::Ms(span.us().div_ceil(1_000)))
}
