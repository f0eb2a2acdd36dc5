//! The interleaved run: in every round every contender runs every row once, and the order changes from round to round.

use std::collections::HashMap;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};

use crate::contender::{BURST, Contender, Entrant};
use crate::script::{Spread, script};
use crate::{allocation, instructions};
use tollgate_bench_report::{Held, Measured, Memory, Report};

/// How much work a run does.
pub(crate) struct Effort {
    pub(crate) rounds: u32,
    /// Per contender, row and round.
    pub(crate) decisions: u64,
    /// Stages with more keys are skipped.
    pub(crate) keys_max: u64,
    /// At most this number of contenders per row run under callgrind, which takes seconds for each.
    counted_max: usize,
}

/// Rows that share contenders, which are built and filled once.
pub(crate) struct Stage {
    pub(crate) keys: u64,
    pub(crate) entrants: Vec<Entrant>,
    pub(crate) rows: Vec<Row>,
    /// Whether the memory of the contenders goes into the memory table.
    pub(crate) weighed: bool,
}

/// One workload.
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) spread: Spread,
    pub(crate) threads: u32,
    /// Whether instructions are counted for this row.
    pub(crate) counted: bool,
}

/// Nanoseconds per decision.
#[derive(Clone, Copy)]
struct Sample {
    cpu_ns: f64,
    wall_ns: f64,
}

impl Effort {
    pub(crate) const fn full(rounds: u32) -> Effort {
        Effort { rounds, decisions: 1_000_000, keys_max: 10_000_000, counted_max: usize::MAX }
    }

    pub(crate) const fn quick(rounds: u32) -> Effort {
        Effort { rounds, decisions: 10_000, keys_max: 10_000, counted_max: 1 }
    }

    /// Decisions of a slice before the clock starts: they fill the caches again after the other contenders.
    const fn warm_up(&self) -> u64 {
        self.decisions / 4
    }
}

/// Runs all stages.
pub(crate) fn run(suite: &str, stages: &[Stage], effort: &Effort) -> Result<Report> {
    let most = u64::from(effort.rounds) * 2 * (effort.decisions + effort.warm_up());
    ensure!(most < u64::from(BURST), "this number of rounds exceeds the limits; use fewer rounds");
    let mut report = Report {
        suite: suite.to_owned(),
        rounds: effort.rounds,
        decisions: effort.decisions,
        server: None,
        contenders: Vec::new(),
        rows: Vec::new(),
        memory: Vec::new(),
    };
    let counting = instructions::can_be_counted()?;
    for (at, stage) in stages.iter().enumerate() {
        eprintln!("stage {} of {}: {} keys", at + 1, stages.len(), stage.keys);
        for entrant in &stage.entrants {
            if !report.contenders.contains(&entrant.described()) {
                report.contenders.push(entrant.described());
            }
        }
        let started = Instant::now();
        let (contenders, held) = build(stage);
        eprintln!("  filled in {:.1} s", started.elapsed().as_secs_f64());
        if stage.weighed {
            report.memory.push(Memory { keys: stage.keys, results: held });
        }
        let mut samples = measure(stage, &contenders, effort)?;
        drop(contenders);
        for row in &stage.rows {
            let samples = samples.remove(row.id.as_str()).context("a row that was not measured")?;
            report.rows.push(results(stage, row, &samples, counting, effort)?);
        }
    }
    Ok(report)
}

fn build(stage: &Stage) -> (Vec<Box<dyn Contender>>, Vec<Held>) {
    let (mut contenders, mut held) = (Vec::new(), Vec::new());
    for entrant in &stage.entrants {
        let (contender, bytes) = allocation::held_by(|| entrant.filled(stage.keys));
        contenders.push(contender);
        let bytes_per_key = bytes as f64 / stage.keys as f64;
        held.push(Held { contender: entrant.name.to_owned(), bytes_per_key });
    }
    (contenders, held)
}

/// Returns the samples by row, then by contender, one per round.
fn measure<'s>(
    stage: &'s Stage,
    contenders: &[Box<dyn Contender>],
    effort: &Effort,
) -> Result<HashMap<&'s str, Vec<Vec<Sample>>>> {
    let mut samples = HashMap::new();
    for round in 0..effort.rounds {
        let started = Instant::now();
        for row in &stage.rows {
            let script = script(stage.keys, row.spread, effort.decisions, u64::from(round) + 1);
            let of_row: &mut Vec<Vec<Sample>> =
                samples.entry(row.id.as_str()).or_insert_with(|| vec![Vec::new(); contenders.len()]);
            for at in order(contenders.len(), round as usize) {
                let Entrant { every, name, .. } = stage.entrants[at];
                let (warm_up, decisions) = (effort.warm_up() / every, effort.decisions / every);
                let contender = &*contenders[at];
                let warmed = contender.run(&script, warm_up);
                let (sample, admitted) = slice(contender, &script, decisions, row.threads);
                let asked = warm_up + decisions;
                ensure!(warmed + admitted == asked, "{name} admitted {} of {asked}", warmed + admitted);
                of_row[at].push(sample);
            }
        }
        eprintln!("  round {} of {}: {:.1} s", round + 1, effort.rounds, started.elapsed().as_secs_f64());
    }
    Ok(samples)
}

/// Each round begins with the next contender, and every second round runs backward, so that no contender always runs after
/// the same one.
pub(crate) fn order(contenders: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..contenders).map(|at| (at + round) % contenders).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Runs one contender for one row and one round; returns the sample and the number of admitted decisions.
fn slice(contender: &dyn Contender, script: &[String], decisions: u64, threads: u32) -> (Sample, u64) {
    let share = decisions / u64::from(threads);
    let barrier = Barrier::new(threads as usize);
    let timed = || {
        barrier.wait();
        let (wall, cpu) = (Instant::now(), thread_cpu());
        let admitted = contender.run(script, share);
        (thread_cpu() - cpu, wall, Instant::now(), admitted)
    };
    let runs = match threads {
        // Not on a new thread: its first instructions cost more than those of a running thread.
        1 => vec![timed()],
        _ => thread::scope(|scope| {
            let started: Vec<_> = (0..threads).map(|_| scope.spawn(timed)).collect();
            started.into_iter().map(|thread| thread.join().expect("no contender panics")).collect()
        }),
    };
    let cpu: Duration = runs.iter().map(|run| run.0).sum();
    let first = runs.iter().map(|run| run.1).min().expect("there is a thread");
    let last = runs.iter().map(|run| run.2).max().expect("there is a thread");
    let made = (share * u64::from(threads)) as f64;
    let per_decision = |time: Duration| time.as_nanos() as f64 / made;
    let sample = Sample { cpu_ns: per_decision(cpu), wall_ns: per_decision(last - first) };
    (sample, runs.iter().map(|run| run.3).sum())
}

/// Returns the CPU time of this thread, which excludes other programs.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn results(
    stage: &Stage,
    row: &Row,
    samples: &[Vec<Sample>],
    counting: bool,
    effort: &Effort,
) -> Result<tollgate_bench_report::Row> {
    let mut results = Vec::new();
    for (at, (entrant, samples)) in stage.entrants.iter().zip(samples).enumerate() {
        let instructions = if counting && row.counted && at < effort.counted_max {
            eprintln!("  {}: counting the instructions of {}", row.title, entrant.name);
            Some(instructions::per_decision(row, entrant.name)?)
        } else {
            None
        };
        results.push(Measured {
            contender: entrant.name.to_owned(),
            cpu_ns: samples.iter().map(|sample| sample.cpu_ns).collect(),
            wall_ns: samples.iter().map(|sample| sample.wall_ns).collect(),
            instructions,
        });
    }
    Ok(tollgate_bench_report::Row { id: row.id.clone(), title: row.title.clone(), keys: stage.keys, results })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_runs_once_per_round_and_the_order_changes() {
        let orders: Vec<Vec<usize>> = (0..4).map(|round| order(3, round)).collect();
        assert_eq!(orders, [[0, 1, 2], [0, 2, 1], [2, 0, 1], [2, 1, 0]]);
    }
}
