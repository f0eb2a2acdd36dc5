//! Descriptors with `is_negative_hits`: they give units back to their subjects. They are never refused.

use tollgate::core::Operation;

use super::descriptor_request::{DescriptorRequest, MessageError};
use super::own_limit::OwnLimit;
use crate::serve::edge::auth::Caller;
use crate::serve::edge::error::EdgeError;
use crate::serve::edge::request::CheckRequest;
use crate::serve::gate::{Edge, Gate};

/// What a descriptor gives back.
pub(super) struct Credit<'a> {
    /// Its index among the descriptors.
    index: usize,
    /// Its subjects, and the units as the cost.
    request: CheckRequest<'a>,
    /// The limit that it carries, and its key.
    own_limit: Option<(OwnLimit, String)>,
}

/// The result of a credit.
pub(super) struct Credited {
    pub(super) index: usize,
    /// Why nothing was given back. What rules could not give back because the store failed is given back later.
    pub(super) failure: Option<EdgeError>,
}

impl<'a> Credit<'a> {
    pub(super) fn new(
        index: usize,
        descriptor: &DescriptorRequest<'_>,
        request: CheckRequest<'a>,
    ) -> Result<Credit<'a>, MessageError> {
        let own_limit = OwnLimit::of(index, descriptor)?.map(|limit| (limit, descriptor.own_key()));
        Ok(Credit { index, request, own_limit })
    }

    /// Gives the units back: under the limit that the descriptor carries, or under all rules that match.
    pub(super) async fn apply(&self, caller: &Caller, gate: &Gate) -> Credited {
        let failure = match &self.own_limit {
            // Nothing was ever charged to it.
            Some((OwnLimit::Nothing, _)) => None,
            Some((OwnLimit::Some(limit), key)) => {
                let credit = Operation::Credit { cost: self.request.cost() };
                let credited = gate.throttle((Edge::Grpc, caller), key, limit, credit).finish().await;
                credited.err().map(|error| EdgeError::from(&error))
            }
            None => {
                gate.credit_later(self.request.request()).await.err().map(|error| EdgeError::from(&error))
            }
        };
        Credited { index: self.index, failure }
    }
}
