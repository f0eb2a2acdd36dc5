//! Oracle, core and Lua twins agree on every field of every answer, on the resulting state and on its TTL.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tollgate::store::redis::{ScriptCodec, TimeSource};
use tollgate_core::{Item, Keyspace, LimitError, Operation, Plan, Span, SubjectHasher, Time, Token};
use tollgate_testkit::conformance;
use tollgate_testkit::make_twin;
use tollgate_testkit::oracle::differential::run;
use tollgate_testkit::oracle::sliding_window::Numbers;
use tollgate_testkit::oracle::suite::{self, Make, Suite};
use tollgate_testkit::redis::{Flavour, Server};
use tollgate_testkit::twin::{Twin, on_server};

/// Steps per algorithm. `cargo xtask oracle --twins` runs any number.
const STEPS: u64 = 25_000;
const SEED: u64 = 1;

fn agree<S: Suite>(make: Make<S, Twin>) {
    let server = Server::start(Flavour::Redis70).expect("Redis 7.0");
    let port = server.port();
    let tally = on_server(port, |_, source| source.to_owned(), || run::<S, Twin>(make, STEPS, SEED));
    let tally = tally.unwrap_or_else(|difference| panic!("{difference}"));
    println!("{}: {tally:?}", S::NAME);
    for seen in [tally.admitted, tally.refused, tally.declined, tally.written] {
        assert!(seen > STEPS / 100, "hardly seen: {tally:?}");
    }
}

#[test]
fn fixed_window_and_its_twin_agree() {
    agree::<suite::FixedWindow>(make_twin!(fixed_window, FixedWindow));
}

#[test]
fn sliding_window_and_its_twin_agree() {
    agree::<suite::SlidingWindow>(make_twin!(sliding_window, SlidingWindow));
}

#[test]
fn sliding_window_of_many_buckets_and_its_twin_agree() {
    agree::<suite::BucketRing>(make_window);
}

#[test]
fn sliding_windows_of_few_and_many_buckets_share_a_key_in_redis() {
    let server = Server::start(Flavour::Redis70).expect("Redis 7.0");
    let test = || run::<suite::AnyBuckets, Twin>(make_window, STEPS, SEED);
    let tally = on_server(server.port(), |_, source| source.to_owned(), test);
    tally.unwrap_or_else(|difference| panic!("{difference}"));
}

fn make_window(numbers: &Numbers) -> Result<Twin, LimitError> {
    make_twin!(sliding_window, SlidingWindow)(numbers)
}

#[test]
fn sliding_log_and_its_twin_agree() {
    agree::<suite::SlidingLog>(make_twin!(sliding_log, SlidingLog));
}

#[test]
fn bucket_and_its_twin_agree() {
    agree::<suite::Bucket>(make_twin!(bucket, Bucket));
}

#[test]
fn concurrency_and_its_twin_agree() {
    agree::<suite::Concurrency>(make_twin!(concurrency, Concurrency));
}

#[test]
fn quota_and_its_twin_agree() {
    agree::<suite::Quota>(make_twin!(quota, Quota));
}

#[test]
fn quota_and_its_twin_agree_beyond_64_ends() {
    let server = Server::start(Flavour::Redis70).expect("Redis 7.0");
    let test = || run::<suite::Reservations, Twin>(make_twin!(quota, Quota), STEPS, SEED);
    let tally = on_server(server.port(), |_, source| source.to_owned(), test);
    tally.unwrap_or_else(|difference| panic!("{difference}"));
}

#[test]
fn meter_and_its_twin_agree() {
    agree::<suite::Meter>(make_twin!(meter, Meter));
}

#[test]
fn penalty_and_its_twin_agree() {
    agree::<suite::Penalty>(make_twin!(penalty, Penalty));
}

/// A connection that sends whole script commands.
struct Asked {
    stream: TcpStream,
    _server: Server,
}

impl Asked {
    fn start() -> Asked {
        let server = Server::start(Flavour::Redis70).unwrap();
        let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.set_nodelay(true).unwrap();
        Asked { stream, _server: server }
    }

    fn ask(&mut self, caller: &ScriptCodec, plans: &[&Plan<'_>], now: Time) -> Vec<String> {
        let timed: Vec<(&Plan<'_>, Time)> = plans.iter().map(|plan| (*plan, now)).collect();
        self.stream.write_all(&caller.command(&timed, false)).unwrap();
        let (mut inbox, mut chunk) = (Vec::new(), [0; 16 * 1024]);
        loop {
            let length = self.stream.read(&mut chunk).unwrap();
            inbox.extend_from_slice(&chunk[..length]);
            if let Some(outcomes) = caller.read(plans, &inbox).unwrap() {
                return outcomes.into_iter().map(|outcome| format!("{outcome:?}")).collect();
            }
        }
    }
}

/// Equal Plans of a batch are sent once and executed several times. The answers must be the same as without batches.
#[test]
fn a_batch_gives_the_same_answers_as_separate_plans() {
    let (mut together, mut apart) = (Asked::start(), Asked::start());
    let caller =
        ScriptCodec::new(TimeSource::Application, Duration::from_secs(3_600), |_, source| source.to_owned());
    let limits = conformance::limits().unwrap();
    let keyspaces: Vec<Keyspace> =
        (0..limits.len()).map(|rule| Keyspace::new("test", &format!("rule-{rule}")).unwrap()).collect();
    let hasher = SubjectHasher::new([3; 32]);
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut dice = |end: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % end
    };
    let (mut equal, mut plans_in_all) = (0, 0);
    for batch in 0..400_u64 {
        let mut plans: Vec<Plan<'_>> = Vec::new();
        for _ in 0..1 + dice(40) {
            if !plans.is_empty() && dice(2) == 0 {
                // Repeats a Plan, directly after it or later.
                let again = plans[if dice(2) == 0 { plans.len() - 1 } else { dice(plans.len()) }].clone();
                plans.push(again);
                equal += 1;
                continue;
            }
            let (mut plan, asks) = (Plan::new(), dice(8) > 0);
            for _ in 0..1 + dice(2) {
                let rule = dice(limits.len());
                let key = keyspaces[rule].key(hasher.subject([("user", ["a", "b"][dice(2)])]));
                let token = Token(1 + dice(6) as u128);
                let operation = match dice(6) {
                    _ if !asks => {
                        [Operation::Release { token }, Operation::Reset { receipt_life: Span::ZERO }][dice(2)]
                    }
                    0 => Operation::Peek { cost: 1 },
                    cost => Operation::Charge { cost: cost as u64 % 3, token },
                };
                let item = Item { blocking: dice(4) > 0, ..Item::new(key, limits[rule], operation) };
                // A Plan contains a key at most once.
                drop(plan.push(item));
            }
            if plan.items().is_empty() {
                continue;
            }
            if dice(12) == 0 {
                plan.set_request_id(hasher.subject([("id", ["x", "y"][dice(2)])]), Span::from_secs(1), 1);
            }
            plans.push(plan);
        }
        let now = Time::from_us(1_700_000_000_000_000 + batch * 150_000);
        let plans: Vec<&Plan<'_>> = plans.iter().collect();
        plans_in_all += plans.len();
        let found = together.ask(&caller, &plans, now);
        let expected: Vec<String> = plans.iter().flat_map(|plan| apart.ask(&caller, &[plan], now)).collect();
        for (plan, (found, expected)) in plans.iter().zip(found.iter().zip(&expected)) {
            assert_eq!(found, expected, "batch {batch}: {plan:#?}");
        }
    }
    println!("{plans_in_all} Plans in 400 batches, {equal} of them like another");
    assert!(equal > 2_000);
}
