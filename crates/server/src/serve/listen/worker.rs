//! One thread that serves: its own runtime, its own sockets, its own connections.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::listener::Listener;
use crate::serve::shared::Shared;

/// A thread that serves, and the word it leaves when it ends.
pub(crate) struct Worker {
    thread: JoinHandle<Result<()>>,
    ended: oneshot::Receiver<bool>,
}

impl Worker {
    /// Starts a thread that serves these sockets until the server ends, and then for at most `grace` what has begun.
    pub(crate) fn start(
        number: usize,
        listeners: Vec<Listener>,
        shared: &Arc<Shared>,
        grace: Duration,
    ) -> Result<Worker> {
        let shared = Arc::clone(shared);
        let (word, ended) = oneshot::channel();
        let work = move || -> Result<()> {
            // Whatever ends this thread, a server with fewer threads than it was told is none.
            let _end_with_me = shared.ending.clone().drop_guard();
            let all_answered = runtime()?.block_on(serve(listeners, &shared, grace))?;
            // Nobody waits for it any more if the others have failed.
            let _unheard = word.send(all_answered);
            Ok(())
        };
        let thread = thread::Builder::new().name(format!("serve-{number}")).spawn(work)?;
        Ok(Worker { thread, ended })
    }

    /// Waits until it has ended, and says whether everything that had begun was answered.
    pub(crate) async fn end(self) -> Result<bool> {
        let all_answered = self.ended.await.unwrap_or(false);
        self.thread.join().map_err(|_| anyhow!("a thread that serves has panicked"))??;
        Ok(all_answered)
    }
}

async fn serve(listeners: Vec<Listener>, shared: &Arc<Shared>, grace: Duration) -> Result<bool> {
    let tasks = TaskTracker::new();
    let accepting: Vec<_> = listeners
        .into_iter()
        .map(|listener| tokio::spawn(listener.accept(Arc::clone(shared), tasks.clone())))
        .collect();
    for accepting in accepting {
        accepting.await.context("a port has panicked")?.context("a port cannot be served")?;
    }
    tasks.close();
    Ok(timeout(grace, tasks.wait()).await.is_ok())
}

/// A runtime for the thread that calls it.
pub(crate) fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("cannot start a runtime")
}
