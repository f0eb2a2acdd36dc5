//! Calls that HTTP and RESP share: each binds the request to the caller, checks its scopes, makes the call and returns the
//! result. The transports only translate.

pub(crate) mod answer;
pub(crate) mod charges;
pub(crate) mod holds;
pub(crate) mod meters;
pub(crate) mod resets;
