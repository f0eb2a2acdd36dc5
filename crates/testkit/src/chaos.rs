//! Faults under load: three processes of `tollgate serve` on one store, an open-loop load, and an account of every answer.
//!
//! [`run`] injects one [`Fault`] and returns its [`Row`]: what was over-admitted, falsely refused, charged twice or lost, by
//! the history checker and by the end state of the store; what failure policies answered; and how long it took. A fault
//! that did not happen is an error. A naive limiter runs beside ours on the same store, as the control.

mod account;
mod control;
mod fault;
mod fleet;
mod inject;
mod load;
mod place;
mod row;
mod shifted_clock;
mod traffic;

use std::thread::sleep;
use std::time::{Duration, Instant};

pub use account::{ByPolicy, Latencies};
pub use control::Naive;
pub use fault::Fault;
pub use place::Topology;
pub use row::{Row, table};

use crate::drill::{DrillError, StallWatch, runtime};
use account::{Facts, Figures, Lost, figures};
use control::Control;
use fleet::{Fleet, Options};
use inject::{Scene, inject};
use load::{Load, Shape, Target};
use place::{Names, Place, PlaceOptions};
pub use shifted_clock::ShiftedClock;
use traffic::WallClock;

/// The password of Redis in drills that change it.
const PASSWORD: &str = "right";
/// How long the store may take to answer every server again.
const BACK_WITHIN: Duration = Duration::from_secs(30);
/// How far the slowest thousandth may exceed the deadline while Redis is dead.
const OVER_DEADLINE_MAX: Duration = Duration::from_millis(5);
/// How much a server may grow while Redis is away.
const GROWTH_MAX: u64 = 16 << 20;

/// The size of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program `tollgate`.
    pub binary: String,
    /// The seed of names and random choices.
    pub seed: u64,
    /// Checks per second, of all servers together.
    pub per_second: u64,
    /// Number of subjects.
    pub subjects: u32,
    /// The deadline of the store.
    pub deadline: Duration,
    /// How long the load runs before the fault, and after it.
    pub around: Duration,
    /// How long a fault lasts without a stated length.
    pub time: Duration,
    /// How long Redis is dead in [`Fault::Dead`].
    pub dead: Duration,
    /// Number of invented addresses.
    pub hostile: u64,
}

/// Injects a fault under load, and returns its figures. Fails if the fault did not happen.
pub fn run(fault: Fault, settings: &Settings) -> Result<Row, DrillError> {
    let began = Instant::now();
    let (runtime, clock, shifted) = (runtime()?, WallClock::start(), ShiftedClock::compile()?);
    let mut place = Place::start(fault.topology(), &place_options(fault, &shifted), settings.seed)?;
    let password = (fault == Fault::WrongPass).then(|| PASSWORD.to_owned());
    let mut fleet = Fleet::start(Options {
        binary: settings.binary.clone(),
        store: place.url(),
        password: password.clone(),
        deadline: settings.deadline,
        first: if fault == Fault::ServerClock { shifted.environment() } else { Vec::new() },
    })?;
    let shape = Shape { per_second: settings.per_second, subjects: settings.subjects, seed: settings.seed };
    let names = Names::new(settings.seed, clock.us(Instant::now()));
    let mut control = Control::start(place.naive_port()?, password.as_deref(), settings.seed);
    let load = Load::start(&runtime, &fleet.targets, shape);
    fleet.wait_for_store(1, BACK_WITHIN)?;
    sleep(settings.around);
    fleet.measure_memory();
    let stall = StallWatch::start();
    let happened = inject(
        fault,
        &mut Scene {
            place: &mut place,
            fleet: &mut fleet,
            control: &control,
            runtime: &runtime,
            settings,
            names: &names,
            shifted: &shifted,
        },
    );
    let back = match happened {
        Ok(_) => fleet.wait_for_store(1, BACK_WITHIN),
        Err(_) => Ok(()),
    };
    sleep(settings.around / 2);
    let settled = Instant::now();
    sleep(settings.around / 2);
    let (stall, grown_bytes) = (stall.end(), fleet.grown());
    let calls = load.stop(&runtime)?;
    control.stop()?;
    let happened = happened?;
    back?;
    let contents = place.contents()?;
    let facts = Facts {
        lost: with_stall(happened.lost, settings.per_second, stall),
        changing_limit: fault == Fault::Rules,
        shifted_clock: fault == Fault::RedisClock,
        closed_between: happened.closed_between,
        ended: happened.ended,
        settled,
    };
    let found = figures(&calls, &contents, &names, &clock, &facts)?;
    let mut row = Row {
        fault: fault.name(),
        topology: fault.topology(),
        seed: settings.seed,
        checks: found.checks,
        over_admitted: found.over_admitted,
        falsely_refused: found.falsely_refused,
        double_charged: found.double_charged,
        lost: found.lost,
        lost_max: found.lost_max,
        orphans: contents.orphans(),
        by_policy: found.by_policy,
        unanswered: found.unanswered,
        overloaded: found.overloaded,
        latencies: found.latencies,
        recovered_after: found.recovered_after,
        grown_bytes,
        stall,
        // Without processor time, a server misses the deadline.
        is_calm: stall < settings.deadline / 2 && found.latencies.p50 < settings.deadline / 4,
        naive: control.figures(&contents),
        happened: happened.proof,
        took: began.elapsed(),
        problems: Vec::new(),
    };
    row.problems = problems(fault, &row, &found, settings);
    let errors = fleet.targets.iter().filter_map(Target::error);
    row.problems.extend(errors.map(|error| format!("{fault}: a check ended in an error: {error}")));
    Ok(row)
}

fn place_options(fault: Fault, shifted: &ShiftedClock) -> PlaceOptions {
    let arguments: &[&str] = match fault {
        Fault::Loading => &["--enable-debug-command", "yes"],
        _ => &[],
    };
    PlaceOptions {
        arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        environment: if fault == Fault::RedisClock { shifted.environment() } else { Vec::new() },
        password: (fault == Fault::WrongPass).then(|| PASSWORD.to_owned()),
        full_coverage: fault == Fault::ClusterDown,
    }
}

/// A machine that stalls makes a planned failover longer.
fn with_stall(lost: Lost, per_second: u64, stall: Duration) -> Lost {
    match lost {
        Lost::AtMost(most) => Lost::AtMost(most + (per_second as f64 * stall.as_secs_f64()).ceil() as u64),
        lost => lost,
    }
}

/// Returns the bounds that a row breaks.
fn problems(fault: Fault, row: &Row, found: &Figures, settings: &Settings) -> Vec<String> {
    let late = settings.deadline + OVER_DEADLINE_MAX + row.stall;
    // An evicted request id is charged again.
    let doubles_max = if fault == Fault::Evict { row.lost_max } else { 0 };
    let is_calm = row.is_calm;
    let is_away = matches!(fault, Fault::Dead | Fault::Stop | Fault::Kill);
    let bounds = [
        (row.lost > row.lost_max, "more was lost than the fault can lose"),
        (row.over_admitted > row.lost, "more was admitted again than was lost"),
        (row.falsely_refused > 0, "a check was refused although there was room"),
        (row.double_charged > doubles_max, "a check was charged twice"),
        (row.lost_max == 0 && found.partly_charged > 0, "one of two rules was charged without the other"),
        (found.id_conflicts > 0, "a request id got contradicting answers"),
        (row.orphans > 0, "a key never expires"),
        (row.by_policy.wrong > 0, "an answer is not what the policy allows"),
        // A check that misses its deadline sees no mistake.
        (is_calm && row.by_policy.opened > 0, "a policy admitted although Redis refused the server"),
        (is_calm && found.late_policy > 0, "a policy answered although the fault was over"),
        (
            is_calm && fault == Fault::Dead && row.latencies.p999 > late,
            "the slowest thousandth exceeds the deadline",
        ),
        (is_away && row.grown_bytes > GROWTH_MAX, "a server grew by more than 16 MiB"),
    ];
    let broken = bounds.into_iter().filter(|(is_broken, _)| *is_broken);
    broken.map(|(_, bound)| format!("{fault}: {bound}: {found:?}")).collect()
}
