//! Messages of Envoy's rate limit service.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use tollgate::core::Prefixes;

use crate::config::AttributeNames;
use crate::serve::edge::grpc::descriptor_request::{
    DESCRIPTORS_MAX, DescriptorRequest, Hits, MessageError, read,
};
use crate::serve::edge::grpc::message::{RateLimitDescriptor, RateLimitRequest};
use crate::serve::edge::lossless_text::lossless_text;
use crate::serve::edge::request::{ATTRIBUTES_MAX, COST_MAX, CheckRequest};

/// Bytes of an error. Little input is echoed.
const ERROR_BYTES_MAX: usize = 500;

/// Reads a message. It is rejected with a reason, or every descriptor becomes the request that it describes.
pub fn rls(bytes: &[u8]) {
    let Ok(message) = RateLimitRequest::decode(bytes) else { return };
    let names = [("remote_address", "ip"), ("generic_key", "action"), ("a", "descriptor"), ("a", "domain")];
    let names = AttributeNames::new(names.map(|(key, name)| (key.to_owned(), name.to_owned())).to_vec());
    match read(&message, &names, Prefixes::default()) {
        Err(error) => is_justified(&error, &message),
        Ok(requests) => {
            assert_eq!(requests.len(), message.descriptors.len());
            let mut keys = BTreeMap::new();
            for (request, descriptor) in requests.iter().zip(&message.descriptors) {
                match request.check_request() {
                    Ok(checked) => has_the_values_of(request, &checked, descriptor, &message),
                    Err(error) => assert!(error.to_string().len() <= ERROR_BYTES_MAX, "{error}"),
                }
                // The key of an own limit contains the whole descriptor.
                let entries: Vec<_> =
                    descriptor.entries.iter().map(|entry| (&entry.key, &entry.value)).collect();
                let known = keys.entry(request.own_key()).or_insert_with(|| entries.clone());
                assert_eq!(*known, entries);
            }
            let different: BTreeSet<_> = keys.values().collect();
            assert_eq!(different.len(), keys.len());
        }
    }
}

fn is_justified(error: &MessageError, message: &RateLimitRequest) {
    let text = error.to_string();
    assert!((1..=ERROR_BYTES_MAX).contains(&text.len()), "{text}");
    let entries = |at: &usize| &message.descriptors[*at].entries;
    let holds = match error {
        MessageError::NoDomain => message.domain.is_empty(),
        MessageError::NoDescriptor => message.descriptors.is_empty(),
        MessageError::TooManyDescriptors(many) => *many > DESCRIPTORS_MAX,
        MessageError::NoEntry(at) => entries(at).is_empty(),
        MessageError::Request(_) => {
            message.descriptors.iter().any(|descriptor| descriptor.entries.len() > ATTRIBUTES_MAX)
        }
        MessageError::NoKey(at) => entries(at).iter().any(|entry| entry.key.is_empty()),
        // Reported when the limit is read.
        MessageError::NoUnit(_) | MessageError::UnitMultiplier(_) => false,
    };
    assert!(holds, "{error}");
}

fn has_the_values_of(
    request: &DescriptorRequest<'_>,
    checked: &CheckRequest<'_>,
    descriptor: &RateLimitDescriptor,
    message: &RateLimitRequest,
) {
    let entries = &descriptor.entries;
    assert!(!message.domain.is_empty() && (1..=ATTRIBUTES_MAX).contains(&entries.len()));
    let hits = descriptor.hits_addend.unwrap_or(u64::from(message.hits_addend.max(1)));
    let (expected, cost) = match request.hits {
        Hits::Charge(stated) => (hits, stated.unwrap_or(1)),
        // A credit is never too large.
        Hits::Credit(units) => (hits.min(COST_MAX), units),
    };
    assert!(cost == expected && checked.cost() == cost);
    assert_eq!(descriptor.is_negative_hits, matches!(request.hits, Hits::Credit(_)));
    let entries: Vec<_> =
        entries.iter().map(|entry| (lossless_text(&entry.key), lossless_text(&entry.value))).collect();
    let keys: Vec<&str> = entries.iter().map(|(key, _)| &**key).collect();
    let attributes = checked.attributes();
    // No entry replaces the attributes of the message.
    assert_eq!(attributes.get("domain"), Some(&*lossless_text(&message.domain)));
    assert_eq!(attributes.get("descriptor"), Some(keys.join(",").as_str()));
    let is_index = |index: &str| {
        index.parse::<usize>().is_ok_and(|index| message.descriptors.get(index) == Some(descriptor))
    };
    assert!(attributes.get("descriptor_index").is_some_and(is_index));
    for (name, value) in
        attributes.iter().filter(|(name, _)| !matches!(*name, "domain" | "descriptor" | "descriptor_index"))
    {
        let is_renamed = |from: &str| entries.iter().any(|(key, sent)| key == from && sent == value);
        let holds = match name {
            // A renamed address is in its normal form. One that was sent as `ip` is unchanged.
            "ip" if !keys.contains(&"ip") => value.split('/').next().is_some_and(is_address),
            "action" if !keys.contains(&"action") => is_renamed("generic_key"),
            _ => entries.iter().any(|(key, sent)| name.starts_with(&**key) && sent == value),
        };
        assert!(holds, "{name}: {value}");
    }
}

fn is_address(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().to_string() == text)
}
