//! The service: one check before each call.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::{Entry, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use tower_service::Service;

use super::layer::Gate;
use super::{Description, Rejection};
use crate::limiter::{CheckError, Permit};
use crate::wire::headers::Fields;

/// A service behind a limiter, made by [`TollgateLayer`](super::TollgateLayer).
pub struct TollgateService<I, B> {
    pub(super) inner: I,
    pub(super) gate: Gate<B>,
}

/// Marks a request, in its extensions, that is allowed although the store did not answer, because a rule says
/// `on_failure: degraded`. Services can save work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Degraded;

impl<I, A, B> Service<Request<A>> for TollgateService<I, B>
where
    I: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    I::Future: Send,
    A: Send + 'static,
    B: 'static,
{
    type Response = Response<B>;
    type Error = I::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, I::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        // `poll_ready` was called on this service and not on the clone, so this one takes the call.
        let next = self.inner.clone();
        let inner = mem::replace(&mut self.inner, next);
        Box::pin(pass(inner, self.gate.clone(), request))
    }
}

async fn pass<I, A, B>(mut inner: I, gate: Gate<B>, request: Request<A>) -> Result<Response<B>, I::Error>
where
    I: Service<Request<A>, Response = Response<B>>,
{
    let (mut parts, body) = request.into_parts();
    let permit = match gate.check(&parts).await {
        Ok(permit) => permit,
        Err(error) => return Ok((gate.answer)(Rejection::Undecided(&error))),
    };
    let decision = permit.decision();
    let fields =
        if decision.allowed() && !gate.headers { Fields::new() } else { gate.dialect.fields(decision) };
    let mut response = if decision.allowed() {
        if decision.degraded() {
            parts.extensions.insert(Degraded);
        }
        let delay = decision.delay();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        inner.call(Request::from_parts(parts, body)).await?
    } else {
        (gate.answer)(Rejection::Refused(decision))
    };
    add(response.headers_mut(), fields);
    Ok(response)
}

impl<B> Gate<B> {
    async fn check(&self, request: &Parts) -> Result<Permit, CheckError> {
        let mut about = Description::default();
        (self.describe)(request, &mut about);
        let cost = (self.cost)(request);
        self.limiter.lease(crate::Request::from(about.attributes()).cost(cost)).await
    }
}

/// Adds lists to those of an inner layer, and keeps the inner layer's other fields.
fn add(headers: &mut HeaderMap, fields: Fields) {
    for field in fields {
        // Fields hold ASCII only.
        let Ok(value) = HeaderValue::try_from(field.value) else { continue };
        match headers.entry(HeaderName::from_static(field.name)) {
            Entry::Occupied(mut present) if field.list => present.append(value),
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => {
                free.insert(value);
            }
        }
    }
}

impl<I: Clone, B> Clone for TollgateService<I, B> {
    fn clone(&self) -> TollgateService<I, B> {
        TollgateService { inner: self.inner.clone(), gate: self.gate.clone() }
    }
}
