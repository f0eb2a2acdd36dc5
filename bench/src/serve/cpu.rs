//! The CPU time of a process, from the kernel.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// Returns the CPU time that the process and its children have used, user and kernel mode.
///
/// Read per thread, because only that file has nanoseconds. The time of an ended thread is lost, so no measured process
/// may end a thread during a run.
pub(super) fn used_by(process: u32) -> Result<Duration> {
    let tasks = format!("/proc/{process}/task");
    let mut used = Duration::ZERO;
    for task in fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}"))? {
        let task = task?.path();
        let read = |name: &str| {
            let path = task.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let told = read("schedstat")?;
        let ns = told.split(' ').next().and_then(|ns| ns.parse().ok());
        used += Duration::from_nanos(ns.with_context(|| format!("the kernel tells {told:?}"))?);
        for child in read("children")?.split_whitespace() {
            used += used_by(child.parse()?)?;
        }
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn the_time_of_a_process_includes_that_of_those_it_started() -> Result<()> {
        let before = used_by(std::process::id())?;
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; echo done; read wait";
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", busy]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut said = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut said)?;
        let (alone, both) = (used_by(child.id())?, used_by(std::process::id())? - before);
        drop(child.stdin.take());
        child.wait()?;
        assert!(alone > Duration::from_millis(5) && both >= alone, "{alone:?} of {both:?}");
        Ok(())
    }
}
