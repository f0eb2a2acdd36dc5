//! Imported rules compared with naive models of the original limiters.
//!
//! The models are written from the documented behaviour of envoyproxy/ratelimit and Limitador. They walk and count in
//! the simplest way. The imported rules go the whole way: file, import, rules file, message of Envoy, limiter.

mod envoy;
mod generator;
mod limitador;

use std::fmt::Write as _;

use tollgate::core::Prefixes;
use tollgate::{Decision, LocalLimiter, ManualClock, Request};
use tollgate_document::Source;

use super::input::Input;
use super::{Converter, convert_all, input};
use crate::config::AttributeNames;
use crate::serve::edge::grpc::descriptor_request;
use crate::serve::edge::grpc::message::{Entry, RateLimitDescriptor, RateLimitRequest};

/// Keys and values of a descriptor.
type Entries = Vec<(&'static str, String)>;

/// Imports files of these texts: the rules, or the problems.
fn import(convert: Converter, files: &[&str]) -> Result<String, String> {
    let names = ["one.yaml", "two.yaml", "three.yaml"];
    let inputs = files.iter().zip(names).map(|(text, name)| Input::new(Source::new(name, text.as_bytes())));
    let mut inputs: Vec<Input> = inputs.collect();
    convert_all(&mut inputs, convert).map_err(|failure| {
        format!("{failure}\n{}", anstream::adapter::strip_str(&input::problems_text(&inputs)))
    })
}

/// A limiter with imported rules, asked by messages of Envoy.
struct Imported {
    limiter: LocalLimiter,
    clock: ManualClock,
}

impl Imported {
    fn new(rules: &str) -> Imported {
        let clock = ManualClock::default();
        let limiter = LocalLimiter::builder().rules_yaml(rules).clock(clock.clone()).build();
        Imported { limiter: limiter.unwrap_or_else(|error| panic!("{error}\n{rules}")), clock }
    }

    /// Decides a message: one decision per descriptor.
    fn decide(&self, domain: &str, descriptors: &[Entries], hits: u32) -> Vec<Decision> {
        let entry = |(key, value): &(&str, String)| Entry {
            key: key.as_bytes().to_vec().into(),
            value: value.clone().into(),
        };
        let descriptor = |entries: &Entries| RateLimitDescriptor {
            entries: entries.iter().map(entry).collect(),
            limit: None,
            hits_addend: None,
            is_negative_hits: false,
        };
        let message = RateLimitRequest {
            domain: domain.to_owned().into(),
            descriptors: descriptors.iter().map(descriptor).collect(),
            hits_addend: hits,
        };
        let names = AttributeNames::default();
        let read = descriptor_request::read(&message, &names, Prefixes::default()).expect("a valid message");
        let requests: Vec<_> =
            read.iter().map(|each| each.check_request().expect("a valid request")).collect();
        let requests: Vec<Request<'_>> = requests
            .iter()
            .map(|each| each.attributes().iter().collect::<Request<'_>>().cost(each.cost()))
            .collect();
        self.limiter.check_all(&requests).expect("the memory store decides")
    }
}

/// The ids of the rules that counted a descriptor, with their limits.
fn counted_by(decision: &Decision) -> Vec<(String, Option<u64>)> {
    decision.rules().map(|rule| (rule.id().to_owned(), rule.limit())).collect()
}

/// Formats entries for messages of assertions.
fn shown(descriptors: &[Entries]) -> String {
    let mut text = String::new();
    for entries in descriptors {
        for (key, value) in entries {
            write!(text, "{key}={value:?} ").expect("a text");
        }
        text.push_str("/ ");
    }
    text
}
