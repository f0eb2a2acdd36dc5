//! The paths, their methods and the scopes they need.

use http::Method;
use tollgate_database::changes::ChangeKind;

use crate::access::Scopes;
use crate::dashboard::{self, Asset};
use crate::serve::edge::auth::Needs;

/// A path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    Check,
    Batch,
    Peek,
    Explain,
    Refund,
    Lease,
    Renew,
    Release,
    Report,
    Record,
    Credit,
    Usage,
    Reserve,
    Extend,
    Settle,
    Cancel,
    Meters,
    MeterAdd,
    MeterSubtract,
    MeterReset,
    Reset,
    Authorize,
    Rules,
    Top,
    Doctor,
    Metrics,
    Health,
    Ready,
    OpenApi,
    History,
    Events,
    /// The live changes of one kind.
    Changes(ChangeKind),
    /// One live change.
    Change(ChangeKind),
    Audit,
    /// The name and the scopes of the caller.
    Whoami,
    /// The servers on the store.
    Fleet,
    LedgerUsage,
    LedgerEntries,
    LedgerHeads,
    LedgerCorrections,
    /// A file of the dashboard.
    Dashboard(&'static Asset),
}

/// The methods of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Methods {
    Post,
    /// And HEAD.
    Get,
    Any,
    GetPost,
    GetPatchDelete,
}

/// Which listeners serve a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RouteKind {
    /// Requests of callers: the listener `http`.
    Check,
    /// Changes and pages for operators: the control listener only.
    Control,
    /// Both.
    Shared,
}

impl Route {
    /// Which listeners serve it.
    pub(super) const fn kind(self) -> RouteKind {
        match self {
            Route::Check
            | Route::Batch
            | Route::Peek
            | Route::Refund
            | Route::Lease
            | Route::Renew
            | Route::Release
            | Route::Report
            | Route::Record
            | Route::Credit
            | Route::Reserve
            | Route::Extend
            | Route::Settle
            | Route::Cancel
            | Route::Meters
            | Route::MeterAdd
            | Route::MeterSubtract
            | Route::Authorize => RouteKind::Check,
            Route::Reset
            | Route::MeterReset
            | Route::Top
            | Route::Doctor
            | Route::History
            | Route::Events
            | Route::Dashboard(_)
            | Route::Changes(_)
            | Route::Change(_)
            | Route::LedgerUsage
            | Route::LedgerEntries
            | Route::LedgerHeads
            | Route::LedgerCorrections
            | Route::Audit
            | Route::Whoami
            | Route::Fleet => RouteKind::Control,
            Route::Explain
            | Route::Usage
            | Route::Rules
            | Route::Metrics
            | Route::Health
            | Route::Ready
            | Route::OpenApi => RouteKind::Shared,
        }
    }

    /// Whether it asks the store.
    pub(super) const fn asks_store(self) -> bool {
        matches!(self.kind(), RouteKind::Check)
            || matches!(self, Route::Explain | Route::Usage | Route::Reset | Route::MeterReset)
    }

    /// Whether it reports the health of the server.
    pub(super) const fn is_health(self) -> bool {
        matches!(self, Route::Health | Route::Ready)
    }

    /// Whether the host and the origin matter. Gateways pass those of their clients on, and probes use any host.
    pub(super) const fn is_guarded(self) -> bool {
        !matches!(self, Route::Authorize | Route::Health | Route::Ready)
    }

    /// The route of a path. The most frequent ones come first.
    pub(super) fn of(path: &str) -> Option<Route> {
        Some(match path {
            "/v1/check" => Route::Check,
            "/v1/authorize" => Route::Authorize,
            "/v1/check/batch" => Route::Batch,
            "/v1/peek" => Route::Peek,
            "/v1/explain" => Route::Explain,
            "/v1/refund" => Route::Refund,
            "/v1/leases" => Route::Lease,
            "/v1/leases/renew" => Route::Renew,
            "/v1/leases/release" => Route::Release,
            "/v1/report" => Route::Report,
            "/v1/record" => Route::Record,
            "/v1/credit" => Route::Credit,
            "/v1/usage" => Route::Usage,
            "/v1/reservations" => Route::Reserve,
            "/v1/reservations/extend" => Route::Extend,
            "/v1/reservations/settle" => Route::Settle,
            "/v1/reservations/cancel" => Route::Cancel,
            "/v1/meters" => Route::Meters,
            "/v1/meters/add" => Route::MeterAdd,
            "/v1/meters/subtract" => Route::MeterSubtract,
            "/v1/meters/reset" => Route::MeterReset,
            "/v1/reset" => Route::Reset,
            "/v1/rules" => Route::Rules,
            "/v1/top" => Route::Top,
            "/v1/doctor" => Route::Doctor,
            "/metrics" => Route::Metrics,
            "/healthz" => Route::Health,
            "/readyz" => Route::Ready,
            "/openapi.json" => Route::OpenApi,
            "/v1/history" => Route::History,
            "/v1/events" => Route::Events,
            "/v1/overrides" => Route::Changes(ChangeKind::Override),
            "/v1/deny" => Route::Changes(ChangeKind::Deny),
            "/v1/bypass" => Route::Changes(ChangeKind::Bypass),
            "/v1/audit" => Route::Audit,
            "/v1/whoami" => Route::Whoami,
            "/v1/fleet" => Route::Fleet,
            "/v1/ledger/usage" => Route::LedgerUsage,
            "/v1/ledger/entries" => Route::LedgerEntries,
            "/v1/ledger/heads" => Route::LedgerHeads,
            "/v1/ledger/corrections" => Route::LedgerCorrections,
            _ => return Route::of_change(path).or_else(|| dashboard::asset(path).map(Route::Dashboard)),
        })
    }

    fn of_change(path: &str) -> Option<Route> {
        let (list, id) = path.strip_prefix("/v1/")?.split_once('/')?;
        let kind = match list {
            "overrides" => ChangeKind::Override,
            "deny" => ChangeKind::Deny,
            "bypass" => ChangeKind::Bypass,
            _ => return None,
        };
        (!id.is_empty() && !id.contains('/')).then_some(Route::Change(kind))
    }

    pub(super) const fn methods(self) -> Methods {
        match self {
            Route::Authorize => Methods::Any,
            Route::Check
            | Route::Batch
            | Route::Peek
            | Route::Explain
            | Route::Refund
            | Route::Lease
            | Route::Renew
            | Route::Release
            | Route::Report
            | Route::Record
            | Route::Credit
            | Route::Usage
            | Route::Reserve
            | Route::Extend
            | Route::Settle
            | Route::Cancel
            | Route::Meters
            | Route::MeterAdd
            | Route::MeterSubtract
            | Route::MeterReset
            | Route::LedgerCorrections
            | Route::Reset => Methods::Post,
            Route::Rules
            | Route::Top
            | Route::Doctor
            | Route::Metrics
            | Route::Health
            | Route::Ready
            | Route::OpenApi
            | Route::History
            | Route::Events
            | Route::Audit
            | Route::Whoami
            | Route::Fleet
            | Route::LedgerUsage
            | Route::LedgerEntries
            | Route::LedgerHeads
            | Route::Dashboard(_) => Methods::Get,
            Route::Changes(_) => Methods::GetPost,
            Route::Change(_) => Methods::GetPatchDelete,
        }
    }

    /// The access that a caller needs for this method.
    pub(super) fn needs(self, method: &Method) -> Needs {
        let is_read = method == Method::GET || method == Method::HEAD;
        Needs::Scope(match self {
            Route::Changes(_) | Route::Change(_) if is_read => Scopes::READ,
            Route::Changes(_) | Route::Change(_) => Scopes::CHANGE,
            // Operators look at what a subject has used, and charge nothing.
            Route::Usage => return Needs::Either(Scopes::CHECK, Scopes::READ),
            // A caller that may take a lease may also release it. To read numbers needs no more than a peek.
            Route::Check
            | Route::Batch
            | Route::Peek
            | Route::Lease
            | Route::Renew
            | Route::Release
            | Route::Reserve
            | Route::Extend
            | Route::Meters
            | Route::MeterAdd
            | Route::Authorize => Scopes::CHECK,
            // What gives back a charge needs this scope, also for the charges of the caller itself.
            Route::Refund | Route::Settle | Route::Cancel => Scopes::REFUND,
            // What books beyond a limit, and what gives back without a receipt.
            Route::Record | Route::Credit | Route::MeterSubtract => Scopes::RECORD,
            Route::Report => Scopes::REPORT,
            Route::Metrics => Scopes::METRICS,
            Route::Explain
            | Route::Rules
            | Route::Top
            | Route::Doctor
            | Route::History
            | Route::Events
            | Route::Audit
            | Route::Whoami
            | Route::Fleet
            | Route::LedgerUsage
            | Route::LedgerEntries
            | Route::LedgerHeads => Scopes::READ,
            Route::LedgerCorrections => Scopes::ADMIN,
            Route::Reset | Route::MeterReset => Scopes::CHANGE,
            // The files of the dashboard hold no data; the token form is one of them.
            Route::Health | Route::Ready | Route::OpenApi | Route::Dashboard(_) => return Needs::Nothing,
        })
    }
}

impl Methods {
    pub(super) fn include(self, method: &Method) -> bool {
        match self {
            Methods::Post => method == Method::POST,
            Methods::Get => method == Method::GET || method == Method::HEAD,
            Methods::Any => true,
            Methods::GetPost => Methods::Get.include(method) || method == Method::POST,
            Methods::GetPatchDelete => {
                Methods::Get.include(method) || method == Method::PATCH || method == Method::DELETE
            }
        }
    }

    /// The value of the header `Allow`.
    pub(super) const fn allow(self) -> &'static str {
        match self {
            Methods::Post => "POST",
            Methods::Get | Methods::Any => "GET, HEAD",
            Methods::GetPost => "GET, HEAD, POST",
            Methods::GetPatchDelete => "GET, HEAD, PATCH, DELETE",
        }
    }
}
