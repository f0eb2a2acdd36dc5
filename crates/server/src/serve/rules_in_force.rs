//! The rules in force, their source, and whether a newer version was refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;
use tollgate_document::Source;

use crate::explanation::rules_text::RulesText;
use crate::failure::Failure;
use crate::files;

/// The rules of a server without a rules file.
pub(crate) const STARTER: &str = include_str!("starter.yaml");

/// The name of those rules.
pub(crate) const STARTER_NAME: &str = "starter rules";

/// Information about the rules in force.
#[derive(Clone)]
pub(crate) struct RulesInForce {
    /// How often they have been replaced since the start.
    pub(crate) version: u64,
    /// Identifies the text.
    pub(crate) fingerprint: String,
    pub(crate) loaded_at: Timestamp,
    /// The file or folder, or `starter rules`.
    pub(crate) name: String,
    /// Why the newest version of the file is not in force.
    pub(crate) refused: Option<String>,
    /// How the rules are written.
    pub(crate) text: Arc<RulesText>,
}

/// The source of the rules, and the rules in force.
pub(crate) struct RulesOrigin {
    /// A file or a folder.
    file: Option<PathBuf>,
    in_force: ArcSwap<RulesInForce>,
    /// The fault of the file that was logged last, so that it is logged once.
    logged: Mutex<Option<Fault>>,
}

/// The fault of a rules file.
#[derive(PartialEq, Eq)]
enum Fault {
    Unreadable(String),
    /// The text with this fingerprint is invalid.
    Invalid(String),
}

impl RulesOrigin {
    /// Reads the file, or the starter rules. The limiter validates the text.
    pub(crate) fn read(file: Option<&Path>) -> Result<(RulesOrigin, Source), Failure> {
        let source = source(file)?;
        let in_force = RulesInForce {
            version: 0,
            fingerprint: fingerprint(&source),
            loaded_at: Timestamp::now(),
            name: source.name().to_owned(),
            refused: None,
            text: Arc::new(RulesText::new(&source)),
        };
        let in_force = ArcSwap::from_pointee(in_force);
        let origin = RulesOrigin { file: file.map(Path::to_owned), in_force, logged: Mutex::new(None) };
        Ok((origin, source))
    }

    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    pub(crate) fn in_force(&self) -> Arc<RulesInForce> {
        self.in_force.load_full()
    }

    /// The text of the file, if it is neither in force nor known to be invalid.
    pub(crate) fn changed(&self) -> Option<Result<Source, Failure>> {
        self.file.as_ref()?;
        let source = match source(self.file.as_deref()) {
            Ok(source) => source,
            Err(failure) => {
                let unreadable = Fault::Unreadable(failure.to_string());
                return (self.logged.lock().as_ref() != Some(&unreadable)).then_some(Err(failure));
            }
        };
        let found = fingerprint(&source);
        let in_force = self.in_force.load();
        if found == in_force.fingerprint {
            // It was changed and changed back.
            if self.logged.lock().take().is_some() {
                self.in_force.store(Arc::new(RulesInForce { refused: None, ..(**in_force).clone() }));
            }
            return None;
        }
        (*self.logged.lock() != Some(Fault::Invalid(found))).then_some(Ok(source))
    }

    /// Records the rules that are in force now.
    pub(crate) fn set_in_force(&self, version: u64, fingerprint: String, source: &Source) {
        let name = self.in_force.load().name.clone();
        let loaded_at = Timestamp::now();
        let text = Arc::new(RulesText::new(source));
        let in_force = RulesInForce { version, fingerprint, loaded_at, name, refused: None, text };
        *self.logged.lock() = None;
        self.in_force.store(Arc::new(in_force));
    }

    /// Records that the file cannot be read.
    pub(crate) fn set_unreadable(&self, why: String) {
        *self.logged.lock() = Some(Fault::Unreadable(why.clone()));
        self.set_refused(why);
    }

    /// Records that the text with this fingerprint is invalid.
    pub(crate) fn set_invalid(&self, fingerprint: String, why: String) {
        *self.logged.lock() = Some(Fault::Invalid(fingerprint));
        self.set_refused(why);
    }

    fn set_refused(&self, why: String) {
        let in_force = self.in_force.load();
        self.in_force.store(Arc::new(RulesInForce { refused: Some(why), ..(**in_force).clone() }));
    }
}

fn source(file: Option<&Path>) -> Result<Source, Failure> {
    match file {
        Some(path) => files::read_rules(path),
        None => Ok(Source::new(STARTER_NAME, STARTER.as_bytes())),
    }
}

/// The fingerprint of a text: 16 hexadecimal digits.
pub(crate) fn fingerprint(source: &Source) -> String {
    let mut hex = blake3::hash(source.text().as_bytes()).to_hex().to_string();
    hex.truncate(16);
    hex
}
