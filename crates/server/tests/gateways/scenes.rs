//! What holds with every gateway that asks over HTTP. The rules are those of the pages.

use std::process::Command;
use std::time::{Duration, Instant};

use tollgate_testkit::redis::{Flavour, Server};

use crate::answer::Answer;
use crate::recipe::Recipe;
use crate::site::{Site, seen};

const PROBLEM: Option<&str> = Some("application/problem+json");

/// The limit header of the client, or the one that the shop got.
fn standing(recipe: &Recipe, answer: &Answer) -> Option<String> {
    if recipe.tells_allowed || answer.status != 200 {
        return answer.header("ratelimit").map(str::to_owned);
    }
    assert_eq!(answer.header("ratelimit"), None, "the page says that clients get no limit headers");
    seen(answer)["headers"]["ratelimit"].as_str().map(str::to_owned)
}

fn stands_at(recipe: &Recipe, answer: &Answer, rule: &str, left: u64) {
    let standing = standing(recipe, answer).unwrap_or_else(|| panic!("no limit header: {answer:?}"));
    assert!(standing.starts_with(&format!("\"{rule}\";r={left};t=")), "{standing} and not {rule} {left}");
}

/// A refusal because a limit is used up, with everything that the page promises.
fn is_refused(answer: &Answer, rule: &str) -> u64 {
    assert_eq!((answer.status, answer.header("content-type")), (429, PROBLEM), "{answer:?}");
    assert!(answer.header("ratelimit-policy").is_some_and(|policy| policy.contains(rule)), "{answer:?}");
    let standing = format!("\"{rule}\";r=0;t=");
    assert!(answer.header("ratelimit").is_some_and(|value| value.starts_with(&standing)), "{answer:?}");
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
        stands_at(recipe, &answer, "search-per-key", left);
        assert_eq!(answer.header("retry-after"), None);
        if recipe.tells_allowed {
            let policies = r#""requests-per-address";q=100;w=60, "search-per-key";q=5;w=60"#;
            assert_eq!(answer.header("ratelimit-policy"), Some(policies));
        }
    }
    let asked = site.shop.asked();
    let refused = site.get(2, "/search", &[]);
    let wait = is_refused(&refused, "search-per-key");
    let rest = refused.body.strip_prefix(recipe.used_up).unwrap_or_else(|| panic!("{refused:?}"));
    if !rest.is_empty() {
        let wait_ms: u64 = rest.strip_suffix('}').and_then(|wait| wait.parse().ok()).expect("a number");
        assert_eq!(wait_ms.div_ceil(1000), wait, "{refused:?}");
    }
    let head = site.curl(2, "/search", &["--head"]);
    is_refused(&head, "search-per-key");
    assert_eq!((head.body.as_str(), site.shop.asked()), ("", asked), "the shop is not asked");

    // Another client, by address and by key; a key is the same wherever it is sent.
    stands_at(recipe, &site.get(3, "/search", &[]), "search-per-key", 4);
    stands_at(recipe, &site.get(2, "/search", &["x-api-key: k-1"]), "search-per-key", 4);
    stands_at(recipe, &site.get(3, "/search", &["x-api-key: k-1"]), "search-per-key", 3);
    let head = site.curl(2, "/other", &["--head"]);
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    if recipe.tells_allowed {
        // A refusal charged nothing.
        stands_at(recipe, &head, "requests-per-address", 93);
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
        stands_at(recipe, &answer, "orders-per-address", left);
    }
    is_refused(&site.curl(2, "/orders", &post), "orders-per-address");
    assert_eq!(seen(&site.get(2, "/orders", &[]))["method"], "GET", "orders may be looked at");
}

/// Nothing that a client says of itself changes who is charged, and for what.
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
        // Proxies take a header away that is named as one of the connection's own.
        &["connection: x-forwarded-for, x-forwarded-uri, x-forwarded-method", "x-forwarded-for: 127.0.0.9"],
        // Names that Tollgate and the files use themselves.
        &["ratelimit: mine", "ratelimit-policy: mine", "tollgate-answered: yes"],
        &["sec-fetch-site: cross-site"],
        &["authorization: Bearer of-the-client"],
    ];
    for (from, spoof) in (10..).zip(spoofs) {
        let answer = site.get(from, "/search", spoof);
        assert_eq!(answer.status, 200, "{spoof:?}: {answer:?}");
        stands_at(recipe, &answer, "search-per-key", 4);
        let again = site.get(from, "/search", &[]);
        assert_eq!(again.status, 200, "{spoof:?}: {again:?}");
        stands_at(recipe, &again, "search-per-key", 3);
        // Two before, and this.
        stands_at(recipe, &site.get(from, "/", &[]), "requests-per-address", 97);
    }
    // An order is one, whatever else it calls itself.
    for (left, header) in [(1, "x-forwarded-method: GET"), (0, "x-original-method: GET")] {
        let answer = site.curl(7, "/orders", &["--data", "hats", "--header", header]);
        assert_eq!(answer.status, 200, "{header}: {answer:?}");
        stands_at(recipe, &answer, "orders-per-address", left);
    }
    let order =
        ["--data", "hats", "--header", "x-forwarded-uri: /free", "--header", "x-http-method-override: GET"];
    assert_eq!(site.curl(7, "/orders", &order).status, 429);
    // Nor does another way to write the path.
    for (path, left) in [("//search", 4), ("/%73earch", 3), ("/./search", 2), ("/search?q=<b>", 1)] {
        let answer = site.get(8, path, &[]);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        stands_at(recipe, &answer, "search-per-key", left);
    }
    // Whom the others named has not been charged.
    stands_at(recipe, &site.get(9, "/search", &[]), "search-per-key", 4);
}

/// While the store is down, each rule's `on_failure` answers.
pub(crate) fn rules_say_what_happens_while_the_store_is_down(recipe: &Recipe) {
    let mut redis = Server::start(Flavour::Redis70).expect("a server starts");
    let key = redis.folder().join("key");
    std::fs::write(&key, "5e".repeat(32)).expect("a file can be written");
    let (url, key) = (redis.url(), key.to_str().expect("a path of text").to_owned());
    let settings = ["--store", &url, "--hash-key-file", &key, "--store-deadline", "5s"];
    let site = Site::with(recipe, &settings, &|text| text);
    stands_at(recipe, &site.get(2, "/search", &[]), "search-per-key", 4);
    redis.kill9().expect("it can be killed");

    let passed = site.get(2, "/search", &["ratelimit: mine", "ratelimit-policy: mine"]);
    let fields = (passed.header("ratelimit-policy"), passed.header("ratelimit"));
    assert_eq!((passed.status, fields), (200, (None, None)), "{passed:?}");
    if !recipe.tells_allowed {
        assert_eq!(standing(recipe, &passed), None, "a header of the shop is not taken for Tollgate's");
    }
    let asked = site.shop.asked();
    let refused = site.curl(2, "/orders", &["--data", "hats"]);
    assert_eq!((refused.status, refused.header("content-type")), (503, PROBLEM), "{refused:?}");
    assert_eq!((refused.body.as_str(), refused.header("ratelimit")), (recipe.uncounted, None));
    assert_eq!(site.shop.asked(), asked, "the shop is not asked");
}

/// A denial has no wait, a key of any bytes is counted, and a key that is sent twice is the client's mistake.
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
    // A key of any bytes is counted, as a subject of its own.
    for left in (0..5).rev() {
        let answer = site.get(2, "/search", &[&format!("@{}", file.display())]);
        stands_at(recipe, &answer, "search-per-key", left);
    }
    is_refused(&site.get(2, "/search", &[&format!("@{}", file.display())]), "search-per-key");
    stands_at(recipe, &site.get(2, "/search", &[]), "search-per-key", 4);
    let twice = site.get(2, "/search", &["x-api-key: a", "x-api-key: b"]);
    assert_eq!((twice.status, twice.header("retry-after")), (400, None), "{twice:?}");
}

/// Tollgate is down: requests pass, without limit headers.
pub(crate) fn requests_pass_while_tollgate_is_down(recipe: &Recipe) {
    let mut site = Site::start(recipe);
    stands_at(recipe, &site.get(2, "/search", &[]), "search-per-key", 4);
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
pub(crate) fn a_tollgate_that_hangs_is_not_waited_for(recipe: &Recipe) {
    // Not the patience of other tests.
    let site = Site::with(recipe, &[], &|text| text.replace("250ms", "251ms"));
    site.server.signal("STOP");
    let began = Instant::now();
    let passed = site.get(2, "/search", &[]);
    assert_eq!((passed.status, passed.header("ratelimit")), (200, None), "{passed:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// Tollgate is gone, and the files are changed so that nothing passes then: what is answered.
pub(crate) fn answer_while_tollgate_is_down(recipe: &Recipe, change: &dyn Fn(String) -> String) -> Answer {
    let mut site = Site::with(recipe, &[], change);
    stands_at(recipe, &site.get(2, "/search", &[]), "search-per-key", 4);
    site.kill_tollgate();
    let asked = site.shop.asked();
    let answer = site.get(2, "/search", &[]);
    assert_eq!(site.shop.asked(), asked, "the shop is not asked");
    answer
}

/// Another proxy, at 127.0.0.200, is in front of this one, which is configured by these lines of its page, each replacing another.
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
    let stands = |from, header: &str, left| {
        stands_at(recipe, &site.get(from, "/search", &[header]), "search-per-key", left);
    };
    stands(200, "x-forwarded-for: 127.0.0.50", 4);
    stands(200, "x-forwarded-for: 127.0.0.9, 127.0.0.50", 3);
    stands(200, "x-forwarded-for: 127.0.0.51", 4);
    // Headers of other peers are ignored.
    stands(52, "x-forwarded-for: 127.0.0.50", 4);
    stands(52, "x-forwarded-for: 127.0.0.53", 3);
    stands(50, "x-real-ip: 127.0.0.54", 2);
    site
}

/// A server that wants a token gets one from a gateway whose files are changed, and from no client.
pub(crate) fn a_token_is_shown(recipe: &Recipe, change: &dyn Fn(String, &str) -> String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate")).arg("token").output().expect("the binary runs");
    let token = String::from_utf8(output.stdout).expect("text").trim().to_owned();
    let stderr = String::from_utf8(output.stderr).expect("text");
    let digest = stderr.split('"').find(|word| word.starts_with("sha256:")).expect("a digest");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tollgate.yaml");
    let config = format!("tokens: [{{ name: gateway, digest: \"{digest}\", scopes: [check] }}]\n");
    std::fs::write(&file, config).expect("a file can be written");
    let settings = ["--config", file.to_str().expect("a path of text")];
    let site = Site::with(recipe, &settings, &|text| change(text, &format!("Bearer {token}")));
    let answer = site.get(2, "/search", &["authorization: Bearer of-the-client"]);
    stands_at(recipe, &answer, "search-per-key", 4);
    assert_eq!(
        seen(&answer)["headers"]["authorization"],
        "Bearer of-the-client",
        "the shop gets the client's"
    );
    // Without it requests are refused.
    assert_eq!(
        Answer::to(&[&format!("http://{}/v1/authorize", site.server.http)]).map(|it| it.status),
        Some(401)
    );
}

/// Takes a piece out of the file that has `place` in it; other files stay as they are.
pub(crate) fn without(text: String, piece: &str, place: &str) -> String {
    assert!(!text.contains(place) || text.contains(piece), "there is no {piece:?} in\n{text}");
    text.replace(piece, "")
}

/// Who has used up its searches cannot pass by making them too long to be asked about.
pub(crate) fn what_is_too_long_to_ask_about_does_not_pass(recipe: &Recipe) {
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
