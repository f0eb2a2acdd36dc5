use std::sync::LazyLock;

use proptest::prelude::*;
use tollgate_core::rules::Exclusion;
use tollgate_core::rules::condition::PathPattern;

use super::*;
use tollgate_document::{Text, Value};

/// A condition and its source node.
#[derive(Clone, Debug)]
struct Written {
    core: Condition,
    node: Node,
}

fn written(test: Test, text: &str) -> Written {
    let value = Value::Text(Text { text: text.to_owned(), quoted: true });
    Written {
        core: Condition { attribute: "path".to_owned(), test },
        node: Node { value, span: SourceSpan::default() },
    }
}

fn path(text: &str) -> Written {
    written(Test::Path(PathPattern::parse(text).unwrap()), text)
}

fn glob(text: &str) -> Written {
    written(Test::Glob(text.to_owned()), text)
}

fn prefix(text: &str) -> Written {
    written(Test::Prefix(text.to_owned()), text)
}

fn values(texts: &[&str]) -> Written {
    written(Test::OneOf(texts.iter().map(|&text| text.to_owned()).collect()), "")
}

fn except(base: &Written, excluded: &[&Written]) -> Written {
    let excluded = excluded.iter().map(|each| each.core.test.clone());
    written(Test::Except(Box::new(Exclusion::new(base.core.test.clone(), excluded))), "")
}

impl Written {
    fn condition(&self) -> WrittenCondition<'_> {
        WrittenCondition::new(&self.core, &self.node, SourceSpan::default())
    }

    fn holds(&self, text: &str) -> bool {
        self.core.test.holds(text)
    }
}

fn overlap(one: &Written, other: &Written) -> Option<bool> {
    ComparisonBudget::new().overlap(&one.condition(), &other.condition())
}

fn implies(known: &Written, asked: &Written) -> bool {
    ComparisonBudget::new().implies(&known.condition(), &asked.condition())
}

#[test]
fn conditions_overlap_if_a_text_passes_both() {
    for (one, other, expected) in [
        (values(&["a", "b"]), values(&["b", "c"]), true),
        (values(&["a"]), values(&["b"]), false),
        (values(&["/v1/x"]), path("/v1/{id}"), true),
        (prefix("/v1"), prefix("/v1/items"), true),
        (prefix("/v1"), prefix("/v2"), false),
        (glob("*.php"), prefix("/admin"), true),
        (glob("/a*b"), glob("/a*c"), false),
        (glob("/?x*"), glob("*y"), true),
        (path("/a/{x}"), path("/{y}/b"), true),
        (path("/a/{x}"), path("/a"), false),
        (path("/a/{x}"), path("/a/{*rest}"), true),
        (path("/a/{x}"), prefix("/a/b/"), false),
        (path("/a/{x}"), glob("/a/*?page=2"), true),
        (path("/a/{x}"), glob("/a/"), false),
    ] {
        assert_eq!(overlap(&one, &other), Some(expected), "{one:?} {other:?}");
        assert_eq!(overlap(&other, &one), Some(expected), "{other:?} {one:?}");
    }
}

#[test]
fn a_narrower_condition_implies_a_wider_one() {
    for (known, asked, expected) in [
        (values(&["a"]), values(&["a", "b"]), true),
        (values(&["a", "b"]), values(&["a"]), false),
        (values(&["/v1/x"]), prefix("/v1"), true),
        (prefix("/v1/items"), prefix("/v1"), true),
        (prefix("/v1"), prefix("/v1/items"), false),
        (glob("/v1/*/x"), prefix("/v1/"), true),
        (path("/v1/{id}"), prefix("/v1/"), true),
        (path("/v1/{id}"), prefix("/v1/{"), false),
        (path("/v1/{id}"), path("/{version}/{item}"), true),
        (path("/v1/{id}"), path("/v1/{*rest}"), true),
        (path("/v1/{*rest}"), path("/v1/{id}"), false),
        (path("/v1/"), path("/v1/{*rest}"), false),
        (path("/v1"), path("/v1/{*rest}"), false),
    ] {
        assert_eq!(implies(&known, &asked), expected, "{known:?} {asked:?}");
    }
}

#[test]
fn an_exclusion_is_compared_without_guessing() {
    let all_but_v1 = except(&prefix("/"), &[&prefix("/v1"), &values(&["/x"])]);
    for (other, expected) in [
        (values(&["/x", "/v1/y"]), Some(false)),
        (values(&["/x", "/y"]), Some(true)),
        (prefix("/v1"), Some(false)),
        (except(&prefix("/v1"), &[&values(&["/v1/a"])]), Some(false)),
        (prefix("a"), Some(false)),
        (prefix("/v2"), None),
        (except(&prefix("/v2"), &[&values(&["/v2/a"])]), None),
    ] {
        assert_eq!(overlap(&all_but_v1, &other), expected, "{other:?}");
        assert_eq!(overlap(&other, &all_but_v1), expected, "{other:?}");
    }
    for (known, asked, expected) in [
        (all_but_v1.clone(), prefix("/"), true),
        (all_but_v1.clone(), prefix("/v2"), false),
        (values(&["/y"]), all_but_v1.clone(), true),
        (values(&["/x"]), all_but_v1.clone(), false),
        (prefix("/"), all_but_v1.clone(), false),
        (prefix("/v2"), all_but_v1.clone(), false),
        (all_but_v1.clone(), all_but_v1.clone(), true),
    ] {
        assert_eq!(implies(&known, &asked), expected, "{known:?} {asked:?}");
    }
}

#[test]
fn a_comparison_beyond_the_budget_is_unknown() {
    let (one, other) = (glob(&"a*".repeat(10_000)), glob(&"*b".repeat(10_000)));
    let budget = ComparisonBudget::new();
    assert_eq!(budget.overlap(&one.condition(), &other.condition()), None);
    assert!(budget.is_used_up());
    assert!(!budget.implies_all(&[&one.condition()], &[one.condition()]), "a spent budget stays spent");
}

/// All texts of up to seven characters. If two patterns of [`any_condition`] overlap, one of these texts passes both:
/// the longest is a path of four characters with a query of three.
static TEXTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut texts = vec![String::new()];
    let mut from = 0;
    for _ in 0..7 {
        let to = texts.len();
        for at in from..to {
            texts.extend(['a', 'b', '/', '?'].map(|c| format!("{}{c}", texts[at])));
        }
        from = to;
    }
    texts
});

fn any_condition() -> impl Strategy<Value = Written> {
    let text = "[ab/]{0,2}";
    prop_oneof![
        prop::collection::vec(text, 1..3)
            .prop_map(|texts| values(&texts.iter().map(String::as_str).collect::<Vec<_>>())),
        text.prop_map(|text| prefix(&text)),
        "[ab/*?]{0,3}".prop_map(|text| glob(&text)),
        prop::collection::vec(prop_oneof!["[ab]{0,1}", Just("{x}".to_owned())], 1..3)
            .prop_map(|parts| path(&format!("/{}", parts.join("/")))),
        "[ab]{0,1}".prop_map(|part| path(&format!("/{part}/{{*rest}}"))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn overlap_and_implies_agree_with_trying_every_text(one in any_condition(), other in any_condition()) {
        let common = TEXTS.iter().any(|text| one.holds(text) && other.holds(text));
        prop_assert_eq!(overlap(&one, &other), Some(common));
        if implies(&one, &other) {
            let only_one = TEXTS.iter().find(|text| one.holds(text) && !other.holds(text));
            prop_assert_eq!(only_one, None);
        }
    }
}
