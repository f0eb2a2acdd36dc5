//! The progress bar of `tollgate simulate`.

use std::io::{self, IsTerminal};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::simulate::{self, Progress, Results, Simulation, Traffic};

/// How often the bar is drawn.
const EVERY: Duration = Duration::from_millis(100);

/// Runs a simulation, with a progress bar if standard error is a terminal.
pub(super) fn run(simulation: &Simulation<'_>) -> Result<Results> {
    let progress = Progress::default();
    let is_watched = io::stderr().is_terminal();
    let Some(amount) = simulate::amount(&simulation.traffic).filter(|_| is_watched) else {
        return simulate::run(simulation, &progress);
    };
    let bar = ProgressBar::with_draw_target(Some(amount), ProgressDrawTarget::stderr());
    let unit = match simulation.traffic {
        Traffic::Logs { .. } => "{bytes} of {total_bytes}",
        Traffic::Synthetic(_) => "{human_pos} of {human_len} requests",
    };
    bar.set_style(ProgressStyle::with_template(&format!("{{bar:40}} {unit}, {{eta}} left"))?);
    let (ended, end) = channel::<()>();
    let done = progress.done.clone();
    thread::scope(|scope| {
        let drawing = scope.spawn(move || {
            // The sender is dropped at the end.
            while end.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                bar.set_position(done.load(Ordering::Relaxed));
            }
            bar.finish_and_clear();
        });
        let results = simulate::run(simulation, &progress);
        drop(ended);
        drawing.join().map_err(|_| anyhow!("the thread of the progress bar has died; this is a defect"))?;
        results
    })
}
