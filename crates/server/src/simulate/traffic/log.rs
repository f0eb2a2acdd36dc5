//! One log: from its blocks to batches of requests in the order of their start.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::format::capture::{self, About, CaptureReader};
use super::format::{FieldReader, LogFormat, Skip, Values, detect};
use super::input::{Block, Input};
use super::mapping::{Mapping, ResolvedMapping};
use super::order::{Sorter, Spread};
use super::records::{Batch, Names};
use crate::failure::Failure;
use crate::serve::edge::lossless_text::lossless_text;

/// Lines by which the format is recognised.
const SAMPLE_LINES: usize = 200;

/// A log whose format is known.
pub(in crate::simulate) struct Log {
    input: Input,
    /// The block that the format was recognised by.
    first: Option<Block>,
    reader: Reader,
    names: Arc<Names>,
    spread: bool,
    /// Whether some request of the sample has a duration.
    has_durations: bool,
    /// The fingerprint of the hash key of a capture.
    hash_key: Option<String>,
    counts: LineCounts,
}

#[derive(Clone)]
enum Reader {
    Fields { fields: FieldReader, mapping: Box<ResolvedMapping> },
    Capture(CaptureReader),
}

/// What was found in one log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::simulate) struct LogSummary {
    pub(in crate::simulate) name: String,
    pub(in crate::simulate) format: LogFormat,
    pub(in crate::simulate) counts: LineCounts,
    /// Whether requests have durations, which concurrency limits need.
    pub(in crate::simulate) has_durations: bool,
    /// What a capture says about itself.
    pub(in crate::simulate) capture: Option<About>,
}

/// Lines by what they are.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(in crate::simulate) struct LineCounts {
    pub(in crate::simulate) lines: u64,
    pub(in crate::simulate) requests: u64,
    /// Readable lines that are not about a request.
    pub(in crate::simulate) other: u64,
    pub(in crate::simulate) unreadable: u64,
    /// Unreadable lines by what is wrong.
    pub(in crate::simulate) reasons: BTreeMap<&'static str, u64>,
    /// The first unreadable line, counted from 1.
    pub(in crate::simulate) first_unreadable: Option<(u64, &'static str)>,
    /// Why the log ended early.
    pub(in crate::simulate) truncated: Option<String>,
}

/// The settings of reading.
pub(in crate::simulate) struct LogSettings<'s> {
    pub(in crate::simulate) format: LogFormat,
    pub(in crate::simulate) mapping: &'s Mapping,
    pub(in crate::simulate) names: &'s Arc<Names>,
    pub(in crate::simulate) spread: bool,
}

impl Log {
    /// Opens a log and finds its format and its fields.
    pub(in crate::simulate) fn open(
        path: &Path,
        settings: &LogSettings<'_>,
        progress: &Arc<AtomicU64>,
    ) -> Result<(Log, LogFormat), Failure> {
        let input = Input::open(path, progress)?;
        Log::of(input, settings)
    }

    pub(in crate::simulate) fn of(
        mut input: Input,
        settings: &LogSettings<'_>,
    ) -> Result<(Log, LogFormat), Failure> {
        let first = input.next_block();
        let text = match &first {
            Block::Lines(bytes) => lossless_text(bytes).into_owned(),
            _ => String::new(),
        };
        let sample: Vec<&str> = text.lines().take(SAMPLE_LINES).collect();
        let format = match settings.format {
            // A log without any line is a log without requests.
            LogFormat::Auto if sample.is_empty() => LogFormat::Nginx,
            LogFormat::Auto => detect::format_of(&sample).ok_or_else(|| {
                let what = format!("unknown log format: {} has no line of a known format", input.name());
                Failure::new(what, "name the format with --log-format; `tollgate simulate --help` lists them")
            })?,
            named => named,
        };
        let reader = match FieldReader::new(format, &sample) {
            Some(mut fields) => {
                let mapping = ResolvedMapping::new(settings.mapping, format, &mut fields, settings.names)?;
                Reader::Fields { fields, mapping: Box::new(mapping) }
            }
            None => Reader::Capture(CaptureReader::default()),
        };
        let mut log = Log {
            input,
            first: None,
            reader,
            names: Arc::clone(settings.names),
            spread: settings.spread,
            has_durations: false,
            hash_key: sample.first().and_then(|line| capture::hash_key(line)),
            counts: LineCounts::default(),
        };
        log.has_durations = log.sample_has_durations(&sample);
        log.first = Some(first);
        Ok((log, format))
    }

    /// Whether requests have durations, which concurrency limits need.
    pub(in crate::simulate) const fn has_durations(&self) -> bool {
        self.has_durations
    }

    /// The fingerprint of the hash key of a capture.
    pub(in crate::simulate) fn captured_with(&self) -> Option<&str> {
        self.hash_key.as_deref()
    }

    fn sample_has_durations(&self, sample: &[&str]) -> bool {
        let mut batch = Batch::default();
        let mut counts = LineCounts::default();
        let mut reader = self.reader.clone();
        for line in sample {
            reader.read_line(line, &mut Vec::new(), &self.names, &mut batch, &mut counts);
        }
        (0..batch.len()).any(|index| batch.record(index).duration_us().is_some())
    }

    /// Reads the whole log and passes on batches in the order of time. `emit` returns whether it wants more.
    pub(in crate::simulate) fn read(
        mut self,
        format: LogFormat,
        mut emit: impl FnMut(Batch) -> bool,
    ) -> LogSummary {
        let mut wanted = true;
        let mut spread = self.spread.then(Spread::default);
        let (ends, mut sorter) = match &self.reader {
            Reader::Capture(_) => (false, None),
            Reader::Fields { mapping, .. } => {
                let sorts = mapping.time_is_start() || self.has_durations;
                (!mapping.time_is_start(), sorts.then(Sorter::default))
            }
        };
        while wanted && let Some(batch) = self.next_batch() {
            let mut sorted = |batch: Batch| match &mut sorter {
                Some(sorter) => sorter.push(batch, ends, |batch| wanted &= emit(batch)),
                None => wanted &= emit(batch),
            };
            match &mut spread {
                Some(spread) => spread.push(batch, &mut sorted),
                None => sorted(batch),
            }
        }
        let mut last = |batch: Batch| match &mut sorter {
            Some(sorter) => sorter.push(batch, ends, |batch| wanted = wanted && emit(batch)),
            None => wanted = wanted && emit(batch),
        };
        if let Some(spread) = spread {
            spread.end(&mut last);
        }
        if let Some(sorter) = sorter {
            sorter.end(|batch| wanted = wanted && emit(batch));
        }
        LogSummary {
            name: self.input.name().to_owned(),
            format,
            counts: self.counts,
            has_durations: self.has_durations,
            capture: match self.reader {
                Reader::Capture(reader) => Some(reader.about),
                Reader::Fields { .. } => None,
            },
        }
    }

    /// Returns the requests of the next block, or `None` at the end.
    fn next_batch(&mut self) -> Option<Batch> {
        loop {
            let block = match self.first.take() {
                Some(first) => first,
                None => self.input.next_block(),
            };
            match block {
                Block::Lines(bytes) => return Some(self.batch_of(&bytes)),
                Block::LongLine => {
                    self.counts.lines += 1;
                    self.counts.count_unreadable("longer than 1 MiB");
                }
                Block::Truncated(error) => self.counts.truncated = Some(error.to_string()),
                Block::End => return None,
            }
        }
    }

    fn batch_of(&mut self, bytes: &[u8]) -> Batch {
        let text = lossless_text(bytes);
        let mut batch = Batch::default();
        let mut values = Vec::new();
        let mut rest = &*text;
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest.as_bytes()).unwrap_or(rest.len());
            let line = rest[..end].strip_suffix('\r').unwrap_or(&rest[..end]);
            rest = rest.get(end + 1..).unwrap_or_default();
            self.reader.read_line(line, &mut values, &self.names, &mut batch, &mut self.counts);
        }
        batch
    }
}

impl Reader {
    #[inline]
    fn read_line<'l>(
        &mut self,
        line: &'l str,
        values: &mut Values<'l>,
        names: &Names,
        batch: &mut Batch,
        counts: &mut LineCounts,
    ) {
        counts.lines += 1;
        let read = match self {
            Reader::Fields { fields, mapping } => {
                fields.read(line, values).and_then(|()| mapping.add(values, batch))
            }
            Reader::Capture(reader) => reader.read(line, names, batch),
        };
        match read {
            Ok(()) => counts.requests += 1,
            Err(skip) => {
                batch.abandon();
                match skip {
                    Skip::NotARequest => counts.other += 1,
                    Skip::Unreadable(_) if line.trim().is_empty() => counts.other += 1,
                    Skip::Unreadable(reason) => counts.count_unreadable(reason),
                }
            }
        }
    }
}

impl LineCounts {
    fn count_unreadable(&mut self, reason: &'static str) {
        self.unreadable += 1;
        *self.reasons.entry(reason).or_default() += 1;
        self.first_unreadable.get_or_insert((self.lines, reason));
    }
}
