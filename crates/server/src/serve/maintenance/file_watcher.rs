//! Notices changed files, so that they are read again.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// Wakes when a folder of one of the files changes.
pub(crate) struct FileWatcher {
    /// Watches until it is dropped.
    _watcher: RecommendedWatcher,
    changed: Arc<Notify>,
}

impl FileWatcher {
    /// Editors write in several steps, and a folder may be replaced as a whole. Events within this time are one change.
    pub(crate) const PAUSE: Duration = Duration::from_millis(100);

    /// Watches the folders of these files, because editors and orchestrators replace files by new ones. Of a path that is a
    /// folder, watches both the folder and the one that it is in.
    pub(crate) fn new<'p>(files: impl Iterator<Item = &'p Path>) -> notify::Result<FileWatcher> {
        let changed = Arc::new(Notify::new());
        let wake = Arc::clone(&changed);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // An error may mean that events were lost, so the files are read again.
            if event.is_ok_and(|event| event.kind.is_access()) {
                return;
            }
            wake.notify_one();
        })?;
        for folder in files.flat_map(folders).collect::<HashSet<PathBuf>>() {
            watcher.watch(&folder, RecursiveMode::NonRecursive)?;
        }
        Ok(FileWatcher { _watcher: watcher, changed })
    }

    /// Waits for a change. The caller then waits for [`PAUSE`](FileWatcher::PAUSE) before it reads the files.
    pub(crate) async fn next(&self) {
        self.changed.notified().await;
    }
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let parent = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    if path.is_dir() { vec![path.to_owned(), parent] } else { vec![parent] }
}
