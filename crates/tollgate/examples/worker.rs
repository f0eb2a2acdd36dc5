//! A worker that sends webhooks: it would rather be late than refused, so it waits for admission with `acquire`.
//!
//!     cargo run -p tollgate --example worker
//!
//! What to look at: four tasks send as fast as they are let, and the target gets their calls evenly, one each 50 ms.
//! Nobody coordinates the tasks but the rules; with a store that servers share, the same holds for any number of them.

use std::error::Error;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate::limiter::AcquireError;
use tollgate::{Attributes, Limiter};

const RULES: &str = "
version: 1
rules:
  - id: pace-per-target
    per: target
    missing: refuse
    limit: { leaky-bucket: 20/s, queue: 50 }     # a queue shapes: calls are delayed, not refused
  - id: all-targets
    per: all
    limit: { token-bucket: 1000/s }
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::from_yaml(RULES)?;
    let start = Instant::now();

    let mut workers = JoinSet::new();
    for worker in 0..4 {
        let limiter = limiter.clone();
        workers.spawn(async move {
            let mut sent = Vec::new();
            for _ in 0..2 {
                let attributes = Attributes::from([("target", "https://example.com/hook")]);
                let _permit = limiter.acquire(&attributes, Duration::from_secs(10)).await?;
                // The call would stand here.
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
    // The last of eight has its slot seven times 50 ms after the first one's; clocks may differ by a little.
    let last = sent[7].0;
    assert!(last >= Duration::from_millis(340), "eight calls in {last:?} are too fast");

    // Who cannot wait long enough is told at once, and keeps no slot.
    let attributes = Attributes::from([("target", "https://example.com/busy")]);
    for _ in 0..50 {
        assert!(limiter.check(&attributes).await?.allowed);
    }
    let late = limiter.acquire(&attributes, Duration::from_secs(1)).await;
    let Err(AcquireError::TooLate { decision }) = late else { return Err("it found a slot in time".into()) };
    let wait = decision.delay();
    println!("the next slot of the busy target is {} ms away: not sent", wait.as_millis());
    assert!(wait > Duration::from_secs(1));
    Ok(())
}
