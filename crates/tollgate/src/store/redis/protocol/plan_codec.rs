//! Encodes Plans for the script and decodes its replies into Outcomes.
//!
//! `lua/driver.lua` documents both formats. This is the only Rust module that knows them.

use std::io::Write as _;

use smallvec::SmallVec;
use tollgate_core::algorithm::bucket::BucketKind;
use tollgate_core::algorithm::quota::QuotaPeriod;
use tollgate_core::algorithm::sliding_window::Counting;
use tollgate_core::plan::answer::AnsweredBy;
use tollgate_core::stamped::Revision;
use tollgate_core::{
    Answer, CorruptState, Decline, EXACT_MAX, Item, Limit, Mark, Operation, Outcome, Plan, Report, Retry,
    Span, StoreError, Subject, Time, Token, Verdict,
};

use super::script::{KindSet, STAMPED, kind_of};
use crate::store::redis::error::RedisError;

/// A Plan in the format of the script, complete but for the numbers of its keys in the call.
#[derive(Debug)]
pub(crate) struct EncodedPlan {
    /// All keys, concatenated.
    key_text: Vec<u8>,
    /// The end of each key in `key_text`: those of each item, its record and its reset, then that of the request id, then
    /// that of the reset that a return looks for.
    key_ends: SmallVec<[u32; 4]>,
    /// The packed Plan.
    body: Vec<u8>,
    /// The offset in `body` of each key's number.
    key_number_offsets: SmallVec<[u32; 4]>,
    /// The offset in `body` of the number of the node, for each recorded item.
    node_offsets: SmallVec<[u32; 4]>,
    /// Whether it has a request id.
    has_request_id: bool,
    /// The twins that it needs.
    pub(crate) kinds: KindSet,
    /// Length of all its answers in bytes.
    pub(crate) answers_length: usize,
    /// Whether it follows up an admission. Such Plans travel apart from charges and succeed while Redis is full.
    pub(crate) is_follow_up: bool,
    /// A key that never exists, if all that this follow-up writes keeps its TTL. A full Redis takes such a write only after
    /// another one, which this key receives.
    pub(crate) spare_key: Option<String>,
    /// Estimated work of the script, where an ordinary item counts as 1.
    pub(crate) work: usize,
}

/// The number of an attempt to apply a Plan over several hash slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    /// The Plan is applied by one call, or has no request id.
    Unnumbered,
    /// Charges the keys of one hash slot.
    Charge(u64),
    /// Refunds what this attempt charged in one hash slot, unless another attempt has built on it since.
    Refund(u64),
}

/// The reply to one Plan. With one item, which is the usual case, it needs no allocation.
pub(crate) type PlanReply = SmallVec<[u8; 64]>;

/// Most items in a Plan: the format has one byte for their number.
pub(crate) const ITEMS_MAX: usize = u8::MAX as usize;

/// Length of one item's answer. That of a record has one number more.
const ANSWER_LENGTH: usize = 2 + 4 * 8;
const RECORD_ANSWER_LENGTH: usize = ANSWER_LENGTH + 8;
/// Length of the revision of a recorded account.
const REVISION_LENGTH: usize = 4 * 8;
// The first byte of a reply: how the Plan ended.
const DECIDED: u8 = 0;
const REPLAYED: u8 = 1;
const OTHER_CONTENT: u8 = 2;
const CORRUPT: u8 = 3;

impl EncodedPlan {
    /// `prefix` is put in front of every key. `now` is the caller's time, which the script ignores if the clock of Redis
    /// decides.
    pub(crate) fn new(plan: &Plan<'_>, prefix: &str, now: Time, attempt: Attempt) -> EncodedPlan {
        let mut encoded = EncodedPlan {
            key_text: Vec::with_capacity(96 * plan.items().len()),
            key_ends: SmallVec::new(),
            body: Vec::with_capacity(64 + 96 * plan.items().len()),
            key_number_offsets: SmallVec::new(),
            node_offsets: SmallVec::new(),
            has_request_id: plan.request_id().is_some(),
            kinds: KindSet::default(),
            answers_length: answers_length(plan),
            is_follow_up: plan.items().first().is_some_and(|item| !item.asks_for_admission()),
            spare_key: spare_key(plan, prefix),
            work: 0,
        };
        encoded.encode(plan, prefix, now, attempt);
        encoded
    }

    fn encode(&mut self, plan: &Plan<'_>, prefix: &str, now: Time, attempt: Attempt) {
        // The length, which is filled in below, and a repeat count of 1.
        self.body.extend_from_slice(&[0, 0, 0, 0, 1, 0]);
        self.push_number(now.us());
        // The store refuses a Plan with more than 255 items.
        self.body.push(plan.items().len() as u8);
        let id = plan.items().first().zip(plan.request_id());
        let (id_offset, mut reset_offset) = (self.body.len() as u32, 0);
        self.body.extend_from_slice(&[0; 2]);
        if let Some((_, request)) = id {
            self.push_number(request.horizon.us());
            self.body.extend_from_slice(&request.content.to_le_bytes());
            let attempt = match attempt {
                Attempt::Unnumbered => 0.0,
                Attempt::Charge(number) => number as f64,
                Attempt::Refund(number) => -(number as f64),
            };
            self.body.extend_from_slice(&attempt.to_le_bytes());
            let charged_at = request.charged_at.map_or(-1.0, |charged_at| charged_at.us() as f64);
            self.body.extend_from_slice(&charged_at.to_le_bytes());
            reset_offset = self.body.len() as u32;
            self.body.extend_from_slice(&[0; 2]);
            self.body.extend_from_slice(&(self.answers_length as u16).to_le_bytes());
        }
        for item in plan.items() {
            self.push_key(format_args!("{prefix}{}", item.key));
            self.key_number_offsets.push(self.body.len() as u32);
            if let Some(key) = item.hold_key() {
                self.push_key(format_args!("{prefix}{key}"));
                self.key_number_offsets.push(self.body.len() as u32 + 2);
            }
            self.push_item(item, prefix);
        }
        if let Some((first, request)) = id {
            self.push_key(format_args!("{prefix}{}", first.key.request_id_key(request.id)));
            self.key_number_offsets.push(id_offset);
            if request.charged_at.is_some() {
                self.push_key(format_args!("{prefix}{}", first.key.reset_key()));
                self.key_number_offsets.push(reset_offset);
            }
        }
        let length = self.body.len() as u32;
        self.body[..4].copy_from_slice(&length.to_le_bytes());
    }

    fn push_key(&mut self, key: std::fmt::Arguments<'_>) {
        // Writing to a vector does not fail.
        _ = self.key_text.write_fmt(key);
        self.key_ends.push(self.key_text.len() as u32);
    }

    fn push_item(&mut self, item: &Item<'_>, prefix: &str) {
        let own_kind = kind_of(&item.limit);
        self.kinds.insert(own_kind);
        let kind = if is_stamped(item) { STAMPED } else { own_kind };
        self.kinds.insert(kind);
        self.work += estimated_work(&item.limit);
        let (op, cost, extra, mark, token) = operation_fields(item);
        let exceeds_capacity = item.operation.cost().is_some_and(|cost| cost > item.limit.capacity());
        let flags =
            u8::from(item.blocking) | u8::from(exceeds_capacity) << 1 | u8::from(item.is_anonymous) << 2;
        self.body.extend_from_slice(&[0, 0, 0, 0, kind, op, flags]);
        self.push_number(cost);
        self.push_number(extra);
        self.body.push(mark);
        match (item.operation, token) {
            (Operation::Refund { cost, .. }, _) => {
                self.body.push(8);
                self.push_number(cost);
            }
            (Operation::Reset { receipt_life }, _) if receipt_life > Span::ZERO => {
                self.push_key(format_args!("{prefix}{}", item.key.reset_key()));
                self.body.push(2);
                self.key_number_offsets.push(self.body.len() as u32);
                self.body.extend_from_slice(&[0; 2]);
            }
            (Operation::Restore(restore), _) => {
                self.body.push(56);
                let first = [restore.start.us(), restore.end.us(), restore.held];
                first.into_iter().for_each(|number| self.push_number(number));
                self.push_signed(restore.extra);
                let last = [restore.extra_no, u64::from(restore.epoch), u64::from(restore.known)];
                last.into_iter().for_each(|number| self.push_number(number));
            }
            (Operation::Extra(extra), _) => {
                self.body.push(16);
                self.push_signed(extra.extra);
                self.push_number(extra.start.us());
            }
            (Operation::Adjust(adjust), _) => {
                self.body.push(32);
                let subtracts = u64::from(adjust.subtract >= 0);
                let numbers = [subtracts, adjust.epoch.into(), adjust.adjusted.into(), adjust.start.us()];
                numbers.into_iter().for_each(|number| self.push_number(number));
            }
            (_, Token::NONE) => self.body.push(0),
            (_, token) => {
                self.body.push(16);
                self.body.extend_from_slice(&((token.0 >> 64) as u64).to_le_bytes());
                self.body.extend_from_slice(&(token.0 as u64).to_le_bytes());
            }
        }
        let numbers = limit_numbers(&item.limit);
        if is_stamped(item) {
            self.body.push((2 + numbers.len()) as u8 * 8);
            // The number of the node, which the connection fills in.
            self.node_offsets.push(self.body.len() as u32);
            self.push_number(0);
            self.push_number(own_kind.into());
        } else {
            self.body.push(numbers.len() as u8 * 8);
        }
        numbers.into_iter().for_each(|number| self.push_number(number));
    }

    /// Writes a double. It is exact, because all numbers are at most 2^53 - 1.
    fn push_number(&mut self, number: u64) {
        self.body.extend_from_slice(&(number as f64).to_le_bytes());
    }

    fn push_signed(&mut self, number: i64) {
        self.body.extend_from_slice(&(number as f64).to_le_bytes());
    }

    /// Sets the number of the node that the Plan is sent to.
    pub(crate) fn set_node(&mut self, node: u64) {
        for offset in &self.node_offsets {
            let offset = *offset as usize;
            self.body[offset..offset + 8].copy_from_slice(&(node as f64).to_le_bytes());
        }
    }

    /// The keys, in the order of `key_ends`.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.key_ends.iter().copied());
        starts.zip(&self.key_ends).map(|(start, end)| &self.key_text[start as usize..*end as usize])
    }

    /// Sets the numbers of its keys in the call. They start at 1.
    pub(crate) fn set_key_numbers(&mut self, numbers: &[u16]) {
        for (offset, number) in self.key_number_offsets.iter().zip(numbers) {
            let offset = *offset as usize;
            self.body[offset..offset + 2].copy_from_slice(&number.to_le_bytes());
        }
    }

    /// Writes the packed Plan, which the script is to apply `times` times.
    pub(crate) fn write(&self, out: &mut Vec<u8>, times: u16) {
        let start = out.len() + TIMES_OFFSET;
        out.extend_from_slice(&self.body);
        out[start..start + 2].copy_from_slice(&times.to_le_bytes());
    }

    /// Whether this Plan can be sent as a repetition of another: both are equal in every byte and have no request id.
    pub(crate) fn can_join(&self, other: &EncodedPlan) -> bool {
        !self.has_request_id && self.body == other.body
    }
}

fn spare_key(plan: &Plan<'_>, prefix: &str) -> Option<String> {
    let keeps_ttl =
        |item: &Item<'_>| matches!(item.operation, Operation::Refund { .. } | Operation::Credit { .. });
    let first = plan.items().first()?;
    // Ids are hashes. The one of zeros belongs to no request.
    let unused_id = Subject::from_u128(0);
    (plan.request_id().is_none() && plan.items().iter().any(keeps_ttl))
        .then(|| format!("{prefix}{}", first.key.request_id_key(unused_id)))
}

/// Offset of the repeat count in a packed Plan.
const TIMES_OFFSET: usize = 4;

/// Estimates the script's work for one item, where an ordinary one counts as 1.
fn estimated_work(limit: &Limit) -> usize {
    match limit {
        // The script reads and writes the record of a lease, and up to 64 pairs.
        Limit::Concurrency(_) => 2,
        Limit::Quota(_) | Limit::SlidingLog(_) => 4,
        Limit::SlidingWindow(limit) => 1 + usize::try_from(limit.buckets() / 64).unwrap_or(usize::MAX / 2),
        Limit::FixedWindow(_) | Limit::Bucket(_) | Limit::Meter(_) | Limit::Penalty(_) => 1,
    }
}

/// Operation, cost, extra (a time or a duration), mark kind and token, as the script reads them.
fn operation_fields(item: &Item<'_>) -> (u8, u64, u64, u8, Token) {
    match item.operation {
        Operation::Charge { cost, token } => {
            // Only leases are stored with their token.
            let token = if matches!(item.limit, Limit::Concurrency(_)) { token } else { Token::NONE };
            (0, cost, 0, 0, token)
        }
        Operation::Peek { cost } => (1, cost, 0, 0, Token::NONE),
        Operation::Refund { mark, cost, amount } => {
            let (kind, at) = match mark {
                Mark::None => (0, Time::ZERO),
                Mark::Window { start } => (1, start),
                Mark::At { time } => (2, time),
                Mark::Held { until, .. } => (3, until),
                Mark::Counter => (4, Time::ZERO),
            };
            (2, amount.min(cost), at.us(), kind, Token::NONE)
        }
        Operation::Renew { token } => (3, 0, 0, 0, token),
        Operation::Release { token } => (4, 0, 0, 0, token),
        Operation::Reserve { cost, token, hold } => (5, cost, hold.us(), 0, token),
        Operation::Settle { token, actual } => (6, actual, 0, 0, token),
        Operation::Cancel { token } => (7, 0, 0, 0, token),
        Operation::Report { result: Report::Failure } => (8, 0, 0, 0, Token::NONE),
        Operation::Report { result: Report::Success } => (9, 0, 0, 0, Token::NONE),
        Operation::Reset { receipt_life } => (10, 0, receipt_life.us(), 0, Token::NONE),
        Operation::Record { cost } => (11, cost, 0, 0, Token::NONE),
        Operation::RecordIn { cost, start } => (11, cost, start.us(), 1, Token::NONE),
        Operation::Credit { cost } => (12, cost, 0, 0, Token::NONE),
        Operation::Extend { token, more, hold } => (13, more, hold.us(), 0, token),
        // The script declines it: a standby in this process is the only user.
        Operation::LeaveAtMost { remaining } => (14, remaining, 0, 0, Token::NONE),
        Operation::Usage => (15, 0, 0, 0, Token::NONE),
        Operation::Restore(restore) => (16, restore.used, restore.held_until.us(), 0, Token::NONE),
        Operation::Extra(extra) => (17, extra.number, 0, 0, Token::NONE),
        Operation::Adjust(adjust) => (18, adjust.subtract.unsigned_abs(), 0, 0, Token::NONE),
    }
}

/// A limit's numbers, in the order in which its twin unpacks them.
fn limit_numbers(limit: &Limit) -> SmallVec<[u64; 8]> {
    match limit {
        Limit::FixedWindow(limit) => SmallVec::from_slice(&[limit.limit(), limit.window().us()]),
        Limit::SlidingWindow(limit) => SmallVec::from_slice(&[
            limit.limit(),
            limit.window().us() / limit.buckets(),
            limit.buckets(),
            u64::from(limit.counting() == Counting::Strict),
            limit.tick().us(),
        ]),
        Limit::SlidingLog(limit) => {
            SmallVec::from_slice(&[limit.limit(), limit.window().us(), limit.entries()])
        }
        Limit::Bucket(limit) => {
            let (drain, scale) = limit.rate();
            let shape = match limit.kind() {
                BucketKind::Tokens => 0,
                BucketKind::Meter => 1,
                BucketKind::Queue => 2,
            };
            SmallVec::from_slice(&[limit.capacity(), scale, drain, limit.tick().us(), shape])
        }
        Limit::Concurrency(limit) => SmallVec::from_slice(&[limit.limit(), limit.lease().us()]),
        Limit::Quota(limit) => {
            let (length, starts) = match limit.period() {
                QuotaPeriod::Rolling(length) => (length.us(), [Time::ZERO; 4]),
                QuotaPeriod::Calendar(periods) => (0, periods.starts()),
            };
            let mut numbers = SmallVec::from_slice(&[limit.allowance(), limit.grace(), length]);
            numbers.extend(starts.map(Time::us));
            numbers
        }
        Limit::Meter(limit) => SmallVec::from_slice(&[limit.limit(), limit.expiry().us()]),
        Limit::Penalty(limit) => {
            let numbers = limit.numbers();
            SmallVec::from_slice(&[
                numbers.free,
                numbers.base.us(),
                numbers.factor,
                numbers.longest.us(),
                numbers.memory.us(),
                u64::from(numbers.count_refused),
            ])
        }
    }
}

fn answer_length(item: &Item<'_>) -> usize {
    match item.operation {
        Operation::Record { .. } | Operation::RecordIn { .. } => RECORD_ANSWER_LENGTH,
        _ => ANSWER_LENGTH,
    }
}

/// Only quotas and meters can be recorded.
fn is_stamped(item: &Item<'_>) -> bool {
    item.is_stamped() && matches!(item.limit, Limit::Quota(_) | Limit::Meter(_))
}

/// Length of all answers to a Plan in bytes, and of the revisions after them.
fn answers_length(plan: &Plan<'_>) -> usize {
    let revisions = if has_revisions(plan) { plan.items().len() * REVISION_LENGTH } else { 0 };
    plan.items().iter().map(answer_length).sum::<usize>() + revisions
}

fn has_revisions(plan: &Plan<'_>) -> bool {
    plan.items().iter().any(is_stamped)
}

/// Splits the reply to a Plan with answers of this length off the front of a batch's reply.
pub(crate) fn split_off_reply<'b>(
    reply: &mut &'b [u8],
    answers_length: usize,
) -> Result<&'b [u8], RedisError> {
    let length = match reply.first() {
        Some(&(DECIDED | REPLAYED)) => 9 + answers_length,
        Some(&OTHER_CONTENT) => 9,
        Some(&CORRUPT) => 9 + 2 + 2 * 8,
        _ => return Err(RedisError::UnexpectedReply("unknown first byte in the reply to a Plan")),
    };
    let (own, rest) = reply.split_at_checked(length).ok_or(TRUNCATED)?;
    *reply = rest;
    Ok(own)
}

const NOT_EXACT: RedisError = RedisError::UnexpectedReply("a number is not whole or too large");
const TRUNCATED: RedisError = RedisError::UnexpectedReply("the reply to a Plan is truncated");

/// Decodes the reply to a Plan.
pub(crate) fn decode(plan: &Plan<'_>, reply: &[u8]) -> Result<Outcome, StoreError> {
    let mut reader = Reader { rest: reply };
    let status = reader.byte()?;
    let now = reader.time()?;
    match status {
        OTHER_CONTENT => Err(StoreError::IdReused),
        CORRUPT => Err(decode_corrupt(plan, &mut reader)?),
        _ => {
            let revisions = decode_revisions(plan, &mut reader)?;
            let extra = |index: usize| revisions.get(index).map_or(0, |revision: &Revision| revision.extra);
            let items = plan.items().iter().enumerate();
            let answers = items
                .map(|(index, item)| decode_answer(item, extra(index), &mut reader))
                .collect::<Result<_, _>>()?;
            Ok(Outcome { now, answers, replayed: status == REPLAYED, revisions })
        }
    }
}

fn decode_corrupt(plan: &Plan<'_>, reader: &mut Reader<'_>) -> Result<StoreError, RedisError> {
    let (item, fault) = (reader.byte()?, reader.byte()?);
    let (first, second) = (reader.double()?, reader.double()?);
    let rule = usize::from(item)
        .checked_sub(1)
        .and_then(|index| plan.items().get(index))
        .map_or_else(String::new, |item| item.key.keyspace().rule().to_owned());
    let source = match fault {
        1 => CorruptState::Length { found: second as usize, expected: first as usize },
        2 => CorruptState::Version(second as u8),
        3 => CorruptState::Kind(second as u8),
        _ => CorruptState::Range { word: first as usize, found: second as u64 },
    };
    Ok(StoreError::Corrupt { rule, source })
}

/// Reads the revisions, which follow the answers.
fn decode_revisions(plan: &Plan<'_>, reader: &mut Reader<'_>) -> Result<Vec<Revision>, RedisError> {
    if !has_revisions(plan) {
        return Ok(Vec::new());
    }
    let length = plan.items().len() * REVISION_LENGTH;
    let at = reader.rest.len().checked_sub(length).ok_or(TRUNCATED)?;
    let (answers, revisions) = reader.rest.split_at(at);
    reader.rest = answers;
    let mut reader = Reader { rest: revisions };
    let short = |number: u64| u32::try_from(number).map_err(|_| NOT_EXACT);
    let read = |_: &Item<'_>| -> Result<Revision, RedisError> {
        Ok(Revision {
            epoch: short(reader.number()?)?,
            revision: short(reader.number()?)?,
            adjusted: short(reader.number()?)?,
            extra: reader.signed()?,
        })
    };
    plan.items().iter().map(read).collect()
}

/// `extra` is what corrections and grants add to the limit.
fn decode_answer(item: &Item<'_>, extra: i64, reader: &mut Reader<'_>) -> Result<Answer, RedisError> {
    let limit = match extra {
        0 => item.limit.reported_limit(),
        extra => item.limit.with_extra(extra).reported_limit(),
    };
    let (verdict, mark) = (reader.byte()?, reader.byte()?);
    let (number, left) = (reader.number()?, reader.signed()?);
    let (reset_at, marked_at) = (reader.time()?, reader.time()?);
    let (remaining, overdraft) = (left.max(0) as u64, left.min(0).unsigned_abs());
    let free_at = if answer_length(item) > ANSWER_LENGTH { reader.time()? } else { Time::ZERO };
    let verdict = match verdict {
        0 => Verdict::Admitted { delay: Span::from_us(number) },
        1 => Verdict::Refused(Retry::At(Time::from_us(number))),
        2 => Verdict::Refused(Retry::Never),
        3 => Verdict::Done { amount: number },
        4 => Verdict::BookedLate { amount: number },
        5 => Verdict::Recorded { amount: number, overdraft, free_at },
        6 => {
            let taken = i128::from(limit) - i128::from(left);
            let used = u64::try_from(taken - i128::from(number)).map_err(|_| NOT_EXACT)?;
            Verdict::Usage { used, held: number }
        }
        10 => Verdict::Declined(Decline::NotSupported),
        11 => Verdict::Declined(Decline::NotHeld),
        12 => Verdict::Declined(Decline::TooOld),
        13 => Verdict::Declined(Decline::TokenInUse),
        14 => Verdict::Declined(Decline::TooManyReservations),
        15 => Verdict::Declined(Decline::Recompute { at: Time::from_us(number) }),
        16 => Verdict::Declined(Decline::Overflow),
        17 => Verdict::Declined(Decline::ReceiptExpired),
        18 => Verdict::Declined(Decline::ResetSince),
        19 => Verdict::Declined(Decline::WindowChanged),
        20 => Verdict::Declined(Decline::Unverified),
        _ => return Err(RedisError::UnexpectedReply("unknown verdict")),
    };
    let mark = match mark {
        0 => Mark::None,
        1 => Mark::Window { start: marked_at },
        2 => Mark::At { time: marked_at },
        3 => Mark::Held { token: operation_fields(item).4, until: marked_at },
        4 => Mark::Counter,
        _ => return Err(RedisError::UnexpectedReply("unknown mark")),
    };
    Ok(Answer { verdict, limit, remaining, reset_at, mark, by: AnsweredBy::Store })
}

/// Reads packed numbers.
struct Reader<'b> {
    rest: &'b [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], RedisError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn byte(&mut self) -> Result<u8, RedisError> {
        self.take().map(|[byte]| byte)
    }

    fn double(&mut self) -> Result<f64, RedisError> {
        self.take().map(f64::from_le_bytes)
    }

    fn number(&mut self) -> Result<u64, RedisError> {
        let double = self.double()?;
        // Truncates and saturates, so only whole numbers in range compare equal.
        let number = double as u64;
        if number as f64 == double && number <= EXACT_MAX { Ok(number) } else { Err(NOT_EXACT) }
    }

    fn signed(&mut self) -> Result<i64, RedisError> {
        let double = self.double()?;
        let number = double as i64;
        if number as f64 == double && number.unsigned_abs() <= EXACT_MAX {
            Ok(number)
        } else {
            Err(NOT_EXACT)
        }
    }

    fn time(&mut self) -> Result<Time, RedisError> {
        self.number().map(Time::from_us)
    }
}
