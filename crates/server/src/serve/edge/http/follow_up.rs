//! What comes after a check: giving back, keeping a lease, saying how it went.

use http::StatusCode;
use serde_json::{Value, json};
use tollgate::core::{Decline, Receipt};
use tollgate::limiter::Returned;

use super::answer::{self, Answer};
use super::complaint::Complaint;
use super::question::Form;
use crate::serve::shared::Shared;

/// Gives back what an admission was charged.
pub(super) async fn refund(body: &[u8], shared: &Shared) -> Result<Answer, Complaint> {
    let receipts = receipts(body, shared)?;
    let returned = shared.gate.refund(&receipts).await?;
    Ok(told(&returned))
}

/// Keeps leases from running out. One that has is a problem: its holder must stop.
pub(super) async fn renew(body: &[u8], shared: &Shared) -> Result<Answer, Complaint> {
    let leases = leases(body, shared)?;
    let returned = shared.gate.renew(&leases).await?;
    if let Some((lost, why)) = returned.iter().find_map(|rule| Some((&rule.rule, rule.amount.err()?))) {
        let detail = format!("the lease of rule {lost:?} is lost: {why}; stop, or ask for a new one");
        return Err(Complaint::new(StatusCode::CONFLICT, "lease-lost", detail));
    }
    Ok(told(&returned))
}

/// Gives leases back. What other rules were charged stays charged.
pub(super) async fn release(body: &[u8], shared: &Shared) -> Result<Answer, Complaint> {
    let leases = leases(body, shared)?;
    let returned = shared.gate.release(&leases).await?;
    Ok(told(&returned))
}

/// Tells penalties how an attempt went.
pub(super) async fn report(body: &[u8], shared: &Shared) -> Result<Answer, Complaint> {
    let question = Form::Report.read(body)?;
    let attributes = question.attributes();
    let returned = shared.gate.report(question.request(&attributes), question.result()).await?;
    Ok(told(&returned))
}

fn receipts(body: &[u8], shared: &Shared) -> Result<Vec<Receipt>, Complaint> {
    let question = Form::Receipt.read(body)?;
    Ok(shared.gate.open(question.receipt())?)
}

fn leases(body: &[u8], shared: &Shared) -> Result<Vec<Receipt>, Complaint> {
    let receipts = receipts(body, shared)?;
    if receipts.iter().all(|receipt| receipt.token().is_none()) {
        let detail = "this receipt holds no lease; use one of /v1/leases, or give it back with /v1/refund";
        return Err(Complaint::new(StatusCode::UNPROCESSABLE_ENTITY, "no-lease", detail));
    }
    Ok(receipts)
}

/// What each rule made of it.
fn told(returned: &[Returned]) -> Answer {
    let rules = returned.iter().map(|Returned { rule, amount }| match amount {
        Ok(amount) => json!({ "rule": rule, "amount": amount, "declined": null }),
        Err(why) => json!({ "rule": rule, "amount": 0, "declined": declined(*why) }),
    });
    answer::json(json!({ "rules": rules.collect::<Value>() }).to_string())
}

const fn declined(why: Decline) -> &'static str {
    match why {
        Decline::NotSupported => "not-supported",
        Decline::NotHeld => "not-held",
        Decline::TooOld => "too-old",
        Decline::TokenInUse => "token-in-use",
        Decline::TooManyReservations => "too-many-reservations",
        Decline::Recompute { .. } => "recompute",
        Decline::Overflow => "overflow",
    }
}
