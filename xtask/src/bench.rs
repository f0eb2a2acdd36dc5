//! `cargo xtask bench`: measures Tollgate and its peers in one interleaved run, and writes the tables and pictures of
//! `docs/performance.md`.
//!
//! The measurement itself is in the package `bench`. This file builds it, runs it and reports the result.

mod dashboard;
mod library;
mod machine;
mod page;
mod pictures;
mod redis;
mod serve;
mod summary;
mod table;
mod tables;
mod targets;

use crate::generate::{Section, with_sections};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use machine::Machine;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use summary::Summary;
use tollgate_bench_report::Report;

const PACKAGE: &str = "bench/Cargo.toml";
/// A separate target directory, because the profile differs.
const TARGET: &str = "target/bench";
const PAGE: &str = "docs/performance.md";
const PICTURES: &str = "docs/performance";

/// The suites.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Suite {
    /// Libraries that decide inside one process.
    Library,
    /// Scripts in Redis.
    Redis,
    /// Servers that decide over the network.
    Serve,
}

impl Suite {
    const fn name(self) -> &'static str {
        match self {
            Suite::Library => "library",
            Suite::Redis => "redis",
            Suite::Serve => "serve",
        }
    }

    fn summary(self, report: &Report) -> Summary {
        match self {
            Suite::Library => library::summary(report),
            Suite::Redis => redis::summary(report),
            Suite::Serve => serve::summary(report),
        }
    }
}

/// The options of a run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The suite to measure; all suites by default.
    #[arg(long)]
    suite: Vec<Suite>,
    /// How often every contender runs every row.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=15))]
    rounds: u32,
    /// Few keys, two rounds, a quick build: shows that the bench works, and writes nothing.
    #[arg(long, conflicts_with_all = ["rounds", "again"])]
    quick: bool,
    /// Measure what the layers before Redis save instead, and print it.
    #[arg(long, conflicts_with_all = ["suite", "rounds", "again"])]
    layers: bool,
    /// Measure what the dashboard costs a busy server instead, and print it.
    #[arg(long, conflicts_with_all = ["suite", "rounds", "again", "layers"])]
    dashboard: bool,
    /// Measure nothing; write page and pictures again from the last run on this machine.
    #[arg(long)]
    again: bool,
}

/// Measures and prints; writes the page unless the run was quick.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    if options.layers {
        return layers(root, options.quick);
    }
    if options.dashboard {
        return dashboard::run(root, options.quick);
    }
    let all = Suite::value_variants();
    let suites = if options.suite.is_empty() { all } else { &options.suite };
    for &suite in suites {
        let kept = root.join(TARGET).join(format!("{}.json", suite.name()));
        let json = if options.again {
            let hint = "run `cargo xtask bench` without --again first";
            std::fs::read_to_string(&kept).with_context(|| format!("no last run: {hint}"))?
        } else {
            measure(root, suite, options)?
        };
        let report: Report = serde_json::from_str(&json).context("the report cannot be read")?;
        let summary = suite.summary(&report);
        println!("\n{}", tables::text(&summary.tables));
        if options.quick {
            println!(
                "bench: quick run; the figures mean nothing, no target is evaluated and nothing is written"
            );
        } else {
            println!("{}", targets::table(&summary.targets).text());
            std::fs::write(&kept, &json).with_context(|| format!("cannot write {}", kept.display()))?;
            write(root, suite, &report, &summary)?;
        }
    }
    Ok(())
}

/// Measures the layers with a release build; a quick run uses the build of the tests.
fn layers(root: &Path, quick: bool) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["run", "--locked", "-p", "tollgate-testkit", "--example", "load_off_redis"]);
    if quick {
        command.args(["--", "--quick"]);
    } else {
        command.arg("--release");
    }
    let run = command.current_dir(root).status().context("cannot run cargo")?;
    if !run.success() {
        bail!("the layers missed a target: {run}");
    }
    Ok(())
}

/// Runs one suite; returns the report as JSON.
fn measure(root: &Path, suite: Suite, options: &Options) -> Result<String> {
    let profile = if options.quick { "quick" } else { "release" };
    println!("bench: building {} and its peers ({profile})", suite.name());
    let built = Command::new("cargo")
        .args(["build", "--locked", "--manifest-path", PACKAGE, "--target-dir", TARGET, "--profile", profile])
        .current_dir(root)
        .status()
        .context("cannot run cargo")?;
    if !built.success() {
        bail!(
            "the build failed: {built}\nhint: if its lock file is stale, run `cargo update --workspace \
             --manifest-path {PACKAGE}` and commit it"
        );
    }
    let rounds = if options.quick { 2 } else { options.rounds };
    let program: PathBuf = root.join(TARGET).join(profile).join("tollgate-bench");
    let mut command = Command::new(&program);
    command.args(["--suite", suite.name(), "--rounds", &rounds.to_string()]).stderr(Stdio::inherit());
    if options.quick {
        command.arg("--quick");
    }
    if suite == Suite::Serve {
        command.args(serve::programs::arguments(root, options.quick)?);
    }
    let run = command.output().with_context(|| format!("cannot run {}", program.display()))?;
    if !run.status.success() {
        bail!("the run failed: {}", run.status);
    }
    String::from_utf8(run.stdout).context("the report is not text")
}

/// Writes the suite's part of the page and its pictures.
fn write(root: &Path, suite: Suite, report: &Report, summary: &Summary) -> Result<()> {
    let machine = Machine::look(root, summary.packages)?;
    let folder = root.join(PICTURES);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {PICTURES}"))?;
    for picture in &summary.pictures {
        std::fs::write(folder.join(&picture.file), &picture.svg)
            .with_context(|| format!("cannot write {}", picture.file))?;
        println!("wrote {PICTURES}/{}", picture.file);
    }
    let path = root.join(PAGE);
    let text = page::section(report, summary, &machine);
    let old = std::fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let new = with_sections(&old, &[Section { name: suite.name(), text }]).context(PAGE)?;
    std::fs::write(&path, new).with_context(|| format!("cannot write {PAGE}"))?;
    println!("wrote {PAGE}");
    Ok(())
}
