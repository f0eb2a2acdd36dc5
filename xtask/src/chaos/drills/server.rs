//! Drills of a whole server.

use std::time::Duration;

use tollgate_testkit::drill::{
    DrillError, PipelineTransport, SlowStore, Transport, blast, key_scan, pipeline_beside, runtime,
};

use super::{Options, Problems};
use crate::chaos::server_binary;

/// Lines to Redis on which 2,048 checks in flight take many deadlines.
const SLOW_STORES: [SlowStore; 3] = [
    SlowStore { bytes_per_sec: 100_000, deadline: Duration::from_millis(500) },
    SlowStore { bytes_per_sec: 20_000, deadline: Duration::from_millis(500) },
    SlowStore { bytes_per_sec: 1_000_000, deadline: Duration::from_millis(100) },
];
const BLAST: Duration = Duration::from_secs(10);

const PIPELINE_ROUNDS: usize = 21;
/// How much slower a bystander may be than beside a pipeline that another server runs.
const SLOWDOWN_MAX: f64 = 2.0;
/// By which factor a scan of the doctor may move the 99th percentile of checks.
const SCAN_FACTOR_MAX: f64 = 1.1;

pub(super) fn blasts(options: &Options) -> Result<Problems, DrillError> {
    let (runtime, binary) = (runtime()?, server_binary(options)?);
    let mut problems = Vec::new();
    for store in SLOW_STORES {
        for transport in Transport::ALL {
            let found = blast(&runtime, &binary, transport, store, BLAST)?;
            let SlowStore { bytes_per_sec, deadline } = store;
            let line = format!("{} KB/s, deadline {} ms", bytes_per_sec / 1_000, deadline.as_millis());
            println!("blast over {transport:?}, {line}: {found}");
            if !found.left_bystanders_alone() || found.blaster.by_policy > 0 {
                problems.push(format!("blast over {transport:?}, {line}: {found}"));
            }
        }
    }
    Ok(problems)
}

pub(super) fn pipelines(options: &Options) -> Result<Problems, DrillError> {
    let binary = server_binary(options)?;
    let mut problems = Vec::new();
    for transport in PipelineTransport::ALL {
        let found = pipeline_beside(&binary, transport, PIPELINE_ROUNDS)?;
        println!("bystander of a pipeline over {transport:?}, {PIPELINE_ROUNDS} rounds: {found}");
        if found.slowdown() > SLOWDOWN_MAX {
            problems.push(format!("bystander of a pipeline over {transport:?}: {found}"));
        }
    }
    Ok(problems)
}

pub(super) fn key_scans(options: &Options) -> Result<Problems, DrillError> {
    let found = key_scan(&runtime()?, &server_binary(options)?, options.keys)?;
    println!("scan of the doctor: {found}");
    let is_too_slow = found.factor() > SCAN_FACTOR_MAX;
    Ok(is_too_slow.then(|| format!("scan of the doctor: {found}")).into_iter().collect())
}
