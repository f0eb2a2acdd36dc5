//! Puts the requests of one log into the order of their start.
//!
//! Logs with whole seconds: the requests of a second are spread over it, in file order. Logs that a server writes at the end
//! of a request: the start is the end minus the duration, so requests are sorted within a bounded window.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tollgate::core::{Span, Time};

use super::records::{Batch, Facts};

const SECOND: Span = Span::from_secs(1);
/// Requests of one second that are held back until the second ends.
const SECOND_RECORDS_MAX: usize = 1 << 20;
/// How long requests are held back to be sorted by their start, and how many.
const SORT_WINDOW: Span = Span::from_secs(60);
const SORT_RECORDS_MAX: usize = 1 << 19;
/// Requests of a sorted batch.
const BATCH_RECORDS: usize = 1 << 13;

/// Spreads the requests of a second over the second.
#[derive(Default)]
pub(in crate::simulate) struct Spread {
    held: VecDeque<Batch>,
    /// The second that may continue, and where its first request is: a held batch and a record of it.
    second: Option<(Time, usize, usize)>,
    count: usize,
}

impl Spread {
    /// Takes the next batch of a log and passes on those whose times are final.
    pub(in crate::simulate) fn push(&mut self, batch: Batch, mut emit: impl FnMut(Batch)) {
        self.held.push_back(batch);
        let newest = self.held.len() - 1;
        for index in 0..self.held[newest].len() {
            let Facts { at, whole_second, .. } = self.held[newest].record(index).facts();
            match self.second {
                Some((second, ..)) if whole_second && second == at && self.count < SECOND_RECORDS_MAX => {
                    self.count += 1;
                }
                _ => {
                    self.end_second();
                    if whole_second {
                        (self.second, self.count) = (Some((at, newest, index)), 1);
                    }
                }
            }
        }
        let held_from = self.second.map_or(self.held.len(), |(_, batch, _)| batch);
        for batch in self.held.drain(..held_from) {
            emit(batch);
        }
        if let Some((_, batch, _)) = &mut self.second {
            *batch -= held_from;
        }
    }

    /// Passes on the rest.
    pub(in crate::simulate) fn end(mut self, emit: impl FnMut(Batch)) {
        self.end_second();
        self.held.into_iter().for_each(emit);
    }

    fn end_second(&mut self) {
        let Some((second, mut batch, mut index)) = self.second.take() else { return };
        let count = self.count as u64;
        for number in 0..count {
            while index == self.held[batch].len() {
                (batch, index) = (batch + 1, 0);
            }
            let offset = Span::from_us(number * SECOND.us() / count);
            self.held[batch].set_time(index, second.plus(offset));
            index += 1;
        }
    }
}

/// Sorts requests by their start, within a window.
#[derive(Default)]
pub(in crate::simulate) struct Sorter {
    waiting: BinaryHeap<Reverse<(Time, u64, usize)>>,
    /// One batch per waiting request would be slow; the requests of a batch are copied when they leave.
    batches: VecDeque<(Batch, usize)>,
    first_batch: usize,
    number: u64,
    newest: Time,
    out: Batch,
}

impl Sorter {
    /// Takes a batch. `ends` says that its times are those of the ends of requests.
    pub(in crate::simulate) fn push(&mut self, batch: Batch, ends: bool, mut emit: impl FnMut(Batch)) {
        let batch_number = self.first_batch + self.batches.len();
        for index in 0..batch.len() {
            let Facts { at, duration_us, .. } = batch.record(index).facts();
            let start = match duration_us {
                Some(duration) if ends => Time::from_us(at.us().saturating_sub(duration)),
                _ => at,
            };
            self.newest = self.newest.max(at);
            // Position within the batch and number of the batch in one number: also the file order.
            self.waiting.push(Reverse((start, self.number, batch_number << 32 | index)));
            self.number += 1;
        }
        if !batch.is_empty() {
            let waiting = batch.len();
            self.batches.push_back((batch, waiting));
        }
        let safe = self.newest.minus(SORT_WINDOW);
        while self.waiting.len() > SORT_RECORDS_MAX || self.waiting.peek().is_some_and(|next| next.0.0 < safe)
        {
            self.pop(&mut emit);
        }
    }

    /// Passes on the rest.
    pub(in crate::simulate) fn end(mut self, mut emit: impl FnMut(Batch)) {
        while !self.waiting.is_empty() {
            self.pop(&mut emit);
        }
        if !self.out.is_empty() {
            emit(self.out);
        }
    }

    fn pop(&mut self, emit: &mut impl FnMut(Batch)) {
        let Some(Reverse((start, _, location))) = self.waiting.pop() else { return };
        let (batch, index) = ((location >> 32) - self.first_batch, location & 0xFFFF_FFFF);
        if let Some((records, waiting)) = self.batches.get_mut(batch) {
            self.out.copy(records.record(index), start);
            *waiting -= 1;
        }
        while self.batches.front().is_some_and(|(_, waiting)| *waiting == 0) {
            self.batches.pop_front();
            self.first_batch += 1;
        }
        if self.out.len() == BATCH_RECORDS {
            emit(std::mem::take(&mut self.out));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(times: &[(u64, u64)]) -> Batch {
        let mut batch = Batch::default();
        for &(at_us, duration_us) in times {
            batch.push_value(0, &at_us.to_string());
            batch.finish(Facts {
                at: Time::from_us(at_us),
                whole_second: at_us.is_multiple_of(1_000_000),
                duration_us: (duration_us > 0).then_some(duration_us),
                cost: None,
            });
        }
        batch
    }

    fn times(batches: &[Batch]) -> Vec<u64> {
        batches.iter().flat_map(|batch| (0..batch.len()).map(|at| batch.record(at).at().us())).collect()
    }

    #[test]
    fn the_requests_of_a_second_are_spread_over_it_across_batches() {
        let (mut spread, mut out) = (Spread::default(), Vec::new());
        for part in
            [&[(5_000_000, 0), (5_000_000, 0)][..], &[(5_000_000, 0)], &[(5_000_000, 0), (7_000_000, 0)]]
        {
            spread.push(batch(part), |batch| out.push(batch));
        }
        assert_eq!(times(&out), [5_000_000, 5_250_000, 5_500_000], "the last batch may continue");
        spread.end(|batch| out.push(batch));
        assert_eq!(times(&out), [5_000_000, 5_250_000, 5_500_000, 5_750_000, 7_000_000]);
    }

    #[test]
    fn a_step_back_starts_a_new_second_and_fractions_are_kept() {
        let (mut spread, mut out) = (Spread::default(), Vec::new());
        spread.push(batch(&[(2_000_000, 0), (1_000_000, 0), (2_000_000, 0), (2_500_001, 0)]), |batch| {
            out.push(batch)
        });
        spread.end(|batch| out.push(batch));
        assert_eq!(times(&out), [2_000_000, 1_000_000, 2_000_000, 2_500_001]);
    }

    #[test]
    fn requests_are_sorted_by_their_start() {
        let (mut sorter, mut out) = (Sorter::default(), Vec::new());
        sorter.push(batch(&[(10_000_001, 1), (11_000_001, 5_000_000)]), true, |batch| out.push(batch));
        sorter.push(batch(&[(12_000_001, 12_000_000), (100_000_001, 1)]), true, |batch| out.push(batch));
        sorter.end(|batch| out.push(batch));
        assert_eq!(times(&out), [1, 6_000_001, 10_000_000, 100_000_000]);
        assert_eq!(out[0].record(0).duration_us(), Some(12_000_000));
        let names = ["n".to_owned()];
        assert_eq!(out[0].record(0).attributes(&names).get("n"), Some("12000001"));
    }
}
