//! Redis loses keys while it runs.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Happened, Scene, really};
use crate::chaos::account::Lost;
use crate::drill::DrillError;

const REPEATS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes by which the memory shrinks each time.
const STEP: u64 = 16 << 10;

/// Deletes all keys, several times.
pub(super) fn flush(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let mut admin = scene.place.one()?.0.admin()?;
    let mut deleted = 0;
    for _ in 0..REPEATS {
        sleep(scene.settings.time / REPEATS);
        deleted += admin.scan("tg:*")?.len();
        admin.flushall()?;
    }
    let proof = format!("FLUSHALL {REPEATS} times, {deleted} of our keys were there");
    Ok(Happened::now(really(deleted > 0, proof)?)
        .losing(Lost::Before { at: Instant::now(), times: REPEATS.into() }))
}

/// Makes Redis evict keys at random.
pub(super) fn evict(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let mut admin = scene.place.one()?.0.admin()?;
    admin.command(&[b"CONFIG", b"SET", b"maxmemory-policy", b"allkeys-random"])?;
    let until = Instant::now() + scene.settings.time;
    let mut steps = 0;
    while Instant::now() < until {
        steps += 1;
        let used = admin.info("memory")?.remove("used_memory").ok_or("no used_memory")?;
        let used: u64 = used.trim().parse()?;
        admin.command(&[b"CONFIG", b"SET", b"maxmemory", (used - STEP).to_string().as_bytes()])?;
        sleep(PAUSE);
    }
    admin.command(&[b"CONFIG", b"SET", b"maxmemory", b"0"])?;
    let evicted = admin.info("stats")?.remove("evicted_keys").unwrap_or_default();
    let evicted: u64 = evicted.trim().parse()?;
    let proof = format!("{evicted} keys evicted");
    Ok(Happened::now(really(evicted > 0, proof)?).losing(Lost::Before { at: Instant::now(), times: steps }))
}
