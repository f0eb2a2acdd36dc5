//! Requests that do not reach the inner service, and their responses.

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};

use crate::limiter::{CheckError, Decision};
use crate::wire::problem::{MEDIA_TYPE, Problem};

/// Why a request does not reach the inner service.
#[derive(Clone, Copy, Debug)]
pub enum Rejection<'a> {
    /// The request is refused.
    Refused(&'a Decision),
    /// The check could not be decided: the cost exceeds the capacity, for example.
    Undecided(&'a CheckError),
}

impl<'a> Rejection<'a> {
    /// The problem document for the client.
    pub fn problem(&self) -> Problem<'a> {
        match self {
            Rejection::Refused(decision) => Problem::of_refused(decision),
            Rejection::Undecided(error) => Problem::of_error(error),
        }
    }

    /// The default response: a problem document. The layer adds the header fields.
    pub fn response<B: From<String>>(&self) -> Response<B> {
        let problem = self.problem();
        let mut response = Response::new(B::from(problem.to_json()));
        *response.status_mut() =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        response
    }
}
