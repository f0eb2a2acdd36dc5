use std::collections::HashMap;

use proptest::prelude::*;
use tollgate::core::Mark;
use tollgate::core::decision::RetryAfter;
use tollgate::{LocalLimiter, ManualClock};

use super::*;

fn subject(number: u64) -> Subject {
    Subject::from_u128(number.into())
}

proptest! {
    #[test]
    fn counts_are_never_too_low_and_frequent_subjects_are_never_missing(
        // Most subjects of a small range, and many others.
        adds in proptest::collection::vec((prop_oneof![0_u64..8, 0_u64..400], 1_u64..4), 0..3_000),
    ) {
        let (mut sketch, mut exact) = (SpaceSaving::default(), HashMap::<u64, u64>::new());
        for &(number, weight) in &adds {
            sketch.add(subject(number), weight, || None);
            *exact.entry(number).or_default() += weight;
        }
        let total: u64 = exact.values().sum();
        prop_assert!(sketch.list().len() <= SUBJECTS_MAX);
        for counted in sketch.list() {
            let count = exact[&(counted.subject.to_u128() as u64)];
            prop_assert!(counted.count >= count && counted.count - counted.error <= count, "{counted:?} {count}");
        }
        for (&number, &count) in &exact {
            let is_listed = sketch.list().iter().any(|counted| counted.subject == subject(number));
            prop_assert!(is_listed || count <= total / SUBJECTS_MAX as u64, "{number} {count} {total}");
        }
    }
}

fn numbers(limit: u64, remaining: u64, now_ms: u64, reset_after_ms: u64) -> Numbers {
    Numbers {
        limit,
        remaining,
        retry_after: RetryAfter::Ms(0),
        reset_at_ms: now_ms + reset_after_ms,
        reset_after_ms,
        delay_ms: 0,
        mark: Mark::None,
    }
}

#[test]
fn the_subjects_nearest_to_their_limit_stay_and_others_make_room() {
    let mut nearest = Nearest::default();
    for number in 0..200 {
        nearest.note(subject(number), &numbers(1_000, number, 0, 60_000), || None);
    }
    let listed = |nearest: &Nearest, now_ms| -> Vec<u64> {
        nearest.list(now_ms).iter().map(|near| near.subject.to_u128() as u64).collect()
    };
    assert_eq!(listed(&nearest, 1_000), (0..64).collect::<Vec<_>>());
    assert_eq!(listed(&nearest, 60_000), [0_u64; 0], "all limits are whole again");
    // One that used little takes the place of one whose limit is whole again.
    nearest.note(subject(900), &numbers(1_000, 999, 60_001, 10), || None);
    assert_eq!(listed(&nearest, 60_001), [900]);
    nearest.note(subject(900), &numbers(1_000, 400, 60_002, 10), || None);
    assert_eq!(nearest.list(60_002)[0].used_permille(), 600, "its numbers are those of its last check");
}

const RULES: &str = "
version: 1
rules:
  - { id: burst, per: user, limit: { sliding-log: 2/min } }
  - { id: trial, per: user, mode: shadow, limit: { sliding-log: 1/min } }
";

#[test]
fn refusals_of_a_subject_within_a_second_are_one_entry() {
    let clock = ManualClock::default();
    let limiter = LocalLimiter::builder().rules_yaml(RULES).clock(clock.clone()).build().expect("rules");
    let recent = RecentRefusals::default();
    let mut subjects = Vec::new();
    for (user, advance_ms) in [("a", 0), ("a", 10), ("a", 10), ("a", 10), ("a", 10), ("b", 0), ("a", 1_500)] {
        clock.advance(tollgate::core::Span::from_ms(advance_ms).into());
        let decision = limiter.check([("user", user)]).expect("a decision");
        if !decision.allowed() {
            recent.note(&decision);
            subjects.push(decision.headline().and_then(|rule| rule.subject()).expect("a subject"));
        }
    }
    let entries = recent.of(&subjects);
    let counts: Vec<_> = entries.iter().map(|entry| (entry.rule.as_str(), entry.count)).collect();
    assert_eq!(counts, [("burst", 1), ("burst", 3)], "the last one first");
    assert_eq!((entries[1].last_ms - entries[1].first_ms, entries[1].limit), (20, Some(2)));
    assert_eq!(entries[0].retry_after_ms, Some(60_000 - 1_540), "as in the decision");
}

#[test]
fn a_flood_of_subjects_does_not_grow_the_list_and_a_flooding_subject_keeps_the_others() {
    let clock = ManualClock::default();
    let limiter = LocalLimiter::builder().rules_yaml(RULES).clock(clock.clone()).build().expect("rules");
    let recent = RecentRefusals::default();
    let refuse = |user: &str| {
        let decision = loop {
            let decision = limiter.check([("user", user)]).expect("a decision");
            if !decision.allowed() {
                break decision;
            }
        };
        recent.note(&decision);
        decision.headline().and_then(|rule| rule.subject()).expect("a subject")
    };
    let quiet = refuse("quiet");
    for _ in 0..100_000 {
        refuse("flood");
    }
    assert_eq!(recent.of(&[quiet]).len(), 1);
    let all: Vec<Subject> = (0..20_000).map(|number| refuse(&format!("u-{number}"))).collect();
    assert!(recent.of(&all).len() <= 64 * 64);
}
