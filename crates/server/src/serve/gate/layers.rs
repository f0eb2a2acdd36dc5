//! The rules of the file, and the live changes over them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollgate::core::SubjectHashers;
use tollgate::core::rules::{LiveChanges, Request, RuleSet};
use tollgate::limiter::BuildError;
use tollgate_database::changes::{ChangeKind, LiveChange};
use tollgate_document::Source;

use super::{Backed, Edge, Gate};
use crate::serve::control::{Control, spec};
use crate::serve::edge::auth::Caller;
use crate::serve::edge::calls::resets::Reset;
use crate::serve::rules_in_force::fingerprint;

/// What the rules in force are made of.
pub(super) struct Layers {
    /// The rules of the file.
    base: Arc<RuleSet>,
    /// Identifies the text of the file.
    text_hash: u64,
    live: Arc<Vec<LiveChange>>,
    /// Live changes that do not fit the rules, and why.
    unfit: Arc<Vec<(String, String)>>,
}

impl Layers {
    pub(super) fn new(limiter: &Backed) -> Layers {
        let (base, text_hash) = limiter.rules_of_file();
        Layers { base: Arc::new(base), text_hash, live: Arc::default(), unfit: Arc::default() }
    }
}

impl Backed {
    fn rules_of_file(&self) -> (RuleSet, u64) {
        match self {
            Backed::Memory(limiter) => limiter.active_rules(),
            Backed::Redis(limiter) => limiter.active_rules(),
            Backed::RecordedMemory(limiter) => limiter.active_rules(),
        }
    }
}

impl Gate {
    /// Replaces the rules of the file, and returns the new version number. Live changes stay over them.
    pub(crate) fn replace_rules(&self, source: Source) -> Result<u64, BuildError> {
        let mut layers = self.inner.layers.lock();
        let (base, text_hash) = either!(self, limiter => limiter.load_rules(&source))?;
        (layers.base, layers.text_hash) = (Arc::new(base), text_hash);
        self.inner.rules_fingerprint.store(Arc::new(fingerprint(&source)));
        Ok(self.combine(&mut layers))
    }

    /// Replaces the live changes.
    pub(crate) fn set_live(&self, changes: &Arc<Vec<LiveChange>>) {
        let mut layers = self.inner.layers.lock();
        let had_none = layers.live.is_empty();
        layers.live = Arc::clone(changes);
        if !(had_none && changes.is_empty()) {
            self.combine(&mut layers);
        }
    }

    /// Calls a function with the rules of the file, without live changes, and the hash keys.
    pub(crate) fn with_base<T>(&self, look: impl FnOnce(&RuleSet, &SubjectHashers) -> T) -> T {
        let base = Arc::clone(&self.inner.layers.lock().base);
        look(&base, self.hashers())
    }

    /// Live changes that are not in force because they do not fit the rules, and why.
    pub(crate) fn unfit_changes(&self) -> Arc<Vec<(String, String)>> {
        Arc::clone(&self.inner.layers.lock().unfit)
    }

    /// Sets the audit trail for resets.
    pub(crate) fn set_control(&self, control: &Arc<Control>) {
        // It is set once, before the server accepts requests.
        drop(self.inner.control.set(Arc::clone(control)));
    }

    /// Adds an audit row of a reset that the caller gave no reason for.
    pub(super) fn note_reset(&self, edge: Edge, caller: &Caller, request: &Request<'_>, rule: Option<&str>) {
        if let Some(control) = self.inner.control.get() {
            let reset = Reset { request: *request, rule, reason: None };
            control.note(reset.audited(caller.name(), format!("({})", edge.name()), "", self));
        }
    }

    /// Whether other servers share the store, as far as this one knows.
    pub(crate) fn has_other_servers(&self) -> bool {
        self.inner.has_others.load(Ordering::Relaxed)
    }

    /// Notes how many servers share the store, this one included.
    pub(crate) fn note_servers(&self, servers: usize) {
        self.inner.has_others.store(servers > 1, Ordering::Relaxed);
    }

    /// Puts the rules with the live changes over them in force.
    fn combine(&self, layers: &mut Layers) -> u64 {
        let (live, mut unfit) = spec::read_all(&layers.base, self.hashers(), &layers.live);
        let lists = LiveChanges { overrides: Vec::new(), ..live.clone() };
        let rules = layers.base.with_live(live).or_else(|error| {
            // Each override was checked together with the others when it was written, so the file must have changed.
            tracing::error!(event = "changes_unfit", %error, "live overrides do not fit the rules; none is in force");
            let overrides = layers.live.iter().filter(|change| change.kind == ChangeKind::Override);
            unfit.extend(overrides.map(|change| (change.id.clone(), error.to_string())));
            layers.base.with_live(lists)
        });
        let rules = rules.unwrap_or_else(|_| (*layers.base).clone());
        for (id, why) in unfit.iter().filter(|found| !layers.unfit.contains(found)) {
            tracing::warn!(
                event = "change_unfit",
                id,
                why,
                "a live change does not fit the rules and is not in force"
            );
        }
        layers.unfit = Arc::new(unfit);
        either!(self, limiter => {
            limiter.activate(&rules, layers.text_hash);
            let version = limiter.rules_version();
            self.inner.takes_leases.store(rules.takes_leases(), Ordering::Relaxed);
            self.inner.recorder.replace_rules(version, &rules);
            version
        })
    }
}
