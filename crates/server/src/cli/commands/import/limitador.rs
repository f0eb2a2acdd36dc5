//! Reads a limits file of Limitador.

use tollgate_document::{Node, Problem, Problems};

use super::expression;
use super::reading::{item, list, number, required, text, warn_unknown};
use super::written::{Amount, Rule, Wanted, Written};

pub(super) fn read(root: &Node, problems: &mut Problems) -> Option<Written> {
    let Some(limits) = root.list() else {
        let message = format!("a limits file is a list of limits, found {}", root.found());
        problems.push(Problem::error("no-limits", root.span, message));
        return None;
    };
    let mut written = Written::new(
        "Limitador",
        &[
            "Windows begin at full multiples of their length. There, each begins with the first request in it.",
            "A request is charged to all limits, or to none if one of them refuses.",
            "Each descriptor of a request is checked by itself; those of one request are charged all or none.",
            "When the store cannot answer, requests pass (`on_failure: open`). Leave the line out to refuse them.",
        ],
    );
    for limit in limits {
        let rule = rule(limit, &mut written, problems);
        written.rules.extend(rule);
    }
    Some(written)
}

fn rule(limit: &Node, written: &mut Written, problems: &mut Problems) -> Option<Rule> {
    warn_unknown(
        limit,
        &["namespace", "max_value", "seconds", "name", "conditions", "variables", "id"],
        problems,
    );
    let namespace = required(limit, "namespace", problems)?;
    let units = number(limit, "max_value", problems)?;
    let seconds = number(limit, "seconds", problems)?;
    if seconds == 0 {
        problems.push(Problem::error("bad-number", limit.span, "`seconds` must not be 0"));
        return None;
    }
    let (mut comments, mut shadow) = (Vec::new(), false);
    let mut conditions = vec![("domain".to_owned(), Wanted::Is(namespace.to_owned()))];
    for node in list(limit, "conditions", problems) {
        let Some(text) = item(node, "conditions", problems) else { continue };
        match expression::conditions(text) {
            Some(understood) => conditions.extend(understood),
            None => {
                let message = format!("the condition `{text}` cannot be written as a rule's");
                let help = "the rule is a shadow until it is narrowed by hand: it would refuse requests that it is not for";
                problems.push(Problem::warning("not-carried-over", node.span, message.clone()).help(help));
                comments.push(format!("NOT CARRIED OVER: {message}, so it is a shadow; narrow it by hand."));
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
                let message = format!("the variable `{text}` is no attribute");
                let help =
                    "the rule is a shadow until it says who is counted: it would count everybody together";
                problems.push(Problem::warning("not-carried-over", node.span, message.clone()).help(help));
                comments.push(format!(
                    "NOT CARRIED OVER: {message}, so it is a shadow; say by hand who is counted."
                ));
                shadow = true;
            }
        }
    }
    if let Some(twice) = conditions.iter().enumerate().find_map(|(at, (name, _))| {
        conditions[..at].iter().any(|(other, _)| other == name).then(|| name.clone())
    }) {
        let message = format!("two conditions are about `{twice}`; only the last one is kept");
        problems.push(Problem::warning("not-carried-over", limit.span, message.clone()));
        comments.push(format!("NOT CARRIED OVER: {message}."));
        shadow = true;
        let last = conditions.iter().rposition(|(name, _)| *name == twice);
        let mut at = 0;
        conditions.retain(|(name, _)| {
            at += 1;
            *name != twice || Some(at - 1) == last
        });
    }
    let (name, id) = (text(limit, "name", problems), text(limit, "id", problems));
    let id = match name.or(id) {
        Some(name) => written.id([name]),
        None => {
            let subject = if per.is_empty() { "all".to_owned() } else { per.join("-") };
            written.id([namespace, &subject])
        }
    };
    Some(Rule { comments, id, conditions, per, amount: Amount { units, seconds }, shadow })
}
