//! The store that a command line names: in Redis or Valkey, the one that servers share.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tollgate::core::{Exactness, Outcome, Plan, Store, StoreError, Time};
use tollgate::store::redis::{OpenError, RedisSettings, RedisStore};

use crate::cli::hash_key::variable;
use crate::failure::Failure;
use crate::files;
use crate::store_url::{has_sentinels, holds_password, settings_of};

mod hints;

const PASSWORD: &str = "TOLLGATE_STORE_PASSWORD";
const SENTINEL_PASSWORD: &str = "TOLLGATE_STORE_SENTINEL_PASSWORD";
/// People wait longer than requests do, and their network may be a slow one.
const DEADLINE: Duration = Duration::from_secs(3);

// Not a doc comment: that would become the help of every command that takes these arguments.
// The arguments that name a shared store.
#[derive(clap::Args)]
pub(crate) struct SharedStore {
    /// Decide in this store and not in memory: redis://USER@HOST:PORT/DATABASE, redis+sentinel://USER@HOST:PORT,HOST:PORT/NAME
    /// or redis+cluster://USER@HOST:PORT,HOST:PORT; with rediss instead of redis for TLS
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// A file with the password of that store; or put it into the variable TOLLGATE_STORE_PASSWORD
    #[arg(long, value_name = "FILE", requires = "store")]
    store_password_file: Option<PathBuf>,
    /// A file with the password of its sentinels, if they have one; or put it into the variable TOLLGATE_STORE_SENTINEL_PASSWORD
    #[arg(long, value_name = "FILE", requires = "store")]
    store_sentinel_password_file: Option<PathBuf>,
}

impl SharedStore {
    /// Whether one is named.
    pub(crate) fn is_named(&self) -> bool {
        self.store.is_some()
    }

    /// How to open it, if one is named.
    pub(crate) fn settings(&self) -> Result<Option<RedisSettings>> {
        let Some(url) = &self.store else { return Ok(None) };
        if holds_password(url) {
            let hint = format!(
                "leave it out, and put it into the variable {PASSWORD} or into a file for --store-password-file, and that of \
                 sentinels into {SENTINEL_PASSWORD} or a file for --store-sentinel-password-file; an @ that is part of a path \
                 or of a parameter is written %40"
            );
            let what = "the URL of the store holds a password, and others can see command lines";
            return Err(Failure::new(what, hint).into());
        }
        let password = secret(self.store_password_file.as_deref(), PASSWORD)?;
        let sentinel_password = if has_sentinels(url) {
            secret(self.store_sentinel_password_file.as_deref(), SENTINEL_PASSWORD)?
        } else if self.store_sentinel_password_file.is_some() {
            let what = "--store-sentinel-password-file is given, and the store has no sentinels";
            return Err(Failure::new(what, "leave it out, or write redis+sentinel://HOST:PORT/NAME").into());
        } else {
            None
        };
        let settings =
            settings_of(url, password.as_deref(), sentinel_password.as_deref()).map_err(|error| {
                let hint = "for instance redis://tollgate@redis.example.com:6379/0, \
                        redis+sentinel://tollgate@one.example.com:26379,two.example.com:26379/gate or \
                        redis+cluster://tollgate@one.example.com:6379,two.example.com:6379";
                Failure::new(format!("--store: {error}"), hint)
            })?;
        Ok(Some(settings.deadline(DEADLINE)))
    }
}

/// What a file holds, or else a variable.
fn secret(file: Option<&Path>, name: &str) -> Result<Option<String>, Failure> {
    match file {
        Some(path) => Ok(Some(files::read(path)?.text().trim_ascii().to_owned())),
        None => variable(name),
    }
}

/// A store that remembers what its last answer was: where it is down, the rules' failure policies answer, and whoever
/// typed a command wants to know why.
pub(crate) struct Watched {
    store: RedisStore,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    now: Option<Time>,
    failure: Option<Failure>,
}

impl Watched {
    /// The store, once it has answered.
    pub(crate) async fn connect(settings: RedisSettings) -> Result<Watched, Failure> {
        match settings.connect().await {
            Ok(store) => Ok(Watched { store, last: Mutex::default() }),
            Err(OpenError::Redis(error)) => Err(hints::failure(&error)),
            Err(error @ OpenError::Certificates(_)) => Err(hints::certificates(&error)),
            Err(error) => {
                Err(Failure::of_store(error.to_string(), "this should not happen; please report it"))
            }
        }
    }

    /// When the last check was decided, and what went wrong if it was not.
    pub(crate) fn last(&self) -> Result<Time, Failure> {
        let Last { now, failure } = std::mem::take(&mut *self.lock());
        failure.map_or_else(|| Ok(now.unwrap_or_else(|| self.store.now())), Err)
    }

    fn lock(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Watched {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        let found = self.store.apply(plan).await;
        *self.lock() = match &found {
            Ok(outcome) => Last { now: Some(outcome.now), failure: None },
            Err(error) => Last { now: None, failure: Some(hints::failure(error)) },
        };
        found
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        self.store.apply_unawaited(plan);
    }

    fn exactness(&self, plan: &Plan<'_>) -> Exactness {
        self.store.exactness(plan)
    }

    fn now(&self) -> Time {
        self.store.now()
    }
}
