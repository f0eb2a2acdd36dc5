//! What every connection of every transport works with.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tollgate::core::{Prefixes, TrustedProxies};
use tollgate::headers::Dialect;

use super::control::Control;
use super::doctor::Findings;
use super::edge::auth::AccessPolicy;
use super::edge::resp::OutputBudget;
use super::fleet::Others;
use super::gate::Gate;
use super::listen::connections::Connections;
use super::listen::tls::Tls;
use super::observe::history::History;
use super::observe::{AuthFailures, Exposition, Kind, log};
use super::rules_in_force::RulesOrigin;
use super::store::evictions::Evictions;
use super::store::work_share::WorkShares;
use crate::config::GrpcConfig;

/// The state of the whole server.
pub(crate) struct ServerState {
    pub(crate) gate: Gate,
    /// Live changes and the audit trail; `None` without a database.
    pub(crate) control: Option<Arc<Control>>,
    pub(crate) rules: RulesOrigin,
    /// Replaced when the configuration is read again.
    pub(crate) access: ArcSwap<AccessPolicy>,
    pub(crate) tls: Option<Tls>,
    pub(crate) connections: Arc<Connections>,
    /// What each caller may have in flight to the store.
    pub(crate) work: WorkShares,
    /// The output of RESP connections that clients have not read.
    pub(crate) output: Arc<OutputBudget>,
    pub(crate) auth_failures: AuthFailures,
    /// Whether the HTTP listener serves control routes.
    pub(crate) control_on_http: bool,
    /// Hosts besides this machine that loopback and control listeners serve.
    pub(crate) allowed_hosts: Vec<String>,
    /// The header fields that describe a client's limit.
    pub(crate) dialect: Dialect,
    pub(crate) grpc: GrpcConfig,
    /// The proxies whose forwarding headers are used.
    pub(crate) proxies: TrustedProxies,
    /// The load balancers whose connections begin with a PROXY protocol header.
    pub(crate) proxy_protocol: TrustedProxies,
    /// The length of the address prefix that identifies a client.
    pub(crate) prefixes: Prefixes,
    /// How the other servers on the store differ; `None` if the store is not shared.
    pub(crate) others: Option<watch::Receiver<Others>>,
    /// Whether the store evicts keys; `None` if the store is not shared.
    pub(crate) evictions: Option<watch::Receiver<Evictions>>,
    /// What happened lately.
    pub(crate) history: History,
    /// What the doctor has found.
    pub(crate) doctor: watch::Receiver<Findings>,
    /// Cancelled on shutdown: no new work is accepted, and requests in flight are answered.
    pub(crate) ending: CancellationToken,
}

impl ServerState {
    /// All metrics in the Prometheus text format.
    pub(crate) fn metrics(&self) -> String {
        let mut page = Exposition::default();
        self.gate.write(&mut page);
        self.connections.write(&mut page);
        self.work.write(&mut page);
        self.auth_failures.write(&mut page);
        page.single(
            "tollgate_resp_unread_bytes",
            Kind::Gauge,
            "Output of RESP connections that clients have not read.",
            self.output.unread(),
        );
        page.single(
            "tollgate_log_suppressed_total",
            Kind::Counter,
            "Log lines that were suppressed because there were too many of their kind.",
            log::suppressed(),
        );
        let rules = self.rules.in_force();
        page.single(
            "rate_limit_rules_version",
            Kind::Gauge,
            "How often the rules have been replaced since the start.",
            rules.version,
        );
        page.single(
            "rate_limit_rules_refused",
            Kind::Gauge,
            "1 while the rules file is invalid and older rules are in force.",
            u8::from(rules.refused.is_some()),
        );
        if let Some(control) = &self.control {
            control.write(&mut page);
        }
        if let Some(others) = &self.others {
            others.borrow().write(&mut page);
        }
        if let Some(evictions) = &self.evictions {
            evictions.borrow().write(&mut page);
        }
        self.doctor.borrow().write(&mut page, self.evictions.is_some());
        let mut family =
            page.family("tollgate_build_info", Kind::Gauge, "Always 1; the version is in the label.");
        family.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        page.into_text()
    }
}
