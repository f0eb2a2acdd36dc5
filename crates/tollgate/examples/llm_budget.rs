//! A budget of tokens for a language model: reserve an estimate, call the model, settle what it came to.
//!
//!     cargo run -p tollgate --example llm_budget
//!
//! What to look at: the cost of a call is known only when it is over. While it runs, the quota holds the most it may
//! cost, so that many calls at once cannot spend the same tokens; afterwards only what was used counts. A call that
//! fails gives everything back, because its reservation is dropped.

use std::error::Error;

use tollgate::core::Span;
use tollgate::{Attributes, Limiter, Request, Reservation};

const RULES: &str = "
version: 1
rules:
  - id: tokens-per-tenant
    per: tenant
    missing: refuse
    limit: { quota: 10_000/1d, period: rolling }     # a day that starts with the first call
";

/// A call that has not come back by then is forgotten, and its tokens are free again.
const HOLD: Span = Span::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::from_yaml(RULES)?;

    println!("two calls of at most 4000 tokens each, at the same time:");
    let first = reserve(&limiter, 4_000).await?;
    let second = reserve(&limiter, 4_000).await?;
    assert!(first.allowed && second.allowed);
    assert_eq!(left(&limiter).await?, 2_000);

    println!("a third does not fit while they run:");
    let third = reserve(&limiter, 4_000).await?;
    assert!(!third.allowed);

    println!("the first used 1200, the second failed:");
    for returned in first.settle(1_200).await? {
        println!("    {}: {} counted", returned.rule, returned.amount?);
    }
    drop(second);
    assert_eq!(left(&limiter).await?, 8_800);

    println!("now it fits, and uses more than it said:");
    let third = reserve(&limiter, 4_000).await?;
    assert!(third.allowed);
    third.settle(4_500).await?;
    assert_eq!(left(&limiter).await?, 4_300);

    println!("what is larger than the whole budget is an error, not a refusal: no wait would help");
    let error = reserve(&limiter, 10_001).await.err().ok_or("that cannot be")?;
    println!("    {error}");
    Ok(())
}

async fn reserve(limiter: &Limiter, most: u64) -> Result<Reservation, Box<dyn Error>> {
    let attributes = Attributes::from([("tenant", "acme")]);
    let reservation = limiter.reserve(Request::new(&attributes).cost(most), HOLD).await?;
    println!("    {most} reserved: {}", if reservation.allowed { "go ahead" } else { "not now" });
    Ok(reservation)
}

async fn left(limiter: &Limiter) -> Result<u64, Box<dyn Error>> {
    let attributes = Attributes::from([("tenant", "acme")]);
    // What a request for nothing would be told.
    let decision = limiter.peek(Request::new(&attributes).cost(0)).await?;
    let left = decision.headline().and_then(|rule| rule.numbers).ok_or("no numbers")?.remaining;
    println!("    {left} left");
    Ok(left)
}
