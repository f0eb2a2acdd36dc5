//! The log: lines of text or JSON on standard error.

use std::io;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterExt, Targets};
use tracing_subscriber::layer::{Context as LayerContext, Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogConfig, LogFormat};

/// Lines that wait for a slow terminal or a full pipe. Further lines are dropped, so that a log that is not read does not
/// delay requests.
const LINES_MAX: usize = 8_192;

/// Starts the log. Dropping the guard writes the remaining lines.
pub(crate) fn start(config: &LogConfig) -> Result<WorkerGuard> {
    let (out, guard) =
        NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES_MAX).finish(io::stderr());
    let filter: Targets = config.filter.parse().context("the log filter")?;
    let lines = tracing_subscriber::fmt::layer().with_writer(out).with_target(false);
    let lines = match config.format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter.and(LibraryLines)))
        .try_init()
        .context("cannot start the log")?;
    Ok(guard)
}

/// Lines of libraries per second. Clients can cause some of them, such as errors of HTTP/2.
const LIBRARY_LINES_PER_SECOND: u32 = 2;
static LIBRARY_LINES: LazyLock<LogThrottle> = LazyLock::new(LogThrottle::default);
/// All lines that were suppressed since the start.
static SUPPRESSED: AtomicU64 = AtomicU64::new(0);

/// Limits the lines of libraries; ours have their own limits.
struct LibraryLines;

impl<S> Filter<S> for LibraryLines {
    fn enabled(&self, _: &Metadata<'_>, _: &LayerContext<'_, S>) -> bool {
        true
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }

    fn event_enabled(&self, event: &Event<'_>, _: &LayerContext<'_, S>) -> bool {
        event.metadata().target().starts_with("tollgate")
            || LIBRARY_LINES.pass(LIBRARY_LINES_PER_SECOND).is_some()
    }
}

/// The number of lines that were suppressed since the start.
pub(crate) fn suppressed() -> u64 {
    SUPPRESSED.load(Ordering::Relaxed)
}

/// Logs how many lines of libraries were suppressed since the last call, if any.
pub(crate) fn report_suppressed() {
    let suppressed = LIBRARY_LINES.suppressed.swap(0, Ordering::Relaxed);
    if suppressed > 0 {
        tracing::info!(event = "lines_suppressed", suppressed, "lines of libraries were suppressed");
    }
}

/// Limits the lines of a log event per second, and counts the suppressed ones.
pub(crate) struct LogThrottle {
    began: Instant,
    /// The current second in the upper half, the lines in it in the lower half.
    window: AtomicU64,
    suppressed: AtomicU64,
}

impl Default for LogThrottle {
    fn default() -> LogThrottle {
        LogThrottle { began: Instant::now(), window: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }
}

impl LogThrottle {
    /// Whether one more line is allowed in this second. If so, returns the number of lines suppressed since the last one.
    pub(crate) fn pass(&self, per_second: u32) -> Option<u64> {
        // From 1, because 0 is the initial state.
        let second = self.began.elapsed().as_secs() + 1;
        let passed = self.window.try_update(Ordering::Relaxed, Ordering::Relaxed, |window| {
            let in_second = if window >> 32 == second { window & 0xFFFF_FFFF } else { 0 };
            (in_second < u64::from(per_second)).then_some(second << 32 | (in_second + 1))
        });
        if passed.is_ok() {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        SUPPRESSED.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_per_second_are_limited_and_suppressed_ones_are_counted() {
        let throttle = LogThrottle::default();
        assert_eq!([2, 2, 2, 2].map(|per_second| throttle.pass(per_second)), [Some(0), Some(0), None, None]);
        // As if the next second had begun.
        throttle.window.store(0, Ordering::Relaxed);
        assert_eq!(throttle.pass(2), Some(2));
    }

    #[test]
    fn lines_of_libraries_are_limited_and_ours_are_not() {
        #[derive(Clone, Default)]
        struct Lines(std::sync::Arc<parking_lot::Mutex<Vec<u8>>>);
        impl io::Write for Lines {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).with_ansi(false);
        let filter: Targets = "info".parse().expect("a filter");
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(filter.and(LibraryLines)));
        let before = suppressed();
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..1_000 {
                tracing::warn!(target: "h2::proto", "too many resets {number}");
                tracing::info!(target: "tollgate_server::serve", "ours {number}");
            }
        });
        let text = String::from_utf8(lines.0.lock().clone()).expect("text");
        let of_libraries = text.matches("too many resets").count();
        assert!((1..=20).contains(&of_libraries), "{of_libraries} lines");
        assert_eq!(text.matches("ours").count(), 1_000);
        assert!(suppressed() - before >= 980, "suppressed lines are counted");
    }

    #[test]
    fn a_limit_of_zero_allows_no_line() {
        assert_eq!(LogThrottle::default().pass(0), None);
    }
}
