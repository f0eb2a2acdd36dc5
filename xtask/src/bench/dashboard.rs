//! What the dashboard costs a busy server: its CPU with and without a browser that looks, and the time of the first paint.
//!
//! The server decides a constant load. Rounds with and without viewers alternate, so that a change of the machine's speed meets
//! both. A viewer makes the calls of the overview: the stream, and every ten seconds the history and the lists of subjects.

mod load;
mod viewer;

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tollgate_testkit::serving::Serving;
use tollgate_testkit::tools::Tool;

use load::Load;
use viewer::Viewer;

const RULES: usize = 200;
/// Checks per second.
const RATE: u32 = 20_000;
const SUBJECTS: u32 = 1_000_000;
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_secs(10);
/// How long the server is watched without any load.
const IDLE: Duration = Duration::from_secs(10);
const COST_MAX: f64 = 0.02;
const PAINT_MAX_MS: f64 = 1_000.0;

/// What a run does. A quick one shows that the measurement works.
struct Effort {
    subjects: u32,
    rounds: usize,
    round: Duration,
}

/// Measures, prints, and fails if a target is missed. A quick run fails only if the measurement itself does.
pub(super) fn run(root: &Path, quick: bool) -> Result<()> {
    let effort = if quick {
        Effort { subjects: 10_000, rounds: 2, round: Duration::from_secs(1) }
    } else {
        Effort { subjects: SUBJECTS, rounds: ROUNDS, round: ROUND }
    };
    let binary = build(root, quick)?;
    let folder = tempfile::tempdir().context("no folder")?;
    let rules = folder.path().join("rules.yaml");
    std::fs::write(&rules, rules_file()).context("the rules cannot be written")?;
    let server = Serving::start(&binary, &["--rules", &rules.display().to_string()]);
    let process = server.process_id();

    let idle = cpu_of(process, IDLE.min(effort.round))?;
    println!("bench: charging {} subjects", effort.subjects);
    load::fill(server.resp, effort.subjects, RULES)?;
    let load = Load::start(server.resp, RATE, effort.subjects, RULES);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 0..2 * effort.rounds {
        // Which of both comes first alternates as well.
        let is_watched = (round + round / 2) % 2 == 1;
        let viewer = is_watched.then(|| Viewer::start(server.http));
        let used = cpu_of(process, effort.round)?;
        if is_watched { &mut with } else { &mut without }.push(used);
        if let Some(viewer) = viewer {
            viewer.stop()?;
        }
    }
    let paint = paint(&format!("http://{}/", server.http))?;
    let rate = load.stop()?;
    println!("\n{RULES} rules, {} subjects, {rate:.0} checks/s decided", effort.subjects);
    report(idle, median(&without), median(&with), &paint, quick)
}

/// Prints the figures, as shares of a core, and evaluates the targets.
fn report(idle: f64, base: f64, watched: f64, paint: &Paint, quick: bool) -> Result<()> {
    let (viewer, sampler) = ((watched - base) / base, idle / base);
    let mut text = String::new();
    writeln!(text, "server CPU without a viewer   {:.1} % of a core", 100.0 * base)?;
    writeln!(text, "server CPU with a viewer      {:.1} % of a core", 100.0 * watched)?;
    writeln!(text, "cost of a viewer              {:.2} % of the server's CPU", 100.0 * viewer)?;
    writeln!(
        text,
        "idle server, with its sampler {:.2} % of a core, {:.2} % of the server's CPU",
        100.0 * idle,
        100.0 * sampler
    )?;
    writeln!(text, "first paint {:.0} ms, chart after {:.0} ms", paint.first_ms, paint.chart_ms)?;
    print!("{text}");
    if quick {
        println!("bench: quick run; the figures mean nothing");
        return Ok(());
    }
    let cost = viewer.max(0.0) + sampler;
    let verdict = |met: bool| if met { "met" } else { "missed" };
    println!(
        "target: viewer and idle server at most {:.0} % of the server's CPU: {:.2} %, {}",
        100.0 * COST_MAX,
        100.0 * cost,
        verdict(cost <= COST_MAX)
    );
    println!("target: the chart within {PAINT_MAX_MS} ms: {}", verdict(paint.chart_ms <= PAINT_MAX_MS));
    if cost > COST_MAX || paint.chart_ms > PAINT_MAX_MS {
        bail!("a target was missed");
    }
    Ok(())
}

/// Builds the server, for a quick run as the tests do.
fn build(root: &Path, quick: bool) -> Result<String> {
    let profile = if quick { "debug" } else { "release" };
    let mut command = Command::new("cargo");
    command.args(["build", "--locked", "--bin", "tollgate"]).args((!quick).then_some("--release"));
    let built = command.current_dir(root).status().context("cannot run cargo")?;
    if !built.success() {
        bail!("the server was not built: {built}");
    }
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    Ok(root.join(target).join(profile).join("tollgate").display().to_string())
}

/// Rules that each match a tenth of a percent of the load and have a large limit.
fn rules_file() -> String {
    let each = (0..RULES).map(|number| {
        format!("  - {{ id: rule-{number}, match: {{ action: a{number} }}, per: user, limit: {{ token-bucket: 100/s, burst: 100 }} }}\n")
    });
    format!("version: 1\nrules:\n{}", each.collect::<String>())
}

/// The share of a core that a process uses during `span`.
fn cpu_of(process: u32, span: Duration) -> Result<f64> {
    let before = used(process)?;
    let began = std::time::Instant::now();
    std::thread::sleep(span);
    Ok((used(process)? - before).as_secs_f64() / began.elapsed().as_secs_f64())
}

/// The CPU time of all threads, from the only file of the kernel that has nanoseconds.
fn used(process: u32) -> Result<Duration> {
    let tasks = format!("/proc/{process}/task");
    let mut sum = 0_u64;
    for task in std::fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}"))? {
        let path = task?.path().join("schedstat");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        sum += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).context("no nanoseconds")?;
    }
    Ok(Duration::from_nanos(sum))
}

/// How long a browser takes on this machine, in milliseconds.
struct Paint {
    first_ms: f64,
    /// Until the overview has its chart, with all that it asks the server before.
    chart_ms: f64,
}

/// Opens the dashboard in a fresh browser, three times; the medians.
fn paint(url: &str) -> Result<Paint> {
    let script = include_str!("dashboard/first_paint.js");
    let output = Tool::Browser.command().args(["-e", script, url]).output().context("node does not run")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let times: Vec<(f64, f64)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(first, chart)| Some((first.parse().ok()?, chart.parse().ok()?)))
        .collect();
    if !output.status.success() || times.is_empty() {
        bail!("the browser failed: {text}{}", String::from_utf8_lossy(&output.stderr));
    }
    let (first, chart): (Vec<f64>, Vec<f64>) = times.into_iter().unzip();
    Ok(Paint { first_ms: median(&first), chart_ms: median(&chart) })
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
