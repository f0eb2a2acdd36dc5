//! A stage of the test run: work with a time budget. A stage over budget is killed with all its child processes.

use anyhow::{Context, Result, bail};
use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Runs a command in a process group that ends when the pipe at its standard input closes.
///
/// The command needs a separate group, so that it can be killed with all its children. An interrupt at the terminal
/// does not reach that group, but the pipe closes whenever this program ends. Processes that the command leaves
/// behind, such as a test's server, end with the pipe too.
const LEASHED: &str = r#"
exec 3<&0 </dev/null
"$@" 3<&- &
stage=$!
{ cat <&3; kill -KILL 0; } >/dev/null 2>&1 &
exec 3<&-
wait "$stage"
"#;

/// The longest time until a killed group has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) budget: Duration,
    work: Work,
}

pub(crate) enum Work {
    /// A program and its arguments; no argument may contain a space.
    Command(&'static str),
    /// A function of this program. Over budget it is abandoned, not stopped: the run ends then anyway.
    Inside(Box<dyn FnOnce() -> Result<()> + Send>),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed(String),
    OverBudget,
    NotRun,
}

/// The result of one stage.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) used: Duration,
    pub(crate) budget: Duration,
    pub(crate) verdict: Verdict,
}

impl Stage {
    pub(crate) fn new(name: &'static str, budget_min: u64, work: Work) -> Self {
        Self { name, budget: Duration::from_mins(budget_min), work }
    }
}

impl Work {
    pub(crate) fn inside(work: impl FnOnce() -> Result<()> + Send + 'static) -> Self {
        Self::Inside(Box::new(work))
    }
}

/// Runs the stages in order up to the first that does not pass. Every stage gets a row.
pub(crate) fn run_all(root: &Path, stages: Vec<Stage>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for stage in stages {
        let Stage { name, budget, work } = stage;
        if rows.iter().any(|row| row.verdict != Verdict::Passed) {
            rows.push(Row { name, used: Duration::ZERO, budget, verdict: Verdict::NotRun });
            continue;
        }
        let shown = match &work {
            Work::Command(line) => line,
            Work::Inside(_) => "",
        };
        eprintln!("\n==> {name} ({} min) {shown}", budget.as_secs() / 60);
        let started = Instant::now();
        let verdict = run(root, work, budget);
        rows.push(Row { name, used: started.elapsed(), budget, verdict });
    }
    rows
}

/// The table at the end of a run.
pub(crate) fn render(rows: &[Row]) -> String {
    let minutes = |time: Duration| format!("{:.1}", time.as_secs_f64() / 60.0);
    let mut table = format!("{:<10} {:>8} {:>8}  result\n", "stage", "min used", "budget");
    for row in rows {
        let used = if row.verdict == Verdict::NotRun { "-".to_owned() } else { minutes(row.used) };
        let verdict = row.verdict.to_string();
        let verdict = verdict.lines().next().unwrap_or_default();
        let line = format!("{:<10} {used:>8} {:>8}  {verdict}\n", row.name, minutes(row.budget));
        table.push_str(&line);
    }
    table
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(why) => write!(f, "failed: {why}"),
            Self::OverBudget => f.write_str("failed: over budget"),
            Self::NotRun => f.write_str("not run"),
        }
    }
}

fn run(root: &Path, work: Work, budget: Duration) -> Verdict {
    let done = match work {
        Work::Inside(work) => wait(&in_thread(work), budget),
        Work::Command(line) => match spawn(root, line) {
            Ok((ended, leash)) => {
                let done = wait(&ended, budget);
                drop(leash);
                // The rest of the stage's output comes before the table.
                done.or_else(|| wait(&ended, LAST_WORDS).and(None))
            }
            Err(error) => Some(Err(error)),
        },
    };
    match done {
        None => Verdict::OverBudget,
        Some(Ok(())) => Verdict::Passed,
        Some(Err(error)) => Verdict::Failed(format!("{error:#}")),
    }
}

fn spawn(root: &Path, line: &str) -> Result<(Receiver<Result<()>>, ChildStdin)> {
    let mut child = Command::new("sh")
        .args(["-c", LEASHED, "stage"])
        .args(line.split(' '))
        .current_dir(root)
        .process_group(0)
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot start sh")?;
    let leash = child.stdin.take().context("sh has no standard input")?;
    let ended = in_thread(move || succeeded(child.wait()?));
    Ok((ended, leash))
}

fn succeeded(status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("{status}");
    }
    Ok(())
}

fn in_thread(work: impl FnOnce() -> Result<()> + Send + 'static) -> Receiver<Result<()>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        // The receiver is gone when the work is over budget.
        if let Err(late) = sender.send(work()) {
            drop(late);
        }
    });
    receiver
}

/// Returns `None` if the budget ran out.
fn wait(ended: &Receiver<Result<()>>, budget: Duration) -> Option<Result<()>> {
    match ended.recv_timeout(budget) {
        Ok(result) => Some(result),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(Err(anyhow::anyhow!("panicked"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::io::Read;

    const SOON: Duration = Duration::from_secs(2);
    const LONG: Duration = Duration::from_secs(60);

    fn stage(name: &'static str, budget: Duration, work: Work) -> Stage {
        Stage { name, budget, work }
    }

    fn verdicts(stages: Vec<Stage>) -> Vec<Verdict> {
        run_all(Path::new("."), stages).into_iter().map(|row| row.verdict).collect()
    }

    #[test]
    fn the_first_failure_ends_the_run_and_every_stage_has_a_row() {
        let stages = vec![
            stage("one", LONG, Work::Command("true")),
            stage("two", LONG, Work::Command("false")),
            stage("three", LONG, Work::inside(|| panic!("must not run"))),
        ];
        let failed = Verdict::Failed("exit status: 1".to_owned());
        assert_eq!(verdicts(stages), [Verdict::Passed, failed, Verdict::NotRun]);
    }

    #[test]
    fn a_function_fails_by_error_by_panic_and_by_time() {
        let cases = [
            (Work::inside(|| Ok(())), Verdict::Passed),
            (Work::inside(|| bail!("why")), Verdict::Failed("why".to_owned())),
            (Work::inside(|| panic!("on purpose")), Verdict::Failed("panicked".to_owned())),
        ];
        for (work, expected) in cases {
            assert_eq!(verdicts(vec![stage("one", LONG, work)]), [expected]);
        }
        let (never, forever) = channel::<()>();
        let stuck = Work::inside(move || Ok(forever.recv()?));
        assert_eq!(verdicts(vec![stage("one", Duration::from_millis(1), stuck)]), [Verdict::OverBudget]);
        drop(never);
    }

    /// The child holds a pipe open; the end of the file shows that it has ended.
    fn child_is_gone_after(script: &str, budget: Duration) -> Verdict {
        let scratch = Scratch::new();
        scratch.write("script", script);
        let made = Command::new("mkfifo").arg(scratch.path().join("pipe")).status().expect("mkfifo runs");
        assert!(made.success());
        let (sender, gone) = channel();
        let pipe = scratch.path().join("pipe");
        thread::spawn(move || {
            let read = std::fs::File::open(pipe).and_then(|mut pipe| pipe.read_to_end(&mut Vec::new()));
            sender.send(read).expect("the test waits");
        });
        let mut rows = run_all(scratch.path(), vec![stage("one", budget, Work::Command("sh script"))]);
        gone.recv_timeout(LONG).expect("the child is gone").expect("the pipe can be read");
        rows.remove(0).verdict
    }

    #[test]
    fn a_command_over_budget_is_killed_with_its_children() {
        assert_eq!(child_is_gone_after("exec 3>pipe; sleep 1000 & wait", SOON), Verdict::OverBudget);
    }

    #[test]
    fn processes_that_a_finished_command_leaves_behind_are_killed() {
        assert_eq!(child_is_gone_after("exec 3>pipe; sleep 1000 &", LONG), Verdict::Passed);
    }

    #[test]
    fn the_table_shows_use_budget_and_result() {
        let minutes = Duration::from_mins;
        let rows = [
            Row {
                name: "format",
                used: Duration::from_secs(6),
                budget: minutes(1),
                verdict: Verdict::Passed,
            },
            Row {
                name: "tidy",
                used: minutes(0),
                budget: minutes(1),
                verdict: Verdict::Failed("a\nb".into()),
            },
            Row { name: "clippy", used: minutes(5), budget: minutes(5), verdict: Verdict::OverBudget },
            Row { name: "docs", used: Duration::ZERO, budget: minutes(3), verdict: Verdict::NotRun },
        ];
        let expected = "\
stage      min used   budget  result
format          0.1      1.0  passed
tidy            0.0      1.0  failed: a
clippy          5.0      5.0  failed: over budget
docs              -      3.0  not run
";
        assert_eq!(render(&rows), expected);
    }
}
