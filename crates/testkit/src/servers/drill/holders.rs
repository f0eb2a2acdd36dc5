//! Holders of leases and reservations that crash. Their units must come back when the holds end, and the limit must hold
//! at every instant.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::{
    Answer, Item, Keyspace, Limit, Mark, Operation, Plan, Span, Store, Subject, SubjectHasher, Time, Token,
    Verdict,
};

use super::DrillError;
use crate::servers::random::Random;

/// Length of a lease or reservation. Its end is rounded up by 1/32 at most.
const TTL: Span = Span::from_ms(1_500);
/// From the crash of the last holder until all units are back. Half a second for a busy machine.
const BACK_MAX: Duration = Duration::from_millis(1_500 + 1_500 / 32 + 500);
/// Longer than any drill.
const PERIOD: Span = Span::from_secs(30 * 86_400);
/// Longest life of a holder before it crashes.
const LIFE_MS: usize = 600;
/// The largest difference of the clocks of a store and of its callers, on one machine.
const CLOCK_DIFFERENCE: Span = Span::from_ms(2);
/// Attempts of a follow-up whose answer was lost.
const TRIES: usize = 200;

/// What is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// Leases of a concurrency limit.
    Leases,
    /// Reservations of a quota. Some are extended, some are settled.
    Reservations,
}

/// The figures of the drill.
#[derive(Clone, Copy, Debug)]
pub struct Holders {
    /// Holds that were admitted.
    pub admitted: u64,
    /// Requests for a hold, or for more of it, that were refused.
    pub refused: u64,
    /// Requests without an answer.
    pub failed: u64,
    /// Holds whose holder crashed.
    pub abandoned: u64,
    /// The largest sum of units that were certainly held or used at one instant.
    pub most: u64,
    /// The limit.
    pub limit: u64,
    /// From the crash of the last holder until all units were back, `None` if that took longer than the TTL allows.
    pub back_after: Option<Duration>,
}

impl Holders {
    /// Whether the limit held, all units came back in time, and holders crashed at all.
    pub fn is_fine(&self) -> bool {
        self.most <= self.limit && self.back_after.is_some() && self.abandoned > 0 && self.refused > 0
    }
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holders { admitted, refused, failed, abandoned, most, limit, back_after } = self;
        write!(
            f,
            "{admitted} admitted, {refused} refused, {failed} failed, {abandoned} abandoned; at most {most} of {limit} held; \
             all back after {back_after:?}"
        )
    }
}

/// Runs this many concurrent holders until each of them has crashed once.
pub fn crashing_holders<S: Store + Send + Sync + 'static>(
    runtime: &Runtime,
    store: &Arc<S>,
    held: Held,
    holders: usize,
    seed: u64,
) -> Result<Holders, DrillError> {
    let drill = Arc::new(HolderDrill::new(held, holders, seed)?);
    let tasks: Vec<_> = (0..holders)
        .map(|number| {
            let (drill, store) = (Arc::clone(&drill), Arc::clone(store));
            runtime.spawn(async move {
                let mut random = Random::new(seed ^ (number as u64 + 1) << 32);
                let life = Duration::from_millis(50 + random.below(LIFE_MS) as u64);
                // Dropped wherever it is: before, during or after a request.
                drop(timeout(life, drill.hold_and_give_back(&*store, &mut random)).await);
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await?;
        }
        Ok::<(), DrillError>(())
    })?;
    let crashed = Instant::now();
    runtime.block_on(drill.settle_again(&**store))?;
    let free = drill.limit.reported_limit() - drill.lock().settled();
    let mut back_after = None;
    while back_after.is_none() && crashed.elapsed() <= BACK_MAX {
        let remaining =
            runtime.block_on(drill.apply(&**store, Operation::Peek { cost: 0 })).map(|seen| seen.remaining);
        if remaining.is_some_and(|remaining| remaining == free) {
            back_after = Some(crashed.elapsed());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let log = drill.lock();
    let found = Holders {
        admitted: log.holds.len() as u64,
        refused: log.refused,
        failed: log.failed,
        abandoned: log.holds.iter().filter(|hold| matches!(hold.end, End::Abandoned)).count() as u64,
        most: log.most(),
        limit: drill.limit.reported_limit(),
        back_after,
    };
    println!("{held:?}: {found}");
    Ok(found)
}

/// The limit, and everything that the holders know.
struct HolderDrill {
    held: Held,
    limit: Limit,
    keyspace: Keyspace,
    subject: Subject,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    holds: Vec<Hold>,
    refused: u64,
    failed: u64,
}

/// An admitted hold. Its times are those at which its holder certainly had it: a store may read its clock before it
/// takes a lock, so the times of its answers do not order what it did.
struct Hold {
    token: Token,
    /// The parts that were admitted: units, and when the answer arrived. The first is the hold itself, others extend it.
    parts: Vec<(u64, Time)>,
    /// When it ends by itself.
    until: Time,
    end: End,
}

/// How a hold ended.
#[derive(Clone, Copy)]
enum End {
    /// Its holder crashed, or still works.
    Abandoned,
    /// It was being given back, or settled with this amount, when its holder crashed. It may have ended at any time.
    Unknown(Option<u64>),
    /// It was given back, or settled with this amount.
    GivenBack { sent: Time, answered: Time, settled: Option<u64> },
}

impl Log {
    /// Returns the units that were settled.
    fn settled(&self) -> u64 {
        let amount = |hold: &Hold| match hold.end {
            End::GivenBack { settled, .. } => settled.unwrap_or(0),
            End::Abandoned | End::Unknown(_) => 0,
        };
        self.holds.iter().map(amount).sum()
    }

    /// Returns the largest sum of units at one instant.
    fn most(&self) -> u64 {
        // Time, whether units are added, and the units. At one instant, units are given back before others are taken.
        let mut changes: Vec<(Time, bool, u64)> = Vec::new();
        for hold in &self.holds {
            let (end, used) = match hold.end {
                End::Abandoned => (hold.until.minus(CLOCK_DIFFERENCE), None),
                End::GivenBack { sent, answered, settled } => {
                    (sent, settled.map(|amount| (answered, amount)))
                }
                End::Unknown(_) => continue,
            };
            changes.extend(hold.parts.iter().map(|&(units, from)| (from, true, units)));
            changes.extend(hold.parts.iter().map(|&(units, from)| (end.max(from), false, units)));
            changes.extend(used.map(|(answered, amount)| (answered, true, amount)));
        }
        changes.sort_unstable();
        let (mut sum, mut most) = (0_u64, 0);
        for (_, is_added, units) in changes {
            sum = if is_added { sum + units } else { sum - units };
            most = most.max(sum);
        }
        most
    }
}

impl HolderDrill {
    fn new(held: Held, holders: usize, seed: u64) -> Result<HolderDrill, DrillError> {
        // Few enough that most holders wait. Settlements use up a quota for the rest of the drill.
        let limit = match held {
            Held::Leases => Limit::Concurrency(Concurrency::new((holders as u64 / 4).max(4), TTL)?),
            Held::Reservations => {
                Limit::Quota(Quota::new((holders as u64).max(8), 0, QuotaPeriod::Rolling(PERIOD))?)
            }
        };
        Ok(HolderDrill {
            held,
            limit,
            keyspace: Keyspace::new("drill", "holders")?,
            subject: SubjectHasher::new([9; 32]).subject([("user", format!("{held:?} {seed}").as_str())]),
            log: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies an operation. Returns the answer, or `None` if there was none.
    async fn apply<S: Store>(&self, store: &S, operation: Operation) -> Option<Answer> {
        let plan = Plan::of(Item::new(self.keyspace.key(self.subject), self.limit, operation)).ok()?;
        let outcome = store.apply(&plan).await;
        match outcome {
            Ok(outcome) => outcome.answers.first().copied(),
            Err(_) => {
                self.lock().failed += 1;
                None
            }
        }
    }

    /// Takes holds, works and gives them back, until the caller drops it.
    async fn hold_and_give_back<S: Store>(&self, store: &S, random: &mut Random) {
        loop {
            let token = Token(u128::from(random.bits()) << 64 | u128::from(random.bits()) | 1);
            let cost = 1 + random.below(3) as u64;
            let operation = match self.held {
                Held::Leases => Operation::Charge { cost, token },
                Held::Reservations => Operation::Reserve { cost, token, hold: TTL },
            };
            let Some(index) = self.take(store, operation, None).await else {
                sleep(Duration::from_millis(1 + random.below(20) as u64)).await;
                continue;
            };
            sleep(Duration::from_millis(random.below(40) as u64)).await;
            if self.held == Held::Reservations && random.below(3) == 0 {
                let extend = Operation::Extend { token, more: 1, hold: TTL };
                self.take(store, extend, Some(index)).await;
            }
            if random.below(4) == 0 {
                // Forgets the hold, as a process does that crashes and restarts.
                continue;
            }
            self.give_back(store, index, random.below(cost as usize + 1) as u64, random.below(2) == 0).await;
        }
    }

    /// Asks for a hold, or for more of one. Returns its index if it is admitted.
    async fn take<S: Store>(
        &self,
        store: &S,
        operation: Operation,
        extended: Option<usize>,
    ) -> Option<usize> {
        let answer = self.apply(store, operation).await?;
        let answered = Time::from(SystemTime::now());
        let mut log = self.lock();
        let (Mark::Held { token, until }, true) = (answer.mark, answer.is_admitted()) else {
            log.refused += 1;
            return None;
        };
        let part = (operation.cost().unwrap_or(0), answered);
        if let Some(index) = extended {
            log.holds[index].parts.push(part);
            log.holds[index].until = until;
            return Some(index);
        }
        log.holds.push(Hold { token, parts: vec![part], until, end: End::Abandoned });
        Some(log.holds.len() - 1)
    }

    async fn give_back<S: Store>(&self, store: &S, index: usize, actual: u64, settles: bool) {
        let token = self.lock().holds[index].token;
        let (operation, settled) = match self.held {
            Held::Leases => (Operation::Release { token }, None),
            Held::Reservations if settles => (Operation::Settle { token, actual }, Some(actual)),
            Held::Reservations => (Operation::Cancel { token }, None),
        };
        self.lock().holds[index].end = End::Unknown(settled);
        let sent = Time::from(SystemTime::now());
        let Some(answer) = self.apply(store, operation).await else { return };
        let answered = Time::from(SystemTime::now());
        self.lock().holds[index].end = match answer.verdict {
            Verdict::Done { .. } | Verdict::BookedLate { .. } => End::GivenBack { sent, answered, settled },
            // It had ended.
            _ => End::Abandoned,
        };
    }

    /// Settles again what may have been settled when its holder crashed. That books once.
    async fn settle_again<S: Store>(&self, store: &S) -> Result<(), DrillError> {
        let unknown: Vec<(usize, u64)> = {
            let log = self.lock();
            let holds = log.holds.iter().enumerate();
            holds
                .filter_map(|(index, hold)| match hold.end {
                    End::Unknown(Some(amount)) => Some((index, amount)),
                    _ => None,
                })
                .collect()
        };
        for (index, amount) in unknown {
            let mut tries = 0;
            while matches!(self.lock().holds[index].end, End::Unknown(_)) {
                tries += 1;
                if tries > TRIES {
                    return Err("a settlement got no answer".into());
                }
                self.give_back(store, index, amount, true).await;
            }
            // The time is that of the repeated answer: when the first was sent is not known, so its units are not counted.
            let mut log = self.lock();
            if matches!(log.holds[index].end, End::GivenBack { .. }) {
                log.holds[index].parts.clear();
            }
        }
        Ok(())
    }
}
