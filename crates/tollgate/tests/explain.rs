//! An explanation equals the decision of a check, and charges nothing.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::core::decision::Numbers;
use tollgate::core::rules::Request;
use tollgate::core::{Mark, Token};
use tollgate::limiter::Standing;
use tollgate::{Attributes, Explanation, HashKey, LocalLimiter, ManualClock, Report};

/// Every algorithm, small enough to be exhausted in a few steps.
const LIMITS: [&str; 13] = [
    "{ fixed-window: 5/s }",
    "{ sliding-window: 5/s, buckets: 4, counting: strict }",
    "{ sliding-window: 5/s, buckets: 4, counting: interpolated }",
    "{ sliding-log: 5/s }",
    "{ token-bucket: 3/s, burst: 5 }",
    "{ leaky-bucket: 3/s, capacity: 5 }",
    "{ leaky-bucket: 3/s, queue: 4 }",
    "{ concurrency: 5, lease: 1s }",
    "{ quota: 5/day, zone: Europe/Berlin, grace: 1 }",
    "{ quota: 5/month, zone: UTC }",
    "{ meter: 9 }",
    "{ meter: 5, expiry: 1s }",
    "{ penalty: 500ms, free: 1 }",
];

fn limiter(rules: &str) -> (LocalLimiter, ManualClock) {
    let clock = ManualClock::default();
    let limiter = LocalLimiter::builder()
        .rules_yaml(rules)
        .clock(clock.clone())
        .hash_key(HashKey::new([7; 32]))
        .build();
    (limiter.unwrap_or_else(|error| panic!("{error}")), clock)
}

fn file(rules: &[String]) -> String {
    format!("version: 1\nrules:\n{}", rules.concat())
}

/// A peek books nothing; everything else must be the same.
fn unmarked(numbers: Option<Numbers>) -> Option<Numbers> {
    numbers.map(|numbers| Numbers { mark: Mark::None, ..numbers })
}

fn numbers(standing: &Option<Standing>) -> Option<Numbers> {
    standing.as_ref().map(|standing| standing.numbers)
}

/// Steps: time that passes, what is asked, whether the attempt is reported as a failure.
fn steps() -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
    prop::collection::vec((prop_oneof![Just(0), 0..400_u64, 0..3_000_u64], 0..=3_u64, any::<bool>()), 1..40)
}

/// Two limiters get the same requests; one of them explains each request first.
fn explanations_match_checks(rules: &str, steps: &[(u64, u64, bool)]) {
    let (asked, asked_clock) = limiter(rules);
    let (left_alone, other_clock) = limiter(rules);
    let attributes = Attributes::from([("user", "u")]);
    for (number, &(ms, cost, fails)) in steps.iter().enumerate() {
        asked_clock.advance(Duration::from_millis(ms));
        other_clock.advance(Duration::from_millis(ms));
        let request = Request::new(&attributes).cost(cost).token(Token(number as u128 + 1));
        let stood = left_alone.peek(request.cost(0)).unwrap();

        let Explanation { answer, rules, .. } = asked.explain(request);
        let checked = asked.check(request).unwrap();
        let plain = left_alone.check(request).unwrap();
        assert_eq!(
            checked.plan_decision(),
            plain.plan_decision(),
            "step {number}: the explanation changed something"
        );

        let accounts: Vec<_> = rules.iter().flat_map(|rule| &rule.accounts).collect();
        assert_eq!(answer.unwrap().allowed(), checked.allowed(), "step {number}");
        let (found, stood) = (&checked.plan_decision().rules, &stood.plan_decision().rules);
        assert_eq!(accounts.len(), found.len());
        for ((account, found), stood) in accounts.iter().zip(found).zip(stood) {
            assert_eq!(numbers(&account.after), unmarked(found.numbers), "step {number}");
            assert_eq!(numbers(&account.before), stood.numbers, "step {number}");
            assert_eq!((account.outcome.allowed, account.outcome.cost), (found.allowed, cost));
        }
        for limiter in [&asked, &left_alone].into_iter().filter(|_| fails && checked.allowed()) {
            limiter.report(request, Report::Failure).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn an_explanation_charges_nothing_and_equals_the_check(steps in steps()) {
        for limit in LIMITS {
            explanations_match_checks(&file(&[format!("  - {{ id: a, per: user, limit: {limit} }}\n")]), &steps);
        }
    }

    #[test]
    fn several_rules_are_explained_as_they_are_checked(steps in steps(), from in 0..LIMITS.len()) {
        let rule = |index: usize| {
            let (limit, mode) = (LIMITS[(from + 5 * index) % LIMITS.len()], ["enforce", "shadow", "enforce"][index]);
            format!("  - {{ id: r{index}, per: user, mode: {mode}, limit: {limit} }}\n")
        };
        explanations_match_checks(&file(&[rule(0), rule(1), rule(2)]), &steps);
    }
}

const SHOP: &str = "
version: 1
rules:
  - { id: search, match: { action: search }, per: [tenant, api_key | user], limit: { token-bucket: 2/s, burst: 240 }, cost: { default: 1, by: { method: { POST: 5 } } } }
  - { id: export, match: { action: export }, per: tenant, limit: { fixed-window: 10/h } }
  - { id: trial, per: tenant, mode: shadow, limit: { fixed-window: 1/h } }
  - { id: retired, per: tenant, mode: 'off', limit: { fixed-window: 1/h } }
  - { id: per-user, per: user, limit: { fixed-window: 1/h } }
overrides:
  - { when: { plan: pro }, rule: search, limit: { token-bucket: 20/s, burst: 2400 } }
deny:
  - { when: { tenant: gone }, reason: contract ended }
";

#[test]
fn every_rule_is_explained_with_its_subject_and_cost() {
    let (limiter, _) = limiter(SHOP);
    let request =
        Attributes::from([("action", "search"), ("method", "POST"), ("tenant", "acme"), ("api_key", "k-1")]);
    let told = limiter.explain(&request);

    let search = told.rule("search").unwrap();
    assert!(search.applies && search.blocking && search.in_rollout);
    assert_eq!((search.cost.cost, search.written_at().line), (5, 4));
    let counted = search.subject.as_ref().unwrap();
    assert_eq!(counted.parts, [("tenant".into(), "acme".into()), ("api_key".into(), "k-1".into())]);
    let [account] = search.accounts.as_slice() else { panic!("{search:?}") };
    assert_eq!(numbers(&account.before).unwrap().remaining, 240);
    assert_eq!(numbers(&account.after).unwrap().remaining, 235);

    let export = told.rule("export").unwrap();
    assert!(!export.applies && !export.blocking && export.accounts.is_empty());
    assert_eq!(export.unmet.iter().map(|unmet| unmet.attribute.as_str()).collect::<Vec<_>>(), ["action"]);

    let trial = told.rule("trial").unwrap();
    assert!(trial.applies && !trial.blocking && trial.accounts.len() == 1);
    let retired = told.rule("retired").unwrap();
    assert!(!retired.applies && retired.unmet.is_empty() && retired.accounts.is_empty());
    let nobody = told.rule("per-user").unwrap();
    assert!(nobody.applies && nobody.accounts.is_empty());
    assert_eq!(nobody.subject, Err(vec!["user".to_owned()]));

    let secrets = format!("{told:?}{told}");
    assert!(!secrets.contains("acme") && !secrets.contains("k-1"), "{secrets}");
}

#[test]
fn the_limit_in_force_is_told_with_its_place() {
    let (limiter, _) = limiter(SHOP);
    let request = Attributes::from([("action", "search"), ("tenant", "t"), ("user", "u"), ("plan", "pro")]);
    let told = limiter.explain(&request);
    let search = told.rule("search").unwrap();
    assert_eq!((search.limit().capacity(), search.written_at().line), (2400, 10));
    assert!(search.changed_by.is_some());
}

#[test]
fn what_is_settled_without_a_store_is_told_too() {
    let (limiter, _) = limiter(SHOP);
    let gone = limiter.explain(&Attributes::from([("tenant", "gone")]));
    assert_eq!(gone.exception.unwrap().reason, "contract ended");
    assert!(!gone.answer.unwrap().allowed());
    assert!(gone.rules.iter().all(|rule| rule.accounts.is_empty()));

    let request = Attributes::from([("tenant", "t"), ("action", "export")]);
    let dear = limiter.explain(Request::new(&request).cost(11));
    let error = dear.answer.unwrap_err().to_string();
    assert!(error.contains("cost 11") && error.contains("capacity 10"), "{error}");
}

/// What is said of the numbers once `cost` has been charged so often and is asked for again.
fn said(limit: &str, costs: &[u64], cost: u64, failures: usize) -> Vec<String> {
    let (limiter, _) = limiter(&file(&[format!("  - {{ id: a, per: user, limit: {limit} }}\n")]));
    let attributes = Attributes::from([("user", "u")]);
    for &cost in costs {
        assert!(limiter.check(Request::new(&attributes).cost(cost)).unwrap().allowed());
    }
    for _ in 0..failures {
        limiter.report(&attributes, Report::Failure).unwrap();
    }
    let told = limiter.explain(Request::new(&attributes).cost(cost));
    let after = told.rules[0].accounts[0].after.as_ref().unwrap();
    after.why.iter().map(ToString::to_string).collect()
}

#[test]
fn every_number_has_its_reason() {
    type Case = (&'static str, &'static [u64], u64, usize, &'static [&'static str]);
    let cases: [Case; 17] = [
        // The clock stands 20 s into a minute and 800 s into an hour.
        (
            "{ fixed-window: 10/min }",
            &[4],
            3,
            0,
            &[
                "limit 10: so much in each window of 1min, by the clock",
                "remaining 3: 7 of 10 are used in this window",
                "reset in 40 s: then this window is over",
            ],
        ),
        (
            "{ fixed-window: 10/min }",
            &[8],
            3,
            0,
            &[
                "limit 10: so much in each window of 1min, by the clock",
                "remaining 2: 8 of 10 are used in this window",
                "retry after 40 s: then this window is over",
                "reset in 40 s: then this window is over",
            ],
        ),
        (
            "{ sliding-window: 10/min, buckets: 6, counting: strict }",
            &[10],
            3,
            0,
            &[
                "limit 10: so much in the last 1min, counted in buckets of 10s",
                "remaining 0: all 10 are used in the last 1min, the oldest bucket counted whole",
                "retry after 70 s: then enough of the oldest buckets has left the window to make room for 3",
                "reset in 70 s: then all that is counted has left the window",
            ],
        ),
        (
            "{ sliding-window: 10/min, buckets: 6, counting: interpolated }",
            &[],
            1,
            0,
            &[
                "limit 10: so much in the last 1min, counted in buckets of 10s",
                "remaining 9: 1 of 10 is used in the last 1min, the oldest bucket counted by the part still in the window",
                "reset in 70 s: then all that is counted has left the window",
            ],
        ),
        (
            "{ sliding-log: 5/10min }",
            &[5],
            2,
            0,
            &[
                "limit 5: so much in any 10min",
                "remaining 0: all 5 are used in the last 10min",
                "retry after 10 min: then enough of the oldest is 10min old to make room for 2",
                "reset in 10 min: then the newest is 10min old",
            ],
        ),
        (
            "{ token-bucket: 2/s, burst: 240 }",
            &[220],
            3,
            0,
            &[
                "limit 240: so much can be saved up; 2/s come back",
                "remaining 17: 223 of 240 are used and 2/s come back",
                "reset in 111.5 s: then all 240 are there again",
            ],
        ),
        (
            "{ token-bucket: 2/s, burst: 240 }",
            &[240],
            3,
            0,
            &[
                "limit 240: so much can be saved up; 2/s come back",
                "remaining 0: all 240 are used and 2/s come back",
                "retry after 1.5 s: then 3 are there again; 2/s come back",
                "reset in 2 min: then all 240 are there again",
            ],
        ),
        (
            "{ leaky-bucket: 10/min, capacity: 4 }",
            &[3],
            2,
            0,
            &[
                "limit 4: so much the bucket holds; 10/min leak out",
                "remaining 1: 3 of 4 are full and 10/min leak out",
                "retry after 6 s: then there is room for 2; 10/min leak out",
                "reset in 18 s: then the bucket is empty",
            ],
        ),
        (
            "{ leaky-bucket: 4/s, queue: 3 }",
            &[1, 1],
            1,
            0,
            &[
                "limit 4: one that goes and 3 that wait; 4/s go",
                "remaining 1: 3 of 4 are taken and 4/s go",
                "delay 500 ms: those before it go first, 4/s",
                "reset in 750 ms: then the queue is empty",
            ],
        ),
        (
            "{ concurrency: 3, lease: 30s }",
            &[2],
            2,
            0,
            &[
                "limit 3: so many at once, each for 30s unless it is renewed",
                "remaining 1: 2 of 3 are held",
                "retry after 30 s: then enough leases have ended, if none is given back before or renewed",
                "reset in 30 s: then the last lease has ended, if none is renewed",
            ],
        ),
        (
            "{ quota: 100/day, zone: UTC, grace: 5% }",
            &[40],
            10,
            0,
            &[
                "limit 100: so much in each period of the calendar; a grace of 5 on top is admitted and not shown as remaining",
                "remaining 50: 50 of 100 are used in this period, reservations included",
                "reset in 1 h 46 min 40 s: then this period is over",
            ],
        ),
        (
            "{ meter: 50 }",
            &[47],
            3,
            0,
            &[
                "limit 50: so much until something is given back",
                "remaining 0: all 50 are used",
                "reset in 3660 d: nothing comes back by waiting; an untouched meter is forgotten only then",
            ],
        ),
        (
            "{ meter: 5, expiry: 1h }",
            &[5],
            1,
            0,
            &[
                "limit 5: so much until something is given back",
                "remaining 0: all 5 are used",
                "retry after 1 h: then nobody has touched it for 1h, and it is forgotten",
                "reset in 1 h: then nobody has touched it for 1h, and it is forgotten",
            ],
        ),
        (
            "{ penalty: 2s, free: 3 }",
            &[],
            1,
            0,
            &[
                "limit 4: the 4th attempt that fails brings a wait",
                "remaining 4: no failure is on record",
                "reset in 0 ms: nothing is used",
            ],
        ),
        (
            "{ penalty: 2s, free: 3 }",
            &[],
            1,
            2,
            &[
                "limit 4: the 4th attempt that fails brings a wait",
                "remaining 2: 2 failures are on record, and 3 are free",
                "reset in 1 h: then the failures are forgotten, 1h after the wait for the last",
            ],
        ),
        (
            "{ penalty: 2s, free: 1 }",
            &[],
            1,
            1,
            &[
                "limit 2: the 2nd attempt that fails brings a wait",
                "remaining 1: the next failure brings a wait; 1 failure is free",
                "reset in 1 h: then the failures are forgotten, 1h after the wait for the last",
            ],
        ),
        (
            "{ penalty: 2s, free: 1 }",
            &[],
            1,
            2,
            &[
                "limit 2: the 2nd attempt that fails brings a wait",
                "remaining 0: the wait after the last failure is not over",
                "retry after 2 s: then the wait after the last failure is over",
                "reset in 1 h 2 s: then the failures are forgotten, 1h after the wait for the last",
            ],
        ),
    ];
    for (limit, costs, cost, failures, expected) in cases {
        assert_eq!(said(limit, costs, cost, failures), expected, "{limit} {costs:?} {cost}");
    }
}

#[test]
fn a_log_that_is_full_of_instants_says_so() {
    let (limiter, clock) =
        limiter(&file(&["  - { id: a, per: user, limit: { sliding-log: 9/s, entries: 2 } }\n".to_owned()]));
    let attributes = Attributes::from([("user", "u")]);
    for _ in 0..2 {
        assert!(limiter.check(&attributes).unwrap().allowed());
        clock.advance(Duration::from_millis(1));
    }
    let told = limiter.explain(&attributes);
    let why = &told.rules[0].accounts[0].after.as_ref().unwrap().why;
    assert_eq!(why[1].to_string(), "remaining 0: the last 1s hold all that fits, 9 units or 2 instants");
}
