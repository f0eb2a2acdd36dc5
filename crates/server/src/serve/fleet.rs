//! Servers that share a store see there whether they belong together.
//!
//! With another hash key a server would count the same clients anew and hand out every limit once more, so it does not
//! start. With other rules it counts what others do not, for a while or by mistake: that is told.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tollgate::core::rules::RuleSet;
use tollgate::core::{FleetKey, StoreError, SubjectHashers};
use tollgate::store::redis::{Note, RedisStore};

use super::gate::Backed;
use super::observe::{Exposition, Kind};
use crate::cli::store_args::chain;
use crate::cli::terminal::Failure;

/// How often servers tell each other of themselves; sooner at first, when something is new.
const EVERY: Duration = Duration::from_secs(10);
const FIRST: Duration = Duration::from_millis(500);
/// A server that was not heard of for so many turns is gone.
const TURNS: u32 = 3;
/// The hash key is remembered for as long as the longest of the usual quotas, also while no server runs.
const HASH_KEY_TTL: Duration = Duration::from_secs(31 * 86_400);
/// The namespace of a rules file that names none.
const NAMESPACE_DEFAULT: &str = "default";

/// One server among those that share a store.
#[derive(Clone)]
pub(crate) struct Fleet {
    store: RedisStore,
    hash_key: FleetKey,
    rules: FleetKey,
    /// The fingerprints of our hash keys, the current one first.
    prints: Vec<String>,
    /// Tells this server from every other.
    id: u64,
    every: Duration,
}

/// Why a server cannot be one of those that share this store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FleetError {
    #[error("the servers that use this store have another hash key (theirs: {theirs}; ours: {ours})")]
    OtherHashKey { ours: String, theirs: String, key: String },
    #[error("the servers that share this store cannot be compared with")]
    Store(#[from] StoreError),
    #[error("the system gives no random numbers")]
    Random(#[source] getrandom::Error),
    #[error("the rules have a namespace that no key can have")]
    Namespace,
}

impl FleetError {
    /// What to do about it.
    pub(crate) fn hint(&self) -> String {
        match self {
            FleetError::OtherHashKey { key, .. } => format!(
                "give this server their hash key; or, to change the key of all of them, start each with the new one and the old \
                 one as previous_hash_key_file first; or, if they are gone for good and everything may be counted anew, \
                 forget them with `redis-cli DEL '{key}'`"
            ),
            FleetError::Store(_) => "`tollgate check --store` says more about the store".to_owned(),
            FleetError::Random(_) | FleetError::Namespace => {
                "this should not happen; please report it".to_owned()
            }
        }
    }
}

/// What the other servers are like.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Others {
    /// The fingerprint of other rules that a server has which was heard of lately.
    pub(crate) other_rules: Option<String>,
    /// The fingerprints of hash keys that a server has and we do not.
    pub(crate) other_hash_key: Option<String>,
    /// Whether the last exchange failed, so that all of this may be out of date.
    pub(crate) unheard: bool,
}

impl Others {
    /// What is new since it was told last. That the store is silent is told by those who ask it more often.
    fn tell(&self, last: &Others) {
        if self.other_rules != last.other_rules {
            match &self.other_rules {
                Some(theirs) => tracing::warn!(
                    event = "other_rules",
                    theirs,
                    "a server that shares the store has other rules: until all have the same, each counts by its own"
                ),
                None => tracing::info!(
                    event = "same_rules",
                    "the servers that share the store have the same rules again"
                ),
            }
        }
        if self.other_hash_key != last.other_hash_key {
            match &self.other_hash_key {
                Some(theirs) => tracing::error!(
                    event = "other_hash_key",
                    theirs,
                    "a server that shares the store has another hash key: each counts on its own; give all the same"
                ),
                None => tracing::info!(
                    event = "same_hash_key",
                    "the servers that share the store have a hash key in common again"
                ),
            }
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "other_rules": self.other_rules,
            "other_hash_key": self.other_hash_key,
            "unheard": self.unheard,
        })
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        let mut family = page.family(
            "rate_limit_fleet_differs",
            Kind::Gauge,
            "Whether a server that shares the store has others: rules, hash_key.",
        );
        family.sample(&[("what", "rules")], u8::from(self.other_rules.is_some()));
        family.sample(&[("what", "hash_key")], u8::from(self.other_hash_key.is_some()));
    }
}

/// This server among those that share its store; none if it has one of its own.
pub(crate) async fn of(limiter: &Backed) -> Result<Option<Fleet>, Failure> {
    let Backed::Redis(limiter) = limiter else { return Ok(None) };
    let namespace = limiter.with_rules(namespace);
    match Fleet::join(&limiter.store().store, limiter.hashers(), &namespace).await {
        Ok(fleet) => Ok(Some(fleet)),
        Err(error) => Err(Failure::of_store(chain(&error), error.hint())),
    }
}

/// What the rules are counted in.
pub(crate) fn namespace(rules: &RuleSet) -> String {
    rules.rules().first().map_or(NAMESPACE_DEFAULT, |rule| rule.keyspace.namespace()).to_owned()
}

impl Fleet {
    /// One more server, unless those that share the store have another hash key.
    ///
    /// While keys are changed a server has two, and belongs to those that have either. See `SubjectHashers`.
    pub(crate) async fn join(
        store: &RedisStore,
        hashers: &SubjectHashers,
        namespace: &str,
    ) -> Result<Fleet, FleetError> {
        let key = |name| FleetKey::new(namespace, name).map_err(|_| FleetError::Namespace);
        let fleet = Fleet {
            store: store.clone(),
            hash_key: key("hash-key")?,
            rules: key("rules")?,
            prints: hashers.iter().map(|hasher| hasher.fingerprint()).collect(),
            id: getrandom::u64().map_err(FleetError::Random)?,
            every: EVERY,
        };
        match fleet.other_hash_key().await? {
            None => Ok(fleet),
            Some(theirs) => {
                let key = store.name_of(&fleet.hash_key);
                Err(FleetError::OtherHashKey { ours: fleet.prints.join(" "), theirs, key })
            }
        }
    }

    /// Compares notes with the other servers until the server ends, and tells what it finds. `rules` is the fingerprint of
    /// those in force.
    pub(crate) async fn compare(
        self,
        rules: impl Fn() -> String + Send,
        others: watch::Sender<Others>,
        ending: CancellationToken,
    ) {
        let (mut heard, mut pause) = (Heard::default(), FIRST.min(self.every));
        loop {
            let in_force = rules();
            let found = tokio::select! {
                () = ending.cancelled() => return,
                found = self.turn(&in_force, &mut heard) => found,
            };
            others.send_if_modified(|last| {
                let now = found.unwrap_or_else(|_| Others { unheard: true, ..last.clone() });
                let changed = *last != now;
                if changed {
                    now.tell(last);
                }
                *last = now;
                changed
            });
            tokio::select! {
                () = ending.cancelled() => return,
                () = sleep(pause) => (),
            }
            pause = self.every.min(pause * 2);
        }
    }

    async fn turn(&self, rules: &str, heard: &mut Heard) -> Result<Others, StoreError> {
        let other_hash_key = self.other_hash_key().await?;
        let note = format!("{rules} {:016x}", self.id);
        let ttl = self.every * TURNS;
        let found = self.store.exchange(&Note { key: &self.rules, value: &note, ttl, ours: &[] }).await?;
        let theirs = found.and_then(|found| {
            let (theirs, id) = found.split_once(' ')?;
            (id != format!("{:016x}", self.id)).then(|| theirs.to_owned())
        });
        Ok(Others { other_rules: heard.of(theirs, rules, ttl), other_hash_key, unheard: false })
    }

    /// The hash keys of the other servers, if none of them is ours. If one is, ours are known for longer.
    async fn other_hash_key(&self) -> Result<Option<String>, StoreError> {
        let value = self.prints.join(" ");
        let note = Note { key: &self.hash_key, value: &value, ttl: HASH_KEY_TTL, ours: &self.prints };
        let found = self.store.exchange(&note).await?;
        Ok(found.filter(|found| !self.prints.iter().any(|ours| found.contains(ours.as_str()))))
    }
}

/// What was heard of other rules.
#[derive(Default)]
struct Heard {
    /// Whether we have left a note ourselves. What was there before may be from a server that is gone, or from ourselves
    /// before we were started anew; what is there after it is from one that runs.
    spoke: bool,
    last: Option<(String, Instant)>,
}

impl Heard {
    /// The other rules that were heard of lately, now that `theirs` was found.
    fn of(&mut self, theirs: Option<String>, ours: &str, lately: Duration) -> Option<String> {
        if let Some(theirs) = theirs.filter(|theirs| self.spoke && theirs != ours) {
            self.last = Some((theirs, Instant::now()));
        }
        self.spoke = true;
        self.last.take_if(|(theirs, heard)| theirs == ours || heard.elapsed() > lately);
        self.last.as_ref().map(|(theirs, _)| theirs.clone())
    }
}

#[cfg(test)]
mod tests {
    use tollgate::core::SubjectHasher;
    use tollgate::store::redis::RedisSettings;
    use tollgate_testkit::redis::{Cluster, Flavour, SentinelSet, Server};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn key(id: u8) -> SubjectHasher {
        SubjectHasher::with_id(id, [id; 32])
    }

    async fn store(url: &str) -> RedisStore {
        RedisSettings::url(url).expect("a URL").deadline(SOON).connect().await.expect("the server answers")
    }

    async fn joins(
        store: &RedisStore,
        hashers: impl Into<SubjectHashers>,
        namespace: &str,
    ) -> Result<Fleet, FleetError> {
        Fleet::join(store, &hashers.into(), namespace).await
    }

    fn both(current: u8, previous: u8) -> SubjectHashers {
        SubjectHashers::rotating(key(current), key(previous)).expect("they differ")
    }

    #[tokio::test]
    async fn a_server_with_another_hash_key_does_not_start_on_any_store() {
        let one = Server::start(Flavour::Redis62).expect("a server starts");
        let set = SentinelSet::start(Flavour::Redis70).expect("a set starts");
        let cluster = Cluster::start(Flavour::Valkey9).expect("a cluster starts");
        for url in [one.url(), set.url(), cluster.url()] {
            let store = store(&url).await;
            joins(&store, key(1), "shop").await.expect("the first server");
            joins(&store, key(1), "shop").await.expect("another with the same key");
            let error = joins(&store, key(2), "shop").await.err().expect("another key");
            let FleetError::OtherHashKey { ours, theirs, key: name } = &error else { panic!("{error:?}") };
            assert_eq!((ours, theirs), (&key(2).fingerprint(), &key(1).fingerprint()));
            assert_eq!(name, "tg:1:shop:{fleet}:@hash-key");
            assert!(error.hint().contains("previous_hash_key_file"), "{}", error.hint());
            // Whoever was turned away has not changed what the others see.
            joins(&store, key(1), "shop").await.expect("the key of the fleet still");
            joins(&store, key(2), "other").await.expect("another namespace is another fleet");
        }
        let prefixed = store(&format!("{}?prefix=eu:", one.url())).await;
        joins(&prefixed, key(3), "shop").await.expect("another prefix is another fleet");
        let error = joins(&prefixed, key(4), "shop").await.err().expect("another key");
        assert!(error.hint().contains("DEL 'eu:tg:1:shop:{fleet}:@hash-key'"), "{}", error.hint());
        let mut admin = one.admin().expect("a connection");
        assert_eq!(admin.scan("eu:*").expect("keys"), [b"eu:tg:1:shop:{fleet}:@hash-key"]);
        let keys = admin.scan("tg:*").expect("keys");
        assert_eq!(keys.len(), 2);
        for key in keys {
            assert!(key.starts_with(b"tg:1:") && admin.pttl(&key).expect("a time") > 0, "every key dies");
        }
    }

    #[tokio::test]
    async fn a_fleet_goes_from_one_key_to_the_next_server_by_server() {
        let server = Server::start(Flavour::Redis70).expect("a server starts");
        let store = store(&server.url()).await;
        joins(&store, key(1), "shop").await.expect("the old key");
        joins(&store, both(2, 1), "shop").await.expect("both keys");
        joins(&store, key(1), "shop").await.expect("a server with the old key that is started anew");
        joins(&store, key(2), "shop").await.err().expect("the new key alone, beside the old one alone");
        joins(&store, both(2, 1), "shop").await.expect("both keys again");
        joins(&store, key(2), "shop").await.expect("the new key alone");
        joins(&store, both(2, 1), "shop").await.expect("one that is late");
        joins(&store, key(2), "shop").await.expect("the new key alone");
        joins(&store, key(1), "shop").await.err().expect("the old key is over");
    }

    #[tokio::test]
    async fn other_rules_are_told_while_a_server_has_them() {
        let mut server = Server::start(Flavour::Redis70).expect("a server starts");
        let store = store(&server.url()).await;
        let ending = CancellationToken::new();
        let mut told = Vec::new();
        let (own, rules) = watch::channel("one");
        for each in [rules, watch::channel("two").1] {
            let fleet = Fleet {
                every: Duration::from_millis(40),
                ..joins(&store, key(1), "shop").await.expect("the same key")
            };
            let (others, receiver) = watch::channel(Others::default());
            tokio::spawn(fleet.compare(move || each.borrow().to_string(), others, ending.clone()));
            told.push(receiver);
        }
        for (receiver, theirs) in told.iter_mut().zip(["two", "one"]) {
            let heard =
                tokio::time::timeout(SOON, receiver.wait_for(|others| others.other_rules.is_some())).await;
            let heard = heard.expect("in time").expect("it goes on").clone();
            assert_eq!(heard, Others { other_rules: Some(theirs.to_owned()), ..Others::default() });
        }
        own.send("two").expect("it is read");
        for receiver in &mut told {
            let agreed =
                tokio::time::timeout(SOON, receiver.wait_for(|others| *others == Others::default())).await;
            agreed.expect("in time").expect("it goes on");
        }
        // A store that is gone says nothing of the others.
        server.kill9().expect("it ends");
        for receiver in &mut told {
            let unheard = tokio::time::timeout(SOON, receiver.wait_for(|others| others.unheard)).await;
            unheard.expect("in time").expect("it goes on");
        }
        ending.cancel();
    }

    #[test]
    fn what_was_there_before_us_is_no_server_that_runs() {
        let minute = Duration::from_secs(60);
        let mut heard = Heard::default();
        assert_eq!(heard.of(Some("b".to_owned()), "a", minute), None, "it may be ourselves, before");
        assert_eq!(heard.of(Some("b".to_owned()), "a", minute).as_deref(), Some("b"));
        assert_eq!(heard.of(None, "a", minute).as_deref(), Some("b"), "others may have spoken since");
        assert_eq!(heard.of(None, "b", minute), None, "now they are ours");
        assert_eq!(heard.of(Some("c".to_owned()), "b", Duration::ZERO), None, "too long ago");
    }
}
