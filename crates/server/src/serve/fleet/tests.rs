//! The fleet on real stores.

use tollgate::core::SubjectHasher;
use tollgate::store::redis::RedisSettings;
use tollgate_testkit::redis::{Cluster, Flavour, SentinelSet, Server};

use super::*;

const SOON: Duration = Duration::from_secs(20);
const FAST: Duration = Duration::from_millis(200);

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
    fleet(store, hashers, namespace).joined().await
}

/// A server that has not joined, and that is faster than a real one.
fn fleet(store: &RedisStore, hashers: impl Into<SubjectHashers>, namespace: &str) -> Fleet {
    Fleet { every: FAST, ..Fleet::new(store, &hashers.into(), namespace).expect("a member") }
}

/// Compares until `ending`, and returns what it finds.
fn compares(fleet: Fleet, rules: &'static str, ending: &CancellationToken) -> watch::Receiver<Others> {
    let (others, receiver) = watch::channel(Others::default());
    tokio::spawn(fleet.compare(move || rules.to_owned(), others, |_| (), ending.clone()));
    receiver
}

async fn until(receiver: &mut watch::Receiver<Others>, condition: impl Fn(&Others) -> bool) -> Others {
    let found = timeout(SOON, receiver.wait_for(|others| condition(others))).await;
    found.expect("in time").expect("it goes on").clone()
}

/// How the others differ, without the list of them.
fn differences(others: &Others) -> Others {
    Others { servers: Vec::new(), ..others.clone() }
}

fn both(current: u8, previous: u8) -> SubjectHashers {
    SubjectHashers::rotating(key(current), key(previous)).expect("they differ")
}

#[tokio::test]
async fn a_server_joins_a_store_that_first_answers_after_the_deadline() {
    let server = Server::start(Flavour::Redis70).expect("a server starts");
    let settings = RedisSettings::url(&server.url()).expect("a URL").deadline(Duration::from_millis(25));
    let store = settings.connect().await.expect("the server answers");
    server.stop().expect("it stops");
    let (joined, ()) = tokio::join!(joins(&store, key(1), "shop"), async {
        sleep(Duration::from_millis(200)).await;
        server.resume().expect("it goes on");
    });
    joined.expect("a slow reply does not end a server");
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
        assert!(key.starts_with(b"tg:1:") && admin.pttl(&key).expect("a time") > 0, "every key has a TTL");
    }
}

#[tokio::test]
async fn a_fleet_changes_its_key_server_by_server() {
    let server = Server::start(Flavour::Redis70).expect("a server starts");
    let store = store(&server.url()).await;
    let first = joins(&store, key(1), "shop").await.expect("the old key");
    let second = joins(&store, key(1), "shop").await.expect("the old key");
    first.leave().await;
    let first = joins(&store, both(2, 1), "shop").await.expect("both keys");
    let third = joins(&store, key(1), "shop").await.expect("a server with the old key that starts late");
    joins(&store, key(2), "shop").await.err().expect("the new key alone, while most have only the old one");
    second.leave().await;
    third.leave().await;
    let second = joins(&store, both(2, 1), "shop").await.expect("both keys");
    first.leave().await;
    let first = joins(&store, key(2), "shop").await.expect("the new key alone");
    let third = joins(&store, both(2, 1), "shop").await.expect("a server that is late");
    second.leave().await;
    third.leave().await;
    let second = joins(&store, key(2), "shop").await.expect("the new key alone");
    joins(&store, key(1), "shop").await.err().expect("the old key is no longer in use");
    second.leave().await;
    first.leave().await;
    joins(&store, key(1), "shop").await.err().expect("nor after all servers have left");
    joins(&store, key(2), "shop").await.expect("the new key stays");
}

#[tokio::test]
async fn a_change_of_keys_does_not_wait_long_for_servers_that_were_killed() {
    let server = Server::start(Flavour::Redis70).expect("a server starts");
    let store = store(&server.url()).await;
    // None of them leaves.
    joins(&store, key(1), "shop").await.expect("the old key");
    joins(&store, both(2, 1), "shop").await.expect("both keys");
    joins(&store, key(2), "shop").await.expect("the new key alone, once the first server is dropped");
}

/// The store is emptied, and a server with a wrong key writes first.
#[tokio::test]
async fn running_servers_restore_their_hash_key_and_outvote_a_rogue_first_comer() {
    let server = Server::start(Flavour::Redis70).expect("a server starts");
    let store = store(&server.url()).await;
    let ending = CancellationToken::new();
    let mut right = Vec::new();
    for _ in 0..2 {
        let fleet = joins(&store, key(1), "shop").await.expect("the right key");
        right.push(compares(fleet, "rules", &ending));
    }
    server.admin().expect("a connection").flushall().expect("it is emptied");
    // This one does not wait for the others.
    let mut rogue = fleet(&store, key(2), "shop");
    let register = rogue.announce("rules", true).await.expect("it writes");
    rogue.joined_us = register.member(&rogue.id).expect("it is a member").joined_us;
    let mut rogue = compares(rogue, "rules", &ending);

    for right in &mut right {
        let found = until(right, |others| others.other_hash_key.is_some()).await;
        assert_eq!((found.other_hash_key, found.is_outvoted), (Some(key(2).fingerprint()), false));
        assert_eq!(right.borrow().to_json()["hash_key"], "differs");
    }
    // It sees the verdict of the register first, and the servers themselves when they announce themselves again.
    let found = until(&mut rogue, |others| others.is_outvoted && others.other_hash_key.is_some()).await;
    assert_eq!((found.other_hash_key, found.is_outvoted), (Some(key(1).fingerprint()), true));
    let deadline = Instant::now() + SOON;
    while !fleet(&store, key(1), "shop")
        .call(Mode::Read, "", false)
        .await
        .expect("a register")
        .knows(&[key(1).fingerprint()])
    {
        assert!(Instant::now() < deadline, "the hash key was not restored");
        sleep(FAST / 10).await;
    }
    joins(&store, key(1), "shop").await.expect("a right newcomer starts");
    joins(&store, key(2), "shop").await.err().expect("a wrong one does not");
    ending.cancel();
}

#[tokio::test]
async fn a_newcomer_to_an_emptied_store_waits_for_running_servers() {
    let server = Server::start(Flavour::Redis70).expect("a server starts");
    let store = store(&server.url()).await;
    let ending = CancellationToken::new();
    let mut right = compares(joins(&store, key(1), "shop").await.expect("the first"), "rules", &ending);
    for _ in 0..3 {
        server.admin().expect("a connection").flushall().expect("it is emptied");
        let error = joins(&store, key(2), "shop").await.err().expect("the running server is waited for");
        assert!(matches!(error, FleetError::OtherHashKey { .. }), "{error:?}");
    }
    server.admin().expect("a connection").flushall().expect("it is emptied");
    joins(&store, key(1), "shop").await.expect("a right newcomer");
    assert_eq!(differences(&right.borrow_and_update()), Others::default());
    ending.cancel();
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
        tokio::spawn(fleet.compare(move || each.borrow().to_string(), others, |_| (), ending.clone()));
        receivers.push(receiver);
    }
    for (receiver, theirs) in receivers.iter_mut().zip(["two", "one"]) {
        let heard =
            tokio::time::timeout(SOON, receiver.wait_for(|others| others.other_rules.is_some())).await;
        let heard = heard.expect("in time").expect("it goes on").clone();
        let expected = Others { other_rules: Some(theirs.to_owned()), ..Others::default() };
        assert_eq!(differences(&heard), expected);
        let found = |own: bool| heard.servers.iter().filter(|server| server.is_self == own).count();
        assert_eq!((found(true), found(false)), (1, 1), "{:?}", heard.servers);
    }
    own.send("two").expect("it is read");
    for receiver in &mut receivers {
        let agreed =
            tokio::time::timeout(SOON, receiver.wait_for(|others| differences(others) == Others::default()))
                .await;
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
