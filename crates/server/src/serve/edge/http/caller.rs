//! Who asks, and whether it may.

use http::{HeaderMap, header};

use super::complaint::Complaint;
use super::route::Route;
use crate::access::{Scopes, bearer};
use crate::serve::shared::{Peer, Shared};

/// Whether the caller may ask for this.
pub(super) fn admit(route: Route, headers: &HeaderMap, peer: Peer, shared: &Shared) -> Result<(), Complaint> {
    let needed = route.needs();
    if needed == Scopes::NONE {
        return Ok(());
    }
    let Some(credentials) = headers.get(header::AUTHORIZATION) else {
        return anonymous(peer, needed, shared);
    };
    let token = bearer(credentials.as_bytes());
    match token.and_then(|token| shared.scopes_of(token)) {
        Some(scopes) if scopes.allow(needed) => Ok(()),
        Some(_) => Err(Complaint::forbidden()),
        // A proxy that asks for its client hands on what the client showed, which is not meant for us.
        None if route == Route::Authorize => anonymous(peer, needed, shared),
        None => Err(Complaint::unauthorized(
            "this token is not known; send one that is: Authorization: Bearer TOKEN",
        )),
    }
}

fn anonymous(peer: Peer, needed: Scopes, shared: &Shared) -> Result<(), Complaint> {
    if shared.doors.load().scopes_of(&peer).allow(needed) {
        return Ok(());
    }
    Err(Complaint::unauthorized("a token is needed; send it as Authorization: Bearer TOKEN"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_behind_its_scheme_and_nowhere_else() {
        for (credentials, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic abc", None),
            ("Bearerabc", None),
            ("", None),
        ] {
            assert_eq!(bearer(credentials.as_bytes()), token.map(str::as_bytes), "{credentials:?}");
        }
    }
}
