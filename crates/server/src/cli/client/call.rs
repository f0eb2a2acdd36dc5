//! One call and its answer.

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use serde_json::Value;

use crate::failure::Failure;

/// A call of one route.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(super) method: Method,
    /// The path with its query. Attribute values never belong here.
    pub(super) target: String,
    pub(super) body: Option<Value>,
    pub(super) if_match: Option<String>,
    accepts_refusals: bool,
    /// The code of an error that is an answer to this call.
    accepts_code: Option<&'static str>,
}

/// The whole answer of a server.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn get(target: impl Into<String>) -> Call {
        Call::new(Method::GET, target, None)
    }

    pub(crate) fn post(target: impl Into<String>, body: Value) -> Call {
        Call::new(Method::POST, target, Some(body))
    }

    pub(crate) fn delete(target: impl Into<String>, body: Value) -> Call {
        Call::new(Method::DELETE, target, Some(body))
    }

    fn new(method: Method, target: impl Into<String>, body: Option<Value>) -> Call {
        Call {
            method,
            target: target.into(),
            body,
            if_match: None,
            accepts_refusals: false,
            accepts_code: None,
        }
    }

    /// Lets the server make the change only if the entity still has this tag.
    #[must_use]
    pub(crate) fn if_match(self, tag: &str) -> Call {
        Call { if_match: Some(tag.to_owned()), ..self }
    }

    /// Asks the server to check the change without making it.
    #[must_use]
    pub(crate) fn dry_run(self, is_dry: bool) -> Call {
        if !is_dry {
            return self;
        }
        let separator = if self.target.contains('?') { '&' } else { '?' };
        Call { target: format!("{}{separator}dry_run=true", self.target), ..self }
    }

    /// Returns refusals too, whose status is an error: they are answers of a check.
    #[must_use]
    pub(crate) fn accept_refusals(self) -> Call {
        Call { accepts_refusals: true, ..self }
    }

    /// Returns errors with this code too: they are answers.
    #[must_use]
    pub(crate) fn accept_code(self, code: &'static str) -> Call {
        Call { accepts_code: Some(code), ..self }
    }

    /// Whether the status of an error is an answer: a decision that refuses, or the code that the call accepts. A caller that is
    /// not permitted to ask gets the same statuses.
    pub(super) fn accepts(&self, answer: &Answer) -> bool {
        let Ok(body) = answer.json() else { return false };
        let is_refusal = self.accepts_refusals && body["allowed"] == false;
        is_refusal || self.accepts_code.is_some_and(|code| body["code"] == code)
    }
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Result<Value, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let hint = "check that --server names a Tollgate server of the same release";
            Failure::of_store(format!("the answer is not JSON: {error}"), hint)
        })
    }

    /// The tag of the entity, for [`Call::if_match`].
    pub(crate) fn etag(&self) -> Option<&str> {
        self.headers.get(http::header::ETAG).and_then(|tag| tag.to_str().ok())
    }
}
