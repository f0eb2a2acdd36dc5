//! Charges and credits after the fact: what Envoy sends when a stream ends.

use std::time::{Duration, Instant};

use tollgate_testkit::redis::{Flavour, Server};
use tollgate_testkit::serving::create_token;
use tonic::{Code as Status, Request};

use crate::proto::{Code, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, RateLimitUnit};
use crate::rls::{Service, descriptor, request};

/// One postpaid rule for each value of `per`, and one that is not.
const RULES: &str = "
version: 1
rules:
  - { id: window, per: window, missing: skip, limit: { fixed-window: 100/365d }, postpaid: true }
  - { id: bucket, per: bucket, missing: skip, limit: { token-bucket: 100/365d }, postpaid: true }
  - { id: meter, per: meter, missing: skip, limit: { meter: 100 }, postpaid: true }
  - { id: prepaid, per: prepaid, missing: skip, limit: { fixed-window: 100/365d } }
";
const POSTPAID: [&str; 3] = ["window", "bucket", "meter"];

/// A request of one descriptor that states this cost.
fn hits(key: &str, value: &str, hits: u64) -> RateLimitRequest {
    request("d", vec![RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&[(key, value)]) }])
}

/// The same with negative hits.
fn credit(key: &str, value: &str, units: u64) -> RateLimitRequest {
    let mut request = hits(key, value, units);
    request.descriptors[0].is_negative_hits = true;
    request
}

impl Service {
    fn is_allowed(&mut self, request: RateLimitRequest) -> bool {
        self.ask(request).expect("an answer").overall_code() == Code::Ok
    }

    /// What remains under the rule.
    fn remaining(&mut self, key: &str, value: &str) -> u32 {
        self.codes(hits(key, value, 0)).1[0].1
    }
}

/// With a limit of 100: 90 are used, and of 50 streams of 40 one is admitted; and so on. Each stream asks with cost 0 first.
fn streams_are_admitted_until_the_limit_is_used_up(args: &[&str]) {
    let mut service = Service::with(RULES, args);
    for rule in POSTPAID {
        for (used, count, tokens, expected) in [(90, 50, 40, 1), (0, 20, 150, 1), (0, 20, 60, 2)] {
            let subject = tokens.to_string();
            if used > 0 {
                assert!(service.is_allowed(hits(rule, &subject, used)));
            }
            let mut admitted = 0;
            for _ in 0..count {
                if service.is_allowed(hits(rule, &subject, 0)) {
                    admitted += 1;
                    assert!(service.is_allowed(hits(rule, &subject, tokens)), "a record is not refused");
                }
            }
            assert_eq!(admitted, expected, "{rule}: {count} of {tokens}");
            // All of it is recorded: one unit is left after exactly this many were given back.
            let recorded = used + admitted * tokens;
            assert!(service.is_allowed(credit(rule, &subject, recorded - 100)));
            assert!(!service.is_allowed(hits(rule, &subject, 0)), "{rule}: {recorded}");
            assert!(service.is_allowed(credit(rule, &subject, 1)));
            assert_eq!(service.remaining(rule, &subject), 1, "{rule}: {recorded}");
        }
    }
}

#[test]
fn streams_are_admitted_until_the_limit_is_used_up_and_all_are_recorded() {
    streams_are_admitted_until_the_limit_is_used_up(&[]);
}

#[test]
fn on_redis_streams_are_admitted_until_the_limit_is_used_up_and_all_are_recorded() {
    let redis = Server::start(Flavour::Redis70).expect("a server starts");
    let key = redis.folder().join("key");
    std::fs::write(&key, "5e".repeat(32)).expect("a file can be written");
    let (url, key) = (redis.url(), key.to_str().expect("text").to_owned());
    let store = ["--store", &url, "--hash-key-file", &key, "--store-deadline", "5s"];
    streams_are_admitted_until_the_limit_is_used_up(&store);
}

#[test]
fn a_postpaid_rule_without_a_stated_cost_only_asks() {
    let mut service = Service::with(RULES, &[]);
    for _ in 0..3 {
        assert!(service.is_allowed(request("d", vec![descriptor(&[("window", "w")])])));
    }
    assert_eq!(service.remaining("window", "w"), 100);
    // The cost of the message is stated.
    let mut whole = request("d", vec![descriptor(&[("window", "w")])]);
    whole.hits_addend = 130;
    assert!(service.is_allowed(whole.clone()));
    assert!(!service.is_allowed(request("d", vec![descriptor(&[("window", "w")])])));
    // A rule that is not postpaid refuses, and the record of the other descriptor stays.
    whole.hits_addend = 60;
    whole.descriptors = vec![descriptor(&[("window", "x")]), descriptor(&[("prepaid", "x")])];
    assert!(service.is_allowed(whole.clone()));
    assert!(!service.is_allowed(whole));
    assert_eq!((service.remaining("window", "x"), service.remaining("prepaid", "x")), (0, 40));
    assert!(service.is_allowed(credit("window", "x", 21)));
    assert_eq!(service.remaining("window", "x"), 1);
}

#[test]
fn negative_hits_give_back_and_never_below_zero() {
    let mut service = Service::with(RULES, &[]);
    for rule in [&POSTPAID[..], &["prepaid"]].concat() {
        assert!(service.is_allowed(hits(rule, "v", 70)));
        for (units, left) in [(0, 30), (40, 70), (u64::MAX, 100), (1, 100)] {
            assert_eq!(service.codes(credit(rule, "v", units)), (Code::Ok, vec![(Code::Ok, 0)]));
            assert_eq!(service.remaining(rule, "v"), left, "{rule}");
        }
        assert!(service.is_allowed(hits(rule, "v", 100)));
        assert_eq!(service.remaining(rule, "v"), 0, "{rule}: nothing was saved up");
        // Without a cost, one unit is given back.
        let mut one = credit(rule, "v", 0);
        one.descriptors[0].hits_addend = None;
        assert!(service.is_allowed(one));
        assert_eq!(service.remaining(rule, "v"), 1, "{rule}");
    }
    // A descriptor that no rule matches.
    assert!(service.is_allowed(credit("other", "v", 5)));
}

#[test]
fn a_credit_is_booked_beside_a_refusal_and_has_its_own_status() {
    let mut service = Service::with(RULES, &[]);
    assert!(service.is_allowed(hits("prepaid", "full", 100)));
    assert!(service.is_allowed(hits("window", "back", 50)));
    let mut mixed = hits("prepaid", "full", 1);
    mixed.descriptors.push(credit("window", "back", 20).descriptors.remove(0));
    mixed.descriptors.push(descriptor(&[("prepaid", "other")]));
    mixed.descriptors.swap(0, 1);
    let (overall, statuses) = service.codes(mixed.clone());
    let codes: Vec<Code> = statuses.iter().map(|(code, _)| *code).collect();
    assert_eq!((overall, codes), (Code::OverLimit, vec![Code::Ok, Code::OverLimit, Code::Ok]));
    assert_eq!((service.remaining("window", "back"), service.remaining("prepaid", "other")), (70, 100));
    // What is given back does not help the other descriptors of the message.
    mixed.descriptors[0] = credit("prepaid", "full", 10).descriptors.remove(0);
    assert!(!service.is_allowed(mixed.clone()));
    assert!(service.is_allowed(mixed));
    assert_eq!(service.remaining("prepaid", "full"), 19);
}

#[test]
fn negative_hits_give_back_under_the_limit_of_a_descriptor() {
    let mut service = Service::with(RULES, &[]);
    let limit =
        RateLimitOverride { requests_per_unit: 10, unit: RateLimitUnit::Year.into(), unit_multiplier: None };
    let own = |mut request: RateLimitRequest| {
        request.descriptors[0].limit = Some(limit);
        request
    };
    assert_eq!(service.codes(own(hits("window", "v", 8))), (Code::Ok, vec![(Code::Ok, 2)]));
    assert!(service.is_allowed(own(credit("window", "v", 5))));
    assert_eq!(service.codes(own(hits("window", "v", 0))), (Code::Ok, vec![(Code::Ok, 7)]));
    assert!(service.is_allowed(own(credit("window", "v", 50))));
    assert_eq!(service.codes(own(hits("window", "v", 0))), (Code::Ok, vec![(Code::Ok, 10)]));
    assert_eq!(service.remaining("window", "v"), 100, "no rule applies");
}

#[test]
fn a_credit_needs_the_scope_record() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = ["check", "check,record"].map(|scopes| create_token(env!("CARGO_BIN_EXE_tollgate"), scopes));
    let path = folder.path().join("tollgate.yaml");
    std::fs::write(&path, format!("tokens:\n{}\n{}\n", tokens[0].line, tokens[1].line))
        .expect("a file can be written");
    let mut service = Service::with(RULES, &["--config", path.to_str().expect("text")]);
    let mut ask = |token: &str, message: RateLimitRequest| {
        let mut request = Request::new(message);
        let bearer = format!("Bearer {token}").parse().expect("a value");
        request.metadata_mut().insert("authorization", bearer);
        service.call(request).map(|answer| answer.overall_code()).map_err(|error| error.code())
    };
    assert_eq!(ask(&tokens[0].token, hits("window", "v", 130)), Ok(Code::Ok), "a record needs `check` only");
    assert_eq!(ask(&tokens[0].token, credit("window", "v", 31)), Err(Status::PermissionDenied));
    assert_eq!(ask(&tokens[0].token, hits("window", "v", 0)), Ok(Code::OverLimit));
    assert_eq!(ask(&tokens[1].token, credit("window", "v", 31)), Ok(Code::Ok));
    assert_eq!(ask(&tokens[0].token, hits("window", "v", 0)), Ok(Code::Ok));
}

#[test]
fn a_credit_is_not_refused_while_the_store_is_down() {
    let redis = Server::start(Flavour::Redis70).expect("a server starts");
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "5e".repeat(32)).expect("a file can be written");
    let url = redis.url();
    let args = ["--store", &url, "--hash-key-file", key.to_str().expect("text"), "--store-deadline", "2s"];
    let mut service = Service::with(RULES, &args);
    assert!(service.is_allowed(credit("window", "v", 1)));
    drop(redis);
    let answer = service.ask(credit("window", "v", 1)).expect("an answer");
    // It waits for the store in a queue.
    assert_eq!(answer.overall_code(), Code::Ok);
    assert_eq!(answer.dynamic_metadata, None);
}

/// The server on Redis, and the arguments for it.
fn on_redis(deadline: &str) -> (Server, Service) {
    let redis = Server::start(Flavour::Redis70).expect("a server starts");
    let key = redis.folder().join("key");
    std::fs::write(&key, "5e".repeat(32)).expect("a file can be written");
    let (url, key) = (redis.url(), key.to_str().expect("text").to_owned());
    let store = ["--store", &url, "--hash-key-file", &key, "--store-deadline", deadline];
    let service = Service::with(RULES, &store);
    (redis, service)
}

impl Service {
    fn metrics(&self) -> String {
        let url = format!("http://{}/metrics", self.server.http);
        let output = std::process::Command::new("curl").args(["--silent", &url]).output().expect("curl runs");
        String::from_utf8(output.stdout).expect("text")
    }

    fn wait_for_remaining(&mut self, rule: &str, expected: u32) {
        let began = Instant::now();
        loop {
            let remaining = self.remaining(rule, "v");
            if remaining == expected {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{rule}: {remaining} remain, not {expected}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn what_envoy_reports_while_the_store_is_down_is_booked_when_it_is_back() {
    let (mut redis, mut service) = on_redis("2s");
    assert!(service.is_allowed(hits("window", "v", 1)));
    redis.kill9().expect("it can be killed");
    for rule in POSTPAID {
        assert!(service.is_allowed(hits(rule, "v", 30)));
        assert_eq!(service.codes(credit(rule, "v", 10)), (Code::Ok, vec![(Code::Ok, 0)]), "it waits");
    }
    // Descriptors that are decided together.
    let mut together = hits("window", "v", 1);
    together.descriptors.push(hits("meter", "v", 2).descriptors.remove(0));
    assert!(service.is_allowed(together));
    redis.restart().expect("it starts again");
    for (rule, expected) in [("window", 79), ("bucket", 80), ("meter", 78)] {
        service.wait_for_remaining(rule, expected);
    }
}

#[test]
fn a_report_whose_reply_comes_too_late_is_booked_once() {
    let (redis, mut service) = on_redis("100ms");
    assert!(service.is_allowed(hits("window", "v", 1)));
    redis.stop().expect("it can be stopped");
    assert!(service.is_allowed(hits("window", "v", 30)));
    // What was sent is executed now, and sent again under its id.
    redis.resume().expect("it goes on");
    service.wait_for_remaining("window", 69);
    let began = Instant::now();
    while !service.metrics().lines().any(|line| line == r#"rate_limit_late_usage_total{outcome="booked"} 1"#)
    {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", service.metrics());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(service.remaining("window", "v"), 69);
}
