//! A token budget for a language model: reserve an estimate, call the model, settle the actual cost.
//!
//!     cargo run -p tollgate --example llm_budget
//!
//! The cost of a call is known only when it is over. While it runs, the quota holds the most it may cost, so that
//! concurrent calls cannot spend the same tokens. Afterwards only the actual cost counts. A call that fails drops its
//! reservation, which gives everything back.

use std::error::Error;
use std::time::Duration;

use tollgate::{LocalLimiter, LocalReservation, Request};

const RULES: &str = "
version: 1
rules:
  - id: tokens-per-tenant
    per: tenant
    missing: refuse
    limit: { quota: 10_000/1d, period: rolling }     # a day that starts with the first call
";

/// A call that has not ended by then gives its tokens back.
const HOLD: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let limiter = LocalLimiter::from_yaml(RULES)?;

    println!("two calls of at most 4000 tokens each, at the same time:");
    let first = reserve(&limiter, 4_000)?;
    let second = reserve(&limiter, 4_000)?;
    assert!(first.allowed() && second.allowed());
    assert_eq!(remaining(&limiter)?, 2_000);

    println!("a third does not fit while they run:");
    let third = reserve(&limiter, 4_000)?;
    assert!(!third.allowed());

    println!("the first used 1200, the second failed:");
    for returned in first.settle(1_200)? {
        println!("    {}: {} given back", returned.rule, returned.amount?);
    }
    drop(second);
    assert_eq!(remaining(&limiter)?, 8_800);

    println!("now the third fits, and uses more than its estimate:");
    let third = reserve(&limiter, 4_000)?;
    assert!(third.allowed());
    third.settle(4_500)?;
    assert_eq!(remaining(&limiter)?, 4_300);

    println!("an estimate above the whole budget is an error, not a refusal: no wait would help");
    let error = reserve(&limiter, 10_001).err().ok_or("the budget is smaller")?;
    println!("    {error}");
    Ok(())
}

fn reserve(limiter: &LocalLimiter, most: u64) -> Result<LocalReservation, Box<dyn Error>> {
    let reservation = limiter.reserve(Request::from([("tenant", "acme")]).cost(most), HOLD)?;
    println!("    {most} reserved: {}", if reservation.allowed() { "go ahead" } else { "not now" });
    Ok(reservation)
}

fn remaining(limiter: &LocalLimiter) -> Result<u64, Box<dyn Error>> {
    // With cost 0 the decision shows what remains now; with another cost, what would remain after it.
    let decision = limiter.peek(Request::from([("tenant", "acme")]).cost(0))?;
    let remaining = decision.remaining().ok_or("no rule matched")?;
    println!("    {remaining} remaining");
    Ok(remaining)
}
