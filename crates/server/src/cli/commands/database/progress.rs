//! The progress bar of commands that read or copy a whole ledger.

use std::io::{self, IsTerminal};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Whether a bar is drawn, so that its length is worth a query.
pub(super) fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Returns a bar on standard error, which is hidden if that is no terminal. `unit` is what it counts.
pub(super) fn bar(length: i64, unit: &str) -> Result<ProgressBar> {
    let target = if is_watched() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(u64::try_from(length).unwrap_or(0)), target);
    let template = format!("{{bar:40}} {{human_pos}} of {{human_len}} {unit}, {{eta}} left");
    bar.set_style(ProgressStyle::with_template(&template)?);
    Ok(bar)
}
