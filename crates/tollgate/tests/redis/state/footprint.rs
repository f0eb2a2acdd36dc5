//! The memory estimate compared with real servers: per key, for many keys, and for the longest log and the most leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tollgate::store::redis::{Allocator, Engine, Footprint, KeyBytes, Records, RedisSettings, RedisStore};
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::algorithm::penalty::{Penalty, PenaltyNumbers};
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::{
    Algorithm, Answer, Item, Keyspace, Limit, Operation, Plan, Report, Span, Store, Subject, SubjectHasher,
    Token,
};
use tollgate_testkit::conformance::counting_limits;
use tollgate_testkit::redis::{Admin, Flavour, Server};

/// Largest error of the estimate, in percent.
const TOLERANCE: u64 = 15;
const SUBJECTS: u64 = 20_000;
const WINDOW: Span = Span::from_secs(30 * 86_400);
const LONG: Duration = Duration::from_secs(20);

/// Returns every algorithm, the sliding window twice, and the penalty.
fn limits() -> Vec<Limit> {
    let hour = Span::from_secs(3_600);
    let numbers = PenaltyNumbers {
        free: 3,
        base: hour,
        factor: 2,
        longest: WINDOW,
        memory: WINDOW,
        count_refused: false,
    };
    let mut limits = counting_limits(1_000, WINDOW).unwrap();
    limits.push(Limit::Penalty(Penalty::new(numbers).unwrap()));
    assert!(Algorithm::ALL.iter().all(|kind| limits.iter().any(|limit| limit.algorithm() == *kind)));
    limits
}

/// A real server, and the memory model of it.
struct Bench {
    server: Server,
    admin: Admin,
    runtime: Runtime,
    store: RedisStore,
    footprint: Footprint,
}

impl Bench {
    fn new(flavour: Flavour) -> Bench {
        let server = Server::start(flavour).unwrap();
        let mut admin = server.admin().unwrap();
        let allocator = match &admin.info("memory").unwrap()["mem_allocator"] {
            jemalloc if jemalloc.starts_with("jemalloc") => Allocator::Jemalloc,
            libc if libc.starts_with("libc") => Allocator::Libc,
            other => panic!("{other}"),
        };
        let engine = if flavour == Flavour::Valkey9 { Engine::Valkey } else { Engine::Redis };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let settings = RedisSettings::url(&server.url()).unwrap().deadline(LONG);
        let store = runtime.block_on(settings.connect()).unwrap();
        Bench { server, admin, runtime, store, footprint: Footprint { engine, allocator } }
    }

    fn ask(&self, plan: &Plan<'_>) -> Answer {
        self.runtime.block_on(self.store.apply(plan)).unwrap().answers[0]
    }

    fn memory_usage(&mut self, key: &str) -> u64 {
        self.admin.memory_usage(key.as_bytes()).unwrap().expect("the key exists")
    }

    /// Returns the part of an estimate that MEMORY USAGE reports. Redis leaves out the entry of the expiry.
    fn reported(&self, estimate: KeyBytes) -> u64 {
        match self.footprint.engine {
            Engine::Redis => estimate.total() - estimate.expiry,
            Engine::Valkey => estimate.total(),
        }
    }

    /// Returns the server's used memory, once its tables have stopped growing.
    fn used_memory(&mut self) -> u64 {
        let mut used = || self.admin.info("memory").unwrap()["used_memory"].parse::<u64>().unwrap();
        let (began, mut before) = (Instant::now(), used());
        loop {
            std::thread::sleep(Duration::from_millis(150));
            let now = used();
            if now.abs_diff(before) < 4_096 {
                return now;
            }
            assert!(began.elapsed() < LONG, "memory does not settle");
            before = now;
        }
    }

    /// Sends one request for each of `subjects` subjects, many at a time.
    fn fill(&self, keyspace: &'static Keyspace, limit: Limit, subjects: u64) {
        let next = Arc::new(AtomicU64::new(0));
        self.runtime.block_on(async {
            let tasks: Vec<_> = (0..256)
                .map(|_| {
                    let (store, next) = (self.store.clone(), Arc::clone(&next));
                    tokio::spawn(async move {
                        loop {
                            let number = next.fetch_add(1, Ordering::Relaxed);
                            if number >= subjects {
                                return;
                            }
                            store
                                .apply(&plan(keyspace, subject(number), limit, first(&limit)))
                                .await
                                .unwrap();
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    }
}

fn subject(number: u64) -> Subject {
    SubjectHasher::new([5; 32]).subject([("user", number.to_string().as_str())])
}

fn plan<'s>(keyspace: &'s Keyspace, subject: Subject, limit: Limit, operation: Operation) -> Plan<'s> {
    let mut plan = Plan::new();
    plan.push(Item::new(keyspace.key(subject), limit, operation)).unwrap();
    plan
}

fn first(limit: &Limit) -> Operation {
    match limit {
        Limit::Penalty(_) => Operation::Report { result: Report::Failure },
        _ => Operation::Charge { cost: 1, token: Token(1) },
    }
}

/// Prints both numbers, and returns whether they differ by at most the tolerance.
fn near(what: &str, estimate: u64, found: u64) -> bool {
    let off = (estimate as f64 / found as f64 - 1.0) * 100.0;
    println!("{what}: estimated {estimate}, found {found}, {off:+.1} %");
    estimate.abs_diff(found) * 100 <= found * TOLERANCE
}

#[test]
fn the_estimate_of_every_algorithm_is_close_to_the_memory_used() {
    let keyspace: &'static Keyspace =
        Box::leak(Box::new(Keyspace::new("shop-prod", "search-per-key").unwrap()));
    let mut wrong = Vec::new();
    for flavour in Flavour::ALL {
        let mut bench = Bench::new(flavour);
        for limit in limits() {
            let name = format!("{flavour}, {}", limit.algorithm().name());
            // Loads the script and allocates the connection's buffers before anything is measured.
            bench.fill(keyspace, limit, 600);
            bench.admin.flushall().unwrap();
            let before = bench.used_memory();
            bench.fill(keyspace, limit, SUBJECTS);
            let used = bench.used_memory() - before;
            let least = Records::of(&limit).map_or(0, |records| records.least);
            let estimate = bench.footprint.subject(0, keyspace, &limit, least);
            // The first request takes a lease, which has a separate record.
            let hold = bench.footprint.hold(0, keyspace, &limit);
            let hold = hold.filter(|_| matches!(limit, Limit::Concurrency(_)));
            let keys = SUBJECTS * (1 + u64::from(hold.is_some()));
            let each = hold.map_or(estimate, |hold| estimate.with(hold, 1));
            let in_all = each.total() * SUBJECTS + bench.footprint.tables(keys);
            // One key in a thousand may be in a larger allocation that was left over.
            let mut reported: Vec<u64> =
                (0..9).map(|number| bench.memory_usage(&keyspace.key(subject(number)).to_string())).collect();
            reported.sort_unstable();
            if !near(&format!("{name}, MEMORY USAGE"), bench.reported(estimate), reported[4]) {
                wrong.push(format!("{name}, one"));
            }
            if !near(&format!("{name}, a subject"), in_all / SUBJECTS, used / SUBJECTS) {
                wrong.push(format!("{name}, all"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Fills state one request at a time. After 65 and 250 entries a log has just been reallocated and has its largest size.
#[test]
fn the_worst_case_estimate_matches_full_logs_and_the_most_ends_of_reservations() {
    let keyspace = Keyspace::new("shop-prod", "full").unwrap();
    let log = |limit| Limit::SlidingLog(SlidingLog::new(limit, WINDOW).unwrap());
    let quota = |limit| Limit::Quota(Quota::new(limit, 0, QuotaPeriod::Rolling(WINDOW)).unwrap());
    let limits = [log(5), log(65), log(250), quota(30), quota(300)];
    let mut wrong = Vec::new();
    for flavour in Flavour::ALL {
        let mut bench = Bench::new(flavour);
        for limit in limits {
            bench.admin.flushall().unwrap();
            let records = Records::of(&limit).unwrap();
            for number in 0..records.most {
                let token = Token(u128::from(number) + 1);
                let operation = match limit {
                    Limit::Quota(_) => {
                        // Each is 5 % longer than the one before, so that every end differs.
                        let hold = Span::from_us((6e7 * 1.05_f64.powi(number as i32)) as u64);
                        Operation::Reserve { cost: 1, token, hold }
                    }
                    _ => Operation::Charge { cost: 1, token },
                };
                assert!(bench.ask(&plan(&keyspace, subject(0), limit, operation)).is_admitted());
            }
            let estimate = bench.footprint.subject(0, &keyspace, &limit, records.most);
            let found = bench.memory_usage(&keyspace.key(subject(0)).to_string());
            let what = format!("{flavour}, {} of {}", limit.algorithm().name(), records.most);
            if !near(&what, bench.reported(estimate), found) {
                wrong.push(what);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn the_record_of_a_lease_takes_the_estimated_memory() {
    let keyspace = Keyspace::new("shop-prod", "exports").unwrap();
    let limit = Limit::Concurrency(Concurrency::new(5, WINDOW).unwrap());
    let mut wrong = Vec::new();
    for flavour in Flavour::ALL {
        let mut bench = Bench::new(flavour);
        bench.ask(&plan(&keyspace, subject(0), limit, first(&limit)));
        let estimate = bench.footprint.hold(0, &keyspace, &limit).unwrap();
        let found = bench.memory_usage(&keyspace.key(subject(0)).hold_key(Token(1)).to_string());
        if !near(&format!("{flavour}, a lease"), bench.reported(estimate), found) {
            wrong.push(flavour);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A log of any length never exceeds its estimate.
#[test]
fn a_log_never_exceeds_its_estimate() {
    let keyspace = Keyspace::new("shop-prod", "log").unwrap();
    let limit = Limit::SlidingLog(SlidingLog::new(300, WINDOW).unwrap());
    let mut bench = Bench::new(Flavour::Redis70);
    let key = keyspace.key(subject(0)).to_string();
    for entries in 1..=300 {
        bench.ask(&plan(&keyspace, subject(0), limit, Operation::charge(1)));
        let reply = bench.admin.command(&[b"STRLEN", key.as_bytes()]).unwrap();
        let tollgate_testkit::redis::Value::Integer(found) = reply else { panic!("{reply:?}") };
        let estimate = bench.footprint.subject(0, &keyspace, &limit, entries).value;
        assert!(found.unsigned_abs() <= estimate, "{entries} entries: {found} bytes, estimated {estimate}");
    }
}

#[test]
fn a_remembered_request_id_takes_the_estimated_memory() {
    let keyspaces =
        ["search-per-key", "items", "exports-per-month"].map(|rule| Keyspace::new("shop", rule).unwrap());
    let limit = counting_limits(1_000, WINDOW).unwrap()[0];
    let mut wrong = Vec::new();
    for flavour in Flavour::ALL {
        let mut bench = Bench::new(flavour);
        for rules in 1..=3 {
            let (mut plan, id) = (Plan::new(), subject(1_000 + rules as u64));
            for keyspace in &keyspaces[..rules] {
                plan.push(Item::new(keyspace.key(subject(0)), limit, Operation::charge(1))).unwrap();
            }
            plan.set_request_id(id, Span::from_secs(60), 1);
            bench.ask(&plan);
            let estimate = bench.footprint.request_id(0, &keyspaces[0], rules as u64);
            let found = bench.memory_usage(&keyspaces[0].key(subject(0)).request_id_key(id).to_string());
            let what = format!("{flavour}, id of a request under {rules} rules");
            if !near(&what, bench.reported(estimate), found) {
                wrong.push(what);
            }
        }
        drop(bench.server);
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
