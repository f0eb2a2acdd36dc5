//! The arguments that name a shared Redis or Valkey.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tollgate::core::rules::RuleSet;
use tollgate::core::{Exactness, Outcome, Plan, Store, StoreError, SubjectHasher, Time};
use tollgate::store::redis::{OpenError, RedisSettings, RedisStore};

use crate::cli::hash_key::variable;
use crate::config::store_url::{has_sentinels, holds_password, settings_of};
use crate::failure::Failure;
use crate::files;
use crate::serve::fleet;

mod hints;

const PASSWORD: &str = "TOLLGATE_STORE_PASSWORD";
const SENTINEL_PASSWORD: &str = "TOLLGATE_STORE_SENTINEL_PASSWORD";
/// Longer than a server's deadline: a person waits for the answer, perhaps over a slow network.
const DEADLINE: Duration = Duration::from_secs(3);

// Not a doc comment: clap would use it as the help of every command with these arguments.
// Arguments that name a shared store.
#[derive(clap::Args)]
pub(crate) struct StoreArgs {
    /// Decide in this store instead of in memory: redis://USER@HOST:PORT/DATABASE,
    /// redis+sentinel://USER@HOST:PORT,HOST:PORT/NAME or redis+cluster://USER@HOST:PORT,HOST:PORT; rediss for TLS
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// File with the password of the store; without it, TOLLGATE_STORE_PASSWORD is used
    #[arg(long, value_name = "FILE", requires = "store")]
    store_password_file: Option<PathBuf>,
    /// File with the password of the sentinels; without it, TOLLGATE_STORE_SENTINEL_PASSWORD is used
    #[arg(long, value_name = "FILE", requires = "store")]
    store_sentinel_password_file: Option<PathBuf>,
}

impl StoreArgs {
    /// Whether a shared store is named.
    pub(crate) fn is_set(&self) -> bool {
        self.store.is_some()
    }

    /// Returns the settings of the store, or `None` if no store is named.
    pub(crate) fn settings(&self) -> Result<Option<RedisSettings>> {
        let Some(url) = &self.store else { return Ok(None) };
        if holds_password(url) {
            let hint = format!(
                "remove it, and set {PASSWORD} or --store-password-file instead (for sentinels {SENTINEL_PASSWORD} or \
                 --store-sentinel-password-file); write an @ in a path or parameter as %40"
            );
            let what = "the URL of the store contains a password, which other users could see";
            return Err(Failure::new(what, hint).into());
        }
        let password = secret(self.store_password_file.as_deref(), PASSWORD)?;
        let sentinel_password = if has_sentinels(url) {
            secret(self.store_sentinel_password_file.as_deref(), SENTINEL_PASSWORD)?
        } else if self.store_sentinel_password_file.is_some() {
            let what = "unused --store-sentinel-password-file: the store has no sentinels";
            return Err(Failure::new(what, "remove it, or write redis+sentinel://HOST:PORT/NAME").into());
        } else {
            None
        };
        let settings =
            settings_of(url, password.as_deref(), sentinel_password.as_deref()).map_err(|error| {
                let hint = "write a URL like redis://tollgate@redis.example.com:6379/0, \
                        redis+sentinel://tollgate@one.example.com:26379,two.example.com:26379/gate or \
                        redis+cluster://tollgate@one.example.com:6379,two.example.com:6379";
                Failure::new(format!("invalid --store: {error}"), hint)
            })?;
        Ok(Some(settings.deadline(DEADLINE)))
    }
}

/// Converts the error of a store that cannot be opened to a failure with a hint.
pub(crate) fn open_failure(error: &OpenError) -> Failure {
    match error {
        OpenError::Redis(error) => hints::failure(error),
        OpenError::Certificates(_) => hints::certificates(error),
        _ => Failure::of_store(error.to_string(), "this should not happen; please report it"),
    }
}

/// Converts the error of a store to a failure with a hint.
pub(crate) fn store_failure(error: &StoreError) -> Failure {
    hints::failure(error)
}

/// Reads a secret from a file or, without a file, from a variable.
fn secret(file: Option<&Path>, name: &str) -> Result<Option<String>, Failure> {
    match file {
        Some(path) => Ok(Some(files::read(path)?.text().trim_ascii().to_owned())),
        None => variable(name),
    }
}

/// A Redis store that records its last result. If the store fails, the rules' failure policies decide, and the command
/// must still report why.
pub(crate) struct RecordingStore {
    store: RedisStore,
    last: Mutex<LastResult>,
}

#[derive(Default)]
struct LastResult {
    now: Option<Time>,
    failure: Option<Failure>,
}

impl RecordingStore {
    /// Connects to the store and waits for its first answer.
    pub(crate) async fn connect(settings: RedisSettings) -> Result<RecordingStore, Failure> {
        let store = settings.connect().await.map_err(|error| open_failure(&error))?;
        Ok(RecordingStore { store, last: Mutex::default() })
    }

    /// Compares the hash key with that of the servers on this store. Writes nothing.
    pub(crate) async fn check_hash_key(
        &self,
        hasher: &SubjectHasher,
        rules: &RuleSet,
    ) -> Result<(), Failure> {
        let ours = hasher.fingerprint();
        let found = fleet::other_hash_keys(&self.store, &ours, &fleet::namespace(rules)).await;
        match found.map_err(|error| hints::failure(&error))? {
            None => Ok(()),
            Some(theirs) => Err(Failure::new(
                format!("the servers on this store have another hash key (theirs: {theirs}; ours: {ours})"),
                "pass the hash key of your servers with --hash-key-file or TOLLGATE_HASH_KEY; nothing was charged",
            )),
        }
    }

    /// Returns the store's time of the last check, or the failure of the store.
    pub(crate) fn last(&self) -> Result<Time, Failure> {
        let LastResult { now, failure } = std::mem::take(&mut *self.lock());
        failure.map_or_else(|| Ok(now.unwrap_or_else(|| self.store.now())), Err)
    }

    fn lock(&self) -> MutexGuard<'_, LastResult> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for RecordingStore {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        let result = self.store.apply(plan).await;
        *self.lock() = match &result {
            Ok(outcome) => LastResult { now: Some(outcome.now), failure: None },
            Err(error) => LastResult { now: None, failure: Some(hints::failure(error)) },
        };
        result
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        self.store.apply_unawaited(plan);
    }

    fn exactness(&self, plan: &Plan<'_>) -> Exactness {
        self.store.exactness(plan)
    }

    fn has_shared_clock(&self) -> bool {
        self.store.has_shared_clock()
    }

    fn generation(&self) -> u64 {
        self.store.generation()
    }

    fn now(&self) -> Time {
        self.store.now()
    }
}
