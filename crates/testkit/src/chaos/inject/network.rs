//! The network delays, drops or cuts replies.

use std::thread::sleep;
use std::time::Duration;

use super::{Happened, Scene, really};
use crate::drill::DrillError;
use crate::fault_proxy::{Faults, Line};

const LATENCIES_MS: [u64; 5] = [1, 5, 20, 100, 500];
const LOST: f64 = 0.1;
const CUT: f64 = 0.02;

/// Replies take longer and longer, up to many deadlines.
pub(super) fn latency(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let time = scene.settings.time / LATENCIES_MS.len() as u32;
    let (_, proxy) = scene.place.one()?;
    for latency in LATENCIES_MS {
        let line = Line { delay: Duration::from_millis(latency), ..Line::default() };
        proxy.set(Faults { replies: line, ..Faults::default() })?;
        sleep(time);
    }
    proxy.set(Faults::default())?;
    let delayed = proxy.injected().delayed_replies;
    Ok(Happened::now(really(delayed > 0, format!("{delayed} replies delayed by 1 to 500 ms"))?))
}

/// Redis executes a call, but its reply does not arrive.
pub(super) fn lost_replies(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let (_, proxy) = scene.place.one()?;
    proxy.set(Faults { lose_reply: LOST, ..Faults::default() })?;
    sleep(scene.settings.time);
    proxy.set(Faults::default())?;
    let lost = proxy.injected().lost_replies;
    Ok(Happened::now(really(lost > 0, format!("{lost} replies lost after the execution"))?))
}

/// A connection is reset in the middle of a reply.
pub(super) fn reset(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let (_, proxy) = scene.place.one()?;
    proxy.set(Faults { cut_reply: CUT, ..Faults::default() })?;
    sleep(scene.settings.time);
    proxy.set(Faults::default())?;
    let cut = proxy.injected().cut_replies;
    Ok(Happened::now(really(cut > 0, format!("{cut} replies cut by a reset"))?))
}
