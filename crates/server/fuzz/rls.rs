//! What must hold for any bytes that are sent as a message of Envoy's, for the fuzz target and for the test that feeds it.

#[path = "../src/serve/edge/grpc/question.rs"]
#[allow(dead_code, reason = "limits of a caller's own are not looked at here")]
mod question;

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use tollgate::core::Prefixes;

use crate::proto;
use proto::{RateLimitDescriptor, RateLimitRequest};
use question::{BadMessage, DESCRIPTORS_MAX, ENTRIES_MAX, Names, Question};

/// No reason is longer: nothing that was sent is told back.
const TOLD_MAX: usize = 100;

/// The bytes are no message, or one that is refused with a reason, or every descriptor asks what stands in it.
pub(crate) fn message(bytes: &[u8]) {
    let Ok(message) = RateLimitRequest::decode(bytes) else { return };
    let names = [("remote_address", "ip"), ("generic_key", "action"), ("a", "descriptor"), ("a", "domain")];
    let names = Names::new(names.map(|(key, name)| (key.to_owned(), name.to_owned())).to_vec());
    match question::read(&message, &names, Prefixes::default()) {
        Err(error) => is_right(&error, &message),
        Ok(questions) => {
            assert_eq!(questions.len(), message.descriptors.len());
            let mut keys = BTreeMap::new();
            for (question, descriptor) in questions.iter().zip(&message.descriptors) {
                is_what_it_says(question, descriptor, &message);
                // Who brings a limit along is counted by what the descriptor says, all of it.
                let entries: Vec<_> =
                    descriptor.entries.iter().map(|entry| (&entry.key, &entry.value)).collect();
                let known = keys.entry(question.own_key()).or_insert_with(|| entries.clone());
                assert_eq!(*known, entries);
            }
            let different: BTreeSet<_> = keys.values().collect();
            assert_eq!(different.len(), keys.len());
        }
    }
}

fn is_right(error: &BadMessage, message: &RateLimitRequest) {
    let told = error.to_string();
    assert!((1..=TOLD_MAX).contains(&told.len()), "{told}");
    let entries = |at: &usize| &message.descriptors[*at].entries;
    let is_right = match error {
        BadMessage::NoDomain => message.domain.is_empty(),
        BadMessage::NoDescriptor => message.descriptors.is_empty(),
        BadMessage::TooManyDescriptors(many) => *many > DESCRIPTORS_MAX,
        BadMessage::NoEntry(at) => entries(at).is_empty(),
        BadMessage::TooManyEntries(at, many) => *many > ENTRIES_MAX && entries(at).len() == *many,
        BadMessage::NoKey(at) => entries(at).iter().any(|entry| entry.key.is_empty()),
        // That is told when the limit is looked at.
        BadMessage::NoUnit(_) => false,
    };
    assert!(is_right, "{error}");
}

fn is_what_it_says(question: &Question<'_>, descriptor: &RateLimitDescriptor, message: &RateLimitRequest) {
    let entries = &descriptor.entries;
    assert!(!message.domain.is_empty() && (1..=ENTRIES_MAX).contains(&entries.len()));
    let cost = descriptor.hits_addend.unwrap_or(u64::from(message.hits_addend.max(1)));
    assert_eq!(question.cost, cost);
    let keys: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
    let attributes = question.attributes();
    // No entry and no name stands in for what the message says.
    assert_eq!(attributes.get("domain"), Some(message.domain.as_str()));
    assert_eq!(attributes.get("descriptor"), Some(keys.join(",").as_str()));
    for (name, value) in attributes.iter().filter(|(name, _)| !matches!(*name, "domain" | "descriptor")) {
        let is_sent = |entry: &proto::Entry| name.starts_with(&entry.key) && entry.value == value;
        let is_renamed = |key: &str| entries.iter().any(|entry| entry.key == key && entry.value == value);
        let holds = match name {
            // In one form, whatever form it came in; sent under this name, it is as it was sent.
            "ip" if !keys.contains(&"ip") => value.split('/').next().is_some_and(is_address),
            "action" if !keys.contains(&"action") => is_renamed("generic_key"),
            _ => entries.iter().any(is_sent),
        };
        assert!(holds, "{name}: {value}");
    }
}

fn is_address(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().to_string() == text)
}
