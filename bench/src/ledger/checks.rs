//! What a recorded check costs the process beside the same check of an unrecorded rule.

use anyhow::{Result, ensure};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tollgate::ledger::Ledger;
use tollgate::{Limiter, Request};

use super::{Effort, Entrant, block_on, measured};

const IN_FLIGHT: usize = 64;
const RULE: &str = "{ id: tokens, per: tenant, limit: { quota: 1000000000/month, zone: UTC }";

async fn checks(limiter: &Limiter, count: usize) -> Result<usize> {
    let each = count / IN_FLIGHT;
    let mut tasks = JoinSet::new();
    for task in 0..IN_FLIGHT {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let tenants: Vec<String> = (0..16).map(|number| format!("t{task}-{number}")).collect();
            for number in 0..each {
                let request = Request::from([("tenant", tenants[number % 16].as_str())]);
                ensure!(limiter.check(request).await?.allowed(), "the limit is too small");
                // As a server does, which waits for the next request.
                tokio::task::yield_now().await;
            }
            Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(each * IN_FLIGHT)
}

pub(super) fn entrants<'a>(
    runtime: &'a Runtime,
    folder: &TempDir,
    effort: Effort,
) -> Result<Vec<Entrant<'a>>> {
    let rules = |ledger: &str| format!("version: 1\nrules: [ {RULE}{ledger} }} ]\n");
    let url = format!("sqlite:{}", folder.path().join("checks.db").display());
    let ledger = block_on(runtime, async { Ok(Ledger::open(&url).await?) })?;
    let plain = block_on(runtime, async { Ok(Limiter::builder().rules_yaml(rules("")).build().await?) })?;
    let recorded = block_on(runtime, async {
        Ok(Limiter::builder().rules_yaml(rules(", ledger: {}")).ledger(&ledger).build().await?)
    })?;
    let entrant = |name, what, limiter: Limiter| Entrant {
        name,
        what,
        run: Box::new(move || measured(|| block_on(runtime, checks(&limiter, effort.checks)))),
    };
    Ok(vec![
        entrant("unrecorded", "`Limiter::check` of a quota in memory, from 64 tasks", plain),
        entrant("recorded", "the same with `ledger: {}`: journal, shipper and SQLite run in the process", recorded),
    ])
}
