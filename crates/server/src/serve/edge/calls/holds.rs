//! Leases and reservations: taken by a request, and continued and ended by the receipt that it got.

use tollgate::core::{Limit, Mark, Receipt, Span};
use tollgate::limiter::{Actual, Extension, Returned};
use tollgate::{Clock, Decision, Exactness, Source, SystemClock};

use crate::access::Scopes;
use crate::protocol::Protocol;
use crate::reference::{Refusal, RefusingRule, RuleNumbers};
use crate::serve::edge::auth::{Caller, Needs};
use crate::serve::edge::error::EdgeError;
use crate::serve::edge::request::CheckRequest;
use crate::serve::gate::{Edge, Gate};

/// The answer to a request for a lease or a reservation. A refused one holds nothing.
pub(crate) struct Held {
    pub(crate) decision: Decision,
    /// When the first of its holds ends, by the store's clock; `None` if it has none.
    pub(crate) expires_at_ms: Option<u64>,
    /// How long the first of its holds lasts, for holders whose clock differs from the store's.
    pub(crate) lasts_ms: Option<u64>,
}

/// What a reservation really used, as the caller sent it.
pub(crate) struct Settlement<'a> {
    /// The amount of the rules that are not named.
    pub(crate) actual: Option<u64>,
    pub(crate) named: Vec<(&'a str, u64)>,
}

/// Makes a check that must hold a lease.
pub(crate) async fn lease(
    gate: &Gate,
    (edge, caller): (Edge, &Caller),
    request: CheckRequest<'_>,
) -> Result<Held, EdgeError> {
    let request = caller.bind(request)?;
    if !gate.has_lease_rule(request.attributes()) {
        return Err(EdgeError::no_lease_rule());
    }
    let decision =
        gate.check(edge, request.request()).finish().await.map_err(|error| EdgeError::from(&error))?;
    let leases = decision.rules().filter_map(|rule| match rule.limit_in_force()? {
        Limit::Concurrency(limit) if decision.allowed() && rule.allowed() => Some(limit.lease().us() / 1_000),
        _ => None,
    });
    let lasts_ms = leases.min();
    let expires_at_ms = expires_at_ms(&decision.receipts()).filter(|_| lasts_ms.is_some());
    Ok(Held { decision, expires_at_ms, lasts_ms: lasts_ms.filter(|_| expires_at_ms.is_some()) })
}

/// Renews the leases of a receipt, and returns how long the shortest of them lasts now. If one is lost, the holder must
/// stop.
pub(crate) async fn renew(
    gate: &Gate,
    caller: &Caller,
    sealed: &str,
) -> Result<(Vec<Returned>, u64), EdgeError> {
    let receipts = leases(gate, caller, sealed)?;
    let returned = gate.renew(&receipts).await.map_err(|error| EdgeError::from(&error))?;
    if let Some((rule, why)) = returned.iter().find_map(|rule| Some((&rule.rule, rule.amount.err()?))) {
        return Err(EdgeError::lease_lost(rule, why));
    }
    let lengths = receipts.iter().filter_map(|receipt| match receipt.limit {
        Limit::Concurrency(limit) => Some(limit.lease().us() / 1_000),
        _ => None,
    });
    Ok((returned, lengths.min().unwrap_or(0)))
}

/// Releases the leases of a receipt. What other rules charged stays charged.
pub(crate) async fn release(gate: &Gate, caller: &Caller, sealed: &str) -> Result<Vec<Returned>, EdgeError> {
    let receipts = leases(gate, caller, sealed)?;
    gate.release(&receipts).await.map_err(|error| EdgeError::from(&error))
}

/// Gives back what a receipt charged, up to `amount` units under each rule.
pub(crate) async fn refund(
    gate: &Gate,
    caller: &Caller,
    sealed: &str,
    amount: u64,
) -> Result<Vec<Returned>, EdgeError> {
    let receipts = gate.open(sealed, caller)?;
    gate.refund(&receipts, amount).await.map_err(|error| EdgeError::from(&error))
}

/// Makes a check whose cost is an estimate. Quotas hold it until it is settled or cancelled, or until it expires.
pub(crate) async fn reserve(
    gate: &Gate,
    (edge, caller): (Edge, &Caller),
    request: CheckRequest<'_>,
    hold: Span,
) -> Result<Held, EdgeError> {
    let request = caller.bind(request)?;
    let decision =
        gate.reserve(edge, request.request(), hold).await.map_err(|error| EdgeError::from(&error))?;
    let receipts = decision.receipts();
    let expires_at_ms = expires_at_ms(&receipts);
    Ok(Held { decision, expires_at_ms, lasts_ms: lasts_ms(&receipts) })
}

/// An extension of a reservation, as the caller asks for it.
pub(crate) struct ExtendRequest<'a> {
    pub(crate) receipt: &'a str,
    pub(crate) more: u64,
    pub(crate) hold: Span,
    pub(crate) id: Option<&'a str>,
}

/// The answer to an extension, and the receipt that stands for the whole reservation now. A refused one leaves both as they
/// were.
pub(crate) struct Extended {
    pub(crate) extension: Extension,
    pub(crate) receipt: Option<String>,
    /// When the first of its holds ends, by the store's clock; `None` if it has none.
    pub(crate) expires_at_ms: Option<u64>,
    /// The reference of a refusal, which explains it later.
    pub(crate) reference: Option<String>,
}

/// Holds more under a reservation.
pub(crate) async fn extend(
    gate: &Gate,
    caller: &Caller,
    request: &ExtendRequest<'_>,
) -> Result<Extended, EdgeError> {
    let receipts = gate.open(request.receipt, caller)?;
    let id = request.id.map(|id| caller.scoped_id(id));
    let extended = gate.extend(&receipts, request.more, request.hold, id.as_deref()).await;
    let extension = extended.map_err(|error| EdgeError::from(&error))?;
    if let Some(why) = extension.declined {
        let rule = receipts.first().map_or("", |receipt| &receipt.rule);
        return Err(EdgeError::reservation_ended(rule, why));
    }
    let receipt = gate.seal_receipts(&extension.receipts, caller);
    let expires_at_ms = expires_at_ms(&extension.receipts);
    let reference =
        if extension.allowed { None } else { gate.references().of_refusal(&refusal(gate, &extension)) };
    Ok(Extended { extension, receipt, expires_at_ms, reference })
}

/// What a refused extension was, for its reference.
fn refusal(gate: &Gate, extension: &Extension) -> Refusal {
    let headline = extension.refused_by().map(|rule| rule.rule.as_str());
    let mut refusing: Vec<_> = extension.rules.iter().filter(|rule| rule.blocking && !rule.allowed).collect();
    // The headline comes first; the others keep their order.
    refusing.sort_by_key(|rule| Some(rule.rule.as_str()) != headline);
    let rules = refusing.into_iter().map(|rule| RefusingRule {
        rule: rule.rule.clone(),
        algorithm: None,
        cost: 0,
        is_override: false,
        numbers: Some(RuleNumbers {
            limit: rule.limit,
            remaining: rule.remaining,
            retry_after_ms: rule.retry_after.map(|wait| wait.as_micros().div_ceil(1_000) as u64),
            reset_at_ms: 0,
        }),
    });
    Refusal {
        at_us: SystemClock.now().us(),
        server: String::new(),
        rules_fingerprint: gate.rules_fingerprint().to_string(),
        source: Source::Store,
        exactness: Exactness::Exact,
        subject: None,
        refused_by: rules.collect(),
        more: 0,
    }
}

/// Settles a reservation at what was really used. More than was reserved is booked beyond the limits, which needs the scope
/// `record`.
pub(crate) async fn settle(
    gate: &Gate,
    (protocol, caller): (Protocol, &Caller),
    sealed: &str,
    settlement: &Settlement<'_>,
) -> Result<Vec<Returned>, EdgeError> {
    let receipts = gate.open(sealed, caller)?;
    if let Some((rule, _)) = settlement.named.iter().find(|(rule, _)| !has_rule(&receipts, rule)) {
        return Err(EdgeError::not_reserved(rule));
    }
    for receipt in &receipts {
        let amount = settlement.of(receipt).ok_or_else(|| EdgeError::unsettled(&receipt.rule))?;
        // An extended reservation has several receipts of a rule.
        let same =
            receipts.iter().filter(|other| (&other.rule, other.subject) == (&receipt.rule, receipt.subject));
        if amount > same.map(|receipt| receipt.cost).sum() {
            let needs = Needs::Scope(Scopes::RECORD);
            caller.authorize(needs).map_err(|error| EdgeError::auth(error, protocol))?;
        }
    }
    let actual = Actual::same(settlement.actual.unwrap_or(0));
    let actual = settlement.named.iter().fold(actual, |actual, (rule, amount)| actual.rule(*rule, *amount));
    gate.settle(&receipts, &actual).await.map_err(|error| EdgeError::from(&error))
}

/// Gives back everything that a reservation holds or was charged.
pub(crate) async fn cancel(gate: &Gate, caller: &Caller, sealed: &str) -> Result<Vec<Returned>, EdgeError> {
    let receipts = gate.open(sealed, caller)?;
    gate.cancel(&receipts).await.map_err(|error| EdgeError::from(&error))
}

impl Settlement<'_> {
    /// The amount under the rule of a receipt; `None` if it has none. A lease is released, whatever the amount, and a rule
    /// that sets the cost itself keeps it.
    fn of(&self, receipt: &Receipt) -> Option<u64> {
        let named = self.named.iter().find(|(rule, _)| *rule == receipt.rule).map(|(_, amount)| *amount);
        match receipt.limit {
            Limit::Concurrency(_) => Some(0),
            _ if named.is_none() && receipt.fixed_cost => Some(receipt.cost),
            _ => named.or(self.actual),
        }
    }
}

fn has_rule(receipts: &[Receipt], rule: &str) -> bool {
    receipts.iter().any(|receipt| receipt.rule == rule)
}

/// The receipts in a text, if one of them holds a lease.
fn leases(gate: &Gate, caller: &Caller, sealed: &str) -> Result<Vec<Receipt>, EdgeError> {
    let receipts = gate.open(sealed, caller)?;
    let is_lease =
        |receipt: &Receipt| receipt.token().is_some() && matches!(receipt.limit, Limit::Concurrency(_));
    if receipts.iter().any(is_lease) { Ok(receipts) } else { Err(EdgeError::no_lease()) }
}

/// When the first of the holds ends; `None` without a hold.
pub(crate) fn expires_at_ms(receipts: &[Receipt]) -> Option<u64> {
    ends(receipts).map(|(_, until_us)| until_us / 1_000).min()
}

/// How long the first of the holds lasts from the charge on; `None` without a hold.
fn lasts_ms(receipts: &[Receipt]) -> Option<u64> {
    ends(receipts).map(|(since_us, until_us)| until_us.saturating_sub(since_us) / 1_000).min()
}

/// The charge and the end of every hold, in microseconds.
fn ends(receipts: &[Receipt]) -> impl Iterator<Item = (u64, u64)> {
    receipts.iter().filter_map(|receipt| match receipt.mark {
        Mark::Held { until, .. } => Some((receipt.charged_at.us(), until.us())),
        _ => None,
    })
}
