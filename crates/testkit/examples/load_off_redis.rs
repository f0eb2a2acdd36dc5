//! What the layers before Redis save, as figures. `cargo xtask bench --layers` runs this.

use std::process::ExitCode;

use tollgate_testkit::drill::{DrillError, LayersRun, load_off_redis, runtime};

fn main() -> Result<ExitCode, DrillError> {
    let is_short = std::env::args().any(|argument| argument == "--quick");
    let run = if is_short { LayersRun::SHORT } else { LayersRun::FULL };
    let found = load_off_redis(&runtime()?, run)?;
    print!("{found}");
    let mut problems = found.broken();
    if is_short {
        println!("quick run; the figures mean nothing, and no target is evaluated");
    } else {
        problems.extend(found.missed());
    }
    for problem in &problems {
        println!("MISSED {problem}");
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
