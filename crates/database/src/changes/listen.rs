//! Announcements of PostgreSQL: `LISTEN` on a separate connection.

use std::sync::Arc;

use futures_util::future::poll_fn;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Config, NoTls};

use super::CHANNEL;
use crate::Error;

/// A connection that hears of commits. It ends with the connection, so its user also reads the version from time to time.
pub struct ChangesListener {
    heard: Arc<Notify>,
    task: JoinHandle<()>,
    /// Keeps the connection open.
    _client: tokio_postgres::Client,
}

impl ChangesListener {
    pub(crate) async fn start(config: &Config) -> Result<ChangesListener, Error> {
        let connecting = config.connect(NoTls).await;
        let (client, mut connection) = connecting.map_err(Error::postgres("connect to listen"))?;
        let heard = Arc::new(Notify::new());
        let notify = Arc::clone(&heard);
        let task = tokio::spawn(async move {
            loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notification(_))) => notify.notify_one(),
                    Some(Ok(_)) => (),
                    Some(Err(_)) | None => break,
                }
            }
            // The waiting task must open it again.
            notify.notify_one();
        });
        client
            .batch_execute(&format!("LISTEN {CHANNEL}"))
            .await
            .map_err(Error::postgres("listen for changes"))?;
        Ok(ChangesListener { heard, task, _client: client })
    }

    /// Waits for a commit, or for the end of the connection.
    pub async fn heard(&self) {
        self.heard.notified().await;
    }

    /// Whether the connection has ended.
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for ChangesListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}
