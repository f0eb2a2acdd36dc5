//! Reads all logs, each on a thread, and merges their requests by time.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use anyhow::{Result, anyhow};

use super::format::LogFormat;
use super::log::{Log, LogSummary};
use super::records::Batch;

/// Batches that wait between a log's thread and the merge.
const QUEUE: usize = 2;
/// Requests of a merged batch.
const BATCH_RECORDS: usize = 1 << 13;

/// The next request of one log.
struct Head {
    batches: Receiver<Batch>,
    batch: Batch,
    index: usize,
}

impl Head {
    /// Moves to the next batch if this one is used up. Returns whether there is a request.
    fn fill(&mut self) -> bool {
        while self.index == self.batch.len() {
            match self.batches.recv() {
                Ok(batch) => (self.batch, self.index) = (batch, 0),
                Err(_) => return false,
            }
        }
        true
    }
}

/// Passes on the requests of all logs in the order of their time. Of requests at the same time, that of the log that was
/// named first comes first.
pub(in crate::simulate) fn read_all(
    logs: Vec<(Log, LogFormat)>,
    emit: &mut dyn FnMut(Batch) -> bool,
) -> Result<Vec<LogSummary>> {
    thread::scope(|scope| {
        let (mut heads, mut threads) = (Vec::new(), Vec::new());
        for (log, format) in logs {
            let (sender, batches) = sync_channel(QUEUE);
            threads.push(scope.spawn(move || log.read(format, |batch| sender.send(batch).is_ok())));
            heads.push(Head { batches, batch: Batch::default(), index: 0 });
        }
        if let [only] = &mut heads[..] {
            while only.fill() && emit(std::mem::take(&mut only.batch)) {
                only.index = 0;
            }
        } else {
            merge(&mut heads, emit);
        }
        drop(heads);
        let summaries = threads.into_iter().map(|thread| {
            thread.join().map_err(|_| anyhow!("the thread that reads a log has died; this is a defect"))
        });
        summaries.collect()
    })
}

fn merge(heads: &mut Vec<Head>, emit: &mut dyn FnMut(Batch) -> bool) {
    heads.retain_mut(Head::fill);
    let mut merged = Batch::default();
    loop {
        let first = heads.iter().enumerate().min_by_key(|(_, head)| head.batch.record(head.index).at());
        let Some((first, _)) = first else { break };
        let head = &mut heads[first];
        let record = head.batch.record(head.index);
        merged.copy(record, record.at());
        head.index += 1;
        if !head.fill() {
            heads.remove(first);
        }
        if merged.len() == BATCH_RECORDS && !emit(std::mem::take(&mut merged)) {
            return;
        }
    }
    if !merged.is_empty() {
        emit(merged);
    }
}
