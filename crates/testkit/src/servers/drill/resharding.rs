//! Hash slots move between servers while their keys are under load.

use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::DrillError;
use super::failover::store;
use super::load::{Load, Shape, Tally};
use crate::redis::{Cluster, slot_of};
use crate::servers::random::Random;

/// The figures of the drill.
#[derive(Clone, Copy, Debug)]
pub struct Resharding {
    /// Number of slot moves.
    pub moves: u64,
    /// How long the moves took.
    pub took: Duration,
    /// Admissions that were not charged.
    pub lost: u64,
    /// Charges without an admission.
    pub extra: u64,
    /// All answers.
    pub tally: Tally,
}

impl fmt::Display for Resharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Resharding { moves, took, lost, extra, tally } = self;
        let Tally { admitted, refused, unknown, failed } = tally;
        write!(
            f,
            "{moves} moves in {} ms, lost {lost}, extra {extra}; admitted {admitted}, refused {refused}, unknown {unknown}, \
             failed {failed}",
            took.as_millis()
        )
    }
}

/// Moves random hash slots that have keys, under load. Each check has `rules` rules in one hash slot.
pub fn move_slots(
    runtime: &Runtime,
    cluster: &Cluster,
    moves: u64,
    rules: usize,
    seed: u64,
) -> Result<Resharding, DrillError> {
    let store = store(runtime, &cluster.url())?;
    let subjects = 60;
    let shape = Shape { tasks: 16, subjects, most: 1 << 40, rules, with_ids: false };
    let mut load = Load::start(runtime, &store, shape, seed)?;
    sleep(Duration::from_millis(200));
    let primaries = cluster.primaries();
    let mut random = Random::new(seed);
    let began = Instant::now();
    for _ in 0..moves {
        let slot = slot_of(load.keys(random.below(subjects))[0].as_bytes());
        let owner = cluster.owner(slot)?;
        let others: Vec<usize> = primaries.iter().copied().filter(|&primary| primary != owner).collect();
        cluster.move_slot(slot, others[random.below(others.len())])?;
    }
    let took = began.elapsed();
    load.stop(runtime)?;
    let (mut lost, mut extra) = (0, 0);
    for (number, admitted) in load.admitted().into_iter().enumerate() {
        let charged = runtime.block_on(load.record().charged(&store, number))?;
        lost += admitted.saturating_sub(charged);
        extra += charged.saturating_sub(admitted);
    }
    let resharding = Resharding { moves, took, lost, extra, tally: load.tally(|_| true) };
    println!("resharding, {rules} rules a check: {resharding}");
    Ok(resharding)
}
