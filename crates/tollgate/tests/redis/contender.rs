//! Several processes that compete for the same key: this test binary starts itself again as a child.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::store::redis::RedisStore;
use tollgate_core::{Item, Keyspace, Limit, Operation, Plan, Store, Token};
use tollgate_testkit::conformance::counting_limits;
use tollgate_testkit::redis::{Flavour, Server};

use crate::common::{LIMIT, USER, WINDOW, clean, runtime, settings, subject};

const ATTEMPTS: u64 = 10_000;
const TASKS: usize = 64;
/// Arguments of the child: URL, index of the limit, number of attempts, number of the first attempt.
const ARGUMENTS: &str = "TOLLGATE_TEST_CONTENDER";
/// What the child prints. The test harness may print text before it on the same line.
const READY: &str = "contender: ready";
const ADMITTED: &str = "contender: admitted ";

#[test]
fn three_processes_get_exactly_the_limit_under_every_algorithm() {
    let server = Server::start(Flavour::Redis70).unwrap();
    for limit in 0..counting_limits(LIMIT, WINDOW).unwrap().len() {
        server.admin().unwrap().flushall().unwrap();
        let shares = [3_334, 3_333, 3_333];
        let mut first = 0;
        let mut contenders: Vec<Contender> = shares
            .iter()
            .map(|share| {
                let contender = Contender::start(&format!("{} {limit} {share} {first}", server.url()));
                first += share;
                contender
            })
            .collect();
        assert_eq!(first, ATTEMPTS);
        // No process begins before all are connected.
        contenders.iter_mut().for_each(|contender| drop(contender.wait_for(READY)));
        contenders.iter_mut().for_each(Contender::begin);
        let admitted: u64 = contenders.into_iter().map(Contender::admitted).sum();
        assert_eq!(admitted, LIMIT, "limit {limit}");
        // One account, and a record for each lease that is held.
        let is_lease = matches!(counting_limits(LIMIT, WINDOW).unwrap()[limit], Limit::Concurrency(_));
        assert_eq!(clean(&server) as u64, if is_lease { 1 + LIMIT } else { 1 });
    }
}

struct Contender {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Contender {
    fn start(arguments: &str) -> Contender {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["contender::child_process", "--exact", "--nocapture"])
            .env(ARGUMENTS, arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Contender { process, output }
    }

    /// Reads up to the line that contains `text`, and returns what follows it.
    fn wait_for(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the contender ended early");
            if let Some((_, rest)) = line.split_once(text) {
                return rest.trim().to_owned();
            }
        }
    }

    fn begin(&mut self) {
        self.process.stdin.take().unwrap().write_all(b"\n").unwrap();
    }

    fn admitted(mut self) -> u64 {
        let admitted = self.wait_for(ADMITTED).parse().unwrap();
        // The harness still prints its summary.
        self.output.lines().for_each(|line| drop(line.unwrap()));
        assert!(self.process.wait().unwrap().success());
        admitted
    }
}

/// Charges one key from 64 tasks, after a line on its input, and prints how many charges were admitted.
///
/// This is the child process of `three_processes_get_exactly_the_limit_under_every_algorithm`. Without its arguments, in an
/// ordinary run of the tests, it does nothing.
#[test]
fn child_process() {
    let Ok(arguments) = env::var(ARGUMENTS) else { return };
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let [url, limit, attempts, first] = arguments[..] else { panic!("{arguments:?}") };
    let (limit, first): (usize, u64) = (limit.parse().unwrap(), first.parse().unwrap());
    let end = first + attempts.parse::<u64>().unwrap();
    runtime().block_on(async {
        let store = settings(url).connect().await.unwrap();
        println!("{READY}");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let next = Arc::new(AtomicU64::new(first));
        let tasks: Vec<_> =
            (0..TASKS).map(|_| tokio::spawn(attempt(store.clone(), limit, Arc::clone(&next), end))).collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.unwrap();
        }
        println!("{ADMITTED}{admitted}");
    });
}

/// Charges until no attempt is left, and returns how many charges were admitted.
async fn attempt(store: RedisStore, limit: usize, next: Arc<AtomicU64>, end: u64) -> u64 {
    let limit = counting_limits(LIMIT, WINDOW).unwrap()[limit];
    let keyspace = Keyspace::new("test", "contended").unwrap();
    let mut admitted = 0;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= end {
            return admitted;
        }
        let mut plan = Plan::new();
        let operation = Operation::Charge { cost: 1, token: Token(u128::from(number) + 1) };
        plan.push(Item::new(keyspace.key(subject(USER)), limit, operation)).unwrap();
        admitted += u64::from(store.apply(&plan).await.unwrap().answers[0].is_admitted());
    }
}
