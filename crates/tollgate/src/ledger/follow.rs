//! Keeps the gate equal to the ledger: drift is found and adjusted, corrections and grants are taken over.
//!
//! 1. Every key that this process has touched is looked at: units used, and the revision of its state.
//! 2. The look waits until all servers are clean: until everything that was sent to the store before the look is in the ledger,
//!    or is known to have failed.
//! 3. What the ledger says for that revision is compared with the look. The difference is subtracted in the gate, if no other
//!    server did so meanwhile.
//!
//! So a charge whose answer was lost, a void, an admission by policy and a lost write of the store all end in the same numbers.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollgate_core::algorithm::meter::EXPIRY_DEFAULT;
use tollgate_core::stamped::{Adjust, Extra, Restore, Revision};
use tollgate_core::{
    Item, Limit, Operation, Outcome, Plan, Recording, Store, StoreError, StoredKey, Time, Verdict,
};
use tollgate_database::ledger::{Account, Detail, Event, Record};
use tollgate_database::{ACCOUNTS_MAX, Error, KnownAccount, LedgerWriter, Look};

use super::Ledger;
use super::records::{account_at, account_of, subject_of};

/// Most keys that one process follows. Others are restored when they are lost, but not compared.
const KEYS_MAX: usize = 1 << 18;
/// Most looks that wait for the servers to be clean.
const LOOKS_MAX: usize = 1 << 14;
/// Keys that are looked at in one round.
const ROUND_MAX: usize = 1024;
/// A server that has been silent for this much longer than it may charge is ignored.
const SILENT_MORE: Duration = Duration::from_secs(60);

/// When the gate is compared with the ledger.
#[derive(Clone, Copy, Debug)]
pub struct FollowSettings {
    /// How often keys that changed are compared, and corrections are taken over.
    pub every: Duration,
    /// How long a call to the store may still lead to an entry: the horizon of request ids and the longest deadline.
    pub late_max: Duration,
    /// How often all known keys are compared.
    pub walk_every: Duration,
}

impl Default for FollowSettings {
    fn default() -> FollowSettings {
        FollowSettings {
            every: Duration::from_secs(1),
            late_max: Duration::from_secs(70),
            walk_every: Duration::from_secs(3600),
        }
    }
}

/// What was done to keep the gate equal to the ledger, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FollowStatus {
    /// Accounts that were restored.
    pub restores: u64,
    /// Accounts that checks wait for now.
    pub waiting: u64,
    /// Queries for accounts.
    pub queries: u64,
    /// Comparisons of an account with the ledger.
    pub compared: u64,
    /// Units by which the gate counted too little.
    pub adjusted_up: u64,
    /// Units by which the gate counted too much.
    pub adjusted_down: u64,
    /// Corrections and grants that the gate took over.
    pub extras: u64,
}

/// Counters of [`FollowStatus`].
#[derive(Default)]
pub(super) struct FollowCounts {
    restores: AtomicU64,
    compared: AtomicU64,
    adjusted_up: AtomicU64,
    adjusted_down: AtomicU64,
    extras: AtomicU64,
}

impl FollowCounts {
    pub(super) fn status(&self) -> FollowStatus {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        FollowStatus {
            restores: read(&self.restores),
            compared: read(&self.compared),
            adjusted_up: read(&self.adjusted_up),
            adjusted_down: read(&self.adjusted_down),
            extras: read(&self.extras),
            ..FollowStatus::default()
        }
    }
}

/// The keys that this process has touched.
pub(super) struct Followed {
    ledger: Ledger,
    keys: Mutex<HashMap<u128, FollowedKey>>,
}

struct FollowedKey {
    key: StoredKey,
    limit: Limit,
    recording: Option<Recording>,
    /// Whether it has changed since its last look.
    is_dirty: bool,
    /// Whether a look waits for the servers.
    is_looked_at: bool,
}

/// A look that waits until all servers are clean.
struct WaitingLook {
    fingerprint: u128,
    account: Account,
    used: u64,
    revision: Revision,
    /// When the servers must be clean, by the store's clock.
    clean_after_us: i64,
}

impl Followed {
    pub(super) fn new(ledger: Ledger) -> Followed {
        Followed { ledger, keys: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u128, FollowedKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a key was asked for, so that it is compared.
    pub(super) fn touch(&self, item: &Item<'_>) {
        let fingerprint = item.key.fingerprint();
        let is_change = !matches!(item.operation, Operation::Peek { .. } | Operation::Usage);
        let mut keys = self.lock();
        if let Some(known) = keys.get_mut(&fingerprint) {
            (known.limit, known.recording) = (item.limit, item.ledger);
            known.is_dirty |= is_change;
            return;
        }
        if keys.len() >= KEYS_MAX {
            keys.retain(|_, known| known.is_dirty || known.is_looked_at);
            if keys.len() >= KEYS_MAX {
                return;
            }
        }
        // The only way to a key that borrows nothing. It is taken once for each key.
        let Ok(key) = item.key.to_string().parse() else { return };
        let known = FollowedKey {
            key,
            limit: item.limit,
            recording: item.ledger,
            is_dirty: true,
            is_looked_at: false,
        };
        keys.insert(fingerprint, known);
    }

    /// Notes that the keys of a Plan may have changed without an entry, or with one that is no change of the gate.
    pub(super) fn touch_all(&self, plan: &Plan<'_>) {
        plan.items().iter().filter(|item| item.is_stamped()).for_each(|item| self.touch(item));
    }

    /// Counts a restore. Consumption that the gate had counted before the rule was recorded becomes an entry.
    pub(super) fn restored(
        &self,
        item: &Item<'_>,
        restore: &Restore,
        outcome: &Outcome,
        writer: &LedgerWriter,
    ) -> Result<(), StoreError> {
        self.counts().restores.fetch_add(1, Ordering::Relaxed);
        let Some(Verdict::Done { amount }) = outcome.answers.first().map(|answer| answer.verdict) else {
            return Ok(());
        };
        if amount > 0 && restore.known {
            let recording = item.ledger.unwrap_or_default();
            let opening = Record {
                event: Event::Opening { used: i64::try_from(amount).unwrap_or(i64::MAX) },
                detail: if recording.totals { Detail::Totals } else { Detail::Entries },
                ..account_of(item, outcome.now)
            };
            writer.append(&[opening]).map_err(|error| StoreError::Transient(Box::new(error)))?;
        }
        Ok(())
    }

    fn counts(&self) -> &FollowCounts {
        self.ledger.follow_counts()
    }

    /// Returns keys that changed since their last look, and notes that they are looked at.
    fn take_dirty(&self, max: usize) -> Vec<(u128, StoredKey, Limit, Option<Recording>)> {
        let mut keys = self.lock();
        let dirty = keys.iter_mut().filter(|(_, known)| known.is_dirty && !known.is_looked_at);
        dirty
            .take(max)
            .map(|(fingerprint, known)| {
                (known.is_dirty, known.is_looked_at) = (false, true);
                (*fingerprint, known.key.clone(), known.limit, known.recording)
            })
            .collect()
    }

    fn looked(&self, fingerprint: u128, again: bool) {
        if let Some(known) = self.lock().get_mut(&fingerprint) {
            known.is_looked_at = false;
            known.is_dirty |= again;
        }
    }

    fn find(&self, fingerprint: u128) -> Option<(StoredKey, Limit, Option<Recording>)> {
        let keys = self.lock();
        keys.get(&fingerprint).map(|known| (known.key.clone(), known.limit, known.recording))
    }

    fn mark_all(&self) {
        self.lock().values_mut().for_each(|known| known.is_dirty = true);
    }
}

/// Follows the ledger until the store is dropped.
pub(super) async fn run<S: Store + Send + Sync>(store: Weak<S>, followed: Weak<Followed>) {
    let Some(settings) = followed.upgrade().map(|followed| followed.ledger.follow_settings()) else { return };
    let mut round = Round { looks: VecDeque::new(), changes: None };
    let (mut walked, mut is_down) = (Instant::now(), false);
    loop {
        tokio::time::sleep(settings.every).await;
        let (Some(store), Some(followed)) = (store.upgrade(), followed.upgrade()) else { return };
        if walked.elapsed() >= settings.walk_every {
            followed.mark_all();
            walked = Instant::now();
        }
        match round.run(&*store, &followed, settings).await {
            Ok(()) => is_down = false,
            // The shipper has logged that the database is down.
            Err(error) if !std::mem::replace(&mut is_down, true) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(event = "gate_not_compared", error, "cannot compare the gate with the ledger");
            }
            Err(_) => (),
        }
    }
}

/// What waits between rounds.
struct Round {
    looks: VecDeque<WaitingLook>,
    /// The position among corrections and grants.
    changes: Option<i64>,
}

impl Round {
    async fn run<S: Store + Sync>(
        &mut self,
        store: &S,
        followed: &Followed,
        settings: FollowSettings,
    ) -> Result<(), Error> {
        self.take_changes(store, followed).await?;
        self.look(store, followed, settings).await?;
        self.compare(store, followed).await
    }

    /// Takes over corrections and grants of accounts that this process follows.
    async fn take_changes<S: Store + Sync>(&mut self, store: &S, followed: &Followed) -> Result<(), Error> {
        let database = followed.ledger.writer().database();
        let (position, accounts) = database.changed(self.changes).await?;
        self.changes = Some(position);
        if accounts.is_empty() {
            return Ok(());
        }
        let of = |known: &FollowedKey| subject_of(&known.key.key());
        let changed: Vec<u128> = {
            let keys = followed.lock();
            let is_changed =
                |known: &FollowedKey| accounts.iter().any(|account| account.subject == of(known));
            keys.iter().filter(|(_, known)| is_changed(known)).map(|(fingerprint, _)| *fingerprint).collect()
        };
        let mut known = Vec::new();
        for fingerprint in changed {
            known.extend(
                followed
                    .find(fingerprint)
                    .map(|(key, limit, recording)| (fingerprint, key, limit, recording)),
            );
        }
        take_extras(store, followed, &known).await
    }

    /// Looks at keys that changed.
    async fn look<S: Store + Sync>(
        &mut self,
        store: &S,
        followed: &Followed,
        settings: FollowSettings,
    ) -> Result<(), Error> {
        let room = LOOKS_MAX.saturating_sub(self.looks.len()).min(ROUND_MAX);
        let dirty = followed.take_dirty(room);
        if dirty.is_empty() {
            return Ok(());
        }
        for (fingerprint, key, limit, recording) in &dirty {
            match look_at(store, key, *limit, *recording).await {
                Some((account, used, revision, now_us)) => {
                    let late_us = i64::try_from(settings.late_max.as_micros()).unwrap_or(i64::MAX);
                    let clean_after_us = now_us.saturating_add(late_us);
                    let look =
                        WaitingLook { fingerprint: *fingerprint, account, used, revision, clean_after_us };
                    self.looks.push_back(look);
                }
                // The store is away, or the state is lost: the next check restores it.
                None => followed.looked(*fingerprint, false),
            }
        }
        take_extras(store, followed, &dirty).await
    }

    /// Compares looks for which all servers are clean.
    async fn compare<S: Store + Sync>(&mut self, store: &S, followed: &Followed) -> Result<(), Error> {
        if self.looks.is_empty() {
            return Ok(());
        }
        let writer = followed.ledger.writer();
        let silent = writer.settings().queue_max + SILENT_MORE;
        let silent_us = i64::try_from(silent.as_micros()).unwrap_or(i64::MAX);
        let Some(clean_at_us) = writer.database().clean_at(now_us(), silent_us).await? else { return Ok(()) };
        loop {
            let count = self.looks.iter().take_while(|look| look.clean_after_us < clean_at_us).count();
            if count == 0 {
                return Ok(());
            }
            let ready: Vec<WaitingLook> = self.looks.drain(..count.min(ACCOUNTS_MAX)).collect();
            let looks = ready.iter().map(|look| Look {
                account: look.account.clone(),
                rev: look.revision.number(),
                epoch_end: look.revision.number() | i64::from(u32::MAX),
            });
            let counted = match writer.database().counted(looks.collect()).await {
                Ok(counted) => counted,
                Err(error) => {
                    ready.iter().for_each(|look| followed.looked(look.fingerprint, true));
                    return Err(error);
                }
            };
            for (look, counted) in ready.iter().zip(counted) {
                let again = adjust(store, followed, look, counted).await;
                followed.looked(look.fingerprint, again);
            }
        }
    }
}

/// Returns the account, the units used, the revision and the store's time. `None` if the store has no state to trust.
async fn look_at<S: Store + Sync>(
    store: &S,
    key: &StoredKey,
    limit: Limit,
    recording: Option<Recording>,
) -> Option<(Account, u64, Revision, i64)> {
    let item = Item { ledger: recording, ..Item::new(key.key(), limit, Operation::Usage) };
    let outcome = store.apply(&Plan::of(item).ok()?).await.ok()?;
    let answer = outcome.answers.first()?;
    let Verdict::Usage { used, .. } = answer.verdict else { return None };
    let account = account_at(&item, answer, outcome.now);
    Some((account, used, outcome.revision(0), i64::try_from(outcome.now.us()).unwrap_or(i64::MAX)))
}

/// Corrects the gate's count of one account. Returns whether it must be compared again.
async fn adjust<S: Store + Sync>(store: &S, followed: &Followed, look: &WaitingLook, counted: i64) -> bool {
    followed.counts().compared.fetch_add(1, Ordering::Relaxed);
    let Some((key, limit, recording)) = followed.find(look.fingerprint) else { return false };
    if matches!(limit, Limit::Meter(meter) if meter.expiry() < EXPIRY_DEFAULT) {
        // The account of such a meter does not end with it.
        return false;
    }
    if recording.is_some_and(|recording| recording.totals) {
        // Rows of several events have no revision, so the account must have stayed the same meanwhile.
        let again = look_at(store, &key, limit, recording).await;
        if again.is_none_or(|(account, _, revision, _)| account != look.account || revision != look.revision)
        {
            return true;
        }
    }
    let subtract = i64::try_from(look.used).unwrap_or(i64::MAX).saturating_sub(counted.max(0));
    if subtract == 0 {
        return false;
    }
    let Revision { epoch, adjusted, .. } = look.revision;
    let start = Time::from_us(u64::try_from(look.account.period_us).unwrap_or(0));
    let operation = Operation::Adjust(Adjust { subtract, epoch, adjusted, start });
    let item = Item { ledger: recording, ..Item::new(key.key(), limit, operation) };
    let Ok(plan) = Plan::of(item) else { return false };
    let Ok(outcome) = store.apply(&plan).await else { return true };
    let Some(Verdict::Done { amount }) = outcome.answers.first().map(|answer| answer.verdict) else {
        return true;
    };
    if amount > 0 {
        let counts = followed.counts();
        let count = if subtract > 0 { &counts.adjusted_down } else { &counts.adjusted_up };
        count.fetch_add(amount, Ordering::Relaxed);
        tracing::info!(
            event = "gate_adjusted",
            rule = key.key().keyspace().rule(),
            units = amount,
            direction = if subtract > 0 { "down" } else { "up" },
            "the gate differed from the ledger"
        );
    }
    false
}

/// Sends the corrections and grants of these keys to the gate, which takes higher numbers only.
async fn take_extras<S: Store + Sync>(
    store: &S,
    followed: &Followed,
    keys: &[(u128, StoredKey, Limit, Option<Recording>)],
) -> Result<(), Error> {
    let now_us = i64::try_from(store.now().us()).unwrap_or(i64::MAX);
    for keys in keys.chunks(ACCOUNTS_MAX) {
        let wanted = keys.iter().map(|(_, key, ..)| (subject_of(&key.key()), now_us));
        let found = followed.ledger.writer().database().known(wanted.collect()).await?;
        for ((_, key, limit, recording), found) in keys.iter().zip(found) {
            let Some(operation) = found.as_ref().and_then(extra_of) else { continue };
            let item = Item { ledger: *recording, ..Item::new(key.key(), *limit, operation) };
            let Ok(plan) = Plan::of(item) else { continue };
            // A store that does not answer gets it with the next look.
            let Ok(outcome) = store.apply(&plan).await else { continue };
            let done = outcome.answers.first().map(|answer| answer.verdict);
            if let Some(Verdict::Done { amount: 1 }) = done {
                followed.counts().extras.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

fn extra_of(found: &KnownAccount) -> Option<Operation> {
    let number = u64::try_from(found.extra_no).ok().filter(|number| *number > 0)?;
    let start = Time::from_us(u64::try_from(found.period_us).unwrap_or(0));
    Some(Operation::Extra(Extra { extra: found.extra, number, start }))
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
