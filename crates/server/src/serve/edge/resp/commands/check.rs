//! The replies of `TG.CHECK` and the other commands that return a decision.

use tollgate::Decision;
use tollgate::core::decision::RetryAfter;
use tollgate::limiter::Returned;

use crate::serve::edge::resp::reply::Reply;

/// Writes the decision with the names of its JSON.
///
/// `holds` are the numbers of a lease or a reservation. A refusal ends with its reference.
pub(crate) fn write_decision(
    decision: &Decision,
    (receipt, reference): (Option<&str>, Option<&str>),
    holds: &[(&[u8], Option<u64>)],
    reply: &mut Reply<'_>,
) {
    let headline = decision.headline();
    let numbers = headline.as_ref().and_then(|rule| rule.outcome().numbers);
    let retry_after_ms = match numbers.map(|numbers| numbers.retry_after) {
        _ if decision.allowed() => Some(0),
        Some(RetryAfter::Ms(ms)) => Some(ms),
        Some(RetryAfter::Never) | None => None,
    };
    reply.map(10 + holds.len() + usize::from(reference.is_some()));
    reply.raw(b"$7\r\nallowed\r\n");
    reply.boolean(decision.allowed());
    reply.raw(b"$4\r\nrule\r\n");
    match headline {
        Some(rule) => reply.bulk(rule.id().as_bytes()),
        None => reply.null(),
    }
    reply.raw(b"$5\r\nlimit\r\n");
    reply.number_or_null(numbers.map(|numbers| numbers.limit));
    reply.raw(b"$9\r\nremaining\r\n");
    reply.number_or_null(numbers.map(|numbers| numbers.remaining));
    reply.raw(b"$14\r\nretry_after_ms\r\n");
    reply.number_or_null(retry_after_ms);
    reply.raw(b"$11\r\nreset_at_ms\r\n");
    reply.number_or_null(numbers.map(|numbers| numbers.reset_at_ms));
    reply.raw(b"$8\r\ndelay_ms\r\n");
    reply.count(decision.plan_decision().delay_ms);
    reply.raw(b"$6\r\nsource\r\n");
    reply.bulk(decision.source().name().as_bytes());
    reply.raw(b"$8\r\ndegraded\r\n");
    reply.boolean(decision.degraded());
    reply.raw(b"$7\r\nreceipt\r\n");
    match receipt {
        Some(receipt) => reply.bulk(receipt.as_bytes()),
        None => reply.null(),
    }
    for (name, value) in holds {
        reply.bulk(name);
        reply.number_or_null(*value);
    }
    if let Some(reference) = reference {
        reply.raw(b"$3\r\nref\r\n");
        reply.bulk(reference.as_bytes());
    }
}

/// Writes the rules whose consumption was deleted.
pub(crate) fn write_reset(returned: &[Returned], reply: &mut Reply<'_>) {
    let done = returned.iter().filter(|returned| returned.amount.is_ok());
    reply.array(done.clone().count());
    done.for_each(|returned| reply.bulk(returned.rule.as_bytes()));
}
