//! The bytes of a journaled record. Numbers are little-endian; a text has its length before it.

use crate::ledger::{Account, Change, Detail, Event, Id, Record, Request, Subject};

/// Version of the format. A frame of another version cannot be read.
const VERSION: u8 = 1;
/// Bits of the second byte.
const TOTALS: u8 = 1;
const NAMED: u8 = 2;

/// The bytes are not a record of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the bytes are not a journaled record of version {VERSION}")]
pub struct DecodeError;

/// Appends the record with its sequence number.
pub(crate) fn encode(out: &mut Vec<u8>, seq: i64, record: &Record) {
    let Record { account, ends_us, allowance, at_us, rev, detail, request, name, event } = record;
    out.push(VERSION);
    let (totals, named) = (u8::from(*detail == Detail::Totals) * TOTALS, u8::from(name.is_some()) * NAMED);
    out.push(totals | named);
    for number in [seq, account.period_us, *ends_us, *allowance, *at_us, *rev] {
        out.extend(number.to_le_bytes());
    }
    out.extend(account.subject.id.0);
    text(out, &account.subject.rule);
    out.push(u8::from(request.is_some()));
    if let Some(Request { id, nonce, content }) = request {
        out.extend(id.0);
        out.extend(nonce.0);
        out.extend(content.to_le_bytes());
    }
    if let Some(name) = name {
        text(out, name);
    }
    let (code, id, numbers): (u8, Option<Id>, &[i64]) = match event {
        Event::Use { cost } => (0, None, &[*cost]),
        Event::Local { cost } => (1, None, &[*cost]),
        Event::Reserve { token, cost, until_us } => (2, Some(*token), &[*cost, *until_us]),
        Event::Extend { token, more, until_us } => (3, Some(*token), &[*more, *until_us]),
        Event::Settle { token, actual, until_us } => (4, Some(*token), &[*actual, *until_us]),
        Event::Cancel { token } => (5, Some(*token), &[]),
        Event::Expire { token } => (6, Some(*token), &[]),
        Event::Refund { receipt, charged, amount } => (7, Some(*receipt), &[*charged, *amount]),
        Event::Credit { amount } => (8, None, &[*amount]),
        Event::Opening { used } => (9, None, &[*used]),
        Event::Carry { used } => (10, None, &[*used]),
        Event::Void { seq } => (11, None, &[*seq]),
        Event::Correct(change) => (12, None, &[change.units]),
        Event::Grant(change) => (13, None, &[change.units]),
    };
    out.push(code);
    out.extend(id.iter().flat_map(|id| id.0));
    for number in numbers {
        out.extend(number.to_le_bytes());
    }
    if let Event::Correct(Change { actor, cause, .. }) | Event::Grant(Change { actor, cause, .. }) = event {
        text(out, actor);
        text(out, cause);
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Reads a record and its sequence number. Bytes that are left over are an error.
pub(crate) fn decode(bytes: &[u8]) -> Result<(i64, Record), DecodeError> {
    let mut bytes = Bytes(bytes);
    if bytes.byte()? != VERSION {
        return Err(DecodeError);
    }
    let bits = bytes.byte()?;
    if bits & !(TOTALS | NAMED) != 0 {
        return Err(DecodeError);
    }
    let detail = if bits & TOTALS != 0 { Detail::Totals } else { Detail::Entries };
    let seq = bytes.int()?;
    let period_us = bytes.int()?;
    let (ends_us, allowance) = (bytes.int()?, bytes.int()?);
    let (at_us, rev) = (bytes.int()?, bytes.int()?);
    let id = bytes.id()?;
    let subject = Subject { rule: bytes.text()?.into(), id };
    let request = match bytes.flag()? {
        true => Some(Request { id: bytes.id()?, nonce: bytes.id()?, content: bytes.int()? }),
        false => None,
    };
    let name = if bits & NAMED != 0 { Some(bytes.text()?.into()) } else { None };
    let event = event(&mut bytes)?;
    let account = Account { subject, period_us };
    match bytes.0 {
        [] => Ok((seq, Record { account, ends_us, allowance, at_us, rev, detail, request, name, event })),
        _ => Err(DecodeError),
    }
}

fn event(bytes: &mut Bytes<'_>) -> Result<Event, DecodeError> {
    Ok(match bytes.byte()? {
        0 => Event::Use { cost: bytes.int()? },
        1 => Event::Local { cost: bytes.int()? },
        2 => Event::Reserve { token: bytes.id()?, cost: bytes.int()?, until_us: bytes.int()? },
        3 => Event::Extend { token: bytes.id()?, more: bytes.int()?, until_us: bytes.int()? },
        4 => Event::Settle { token: bytes.id()?, actual: bytes.int()?, until_us: bytes.int()? },
        5 => Event::Cancel { token: bytes.id()? },
        6 => Event::Expire { token: bytes.id()? },
        7 => Event::Refund { receipt: bytes.id()?, charged: bytes.int()?, amount: bytes.int()? },
        8 => Event::Credit { amount: bytes.int()? },
        9 => Event::Opening { used: bytes.int()? },
        10 => Event::Carry { used: bytes.int()? },
        11 => Event::Void { seq: bytes.int()? },
        12 => Event::Correct(bytes.change()?),
        13 => Event::Grant(bytes.change()?),
        _ => return Err(DecodeError),
    })
}

/// Reads from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(DecodeError)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], DecodeError> {
        self.take(LEN)?.try_into().map_err(|_| DecodeError)
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|[byte]| byte)
    }

    fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError),
        }
    }

    fn int(&mut self) -> Result<i64, DecodeError> {
        self.array().map(i64::from_le_bytes)
    }

    fn id(&mut self) -> Result<Id, DecodeError> {
        self.array().map(Id)
    }

    fn text(&mut self) -> Result<&'a str, DecodeError> {
        let len = u32::from_le_bytes(self.array()?);
        std::str::from_utf8(self.take(len as usize)?).map_err(|_| DecodeError)
    }

    fn change(&mut self) -> Result<Change, DecodeError> {
        let units = self.int()?;
        Ok(Change { units, actor: self.text()?.to_owned(), cause: self.text()?.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> Vec<Event> {
        let token = Id([3; 16]);
        let change = Change { units: -4, actor: "ada".to_owned(), cause: "é".to_owned() };
        vec![
            Event::Use { cost: 1 },
            Event::Local { cost: 2 },
            Event::Reserve { token, cost: 3, until_us: 4 },
            Event::Extend { token, more: 5, until_us: 6 },
            Event::Settle { token, actual: 7, until_us: 8 },
            Event::Cancel { token },
            Event::Expire { token },
            Event::Refund { receipt: token, charged: 9, amount: 10 },
            Event::Credit { amount: 11 },
            Event::Opening { used: 12 },
            Event::Carry { used: -13 },
            Event::Void { seq: 14 },
            Event::Correct(change.clone()),
            Event::Grant(change),
        ]
    }

    #[test]
    fn every_record_is_read_as_it_was_written_and_no_prefix_of_it_is_a_record() {
        let request = Request { id: Id([1; 16]), nonce: Id([2; 16]), content: -9 };
        for (number, event) in events().into_iter().enumerate() {
            let account =
                Account { subject: Subject { rule: "tokens".into(), id: Id([7; 16]) }, period_us: 15 };
            let record = Record {
                account,
                ends_us: 16,
                allowance: 17,
                at_us: i64::MAX,
                rev: i64::MIN,
                detail: if number % 2 == 0 { Detail::Entries } else { Detail::Totals },
                request: (number % 3 == 0).then_some(request),
                name: (number % 4 == 0).then(|| "Acme é".into()),
                event,
            };
            let mut bytes = Vec::new();
            encode(&mut bytes, number as i64, &record);
            assert_eq!(decode(&bytes), Ok((number as i64, record)));
            for len in 0..bytes.len() {
                assert_eq!(decode(&bytes[..len]), Err(DecodeError), "{len}");
            }
            bytes.push(0);
            assert_eq!(decode(&bytes), Err(DecodeError));
        }
    }
}
