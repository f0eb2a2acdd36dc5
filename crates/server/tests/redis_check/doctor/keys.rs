//! Planted keys: without an expiry, oversized, hot, of no rule.

use std::sync::atomic::{AtomicBool, Ordering};

use tollgate_testkit::redis::{Flavour, Server};

use super::*;

fn key(rule: &str, number: u32) -> String {
    format!("{NAMESPACE}:{{{SUBJECT}}}:{rule}:{number:0>22}")
}

#[test]
fn planted_keys_without_ttl_oversized_hot_and_unexplained_keys_are_found() {
    let server = Server::builder(Flavour::Redis70)
        .arguments(["--maxmemory", "256mb", "--maxmemory-policy", "allkeys-lfu"])
        .start()
        .expect("a server starts");
    let (folder, url) = (folder(&server), server.url());
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
fn without_an_lfu_policy_hot_keys_are_found_by_sampling() {
    let server = Server::start(Flavour::Redis70).expect("a server starts");
    let (folder, url) = (folder(&server), server.url());
    let mut admin = server.admin().expect("a connection");
    for number in 0..200 {
        plant(&mut admin, &["SET", &key("a", number), "state", "PX", "3600000"]);
    }
    assert_found(check(&folder, &url, "keys-hot"), "pass", "a bottleneck");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = server.admin().expect("a connection");
            let until = Instant::now() + Duration::from_secs(60);
            for number in 0_u64.. {
                if is_over.load(Ordering::Relaxed) || Instant::now() > until {
                    return;
                }
                plant(&mut writer, &["SET", &key("a", 7), &number.to_string(), "PX", "3600000"]);
            }
        });
        // On a busy machine the writer may be too slow for a warning, but no other key is written at all.
        let mut command = command(&folder, &["--store", &url, "--only", "keys-hot", "--format", "json"]);
        let output = command.output().expect("the binary runs");
        is_over.store(true, Ordering::Relaxed);
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let hottest = &report["hot_keys"][0];
        assert_eq!((&hottest["key"], &hottest["rule"]), (&key("a", 7).into(), &"a".into()), "{report}");
        assert!(hottest["per_second"].as_u64() > Some(0), "{report}");
    });
}
