//! Converts configurations of envoyproxy/ratelimit.
//!
//! That limiter walks down a tree, one level per entry of a descriptor. On each level it prefers the exact value, then
//! the first wildcard of the file that matches, then the key without a value. It never goes back up. So a node matches
//! the values of its entry except those of the nodes that it prefers, whether these have a limit or not.
//!
//! Every node with a limit becomes one rule with exactly these conditions. No descriptor matches two of them.

use tollgate_document::Problem;

use super::descriptor_tree::{self, Descriptor, DescriptorLimit, Domain};
use super::input::Input;
use super::rules_file::{Bypass, Condition, Rule, RulesFile};
use super::value_test::{Pattern, ValueTest};

/// An entry on the path to a node.
#[derive(Clone, Debug)]
struct Step {
    key: String,
    /// The value as it is written.
    value: Option<String>,
    test: ValueTest,
    /// Whether each value is counted separately.
    counted: bool,
}

pub(super) fn convert(inputs: &mut [Input]) -> RulesFile {
    let mut rules_file = RulesFile::new(
        "envoyproxy/ratelimit",
        &[
            "Tollgate charges a request to all of its descriptors, or to none if one of them refuses. envoyproxy/ratelimit also \
             counts refused requests.",
            "If the store does not answer, requests are allowed (`on_failure: open`), as with Envoy's `failure_mode_deny: \
             false`. Remove the line to refuse them.",
            "If Envoy charges when a stream ends (`apply_on_stream_done`), add `postpaid: true` to the rule. Otherwise a charge \
             beyond the limit is refused and not counted.",
            "`descriptor` contains the keys of a descriptor in their order, so that a rule matches only descriptors with \
             exactly these keys.",
        ],
    );
    for domain in descriptor_tree::read(inputs) {
        Conversion { domain: &domain, inputs: &mut *inputs, rules_file: &mut rules_file }
            .convert_list(&domain.nodes, &[]);
    }
    rules_file
}

struct Conversion<'a> {
    domain: &'a Domain,
    inputs: &'a mut [Input],
    rules_file: &'a mut RulesFile,
}

impl Conversion<'_> {
    /// Converts the nodes of one list, which are below `path`.
    fn convert_list(&mut self, nodes: &[Descriptor], path: &[Step]) {
        for (index, node) in nodes.iter().enumerate() {
            let Some(test) = self.test_of(index, nodes) else { continue };
            let counted = !matches!(test, ValueTest::OneOf(_)) && !node.shared;
            let step = Step { key: node.key.clone(), value: node.value.clone(), test, counted };
            let path = [path, &[step]].concat();
            if let Some(limit) = &node.limit {
                self.convert_limit(node, limit, &path);
            }
            self.convert_list(&node.children, &path);
        }
    }

    /// The values that lead to the node at `index`. `None` if no value does, or if a problem was reported.
    fn test_of(&mut self, index: usize, nodes: &[Descriptor]) -> Option<ValueTest> {
        let node = &nodes[index];
        let same_key = |other: &&Descriptor| other.key == node.key;
        let pattern = match &node.value {
            None => Pattern::ANY,
            Some(value) if value.contains('*') => self.pattern(node, value)?,
            Some(value) => return Some(ValueTest::is(value)),
        };
        let wildcards = if node.value.is_some() { &nodes[..index] } else { nodes };
        let wildcards = wildcards.iter().filter(same_key).filter_map(|other| other.value.as_deref());
        let wildcards = wildcards.filter(|value| value.contains('*')).filter_map(Pattern::with_stars);
        let not_patterns: Vec<Pattern> = wildcards.filter(|other| !other.is_disjoint(&pattern)).collect();
        if not_patterns.contains(&Pattern::ANY) {
            let message = "unreachable descriptor: a wildcard before it matches every value";
            self.inputs[node.at.file].problems.push(Problem::note("unreachable", node.at.span, message));
            return None;
        }
        let values = nodes.iter().filter(same_key).filter_map(|other| other.value.as_deref());
        let values = values.filter(|value| !value.contains('*') && pattern.matches(value));
        // A value that an excluded pattern matches is excluded already.
        let values = values.filter(|value| !not_patterns.iter().any(|excluded| excluded.matches(value)));
        let not_values = values.map(str::to_owned).collect();
        Some(ValueTest::Like { pattern, not_values, not_patterns })
    }

    fn pattern(&mut self, node: &Descriptor, value: &str) -> Option<Pattern> {
        let pattern = Pattern::with_stars(value);
        if pattern.is_none() {
            let message = format!("unsupported value `{value}`: a `?` in a pattern stands for any character");
            self.inputs[node.at.file].problems.push(Problem::error("unsupported", node.at.span, message));
        }
        pattern
    }

    fn convert_limit(&mut self, node: &Descriptor, limit: &DescriptorLimit, path: &[Step]) {
        let Some(names) = self.attribute_names(node, path) else { return };
        let keys: Vec<&str> = path.iter().map(|step| step.key.as_str()).collect();
        let mut conditions: Vec<Condition> = vec![
            ("domain".to_owned(), ValueTest::is(&self.domain.name)),
            ("descriptor".to_owned(), ValueTest::is(&keys.join(","))),
        ];
        let tests = names.iter().zip(path).filter(|(_, step)| !step.test.is_any());
        conditions.extend(tests.map(|(name, step)| (name.clone(), step.test.clone())));
        let comments = limit.comments.clone();
        let Some(window) = limit.window else {
            self.rules_file.bypass.push(Bypass { comments, conditions, reason: "unlimited".to_owned() });
            return;
        };
        let id = match &limit.name {
            Some(name) => self.rules_file.unique_id([name.as_str()]),
            None => {
                let words = path.iter().flat_map(|step| [Some(step.key.as_str()), step.value.as_deref()]);
                self.rules_file.unique_id([self.domain.name.as_str()].into_iter().chain(words.flatten()))
            }
        };
        let counted = names.iter().zip(path).filter(|(_, step)| step.counted);
        self.rules_file.rules.push(Rule {
            comments,
            id,
            conditions,
            per: counted.map(|(name, _)| name.clone()).collect(),
            limit: window,
            shadow: limit.shadow,
        });
    }

    /// The attribute names of the entries: their keys, with a number if a key is repeated. `None` if a problem was
    /// reported.
    fn attribute_names(&mut self, node: &Descriptor, path: &[Step]) -> Option<Vec<String>> {
        let problems = &mut self.inputs[node.at.file].problems;
        let mut names: Vec<String> = Vec::new();
        for (at, step) in path.iter().enumerate() {
            let before = path[..at].iter().filter(|other| other.key == step.key).count();
            let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            let key: String = step.key.chars().map(|c| if fits(c) { c } else { '_' }).collect();
            let is_renamed = key != step.key;
            if is_renamed && before > 0 {
                let message =
                    format!("unsupported key `{}`: it occurs twice and is not an attribute name", step.key);
                problems.push(Problem::error("unsupported", node.at.span, message));
                return None;
            }
            if is_renamed {
                let message =
                    format!("key `{}` is not a valid attribute name; it was renamed to `{key}`", step.key);
                let help =
                    format!("set grpc_attributes: \"{}={key}\" in the server's configuration", step.key);
                problems.push(Problem::warning("renamed", node.at.span, message).help(help));
            }
            let name = if before == 0 { key } else { format!("{key}_{}", before + 1) };
            // An entry that is sent under a name precedes one that is numbered or renamed.
            let is_taken = |other: &Step| other.key == name && (is_renamed || before > 0);
            if names.contains(&name) || path.iter().any(is_taken) {
                let message = format!("unsupported keys: two entries would have the attribute name `{name}`");
                problems.push(Problem::error("unsupported", node.at.span, message));
                return None;
            }
            names.push(name);
        }
        Some(names)
    }
}
