use proptest::prelude::*;

use super::*;

/// All readings of a target, the folded one first.
fn all(target: &str) -> Vec<String> {
    match readings(target, PathCase::Sensitive) {
        Readings::One(path) => vec![path.into_owned()],
        Readings::Several { folded, others } => [vec![folded], others].concat(),
        Readings::TooMany => panic!("{target} has too many readings"),
    }
}

#[test]
fn a_target_that_every_server_reads_alike_has_one_reading() {
    for (target, expected) in [
        ("/search", "/search"),
        ("/search?q=/../x", "/search"),
        ("/search#top", "/search"),
        ("/search?q=<b>&r=`", "/search"),
        ("/%73ear%63h", "/search"),
        ("/search/", "/search/"),
        ("/", "/"),
        ("/v1/things%3Asearch", "/v1/things:search"),
        ("/%40me%2a", "/@me*"),
        ("/a%", "/a%25"),
        ("/a%4", "/a%254"),
        ("/a%zz%+1", "/a%25zz%25+1"),
        ("/a%20b", "/a%20b"),
        ("/%c3%a4", "/%C3%A4"),
        ("/ä", "/%C3%A4"),
        ("/...", "/..."),
        ("/.well-known/x", "/.well-known/x"),
        ("/a<b`c", "/a%3Cb%60c"),
        ("http://shop.example/search?q", "/search"),
        ("http://shop.example", "/"),
        // Not paths.
        ("*", "*"),
        ("", ""),
        ("search", "search"),
        ("a b://x/search", "a b://x/search"),
        ("1http://x/search", "1http://x/search"),
    ] {
        assert_eq!(all(target), [expected], "{target}");
    }
}

/// Targets that reach `/search` on some server, and where another server looks for them.
const SPELLINGS: &[(&str, &[&str])] = &[
    ("//search", &["/search", "//search"]),
    ("/./search", &["/search", "/./search"]),
    ("/a/../search", &["/search", "/a/../search"]),
    ("/a/%2e%2E/search", &["/search", "/a/../search"]),
    ("/../../search", &["/search"]),
    ("/x%2f..%2fsearch", &["/search", "/x%2F..%2Fsearch"]),
    ("/health/..%2fsearch", &["/search", "/health/..%2Fsearch"]),
    ("/health%2f%2e%2e%2fsearch", &["/search", "/health%2F..%2Fsearch"]),
    ("/x%252f..%252fsearch", &["/search", "/x%252f..%252fsearch"]),
    ("/x%25252f..%25252fsearch", &["/search"]),
    ("/x%5c..%5csearch", &["/search", "/x%5C..%5Csearch"]),
    ("/x\\..\\search", &["/search", "/x%5C..%5Csearch"]),
    ("\\search", &["\\search"]),
    ("/%5csearch", &["/search", "/%5Csearch"]),
    ("/x/..;/search", &["/search", "/x/..;/search"]),
    ("/x/..;a=b/search;c", &["/search"]),
    ("/search;v=1", &["/search", "/search;v=1"]),
    ("/;x/search", &["/search", "/;x/search"]),
    ("/search%3bv=1", &["/search", "/search%3Bv=1", "/search;v=1"]),
    ("/search%3fq", &["/search", "/search%3Fq"]),
    ("/search%23q", &["/search", "/search%23q"]),
    ("/search%00.png", &["/search", "/search%00.png"]),
    ("/%c0%afsearch", &["/search", "/%C0%AFsearch"]),
    ("/x/%c0%ae%c0%ae/search", &["/search"]),
    ("/x/y//../search", &["/x/search", "/x/y/search"]),
    ("/health//../search", &["/search", "/health/search"]),
    // The first server decodes once and resolves, and the second does it again.
    ("/x%252f..%252fsearch/%252e%252e/..%2f", &["/search/", "/"]),
];

#[test]
fn a_target_has_the_readings_of_every_kind_of_server() {
    for (target, expected) in SPELLINGS {
        let found = all(target);
        for reading in *expected {
            assert!(found.iter().any(|path| path == reading), "{target}: no {reading} in {found:?}");
        }
    }
}

#[test]
fn spellings_of_one_path_have_one_folded_reading() {
    for (target, expected) in SPELLINGS.iter().filter(|(_, expected)| expected[0] == "/search") {
        assert_eq!(all(target)[0], expected[0], "{target}");
    }
}

#[test]
fn a_target_is_a_path_a_url_or_a_star() {
    for target in ["/", "/a?b", "*", "http://x/search", "http://x"] {
        assert!(is_target(target), "{target}");
    }
    for text in ["", "a b", "search", "?q", "://x/search", "1http://x/search", "a b://x/search"] {
        assert!(!is_target(text), "{text}");
    }
}

#[test]
fn a_legitimate_escaped_slash_keeps_its_segment() {
    for target in ["/api/v4/projects/group%2Fname/issues", "/@scope%2fpackage"] {
        let found = all(target);
        let upper = target.replace("%2f", "%2F");
        assert!(found.contains(&upper), "{found:?}");
        assert!(found.len() <= 2, "{found:?}");
    }
}

#[test]
fn without_case_readings_are_in_lower_case() {
    let of = |target| readings(target, PathCase::Insensitive);
    assert_eq!(of("/Search?Q"), Readings::One("/search".into()));
    assert_eq!(of("/%53EARCH"), Readings::One("/search".into()));
    assert_eq!(of("/Ä%c3"), Readings::One("/%C3%84%C3".into()));
    assert!(matches!(of("/search"), Readings::One(Cow::Borrowed("/search"))));
    assert!(matches!(readings("/Search", PathCase::Sensitive), Readings::One(Cow::Borrowed("/Search"))));
}

#[test]
fn a_long_or_very_ambiguous_target_is_refused() {
    let long = format!("/{}%2Fb", "a".repeat(AMBIGUOUS_BYTES_MAX));
    assert_eq!(readings(&long, PathCase::Sensitive), Readings::TooMany);
    // A long path with one reading is read.
    let long = format!("/{}%20b", "a".repeat(4 * AMBIGUOUS_BYTES_MAX));
    assert!(matches!(readings(&long, PathCase::Sensitive), Readings::One(_)));
    let hostile = "/a;x\\b//../c%5c%252e%252e;y/d%252f%255c//..%2f..;/e";
    let count = match readings(hostile, PathCase::Sensitive) {
        Readings::Several { others, .. } => others.len() + 1,
        Readings::One(_) => 1,
        Readings::TooMany => READINGS_MAX + 1,
    };
    assert!(count > 8, "{count} readings of {hostile}");
}

#[test]
fn patterns_have_a_canonical_form() {
    for (pattern, expected) in [
        ("/search", "/search"),
        ("/v1/items/{id}", "/v1/items/{id}"),
        ("/files/{*rest}", "/files/{*rest}"),
        ("/v1/*", "/v1/*"),
        ("/v1/a?c", "/v1/a?c"),
        ("/", "/"),
        ("/%73earch", "/search"),
        ("//x", "/x"),
        ("/a/../b", "/b"),
        ("/a/./b", "/a/b"),
        ("/straße", "/stra%C3%9Fe"),
        ("/a%2fb", "/a%2Fb"),
        ("/a b", "/a%20b"),
        ("/a\\b", "/a%5Cb"),
        ("static", "static"),
    ] {
        assert_eq!(canonical_pattern(pattern, PathCase::Sensitive), expected, "{pattern}");
    }
    assert_eq!(canonical_pattern("/Search/{Id}", PathCase::Insensitive), "/search/{id}");
}

#[test]
fn escapes_of_any_depth_are_decoded_in_linear_time() {
    let deep = format!("/%{}2fsearch", "25".repeat(8 * 1024));
    assert_eq!(decoded_fully(deep.as_bytes()), b"//search");
}

proptest! {
    #[test]
    fn readings_are_canonical_bounded_and_stable(
        target in prop_oneof![
            "/[a-cA-C.;/\\\\%25eEfFcC0?#ä]{0,24}",
            r"/(a|\.\.|;|/|%2f|%5c|%252e|%25|\\|%c0%af|\.|x){0,10}",
        ],
    ) {
        for case in [PathCase::Sensitive, PathCase::Insensitive] {
            check_readings(&target, case);
        }
    }
}

/// What holds for every target. The fuzz target uses it too.
fn check_readings(target: &str, case: PathCase) {
    crate::request::path::assert_readings_hold(target, case);
}
