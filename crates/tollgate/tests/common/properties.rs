//! Properties that hold for any bytes. The fuzz targets and the tests use them.

use std::time::Duration;

use tollgate::core::algorithm::fixed_window::FixedWindow;
use tollgate::core::rules::{Request, RuleSet};
use tollgate::core::{
    Attributes, EXACT_MAX, Item, Keyspace, Limit, Operation, Plan, Span, SubjectHasher, Time, Token,
};
use tollgate::rules::lint::LintOptions;
use tollgate::rules::{load, load_and_lint};
use tollgate::store::redis::{ScriptCodec, TimeSource};
use tollgate_document::{Colour, Kind, Node, Problems, Source, parse, sarif};

/// Parses the bytes as the reply to two Plans: complete, incomplete or invalid. Parsed numbers are in range.
pub fn redis_reply(bytes: &[u8]) {
    let caller = ScriptCodec::new(TimeSource::Store, Duration::from_secs(1), |_, source| source.to_owned());
    let scope = Keyspace::new("fuzz", "rule").expect("a name");
    let subjects = SubjectHasher::new([1; 32]);
    let key = |name| scope.key(subjects.subject([("user", name)]));
    let limit = Limit::FixedWindow(FixedWindow::new(5, Span::from_secs(1)).expect("a limit"));
    let (mut one, mut two) = (Plan::new(), Plan::new());
    one.push(Item::new(key("a"), limit, Operation::charge(1))).expect("an item");
    for name in ["b", "c"] {
        two.push(Item::new(key(name), limit, Operation::Peek { cost: 1 })).expect("an item");
    }
    let Ok(Some(found)) = caller.read(&[&one, &two], bytes) else { return };
    assert_eq!(found.len(), 2, "one outcome for each Plan");
    for (plan, outcome) in [&one, &two].into_iter().zip(found) {
        let Ok(outcome) = outcome else { continue };
        assert_eq!(outcome.answers.len(), plan.items().len());
        assert!(
            outcome.now <= Time::MAX && outcome.answers.iter().all(|answer| answer.remaining <= EXACT_MAX)
        );
    }
}

/// Loads the bytes as a rules file: it is rejected with an error, or complete and usable. Problems can be rendered.
pub fn rules(bytes: &[u8]) {
    let source = Source::new("rules.yaml", bytes);
    let mut problems = Problems::new();
    let rules = load(&source, &mut problems);
    assert_eq!(rules.is_none(), problems.has_errors(), "a file is rejected if and only if it has an error");
    render(&source, &problems);

    let mut linted = Problems::new();
    let again = load_and_lint(&source, &LintOptions::new(Time::ZERO), &mut linted);
    assert_eq!(again.is_some(), rules.is_some(), "the linter rejects nothing");
    render(&source, &linted);

    if let Some(rules) = rules {
        check_completeness(&source, &rules);
        check_requests(&rules);
    }
}

/// Renders the problems in every format, and checks that their spans are inside the file.
fn render(source: &Source, problems: &Problems) {
    for problem in problems.in_order() {
        let spans = std::iter::once(&problem.label).chain(&problem.more).map(|label| label.span);
        for span in spans {
            assert!(span.start <= span.end && span.end <= source.text().len(), "{problem:?}");
            assert!(source.text().get(span.start..span.end).is_some(), "{problem:?} cuts a character");
        }
        // Messages shorten the texts that they quote.
        assert!(problem.message.len() < 2_000, "{problem:?}");
        assert!(!problem.message.chars().any(char::is_control), "{problem:?}");
    }
    let plain = problems.render(source, Colour::Plain);
    assert_eq!(plain.is_empty(), problems.is_empty());
    assert!(!plain.contains('\u{1b}'), "plain text has no escapes");
    problems.render(source, Colour::Ansi);
    problems.to_json(source);
    sarif([(source, problems)]);
}

/// Checks that the rule set has everything that the file lists. A preset has at least one rule.
fn check_completeness(source: &Source, rules: &RuleSet) {
    let mut none = Problems::new();
    let root = parse(source, &mut none).expect("valid YAML");
    let items = |key: &str| root.get(key).and_then(Node::list).unwrap_or_default();
    let (presets, written): (Vec<&Node>, Vec<&Node>) =
        items("rules").iter().partition(|rule| rule.entry("use").is_some());
    let made = rules.rules().len();
    assert!(made >= written.len() + presets.len(), "{made} rules");
    assert!(!presets.is_empty() || made == written.len(), "{made} rules");
    let changes: usize = (0..made).map(|rule| rules.overrides_of(rule).len()).sum();
    assert_eq!(changes, items("overrides").len());
    assert_eq!((rules.deny().len(), rules.bypass().len()), (items("deny").len(), items("bypass").len()));
    for (rule, node) in rules.rules().iter().zip(&written).filter(|_| presets.is_empty()) {
        assert_eq!(Some(rule.keyspace.rule()), node.get("id").and_then(Node::text));
        let conditions =
            node.get("match").filter(|node| node.kind() == Kind::Map).map_or(&[][..], Node::entries);
        assert_eq!(
            rule.conditions.len(),
            conditions.len(),
            "with a missing condition the rule would match more"
        );
    }
}

/// Checks that requests which match some rules give Plans.
fn check_requests(rules: &RuleSet) {
    let hasher = SubjectHasher::new([7; 32]);
    let names = ["tenant", "user", "api_key", "account", "ip", "service", "target", "tokens", "model"];
    for (path, action) in [("/v1/items/7?x=/y", "search"), ("", ""), ("/ä//", "login")] {
        let mut attributes = Attributes::new();
        names.iter().for_each(|name| attributes.set(name, "1"));
        [("path", path), ("action", action), ("method", "GET")]
            .iter()
            .for_each(|(name, value)| attributes.set(name, value));
        let request = Request::new(&attributes).token(Token(1));
        for now in [Time::ZERO, Time::from_us(1_790_000_000_000_000), Time::MAX] {
            // Too many rules for one Plan are an error of the request, not of the file.
            drop(rules.plan(&request, &hasher.clone().into(), now));
        }
        for rule in rules.matching(&attributes) {
            assert!(
                rules.rules()[rule as usize].conditions.iter().all(|condition| condition.holds(&attributes))
            );
        }
    }
}
