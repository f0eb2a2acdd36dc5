//! Connections for looking at the servers of a store: separate from those of checks, one command at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::client::connection::CommandConnection;
use super::client::connector::Connector;
use super::client::node::CONNECT_TIMEOUT;
use super::error::RedisError;
use super::protocol::resp::Reply;
use super::settings::{OpenError, RedisSettings};
use super::topology::address::Address;
use super::topology::url::Topology;

/// The hash slots of a cluster.
const HASH_SLOTS: u32 = 16_384;

/// How the servers of a store work together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deployment {
    /// One server.
    Standalone,
    /// A primary that sentinels watch.
    Sentinels,
    /// A cluster.
    Cluster,
}

/// A reply that owns its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RedisReply {
    /// Null.
    Null,
    /// A string, a status or a number.
    Value(Vec<u8>),
    /// A list.
    List(Vec<RedisReply>),
}

/// A connection to one server.
#[derive(Debug)]
pub struct InspectedServer {
    /// Host and port.
    pub address: String,
    connection: CommandConnection,
    timeout: Duration,
}

/// The servers of a store.
#[derive(Debug)]
pub struct Inspection {
    /// How they work together.
    pub deployment: Deployment,
    /// What is in front of every key.
    pub prefix: String,
    /// The servers that hold keys.
    pub servers: Vec<InspectedServer>,
    /// The name of the primary, if there are sentinels.
    pub primary_name: Option<String>,
    /// The sentinels of the URL, and why one does not answer.
    pub sentinels: Vec<(String, Result<InspectedServer, RedisError>)>,
    /// Hash slots of the cluster that a server owns. All of them, if there is no cluster.
    pub slots_owned: u32,
}

impl RedisSettings {
    /// The same store with other credentials.
    #[doc(hidden)]
    pub fn credentials(mut self, user: &str, password: Option<&str>) -> RedisSettings {
        self.url.options.user = Some(user.to_owned());
        self.url.options.password = password.map(str::to_owned);
        self
    }

    /// Connects to every server of the store. Each command waits for its reply at most `timeout`.
    #[doc(hidden)]
    pub async fn inspect(&self, timeout: Duration) -> Result<Inspection, OpenError> {
        let url = &self.url;
        let connector = Connector::new(url.options.clone()).map_err(OpenError::Certificates)?;
        let found = Inspection::open(&connector, &url.topology, &url.prefix, timeout).await?;
        found.map_err(|error| OpenError::Redis(error.into()))
    }
}

impl Inspection {
    async fn open(
        connector: &Connector,
        topology: &Topology,
        prefix: &str,
        timeout: Duration,
    ) -> Result<Result<Inspection, RedisError>, OpenError> {
        let inspection = |deployment, servers| Inspection {
            deployment,
            prefix: prefix.to_owned(),
            servers,
            primary_name: None,
            sentinels: Vec::new(),
            slots_owned: HASH_SLOTS,
        };
        Ok(match topology {
            Topology::Server(address) => {
                let server = InspectedServer::connect(connector, address, timeout).await;
                server.map(|server| inspection(Deployment::Standalone, vec![server]))
            }
            Topology::Sentinels { addresses, name, options } => {
                let watchers = Connector::new(options.clone()).map_err(OpenError::Certificates)?;
                let mut sentinels = Vec::new();
                let mut primary = None;
                let mut last_error = None;
                for address in addresses {
                    let mut sentinel = InspectedServer::connect(&watchers, address, timeout).await;
                    if let Ok(connected) = &mut sentinel {
                        match connected.primary(name, address).await {
                            Ok(found) => primary = primary.or(found),
                            Err(error) => last_error = Some(error),
                        }
                    }
                    sentinels.push((address.to_string(), sentinel));
                }
                let failed = sentinels.iter().find_map(|(_, sentinel)| sentinel.as_ref().err().cloned());
                let source = last_error.or(failed).map(Arc::new);
                match primary {
                    None => Err(RedisError::NoPrimary { name: Arc::clone(name), source }),
                    Some(address) => {
                        let server = InspectedServer::connect(connector, &address, timeout).await;
                        server.map(|server| Inspection {
                            primary_name: Some(name.to_string()),
                            sentinels,
                            ..inspection(Deployment::Sentinels, vec![server])
                        })
                    }
                }
            }
            Topology::Cluster(seeds) => {
                let mut last_error = RedisError::Closed;
                for seed in seeds {
                    match Inspection::of_cluster(connector, seed, timeout).await {
                        Ok((servers, slots_owned)) => {
                            let found = inspection(Deployment::Cluster, servers);
                            return Ok(Ok(Inspection { slots_owned, ..found }));
                        }
                        Err(error) => last_error = error,
                    }
                }
                Err(last_error)
            }
        })
    }

    /// The servers that own hash slots, and how many slots they own.
    async fn of_cluster(
        connector: &Connector,
        seed: &Address,
        timeout: Duration,
    ) -> Result<(Vec<InspectedServer>, u32), RedisError> {
        let mut first = InspectedServer::connect(connector, seed, timeout).await?;
        let ranges = first.command(&[b"CLUSTER", b"SLOTS"]).await?;
        let (mut owned, mut owners) = (0, Vec::new());
        for range in ranges.list() {
            let [start, end, owner, ..] = range.list() else { continue };
            let (Some(start), Some(end)) = (start.number::<u32>(), end.number::<u32>()) else { continue };
            owned += end.saturating_sub(start) + 1;
            let [host, port, ..] = owner.list() else { continue };
            // A server that does not know its own name sends an empty one.
            let host = host.text().filter(|host| !host.is_empty()).unwrap_or(seed.host.to_string());
            let Some(port) = port.number() else { continue };
            let address = Address::new(&host, port);
            if !owners.contains(&address) {
                owners.push(address);
            }
        }
        let mut servers = Vec::new();
        for address in &owners {
            servers.push(InspectedServer::connect(connector, address, timeout).await?);
        }
        if servers.is_empty() {
            servers.push(first);
        }
        Ok((servers, owned))
    }
}

impl InspectedServer {
    async fn connect(
        connector: &Connector,
        address: &Address,
        timeout: Duration,
    ) -> Result<InspectedServer, RedisError> {
        let connected =
            tokio::time::timeout(CONNECT_TIMEOUT, connector.connect(address, CONNECT_TIMEOUT)).await;
        let late = || RedisError::Connect {
            address: address.to_string().into(),
            source: Arc::new(std::io::ErrorKind::TimedOut.into()),
        };
        let connection = connected.unwrap_or_else(|_| Err(late()))?;
        Ok(InspectedServer { address: address.to_string(), connection, timeout })
    }

    /// Sends a command and returns its reply. An error reply is an error.
    pub async fn command(&mut self, words: &[&[u8]]) -> Result<RedisReply, RedisError> {
        let reply = timeout(self.timeout, self.connection.command(words)).await;
        Ok(RedisReply::from(&reply.unwrap_or(Err(RedisError::NoReply))?))
    }

    /// Sends several commands at once and returns the reply of each.
    pub async fn pipeline(
        &mut self,
        commands: &[Vec<&[u8]>],
    ) -> Result<Vec<Result<RedisReply, RedisError>>, RedisError> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|words| super::protocol::resp::write_command(&mut bytes, words));
        let exchange = async {
            self.connection.send(&bytes).await?;
            let mut replies = Vec::with_capacity(commands.len());
            for _ in commands {
                replies.push(match self.connection.receive().await? {
                    Reply::Error(text) => Err(RedisError::ErrorReply(text)),
                    reply => Ok(RedisReply::from(&reply)),
                });
            }
            Ok(replies)
        };
        timeout(self.timeout, exchange).await.unwrap_or(Err(RedisError::NoReply))
    }

    /// The primary that this sentinel knows.
    async fn primary(&mut self, name: &str, here: &Address) -> Result<Option<Address>, RedisError> {
        let reply = self.command(&[b"SENTINEL", b"get-master-addr-by-name", name.as_bytes()]).await?;
        let [host, port] = reply.list() else { return Ok(None) };
        let address = host.text().zip(port.text()).map(|(host, port)| format!("{host}:{port}"));
        Ok(address.and_then(|address| Address::parse(&address, here)))
    }
}

impl From<&Reply<'_>> for RedisReply {
    fn from(reply: &Reply<'_>) -> RedisReply {
        match reply {
            Reply::Value(None) => RedisReply::Null,
            Reply::Value(Some(bytes)) => RedisReply::Value(bytes.to_vec()),
            Reply::Array(elements) => RedisReply::List(elements.iter().map(RedisReply::from).collect()),
            Reply::Error(text) => RedisReply::Value(text.as_bytes().to_vec()),
        }
    }
}

impl RedisReply {
    /// The elements; none if it is not a list.
    pub fn list(&self) -> &[RedisReply] {
        match self {
            RedisReply::List(elements) => elements,
            _ => &[],
        }
    }

    /// The bytes of a string.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            RedisReply::Value(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The value as text.
    pub fn text(&self) -> Option<String> {
        self.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The value as a number.
    pub fn number<N: std::str::FromStr>(&self) -> Option<N> {
        self.text()?.trim().parse().ok()
    }
}
