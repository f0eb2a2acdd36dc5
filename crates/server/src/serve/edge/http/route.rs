//! The paths, their methods and the scopes they need.

use http::Method;

use crate::access::Scopes;

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
    Authorize,
    Rules,
    Metrics,
    Health,
    Ready,
    OpenApi,
    Status,
    Style,
}

/// The methods of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Methods {
    Post,
    /// And HEAD.
    Get,
    Any,
}

impl Route {
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
            "/v1/rules" => Route::Rules,
            "/metrics" => Route::Metrics,
            "/healthz" => Route::Health,
            "/readyz" => Route::Ready,
            "/openapi.json" => Route::OpenApi,
            "/" => Route::Status,
            "/status.css" => Route::Style,
            _ => return None,
        })
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
            | Route::Report => Methods::Post,
            Route::Rules
            | Route::Metrics
            | Route::Health
            | Route::Ready
            | Route::OpenApi
            | Route::Status
            | Route::Style => Methods::Get,
        }
    }

    /// The scopes that a caller needs.
    pub(super) const fn needs(self) -> Scopes {
        match self {
            Route::Check
            | Route::Batch
            | Route::Peek
            | Route::Refund
            | Route::Lease
            | Route::Renew
            | Route::Release
            | Route::Report
            | Route::Authorize => Scopes::CHECK,
            Route::Explain | Route::Rules | Route::Metrics | Route::Status => Scopes::READ,
            Route::Health | Route::Ready | Route::OpenApi | Route::Style => Scopes::NONE,
        }
    }
}

impl Methods {
    pub(super) fn include(self, method: &Method) -> bool {
        match self {
            Methods::Post => method == Method::POST,
            Methods::Get => method == Method::GET || method == Method::HEAD,
            Methods::Any => true,
        }
    }

    /// The value of the header `Allow`.
    pub(super) const fn allow(self) -> &'static str {
        match self {
            Methods::Post => "POST",
            Methods::Get | Methods::Any => "GET, HEAD",
        }
    }
}
