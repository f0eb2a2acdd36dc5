//! Every operation on a reservation in every state, on the memory store and on Redis: the table in the documentation.

use std::fs;
use std::time::Duration;

use tollgate::store::redis::TimeSource;
use tollgate::{
    Clock, Decline, Extension, HashKey, Limiter, LocalLimiter, ManualClock, Receipt, Request, Returned, Time,
};
use tollgate_testkit::redis::{Flavour, Server};

use crate::common::{runtime, settings};

const RULES: &str = "
version: 1
rules:
  - { id: quota, per: user, limit: { quota: 100/30d, period: rolling } }
  - { id: window, per: user, limit: { fixed-window: 100/30d } }
";

/// In the middle of a window of 30 days.
const START: Time = Time::from_us(1_700_000_000_000_000);
const HOLD: Duration = Duration::from_secs(60);

/// The page with the table.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/concepts/reservations.md");

/// How a reservation of 8 units gets into a state.
const STATES: [&str; 8] =
    ["open", "extended", "settled", "cancelled", "expired", "settled late", "reset", "evicted"];

const OPERATIONS: [&str; 6] = ["extend by 4", "settle 5", "settle 20", "cancel", "refund", "expire"];

/// A limiter on one store, and what the test does to it.
struct Stage<'s> {
    limiter: Limiter,
    clock: &'static ManualClock,
    /// Loses all state.
    evict: Box<dyn Fn() -> Limiter + 's>,
}

impl Stage<'_> {
    /// The row of the table for an operation in a state.
    async fn row(&mut self, state: &str, operation: &str, user: &str) -> String {
        let request = || Request::from([("user", user)]);
        let reserved = self.limiter.reserve(request().cost(8), HOLD).await.unwrap();
        assert!(reserved.allowed());
        let mut receipts = reserved.receipts();
        // Dropped later: it must not cancel.
        std::mem::forget(reserved);
        match state {
            "extended" => {
                let extension = self.limiter.extend_receipts(&receipts, 4, HOLD, None).await.unwrap();
                assert!(extension.allowed);
                receipts = extension.receipts;
            }
            "settled" => drop(self.limiter.settle_receipts(&receipts, 5).await.unwrap()),
            "cancelled" => drop(self.limiter.cancel_receipts(&receipts).await.unwrap()),
            "expired" => self.clock.advance(HOLD * 2),
            "settled late" => {
                self.clock.advance(HOLD * 2);
                drop(self.limiter.settle_receipts(&receipts, 5).await.unwrap());
            }
            "reset" => drop(self.limiter.reset(request()).await.unwrap()),
            "evicted" => self.limiter = (self.evict)(),
            _ => {}
        }
        // A receipt must be older than what comes after it.
        self.clock.advance(Duration::from_micros(1));
        let results = self.apply(operation, &receipts).await;
        let usage = self.limiter.usage(request()).await.unwrap();
        let counted = |rule: &str| {
            let usage = usage.iter().find(|usage| usage.rule == rule).unwrap();
            usage.used + usage.held
        };
        let [quota, window] = results;
        let (in_quota, in_window) = (counted("quota"), counted("window"));
        format!("| {state} | {operation} | {quota} | {window} | {in_quota} | {in_window} |")
    }

    /// Applies an operation. Returns what the quota and the window answer.
    async fn apply(&self, operation: &str, receipts: &[Receipt]) -> [String; 2] {
        let limiter = &self.limiter;
        let returned = match operation {
            "extend by 4" => {
                return extended(&limiter.extend_receipts(receipts, 4, HOLD, Some("again")).await.unwrap());
            }
            "expire" => {
                self.clock.advance(HOLD * 2);
                return ["-".to_owned(), "-".to_owned()];
            }
            "settle 5" => limiter.settle_receipts(receipts, 5).await,
            "settle 20" => limiter.settle_receipts(receipts, 20).await,
            "cancel" => limiter.cancel_receipts(receipts).await,
            "refund" => limiter.refund_receipts(receipts).await,
            other => panic!("{other}"),
        };
        let returned = returned.unwrap();
        let of = |rule: &str| {
            let mut of_rule = returned.iter().filter(|returned| returned.rule == rule);
            let first = of_rule.next().map_or("-".to_owned(), answer);
            of_rule.fold(first, |all, next| format!("{all}, {}", answer(next)))
        };
        [of("quota"), of("window")]
    }
}

fn extended(extension: &Extension) -> [String; 2] {
    let held = |rule: &str| {
        let of_rule = extension.receipts.iter().filter(|receipt| receipt.rule == rule);
        of_rule.map(|receipt| receipt.cost).sum::<u64>()
    };
    match (extension.allowed, extension.declined) {
        (true, None) => [format!("holds {}", held("quota")), format!("charged {}", held("window"))],
        (false, Some(why)) => [declined(why), "not charged".to_owned()],
        other => panic!("{other:?}"),
    }
}

fn answer(returned: &Returned) -> String {
    let already = if returned.already_returned { "already: " } else { "" };
    match (returned.amount, returned.recorded) {
        (Ok(0), more @ 1..) => format!("{already}books {more} more"),
        (Ok(amount), 0) => format!("{already}gives back {amount}"),
        (Err(Decline::BookedLate), amount) => format!("{already}books {amount} late"),
        (Err(why), 0) => declined(why),
        other => panic!("{other:?}"),
    }
}

fn declined(why: Decline) -> String {
    let why = match why {
        Decline::NotHeld => "not held",
        Decline::ResetSince => "reset since",
        other => panic!("{other:?}"),
    };
    format!("declined: {why}")
}

fn rows(mut stage: Stage<'_>) -> Vec<String> {
    let runtime = runtime();
    let mut rows = Vec::new();
    for state in STATES {
        for operation in OPERATIONS {
            let user = format!("u-{}", rows.len());
            rows.push(runtime.block_on(stage.row(state, operation, &user)));
        }
    }
    rows
}

fn new_clock() -> &'static ManualClock {
    Box::leak(Box::new(ManualClock::at(START)))
}

#[test]
fn every_operation_in_every_state_does_on_every_store_what_the_page_says() {
    let clock = new_clock();
    let builder = || LocalLimiter::builder().rules_yaml(RULES).hash_key(HashKey::new([7; 32]));
    let limiter = || Limiter::from(builder().clock(clock).build().unwrap());
    let in_memory = rows(Stage { limiter: limiter(), clock, evict: Box::new(limiter) });

    let page = fs::read_to_string(PAGE).unwrap();
    let table: Vec<&str> = page.lines().filter(|line| is_row(line)).collect();
    assert_eq!(table.join("\n"), in_memory.join("\n"), "left: {PAGE}, right: the memory store");

    let server = Server::start(Flavour::Redis70).unwrap();
    let running = runtime();
    let clock = new_clock();
    let store = {
        let _inside = running.enter();
        let settings = settings(&server.url()).time(TimeSource::Application).clock(clock);
        settings.margin(Duration::from_secs(3_600)).open().unwrap()
    };
    let builder = Limiter::builder().rules_yaml(RULES).hash_key(HashKey::new([7; 32]));
    let limiter = running.block_on(builder.custom_store(store).build()).unwrap();
    let emptied = limiter.clone();
    let evict = move || {
        server.admin().unwrap().flushall().unwrap();
        emptied.clone()
    };
    let in_redis = rows(Stage { limiter, clock, evict: Box::new(evict) });
    assert_eq!(in_redis.join("\n"), in_memory.join("\n"), "left: Redis, right: the memory store");
    assert!(clock.now() > START);
}

fn is_row(line: &str) -> bool {
    STATES.iter().any(|state| line.starts_with(&format!("| {state} |")))
}
