//! The capture of checks, which `tollgate simulate --log-format capture` replays.
//!
//! The worker that decides copies the attributes into a bounded queue. One thread hashes them and writes the file, so that
//! neither hashing nor a slow disk delays an answer. What does not fit into the queue is dropped and counted.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tollgate::core::rules::Request;
use tollgate::core::{SubjectHasher, Time};
use tollgate::{Clock, Decision, SystemClock};

use super::{Exposition, Kind};
use crate::config::CaptureConfig;
use crate::failure::Failure;
use crate::simulate::captured_value;
use crate::simulate::format::capture::{Check, Dropped, Header, VERSION};

/// Checks that wait for the writer, and the bytes of their attributes.
const QUEUE: usize = 8_192;
const QUEUE_BYTES_MAX: usize = 64 << 20;
/// How long a line may wait in the writer's buffer.
const FLUSH_EVERY: Duration = Duration::from_millis(500);

/// Captures checks to a file.
pub(crate) struct Capture {
    queue: SyncSender<Entry>,
    counts: Arc<Counts>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Counts {
    written: AtomicU64,
    dropped: AtomicU64,
    queued_bytes: AtomicUsize,
}

/// What the writer gets.
enum Entry {
    Check(Captured),
    End,
}

/// One check. Its attributes are copied into one text.
struct Captured {
    at_us: u64,
    allowed: bool,
    cost: Option<u64>,
    text: String,
    /// The ends of names and values in `text`, by turns.
    ends: Vec<u32>,
}

impl Capture {
    /// Opens the file, and starts the writer. An existing capture is continued.
    pub(crate) fn start(config: &CaptureConfig, hasher: &SubjectHasher) -> Result<Capture, Failure> {
        let CaptureConfig { path, bytes_max } = config;
        let refused = |error: &io::Error| {
            let hint = "capture_file names a file in a folder that the server may write to";
            Failure::new(format!("cannot write the capture {}: {error}", path.display()), hint)
        };
        let file = open(path).map_err(|error| refused(&error))?;
        let written = file.metadata().map_err(|error| refused(&error))?.len();
        let counts = Arc::<Counts>::default();
        let (queue, entries) = sync_channel(QUEUE);
        let mut writer = Writer {
            out: BufWriter::with_capacity(1 << 16, file),
            hasher: hasher.clone(),
            counts: Arc::clone(&counts),
            bytes_left: bytes_max.saturating_sub(written),
            reported: 0,
            has_failed: false,
        };
        writer.header();
        let thread = thread::Builder::new().name("capture".to_owned()).spawn(move || writer.run(&entries));
        let thread = thread.map_err(|error| refused(&error))?;
        Ok(Capture { queue, counts, writer: Mutex::new(Some(thread)) })
    }

    /// Captures a decided check.
    pub(super) fn note(&self, request: &Request<'_>, decision: &Decision) {
        // Rules count what was prepared: spellings of one account are one subject.
        let prepared = decision.rule_set().prepare(request.attributes);
        let replaced = prepared.as_ref().map(|values| values.replace_in(request.attributes));
        let attributes = replaced.as_ref().unwrap_or(request.attributes);
        let (mut text, mut ends) = (String::new(), Vec::new());
        for (name, value) in attributes.iter() {
            // The path has readings, which the replay finds again in what was sent.
            let value = if name == "path" { request.attributes.get(name).unwrap_or(value) } else { value };
            text.push_str(name);
            ends.push(text.len() as u32);
            text.push_str(value);
            ends.push(text.len() as u32);
        }
        let (decided_at, bytes) = (decision.decided_at(), text.len());
        // The store is not asked about what a list decides.
        let at = if decided_at == Time::ZERO { SystemClock.now() } else { decided_at };
        let cost = request.states_cost.then_some(request.cost);
        let captured = Captured { at_us: at.us(), allowed: decision.allowed(), cost, text, ends };
        let queued = self.counts.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = queued.saturating_add(bytes) <= QUEUE_BYTES_MAX;
        if !fits || self.queue.try_send(Entry::Check(captured)).is_err() {
            self.counts.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn write(&self, page: &mut Exposition) {
        let counted = |count: &AtomicU64| count.load(Ordering::Relaxed);
        page.single(
            "tollgate_capture_written_total",
            Kind::Counter,
            "Checks that were written to the capture file.",
            counted(&self.counts.written),
        );
        page.single(
            "tollgate_capture_dropped_total",
            Kind::Counter,
            "Checks that the capture file lacks, because the disk was too slow or the file is full.",
            counted(&self.counts.dropped),
        );
    }

    /// Writes what waits, and closes the file.
    pub(super) fn end(&self) {
        let Some(writer) = self.writer.lock().take() else { return };
        // The writer always reads, so this waits for a place at most as long as a line takes.
        let ended = self.queue.send(Entry::End).is_ok() && writer.join().is_ok();
        if !ended {
            tracing::warn!(event = "capture_failed", "the writer of the capture has died");
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    // Paths and plans of requests are in the clear.
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Writes the file.
struct Writer {
    out: BufWriter<File>,
    hasher: SubjectHasher,
    counts: Arc<Counts>,
    bytes_left: u64,
    /// Dropped checks that the file mentions.
    reported: u64,
    has_failed: bool,
}

impl Writer {
    fn header(&mut self) {
        let header = Header { tollgate_capture: VERSION, hash_key: self.hasher.fingerprint() };
        self.line(&header);
    }

    fn run(mut self, entries: &Receiver<Entry>) {
        loop {
            match entries.recv_timeout(FLUSH_EVERY) {
                Ok(Entry::Check(captured)) => self.check(captured),
                Err(RecvTimeoutError::Timeout) => self.flush(),
                Ok(Entry::End) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // Workers may have answered a last request after the end began.
        while let Ok(Entry::Check(captured)) = entries.try_recv() {
            self.check(captured);
        }
        self.flush();
    }

    fn check(&mut self, captured: Captured) {
        self.counts.queued_bytes.fetch_sub(captured.text.len(), Ordering::Relaxed);
        let check = self.hashed(&captured);
        if self.line(&check) {
            self.counts.written.fetch_add(1, Ordering::Relaxed);
        } else {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn hashed(&self, captured: &Captured) -> Check {
        let (mut attributes, mut start) = (Map::new(), 0);
        for pair in captured.ends.chunks_exact(2) {
            let (middle, end) = (pair[0] as usize, pair[1] as usize);
            let (name, value) = (&captured.text[start..middle], &captured.text[middle..end]);
            let value = match captured_value::is_hashed(name) {
                // An empty value is no subject, and stays one.
                true if !value.is_empty() => captured_value::hash(&self.hasher, name, value),
                _ => value.to_owned(),
            };
            attributes.insert(name.to_owned(), Value::String(value));
            start = end;
        }
        Check { at: captured.at_us, allowed: captured.allowed, cost: captured.cost, attributes }
    }

    /// Writes a line, unless the file is full or broken.
    fn line(&mut self, line: &impl serde::Serialize) -> bool {
        let Ok(mut text) = serde_json::to_vec(line) else { return false };
        text.push(b'\n');
        if self.has_failed || (text.len() as u64) > self.bytes_left {
            return false;
        }
        self.bytes_left -= text.len() as u64;
        self.keep(|out| out.write_all(&text))
    }

    fn flush(&mut self) {
        let dropped = self.counts.dropped.load(Ordering::Relaxed);
        if dropped > self.reported && self.line(&Dropped { dropped: dropped - self.reported }) {
            self.reported = dropped;
        }
        self.keep(|out| out.flush());
    }

    /// Stops writing after a failure: half a line may be in the file.
    fn keep(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> bool {
        match write(&mut self.out) {
            Ok(()) => true,
            Err(error) => {
                if !self.has_failed {
                    tracing::warn!(event = "capture_failed", cause = %error, "the capture ends here");
                }
                self.has_failed = true;
                false
            }
        }
    }
}
