//! One thread that serves: its own runtime, its own sockets, its own connections.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::listener::Listener;
use super::shared::Shared;

/// Starts a thread that serves these sockets until the server ends, and then for at most `grace` what has begun. Its
/// result is whether all of it ended in time.
pub(crate) fn start(
    number: usize,
    listeners: Vec<Listener>,
    shared: &Arc<Shared>,
    grace: Duration,
) -> Result<JoinHandle<Result<bool>>> {
    let shared = Arc::clone(shared);
    let work = move || -> Result<bool> {
        let tasks = TaskTracker::new();
        let all_ended = runtime()?.block_on(async {
            let accepting: Vec<_> = listeners
                .into_iter()
                .map(|listener| tokio::spawn(listener.accept(Arc::clone(&shared), tasks.clone())))
                .collect();
            for accepting in accepting {
                accepting.await.context("a port has panicked")?.context("a port cannot be served")?;
            }
            tasks.close();
            Ok::<bool, anyhow::Error>(timeout(grace, tasks.wait()).await.is_ok())
        });
        // Whatever ended this thread, a server with fewer threads than it was told is none.
        shared.ending.cancel();
        all_ended
    };
    thread::Builder::new().name(format!("serve-{number}")).spawn(work).context("cannot start a thread")
}

/// A runtime for the thread that calls it.
pub(crate) fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("cannot start a runtime")
}
