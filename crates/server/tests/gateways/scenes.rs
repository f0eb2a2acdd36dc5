//! Tests that every gateway that asks over HTTP must pass. The rules are those of the pages.

use std::time::{Duration, Instant};

use tollgate_testkit::redis::{Flavour, Server};
use tollgate_testkit::serving::{NewToken, create_token};

use crate::harness::recipe::Recipe;
use crate::harness::response::Response;
use crate::harness::site::{Site, seen};

const PROBLEM: Option<&str> = Some("application/problem+json");

/// The limit header of the client, or the one that the shop got.
fn limit_header(recipe: &Recipe, answer: &Response) -> Option<String> {
    if recipe.shows_allowed || answer.status != 200 {
        return answer.header("ratelimit").map(str::to_owned);
    }
    assert_eq!(answer.header("ratelimit"), None, "the page says that clients get no limit headers");
    seen(answer)["headers"]["ratelimit"].as_str().map(str::to_owned)
}

/// Asserts which rule the limit header names, and what remains under it.
fn assert_remaining(recipe: &Recipe, answer: &Response, rule: &str, left: u64) {
    let header = limit_header(recipe, answer).unwrap_or_else(|| panic!("no limit header: {answer:?}"));
    let expected = format!("\"{rule}\";r={left};t=");
    assert!(header.starts_with(&expected), "{header}, expected {expected}");
}

/// Asserts a refusal because a limit is used up, as the page shows it. Returns the wait in seconds.
fn assert_refused(answer: &Response, rule: &str) -> u64 {
    assert_eq!((answer.status, answer.header("content-type")), (429, PROBLEM), "{answer:?}");
    assert!(answer.header("ratelimit-policy").is_some_and(|policy| policy.contains(rule)), "{answer:?}");
    let expected = format!("\"{rule}\";r=0;t=");
    assert!(answer.header("ratelimit").is_some_and(|value| value.starts_with(&expected)), "{answer:?}");
    let wait = answer.header("retry-after").and_then(|wait| wait.parse().ok()).expect("a wait");
    assert!((1..=60).contains(&wait), "{wait}");
    wait
}

/// Five searches pass, the sixth is refused; paths, methods, keys and addresses are distinguished; bodies arrive.
pub(crate) fn clients_see_what_the_page_promises(recipe: &Recipe) {
    let site = Site::start(recipe);
    for left in (0..5).rev() {
        let answer = site.get(2, "/search?q=hats", &[]);
        let asked = seen(&answer);
        assert_eq!((&asked["method"], &asked["path"]), (&"GET".into(), &"/search?q=hats".into()));
        assert_remaining(recipe, &answer, "search-per-key", left);
        assert_eq!(answer.header("retry-after"), None);
        if recipe.shows_allowed {
            let policies = r#""requests-per-address";q=100;w=60, "search-per-key";q=5;w=60"#;
            assert_eq!(answer.header("ratelimit-policy"), Some(policies));
        }
    }
    let asked = site.shop.asked();
    let refused = site.get(2, "/search", &[]);
    let wait = assert_refused(&refused, "search-per-key");
    let rest = refused.body.strip_prefix(recipe.refused_body).unwrap_or_else(|| panic!("{refused:?}"));
    if !rest.is_empty() {
        let (wait_ms, reference) = rest.split_once(',').unwrap_or_else(|| panic!("{refused:?}"));
        let wait_ms: u64 = wait_ms.parse().expect("a number");
        assert!(reference.starts_with(r#""ref":"tgr_"#) && reference.ends_with(r#""}"#), "{refused:?}");
        assert_eq!(wait_ms.div_ceil(1000), wait, "{refused:?}");
    }
    let head = site.curl(2, "/search", &["--head"]);
    assert_refused(&head, "search-per-key");
    assert_eq!((head.body.as_str(), site.shop.asked()), ("", asked), "the shop is not asked");

    // Other addresses and other keys are other clients. A key is the same client from every address.
    assert_remaining(recipe, &site.get(3, "/search", &[]), "search-per-key", 4);
    assert_remaining(recipe, &site.get(2, "/search", &["x-api-key: k-1"]), "search-per-key", 4);
    assert_remaining(recipe, &site.get(3, "/search", &["x-api-key: k-1"]), "search-per-key", 3);
    let head = site.curl(2, "/other", &["--head"]);
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    if recipe.shows_allowed {
        // The refusals charged nothing.
        assert_remaining(recipe, &head, "requests-per-address", 93);
    }

    let folder = tempfile::tempdir().expect("a folder");
    let (file, body) = (folder.path().join("body"), "0123456789abcdef".repeat(8 * 1024));
    std::fs::write(&file, &body).expect("a file can be written");
    let post = ["--header", "expect:", "--data-binary", &format!("@{}", file.display())];
    for left in [1, 0] {
        let answer = site.curl(2, "/orders", &post);
        let asked = seen(&answer);
        assert_eq!(asked["method"], "POST");
        assert!(asked["body"] == body.as_str(), "the body arrives as it was sent");
        assert_remaining(recipe, &answer, "orders-per-address", left);
    }
    assert_refused(&site.curl(2, "/orders", &post), "orders-per-address");
    assert_eq!(seen(&site.get(2, "/orders", &[]))["method"], "GET", "reading orders is not limited");
}

/// No header of a client changes which subject is charged, or under which rules.
pub(crate) fn nothing_a_client_sends_changes_who_is_charged(recipe: &Recipe) {
    let site = Site::start(recipe);
    let spoofs: &[&[&str]] = &[
        &["x-forwarded-for: 127.0.0.9"],
        &["x-forwarded-for: 127.0.0.9, 127.0.0.1"],
        &["x-forwarded-for: 127.0.0.9", "x-forwarded-for: 127.0.0.1"],
        &["x-forwarded-for;"],
        &["x-real-ip: 127.0.0.9"],
        &["x_forwarded_for: 127.0.0.9"],
        &["forwarded: for=127.0.0.9"],
        &["x-forwarded-uri: /free"],
        &["x-forwarded-uri: /free", "x-forwarded-uri: /free"],
        &["x-original-uri: /free"],
        &["x-forwarded-method: POST"],
        &["x-original-method: POST"],
        &["x-forwarded-host: other.example"],
        // Proxies remove headers that `Connection` names.
        &["connection: x-forwarded-for, x-forwarded-uri, x-forwarded-method", "x-forwarded-for: 127.0.0.9"],
        // Names that Tollgate and the files use themselves.
        &["ratelimit: mine", "ratelimit-policy: mine", "tollgate-answered: yes"],
        &["sec-fetch-site: cross-site"],
        &["authorization: Bearer of-the-client"],
    ];
    for (from, spoof) in (10..).zip(spoofs) {
        let answer = site.get(from, "/search", spoof);
        assert_eq!(answer.status, 200, "{spoof:?}: {answer:?}");
        assert_remaining(recipe, &answer, "search-per-key", 4);
        let again = site.get(from, "/search", &[]);
        assert_eq!(again.status, 200, "{spoof:?}: {again:?}");
        assert_remaining(recipe, &again, "search-per-key", 3);
        // This is the third request.
        assert_remaining(recipe, &site.get(from, "/", &[]), "requests-per-address", 97);
    }
    // Headers that claim another method do not change the method.
    for (left, header) in [(1, "x-forwarded-method: GET"), (0, "x-original-method: GET")] {
        let answer = site.curl(7, "/orders", &["--data", "hats", "--header", header]);
        assert_eq!(answer.status, 200, "{header}: {answer:?}");
        assert_remaining(recipe, &answer, "orders-per-address", left);
    }
    let order =
        ["--data", "hats", "--header", "x-forwarded-uri: /free", "--header", "x-http-method-override: GET"];
    assert_eq!(site.curl(7, "/orders", &order).status, 429);
    // Other spellings of a path are the same path.
    for (path, left) in [("//search", 4), ("/%73earch", 3), ("/./search", 2), ("/search?q=<b>", 1)] {
        let answer = site.get(8, path, &[]);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert_remaining(recipe, &answer, "search-per-key", left);
    }
    // The address that the clients claimed was not charged.
    assert_remaining(recipe, &site.get(9, "/search", &[]), "search-per-key", 4);
}

/// While the store is down, each rule's `on_failure` answers.
pub(crate) fn failure_policies_apply_while_the_store_is_down(recipe: &Recipe) {
    let mut redis = Server::start(Flavour::Redis70).expect("a server starts");
    let key = redis.folder().join("key");
    std::fs::write(&key, "5e".repeat(32)).expect("a file can be written");
    let (url, key) = (redis.url(), key.to_str().expect("a path of text").to_owned());
    let settings = ["--store", &url, "--hash-key-file", &key, "--store-deadline", "5s"];
    let site = Site::with(recipe, &settings, &|text| text);
    assert_remaining(recipe, &site.get(2, "/search", &[]), "search-per-key", 4);
    redis.kill9().expect("it can be killed");

    let passed = site.get(2, "/search", &["ratelimit: mine", "ratelimit-policy: mine"]);
    let fields = (passed.header("ratelimit-policy"), passed.header("ratelimit"));
    assert_eq!((passed.status, fields), (200, (None, None)), "{passed:?}");
    if !recipe.shows_allowed {
        assert_eq!(limit_header(recipe, &passed), None, "a header of the shop is not taken for Tollgate's");
    }
    let asked = site.shop.asked();
    let refused = site.curl(2, "/orders", &["--data", "hats"]);
    assert_eq!((refused.status, refused.header("content-type")), (503, PROBLEM), "{refused:?}");
    assert!(refused.body.starts_with(recipe.store_down_body), "{refused:?}");
    assert_eq!(refused.header("ratelimit"), None);
    assert_eq!(site.shop.asked(), asked, "the shop is not asked");
}

/// A denied request gets 403 without a wait, and a key of any bytes is counted.
pub(crate) fn refusals_of_other_kinds_have_their_own_status(recipe: &Recipe) {
    let site = Site::with(recipe, &[], &|text| {
        text.replace("version: 1\n", "version: 1\ndeny: [{ when: { api_key: revoked }, reason: lost }]\n")
    });
    let denied = site.get(2, "/search", &["x-api-key: revoked"]);
    assert_eq!((denied.status, denied.header("content-type")), (403, PROBLEM), "{denied:?}");
    assert_eq!((denied.header("retry-after"), denied.header("ratelimit")), (None, None));

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("headers");
    std::fs::write(&file, b"x-api-key: \xff\n").expect("a file can be written");
    // A key of any bytes is counted, as a separate subject.
    for left in (0..5).rev() {
        let answer = site.get(2, "/search", &[&format!("@{}", file.display())]);
        assert_remaining(recipe, &answer, "search-per-key", left);
    }
    assert_refused(&site.get(2, "/search", &[&format!("@{}", file.display())]), "search-per-key");
    assert_remaining(recipe, &site.get(2, "/search", &[]), "search-per-key", 4);
}

/// Tollgate is down: requests pass, without limit headers.
pub(crate) fn requests_pass_while_tollgate_is_down(recipe: &Recipe) {
    let mut site = Site::start(recipe);
    assert_remaining(recipe, &site.get(2, "/search", &[]), "search-per-key", 4);
    site.kill_tollgate();
    for _ in 0..6 {
        let passed = site.get(2, "/search", &[]);
        assert_eq!(seen(&passed)["path"], "/search");
        assert_eq!((passed.header("ratelimit-policy"), passed.header("ratelimit")), (None, None));
    }
    let order = seen(&site.curl(2, "/orders", &["--data", "hats"]));
    assert_eq!((&order["method"], &order["body"]), (&"POST".into(), &"hats".into()));
}

/// Tollgate hangs: requests wait no longer than the page says.
pub(crate) fn requests_pass_soon_while_tollgate_hangs(recipe: &Recipe) {
    // Keeps the timeout of the page, which is longer in other tests.
    let site = Site::with(recipe, &[], &|text| text.replace("250ms", "251ms"));
    site.server.signal("STOP");
    let began = Instant::now();
    let passed = site.get(2, "/search", &[]);
    assert_eq!((passed.status, passed.header("ratelimit")), (200, None), "{passed:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// Returns the response while Tollgate is down, with files changed so that no request passes.
pub(crate) fn answer_while_tollgate_is_down(recipe: &Recipe, change: &dyn Fn(String) -> String) -> Response {
    let mut site = Site::with(recipe, &[], change);
    assert_remaining(recipe, &site.get(2, "/search", &[]), "search-per-key", 4);
    site.kill_tollgate();
    let asked = site.shop.asked();
    let answer = site.get(2, "/search", &[]);
    assert_eq!(site.shop.asked(), asked, "the shop is not asked");
    answer
}

/// Another proxy, at 127.0.0.200, is in front of the gateway. `lines` of the page configure that: each is inserted before
/// the text it is paired with.
pub(crate) fn behind_another_proxy_its_clients_are_charged(recipe: &Recipe, lines: &[(&str, &str)]) -> Site {
    for (_, line) in lines {
        assert!(
            recipe.page.contains(&line.replace("127.0.0.200", "192.0.2.1")),
            "the page does not show {line}"
        );
    }
    let site = Site::with(recipe, &["--trusted-proxies", "127.0.0.1,127.0.0.200"], &|text| {
        lines.iter().fold(text, |text, (place, line)| text.replace(place, &format!("{line}\n{place}")))
    });
    let expect = |from, header: &str, left| {
        assert_remaining(recipe, &site.get(from, "/search", &[header]), "search-per-key", left);
    };
    expect(200, "x-forwarded-for: 127.0.0.50", 4);
    expect(200, "x-forwarded-for: 127.0.0.9, 127.0.0.50", 3);
    expect(200, "x-forwarded-for: 127.0.0.51", 4);
    // Headers of other peers are ignored.
    expect(52, "x-forwarded-for: 127.0.0.50", 4);
    expect(52, "x-forwarded-for: 127.0.0.53", 3);
    expect(50, "x-real-ip: 127.0.0.54", 2);
    site
}

/// The gateway sends the token that the server requires; the token of a client goes to the shop only.
pub(crate) fn a_token_is_sent(recipe: &Recipe, change: &dyn Fn(String, &str) -> String) {
    let NewToken { token, line, .. } = create_token(env!("CARGO_BIN_EXE_tollgate"), "check");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tollgate.yaml");
    std::fs::write(&file, format!("tokens:\n{line}\n")).expect("a file can be written");
    let settings = ["--config", file.to_str().expect("a path of text")];
    let site = Site::with(recipe, &settings, &|text| change(text, &format!("Bearer {token}")));
    let answer = site.get(2, "/search", &["authorization: Bearer of-the-client"]);
    assert_remaining(recipe, &answer, "search-per-key", 4);
    assert_eq!(
        seen(&answer)["headers"]["authorization"],
        "Bearer of-the-client",
        "the shop gets the client's token"
    );
    // The server requires a token.
    assert_eq!(
        Response::fetch(&[&format!("http://{}/v1/authorize", site.server.http)])
            .map(|response| response.status),
        Some(401)
    );
}

/// Removes `piece` from the file that contains `place`. Other files stay unchanged.
pub(crate) fn without(text: String, piece: &str, place: &str) -> String {
    assert!(!text.contains(place) || text.contains(piece), "missing {piece:?} in\n{text}");
    text.replace(piece, "")
}

/// A client at its limit cannot pass with targets or headers that are too long for Tollgate.
pub(crate) fn targets_that_are_too_long_are_refused(recipe: &Recipe) {
    let site = Site::start(recipe);
    for _ in 0..5 {
        assert_eq!(site.get(2, "/search", &[]).status, 200);
    }
    let asked = site.shop.asked();
    for len in [8_000, 9_000, 12_000, 14_900, 15_050, 15_150, 15_250, 15_350, 20_000, 40_000, 100_000] {
        let answer = site.get(2, &format!("/search?{}", "x".repeat(len)), &[]);
        assert_ne!(answer.status, 200, "{len}");
        let header = format!("x-filler: {}", "x".repeat(len));
        assert_ne!(site.get(2, "/search", &[&header]).status, 200, "{len}");
    }
    assert_eq!(site.shop.asked(), asked, "the shop is not asked");
}

/// A header that occurs twice, or is longer than Tollgate reads, is counted or refused. It never passes uncounted, and the
/// shop gets the key that was counted and no other.
pub(crate) fn headers_that_tollgate_cannot_read_do_not_pass(recipe: &Recipe) {
    let site = Site::start(recipe);
    let long = |len: usize| format!("x-api-key: {}", "k".repeat(len));
    let (short, longer) = (long(1_000), long(16_385));
    let twice: [&[&str]; 4] = [
        &["x-api-key: a", "x-api-key: b"],
        &["x-api-key: c", "x-api-key: c"],
        &["x-api-key: d", &short],
        &[&longer],
    ];
    for (from, headers) in (20..).zip(twice) {
        let asked = site.shop.asked();
        let answer = site.get(from, "/search", headers);
        if answer.status == 200 {
            assert_remaining(recipe, &answer, "search-per-key", 4);
            let asked = seen(&answer);
            assert_eq!(asked["repeated"], serde_json::json!([]), "{headers:?}");
            let key = asked["headers"]["x-api-key"].as_str().expect("a key");
            let again = site.get(from + 40, "/search", &[&format!("x-api-key: {key}")]);
            assert_remaining(recipe, &again, "search-per-key", 3);
        } else {
            assert!((400..500).contains(&answer.status), "{headers:?}: {answer:?}");
            assert_eq!(site.shop.asked(), asked, "the shop is not asked");
        }
    }
}
