//! Who asks, and whether it may.

use http::{HeaderMap, header};
use tonic::Status;

use crate::access::{Scopes, bearer};
use crate::serve::shared::{Peer, Shared};

/// Whether the caller may ask for this.
pub(super) fn admit(needed: Scopes, headers: &HeaderMap, peer: Peer, shared: &Shared) -> Result<(), Status> {
    // As a rule there are no tokens, or nothing that they would be needed for.
    if shared.doors.load().scopes_of(&peer).allow(needed) {
        return Ok(());
    }
    let Some(credentials) = headers.get(header::AUTHORIZATION) else {
        return Err(Status::unauthenticated("a token is needed; send it as authorization: Bearer TOKEN"));
    };
    match bearer(credentials.as_bytes()).and_then(|token| shared.scopes_of(token)) {
        Some(scopes) if scopes.allow(needed) => Ok(()),
        Some(_) => Err(Status::permission_denied("this token may not do this")),
        None => Err(Status::unauthenticated(
            "this token is not known; send one that is as authorization: Bearer TOKEN",
        )),
    }
}
