//! Servers that are killed with `kill -9` under load: every acknowledged charge is one entry, none is posted twice.
//!
//! `TOLLGATE_LEDGER_KILLS=1000 cargo test -p tollgate-server --test ledger -- crash` kills more often.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_testkit::random::Random;
use tollgate_testkit::redis::{Flavour, Server};
use tollgate_testkit::serving::Serving;

use crate::client::Client;
use crate::{Workplace, stop};

const CLIENTS: usize = 6;
/// Kills in CI. The variable TOLLGATE_LEDGER_KILLS sets another number.
const KILLS: u64 = 8;

/// One account per client, so that entries and answers can be compared one by one.
fn rules() -> String {
    let rule = |client: usize| {
        format!(
            "  - {{ id: c{client}, match: {{ client: c{client} }}, per: all, limit: {{ quota: 1000000000/month, zone: UTC }}, ledger: {{}} }}\n"
        )
    };
    format!("version: 1\nrules:\n{}", (0..CLIENTS).map(rule).collect::<String>())
}

/// What all clients share.
struct Shared {
    /// The address of the server that runs; `None` while none does.
    address: Mutex<Option<SocketAddr>>,
    ended: AtomicBool,
    /// Requests that were sent again because their answer did not come.
    repeated: AtomicU64,
}

/// Sends checks until the end. A check without an answer is sent again under its id. Returns the sum of acknowledged costs.
fn drive(shared: &Shared, number: usize) -> (u64, u64) {
    let attributes = json!({ "client": format!("c{number}") });
    let (mut acknowledged, mut count) = (0, 0);
    let mut client: Option<Client> = None;
    while !shared.ended.load(Ordering::Relaxed) {
        count += 1;
        let (cost, id) = (1 + count % 7, format!("c{number}-{count}"));
        let mut first = true;
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            assert!(Instant::now() < deadline, "check {id} gets no answer");
            if let Some(connected) = &mut client {
                // The limit is never reached: a refusal is a failure policy, because a busy machine missed a deadline.
                if connected.check(&attributes, cost, &id).is_ok_and(|allowed| allowed) {
                    break;
                }
                if std::mem::take(&mut first) {
                    shared.repeated.fetch_add(1, Ordering::Relaxed);
                }
            }
            let address = *shared.address.lock().expect("no thread panics with the lock");
            client = address.and_then(|address| Client::connect(address).ok());
            if client.is_none() {
                thread::sleep(Duration::from_millis(2));
            }
        }
        acknowledged += cost;
    }
    (acknowledged, count)
}

fn used_by_rule(workplace: &Workplace) -> BTreeMap<String, u64> {
    let usage = workplace.json(&["ledger", "usage"]);
    let mut sums = BTreeMap::new();
    for account in usage["accounts"].as_array().expect("accounts") {
        let rule = account["rule"].as_str().expect("a rule").to_owned();
        *sums.entry(rule).or_insert(0) += account["used"].as_u64().expect("units");
    }
    sums
}

fn kill_under_load(store: Option<&Server>, seed: u64) {
    let kills = std::env::var("TOLLGATE_LEDGER_KILLS").map_or(KILLS, |text| text.parse().expect("a number"));
    let workplace = Workplace::new(&rules());
    let url = store.map(Server::url);
    let more: Vec<&str> =
        url.iter().flat_map(|url| ["--store", url.as_str(), "--store-deadline", "2s"]).collect();
    let shared =
        Shared { address: Mutex::new(None), ended: AtomicBool::new(false), repeated: AtomicU64::new(0) };
    let mut random = Random::new(seed);
    let driven: Vec<(u64, u64)> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                scope.spawn({
                    let shared = &shared;
                    move || drive(shared, number)
                })
            })
            .collect();
        let announce = |server: &Serving| {
            *shared.address.lock().expect("no thread panics with the lock") = Some(server.http);
        };
        for _ in 0..kills {
            let server = workplace.serve(&more);
            announce(&server);
            // Load arrives at a random stage of appending and posting when the process is killed.
            thread::sleep(Duration::from_millis(20 + random.bits() % 200));
            *shared.address.lock().expect("no thread panics with the lock") = None;
            // SIGKILL.
            drop(server);
        }
        let last = workplace.serve(&more);
        announce(&last);
        shared.ended.store(true, Ordering::Relaxed);
        let driven = clients.into_iter().map(|client| client.join().expect("the client ends")).collect();
        stop(last);
        driven
    });
    let verified: Value = workplace.json(&["ledger", "verify"]);
    assert_eq!(verified["intact"], true, "{verified}");
    let used = used_by_rule(&workplace);
    let mut checks = 0;
    for (number, (acknowledged, count)) in driven.into_iter().enumerate() {
        assert_eq!(used.get(&format!("c{number}")), Some(&acknowledged), "client {number}, seed {seed}");
        checks += count;
    }
    let repeated = shared.repeated.into_inner();
    assert!(repeated > 0, "no kill hit a check in flight");
    println!("{kills} kills, {checks} acknowledged checks, {repeated} sent again: none lost, none twice");
}

#[test]
fn crash_with_the_memory_store_loses_and_doubles_nothing() {
    kill_under_load(None, 1);
}

#[test]
fn crash_with_redis_loses_and_doubles_nothing() {
    let redis = Server::start(Flavour::Redis70).expect("Redis starts");
    kill_under_load(Some(&redis), 2);
}
