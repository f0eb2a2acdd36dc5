//! What a request says of itself: its attributes, the path it asks for, and the address it came from.

pub mod attributes;
pub mod client_address;
pub mod path;
pub(crate) mod short_bytes;
