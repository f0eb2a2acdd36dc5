//! Which live change applies, and how it compares with what applied before.

use tollgate_core::rules::{Request, RuleLimit};
use tollgate_core::{Attributes, Limit, SubjectHasher};

use super::*;
use crate::rules::load;

const RULES: &str = "
version: 1
attributes: { tenant: {}, plan: {}, api_key: {}, card: { secret: true }, action: {} }
rules:
  - { id: search, match: { action: search }, per: tenant, limit: { fixed-window: 10/h } }
  - { id: wait, match: { action: wait }, per: tenant, limit: { penalty: 10s } }
  - { id: closed, match: { action: closed }, per: tenant, limit: deny }
overrides:
  - { when: { plan: pro }, rule: search, limit: { fixed-window: 20/h } }
  - { when: { plan: none }, rule: search, limit: deny }
";

fn rules(text: &str) -> RuleSet {
    let source = Source::new("rules.yaml", text.as_bytes());
    let mut problems = Problems::new();
    let rules = load(&source, &mut problems);
    rules.unwrap_or_else(|| panic!("{:?}", problems.in_order()))
}

fn hashers() -> SubjectHashers {
    SubjectHasher::new([7; 32]).into()
}

fn text<'a>(text: &'a str, until_us: Option<u64>) -> LiveText<'a> {
    LiveText { id: "o-1", text, until: until_us.map(Time::from_us), reason: "why" }
}

/// The units of the limit that applies to a request; `None` if it is denied.
fn limit_of(rules: &RuleSet, pairs: &[(&str, &str)], now_us: u64) -> Option<u64> {
    let attributes: Attributes<'_> = pairs.iter().copied().collect();
    let explained =
        rules.explain(&Request::new(&attributes), &SubjectHasher::new([7; 32]), Time::from_us(now_us));
    match explained[0].limit {
        RuleLimit::Fixed(Limit::FixedWindow(window)) => Some(window.limit()),
        RuleLimit::Deny => None,
        other => panic!("{other:?}"),
    }
}

fn with(base: &RuleSet, overrides: &[(&str, Option<u64>)]) -> RuleSet {
    let hashers = hashers();
    let reader = LiveReader::new(base, &hashers);
    let read = |(spec, until): &(&str, Option<u64>)| reader.read_override(text(spec, *until)).expect(spec);
    let overrides = overrides.iter().map(read).collect();
    base.with_live(LiveChanges { overrides, ..LiveChanges::default() }).expect("they fit")
}

#[test]
fn an_override_that_scales_multiplies_what_would_otherwise_apply() {
    let base = rules(RULES);
    let scaled = with(&base, &[(r#"{"rule":"search","when":{"tenant":"acme"},"scale":"2"}"#, None)]);
    for (pairs, expected) in [
        (&[("tenant", "acme")][..], Some(20)),
        (&[("tenant", "acme"), ("plan", "pro")], Some(40)),
        (&[("tenant", "acme"), ("plan", "none")], None),
        (&[("tenant", "other")], Some(10)),
        (&[("tenant", "other"), ("plan", "pro")], Some(20)),
    ] {
        assert_eq!(limit_of(&scaled, pairs, 1), expected, "{pairs:?}");
    }
    // The same written in the file.
    let in_file = rules(&format!("{RULES}  - {{ when: {{ tenant: acme }}, rule: search, scale: 3 }}\n"));
    assert_eq!(limit_of(&in_file, &[("tenant", "acme")], 1), Some(30));
    assert_eq!(
        limit_of(&in_file, &[("tenant", "acme"), ("plan", "pro")], 1),
        Some(60),
        "the later of equals wins"
    );
    let live_and_file = with(&in_file, &[(r#"{"rule":"search","when":{"plan":"pro"},"scale":"2"}"#, None)]);
    assert_eq!(limit_of(&live_and_file, &[("tenant", "acme"), ("plan", "pro")], 1), Some(120));
}

#[test]
fn live_overrides_come_before_those_of_the_file_and_among_them_ends_conditions_and_the_newest_count() {
    let base = rules(RULES);
    let one = |limit: u64, conditions: &str| {
        format!(r#"{{"rule":"search","when":{{{conditions}}},"limit":{{"fixed-window":"{limit}/h"}}}}"#)
    };
    let acme = [("tenant", "acme"), ("plan", "pro"), ("action", "search")];
    for (overrides, now_us, expected) in [
        // Fewer conditions than the file's, and still before it.
        (vec![(one(7, ""), None)], 1, 7),
        (vec![(one(7, r#""tenant":"acme""#), None), (one(8, r#""plan":"pro""#), None)], 1, 8),
        (vec![(one(8, r#""plan":"pro""#), None), (one(7, r#""tenant":"acme""#), None)], 1, 7),
        (vec![(one(7, r#""tenant":"acme","plan":"pro""#), None), (one(8, r#""plan":"pro""#), None)], 1, 7),
        (vec![(one(7, r#""tenant":"acme","plan":"pro""#), None), (one(8, r#""plan":"pro""#), Some(5))], 4, 8),
        (vec![(one(7, r#""tenant":"acme","plan":"pro""#), None), (one(8, r#""plan":"pro""#), Some(5))], 5, 7),
        (vec![(one(7, r#""tenant":"acme""#), Some(5))], 5, 20),
    ] {
        let overrides: Vec<(&str, Option<u64>)> =
            overrides.iter().map(|(text, until)| (text.as_str(), *until)).collect();
        assert_eq!(limit_of(&with(&base, &overrides), &acme, now_us), Some(expected), "{overrides:?}");
    }
    // A scale multiplies the live override below it, but not another scale.
    let scale = |factor: &str| {
        format!(r#"{{"rule":"search","when":{{"tenant":"acme","plan":"pro"}},"scale":"{factor}"}}"#)
    };
    let (limit, two, three) = (one(7, r#""tenant":"acme""#), scale("2"), scale("3"));
    let all = with(&base, &[(&limit, None), (&two, None), (&three, None)]);
    assert_eq!(limit_of(&all, &acme, 1), Some(21));
    // A scale that ends first.
    let ends = with(&base, &[(&limit, Some(9)), (&two, Some(5))]);
    assert_eq!(
        (limit_of(&ends, &acme, 4), limit_of(&ends, &acme, 5), limit_of(&ends, &acme, 9)),
        (Some(14), Some(7), Some(20))
    );
}

#[test]
fn an_effect_compares_with_all_that_an_override_replaces() {
    let base = rules(RULES);
    let hashers = hashers();
    let reader = LiveReader::new(&base, &hashers);
    for (spec, expected) in [
        (r#"{"rule":"search","when":{"tenant":"acme"},"limit":{"fixed-window":"30/h"}}"#, "raises"),
        (r#"{"rule":"search","when":{"tenant":"acme"},"limit":{"fixed-window":"15/h"}}"#, "mixed"),
        (r#"{"rule":"search","when":{"tenant":"acme"},"limit":{"fixed-window":"5/h"}}"#, "mixed"),
        (r#"{"rule":"search","when":{"plan":"free"},"limit":{"fixed-window":"15/h"}}"#, "raises"),
        (r#"{"rule":"search","when":{"plan":"free"},"limit":{"fixed-window":"5/h"}}"#, "lowers"),
        (r#"{"rule":"search","when":{"plan":"free"},"limit":{"fixed-window":"10/h"}}"#, "raises"),
        (r#"{"rule":"search","when":{"plan":"free"},"limit":"deny"}"#, "lowers"),
        (r#"{"rule":"search","when":{"plan":"free"},"scale":"2"}"#, "raises"),
        (r#"{"rule":"search","when":{"plan":"free"},"scale":"0.5"}"#, "lowers"),
    ] {
        let (rule, draft) = reader.read_override(text(spec, None)).expect(spec);
        assert_eq!(reader.effect_of(&rule, &draft).name(), expected, "{spec}");
    }
}

#[test]
fn what_does_not_fit_the_rules_is_refused_with_the_fix() {
    let base = rules(RULES);
    let hashers = hashers();
    let reader = LiveReader::new(&base, &hashers);
    for (spec, words) in [
        (r#"{"rule":"serch","when":{"tenant":"a"},"scale":"2"}"#, "did you mean `search`?"),
        (r#"{"rule":"wait","when":{"tenant":"a"},"scale":"2"}"#, "cannot be scaled"),
        (r#"{"rule":"closed","when":{"tenant":"a"},"scale":"2"}"#, "denies everything"),
        (r#"{"rule":"search","when":{"tenant":"a"},"scale":"0"}"#, "invalid scale"),
        (
            r#"{"rule":"search","when":{"tenant":"a"},"limit":{"token-bucket":"1/s"}}"#,
            "changes the algorithm",
        ),
        (r#"{"rule":"search","when":{"tenant":"a"},"limit":{"fixed-window":"1"}}"#, "fixed-window"),
        (r#"{"rule":"search","when":{"tenant":"a"}}"#, "either a `limit` or a `scale`"),
        (r#"{"rule":"search","when":{"ip":"300.0.0.1"},"scale":"2"}"#, "`ip`"),
        (r#"{"rule":"search","when":{"tenant":{"hashed":["x"]}},"scale":"2"}"#, "invalid hash"),
        ("{", "change"),
    ] {
        let error = reader.read_override(text(spec, None)).expect_err(spec);
        assert!(error.contains(words) || words == "change", "{spec}: {error}");
    }
    let long = "A".repeat(23);
    for hash in ["AAAA", &long, "AAAAAAAA!!", ""] {
        let spec = format!(r#"{{"rule":"search","subject":"{hash}"}}"#);
        let error = reader.read_entry("deny", text(&spec, None)).expect_err("it is no hash");
        assert!(error.contains("invalid subject"), "{error}");
    }
}

#[test]
fn secrets_and_subjects_are_found_by_their_hashes() {
    let base = rules(RULES);
    let hashers = hashers();
    let hash = |name: &str, value: &str| hashers.current().subject([(name, value)]).to_string();
    let spec = format!(
        r#"{{"rule":"search","when":{{"api_key":{{"hashed":["{}"]}}}},"scale":"2"}}"#,
        hash("api_key", "k-1")
    );
    let live = with(&base, &[(&spec, None)]);
    assert_eq!(limit_of(&live, &[("tenant", "a"), ("api_key", "k-1")], 1), Some(20));
    assert_eq!(limit_of(&live, &[("tenant", "a"), ("api_key", "k-2")], 1), Some(10));
    assert_eq!(limit_of(&live, &[("tenant", "k-1")], 1), Some(10));
    let preparation = base.preparation();
    assert!(
        preparation.is_secret("card") && preparation.is_secret("api_key") && !preparation.is_secret("tenant")
    );
    // The whole hash, or the beginning that logs show.
    let whole = hash("tenant", "acme");
    let other = hash("tenant", "other");
    for subject in [&whole[..10], &whole] {
        let reader = LiveReader::new(&base, &hashers);
        let spec = format!(r#"{{"rule":"search","subject":"{subject}"}}"#);
        let deny = vec![reader.read_entry("deny", text(&spec, Some(5))).expect("it is valid")];
        let live = base.with_live(LiveChanges { deny, ..LiveChanges::default() }).expect("it fits");
        let denied = |pairs: &[(&str, &str)], now_us| {
            let attributes: Attributes<'_> = pairs.iter().copied().collect();
            let planned = live.plan(&Request::new(&attributes), &hashers, Time::from_us(now_us));
            matches!(planned, Ok(tollgate_core::rules::Planned::Denied(_)))
        };
        assert!(!live.is_time_independent(), "the entry has an end");
        assert!(denied(&[("action", "search"), ("tenant", "acme")], 4));
        assert!(!denied(&[("action", "search"), ("tenant", "acme")], 5), "it has ended");
        assert!(!denied(&[("action", "search"), ("tenant", "other")], 4), "{other}");
        assert!(!denied(&[("action", "closed"), ("tenant", "acme")], 4), "another rule");
    }
}
