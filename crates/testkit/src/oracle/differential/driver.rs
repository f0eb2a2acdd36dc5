//! Runs the generated steps of one case against an oracle and a machine.

use std::cell::Cell;
use std::collections::BTreeMap;

use tollgate_core::{
    Answer, EXACT_MAX, Hold, HoldLookup, HoldWrite, Mark, Operation, Report, Retry, Span, Time, Token,
    Verdict,
};

use super::{Case, GeneratedStep, Tally};
use crate::oracle::suite::{Ask, Make, Suite, TestMachine};
use crate::oracle::{Expected, ExpectedWrite, Oracle};

/// Last instant of a history. Close to the end of time, instants saturate and prove nothing.
const LATEST: Time = Time::from_us(EXACT_MAX - (1 << 44));

/// Returns mostly one of the newest items, sometimes an older one.
fn recent<T: Copy>(items: &[T], pick: usize) -> T {
    let back = if pick < 160 { pick % items.len().min(3) } else { pick % items.len().min(24) };
    items[items.len() - 1 - back]
}

/// Returns a cost up to far above the capacity, mostly small.
fn record_cost(step: &GeneratedStep, cost: u64, capacity: u64) -> u64 {
    let cost = match step.pick % 16 {
        0..9 => cost,
        9 | 10 => capacity,
        11 => capacity.saturating_mul(2),
        12 => capacity.saturating_mul(17),
        13 => capacity.saturating_add(u64::from(step.time_by)),
        14 => u64::from(step.time_by).saturating_mul(u64::from(step.cost)),
        _ => EXACT_MAX,
    };
    cost.min(EXACT_MAX)
}

thread_local! {
    static LOOKING_AHEAD: Cell<bool> = const { Cell::new(false) };
}

/// Guard during which the machine is only peeked at future instants, about two dozen per step. A slow machine may answer
/// only some of these peeks itself and leave the others to core.
struct LookAhead;

impl LookAhead {
    fn begin() -> LookAhead {
        LOOKING_AHEAD.set(true);
        LookAhead
    }
}

impl Drop for LookAhead {
    fn drop(&mut self) {
        LOOKING_AHEAD.set(false);
    }
}

/// Whether the machine is only peeked at a future instant.
pub(crate) fn is_looking_ahead() -> bool {
    LOOKING_AHEAD.get()
}

/// Runs the steps of one case against the oracle and the machine, and checks every answer.
pub(super) struct Driver<S: Suite, M: TestMachine> {
    make: Make<S, M>,
    oracle: S::Oracle,
    state: Option<M::State>,
    /// The records of leases and reservations.
    holds: BTreeMap<Token, Hold>,
    now: Time,
    /// Instants in earlier answers. Generated time often stops there, and one tick before.
    named: Vec<Time>,
    marks: Vec<(Mark, u64)>,
    tokens: Vec<Token>,
    /// Number of tokens from before the last loss of the account. None of them is used for a new hold.
    retired_tokens: usize,
    pub(super) tally: Tally,
}

impl<S: Suite, M: TestMachine> Driver<S, M> {
    pub(super) fn new(make: Make<S, M>, case: &Case<S::Rule>, tally: Tally) -> Self {
        let start = match case.start % 8 {
            0..6 => 1_700_000_000_000_000,
            6 => 0,
            _ => 1 << 52,
        };
        Driver {
            make,
            oracle: S::Oracle::default(),
            state: None,
            holds: BTreeMap::new(),
            now: Time::from_us(start),
            named: vec![Time::from_us(start)],
            marks: vec![(Mark::Window { start: Time::ZERO }, 1), (Mark::At { time: Time::ZERO }, 1)],
            tokens: vec![Token(1)],
            retired_tokens: 0,
            tally,
        }
    }

    pub(super) fn run(&mut self, case: &Case<S::Rule>) -> Result<(), String> {
        // Both rules must be valid. Invalid numbers are tested with the constructors.
        if case.rules.iter().any(|rule| self.machine(rule, self.now).is_none()) {
            return Ok(());
        }
        for (index, step) in
            (0..S::FILL).map(GeneratedStep::filling).chain(case.steps.iter().copied()).enumerate()
        {
            let rule = &case.rules[usize::from(step.second)];
            self.move_time(&step, S::span_us(rule), case.calm);
            self.compare_step(rule, &step, case.books)
                .map_err(|what| format!("step {index} ({step:?}) at {:?}: {what}", self.now))?;
        }
        Ok(())
    }

    fn machine(&self, rule: &S::Rule, now: Time) -> Option<M> {
        (self.make)(&S::numbers(rule, now)).ok()
    }

    fn move_time(&mut self, step: &GeneratedStep, span_us: u64, calm: bool) {
        let by = u64::from(step.time_by);
        let named = self.named[step.time_by as usize % self.named.len()];
        let now = match step.time % 16 {
            _ if calm && step.time < 250 => self.now.plus(Span::from_us(by % 4)),
            _ if S::STEADY && step.time < 250 => self.now.plus(Span::from_us(by % (span_us / 16).max(1))),
            0 | 1 => self.now,
            2 | 3 => self.now.plus(Span::from_us(by % 3 + 1)),
            4 | 5 => self.now.plus(Span::from_us(by % span_us.saturating_mul(2).max(1))),
            6 => self.now.plus(Span::from_us(span_us)),
            7..11 => self.now.max(named),
            11 => self.now.max(named.minus(Span::from_us(1))),
            12 => self.now.max(named.minus(Span::from_us(1_000))),
            13 => self.now.minus(Span::from_us(by % span_us.max(1))),
            14 => self.now.minus(Span::from_us(by)),
            _ => self.now.plus(Span::from_us(by.saturating_mul(1_000))),
        };
        self.now = now.min(LATEST);
    }

    fn operation(&mut self, step: &GeneratedStep, capacity: u64, books: bool) -> Operation {
        let cost = match step.cost % 32 {
            _ if S::SMALL_COSTS => 1 + u64::from(step.cost % 3),
            0..20 => 1,
            20 | 21 => 0,
            22 | 23 => 2.min(capacity),
            24 => capacity,
            25 => capacity.saturating_sub(1),
            26 => capacity / 2,
            27 => 1 + u64::from(step.cost) % capacity,
            _ => 3.min(capacity),
        };
        let pick = usize::from(step.pick);
        let token = recent(&self.tokens, pick);
        let (mark, charged_cost) = recent(&self.marks, pick);
        let ask = match S::ASKS[usize::from(step.ask) % S::ASKS.len()] {
            Ask::Record | Ask::RecordIn | Ask::Credit if !books => Ask::Charge,
            Ask::Extend if !books => Ask::Reserve,
            ask => ask,
        };
        match ask {
            Ask::Charge => Operation::Charge { cost, token: self.new_token(pick) },
            Ask::ChargeKnown => {
                let is_retired = token.0 <= self.retired_tokens as u128;
                Operation::Charge { cost, token: if is_retired { self.new_token(1) } else { token } }
            }
            Ask::Peek => Operation::Peek { cost },
            Ask::Usage => Operation::Usage,
            Ask::Record => Operation::Record { cost: record_cost(step, cost, capacity).min(S::RECORD_MAX) },
            Ask::RecordIn => {
                let start = match mark {
                    Mark::Window { start } if pick % 4 > 0 => start,
                    _ => self.now.minus(Span::from_us(u64::from(step.time_by))),
                };
                Operation::RecordIn { cost: record_cost(step, cost, capacity).min(S::RECORD_MAX), start }
            }
            Ask::Credit => Operation::Credit { cost: record_cost(step, cost, capacity) },
            Ask::Refund => Operation::refund(mark, charged_cost),
            Ask::RefundOther => Operation::Refund { mark, cost: charged_cost, amount: cost },
            Ask::Renew => Operation::Renew { token },
            Ask::Release => Operation::Release { token },
            Ask::Reserve => {
                let hold = Span::from_us(u64::from(step.time_by) % 100_000_000);
                Operation::Reserve { cost, token: self.new_token(pick), hold }
            }
            Ask::Extend => {
                let hold = Span::from_us(u64::from(step.time_by) % 100_000_000);
                Operation::Extend { token, more: cost, hold }
            }
            Ask::Settle => Operation::Settle { token, actual: cost },
            Ask::Cancel => Operation::Cancel { token },
            Ask::Lose => Operation::Reset { receipt_life: Span::ZERO },
            Ask::Failure => Operation::Report { result: Report::Failure },
            Ask::Success => Operation::Report { result: Report::Success },
        }
    }

    /// Returns an unused token, or sometimes one that was used before.
    fn new_token(&mut self, pick: usize) -> Token {
        let reusable = &self.tokens[self.retired_tokens..];
        if pick.is_multiple_of(16) && !reusable.is_empty() {
            return reusable[pick % reusable.len()];
        }
        let token = Token(self.tokens.len() as u128 + 1);
        self.tokens.push(token);
        token
    }

    fn compare_step(&mut self, rule: &S::Rule, step: &GeneratedStep, books: bool) -> Result<(), String> {
        let skew = Span::from_us(S::span_us(rule).saturating_mul(u64::from(step.skew % 4)));
        let caller = if step.skew >= 192 { self.now.plus(skew) } else { self.now };
        let numbers = S::numbers(rule, caller);
        let Ok(machine) = (self.make)(&numbers) else { return Ok(()) };
        let operation = self.operation(step, machine.capacity(), books);
        if let Operation::Reset { .. } = operation {
            // The stores delete the state, or lose it. No machine sees that.
            self.oracle.lose();
            self.state = None;
            self.retired_tokens = self.tokens.len();
            return Ok(());
        }

        let hold = operation.token().and_then(|token| self.holds.get(&token));
        let step = machine.decide_hold(self.state.as_ref(), hold.into(), self.now, &operation);
        let found = Expected { answer: step.answer, write: ExpectedWrite::of(step.write.as_ref()) };
        let expected = self.oracle.step(&numbers, self.now, &operation);
        if found != expected {
            let state = &self.state;
            return Err(format!("{operation:?} on {state:?}\n  oracle {expected:?}\n  found  {found:?}"));
        }
        self.tally.steps += 1;
        self.check_answer(rule, &machine, &operation, &step.answer)?;
        if let Some(write) = step.write {
            if let Some(change) = M::hold_change(&write.change) {
                match change.record {
                    Some(HoldWrite { hold, dies_at }) => {
                        self.check_record_death(&machine, change.token, &hold, dies_at)?;
                        self.holds.insert(change.token, hold);
                    }
                    None => {
                        self.holds.remove(&change.token);
                    }
                }
            }
            M::commit(&mut self.state, write.change);
            if let Some(dies_at) = write.dies_at {
                self.named.push(dies_at);
                self.check_death(rule, &operation, dies_at)?;
            }
        }
        self.remember(&operation, &step.answer);
        Ok(())
    }

    /// Checks I6, I8, I9, and that a peek answers like a charge.
    fn check_answer(
        &mut self,
        rule: &S::Rule,
        machine: &M,
        operation: &Operation,
        answer: &Answer,
    ) -> Result<(), String> {
        match answer.verdict {
            Verdict::Admitted { .. } => self.tally.admitted += 1,
            Verdict::Done { .. } | Verdict::BookedLate { .. } => self.tally.done += 1,
            Verdict::Recorded { amount, overdraft, free_at } => {
                self.tally.recorded += u64::from(amount > 0);
                self.tally.overdrawn += u64::from(overdraft > 0);
                if overdraft > 0 && answer.remaining > 0 {
                    return Err(format!("overdrawn by {overdraft} with {} remaining", answer.remaining));
                }
                self.named.push(free_at);
            }
            Verdict::Usage { .. } => (),
            Verdict::Declined(_) => self.tally.declined += 1,
            Verdict::Refused(retry) => {
                self.tally.refused += 1;
                let Some(cost) = operation.cost() else {
                    return Err("refused a follow-up".into());
                };
                if answer.remaining >= cost.max(1) {
                    return Err(format!("refused {cost} with {} remaining", answer.remaining));
                }
                let Retry::At(at) = retry else { return Err("retry is never for a cost that fits".into()) };
                self.check_retry(rule, machine, cost, at)?;
            }
        }
        Ok(())
    }

    /// Without other requests, a retry at `at` is admitted, and one tick earlier it is refused.
    fn check_retry(&mut self, rule: &S::Rule, machine: &M, cost: u64, at: Time) -> Result<(), String> {
        if at == Time::MAX {
            return Ok(());
        }
        // A penalty that counts refused attempts has grown: its answer to the charge already includes that.
        let peeked = machine.decide(self.state.as_ref(), self.now, &Operation::Peek { cost }).answer;
        let Verdict::Refused(Retry::At(peeked_at)) = peeked.verdict else {
            return Err(format!("refused the charge but not the peek: {peeked:?}"));
        };
        if peeked_at > at {
            return Err(format!("the charge may retry at {at:?}, the peek at {peeked_at:?}"));
        }
        if peeked_at <= self.now {
            return Err(format!("refused at {:?} until {peeked_at:?}, which is not later", self.now));
        }
        self.named.push(peeked_at);
        let admits = |at: Time| {
            self.machine(rule, at).is_some_and(|machine| {
                machine.decide(self.state.as_ref(), at, &Operation::Peek { cost }).answer.is_admitted()
            })
        };
        if !admits(peeked_at) {
            return Err(format!("not admitted at its retry instant {peeked_at:?}"));
        }
        if admits(peeked_at.minus(Span::from_us(1))) {
            return Err(format!("already admitted one tick before {peeked_at:?}"));
        }
        Ok(())
    }

    /// Checks that the written state equals no state at `dies_at`, and that a charge does not one tick earlier.
    fn check_death(&mut self, rule: &S::Rule, operation: &Operation, dies_at: Time) -> Result<(), String> {
        self.tally.written += 1;
        if dies_at == Time::MAX {
            return Ok(());
        }
        let _look_ahead = LookAhead::begin();
        let peeks = |at: Time, state: Option<&M::State>| {
            let machine = self.machine(rule, at)?;
            let costs = [0, 1, machine.capacity()];
            Some(costs.map(|cost| machine.decide(state, at, &Operation::Peek { cost }).answer))
        };
        for at in [dies_at, dies_at.plus(Span::from_us(1)), dies_at.plus(Span::from_us(S::span_us(rule)))] {
            let at = at.max(self.now);
            if peeks(at, self.state.as_ref()) != peeks(at, None) {
                return Err(format!("state may expire at {dies_at:?}, but still has an effect at {at:?}"));
            }
        }
        let before = dies_at.minus(Span::from_us(1));
        let charged = matches!(operation, Operation::Charge { cost: 1.., .. });
        if charged && before >= self.now && peeks(before, self.state.as_ref()) == peeks(before, None) {
            return Err(format!("state is kept until {dies_at:?}, but has no effect one tick before"));
        }
        Ok(())
    }

    /// Checks that a record has no effect from `dies_at` on.
    fn check_record_death(
        &self,
        machine: &M,
        token: Token,
        hold: &Hold,
        dies_at: Time,
    ) -> Result<(), String> {
        let at = dies_at.max(self.now);
        if dies_at == Time::MAX {
            return Ok(());
        }
        let _look_ahead = LookAhead::begin();
        for operation in [
            Operation::Renew { token },
            Operation::Release { token },
            Operation::Extend { token, more: 1, hold: Span::from_us(1) },
            Operation::Settle { token, actual: 1 },
            Operation::Cancel { token },
        ] {
            let answer = |hold| machine.decide_hold(self.state.as_ref(), hold, at, &operation).answer;
            if answer(HoldLookup::Found(hold)) != answer(HoldLookup::None) {
                return Err(format!("record may expire at {dies_at:?}, but has an effect on {operation:?}"));
            }
        }
        Ok(())
    }

    fn remember(&mut self, operation: &Operation, answer: &Answer) {
        self.named.push(answer.reset_at);
        if answer.mark != Mark::None {
            let cost = match answer.verdict {
                Verdict::Recorded { amount, .. } => amount,
                _ => operation.cost().unwrap_or(1),
            };
            self.marks.push((answer.mark, cost));
        }
    }
}
