//! Right stores pass, with the rights of the guide.

use tollgate_testkit::redis::{Cluster, Flavour, SentinelSet, Server};

use super::*;

/// What a careful operator sets.
const SETTINGS: [&str; 10] = [
    "--appendonly",
    "yes",
    "--maxmemory",
    "256mb",
    "--maxmemory-policy",
    "noeviction",
    "--min-replicas-to-write",
    "1",
    "--min-replicas-max-lag",
    "10",
];

#[test]
fn a_right_store_passes_every_check_that_applies() {
    for flavour in Flavour::ALL {
        let [tollgate, doctor] = acl_lines();
        let server = Server::builder(flavour)
            .arguments(SETTINGS[..6].iter().copied())
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
fn every_permission_of_the_doctor_is_needed() {
    let [tollgate, doctor] = acl_lines();
    let server = Server::builder(Flavour::Redis70).user(&tollgate).start().expect("a server starts");
    let folder = folder(&server);
    std::fs::write(folder.join("password"), "secret").expect("a file");
    // Database 1: a connection selects it.
    let url = format!("redis://tollgate@127.0.0.1:{}/1", server.port());
    let mut admin = server.admin().expect("a connection");
    plant(&mut admin, &["SELECT", "1"]);
    let arguments = ["--store", &url, "--store-password-file", "password", "--skip", "store-persistence"];
    let admin_arguments = ["--store-user", "doctor", "--store-user-password-file", "password"];
    let arguments = [&arguments[..], &admin_arguments].concat();
    let mut skipped_with = |line: &str, policy: &str| {
        plant(&mut admin, &["CONFIG", "SET", "maxmemory-policy", policy]);
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        plant(&mut admin, &[&["ACL", "SETUSER", "doctor", "reset"][..], &words].concat());
        // Only keys that were used in the last second are looked at several times.
        let key = format!("{NAMESPACE}:{{{SUBJECT}}}:a:{SUBJECT}");
        plant(&mut admin, &["SET", &key, "state", "PX", "3600000"]);
        let (_, findings) = examine(command(&folder, &arguments));
        let is_missing = |finding: &&Value| {
            let reason = finding["reason"].as_str().expect("text");
            reason.contains("lacks the permission")
                || finding["id"] == "store-reachable" && finding["status"] == "fail"
        };
        findings.iter().filter(is_missing).count()
    };
    assert_eq!(skipped_with(&doctor, "noeviction"), 0);
    assert_eq!(skipped_with(&doctor, "allkeys-lfu"), 0);
    let permissions: Vec<&str> = doctor.split_whitespace().filter(|word| word.starts_with('+')).collect();
    assert!(permissions.len() > 5, "{doctor}");
    for permission in permissions {
        let line = doctor.replace(&format!(" {permission}"), "");
        let policy = if permission == "+object|freq" { "allkeys-lfu" } else { "noeviction" };
        let is_needed = (0..5).any(|_| skipped_with(&line, policy) > 0);
        assert!(is_needed, "the doctor does not need {permission}");
    }
}

#[test]
fn a_right_set_with_sentinels_and_a_right_cluster_pass() {
    let other = Server::start(Flavour::Redis70).expect("a server starts");
    let folder = folder(&other);
    // The servers of the testkit have no users.
    let examine_all = |url: &str| {
        let arguments = ["--store", url, "--skip", "store-rights", "--deny-warnings"];
        examine(command(&folder, &arguments))
    };
    let set = SentinelSet::builder(Flavour::Redis70).arguments(SETTINGS).start().expect("the servers start");
    set.wait_settled().expect("they settle");
    set.wait_replicas_in_sync().expect("they settle");
    let (code, findings) = examine_all(&set.url());
    assert_eq!(code, Some(0), "{findings:?}");
    for id in ["store-replicas", "store-sentinels", "store-persistence", "keys-without-ttl", "keys-hot"] {
        assert_eq!(of(&findings, id).0, "pass", "{findings:?}");
    }
    drop(set);
    let cluster = Cluster::builder(Flavour::Redis70).arguments(SETTINGS).start().expect("a cluster starts");
    cluster.wait_settled().expect("it settles");
    cluster.wait_replicas_in_sync().expect("it settles");
    let (code, findings) = examine_all(&cluster.url());
    assert_eq!(code, Some(0), "{findings:?}");
    for id in ["store-replicas", "store-cluster", "store-persistence", "keys-without-ttl", "keys-hot"] {
        assert_eq!(of(&findings, id).0, "pass", "{findings:?}");
    }
}
