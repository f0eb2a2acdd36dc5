//! What the last examination found, as JSON and as metrics.

use serde_json::Value;

use super::scan_turn::ScanResult;
use crate::doctor::{Report, Status};
use crate::serve::observe::{Exposition, Kind};

/// The findings of the last examination.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    /// When it ended, in milliseconds since 1970; `None` before the first.
    at_ms: Option<u64>,
    report: Report,
    /// What the last scan found, by this server or another.
    scan: Option<ScanResult>,
}

impl Findings {
    pub(super) fn new(mut report: Report, at_ms: u64, scan: Option<ScanResult>) -> Findings {
        if let Some(scan) = scan.as_ref().filter(|scan| !scan.is_ours) {
            report.findings.extend(scan.findings());
            report.sort();
        }
        Findings { at_ms: Some(at_ms), report, scan }
    }

    pub(crate) fn to_json(&self, server: &str) -> Value {
        let mut json = self.report.to_json();
        if self.at_ms.is_none() {
            json["status"] = Value::Null;
        }
        json["at_ms"] = self.at_ms.into();
        json["server"] = server.into();
        if let Some(scan) = &self.scan {
            json["keys"] = serde_json::json!(scan.keys);
            json["keys"]["at_ms"] = scan.at_ms.into();
            json["keys"]["server"] = scan.server.as_str().into();
            json["hot_keys"] = serde_json::json!(scan.hot_keys);
        }
        json
    }

    /// Writes the metrics. Keys are those of the store: only the server that scanned them reports them.
    pub(crate) fn write(&self, page: &mut Exposition, has_shared_store: bool) {
        let mut family = page.family(
            "rate_limit_doctor_findings",
            Kind::Gauge,
            "Findings of the last examination, by status.",
        );
        if self.at_ms.is_some() {
            for status in [Status::Pass, Status::Skip, Status::Warn, Status::Fail] {
                family.sample(&[("status", status.name())], self.report.count(status));
            }
        }
        if !has_shared_store {
            return;
        }
        let keys = self.scan.as_ref().filter(|scan| scan.is_ours).map(|scan| &scan.keys);
        let mut family = page.family(
            "rate_limit_store_keys",
            Kind::Gauge,
            "Keys of the namespace by rule, on the server that scans; extrapolated from a sample if there are many.",
        );
        for rule in keys.iter().flat_map(|keys| &keys.by_rule) {
            let extrapolated = keys.map_or(rule.keys, |keys| keys.extrapolated(rule.keys));
            family.sample(&[("rule", rule.rule.as_str())], extrapolated);
        }
        for (name, help, value) in [
            (
                "rate_limit_store_keys_scanned",
                "Keys that the last scan passed, of any user of the store, on the server that scans.",
                keys.map(|keys| keys.scanned),
            ),
            (
                "rate_limit_store_keys_without_ttl",
                "Keys of the namespace that never expire, as the last scan saw them, on the server that scans.",
                keys.and_then(|keys| keys.without_ttl),
            ),
        ] {
            let mut family = page.family(name, Kind::Gauge, help);
            if let Some(value) = value {
                family.sample(&[], value);
            }
        }
    }
}
