//! Notices that files have changed, so that they are read again.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// Wakes when something happens where one of the files is.
pub(crate) struct Changes {
    /// Watches until it is dropped.
    _watcher: RecommendedWatcher,
    happened: Arc<Notify>,
}

impl Changes {
    /// Editors write in several steps, and a folder may be swapped as a whole: what comes within this is one change.
    pub(crate) const PAUSE: Duration = Duration::from_millis(100);

    /// Watches the folders the files are in, because editors and orchestrators put new files in place of old ones.
    pub(crate) fn of<'p>(files: impl Iterator<Item = &'p Path>) -> notify::Result<Changes> {
        let happened = Arc::new(Notify::new());
        let wake = Arc::clone(&happened);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // An error may be that events were lost: looking once more does not hurt.
            if event.is_ok_and(|event| event.kind.is_access()) {
                return;
            }
            wake.notify_one();
        })?;
        for folder in files.map(folder).collect::<HashSet<PathBuf>>() {
            watcher.watch(&folder, RecursiveMode::NonRecursive)?;
        }
        Ok(Changes { _watcher: watcher, happened })
    }

    /// Waits until something has happened. Whoever is told waits for [`PAUSE`](Changes::PAUSE) before it looks.
    pub(crate) async fn next(&self) {
        self.happened.notified().await;
    }
}

fn folder(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}
