//! A worker that sends webhooks. It prefers a delay to a refusal, so it waits for admission with `acquire`.
//!
//!     cargo run -p tollgate --example worker
//!
//! Four tasks send as fast as they can, and the target gets their calls evenly, one each 50 ms. Only the rules coordinate
//! the tasks; with a shared store they coordinate any number of servers.

use std::error::Error;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate::{AcquireError, LocalLimiter};

const RULES: &str = "
version: 1
rules:
  - id: pace-per-target
    per: target
    missing: refuse
    limit: { leaky-bucket: 20/s, queue: 50 }     # a queue delays calls instead of refusing them
  - id: all-targets
    per: all
    limit: { token-bucket: 1000/s }
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = LocalLimiter::from_yaml(RULES)?;
    let start = Instant::now();

    let mut workers = JoinSet::new();
    for worker in 0..4 {
        let limiter = limiter.clone();
        workers.spawn(async move {
            let mut sent = Vec::new();
            for _ in 0..2 {
                let target = [("target", "https://example.com/hook")];
                let _permit = limiter.acquire(target, Duration::from_secs(10)).await?;
                // Send the webhook here.
                sent.push((start.elapsed(), worker));
            }
            Ok::<_, AcquireError>(sent)
        });
    }
    let mut sent = Vec::new();
    while let Some(worker) = workers.join_next().await {
        sent.extend(worker??);
    }
    sent.sort();
    for (at, worker) in &sent {
        println!("{:>4} ms  worker {worker} sends", at.as_millis());
    }
    // The slot of the eighth call is 350 ms after the first; clocks may differ a little.
    let last = sent[7].0;
    assert!(last >= Duration::from_millis(340), "eight calls in {last:?} are too fast");

    // A call whose slot is too far away fails immediately and takes no slot.
    let busy = [("target", "https://example.com/busy")];
    for _ in 0..50 {
        assert!(limiter.check(busy)?.allowed());
    }
    let late = limiter.acquire(busy, Duration::from_secs(1)).await;
    let Err(AcquireError::TooLate { decision }) = late else { return Err("it found a slot in time".into()) };
    let wait = decision.delay();
    println!("the next slot of the busy target is {} ms away: not sent", wait.as_millis());
    assert!(wait > Duration::from_secs(1));
    Ok(())
}
