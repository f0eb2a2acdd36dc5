//! Starts a set and introduces its sentinels to each other.

use std::time::Duration;

use tempfile::TempDir;

use super::{NAME, SETTLE_MAX, SETTLE_PAUSE, SentinelSet};
use crate::redis::admin::resp::Value;
use crate::redis::certificates::Certificates;
use crate::redis::error::{AdminError, Error};
use crate::redis::flavour::Flavour;
use crate::redis::node::Node;
use crate::redis::role::Role;
use crate::redis::server::{Builder, Server};
use crate::redis::wait::{NotYet, until};

const SENTINELS: usize = 3;
const QUORUM: &str = "2";

/// How soon a sentinel reconnects to a node. It promotes a replica only if its information is at most five times this old.
/// While the primary is down it polls once a second.
const PING_PERIOD_MS: &str = "250";

/// How often a sentinel polls while all is well. The default is ten seconds.
const INFO_PERIOD_MS: &str = "500";

/// How often a sentinel publishes its state. After four times this long it demotes an unexpected primary. The leader of a
/// failover may need a second to see that it is done, and must have informed the others before.
const PUBLISH_PERIOD_MS: &str = "750";

/// Longer than a sentinel may need to connect. Otherwise it considers a new primary dead at once.
const DOWN_AFTER: Duration = Duration::from_millis(500);
/// The same for sentinels that reconnect after a second.
const DOWN_AFTER_62: Duration = Duration::from_millis(1_500);

/// Credentials of the test itself if clients have a separate user.
const HELPER_PASSWORD: &str = "of-the-helper-only";

/// Options of a set.
#[derive(Clone, Debug)]
pub struct SentinelBuilder {
    flavour: Flavour,
    replicas: usize,
    pub(super) password: Option<String>,
    login: Option<Login>,
    pub(super) tls_nodes: bool,
    pub(super) tls_sentinels: bool,
    proxied: bool,
    down_after: Duration,
    failover_timeout: Duration,
    arguments: Vec<String>,
}

/// How clients log in to the sentinels.
#[derive(Clone, Debug)]
struct Login {
    user: Option<String>,
    password: String,
}

impl SentinelBuilder {
    pub(super) fn new(flavour: Flavour) -> SentinelBuilder {
        SentinelBuilder {
            flavour,
            replicas: 1,
            password: None,
            login: None,
            tls_nodes: false,
            tls_sentinels: false,
            proxied: false,
            down_after: if has_periods(flavour) { DOWN_AFTER } else { DOWN_AFTER_62 },
            failover_timeout: Duration::from_secs(2),
            arguments: Vec::new(),
        }
    }

    /// Sets the number of replicas. The default is one.
    pub fn replicas(mut self, replicas: usize) -> SentinelBuilder {
        self.replicas = replicas;
        self
    }

    /// Sets the password of the data nodes, for clients, replicas and sentinels. It must not need escaping in a URL.
    pub fn password(mut self, password: &str) -> SentinelBuilder {
        self.password = Some(password.to_owned());
        self
    }

    /// Sets the password of the sentinels' default user.
    pub fn sentinel_password(mut self, password: &str) -> SentinelBuilder {
        self.login = Some(Login { user: None, password: password.to_owned() });
        self
    }

    /// Sets the sentinels' user for clients and other sentinels.
    pub fn sentinel_user(mut self, user: &str, password: &str) -> SentinelBuilder {
        self.login = Some(Login { user: Some(user.to_owned()), password: password.to_owned() });
        self
    }

    /// Uses TLS to the data nodes, for clients, replicas and sentinels. Sentinels then also use TLS with each other.
    /// Clients still reach the sentinels without TLS, unless [`SentinelBuilder::tls_sentinels`] is set.
    pub fn tls_nodes(mut self) -> SentinelBuilder {
        self.tls_nodes = true;
        self
    }

    /// Uses TLS between clients and sentinels.
    pub fn tls_sentinels(mut self) -> SentinelBuilder {
        self.tls_sentinels = true;
        self
    }

    /// Puts a proxy in front of each data node, for [`SentinelSet::partition`].
    pub fn proxied(mut self) -> SentinelBuilder {
        self.proxied = true;
        self
    }

    /// Sets how long a node may be silent before a sentinel considers it dead. The default is 500 ms, on Redis 6.2 1500 ms.
    /// With shorter times, the new primary may be considered dead after the first failover.
    pub fn down_after(mut self, down_after: Duration) -> SentinelBuilder {
        self.down_after = down_after;
        self
    }

    /// Sets how long a failover may take before it is tried again. The default is 2 s.
    pub fn failover_timeout(mut self, failover_timeout: Duration) -> SentinelBuilder {
        self.failover_timeout = failover_timeout;
        self
    }

    /// Adds arguments of the data nodes. They come last and override others.
    pub fn arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> SentinelBuilder {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Starts all servers and waits until they are settled.
    pub fn start(self) -> Result<SentinelSet, Error> {
        let mut set = SentinelSet {
            certificates: self.certificates()?,
            options: self,
            sentinels: Vec::new(),
            nodes: Vec::new(),
        };
        for node in 0..=set.options.replicas {
            set.nodes.push(set.options.node(set.certificates(), node as u64)?);
        }
        follow(&set.nodes)?;
        let primary_port = set.node_port(0).to_string();
        for _ in 0..SENTINELS {
            set.sentinels.push(set.options.sentinel(set.certificates(), &primary_port)?);
        }
        set.options.introduce(&set.sentinels, &primary_port)?;
        set.wait_settled()?;
        Ok(set)
    }

    /// Returns the query of the URL, with the settings of the sentinels.
    pub(super) fn query(&self, certificates: Option<&Certificates>) -> String {
        let mut parts = Vec::new();
        if let Some(login) = &self.login {
            parts.extend(login.user.as_ref().map(|user| format!("sentinel_user={user}")));
            parts.push(format!("sentinel_password={}", login.password));
        }
        if let Some(certificates) = certificates {
            let authority = certificates.authority().display();
            parts.extend(self.tls_nodes.then(|| format!("ca={authority}")));
            parts.push(format!("sentinel_tls={}", if self.tls_sentinels { "yes" } else { "no" }));
            parts.extend(self.tls_sentinels.then(|| format!("sentinel_ca={authority}")));
        }
        if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
    }

    fn certificates(&self) -> Result<Option<(Certificates, TempDir)>, Error> {
        if !(self.tls_nodes || self.tls_sentinels) {
            return Ok(None);
        }
        let folder = TempDir::with_prefix("tollgate-redis-").map_err(Error::io("create a folder"))?;
        Ok(Some((Certificates::generate(folder.path())?, folder)))
    }

    fn node(&self, certificates: Option<&Certificates>, seed: u64) -> Result<Node, Error> {
        let mut builder = Server::builder(self.flavour)
            .config_file()
            // A new replica gets its data at once.
            .arguments(["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]);
        if let Some(password) = &self.password {
            builder = builder.password(password).arguments(["--masterauth", password]);
        }
        if self.tls_nodes {
            builder = with_tls(builder, certificates).arguments(["--tls-replication", "yes"]);
        }
        let builder = builder.arguments(self.arguments.iter().cloned());
        if self.proxied {
            Node::start_behind_proxy(builder, "--replica-announce-port", seed)
        } else {
            Node::start(builder)
        }
    }

    fn sentinel(&self, certificates: Option<&Certificates>, primary_port: &str) -> Result<Server, Error> {
        let mut builder = Server::builder(self.flavour).sentinel().arguments(self.watch(primary_port));
        if let Some(login) = &self.login {
            builder = login.known_to(builder);
        }
        if self.tls_nodes || self.tls_sentinels {
            builder = with_tls(builder, certificates);
        }
        if self.tls_nodes {
            builder = builder.arguments(["--tls-replication", "yes"]);
        }
        let sentinel = builder.start()?;
        shorten_polling_periods(&sentinel)?;
        Ok(sentinel)
    }

    /// Returns what a sentinel must know about the set when it starts. If it were configured later, it would first connect
    /// without the password.
    fn watch(&self, primary_port: &str) -> Vec<String> {
        let (down_after_ms, timeout_ms) = (ms(self.down_after), ms(self.failover_timeout));
        let mut lines = vec![
            vec!["monitor", NAME, "127.0.0.1", primary_port, QUORUM],
            vec!["down-after-milliseconds", NAME, &down_after_ms],
            vec!["failover-timeout", NAME, &timeout_ms],
        ];
        lines.extend(self.password.as_deref().map(|password| vec!["auth-pass", NAME, password]));
        lines.into_iter().flat_map(|line| ["--sentinel"].into_iter().chain(line)).map(str::to_owned).collect()
    }

    /// Introduces the sentinels to each other with their own messages. They would also find each other, but two seconds
    /// later.
    fn introduce(&self, sentinels: &[Server], primary_port: &str) -> Result<(), Error> {
        for one in sentinels {
            let port = one.tls_port().filter(|_| self.tls_nodes).unwrap_or(one.port());
            let id = id(one)?;
            let hello = format!("127.0.0.1,{port},{id},0,{NAME},127.0.0.1,{primary_port},0");
            for other in sentinels.iter().filter(|other| other.port() != one.port()) {
                other.admin()?.command(&[b"PUBLISH", b"__sentinel__:hello", hello.as_bytes()])?;
            }
        }
        Ok(())
    }
}

impl Login {
    fn known_to(&self, builder: Builder) -> Builder {
        let password = self.password.as_str();
        let builder = builder.arguments(["--sentinel", "sentinel-pass", password]);
        match &self.user {
            None => builder.password(password),
            Some(user) => builder
                .password(HELPER_PASSWORD)
                .user(&format!("{user} on >{password} ~* &* +@all"))
                .arguments(["--sentinel", "sentinel-user", user]),
        }
    }
}

/// Sets the polling periods of a sentinel, where that is supported. They are lost when it exits.
pub(super) fn shorten_polling_periods(sentinel: &Server) -> Result<(), Error> {
    if !has_periods(sentinel.flavour()) {
        return Ok(());
    }
    let periods = [
        ["PING-PERIOD", PING_PERIOD_MS],
        ["INFO-PERIOD", INFO_PERIOD_MS],
        ["PUBLISH-PERIOD", PUBLISH_PERIOD_MS],
    ];
    let mut admin = sentinel.admin()?;
    for [name, value] in periods {
        admin.command(&["SENTINEL", "DEBUG", name, value].map(str::as_bytes))?;
    }
    Ok(())
}

fn has_periods(flavour: Flavour) -> bool {
    flavour != Flavour::Redis62
}

/// Makes all other nodes replicas of the first one, and saves that in their settings files.
fn follow(nodes: &[Node]) -> Result<(), Error> {
    let Some((primary, replicas)) = nodes.split_first() else { return Ok(()) };
    let port = primary.port().to_string();
    for replica in replicas {
        let mut admin = replica.server.admin()?;
        admin.command(&["REPLICAOF", "127.0.0.1", &port].map(str::as_bytes))?;
        admin.command(&[b"CONFIG", b"REWRITE"])?;
    }
    // A sentinel that polls too early polls again much later.
    until("linked", SETTLE_MAX, SETTLE_PAUSE, || {
        replicas.iter().try_for_each(|replica| match Role::of(&mut replica.server.admin()?)? {
            Role::Replica { connected: true, .. } => Ok(()),
            role => Err(NotYet(format!("{role:?}"))),
        })
    })
}

fn with_tls(builder: Builder, certificates: Option<&Certificates>) -> Builder {
    match certificates {
        Some(certificates) => builder.tls_with(certificates.clone()),
        None => builder,
    }
}

fn id(sentinel: &Server) -> Result<String, AdminError> {
    match sentinel.admin()?.command(&[b"SENTINEL", b"MYID"])? {
        Value::Bulk(id) => Ok(String::from_utf8_lossy(&id).into_owned()),
        reply => Err(AdminError::Unexpected { command: "SENTINEL MYID", reply }),
    }
}

fn ms(duration: Duration) -> String {
    duration.as_millis().to_string()
}
