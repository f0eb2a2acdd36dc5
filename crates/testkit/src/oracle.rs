//! Naive models of the algorithms, one file each.
//!
//! They keep lists of what happened and add it up from scratch, and they find every wait by searching for it.
//! Integers are 128 bits wide with overflow checked: no product of two numbers of ours comes near the end.
//! From core they take what goes in and the shape of what comes out, nothing that computes.

pub mod bucket;
pub mod concurrency;
pub mod fixed_window;
pub mod meter;
pub mod penalty;
pub mod quota;
pub mod sliding_log;
pub mod sliding_window;

use std::fmt::Debug;

use tollgate_core::{Answer, Decline, Mark, Operation, Retry, Span, Time, Verdict};

/// An integer that does not overflow.
pub type Big = i128;

/// 2^53 - 1, where instants and counters end.
pub const END: Big = (1 << 53) - 1;

/// What core must say and do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Every field of the answer.
    pub answer: Answer,
    /// When what was written may be forgotten; `None` if nothing may be written.
    pub dies_at: Option<Time>,
}

/// A naive model of one algorithm on one key.
pub trait Oracle: Default {
    /// The limit's raw numbers.
    type Numbers: Copy + Debug;

    /// What the operation must answer, and remembers it.
    fn step(&mut self, numbers: &Self::Numbers, now: Time, operation: &Operation) -> Expected;
}

/// The numbers every answer carries, as big integers.
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
        }
    }

    fn kept(self, verdict: Verdict) -> Expected {
        Expected { answer: self.answer(verdict, Mark::None), dies_at: None }
    }

    fn declined(self, why: Decline) -> Expected {
        self.kept(Verdict::Declined(why))
    }

    fn refused(self, retry_at: Big) -> Expected {
        self.kept(Verdict::Refused(Retry::At(time(retry_at))))
    }

    fn written(self, verdict: Verdict, mark: Mark, dies_at: Big) -> Expected {
        Expected { answer: self.answer(verdict, mark), dies_at: Some(time(dies_at)) }
    }
}

impl Expected {
    /// The same answer with nothing written.
    fn without_write(mut self) -> Expected {
        self.answer.mark = Mark::None;
        self.dies_at = None;
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

/// The first instant from `from` on at which `holds`, which once true stays true.
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
