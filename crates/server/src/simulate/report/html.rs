//! The HTML report: one file without references to others.
//!
//! Every text from outside is escaped. The policy of the page allows its own style and script by their hashes and nothing else,
//! so that a value that slips through cannot run.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::charts;
use super::{counted, json, share, thousands};
use crate::drawing;
use crate::simulate::requirement::Verdict;
use crate::simulate::results::{Results, SubjectResult, Subjects};
use crate::simulate::suggest::{Proposal, Suggestion};
use crate::text::escape_control;

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// Returns the report.
pub(in crate::simulate) fn html(results: &Results, verdicts: &[Verdict]) -> String {
    let style = format!("{STYLE}{}", drawing::STYLE);
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(&style)
    );
    // The end of a script is found before JSON is read, so no `<` may be in it.
    let data = json::json(results, verdicts).to_string().replace('<', "\\u003c");
    let title = match &results.old {
        Some(old) => format!("{} against {}", results.new.name, old.name),
        None => results.new.name.clone(),
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Simulation of {title}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n\
         <h1>Simulation of {title}</h1>\n{}</main>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        body(results, verdicts),
        title = escape(&title),
    )
}

fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

fn escape(text: &str) -> String {
    drawing::escape(&escape_control(text))
}

fn body(results: &Results, verdicts: &[Verdict]) -> String {
    let mut out = String::new();
    if !verdicts.is_empty() {
        out += "<section><h2>Requirements</h2><ul class=\"verdicts\">\n";
        for Verdict { requirement, passed, found } in verdicts {
            let (class, mark, word) =
                if *passed { ("met", "✓", "met") } else { ("missed", "✗", "not met") };
            out += &format!(
                "<li class=\"{class}\"><span aria-label=\"{word}\">{mark}</span> <code>{}</code> <b>{}</b></li>\n",
                escape(requirement),
                escape(found)
            );
        }
        out += "</ul></section>\n";
    }
    out += &summary(results);
    out += &charts::over_time(results);
    out += &rules(results);
    if results.old.is_some() {
        out += &compared(
            "Newly refused",
            "Refused by the new rules and never by the old ones.",
            &results.newly_refused,
        );
        out += &compared(
            "Newly allowed",
            "Refused by the old rules and never by the new ones.",
            &results.newly_allowed,
        );
    }
    out += "<section><h2>Refused most</h2>\n";
    out += &subjects(&results.top);
    out += "</section>\n";
    out += &suggestions(results);
    out += &left_out(results);
    out += &inputs(results);
    out
}

fn summary(results: &Results) -> String {
    let new = &results.new;
    let (unreadable, lines) = results.unreadable();
    let mut cards = vec![
        ("Requests", thousands(new.requests), span(results)),
        ("Refused", share(new.refused, new.requests), counted(new.refused, "request")),
    ];
    if let Some(old) = &results.old {
        cards.push(("Refused before", share(old.refused, old.requests), counted(old.refused, "request")));
        cards.push(("Newly refused", thousands(results.newly_refused.len() as u64), "subjects".to_owned()));
        cards.push(("Newly allowed", thousands(results.newly_allowed.len() as u64), "subjects".to_owned()));
    }
    match &results.synthetic {
        Some(text) => cards.push(("Traffic", "synthetic".to_owned(), text.clone())),
        None => cards.push(("Unreadable", thousands(unreadable), format!("of {}", counted(lines, "line")))),
    }
    let cards = cards.iter().map(|(name, value, note)| {
        format!(
            "<div class=\"card-box\"><div class=\"name\">{name}</div><div class=\"value\">{}</div><div class=\"note\">{}</div></div>\n",
            escape(value),
            escape(note)
        )
    });
    format!("<section class=\"cards\">\n{}</section>\n", cards.collect::<String>())
}

fn span(results: &Results) -> String {
    let at =
        |time| crate::cli::terminal::instant(time).chars().take(16).collect::<String>().replace('T', " ");
    results.new.span.map_or_else(String::new, |(first, last)| format!("{} to {} UTC", at(first), at(last)))
}

/// A table with a heading row. The first column is text, the others are numbers unless they are in `texts`.
pub(super) fn table(heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>, texts: &[usize]) -> String {
    let class = |column: usize| if column == 0 || texts.contains(&column) { "" } else { " class=\"number\"" };
    let heads = heads
        .iter()
        .enumerate()
        .map(|(column, head)| format!("<th scope=\"col\"{}>{head}</th>", class(column)));
    let mut out = format!(
        "<div class=\"scroll\"><table><thead><tr>{}</tr></thead><tbody>\n",
        heads.collect::<String>()
    );
    for row in rows {
        let cells = row
            .iter()
            .enumerate()
            .map(|(column, cell)| format!("<td{}>{}</td>", class(column), escape(cell)));
        out += &format!("<tr>{}</tr>\n", cells.collect::<String>());
    }
    out + "</tbody></table></div>\n"
}

fn rules(results: &Results) -> String {
    let heads =
        ["Rule", "Algorithm", "Checks", "Refused", "Share", "Old", "Shadow", "Subjects hit", "Peak subjects"];
    let rows = results.new.rules.iter().map(|rule| {
        let old = results.old.as_ref().and_then(|old| old.rule(&rule.id));
        vec![
            rule.id.clone(),
            rule.algorithm.map_or("deny", |algorithm| algorithm.name()).to_owned(),
            thousands(rule.checks),
            thousands(rule.refused),
            share(rule.refused, rule.checks),
            old.map_or_else(|| "-".to_owned(), |old| share(old.refused, old.checks)),
            thousands(rule.shadow_refused),
            thousands(rule.subjects_hit),
            thousands(rule.peak_subjects),
        ]
    });
    let mut out = format!("<section><h2>Rules</h2>\n{}", table(&heads, rows, &[1]));
    for rule in results.new.rules.iter().filter(|rule| rule.refused > 0) {
        out += &charts::of_rule(results, rule);
    }
    out + "</section>\n"
}

fn compared(title: &str, meaning: &str, found: &Subjects) -> String {
    let listed = found.listed.len();
    let number = counted(found.len() as u64, "subject");
    let note =
        if listed < found.len() { format!(" The {listed} with the most refusals:") } else { String::new() };
    format!(
        "<section><h2>{title}: {number}</h2>\n<p>{meaning}{note}</p>\n{}</section>\n",
        subjects(&found.listed)
    )
}

fn subjects(listed: &[SubjectResult]) -> String {
    if listed.is_empty() {
        return "<p class=\"empty\">None.</p>\n".to_owned();
    }
    let shows_values = listed.iter().any(|subject| subject.values.is_some());
    let heads = if shows_values {
        &["Subject", "Attributes", "Rule", "Refused", "Checks"][..]
    } else {
        &["Subject", "Rule", "Refused", "Checks"]
    };
    let rows = listed.iter().map(|subject| {
        let mut row = vec![subject.subject.clone()];
        if shows_values {
            row.push(subject.values.clone().unwrap_or_default());
        }
        row.extend([subject.rule.clone(), thousands(subject.refused), thousands(subject.checks)]);
        row
    });
    table(heads, rows, if shows_values { &[1, 2] } else { &[1] })
}

fn suggestions(results: &Results) -> String {
    let Some(all) = &results.suggestions else { return String::new() };
    let rows = all.iter().map(|Suggestion { rule, percent_now, proposal }| {
        let (change, then) = match proposal {
            Proposal::Within => ("none needed".to_owned(), "-".to_owned()),
            Proposal::Impossible(reason) => ((*reason).to_owned(), "-".to_owned()),
            Proposal::Change { line, after, percent, .. } => {
                (format!("line {line}: {}", after.trim()), format!("{percent:.2}%"))
            }
        };
        vec![rule.clone(), change, format!("{percent_now:.2}%"), then]
    });
    let rows = table(&["Rule", "Change", "Refused now", "With the change"], rows, &[1]);
    format!("<section><h2>Suggested numbers</h2>\n{rows}</section>\n")
}

fn left_out(results: &Results) -> String {
    let rows =
        results.not_simulated.iter().map(|left_out| vec![left_out.rule.clone(), left_out.reason.clone()]);
    let mut out = "<section><h2>Not simulated</h2>\n".to_owned();
    if results.not_simulated.is_empty() {
        out += "<p class=\"empty\">Every rule was simulated.</p>\n";
    } else {
        out += &table(&["Rule", "Reason"], rows, &[1]);
    }
    out + "<p>Clients that retry after a refusal are not modelled.</p></section>\n"
}

fn inputs(results: &Results) -> String {
    if let Some(text) = &results.synthetic {
        return format!("<section><h2>Traffic</h2><p><code>{}</code></p></section>\n", escape(text));
    }
    let heads = ["Log", "Format", "Lines", "Requests", "Other", "Unreadable", "Notes"];
    let rows = results.inputs.iter().map(|log| {
        let mut notes = Vec::new();
        if let Some((line, reason)) = log.counts.first_unreadable {
            notes.push(format!("line {line}: {reason}"));
        }
        if let Some(error) = &log.counts.truncated {
            notes.push(format!("ends early: {error}"));
        }
        if let Some(capture) = log.capture.as_ref().filter(|capture| capture.dropped > 0) {
            notes.push(format!("lacks {}", counted(capture.dropped, "check")));
        }
        vec![
            log.name.clone(),
            format!("{:?}", log.format).to_lowercase(),
            thousands(log.counts.lines),
            thousands(log.counts.requests),
            thousands(log.counts.other),
            thousands(log.counts.unreadable),
            notes.join("; "),
        ]
    });
    format!("<section><h2>Logs</h2>\n{}</section>\n", table(&heads, rows, &[1, 6]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_has_the_hashes_of_style_and_script() {
        // The well-known digest of no bytes.
        assert_eq!(hash(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        assert!(!SCRIPT.contains("innerHTML") && !SCRIPT.contains("</"));
    }

    #[test]
    fn cells_are_escaped() {
        let cells = table(&["a"], [vec!["<img onerror=1>\u{202e}\u{1b}".to_owned()]], &[]);
        assert!(cells.contains("&lt;img onerror=1&gt;") && !cells.contains('\u{1b}'), "{cells}");
    }
}
