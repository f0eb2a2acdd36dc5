//! Targets that servers read in several ways, through every gateway to an nginx that reads them as nginx does: nothing
//! reaches a limited handler uncounted, and nothing reaches a denied one.

use crate::harness::backend::Backend;
use crate::harness::recipe::Recipe;
use crate::harness::site::Site;
use crate::proxies::caddy::CADDY;
use crate::proxies::envoy::ENVOY;
use crate::proxies::haproxy::HAPROXY;
use crate::proxies::nginx::NGINX;
use crate::proxies::traefik::TRAEFIK;

/// `/search` may be asked for once, `/admin` never, and what starts with `/health` is not counted.
const RULES: &str = "
version: 1
rules:
  - { id: search, match: { path: /search }, per: ip, limit: { fixed-window: 1/365d } }
deny:
  - when: { path: /admin }
bypass:
  - when: { path: '/health*' }
";

/// The same for Envoy, whose route says what a search is.
const RULES_OF_ENVOY: &str = "
version: 1
rules:
  - { id: search, match: { domain: shop, action: search }, per: ip, limit: { fixed-window: 1/365d } }
";

/// Spellings of a path; `NAME` stands for the name of the handler.
const SPELLINGS: &[&str] = &[
    "/NAME",
    "/NAME?q=1",
    "//NAME",
    "/./NAME",
    "/x/../NAME",
    "/x/%2e%2e/NAME",
    "/x/.%2e/NAME",
    "/../../NAME",
    "/x//../../NAME",
    "/x%2f..%2fNAME",
    "/x%2F%2e%2e%2FNAME",
    "/health/..%2fNAME",
    "/health%2f..%2fNAME",
    "/health/../NAME",
    "/health//../NAME",
    "/health/%2e%2e/NAME",
    "/%2fNAME",
    "/%2f%2fNAME",
    "%2fNAME",
    "/x%5c..%5cNAME",
    "/x\\..\\NAME",
    "/health\\..\\NAME",
    "/health%5c..%5cNAME",
    "/x/..;/NAME",
    "/health/..;/NAME",
    "/NAME;v=1",
    "/;x/NAME",
    "/x%252f..%252fNAME",
    "/health/..%252fNAME",
    "/health/%252e%252e/NAME",
    "/NAME%3fq",
    "/NAME%23q",
    "/NAME%00",
    "/NAME%20",
    "/NAME/",
    "/NAME/.",
    "/NAME/x/..",
    "/NAME#top",
    "/health/%c0%ae%c0%ae/NAME",
    "/%c0%afNAME",
    "http://shop.example/NAME",
    "http://shop.example//health/..%2fNAME",
];

/// Every spelling of a name, also with its letters escaped and in upper case.
fn targets(name: &str) -> Vec<String> {
    let (first, rest) = name.split_at(1);
    let escaped = format!("%{:02x}{rest}", first.as_bytes()[0]);
    let twice = escaped.replace('%', "%25");
    let spell =
        |name: &str| -> Vec<String> { SPELLINGS.iter().map(|form| form.replace("NAME", name)).collect() };
    let others = ["/NAME", "/health/..%2fNAME", "//NAME"];
    let others = [escaped, twice, name.to_uppercase()]
        .into_iter()
        .flat_map(|name| others.map(|form| form.replace("NAME", &name)));
    spell(name).into_iter().chain(others).collect()
}

fn nothing_escapes(recipe: &Recipe, rules: &'static str) {
    let backend = Backend::start();
    let site = Site::before(recipe, backend.port, &[], &|text| match text.contains("search-per-key") {
        true => rules.to_owned(),
        false => text,
    });
    let (mut reached, mut escaped) = (0, Vec::new());
    for (from, target) in (2..).zip(targets("search")) {
        let answer = site.curl(from, "/", &["--request-target", &target]);
        let is_reached = answer.status == 200 && answer.body.contains("reached: search");
        let then = is_reached.then(|| site.get(from, "/search", &[]).status);
        println!(
            "{:8} {target:42} {} {:16} then {then:?}",
            recipe.tool.name(),
            answer.status,
            answer.body.lines().next().unwrap_or_default().chars().take(16).collect::<String>()
        );
        reached += usize::from(is_reached);
        if then.is_some_and(|status| status != 429) {
            escaped.push(target);
        }
    }
    assert!(escaped.is_empty(), "{} counts nothing for {escaped:?}", recipe.tool.name());
    assert!(reached >= 4, "{reached} targets reach the handler, so the test shows little");
    if rules == RULES {
        for target in targets("admin") {
            let answer = site.curl(200, "/", &["--request-target", &target]);
            assert!(!answer.body.contains("reached: admin"), "{}: {target}: {answer:?}", recipe.tool.name());
        }
        // A path that no server reads otherwise still bypasses.
        assert!(site.get(201, "/healthz", &[]).body.contains("reached: other"));
        // A legitimate escaped slash passes, and is not counted as a search.
        assert!(site.get(201, "/projects/group%2Fname", &[]).body.contains("reached: other"));
    }
}

#[test]
fn behind_nginx_no_spelling_of_a_path_escapes_its_rule() {
    nothing_escapes(&NGINX, RULES);
}

#[test]
fn behind_caddy_no_spelling_of_a_path_escapes_its_rule() {
    nothing_escapes(&CADDY, RULES);
}

#[test]
fn behind_traefik_no_spelling_of_a_path_escapes_its_rule() {
    nothing_escapes(&TRAEFIK, RULES);
}

#[test]
fn behind_haproxy_no_spelling_of_a_path_escapes_its_rule() {
    nothing_escapes(&HAPROXY, RULES);
}

#[test]
fn behind_envoy_no_spelling_of_a_path_escapes_its_rule() {
    nothing_escapes(&ENVOY, RULES_OF_ENVOY);
}
