//! Naive models of the algorithms, one file each, and the differential test that compares them with real machines.
//!
//! A model keeps a list of events, adds it up from scratch, and finds every wait by searching for it. Integers are 128 bits
//! wide with overflow checks, so no product of two 53-bit numbers overflows. Models use only the input and output types of
//! core, and nothing that computes.

pub mod bucket;
pub mod bucket_ring;
pub mod concurrency;
pub mod differential;
pub mod fixed_window;
mod held_units;
pub mod meter;
pub mod penalty;
pub mod quota;
pub mod sliding_log;
pub mod sliding_window;
pub mod suite;

use std::fmt::Debug;

use tollgate_core::plan::answer::AnsweredBy;
use tollgate_core::{Answer, Decline, Mark, Operation, Retry, Span, Time, Verdict, Write};

/// An integer that is wide enough not to overflow.
pub type Big = i128;

/// 2^53 - 1, the largest instant and the largest count.
pub const END: Big = (1 << 53) - 1;

/// The answer and the write that core must produce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Every field of the answer.
    pub answer: Answer,
    /// What must be written.
    pub write: ExpectedWrite,
}

/// The write that core must produce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpectedWrite {
    /// None.
    Nothing,
    /// State that may expire at this instant.
    Until(Time),
    /// State that keeps its expiry.
    Amended,
}

impl ExpectedWrite {
    /// Returns what this write is.
    pub const fn of<C>(write: Option<&Write<C>>) -> ExpectedWrite {
        match write {
            None => ExpectedWrite::Nothing,
            Some(Write { dies_at: Some(dies_at), .. }) => ExpectedWrite::Until(*dies_at),
            Some(Write { dies_at: None, .. }) => ExpectedWrite::Amended,
        }
    }
}

/// A naive model of one algorithm on one key.
pub trait Oracle: Default {
    /// The limit's raw numbers.
    type Numbers: Copy + Debug;

    /// Applies the operation and returns what core must produce.
    fn step(&mut self, numbers: &Self::Numbers, now: Time, operation: &Operation) -> Expected;

    /// Loses the account's state, as a reset or an eviction does. Records of leases and reservations stay.
    fn lose(&mut self) {
        *self = Self::default();
    }
}

/// The numbers that every answer carries, as big integers.
#[derive(Clone, Copy)]
struct Status {
    limit: Big,
    remaining: Big,
    reset_at: Big,
}

impl Status {
    fn answer(self, verdict: Verdict, mark: Mark) -> Answer {
        Answer {
            verdict,
            limit: small(self.limit),
            remaining: small(self.remaining.max(0)),
            reset_at: time(self.reset_at),
            mark,
            by: AnsweredBy::Store,
        }
    }

    fn unchanged(self, verdict: Verdict) -> Expected {
        Expected { answer: self.answer(verdict, Mark::None), write: ExpectedWrite::Nothing }
    }

    fn declined(self, why: Decline) -> Expected {
        self.unchanged(Verdict::Declined(why))
    }

    fn refused(self, retry_at: Big) -> Expected {
        self.unchanged(Verdict::Refused(Retry::At(time(retry_at))))
    }

    fn written(self, verdict: Verdict, mark: Mark, dies_at: Big) -> Expected {
        Expected { answer: self.answer(verdict, mark), write: ExpectedWrite::Until(time(dies_at)) }
    }

    /// A record of `amount` units. Without units, nothing is written.
    fn recorded(self, booked: Booked, mark: Mark, dies_at: Big) -> Expected {
        let verdict = Verdict::Recorded {
            amount: small(booked.amount),
            overdraft: small(booked.overdraft.clamp(0, END)),
            free_at: time(booked.free_at),
        };
        if booked.amount == 0 { self.unchanged(verdict) } else { self.written(verdict, mark, dies_at) }
    }

    fn amended(self, given: Big) -> Expected {
        Expected { answer: self.answer(done(given), Mark::None), write: ExpectedWrite::Amended }
    }
}

/// What a record booked.
struct Booked {
    amount: Big,
    /// Units above the limit, or a negative number.
    overdraft: Big,
    free_at: Big,
}

impl Expected {
    /// Drops the write and the mark, and keeps the answer.
    fn without_write(mut self) -> Expected {
        self.answer.mark = Mark::None;
        self.write = ExpectedWrite::Nothing;
        self
    }
}

const AT_ONCE: Verdict = Verdict::Admitted { delay: Span::ZERO };

fn done(amount: Big) -> Verdict {
    Verdict::Done { amount: small(amount) }
}

fn small(number: Big) -> u64 {
    u64::try_from(number).expect("the oracle's numbers are small and positive")
}

fn time(instant: Big) -> Time {
    Time::from_us(small(instant.min(END)))
}

fn big(instant: Time) -> Big {
    Big::from(instant.us())
}

fn floor(instant: Big, length: Big) -> Big {
    instant - instant % length
}

fn ceil_div(a: Big, b: Big) -> Big {
    (a + b - 1) / b
}

/// Returns the first instant from `from` on at which `holds` is true. Once true, `holds` must stay true.
fn first(from: Big, holds: impl Fn(Big) -> bool) -> Big {
    let (mut no, mut yes) = (from - 1, END);
    while yes - no > 1 {
        let middle = (no + yes) / 2;
        if holds(middle) {
            yes = middle;
        } else {
            no = middle;
        }
    }
    yes
}
