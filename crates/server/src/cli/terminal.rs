//! Output for the terminal. Colours are dropped if the output is not a terminal, or if `NO_COLOR` is set.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use anyhow::{Context, Result};
use jiff::Timestamp;
use tollgate::core::Time;
use tollgate_document::{Colour, Problems, Source, quote};

use crate::cli::exit;
use crate::failure::{Failure, FailureKind};
use crate::stderr;

pub(crate) const STRONG: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const RED: Style = AnsiColor::Red.on_default();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
const ERROR: Style = RED.bold();
const WARNING: Style = YELLOW.bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();

/// Writes to standard output.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Prints a warning and its hint to standard error.
pub(crate) fn warn(what: &str, hint: &str) {
    stderr::write(&format!("{WARNING}warning:{WARNING:#} {what}\n\n{HINT}hint:{HINT:#} {hint}\n"));
}

/// Prints the error and its hint, and returns the exit code.
pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
    let is_broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
    };
    if error.chain().any(is_broken_pipe) {
        return exit::broken_pipe();
    }
    let failure = error.downcast_ref::<Failure>();
    stderr::write(&error_text(&format!("{error:#}"), failure.map(Failure::hint)));
    match failure.map_or(FailureKind::Input, Failure::kind) {
        FailureKind::Input => exit::invalid_input(),
        FailureKind::Store => exit::store_failed(),
        FailureKind::Declined => exit::declined(),
    }
}

fn error_text(what: &str, hint: Option<&str>) -> String {
    let error = format!("{ERROR}error:{ERROR:#} {what}\n");
    match hint {
        Some(hint) => format!("{error}\n{HINT}hint:{HINT:#} {hint}\n"),
        None => error,
    }
}

/// Formats the problems of a file for the terminal.
pub(crate) fn problems(problems: &Problems, source: &Source) -> String {
    problems.render(source, Colour::Ansi)
}

/// Formats a value for the terminal. It is quoted, and cut if it is long, unless it is one plain word.
pub(crate) fn quoted_unless_plain(value: &str) -> String {
    let quoted = quote(value);
    let plain =
        !value.is_empty() && !value.contains([' ', ',']) && quoted.get(1..quoted.len() - 1) == Some(value);
    if plain { value.to_owned() } else { quoted }
}

/// Formats milliseconds. From 100 seconds on, they are rounded up to seconds and split into larger units.
pub(crate) fn duration(ms: u64) -> String {
    if ms < 100_000 {
        return format!("{ms}ms");
    }
    let mut seconds = ms.div_ceil(1_000);
    let mut text = String::new();
    for (unit, name) in [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")] {
        if seconds >= unit {
            text += &format!("{}{name}", seconds / unit);
            seconds %= unit;
        }
    }
    text
}

/// Formats an instant as in RFC 3339.
pub(crate) fn instant(time: Time) -> String {
    timestamp(time).map_or_else(|| format!("{time:?}"), |timestamp| timestamp.to_string())
}

pub(crate) fn timestamp(time: Time) -> Option<Timestamp> {
    Timestamp::from_microsecond(i64::try_from(time.us()).ok()?).ok()
}
