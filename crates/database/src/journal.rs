//! The journal: records on a local disk before their answers are given, until the database has them.
//!
//! A folder holds the segments of one server, one series per incarnation. [`Journal`] appends to the series of this
//! process; [`JournalReader`] reads any series, also while it grows. A server that was killed leaves at most a torn tail,
//! which recovery cuts.

mod codec;
mod error;
mod segment;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use codec::DecodeError;
pub use error::JournalError;
pub(crate) use segment::Frame;
use segment::SegmentName;

use crate::ledger::{Id, Record};

/// Length at which a new segment is begun.
const SEGMENT_MAX: u64 = 64 * 1024 * 1024;

/// A folder of journals. While it is held, no other process can open it.
#[derive(Debug)]
pub struct JournalFolder {
    path: PathBuf,
    /// Unlocked when it is closed.
    _lock: File,
}

/// The journal of this process.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    writer: Id,
    state: Mutex<State>,
    segment_max: u64,
}

#[derive(Debug)]
struct State {
    segment: SegmentName,
    file: Arc<File>,
    len: u64,
    /// Sequence number of the last record.
    last_seq: i64,
    /// Frames since the last successful sync, and the number of the first of them.
    unsynced: Vec<u8>,
    unsynced_from: i64,
    has_failed: bool,
    #[cfg(test)]
    fail_syncs: u32,
}

impl JournalFolder {
    /// Creates the folder if it is missing, and locks it.
    pub fn open(path: &Path) -> Result<JournalFolder, JournalError> {
        std::fs::create_dir_all(path).map_err(JournalError::io("create", path))?;
        let file = path.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&file);
        let lock = lock.map_err(JournalError::io("open", &file))?;
        match lock.try_lock() {
            Ok(()) => Ok(JournalFolder { path: path.to_owned(), _lock: lock }),
            Err(std::fs::TryLockError::WouldBlock) => Err(JournalError::Locked(path.to_owned())),
            Err(std::fs::TryLockError::Error(source)) => {
                Err(JournalError::Io { what: "lock", path: file, source })
            }
        }
    }

    /// Cuts the torn tails that a crash has left, and returns the readers of all series, from their first record.
    ///
    /// Damage in the middle of a series is an error: records that were acknowledged would be lost.
    pub fn recover(&self) -> Result<Vec<JournalReader>, JournalError> {
        let names = SegmentName::list(&self.path).map_err(JournalError::io("read", &self.path))?;
        let mut readers: Vec<JournalReader> = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let is_last = names.get(index + 1).is_none_or(|next| next.writer != name.writer);
            let contents = segment::inspect(&name.path).map_err(JournalError::io("read", &name.path))?;
            let Some(contents) = contents else {
                // The process ended between the creation of the file and the write of its header.
                std::fs::remove_file(&name.path).map_err(JournalError::io("remove", &name.path))?;
                continue;
            };
            let damaged = contents.valid_len < contents.len;
            if let Some(next) = contents.frame_after_damage.filter(|_| damaged && is_last) {
                return Err(JournalError::Damaged {
                    path: name.path.clone(),
                    offset: contents.valid_len,
                    next,
                });
            }
            if damaged && is_last {
                let file = OpenOptions::new().write(true).open(&name.path);
                let cut = file.and_then(|file| file.set_len(contents.valid_len).and(file.sync_all()));
                cut.map_err(JournalError::io("cut", &name.path))?;
            }
            match readers.last_mut().filter(|reader| reader.writer == name.writer) {
                // A segment that follows a failed sync repeats records, and wins.
                Some(reader) if contents.first_seq <= reader.last_known + 1 => {
                    reader.last_known = reader.last_known.max(contents.last_seq);
                }
                Some(reader) => {
                    return Err(JournalError::Gap {
                        path: name.path.clone(),
                        expected: reader.last_known + 1,
                        found: contents.first_seq,
                    });
                }
                None => readers.push(JournalReader {
                    last_known: contents.last_seq,
                    ..JournalReader::new(&self.path, name.writer)
                }),
            }
        }
        Ok(readers)
    }

    /// Removes the segments of a series that has been posted whole. Segments younger than `keep` stay.
    pub fn remove(&self, writer: Id, keep: std::time::Duration) -> Result<(), JournalError> {
        let names = SegmentName::list(&self.path).map_err(JournalError::io("read", &self.path))?;
        names.iter().filter(|name| name.writer == writer).try_for_each(|name| remove_old(name, keep))
    }

    /// Returns the size of all segments.
    pub fn bytes(&self) -> Result<u64, JournalError> {
        let names = SegmentName::list(&self.path).map_err(JournalError::io("read", &self.path))?;
        let len = |name: &SegmentName| std::fs::metadata(&name.path).map(|meta| meta.len());
        names.iter().map(|name| len(name).map_err(JournalError::io("read", &name.path))).sum()
    }

    /// Removes what was posted and is older than `keep`: the segments of `writer`, which has posted up to the record
    /// `posted`, before the one that it appends to, and all segments of other writers, whose journals were posted at the
    /// start.
    pub fn prune(&self, writer: Id, posted: i64, keep: std::time::Duration) -> Result<(), JournalError> {
        let names = SegmentName::list(&self.path).map_err(JournalError::io("read", &self.path))?;
        let others: std::collections::BTreeSet<Id> =
            names.iter().map(|name| name.writer).filter(|other| *other != writer).collect();
        for other in others {
            self.remove(other, keep)?;
        }
        let own: Vec<&SegmentName> = names.iter().filter(|name| name.writer == writer).collect();
        for (name, next) in own.iter().zip(own.iter().skip(1)) {
            let read = JournalError::io("read", &next.path);
            let follows = segment::first_seq(&next.path).map_err(read)?;
            // The next segment repeats what a failed sync may have lost, so it counts from its first record.
            if follows.is_none_or(|first| first > posted + 1) {
                return Ok(());
            }
            remove_old(name, keep)?;
        }
        Ok(())
    }

    /// Begins the journal of a new incarnation.
    pub fn begin(&self, writer: Id) -> Result<Journal, JournalError> {
        Journal::begin(&self.path, writer, SEGMENT_MAX)
    }
}

fn remove_old(name: &SegmentName, keep: std::time::Duration) -> Result<(), JournalError> {
    let written = std::fs::metadata(&name.path).and_then(|meta| meta.modified());
    let written = written.map_err(JournalError::io("read", &name.path))?;
    // A clock that was set back makes the file look new; it is removed later.
    if written.elapsed().is_ok_and(|age| age >= keep) {
        std::fs::remove_file(&name.path).map_err(JournalError::io("remove", &name.path))?;
    }
    Ok(())
}

impl Journal {
    fn begin(folder: &Path, writer: Id, segment_max: u64) -> Result<Journal, JournalError> {
        let segment = SegmentName::new(folder, writer, 0);
        let file = segment::create(&segment, 1).map_err(JournalError::io("create", &segment.path))?;
        // The name of the file must survive a power cut too.
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(JournalError::io("synchronize", folder))?;
        let state = State {
            segment,
            file: Arc::new(file),
            len: segment::HEADER_LEN,
            last_seq: 0,
            unsynced: Vec::new(),
            unsynced_from: 1,
            has_failed: false,
            #[cfg(test)]
            fail_syncs: 0,
        };
        Ok(Journal { folder: folder.to_owned(), writer, state: Mutex::new(state), segment_max })
    }

    /// Returns the incarnation.
    pub fn writer(&self) -> Id {
        self.writer
    }

    /// Returns a reader of this journal from its first record.
    pub fn reader(&self) -> JournalReader {
        JournalReader::new(&self.folder, self.writer)
    }

    /// Returns the sequence number of the last record.
    pub fn last_seq(&self) -> i64 {
        self.lock().last_seq
    }

    /// Whether writes have failed, so that nothing more can be acknowledged.
    pub fn has_failed(&self) -> bool {
        self.lock().has_failed
    }

    /// Appends the records with one write, and returns the number of the last one and the bytes written. After that they
    /// survive the end of this process, and after the next [`sync`](Journal::sync) the loss of power.
    pub fn append(&self, records: &[Record]) -> Result<(i64, u64), JournalError> {
        let mut frames = Vec::with_capacity(records.len() * 192);
        let mut state = self.lock();
        for (record, seq) in records.iter().zip(state.last_seq + 1..) {
            segment::frame(&mut frames, seq, record);
        }
        if state.has_failed {
            return Err(JournalError::Failed(self.folder.clone()));
        }
        if state.len >= self.segment_max {
            self.sync_locked(&mut state)?;
            self.next_segment(&mut state)?;
        }
        let path = state.segment.path.clone();
        if let Err(source) = (&*state.file).write_all(&frames) {
            // A part may have been written. Cut it, so that the next record does not follow damaged bytes.
            let len = state.len;
            if state.file.set_len(len).is_err() {
                state.has_failed = true;
            }
            return Err(JournalError::Io { what: "write", path, source });
        }
        state.len += frames.len() as u64;
        state.last_seq += records.len() as i64;
        state.unsynced.extend_from_slice(&frames);
        Ok((state.last_seq, frames.len() as u64))
    }

    /// Waits until the records are on the disk. Records can be appended meanwhile.
    ///
    /// After a failure the kernel may have dropped them, so they are written again to a new segment.
    pub fn sync(&self) -> Result<(), JournalError> {
        let (file, from, len, last_seq) = {
            let state = self.lock();
            if state.has_failed {
                return Err(JournalError::Failed(self.folder.clone()));
            }
            if state.unsynced.is_empty() {
                return Ok(());
            }
            (Arc::clone(&state.file), state.unsynced_from, state.unsynced.len(), state.last_seq)
        };
        let done = self.sync_file(&file);
        let mut state = self.lock();
        match done {
            // Another thread has synced a whole segment meanwhile.
            Ok(()) if state.unsynced_from != from => Ok(()),
            Ok(()) => {
                state.unsynced.drain(..len);
                state.unsynced_from = last_seq + 1;
                Ok(())
            }
            Err(error) => self.write_again(&mut state, &error),
        }
    }

    fn sync_locked(&self, state: &mut State) -> Result<(), JournalError> {
        let file = Arc::clone(&state.file);
        if let Err(error) = file.sync_data() {
            return self.write_again(state, &error);
        }
        state.unsynced.clear();
        state.unsynced_from = state.last_seq + 1;
        Ok(())
    }

    fn write_again(&self, state: &mut State, first: &std::io::Error) -> Result<(), JournalError> {
        let rewritten = self.next_segment(state).and_then(|()| {
            #[cfg(test)]
            if state.fail_syncs > 0 {
                state.fail_syncs -= 1;
                return Err(JournalError::Failed(self.folder.clone()));
            }
            state.file.sync_data().map_err(JournalError::io("synchronize", &state.segment.path))
        });
        if let Err(error) = rewritten {
            state.has_failed = true;
            tracing::error!(event = "journal_failed", %first, %error, "the journal cannot be written");
            return Err(error);
        }
        state.unsynced.clear();
        state.unsynced_from = state.last_seq + 1;
        Ok(())
    }

    fn sync_file(&self, file: &File) -> std::io::Result<()> {
        #[cfg(test)]
        {
            let mut state = self.lock();
            if state.fail_syncs > 0 {
                state.fail_syncs -= 1;
                return Err(std::io::Error::other("planted"));
            }
        }
        file.sync_data()
    }

    /// Begins a segment with the frames that are not known to be on the disk.
    fn next_segment(&self, state: &mut State) -> Result<(), JournalError> {
        let name = SegmentName::new(&self.folder, self.writer, state.segment.number + 1);
        let created = segment::create(&name, state.unsynced_from).and_then(|mut file| {
            file.write_all(&state.unsynced)?;
            File::open(&self.folder)?.sync_all()?;
            Ok(file)
        });
        state.file = Arc::new(created.map_err(JournalError::io("create", &name.path))?);
        state.len = segment::HEADER_LEN + state.unsynced.len() as u64;
        state.segment = name;
        Ok(())
    }

    /// A thread that panicked while it held the lock has not changed the numbers: they change after the write.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a series of segments in the order of its sequence numbers.
#[derive(Debug)]
pub struct JournalReader {
    folder: PathBuf,
    writer: Id,
    /// The segment, and the offset of the next frame in it.
    at: Option<(SegmentName, u64)>,
    /// The last record that was read.
    seq: i64,
    last_known: i64,
}

impl JournalReader {
    fn new(folder: &Path, writer: Id) -> JournalReader {
        JournalReader { folder: folder.to_owned(), writer, at: None, seq: 0, last_known: 0 }
    }

    /// Returns the incarnation whose records it reads.
    pub fn writer(&self) -> Id {
        self.writer
    }

    /// Returns the last record that recovery has found.
    pub fn last_seq(&self) -> i64 {
        self.last_known
    }

    /// Continues after the record `seq`, wherever it has read before.
    pub(crate) fn seek(&mut self, seq: i64) {
        self.at = None;
        self.seq = seq;
    }

    /// Returns up to `max` records that follow. The answer is empty while the journal has no more.
    pub(crate) fn next(&mut self, max: usize) -> Result<Vec<Frame>, JournalError> {
        loop {
            let Some((name, offset)) = self.at.clone() else {
                match self.find()? {
                    true => continue,
                    false => return Ok(Vec::new()),
                }
            };
            let read =
                || segment::read(&name.path, offset, max).map_err(JournalError::io("read", &name.path));
            let mut frames = read()?;
            if frames.is_empty() {
                let Some(next) = self.following(&name)? else { return Ok(Vec::new()) };
                // Nothing is appended to a segment that has a successor, but something may have been since the first look.
                frames = read()?;
                if frames.is_empty() {
                    self.at = Some((next, segment::HEADER_LEN));
                    continue;
                }
            }
            let read: u64 = frames.iter().map(|frame| frame.bytes).sum();
            self.at = Some((name, offset + read));
            // Records that a newer segment repeats were read before.
            let fresh: Vec<Frame> = frames.into_iter().filter(|frame| frame.seq > self.seq).collect();
            match fresh.first() {
                None => continue,
                Some(first) if first.seq != self.seq + 1 => {
                    return Err(JournalError::CursorTooOld { cursor: self.seq });
                }
                Some(_) => {
                    self.seq += fresh.len() as i64;
                    return Ok(fresh);
                }
            }
        }
    }

    /// Begins at the first segment of the series. Returns whether there is one.
    fn find(&mut self) -> Result<bool, JournalError> {
        let first = self.segments()?.into_iter().next();
        self.at = first.map(|name| (name, segment::HEADER_LEN));
        Ok(self.at.is_some())
    }

    fn following(&self, name: &SegmentName) -> Result<Option<SegmentName>, JournalError> {
        Ok(self.segments()?.into_iter().find(|other| other.number > name.number))
    }

    fn segments(&self) -> Result<Vec<SegmentName>, JournalError> {
        let names = SegmentName::list(&self.folder).map_err(JournalError::io("read", &self.folder))?;
        Ok(names.into_iter().filter(|name| name.writer == self.writer).collect())
    }
}

#[cfg(test)]
mod tests;
