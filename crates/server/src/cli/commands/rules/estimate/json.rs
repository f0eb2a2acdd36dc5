//! The estimate as JSON.

use serde_json::{Value, json};
use tollgate::store::redis::{Engine, KeyBytes};

use super::{Estimate, Growth, Row};

/// Formats the estimate. All sizes are in bytes.
pub(super) fn json(estimate: &Estimate) -> Value {
    let engine = match estimate.footprint.engine {
        Engine::Redis => "redis",
        Engine::Valkey => "valkey",
    };
    json!({
        "engine": engine,
        // The old name of `engine`, printed until release 0.2.0.
        "server": engine,
        "rules": estimate.rules.iter().map(|row| rule(estimate, row)).collect::<Vec<_>>(),
        "without_state": estimate.without_state.iter().map(|(id, _)| id).collect::<Vec<_>>(),
        "keys": estimate.keys,
        "tables_bytes": estimate.tables,
        "total_bytes": estimate.total(|row| row.one),
        "worst_case_bytes": estimate.total(Row::size_max),
        "request_id": {
            "bytes": estimate.request_id,
            "bytes_each_further_rule": estimate.request_id_further,
            "seconds": estimate.horizon_s,
        },
    })
}

fn rule(estimate: &Estimate, row: &Row) -> Value {
    let mut value = json!({
        "rule": row.rule,
        "algorithm": row.algorithm.name(),
        "subjects": row.subjects,
        "subject": subject(estimate, row.one),
        "total_bytes": (row.one.total() + estimate.table_share()) * row.subjects,
    });
    if let Some(Growth { records, full }) = &row.growth {
        value["growth"] = json!({
            "bytes_each": records.bytes,
            "at_most": records.most,
            "subject": subject(estimate, *full),
            "total_bytes": (full.total() + estimate.table_share()) * row.subjects,
        });
    }
    value
}

fn subject(estimate: &Estimate, bytes: KeyBytes) -> Value {
    json!({
        "key_bytes": bytes.key,
        "value_bytes": bytes.value,
        "overhead_bytes": bytes.overhead + estimate.table_share(),
        "expiry_bytes": bytes.expiry,
        "bytes": bytes.total() + estimate.table_share(),
    })
}
