//! How each fault is injected, and what proves that it happened.

mod away;
mod callers;
mod clock;
mod failover;
mod network;
mod ours;
mod replies;
mod slots;
mod wiped;

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::Settings;
use super::account::Lost;
use super::control::Control;
use super::fault::Fault;
use super::fleet::Fleet;
use super::place::{Names, Place};
use super::shifted_clock::ShiftedClock;
use crate::drill::DrillError;

/// Everything that a fault can act on, while the load runs.
pub(super) struct Scene<'a> {
    pub(super) place: &'a mut Place,
    pub(super) fleet: &'a mut Fleet,
    pub(super) control: &'a Control,
    pub(super) runtime: &'a Runtime,
    pub(super) settings: &'a Settings,
    pub(super) names: &'a Names,
    pub(super) shifted: &'a ShiftedClock,
}

/// A fault that is over.
pub(super) struct Happened {
    pub(super) ended: Instant,
    pub(super) lost: Lost,
    pub(super) proof: String,
    /// Between these instants no policy may admit anything.
    pub(super) closed_between: Option<(Instant, Instant)>,
}

impl Happened {
    /// A fault that ends now and loses nothing.
    fn now(proof: String) -> Happened {
        Happened { ended: Instant::now(), lost: Lost::Nothing, proof, closed_between: None }
    }

    fn losing(self, lost: Lost) -> Happened {
        Happened { lost, ..self }
    }
}

/// Injects a fault, and fails if it did not happen.
pub(super) fn inject(fault: Fault, scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    match fault {
        Fault::Kill => away::kill(scene, scene.settings.time),
        Fault::Dead => away::kill(scene, scene.settings.dead),
        Fault::Stop => away::stop(scene),
        Fault::Flush => wiped::flush(scene),
        Fault::Evict => wiped::evict(scene),
        Fault::ScriptFlush => replies::script_flush(scene),
        Fault::Oom => replies::out_of_memory(scene),
        Fault::ReadOnly => replies::read_only(scene),
        Fault::Busy => replies::busy(scene),
        Fault::Loading => replies::loading(scene),
        Fault::NoAuth => replies::no_auth(scene),
        Fault::WrongPass => replies::wrong_password(scene),
        Fault::NoPerm => replies::no_permission(scene),
        Fault::Latency => network::latency(scene),
        Fault::LostReplies => network::lost_replies(scene),
        Fault::Reset => network::reset(scene),
        Fault::PrimaryKilled => failover::sentinel(scene, failover::End::Kill),
        Fault::PrimaryStopped => failover::sentinel(scene, failover::End::Stop),
        Fault::Planned => failover::planned_sentinel(scene),
        Fault::NodeKilled => failover::cluster(scene),
        Fault::ClusterFailover => failover::planned_cluster(scene),
        Fault::SlotMoves => slots::moves(scene),
        Fault::Reshard => slots::reshard(scene),
        Fault::ClusterDown => slots::cluster_down(scene),
        Fault::ServerClock => clock::server(scene),
        Fault::RedisClock => clock::redis(scene),
        Fault::Terminate => ours::terminate(scene),
        Fault::KillServer => ours::kill(scene),
        Fault::Rules => ours::rules(scene),
        Fault::Hostile => callers::hostile(scene),
        Fault::SlowHeaders => callers::slow_headers(scene),
        Fault::RapidReset => callers::rapid_reset(scene),
    }
}

/// Fails if the fault did not happen, and otherwise returns the proof.
fn really(happened: bool, proof: String) -> Result<String, DrillError> {
    if happened { Ok(proof) } else { Err(format!("the fault did not happen: {proof}").into()) }
}

/// Waits until a condition holds.
fn wait_for(what: &str, within: Duration, mut holds: impl FnMut() -> bool) -> Result<(), DrillError> {
    let until = Instant::now() + within;
    while !holds() {
        if Instant::now() > until {
            return Err(format!("not {what} within {within:?}").into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Replaces a file in one step, so that no reader sees a part of it.
fn replace(path: &Path, text: &str) -> Result<(), DrillError> {
    let next = path.with_extension("next");
    std::fs::write(&next, text)?;
    std::fs::rename(&next, path)?;
    Ok(())
}
