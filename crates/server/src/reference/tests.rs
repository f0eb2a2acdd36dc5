use std::time::Instant;

use proptest::prelude::*;
use tollgate::core::decision::Source;
use tollgate::core::{Algorithm, Exactness, Subject};
use tollgate::{LocalLimiter, ManualClock};

use super::*;

const RULES: &str = "
version: 1
rules:
  - { id: burst, per: user, limit: { token-bucket: 2/s, burst: 2 } }
  - { id: day, per: user, limit: { fixed-window: 1/d } }
  - { id: trial, per: user, mode: shadow, limit: { fixed-window: 1/h } }
overrides:
  - { when: { plan: pro }, rule: day, limit: { fixed-window: 2/d } }
";
const FINGERPRINT: &str = "80bc55d6a1f0c317";

fn references(key_id: u8, secret: u8) -> References {
    let hasher = SubjectHasher::with_id(key_id, [secret; 32]);
    References::new(&hasher.into(), "api-eu-1").expect("keys")
}

fn refused() -> Decision {
    let limiter =
        LocalLimiter::builder().rules_yaml(RULES).clock(ManualClock::default()).build().expect("rules");
    let request = [("user", "u")];
    assert!(limiter.check(request).expect("a decision").allowed());
    limiter.check(request).expect("a decision")
}

fn refusal() -> impl Strategy<Value = Refusal> {
    let numbers = (any::<u64>(), any::<u64>(), proptest::option::of(0..u64::MAX), any::<u64>());
    let numbers = numbers.prop_map(|(limit, remaining, retry_after_ms, reset_at_ms)| RuleNumbers {
        limit,
        remaining,
        retry_after_ms,
        reset_at_ms,
    });
    let algorithm = proptest::option::of(proptest::sample::select(Algorithm::ALL.to_vec()));
    let rule = ("[a-z0-9-]{1,64}", algorithm, any::<u64>(), any::<bool>(), proptest::option::of(numbers));
    let rule = rule.prop_map(|(rule, algorithm, cost, is_override, numbers)| RefusingRule {
        rule,
        algorithm,
        cost,
        is_override,
        numbers,
    });
    let rules = proptest::collection::vec(rule, 0..=4);
    let subject = proptest::option::of(any::<u128>().prop_map(|bits| Subject::from_u128(bits).prefix()));
    let source = proptest::sample::select(vec![Source::Store, Source::Fallback, Source::List, Source::Rule]);
    (any::<u64>(), any::<u64>(), source, subject, rules, any::<u64>()).prop_map(
        |(at_us, fingerprint, source, subject, refused_by, more)| Refusal {
            at_us,
            server: "api-eu-1".to_owned(),
            rules_fingerprint: format!("{fingerprint:016x}"),
            source,
            exactness: Exactness::Bounded,
            subject,
            refused_by,
            more,
        },
    )
}

proptest! {
    #[test]
    fn a_refusal_is_read_back_as_it_was_and_its_text_is_bounded(refusal in refusal()) {
        let references = references(3, 7);
        let text = references.of_refusal(&refusal).expect("it is sealed");
        prop_assert!(text.len() <= TEXT_LEN_MAX, "{}", text.len());
        prop_assert!(is_reference(&text) && text.bytes().all(|byte| byte.is_ascii_graphic()));
        prop_assert_eq!(references.open(&text), Ok(refusal));
    }

    #[test]
    fn any_text_is_opened_or_declined(text in "\\PC{0,80}", bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        let references = references(3, 7);
        prop_assert!(references.open(&text).is_err());
        let forged = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
        prop_assert!(references.open(&forged).is_err());
    }
}

#[test]
fn the_reference_of_a_decision_has_its_numbers() {
    let (references, decision) = (references(3, 7), refused());
    let text = references.of(&decision, FINGERPRINT).expect("it is refused");
    let refusal = references.open(&text).expect("it opens");
    let headline = decision.headline().expect("a rule refused");
    let outcome = headline.outcome().numbers.expect("numbers");
    assert_eq!(refusal.server, "api-eu-1");
    assert_eq!(refusal.rules_fingerprint, FINGERPRINT);
    assert_eq!(refusal.at_us, decision.decided_at().us());
    assert_eq!((refusal.source, refusal.exactness), (Source::Store, Exactness::Exact));
    assert_eq!(refusal.subject, headline.subject().map(|subject| subject.prefix()));
    let [rule] = &refusal.refused_by[..] else { panic!("{refusal:?}") };
    assert_eq!((rule.rule.as_str(), rule.algorithm, rule.cost), ("day", Some(Algorithm::FixedWindow), 1));
    let numbers = rule.numbers.expect("numbers");
    assert_eq!((numbers.limit, numbers.remaining), (1, 0));
    assert_eq!(numbers.reset_at_ms, outcome.reset_at_ms);
    assert_eq!(numbers.retry_after_ms, decision.retry_after().map(|wait| wait.as_millis() as u64));
    assert!(!rule.is_override && refusal.more == 0);
}

#[test]
fn an_admission_has_no_reference_and_no_two_references_are_equal() {
    let limiter = LocalLimiter::from_yaml(RULES).expect("rules");
    let references = references(3, 7);
    assert_eq!(references.of(&limiter.check([("user", "u")]).expect("a decision"), FINGERPRINT), None);
    let decision = refused();
    assert_ne!(references.of(&decision, FINGERPRINT), references.of(&decision, FINGERPRINT));
}

#[test]
fn a_changed_reference_is_declined() {
    let references = references(3, 7);
    let text = references.of(&refused(), FINGERPRINT).expect("it is refused");
    for index in PREFIX.len()..text.len() {
        let changed = if text.as_bytes()[index] == b'A' { "B" } else { "A" };
        let changed = format!("{}{changed}{}", &text[..index], &text[index + 1..]);
        assert!(references.open(&changed).is_err(), "{index}");
        assert!(references.open(&text[..index]).is_err(), "{index}");
    }
    assert_eq!(references.open(&text[PREFIX.len()..]), Err(ReferenceError::NotAReference));
    assert_eq!(references.open(&format!("{text}AAAA")), Err(ReferenceError::Forged));
}

#[test]
fn a_reference_opens_only_with_the_hash_key_that_made_it() {
    let text = references(3, 7).of(&refused(), FINGERPRINT).expect("it is refused");
    assert_eq!(references(4, 7).open(&text), Err(ReferenceError::OtherKey { found: 3 }));
    assert_eq!(references(3, 8).open(&text), Err(ReferenceError::Forged));
    let (new, old) = (SubjectHasher::with_id(4, [8; 32]), SubjectHasher::with_id(3, [7; 32]));
    let rotated = SubjectHashers::rotating(new, old.clone()).expect("two keys");
    assert!(References::new(&rotated, "b").expect("keys").open(&text).is_ok(), "the previous key opens it");
    assert!(open_with(&old, &text).is_ok(), "the key is enough");
}

/// `cargo test --release -p tollgate-server --lib a_reference_is_short -- --nocapture` prints the time too.
#[test]
fn a_reference_is_short() {
    const ROUNDS: u32 = 10_000;
    let (references, decision) = (references(3, 7), refused());
    let began = Instant::now();
    for _ in 0..ROUNDS {
        std::hint::black_box(references.of(&decision, FINGERPRINT));
    }
    let took = began.elapsed() / ROUNDS;
    let text = references.of(&decision, FINGERPRINT).expect("it is refused");
    println!("{took:?} a reference of {} characters", text.len());
    assert!(text.len() <= 160, "{text}");
}
