//! The layer: a limiter, and functions that read requests and write refusals.

use std::fmt;
use std::sync::Arc;

use http::Response;
use http::request::Parts;
use tower_layer::Layer;

use super::{Description, Rejection, TollgateService};
use crate::limiter::Limiter;
use crate::wire::headers::Dialect;

/// Puts a limiter in front of services whose responses have bodies of type `B`. Cheap to clone.
pub struct TollgateLayer<B> {
    pub(super) gate: Gate<B>,
}

/// What the layer and its services share.
pub(super) struct Gate<B> {
    pub(super) limiter: Limiter,
    pub(super) describe: Arc<Describe>,
    pub(super) cost: Arc<Cost>,
    pub(super) answer: Arc<Answer<B>>,
    pub(super) dialect: Dialect,
    pub(super) headers: bool,
}

type Describe = dyn for<'r> Fn(&'r Parts, &mut Description<'r>) + Send + Sync;
type Cost = dyn Fn(&Parts) -> u64 + Send + Sync;
type Answer<B> = dyn Fn(Rejection<'_>) -> Response<B> + Send + Sync;

impl<B> TollgateLayer<B> {
    /// Checks every request with this [`Limiter`] or [`LocalLimiter`](crate::LocalLimiter).
    ///
    /// By default the attributes are `method`, `path` and, if the extensions hold it, `ip`; each request costs 1; a
    /// refusal is a problem document.
    pub fn new(limiter: impl Into<Limiter>) -> TollgateLayer<B>
    where
        B: From<String>,
    {
        TollgateLayer::answering(limiter, |rejection| rejection.response())
    }

    /// Like [`new`](TollgateLayer::new), with another response for refused and undecided requests: for bodies that cannot
    /// be made of text, or for other protocols. The layer adds the header fields that the response does not have yet.
    pub fn answering(
        limiter: impl Into<Limiter>,
        answer: impl Fn(Rejection<'_>) -> Response<B> + Send + Sync + 'static,
    ) -> TollgateLayer<B> {
        let gate = Gate {
            limiter: limiter.into(),
            describe: Arc::new(|request, about| about.request(request)),
            cost: Arc::new(|_| 1),
            answer: Arc::new(answer),
            dialect: Dialect::default(),
            headers: true,
        };
        TollgateLayer { gate }
    }

    /// Sets the function that collects the attributes of a request. Call [`Description::request`] in it for the default
    /// ones. The body cannot be read: it has not arrived yet.
    #[must_use]
    pub fn describe(
        mut self,
        describe: impl for<'r> Fn(&'r Parts, &mut Description<'r>) + Send + Sync + 'static,
    ) -> TollgateLayer<B> {
        self.gate.describe = Arc::new(describe);
        self
    }

    /// Sets the function that returns the cost of a request, under rules that do not set a cost themselves.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> TollgateLayer<B> {
        self.gate.cost = Arc::new(cost);
        self
    }

    /// Sets the dialect of the header fields.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> TollgateLayer<B> {
        self.gate.dialect = dialect;
        self
    }

    /// Sets whether responses of the inner service get header fields. The default is `true`; refusals always have them.
    #[must_use]
    pub fn headers_when_allowed(mut self, headers: bool) -> TollgateLayer<B> {
        self.gate.headers = headers;
        self
    }
}

impl<I, B> Layer<I> for TollgateLayer<B> {
    type Service = TollgateService<I, B>;

    fn layer(&self, inner: I) -> TollgateService<I, B> {
        TollgateService { inner, gate: self.gate.clone() }
    }
}

impl<B> Clone for TollgateLayer<B> {
    fn clone(&self) -> TollgateLayer<B> {
        TollgateLayer { gate: self.gate.clone() }
    }
}

impl<B> Clone for Gate<B> {
    fn clone(&self) -> Gate<B> {
        Gate {
            limiter: self.limiter.clone(),
            describe: Arc::clone(&self.describe),
            cost: Arc::clone(&self.cost),
            answer: Arc::clone(&self.answer),
            dialect: self.dialect,
            headers: self.headers,
        }
    }
}

impl<B> fmt::Debug for TollgateLayer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TollgateLayer").field("dialect", &self.gate.dialect).finish_non_exhaustive()
    }
}
