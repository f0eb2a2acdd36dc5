//! Asks the replica that a sentinel is promoting for its role, until the failover ends.
//!
//! The promotion closes all connections of the replica, so it is usually noticed within a round trip. The questions repeat
//! in case it does not.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::address::Address;
use super::sentinel::SentinelWatcher;
use crate::store::redis::client::node::{CONNECT_TIMEOUT, check_is_primary};
use crate::store::redis::error::RedisError;

/// Pause between questions. A promotion follows the choice within a few hundred milliseconds.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_FIRST_FOR: Duration = Duration::from_secs(2);
/// Pause before a connection that the replica closed is made again: the promotion closes all of them.
const PAUSE_CLOSED: Duration = Duration::from_millis(1);
/// Pause between questions to a replica that was promoted, or that hangs.
const PAUSE_LATER: Duration = Duration::from_millis(50);
/// How long the replica may take to reply.
const REPLY_TIMEOUT: Duration = Duration::from_millis(100);

impl SentinelWatcher {
    /// Watches each chosen replica until another is chosen or the failover ends. Ends with the locator.
    pub(super) async fn watch_promotions(self: Arc<Self>) {
        let mut chosen = self.chosen_replica.subscribe();
        let watch = async {
            loop {
                let replica = chosen.borrow_and_update().clone();
                let ask = async {
                    match &replica {
                        Some(replica) => self.ask_for_role(replica).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    _ = ask => (),
                    // The sender is in `self`.
                    _ = chosen.changed() => (),
                }
            }
        };
        tokio::select! {
            () = watch => (),
            () = self.primary.closed() => (),
        }
    }

    /// Asks the replica for its role, again and again.
    async fn ask_for_role(&self, replica: &Address) -> Infallible {
        let began = Instant::now();
        loop {
            let mut was_asked = false;
            let Err(error) = self.ask_until_failure(replica, began, &mut was_asked).await;
            let is_closed = was_asked && !matches!(error, RedisError::NoReply);
            if !is_closed {
                // A replica that cannot be reached or does not reply is not used as the primary.
                self.set_promoted(replica, false);
            }
            sleep(if is_closed { PAUSE_CLOSED } else { pause(began, false) }).await;
        }
    }

    /// Asks on one connection until it fails.
    async fn ask_until_failure(
        &self,
        replica: &Address,
        began: Instant,
        was_asked: &mut bool,
    ) -> Result<Infallible, RedisError> {
        let connecting = timeout(CONNECT_TIMEOUT, self.servers.connect(replica, REPLY_TIMEOUT)).await;
        let mut connection = connecting.unwrap_or(Err(RedisError::NoReply))?;
        loop {
            let role = timeout(REPLY_TIMEOUT, check_is_primary(&mut connection, replica)).await;
            let is_promoted = match role.unwrap_or(Err(RedisError::NoReply)) {
                Ok(()) => true,
                Err(RedisError::Replica { .. }) => false,
                Err(error) => return Err(error),
            };
            *was_asked = true;
            self.set_promoted(replica, is_promoted);
            tokio::select! {
                () = sleep(pause(began, is_promoted)) => (),
                // Nothing was asked, so this is the end of the connection.
                closed = connection.receive() => drop(closed?),
            }
        }
    }

    /// Publishes the role of the chosen replica, unless another was chosen meanwhile.
    fn set_promoted(&self, replica: &Address, is_promoted: bool) {
        self.primary.send_if_modified(|known| {
            let differs = known.is_promoted != is_promoted && known.chosen_replica.as_ref() == Some(replica);
            known.is_promoted ^= differs;
            differs
        });
    }
}

fn pause(began: Instant, is_promoted: bool) -> Duration {
    if is_promoted || began.elapsed() > PAUSE_FIRST_FOR { PAUSE_LATER } else { PAUSE }
}
