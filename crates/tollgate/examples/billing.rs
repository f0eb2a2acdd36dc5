//! A service that bills on a quota: what it admits is recorded in a database, exactly once.
//!
//!     cargo run -p tollgate --example billing --features ledger
//!
//! `tollgate ledger usage | export | verify` read the same file.

use std::error::Error;

use tollgate::ledger::Ledger;
use tollgate::ledger::database::Filter;
use tollgate::{HashKey, Limiter, Request};

const RULES: &str = "
version: 1
rules:
  - id: tokens
    per: tenant
    limit: { quota: 1000/month, zone: UTC }
    ledger: { name: tenant, wait: true }         # an answer comes after the commit
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    // In a service: a file that stays, or postgres://, which several servers share.
    let url = format!("sqlite:{}", folder.path().join("usage.db").display());
    // In a service: from a secret that every server has. Another key would give every tenant another account.
    let key = HashKey::from_hex(0, &"5a".repeat(32))?;
    let ledger = Ledger::open(&url).await?;
    let limiter = Limiter::builder().rules_yaml(RULES).hash_key(key).ledger(&ledger).build().await?;

    for (job, cost) in [("job-1", 400), ("job-2", 500), ("job-3", 200), ("job-1", 400)] {
        // A repeated id gets the first answer again, and is charged once.
        let request = Request::from([("tenant", "acme")]).cost(cost).id(job);
        let decision = limiter.check(request).await?;
        println!("{job}: {}", if decision.allowed() { "admitted" } else { "refused" });
    }

    // Posts what is left. Call it before the program ends.
    ledger.close().await;
    for usage in ledger.database().usage(&Filter::default(), 0, 100).await? {
        let name = usage.name.unwrap_or_default();
        println!("{name}: {} used, {} left", usage.balance.posted, usage.balance.available());
    }
    Ok(())
}
