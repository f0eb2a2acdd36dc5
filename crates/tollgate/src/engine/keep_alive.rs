//! Leases that are renewed in the background.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tollgate_core::{Limit, Store};

use super::{Decision, Engine};

/// A lease is renewed this many times before it would end, so that two failed calls do not lose it.
const RENEWALS_PER_LEASE: u32 = 3;

/// An admission whose leases are renewed in the background until this guard is dropped. Then they are released.
///
/// Renewal stops when a lease has ended, which happens when the store did not answer for the whole lease time.
/// [`lost`](KeepAlive::lost) waits for that, [`is_lost`](KeepAlive::is_lost) asks for it.
#[must_use = "dropping it releases the leases"]
pub struct KeepAlive {
    decision: Arc<Decision>,
    is_lost: watch::Receiver<bool>,
    task: Option<JoinHandle<()>>,
    /// Releases the leases.
    release: Box<dyn Fn(&Decision) + Send + Sync>,
}

impl KeepAlive {
    /// The decision that the leases belong to.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Whether a lease has ended before it was released. Other holders may have its place.
    pub fn is_lost(&self) -> bool {
        *self.is_lost.borrow()
    }

    /// Waits until a lease is lost; forever if none is. For `tokio::select!`, next to the work itself.
    pub async fn lost(&self) {
        let mut is_lost = self.is_lost.clone();
        if is_lost.wait_for(|&lost| lost).await.is_err() {
            // The task ended without a loss: there is nothing to renew.
            std::future::pending().await
        }
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        (self.release)(&self.decision);
    }
}

impl<S: Store + Send + Sync + 'static> Engine<S> {
    /// Renews the leases of a decision until the guard is dropped. Must be called in a tokio runtime.
    pub(crate) fn keep_alive(&self, decision: Decision) -> KeepAlive {
        let decision = Arc::new(decision);
        let (lost, is_lost) = watch::channel(false);
        let task = shortest_lease(&decision).map(|lease| {
            let (engine, decision) = (self.clone(), Arc::clone(&decision));
            tokio::spawn(async move {
                engine.renew_until_lost(&decision, lease).await;
                lost.send_replace(true);
            })
        });
        let engine = self.clone();
        let release = Box::new(move |decision: &Decision| engine.release_unawaited(decision));
        KeepAlive { decision, is_lost, task, release }
    }

    /// Renews until a lease has ended.
    async fn renew_until_lost(&self, decision: &Decision, lease: Duration) {
        let period = (lease / RENEWALS_PER_LEASE).max(Duration::from_millis(1));
        let mut ticks = interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut renewed_at = Instant::now();
        loop {
            ticks.tick().await;
            let asked_at = Instant::now();
            match self.renew(decision).await {
                Ok(true) => renewed_at = asked_at,
                Ok(false) => return,
                // Unknown: the lease still lives if the store answers again in time.
                Err(_) if renewed_at.elapsed() < lease => {}
                Err(_) => return,
            }
        }
    }
}

/// The shortest lease time of a decision; `None` if it holds no lease.
fn shortest_lease(decision: &Decision) -> Option<Duration> {
    let leases = decision.charges().filter_map(|charge| match charge.limit {
        Limit::Concurrency(limit) => Some(Duration::from(limit.lease())),
        _ => None,
    });
    leases.min()
}
