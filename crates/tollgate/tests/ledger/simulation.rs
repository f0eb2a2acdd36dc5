//! A deterministic simulation of servers, a gate and a ledger, against a naive ledger.
//!
//! The parts that decide are the real ones: the gate's state machine, the restore, and the posting of batches. The world around
//! them is a model: calls, replies and batches travel in any order; servers die or are cut off, the gate is emptied or becomes an
//! old copy of itself, the database is set back, answers are lost. A seed always gives the same run.
//!
//! After each run: every acknowledged admission is one entry and none is two; the gate equals the ledger after quiet; what was
//! acknowledged exceeds the limit at most by what was not posted, or in flight, when the gate lost its state. Each mutant of the
//! protocol breaks one of these promises.

mod books;
mod model;
mod world;

use std::env;

use world::World;

const SEEDS: u64 = 2_000;
const MUTANT_SEEDS: u64 = 2_000;
const STEPS: u64 = 600;
/// Runs one seed of the simulation, and prints its steps.
const REPLAY: &str = "LEDGER_SEED";

/// One place in which the protocol is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    Nothing,
    AnswerBeforeJournal,
    CursorWithoutCompare,
    PlainHeartbeat,
    AbsentTrusted,
    StampOff,
    SelfFencingOff,
    AdjustWithoutBarrier,
    ReplayNotJournaled,
    RequestForgotten,
    NonceIgnored,
    WaitWithoutVoid,
    VoidWithoutIdState,
    SettleBeforeReserve,
    RefundWithoutReceiptSum,
    ExtraWithoutNumber,
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Runs one seed.
fn run_seed(wrong: Wrong, seed: u64, prints: bool) -> (World, Result<(), String>) {
    let mut world = World::new(seed, wrong, prints);
    (0..STEPS).for_each(|_| world.step());
    world.quiet();
    let checked = world.check();
    (world, checked)
}

/// Returns the first seed whose run breaks a promise, and how.
fn first_broken(wrong: Wrong, seeds: u64) -> Option<(u64, String)> {
    (1..=seeds).find_map(|seed| run_seed(wrong, seed, false).1.err().map(|what| (seed, what)))
}

#[test]
fn the_ledger_and_its_gate_keep_their_promises_under_all_seeds() {
    if let Ok(seed) = env::var(REPLAY) {
        let seed = seed.parse().expect("the seed is a number");
        run_seed(Wrong::Nothing, seed, true).1.expect("the promises hold");
        return;
    }
    let (mut broken, mut losses, mut late, mut excess) = (Vec::new(), 0, 0, 0);
    for seed in 1..=SEEDS {
        let (world, checked) = run_seed(Wrong::Nothing, seed, false);
        losses += world.losses;
        late += world.late_settlements;
        excess = excess.max(world.excess());
        broken.extend(checked.err().map(|what| (seed, what)));
    }
    println!(
        "{SEEDS} seeds, {losses} losses of the gate's state, {late} late settlements, largest excess {excess}"
    );
    if let Some((seed, what)) = broken.first() {
        let command = format!(
            "{REPLAY}={seed} cargo test -p tollgate --test ledger keep_their_promises -- --nocapture"
        );
        panic!(
            "{} of {SEEDS} seeds are broken; seed {seed}: {what}\nreplay it with: {command}",
            broken.len()
        );
    }
    assert!(losses > SEEDS, "too few losses");
    assert!(late > SEEDS / 10, "too few late settlements");
    assert!(excess > 0, "no loss ever let more in than the limit, so the bound is not tested");
}

#[test]
fn every_mutant_of_the_protocol_is_found() {
    let mut missed = Vec::new();
    for wrong in [
        Wrong::AnswerBeforeJournal,
        Wrong::CursorWithoutCompare,
        Wrong::PlainHeartbeat,
        Wrong::AbsentTrusted,
        Wrong::StampOff,
        Wrong::SelfFencingOff,
        Wrong::AdjustWithoutBarrier,
        Wrong::ReplayNotJournaled,
        Wrong::RequestForgotten,
        Wrong::NonceIgnored,
        Wrong::WaitWithoutVoid,
        Wrong::VoidWithoutIdState,
        Wrong::SettleBeforeReserve,
        Wrong::RefundWithoutReceiptSum,
        Wrong::ExtraWithoutNumber,
    ] {
        match first_broken(wrong, MUTANT_SEEDS) {
            Some((seed, what)) => println!("{wrong:?}: seed {seed}: {what}"),
            None => missed.push(wrong),
        }
    }
    assert!(missed.is_empty(), "no seed of {MUTANT_SEEDS} finds {missed:?}");
}
