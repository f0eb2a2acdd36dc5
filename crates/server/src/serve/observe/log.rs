//! What a server tells people: lines of text or of JSON on standard error.

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

/// Lines that wait for a slow terminal or a full pipe. Beyond them lines are dropped: nobody waits to be served because
/// nobody reads the log.
const LINES_MAX: usize = 8_192;

/// Begins to write. What is written last is out when the guard is dropped.
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
        .context("cannot begin to log")?;
    Ok(guard)
}

/// Lets so many through in a second, and counts the others.
pub(crate) struct Throttle {
    began: Instant,
    /// The second in the upper half, how many have passed in it in the lower.
    window: AtomicU64,
    held: AtomicU64,
}

impl Default for Throttle {
    fn default() -> Throttle {
        Throttle { began: Instant::now(), window: AtomicU64::new(0), held: AtomicU64::new(0) }
    }
}

impl Throttle {
    /// Whether one more may pass in this second. If so, how many have been held back since the last one.
    pub(crate) fn pass(&self, per_second: u32) -> Option<u64> {
        // Counted from one, so that the first second is not the state from before the first.
        let second = self.began.elapsed().as_secs() + 1;
        let passed = self.window.try_update(Ordering::Relaxed, Ordering::Relaxed, |window| {
            let in_second = if window >> 32 == second { window & 0xFFFF_FFFF } else { 0 };
            (in_second < u64::from(per_second)).then_some(second << 32 | (in_second + 1))
        });
        if passed.is_ok() {
            return Some(self.held.swap(0, Ordering::Relaxed));
        }
        self.held.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// A value from outside, for a log: cut, and without what a terminal or a reader of lines would obey.
pub(crate) fn harmless(value: &str) -> String {
    const CHARS_MAX: usize = 64;
    let mut told: String = value.chars().take(CHARS_MAX).flat_map(escaped).collect();
    if value.chars().nth(CHARS_MAX).is_some() {
        told.push('…');
    }
    told
}

fn escaped(c: char) -> impl Iterator<Item = char> {
    let (plain, control) = if c.is_control() { (None, Some(c.escape_default())) } else { (Some(c), None) };
    plain.into_iter().chain(control.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_pass_in_a_second_and_the_next_one_tells_of_the_others() {
        let throttle = Throttle::default();
        assert_eq!([2, 2, 2, 2].map(|per_second| throttle.pass(per_second)), [Some(0), Some(0), None, None]);
        // As if the second were over.
        throttle.window.store(0, Ordering::Relaxed);
        assert_eq!(throttle.pass(2), Some(2));
    }

    #[test]
    fn none_pass_if_none_may() {
        assert_eq!(Throttle::default().pass(0), None);
    }

    #[test]
    fn a_value_cannot_begin_a_line_of_its_own() {
        assert_eq!(harmless("a\n{\"event\":1}\u{1b}[2J"), "a\\n{\"event\":1}\\u{1b}[2J");
        assert_eq!(harmless(&"x".repeat(65)), format!("{}…", "x".repeat(64)));
    }
}
