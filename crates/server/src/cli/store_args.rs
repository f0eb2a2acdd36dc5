//! The arguments that name a shared Redis or Valkey.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tollgate::core::{Exactness, Outcome, Plan, Store, StoreError, Time};
use tollgate::store::redis::{OpenError, RedisSettings, RedisStore, RedisUrlError};

use crate::cli::hash_key::variable;
use crate::cli::input;
use crate::cli::terminal::Failure;

mod hints;

pub(crate) use hints::chain;

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

/// The store at a URL without passwords, with these passwords.
pub(crate) fn settings_of(
    url: &str,
    password: Option<&str>,
    sentinel_password: Option<&str>,
) -> Result<RedisSettings, RedisUrlError> {
    let mut url = password.map_or_else(|| url.to_owned(), |password| with_password(url, password));
    if let Some(password) = sentinel_password {
        url = with_sentinel_password(&url, password);
    }
    RedisSettings::url(&url)
}

/// Reads a secret from a file or, without a file, from a variable.
fn secret(file: Option<&Path>, name: &str) -> Result<Option<String>, Failure> {
    match file {
        Some(path) => Ok(Some(input::read(path)?.text().trim_ascii().to_owned())),
        None => variable(name),
    }
}

/// Whether there is more than a user in front of the hosts, or a parameter with a password behind them. Nothing of such a
/// URL is ever repeated.
pub(crate) fn holds_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let before = rest.rsplit_once('@').is_some_and(|(user, _)| user.contains([':', '/', '?', '#']));
    // A name can be written with percent signs, too.
    let plain = percent_decode_str(rest).decode_utf8_lossy().to_ascii_lowercase();
    before || plain.contains("password=")
}

/// Whether it is behind sentinels.
pub(crate) fn has_sentinels(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| scheme.ends_with("+sentinel"))
}

fn with_password(url: &str, password: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (user, place) = rest.split_once('@').unwrap_or(("", rest));
    format!("{scheme}://{user}:{}@{place}", utf8_percent_encode(password, NON_ALPHANUMERIC))
}

fn with_sentinel_password(url: &str, password: &str) -> String {
    let password = utf8_percent_encode(password, NON_ALPHANUMERIC);
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}sentinel_password={password}")
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
        match settings.connect().await {
            Ok(store) => Ok(RecordingStore { store, last: Mutex::default() }),
            Err(OpenError::Redis(error)) => Err(hints::failure(&error)),
            Err(error @ OpenError::Certificates(_)) => Err(hints::certificates(&error)),
            Err(error) => {
                Err(Failure::of_store(error.to_string(), "this should not happen; please report it"))
            }
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

    fn now(&self) -> Time {
        self.store.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_seen_however_it_is_written() {
        for (url, holds) in [
            ("redis://host:6379/0", false),
            ("redis://user@host:6379/0?prefix=a:", false),
            ("rediss://host?ca=/etc/ca.pem", false),
            ("redis://:secret@host", true),
            ("redis://user:secret@host", true),
            ("redis://user:sec/ret@host", true),
            ("redis://sec/ret@host", true),
            ("redis://sec?ret@host", true),
            ("redis://sec#ret@host", true),
            ("redis:user:secret@host", true),
            ("redis+sentinel://user@a:1,b:2,[::1]:3/gate/1?sentinel_user=s&sentinel_tls=no", false),
            ("rediss+cluster://user@a:1,b:2?ca=/etc/ca.pem&prefix=a:", false),
            ("redis+cluster://a:1,b:2", false),
            ("redis+cluster://:secret@a:1,b:2", true),
            ("redis+cluster://a:1,user:secret@b:2", true),
            ("redis+cluster://a,sec/ret@b", true),
            ("redis+sentinel://a:1,b:2/gate?sentinel_password=secret", true),
            ("redis+sentinel://a:1/gate?prefix=a:&sentinel_password=secret", true),
            ("redis+sentinel://a:1/gate?sentinel%5Fpassword=secret", true),
            ("redis+sentinel://a:1/gate?Sentinel_Pass%77ord=secret", true),
            ("redis://a:1?password=secret", true),
        ] {
            assert_eq!(holds_password(url), holds, "{url}");
        }
    }

    #[test]
    fn any_password_survives_the_way_through_a_url() {
        for (url, expected) in [
            ("redis://host/1", "redis://:a%25%40%3A%2F%20b@host/1"),
            ("rediss://tollgate@host", "rediss://tollgate:a%25%40%3A%2F%20b@host"),
            ("redis+cluster://a:1,b:2", "redis+cluster://:a%25%40%3A%2F%20b@a:1,b:2"),
            (
                "redis+sentinel://u@a,[::1]:2/m/1?prefix=a:",
                "redis+sentinel://u:a%25%40%3A%2F%20b@a,[::1]:2/m/1?prefix=a:",
            ),
        ] {
            assert_eq!(with_password(url, "a%@:/ b"), expected);
            assert!(RedisSettings::url(expected).is_ok(), "{expected}");
        }
        for (url, expected) in [
            ("redis+sentinel://a,b/m", "redis+sentinel://a,b/m?sentinel_password=a%26%2B%23%20b"),
            (
                "redis+sentinel://a/m?prefix=a:",
                "redis+sentinel://a/m?prefix=a:&sentinel_password=a%26%2B%23%20b",
            ),
        ] {
            assert_eq!(with_sentinel_password(url, "a&+# b"), expected);
            assert!(RedisSettings::url(expected).is_ok(), "{expected}");
        }
    }

    #[test]
    fn only_what_is_behind_sentinels_has_any() {
        for (url, has) in [
            ("redis+sentinel://a/m", true),
            ("rediss+sentinel://a/m", true),
            ("redis://sentinel/1", false),
            ("redis+cluster://a", false),
            ("sentinel", false),
        ] {
            assert_eq!(has_sentinels(url), has, "{url}");
        }
    }
}
