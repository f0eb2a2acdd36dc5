//! What the terminal gets to see: text with colours, which are dropped when nobody could see them or `NO_COLOR` is set.

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
const HINT: Style = AnsiColor::Cyan.on_default().bold();

/// Writes to standard output.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Says what went wrong, then the hint, if there is one; gives the exit code.
pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
    let unread = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
    };
    if error.chain().any(unread) {
        return exit::unread();
    }
    let failure = error.downcast_ref::<Failure>();
    stderr::write(&said(&format!("{error:#}"), failure.map(Failure::hint)));
    match failure.map_or(FailureKind::Input, Failure::kind) {
        FailureKind::Input => exit::unusable(),
        FailureKind::Store => exit::unavailable(),
    }
}

fn said(what: &str, hint: Option<&str>) -> String {
    let error = format!("{ERROR}error:{ERROR:#} {what}\n");
    match hint {
        Some(hint) => format!("{error}\n{HINT}hint:{HINT:#} {hint}\n"),
        None => error,
    }
}

/// The problems of a file, for people.
pub(crate) fn problems(problems: &Problems, source: &Source) -> String {
    problems.render(source, Colour::Ansi)
}

/// A value as it was typed; in quotes, and cut if it is long, where it would confuse the terminal or the reader.
pub(crate) fn typed(value: &str) -> String {
    let quoted = quote(value);
    let plain =
        !value.is_empty() && !value.contains([' ', ',']) && quoted.get(1..quoted.len() - 1) == Some(value);
    if plain { value.to_owned() } else { quoted }
}

/// Milliseconds, or larger units from where these are easier to read; then rounded up to seconds.
pub(crate) fn length(ms: u64) -> String {
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

/// An instant as people and programs write it.
pub(crate) fn instant(time: Time) -> String {
    timestamp(time).map_or_else(|| format!("{time:?}"), |timestamp| timestamp.to_string())
}

pub(crate) fn timestamp(time: Time) -> Option<Timestamp> {
    Timestamp::from_microsecond(i64::try_from(time.us()).ok()?).ok()
}
