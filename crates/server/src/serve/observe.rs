//! What happens, for people and machines that watch: the one place where it is recorded.

use std::sync::Arc;

use tollgate::Decision;
use tollgate::core::Outcome;
use tollgate::core::rules::Request;
use tollgate::limiter::CheckError;

use super::gate::Edge;

/// Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub(crate) struct Recorder {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {}

impl Recorder {
    /// A check has its answer.
    pub(crate) fn decided(
        &self,
        _edge: Edge,
        _request: &Request<'_>,
        _decided: &Result<Decision, CheckError>,
    ) {
        let _inner = &self.inner;
    }

    /// A charge under a caller's own limit has its answer.
    pub(crate) fn throttled(&self, _outcome: &Outcome) {}
}
