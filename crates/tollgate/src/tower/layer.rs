//! The layer: a limiter and the parts that can be replaced.

use std::fmt;
use std::sync::Arc;

use http::Response;
use http::request::Parts;
use tollgate_core::Store;
use tower_layer::Layer;

use super::{Description, Rejection, TollgateService};
use crate::headers::Dialect;
use crate::limiter::Limiter;
use crate::store::memory::MemoryStore;

/// Puts a limiter in front of services whose responses have bodies of type `B`. Cheap to clone.
pub struct TollgateLayer<B, S = MemoryStore> {
    pub(super) gate: Gate<B, S>,
}

/// What layer and service share.
pub(super) struct Gate<B, S> {
    pub(super) limiter: Limiter<S>,
    pub(super) describe: Arc<Describe>,
    pub(super) cost: Arc<Cost>,
    pub(super) answer: Arc<Answer<B>>,
    pub(super) dialect: Dialect,
    pub(super) headers: bool,
}

type Describe = dyn for<'r> Fn(&'r Parts, &mut Description<'r>) + Send + Sync;
type Cost = dyn Fn(&Parts) -> u64 + Send + Sync;
type Answer<B> = dyn Fn(Rejection<'_>) -> Response<B> + Send + Sync;

impl<B, S: Store> TollgateLayer<B, S> {
    /// Checks every request with this limiter: by method, path and, if its extensions tell, address; each costs 1; who
    /// does not get through is sent a problem document.
    pub fn new(limiter: Limiter<S>) -> TollgateLayer<B, S>
    where
        B: From<String>,
    {
        TollgateLayer::answering(limiter, |rejection| rejection.response())
    }

    /// The same with another answer for requests that do not get through, for bodies that cannot be made of text or
    /// protocols that say it differently. The layer adds the header fields that the answer does not have yet.
    pub fn answering(
        limiter: Limiter<S>,
        answer: impl Fn(Rejection<'_>) -> Response<B> + Send + Sync + 'static,
    ) -> TollgateLayer<B, S> {
        let gate = Gate {
            limiter,
            describe: Arc::new(|request, about| about.request(request)),
            cost: Arc::new(|_| 1),
            answer: Arc::new(answer),
            dialect: Dialect::default(),
            headers: true,
        };
        TollgateLayer { gate }
    }

    /// Finds the attributes by which rules match and count. Call [`Description::request`] for the usual ones.
    ///
    /// The body is not there to be read: it has not arrived yet.
    #[must_use]
    pub fn describe(
        mut self,
        describe: impl for<'r> Fn(&'r Parts, &mut Description<'r>) + Send + Sync + 'static,
    ) -> TollgateLayer<B, S> {
        self.gate.describe = Arc::new(describe);
        self
    }

    /// What a request costs under rules that do not say it themselves.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> TollgateLayer<B, S> {
        self.gate.cost = Arc::new(cost);
        self
    }

    /// Writes the header fields in this dialect.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> TollgateLayer<B, S> {
        self.gate.dialect = dialect;
        self
    }

    /// Whether the responses of the inner service get header fields too. They do unless told otherwise; refusals have
    /// them always.
    #[must_use]
    pub fn headers_when_allowed(mut self, headers: bool) -> TollgateLayer<B, S> {
        self.gate.headers = headers;
        self
    }
}

impl<I, B, S> Layer<I> for TollgateLayer<B, S> {
    type Service = TollgateService<I, B, S>;

    fn layer(&self, inner: I) -> TollgateService<I, B, S> {
        TollgateService { inner, gate: self.gate.clone() }
    }
}

impl<B, S> Clone for TollgateLayer<B, S> {
    fn clone(&self) -> TollgateLayer<B, S> {
        TollgateLayer { gate: self.gate.clone() }
    }
}

impl<B, S> Clone for Gate<B, S> {
    fn clone(&self) -> Gate<B, S> {
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

impl<B, S> fmt::Debug for TollgateLayer<B, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TollgateLayer").field("dialect", &self.gate.dialect).finish_non_exhaustive()
    }
}
