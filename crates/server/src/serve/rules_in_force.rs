//! Which rules are in force, where they come from, and whether others were tried since.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;
use tollgate_document::Source;

use crate::cli::input;
use crate::cli::terminal::Failure;

/// The rules of a server that was told none.
pub(crate) const STARTER: &str = include_str!("starter.yaml");

/// What is told of the rules in force.
#[derive(Clone, Debug)]
pub(crate) struct RulesInForce {
    /// How often they have been replaced since the server was started.
    pub(crate) version: u64,
    /// The same for the same text, wherever it is.
    pub(crate) fingerprint: String,
    pub(crate) loaded_at: Timestamp,
    /// The file, or that it is the starter.
    pub(crate) name: String,
    /// Why what was found last is not in force.
    pub(crate) refused: Option<String>,
}

/// Where rules come from, and which of them are in force.
pub(crate) struct RulesOrigin {
    file: Option<PathBuf>,
    in_force: ArcSwap<RulesInForce>,
    /// What was told last of the file as it is now, so that it is told once.
    told: Mutex<Option<Told>>,
}

/// What is wrong with a file.
#[derive(PartialEq, Eq)]
enum Told {
    /// It cannot be read.
    Unreadable(String),
    /// The text of this fingerprint makes no sense.
    Wrong(String),
}

impl RulesOrigin {
    /// Reads the file, or takes the starter. Whether it makes sense is for the limiter to say.
    pub(crate) fn read(file: Option<&Path>) -> Result<(RulesOrigin, Source), Failure> {
        let source = source(file)?;
        let in_force = RulesInForce {
            version: 0,
            fingerprint: fingerprint(&source),
            loaded_at: Timestamp::now(),
            name: source.name().to_owned(),
            refused: None,
        };
        let in_force = ArcSwap::from_pointee(in_force);
        let origin = RulesOrigin { file: file.map(Path::to_owned), in_force, told: Mutex::new(None) };
        Ok((origin, source))
    }

    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    pub(crate) fn in_force(&self) -> Arc<RulesInForce> {
        self.in_force.load_full()
    }

    /// What the file holds now, if that is neither in force nor known to be wrong.
    pub(crate) fn changed(&self) -> Option<Result<Source, Failure>> {
        self.file.as_ref()?;
        let source = match source(self.file.as_deref()) {
            Ok(source) => source,
            Err(failure) => {
                let unreadable = Told::Unreadable(failure.to_string());
                return (self.told.lock().as_ref() != Some(&unreadable)).then_some(Err(failure));
            }
        };
        let found = fingerprint(&source);
        let in_force = self.in_force.load();
        if found == in_force.fingerprint {
            // It was changed, and changed back.
            if self.told.lock().take().is_some() {
                self.in_force.store(Arc::new(RulesInForce { refused: None, ..(**in_force).clone() }));
            }
            return None;
        }
        (*self.told.lock() != Some(Told::Wrong(found))).then_some(Ok(source))
    }

    /// These are in force now.
    pub(crate) fn replaced(&self, version: u64, fingerprint: String) {
        let name = self.in_force.load().name.clone();
        let loaded_at = Timestamp::now();
        let in_force = RulesInForce { version, fingerprint, loaded_at, name, refused: None };
        *self.told.lock() = None;
        self.in_force.store(Arc::new(in_force));
    }

    /// The file cannot be read.
    pub(crate) fn unreadable(&self, why: String) {
        *self.told.lock() = Some(Told::Unreadable(why.clone()));
        self.refused(why);
    }

    /// The text of this fingerprint is wrong.
    pub(crate) fn wrong(&self, fingerprint: String, why: String) {
        *self.told.lock() = Some(Told::Wrong(fingerprint));
        self.refused(why);
    }

    fn refused(&self, why: String) {
        let in_force = self.in_force.load();
        self.in_force.store(Arc::new(RulesInForce { refused: Some(why), ..(**in_force).clone() }));
    }
}

fn source(file: Option<&Path>) -> Result<Source, Failure> {
    match file {
        Some(path) => input::read(path),
        None => Ok(Source::new("starter rules", STARTER.as_bytes())),
    }
}

/// Of the text, as sixteen hexadecimal digits.
pub(crate) fn fingerprint(source: &Source) -> String {
    let mut hex = blake3::hash(source.text().as_bytes()).to_hex().to_string();
    hex.truncate(16);
    hex
}
