//! `/`: what is in force, for people. Plain text in a page: no script, nothing from elsewhere.

use std::fmt::Write;

use http::{HeaderName, HeaderValue, StatusCode, header};

use super::answer::{self, Answer, NO_STORE};
use super::pages::{limit, mode};
use crate::serve::shared::Shared;

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const CSS: HeaderValue = HeaderValue::from_static("text/css; charset=utf-8");
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const STYLE: &str = include_str!("status.css");

pub(super) fn page(shared: &Shared) -> Answer {
    let in_force = shared.rules.in_force();
    let (name, version) = (Escaped(&in_force.name), in_force.version);
    let mut rows = String::new();
    let count = shared.gate.with_rules(|rules| {
        for rule in rules.rules() {
            let algorithm = rule.limit.algorithm().map_or("deny", |algorithm| algorithm.name());
            let wrote = writeln!(
                rows,
                "<tr><td><code>{}</code></td><td>{algorithm}</td><td class=\"number\">{}</td><td>{}</td><td>{}</td></tr>",
                Escaped(rule.keyspace.rule()),
                limit(rule),
                mode(rule.mode),
                Escaped(&rule.description),
            );
            debug_assert!(wrote.is_ok(), "a text takes everything");
        }
        rules.rules().len()
    });
    let page = format!(
        "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>Tollgate</title>
<link rel=\"stylesheet\" href=\"/status.css\">
<h1>Tollgate {}</h1>
<p>serves by {count} rules: {name}, replaced {version} times since the start.</p>
<h2>Rules in force</h2>
<table>
<thead><tr><th>Rule</th><th>Algorithm</th><th>Limit</th><th>Mode</th><th>Description</th></tr></thead>
<tbody>
{rows}</tbody>
</table>
<h2>More</h2>
<ul>
<li><a href=\"/v1/rules\">/v1/rules</a>: the same for programs</li>
<li><a href=\"/metrics\">/metrics</a>: what is counted, for Prometheus</li>
<li><a href=\"/readyz\">/readyz</a>: how the store is</li>
<li><a href=\"/openapi.json\">/openapi.json</a>: everything that can be asked</li>
</ul>
</html>
",
        env!("CARGO_PKG_VERSION"),
    );
    guarded(answer::of(StatusCode::OK, HTML, page))
}

pub(super) fn style() -> Answer {
    guarded(answer::of(StatusCode::OK, CSS, STYLE))
}

fn guarded(mut answer: Answer) -> Answer {
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    );
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    answer
}

/// Text between tags.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            _ => f.write_char(c),
        })
    }
}
