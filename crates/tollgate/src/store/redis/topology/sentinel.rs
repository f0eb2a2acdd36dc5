//! Where the primary is, as the sentinels say.
//!
//! Every sentinel is listened to and asked: a switch is followed when the first of them tells it, and if the telling is
//! lost, when the next answer does. If they disagree, whoever knows the latest election is right.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::target::Address;
use super::whereabouts::Named;
use crate::store::redis::client::connection::{Dialogue, Door};
use crate::store::redis::client::health::Health;
use crate::store::redis::client::node::{DIAL_MAX, Link};
use crate::store::redis::error::RedisError;
use crate::store::redis::protocol::reply::Reply;

/// How often a sentinel is asked while all is well, and while the primary is down.
const POLL: Duration = Duration::from_secs(1);
const POLL_DOWN: Duration = Duration::from_millis(50);
/// A sentinel that takes longer to answer does not count.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// How long a sentinel that failed is left alone, at most.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// One that another named and that has not answered for so long is not asked any more.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// So many are listened to, whatever they say of each other.
const SENTINELS_MAX: usize = 32;

/// What the tasks that listen to the sentinels share. They end when nobody asks for the primary any more.
pub(crate) struct Sentinels {
    door: Door,
    name: Arc<str>,
    pub(crate) primary: watch::Sender<Named>,
    /// How the primary is: while it is down they are asked more often.
    health: Arc<Health>,
    runtime: Handle,
    dice: fn() -> f64,
    /// What each of them said last, by address; None as long as it has said nothing.
    reports: Mutex<HashMap<Address, Option<Result<Report, RedisError>>>>,
}

/// What a sentinel said.
#[derive(Clone, Debug)]
struct Report {
    /// The election that made it so.
    epoch: u64,
    primary: Address,
    /// The replica that is to take its place, if this sentinel is in charge of a failover.
    chosen: Option<Address>,
}

/// Whether a sentinel is to be asked for ever.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Url,
    /// Another one knows it: it may vanish and get another address.
    Another,
}

impl Sentinels {
    pub(crate) fn new(door: Door, name: Arc<str>, health: Arc<Health>, link: &Link) -> Sentinels {
        Sentinels {
            door,
            name,
            primary: watch::Sender::new(Named::default()),
            health,
            runtime: link.runtime.clone(),
            dice: link.dice,
            reports: Mutex::default(),
        }
    }

    /// Begins to listen to these, and to those they know.
    pub(crate) fn listen(self: &Arc<Self>, addresses: Vec<Address>) {
        // All of them are known before one can fail.
        addresses.iter().for_each(|address| drop(self.reports.lock().insert(address.clone(), None)));
        for address in addresses {
            self.runtime.spawn(Arc::clone(self).listen_to(address, From::Url));
        }
    }

    fn listen_too(self: &Arc<Self>, addresses: Vec<Address>) {
        for address in addresses {
            let mut reports = self.reports.lock();
            if reports.len() < SENTINELS_MAX && !reports.contains_key(&address) {
                reports.insert(address.clone(), None);
                self.runtime.spawn(Arc::clone(self).listen_to(address, From::Another));
            }
        }
    }

    async fn listen_to(self: Arc<Self>, address: Address, from: From) {
        let attend_again = async {
            let mut heard = Instant::now();
            while from == From::Url || heard.elapsed() < FORGOTTEN {
                let failed = self.attend(&address, &mut heard).await;
                self.tells(&address, Err(failed));
                sleep(PAUSE_MAX.mul_f64((self.dice)())).await;
            }
            self.reports.lock().remove(&address);
        };
        tokio::select! {
            () = attend_again => (),
            () = self.primary.closed() => (),
        }
    }

    /// Listens to one until it fails.
    async fn attend(self: &Arc<Self>, address: &Address, last_heard: &mut Instant) -> RedisError {
        let attended = async {
            let mut asked = self.enter(address).await?;
            self.ask(&mut asked, address).await?;
            let mut heard = self.enter(address).await?;
            let listens = within(async { heard.ask(&[b"SUBSCRIBE", b"+switch-master"]).await.map(drop) });
            let listens = permitted(listens.await)?.is_some();
            loop {
                self.ask(&mut asked, address).await?;
                *last_heard = Instant::now();
                let others = permitted(self.others(&mut asked, address).await)?;
                self.listen_too(others.unwrap_or_default());
                let down = self.health.is_down();
                tokio::select! {
                    switched = heard.hear(), if listens => drop(switched?),
                    () = self.health.turns_from(down) => (),
                    () = sleep(if down { POLL_DOWN } else { POLL }) => (),
                }
            }
        };
        let Err::<Infallible, RedisError>(failed) = attended.await;
        failed
    }

    async fn enter(&self, address: &Address) -> Result<Dialogue, RedisError> {
        timeout(DIAL_MAX, self.door.enter(address, ANSWER_MAX)).await.unwrap_or(Err(RedisError::NoReply))
    }

    /// Asks for the primary, for the election that made it one, and for who is to take its place.
    async fn ask(&self, sentinel: &mut Dialogue, address: &Address) -> Result<(), RedisError> {
        let name = self.name.as_bytes();
        let (epoch, electing) = within(async {
            let told = sentinel.ask(&[b"SENTINEL", b"MASTER", name]).await?;
            let epoch: u64 = field(&told, "config-epoch").and_then(Reply::number).ok_or(UNKNOWN)?;
            Ok((epoch, flagged(&told, "failover_in_progress")))
        })
        .await?;
        let primary = within(async {
            let told = sentinel.ask(&[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name]).await?;
            let parts = told.parts().unwrap_or_default();
            let host = parts.first().and_then(Reply::text);
            let port = parts.get(1).and_then(Reply::number);
            host.zip(port).map(|(host, port)| Address::new(host, port)).ok_or(UNKNOWN)
        })
        .await?;
        let chosen = if electing { within(self.chosen(sentinel, address)).await? } else { None };
        self.tells(address, Ok(Report { epoch, primary, chosen }));
        Ok(())
    }

    /// The replica that the sentinel in charge of a failover has chosen. Sentinels take up to a second to see that their
    /// choice has become the primary; the replica knows at once, and says so to whoever gets there.
    async fn chosen(
        &self,
        sentinel: &mut Dialogue,
        said_by: &Address,
    ) -> Result<Option<Address>, RedisError> {
        let told = sentinel.ask(&[b"SENTINEL", b"REPLICAS", self.name.as_bytes()]).await?;
        let replicas = told.parts().unwrap_or_default();
        let chosen = replicas.iter().find(|replica| flagged(replica, "promoted"));
        Ok(chosen.and_then(|replica| address_of(replica, said_by)))
    }

    /// The sentinels that this one knows.
    async fn others(&self, sentinel: &mut Dialogue, said_by: &Address) -> Result<Vec<Address>, RedisError> {
        within(async {
            let told = sentinel.ask(&[b"SENTINEL", b"SENTINELS", self.name.as_bytes()]).await?;
            let others = told.parts().unwrap_or_default().iter();
            Ok(others.filter_map(|other| address_of(other, said_by)).collect())
        })
        .await
    }

    /// Takes a sentinel's word. One that does not answer has no say; what all of them said last stands until one of them
    /// says otherwise.
    fn tells(&self, sentinel: &Address, told: Result<Report, RedisError>) {
        let mut reports = self.reports.lock();
        let failed = told.as_ref().err().cloned();
        reports.insert(sentinel.clone(), Some(told));
        let said = || reports.values().flatten().filter_map(|report| report.as_ref().ok());
        let Some(epoch) = said().map(|report| report.epoch).max() else {
            if reports.values().all(Option::is_some) {
                self.primary.send_modify(|named| named.trouble = failed);
            }
            return;
        };
        let latest = || said().filter(|report| report.epoch == epoch);
        let chosen = latest().find_map(|report| report.chosen.clone());
        self.primary.send_if_modified(|named| {
            let stays = latest().find(|report| Some(&report.primary) == named.address.as_ref());
            let address = stays.or_else(|| latest().next()).map(|report| report.primary.clone());
            let differs = named.address != address || named.chosen != chosen;
            *named = Named { address, chosen, trouble: None };
            differs
        });
    }
}

const UNKNOWN: RedisError = RedisError::Nonsense("a sentinel says nothing of the primary");

async fn within<T>(answer: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    timeout(ANSWER_MAX, answer).await.unwrap_or(Err(RedisError::NoReply))
}

/// What a user of the sentinels may not do is done without: the primary is found by asking alone.
fn permitted<T>(answer: Result<T, RedisError>) -> Result<Option<T>, RedisError> {
    match answer {
        Err(RedisError::Refused(_)) => Ok(None),
        answer => answer.map(Some),
    }
}

/// The value that follows a name in a flat list of names and values.
fn field<'r, 'b>(told: &'r Reply<'b>, name: &str) -> Option<&'r Reply<'b>> {
    told.parts()?.chunks_exact(2).find(|pair| pair[0].text() == Some(name)).map(|pair| &pair[1])
}

fn flagged(told: &Reply<'_>, flag: &str) -> bool {
    let flags = field(told, "flags").and_then(Reply::text).unwrap_or_default();
    flags.split(',').any(|found| found == flag)
}

fn address_of(told: &Reply<'_>, said_by: &Address) -> Option<Address> {
    let (host, port) = (field(told, "ip")?.text()?, field(told, "port")?.number()?);
    Some(Address::new(if host.is_empty() { &said_by.host } else { host }, port))
}
