//! The Grafana dashboard and the Prometheus alerts, from the table of metrics.
//!
//! Every metric of a query is looked up in docs/reference/metrics.md, which a test compares with a running server. So a
//! renamed metric or label fails here.

mod alerts;
mod dashboard;
mod table;

use std::path::Path;

use anyhow::{Context, Result};

use table::MetricsTable;

/// The page with the table of metrics.
const TABLE: &str = "docs/reference/metrics.md";

/// Returns all files with their paths.
pub(super) fn all(root: &Path) -> Result<Vec<(String, String)>> {
    let page = std::fs::read_to_string(root.join(TABLE)).with_context(|| format!("cannot read {TABLE}"))?;
    let table = MetricsTable::of_page(&page);
    Ok(vec![
        ("deploy/grafana/tollgate.json".to_owned(), dashboard::json(&table)?),
        ("deploy/prometheus/alerts.yaml".to_owned(), alerts::yaml(&table)?),
    ])
}
