//! The shipper: posts a journal to the database, in order and exactly once.

use crate::journal::{Frame, JournalError, JournalReader};
use crate::ledger::Id;
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
        let mut shipper = Shipper { database, reader, writer, name: name.to_owned(), cursor: 0 };
        shipper.find_cursor(now_us).await?;
        Ok(shipper)
    }

    pub(crate) fn cursor(&self) -> i64 {
        self.cursor
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

/// Posts journals of earlier incarnations whole.
pub(crate) async fn ship_whole(
    database: &Database,
    reader: JournalReader,
    name: &str,
    now_us: i64,
) -> Result<u64, Error> {
    let last = reader.last_seq();
    let mut shipper = Shipper::start(database, reader, name, now_us).await?;
    if shipper.cursor() > last {
        // The database has more than the disk kept: the server's host lost power. Nothing is missing in the database.
        return Ok(0);
    }
    let mut shipped = 0;
    loop {
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
