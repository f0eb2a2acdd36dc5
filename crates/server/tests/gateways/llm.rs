//! Token limits for language models: real Envoy and real nginx ask before a request and charge after its answer.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate_testkit::tools::Tool;

use crate::harness::model::{Model, silent_model};
use crate::harness::recipe::Recipe;
use crate::harness::response::Response;
use crate::harness::site::Site;

const PAGE: &str = include_str!("../../../../docs/gateways/llm.md");

pub(crate) const LLM_ENVOY: Recipe = Recipe {
    tool: Tool::Envoy,
    folder: "llm",
    page: PAGE,
    files: &[("envoy.yaml", "yaml"), ("rules.yaml", "yaml")],
    arguments: crate::proxies::envoy::ENVOY.arguments,
    shows_allowed: true,
    refused_body: "",
    store_down_body: "",
};

pub(crate) const LLM_NGINX: Recipe = Recipe {
    tool: Tool::Nginx,
    files: &[("nginx.conf", "nginx"), ("rules.yaml", "yaml")],
    arguments: crate::proxies::nginx::NGINX.arguments,
    ..LLM_ENVOY
};

/// Rules for keys that start with the name of an algorithm. Their windows do not end during a test.
const RULES: &str = "
version: 1
rules:
  - { id: window, match: { api_key: { prefix: window- } }, per: api_key, limit: { fixed-window: 100/365d }, postpaid: true }
  - { id: bucket, match: { api_key: { prefix: bucket- } }, per: api_key, limit: { token-bucket: 100/365d }, postpaid: true }
  - { id: meter, match: { api_key: { prefix: meter- } }, per: api_key, limit: { meter: 100 }, postpaid: true }
";

/// Long, because the machine may be busy with other tests.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A gateway before a model.
struct Llm {
    site: Site,
    _model: Option<Model>,
}

impl Llm {
    fn start(recipe: &Recipe, change: &dyn Fn(String) -> String) -> Llm {
        let model = Model::start(recipe);
        let site = Site::before(recipe, model.port, &[], &|text| with_rules(change(text)));
        Llm { site, _model: Some(model) }
    }

    /// Asks for an answer of this many tokens. Returns whether the request was admitted.
    fn complete(&self, key: &str, tokens: u64, stream: bool) -> bool {
        let body = format!("{{\"max_tokens\":{tokens},\"stream\":{stream}}}");
        let key = format!("x-api-key: {key}");
        let answer = self.site.curl(2, "/v1/chat/completions", &["--header", &key, "--data", &body]);
        let used = format!("\"total_tokens\": {tokens}");
        match answer.status {
            200 => assert!(answer.body.contains(&used), "{answer:?}"),
            429 => assert!(answer.header("retry-after").is_some(), "{answer:?}"),
            _ => panic!("{answer:?}"),
        }
        answer.status == 200
    }

    fn post(&self, path: &str, body: &str) -> Value {
        let url = format!("http://{}{path}", self.site.server.http);
        let args = ["--header", "content-type: application/json", "--data", body, &url];
        let answer = Response::fetch(&args).expect("Tollgate answers");
        assert_eq!(answer.status, 200, "{path} {body}: {answer:?}");
        serde_json::from_str(&answer.body).expect("JSON")
    }

    /// The tokens that are counted for a key, by Tollgate's own answer.
    fn used(&self, key: &str) -> u64 {
        let usage = self.post("/v1/usage", &format!("{{\"attributes\":{{\"api_key\":\"{key}\"}}}}"));
        let rules = usage["rules"].as_array().unwrap_or_else(|| panic!("{usage}"));
        assert_eq!(rules.len(), 1, "{usage}");
        rules[0]["used"].as_u64().unwrap_or_else(|| panic!("{usage}"))
    }

    /// Waits until this many tokens are counted. A gateway charges after the client has its answer.
    fn wait_for(&self, key: &str, used: u64) {
        let deadline = Instant::now() + TIMEOUT;
        while self.used(key) != used {
            assert!(Instant::now() < deadline, "{key}: {} instead of {used}", self.used(key));
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends one request after another, each for an answer of this many tokens. Returns how many were admitted. Every answer
    /// is recorded whole before the next request.
    fn admitted(&self, key: &str, count: usize, tokens: u64, can_stream: bool) -> u64 {
        let before = self.used(key);
        let mut admitted = 0;
        for number in 0..count {
            admitted += u64::from(self.complete(key, tokens, can_stream && number % 2 == 1));
            self.wait_for(key, before + admitted * tokens);
        }
        admitted
    }
}

/// Replaces the rules file by ours.
fn with_rules(text: String) -> String {
    if text.contains("\nrules:\n") { RULES.to_owned() } else { text }
}

/// With a limit of 100: 90 are used, and of 50 answers of 40 tokens one is admitted; and so on.
fn requests_are_admitted_until_the_limit_is_used_up(recipe: &Recipe, can_stream: bool) {
    let llm = Llm::start(recipe, &|text| text);
    for algorithm in ["window", "bucket", "meter"] {
        for (used, count, tokens, expected) in [(90, 50, 40, 1), (0, 20, 150, 1), (0, 20, 60, 2)] {
            let key = format!("{algorithm}-{tokens}");
            if used > 0 {
                assert!(llm.complete(&key, used, can_stream), "{key}");
                llm.wait_for(&key, used);
            }
            assert_eq!(llm.admitted(&key, count, tokens, can_stream), expected, "{key}");
            assert_eq!(llm.used(&key), used + expected * tokens, "{key}: all of it is recorded");
        }
    }
}

#[test]
fn behind_envoy_streams_are_admitted_until_the_limit_is_used_up_and_all_are_recorded() {
    requests_are_admitted_until_the_limit_is_used_up(&LLM_ENVOY, true);
}

#[test]
fn behind_nginx_answers_are_admitted_until_the_limit_is_used_up_and_all_are_recorded() {
    requests_are_admitted_until_the_limit_is_used_up(&LLM_NGINX, false);
}

/// A client cannot avoid the charge by leaving before the model reports what it used.
fn an_answer_without_usage_costs_the_estimate(recipe: &Recipe) {
    let site = Site::before(recipe, silent_model(), &[], &with_rules);
    let llm = Llm { site, _model: None };
    for used in [20, 40] {
        let mut curl = std::process::Command::new("curl");
        curl.args(["--silent", "--output", "/dev/null", "--max-time", "1", "--data", "{}"]);
        curl.args(["--header", "x-api-key: window-gone", &llm.site.url("/v1/chat/completions")]);
        assert_eq!(curl.status().expect("curl runs").code(), Some(28), "it disconnects");
        llm.wait_for("window-gone", used);
    }
}

#[test]
fn behind_envoy_a_client_that_disconnects_is_charged_the_estimate() {
    an_answer_without_usage_costs_the_estimate(&LLM_ENVOY);
}

#[test]
fn behind_nginx_a_client_that_disconnects_is_charged_the_estimate() {
    an_answer_without_usage_costs_the_estimate(&LLM_NGINX);
}

#[test]
fn envoy_gives_back_with_negative_hits_and_never_below_zero() {
    let llm = Llm::start(&LLM_ENVOY, &|text| {
        text.replace(
            "hits_addend: { format: \"%DYNAMIC_METADATA(llm:tokens)%\" }",
            "hits_addend: { number: 40, is_negative_hits: true }",
        )
    });
    let record = r#"{"attributes":{"api_key":"window-back"},"cost":90}"#;
    llm.post("/v1/record", record);
    for left in [50, 10, 0, 0] {
        assert!(llm.complete("window-back", 7, false));
        llm.wait_for("window-back", left);
    }
    llm.post("/v1/record", record);
    llm.wait_for("window-back", 90);
}

#[test]
fn requests_without_a_key_are_refused() {
    let (envoy, nginx) = (Llm::start(&LLM_ENVOY, &|text| text), Llm::start(&LLM_NGINX, &|text| text));
    let rules = LLM_ENVOY.text("rules.yaml");
    assert!(rules.contains("missing: refuse"), "{rules}");
    for (llm, key, expected) in [
        (&nginx, "x-other: k", 401),
        (&nginx, "x-api-key: k\",\"cost\":0,\"x\":\"", 401),
        (&nginx, "x-api-key: window-1", 200),
        (&envoy, "x-api-key: window-1", 200),
    ] {
        let body = ["--header", key, "--data", "{\"max_tokens\":1}"];
        assert_eq!(llm.site.curl(2, "/v1/chat/completions", &body).status, expected, "{key}");
    }
    let model = Model::start(&LLM_ENVOY);
    let site = Site::before(&LLM_ENVOY, model.port, &[], &|text| text);
    assert_eq!(site.curl(2, "/v1/chat/completions", &["--data", "{\"max_tokens\":1}"]).status, 429);
}

#[test]
fn the_page_of_token_limits_shows_the_files_that_are_tested() {
    LLM_ENVOY.assert_shown_on_its_page();
    LLM_NGINX.assert_shown_on_its_page();
}
