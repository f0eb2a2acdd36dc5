//! Plans as the script reads them, and its reply as outcomes: the one place that knows both forms.

use std::io::Write as _;

use smallvec::SmallVec;
use tollgate_core::algorithm::bucket::BucketKind;
use tollgate_core::algorithm::quota::QuotaPeriod;
use tollgate_core::algorithm::sliding_window::Counting;
use tollgate_core::{
    Answer, CorruptState, Decline, EXACT_MAX, Item, Limit, Mark, Operation, Outcome, Plan, Report, Retry,
    Span, StoreError, Time, Token, Verdict,
};

use super::script::{Kinds, kind_of};
use crate::store::redis::error::RedisError;

/// A Plan on its way: everything the script needs to know of it but the places of its keys.
#[derive(Debug)]
pub(crate) struct Encoded {
    /// The keys' texts, one after another.
    text: Vec<u8>,
    /// Where each of them ends, the items' first, then that of the request id.
    ends: SmallVec<[u32; 4]>,
    /// The packed Plan.
    body: Vec<u8>,
    /// Where in it the place of each key goes.
    holes: SmallVec<[u32; 4]>,
    /// Which twins it needs.
    pub(crate) kinds: Kinds,
    /// How many answers it gets.
    pub(crate) items: usize,
    /// How long the script will take over it, where a plain item takes one.
    pub(crate) work: usize,
}

/// What a Plan is to its request id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    /// All there is of it.
    Only,
    /// A part of what is tried under this number.
    Part(u64),
    /// Takes back a part of what was tried under this number, unless another attempt builds on it meanwhile.
    TakeBack(u64),
}

/// The reply to one Plan. Where only one rule matched, which is most often, it takes no memory of its own.
pub(crate) type OwnReply = SmallVec<[u8; 64]>;

/// The most items a Plan may have here: their number is one byte.
pub(crate) const ITEMS_MAX: usize = u8::MAX as usize;

/// Length of one item's answer.
const ANSWER: usize = 2 + 4 * 8;
/// What became of a Plan.
const DECIDED: u8 = 0;
const REPLAYED: u8 = 1;
const OTHER_CONTENT: u8 = 2;
const CORRUPT: u8 = 3;

impl Encoded {
    /// `prefix` goes in front of every key; `now` is the caller's clock, if that is what counts.
    pub(crate) fn new(plan: &Plan<'_>, prefix: &str, now: Time, attempt: Attempt) -> Encoded {
        let mut encoded = Encoded {
            text: Vec::with_capacity(96 * plan.items().len()),
            ends: SmallVec::new(),
            body: Vec::with_capacity(64 + 96 * plan.items().len()),
            holes: SmallVec::new(),
            kinds: Kinds::default(),
            items: plan.items().len(),
            work: 0,
        };
        encoded.plan(plan, prefix, now, attempt);
        encoded
    }

    fn plan(&mut self, plan: &Plan<'_>, prefix: &str, now: Time, attempt: Attempt) {
        // Its length, once that is known, and that it is carried out once.
        self.body.extend_from_slice(&[0, 0, 0, 0, 1, 0]);
        self.number(now.us());
        // Whoever has more was turned away before.
        self.body.push(plan.items().len() as u8);
        let id = plan.items().first().zip(plan.request_id());
        let hole = self.body.len() as u32;
        self.body.extend_from_slice(&[0; 2]);
        if let Some((_, request)) = id {
            self.number(request.horizon.us());
            self.body.extend_from_slice(&request.content.to_le_bytes());
            let attempt = match attempt {
                Attempt::Only => 0.0,
                Attempt::Part(number) => number as f64,
                Attempt::TakeBack(number) => -(number as f64),
            };
            self.body.extend_from_slice(&attempt.to_le_bytes());
        }
        for item in plan.items() {
            self.key(format_args!("{prefix}{}", item.key));
            self.holes.push(self.body.len() as u32);
            self.item(item);
        }
        if let Some((first, request)) = id {
            self.key(format_args!("{prefix}{}", first.key.request_id_key(request.id)));
            self.holes.push(hole);
        }
        let length = self.body.len() as u32;
        self.body[..4].copy_from_slice(&length.to_le_bytes());
    }

    fn key(&mut self, key: std::fmt::Arguments<'_>) {
        // Writing to a vector does not fail.
        _ = self.text.write_fmt(key);
        self.ends.push(self.text.len() as u32);
    }

    fn item(&mut self, item: &Item<'_>) {
        let kind = kind_of(&item.limit);
        self.kinds.insert(kind);
        self.work += work(&item.limit);
        let (op, cost, extra, mark, token) = asked(item);
        let too_dear = item.operation.cost().is_some_and(|cost| cost > item.limit.capacity());
        let flags = u8::from(item.blocking) | u8::from(too_dear) << 1;
        self.body.extend_from_slice(&[0, 0, kind, op, flags]);
        self.number(cost);
        self.number(extra);
        self.body.push(mark);
        match token {
            Token::NONE => self.body.push(0),
            token => {
                self.body.push(16);
                self.body.extend_from_slice(&((token.0 >> 64) as u64).to_le_bytes());
                self.body.extend_from_slice(&(token.0 as u64).to_le_bytes());
            }
        }
        let numbers = numbers(&item.limit);
        self.body.push(numbers.len() as u8 * 8);
        numbers.into_iter().for_each(|number| self.number(number));
    }

    /// As a double: exact, because no number of ours is above 2^53 - 1.
    fn number(&mut self, number: u64) {
        self.body.extend_from_slice(&(number as f64).to_le_bytes());
    }

    /// Its keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.text[start as usize..*end as usize])
    }

    /// Gives its keys their places, which count from 1.
    pub(crate) fn put(&mut self, places: &[u16]) {
        for (hole, place) in self.holes.iter().zip(places) {
            let hole = *hole as usize;
            self.body[hole..hole + 2].copy_from_slice(&place.to_le_bytes());
        }
    }

    /// The packed Plan, to be carried out so often.
    pub(crate) fn write(&self, out: &mut Vec<u8>, times: u16) {
        let start = out.len() + TIMES;
        out.extend_from_slice(&self.body);
        out[start..start + 2].copy_from_slice(&times.to_le_bytes());
    }

    /// Whether it may be carried out as often as another one is, in one go: the same in every byte, with no request id.
    pub(crate) fn is_like(&self, other: &Encoded) -> bool {
        self.holes.len() == self.items && self.body == other.body
    }
}

/// Where in a packed Plan is written how often it is carried out.
const TIMES: usize = 4;

/// How long the script takes over an item, where a plain one takes one.
fn work(limit: &Limit) -> usize {
    match limit {
        // Every lease is looked at.
        Limit::Concurrency(limit) => 1 + usize::try_from(limit.limit() / 16).unwrap_or(usize::MAX / 2),
        // Every reservation is looked at, and nobody knows how many there are.
        Limit::Quota(_) | Limit::SlidingLog(_) => 4,
        Limit::SlidingWindow(limit) => 1 + usize::try_from(limit.buckets() / 64).unwrap_or(usize::MAX / 2),
        Limit::FixedWindow(_) | Limit::Bucket(_) | Limit::Meter(_) | Limit::Penalty(_) => 1,
    }
}

/// Operation, cost, instant or span, mark and token, as the script takes them.
fn asked(item: &Item<'_>) -> (u8, u64, u64, u8, Token) {
    match item.operation {
        Operation::Charge { cost, token } => {
            // Only a lease has an owner.
            let token = if matches!(item.limit, Limit::Concurrency(_)) { token } else { Token::NONE };
            (0, cost, 0, 0, token)
        }
        Operation::Peek { cost } => (1, cost, 0, 0, Token::NONE),
        Operation::Refund { mark, cost } => {
            let (kind, at) = match mark {
                Mark::None => (0, Time::ZERO),
                Mark::Window { start } => (1, start),
                Mark::At { time } => (2, time),
                Mark::Held { until, .. } => (3, until),
                Mark::Counter => (4, Time::ZERO),
            };
            (2, cost, at.us(), kind, Token::NONE)
        }
        Operation::Renew { token } => (3, 0, 0, 0, token),
        Operation::Release { token } => (4, 0, 0, 0, token),
        Operation::Reserve { cost, token, hold } => (5, cost, hold.us(), 0, token),
        Operation::Settle { token, actual } => (6, actual, 0, 0, token),
        Operation::Cancel { token } => (7, 0, 0, 0, token),
        Operation::Report { result: Report::Failure } => (8, 0, 0, 0, Token::NONE),
        Operation::Report { result: Report::Success } => (9, 0, 0, 0, Token::NONE),
        Operation::Reset => (10, 0, 0, 0, Token::NONE),
    }
}

/// A limit's numbers, in the order its twin names them.
fn numbers(limit: &Limit) -> SmallVec<[u64; 8]> {
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

/// Cuts the reply to a Plan of so many items off the front of a batch's reply.
pub(crate) fn cut<'b>(reply: &mut &'b [u8], items: usize) -> Result<&'b [u8], RedisError> {
    let length = match reply.first() {
        Some(&(DECIDED | REPLAYED)) => 9 + items * ANSWER,
        Some(&OTHER_CONTENT) => 9,
        Some(&CORRUPT) => 9 + 2 + 2 * 8,
        _ => return Err(RedisError::Nonsense("the reply to a Plan begins with no known word")),
    };
    let (own, rest) =
        reply.split_at_checked(length).ok_or(RedisError::Nonsense("the reply to a Plan is cut short"))?;
    *reply = rest;
    Ok(own)
}

/// Whether the Plan was decided just now, and not told again.
pub(crate) fn is_fresh(reply: &[u8]) -> bool {
    reply.first() == Some(&DECIDED)
}

/// What the store found for a Plan.
pub(crate) fn decode(plan: &Plan<'_>, reply: &[u8]) -> Result<Outcome, StoreError> {
    let mut reader = Reader { rest: reply };
    let what = reader.byte()?;
    let now = reader.time()?;
    match what {
        OTHER_CONTENT => Err(StoreError::IdReused),
        CORRUPT => Err(corrupt(plan, &mut reader)?),
        _ => {
            let answers =
                plan.items().iter().map(|item| answer(item, &mut reader)).collect::<Result<_, _>>()?;
            Ok(Outcome { now, answers })
        }
    }
}

fn corrupt(plan: &Plan<'_>, reader: &mut Reader<'_>) -> Result<StoreError, RedisError> {
    let (item, why) = (reader.byte()?, reader.byte()?);
    let (first, second) = (reader.double()?, reader.double()?);
    let rule = usize::from(item)
        .checked_sub(1)
        .and_then(|index| plan.items().get(index))
        .map_or_else(String::new, |item| item.key.keyspace().rule().to_owned());
    let source = match why {
        1 => CorruptState::Length { found: second as usize, expected: first as usize },
        2 => CorruptState::Version(second as u8),
        3 => CorruptState::Kind(second as u8),
        _ => CorruptState::Range { word: first as usize, found: second as u64 },
    };
    Ok(StoreError::Corrupt { rule, source })
}

fn answer(item: &Item<'_>, reader: &mut Reader<'_>) -> Result<Answer, RedisError> {
    let (verdict, mark) = (reader.byte()?, reader.byte()?);
    let (number, remaining) = (reader.number()?, reader.number()?);
    let (reset_at, marked_at) = (reader.time()?, reader.time()?);
    let verdict = match verdict {
        0 => Verdict::Admitted { delay: Span::from_us(number) },
        1 => Verdict::Refused(Retry::At(Time::from_us(number))),
        2 => Verdict::Refused(Retry::Never),
        3 => Verdict::Done { amount: number },
        10 => Verdict::Declined(Decline::NotSupported),
        11 => Verdict::Declined(Decline::NotHeld),
        12 => Verdict::Declined(Decline::TooOld),
        13 => Verdict::Declined(Decline::TokenInUse),
        14 => Verdict::Declined(Decline::TooManyReservations),
        15 => Verdict::Declined(Decline::Recompute { at: Time::from_us(number) }),
        16 => Verdict::Declined(Decline::Overflow),
        _ => return Err(RedisError::Nonsense("a verdict is unknown")),
    };
    let mark = match mark {
        0 => Mark::None,
        1 => Mark::Window { start: marked_at },
        2 => Mark::At { time: marked_at },
        3 => Mark::Held { token: asked(item).4, until: marked_at },
        4 => Mark::Counter,
        _ => return Err(RedisError::Nonsense("a mark is unknown")),
    };
    Ok(Answer { verdict, limit: item.limit.reported_limit(), remaining, reset_at, mark })
}

/// Reads packed numbers.
struct Reader<'b> {
    rest: &'b [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], RedisError> {
        let (bytes, rest) =
            self.rest.split_first_chunk().ok_or(RedisError::Nonsense("the reply to a Plan is cut short"))?;
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
        // Cuts off what is no whole number.
        let number = double as u64;
        if number as f64 == double && number <= EXACT_MAX {
            Ok(number)
        } else {
            Err(RedisError::Nonsense("a number is not whole or too large"))
        }
    }

    fn time(&mut self) -> Result<Time, RedisError> {
        self.number().map(Time::from_us)
    }
}
