//! An explanation equals the decision of a check, and charges nothing.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::core::decision::Numbers;
use tollgate::core::rules::Request;
use tollgate::core::{Mark, Token};
use tollgate::limiter::ExplainedNumbers;
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

fn numbers(explained: &Option<ExplainedNumbers>) -> Option<Numbers> {
    explained.as_ref().map(|explained| explained.numbers)
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
            explanations_match_checks(&file(&[format!("  - {{ id: a, per: user, limit: {limit}, cost: request }}\n")]), &steps);
        }
    }

    #[test]
    fn several_rules_are_explained_as_they_are_checked(steps in steps(), from in 0..LIMITS.len()) {
        let rule = |index: usize| {
            let (limit, mode) = (LIMITS[(from + 5 * index) % LIMITS.len()], ["enforce", "shadow", "enforce"][index]);
            format!("  - {{ id: r{index}, per: user, mode: {mode}, limit: {limit}, cost: request }}\n")
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
    let explanation = limiter.explain(&request);

    let search = explanation.rule("search").unwrap();
    assert!(search.applies && search.blocking && search.in_rollout);
    assert_eq!((search.cost.cost, search.written_at().line), (5, 4));
    let counted = search.subject.as_ref().unwrap();
    assert_eq!(counted.parts, [("tenant".into(), "acme".into()), ("api_key".into(), "k-1".into())]);
    let [account] = search.accounts.as_slice() else { panic!("{search:?}") };
    assert_eq!(numbers(&account.before).unwrap().remaining, 240);
    assert_eq!(numbers(&account.after).unwrap().remaining, 235);

    let export = explanation.rule("export").unwrap();
    assert!(!export.applies && !export.blocking && export.accounts.is_empty());
    assert_eq!(export.unmet.iter().map(|unmet| unmet.attribute.as_str()).collect::<Vec<_>>(), ["action"]);

    let trial = explanation.rule("trial").unwrap();
    assert!(trial.applies && !trial.blocking && trial.accounts.len() == 1);
    let retired = explanation.rule("retired").unwrap();
    assert!(!retired.applies && retired.unmet.is_empty() && retired.accounts.is_empty());
    let without_subject = explanation.rule("per-user").unwrap();
    assert!(without_subject.applies && without_subject.accounts.is_empty());
    assert_eq!(without_subject.subject, Err(vec!["user".to_owned()]));

    let secrets = format!("{explanation:?}{explanation}");
    assert!(!secrets.contains("acme") && !secrets.contains("k-1"), "{secrets}");
}

#[test]
fn an_override_is_explained_with_its_line() {
    let (limiter, _) = limiter(SHOP);
    let request = Attributes::from([("action", "search"), ("tenant", "t"), ("user", "u"), ("plan", "pro")]);
    let explanation = limiter.explain(&request);
    let search = explanation.rule("search").unwrap();
    assert_eq!((search.limit().capacity(), search.written_at().line), (2400, 10));
    assert!(search.changed_by.is_some());
}

#[test]
fn a_denied_request_and_an_error_are_explained() {
    let (limiter, _) = limiter(SHOP);
    let gone = limiter.explain([("tenant", "gone")]);
    assert_eq!(gone.exception.unwrap().reason, "contract ended");
    assert!(!gone.answer.unwrap().allowed());
    assert!(gone.rules.iter().all(|rule| rule.accounts.is_empty()));

    let request = Attributes::from([("tenant", "t"), ("action", "export")]);
    let too_large = limiter.explain(Request::new(&request).cost(11));
    let error = too_large.answer.unwrap_err().to_string();
    assert!(error.contains("cost 11") && error.contains("capacity 10"), "{error}");
}

/// The reasons for `cost`, after `costs` were charged and `failures` reported.
fn reasons(limit: &str, costs: &[u64], cost: u64, failures: usize) -> Vec<String> {
    let (limiter, _) =
        limiter(&file(&[format!("  - {{ id: a, per: user, limit: {limit}, cost: request }}\n")]));
    let attributes = Attributes::from([("user", "u")]);
    for &cost in costs {
        assert!(limiter.check(Request::new(&attributes).cost(cost)).unwrap().allowed());
    }
    for _ in 0..failures {
        limiter.report(&attributes, Report::Failure).unwrap();
    }
    let explanation = limiter.explain(Request::new(&attributes).cost(cost));
    let after = explanation.rules[0].accounts[0].after.as_ref().unwrap();
    after.why.iter().map(ToString::to_string).collect()
}

#[test]
fn every_number_has_a_reason() {
    type Case = (&'static str, &'static [u64], u64, usize, &'static [&'static str]);
    let cases: [Case; 17] = [
        // The clock is 20 s into a minute and 800 s into an hour.
        (
            "{ fixed-window: 10/min }",
            &[4],
            3,
            0,
            &[
                "limit 10: per window of 1min, aligned to the clock",
                "remaining 3: 7 of 10 are used in this window",
                "reset in 40 s: this window ends then",
            ],
        ),
        (
            "{ fixed-window: 10/min }",
            &[8],
            3,
            0,
            &[
                "limit 10: per window of 1min, aligned to the clock",
                "remaining 2: 8 of 10 are used in this window",
                "retry after 40 s: this window ends then",
                "reset in 40 s: this window ends then",
            ],
        ),
        (
            "{ sliding-window: 10/min, buckets: 6, counting: strict }",
            &[10],
            3,
            0,
            &[
                "limit 10: per 1min, counted in buckets of 10s",
                "remaining 0: all 10 are used in the last 1min, the oldest bucket counted whole",
                "retry after 70 s: the oldest buckets have left the window by then, which makes room for 3",
                "reset in 70 s: everything counted has left the window by then",
            ],
        ),
        (
            "{ sliding-window: 10/min, buckets: 6, counting: interpolated }",
            &[],
            1,
            0,
            &[
                "limit 10: per 1min, counted in buckets of 10s",
                "remaining 9: 1 of 10 is used in the last 1min, the oldest bucket counted by the part still in the window",
                "reset in 70 s: everything counted has left the window by then",
            ],
        ),
        (
            "{ sliding-log: 5/10min }",
            &[5],
            2,
            0,
            &[
                "limit 5: in any period of 10min",
                "remaining 0: all 5 are used in the last 10min",
                "retry after 10 min: the oldest requests are 10min old by then, which makes room for 2",
                "reset in 10 min: the newest request is 10min old by then",
            ],
        ),
        (
            "{ token-bucket: 2/s, burst: 240 }",
            &[220],
            3,
            0,
            &[
                "limit 240: the burst; 2/s come back",
                "remaining 17: 223 of 240 are used and 2/s come back",
                "reset in 111.5 s: all 240 have come back by then",
            ],
        ),
        (
            "{ token-bucket: 2/s, burst: 240 }",
            &[240],
            3,
            0,
            &[
                "limit 240: the burst; 2/s come back",
                "remaining 0: all 240 are used and 2/s come back",
                "retry after 1.5 s: 3 have come back by then, at 2/s",
                "reset in 2 min: all 240 have come back by then",
            ],
        ),
        (
            "{ leaky-bucket: 10/min, capacity: 4 }",
            &[3],
            2,
            0,
            &[
                "limit 4: the capacity of the bucket; 10/min leak out",
                "remaining 1: 3 of 4 are filled and 10/min leak out",
                "retry after 6 s: there is room for 2 by then; 10/min leak out",
                "reset in 18 s: the bucket is empty by then",
            ],
        ),
        (
            "{ leaky-bucket: 4/s, queue: 3 }",
            &[1, 1],
            1,
            0,
            &[
                "limit 4: one request that proceeds and 3 that wait; 4/s proceed",
                "remaining 1: 3 of 4 are taken and 4/s proceed",
                "delay 500 ms: earlier requests proceed first, 4/s",
                "reset in 750 ms: the queue is empty by then",
            ],
        ),
        (
            "{ concurrency: 3, lease: 32s }",
            &[2],
            2,
            0,
            &[
                "limit 3: leases at the same time, each for 32s unless it is renewed",
                "remaining 1: 2 of 3 are held",
                "retry after 32 s: enough leases have ended by then, if none is released earlier or renewed",
                "reset in 32 s: the last lease has ended by then, if none is renewed",
            ],
        ),
        (
            "{ quota: 100/day, zone: UTC, grace: 5% }",
            &[40],
            10,
            0,
            &[
                "limit 100: per calendar period; a grace of 5 more is admitted and not shown as remaining",
                "remaining 50: 50 of 100 are used in this period, reservations included",
                "reset in 1 h 46 min 40 s: this period is over by then",
            ],
        ),
        (
            "{ meter: 50 }",
            &[47],
            3,
            0,
            &[
                "limit 50: until units are given back",
                "remaining 0: all 50 are used",
                "reset in 3660 d: nothing comes back by waiting; an unused meter is deleted only then",
            ],
        ),
        (
            "{ meter: 5, expiry: 1h }",
            &[5],
            1,
            0,
            &[
                "limit 5: until units are given back",
                "remaining 0: all 5 are used",
                "retry after 1 h: the meter is deleted then, after 1h without use",
                "reset in 1 h: the meter is deleted then, after 1h without use",
            ],
        ),
        (
            "{ penalty: 2s, free: 3 }",
            &[],
            1,
            0,
            &[
                "limit 4: the 4th failed attempt causes a wait",
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
                "limit 4: the 4th failed attempt causes a wait",
                "remaining 2: 2 failures are on record, and 3 are free",
                "reset in 1 h: the failures are forgotten then, 1h after the wait for the last one",
            ],
        ),
        (
            "{ penalty: 2s, free: 1 }",
            &[],
            1,
            1,
            &[
                "limit 2: the 2nd failed attempt causes a wait",
                "remaining 1: the next failure causes a wait; 1 failure is free",
                "reset in 1 h: the failures are forgotten then, 1h after the wait for the last one",
            ],
        ),
        (
            "{ penalty: 2s, free: 1 }",
            &[],
            1,
            2,
            &[
                "limit 2: the 2nd failed attempt causes a wait",
                "remaining 0: the wait after the last failure is not over",
                "retry after 2 s: the wait after the last failure is over by then",
                "reset in 1 h 2 s: the failures are forgotten then, 1h after the wait for the last one",
            ],
        ),
    ];
    for (limit, costs, cost, failures, expected) in cases {
        assert_eq!(reasons(limit, costs, cost, failures), expected, "{limit} {costs:?} {cost}");
    }
}

#[test]
fn a_log_that_is_full_of_instants_is_explained() {
    let (limiter, clock) =
        limiter(&file(&["  - { id: a, per: user, limit: { sliding-log: 9/s, entries: 2 } }\n".to_owned()]));
    let attributes = Attributes::from([("user", "u")]);
    for _ in 0..2 {
        assert!(limiter.check(&attributes).unwrap().allowed());
        clock.advance(Duration::from_millis(1));
    }
    let explanation = limiter.explain(&attributes);
    let why = &explanation.rules[0].accounts[0].after.as_ref().unwrap().why;
    assert_eq!(
        why[1].to_string(),
        "remaining 0: the log of the last 1s is full; it holds 9 units or 2 instants"
    );
}
