//! A server runs out of memory while the store is under load. It refuses writes, or evicts keys.

use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::DrillError;
use super::failover::{excess, store};
use super::load::{Load, Shape, Tally};
use crate::redis::{AdminError, Flavour, Server};

const MEMORY: &str = "4mb";
/// Larger than the memory in sum.
const FILLERS: usize = 80;
static FILLER: [u8; 64 << 10] = [b'x'; 64 << 10];
const SUBJECTS: usize = 40;
const SHAPE: Shape = Shape { tasks: 16, subjects: SUBJECTS, most: 20, rules: 1, with_ids: false };
const PHASE: Duration = Duration::from_millis(500);
const REACHED_MAX: Duration = Duration::from_secs(20);

/// The figures of the drill.
#[derive(Clone, Copy, Debug)]
pub struct Full {
    /// Keys that the server evicted, as the store reports them.
    pub evicted: u64,
    /// Admissions beyond the limits.
    pub excess: u64,
    /// The answers for subjects at their limits while the server was full.
    pub during: Tally,
    /// The answers for other subjects while the server was full.
    pub fresh: Tally,
    /// The answers for all subjects after it had memory again.
    pub after: Tally,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Full { evicted, excess, during, fresh, after } = self;
        write!(
            f,
            "evicted keys {evicted}, excess {excess}; while full, at their limits {during:?}, others {fresh:?}; afterwards \
             {after:?}"
        )
    }
}

/// Fills a server with this `maxmemory-policy` after all subjects have reached their limits, and empties it again.
pub fn fill_memory(runtime: &Runtime, policy: &str, seed: u64) -> Result<Full, DrillError> {
    let arguments = ["--maxmemory", MEMORY, "--maxmemory-policy", policy];
    let server = Server::builder(Flavour::Redis70).arguments(arguments).start()?;
    let store = store(runtime, &server.url())?;
    let mut load = Load::start(runtime, &store, SHAPE, seed)?;
    let until = Instant::now() + REACHED_MAX;
    while !(0..SUBJECTS).all(|subject| load.tally(|number| number == subject).refused > 0) {
        if Instant::now() > until {
            return Err("the limits were not reached".into());
        }
        sleep(Duration::from_millis(10));
    }
    let mut admin = server.admin()?;
    for number in 0..FILLERS {
        match admin.command(&[b"SET", format!("filler:{number}").as_bytes(), &FILLER]) {
            Ok(_) => (),
            // It is full and does not evict.
            Err(AdminError::Refused(_)) => break,
            Err(error) => return Err(error.into()),
        }
    }
    if policy == "noeviction" {
        // Otherwise small keys fit, although another large one does not.
        admin.command(&[b"CONFIG", b"SET", b"maxmemory", b"1mb"])?;
    }
    let began = load.tally(|_| true);
    let mut others = Load::start(runtime, &store, SHAPE, seed ^ u64::MAX)?;
    sleep(PHASE);
    let (full, fresh) = (load.tally(|_| true), others.tally(|_| true));
    admin.command(&[b"CONFIG", b"SET", b"maxmemory", MEMORY.as_bytes()])?;
    for number in 0..FILLERS {
        admin.command(&[b"DEL", format!("filler:{number}").as_bytes()])?;
    }
    sleep(PHASE);
    load.stop(runtime)?;
    others.stop(runtime)?;
    let evicted = runtime.block_on(store.evicted_keys())?.into_iter().map(|(_, evicted)| evicted).sum();
    let found = Full {
        evicted,
        excess: excess(&load) + excess(&others),
        during: difference(full, began),
        fresh,
        after: sum(difference(load.tally(|_| true), full), difference(others.tally(|_| true), fresh)),
    };
    println!("full, {policy}: {found}");
    Ok(found)
}

fn difference(after: Tally, before: Tally) -> Tally {
    Tally {
        admitted: after.admitted - before.admitted,
        refused: after.refused - before.refused,
        unknown: after.unknown - before.unknown,
        failed: after.failed - before.failed,
    }
}

fn sum(one: Tally, other: Tally) -> Tally {
    Tally {
        admitted: one.admitted + other.admitted,
        refused: one.refused + other.refused,
        unknown: one.unknown + other.unknown,
        failed: one.failed + other.failed,
    }
}
