//! `cargo xtask test`: the stages, in order, and the budget of each.

mod stage;

use crate::dependencies::deny;
use crate::{generate, setup, tidy};
use anyhow::{Result, bail};
use stage::{Stage, Verdict, Work, render, run_all};
use std::path::Path;

/// Runs every stage, prints the table, and fails if a stage failed.
pub(crate) fn run(root: &Path) -> Result<()> {
    let rows = run_all(root, stages(root));
    println!("\n{}", render(&rows));
    match rows.iter().find(|row| row.verdict != Verdict::Passed) {
        None => Ok(()),
        Some(row) => bail!("stage {}: {}", row.name, row.verdict),
    }
}

fn stages(root: &Path) -> Vec<Stage> {
    let (for_tidy, for_deny, for_gen) = (root.to_path_buf(), root.to_path_buf(), root.to_path_buf());
    vec![
        Stage::new("setup", 5, Work::inside(setup::run)),
        Stage::new("format", 1, Work::Command("cargo fmt --all --check")),
        Stage::new("tidy", 1, Work::inside(move || tidy::run(&for_tidy))),
        Stage::new("deny", 1, Work::inside(move || deny::run(&for_deny, &deny::Options::default()))),
        Stage::new(
            "clippy",
            6,
            Work::Command("cargo clippy --workspace --all-targets --locked -- -D warnings"),
        ),
        // Failover tests mostly wait, so more tests than cores run at once.
        // One run lists every failure, not only those of the first test program.
        Stage::new(
            "test",
            30,
            Work::Command("env RUST_TEST_THREADS=4 cargo test --workspace --locked --no-fail-fast"),
        ),
        Stage::new(
            "races",
            4,
            Work::Command(
                "cargo test --manifest-path crates/tollgate/races/Cargo.toml --target-dir target/races --locked",
            ),
        ),
        Stage::new(
            "docs",
            1,
            Work::Command("env RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --locked"),
        ),
        Stage::new("gen", 1, Work::inside(move || generate::check(&for_gen))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_whole_run_ends_within_fifty_minutes_whatever_hangs() {
        // A normal run takes less than forty; the rest is for a machine that other programs use too.
        let sum: Duration = stages(Path::new(".")).iter().map(|stage| stage.budget).sum();
        assert!(sum <= Duration::from_mins(50), "{sum:?}");
    }
}
