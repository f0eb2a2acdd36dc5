//! Instructions per decision: runs this program again under callgrind, for one row and one contender.
//!
//! Kernel instructions are not counted; under callgrind, reading the clock is a kernel call.

use std::env;
use std::io::ErrorKind;
use std::process::{Command, Stdio};
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use crate::rounds::{Row, Stage};
use crate::script::script;

const DECISIONS: u64 = 2_000;

/// The row and the contender of a run under callgrind.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    row: String,
    contender: String,
}

impl FromStr for Counted {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Counted> {
        let (row, contender) = text.split_once('/').context("write row/contender")?;
        Ok(Counted { row: row.to_owned(), contender: contender.to_owned() })
    }
}

/// Returns whether valgrind is installed. Virtual machines often have no hardware counters.
pub(crate) fn can_be_counted() -> Result<bool> {
    match Command::new("valgrind").arg("--version").stdout(Stdio::null()).status() {
        Ok(status) => Ok(status.success()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).context("cannot run valgrind"),
    }
}

/// Returns the instructions of one decision.
pub(crate) fn per_decision(row: &Row, contender: &str) -> Result<f64> {
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*measured_decisions*"])
        .arg(env::current_exe()?)
        .args(["--suite", "library", "--counted", &format!("{}/{contender}", row.id)])
        .output()
        .context("cannot run valgrind")?;
    let said = String::from_utf8_lossy(&run.stderr);
    if !run.status.success() {
        bail!("{contender} under callgrind: {}\n{said}", run.status);
    }
    let collected = said.lines().find_map(|line| line.split_once("Collected :"));
    let collected = collected.and_then(|(_, count)| count.trim().parse::<f64>().ok());
    let collected = collected.filter(|&count| count > 0.0);
    let collected = collected.with_context(|| format!("callgrind did not see the function\n{said}"))?;
    Ok(collected / DECISIONS as f64)
}

/// The run under callgrind.
pub(crate) fn run_counted(stages: &[Stage], counted: &Counted) -> Result<()> {
    let named = |row: &&Row| row.id == counted.row;
    let found = stages.iter().find_map(|stage| Some((stage, stage.rows.iter().find(named)?)));
    let (stage, row) = found.with_context(|| format!("no row {:?}", counted.row))?;
    let entrant = stage.entrants.iter().find(|entrant| entrant.name == counted.contender);
    let contender =
        entrant.with_context(|| format!("no contender {:?}", counted.contender))?.filled(stage.keys);
    let script = script(stage.keys, row.spread, DECISIONS, 0);
    // The first decisions initialise lazy state.
    contender.fill(&script);
    let admitted = contender.run(&script, DECISIONS);
    if admitted != DECISIONS {
        bail!("only {admitted} of {DECISIONS} decisions were admitted");
    }
    Ok(())
}
