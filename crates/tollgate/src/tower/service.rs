//! The service: one check before each call.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::{Entry, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use tollgate_core::Store;
use tower_service::Service;

use super::layer::Gate;
use super::{Description, Rejection};
use crate::headers::Fields;
use crate::limiter::{CheckError, Permit};

/// A service behind a limiter. [`TollgateLayer`](super::TollgateLayer) makes it.
pub struct TollgateService<I, B, S = crate::MemoryStore> {
    pub(super) inner: I,
    pub(super) gate: Gate<B, S>,
}

/// In the extensions of a request that was let through although the store could not decide, because a rule says
/// `on_failure: degraded`: switch off what is expensive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Degraded;

impl<I, A, B, S> Service<Request<A>> for TollgateService<I, B, S>
where
    I: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    I::Future: Send,
    A: Send + 'static,
    B: 'static,
    S: Store + Send + Sync + 'static,
{
    type Response = Response<B>;
    type Error = I::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, I::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        // The clone has not been asked whether it is ready, this one has: so this one takes the call.
        let next = self.inner.clone();
        let inner = mem::replace(&mut self.inner, next);
        Box::pin(pass(inner, self.gate.clone(), request))
    }
}

async fn pass<I, A, B, S>(
    mut inner: I,
    gate: Gate<B, S>,
    request: Request<A>,
) -> Result<Response<B>, I::Error>
where
    I: Service<Request<A>, Response = Response<B>>,
    S: Store,
{
    let (mut parts, body) = request.into_parts();
    let permit = match gate.check(&parts).await {
        Ok(permit) => permit,
        Err(error) => return Ok((gate.answer)(Rejection::Undecided(&error))),
    };
    let fields = if permit.allowed && !gate.headers { Fields::new() } else { gate.dialect.fields(&permit) };
    let mut response = if permit.allowed {
        if permit.degraded {
            parts.extensions.insert(Degraded);
        }
        let delay = permit.delay();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        inner.call(Request::from_parts(parts, body)).await?
    } else {
        (gate.answer)(Rejection::Refused(&permit))
    };
    add(response.headers_mut(), fields);
    Ok(response)
}

impl<B, S: Store> Gate<B, S> {
    async fn check(&self, request: &Parts) -> Result<Permit<S>, CheckError> {
        let mut about = Description::default();
        (self.describe)(request, &mut about);
        let attributes = about.attributes();
        self.limiter.lease(crate::Request::new(&attributes).cost((self.cost)(request))).await
    }
}

/// Lists stand beside those of an inner layer; of other fields the inner one knows better.
fn add(headers: &mut HeaderMap, fields: Fields) {
    for field in fields {
        // Fields hold ASCII only.
        let Ok(value) = HeaderValue::try_from(field.value) else { continue };
        match headers.entry(HeaderName::from_static(field.name)) {
            Entry::Occupied(mut there) if field.list => there.append(value),
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => {
                free.insert(value);
            }
        }
    }
}

impl<I: Clone, B, S> Clone for TollgateService<I, B, S> {
    fn clone(&self) -> TollgateService<I, B, S> {
        TollgateService { inner: self.inner.clone(), gate: self.gate.clone() }
    }
}
