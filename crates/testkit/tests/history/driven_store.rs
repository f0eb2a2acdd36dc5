//! A correct store that is driven with generated calls and records what its callers see.

use super::*;

/// A limit, and the steps of time and cost for generated calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) limit: Limit,
    /// A sixteenth of its window or of a similar span.
    pub(crate) step_us: u64,
    /// A part of its capacity.
    pub(crate) cost_step: u64,
}

pub(crate) fn kinds() -> Vec<Kind> {
    let kind = |limit, span_us: u64| {
        let capacity = Limit::capacity(&limit);
        Kind { limit, step_us: (span_us / 16).max(1), cost_step: (capacity / 8).max(1) }
    };
    let few_entries = Limit::SlidingLog(SlidingLog::with_entries(9, us(48), 3).unwrap());
    vec![
        kind(fixed(7, 32), 32),
        kind(log(7, 32), 32),
        kind(few_entries, 48),
        kind(strict(7, 48, 1), 48),
        kind(strict(9, 48, 4), 48),
        kind(interpolated(9, 48, 1), 48),
        kind(interpolated(9, 48, 3), 48),
        kind(tokens(3, 10, 6), 20),
        kind(tokens(1, 16, 3), 48),
        kind(tokens(5, 1, 20), 4),
        // Counts in milliseconds, and fills in five seconds.
        kind(tokens(999_999_937, 5_000_000_000_000, 1_000), 5_000_000),
        kind(shaper(2, 9, 4), 22),
        kind(concurrency(5, 32), 32),
        // Ends are rounded up to 40 us.
        kind(concurrency(5, 1_280), 1_280),
        kind(calendar(6, 1, [0, 300, 350, 1 << 50]), 48),
        kind(rolling(6, 32), 32),
        kind(meter(12, 20), 32),
    ]
}

/// What happened to a call on the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Answered,
    /// The call took effect, and its reply was lost.
    ReplyLost,
    /// The call never reached the store.
    RequestLost,
    /// The call took effect, but a failure policy answered first.
    PolicyAnswered,
}

/// One generated call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GeneratedCall {
    pub(crate) steps: u64,
    pub(crate) jitter: u64,
    /// How much earlier the store read its clock than it executed the call.
    pub(crate) back: u64,
    /// How much earlier and later than necessary the caller read its clock.
    pub(crate) before: u64,
    pub(crate) after: u64,
    pub(crate) cost: u64,
    pub(crate) fate: Fate,
    /// Repeats an earlier id, if there is one.
    pub(crate) repeats: Option<u8>,
    /// For leases: releases or renews an earlier one instead.
    pub(crate) on_lease: Option<(u8, bool)>,
    /// For the other limits: records or credits instead.
    pub(crate) books: Option<Books>,
}

/// A change of consumption that asks for no admission.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Books {
    Record,
    Credit,
}

pub(crate) fn generated_call() -> impl Strategy<Value = GeneratedCall> {
    let fate = prop_oneof![
        6 => Just(Fate::Answered),
        1 => Just(Fate::ReplyLost),
        1 => Just(Fate::RequestLost),
        1 => Just(Fate::PolicyAnswered),
    ];
    let steps = prop_oneof![3 => Just(0), 4 => 1_u64..4, 1 => 4_u64..40];
    let time = (steps, 0_u64..4, 0_u64..12);
    let width = || prop_oneof![Just(0), 0_u64..4, 0_u64..40];
    let repeats = proptest::option::weighted(0.2, any::<u8>());
    let on_lease = proptest::option::weighted(0.2, any::<(u8, bool)>());
    let books =
        proptest::option::weighted(0.15, prop_oneof![2 => Just(Books::Record), 1 => Just(Books::Credit)]);
    (time, width(), width(), 0_u64..12, fate, repeats, on_lease, books).prop_map(
        |((steps, jitter, back), before, after, cost, fate, repeats, on_lease, books)| GeneratedCall {
            steps,
            jitter,
            back,
            before,
            after,
            cost,
            fate,
            repeats,
            on_lease,
            books,
        },
    )
}

/// A correct store with one key, and the records of its callers.
pub(crate) struct Store {
    pub(crate) kind: Kind,
    pub(crate) account: Account,
    /// The current instant.
    pub(crate) now: u64,
    pub(crate) ids: BTreeMap<u128, (u64, u64)>,
    pub(crate) id_horizon_us: u64,
    pub(crate) notes: Vec<Record>,
}

/// Start of histories: in the middle of a window of most limits.
pub(crate) const BEGIN: u64 = 250;

impl Store {
    pub(crate) fn new(kind: Kind) -> Store {
        let id_horizon_us = 24 * kind.step_us;
        Store {
            kind,
            account: Account::default(),
            now: BEGIN,
            ids: BTreeMap::new(),
            id_horizon_us,
            notes: Vec::new(),
        }
    }

    pub(crate) fn operate(&mut self, at: u64, operation: &Operation) -> StoreVerdict {
        self.account.apply(&self.kind.limit, Time::from_us(at), operation).verdict
    }

    /// Charges, and remembers the id like a correct store.
    pub(crate) fn charge(&mut self, at: u64, cost: u64, id: Option<u128>) -> CallResult {
        let known = id.and_then(|id| self.ids.get(&id));
        let remembered =
            |&&(at, charged): &&(u64, u64)| self.now < at + self.id_horizon_us && charged == cost;
        if known.filter(remembered).is_some() {
            return CallResult::Allow;
        }
        let token = Token(self.notes.len() as u128 + 1);
        match self.operate(at, &Operation::Charge { cost, token }) {
            StoreVerdict::Admitted { .. } => {
                if let Some(id) = id {
                    self.ids.insert(id, (self.now, cost));
                }
                CallResult::Allow
            }
            StoreVerdict::Refused(_) => CallResult::Refuse,
            other => panic!("{other:?} is no answer to a charge"),
        }
    }

    pub(crate) fn call(&mut self, call: GeneratedCall) {
        self.now += call.steps * self.kind.step_us + call.jitter * self.kind.limit.tick().us();
        // The store read its clock before it executed the call. Both are between the caller's two readings.
        let at = self.now.saturating_sub(call.back * self.kind.step_us / 4);
        let (start, end) = (at.saturating_sub(call.before), self.now + call.after);
        let (start, end) = (Time::from_us(start), Time::from_us(end));
        let lease = match self.kind.limit {
            Limit::Concurrency(limit) => Some(limit.lease()),
            _ => None,
        };
        if let (Some(lease), Some((pick, renew)), false) = (lease, call.on_lease, self.notes.is_empty()) {
            let pick = usize::from(pick) % self.notes.len();
            let token = Token(pick as u128 + 1);
            let operation = if renew { Operation::Renew { token } } else { Operation::Release { token } };
            let done = matches!(self.operate(at, &operation), StoreVerdict::Done { .. });
            let held = &mut self.notes[pick].held;
            *held = held.map(|held| match (done, renew) {
                (true, true) => held.renewed(start, end, lease),
                (true, false) => held.released(start, end),
                (false, _) => held,
            });
            return;
        }

        if let (None, Some(books)) = (lease, call.books) {
            // Up to twice the capacity. Not under an id.
            let cost = call.cost * self.kind.cost_step * 2;
            let (operation, answer) = match books {
                Books::Record => (Operation::Record { cost }, CallResult::Recorded),
                Books::Credit => (Operation::Credit { cost }, CallResult::Credited),
            };
            if call.fate != Fate::RequestLost
                && !matches!(self.operate(at, &operation), StoreVerdict::Declined(_))
            {
                self.notes.push(Record::new(KEY, cost, answer, start, end).by(self.notes.len() as u32));
            }
            return;
        }

        // Leases have no request ids here: the token is the id.
        let earlier: Vec<(u128, u64)> =
            self.notes.iter().filter_map(|note| note.id.map(|id| (id, note.cost))).collect();
        let (id, cost) = match call.repeats {
            Some(pick) if !earlier.is_empty() => {
                let (id, cost) = earlier[usize::from(pick) % earlier.len()];
                (Some(id), cost)
            }
            _ => {
                let capacity = self.kind.limit.capacity();
                let cost = if call.cost < 9 { call.cost * self.kind.cost_step } else { call.cost - 9 };
                let id = (lease.is_none() && call.cost.is_multiple_of(2)).then_some(self.notes.len() as u128);
                (id, cost.min(capacity))
            }
        };
        let answer = match call.fate {
            Fate::RequestLost => CallResult::Unknown,
            Fate::Answered => self.charge(at, cost, id),
            Fate::ReplyLost => {
                self.charge(at, cost, id);
                CallResult::Unknown
            }
            Fate::PolicyAnswered => {
                self.charge(at, cost, id);
                CallResult::Degraded
            }
        };
        let note = Record::new(KEY, cost, answer, start, end).by(self.notes.len() as u32);
        let held = lease.map(|lease| Held::leased(start, end, lease));
        self.notes.push(Record { id, held, ..note });
    }
}

pub(crate) fn drive(kind: Kind, calls: &[GeneratedCall]) -> (History, Span) {
    let mut store = Store::new(kind);
    calls.iter().for_each(|call| store.call(*call));
    (store.notes.into_iter().collect(), us(store.id_horizon_us))
}

pub(crate) fn run<S: Strategy>(
    cases: u32,
    strategy: &S,
    test: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new(config).run(strategy, test).unwrap_or_else(|failure| panic!("{failure}"));
}
