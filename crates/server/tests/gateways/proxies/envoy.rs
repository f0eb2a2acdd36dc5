//! Real Envoy, which asks over gRPC.

use tollgate_testkit::tools::Tool;

use crate::harness::recipe::Recipe;
use crate::harness::site::{Site, seen};

pub(crate) const ENVOY: Recipe = Recipe {
    tool: Tool::Envoy,
    folder: "envoy",
    page: include_str!("../../../../../docs/gateways/envoy.md"),
    files: &[("envoy.yaml", "yaml"), ("rules.yaml", "yaml")],
    arguments: &[
        "--concurrency",
        "1",
        "--disable-hot-restart",
        "--log-level",
        "warning",
        "--config-path",
        "envoy.yaml",
    ],
    shows_allowed: true,
    refused_body: "",
    store_down_body: "",
};

#[test]
fn clients_of_envoy_see_what_the_page_promises() {
    let site = Site::start(&ENVOY);
    let key = "x-api-key: k-1";
    for left in (0..5).rev() {
        let answer = site.get(2, "/search", &[key]);
        assert_eq!(seen(&answer)["path"], "/search");
        let policy = "\"search-per-key\";q=5;w=60";
        let policies = answer.header("ratelimit-policy").expect("a header");
        assert!(policies.split(", ").any(|each| each == policy), "{answer:?}");
        let header = answer.header("ratelimit").expect("a header");
        assert!(header.starts_with(&format!("\"search-per-key\";r={left};t=")), "{header}");
        assert_eq!(answer.header("retry-after"), None);
    }
    // The shadow rule would have refused the last two requests. Clients do not see that.
    let refused = site.get(2, "/search", &[key]);
    assert_eq!((refused.status, refused.body.as_str()), (429, ""), "{refused:?}");
    assert_eq!(refused.header("x-envoy-ratelimited"), Some("true"));
    assert!(refused.header("ratelimit").is_some_and(|field| field.starts_with("\"search-per-key\";r=0;t=")));
    let wait: u64 = refused.header("retry-after").and_then(|wait| wait.parse().ok()).expect("a wait");
    assert!((1..=60).contains(&wait), "{wait}");
    // Another key is another subject. The refusal charged nothing: this address has been charged six times.
    assert_eq!(site.get(2, "/search", &["x-api-key: k-2"]).status, 200);
    let other = site.get(2, "/", &["x-forwarded-for: 203.0.113.7", "x-api-key: k-1"]);
    assert_eq!(other.status, 200);
    let standing = other.header("ratelimit").expect("a header");
    assert!(standing.starts_with("\"requests-per-address\";r=93;t="), "{standing}");
    // Without a key, searches are counted by address: leaving the header out is no way around the limit.
    for left in (0..5).rev() {
        let keyless = site.get(2, "/search", &[]);
        let standing = keyless.header("ratelimit").expect("a header");
        assert!(standing.starts_with(&format!("\"search-per-key\";r={left};t=")), "{standing}");
    }
    assert_eq!(site.get(2, "/search", &[]).status, 429);
}

#[test]
fn without_a_response_envoy_follows_its_failure_mode() {
    let mut open = Site::start(&ENVOY);
    let mut closed =
        Site::with(&ENVOY, &[], &|text| text.replace("failure_mode_deny: false", "failure_mode_deny: true"));
    open.kill_tollgate();
    closed.kill_tollgate();
    let passed = open.get(2, "/", &[]);
    assert_eq!((passed.status, passed.header("ratelimit")), (200, None), "{passed:?}");
    let refused = closed.get(2, "/", &[]);
    assert_eq!((refused.status, refused.body.as_str()), (500, ""), "{refused:?}");
}

#[test]
fn a_key_of_more_than_64_kib_is_refused_and_not_let_through() {
    let site = Site::with(&ENVOY, &[], &|text| {
        text.replace(
            "use_remote_address: true",
            "use_remote_address: true\n                max_request_headers_kb: 96",
        )
    });
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("headers");
    std::fs::write(&file, format!("x-api-key: {}\n", "k".repeat(70 * 1024))).expect("a file can be written");
    let header = format!("@{}", file.display());
    assert_eq!(site.get(2, "/search", &[&header]).status, 429);
    assert_eq!(site.get(2, "/search", &["x-api-key: k-1"]).status, 200, "others are served");
}

#[test]
fn a_key_that_is_not_utf_8_is_counted_and_not_let_through() {
    let site = Site::start(&ENVOY);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("headers");
    std::fs::write(&file, b"x-api-key: \xff\n").expect("a file can be written");
    let header = format!("@{}", file.display());
    let statuses: Vec<u16> = (0..20).map(|_| site.get(2, "/search", &[&header]).status).collect();
    assert_eq!(statuses, [[200; 5].to_vec(), [429; 15].to_vec()].concat());
}

#[test]
fn of_two_keys_the_shop_gets_the_one_that_is_counted() {
    let site = Site::start(&ENVOY);
    let count = |keys: &[&str], left: u64| {
        let answer = site.get(2, "/search", keys);
        let standing = answer.header("ratelimit").expect("a header");
        assert!(standing.starts_with(&format!("\"search-per-key\";r={left};t=")), "{keys:?}: {standing}");
        seen(&answer)
    };
    let asked = count(&["x-api-key: k-1", "x-api-key: k-2"], 4);
    assert_eq!(asked["repeated"], serde_json::json!([]));
    let key = asked["headers"]["x-api-key"].as_str().expect("a key");
    count(&[&format!("x-api-key: {key}")], 3);
    assert!(seen(&site.get(2, "/", &[]))["headers"]["x-api-key"].is_null(), "no key is added");
}

#[test]
fn the_page_of_envoy_shows_the_files_that_are_tested() {
    ENVOY.assert_shown_on_its_page();
}
