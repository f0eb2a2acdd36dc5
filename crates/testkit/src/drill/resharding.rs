//! Slots move from server to server while their keys are asked for.

use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::DrillError;
use super::failover::store;
use super::load::{Load, Shape, Tally};
use crate::dice::Dice;
use crate::redis::{Cluster, slot_of};

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Resharding {
    /// How many slots were moved.
    pub moves: u64,
    /// How long that took.
    pub took: Duration,
    /// Admissions that were not charged in the end.
    pub lost: u64,
    /// Charges that nobody was admitted for.
    pub extra: u64,
    /// Answers over all.
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

/// Moves slots that have keys, at random, while checks of so many rules in one slot each are made.
pub fn move_slots(
    runtime: &Runtime,
    cluster: &Cluster,
    moves: u64,
    rules: usize,
    seed: u64,
) -> Result<Resharding, DrillError> {
    let store = store(runtime, &cluster.url())?;
    let subjects = 60;
    let shape = Shape { tasks: 16, subjects, most: 1 << 40, rules };
    let mut load = Load::start(runtime, &store, shape, seed)?;
    sleep(Duration::from_millis(200));
    let primaries = cluster.primaries();
    let mut dice = Dice::new(seed);
    let began = Instant::now();
    for _ in 0..moves {
        let slot = slot_of(load.keys(dice.below(subjects))[0].as_bytes());
        let owner = cluster.owner(slot)?;
        let others: Vec<usize> = primaries.iter().copied().filter(|&primary| primary != owner).collect();
        cluster.move_slot(slot, others[dice.below(others.len())])?;
    }
    let took = began.elapsed();
    load.stop(runtime)?;
    let (mut lost, mut extra) = (0, 0);
    for (number, admitted) in load.admitted().into_iter().enumerate() {
        let charged = runtime.block_on(load.book().charged(&store, number))?;
        lost += admitted.saturating_sub(charged);
        extra += charged.saturating_sub(admitted);
    }
    let resharding = Resharding { moves, took, lost, extra, tally: load.tally(|_| true) };
    println!("resharding, {rules} rules a check: {resharding}");
    Ok(resharding)
}
