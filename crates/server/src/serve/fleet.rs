//! Compares the servers that share a store, through a register in it.
//!
//! With another hash key, a server would count the same clients again and grant every limit twice. It does not start. With
//! other rules, servers count differently, during a rollout or by mistake. They log a warning.
//!
//! A store can be emptied while servers run. They restore the register within a second, and a server that starts waits for
//! them before it believes that it is the first. If servers with different hash keys run, the majority is right.

mod register;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tollgate::core::rules::RuleSet;
use tollgate::core::{StoreError, SubjectHashers};
use tollgate::store::redis::RedisStore;

use super::gate::Backed;
use super::observe::{Exposition, Kind};
use crate::failure::{Failure, error_chain};
use register::{FleetKey, Member, Register, SCRIPT, Verdict};

/// How often a server reads the register, and how much longer this is for each server in it.
const EVERY: Duration = Duration::from_secs(1);
const EVERY_PER_SERVER: Duration = Duration::from_millis(5);
/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The first pause.
const FIRST: Duration = Duration::from_millis(500);
/// After this many intervals, a server announces itself again.
const TURNS_ANNOUNCED: u32 = 3;
/// After this many intervals without an announcement, a server counts as gone.
const TURNS_LIVE: u32 = 10;
/// For this many intervals, a server that finds no register waits for servers that run: the store may have been emptied.
const TURNS_WAIT: u32 = 2;
/// Pause between looks at an empty store.
const WAIT_PAUSE: Duration = Duration::from_millis(100);
/// For this long, a server that starts asks a store again that answers too late: one slow reply must not end it.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between these attempts.
const JOIN_PAUSE: Duration = Duration::from_millis(50);
/// How long a server that shuts down may take to remove its line.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);
/// The fingerprint of the hash key is kept as long as the longest common quota, even while no server runs.
const HASH_KEY_TTL: Duration = Duration::from_secs(31 * 86_400);
/// The namespace of a rules file without one.
const NAMESPACE_DEFAULT: &str = "default";
/// Stands for the rules of a server that has just joined.
const RULES_UNKNOWN: &str = "-";

/// This server as a member of a fleet.
#[derive(Clone)]
pub(crate) struct Fleet {
    store: RedisStore,
    key: FleetKey,
    /// The fingerprints of our hash keys, the current one first.
    fingerprints: Vec<String>,
    /// Identifies this server.
    id: String,
    /// When it joined, in microseconds on the store's clock. 0 until then.
    joined_us: u64,
    every: Duration,
}

/// Why a server cannot join the fleet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FleetError {
    #[error("the servers that use this store have another hash key (theirs: {theirs}; ours: {ours})")]
    OtherHashKey { ours: String, theirs: String, key: String },
    #[error("cannot compare this server with the others on its store")]
    Store(#[from] StoreError),
    #[error("the system provides no random numbers")]
    Random(#[source] getrandom::Error),
    #[error("the namespace of the rules is invalid in a key")]
    Namespace,
}

impl FleetError {
    /// The fix.
    pub(crate) fn hint(&self) -> String {
        match self {
            FleetError::OtherHashKey { key, .. } => format!(
                "give this server their hash key; or, to change the key of all servers, first start each with the new key and with \
                 the old one as previous_hash_key_file; or, if those servers are gone and counting may start again, delete their \
                 fingerprint with `redis-cli DEL '{key}'`"
            ),
            FleetError::Store(_) => "`tollgate check --store` reports more about the store".to_owned(),
            FleetError::Random(_) | FleetError::Namespace => {
                "this should not happen; please report it".to_owned()
            }
        }
    }
}

/// How the other servers differ.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Others {
    /// The fingerprint of other rules that a server uses.
    pub(crate) other_rules: Option<String>,
    /// The version of a server of another version. During an upgrade there are two.
    pub(crate) other_version: Option<String>,
    /// The fingerprints of the hash keys of a server that shares none with us.
    pub(crate) other_hash_key: Option<String>,
    /// Whether the fleet has other hash keys than this server: most servers have.
    pub(crate) is_outvoted: bool,
    /// Whether the last exchange failed, so that the rest may be out of date.
    pub(crate) unheard: bool,
    /// All servers in the register, the one that joined first at the head.
    pub(crate) servers: Vec<FleetServer>,
}

/// A server of the fleet, as the register describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FleetServer {
    pub(crate) is_self: bool,
    pub(crate) member: Member,
}

impl Others {
    /// Logs what has changed. Failures of the store are logged by checks.
    fn log(&self, last: &Others) {
        if self.other_rules != last.other_rules {
            match &self.other_rules {
                Some(theirs) => tracing::warn!(
                    event = "other_rules",
                    theirs,
                    "a server on this store has other rules; until all have the same, each counts by its own rules"
                ),
                None => tracing::info!(
                    event = "same_rules",
                    "the servers on this store have the same rules again"
                ),
            }
        }
        if self.other_version != last.other_version {
            match &self.other_version {
                Some(theirs) => tracing::warn!(
                    event = "other_version",
                    theirs,
                    ours = VERSION,
                    "a server on this store has another version, as it is during an upgrade"
                ),
                None => {
                    tracing::info!(
                        event = "same_version",
                        "the servers on this store have the same version again"
                    );
                }
            }
        }
        if (&self.other_hash_key, self.is_outvoted) != (&last.other_hash_key, last.is_outvoted) {
            match &self.other_hash_key {
                Some(theirs) => tracing::error!(
                    event = "other_hash_key",
                    theirs,
                    outvoted = self.is_outvoted,
                    "a server on this store has another hash key; they count separately; give {} the same key",
                    if self.is_outvoted { "this server" } else { "that server" }
                ),
                None => tracing::info!(
                    event = "same_hash_key",
                    "the servers on this store share a hash key again"
                ),
            }
        }
    }

    /// The servers of the fleet, for operators.
    pub(crate) fn servers_json(&self) -> Value {
        let each = self.servers.iter().map(|FleetServer { is_self, member }| {
            json!({
                "id": member.number(),
                "self": is_self,
                "version": member.version(),
                "rules": (member.rules != RULES_UNKNOWN).then_some(&member.rules),
                "hash_keys": member.hash_keys.split(',').collect::<Value>(),
                "joined_ms": member.joined_us / 1_000,
                "announced_ms": member.announced_us / 1_000,
            })
        });
        json!({ "unheard": self.unheard, "servers": each.collect::<Value>() })
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "hash_key": if self.other_hash_key.is_some() { "differs" } else { "same" },
            "outvoted": self.is_outvoted,
            "other_rules": self.other_rules,
            "other_version": self.other_version,
            "other_hash_key": self.other_hash_key,
            "unheard": self.unheard,
        })
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        let mut family = page.family(
            "rate_limit_fleet_differs",
            Kind::Gauge,
            "1 while a server on the same store has other rules, another hash_key or another version.",
        );
        family.sample(&[("what", "rules")], u8::from(self.other_rules.is_some()));
        family.sample(&[("what", "hash_key")], u8::from(self.other_hash_key.is_some()));
        family.sample(&[("what", "version")], u8::from(self.other_version.is_some()));
    }
}

/// Joins the fleet of the store; `None` if the store is not shared. If the store is down and not `required`, the server joins
/// when it is up.
pub(crate) async fn of(limiter: &Backed, required: bool, is_up: bool) -> Result<Option<Fleet>, Failure> {
    let Backed::Redis(limiter) = limiter else { return Ok(None) };
    let namespace = limiter.with_rules(namespace);
    let (store, hashers) = (&limiter.store().store().store().store, limiter.hashers());
    let outside = || {
        Fleet::new(store, hashers, &namespace)
            .map_err(|error| Failure::new(error_chain(&error), error.hint()))
    };
    if !is_up {
        return outside().map(Some);
    }
    match Fleet::join(store, hashers, &namespace).await {
        Ok(fleet) => Ok(Some(fleet)),
        Err(FleetError::Store(StoreError::Transient(_))) if !required => outside().map(Some),
        // The store has answered: the fault is in the configuration.
        Err(error @ FleetError::OtherHashKey { .. }) => Err(Failure::new(error_chain(&error), error.hint())),
        Err(error) => Err(Failure::of_store(error_chain(&error), error.hint())),
    }
}

/// The fingerprints of the fleet's hash keys, if this one is not among them. For commands, which must not write: a command
/// is not a server.
pub(crate) async fn other_hash_keys(
    store: &RedisStore,
    fingerprint: &str,
    namespace: &str,
) -> Result<Option<String>, StoreError> {
    let Ok(key) = FleetKey::new(namespace) else { return Ok(None) };
    let live = (EVERY * TURNS_LIVE).as_micros().to_string();
    // Only the first and the third matter to a reader.
    let args = ["read", "", &live, "0", "", "0", "", "", ""];
    let reply = store.eval_on_key_owner(SCRIPT, &key.to_string(), &args).await?;
    let register = reply.map(|reply| Register::parse(&reply)).unwrap_or_default();
    match register.verdict(&[fingerprint.to_owned()]) {
        Verdict::Unknown | Verdict::Same => Ok(None),
        Verdict::Differs(theirs) => Ok(Some(theirs)),
    }
}

/// The namespace of the rules.
pub(crate) fn namespace(rules: &RuleSet) -> String {
    rules.rules().first().map_or(NAMESPACE_DEFAULT, |rule| rule.keyspace.namespace()).to_owned()
}

/// What a server does to the register.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Read,
    Announce,
    Leave,
}

impl Fleet {
    /// Joins the fleet, unless its servers have another hash key.
    ///
    /// During a change of keys a server has two, and matches servers with either. See `SubjectHashers`.
    pub(crate) async fn join(
        store: &RedisStore,
        hashers: &SubjectHashers,
        namespace: &str,
    ) -> Result<Fleet, FleetError> {
        Fleet::new(store, hashers, namespace)?.joined().await
    }

    fn new(store: &RedisStore, hashers: &SubjectHashers, namespace: &str) -> Result<Fleet, FleetError> {
        Ok(Fleet {
            store: store.clone(),
            key: FleetKey::new(namespace).map_err(|_| FleetError::Namespace)?,
            fingerprints: hashers.iter().map(|hasher| hasher.fingerprint()).collect(),
            id: register::new_id(getrandom::u64().map_err(FleetError::Random)?, VERSION),
            joined_us: 0,
            every: EVERY,
        })
    }

    async fn joined(mut self) -> Result<Fleet, FleetError> {
        self.check(&self.register_of_others().await?)?;
        let register = retry_for(JOIN_TIMEOUT, || self.announce(RULES_UNKNOWN, true)).await?;
        self.joined_us = register.member(&self.id).map_or(0, |own| own.joined_us);
        // Another first server may have joined in the same moment.
        if let Err(error) = self.check(&register) {
            self.leave().await;
            return Err(error);
        }
        Ok(self)
    }

    /// Fails if the fleet has other hash keys.
    fn check(&self, register: &Register) -> Result<(), FleetError> {
        match register.verdict(&self.fingerprints) {
            Verdict::Unknown | Verdict::Same => Ok(()),
            Verdict::Differs(theirs) => {
                let key = self.store.prefixed(&self.key.to_string());
                Err(FleetError::OtherHashKey { ours: self.fingerprints.join(" "), theirs, key })
            }
        }
    }

    /// Reads the register.
    ///
    /// If it does not exist, waits for servers that run to restore it. If the servers in it have other hash keys although the
    /// fleet has one of ours, waits until those that were killed are dropped: a change of keys may be going on.
    async fn register_of_others(&self) -> Result<Register, StoreError> {
        let began = Instant::now();
        loop {
            let register = retry_for(JOIN_TIMEOUT, || self.call(Mode::Read, RULES_UNKNOWN, false)).await?;
            let turns = match register.verdict(&self.fingerprints) {
                Verdict::Unknown => TURNS_WAIT,
                Verdict::Differs(_) if register.knows(&self.fingerprints) => TURNS_LIVE,
                Verdict::Same | Verdict::Differs(_) => return Ok(register),
            };
            if began.elapsed() >= self.every * turns {
                return Ok(register);
            }
            sleep(WAIT_PAUSE.min(self.every)).await;
        }
    }

    /// Compares this server with the others until shutdown, and logs differences. `rules` returns the fingerprint of the
    /// rules in force.
    pub(crate) async fn compare(
        mut self,
        rules: impl Fn() -> String + Send,
        others: watch::Sender<Others>,
        note: impl Fn(usize) + Send,
        ending: CancellationToken,
    ) {
        let mut pause = FIRST.min(self.every);
        loop {
            let in_force = rules();
            let found = tokio::select! {
                () = ending.cancelled() => return self.leave().await,
                found = self.join_and_exchange(&in_force) => found,
            };
            if let Ok((_, servers)) = &found {
                note(*servers);
                let servers = u32::try_from(*servers).unwrap_or(u32::MAX);
                pause = self.every.max(EVERY_PER_SERVER * servers);
            }
            others.send_if_modified(|last| {
                let now = match found {
                    Ok((now, _)) => now,
                    Err(_) => Others { unheard: true, ..last.clone() },
                };
                let changed = *last != now;
                if changed {
                    now.log(last);
                }
                *last = now;
                changed
            });
            tokio::select! {
                () = ending.cancelled() => return self.leave().await,
                () = sleep(spread(pause)) => (),
            }
        }
    }

    /// Joins the fleet if the store was down when this server started, and exchanges what is in force.
    async fn join_and_exchange(&mut self, rules: &str) -> Result<(Others, usize), StoreError> {
        if self.joined_us == 0 {
            match self.clone().joined().await {
                Ok(joined) => *self = joined,
                Err(FleetError::Store(error)) => return Err(error),
                // This server must not announce its hash key to servers that have another.
                Err(error) => {
                    let other_hash_key = match error {
                        FleetError::OtherHashKey { theirs, .. } => Some(theirs),
                        _ => None,
                    };
                    return Ok((Others { other_hash_key, is_outvoted: true, ..Others::default() }, 1));
                }
            }
        }
        self.exchange(rules).await
    }

    /// Announces this server, and returns how the others differ and how many servers there are.
    async fn exchange(&self, rules: &str) -> Result<(Others, usize), StoreError> {
        let mut register = self.announce(rules, false).await?;
        let is_outvoted = register.verdict(&self.fingerprints) != Verdict::Same;
        if !is_outvoted && !register.knows(&self.fingerprints) {
            tracing::warn!(
                event = "hash_key_restored",
                found = register.hash_key,
                "the fingerprint of the hash key was missing in the store, or another; it was restored"
            );
            register = self.announce(rules, true).await?;
        }
        let Register { members, .. } = &register;
        let is_running = |announced_us: u64| announced_us >= self.joined_us;
        let other_rules = members.iter().find(|member| {
            is_running(member.announced_us) && ![rules, RULES_UNKNOWN].contains(&member.rules.as_str())
        });
        let other_version = members.iter().find_map(|member| {
            let version = member.version()?;
            (is_running(member.announced_us) && version != VERSION).then_some(version)
        });
        let others = Others {
            other_version,
            other_rules: other_rules.map(|member| member.rules.clone()),
            other_hash_key: register.other_hash_keys(&self.fingerprints, self.joined_us),
            is_outvoted,
            unheard: false,
            servers: self.servers(members),
        };
        Ok((others, members.len()))
    }

    fn servers(&self, members: &[Member]) -> Vec<FleetServer> {
        let of = |member: &Member| FleetServer { is_self: member.id == self.id, member: member.clone() };
        let mut servers: Vec<FleetServer> = members.iter().map(of).collect();
        servers.sort_by(|one, other| {
            (one.member.joined_us, &one.member.id).cmp(&(other.member.joined_us, &other.member.id))
        });
        servers
    }

    /// Writes the line of this server if it is old, and the hash key of the fleet if `with_hash_key`.
    async fn announce(&self, rules: &str, with_hash_key: bool) -> Result<Register, StoreError> {
        self.call(Mode::Announce, rules, with_hash_key).await
    }

    /// Removes the line of this server. If that fails, the line is dropped after a while.
    async fn leave(&self) {
        drop(timeout(LEAVE_TIMEOUT, self.call(Mode::Leave, RULES_UNKNOWN, false)).await);
    }

    async fn call(&self, mode: Mode, rules: &str, with_hash_key: bool) -> Result<Register, StoreError> {
        let mode = match mode {
            Mode::Read => "read",
            Mode::Announce => "announce",
            Mode::Leave => "leave",
        };
        let us = |time: Duration| time.as_micros().to_string();
        let (live, fresh) = (us(self.every * TURNS_LIVE), us(self.every * TURNS_ANNOUNCED));
        let (ttl, joined) = (HASH_KEY_TTL.as_millis().to_string(), self.joined_us.to_string());
        let hash_key = if with_hash_key { self.fingerprints.join(" ") } else { String::new() };
        let hash_keys = self.fingerprints.join(",");
        let args = [mode, &ttl, &live, &fresh, &self.id, &joined, rules, &hash_keys, &hash_key];
        let reply = self.store.eval_on_key_owner(SCRIPT, &self.key.to_string(), &args).await?;
        Ok(reply.map(|reply| Register::parse(&reply)).unwrap_or_default())
    }
}

/// Repeats a call of which a repetition is harmless, while the store answers too late and the time is not over.
async fn retry_for<T, F>(limit: Duration, mut call: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let began = Instant::now();
    loop {
        match call().await {
            Err(StoreError::Transient(_)) if began.elapsed() < limit => sleep(JOIN_PAUSE).await,
            done => return done,
        }
    }
}

/// A random pause of three to five quarters, so that servers do not read the register in the same moment.
fn spread(pause: Duration) -> Duration {
    let random = getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX));
    pause.mul_f64(0.75 + random / 2.0)
}
