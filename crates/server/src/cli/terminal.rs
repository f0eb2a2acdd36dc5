//! Output for the terminal. Colours are dropped if the output is not a terminal, or if `NO_COLOR` is set.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use anyhow::{Context, Result};
use jiff::Timestamp;
use tollgate::core::Time;
use tollgate_document::{Colour, Problems, Source, quote};

use crate::cli::exit;

pub(crate) const STRONG: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const RED: Style = AnsiColor::Red.on_default();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
const ERROR: Style = RED.bold();
const WARNING: Style = YELLOW.bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();

/// An error that ends a command: what went wrong, and a hint.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    hint: String,
    code: ExitCode,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { what: what.into(), hint: hint.into(), code: exit::invalid_input() }
    }

    /// A failure of the store.
    pub(crate) fn of_store(what: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { code: exit::store_failed(), ..Failure::new(what, hint) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}

/// Writes to standard output.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Writes to standard error.
pub(crate) fn complain(text: &str) {
    match anstream::stderr().lock().write_all(text.as_bytes()) {
        // If standard error is closed, there is no other place to report to.
        Ok(()) | Err(_) => (),
    }
}

/// Prints a warning and its hint to standard error.
pub(crate) fn warn(what: &str, hint: &str) {
    complain(&format!("{WARNING}warning:{WARNING:#} {what}\n\n{HINT}hint:{HINT:#} {hint}\n"));
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
    complain(&error_text(&format!("{error:#}"), failure.map(|failure| failure.hint.as_str())));
    failure.map_or_else(exit::invalid_input, |failure| failure.code)
}

fn error_text(what: &str, hint: Option<&str>) -> String {
    let error = format!("{ERROR}error:{ERROR:#} {what}\n");
    match hint {
        Some(hint) => format!("{error}\n{HINT}hint:{HINT:#} {hint}\n"),
        None => error,
    }
}

/// Escapes control characters, which a terminal would obey.
pub(crate) fn harmless(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
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
