//! Redis is not there, or does not answer.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Happened, Scene, really};
use crate::chaos::account::Lost;
use crate::drill::DrillError;

/// Kills Redis like a power failure, and starts it again without data.
pub(super) fn kill(scene: &mut Scene<'_>, time: Duration) -> Result<Happened, DrillError> {
    let before = scene.fleet.answers().1;
    let (server, _) = scene.place.one()?;
    server.kill9()?;
    let gone = Instant::now();
    sleep(time);
    server.restart()?;
    let by_policy = scene.fleet.answers().1 - before;
    let proof = format!("Redis away for {} ms, {by_policy} answers by policy", gone.elapsed().as_millis());
    Ok(Happened::now(really(by_policy > 0, proof)?).losing(Lost::Before { at: Instant::now(), times: 1 }))
}

/// Freezes Redis. It executes what it was sent when it continues.
pub(super) fn stop(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let before = scene.fleet.answers().1;
    let (server, _) = scene.place.one()?;
    server.stop()?;
    sleep(scene.settings.time);
    server.resume()?;
    let by_policy = scene.fleet.answers().1 - before;
    let proof = format!("frozen for {} ms, {by_policy} answers by policy", scene.settings.time.as_millis());
    Ok(Happened::now(really(by_policy > 0, proof)?))
}
