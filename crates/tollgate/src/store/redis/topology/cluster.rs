//! A Redis cluster: which server owns which hash slot, and how redirects are followed.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::address::Address;
use super::hash_slot::HASH_SLOTS;
use super::primary_locator::PrimaryLocator;
use crate::store::redis::client::node::{CONNECT_TIMEOUT, ClientContext, Node};
use crate::store::redis::client::pending_plan::PendingPlan;
use crate::store::redis::error::RedisError;
use crate::store::redis::protocol::resp::Reply;

/// Pause between refreshes of the slot map while all servers are up.
const REFRESH_PAUSE: Duration = Duration::from_secs(30);
/// Upper bound of the pause before a requested refresh: at first, and after refreshes that changed nothing.
const REQUESTED_PAUSE_FIRST: Duration = Duration::from_millis(20);
const REQUESTED_PAUSE_MAX: Duration = Duration::from_millis(250);
/// How long a server may take to answer a query of its slot map.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);
/// A Plan that was redirected this often fails.
const HOPS_MAX: u8 = 16;
/// Pause after `TRYAGAIN`: the keys of a migrating hash slot are on two servers.
const TRY_AGAIN_PAUSE: Duration = Duration::from_millis(1);
/// Pause after `CLUSTERDOWN`, and before the first refresh.
const CLUSTER_DOWN_PAUSE: Duration = Duration::from_millis(10);

/// The servers of a cluster.
pub(crate) struct Cluster {
    context: Arc<ClientContext>,
    this: Weak<Cluster>,
    seeds: Vec<Address>,
    slot_map: ArcSwap<SlotMap>,
    /// Locked while the slot map is replaced.
    updating: Mutex<()>,
    /// The result of the last refresh. None before the first.
    last_refresh: watch::Sender<Option<Result<(), RedisError>>>,
    refresh_requested: Arc<Notify>,
}

/// Which server owns which hash slot.
#[derive(Clone)]
struct SlotMap {
    /// For each hash slot, an index into `nodes`.
    owners: Arc<[u16; HASH_SLOTS]>,
    nodes: Vec<(Address, Arc<Node>)>,
}

/// The owner of a hash slot without one.
const UNOWNED: u16 = u16::MAX;

/// A reply of a server that did not run a call, because the keys are not there.
#[derive(Debug, PartialEq, Eq)]
enum Redirect {
    /// Another server owns the hash slot.
    Moved { hash_slot: u16, to: Address },
    /// The hash slot is migrating, and the key has already migrated.
    Ask { to: Address },
    /// The hash slot is migrating, and some of the keys have already migrated.
    TryAgain,
    /// No server owns the hash slot now.
    Down,
}

impl Redirect {
    fn parse(error: &RedisError, sender: &Address) -> Option<Redirect> {
        let RedisError::ErrorReply(text) = error else { return None };
        let mut words = text.split_ascii_whitespace();
        match words.next()? {
            "MOVED" => {
                let is_valid = |&hash_slot: &u16| usize::from(hash_slot) < HASH_SLOTS;
                let hash_slot = words.next()?.parse().ok().filter(is_valid)?;
                Some(Redirect::Moved { hash_slot, to: Address::parse(words.next()?, sender)? })
            }
            "ASK" => Some(Redirect::Ask { to: Address::parse(words.nth(1)?, sender)? }),
            "TRYAGAIN" => Some(Redirect::TryAgain),
            "CLUSTERDOWN" => Some(Redirect::Down),
            _ => None,
        }
    }
}

impl Cluster {
    /// Starts to query the slot map.
    pub(crate) fn new(context: Arc<ClientContext>, seeds: Vec<Address>) -> Arc<Cluster> {
        let runtime = context.runtime.clone();
        let cluster = Arc::new_cyclic(|this| Cluster {
            context,
            this: Weak::clone(this),
            seeds,
            slot_map: ArcSwap::from_pointee(SlotMap::empty()),
            updating: Mutex::default(),
            last_refresh: watch::Sender::new(None),
            refresh_requested: Arc::default(),
        });
        let refresh_requested = Arc::clone(&cluster.refresh_requested);
        runtime.spawn(Cluster::keep_refreshing(Arc::downgrade(&cluster), refresh_requested));
        cluster
    }

    /// Queues a Plan for the owner of its hash slot, or fails it if no owner is known.
    pub(crate) fn send(&self, pending: PendingPlan) {
        if let Some(node) = self.slot_map.load().owner(pending.hash_slot) {
            return node.send(pending);
        }
        let last_refresh = self.last_refresh.borrow().clone();
        let is_new = last_refresh.is_none();
        let source = last_refresh.and_then(Result::err).map(Arc::new);
        let no_owner = RedisError::NoOwner { hash_slot: pending.hash_slot, source };
        if is_new {
            return self.send_after(pending, CLUSTER_DOWN_PAUSE, no_owner);
        }
        self.request_refresh();
        pending.complete(Err(no_owner));
    }

    /// Waits for the first refresh and returns the owner of a hash slot.
    pub(crate) async fn owner(&self, hash_slot: u16) -> Result<Arc<Node>, RedisError> {
        self.servers().await?;
        let slot_map = self.slot_map.load();
        slot_map.owner(hash_slot).map(Arc::clone).ok_or(RedisError::NoOwner { hash_slot, source: None })
    }

    /// Returns the server that an error redirects to, and whether `ASKING` must be sent to it first.
    pub(crate) fn follow_redirect(&self, error: &RedisError, sender: &Address) -> Option<(Arc<Node>, bool)> {
        match Redirect::parse(error, sender)? {
            Redirect::Moved { hash_slot, to } => {
                self.set_owner(hash_slot, &to);
                Some((self.node_at(&to), false))
            }
            Redirect::Ask { to } => Some((self.node_at(&to), true)),
            Redirect::TryAgain | Redirect::Down => None,
        }
    }

    /// Waits for the first refresh and returns all servers that own hash slots.
    pub(crate) async fn servers(&self) -> Result<Vec<Arc<Node>>, RedisError> {
        let mut last_refresh = self.last_refresh.subscribe();
        let result = last_refresh.wait_for(Option::is_some).await.map(|result| result.clone());
        result.ok().flatten().unwrap_or(Err(RedisError::Closed))?;
        Ok(self.nodes())
    }

    /// All servers that own hash slots, and those that redirects have named since the last refresh.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.slot_map.load().nodes.iter().map(|(_, node)| Arc::clone(node)).collect()
    }

    /// Requests a refresh, because the slot map may be wrong.
    pub(crate) fn request_refresh(&self) {
        self.refresh_requested.notify_one();
    }

    /// Sends Plans where the error of a server redirects them to, or fails them if it is not a redirect.
    pub(crate) fn redirect_or_fail(&self, plans: Vec<PendingPlan>, error: RedisError, sender: &Address) {
        let Some(redirect) = Redirect::parse(&error, sender) else {
            return plans.into_iter().for_each(|pending| pending.complete(Err(error.clone())));
        };
        if let Redirect::Moved { hash_slot, to } = &redirect {
            self.set_owner(*hash_slot, to);
        }
        for mut pending in plans {
            let is_hop = matches!(redirect, Redirect::Moved { .. } | Redirect::Ask { .. });
            let redirects = &mut pending.redirects;
            redirects.hops = if is_hop { redirects.hops.saturating_add(1) } else { 0 };
            redirects.asking = matches!(redirect, Redirect::Ask { .. });
            redirects.separate = matches!(redirect, Redirect::Ask { .. } | Redirect::TryAgain);
            match &redirect {
                Redirect::Moved { to, .. } | Redirect::Ask { to } if redirects.hops <= HOPS_MAX => {
                    self.node_at(to).send(pending);
                }
                Redirect::Moved { .. } | Redirect::Ask { .. } => pending.complete(Err(error.clone())),
                Redirect::TryAgain => self.send_after(pending, TRY_AGAIN_PAUSE, error.clone()),
                Redirect::Down => {
                    self.request_refresh();
                    self.send_after(pending, CLUSTER_DOWN_PAUSE, error.clone());
                }
            }
        }
    }

    /// Sends a Plan after a pause, or fails it with `error` if its caller will not wait that long.
    fn send_after(&self, pending: PendingPlan, pause: Duration, error: RedisError) {
        if !pending.is_wanted(Instant::now() + pause) {
            return pending.complete(Err(error));
        }
        let cluster = Weak::clone(&self.this);
        self.context.runtime.spawn(async move {
            sleep(pause).await;
            match cluster.upgrade() {
                Some(cluster) => cluster.send(pending),
                None => pending.complete(Err(RedisError::Closed)),
            }
        });
    }

    /// Returns the server at an address. Adds it if it is not known.
    fn node_at(&self, address: &Address) -> Arc<Node> {
        if let Some(node) = self.slot_map.load().find(address) {
            return node;
        }
        let _updating = self.updating.lock();
        let mut slot_map = SlotMap::clone(&self.slot_map.load());
        let index = self.find_or_add(&mut slot_map, address);
        let node = Arc::clone(&slot_map.nodes[usize::from(index)].1);
        self.slot_map.store(Arc::new(slot_map));
        node
    }

    /// Returns the index of the server at an address. Adds it if it is not known.
    fn find_or_add(&self, slot_map: &mut SlotMap, address: &Address) -> u16 {
        let found = slot_map.nodes.iter().position(|(known, _)| known == address);
        let index = found.unwrap_or_else(|| {
            let locator = PrimaryLocator::Fixed(address.clone());
            let node = Node::new(&self.context, locator, Arc::default(), Weak::clone(&self.this));
            slot_map.nodes.push((address.clone(), Arc::new(node)));
            slot_map.nodes.len() - 1
        });
        index as u16
    }

    fn set_owner(&self, hash_slot: u16, to: &Address) {
        let _updating = self.updating.lock();
        let slot_map = self.slot_map.load();
        let owner = usize::from(slot_map.owners[usize::from(hash_slot)]);
        if slot_map.nodes.get(owner).is_some_and(|(known, _)| known == to) {
            return;
        }
        let mut slot_map = SlotMap::clone(&slot_map);
        let index = self.find_or_add(&mut slot_map, to);
        Arc::make_mut(&mut slot_map.owners)[usize::from(hash_slot)] = index;
        self.slot_map.store(Arc::new(slot_map));
        self.request_refresh();
    }

    /// Refreshes the slot map until the cluster is dropped.
    async fn keep_refreshing(cluster: Weak<Cluster>, refresh_requested: Arc<Notify>) {
        let mut pause = REQUESTED_PAUSE_FIRST;
        loop {
            let Some(cluster) = cluster.upgrade() else { return };
            let result = cluster.refresh().await;
            let changed = matches!(result, Ok(true));
            let all_up = result.is_ok() && !cluster.nodes().iter().any(|node| node.state.breaker.is_open());
            cluster.last_refresh.send_replace(Some(result.map(drop)));
            pause = if changed { REQUESTED_PAUSE_FIRST } else { REQUESTED_PAUSE_MAX.min(pause * 2) };
            let short_pause = pause.mul_f64((cluster.context.jitter)());
            drop(cluster);
            if all_up {
                tokio::select! {
                    () = sleep(REFRESH_PAUSE) => pause = REQUESTED_PAUSE_FIRST,
                    () = refresh_requested.notified() => sleep(short_pause).await,
                }
            } else {
                sleep(short_pause).await;
            }
        }
    }

    /// Queries one server after another for the slot map, those that are up first. Returns whether it changed. A server
    /// that sees the cluster as down may be cut off, so its map is used only if no other server answers.
    async fn refresh(&self) -> Result<bool, RedisError> {
        let mut nodes = self.slot_map.load().nodes.clone();
        if !nodes.is_empty() {
            // Spread the queries over the servers.
            let first = ((self.context.jitter)() * nodes.len() as f64) as usize % nodes.len();
            nodes.rotate_left(first);
        }
        nodes.sort_by_key(|(_, node)| node.state.breaker.is_open());
        let mut addresses: Vec<Address> = nodes.into_iter().map(|(address, _)| address).collect();
        let seeds: Vec<Address> =
            self.seeds.iter().filter(|&seed| !addresses.contains(seed)).cloned().collect();
        addresses.extend(seeds);
        let (mut last_error, mut doubtful) = (RedisError::Closed, None);
        for address in addresses {
            match self.query_slots(&address).await {
                Ok((true, ranges)) => return Ok(self.update(&ranges)),
                Ok((false, ranges)) => doubtful = doubtful.or(Some(ranges)),
                Err(error) => last_error = error.for_unsent(&address),
            }
        }
        doubtful.map(|ranges| self.update(&ranges)).ok_or(last_error)
    }

    /// Returns whether a server sees the cluster as up, and which server owns which hash slots.
    async fn query_slots(&self, address: &Address) -> Result<(bool, SlotRanges), RedisError> {
        let connecting = timeout(CONNECT_TIMEOUT, self.context.connector.connect(address, REPLY_TIMEOUT));
        let mut connection = connecting.await.unwrap_or(Err(RedisError::NoReply))?;
        let queries = timeout(REPLY_TIMEOUT, async {
            let is_up = {
                let info = connection.command(&[b"CLUSTER", b"INFO"]).await?;
                info.text().is_some_and(|info| info.lines().any(|line| line == "cluster_state:ok"))
            };
            let slots = connection.command(&[b"CLUSTER", b"SLOTS"]).await?;
            Ok((is_up, parse_slot_ranges(&slots, address)?))
        });
        queries.await.unwrap_or(Err(RedisError::NoReply))
    }

    /// Replaces the slot map and returns whether it changed. Servers without hash slots are dropped.
    fn update(&self, ranges: &SlotRanges) -> bool {
        let _updating = self.updating.lock();
        let before = self.slot_map.load();
        let mut slot_map = SlotMap::empty();
        for (first, last, address) in ranges {
            if slot_map.find(address).is_none()
                && let Some(node) = before.find(address)
            {
                slot_map.nodes.push((address.clone(), node));
            }
            let index = self.find_or_add(&mut slot_map, address);
            Arc::make_mut(&mut slot_map.owners)[usize::from(*first)..=usize::from(*last)].fill(index);
        }
        let owner = |slot_map: &SlotMap, hash_slot: usize| {
            slot_map.nodes.get(usize::from(slot_map.owners[hash_slot])).map(|(address, _)| address.clone())
        };
        let changed =
            (0..HASH_SLOTS).any(|hash_slot| owner(&before, hash_slot) != owner(&slot_map, hash_slot));
        self.slot_map.store(Arc::new(slot_map));
        changed
    }
}

/// First and last hash slot of each range, and the address of its owner.
type SlotRanges = Vec<(u16, u16, Address)>;

/// Parses the reply to `CLUSTER SLOTS`.
fn parse_slot_ranges(reply: &Reply<'_>, sender: &Address) -> Result<SlotRanges, RedisError> {
    let parse_range = |range: &Reply<'_>| {
        let [first, last, owner, ..] = range.elements()? else { return None };
        let [host, port, ..] = owner.elements()? else { return None };
        // A server that does not know its own address leaves the host empty.
        let host = host.text().filter(|host| !host.is_empty()).unwrap_or(&sender.host);
        let (first, last): (u16, u16) = (first.number()?, last.number()?);
        let is_valid = host != "?" && first <= last && usize::from(last) < HASH_SLOTS;
        is_valid.then_some((first, last, Address::new(host, port.number()?)))
    };
    let elements =
        reply.elements().ok_or(RedisError::UnexpectedReply("the reply to CLUSTER SLOTS is not an array"))?;
    let ranges: SlotRanges = elements.iter().filter_map(parse_range).collect();
    if ranges.is_empty() {
        return Err(RedisError::ErrorReply("CLUSTERDOWN no server owns hash slots".into()));
    }
    Ok(ranges)
}

impl SlotMap {
    fn empty() -> SlotMap {
        SlotMap { owners: Arc::new([UNOWNED; HASH_SLOTS]), nodes: Vec::new() }
    }

    fn owner(&self, hash_slot: u16) -> Option<&Arc<Node>> {
        let index = usize::from(self.owners[usize::from(hash_slot) % HASH_SLOTS]);
        self.nodes.get(index).map(|(_, node)| node)
    }

    fn find(&self, address: &Address) -> Option<Arc<Node>> {
        self.nodes.iter().find(|(known, _)| known == address).map(|(_, node)| Arc::clone(node))
    }
}

impl Drop for Cluster {
    /// Wakes the task that refreshes the slot map, so that it ends.
    fn drop(&mut self) {
        self.refresh_requested.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_parsed_and_other_errors_are_not_redirects() {
        let sender = Address::new("10.0.0.1", 7000);
        let parse = |text: &str| Redirect::parse(&RedisError::ErrorReply(text.into()), &sender);
        let to = |host| Address::new(host, 6381);
        assert_eq!(
            parse("MOVED 3999 127.0.0.1:6381"),
            Some(Redirect::Moved { hash_slot: 3999, to: to("127.0.0.1") })
        );
        assert_eq!(parse("MOVED 3999 :6381"), Some(Redirect::Moved { hash_slot: 3999, to: to("10.0.0.1") }));
        assert_eq!(parse("ASK 3999 [::1]:6381"), Some(Redirect::Ask { to: to("::1") }));
        assert_eq!(
            parse("TRYAGAIN Multiple keys request during rehashing of slot"),
            Some(Redirect::TryAgain)
        );
        assert_eq!(parse("CLUSTERDOWN The cluster is down"), Some(Redirect::Down));
        for other in ["MOVED", "MOVED x 127.0.0.1:1", "MOVED 16384 a:1", "ASK 1", "ASK 1 a:b", "ERR no", ""] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
