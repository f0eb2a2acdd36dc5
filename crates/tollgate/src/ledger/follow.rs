//! Keeps the gate equal to the ledger: drift is found and adjusted, corrections and grants are taken over.
//!
//! 1. Every key that this process has touched is looked at: units used, and the revision of its state.
//! 2. The look waits until all servers are clean: until everything that was sent to the store before the look is in the ledger,
//!    or is known to have failed.
//! 3. What the ledger says for that revision is compared with the look. The difference is subtracted in the gate, if no other
//!    server did so meanwhile.
//!
//! So a charge whose answer was lost, a void, an admission by policy and a lost write of the store all end in the same numbers.

use std::collections::{HashSet, VecDeque};
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate_core::algorithm::meter::EXPIRY_DEFAULT;
use tollgate_core::stamped::{Adjust, Extra, Revision};
use tollgate_core::{Item, Limit, Operation, Plan, Recording, Store, StoredKey, Time, Verdict};
use tollgate_database::ledger::{Account, Subject};
use tollgate_database::{ACCOUNTS_MAX, Error, KnownAccount, Look};

use super::followed::{Followed, KnownKey};
use super::records::{account_at, subject_of};
use super::watch::{Watch, Watched};

/// Most looks that wait for the servers to be clean.
const LOOKS_MAX: usize = 1 << 14;
/// Keys that are looked at in one round.
const ROUND_MAX: usize = 1024;
/// The longest time that a call to the store may take.
const DEADLINE_MAX: Duration = Duration::from_secs(10);
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
    pub(super) restores: AtomicU64,
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

/// A look that waits until all servers are clean.
struct WaitingLook {
    fingerprint: u128,
    account: Account,
    used: u64,
    revision: Revision,
    /// When the servers must be clean, by the store's clock.
    clean_after_us: i64,
}

/// Follows the ledger until the store is dropped.
pub(super) async fn run<S: Store + Send + Sync>(store: Weak<S>, followed: Weak<Followed>) {
    let Some(settings) = followed.upgrade().map(|followed| followed.ledger().follow_settings()) else {
        return;
    };
    let mut round = Round { looks: VecDeque::new(), watch: Watch::default(), changes: None };
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
    watch: Watch,
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
        let database = followed.ledger().writer().database();
        let (position, accounts) = database.changed(self.changes).await?;
        self.changes = Some(position);
        if accounts.is_empty() {
            return Ok(());
        }
        let subjects: HashSet<Subject> = accounts.into_iter().map(|account| account.subject).collect();
        let changed = followed.filter(|key| subjects.contains(&subject_of(&key.key())));
        take_extras(store, followed, &changed).await
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
        let late_max = followed.longest_horizon().map_or(Duration::ZERO, |horizon| horizon + DEADLINE_MAX);
        let late_max = late_max.max(settings.late_max);
        let late_us = i64::try_from(late_max.as_micros()).unwrap_or(i64::MAX);
        for known in &dirty {
            match look_at(store, &known.key, known.limit, known.recording).await {
                Some((account, used, revision, now_us)) => {
                    let (fingerprint, clean_after_us) = (known.fingerprint, now_us.saturating_add(late_us));
                    self.looks.push_back(WaitingLook {
                        fingerprint,
                        account,
                        used,
                        revision,
                        clean_after_us,
                    });
                }
                // The store is away, or the state is lost: the next check restores it.
                None => followed.looked(known.fingerprint, false),
            }
        }
        take_extras(store, followed, &dirty).await
    }

    /// Compares looks for which all servers are clean.
    async fn compare<S: Store + Sync>(&mut self, store: &S, followed: &Followed) -> Result<(), Error> {
        if self.looks.is_empty() {
            return Ok(());
        }
        let writer = followed.ledger().writer();
        let silent_max = writer.settings().queue_max + SILENT_MORE;
        let writers = writer.database().open_writers().await?;
        let clean_at_us = match self.watch.see(&writers, Instant::now(), silent_max) {
            Watched::CleanAt(clean_at_us) => clean_at_us,
            Watched::NoWriter => return Ok(()),
            Watched::SetBack => {
                // What other servers post again is not there yet. So only later looks can be compared.
                self.looks.drain(..).for_each(|look| followed.looked(look.fingerprint, true));
                return Ok(());
            }
        };
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
    followed.ledger().follow_counts().compared.fetch_add(1, Ordering::Relaxed);
    let Some(KnownKey { key, limit, recording, .. }) = followed.find(look.fingerprint) else { return false };
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
        let counts = followed.ledger().follow_counts();
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
    keys: &[KnownKey],
) -> Result<(), Error> {
    let now_us = i64::try_from(store.now().us()).unwrap_or(i64::MAX);
    for keys in keys.chunks(ACCOUNTS_MAX) {
        let wanted = keys.iter().map(|known| (subject_of(&known.key.key()), now_us));
        let found = followed.ledger().writer().database().known(wanted.collect()).await?;
        for (KnownKey { key, limit, recording, .. }, found) in keys.iter().zip(found) {
            let Some(operation) = found.as_ref().and_then(extra_of) else { continue };
            let item = Item { ledger: *recording, ..Item::new(key.key(), *limit, operation) };
            let Ok(plan) = Plan::of(item) else { continue };
            // A store that does not answer gets it with the next look.
            let Ok(outcome) = store.apply(&plan).await else { continue };
            let done = outcome.answers.first().map(|answer| answer.verdict);
            if let Some(Verdict::Done { amount: 1 }) = done {
                followed.ledger().follow_counts().extras.fetch_add(1, Ordering::Relaxed);
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
