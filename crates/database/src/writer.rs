//! This process as a writer of the ledger: its journal, the task that posts it, and the bounds of an outage.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::calls::{Calls, Clock, OpenCall};
use crate::journal::{Journal, JournalError, JournalFolder};
use crate::ledger::{Id, Kind, Record, Subject};
use crate::names::Names;
use crate::shipper::{Shipper, ship_whole};
use crate::{Database, Error};

/// How often records are forced to the disk.
const SYNC_EVERY: Duration = Duration::from_millis(10);
/// A database that has not answered for this long is down for rules that refuse then.
const SILENT_MAX: Duration = Duration::from_secs(3);
const RETRY_MAX: Duration = Duration::from_secs(2);
const EXPIRE_EVERY: Duration = Duration::from_secs(5);
/// How long after its end a reservation is closed in the ledger: clocks of store and server differ by less.
const EXPIRE_AFTER: Duration = Duration::from_secs(10);
const EXPIRE_MAX: i64 = 256;
/// How often the head of the chain goes to the log, which administrators of the database cannot rewrite.
const HEAD_EVERY: Duration = Duration::from_secs(3600);
/// How often journals that are older than `keep_journal` are looked for.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// Settings of a writer.
#[derive(Clone, Debug)]
pub struct WriterSettings {
    /// Folder of the journal. Only one process can use it.
    pub journal: PathBuf,
    /// Name of this server in the ledger, for people.
    pub name: String,
    /// How long records wait to be posted together.
    pub ship_every: Duration,
    /// How often this server reports that it lives, and which of its calls are posted.
    pub heartbeat_every: Duration,
    /// How long recorded charges are accepted while the database does not answer.
    pub queue_max: Duration,
    /// Largest journal that is not posted yet, in bytes.
    pub journal_max: u64,
    /// How long posted journals are kept, in case that the database is set back.
    pub keep_journal: Duration,
    /// How long the store remembers request ids.
    pub request_id_horizon: Duration,
}

impl WriterSettings {
    /// Returns the default settings with this folder.
    pub fn new(journal: impl Into<PathBuf>) -> WriterSettings {
        WriterSettings {
            journal: journal.into(),
            name: "tollgate".to_owned(),
            ship_every: Duration::from_millis(100),
            heartbeat_every: Duration::from_secs(1),
            queue_max: Duration::from_secs(15 * 60),
            journal_max: 1024 * 1024 * 1024,
            keep_journal: Duration::from_secs(24 * 3600),
            request_id_horizon: Duration::from_secs(60),
        }
    }
}

/// What a rule does while the database does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WhenDown {
    /// Goes on within the bounds of the queue.
    #[default]
    Queue,
    /// Lets the rule's failure policy answer.
    Refuse,
}

/// Why nothing can be recorded now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Outage {
    /// The database has not answered for longer than the rule permits.
    #[error("the database of the ledger has not answered for {} s", .0.as_secs())]
    DatabaseSilent(Duration),
    /// The journal has reached its largest size.
    #[error("the journal of the ledger is full: {0} bytes are not posted")]
    JournalFull(u64),
    /// The journal cannot be written.
    #[error("the journal of the ledger cannot be written")]
    JournalFailed,
}

/// How far the database has followed.
#[derive(Clone, Copy, Debug)]
struct Progress {
    shipped_seq: i64,
    /// When the last transaction that succeeded was begun.
    confirmed_at: Instant,
    /// When the journal was last posted whole.
    whole_at: Instant,
}

/// Numbers for metrics and readiness.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriterStatus {
    /// Records appended since the start.
    pub entries: u64,
    /// Records that are not posted yet.
    pub unposted: u64,
    /// Their size in the journal, about.
    pub unposted_bytes: u64,
    /// Time since the database last confirmed something.
    pub silent_for: Duration,
    /// Records of earlier incarnations that were posted at the start.
    pub recovered: u64,
    /// Failed attempts to post.
    pub failures: u64,
    /// Admissions by a failure policy that could not be journaled.
    pub unrecorded: u64,
    /// How long the oldest record that is not posted has waited, at most; zero if all are posted.
    pub lag: Duration,
    /// Size of the journal on the disk, with what is kept after it was posted.
    pub journal_bytes: u64,
    /// Settlements after the end of their reservation.
    pub late: u64,
    /// Charges that were undone, because their commit came too late for their answer.
    pub voids: u64,
    /// The bound of an outage of which more than half is used, if one is.
    pub near: Option<Bound>,
}

/// A bound after which recorded charges are refused while the database does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// The time without an answer.
    QueueMax,
    /// The size of what is not posted.
    JournalMax,
}

impl Bound {
    /// Returns the name of its setting.
    pub const fn name(self) -> &'static str {
        match self {
            Bound::QueueMax => "queue_max",
            Bound::JournalMax => "journal_max",
        }
    }
}

/// Appends records to the journal, and posts them in the background.
#[derive(Debug)]
pub struct LedgerWriter {
    database: Arc<Database>,
    shared: Arc<Shared>,
    progress: watch::Receiver<Progress>,
    stop: watch::Sender<bool>,
    task: std::sync::Mutex<Option<JoinHandle<()>>>,
    recovered: u64,
    /// Holds the lock of the folder for as long as the writer lives.
    folder: Arc<JournalFolder>,
}

#[derive(Debug)]
struct Shared {
    journal: Journal,
    settings: WriterSettings,
    names: Names,
    wake: Notify,
    calls: Calls,
    entries: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    unrecorded: AtomicU64,
    late: AtomicU64,
    voids: AtomicU64,
    journal_bytes: AtomicU64,
}

impl LedgerWriter {
    /// Posts the journals that earlier incarnations left in the folder, then begins a new one.
    ///
    /// Needs a tokio runtime with timers, which runs until [`close`](LedgerWriter::close).
    pub async fn open(database: Arc<Database>, settings: WriterSettings) -> Result<LedgerWriter, Error> {
        let folder = Arc::new(JournalFolder::open(&settings.journal)?);
        let mut recovered = 0;
        for reader in folder.recover()? {
            let writer = reader.writer();
            recovered += ship_whole(&database, reader, &settings.name, now_us(), |_| ()).await?;
            database.close(writer).await?;
            folder.remove(writer, settings.keep_journal)?;
        }
        let journal = folder.begin(Id::random()?)?;
        let shared = Arc::new(Shared {
            journal,
            settings,
            names: Names::default(),
            wake: Notify::new(),
            calls: Calls::default(),
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            unrecorded: AtomicU64::new(0),
            late: AtomicU64::new(0),
            voids: AtomicU64::new(0),
            journal_bytes: AtomicU64::new(folder.bytes()?),
        });
        let confirmed_at = Instant::now();
        // Registers the incarnation before anything is accepted.
        drop(Shipper::start(&database, shared.journal.reader(), &shared.settings.name, now_us()).await?);
        let (report, progress) =
            watch::channel(Progress { shipped_seq: 0, confirmed_at, whole_at: confirmed_at });
        let (stop, stopped) = watch::channel(false);
        sync_thread(Arc::downgrade(&shared))?;
        let work = run(Arc::clone(&database), Arc::clone(&shared), Arc::clone(&folder), report, stopped);
        let task = tokio::spawn(work);
        Ok(LedgerWriter {
            database,
            shared,
            progress,
            stop,
            task: std::sync::Mutex::new(Some(task)),
            recovered,
            folder,
        })
    }

    /// Returns the database.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// Returns the incarnation of this process.
    pub fn id(&self) -> Id {
        self.shared.journal.writer()
    }

    /// Whether a charge can be recorded now. Ask before the store is asked, and again before the append.
    pub fn accepts(&self, when_down: WhenDown) -> Result<(), Outage> {
        if self.shared.journal.has_failed() {
            return Err(Outage::JournalFailed);
        }
        let max = match when_down {
            WhenDown::Queue => self.shared.settings.queue_max,
            WhenDown::Refuse => SILENT_MAX.min(self.shared.settings.queue_max),
        };
        let Progress { shipped_seq, confirmed_at, .. } = *self.progress.borrow();
        let silent = confirmed_at.elapsed();
        if silent >= max {
            return Err(Outage::DatabaseSilent(silent));
        }
        match self.shared.unposted(shipped_seq).1 {
            bytes if bytes >= self.shared.settings.journal_max => Err(Outage::JournalFull(bytes)),
            _ => Ok(()),
        }
    }

    /// Sets the clock of the store, by which the servers compare their calls.
    pub fn set_clock(&self, clock: Clock) {
        self.shared.calls.set_clock(clock);
    }

    /// Notes that a call is sent to the store at this instant of its clock. It counts as open until the value is dropped,
    /// which must be after the append of its records.
    pub fn begin_call(&self, sent_us: i64) -> OpenCall<'_> {
        self.shared.calls.begin(sent_us)
    }

    /// Whether the database has answered lately.
    pub fn is_silent(&self) -> bool {
        self.progress.borrow().confirmed_at.elapsed() >= SILENT_MAX
    }

    /// Returns its settings.
    pub fn settings(&self) -> &WriterSettings {
        &self.shared.settings
    }

    /// Appends records to the journal, and returns the number of the last one. Then they survive the end of this process.
    pub fn append(&self, records: &[Record]) -> Result<i64, JournalError> {
        let named = self.shared.names.attach(records);
        let records = named.as_deref().unwrap_or(records);
        let appended = self.shared.journal.append(records);
        if appended.is_err() {
            self.shared.names.detach(records);
        }
        let (last, bytes) = appended?;
        self.shared.entries.fetch_add(records.len() as u64, Ordering::Relaxed);
        for record in records {
            match record.kind() {
                Kind::Late => self.shared.late.fetch_add(1, Ordering::Relaxed),
                Kind::Void => self.shared.voids.fetch_add(1, Ordering::Relaxed),
                _ => continue,
            };
        }
        self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(last)
    }

    /// Notes the name of an account. The next record of the account carries it to the database, if it is new.
    pub fn note_name(&self, subject: &Subject, name: &str) {
        self.shared.names.note(subject, name);
    }

    /// Returns the folder of the journal.
    pub fn folder(&self) -> &JournalFolder {
        &self.folder
    }

    /// Waits until the record `seq` is committed in the database, at most `within`. Returns whether it is.
    pub async fn committed(&self, seq: i64, within: Duration) -> bool {
        self.shared.wake.notify_one();
        let mut progress = self.progress.clone();
        let reached = progress.wait_for(|progress| progress.shipped_seq >= seq);
        matches!(tokio::time::timeout(within, reached).await, Ok(Ok(_)))
    }

    /// Counts an admission that a failure policy gave and that could not be journaled.
    pub fn count_unrecorded(&self) {
        self.shared.unrecorded.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns its numbers.
    pub fn status(&self) -> WriterStatus {
        let Progress { shipped_seq, confirmed_at, whole_at } = *self.progress.borrow();
        let (unposted, unposted_bytes) = self.shared.unposted(shipped_seq);
        let settings = &self.shared.settings;
        let near = match () {
            () if confirmed_at.elapsed() > settings.queue_max / 2 => Some(Bound::QueueMax),
            () if unposted_bytes > settings.journal_max / 2 => Some(Bound::JournalMax),
            () => None,
        };
        WriterStatus {
            lag: if unposted == 0 { Duration::ZERO } else { whole_at.elapsed() },
            journal_bytes: self.shared.journal_bytes.load(Ordering::Relaxed),
            late: self.shared.late.load(Ordering::Relaxed),
            voids: self.shared.voids.load(Ordering::Relaxed),
            near,
            entries: self.shared.entries.load(Ordering::Relaxed),
            unposted,
            unposted_bytes,
            silent_for: confirmed_at.elapsed(),
            recovered: self.recovered,
            failures: self.shared.failures.load(Ordering::Relaxed),
            unrecorded: self.shared.unrecorded.load(Ordering::Relaxed),
        }
    }

    /// Posts what is left, as far as the database answers. What is not posted stays in the journal for the next start.
    pub async fn close(&self) {
        self.stop.send_replace(true);
        self.shared.wake.notify_one();
        let task = self.task.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(event = "shipper_ended", %error, "the task that posts the journal has panicked");
        }
    }
}

impl Shared {
    /// Returns the number of records that are not posted, and about how many bytes they have.
    fn unposted(&self, shipped_seq: i64) -> (u64, u64) {
        let unposted = u64::try_from(self.journal.last_seq() - shipped_seq).unwrap_or(0);
        let entries = self.entries.load(Ordering::Relaxed).max(1);
        let mean = self.bytes.load(Ordering::Relaxed).div_ceil(entries);
        (unposted, unposted.saturating_mul(mean))
    }
}

/// Forces records to the disk for as long as the writer lives.
fn sync_thread(shared: std::sync::Weak<Shared>) -> Result<(), Error> {
    let work = move || {
        while let Some(shared) = shared.upgrade() {
            // A failure is logged by the journal, which then accepts nothing more.
            if shared.journal.sync().is_err() {
                return;
            }
            drop(shared);
            thread::sleep(SYNC_EVERY);
        }
    };
    thread::Builder::new().name("tollgate-journal".to_owned()).spawn(work).map(drop).map_err(Error::Thread)
}

/// Posts the journal until it is stopped and everything is posted.
async fn run(
    database: Arc<Database>,
    shared: Arc<Shared>,
    folder: Arc<JournalFolder>,
    report: watch::Sender<Progress>,
    stopped: watch::Receiver<bool>,
) {
    let name = &shared.settings.name;
    let mut shipper: Option<Shipper<'_>> = None;
    let mut wait = shared.settings.ship_every;
    let (mut last_expiry, mut last_beat, mut last_prune) = (Instant::now(), Instant::now(), Instant::now());
    let mut is_down = false;
    let mut last_head: Option<Instant> = None;
    let mut whole_at = Instant::now();
    loop {
        let stops = *stopped.borrow();
        if !stops {
            // The time-out is the usual way; a caller that waits for its commit wakes the task.
            drop(tokio::time::timeout(wait, shared.wake.notified()).await);
        }
        let began = Instant::now();
        let done = async {
            let shipper = match &mut shipper {
                Some(shipper) => shipper,
                none => {
                    none.insert(Shipper::start(&database, shared.journal.reader(), name, now_us()).await?)
                }
            };
            let mut confirmed = false;
            // Taken before the journal is read to its end: what was sent earlier is then in the ledger.
            let clean_at_us = shared.calls.clean_at(now_us());
            while shipper.ship(now_us()).await? > 0 {
                confirmed = true;
                report.send_replace(Progress {
                    shipped_seq: shipper.cursor(),
                    confirmed_at: began,
                    whole_at,
                });
            }
            whole_at = began;
            if last_beat.elapsed() >= shared.settings.heartbeat_every {
                shipper.heartbeat(clean_at_us, now_us()).await?;
                (confirmed, last_beat) = (true, began);
            }
            if confirmed {
                report.send_replace(Progress {
                    shipped_seq: shipper.cursor(),
                    confirmed_at: began,
                    whole_at,
                });
                // Only for people, who learn of a folder that cannot be read from the next append.
                if let Ok(bytes) = folder.bytes() {
                    shared.journal_bytes.store(bytes, Ordering::Relaxed);
                }
            }
            if last_expiry.elapsed() >= EXPIRE_EVERY {
                last_expiry = began;
                let now_us = now_us();
                database.expire(now_us - EXPIRE_AFTER.as_micros() as i64, EXPIRE_MAX, now_us).await?;
            }
            Ok::<(), Error>(())
        };
        let done = done.await;
        if let Some(shipper) = shipper.as_ref().filter(|_| last_prune.elapsed() >= PRUNE_EVERY) {
            last_prune = began;
            // Also of a journal that grows: its posted segments are kept for `keep_journal` only.
            let writer = shared.journal.writer();
            if let Err(error) = folder.prune(writer, shipper.cursor(), shared.settings.keep_journal) {
                tracing::warn!(event = "journal_not_pruned", %error, "old segments of the journal stay");
            }
        }
        let due = last_head.is_none_or(|at: Instant| at.elapsed() >= HEAD_EVERY);
        if let Some((block, head)) = shipper.as_ref().and_then(Shipper::head).filter(|_| due) {
            last_head = Some(began);
            log_head(shared.journal.writer(), block, &head);
        }
        match done {
            Ok(()) => {
                wait = shared.settings.ship_every;
                if std::mem::take(&mut is_down) {
                    tracing::info!(event = "ledger_back", "the database of the ledger answers again");
                }
                if stops {
                    if let Err(error) = database.close(shared.journal.writer()).await {
                        tracing::warn!(event = "ledger_not_closed", %error, "cannot close the writer");
                    }
                    return;
                }
            }
            Err(error) => {
                shared.failures.fetch_add(1, Ordering::Relaxed);
                if !std::mem::replace(&mut is_down, true) {
                    let error: &dyn std::error::Error = &error;
                    tracing::error!(
                        event = "ledger_down",
                        error,
                        "the ledger cannot be posted to the database"
                    );
                }
                if stops {
                    return;
                }
                wait = (wait * 2).min(RETRY_MAX);
            }
        }
    }
}

fn log_head(writer: Id, block: i64, head: &[u8]) {
    let head: String = head.iter().map(|byte| format!("{byte:02x}")).collect();
    tracing::info!(event = "ledger_head", %writer, block, head, "the head of this server's chain in the ledger");
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
