//! How the ledger looks to people and programs: the same forms in commands, exports and over HTTP.

use serde_json::{Value, json};
use tollgate::core::Subject;
use tollgate_database::ledger::{Account, Id};
use tollgate_database::{PostedEntry, Usage, Writer};

use crate::cli::csv;
use crate::hex;

/// The header of an export as CSV.
pub(crate) const CSV_HEADER: &str =
    "writer,seq,n,kind,rule,subject,name,period,at,posted_at,posted,pending,granted,cause,actor";

/// The subject of an account as keys and logs show it.
pub(crate) fn subject_text(account: &Account) -> String {
    Subject::from_u128(u128::from_be_bytes(account.subject.id.0)).to_string()
}

/// Reads the 22 characters of a subject.
pub(crate) fn subject_id(text: &str) -> Result<Id, String> {
    let subject: Subject = text.parse().map_err(|_| "write the 22 characters of a subject".to_owned())?;
    Ok(Id(subject.to_u128().to_be_bytes()))
}

/// An instant of the ledger, like 2026-12-01T00:00:00Z. 0 is a meter, which has no periods.
pub(crate) fn instant_text(us: i64) -> String {
    match jiff::Timestamp::from_microsecond(us) {
        Ok(_) if us == 0 => "-".to_owned(),
        Ok(at) => at.to_string(),
        Err(_) => us.to_string(),
    }
}

pub(crate) fn usage_json(Usage { account, name, balance }: &Usage) -> Value {
    json!({
        "rule": &*account.subject.rule,
        "subject": subject_text(account),
        "name": name,
        "period": instant_text(account.period_us),
        "ends": instant_text(balance.ends_us),
        "granted": balance.granted(),
        "used": balance.posted,
        "held": balance.pending,
        "available": balance.available(),
    })
}

pub(crate) fn entry_json(PostedEntry { writer, posted_at_us, name, entry }: &PostedEntry) -> Value {
    json!({
        "writer": writer.to_string(),
        "seq": entry.seq,
        "n": entry.n,
        "kind": entry.kind.name(),
        "rule": &*entry.account.subject.rule,
        "subject": subject_text(&entry.account),
        "name": name,
        "period": instant_text(entry.account.period_us),
        "at": instant_text(entry.at_us),
        "posted_at": instant_text(*posted_at_us),
        "posted": entry.d_posted,
        "pending": entry.d_pending,
        "granted": entry.d_granted,
        "cause": entry.cause,
        "actor": entry.actor,
    })
}

/// A line of CSV with the columns of [`CSV_HEADER`].
pub(crate) fn entry_csv(PostedEntry { writer, posted_at_us, name, entry }: &PostedEntry) -> String {
    let numbers = [entry.d_posted, entry.d_pending, entry.d_granted].map(|number| number.to_string());
    let fields = [
        writer.to_string(),
        entry.seq.to_string(),
        entry.n.to_string(),
        entry.kind.name().to_owned(),
        entry.account.subject.rule.to_string(),
        subject_text(&entry.account),
        name.clone().unwrap_or_default(),
        instant_text(entry.account.period_us),
        instant_text(entry.at_us),
        instant_text(*posted_at_us),
    ];
    let texts = [entry.cause.clone(), entry.actor.clone()];
    csv::line(fields.into_iter().chain(numbers).chain(texts))
}

/// The head of a writer's chain, for people who keep it elsewhere.
pub(crate) fn head_json(writer: &Writer) -> Value {
    json!({
        "writer": writer.id.to_string(),
        "name": writer.name,
        "state": writer.state,
        "last_seen": instant_text(writer.last_seen_us),
        "entries": writer.shipped_seq,
        "blocks": writer.blocks,
        "head": hex::of(&writer.head),
    })
}
