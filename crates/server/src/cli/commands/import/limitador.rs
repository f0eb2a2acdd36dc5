//! Converts a limits file of Limitador.

use tollgate_document::{Node, Problem, Problems};

use super::expression;
use super::fields::{item, list, number, required, text, warn_unknown};
use super::rules_file::{Rule, RulesFile, ValueTest, WindowLimit};

pub(super) fn convert(root: &Node, problems: &mut Problems) -> Option<RulesFile> {
    let Some(limits) = root.list() else {
        let message = format!("expected a list of limits, found {}", root.found());
        problems.push(Problem::error("no-limits", root.span, message));
        return None;
    };
    let mut rules_file = RulesFile::new(
        "Limitador",
        &[
            "Windows start at multiples of their length. In Limitador, a window starts with its first request.",
            "A request is charged to all limits, or to none if one of them refuses.",
            "Each descriptor of a request is checked separately; all descriptors of a request are charged, or none.",
            "If the store does not answer, requests are allowed (`on_failure: open`). Remove the line to refuse them.",
        ],
    );
    for limit in limits {
        let rule = convert_limit(limit, &mut rules_file, problems);
        rules_file.rules.extend(rule);
    }
    Some(rules_file)
}

fn convert_limit(limit: &Node, rules_file: &mut RulesFile, problems: &mut Problems) -> Option<Rule> {
    warn_unknown(
        limit,
        &["namespace", "max_value", "seconds", "name", "conditions", "variables", "id"],
        problems,
    );
    let namespace = required(limit, "namespace", problems)?;
    let units = number(limit, "max_value", problems)?;
    let seconds = number(limit, "seconds", problems)?;
    if seconds == 0 {
        problems.push(Problem::error("bad-number", limit.span, "invalid `seconds`: 0"));
        return None;
    }
    let (mut comments, mut shadow) = (Vec::new(), false);
    let mut conditions = vec![("domain".to_owned(), ValueTest::Is(namespace.to_owned()))];
    for node in list(limit, "conditions", problems) {
        let Some(text) = item(node, "conditions", problems) else { continue };
        match expression::conditions(text) {
            Some(converted) => conditions.extend(converted),
            None => {
                let message = format!("unsupported condition `{text}`");
                let help = "the rule has the mode shadow, because it would match too many requests; add the condition by hand, \
                            then remove `mode`";
                problems.push(Problem::warning("not-carried-over", node.span, message.clone()).help(help));
                comments.push(format!(
                    "NOT CARRIED OVER: {message}. The rule is a shadow: add the condition by hand, then remove `mode`."
                ));
                shadow = true;
            }
        }
    }
    let mut per = Vec::new();
    for node in list(limit, "variables", problems) {
        let Some(text) = item(node, "variables", problems) else { continue };
        match expression::variable(text) {
            Some(name) => per.push(name),
            None => {
                let message = format!("unsupported variable `{text}`");
                let help = "the rule has the mode shadow, because it would count all clients together; add the subject to `per` \
                            by hand, then remove `mode`";
                problems.push(Problem::warning("not-carried-over", node.span, message.clone()).help(help));
                comments.push(format!(
                    "NOT CARRIED OVER: {message}. The rule is a shadow: add the subject to `per` by hand, then remove `mode`."
                ));
                shadow = true;
            }
        }
    }
    if let Some(duplicate) = conditions.iter().enumerate().find_map(|(at, (name, _))| {
        conditions[..at].iter().any(|(other, _)| other == name).then(|| name.clone())
    }) {
        let message = format!("several conditions on `{duplicate}`; only the last one is kept");
        problems.push(Problem::warning("not-carried-over", limit.span, message.clone()));
        comments.push(format!("NOT CARRIED OVER: {message}."));
        shadow = true;
        let last = conditions.iter().rposition(|(name, _)| *name == duplicate);
        let mut at = 0;
        conditions.retain(|(name, _)| {
            at += 1;
            *name != duplicate || Some(at - 1) == last
        });
    }
    let (name, id) = (text(limit, "name", problems), text(limit, "id", problems));
    let id = match name.or(id) {
        Some(name) => rules_file.unique_id([name]),
        None => {
            let subject = if per.is_empty() { "all".to_owned() } else { per.join("-") };
            rules_file.unique_id([namespace, &subject])
        }
    };
    Some(Rule { comments, id, conditions, per, limit: WindowLimit { units, seconds }, shadow })
}
