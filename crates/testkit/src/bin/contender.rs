//! One of several processes that ask the same Redis at once: `contender URL LIMIT ATTEMPTS FIRST`.
//!
//! Asks ATTEMPTS times, from 64 tasks, for one unit of the same key under the counting limit number LIMIT, and prints how
//! often it was admitted. Attempts are numbered from FIRST. Prints `ready` once Redis has answered, and waits for a
//! line on its input before it begins.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::store::redis::{RedisSettings, RedisStore};
use tollgate_core::{Item, Keyspace, Operation, Plan, Span, Store, StoreError, SubjectHasher, Token};
use tollgate_testkit::conformance::counting_limits;

const TASKS: usize = 64;
const LIMIT: u64 = 1_000;
const WINDOW: Span = Span::from_secs(30 * 86_400);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, limit, attempts, first] = &arguments[..] else {
        return Err("usage: contender URL LIMIT ATTEMPTS FIRST".into());
    };
    let (limit, first): (usize, u64) = (limit.parse()?, first.parse()?);
    let store = RedisSettings::url(url)?.deadline(Duration::from_secs(20)).connect().await?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let (next, end) = (Arc::new(AtomicU64::new(first)), first + attempts.parse::<u64>()?);
    let tasks: Vec<_> =
        (0..TASKS).map(|_| tokio::spawn(attempt(store.clone(), limit, Arc::clone(&next), end))).collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await??;
    }
    println!("{admitted}");
    Ok(())
}

/// Attempts until there are none left; says how many were admitted.
async fn attempt(
    store: RedisStore,
    limit: usize,
    next: Arc<AtomicU64>,
    end: u64,
) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let limit = counting_limits(LIMIT, WINDOW)?[limit];
    let keyspace = Keyspace::new("test", "contended")?;
    let key = keyspace.key(SubjectHasher::new([5; 32]).subject([("user", "u")]));
    let mut admitted = 0;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= end {
            return Ok(admitted);
        }
        let mut plan = Plan::new();
        let token = Token(u128::from(number) + 1);
        plan.push(Item::new(key, limit, Operation::Charge { cost: 1, token }))?;
        let outcome = store.apply(&plan).await.map_err(|error: StoreError| Box::new(error))?;
        admitted += u64::from(outcome.answers[0].is_admitted());
    }
}
