//! Compares the servers that share a store, through notes in it.
//!
//! With another hash key, a server would count the same clients again and grant every limit twice. It does not start. With
//! other rules, servers count differently, during a rollout or by mistake. They log a warning.

mod note;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tollgate::core::rules::RuleSet;
use tollgate::core::{StoreError, SubjectHashers};
use tollgate::store::redis::RedisStore;

use super::gate::Backed;
use super::observe::{Exposition, Kind};
use crate::failure::{Failure, error_chain};
use note::{FleetKey, Note};

/// How often servers exchange notes; at first more often.
const EVERY: Duration = Duration::from_secs(10);
const FIRST: Duration = Duration::from_millis(500);
/// After this many intervals without a note, a server counts as gone.
const TURNS: u32 = 3;
/// The fingerprint of the hash key is kept as long as the longest common quota, even while no server runs.
const HASH_KEY_TTL: Duration = Duration::from_secs(31 * 86_400);
/// The namespace of a rules file without one.
const NAMESPACE_DEFAULT: &str = "default";

/// This server as a member of a fleet.
#[derive(Clone)]
pub(crate) struct Fleet {
    store: RedisStore,
    hash_key: FleetKey,
    rules: FleetKey,
    /// The fingerprints of our hash keys, the current one first.
    fingerprints: Vec<String>,
    /// Identifies this server.
    id: u64,
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
    /// The fingerprint of other rules that a server used recently.
    pub(crate) other_rules: Option<String>,
    /// The fingerprints of the hash keys of a server that shares none with us.
    pub(crate) other_hash_key: Option<String>,
    /// Whether the last exchange failed, so that the rest may be out of date.
    pub(crate) unheard: bool,
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
        if self.other_hash_key != last.other_hash_key {
            match &self.other_hash_key {
                Some(theirs) => tracing::error!(
                    event = "other_hash_key",
                    theirs,
                    "a server on this store has another hash key; they count separately; give all servers the same key"
                ),
                None => tracing::info!(
                    event = "same_hash_key",
                    "the servers on this store share a hash key again"
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
            "1 while a server on the same store has other rules or another hash_key.",
        );
        family.sample(&[("what", "rules")], u8::from(self.other_rules.is_some()));
        family.sample(&[("what", "hash_key")], u8::from(self.other_hash_key.is_some()));
    }
}

/// Joins the fleet of the store; `None` if the store is not shared.
pub(crate) async fn of(limiter: &Backed) -> Result<Option<Fleet>, Failure> {
    let Backed::Redis(limiter) = limiter else { return Ok(None) };
    let namespace = limiter.with_rules(namespace);
    match Fleet::join(&limiter.store().store, limiter.hashers(), &namespace).await {
        Ok(fleet) => Ok(Some(fleet)),
        Err(error) => Err(Failure::of_store(error_chain(&error), error.hint())),
    }
}

/// The fingerprints of the hash keys that the servers on this store have noted; `None` if there is no note. For commands,
/// which must not write one: a command with a wrong key could otherwise lock the servers out.
pub(crate) async fn noted_hash_keys(
    store: &RedisStore,
    namespace: &str,
) -> Result<Option<String>, StoreError> {
    let Ok(key) = FleetKey::new(namespace, "hash-key") else { return Ok(None) };
    store.eval_on_key_owner("return redis.call('GET', KEYS[1])", &key.to_string(), &[]).await
}

/// The namespace of the rules.
pub(crate) fn namespace(rules: &RuleSet) -> String {
    rules.rules().first().map_or(NAMESPACE_DEFAULT, |rule| rule.keyspace.namespace()).to_owned()
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
        let key = |name| FleetKey::new(namespace, name).map_err(|_| FleetError::Namespace);
        let fleet = Fleet {
            store: store.clone(),
            hash_key: key("hash-key")?,
            rules: key("rules")?,
            fingerprints: hashers.iter().map(|hasher| hasher.fingerprint()).collect(),
            id: getrandom::u64().map_err(FleetError::Random)?,
            every: EVERY,
        };
        match fleet.other_hash_key().await? {
            None => Ok(fleet),
            Some(theirs) => {
                let key = store.prefixed(&fleet.hash_key.to_string());
                Err(FleetError::OtherHashKey { ours: fleet.fingerprints.join(" "), theirs, key })
            }
        }
    }

    /// Exchanges notes with the other servers until shutdown, and logs differences. `rules` returns the fingerprint of the
    /// rules in force.
    pub(crate) async fn compare(
        self,
        rules: impl Fn() -> String + Send,
        others: watch::Sender<Others>,
        ending: CancellationToken,
    ) {
        let (mut seen, mut pause) = (SeenRules::default(), FIRST.min(self.every));
        loop {
            let in_force = rules();
            let found = tokio::select! {
                () = ending.cancelled() => return,
                found = self.exchange_notes(&in_force, &mut seen) => found,
            };
            others.send_if_modified(|last| {
                let now = found.unwrap_or_else(|_| Others { unheard: true, ..last.clone() });
                let changed = *last != now;
                if changed {
                    now.log(last);
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

    async fn exchange_notes(&self, rules: &str, seen: &mut SeenRules) -> Result<Others, StoreError> {
        let other_hash_key = self.other_hash_key().await?;
        let text = format!("{rules} {:016x}", self.id);
        let ttl = self.every * TURNS;
        let note = Note { key: &self.rules, text: &text, ttl, ours: &[] };
        let found = note.exchange(&self.store).await?;
        let theirs = found.and_then(|found| {
            let (theirs, id) = found.split_once(' ')?;
            (id != format!("{:016x}", self.id)).then(|| theirs.to_owned())
        });
        Ok(Others { other_rules: seen.update(theirs, rules, ttl), other_hash_key, unheard: false })
    }

    /// The hash keys of the other servers, if none of them is ours. If one is, the TTL of our note is renewed.
    async fn other_hash_key(&self) -> Result<Option<String>, StoreError> {
        let text = self.fingerprints.join(" ");
        let note = Note { key: &self.hash_key, text: &text, ttl: HASH_KEY_TTL, ours: &self.fingerprints };
        let found = note.exchange(&self.store).await?;
        Ok(found.filter(|found| !self.fingerprints.iter().any(|ours| found.contains(ours.as_str()))))
    }
}

/// Other rules that were found in notes.
#[derive(Default)]
struct SeenRules {
    /// Whether this server has written a note. An earlier note may be from a server that is gone, or from this server before
    /// its restart. A later one is from a server that runs.
    has_written: bool,
    last: Option<(String, Instant)>,
}

impl SeenRules {
    /// Records `theirs`, and returns the other rules of the recent past.
    fn update(&mut self, theirs: Option<String>, ours: &str, recent: Duration) -> Option<String> {
        if let Some(theirs) = theirs.filter(|theirs| self.has_written && theirs != ours) {
            self.last = Some((theirs, Instant::now()));
        }
        self.has_written = true;
        self.last.take_if(|(theirs, at)| theirs == ours || at.elapsed() > recent);
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
    async fn a_server_with_another_hash_key_does_not_join_on_any_store() {
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
            // A server that was refused has not changed the note.
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
            assert!(
                key.starts_with(b"tg:1:") && admin.pttl(&key).expect("a time") > 0,
                "every key has a TTL"
            );
        }
    }

    #[tokio::test]
    async fn a_fleet_changes_its_key_server_by_server() {
        let server = Server::start(Flavour::Redis70).expect("a server starts");
        let store = store(&server.url()).await;
        joins(&store, key(1), "shop").await.expect("the old key");
        joins(&store, both(2, 1), "shop").await.expect("both keys");
        joins(&store, key(1), "shop").await.expect("a restarted server with the old key");
        joins(&store, key(2), "shop")
            .await
            .err()
            .expect("the new key alone, while another has only the old one");
        joins(&store, both(2, 1), "shop").await.expect("both keys again");
        joins(&store, key(2), "shop").await.expect("the new key alone");
        joins(&store, both(2, 1), "shop").await.expect("a server that is late");
        joins(&store, key(2), "shop").await.expect("the new key alone");
        joins(&store, key(1), "shop").await.err().expect("the old key is no longer in use");
    }

    #[tokio::test]
    async fn other_rules_are_reported_while_a_server_has_them() {
        let mut server = Server::start(Flavour::Redis70).expect("a server starts");
        let store = store(&server.url()).await;
        let ending = CancellationToken::new();
        let mut receivers = Vec::new();
        let (own, rules) = watch::channel("one");
        for each in [rules, watch::channel("two").1] {
            let fleet = Fleet {
                every: Duration::from_millis(40),
                ..joins(&store, key(1), "shop").await.expect("the same key")
            };
            let (others, receiver) = watch::channel(Others::default());
            tokio::spawn(fleet.compare(move || each.borrow().to_string(), others, ending.clone()));
            receivers.push(receiver);
        }
        for (receiver, theirs) in receivers.iter_mut().zip(["two", "one"]) {
            let heard =
                tokio::time::timeout(SOON, receiver.wait_for(|others| others.other_rules.is_some())).await;
            let heard = heard.expect("in time").expect("it goes on").clone();
            assert_eq!(heard, Others { other_rules: Some(theirs.to_owned()), ..Others::default() });
        }
        own.send("two").expect("it is read");
        for receiver in &mut receivers {
            let agreed =
                tokio::time::timeout(SOON, receiver.wait_for(|others| *others == Others::default())).await;
            agreed.expect("in time").expect("it goes on");
        }
        // Without a store, nothing is known of the others.
        server.kill9().expect("it ends");
        for receiver in &mut receivers {
            let unheard = tokio::time::timeout(SOON, receiver.wait_for(|others| others.unheard)).await;
            unheard.expect("in time").expect("it goes on");
        }
        ending.cancel();
    }

    #[test]
    fn a_note_from_before_our_first_is_ignored() {
        let minute = Duration::from_secs(60);
        let mut seen = SeenRules::default();
        assert_eq!(
            seen.update(Some("b".to_owned()), "a", minute),
            None,
            "it may be this server before a restart"
        );
        assert_eq!(seen.update(Some("b".to_owned()), "a", minute).as_deref(), Some("b"));
        assert_eq!(seen.update(None, "a", minute).as_deref(), Some("b"), "it was seen recently");
        assert_eq!(seen.update(None, "b", minute), None, "now the rules are equal");
        assert_eq!(seen.update(Some("c".to_owned()), "b", Duration::ZERO), None, "not recently");
    }
}
