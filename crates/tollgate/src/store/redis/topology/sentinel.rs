//! Follows the primary through the sentinels.
//!
//! The watcher subscribes to every sentinel and also queries each. It follows a failover at the first announcement, or at
//! the next query if the announcement was lost. If sentinels disagree, the latest election wins.
//!
//! Sentinels announce a new primary up to a second after its promotion. In a failover of a healthy primary, both servers
//! accept writes meanwhile, and those of the old one are lost. So the watcher asks the replica that a sentinel has chosen
//! for its role, from the choice until the failover ends (`promotion`).

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::address::Address;
use super::primary_locator::KnownPrimary;
use crate::store::redis::client::breaker::Breaker;
use crate::store::redis::client::connection::CommandConnection;
use crate::store::redis::client::connector::Connector;
use crate::store::redis::client::node::{CONNECT_TIMEOUT, ClientContext};
use crate::store::redis::error::RedisError;
use crate::store::redis::protocol::resp::Reply;

/// Pause between queries of one sentinel while the primary is up, and while it is down.
const POLL_PAUSE: Duration = Duration::from_secs(1);
const POLL_PAUSE_DOWN: Duration = Duration::from_millis(50);
/// The announcements that are subscribed to: a new primary, and a replica that is about to be promoted.
const CHANNELS: [&[u8]; 2] = [b"+switch-master", b"+failover-state-send-slaveof-noone"];
/// How long a sentinel may take to reply.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest pause after a sentinel failed.
const FAILURE_PAUSE_MAX: Duration = Duration::from_millis(500);
/// A discovered sentinel that has not replied for this long is no longer queried.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// Most sentinels that are watched, discovered ones included.
const SENTINELS_MAX: usize = 32;

/// The state shared by the tasks that watch one sentinel each. They end when the locator is dropped.
pub(crate) struct SentinelWatcher {
    connector: Connector,
    name: Arc<str>,
    pub(crate) primary: watch::Sender<KnownPrimary>,
    /// The replica that a sentinel is promoting.
    pub(super) chosen_replica: watch::Sender<Option<Address>>,
    /// The primary's breaker. While it is open, sentinels are queried more often.
    breaker: Arc<Breaker>,
    /// For connections to the servers, as opposed to sentinels.
    pub(super) servers: Connector,
    runtime: Handle,
    jitter: fn() -> f64,
    /// The last report of each sentinel. None until it has replied or failed once.
    reports: Mutex<HashMap<Address, Option<Result<SentinelReport, RedisError>>>>,
}

/// One sentinel's view of the primary.
#[derive(Clone, Debug)]
struct SentinelReport {
    /// The election that made this server the primary.
    epoch: u64,
    primary: Address,
    /// The replica that is being promoted, if this sentinel leads a failover.
    chosen_replica: Option<Address>,
}

/// How a sentinel became known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Named in the URL: it is queried for ever.
    Url,
    /// Named by another sentinel: it may vanish or get another address.
    Discovered,
}

impl SentinelWatcher {
    pub(crate) fn new(
        connector: Connector,
        name: Arc<str>,
        breaker: Arc<Breaker>,
        context: &ClientContext,
    ) -> SentinelWatcher {
        SentinelWatcher {
            connector,
            name,
            primary: watch::Sender::new(KnownPrimary::default()),
            chosen_replica: watch::Sender::new(None),
            breaker,
            servers: context.connector.clone(),
            runtime: context.runtime.clone(),
            jitter: context.jitter,
            reports: Mutex::default(),
        }
    }

    /// Starts to watch these sentinels, and those that they name.
    pub(crate) fn watch(self: &Arc<Self>, addresses: Vec<Address>) {
        // Register all before the first can fail: "no primary" is reported only when all have failed.
        addresses.iter().for_each(|address| drop(self.reports.lock().insert(address.clone(), None)));
        for address in addresses {
            self.runtime.spawn(Arc::clone(self).watch_sentinel(address, Origin::Url));
        }
        self.runtime.spawn(Arc::clone(self).watch_promotions());
    }

    fn watch_discovered(self: &Arc<Self>, addresses: Vec<Address>) {
        for address in addresses {
            let mut reports = self.reports.lock();
            if reports.len() < SENTINELS_MAX && !reports.contains_key(&address) {
                reports.insert(address.clone(), None);
                self.runtime.spawn(Arc::clone(self).watch_sentinel(address, Origin::Discovered));
            }
        }
    }

    async fn watch_sentinel(self: Arc<Self>, address: Address, origin: Origin) {
        let watch = async {
            let mut last_reply = Instant::now();
            while origin == Origin::Url || last_reply.elapsed() < FORGET_AFTER {
                let error = self.watch_until_failure(&address, &mut last_reply).await;
                self.record(&address, Err(error));
                sleep(FAILURE_PAUSE_MAX.mul_f64((self.jitter)())).await;
            }
            self.reports.lock().remove(&address);
        };
        tokio::select! {
            () = watch => (),
            () = self.primary.closed() => (),
        }
    }

    async fn watch_until_failure(
        self: &Arc<Self>,
        address: &Address,
        last_reply: &mut Instant,
    ) -> RedisError {
        let watch = async {
            let mut queries = self.connect(address).await?;
            self.query_primary(&mut queries, address).await?;
            let mut events = self.connect(address).await?;
            let mut subscribed = false;
            for channel in CHANNELS {
                let subscribing =
                    with_timeout(async { events.command(&[b"SUBSCRIBE", channel]).await.map(drop) });
                subscribed |= none_if_refused(subscribing.await)?.is_some();
            }
            loop {
                let is_failing_over = self.query_primary(&mut queries, address).await?;
                *last_reply = Instant::now();
                let others = none_if_refused(self.query_sentinels(&mut queries, address).await)?;
                self.watch_discovered(others.unwrap_or_default());
                let is_down = self.breaker.is_open();
                tokio::select! {
                    event = events.receive(), if subscribed => drop(event?),
                    () = self.breaker.changed_from(is_down) => (),
                    () = sleep(if is_down || is_failing_over { POLL_PAUSE_DOWN } else { POLL_PAUSE }) => (),
                }
            }
        };
        let Err::<Infallible, RedisError>(error) = watch.await;
        error
    }

    async fn connect(&self, address: &Address) -> Result<CommandConnection, RedisError> {
        let connected = timeout(CONNECT_TIMEOUT, self.connector.connect(address, REPLY_TIMEOUT)).await;
        connected.unwrap_or(Err(RedisError::NoReply))
    }

    /// Queries the primary, the election that made it one, and the replica that is being promoted. Returns whether the
    /// sentinel leads a failover.
    async fn query_primary(
        &self,
        sentinel: &mut CommandConnection,
        address: &Address,
    ) -> Result<bool, RedisError> {
        let name = self.name.as_bytes();
        let (epoch, is_failing_over) = with_timeout(async {
            let reply = sentinel.command(&[b"SENTINEL", b"MASTER", name]).await?;
            let epoch: u64 =
                field(&reply, "config-epoch").and_then(Reply::number).ok_or(NO_PRIMARY_IN_REPLY)?;
            Ok((epoch, has_flag(&reply, "failover_in_progress")))
        })
        .await?;
        let primary = with_timeout(async {
            let reply = sentinel.command(&[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name]).await?;
            let elements = reply.elements().unwrap_or_default();
            let host = elements.first().and_then(Reply::text);
            let port = elements.get(1).and_then(Reply::number);
            host.zip(port).map(|(host, port)| Address::new(host, port)).ok_or(NO_PRIMARY_IN_REPLY)
        })
        .await?;
        let chosen_replica = if is_failing_over {
            with_timeout(self.query_chosen_replica(sentinel, address)).await?
        } else {
            None
        };
        self.record(address, Ok(SentinelReport { epoch, primary, chosen_replica }));
        Ok(is_failing_over)
    }

    /// Queries the replica that the sentinel is promoting. Sentinels take up to a second to notice that it has become the
    /// primary. The replica knows at once, and `ROLE` returns it.
    async fn query_chosen_replica(
        &self,
        sentinel: &mut CommandConnection,
        sender: &Address,
    ) -> Result<Option<Address>, RedisError> {
        let reply = sentinel.command(&[b"SENTINEL", b"REPLICAS", self.name.as_bytes()]).await?;
        let replicas = reply.elements().unwrap_or_default();
        let chosen = replicas.iter().find(|replica| has_flag(replica, "promoted"));
        Ok(chosen.and_then(|replica| address_field(replica, sender)))
    }

    /// Queries the other sentinels that this one knows.
    async fn query_sentinels(
        &self,
        sentinel: &mut CommandConnection,
        sender: &Address,
    ) -> Result<Vec<Address>, RedisError> {
        with_timeout(async {
            let reply = sentinel.command(&[b"SENTINEL", b"SENTINELS", self.name.as_bytes()]).await?;
            let others = reply.elements().unwrap_or_default().iter();
            Ok(others.filter_map(|other| address_field(other, sender)).collect())
        })
        .await
    }

    /// Records a sentinel's report and publishes the primary. A failed sentinel does not count. If all have failed, the
    /// last known primary stays.
    ///
    /// If a sentinel fails after the replica that it chose became the primary, its report stays until that replica says
    /// otherwise: the old primary's writes are lost from then on.
    fn record(&self, sentinel: &Address, result: Result<SentinelReport, RedisError>) {
        let mut reports = self.reports.lock();
        let error = result.as_ref().err().cloned();
        let last = reports.get(sentinel).and_then(Option::as_ref).and_then(|report| report.as_ref().ok());
        let leads = last.is_some_and(|report| report.chosen_replica.is_some());
        if result.is_ok() || !leads || !self.primary.borrow().is_promoted {
            reports.insert(sentinel.clone(), Some(result));
        }
        let valid = || reports.values().flatten().filter_map(|report| report.as_ref().ok());
        let Some(epoch) = valid().map(|report| report.epoch).max() else {
            if reports.values().all(Option::is_some) {
                self.primary.send_modify(|known| known.error = error);
            }
            return;
        };
        let latest = || valid().filter(|report| report.epoch == epoch);
        let chosen_replica = latest().find_map(|report| report.chosen_replica.clone());
        self.primary.send_if_modified(|known| {
            let unchanged = latest().find(|report| Some(&report.primary) == known.address.as_ref());
            let address = unchanged.or_else(|| latest().next()).map(|report| report.primary.clone());
            let is_chosen_still = known.chosen_replica == chosen_replica;
            let differs = known.address != address || !is_chosen_still;
            let is_promoted = known.is_promoted && is_chosen_still;
            *known =
                KnownPrimary { address, chosen_replica: chosen_replica.clone(), is_promoted, error: None };
            differs
        });
        self.chosen_replica.send_if_modified(|chosen| {
            let differs = *chosen != chosen_replica;
            *chosen = chosen_replica;
            differs
        });
    }
}

const NO_PRIMARY_IN_REPLY: RedisError = RedisError::UnexpectedReply("no primary in a sentinel's reply");

async fn with_timeout<T>(reply: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    timeout(REPLY_TIMEOUT, reply).await.unwrap_or(Err(RedisError::NoReply))
}

/// Turns an error reply into None. The user may lack the permission: queries alone find the primary.
fn none_if_refused<T>(result: Result<T, RedisError>) -> Result<Option<T>, RedisError> {
    match result {
        Err(RedisError::ErrorReply(_)) => Ok(None),
        result => result.map(Some),
    }
}

/// The value that follows a name in a flat array of names and values.
fn field<'r, 'b>(reply: &'r Reply<'b>, name: &str) -> Option<&'r Reply<'b>> {
    reply.elements()?.chunks_exact(2).find(|pair| pair[0].text() == Some(name)).map(|pair| &pair[1])
}

fn has_flag(reply: &Reply<'_>, flag: &str) -> bool {
    let flags = field(reply, "flags").and_then(Reply::text).unwrap_or_default();
    flags.split(',').any(|found| found == flag)
}

fn address_field(reply: &Reply<'_>, sender: &Address) -> Option<Address> {
    let (host, port) = (field(reply, "ip")?.text()?, field(reply, "port")?.number()?);
    Some(Address::new(if host.is_empty() { &sender.host } else { host }, port))
}
