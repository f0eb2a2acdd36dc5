//! A row of the audit trail, as a server sends it.

use serde_json::Value;
use tollgate_database::audit::{AuditEvent, AuditHead, AuditRow};

use crate::cli::commands::control::changes::summary;
use crate::hex;

/// The row, for a verification.
pub(super) fn parse(row: &Value) -> Option<AuditRow> {
    let text = |name: &str| row[name].as_str().map(str::to_owned);
    let event = AuditEvent {
        at_us: row["at_us"].as_i64()?,
        times: row["times"].as_i64()?,
        server: text("server")?,
        actor: text("actor")?,
        address: text("address")?,
        action: text("action")?,
        target: text("target")?,
        reason: text("reason")?,
        detail: text("detail")?,
        before: text("before")?,
        after: text("after")?,
    };
    let hash = |name: &str| hex::to_32_bytes(row[name].as_str()?);
    Some(AuditRow { seq: row["seq"].as_i64()?, event, prev: hash("prev")?, hash: hash("hash")? })
}

/// The end of the trail.
pub(super) fn head(head: &Value) -> Option<AuditHead> {
    Some(AuditHead { seq: head["seq"].as_i64()?, hash: hex::to_32_bytes(head["hash"].as_str()?)? })
}

/// What differs, in a few words: what a live change says, or the states before and after.
pub(super) fn change(row: &Value) -> String {
    let text = |name: &str| row[name].as_str().unwrap_or_default();
    let detail: Value = serde_json::from_str(text("detail")).unwrap_or(Value::Null);
    let spec = |side: &str| detail[side]["spec"].is_object().then(|| summary(&detail[side]["spec"]));
    match (spec("before"), spec("after")) {
        (Some(before), Some(after)) if before != after => format!("{before} -> {after}"),
        (_, Some(one)) | (Some(one), None) => one,
        (None, None) if text("before") != text("after") => {
            format!("{} -> {}", text("before"), text("after")).trim_start_matches(" -> ").to_owned()
        }
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_says_in_a_few_words_what_differs() {
        let spec = |scale: &str| json!({ "spec": { "rule": "search", "when": { "tenant": "acme" }, "scale": scale } });
        for (before, after, detail, expected) in [
            (
                "changes 0",
                "changes 1",
                json!({ "before": null, "after": spec("2") }),
                "search tenant=acme x 2",
            ),
            (
                "",
                "",
                json!({ "before": spec("2"), "after": spec("3") }),
                "search tenant=acme x 2 -> search tenant=acme x 3",
            ),
            ("", "", json!({ "before": spec("2"), "after": null }), "search tenant=acme x 2"),
            ("rules 80bc", "rules 91aa", Value::Null, "rules 80bc -> rules 91aa"),
            ("", "rules 91aa", Value::Null, "rules 91aa"),
            ("", "", Value::Null, ""),
        ] {
            let row = json!({ "before": before, "after": after, "detail": detail.to_string() });
            assert_eq!(change(&row), expected, "{row}");
        }
    }
}
