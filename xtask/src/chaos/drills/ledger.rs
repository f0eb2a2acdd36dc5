//! The ledger while servers, databases and primaries are killed, and while its disk or its database fails.

use std::time::Duration;

use tollgate_testkit::drill::{DrillError, LedgerDrill, LedgerFault, LedgerPlace, ledger};

use super::{Options, Problems};
use crate::chaos::server_binary;

/// How long the disk of a journal is full.
const FULL: Duration = Duration::from_secs(10);

pub(super) fn drill(options: &Options) -> Result<Problems, DrillError> {
    let binary = server_binary(options)?;
    let mut problems = Vec::new();
    let kills = options.kills.div_ceil(LedgerPlace::ALL.len() as u64);
    let away = Duration::from_secs(options.away);
    let run = |place, kills, faults: Vec<LedgerFault>| {
        let names: Vec<String> = faults.iter().map(LedgerFault::to_string).collect();
        let drill = LedgerDrill { binary: binary.clone(), place, kills, faults, seed: options.seed };
        let found = ledger(&drill)?;
        let then = if names.is_empty() { String::new() } else { format!(", then {}", names.join(", ")) };
        println!("ledger on {place}{then}: {found}");
        found.problems.iter().for_each(|problem| println!("    BROKEN {problem}"));
        Ok::<_, DrillError>((found.kills(), found.problems))
    };
    let mut killed = 0;
    for place in LedgerPlace::ALL {
        let (kills, found) = run(place, kills, Vec::new())?;
        killed += kills;
        problems.extend(found.into_iter().map(|problem| format!("ledger on {place}: {problem}")));
    }
    let faults = [
        (LedgerPlace::RedisPostgres, LedgerFault::SetBack),
        (LedgerPlace::RedisPostgres, LedgerFault::DatabaseStopped(away)),
        (LedgerPlace::RedisPostgres, LedgerFault::DatabaseDead(away)),
        (LedgerPlace::RedisSqlite, LedgerFault::DiskFull(FULL)),
    ];
    for (place, fault) in faults {
        let (kills, found) = run(place, 5, vec![fault])?;
        killed += kills;
        problems.extend(found.into_iter().map(|problem| format!("ledger on {place}, {fault}: {problem}")));
    }
    println!("ledger: {killed} kill -9 in all");
    Ok(problems)
}
