//! The Grafana dashboard.

use anyhow::Result;
use serde_json::{Value, json};

use super::table::MetricsTable;

/// Columns of Grafana's grid.
const COLUMNS: u32 = 24;

/// One panel.
struct Panel {
    title: &'static str,
    description: &'static str,
    kind: PanelKind,
    unit: &'static str,
    width: u32,
    height: u32,
    /// Queries and the names of their series.
    queries: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PanelKind {
    Number,
    Lines,
    /// Lines, filled and stacked.
    Areas,
    Table,
}

const SELECT: &str = "{job=~\"$job\", instance=~\"$instance\"}";

/// `#` stands for the selector of the chosen servers, `#,` for the same before further tests.
const ROWS: &[(&str, &[Panel])] = &[
    (
        "Checks",
        &[
            Panel {
                title: "Checks per second",
                description: "Checks by all transports.",
                kind: PanelKind::Number,
                unit: "reqps",
                width: 5,
                height: 4,
                queries: &[("sum(rate(rate_limit_requests_total#[$__rate_interval]))", "checks")],
            },
            Panel {
                title: "Refused",
                description: "Share of the answers of rules that refused.",
                kind: PanelKind::Number,
                unit: "percentunit",
                width: 5,
                height: 4,
                queries: &[(
                    "sum(rate(rate_limit_rejected_total#[$__rate_interval])) / sum(rate(rate_limit_checks_total#[$__rate_interval]))",
                    "refused",
                )],
            },
            Panel {
                title: "Shadow refused per second",
                description: "Requests that shadow rules would have refused.",
                kind: PanelKind::Number,
                unit: "reqps",
                width: 5,
                height: 4,
                queries: &[("sum(rate(rate_limit_shadow_rejected_total#[$__rate_interval]))", "shadow")],
            },
            Panel {
                title: "Fallback per second",
                description: "Checks that failure policies answered. Normally 0.",
                kind: PanelKind::Number,
                unit: "reqps",
                width: 5,
                height: 4,
                queries: &[("sum(rate(rate_limit_fallback_total#[$__rate_interval]))", "fallback")],
            },
            Panel {
                title: "Servers",
                description: "Servers that answer Prometheus.",
                kind: PanelKind::Number,
                unit: "short",
                width: 4,
                height: 4,
                queries: &[("count(tollgate_build_info#)", "servers")],
            },
            Panel {
                title: "Answers of rules",
                description: "Checks per second by the outcome of each rule.",
                kind: PanelKind::Areas,
                unit: "reqps",
                width: 12,
                height: 8,
                queries: &[(
                    "sum by (outcome) (rate(rate_limit_checks_total#[$__rate_interval]))",
                    "{{outcome}}",
                )],
            },
            Panel {
                title: "Refused by rule",
                description: "Refusals per second.",
                kind: PanelKind::Lines,
                unit: "reqps",
                width: 12,
                height: 8,
                queries: &[(
                    "topk(10, sum by (rule) (rate(rate_limit_rejected_total#[$__rate_interval])))",
                    "{{rule}}",
                )],
            },
            Panel {
                title: "Share refused, by rule",
                description: "Of the checks that matched each rule.",
                kind: PanelKind::Table,
                unit: "percentunit",
                width: 12,
                height: 8,
                queries: &[(
                    "sum by (rule) (rate(rate_limit_rejected_total#[$__range])) / sum by (rule) (rate(rate_limit_checks_total#[$__range]))",
                    "{{rule}}",
                )],
            },
            Panel {
                title: "Near the limit, and shadow refusals",
                description: "Admissions that left less than a tenth of the limit, and what shadow rules would have refused.",
                kind: PanelKind::Lines,
                unit: "reqps",
                width: 12,
                height: 8,
                queries: &[
                    (
                        "topk(5, sum by (rule) (rate(rate_limit_near_limit_total#[$__rate_interval])))",
                        "near: {{rule}}",
                    ),
                    (
                        "topk(5, sum by (rule) (rate(rate_limit_shadow_rejected_total#[$__rate_interval])))",
                        "shadow: {{rule}}",
                    ),
                ],
            },
        ],
    ),
    (
        "Store",
        &[
            Panel {
                title: "Store latency",
                description: "Quantiles of store calls.",
                kind: PanelKind::Lines,
                unit: "s",
                width: 12,
                height: 8,
                queries: &[
                    (
                        "histogram_quantile(0.5, sum by (le) (rate(rate_limit_store_latency_seconds_bucket#[$__rate_interval])))",
                        "p50",
                    ),
                    (
                        "histogram_quantile(0.99, sum by (le) (rate(rate_limit_store_latency_seconds_bucket#[$__rate_interval])))",
                        "p99",
                    ),
                    (
                        "histogram_quantile(0.999, sum by (le) (rate(rate_limit_store_latency_seconds_bucket#[$__rate_interval])))",
                        "p99.9",
                    ),
                ],
            },
            Panel {
                title: "Store calls without a decision",
                description: "By the kind of the error, and checks that failure policies answered.",
                kind: PanelKind::Lines,
                unit: "reqps",
                width: 12,
                height: 8,
                queries: &[
                    ("sum by (kind) (rate(rate_limit_script_errors_total#[$__rate_interval]))", "{{kind}}"),
                    (
                        "sum by (rule) (rate(rate_limit_fallback_total#[$__rate_interval]))",
                        "fallback: {{rule}}",
                    ),
                ],
            },
            Panel {
                title: "In flight, and evicted keys",
                description: "Checks in flight to the store, and keys per second that it evicted.",
                kind: PanelKind::Lines,
                unit: "short",
                width: 12,
                height: 8,
                queries: &[
                    ("sum by (instance) (rate_limit_store_in_flight#)", "in flight: {{instance}}"),
                    (
                        "sum by (instance) (rate(rate_limit_store_evicted_keys_total#[$__rate_interval]))",
                        "evicted: {{instance}}",
                    ),
                ],
            },
            Panel {
                title: "Refused without the store",
                description: "By the refusal memory and the prefilter.",
                kind: PanelKind::Lines,
                unit: "reqps",
                width: 12,
                height: 8,
                queries: &[(
                    "sum by (layer) (rate(rate_limit_layer_refused_total#[$__rate_interval]))",
                    "{{layer}}",
                )],
            },
        ],
    ),
    (
        "Ledger",
        &[
            Panel {
                title: "Unposted events",
                description: "Events that the database does not have yet.",
                kind: PanelKind::Lines,
                unit: "short",
                width: 12,
                height: 8,
                queries: &[("sum by (instance) (rate_limit_ledger_unposted#)", "{{instance}}")],
            },
            Panel {
                title: "Seconds since the database confirmed",
                description: "It confirms at least once a second.",
                kind: PanelKind::Lines,
                unit: "s",
                width: 12,
                height: 8,
                queries: &[("max by (instance) (rate_limit_ledger_silent_seconds#)", "{{instance}}")],
            },
        ],
    ),
    (
        "Servers",
        &[
            Panel {
                title: "Open connections",
                description: "By protocol.",
                kind: PanelKind::Areas,
                unit: "short",
                width: 12,
                height: 8,
                queries: &[("sum by (protocol) (tollgate_connections#)", "{{protocol}}")],
            },
            Panel {
                title: "Turned away",
                description: "Connections and requests that a server refused to protect the others.",
                kind: PanelKind::Lines,
                unit: "reqps",
                width: 12,
                height: 8,
                queries: &[
                    (
                        "sum by (protocol) (rate(tollgate_connections_turned_away_total#[$__rate_interval]))",
                        "{{protocol}}",
                    ),
                    ("sum(rate(tollgate_overloaded_total#[$__rate_interval]))", "overloaded"),
                    ("sum by (reason) (rate(tollgate_auth_failures_total#[$__rate_interval]))", "{{reason}}"),
                ],
            },
        ],
    ),
];

/// Marks of rule changes on every chart.
const RULE_CHANGES: &str = "changes(rate_limit_rules_version#[1m]) > 0";

/// Returns the dashboard.
pub(super) fn json(table: &MetricsTable) -> Result<String> {
    let mut panels: Vec<Value> = Vec::new();
    let (mut y, mut id) = (0, 0);
    for (title, row) in ROWS {
        id += 1;
        panels.push(json!({
            "id": id, "type": "row", "title": title, "collapsed": false, "panels": [],
            "gridPos": { "x": 0, "y": y, "w": COLUMNS, "h": 1 },
        }));
        y += 1;
        let (mut x, mut height) = (0, 0);
        for panel in *row {
            if x + panel.width > COLUMNS {
                (x, y, height) = (0, y + height, 0);
            }
            id += 1;
            panels.push(panel_json(panel, table, id, (x, y))?);
            (x, height) = (x + panel.width, height.max(panel.height));
        }
        y += height;
    }
    let changes = RULE_CHANGES.replace('#', SELECT);
    table.check(&changes)?;
    let dashboard = json!({
        "uid": "tollgate",
        "title": "Tollgate",
        "description": "Generated by `cargo xtask gen` from the table of metrics.",
        "tags": ["tollgate"],
        "schemaVersion": 39,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": [
            { "type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus" },
            variable("job", "label_values(tollgate_build_info, job)"),
            variable("instance", "label_values(tollgate_build_info{job=~\"$job\"}, instance)"),
        ]},
        "annotations": { "list": [{
            "name": "Rule changes",
            "datasource": datasource(),
            "enable": true,
            "iconColor": "blue",
            "expr": changes,
        }]},
        "panels": panels,
    });
    Ok(format!("{dashboard:#}\n"))
}

fn datasource() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

fn variable(name: &str, query: &str) -> Value {
    json!({
        "type": "query", "name": name, "label": name, "datasource": datasource(), "query": query,
        "includeAll": true, "multi": true, "refresh": 2, "sort": 1,
        "current": { "text": ["All"], "value": ["$__all"] },
    })
}

fn panel_json(panel: &Panel, table: &MetricsTable, id: u32, (x, y): (u32, u32)) -> Result<Value> {
    let mut targets = Vec::new();
    for (number, (query, legend)) in (b'A'..).zip(panel.queries) {
        let query = query.replace('#', SELECT);
        table.check(&query)?;
        targets.push(json!({
            "refId": char::from(number).to_string(),
            "datasource": datasource(),
            "expr": query,
            "legendFormat": legend,
            "instant": panel.kind == PanelKind::Table,
            "range": panel.kind != PanelKind::Table,
            "format": if panel.kind == PanelKind::Table { "table" } else { "time_series" },
        }));
    }
    let kind = match panel.kind {
        PanelKind::Number => "stat",
        PanelKind::Lines | PanelKind::Areas => "timeseries",
        PanelKind::Table => "table",
    };
    let is_area = panel.kind == PanelKind::Areas;
    let custom = match panel.kind {
        PanelKind::Lines | PanelKind::Areas => json!({
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": if is_area { 40 } else { 0 },
            "stacking": { "mode": if is_area { "normal" } else { "none" }, "group": "A" },
        }),
        PanelKind::Number | PanelKind::Table => json!({}),
    };
    let options = match panel.kind {
        PanelKind::Number => {
            json!({ "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false } })
        }
        PanelKind::Lines | PanelKind::Areas => json!({
            "legend": { "displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": [] },
            "tooltip": { "mode": "multi", "sort": "desc" },
        }),
        PanelKind::Table => json!({ "showHeader": true }),
    };
    Ok(json!({
        "id": id,
        "type": kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": datasource(),
        "gridPos": { "x": x, "y": y, "w": panel.width, "h": panel.height },
        "fieldConfig": { "defaults": { "unit": panel.unit, "custom": custom, "min": 0 }, "overrides": [] },
        "options": options,
        "targets": targets,
    }))
}
