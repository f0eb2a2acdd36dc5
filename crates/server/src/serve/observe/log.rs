//! The log: lines of text or JSON on standard error.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
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
        .with(lines.with_filter(filter))
        .try_init()
        .context("cannot start the log")?;
    Ok(guard)
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
    fn a_limit_of_zero_allows_no_line() {
        assert_eq!(LogThrottle::default().pass(0), None);
    }
}
