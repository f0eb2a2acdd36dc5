//! Where the primary is, as the sentinels say.
//!
//! Every sentinel is listened to and asked: a switch is followed when the first of them tells it, and if the telling is
//! lost, when the next answer does. If they disagree, whoever knows the latest election is right.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::connection::{Dialogue, Door};
use super::error::RedisError;
use super::health::Health;
use super::node::{Link, Named};
use super::reply::Reply;
use super::target::Address;

/// How often a sentinel is asked while all is well, and while the primary is down.
const POLL: Duration = Duration::from_secs(1);
const POLL_DOWN: Duration = Duration::from_millis(50);
/// A sentinel that takes longer to answer does not count.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// How long a sentinel that failed is left alone, at most.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// So many are listened to, whatever they say of each other.
const SENTINELS_MAX: usize = 32;

/// What the tasks that listen to the sentinels share. They end when nobody asks for the primary any more.
pub(super) struct Sentinels {
    door: Door,
    name: Arc<str>,
    pub(super) primary: watch::Sender<Named>,
    /// How the primary is: while it is down they are asked more often.
    health: Arc<Health>,
    runtime: Handle,
    dice: fn() -> f64,
    reports: Mutex<HashMap<Address, Report>>,
    known: Mutex<HashSet<Address>>,
}

/// What a sentinel said last.
#[derive(Clone, Debug)]
struct Report {
    /// The election that made it so.
    epoch: u64,
    primary: Address,
}

impl Sentinels {
    pub(super) fn new(door: Door, name: Arc<str>, health: Arc<Health>, link: &Link) -> Sentinels {
        Sentinels {
            door,
            name,
            primary: watch::Sender::new(Named::default()),
            health,
            runtime: link.runtime.clone(),
            dice: link.dice,
            reports: Mutex::default(),
            known: Mutex::default(),
        }
    }

    /// Begins to listen to these, and to those they know.
    pub(super) fn listen(self: &Arc<Self>, addresses: Vec<Address>) {
        for address in addresses {
            let mut known = self.known.lock();
            if known.len() < SENTINELS_MAX && known.insert(address.clone()) {
                self.runtime.spawn(Arc::clone(self).listen_to(address));
            }
        }
    }

    async fn listen_to(self: Arc<Self>, address: Address) {
        let attend_again = async {
            loop {
                let failed = self.attend(&address).await;
                self.silent(&address, failed);
                sleep(PAUSE_MAX.mul_f64((self.dice)())).await;
            }
        };
        tokio::select! {
            () = attend_again => (),
            () = self.primary.closed() => (),
        }
    }

    /// Listens to one until it fails.
    async fn attend(self: &Arc<Self>, address: &Address) -> RedisError {
        let attended = async {
            let mut asked = within(self.door.enter(address)).await?;
            self.ask(&mut asked, address).await?;
            let mut heard = within(self.door.enter(address)).await?;
            within(async { heard.ask(&[b"SUBSCRIBE", b"+switch-master"]).await.map(drop) }).await?;
            loop {
                self.ask(&mut asked, address).await?;
                self.listen(self.others(&mut asked, address).await?);
                let down = self.health.is_down();
                tokio::select! {
                    switched = heard.hear() => drop(switched?),
                    () = self.health.turns_from(down) => (),
                    () = sleep(if down { POLL_DOWN } else { POLL }) => (),
                }
            }
        };
        let Err::<std::convert::Infallible, RedisError>(failed) = attended.await;
        failed
    }

    /// Asks for the primary, and for the election that made it one.
    async fn ask(&self, sentinel: &mut Dialogue, address: &Address) -> Result<(), RedisError> {
        let name = self.name.as_bytes();
        let (epoch, electing) = within(async {
            let told = sentinel.ask(&[b"SENTINEL", b"MASTER", name]).await?;
            let epoch: u64 = field(&told, "config-epoch").and_then(Reply::number).ok_or(UNKNOWN)?;
            Ok((epoch, flagged(&told, "failover_in_progress")))
        })
        .await?;
        if electing && let Some(primary) = within(self.chosen(sentinel, address)).await? {
            // It will be the primary of the next election.
            self.told(address, Report { epoch: epoch + 1, primary });
            return Ok(());
        }
        let primary = within(async {
            let told = sentinel.ask(&[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name]).await?;
            let parts = told.parts().unwrap_or_default();
            let host = parts.first().and_then(Reply::text);
            let port = parts.get(1).and_then(Reply::number);
            host.zip(port).map(|(host, port)| Address::new(host, port)).ok_or(UNKNOWN)
        });
        self.told(address, Report { epoch, primary: primary.await? });
        Ok(())
    }

    /// The replica that the sentinel in charge of a failover has chosen. Sentinels take up to a second to see that their
    /// choice has become the primary; the replica knows at once, and says so when we get there.
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

    fn told(&self, sentinel: &Address, report: Report) {
        let mut reports = self.reports.lock();
        reports.insert(sentinel.clone(), report);
        let latest = reports.values().max_by_key(|report| report.epoch).cloned();
        if let Some(Report { primary, .. }) = latest {
            self.primary.send_if_modified(|named| {
                let other = named.address.as_ref() != Some(&primary);
                *named = Named { address: Some(primary), trouble: None };
                other
            });
        }
    }

    /// A sentinel that does not answer has no say. What all of them said last stands until one of them says otherwise.
    fn silent(&self, sentinel: &Address, why: RedisError) {
        let mut reports = self.reports.lock();
        reports.remove(sentinel);
        if reports.is_empty() {
            self.primary.send_modify(|named| named.trouble = Some(why));
        }
    }
}

const UNKNOWN: RedisError = RedisError::Nonsense("a sentinel says nothing of the primary");

async fn within<T>(answer: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    timeout(ANSWER_MAX, answer).await.unwrap_or(Err(RedisError::NoReply))
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
