//! The shipper: posts a journal to the database, in order and exactly once.

use std::path::Path;

use crate::journal::{Frame, JournalError, JournalFolder, JournalReader};
use crate::ledger::{Hash, Id};
use crate::{Batch, Database, Error};

/// Records in one transaction.
const BATCH_MAX: usize = 512;

/// Posts the journal of one writer. It does one step at a time, so that tests need no clock.
pub(crate) struct Shipper<'d> {
    database: &'d Database,
    reader: JournalReader,
    writer: Id,
    name: String,
    /// The last record that is known to be posted.
    cursor: i64,
    /// The last block that this shipper has posted, and its hash.
    head: Option<(i64, Hash)>,
}

impl<'d> Shipper<'d> {
    /// Registers the writer if the database does not know it, and continues where the database says.
    pub(crate) async fn start(
        database: &'d Database,
        reader: JournalReader,
        name: &str,
        now_us: i64,
    ) -> Result<Shipper<'d>, Error> {
        let writer = reader.writer();
        let mut shipper = Shipper { database, reader, writer, name: name.to_owned(), cursor: 0, head: None };
        shipper.find_cursor(now_us).await?;
        Ok(shipper)
    }

    pub(crate) fn cursor(&self) -> i64 {
        self.cursor
    }

    /// Returns the last block that it has posted, and its hash.
    pub(crate) fn head(&self) -> Option<(i64, Hash)> {
        self.head
    }

    /// Posts the next batch. Returns the number of records in it; 0 if the journal has no more.
    pub(crate) async fn ship(&mut self, now_us: i64) -> Result<usize, Error> {
        let frames = self.reader.next(BATCH_MAX)?;
        if frames.is_empty() {
            return Ok(0);
        }
        let count = frames.len();
        let records = frames.into_iter().map(|Frame { record, .. }| record).collect();
        let batch = Batch { writer: self.writer, after: self.cursor, records, now_us };
        match self.database.post(batch).await {
            Ok(receipt) => {
                self.cursor = receipt.shipped_seq;
                self.head = Some((receipt.block, receipt.head));
                Ok(count)
            }
            // The answer to an earlier commit was lost, or the database was set back. The journal has the records.
            Err(Error::CursorMoved { .. }) => {
                self.find_cursor(now_us).await?;
                Ok(count)
            }
            Err(error) => {
                self.reader.seek(self.cursor);
                Err(error)
            }
        }
    }

    /// Tells the database that the writer lives. If the database was set back, the records are posted again from there.
    pub(crate) async fn heartbeat(&mut self, clean_at_us: i64, now_us: i64) -> Result<(), Error> {
        match self.database.heartbeat(self.writer, self.cursor, clean_at_us, now_us).await {
            Err(Error::CursorMoved { .. }) => self.find_cursor(now_us).await,
            done => done,
        }
    }

    async fn find_cursor(&mut self, now_us: i64) -> Result<(), Error> {
        self.database.register(self.writer, &self.name, now_us).await?;
        let cursor = self.database.cursor(self.writer).await?;
        let cursor = cursor.ok_or(Error::CursorMoved { expected: self.cursor, found: None })?;
        if cursor < self.cursor {
            tracing::warn!(
                event = "database_set_back",
                writer = %self.writer,
                from = self.cursor,
                to = cursor,
                "the database was set back; the journal is posted again from there"
            );
        }
        self.cursor = cursor;
        self.reader.seek(cursor);
        Ok(())
    }
}

/// What the journal of a server that does not return held.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Adopted {
    /// Incarnations of the server.
    pub writers: u64,
    /// Records in their journals.
    pub records: u64,
    /// Records that the database did not have yet.
    pub posted: u64,
}

impl Database {
    /// Posts the journals in a folder whose server does not return, and closes their writers. The files stay. `progress` is
    /// called with the records that are posted or known, and with all records.
    pub async fn adopt(
        &self,
        folder: &Path,
        now_us: i64,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Adopted, Error> {
        let folder = JournalFolder::open(folder)?;
        let readers = folder.recover()?;
        let records = readers.iter().map(|reader| u64::try_from(reader.last_seq()).unwrap_or(0)).sum();
        let mut adopted = Adopted { records, ..Adopted::default() };
        let mut done = 0;
        for reader in readers {
            let (writer, last) = (reader.writer(), u64::try_from(reader.last_seq()).unwrap_or(0));
            let ship = ship_whole(self, reader, "adopted", now_us, |cursor| {
                progress(done + u64::try_from(cursor).unwrap_or(0).min(last), records);
            });
            adopted.posted += ship.await?;
            done += last;
            self.close(writer).await?;
            adopted.writers += 1;
        }
        Ok(adopted)
    }
}

/// Posts a journal of an earlier incarnation whole. `progress` is called with the cursor after each batch.
pub(crate) async fn ship_whole(
    database: &Database,
    reader: JournalReader,
    name: &str,
    now_us: i64,
    mut progress: impl FnMut(i64),
) -> Result<u64, Error> {
    let last = reader.last_seq();
    let mut shipper = Shipper::start(database, reader, name, now_us).await?;
    if shipper.cursor() > last {
        // The database has more than the disk kept: the server's host lost power. Nothing is missing in the database.
        return Ok(0);
    }
    let mut shipped = 0;
    loop {
        progress(shipper.cursor());
        match shipper.ship(now_us).await {
            Ok(0) => break,
            Ok(count) => shipped += count as u64,
            Err(error) => return Err(error),
        }
    }
    match shipper.cursor() == last {
        true => Ok(shipped),
        false => Err(JournalError::CursorTooOld { cursor: shipper.cursor() }.into()),
    }
}
