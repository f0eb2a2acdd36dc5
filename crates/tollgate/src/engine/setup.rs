//! Settings that every limiter has, and the engine that is built from them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tollgate_core::plan::receipt::RECEIPT_LIFE_DEFAULT;
use tollgate_core::plan::request_id::HORIZON_DEFAULT;
use tollgate_core::rules::RuleSet;
use tollgate_core::{Span, Store, SubjectHasher, SubjectHashers};
use tollgate_document::{Colour, Problems, Source};

use super::account_names::AccountNames;
use super::active_rules::ActiveRules;
use super::receipts::sealed::ReceiptSeals;
use super::receipts::tokens::Tokens;
use super::watch::{OnReload, RulesWatcher, log_reload};
use super::{Engine, Inner};
use crate::random::random;
use crate::rules::load;

/// Rules, hash keys and times: everything of a limiter but its store.
#[must_use = "settings do nothing until `build`"]
pub struct Setup {
    rules: RulesFrom,
    watch: bool,
    on_reload: Option<Box<OnReload>>,
    hashers: Option<SubjectHashers>,
    horizon: Span,
    receipt_life: Span,
    refuses_recorded: bool,
    account_names: Option<AccountNames>,
}

enum RulesFrom {
    Ready(Box<RuleSet>),
    Source(Source),
    File(PathBuf),
}

/// The limiter could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The rules file cannot be read.
    #[error("cannot read the rules file {}", path.display())]
    Read {
        /// The path of the rules file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The rules are invalid. The text lists every problem with its line and its fix.
    #[error("invalid rules\n{problems}")]
    Rules {
        /// As `tollgate lint` prints them.
        problems: String,
    },
    /// `watch_rules(true)` without `rules_file`.
    #[error("watch_rules needs rules_file: only a rules file can be watched")]
    NothingToWatch,
    /// The thread that watches the rules file could not start.
    #[error("cannot start the thread that watches the rules file")]
    Watch(#[source] std::io::Error),
    /// The store URL has an unknown scheme.
    #[error(
        "unknown store {scheme:?}; write memory://, redis://HOST:PORT, rediss://, redis+sentinel:// or redis+cluster://"
    )]
    UnknownStore {
        /// What is before `://`. The rest of the URL is not repeated, because it may hold a password.
        scheme: String,
    },
    /// The store needs a feature that this build of the crate does not have.
    #[error("the store {scheme:?} needs the feature {feature:?} of the crate tollgate; add it in Cargo.toml")]
    FeatureMissing {
        /// What is before `://`.
        scheme: String,
        /// The name of the feature.
        feature: &'static str,
    },
    /// A shared store was chosen without a hash key.
    #[error(
        "a shared store needs a hash key: call hash_key with the same key on every server, or each would count separately"
    )]
    HashKeyMissing,
    /// A rule has a `ledger`, and no ledger was opened.
    #[error(
        "rule `{rule}` must be recorded, and there is no ledger; open a database, or remove `ledger` from the rule"
    )]
    LedgerMissing {
        /// The rule.
        rule: String,
    },
    /// The store cannot be opened or did not answer.
    #[error("cannot open the store")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The operating system has no random numbers.
    #[error("the operating system provides no random numbers")]
    Random(#[from] getrandom::Error),
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            rules: RulesFrom::Ready(Box::default()),
            watch: false,
            on_reload: None,
            hashers: None,
            horizon: HORIZON_DEFAULT,
            receipt_life: RECEIPT_LIFE_DEFAULT,
            refuses_recorded: false,
            account_names: None,
        }
    }
}

impl Setup {
    /// Rules as YAML text.
    pub fn rules_yaml(self, rules: impl Into<String>) -> Setup {
        self.rules_source(yaml(&rules.into()))
    }

    /// Rules from a YAML text that was read already, under the name it has in messages.
    pub fn rules_source(self, source: Source) -> Setup {
        Setup { rules: RulesFrom::Source(source), ..self }
    }

    /// Rules from a YAML file.
    pub fn rules_file(self, path: impl AsRef<Path>) -> Setup {
        Setup { rules: RulesFrom::File(path.as_ref().to_owned()), ..self }
    }

    /// Rules that are parsed already.
    pub fn rules(self, rules: RuleSet) -> Setup {
        Setup { rules: RulesFrom::Ready(Box::new(rules)), ..self }
    }

    /// Whether the rules file is loaded again when it changes.
    pub fn watch_rules(self, watch: bool) -> Setup {
        Setup { watch, ..self }
    }

    /// Called after every reload of a watched rules file.
    pub fn on_reload(self, on_reload: impl Fn(Result<u64, &BuildError>) + Send + 'static) -> Setup {
        Setup { on_reload: Some(Box::new(on_reload)), ..self }
    }

    /// The hash key, or two while one replaces the other.
    pub fn hash_key(self, hashers: impl Into<SubjectHashers>) -> Setup {
        Setup { hashers: Some(hashers.into()), ..self }
    }

    /// How long request ids are remembered.
    pub fn request_horizon(self, horizon: Duration) -> Setup {
        Setup { horizon: horizon.into(), ..self }
    }

    /// How long receipts can be used.
    pub fn receipt_life(self, life: Duration) -> Setup {
        Setup { receipt_life: life.into(), ..self }
    }

    /// Whether a text with a rule that has a `ledger` is refused, because nothing would record it.
    pub fn refuse_recorded(self, refuses_recorded: bool) -> Setup {
        Setup { refuses_recorded, ..self }
    }

    /// Receives the names of the accounts of rules that name them in the ledger, before their store is asked.
    pub fn account_names(self, names: AccountNames) -> Setup {
        Setup { account_names: Some(names), ..self }
    }

    /// Whether a hash key was set.
    #[cfg(feature = "redis")]
    pub(crate) const fn has_hash_key(&self) -> bool {
        self.hashers.is_some()
    }

    /// Builds the engine over this store.
    pub fn build<S: Store>(self, store: S) -> Result<Engine<S>, BuildError> {
        let Setup {
            rules,
            watch,
            on_reload,
            hashers,
            horizon,
            receipt_life,
            refuses_recorded,
            account_names,
        } = self;
        let watched = match &rules {
            RulesFrom::File(path) if watch => Some(path.clone()),
            _ if watch => return Err(BuildError::NothingToWatch),
            _ => None,
        };
        let (rules, text_hash) = rules.load(refuses_recorded)?;
        let rules =
            Arc::new(ArcSwap::from_pointee(ActiveRules { rules, version: 0, text_hash, refuses_recorded }));
        let watcher = watched.map(|path| {
            let on_reload = on_reload.unwrap_or_else(|| Box::new(log_reload));
            RulesWatcher::start(path, text_hash, Arc::downgrade(&rules), on_reload)
        });
        let _watcher = watcher.transpose().map_err(BuildError::Watch)?;
        let hashers = match hashers {
            Some(hashers) => hashers,
            None => SubjectHasher::new(random()?).into(),
        };
        let (seals, tokens) = (ReceiptSeals::new(&hashers), Tokens::new(random()?));
        let inner =
            Inner { rules, store, hashers, seals, tokens, horizon, receipt_life, account_names, _watcher };
        Ok(Engine { inner: Arc::new(inner) })
    }
}

impl RulesFrom {
    /// The rules, and a hash of the text they came from.
    fn load(self, refuses_recorded: bool) -> Result<(RuleSet, u64), BuildError> {
        match self {
            RulesFrom::Ready(rules) => Ok((*rules, 0)),
            RulesFrom::Source(source) => load_source(&source, refuses_recorded),
            RulesFrom::File(path) => load_source(&read_file(&path)?, refuses_recorded),
        }
    }
}

/// The text of a rules file.
pub(super) fn read_file(path: &Path) -> Result<Source, BuildError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Source::new(path.display().to_string(), &bytes)),
        Err(source) => Err(BuildError::Read { path: path.to_owned(), source }),
    }
}

/// The rules in this text and its hash, or every problem in it.
pub(super) fn load_source(source: &Source, refuses_recorded: bool) -> Result<(RuleSet, u64), BuildError> {
    let mut problems = Problems::new();
    let rules = load(source, &mut problems)
        .ok_or_else(|| BuildError::Rules { problems: problems.render(source, Colour::Plain) })?;
    let recorded = rules.rules().iter().find(|rule| rule.ledger.is_some());
    match recorded.filter(|_| refuses_recorded) {
        Some(rule) => Err(BuildError::LedgerMissing { rule: rule.keyspace.rule().to_owned() }),
        None => Ok((rules, text_hash(source))),
    }
}

/// Identifies a text.
pub(super) fn text_hash(source: &Source) -> u64 {
    let hash = blake3::hash(source.text().as_bytes());
    hash.as_bytes()[..8].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// A text without a file name.
pub(crate) fn yaml(text: &str) -> Source {
    Source::new("rules", text.as_bytes())
}
