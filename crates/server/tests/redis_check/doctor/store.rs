//! Wrongly set-up servers: policy, memory, persistence, rights, hash key and clock.

use tollgate_testkit::chaos::ShiftedClock;
use tollgate_testkit::redis::{Flavour, Server};
use tollgate_testkit::serving::Serving;

use super::*;
use crate::run::KEY;

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
    assert_found(of(&findings, "store-persistence"), "warn", "forgets everything");
    std::fs::write(folder.join("rules.yaml"), rules("quota: 100/month")).expect("a file");
    assert_found(check(&folder, &url, "store-persistence"), "fail", "also the consumption of rule a");
    assert_found(of(&findings, "store-memory"), "fail", "are expected");
    assert_found(of(&findings, "store-evictions"), "fail", "were evicted");
    assert_found(of(&findings, "store-rights"), "warn", "CONFIG");
    assert!(!findings.iter().any(|finding| finding["id"] == "store-replicas"));
    // The policy is corrected: what was evicted before is still said.
    plant(&mut admin, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    assert_found(check(&folder, &url, "store-evictions"), "warn", "were evicted");
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
fn another_hash_key_is_found() {
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
}

#[test]
fn a_skewed_clock_is_found() {
    let clock = ShiftedClock::compile().expect("a compiler");
    let server = Server::builder(Flavour::Redis70).environment(clock.environment()).start();
    let server = server.expect("a server starts");
    let (folder, url) = (folder(&server), server.url());
    for (seconds, status, part) in
        [(0, "pass", "agrees"), (30, "fail", "ahead of"), (-30, "fail", "behind"), (1, "warn", "ahead of")]
    {
        clock.set(seconds).expect("a file");
        assert_found(check(&folder, &url, "store-clock"), status, part);
    }
}
