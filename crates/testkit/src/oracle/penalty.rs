//! Model of the penalty: the number of failures, and a wait computed by repeated multiplication.

use tollgate_core::algorithm::penalty::PenaltyNumbers;
use tollgate_core::{Decline, Mark, Operation, Report, Time};

use super::{AT_ONCE, Big, END, Expected, ExpectedWrite, Oracle, Status, big, done, time};

/// Failures and the end of the wait.
#[derive(Default, Clone)]
pub struct PenaltyOracle {
    record: Option<(Big, Big)>,
}

/// Number of failures after the free ones that still make the wait longer.
const STEPS: Big = 64;

fn wait(numbers: &PenaltyNumbers, failures: Big) -> Big {
    let past_free = failures - Big::from(numbers.free);
    if past_free <= 0 {
        return 0;
    }
    let longest = Big::from(numbers.longest.us());
    (1..past_free)
        .fold(Big::from(numbers.base.us()), |wait, _| (wait * Big::from(numbers.factor)).min(longest))
}

impl PenaltyOracle {
    fn current(&self, numbers: &PenaltyNumbers, now: Big) -> (Big, Big) {
        let memory = Big::from(numbers.memory.us());
        self.record.filter(|&(_, until)| now < (until + memory).min(END)).unwrap_or((0, 0))
    }

    fn waits(&self, numbers: &PenaltyNumbers, now: Big) -> bool {
        let (failures, until) = self.current(numbers, now);
        failures > Big::from(numbers.free) && now < until
    }

    fn status(&self, numbers: &PenaltyNumbers, now: Big) -> Status {
        let (failures, until) = self.current(numbers, now);
        let tries = Big::from(numbers.free) + 1;
        Status {
            limit: tries,
            remaining: if self.waits(numbers, now) { 0 } else { (tries - failures).max(1) },
            reset_at: if failures == 0 { now } else { until + Big::from(numbers.memory.us()) },
        }
    }

    fn fail(&mut self, numbers: &PenaltyNumbers, now: Big) -> Big {
        let (failures, until) = self.current(numbers, now);
        let failures = (failures + 1).min(Big::from(numbers.free) + STEPS);
        self.record = Some((failures, until.max((now + wait(numbers, failures)).min(END))));
        failures
    }
}

impl Oracle for PenaltyOracle {
    type Numbers = PenaltyNumbers;

    fn step(&mut self, numbers: &PenaltyNumbers, now: Time, operation: &Operation) -> Expected {
        let now = big(now);
        let status = self.status(numbers, now);
        let (failures, until) = self.current(numbers, now);
        match *operation {
            Operation::Charge { cost, .. }
                if cost > 0 && self.waits(numbers, now) && numbers.count_refused =>
            {
                self.fail(numbers, now);
                let (_, until) = self.current(numbers, now);
                let status = self.status(numbers, now);
                let mut expected = status.refused(until);
                expected.write = ExpectedWrite::Until(time(status.reset_at));
                expected
            }
            Operation::Charge { .. } | Operation::Peek { .. } => {
                if self.waits(numbers, now) {
                    status.refused(until)
                } else {
                    status.unchanged(AT_ONCE)
                }
            }
            Operation::Report { result: Report::Failure } => {
                let failures = self.fail(numbers, now);
                let status = self.status(numbers, now);
                status.written(done(failures), Mark::None, status.reset_at)
            }
            Operation::Report { result: Report::Success } => {
                self.record = None;
                self.status(numbers, now).written(done(failures), Mark::None, now)
            }
            _ => status.declined(Decline::NotSupported),
        }
    }
}
