//! Everything a limiter is made of, in the order people think of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tollgate_core::plan::request_id::HORIZON_DEFAULT;
use tollgate_core::rules::RuleSet;
use tollgate_core::{Span, Store, SubjectHasher, SubjectHashers};

use super::decision::InForce;
use super::sealed::Seals;
use super::tokens::Tokens;
use super::{Inner, Limiter};
use crate::rules::load;
use crate::store::memory::MemoryStore;
use tollgate_document::{Colour, Problems, Source};

/// Makes a [`Limiter`].
#[must_use = "a builder makes nothing until `build`"]
pub struct Builder<S> {
    rules: Rules,
    store: S,
    hashers: Option<SubjectHashers>,
    horizon: Span,
}

enum Rules {
    Ready(RuleSet),
    Source(Source),
    File(PathBuf),
}

/// No limiter can be made of this.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The rules file cannot be read.
    #[error("cannot read the rules file {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The rules are wrong. The text names every problem with its place and its fix.
    #[error("the rules are wrong\n{problems}")]
    Rules {
        /// As `tollgate lint` prints them.
        problems: String,
    },
    /// The system gives no randomness for secrets.
    #[error("the system gives no random numbers")]
    Random(#[source] getrandom::Error),
}

impl Builder<MemoryStore> {
    pub(super) fn new() -> Builder<MemoryStore> {
        Builder {
            rules: Rules::Ready(RuleSet::default()),
            store: MemoryStore::new(),
            hashers: None,
            horizon: HORIZON_DEFAULT,
        }
    }
}

impl<S: Store> Builder<S> {
    /// Rules as YAML text.
    pub fn rules_yaml(self, rules: impl Into<String>) -> Builder<S> {
        Builder { rules: Rules::Source(yaml(&rules.into())), ..self }
    }

    /// Rules from a YAML text that has been read already, under the name it has in messages.
    pub fn rules_source(self, source: Source) -> Builder<S> {
        Builder { rules: Rules::Source(source), ..self }
    }

    /// Rules from a YAML file.
    pub fn rules_file(self, path: impl AsRef<Path>) -> Builder<S> {
        Builder { rules: Rules::File(path.as_ref().to_owned()), ..self }
    }

    /// Rules that are made already.
    pub fn rules(self, rules: RuleSet) -> Builder<S> {
        Builder { rules: Rules::Ready(rules), ..self }
    }

    /// Keeps the state here instead of in memory of its own making.
    pub fn store<T: Store>(self, store: T) -> Builder<T> {
        Builder { rules: self.rules, store, hashers: self.hashers, horizon: self.horizon }
    }

    /// Makes subjects with this secret, which all servers of one store must share. Without it a limiter makes up its
    /// own, which is right for memory and nothing else.
    pub fn hash_key(self, hashers: impl Into<SubjectHashers>) -> Builder<S> {
        Builder { hashers: Some(hashers.into()), ..self }
    }

    /// How long request ids are remembered: a minute unless told otherwise. See [`Request::id`].
    ///
    /// [`Request::id`]: tollgate_core::rules::Request::id
    pub fn request_horizon(self, horizon: Duration) -> Builder<S> {
        let us = u64::try_from(horizon.as_micros()).unwrap_or(u64::MAX);
        Builder { horizon: Span::from_us(us), ..self }
    }

    /// The limiter, or everything that is wrong.
    pub fn build(self) -> Result<Limiter<S>, BuildError> {
        let (rules, text_hash) = self.rules.load()?;
        let hashers = match self.hashers {
            Some(hashers) => hashers,
            None => SubjectHasher::new(random()?).into(),
        };
        let rules = ArcSwap::from_pointee(InForce { rules, version: 0, text_hash });
        let (seals, tokens) = (Seals::new(&hashers), Tokens::new(random()?));
        let Builder { store, horizon, .. } = self;
        Ok(Limiter { inner: Arc::new(Inner { rules, store, hashers, seals, tokens, horizon }) })
    }
}

impl Rules {
    /// The rules, and a hash of the text they came from.
    fn load(self) -> Result<(RuleSet, u64), BuildError> {
        let source = match self {
            Rules::Ready(rules) => return Ok((rules, 0)),
            Rules::Source(source) => source,
            Rules::File(path) => match std::fs::read(&path) {
                Ok(bytes) => Source::new(path.display().to_string(), &bytes),
                Err(source) => return Err(BuildError::Read { path, source }),
            },
        };
        let mut problems = Problems::new();
        let rules = load(&source, &mut problems)
            .ok_or_else(|| BuildError::Rules { problems: problems.render(&source, Colour::Plain) })?;
        let hash = blake3::hash(source.text().as_bytes());
        let text_hash = hash.as_bytes()[..8].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        Ok((rules, text_hash))
    }
}

/// The rules in this text and its hash, or all that is wrong with them.
pub(super) fn load_source(source: Source) -> Result<(RuleSet, u64), BuildError> {
    Rules::Source(source).load()
}

/// A text without a name of its own.
pub(super) fn yaml(text: &str) -> Source {
    Source::new("rules", text.as_bytes())
}

/// Bytes from the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], BuildError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(BuildError::Random)?;
    Ok(bytes)
}
