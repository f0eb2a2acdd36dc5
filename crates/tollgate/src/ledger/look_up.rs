//! Reads accounts from the ledger for a gate that has lost them: one query for many keys, one wait for many callers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, oneshot};
use tollgate_database::ledger::Subject;
use tollgate_database::{ACCOUNTS_MAX, Database, KnownAccount};

/// Most queries at the same time.
const QUERIES_MAX: usize = 32;
/// How long a query that is not full waits for one in flight: meanwhile other subjects join it.
const JOIN_MAX: Duration = Duration::from_millis(250);
/// How long a query waits to be full after one that was: then many accounts are lost.
const FILL_MAX: Duration = Duration::from_millis(100);
/// How long a check waits for the ledger.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Why the ledger did not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum LookUpError {
    /// The database cannot be asked.
    #[error("the database of the ledger cannot be asked for the account")]
    Failed,
    /// The answer takes too long.
    #[error("the database of the ledger did not return the account within {} ms", WAIT_MAX.as_millis())]
    TooLate,
}

type Found = Result<Option<KnownAccount>, LookUpError>;

/// Looks accounts up. Clones share the queries.
#[derive(Clone)]
pub(super) struct LookUps {
    shared: Arc<Shared>,
}

struct Shared {
    database: Arc<Database>,
    /// Of the ledger, because a caller may be on a runtime that ends.
    runtime: Handle,
    queue: Mutex<Queue>,
    permits: Arc<Semaphore>,
    /// A query has ended, or the next one is full.
    ready: Notify,
    queries: AtomicU64,
}

#[derive(Default)]
struct Queue {
    /// The callers that wait for each subject, in a query or before one.
    waiting: HashMap<Subject, Vec<oneshot::Sender<Found>>>,
    /// Subjects that no query has taken yet, and the instants at which their accounts are wanted.
    next: Vec<(Subject, i64)>,
    /// Whether a task takes subjects from `next`.
    is_served: bool,
    /// When the database last answered a query.
    answered_at: Option<Instant>,
}

impl LookUps {
    pub(super) fn new(database: Arc<Database>, runtime: Handle) -> LookUps {
        let permits = Arc::new(Semaphore::new(QUERIES_MAX));
        let (queue, queries) = (Mutex::default(), AtomicU64::new(0));
        let ready = Notify::new();
        LookUps { shared: Arc::new(Shared { database, runtime, queue, permits, ready, queries }) }
    }

    /// Number of queries so far.
    pub(super) fn queries(&self) -> u64 {
        self.shared.queries.load(Ordering::Relaxed)
    }

    /// Number of subjects that are waited for.
    pub(super) fn waiting(&self) -> usize {
        self.shared.lock().waiting.len()
    }

    /// Whether the database has answered a query within this time. Then it is slow, and not away.
    pub(super) fn has_answered_within(&self, time: Duration) -> bool {
        self.shared.lock().answered_at.is_some_and(|answered_at| answered_at.elapsed() < time)
    }

    /// Returns the newest account of a subject at an instant; `None` if it has none.
    pub(super) async fn find(&self, subject: Subject, at_us: i64) -> Found {
        let (sender, receiver) = oneshot::channel();
        {
            let mut queue = self.shared.lock();
            match queue.waiting.get_mut(&subject) {
                Some(waiting) => waiting.push(sender),
                None => {
                    queue.waiting.insert(subject.clone(), vec![sender]);
                    queue.next.push((subject, at_us));
                    if queue.next.len() == ACCOUNTS_MAX {
                        self.shared.ready.notify_one();
                    }
                }
            }
            if !std::mem::replace(&mut queue.is_served, true) {
                let shared = Arc::clone(&self.shared);
                drop(self.shared.runtime.spawn(serve(shared)));
            }
        }
        match tokio::time::timeout(WAIT_MAX, receiver).await {
            Ok(Ok(found)) => found,
            Ok(Err(_)) => Err(LookUpError::Failed),
            Err(_) => Err(LookUpError::TooLate),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how long the next query may wait for other subjects. `was_full` says whether the query before was full.
    fn may_wait(&self, was_full: bool) -> Duration {
        // One permit is its own.
        let in_flight = self.permits.available_permits() + 1 < QUERIES_MAX;
        match self.lock().next.len() {
            0 | ACCOUNTS_MAX.. => Duration::ZERO,
            _ if in_flight => JOIN_MAX,
            _ if was_full => FILL_MAX,
            _ => Duration::ZERO,
        }
    }
}

/// Takes subjects until there are no more. A query is sent at once if none is in flight, otherwise when it is full.
async fn serve(shared: Arc<Shared>) {
    let mut was_full = false;
    loop {
        let Ok(permit) = Arc::clone(&shared.permits).acquire_owned().await else { return };
        // Lets the checks of this moment join the query.
        tokio::task::yield_now().await;
        let waits_since = Instant::now();
        loop {
            let left = shared.may_wait(was_full).saturating_sub(waits_since.elapsed());
            if left.is_zero() {
                break;
            }
            // The time-out is one way to go on.
            drop(tokio::time::timeout(left, shared.ready.notified()).await);
        }
        let wanted = {
            let mut queue = shared.lock();
            let count = queue.next.len().min(ACCOUNTS_MAX);
            let wanted: Vec<_> = queue.next.drain(..count).collect();
            queue.is_served = !wanted.is_empty();
            wanted
        };
        if wanted.is_empty() {
            return;
        }
        was_full = wanted.len() == ACCOUNTS_MAX;
        let query = Arc::clone(&shared);
        drop(shared.runtime.spawn(async move {
            query.queries.fetch_add(1, Ordering::Relaxed);
            let subjects: Vec<Subject> = wanted.iter().map(|(subject, _)| subject.clone()).collect();
            let found = query.database.known(wanted).await;
            if let Err(error) = &found {
                let error: &dyn std::error::Error = error;
                tracing::warn!(
                    event = "ledger_look_up_failed",
                    error,
                    "cannot read accounts from the ledger"
                );
            }
            let mut found = found.map_err(|_| LookUpError::Failed).map(Vec::into_iter);
            let mut queue = query.lock();
            if found.is_ok() {
                queue.answered_at = Some(Instant::now());
            }
            for subject in subjects {
                let answer: Found = match &mut found {
                    Ok(found) => Ok(found.next().flatten()),
                    Err(error) => Err(*error),
                };
                for waiting in queue.waiting.remove(&subject).into_iter().flatten() {
                    // A caller that has gone does not need the answer.
                    drop(waiting.send(answer.clone()));
                }
            }
            drop(queue);
            drop(permit);
            query.ready.notify_one();
        }));
    }
}
