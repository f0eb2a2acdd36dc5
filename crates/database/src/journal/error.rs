//! Why a journal could not be opened, written or read.

use std::io;
use std::path::PathBuf;

/// A fault of the journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file operation failed.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another process uses the folder.
    #[error("the journal {} is in use by another server", .0.display())]
    Locked(PathBuf),
    /// Damaged bytes are followed by complete records, so they are no torn tail.
    #[error("the journal {} is damaged at offset {offset}; records follow at offset {next}", path.display())]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where the damage begins.
        offset: u64,
        /// Where the next complete record begins.
        next: u64,
    },
    /// Sequence numbers are missing between two segments.
    #[error("the journal {} begins with record {found}, expected {expected} at most", path.display())]
    Gap {
        /// The segment.
        path: PathBuf,
        /// The largest first number without a gap.
        expected: i64,
        /// The first number.
        found: i64,
    },
    /// The journal does not reach back to the database's cursor.
    #[error("the journal begins after record {cursor}, where the database was set back to")]
    CursorTooOld {
        /// The cursor in the database.
        cursor: i64,
    },
    /// Writes failed before, so that nothing more can be acknowledged.
    #[error("the journal {} has failed", .0.display())]
    Failed(PathBuf),
}

impl JournalError {
    pub(super) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> JournalError {
        let path = path.into();
        move |source| JournalError::Io { what, path, source }
    }
}
