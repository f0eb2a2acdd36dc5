//! The message of `ShouldRateLimit` as the server reads it: with bytes wherever Envoy's definition has text.
//!
//! Envoy copies what clients send into descriptors, and that need not be UTF-8. The generated types reject such a message,
//! and Envoy lets a request pass when it gets an error. On the wire, text and bytes are the same.

use bytes::Bytes;

use super::proto::RateLimitOverride;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RateLimitRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) domain: Bytes,
    #[prost(message, repeated, tag = "2")]
    pub(crate) descriptors: Vec<RateLimitDescriptor>,
    #[prost(uint32, tag = "3")]
    pub(crate) hits_addend: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<Entry>,
    #[prost(message, optional, tag = "2")]
    pub(crate) limit: Option<RateLimitOverride>,
    #[prost(message, optional, tag = "3")]
    pub(crate) hits_addend: Option<u64>,
    #[prost(bool, tag = "4")]
    pub(crate) is_negative_hits: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct Entry {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: Bytes,
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::super::proto::generated_request;
    use super::*;

    #[test]
    fn the_message_reads_what_the_generated_type_writes() {
        let written = generated_request();
        let read = RateLimitRequest::decode(&*written.encode_to_vec()).expect("a message");
        assert_eq!((&read.domain[..], read.hits_addend), (&b"shop"[..], 3));
        let descriptor = &read.descriptors[0];
        assert_eq!(
            (
                descriptor.hits_addend,
                descriptor.is_negative_hits,
                descriptor.limit.map(|limit| (limit.requests_per_unit, limit.unit_multiplier))
            ),
            (Some(7), true, Some((5, Some(3))))
        );
        assert_eq!(
            (&descriptor.entries[0].key[..], &descriptor.entries[0].value[..]),
            (&b"user"[..], "jos\u{e9}".as_bytes())
        );
        assert_eq!(read.encode_to_vec(), written.encode_to_vec());
    }
}
