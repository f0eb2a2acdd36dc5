//! A cluster: which server has which slot, and where to send what was sent to the wrong one.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::slot::SLOTS;
use super::target::Address;
use super::whereabouts::Whereabouts;
use crate::store::redis::client::job::Job;
use crate::store::redis::client::node::{DIAL_MAX, Link, Node};
use crate::store::redis::error::RedisError;
use crate::store::redis::protocol::reply::Reply;

/// How often the slots are looked up while all is well.
const LOOK: Duration = Duration::from_secs(30);
/// How soon while there are doubts: at first, and at most once a look has changed nothing. Drawn from up to these.
const LOOK_FIRST: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_millis(250);
/// A server that takes longer to answer is not asked.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// Whoever was sent elsewhere so often goes in circles.
const HOPS_MAX: u8 = 16;
/// How long to wait for a slot whose keys are in two places, and for a cluster that is not whole.
const TRY_AGAIN: Duration = Duration::from_millis(1);
const WHOLE_AGAIN: Duration = Duration::from_millis(10);

/// The servers of a cluster.
pub(crate) struct Cluster {
    link: Arc<Link>,
    me: Weak<Cluster>,
    seeds: Vec<Address>,
    routes: ArcSwap<Routes>,
    /// Held while the routes change.
    changing: Mutex<()>,
    /// What came of the last look at the slots.
    looked: watch::Sender<Option<Result<(), RedisError>>>,
    doubted: Arc<Notify>,
}

/// Which server has which slot.
#[derive(Clone)]
struct Routes {
    /// Per slot, a place among the servers.
    owners: Arc<[u16; SLOTS]>,
    nodes: Vec<(Address, Arc<Node>)>,
}

/// Stands for a slot that nobody has.
const UNOWNED: u16 = u16::MAX;

/// Where a server sends what it does not run.
#[derive(Debug, PartialEq, Eq)]
enum Elsewhere {
    /// The slot is there.
    Moved { slot: u16, to: Address },
    /// The slot will be there, and this key is already.
    Ask { to: Address },
    /// Some of the keys are there already.
    TryAgain,
    /// Nobody has the slot, for now.
    Down,
}

impl Elsewhere {
    fn read(answer: &RedisError, said_by: &Address) -> Option<Elsewhere> {
        let RedisError::Refused(answer) = answer else { return None };
        let mut words = answer.split_ascii_whitespace();
        match words.next()? {
            "MOVED" => {
                let slot = words.next()?.parse().ok().filter(|&slot: &u16| usize::from(slot) < SLOTS)?;
                Some(Elsewhere::Moved { slot, to: Address::read(words.next()?, said_by)? })
            }
            "ASK" => Some(Elsewhere::Ask { to: Address::read(words.nth(1)?, said_by)? }),
            "TRYAGAIN" => Some(Elsewhere::TryAgain),
            "CLUSTERDOWN" => Some(Elsewhere::Down),
            _ => None,
        }
    }
}

impl Cluster {
    /// Begins to look for the slots.
    pub(crate) fn new(link: Arc<Link>, seeds: Vec<Address>) -> Arc<Cluster> {
        let runtime = link.runtime.clone();
        let cluster = Arc::new_cyclic(|me| Cluster {
            link,
            me: Weak::clone(me),
            seeds,
            routes: ArcSwap::from_pointee(Routes { owners: Arc::new([UNOWNED; SLOTS]), nodes: Vec::new() }),
            changing: Mutex::default(),
            looked: watch::Sender::new(None),
            doubted: Arc::default(),
        });
        runtime.spawn(Cluster::look_now_and_then(Arc::downgrade(&cluster), Arc::clone(&cluster.doubted)));
        cluster
    }

    /// Sends a job to whoever has its slot.
    pub(crate) fn send(&self, job: Job) {
        let routes = self.routes.load();
        let owner = usize::from(routes.owners[usize::from(job.slot) % SLOTS]);
        if let Some((_, node)) = routes.nodes.get(owner) {
            return node.send(job);
        }
        let looked = self.looked.borrow().clone();
        let is_new = looked.is_none();
        let source = looked.and_then(Result::err).map(Arc::new);
        let unowned = RedisError::NoOwner { slot: job.slot, source };
        if is_new {
            return self.send_later(job, WHOLE_AGAIN, unowned);
        }
        self.doubts();
        job.answer(Err(unowned));
    }

    /// Whoever has a slot, once that is known.
    pub(crate) async fn owner(&self, slot: u16) -> Result<Arc<Node>, RedisError> {
        self.servers().await?;
        let routes = self.routes.load();
        let owner = usize::from(routes.owners[usize::from(slot) % SLOTS]);
        let node = routes.nodes.get(owner).map(|(_, node)| Arc::clone(node));
        node.ok_or(RedisError::NoOwner { slot, source: None })
    }

    /// Who to ask instead of a server that did not run something, and whether that one is to be told that the slot's move
    /// is known.
    pub(crate) fn instead(&self, answer: &RedisError, by: &Address) -> Option<(Arc<Node>, bool)> {
        match Elsewhere::read(answer, by)? {
            Elsewhere::Moved { slot, to } => {
                self.moved(slot, &to);
                Some((self.node(&to), false))
            }
            Elsewhere::Ask { to } => Some((self.node(&to), true)),
            Elsewhere::TryAgain | Elsewhere::Down => None,
        }
    }

    /// All servers that have slots, once that is known.
    pub(crate) async fn servers(&self) -> Result<Vec<Arc<Node>>, RedisError> {
        let looked = self.looked.subscribe().wait_for(Option::is_some).await.map(|looked| looked.clone());
        looked.ok().flatten().unwrap_or(Err(RedisError::Closed))?;
        Ok(self.nodes())
    }

    /// All servers that have slots, and those that are about to.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.routes.load().nodes.iter().map(|(_, node)| Arc::clone(node)).collect()
    }

    /// What is known of the slots may be wrong.
    pub(crate) fn doubts(&self) {
        self.doubted.notify_one();
    }

    /// A server ran none of these, and said where else to try.
    pub(crate) fn sent_elsewhere(&self, jobs: Vec<Job>, answer: RedisError, by: &Address) {
        let Some(elsewhere) = Elsewhere::read(&answer, by) else {
            return jobs.into_iter().for_each(|job| job.answer(Err(answer.clone())));
        };
        if let Elsewhere::Moved { slot, to } = &elsewhere {
            self.moved(*slot, to);
        }
        for mut job in jobs {
            let redirected = matches!(elsewhere, Elsewhere::Moved { .. } | Elsewhere::Ask { .. });
            job.way.hops = if redirected { job.way.hops.saturating_add(1) } else { 0 };
            job.way.asking = matches!(elsewhere, Elsewhere::Ask { .. });
            job.way.alone = matches!(elsewhere, Elsewhere::Ask { .. } | Elsewhere::TryAgain);
            match &elsewhere {
                Elsewhere::Moved { to, .. } | Elsewhere::Ask { to } if job.way.hops <= HOPS_MAX => {
                    self.node(to).send(job);
                }
                Elsewhere::Moved { .. } | Elsewhere::Ask { .. } => job.answer(Err(answer.clone())),
                Elsewhere::TryAgain => self.send_later(job, TRY_AGAIN, answer.clone()),
                Elsewhere::Down => {
                    self.doubts();
                    self.send_later(job, WHOLE_AGAIN, answer.clone());
                }
            }
        }
    }

    /// It did not run, and may after a pause; if somebody still waits then.
    fn send_later(&self, job: Job, pause: Duration, answer: RedisError) {
        if !job.is_wanted(Instant::now() + pause) {
            return job.answer(Err(answer));
        }
        let cluster = Weak::clone(&self.me);
        self.link.runtime.spawn(async move {
            sleep(pause).await;
            match cluster.upgrade() {
                Some(cluster) => cluster.send(job),
                None => job.answer(Err(RedisError::Closed)),
            }
        });
    }

    /// The server at an address, made known if it is not.
    fn node(&self, address: &Address) -> Arc<Node> {
        if let Some(node) = self.routes.load().find(address) {
            return node;
        }
        let _changing = self.changing.lock();
        let mut routes = Routes::clone(&self.routes.load());
        let place = self.place(&mut routes, address);
        let node = Arc::clone(&routes.nodes[usize::from(place)].1);
        self.routes.store(Arc::new(routes));
        node
    }

    fn place(&self, routes: &mut Routes, address: &Address) -> u16 {
        let found = routes.nodes.iter().position(|(known, _)| known == address);
        let place = found.unwrap_or_else(|| {
            let whereabouts = Whereabouts::Fixed(address.clone());
            let node = Node::new(&self.link, whereabouts, Arc::default(), Weak::clone(&self.me));
            let node = Arc::new(node);
            routes.nodes.push((address.clone(), node));
            routes.nodes.len() - 1
        });
        place as u16
    }

    fn moved(&self, slot: u16, to: &Address) {
        let _changing = self.changing.lock();
        let routes = self.routes.load();
        let owner = usize::from(routes.owners[usize::from(slot)]);
        if routes.nodes.get(owner).is_some_and(|(known, _)| known == to) {
            return;
        }
        let mut routes = Routes::clone(&routes);
        let place = self.place(&mut routes, to);
        Arc::make_mut(&mut routes.owners)[usize::from(slot)] = place;
        self.routes.store(Arc::new(routes));
        self.doubts();
    }

    async fn look_now_and_then(cluster: Weak<Cluster>, doubted: Arc<Notify>) {
        let mut pause = LOOK_FIRST;
        loop {
            let Some(cluster) = cluster.upgrade() else { return };
            let looked = cluster.peek_status().await;
            let changed = matches!(looked, Ok(true));
            let well = looked.is_ok() && !cluster.nodes().iter().any(|node| node.state.health.is_down());
            cluster.looked.send_replace(Some(looked.map(drop)));
            pause = if changed { LOOK_FIRST } else { LOOK_MAX.min(pause * 2) };
            let soon = pause.mul_f64((cluster.link.dice)());
            drop(cluster);
            if well {
                tokio::select! {
                    () = sleep(LOOK) => pause = LOOK_FIRST,
                    () = doubted.notified() => sleep(soon).await,
                }
            } else {
                sleep(soon).await;
            }
        }
    }

    /// Asks one server after another where the slots are, those first that answer at all, and says whether anything is new.
    /// One that is cut off from the others knows only what was: it is believed if nobody else is left.
    async fn peek_status(&self) -> Result<bool, RedisError> {
        let mut nodes = self.routes.load().nodes.clone();
        if !nodes.is_empty() {
            // Not always the same one.
            let first = ((self.link.dice)() * nodes.len() as f64) as usize % nodes.len();
            nodes.rotate_left(first);
        }
        nodes.sort_by_key(|(_, node)| node.state.health.is_down());
        let mut addresses: Vec<Address> = nodes.into_iter().map(|(address, _)| address).collect();
        let seeds: Vec<Address> =
            self.seeds.iter().filter(|&seed| !addresses.contains(seed)).cloned().collect();
        addresses.extend(seeds);
        let (mut failed, mut doubtful) = (RedisError::Closed, None);
        for address in addresses {
            match self.slots(&address).await {
                Ok((true, slots)) => return Ok(self.found(&slots)),
                Ok((false, slots)) => doubtful = doubtful.or(Some(slots)),
                Err(error) => failed = error.of_unsent(&address),
            }
        }
        doubtful.map(|slots| self.found(&slots)).ok_or(failed)
    }

    /// Whether the cluster is whole in the eyes of this server; and first and last slot of each part, and who has it.
    async fn slots(&self, asked: &Address) -> Result<(bool, Parts), RedisError> {
        let entering = timeout(DIAL_MAX, self.link.door.enter(asked, ANSWER_MAX));
        let mut dialogue = entering.await.unwrap_or(Err(RedisError::NoReply))?;
        let answers = timeout(ANSWER_MAX, async {
            let whole = {
                let told = dialogue.ask(&[b"CLUSTER", b"INFO"]).await?;
                told.text().is_some_and(|info| info.lines().any(|line| line == "cluster_state:ok"))
            };
            let told = dialogue.ask(&[b"CLUSTER", b"SLOTS"]).await?;
            Ok((whole, parts(&told, asked)?))
        });
        answers.await.unwrap_or(Err(RedisError::NoReply))
    }

    /// Takes over what a server said, and says whether it is new. Those that have no slots any more are let go.
    fn found(&self, slots: &Parts) -> bool {
        let _changing = self.changing.lock();
        let before = self.routes.load();
        let mut routes = Routes { owners: Arc::new([UNOWNED; SLOTS]), nodes: Vec::new() };
        for (first, last, address) in slots {
            if routes.find(address).is_none()
                && let Some(node) = before.find(address)
            {
                routes.nodes.push((address.clone(), node));
            }
            let place = self.place(&mut routes, address);
            Arc::make_mut(&mut routes.owners)[usize::from(*first)..=usize::from(*last)].fill(place);
        }
        let owner = |routes: &Routes, slot: usize| {
            routes.nodes.get(usize::from(routes.owners[slot])).map(|(address, _)| address.clone())
        };
        let changed = (0..SLOTS).any(|slot| owner(&before, slot) != owner(&routes, slot));
        self.routes.store(Arc::new(routes));
        changed
    }
}

/// First and last slot of each part of a cluster, and who has it.
type Parts = Vec<(u16, u16, Address)>;

fn parts(told: &Reply<'_>, asked: &Address) -> Result<Parts, RedisError> {
    let part = |part: &Reply<'_>| {
        let [first, last, owner, ..] = part.parts()? else { return None };
        let [host, port, ..] = owner.parts()? else { return None };
        // A server that does not know its own name leaves it out.
        let host = host.text().filter(|host| !host.is_empty()).unwrap_or(&asked.host);
        let (first, last): (u16, u16) = (first.number()?, last.number()?);
        let fits = host != "?" && first <= last && usize::from(last) < SLOTS;
        fits.then_some((first, last, Address::new(host, port.number()?)))
    };
    let told = told.parts().ok_or(RedisError::Nonsense("a server says nothing of its slots"))?;
    let parts: Parts = told.iter().filter_map(part).collect();
    if parts.is_empty() {
        return Err(RedisError::Refused("CLUSTERDOWN no server has slots".into()));
    }
    Ok(parts)
}

impl Routes {
    fn find(&self, address: &Address) -> Option<Arc<Node>> {
        self.nodes.iter().find(|(known, _)| known == address).map(|(_, node)| Arc::clone(node))
    }
}

impl Drop for Cluster {
    /// Whoever waits to look at the slots again finds that there is no need.
    fn drop(&mut self) {
        self.doubted.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_of_elsewhere_is_understood() {
        let by = Address::new("10.0.0.1", 7000);
        let read = |answer: &str| Elsewhere::read(&RedisError::Refused(answer.into()), &by);
        let to = |host| Address::new(host, 6381);
        assert_eq!(
            read("MOVED 3999 127.0.0.1:6381"),
            Some(Elsewhere::Moved { slot: 3999, to: to("127.0.0.1") })
        );
        assert_eq!(read("MOVED 3999 :6381"), Some(Elsewhere::Moved { slot: 3999, to: to("10.0.0.1") }));
        assert_eq!(read("ASK 3999 [::1]:6381"), Some(Elsewhere::Ask { to: to("::1") }));
        assert_eq!(
            read("TRYAGAIN Multiple keys request during rehashing of slot"),
            Some(Elsewhere::TryAgain)
        );
        assert_eq!(read("CLUSTERDOWN The cluster is down"), Some(Elsewhere::Down));
        for other in ["MOVED", "MOVED x 127.0.0.1:1", "MOVED 16384 a:1", "ASK 1", "ASK 1 a:b", "ERR no", ""] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
