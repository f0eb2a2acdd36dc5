//! `tollgate doctor` against real servers: each check finds what is really wrong, and nothing on a right one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tollgate_testkit::redis::{Admin, Cluster, Flavour, SentinelSet, Server};
use tollgate_testkit::serving::Serving;
use tollgate_testkit::tools::Tool;

use crate::run::{KEY, fill};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");
const NAMESPACE: &str = "tg:1:default";
/// A subject as keys have it.
const SUBJECT: &str = "AAaW32L4l3DTl86dhIZV1r";

/// The ACL lines of the guide, for one server: that of servers, and that of the doctor.
fn acl_lines() -> [String; 2] {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/redis.md"));
    let page = page.expect("the page can be read");
    let line = |name: &str| {
        let found = page.lines().find_map(|line| line.strip_prefix(&format!("user {name} ")));
        format!("{name} {}", found.unwrap_or_else(|| panic!("the page has no line of {name}")))
    };
    [line("tollgate"), line("doctor")]
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command
        .args(["doctor", "--rules", "rules.yaml", "--hash-key-file", "key"])
        .args(args)
        .current_dir(folder);
    clear(&mut command);
    command
}

fn clear(command: &mut Command) {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOLLGATE_")) {
        command.env_remove(name);
    }
    command.env_remove("CLICOLOR_FORCE");
}

/// The exit code and the findings.
fn examine(mut command: Command) -> (Option<i32>, Vec<Value>) {
    let output = command.args(["--format", "json"]).output().expect("the binary runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let report: Value = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), report["findings"].as_array().expect("findings").clone())
}

/// Examines a store, and returns status and reason of one check.
fn check(folder: &Path, url: &str, id: &str) -> (String, String) {
    let (_, findings) = examine(command(folder, &["--store", url, "--only", id]));
    of(&findings, id)
}

fn of(findings: &[Value], id: &str) -> (String, String) {
    let finding = findings.iter().find(|finding| finding["id"] == id);
    let finding = finding.unwrap_or_else(|| panic!("no finding of {id}: {findings:?}"));
    let text = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
    if ["warn", "fail"].contains(&text("status").as_str()) {
        assert!(!text("fix").is_empty(), "{finding}");
    }
    (text("status"), text("reason"))
}

#[track_caller]
fn assert_found((status, reason): (String, String), expected: &str, part: &str) {
    assert!(status == expected && reason.contains(part), "{status}: {reason}; expected {expected}: {part}");
}

/// A folder with rules that have no warnings.
fn folder(server: &Server) -> PathBuf {
    let folder = fill(server.folder());
    let rules = "version: 1\nrules:\n  - { id: a, description: A, per: user, missing: refuse, on_failure: open, limit: { fixed-window: 3/h } }\n";
    std::fs::write(folder.join("rules.yaml"), rules).expect("a file");
    folder
}

fn plant(admin: &mut Admin, words: &[&str]) {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    admin.command(&words).expect("the server takes it");
}

#[test]
fn a_right_store_passes_every_check_that_applies() {
    for flavour in Flavour::ALL {
        let [tollgate, doctor] = acl_lines();
        let server = Server::builder(flavour)
            .arguments(["--appendonly", "yes", "--maxmemory", "256mb", "--maxmemory-policy", "noeviction"])
            .user(&tollgate)
            .user(&doctor)
            .start()
            .expect("a server starts");
        let folder = folder(&server);
        std::fs::write(folder.join("password"), "secret").expect("a file");
        let url = format!("redis://tollgate@127.0.0.1:{}", server.port());
        let arguments = ["--store", &url, "--store-password-file", "password"];
        let admin = ["--store-user", "doctor", "--store-user-password-file", "password", "--deny-warnings"];
        let (code, findings) = examine(command(&folder, &[&arguments[..], &admin].concat()));
        let wrong: Vec<&Value> = findings
            .iter()
            .filter(|finding| !["pass", "skip"].contains(&finding["status"].as_str().expect("text")))
            .collect();
        assert_eq!((code, wrong.len()), (Some(0), 0), "{flavour}: {wrong:?}");
        for id in [
            "store-reachable",
            "store-round-trip",
            "store-version",
            "store-rights",
            "store-policy",
            "store-memory",
            "store-persistence",
            "store-clock",
            "store-evictions",
            "hash-key",
            "keys-without-ttl",
            "keys-oversized",
            "keys-unexplained",
            "rules-lint",
        ] {
            assert_eq!(of(&findings, id).0, "pass", "{flavour}: {id}: {findings:?}");
        }
        // Without the second user, a check that cannot look names what is missing.
        let (code, findings) = examine(command(&folder, &arguments));
        assert_eq!(code, Some(0), "{flavour}: {findings:?}");
        assert_found(of(&findings, "keys-without-ttl"), "skip", "+scan");
    }
}

#[test]
fn a_wrong_policy_no_persistence_tiny_memory_and_evictions_are_found() {
    let server = Server::builder(Flavour::Redis70)
        .arguments([
            "--maxmemory",
            "3mb",
            "--maxmemory-policy",
            "allkeys-lru",
            "--save",
            "",
            "--appendonly",
            "no",
        ])
        .start()
        .expect("a server starts");
    let (folder, url) = (folder(&server), server.url());
    let mut admin = server.admin().expect("a connection");
    for number in 0..64 {
        plant(&mut admin, &["SET", &format!("filler:{number}"), &"x".repeat(100_000)]);
    }
    let (code, findings) = examine(command(&folder, &["--store", &url, "--skip", "store-replicas"]));
    assert_eq!(code, Some(1));
    assert_found(of(&findings, "store-policy"), "fail", "allkeys-lru");
    assert_found(of(&findings, "store-persistence"), "fail", "forgets everything");
    assert_found(of(&findings, "store-memory"), "fail", "are expected");
    assert_found(of(&findings, "store-evictions"), "fail", "were evicted");
    assert_found(of(&findings, "store-rights"), "warn", "CONFIG");
    assert!(!findings.iter().any(|finding| finding["id"] == "store-replicas"));
    let unbounded = Server::start(Flavour::Redis70).expect("a server starts");
    assert_found(check(&folder, &unbounded.url(), "store-memory"), "warn", "maxmemory is not set");
    // Only warnings: the exit code depends on --deny-warnings.
    let only = |extra: &[&str]| {
        let url = unbounded.url();
        examine(command(&folder, &[&["--store", &url, "--only", "store-memory"][..], extra].concat())).0
    };
    assert_eq!((only(&[]), only(&["--deny-warnings"])), (Some(0), Some(1)));
}

#[test]
fn missing_rights_and_a_store_that_is_down_are_found() {
    let [tollgate, _] = acl_lines();
    let server = Server::builder(Flavour::Redis70)
        .user(&tollgate.replace(" +setrange", "").replace(" +pexpire", ""))
        .start()
        .expect("a server starts");
    let folder = folder(&server);
    std::fs::write(folder.join("password"), "secret").expect("a file");
    let url = format!("redis://tollgate@127.0.0.1:{}", server.port());
    let arguments = ["--store", &url, "--store-password-file", "password", "--only", "store-rights"];
    let (code, findings) = examine(command(&folder, &arguments));
    assert_eq!(code, Some(1), "{findings:?}");
    assert_found(of(&findings, "store-rights"), "fail", "+setrange +pexpire");
    drop(server);
    let other = Server::start(Flavour::Redis70).expect("a server starts");
    let folder = fill(other.folder());
    let (code, findings) = examine(command(&folder, &["--store", "redis://127.0.0.1:1"]));
    assert_eq!(code, Some(3), "{findings:?}");
    assert_found(of(&findings, "store-reachable"), "fail", "");
}

#[test]
fn planted_keys_without_ttl_oversized_hot_and_unexplained_keys_are_found() {
    let server = Server::builder(Flavour::Redis70)
        .arguments(["--maxmemory", "256mb", "--maxmemory-policy", "allkeys-lfu"])
        .start()
        .expect("a server starts");
    let (folder, url) = (folder(&server), server.url());
    let key = |rule: &str, number: u32| format!("{NAMESPACE}:{{{SUBJECT}}}:{rule}:{number:0>22}");
    let mut admin = server.admin().expect("a connection");
    for number in 0..200 {
        plant(&mut admin, &["SET", &key("a", number), "state", "PX", "3600000"]);
    }
    // Keys of other programs do not count.
    plant(&mut admin, &["SET", "other", "x"]);
    let clean = check(&folder, &url, "keys-without-ttl");
    assert_found(clean, "pass", "200 keys");
    plant(&mut admin, &["SET", &key("a", 900), "state"]);
    plant(&mut admin, &["SET", &key("a", 901), &"x".repeat(50_000), "PX", "3600000"]);
    plant(&mut admin, &["SET", &key("removed", 902), "state", "PX", "3600000"]);
    let hot = key("a", 7);
    let script = "for i = 1, 400000 do redis.call('GET', KEYS[1]) end";
    plant(&mut admin, &["EVAL", script, "1", &hot]);
    let (code, findings) = examine(command(&folder, &["--store", &url]));
    assert_eq!(code, Some(1));
    assert_found(
        of(&findings, "keys-without-ttl"),
        "fail",
        &format!("1 never expire, such as {}", key("a", 900)),
    );
    assert_found(of(&findings, "keys-oversized"), "warn", &key("a", 901));
    assert_found(of(&findings, "keys-unexplained"), "warn", &key("removed", 902));
    assert_found(of(&findings, "keys-hot"), "warn", &hot);
    // A part of the keys is labelled as such.
    let part = ["--store", &url, "--only", "keys-unexplained", "--scan-keys", "40", "--scan-rate", "1000000"];
    let (_, findings) = examine(command(&folder, &part));
    let (_, reason) = of(&findings, "keys-unexplained");
    assert!(reason.starts_with("a sample of 40 of about 204 keys"), "{reason}");
}

#[test]
fn another_hash_key_and_another_clock_are_found() {
    let server = Server::start(Flavour::Redis70).expect("a server starts");
    let (folder, url) = (folder(&server), server.url());
    let path = |name: &str| folder.join(name).to_str().expect("text").to_owned();
    let serving = Serving::start(
        BINARY,
        &["--rules", &path("rules.yaml"), "--store", &url, "--hash-key-file", &path("key")],
    );
    assert_found(check(&folder, &url, "hash-key"), "pass", "no server");
    std::fs::write(folder.join("key"), KEY.replace('6', "7")).expect("a file");
    assert_found(check(&folder, &url, "hash-key"), "fail", "another hash key");
    drop(serving);

    for (offset, status, part) in
        [("-30s", "fail", "ahead of"), ("+30s", "fail", "behind"), ("-1s", "warn", "ahead of")]
    {
        let mut skewed = Tool::FakeTime.command();
        skewed.env("FAKETIME", offset).current_dir(&folder).arg(BINARY);
        skewed.args([
            "doctor",
            "--rules",
            "rules.yaml",
            "--hash-key-file",
            "key",
            "--store",
            &url,
            "--only",
            "store-clock",
        ]);
        clear(&mut skewed);
        let (_, findings) = examine(skewed);
        assert_found(of(&findings, "store-clock"), status, part);
    }
}

#[test]
fn a_broken_sentinel_quorum_and_a_missing_replica_are_found() {
    let mut set = SentinelSet::builder(Flavour::Redis70).replicas(1).start().expect("the servers start");
    set.wait_settled().expect("they settle");
    set.wait_replicas_in_sync().expect("they settle");
    let other = Server::start(Flavour::Redis70).expect("a server starts");
    let (folder, url) = (folder(&other), set.url());
    assert_found(check(&folder, &url, "store-sentinels"), "pass", "agree");
    assert_found(check(&folder, &url, "store-replicas"), "warn", "min-replicas-to-write");
    let count = set.sentinel_ports().len();
    for sentinel in 1..count {
        set.kill9_sentinel(sentinel).expect("it can be killed");
    }
    assert_found(check(&folder, &url, "store-sentinels"), "fail", "does not answer");
    let replica = set.replica_index().expect("a replica");
    set.kill9(replica).expect("it can be killed");
    let gone = || {
        let info = set.primary().expect("a primary").admin().expect("a connection").info("replication");
        info.expect("it answers").get("connected_slaves").is_some_and(|count| count == "0")
    };
    let began = std::time::Instant::now();
    while !gone() {
        assert!(began.elapsed() < Duration::from_secs(30), "the primary notices");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_found(check(&folder, &url, "store-replicas"), "fail", "no replica");
}

#[test]
fn uncovered_slots_of_a_cluster_are_found() {
    let cluster = Cluster::start(Flavour::Redis70).expect("a cluster starts");
    let other = Server::start(Flavour::Redis70).expect("a server starts");
    let (folder, url) = (folder(&other), cluster.url());
    assert_found(check(&folder, &url, "store-cluster"), "pass", "all 16384");
    for node in 0..cluster.count() {
        let mut admin = cluster.admin(node).expect("a connection");
        plant(&mut admin, &["CLUSTER", "DELSLOTS", "7", "8"]);
    }
    let found = check(&folder, &url, "store-cluster");
    assert_found(found, "fail", "2 of 16384 hash slots have no server");
}

#[test]
fn a_server_reports_its_findings_and_warns_of_them() {
    let server = Server::builder(Flavour::Redis70)
        .arguments(["--maxmemory", "256mb", "--maxmemory-policy", "allkeys-lru"])
        .start()
        .expect("a server starts");
    let (folder, url) = (folder(&server), server.url());
    let mut admin = server.admin().expect("a connection");
    plant(&mut admin, &["SET", &format!("{NAMESPACE}:{{{SUBJECT}}}:a:{SUBJECT}"), "state"]);
    let path = |name: &str| folder.join(name).to_str().expect("text").to_owned();
    let serving = Serving::start(
        BINARY,
        &["--rules", &path("rules.yaml"), "--store", &url, "--hash-key-file", &path("key")],
    );
    let logged = loop {
        let logged = serving.wait_for("doctor");
        if logged["check"] == "keys-without-ttl" {
            break logged;
        }
    };
    assert_eq!((&logged["level"], &logged["status"]), (&"WARN".into(), &"fail".into()), "{logged}");
    let server_url = format!("http://{}", serving.http);
    let began = std::time::Instant::now();
    let (code, findings) = loop {
        let mut again = Command::new(BINARY);
        again.args(["doctor", "--server", &server_url]);
        clear(&mut again);
        let found = examine(again);
        if !found.1.is_empty() || began.elapsed() > Duration::from_secs(30) {
            break found;
        }
    };
    assert_eq!(code, Some(1), "{findings:?}");
    assert_found(of(&findings, "store-policy"), "fail", "allkeys-lru");
    let metrics =
        Command::new("curl").args(["-s", &format!("{server_url}/metrics")]).output().expect("curl runs");
    let metrics = String::from_utf8(metrics.stdout).expect("text");
    assert!(metrics.contains("\nrate_limit_store_keys_without_ttl 1\n"), "{metrics}");
    assert!(metrics.contains("rate_limit_store_keys{rule=\"a\"} 1\n"), "{metrics}");
}

/// `TOLLGATE_KEYS=1000000 cargo test --release -p tollgate-server --test redis_check p99_of_checks -- --nocapture` prints how a
/// scan of a million keys at the default rate moves the p99 of checks, and fails if it is a tenth or more. Without the
/// variable, the test is short and only shows that the command works.
#[test]
fn p99_of_checks_during_a_scan() {
    use std::time::Instant;

    use tollgate::core::{Item, Keyspace, Limit, Operation, Plan, Span, Store, SubjectHasher, Token};
    use tollgate::store::redis::RedisSettings;

    let keys = std::env::var("TOLLGATE_KEYS").ok();
    let is_measured = keys.is_some();
    let keys: u64 = keys.map_or(10_000, |keys| keys.parse().expect("a number"));
    let server = Server::start(Flavour::Redis70).expect("a server starts");
    let (folder, url) = (folder(&server), server.url());
    let mut admin = server.admin_within(Duration::from_secs(60)).expect("a connection");
    let script = "for i = 1, 1000 do redis.call('SET', ARGV[1] .. string.format('%011d%011d', ARGV[2], i), 'twenty-four bytes of it.', 'PX', 36000000) end";
    for number in 0..keys.div_ceil(1_000) {
        plant(
            &mut admin,
            &["EVAL", script, "0", &format!("{NAMESPACE}:{{{SUBJECT}}}:a:"), &number.to_string()],
        );
    }
    let all = keys.to_string();
    let mut scan = command(&folder, &["--store", &url, "--only", "keys-without-ttl", "--scan-keys", &all]);
    let mut scan = scan.stdout(std::process::Stdio::null()).spawn().expect("the binary runs");
    let id = scan.id().to_string();
    let signal = |name: &str| {
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.expect("kill runs").success());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (mut with, mut without) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        let store = RedisSettings::url(&url).expect("a URL").connect().await.expect("a store");
        let scope = Keyspace::new("default", "a").expect("a keyspace");
        let limit =
            tollgate::core::algorithm::fixed_window::FixedWindow::new(1_000_000_000, Span::from_secs(86_400));
        let limit = Limit::FixedWindow(limit.expect("a limit"));
        let hasher = SubjectHasher::new([5; 32]);
        let mut number = 0_u32;
        // Seconds with and without the scan take turns, so that a slow minute of the machine counts for both.
        while scan.try_wait().expect("a child can be asked").is_none() {
            for (times, name) in [(&mut with, "CONT"), (&mut without, "STOP")] {
                signal(name);
                let until = Instant::now() + Duration::from_secs(1);
                while Instant::now() < until {
                    number += 1;
                    let subject = hasher.subject([("user", (number % 1_000).to_string().as_str())]);
                    let mut plan = Plan::new();
                    let charge = Operation::Charge { cost: 1, token: Token(u128::from(number)) };
                    plan.push(Item::new(scope.key(subject), limit, charge)).expect("a plan");
                    let began = Instant::now();
                    store.apply(&plan).await.expect("an answer");
                    times.push(began.elapsed());
                }
            }
            signal("CONT");
        }
    });
    scan.wait().expect("it ends");
    let p99 = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() * 99 / 100]
    };
    let (checks, with, without) = (with.len() + without.len(), p99(&mut with), p99(&mut without));
    let ratio = with.as_secs_f64() / without.as_secs_f64();
    println!(
        "{keys} keys, {checks} checks: p99 {without:.1?} without, {with:.1?} with the scan: {ratio:.3} times"
    );
    assert!(!is_measured || ratio < 1.10, "the scan moves p99 by {ratio:.3}");
}
