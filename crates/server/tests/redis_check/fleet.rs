//! Runs `tollgate check --store` against sentinel sets and clusters.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tollgate_testkit::redis::{Cluster, Flavour, SentinelSet};

use crate::run::{KEY, Run, check, check_by, decisions, fill};

/// Longer than needed, for a busy machine.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(20);
const PASSWORD: &str = "TOLLGATE_STORE_PASSWORD";
const SENTINEL_PASSWORD: &str = "TOLLGATE_STORE_SENTINEL_PASSWORD";
/// Two subjects, so two hash slots.
const TWO_SLOTS: &str = "version: 1
rules:
  - { id: by-user, per: user, missing: refuse, limit: { fixed-window: 3/365d } }
  - { id: by-ip, per: ip, missing: refuse, limit: { fixed-window: 9/365d } }
";

/// Creates a folder next to the first server of a set or cluster.
fn folder(first: &Path) -> PathBuf {
    let folder = fill(first);
    std::fs::write(folder.join("two-slots.yaml"), TWO_SLOTS).expect("a file can be written");
    folder
}

fn check_json(folder: &Path, variables: &[(&str, &str)], url: &str, args: &[&str]) -> Run {
    let common = ["--store", url, "--hash-key-file", "key", "--format", "json"];
    check(folder, variables, &[&common[..], args, &["user=u"]].concat())
}

/// Checks that the store decided, and what remains after each check.
fn assert_remaining(run: &Run, remaining: &[u64]) {
    assert_eq!(run.stderr, "");
    let found: Vec<Option<u64>> =
        decisions(run).iter().map(|decision| decision["remaining"].as_u64()).collect();
    assert_eq!(found, remaining.iter().map(|&number| Some(number)).collect::<Vec<_>>());
    assert!(decisions(run).iter().all(|decision| decision["source"] == "store"));
}

/// Checks that the command failed with this cause and hint, and printed no secret.
fn assert_failed(run: &Run, code: i32, cause: &str, hint: &str) {
    assert_eq!((run.code, run.stdout.as_str()), (Some(code), ""), "{}", run.stderr);
    let (error, hinted) = run.stderr.split_once("\n\nhint: ").expect("an error and a hint");
    assert!(error.contains(cause) && hinted.contains(hint), "{cause}, {hint}: {}", run.stderr);
    for secret in ["s3cr3t", "wr0ng", "n0des"] {
        assert!(!run.stderr.contains(secret), "{}", run.stderr);
    }
}

#[test]
fn processes_share_charges_behind_sentinels_and_after_a_failover() {
    for flavour in Flavour::ALL {
        let set = SentinelSet::start(flavour).expect("a set starts");
        let (folder, url) = (folder(set.node(0).folder()), set.url());
        assert_remaining(&check_json(&folder, &[], &url, &[]), &[2]);
        // One sentinel is enough to find the primary.
        let hosts = format!("redis+sentinel://127.0.0.1:{}/gate", set.sentinel_ports()[1]);
        assert_remaining(&check_json(&folder, &[], &hosts, &[]), &[1]);
        set.wait_replicas_in_sync().expect("it follows");
        let promotion = set.failover().expect("the other is promoted");
        assert_eq!(promotion.node, 1, "{flavour}");
        set.wait_announced(1, AGREEMENT_TIMEOUT).expect("all sentinels agree");
        assert_remaining(&check_json(&folder, &[], &url, &[]), &[0]);
        let refused = check_json(&folder, &[], &url, &[]);
        assert_eq!(refused.code, Some(1), "{flavour}: {}", refused.stderr);
    }
}

#[test]
fn processes_share_charges_on_a_cluster_and_after_a_failover() {
    for flavour in Flavour::ALL {
        let cluster = Cluster::start(flavour).expect("a cluster starts");
        let (folder, url) = (folder(cluster.node(0).folder()), cluster.url());
        // Any one server is enough to find the others.
        let seed = format!("redis+cluster://127.0.0.1:{}", cluster.node_port(4));
        assert_remaining(&check_json(&folder, &[], &url, &[]), &[2]);
        assert_remaining(&check_json(&folder, &[], &seed, &[]), &[1]);
        let common = ["--store", &url, "--hash-key-file", "key", "--format", "json", "ip=::1"];
        let ask_two = |args: &[&str]| check_by("two-slots.yaml", &folder, &[], &[&common, args].concat());
        let run = ask_two(&["user=u", "--times", "4"]);
        assert_remaining(&run, &[2, 1, 0, 0]);
        assert_eq!(run.code, Some(1), "the fourth is refused");
        cluster.wait_replicas_in_sync().expect("they follow");
        for replica in 3..6 {
            cluster.failover(replica).expect("it takes over");
        }
        assert_remaining(&check_json(&folder, &[], &url, &[]), &[0]);
        let run = ask_two(&["user=v"]);
        assert_remaining(&run, &[2]);
        let by_ip = decisions(&run)[0]["rules"].as_array().and_then(|rules| rules[1]["remaining"].as_u64());
        assert_eq!(by_ip, Some(5), "{flavour}: three by one user and one by another: {}", run.stdout);
    }
}

#[test]
fn url_for_the_wrong_kind_of_server_gets_a_hint() {
    let set = SentinelSet::start(Flavour::Redis70).expect("a set starts");
    let cluster = Cluster::start(Flavour::Redis70).expect("a cluster starts");
    let folder = folder(set.node(0).folder());
    let (sentinel, primary) = (set.sentinel_ports()[0], set.node_port(0));
    for (url, cause, hint) in [
        (set.url().replace("/gate", "/gatte"), "No such master", "sentinel monitor NAME"),
        (format!("redis+sentinel://127.0.0.1:{primary}/gate"), "unknown command", "not a sentinel"),
        ("redis+sentinel://127.0.0.1:1/gate".to_owned(), "Connection refused", "check host and port"),
        (format!("redis://127.0.0.1:{sentinel}"), "unknown command", "redis+sentinel://"),
        (format!("redis+cluster://127.0.0.1:{sentinel}"), "unknown command", "redis+sentinel://"),
        (format!("redis+cluster://127.0.0.1:{primary}"), "cluster support disabled", "write redis://"),
        ("redis+cluster://127.0.0.1:1".to_owned(), "Connection refused", "check host and port"),
        (format!("redis+sentinel://127.0.0.1:{sentinel}/gate/77"), "DB index", "number at the end"),
    ] {
        assert_failed(&check_json(&folder, &[], &url, &[]), 3, cause, hint);
    }
    // A server of a cluster has only a part of the keys.
    let answers = cluster.primaries().into_iter().map(|node| {
        let run = check_json(&folder, &[], &format!("redis://127.0.0.1:{}", cluster.node_port(node)), &[]);
        if run.code != Some(0) {
            assert_failed(&run, 3, "MOVED", "redis+cluster://");
        }
        run.code
    });
    // The note of the fleet's hash key and the key of the subject are usually on different servers.
    assert!(answers.filter(|code| *code == Some(0)).count() <= 1);
}

#[test]
fn sentinels_have_a_separate_password_that_is_never_printed() {
    let set = SentinelSet::builder(Flavour::Redis70)
        .password("n0des")
        .sentinel_user("watcher", "s3cr3t")
        .start()
        .expect("a set starts");
    let folder = folder(set.node(0).folder());
    std::fs::write(folder.join("nodes"), "n0des\n").expect("a file can be written");
    let hosts: Vec<String> = set.sentinel_ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let hosts = hosts.join(",");
    let url = format!("redis+sentinel://{hosts}/gate?sentinel_user=watcher");
    let nodes = ["--store-password-file", "nodes"];
    let sentinels = |file| ["--store-sentinel-password-file", file];
    let both = [nodes, sentinels("password")].concat();
    assert_remaining(&check_json(&folder, &[], &url, &both), &[2]);
    assert_remaining(
        &check_json(&folder, &[(PASSWORD, "n0des"), (SENTINEL_PASSWORD, "s3cr3t")], &url, &[]),
        &[1],
    );
    // A file overrides a variable.
    assert_remaining(
        &check_json(&folder, &[(PASSWORD, "wr0ng"), (SENTINEL_PASSWORD, "wr0ng")], &url, &both),
        &[0],
    );

    let wrong = [nodes, sentinels("wrong")].concat();
    assert_failed(&check_json(&folder, &[], &url, &wrong), 3, "WRONGPASS", SENTINEL_PASSWORD);
    let bare = format!("redis+sentinel://{hosts}/gate");
    assert_failed(&check_json(&folder, &[], &bare, &nodes), 3, "NOAUTH", "--store-sentinel-password-file");
    let run = check_json(&folder, &[], &url, &sentinels("password"));
    assert_failed(&run, 3, "NOAUTH", "--store-password-file");
    let mut admin = set.sentinel(0).admin().expect("a connection");
    admin.command(&[b"ACL", b"SETUSER", b"idler", b"on", b">s3cr3t", b"-@all"]).expect("it takes it");
    let idle = format!("redis+sentinel://127.0.0.1:{}/gate?sentinel_user=idler", set.sentinel_ports()[0]);
    assert_failed(&check_json(&folder, &[], &idle, &both), 3, "NOPERM", "ACL line");

    for url in [
        format!("{url}&sentinel_password=s3cr3t"),
        format!("{url}&sentinel%5Fpassword=s3cr3t"),
        format!("redis+sentinel://:s3cr3t@{hosts}/gate"),
        format!("redis+sentinel://{hosts},x:s3cr3t@a:1/gate"),
        "redis+cluster://u:s3cr3t@a:1,b:2".to_owned(),
    ] {
        let run = check_json(&folder, &[], &url, &[]);
        assert_failed(&run, 2, "contains a password", SENTINEL_PASSWORD);
    }
    let alone = check_json(&folder, &[], "redis://127.0.0.1:1", &sentinels("password"));
    assert_failed(&alone, 2, "no sentinels", "redis+sentinel://");
    // A variable that this store does not need is ignored.
    let cluster = check_json(&folder, &[(SENTINEL_PASSWORD, "s3cr3t")], "redis+cluster://127.0.0.1:1", &[]);
    assert_failed(&cluster, 3, "Connection refused", "check host and port");
}

#[test]
fn invalid_url_of_several_servers_is_reported_before_any_is_contacted() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wrong-urls");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let folder = fill(&folder);
    for (url, wanted) in [
        ("redis://a:1,b:2", "redis+sentinel:// or redis+cluster://"),
        ("redis+sentinel://a:1,b:2", "name that the sentinels know"),
        ("redis+cluster://a:1,b:2/3", "only database 0"),
        ("redis+cluster://a:1?sentinel_user=x", "known parameters are prefix and ca"),
        ("redis+sentinels://a:1/gate", "redis+sentinel://"),
    ] {
        let run = check(&folder, &[("TOLLGATE_HASH_KEY", KEY)], &["--store", url, "user=u"]);
        assert_failed(&run, 2, wanted, "write a URL like redis://");
    }
}

#[test]
fn help_of_check_names_all_store_urls_and_password_options() {
    let help = check(Path::new("."), &[], &["--help"]).stdout;
    for wanted in [
        "redis+sentinel://",
        "redis+cluster://",
        "rediss",
        "--store-sentinel-password-file",
        "TOLLGATE_STORE_PASSWORD ",
        "TOLLGATE_STORE_SENTINEL_PASSWORD ",
    ] {
        assert!(help.contains(wanted), "{wanted}: {help}");
    }
}
