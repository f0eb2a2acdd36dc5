//! Requests that do not get through, and what to tell them.

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};

use crate::limiter::{CheckError, Decision};
use crate::problem::{MEDIA_TYPE, Problem};

/// Why the inner service never sees a request.
#[derive(Clone, Copy, Debug)]
pub enum Rejection<'a> {
    /// It may not proceed.
    Refused(&'a Decision),
    /// There is no answer. A request that costs more than could ever be admitted ends here.
    Undecided(&'a CheckError),
}

impl<'a> Rejection<'a> {
    /// For the one who sent the request.
    pub fn problem(&self) -> Problem<'a> {
        match self {
            Rejection::Refused(decision) => Problem::of_refused(decision),
            Rejection::Undecided(error) => Problem::of_error(error),
        }
    }

    /// The answer of a layer that was not told otherwise: a problem document. The layer adds the header fields.
    pub fn response<B: From<String>>(&self) -> Response<B> {
        let problem = self.problem();
        let mut response = Response::new(B::from(problem.to_json()));
        *response.status_mut() =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        response
    }
}
