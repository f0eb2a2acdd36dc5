//! Reloads the rules file when it changes.
//!
//! A thread polls the file, so that it works without an async runtime, over network file systems, and where a file is
//! replaced through symbolic links (as Kubernetes does with mounted configuration).

use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;

use super::active_rules::{ActiveRules, activate};
use super::setup::{BuildError, load_source, read_file, text_hash};

/// How often the file is looked at.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Called after every reload, with the new version of the rules or the reason why the old ones stay.
pub(super) type OnReload = dyn Fn(Result<u64, &BuildError>) + Send;

/// The thread that watches one file. It ends when this is dropped.
pub(super) struct RulesWatcher {
    /// Never sent on: the thread ends when the channel closes.
    _until_dropped: Sender<()>,
}

impl RulesWatcher {
    /// Watches `path`, whose text with this hash is active.
    pub(super) fn start(
        path: PathBuf,
        text_hash: u64,
        active: Weak<ArcSwap<ActiveRules>>,
        on_reload: Box<OnReload>,
    ) -> std::io::Result<RulesWatcher> {
        let (until_dropped, dropped) = channel();
        let mut file = WatchedFile { stamp: stamp(&path), path, seen: Seen::Text(text_hash) };
        thread::Builder::new().name("tollgate-rules".to_owned()).spawn(move || {
            while dropped.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let Some(active) = active.upgrade() else { return };
                match file.poll(&active) {
                    Ok(None) => {}
                    Ok(Some(version)) => on_reload(Ok(version)),
                    Err(error) => on_reload(Err(&error)),
                }
            }
        })?;
        Ok(RulesWatcher { _until_dropped: until_dropped })
    }
}

/// Logs a reload, unless the application handles it itself.
pub(super) fn log_reload(reload: Result<u64, &BuildError>) {
    match reload {
        Ok(version) => tracing::info!(version, "reloaded the rules file"),
        Err(error) => {
            tracing::error!(error = error as &dyn std::error::Error, "the old rules stay in force")
        }
    }
}

struct WatchedFile {
    path: PathBuf,
    stamp: Option<Stamp>,
    seen: Seen,
}

/// What the last look at the file found.
#[derive(PartialEq)]
enum Seen {
    Text(u64),
    Unreadable,
}

/// Changes whenever the file is written or replaced.
type Stamp = (SystemTime, u64);

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

impl WatchedFile {
    /// Activates the file's rules if its text has changed. Returns their version, or `None` if nothing has changed.
    fn poll(&mut self, active: &ArcSwap<ActiveRules>) -> Result<Option<u64>, BuildError> {
        let stamp = stamp(&self.path);
        if stamp.is_some() && stamp == self.stamp {
            return Ok(None);
        }
        self.stamp = stamp;
        let source = match read_file(&self.path) {
            Ok(source) => source,
            // Reported once, not every second.
            Err(_) if self.seen == Seen::Unreadable => return Ok(None),
            Err(error) => {
                self.seen = Seen::Unreadable;
                return Err(error);
            }
        };
        let seen = Seen::Text(text_hash(&source));
        if self.seen == seen {
            return Ok(None);
        }
        self.seen = seen;
        let (rules, text_hash) = load_source(&source, active.load().refuses_recorded)?;
        activate(active, &rules, text_hash);
        Ok(Some(active.load().version))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::*;

    fn rules(limit: u64) -> String {
        format!("{{ version: 1, rules: [{{ id: a, per: user, limit: {{ fixed-window: {limit}/h }} }}] }}")
    }

    /// The file, and a write that changes its time stamp for certain.
    struct Fixture {
        file: WatchedFile,
        active: Arc<ArcSwap<ActiveRules>>,
        _folder: tempfile::TempDir,
        writes: u64,
    }

    impl Fixture {
        fn new() -> Fixture {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("rules.yaml");
            fs::write(&path, rules(10)).unwrap();
            let (rules, text_hash) = load_source(&read_file(&path).unwrap(), false).unwrap();
            let active = Arc::new(ArcSwap::from_pointee(ActiveRules {
                rules,
                version: 0,
                text_hash,
                refuses_recorded: false,
            }));
            let file = WatchedFile { stamp: stamp(&path), path, seen: Seen::Text(text_hash) };
            Fixture { file, active, _folder: folder, writes: 0 }
        }

        fn write(&mut self, text: &str) {
            self.writes += 1;
            let file = fs::File::create(&self.file.path).unwrap();
            std::io::Write::write_all(&mut &file, text.as_bytes()).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(self.writes)).unwrap();
        }

        fn poll(&mut self) -> Result<Option<u64>, String> {
            self.file.poll(&self.active).map_err(|error| error.to_string())
        }
    }

    #[test]
    fn a_changed_text_is_activated_once() {
        let mut fixture = Fixture::new();
        assert_eq!(fixture.poll(), Ok(None));
        fixture.write(&rules(20));
        assert_eq!(fixture.poll(), Ok(Some(1)));
        assert_eq!(fixture.poll(), Ok(None));
        fixture.write(&rules(20));
        assert_eq!(fixture.poll(), Ok(None), "written again with the same text");
    }

    #[test]
    fn invalid_rules_are_reported_once_and_the_old_ones_stay() {
        let mut fixture = Fixture::new();
        fixture.write("rules: [");
        assert!(fixture.poll().unwrap_err().starts_with("invalid rules"));
        assert_eq!(fixture.poll(), Ok(None));
        assert_eq!(fixture.active.load().version, 0);
        fixture.write(&rules(30));
        assert_eq!(fixture.poll(), Ok(Some(1)));
    }

    #[test]
    fn a_missing_file_is_reported_once_and_found_when_it_is_back() {
        let mut fixture = Fixture::new();
        fs::remove_file(&fixture.file.path).unwrap();
        assert!(fixture.poll().unwrap_err().starts_with("cannot read the rules file"));
        assert_eq!(fixture.poll(), Ok(None));
        fixture.write(&rules(10));
        assert_eq!(fixture.poll(), Ok(Some(1)));
    }
}
