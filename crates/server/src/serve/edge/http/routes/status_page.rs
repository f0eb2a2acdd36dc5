//! `/`: the rules in force, for people. One page without scripts and without resources of other sites.

use std::fmt::Write;

use http::{HeaderName, HeaderValue, StatusCode, header};
use tollgate::core::rules::{Rollout, Rule};

use super::pages::mode;
use crate::explanation::describe;
use crate::serve::edge::http::response::{self, HttpResponse, NO_STORE};
use crate::serve::server_state::ServerState;

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const CSS: HeaderValue = HeaderValue::from_static("text/css; charset=utf-8");
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const STYLE: &str = include_str!("status.css");

pub(super) fn page(state: &ServerState) -> HttpResponse {
    let in_force = state.rules.in_force();
    let (name, version) = (Escaped(&in_force.name), in_force.version);
    let mut rows = String::new();
    let count = state.gate.with_rules(|rules| {
        for (index, rule) in rules.rules().iter().enumerate() {
            let text = &in_force.text;
            let wrote = writeln!(
                rows,
                "<tr><td><code>{}</code></td><td>{}</td><td>{}</td><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
                Escaped(rule.keyspace.rule()),
                Escaped(&describe::conditions(&rule.conditions, text)),
                Escaped(&describe::per(&rule.per)),
                Escaped(&text.limit(&rule.limit, &rule.origin).text),
                Escaped(&mode_and_rollout(rule)),
                Escaped(&rule.description),
            );
            debug_assert!(wrote.is_ok(), "writing to a string cannot fail");
            for change in rules.overrides_of(index) {
                let until = change.until.map(|until| format!("until {}", describe::instant(until)));
                let wrote = writeln!(
                    rows,
                    "<tr><td>override</td><td>{}</td><td></td><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
                    Escaped(&describe::conditions(&change.conditions, text)),
                    Escaped(&text.limit(&change.limit, &change.origin).text),
                    Escaped(&until.unwrap_or_default()),
                    Escaped(&change.reason),
                );
                debug_assert!(wrote.is_ok(), "writing to a string cannot fail");
            }
        }
        rules.rules().len()
    });
    let count = if count == 1 { "1 rule".to_owned() } else { format!("{count} rules") };
    let page = format!(
        "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>Tollgate</title>
<link rel=\"stylesheet\" href=\"/status.css\">
<h1>Tollgate {}</h1>
<p>{count} in force: {name}, replaced {version} times since the start.</p>
<h2>Rules in force</h2>
<table>
<thead><tr><th>Rule</th><th>Match</th><th>Per</th><th>Limit</th><th>Mode</th><th>Description</th></tr></thead>
<tbody>
{rows}</tbody>
</table>
<h2>More</h2>
<ul>
<li><a href=\"/v1/rules\">/v1/rules</a>: the rules as JSON</li>
<li><a href=\"/metrics\">/metrics</a>: metrics for Prometheus</li>
<li><a href=\"/readyz\">/readyz</a>: the state of the server and its store</li>
<li><a href=\"/openapi.json\">/openapi.json</a>: the description of the API</li>
</ul>
</html>
",
        env!("CARGO_PKG_VERSION"),
    );
    with_security_headers(response::new(StatusCode::OK, HTML, page))
}

/// `enforce`, or `enforce, rollout 10%`.
fn mode_and_rollout(rule: &Rule) -> String {
    match rule.rollout {
        Rollout::ALL => mode(rule.mode).to_owned(),
        rollout => format!("{}, rollout {}", mode(rule.mode), describe::percentage(rollout)),
    }
}

pub(super) fn style() -> HttpResponse {
    with_security_headers(response::new(StatusCode::OK, CSS, STYLE))
}

fn with_security_headers(mut response: HttpResponse) -> HttpResponse {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    );
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// Escapes text between tags.
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
