//! Worker threads. Each has its own runtime, sockets and connections.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::listener::Listener;
use crate::serve::server_state::ServerState;

/// A thread that serves connections, and its result.
pub(crate) struct Worker {
    thread: JoinHandle<Result<()>>,
    ended: oneshot::Receiver<bool>,
}

impl Worker {
    /// Starts a thread that serves these sockets until shutdown. Requests in flight then have `grace` to finish.
    pub(crate) fn start(
        number: usize,
        listeners: Vec<Listener>,
        state: &Arc<ServerState>,
        grace: Duration,
    ) -> Result<Worker> {
        let state = Arc::clone(state);
        let (sender, ended) = oneshot::channel();
        let work = move || -> Result<()> {
            // If a worker thread dies, shut the server down.
            let _shut_down = state.ending.clone().drop_guard();
            let all_answered = runtime()?.block_on(serve(listeners, &state, grace))?;
            // The receiver is gone if another worker has failed.
            let _is_received = sender.send(all_answered);
            Ok(())
        };
        let thread = thread::Builder::new().name(format!("serve-{number}")).spawn(work)?;
        Ok(Worker { thread, ended })
    }

    /// Waits for the end of the thread, and returns whether all requests in flight were answered.
    pub(crate) async fn end(self) -> Result<bool> {
        let all_answered = self.ended.await.unwrap_or(false);
        self.thread.join().map_err(|_| anyhow!("a worker thread has panicked"))??;
        Ok(all_answered)
    }
}

async fn serve(listeners: Vec<Listener>, state: &Arc<ServerState>, grace: Duration) -> Result<bool> {
    let tasks = TaskTracker::new();
    let accepting: Vec<_> = listeners
        .into_iter()
        .map(|listener| tokio::spawn(listener.accept(Arc::clone(state), tasks.clone())))
        .collect();
    for accepting in accepting {
        accepting.await.context("a listener has panicked")?.context("a listener has failed")?;
    }
    tasks.close();
    Ok(timeout(grace, tasks.wait()).await.is_ok())
}

/// After this many polls of tasks, a runtime looks for connections that have become ready, and for wake-ups by other
/// threads. With the defaults, 61 and 31, a connection could wait for that many polls of a busy one.
const POLLS_BETWEEN_EVENTS: u32 = 8;

/// A runtime for the current thread.
pub(crate) fn runtime() -> Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .event_interval(POLLS_BETWEEN_EVENTS)
        .global_queue_interval(POLLS_BETWEEN_EVENTS)
        .build()
        .context("cannot start a runtime")
}
