use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::algorithm::bucket::Bucket;
use crate::algorithm::concurrency::Concurrency;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::sliding_log::SlidingLog;
use crate::algorithm::sliding_window::{Counting, SlidingWindow};
use crate::{Answer, Item, Limit, Operation, Plan, Retry, Span, State, Time, Token, Verdict, evaluate};

/// 0, 1, 2, … 31.
const SECRET_HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn counting_up(key_id: u8) -> SubjectHasher {
    SubjectHasher::from_hex(key_id, SECRET_HEX).unwrap()
}

/// The expected text was computed with another implementation of BLAKE3 and SipHash. It must not change: otherwise every
/// subject would lose its state after an update.
#[test]
fn the_text_of_a_key_never_changes() {
    let keyspace = Keyspace::new("shop-prod", "search.per_key").unwrap();
    let parts = [("tenant", "acme"), ("ip", "203.0.113.7")];
    for (key_id, text) in
        [(0, "AAmmpGwVpSRuop3O5zlJeM"), (7, "AHmmpGwVpSRuop3O5zlJeM"), (255, "D_mmpGwVpSRuop3O5zlJeM")]
    {
        let subject = counting_up(key_id).subject(parts);
        assert_eq!(subject.to_string(), text);
        assert_eq!(subject.key_id(), key_id);
    }
    let hasher = counting_up(7);
    let key = keyspace.key_tagged(hasher.subject([parts[0]]), hasher.subject(parts));
    assert_eq!(
        key.to_string(),
        "tg:1:shop-prod:{AHxREeGJLI3tvKl6P6BmWM}:search.per_key:AHmmpGwVpSRuop3O5zlJeM"
    );
}

/// Computed like the text above.
#[test]
fn long_parts_are_hashed_like_short_ones() {
    let (long, longish) = ("x".repeat(500), "u".repeat(100));
    let parts = [("tenant", "acme"), ("ip", long.as_str()), ("user", longish.as_str()), ("z", "w")];
    assert_eq!(counting_up(7).subject(parts).to_string(), "AHIFUibh48C9BfAfmKIfYL");
}

#[test]
fn a_fingerprint_depends_on_the_secret_alone() {
    assert_eq!(counting_up(0).fingerprint(), "d5fb0a99c9796dc8");
    assert_eq!(counting_up(9).fingerprint(), "d5fb0a99c9796dc8");
    let one_bit_off = SECRET_HEX.replace("1f", "1e");
    assert_ne!(SubjectHasher::from_hex(0, &one_bit_off).unwrap().fingerprint(), "d5fb0a99c9796dc8");
}

#[test]
fn subjects_of_different_secrets_or_ids_are_different() {
    let hashers = [SubjectHasher::new([0; 32]), SubjectHasher::new([1; 32]), counting_up(0), counting_up(1)];
    let subjects: Vec<Subject> = hashers.iter().map(|hasher| hasher.subject([("user", "u")])).collect();
    for (index, subject) in subjects.iter().enumerate() {
        assert!(!subjects[..index].contains(subject), "{subjects:?}");
    }
}

#[test]
fn debug_prints_no_secret_and_no_whole_subject() {
    let hashers = SubjectHashers::rotating(counting_up(7), SubjectHasher::with_id(6, [0xab; 32])).unwrap();
    assert_eq!(
        format!("{hashers:?}"),
        "SubjectHashers { current: SubjectHasher { key_id: 7, .. }, previous: Some(SubjectHasher { key_id: 6, .. }) }"
    );
    let subject = counting_up(7).subject([("tenant", "acme"), ("ip", "203.0.113.7")]);
    assert_eq!(
        format!("{subject:?}"),
        subject.to_string()[..10],
        "people see the beginning of the key's text"
    );
}

#[test]
fn a_secret_is_32_bytes_or_64_hexadecimal_digits() {
    let hex = |text: &str| SubjectHasher::from_hex(1, text).map(|hasher| hasher.fingerprint());
    let bytes = |bytes: &[u8]| SubjectHasher::from_bytes(1, bytes).map(|hasher| hasher.fingerprint());
    let whole: Vec<u8> = (0..32).collect();
    for same in
        [hex(SECRET_HEX), hex(&SECRET_HEX.to_uppercase()), hex(&format!(" {SECRET_HEX}\r\n")), bytes(&whole)]
    {
        assert_eq!(same.as_deref(), Ok("d5fb0a99c9796dc8"));
    }
    assert_eq!(bytes(&whole[1..]), Err(SecretError::Bytes { found: 31 }));
    assert_eq!(bytes(&[0; 64]), Err(SecretError::Bytes { found: 64 }));
    assert_eq!(hex(""), Err(SecretError::Length { found: 0 }));
    assert_eq!(hex(&SECRET_HEX[1..]), Err(SecretError::Length { found: 63 }));
    assert_eq!(hex(&SECRET_HEX.replace('e', "g")), Err(SecretError::Digit { at: 30 }));
    assert_eq!(hex(&SECRET_HEX.replace('e', "é")), Err(SecretError::Digit { at: 30 }));
    assert_eq!(hex(&SECRET_HEX.replace("1f", "+1")), Err(SecretError::Digit { at: 63 }));
}

#[test]
fn secret_errors_state_the_format_and_never_repeat_the_input() {
    let error = SubjectHasher::from_hex(1, "hunter2").unwrap_err().to_string();
    assert!(
        error.contains("7 characters, expected 64 hexadecimal digits") && !error.contains("hunter"),
        "{error}"
    );
    let error = SubjectHasher::from_bytes(1, b"hunter2").unwrap_err().to_string();
    assert!(error.contains("7 bytes, expected 32") && !error.contains("hunter"), "{error}");
}

#[test]
fn keys_of_a_rotation_must_differ_in_id_and_secret() {
    let old = SubjectHasher::with_id(1, [1; 32]);
    let change = |id, secret| SubjectHashers::rotating(SubjectHasher::with_id(id, secret), old.clone());
    assert_eq!(change(1, [2; 32]).unwrap_err(), RotationError::SameId { key_id: 1 });
    assert_eq!(change(2, [1; 32]).unwrap_err(), RotationError::SameSecret);
    let both = change(2, [2; 32]).unwrap();
    assert_eq!(both.iter().map(SubjectHasher::key_id).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(SubjectHashers::from(old).iter().map(SubjectHasher::key_id).collect::<Vec<_>>(), [1]);
}

#[test]
fn invalid_keys_are_rejected() {
    let subject = "D_mmpGwVpSRuop3O5zlJeM";
    let whole = format!("tg:1:shop:{{{subject}}}:rule:{subject}");
    assert!(whole.parse::<StoredKey>().is_ok());
    for (from, to) in [
        ("tg:", "th:"),
        ("tg:1", "tg:2"),
        ("tg:1", "tg:01"),
        ("tg:1", "tg:+1"),
        (":shop", ":"),
        (":shop", ":sh op"),
        (":shop", ""),
        (":rule:", ":rule::"),
        (":{", ":"),
        ("}:", ":"),
        // The same bits and more: two texts for one key.
        ("{D", "{E"),
        ("{D", "{"),
        ("{D", "{DA"),
        ("{D", "{AD"),
        ("lJeM}", "lJe+}"),
        ("lJeM}", "lJé}"),
    ] {
        let changed = whole.replacen(from, to, 1);
        assert_ne!(changed, whole);
        assert!(changed.parse::<StoredKey>().is_err(), "{changed}");
    }
    assert!(format!("{whole}:").parse::<StoredKey>().is_err());
    assert_eq!(format!("{whole}=").parse::<StoredKey>(), Err(KeyParseError::Subject(SubjectParseError)));
}

/// Cuts the text at these positions into one or two pairs.
fn parts<'t>(text: &'t str, cuts: &[prop::sample::Index]) -> Vec<(&'t str, &'t str)> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
    cuts.sort_unstable();
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([text.len()]);
    let pieces: Vec<&str> = starts.zip(ends).map(|(start, end)| &text[start..end]).collect();
    pieces.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    let cut = any::<prop::sample::Index>;
    prop_oneof![prop::collection::vec(cut(), 1), prop::collection::vec(cut(), 3)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The same text, cut into different parts.
    #[test]
    fn different_parts_never_give_equal_subjects(text in "[ab:\0]{0,5}", left in cuts(), right in cuts()) {
        let hasher = SubjectHasher::new([3; 32]);
        let (left, right) = (parts(&text, &left), parts(&text, &right));
        let is_same = hasher.subject(left.iter().copied()) == hasher.subject(right.iter().copied());
        prop_assert_eq!(left == right, is_same);
    }

    #[test]
    fn a_key_round_trips_through_its_text(namespace in "[a-zA-Z0-9_.-]{1,64}", rule in "[a-zA-Z0-9_.-]{1,64}", tag: u128, subject: u128) {
        let keyspace = Keyspace::new(&namespace, &rule).unwrap();
        let key = keyspace.key_tagged(Subject::from_u128(tag), Subject::from_u128(subject));
        let stored: StoredKey = key.to_string().parse().unwrap();
        prop_assert_eq!(stored.key(), key);
        prop_assert_eq!(stored.key().fingerprint(), key.fingerprint());
    }
}

/// One limit of one subject in one store that several servers use.
struct SharedLimit {
    keyspace: Keyspace,
    limit: Limit,
    states: HashMap<u128, State>,
    checks: u128,
}

/// What a caller gets: the retry instant if refused, and what remains. The stricter of two answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct StricterAnswer {
    wait_until: Option<Retry>,
    remaining: u64,
}

impl SharedLimit {
    fn new(limit: Limit) -> SharedLimit {
        SharedLimit {
            keyspace: Keyspace::new("test", "rule").unwrap(),
            limit,
            states: HashMap::new(),
            checks: 0,
        }
    }

    fn apply(&mut self, hashers: &SubjectHashers, now: Time, operation: Operation) -> Vec<Answer> {
        let mut plan = Plan::new();
        for hasher in hashers.iter() {
            let key = self.keyspace.key(hasher.subject([("user", "u")]));
            plan.push(Item::new(key, self.limit, operation)).unwrap();
        }
        let keys: Vec<u128> = plan.items().iter().map(|item| item.key.fingerprint()).collect();
        let found = evaluate(&plan, now, |index| self.states.get(&keys[index]));
        for (index, write) in found.writes {
            let mut slot = self.states.remove(&keys[index]);
            State::commit(&mut slot, write.change);
            self.states.extend(slot.map(|state| (keys[index], state)));
        }
        found.outcome.answers.to_vec()
    }

    fn charge(&mut self, hashers: &SubjectHashers, now: Time, cost: u64) -> StricterAnswer {
        self.checks += 1;
        let answers = self.apply(hashers, now, Operation::Charge { cost, token: Token(self.checks) });
        let waits = answers.iter().filter_map(|answer| match answer.verdict {
            Verdict::Refused(retry) => Some(retry),
            _ => None,
        });
        let wait_until = waits.max_by_key(|retry| match retry {
            Retry::At(at) => *at,
            Retry::Never => Time::MAX,
        });
        let remaining = answers.iter().map(|answer| answer.remaining).min().unwrap();
        StricterAnswer { wait_until, remaining }
    }

    /// Counts how many units are admitted at once.
    fn burst(&mut self, hashers: &SubjectHashers, now: Time) -> usize {
        std::iter::repeat_with(|| self.charge(hashers, now, 1))
            .take_while(|answer| answer.wait_until.is_none())
            .count()
    }
}

/// The steps of a rotation: the old key, both keys, the new key.
fn steps() -> [SubjectHashers; 3] {
    let (old, new) = (SubjectHasher::with_id(1, [1; 32]), SubjectHasher::with_id(2, [2; 32]));
    [old.clone().into(), SubjectHashers::rotating(new.clone(), old).unwrap(), new.into()]
}

const WINDOW_US: u64 = 600;
const BUCKETS: u64 = 4;

/// Limits whose charges stop counting after a fixed time, and that time.
fn limits_with_memory(limit: u64) -> [(Limit, u64); 5] {
    let window = Span::from_us(WINDOW_US);
    let sliding =
        |counting| Limit::SlidingWindow(SlidingWindow::new(limit, window, BUCKETS, counting).unwrap());
    [
        (Limit::FixedWindow(FixedWindow::new(limit, window).unwrap()), WINDOW_US),
        (sliding(Counting::Strict), WINDOW_US + WINDOW_US / BUCKETS),
        (sliding(Counting::Interpolated), WINDOW_US + WINDOW_US / BUCKETS),
        (Limit::SlidingLog(SlidingLog::new(limit, window).unwrap()), WINDOW_US),
        // The end of a lease is rounded up to 1/32 of its length.
        (Limit::Concurrency(Concurrency::new(limit, window).unwrap()), WINDOW_US + WINDOW_US.div_ceil(32)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each of three servers takes both steps of the rotation at a different instant.
    #[test]
    fn a_key_rotation_changes_no_answer(
        limit in 1..9_u64,
        arrivals in prop::collection::vec((0..60_u64, 1..=3_u64, 0..3_usize), 1..150),
        first in prop::array::uniform3(0..1_500_u64),
        second in prop::array::uniform3(prop_oneof![Just(0), 0..1_500_u64]),
    ) {
        let steps = steps();
        let all_have_both = first.into_iter().max().unwrap();
        for (limit, forgets_after) in limits_with_memory(limit) {
            let (mut rotated, mut unchanged) = (SharedLimit::new(limit), SharedLimit::new(limit));
            let mut now = 0;
            for &(later, cost, server) in &arrivals {
                now += later;
                let ends = all_have_both + forgets_after + second[server];
                let step = usize::from(now >= first[server]) + usize::from(now >= ends);
                let (at, cost) = (Time::from_us(1_700_000_000_000_000 + now), cost.min(limit.capacity()));
                let answer = rotated.charge(&steps[step], at, cost);
                prop_assert_eq!(answer, unchanged.charge(&steps[0], at, cost), "{:?} at {}", limit, now);
            }
        }
    }
}

#[test]
fn after_a_rotation_a_bucket_admits_extra_at_most_its_old_debt_and_nothing_if_it_drained() {
    let [old, both, new] = steps();
    let limit = Limit::Bucket(Bucket::tokens(1, Span::from_secs(1), 10).unwrap());
    let second = |s: u64| Time::from_us(1_700_000_000_000_000 + s * 1_000_000);

    let mut busy = SharedLimit::new(limit);
    assert_eq!(busy.burst(&old, second(0)), 10);
    for s in 1..=1_000 {
        assert_eq!(busy.burst(&both, second(s)), 1, "same as without a rotation");
    }
    let remaining: Vec<u64> =
        busy.apply(&both, second(1_000), Operation::Peek { cost: 0 }).iter().map(|a| a.remaining).collect();
    assert_eq!(remaining, [9, 0], "the difference shows what dropping the old key would admit");
    assert_eq!(busy.burst(&new, second(1_000)), 9);

    let mut paused = SharedLimit::new(limit);
    assert_eq!(paused.burst(&old, second(0)), 10);
    assert_eq!(paused.burst(&both, second(5)), 5);
    assert_eq!(paused.burst(&both, second(15)), 10);
    assert_eq!(paused.burst(&new, second(15)), 0);
    assert_eq!(paused.burst(&new, second(18)), 3);
}
