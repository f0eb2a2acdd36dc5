//! Resets in the audit trail.

use std::net::IpAddr;

use serde_json::json;
use tollgate::core::rules::Request;

use crate::serve::control::{Audited, ControlError, spec};
use crate::serve::edge::auth::Caller;
use crate::serve::gate::Gate;
use crate::serve::server_state::ServerState;

/// A reset: whose consumption is deleted, and why.
pub(crate) struct Reset<'a> {
    pub(crate) request: Request<'a>,
    /// Only under this rule.
    pub(crate) rule: Option<&'a str>,
    pub(crate) reason: Option<&'a str>,
}

impl Reset<'_> {
    /// The rules that match, with the beginning of the subject's hash under each.
    pub(crate) fn subjects(&self, gate: &Gate) -> Vec<(String, String)> {
        let hasher = gate.hashers().current();
        gate.with_rules(|rules| {
            // What rules count: normal forms.
            let values = rules.prepare(self.request.attributes);
            let prepared = values.as_ref().map(|values| values.replace_in(self.request.attributes));
            let attributes = prepared.as_ref().unwrap_or(self.request.attributes);
            let found = rules.matching(self.request.attributes);
            let found = found.iter().map(|&at| &rules.rules()[at as usize]);
            let found = found.filter(|rule| self.rule.is_none_or(|id| id == rule.keyspace.rule()));
            let of_rule = |rule: &tollgate::core::rules::Rule| {
                let subject = rule.per.find(attributes).ok()?.hash(hasher).prefix();
                Some((rule.keyspace.rule().to_owned(), subject))
            };
            found.filter_map(of_rule).collect()
        })
    }

    /// Writes the audit row of the reset. Without a database there is only the log.
    pub(crate) async fn audit(
        &self,
        caller: &Caller,
        address: IpAddr,
        state: &ServerState,
    ) -> Result<(), ControlError> {
        let Some(control) = &state.control else { return Ok(()) };
        let reason = spec::reason(self.reason)?;
        let audited = self.audited(caller.name(), address.to_string(), reason, &state.gate);
        control.audit_now(audited).await.map(drop)
    }

    /// The audit row.
    pub(crate) fn audited<'b>(
        &'b self,
        actor: &'b str,
        address: String,
        reason: &'b str,
        gate: &Gate,
    ) -> Audited<'b> {
        let subjects = self.subjects(gate).into_iter();
        let subjects: Vec<_> =
            subjects.map(|(rule, subject)| json!({ "rule": rule, "subject": subject })).collect();
        Audited {
            actor,
            address,
            action: "reset",
            target: self.rule.unwrap_or_default(),
            reason,
            detail: json!({ "subjects": subjects }).to_string(),
            ..Audited::default()
        }
    }
}
