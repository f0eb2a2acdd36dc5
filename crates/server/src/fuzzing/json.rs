//! Bodies of HTTP requests.

use serde_json::Value;
use tollgate::core::Report;

use crate::serve::edge::http::request_body::{BATCH_MAX, BodyError, BodyKind, RequestBody};
use crate::serve::edge::request::{
    ATTRIBUTES_MAX, COST_MAX, ID_BYTES_MAX, NAME_BYTES_MAX, RequestError, TTL_MS_MAX, VALUE_BYTES_MAX,
};

/// Bytes of an error. More input is never echoed.
const ERROR_BYTES_MAX: usize = 100_000;

/// Reads a body as every kind. It is rejected with a reason, or has the values that another JSON parser finds.
pub fn json(bytes: &[u8]) {
    let read = serde_json::from_slice::<Value>(bytes).ok();
    for kind in [
        BodyKind::Check,
        BodyKind::Peek,
        BodyKind::Report,
        BodyKind::Receipt,
        BodyKind::Reserve,
        BodyKind::Extend,
        BodyKind::Settle,
        BodyKind::MeterChange,
    ] {
        match kind.read(bytes) {
            Ok(body) => has_the_values_of(kind, &body, read.as_ref().expect("it is JSON")),
            Err(error) => is_short(&error, read.is_some()),
        }
    }
    match BodyKind::Check.read_list(bytes) {
        Ok(bodies) => {
            let list = read.as_ref().and_then(Value::as_array).expect("it is a list");
            assert!((1..=BATCH_MAX).contains(&bodies.len()) && bodies.len() == list.len());
            for (body, read) in bodies.iter().zip(list) {
                has_the_values_of(BodyKind::Check, body, read);
            }
        }
        Err(error) => is_short(&error, read.is_some()),
    }
}

fn has_the_values_of(kind: BodyKind, body: &RequestBody<'_>, read: &Value) {
    if read.get("receipt").is_some() {
        assert_eq!(read["receipt"], body.receipt());
        if let (BodyKind::Settle, Ok(settlement)) = (kind, body.settlement()) {
            assert!(settlement.actual.is_some() || !settlement.named.is_empty());
            assert!(settlement.named.iter().all(|(rule, amount)| {
                *amount <= COST_MAX && read["rules"][rule].as_f64() == Some(*amount as f64)
            }));
        }
        if let (BodyKind::Extend, Ok(more)) = (kind, body.more()) {
            assert_eq!(read["more"].as_f64(), Some(more as f64));
        }
        return;
    }
    if kind == BodyKind::MeterChange {
        if let Ok(amount) = body.meter_amount() {
            assert!((1..=COST_MAX).contains(&amount));
        }
        return;
    }
    if let (BodyKind::Reserve, Ok(hold)) = (kind, body.hold()) {
        assert!((1..=TTL_MS_MAX * 1_000).contains(&hold.us()));
    }
    let all = read["attributes"].as_object().expect("attributes are an object");
    let request = match body.check_request() {
        Ok(request) => request,
        Err(BodyError::Request(error)) => return is_justified(&error, read),
        Err(error) => panic!("{error}"),
    };
    let request = request.request();
    assert!(request.attributes.iter().count() == all.len() && all.len() <= ATTRIBUTES_MAX);
    for (name, value) in request.attributes.iter() {
        assert_eq!(all[name], value);
        assert!((1..=NAME_BYTES_MAX).contains(&name.len()) && value.len() <= VALUE_BYTES_MAX);
    }
    if kind == BodyKind::Report {
        let result = if body.result() == Report::Success { "success" } else { "failure" };
        assert_eq!(read["result"], result);
        return;
    }
    let cost = read.get("cost").map_or(Some(1.0), Value::as_f64);
    assert!(request.cost <= COST_MAX && cost == Some(request.cost as f64));
    assert_eq!(read.get("id").and_then(Value::as_str), request.id);
    assert!(request.id.is_none_or(|id| (1..=ID_BYTES_MAX).contains(&id.len())));
}

/// Whether the request exceeds the limit that the error names. Duplicates are not checked: the other parser keeps only the last.
fn is_justified(error: &RequestError, read: &Value) {
    let attributes = || read["attributes"].as_object().into_iter().flatten();
    let id = read.get("id").and_then(Value::as_str).unwrap_or_default();
    let holds = match error {
        RequestError::NoName => attributes().any(|(name, _)| name.is_empty()),
        RequestError::NameTooLong { len, .. } => attributes().any(|(name, _)| name.len() == *len),
        RequestError::ValueTooLong { len, .. } => *len > VALUE_BYTES_MAX,
        RequestError::Duplicate(_) | RequestError::TooManyAttributes => true,
        RequestError::EmptyId => id.is_empty(),
        RequestError::IdTooLong(len) => id.len() == *len && *len > ID_BYTES_MAX,
        RequestError::CostTooLarge(cost) => *cost > COST_MAX,
        RequestError::AmountOutOfRange(amount) => !(1..=COST_MAX).contains(amount),
        RequestError::Amount { .. } | RequestError::ScaleTooLarge(_) => read.get("amount").is_some(),
        RequestError::TtlOutOfRange(ms) => !(1..=TTL_MS_MAX).contains(ms),
        RequestError::Bound(_) => unreachable!("no token is involved"),
    };
    assert!(holds, "{error}");
}

fn is_short(error: &BodyError, is_json: bool) {
    assert!(is_json || !error.to_string().is_empty());
    assert!(error.to_string().len() <= ERROR_BYTES_MAX);
}
