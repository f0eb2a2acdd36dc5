//! Where the state of the servers is: one Redis behind a proxy, a set with sentinels, or a cluster.

use std::collections::HashMap;
use std::fmt;

use super::fleet::HASH_KEY;
use super::traffic::{Class, LIMIT_IDS, NAMESPACE, user_name};
use crate::drill::DrillError;
use crate::fault_proxy::FaultProxy;
use crate::redis::{Admin, Cluster, Flavour, SentinelSet, Server, Value, slot_of};
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::{Keyspace, Limit, Operation, Span, State, SubjectHasher, Time};

/// Prefix of the keys of the naive limiter.
pub(super) const NAIVE: &str = "naive:{naive}:";
/// The window of all rules with windows.
pub(super) const WINDOW: Span = Span::from_secs(30 * 86_400);

/// A kind of store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Topology {
    /// One Redis behind a proxy.
    One,
    /// A primary and a replica with three sentinels.
    Sentinel,
    /// Three primaries with one replica each.
    Cluster,
}

impl Topology {
    /// All topologies.
    pub const ALL: [Topology; 3] = [Topology::One, Topology::Sentinel, Topology::Cluster];

    /// Returns its name in tables and options.
    pub const fn name(self) -> &'static str {
        match self {
            Topology::One => "one",
            Topology::Sentinel => "sentinel",
            Topology::Cluster => "cluster",
        }
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How the store is started.
#[derive(Clone, Debug, Default)]
pub(super) struct PlaceOptions {
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
    pub(super) password: Option<String>,
    pub(super) full_coverage: bool,
}

/// A running store.
pub(super) enum Place {
    One { server: Server, proxy: FaultProxy },
    Sentinel(SentinelSet),
    Cluster(Cluster),
}

/// All keys of a store, and how long they live.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The value and the TTL in milliseconds, by key.
    keys: HashMap<String, (Vec<u8>, i64)>,
}

impl Place {
    pub(super) fn start(topology: Topology, options: &PlaceOptions, seed: u64) -> Result<Place, DrillError> {
        let arguments = options.arguments.iter().cloned();
        match topology {
            Topology::One => {
                let mut builder = Server::builder(Flavour::Redis70).arguments(arguments);
                builder = builder.environment(options.environment.iter().cloned());
                if let Some(password) = &options.password {
                    builder = builder.password(password);
                }
                let server = builder.start()?;
                let proxy = FaultProxy::start(server.port(), seed)?;
                Ok(Place::One { server, proxy })
            }
            Topology::Sentinel => {
                Ok(Place::Sentinel(SentinelSet::builder(Flavour::Redis70).arguments(arguments).start()?))
            }
            Topology::Cluster => {
                let mut builder = Cluster::builder(Flavour::Redis70).arguments(arguments);
                if options.full_coverage {
                    builder = builder.require_full_coverage();
                }
                Ok(Place::Cluster(builder.start()?))
            }
        }
    }

    /// Returns the URL for servers, without a password.
    pub(super) fn url(&self) -> String {
        match self {
            Place::One { proxy, .. } => proxy.url(),
            Place::Sentinel(set) => set.url(),
            Place::Cluster(cluster) => cluster.url(),
        }
    }

    /// Returns the port of the server that has the keys of the naive limiter, as a client reaches it.
    pub(super) fn naive_port(&self) -> Result<u16, DrillError> {
        match self {
            Place::One { proxy, .. } => Ok(proxy.port()),
            Place::Sentinel(set) => Ok(set.node_port(set.primary_index()?)),
            Place::Cluster(cluster) => Ok(cluster.node_port(cluster.owner(slot_of(NAIVE.as_bytes()))?)),
        }
    }

    /// Opens connections to all primaries.
    pub(super) fn primaries(&self) -> Result<Vec<Admin>, DrillError> {
        Ok(match self {
            Place::One { server, .. } => vec![server.admin()?],
            Place::Sentinel(set) => vec![set.primary()?.admin()?],
            Place::Cluster(cluster) => {
                let primaries = cluster.primaries().into_iter();
                primaries.map(|node| cluster.admin(node)).collect::<Result<_, _>>()?
            }
        })
    }

    /// Reads all keys.
    pub(super) fn contents(&self) -> Result<Contents, DrillError> {
        let mut contents = Contents::default();
        for mut admin in self.primaries()? {
            contents.read(&mut admin)?;
        }
        Ok(contents)
    }

    /// Returns how often the primaries have replied with this error.
    pub(super) fn errors(&self, code: &str) -> Result<u64, DrillError> {
        let mut sum = 0;
        for mut admin in self.primaries()? {
            sum += error_count(&mut admin, code)?;
        }
        Ok(sum)
    }

    pub(super) fn one(&mut self) -> Result<(&mut Server, &FaultProxy), DrillError> {
        match self {
            Place::One { server, proxy } => Ok((server, proxy)),
            _ => Err("this fault needs one Redis".into()),
        }
    }

    pub(super) fn sentinel(&mut self) -> Result<&mut SentinelSet, DrillError> {
        match self {
            Place::Sentinel(set) => Ok(set),
            _ => Err("this fault needs sentinels".into()),
        }
    }

    pub(super) fn cluster(&mut self) -> Result<&mut Cluster, DrillError> {
        match self {
            Place::Cluster(cluster) => Ok(cluster),
            _ => Err("this fault needs a cluster".into()),
        }
    }
}

/// Returns how often a server has replied with this error.
pub(super) fn error_count(admin: &mut Admin, code: &str) -> Result<u64, DrillError> {
    let found = admin.info("errorstats")?.remove(&format!("errorstat_{code}"));
    let count = found.and_then(|count| count.trim().strip_prefix("count=").map(str::to_owned));
    Ok(count.map(|count| count.parse()).transpose()?.unwrap_or(0))
}

impl Contents {
    /// Adds the keys of a server.
    pub(super) fn read(&mut self, admin: &mut Admin) -> Result<(), DrillError> {
        let keys = admin.scan("*")?;
        for chunk in keys.chunks(500) {
            let commands = chunk.iter().flat_map(|key| [vec![&b"GET"[..], key], vec![&b"PTTL"[..], key]]);
            let replies = admin.pipeline(&commands.collect::<Vec<_>>())?;
            for (key, reply) in chunk.iter().zip(replies.chunks(2)) {
                let [value, ttl] = reply else { return Err("a reply is missing".into()) };
                let bytes = match value {
                    Value::Bulk(bytes) => bytes.clone(),
                    // Another type than a string.
                    _ => Vec::new(),
                };
                let Value::Integer(ttl_ms) = ttl else { return Err(format!("PTTL is {ttl:?}").into()) };
                // A key that expired meanwhile is not there.
                if *ttl_ms != -2 {
                    self.keys.insert(String::from_utf8_lossy(key).into_owned(), (bytes, *ttl_ms));
                }
            }
        }
        Ok(())
    }

    /// Returns the number of our keys that never expire.
    pub(super) fn orphans(&self) -> u64 {
        self.without_ttl("tg:")
    }

    /// Returns the number of keys of the naive limiter that never expire.
    pub(super) fn naive_orphans(&self) -> u64 {
        self.without_ttl(NAIVE)
    }

    /// Returns the counter of the naive limiter.
    pub(super) fn naive(&self, user: usize) -> u64 {
        let bytes = self.keys.get(&format!("{NAIVE}{user}")).map(|(bytes, _)| bytes.as_slice());
        bytes.and_then(|bytes| str::from_utf8(bytes).ok()?.parse().ok()).unwrap_or(0)
    }

    /// Returns what a subject has been charged, under each rule of a class.
    pub(super) fn charged(&self, names: &Names, class: Class, user: u32) -> Result<Vec<u64>, DrillError> {
        // State is what was consumed, whatever the limit is. This one is never reached.
        let counter = Limit::FixedWindow(FixedWindow::new(LIMIT_IDS, WINDOW)?);
        let charged = class.windows().iter().map(|(rule, _)| {
            let Some((bytes, _)) = self.keys.get(&names.key(rule, user)?) else { return Ok(0) };
            let state = State::decode(bytes)?;
            let peek = Operation::Peek { cost: 0 };
            let decided = counter.decide(Some(&state), names.now, &peek);
            Ok(LIMIT_IDS - decided.answer.remaining)
        });
        charged.collect()
    }

    fn without_ttl(&self, prefix: &str) -> u64 {
        let ours = self.keys.iter().filter(|(key, (_, ttl_ms))| key.starts_with(prefix) && *ttl_ms < 0);
        ours.count() as u64
    }
}

/// The names of keys.
pub(super) struct Names {
    seed: u64,
    hasher: SubjectHasher,
    /// The window of this instant is read.
    now: Time,
}

impl Names {
    pub(super) fn new(seed: u64, now_us: u64) -> Names {
        Names { seed, hasher: SubjectHasher::new(HASH_KEY), now: Time::from_us(now_us) }
    }

    /// Returns the key of a user under a rule.
    pub(super) fn key(&self, rule: &str, user: u32) -> Result<String, DrillError> {
        let subject = self.hasher.subject([("user", user_name(self.seed, user).as_str())]);
        Ok(Keyspace::new(NAMESPACE, rule)?.key(subject).to_string())
    }
}
