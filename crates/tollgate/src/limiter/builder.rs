//! Settings of a limiter.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "redis")]
use tollgate_core::StoreError;
use tollgate_core::rules::RuleSet;
use tollgate_core::{Store, SubjectHashers};
use tollgate_document::Source;

use super::store_adapter::CustomStore;
use super::{Backing, BuildError, Limiter, LocalLimiter};
use crate::clock::{AnyClock, Clock};
use crate::engine::Setup;
use crate::guard::{FleetSize, Guarded};
use crate::store::memory::MemoryStore;

/// Builds a [`LocalLimiter`].
#[derive(Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct LocalLimiterBuilder {
    setup: Setup,
    clock: AnyClock,
    keys_max: Option<usize>,
}

/// Builds a [`Limiter`].
#[derive(Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct LimiterBuilder {
    setup: Setup,
    store: StoreChoice,
    /// 0 if it is not stated.
    servers: u32,
    #[cfg(feature = "redis")]
    require_store: bool,
    #[cfg(feature = "ledger")]
    ledger: Option<crate::ledger::Ledger>,
}

#[derive(Default)]
enum StoreChoice {
    #[default]
    Memory,
    Url(String),
    #[cfg(feature = "redis")]
    Redis(Box<crate::store::redis::RedisSettings>),
    Custom(CustomStore),
}

/// The settings that both builders have.
macro_rules! common_settings {
    ($builder:ident) => {
        impl $builder {
            /// Sets the rules as YAML text.
            pub fn rules_yaml(self, rules: impl Into<String>) -> Self {
                $builder { setup: self.setup.rules_yaml(rules), ..self }
            }

            /// Reads the rules from a YAML file. If it is invalid, `build` reports every problem with its line and its
            /// fix.
            pub fn rules_file(self, path: impl AsRef<Path>) -> Self {
                $builder { setup: self.setup.rules_file(path), ..self }
            }

            /// Loads the rules file again when it changes, within about a second. Off by default.
            ///
            /// Consumption stays. If the new file is invalid or cannot be read, the old rules stay in force. Both are
            /// logged with `tracing`, or passed to [`on_reload`](Self::on_reload).
            pub fn watch_rules(self, watch: bool) -> Self {
                $builder { setup: self.setup.watch_rules(watch), ..self }
            }

            /// Calls `on_reload` instead of logging after each reload of a watched rules file: with the new version of
            /// the rules, or with the reason why the old rules stay in force.
            pub fn on_reload(self, on_reload: impl Fn(Result<u64, &BuildError>) + Send + 'static) -> Self {
                $builder { setup: self.setup.on_reload(on_reload), ..self }
            }

            /// Sets the secret that turns attribute values into subjects. All servers of one store must share it. Without
            /// it a limiter with the memory store makes a random one.
            pub fn hash_key(self, key: impl Into<SubjectHashers>) -> Self {
                $builder { setup: self.setup.hash_key(key), ..self }
            }

            /// Sets how long request ids are remembered; one minute by default. See
            /// [`Request::id`](crate::Request::id).
            pub fn request_id_horizon(self, horizon: Duration) -> Self {
                $builder { setup: self.setup.request_horizon(horizon), ..self }
            }

            /// Sets how long receipts can be used; one hour by default. The store remembers every return and every reset
            /// for this long, and declines older receipts.
            pub fn receipt_life(self, life: Duration) -> Self {
                $builder { setup: self.setup.receipt_life(life), ..self }
            }

            /// Sets rules that are parsed already.
            #[doc(hidden)]
            pub fn rules(self, rules: RuleSet) -> Self {
                $builder { setup: self.setup.rules(rules), ..self }
            }

            /// Sets the rules as a YAML text with a name for messages.
            #[doc(hidden)]
            pub fn rules_source(self, source: Source) -> Self {
                $builder { setup: self.setup.rules_source(source), ..self }
            }
        }
    };
}

common_settings!(LocalLimiterBuilder);
common_settings!(LimiterBuilder);

impl LocalLimiterBuilder {
    /// Sets the clock, for tests and simulations: see [`ManualClock`](crate::ManualClock).
    pub fn clock(self, clock: impl Clock + 'static) -> LocalLimiterBuilder {
        LocalLimiterBuilder { clock: AnyClock::custom(clock), ..self }
    }

    /// Sets how many keys the memory store holds; ten million by default. Subjects beyond that share one overflow
    /// subject per rule.
    ///
    /// A key takes about 48 bytes under a window, bucket, meter or penalty, and 150 to 250 bytes under other limits, plus
    /// 8 bytes for each part of a sliding window beyond six, 16 to 32 for each request in a log, and 48 to 96 for each
    /// lease or reservation.
    pub fn keys_max(self, keys_max: usize) -> LocalLimiterBuilder {
        LocalLimiterBuilder { keys_max: Some(keys_max), ..self }
    }

    /// Builds the limiter.
    pub fn build(self) -> Result<LocalLimiter, BuildError> {
        let mut store = MemoryStore::with_clock(self.clock);
        if let Some(keys_max) = self.keys_max {
            store = store.keys_max(keys_max);
        }
        Ok(LocalLimiter { engine: self.setup.refuse_recorded(true).build(store)? })
    }
}

impl LimiterBuilder {
    /// Chooses the store by its URL:
    ///
    /// - `memory://`: the memory store, in this process only. This is the default.
    /// - `redis://user:password@host:port/database`: one Redis or Valkey server.
    /// - `redis+sentinel://host:port,host:port/name`: the primary that these sentinels know by this name.
    /// - `redis+cluster://host:port,host:port`: the cluster that these servers belong to.
    ///
    /// `rediss`, `rediss+sentinel` and `rediss+cluster` use TLS. Redis needs the feature `redis`.
    pub fn store(self, url: impl Into<String>) -> LimiterBuilder {
        LimiterBuilder { store: StoreChoice::Url(url.into()), ..self }
    }

    /// Chooses a Redis store with its settings.
    #[cfg(feature = "redis")]
    pub fn redis(self, settings: crate::store::redis::RedisSettings) -> LimiterBuilder {
        LimiterBuilder { store: StoreChoice::Redis(Box::new(settings)), ..self }
    }

    /// Chooses a store of your own, or one that wraps another.
    pub fn custom_store(self, store: impl Store + Send + Sync + 'static) -> LimiterBuilder {
        LimiterBuilder { store: StoreChoice::Custom(CustomStore::new(store)), ..self }
    }

    /// States how many servers share the store. The failure policy `local fair` gives each an equal share of a limit.
    pub fn servers(self, servers: u32) -> LimiterBuilder {
        LimiterBuilder { servers, ..self }
    }

    /// Sets whether [`build`](Self::build) fails while Redis is down. Off by default: the rules' failure policies answer until
    /// Redis is up.
    #[cfg(feature = "redis")]
    pub fn require_store(self, require_store: bool) -> LimiterBuilder {
        LimiterBuilder { require_store, ..self }
    }

    /// Records what rules with `ledger` admit. Without it, such a rule is an error of [`build`](Self::build).
    #[cfg(feature = "ledger")]
    pub fn ledger(self, ledger: &crate::ledger::Ledger) -> LimiterBuilder {
        LimiterBuilder { ledger: Some(ledger.clone()), ..self }
    }

    /// Builds the limiter. Waits until the store has answered, or has failed to answer. Wrong credentials are an error.
    pub async fn build(self) -> Result<Limiter, BuildError> {
        #[cfg(feature = "ledger")]
        let this = match self.ledger.clone() {
            Some(ledger) => self.recorded_by(&ledger).await?,
            None => self,
        };
        #[cfg(not(feature = "ledger"))]
        let this = self;
        let LimiterBuilder { setup, store, servers, .. } = this;
        #[cfg(feature = "ledger")]
        let has_ledger = this.ledger.is_some();
        #[cfg(not(feature = "ledger"))]
        let has_ledger = false;
        let setup = setup.refuse_recorded(!has_ledger);
        #[cfg(feature = "ledger")]
        let setup = match &this.ledger {
            Some(ledger) => setup.account_names(ledger.account_names()),
            None => setup,
        };
        let fleet = Arc::new(FleetSize::stated(servers));
        let backing = match store {
            StoreChoice::Memory => memory(setup)?,
            StoreChoice::Url(url) => match scheme(&url) {
                "memory" => memory(setup)?,
                #[cfg(feature = "redis")]
                scheme if is_redis(scheme) => {
                    let settings = crate::store::redis::RedisSettings::url(&url);
                    let settings = settings.map_err(|error| BuildError::Store(Box::new(error)))?;
                    redis(setup, settings, fleet, this.require_store).await?
                }
                #[cfg(not(feature = "redis"))]
                scheme if is_redis(scheme) => {
                    return Err(BuildError::FeatureMissing { scheme: scheme.to_owned(), feature: "redis" });
                }
                scheme => return Err(BuildError::UnknownStore { scheme: scheme.to_owned() }),
            },
            #[cfg(feature = "redis")]
            StoreChoice::Redis(settings) => redis(setup, *settings, fleet, this.require_store).await?,
            StoreChoice::Custom(store) => {
                let engine = setup.build(Guarded::new(store, fleet))?;
                engine.start_maintenance();
                Backing::Custom(engine)
            }
        };
        Ok(Limiter { backing })
    }

    /// Puts the ledger around the store.
    #[cfg(feature = "ledger")]
    async fn recorded_by(self, ledger: &crate::ledger::Ledger) -> Result<LimiterBuilder, BuildError> {
        use crate::ledger::Recorded;
        // With a random key, the accounts of the next process would be others.
        if !self.setup.has_hash_key() {
            return Err(BuildError::HashKeyMissing);
        }
        let custom = match self.store {
            StoreChoice::Memory => recorded_memory(ledger),
            StoreChoice::Url(ref url) if scheme(url) == "memory" => recorded_memory(ledger),
            #[cfg(feature = "redis")]
            StoreChoice::Url(ref url) if is_redis(scheme(url)) => {
                let settings = crate::store::redis::RedisSettings::url(url);
                let settings = settings.map_err(|error| BuildError::Store(Box::new(error)))?;
                CustomStore::new(Recorded::new(
                    open_redis(&self.setup, settings, self.require_store).await?,
                    Some(ledger),
                ))
            }
            #[cfg(feature = "redis")]
            StoreChoice::Redis(settings) => CustomStore::new(Recorded::new(
                open_redis(&self.setup, *settings, self.require_store).await?,
                Some(ledger),
            )),
            StoreChoice::Custom(store) => CustomStore::new(Recorded::new(store, Some(ledger))),
            StoreChoice::Url(_) => return Ok(self),
        };
        Ok(LimiterBuilder { store: StoreChoice::Custom(custom), ..self })
    }
}

#[cfg(feature = "ledger")]
fn recorded_memory(ledger: &crate::ledger::Ledger) -> CustomStore {
    let store = MemoryStore::with_clock(AnyClock::default());
    CustomStore::new(crate::ledger::Recorded::new(store, Some(ledger)))
}

fn memory(setup: Setup) -> Result<Backing, BuildError> {
    let store = MemoryStore::with_clock(AnyClock::default());
    Ok(Backing::Memory(LocalLimiter { engine: setup.build(store)? }))
}

#[cfg(feature = "redis")]
async fn redis(
    setup: Setup,
    settings: crate::store::redis::RedisSettings,
    fleet: Arc<FleetSize>,
    require_store: bool,
) -> Result<Backing, BuildError> {
    let store = open_redis(&setup, settings, require_store).await?;
    let remembers = store.decides_by_its_own_clock();
    let engine = setup.build(Guarded::new(store, fleet).with_refusal_memory(remembers))?;
    engine.start_maintenance();
    Ok(Backing::Redis(engine))
}

#[cfg(feature = "redis")]
async fn open_redis(
    setup: &Setup,
    settings: crate::store::redis::RedisSettings,
    require_store: bool,
) -> Result<crate::store::redis::RedisStore, BuildError> {
    if !setup.has_hash_key() {
        return Err(BuildError::HashKeyMissing);
    }
    let store = settings.open().map_err(|error| BuildError::Store(Box::new(error)))?;
    match store.ready().await {
        Err(StoreError::Transient(_)) if !require_store => (),
        answered => answered.map_err(|error| BuildError::Store(Box::new(error)))?,
    }
    Ok(store)
}

/// What is before `://`, or the whole text up to the first character that cannot be part of a scheme.
fn scheme(url: &str) -> &str {
    let end = url.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(url.len());
    &url[..end]
}

fn is_redis(scheme: &str) -> bool {
    matches!(scheme.split('+').next(), Some("redis" | "rediss"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::poll_ready;

    fn error_for(url: &str) -> String {
        let built = poll_ready(Limiter::builder().store(url).build());
        built.err().expect("the store is unknown").to_string()
    }

    #[test]
    fn an_unknown_store_is_named_without_its_password() {
        for (url, scheme) in [("postgres://u:secret@h", "postgres"), ("secret@host", "secret"), ("", "")] {
            assert!(error_for(url).starts_with(&format!("unknown store {scheme:?};")), "{url}");
        }
        assert!(!error_for("postgres://u:s3cr3t@h").contains("s3cr3t"));
    }

    #[cfg(not(feature = "redis"))]
    #[test]
    fn a_redis_url_without_the_feature_names_the_feature() {
        assert!(error_for("redis://localhost").contains("needs the feature \"redis\""));
    }

    #[cfg(feature = "redis")]
    #[test]
    fn a_shared_store_without_a_hash_key_is_an_error() {
        assert!(error_for("redis+cluster://localhost").contains("needs a hash key"));
    }

    #[test]
    fn only_a_rules_file_can_be_watched() {
        let built = LocalLimiter::builder().rules_yaml("{ version: 1, rules: [] }").watch_rules(true).build();
        assert!(matches!(built, Err(BuildError::NothingToWatch)));
    }
}
