//! Sets with sentinels, and clusters: they start, lose a node, promote another, move slots and are partitioned on command,
//! and leave nothing behind.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tollgate_testkit::redis::{
    Admin, AdminError, Cluster, Cut, Error, Flavour, SLOTS, SentinelBuilder, SentinelSet, Server, Value,
    slot_of,
};

const SHORT: Duration = Duration::from_millis(200);
const HOUR: Duration = Duration::from_hours(1);
/// Deadline of a promotion. Far more than it takes, for a busy machine.
const PROMOTION_MAX: Duration = Duration::from_secs(20);
/// Deadline of a start.
const START_MAX: Duration = Duration::from_secs(20);

/// Runs cases in parallel, because they mostly wait.
fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, test: impl Fn(T) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || test(case));
        }
    });
}

fn start(builder: SentinelBuilder) -> SentinelSet {
    let begin = Instant::now();
    let set = builder.start().unwrap_or_else(|error| panic!("{error}"));
    assert!(begin.elapsed() < START_MAX, "{:?}", begin.elapsed());
    println!("{}: a set starts in {:?}", set.node(0).flavour(), begin.elapsed());
    set
}

fn start_cluster(flavour: Flavour) -> Cluster {
    let begin = Instant::now();
    let cluster = Cluster::start(flavour).unwrap_or_else(|error| panic!("{error}"));
    assert!(begin.elapsed() < START_MAX, "{:?}", begin.elapsed());
    println!("{flavour}: a cluster starts in {:?}", begin.elapsed());
    cluster
}

fn text(text: &str) -> Value {
    Value::Bulk(text.into())
}

fn ask(server: &Server, command: &[&str]) -> Result<Value, AdminError> {
    ask_admin(&mut server.admin()?, command)
}

fn ask_admin(admin: &mut Admin, command: &[&str]) -> Result<Value, AdminError> {
    let command: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
    admin.command(&command)
}

fn role(server: &Server) -> String {
    let info = server.admin().and_then(|mut admin| admin.info("replication")).expect("it answers");
    info["role"].trim().to_owned()
}

/// Returns the words of an error reply.
fn refusal(answer: Result<Value, AdminError>) -> Vec<String> {
    match answer {
        Err(AdminError::Refused(text)) => text.split_whitespace().map(str::to_owned).collect(),
        answer => panic!("not refused: {answer:?}"),
    }
}

/// What must not exist any more after servers are dropped.
struct Traces(Vec<(PathBuf, PathBuf, u16)>);

impl Traces {
    fn of<'a>(servers: impl IntoIterator<Item = &'a Server>) -> Traces {
        let trace = |server: &Server| {
            let process = Path::new("/proc").join(server.process_id().expect("it runs").to_string());
            (process, server.folder().to_path_buf(), server.port())
        };
        Traces(servers.into_iter().map(trace).collect())
    }

    fn count(&self) -> usize {
        let is_there = |(process, folder, port): &&(PathBuf, PathBuf, u16)| {
            process.exists() || folder.exists() || TcpStream::connect(("127.0.0.1", *port)).is_ok()
        };
        self.0.iter().filter(is_there).count()
    }
}

#[test]
fn a_set_starts_and_fails_over_on_every_flavour() {
    at_once(Flavour::ALL, |flavour| {
        let set = start(SentinelSet::builder(flavour));
        let ports: Vec<String> =
            set.sentinel_ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
        assert_eq!(set.url(), format!("redis+sentinel://{}/gate", ports.join(",")));
        assert_eq!((set.name(), set.count(), ports.len()), ("gate", 2, 3));
        assert_eq!(set.primary().expect("there is one").port(), set.node(0).port());
        assert_eq!(set.replica().expect("there is one").port(), set.node(1).port());
        ask(set.node(0), &["SET", "a", "1"]).expect("the primary takes writes");
        set.wait_replicas_in_sync().expect("it follows");
        assert_eq!(ask(set.node(1), &["GET", "a"]).expect("it answers"), text("1"), "{flavour}");
        assert_eq!(refusal(ask(set.node(1), &["SET", "a", "2"]))[0], "READONLY");

        let begin = Instant::now();
        let promotion = set.failover().expect("the other is promoted");
        println!("{flavour}: SENTINEL FAILOVER promotes in {:?}", promotion.at - begin);
        assert_eq!(promotion.node, 1);
        let announced = set.wait_announced(1, PROMOTION_MAX).expect("all sentinels agree");
        println!("{flavour}: sentinels announce it after {:?}", announced - promotion.at);
        assert_eq!(set.primary_index().expect("there is one"), 1);
        ask(set.node(1), &["SET", "a", "2"]).expect("the new primary takes writes");
        if flavour == Flavour::Redis62 {
            // Its sentinels demote the old primary only after twenty seconds, which cannot be configured.
            return;
        }
        set.wait_settled().expect("the old one becomes a replica");
        println!("{flavour}: settled again in {:?}", begin.elapsed());
        assert_eq!(set.primary_index().expect("there is one"), 1);
        assert_eq!([role(set.node(0)), role(set.node(1))], ["slave", "master"], "{flavour}");
        set.wait_replicas_in_sync().expect("it follows");
        assert_eq!(ask(set.node(0), &["GET", "a"]).expect("it answers"), text("2"), "{flavour}");
    });
}

#[test]
fn a_killed_primary_is_replaced_and_comes_back_as_a_replica() {
    // Redis 6.2 takes too long to demote an old primary.
    at_once([Flavour::Redis70, Flavour::Valkey9], |flavour| {
        let mut set = start(SentinelSet::builder(flavour).replicas(2));
        // Enough data that replication takes a while.
        let fill =
            "for i = 1, 200 do redis.call('SET', i, string.rep('x', 100000)) end redis.call('SET', 'a', 1)";
        ask(set.node(0), &["EVAL", fill, "0"]).expect("the primary takes writes");
        set.wait_replicas_in_sync().expect("they follow");
        for replica in [1, 2] {
            assert_eq!(ask(set.node(replica), &["DBSIZE"]).expect("it answers"), Value::Integer(201));
        }
        let early = set.wait_promoted(0, SHORT).expect_err("nothing is wrong yet");
        assert!(matches!(early, Error::Late { .. }), "{early}");

        let begin = Instant::now();
        assert_eq!(set.kill9_primary().expect("it can be killed"), 0);
        let promotion = set.wait_promoted(0, PROMOTION_MAX).expect("one of the others");
        println!("{flavour}: a killed primary has a successor in {:?}", promotion.at - begin);
        assert!(promotion.at > begin && [1, 2].contains(&promotion.node), "{promotion:?}");
        assert_eq!(ask(set.node(promotion.node), &["GET", "a"]).expect("it answers"), text("1"));

        set.restart(0).expect("it starts again");
        assert_eq!(role(set.node(0)), "master", "it has not been demoted yet");
        set.wait_settled().expect("all is well");
        assert_eq!(role(set.node(0)), "slave");
        assert_eq!(set.primary_index().expect("there is one"), promotion.node);
        set.wait_replicas_in_sync().expect("they follow");
        assert_eq!(ask(set.node(0), &["GET", "a"]).expect("it answers"), text("1"));

        set.restart(0).expect("it starts again");
        assert_eq!(role(set.node(0)), "slave", "it keeps its last role");
    });
}

#[test]
fn a_stopped_primary_is_replaced_and_demoted_when_it_resumes() {
    let set = start(SentinelSet::builder(Flavour::Redis70));
    let begin = Instant::now();
    assert_eq!(set.stop_primary().expect("it can be stopped"), 0);
    let promotion = set.wait_promoted(0, PROMOTION_MAX).expect("the other one");
    println!("a stopped primary has a successor in {:?}", promotion.at - begin);
    assert_eq!(promotion.node, 1);
    set.resume(0).expect("it can go on");
    set.wait_settled().expect("all is well");
    assert_eq!([role(set.node(0)), role(set.node(1))], ["slave", "master"]);
}

#[test]
fn two_of_three_sentinels_are_enough_for_a_failover() {
    let mut set = start(SentinelSet::builder(Flavour::Redis70));
    set.kill9_sentinel(0).expect("it can be killed");
    set.kill9_primary().expect("it can be killed");
    assert_eq!(set.wait_promoted(0, PROMOTION_MAX).expect("the other one").node, 1);
    set.restart_sentinel(0).expect("it starts again");
    set.restart(0).expect("it starts again");
    set.wait_settled().expect("all is well");
    assert_eq!(set.primary_index().expect("there is one"), 1);
}

#[test]
fn nodes_and_sentinels_have_separate_passwords() {
    let builder = || SentinelSet::builder(Flavour::Redis70).password("secret");
    let cases = [
        (builder().sentinel_password("hush"), None, "?sentinel_password=hush"),
        (
            builder().sentinel_user("guard", "hush"),
            Some("guard"),
            "?sentinel_user=guard&sentinel_password=hush",
        ),
    ];
    at_once(cases, |(builder, user, query)| {
        let set = start(builder);
        let url = set.url();
        assert!(url.starts_with("redis+sentinel://:secret@127.0.0.1:"), "{url}");
        assert!(url.ends_with(&format!("/gate{query}")), "{url}");
        let port = set.sentinel_ports()[0];
        let mut client = Admin::connect(port, None).expect("anyone can connect");
        let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "gate"];
        assert_eq!(refusal(ask_admin(&mut client, &question))[0], "NOAUTH");
        if user.is_some() {
            assert_eq!(refusal(ask_admin(&mut client, &["AUTH", "hush"]))[0], "WRONGPASS");
        }
        let login: Vec<&str> = ["AUTH"].into_iter().chain(user).chain(["hush"]).collect();
        ask_admin(&mut client, &login).expect("it is the password");
        let announced = ask_admin(&mut client, &question).expect("it answers");
        let node_port = set.node_port(0);
        assert_eq!(announced, Value::Array(vec![text("127.0.0.1"), text(&node_port.to_string())]));
        let mut client = Admin::connect(node_port, None).expect("anyone can connect");
        assert_eq!(refusal(ask_admin(&mut client, &["GET", "a"]))[0], "NOAUTH");
        assert_eq!(set.failover().expect("sentinels know all passwords").node, 1);
        set.wait_settled().expect("replicas know the password");
    });
}

fn over_tls(port: u16, authority: &Path, command: &[&str]) -> String {
    let output = Command::new("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "--tls", "--cacert"])
        .arg(authority)
        .args(command)
        .output()
        .expect("redis-cli comes with the server");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the address of the primary according to a sentinel.
fn announced(set: &SentinelSet, sentinel: usize) -> String {
    let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "gate"];
    let authority = set.certificates().expect("there is TLS").authority();
    over_tls(set.sentinel_ports()[sentinel], authority, &question)
}

#[test]
fn with_tls_sentinels_announce_the_tls_ports() {
    let set = start(SentinelSet::builder(Flavour::Redis70).tls_nodes().tls_sentinels());
    assert!(set.url().starts_with("rediss+sentinel://127.0.0.1:"), "{}", set.url());
    assert!(set.url().contains("sentinel_tls=yes&sentinel_ca="), "{}", set.url());
    let port = set.node(0).tls_port().expect("there is TLS");
    assert_eq!(set.node_port(0), port);
    for sentinel in 0..3 {
        assert_eq!(announced(&set, sentinel), format!("127.0.0.1\n{port}\n"));
    }
    let authority = set.certificates().expect("there is TLS").authority();
    assert_eq!(over_tls(port, authority, &["PING"]), "PONG\n");
    assert_eq!(set.failover().expect("the other is promoted").node, 1);
    set.wait_settled().expect("all is well");
    let port = set.node(1).tls_port().expect("there is TLS");
    assert_eq!(announced(&set, 2), format!("127.0.0.1\n{port}\n"));
}

#[test]
fn only_nodes_or_only_sentinels_can_have_tls() {
    let set = start(SentinelSet::builder(Flavour::Redis70).tls_sentinels());
    assert!(set.url().starts_with("redis+sentinel://127.0.0.1:"), "{}", set.url());
    assert!(set.url().contains("sentinel_tls=yes&sentinel_ca="), "{}", set.url());
    assert_eq!(announced(&set, 0), format!("127.0.0.1\n{}\n", set.node(0).port()));
    assert_eq!(set.node(0).tls_port(), None);

    let set = start(SentinelSet::builder(Flavour::Redis70).tls_nodes());
    assert!(
        set.url().starts_with("rediss+sentinel://") && set.url().ends_with("sentinel_tls=no"),
        "{}",
        set.url()
    );
    assert_eq!(set.sentinel_ports()[0], set.sentinel(0).port());
    let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "gate"];
    let announced = ask(set.sentinel(0), &question).expect("it is asked without TLS");
    let port = set.node(0).tls_port().expect("there is TLS").to_string();
    assert_eq!(announced, Value::Array(vec![text("127.0.0.1"), text(&port)]));

    let missing = SentinelSet::builder(Flavour::Valkey9).tls_nodes().start().expect_err("it has no TLS");
    assert!(matches!(missing, Error::NoTls { .. }), "{missing}");
}

/// Sends PING through the port for clients.
fn ping(port: u16) -> Result<Value, AdminError> {
    Admin::connect_within(port, None, SHORT).and_then(|mut admin| admin.command(&[b"PING"]))
}

/// A silent cut leads to a timeout, the other to an immediate error.
fn assert_lost(answer: Result<Value, AdminError>, cut: Cut) {
    let error = answer.expect_err("no answer");
    assert_eq!(error.is_timeout(), cut == Cut::Silent, "{error}: {error:?}");
}

#[test]
fn a_primary_that_is_cut_off_is_replaced_and_demoted_when_it_is_back() {
    at_once([Cut::Silent, Cut::Refused], |cut| {
        let set = start(SentinelSet::builder(Flavour::Redis70).proxied());
        assert_ne!(set.node_port(0), set.node(0).port());
        ping(set.node_port(0)).expect("it is reached");
        set.partition(0, cut).expect("it can be cut off");
        assert_lost(ping(set.node_port(0)), cut);
        assert_eq!(set.wait_promoted(0, PROMOTION_MAX).expect("the other one").node, 1);
        assert_eq!(role(set.node(0)), "master", "it does not know");
        set.heal(0).expect("it is back");
        set.wait_settled().expect("all is well");
        assert_eq!([role(set.node(0)), role(set.node(1))], ["slave", "master"]);
        ping(set.node_port(0)).expect("it is reached");
    });
    let set = start(SentinelSet::builder(Flavour::Redis70));
    assert!(matches!(set.partition(0, Cut::Silent), Err(Error::NoProxy)));
}

#[test]
fn dropped_topologies_leave_nothing_behind() {
    let set = start(SentinelSet::builder(Flavour::Redis70));
    let traces = Traces::of([0, 1].map(|node| set.node(node)));
    let sentinels = Traces::of([0, 1, 2].map(|sentinel| set.sentinel(sentinel)));
    assert_eq!((traces.count(), sentinels.count()), (2, 3));
    set.stop_primary().expect("it can be stopped");
    drop(set);
    assert_eq!((traces.count(), sentinels.count()), (0, 0));

    let cluster = start_cluster(Flavour::Redis70);
    let traces = Traces::of((0..cluster.count()).map(|node| cluster.node(node)));
    assert_eq!(traces.count(), 6);
    cluster.stop(4).expect("it can be stopped");
    drop(cluster);
    assert_eq!(traces.count(), 0);
}

/// Returns a different key for each number, all in the slot of `tag`.
fn tagged(tag: &str, number: usize) -> String {
    format!("tg:{{{tag}}}:{number}")
}

/// Fills the slot with keys that expire at different times.
fn fill(cluster: &Cluster, tag: &str, keys: usize) -> u16 {
    let slot = slot_of(tag.as_bytes());
    let owner = cluster.owner(slot).expect("it has one");
    let mut admin = cluster.admin(owner).expect("it accepts");
    for number in 0..keys {
        let ttl_ms = (1_000_000 + 1_000 * number).to_string();
        ask_admin(&mut admin, &["SET", &tagged(tag, number), &number.to_string(), "PX", &ttl_ms])
            .expect("the owner takes writes");
    }
    slot
}

fn assert_filled(cluster: &Cluster, node: usize, tag: &str, keys: usize) {
    let mut admin = cluster.admin(node).expect("it accepts");
    for number in 0..keys {
        let key = tagged(tag, number);
        assert_eq!(ask_admin(&mut admin, &["GET", &key]).expect("it is there"), text(&number.to_string()));
        let ttl_max_ms = 1_000_000 + 1_000 * number as i64;
        let ttl_ms = admin.pttl(key.as_bytes()).expect("it answers");
        assert!((ttl_max_ms - 60_000..=ttl_max_ms).contains(&ttl_ms), "{key}: {ttl_ms}");
    }
}

/// Checks that every slot has its expected owner.
fn assert_owned(cluster: &Cluster) {
    let owners: Vec<usize> =
        (0..SLOTS).step_by(331).map(|slot| cluster.owner(slot).expect("it has one")).collect();
    assert_eq!(BTreeSet::from_iter(&owners).len(), 3);
    assert!(owners.is_sorted(), "{owners:?}");
    let ends = [0, 5_460, 5_461, 10_921, 10_922, 16_383].map(|slot| cluster.owner(slot).expect("it has one"));
    assert_eq!(ends, [0, 0, 1, 1, 2, 2]);
}

/// Checks that the server computes the same slots for keys with many braces.
fn assert_slots_agree(cluster: &Cluster) {
    let mut admin = cluster.admin(0).expect("it accepts");
    let pieces: [&[u8]; 9] = [b"{", b"}", b"a", b"tg:", b"{}", b"\x00\xff", b"\r\n", b"", b"123456789"];
    let mut seed = 7_u64;
    for _ in 0..2_000 {
        let mut key = Vec::new();
        for _ in 0..6 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            key.extend_from_slice(pieces[(seed >> 33) as usize % pieces.len()]);
        }
        let slot = admin.command(&[b"CLUSTER", b"KEYSLOT", &key]).expect("it answers");
        assert_eq!(slot, Value::Integer(slot_of(&key).into()), "{}", key.escape_ascii());
    }
}

#[test]
fn a_cluster_starts_and_moves_a_slot_on_every_flavour() {
    const KEYS: usize = 250;
    at_once(Flavour::ALL, |flavour| {
        let cluster = start_cluster(flavour);
        let ports: Vec<String> =
            (0..6).map(|node| format!("127.0.0.1:{}", cluster.node(node).port())).collect();
        assert_eq!(cluster.url(), format!("redis+cluster://{}", ports.join(",")));
        assert_eq!(cluster.primaries(), [0, 1, 2]);
        assert_eq!([0, 1, 2].map(|primary| cluster.replica_of(primary).expect("it has one")), [3, 4, 5]);
        assert_owned(&cluster);
        assert_slots_agree(&cluster);

        let slot = fill(&cluster, "alice", KEYS);
        let from = cluster.owner(slot).expect("it has one");
        let to = (from + 1) % 3;
        let begin = Instant::now();
        cluster.move_slot(slot, to).expect("it can be moved");
        println!("{flavour}: a slot of {KEYS} keys is moved in {:?}", begin.elapsed());
        assert_eq!(cluster.owner(slot).expect("it has one"), to);
        assert_filled(&cluster, to, "alice", KEYS);
        let moved = ["MOVED".to_owned(), slot.to_string(), format!("127.0.0.1:{}", cluster.node_port(to))];
        assert_eq!(refusal(ask(cluster.node(from), &["GET", &tagged("alice", 0)])), moved);
        cluster.wait_settled().expect("all nodes know it");
        println!("{flavour}: known to all in {:?}", begin.elapsed());
        assert_eq!(cluster.no_orphans("tg:", HOUR, &["bob"]), Ok(KEYS));
        let found = cluster.no_orphans("tg:", HOUR, &["alice"]).expect_err("it is in their names");
        assert!(found.starts_with(&format!("node {to}: ")), "{found}");
    });
}

#[test]
fn a_half_moved_slot_redirects_moved_keys_with_ask() {
    let cluster = start_cluster(Flavour::Redis70);
    let slot = fill(&cluster, "bob", 10);
    let from = cluster.owner(slot).expect("it has one");
    let to = (from + 2) % 3;
    let slot_move = cluster.begin_move(slot, to).expect("it begins");
    assert_eq!((slot_move.from(), slot_move.to()), (from, to));
    assert_filled(&cluster, from, "bob", 10);
    let ask_other = ["ASK".to_owned(), slot.to_string(), format!("127.0.0.1:{}", cluster.node_port(to))];
    let absent = tagged("bob", 99);
    assert_eq!(refusal(ask(cluster.node(from), &["GET", &absent])), ask_other);
    assert_eq!(refusal(ask(cluster.node(to), &["GET", &absent]))[0], "MOVED");
    let mut admin = cluster.admin(to).expect("it accepts");
    ask_admin(&mut admin, &["ASKING"]).expect("it answers");
    assert_eq!(ask_admin(&mut admin, &["GET", &absent]).expect("it answers"), Value::Nil);

    assert_eq!(slot_move.migrate(4).expect("some keys leave"), 4);
    let gone = |number| {
        let answer = ask(cluster.node(from), &["GET", &tagged("bob", number)]);
        answer.map_err(|error| assert!(error.to_string().contains("ASK"), "{error}")).is_err()
    };
    assert_eq!((0..10).filter(|&number| gone(number)).count(), 4);
    assert_eq!(cluster.owner(slot).expect("it has one"), from);
    assert_eq!(slot_move.migrate(100).expect("the others leave"), 6);
    assert_eq!(slot_move.migrate(100).expect("it answers"), 0);
    slot_move.finish().expect("it ends");
    assert_eq!(cluster.owner(slot).expect("it has one"), to);
    assert_filled(&cluster, to, "bob", 10);
    cluster.wait_settled().expect("all nodes know it");
}

#[test]
fn a_killed_primary_of_a_cluster_is_replaced_and_rejoins() {
    let mut cluster = start_cluster(Flavour::Redis70);
    let heir = cluster.replica_of(1).expect("it has one");
    let begin = Instant::now();
    cluster.kill9(1).expect("it can be killed");
    assert!(matches!(cluster.wait_promoted(heir, SHORT), Err(Error::Late { .. })));
    assert_eq!(cluster.replica_of(1).expect("it still has one"), heir);
    let promotion = cluster.wait_promoted(heir, PROMOTION_MAX).expect("it takes over");
    println!("a killed primary of a cluster has a successor in {:?}", promotion.at - begin);
    assert_eq!(cluster.owner(8_000).expect("it has one"), heir);
    cluster.restart(1).expect("it starts again");
    cluster.wait_settled().expect("all is well");
    println!("it is a replica in {:?}", begin.elapsed());
    assert_eq!(cluster.replica_of(heir).expect("it has one"), 1);
    assert_eq!((cluster.owner(8_000).expect("it has one"), cluster.primaries()), (heir, vec![0, 2, heir]));
}

#[test]
fn a_cluster_with_a_password_fails_over_and_moves_slots() {
    let builder = Cluster::builder(Flavour::Redis70).password("secret").require_full_coverage();
    let cluster = builder.start().unwrap_or_else(|error| panic!("{error}"));
    assert!(cluster.url().starts_with("redis+cluster://:secret@127.0.0.1:"), "{}", cluster.url());
    let mut client = Admin::connect(cluster.node_port(0), None).expect("anyone can connect");
    assert_eq!(refusal(ask_admin(&mut client, &["GET", "a"]))[0], "NOAUTH");

    let begin = Instant::now();
    let promotion = cluster.failover(3).expect("it takes over");
    println!("CLUSTER FAILOVER promotes in {:?}, known in {:?}", promotion.at - begin, begin.elapsed());
    assert_eq!((promotion.node, cluster.owner(0).expect("it has one")), (3, 3));
    cluster.wait_settled().expect("all is well");
    assert_eq!(cluster.replica_of(3).expect("it has one"), 0);

    let slot = fill(&cluster, "carol", 10);
    let to = cluster.primaries().into_iter().find(|&node| Some(node) != cluster.owner(slot).ok());
    let to = to.expect("there are three");
    cluster.move_slot(slot, to).expect("it can be moved");
    assert_filled(&cluster, to, "carol", 10);
}

#[test]
fn a_frozen_primary_of_a_cluster_is_replaced() {
    let timeout = Duration::from_millis(500);
    let cluster = Cluster::builder(Flavour::Redis70).node_timeout(timeout).start();
    let cluster = cluster.unwrap_or_else(|error| panic!("{error}"));
    let begin = Instant::now();
    cluster.stop(2).expect("it can be stopped");
    let promotion = cluster.wait_promoted(5, PROMOTION_MAX).expect("it takes over");
    println!("a frozen primary of a cluster has a successor in {:?}", promotion.at - begin);
    assert_eq!(cluster.owner(16_383).expect("it has one"), 5);
    cluster.resume(2).expect("it can go on");
    cluster.wait_settled().expect("all is well");
    assert_eq!(cluster.replica_of(5).expect("it has one"), 2);
}

#[test]
fn a_node_of_a_cluster_can_be_cut_off_from_its_clients() {
    at_once(Flavour::ALL, |flavour| {
        let cluster = Cluster::builder(flavour).proxied().start();
        let cluster = cluster.unwrap_or_else(|error| panic!("{error}"));
        let port = cluster.node_port(0);
        assert_ne!(port, cluster.node(0).port());
        assert_eq!(cluster.node_on(port), Some(0));
        let moved = refusal(ask(cluster.node(1), &["GET", "{bar}"]));
        let owner = cluster.owner(slot_of(b"bar")).expect("it has one");
        assert_eq!(moved[2], format!("127.0.0.1:{}", cluster.node_port(owner)), "{flavour}");
        for (cut, key) in [(Cut::Silent, "{bar}1"), (Cut::Refused, "{bar}2")] {
            let mut client = Admin::connect_within(port, None, SHORT).expect("it is reached");
            ask_admin(&mut client, &["SET", "{bar}", "1"]).expect("it answers");
            cluster.partition(0, cut).expect("it can be cut off");
            assert_lost(client.command(&[b"PING"]), cut);
            assert_lost(ping(port), cut);
            ping(cluster.node_port(1)).expect("the others are reached");
            ask(cluster.node(0), &["SET", key, "1"]).expect("it is well itself");
            cluster.heal(0).expect("it is back");
            cluster.wait_replicas_in_sync().expect("its replica is back too");
            let mut replica = cluster.admin(3).expect("it accepts");
            replica.command(&[b"READONLY"]).expect("it answers");
            assert_eq!(ask_admin(&mut replica, &["GET", key]).expect("it answers"), text("1"), "{flavour}");
        }
        ping(port).expect("it is reached");
        cluster.wait_settled().expect("all is well");
        assert_eq!(cluster.primaries(), [0, 1, 2], "no failover happened");
    });
}
