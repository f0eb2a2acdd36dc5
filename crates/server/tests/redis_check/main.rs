//! Runs `tollgate check --store` against real servers.

use std::path::PathBuf;

use tollgate_testkit::redis::{Flavour, Server};

const ACL: &str = "tollgate on >s3cr3t ~tg:* resetchannels -@all +eval +evalsha +get +set +time";
mod doctor;
mod fleet;
mod run;

use run::{KEY, check, decisions, fill};

/// Creates a folder with rules, a key and passwords.
fn folder(server: &Server) -> PathBuf {
    fill(server.folder())
}

#[test]
fn processes_share_charges_on_every_server_version() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour).expect("a server starts");
        let (folder, url) = (folder(&server), server.url());
        let by_file = ["--store", &url, "--hash-key-file", "key", "--format", "json", "user=u"];
        let by_variable = ["--store", &url, "--times", "2", "--format", "json", "user=u"];
        let first = check(&folder, &[], &by_file);
        assert_eq!((first.code, first.stderr.as_str()), (Some(0), ""), "{flavour}");
        assert_eq!(decisions(&first)[0]["remaining"], 2);
        assert_eq!(decisions(&first)[0]["source"], "store");
        let second = check(&folder, &[("TOLLGATE_HASH_KEY", KEY)], &by_variable);
        assert_eq!(decisions(&second)[1]["remaining"], 0, "{flavour}");
        let third = check(&folder, &[], &by_file);
        assert_eq!(
            (third.code, decisions(&third)[0]["allowed"].as_bool()),
            (Some(1), Some(false)),
            "{flavour}"
        );
        // With another key, subjects are different.
        let other = KEY.replace('6', "7");
        let fourth = check(&folder, &[("TOLLGATE_HASH_KEY", &other)], &by_variable);
        assert_eq!(fourth.code, Some(0), "{flavour}");
    }
}

#[test]
fn table_shows_the_time_of_the_store() {
    let server = Server::start(Flavour::Redis70).expect("a server starts");
    let (folder, url) = (folder(&server), server.url());
    let run = check(&folder, &[], &["--store", &url, "--hash-key-file", "key", "--times", "4", "user=u"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let rows: Vec<Vec<&str>> = run.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..3], ["time", "answer", "rule"]);
    assert_eq!([rows[1][1], rows[4][1]], ["admitted", "refused"]);
    // Zeros at the end of a fraction are left out, so the Z must not be compared with a digit.
    let [first, last] = [rows[1][0], rows[4][0]].map(|instant| instant.trim_end_matches('Z'));
    assert!(first < last, "time passes: {rows:?}");
    assert!(run.stdout.ends_with("\n3 admitted, 1 refused\n"), "{}", run.stdout);
}

#[test]
fn request_id_is_charged_once_in_both_stores() {
    let server = Server::start(Flavour::Redis70).expect("a server starts");
    let (folder, url) = (folder(&server), server.url());
    let shared = ["--store", &url, "--hash-key-file", "key"];
    for store in [&[][..], &shared] {
        let json = ["--format", "json", "--id", "order-1", "--times", "3", "user=u"];
        let run = check(&folder, &[], &[store, &json].concat());
        let answers = decisions(&run);
        assert_eq!((run.code, answers.len()), (Some(0), 3), "{store:?} {}", run.stderr);
        assert!(answers.iter().all(|answer| *answer == answers[0]), "all answers are equal: {answers:?}");
        assert_eq!(answers[0]["remaining"], 2);
    }
    let other = check(&folder, &[], &[&shared[..], &["--id", "order-1", "--cost", "2", "user=u"]].concat());
    assert_eq!(other.code, Some(2));
    assert!(other.stderr.contains("used for another request"), "{}", other.stderr);
    let repeated = check(&folder, &[], &[&shared[..], &["--format", "json", "user=u"]].concat());
    assert_eq!(decisions(&repeated)[0]["remaining"], 1, "the id was charged once");
}

#[test]
fn invalid_arguments_are_reported_before_the_store_is_contacted() {
    let server = Server::start(Flavour::Redis70).expect("a server starts");
    let (folder, url) = (folder(&server), server.url());
    let keyed = ["--hash-key-file", "key", "user=u"];
    for (args, wanted) in [
        (vec!["--store", &url, "user=u"], "openssl rand -hex 32 > key"),
        ([&["--store", &url, "--at", "+1s"], &keyed[..]].concat(), "remove --at"),
        ([&["--store", "redis://:s3cr3t@localhost"], &keyed[..]].concat(), "TOLLGATE_STORE_PASSWORD"),
        ([&["--store", "redis://u:s3/cr3t@localhost"], &keyed[..]].concat(), "TOLLGATE_STORE_PASSWORD"),
        ([&["--store", "redis://s3/cr3t@localhost"], &keyed[..]].concat(), "TOLLGATE_STORE_PASSWORD"),
        ([&["--store", "localhost:6379"], &keyed[..]].concat(), "write redis://"),
        ([&["--store", "redis://localhost/one"], &keyed[..]].concat(), "number of a database"),
        (
            [&["--store", "redis://localhost?timeout=1"], &keyed[..]].concat(),
            "known parameters are prefix and ca",
        ),
        (vec!["--store-password-file", "password", "user=u"], "--store"),
        (vec!["--store", &url, "--hash-key-id", "3", "user=u"], "--hash-key-file"),
        (vec!["--store", &url, "--hash-key-file", "password", "user=u"], "64 hexadecimal digits"),
    ] {
        let run = check(&folder, &[], &args);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(run.stderr.starts_with("error: ") && run.stderr.contains(wanted), "{args:?}: {}", run.stderr);
        assert!(!run.stderr.contains("cr3t"), "{args:?}: {}", run.stderr);
    }
    let args = ["--store", &url, "user=u"];
    let run = check(&folder, &[("TOLLGATE_HASH_KEY", "abc")], &args);
    assert!(
        run.code == Some(2) && run.stderr.starts_with("error: invalid hash key in TOLLGATE_HASH_KEY: "),
        "{}",
        run.stderr
    );
}

#[test]
fn store_failure_is_reported_with_its_cause_and_a_hint() {
    let server =
        Server::builder(Flavour::Redis70).password("adm1n").user(ACL).tls().start().expect("it starts");
    let (folder, port) = (folder(&server), server.port());
    let tls = server.tls_port().expect("it has TLS");
    let url = format!("redis://tollgate@127.0.0.1:{port}");
    for (url, password, cause, hint) in [
        ("redis://127.0.0.1:1".to_owned(), "password", "Connection refused", "check host and port"),
        (format!("redis://127.0.0.1:{port}"), "", "NOAUTH", "TOLLGATE_STORE_PASSWORD"),
        (url.clone(), "wrong", "WRONGPASS", "--store-password-file"),
        (format!("{url}/1"), "password", "NOPERM", "ACL line"),
        (format!("{url}?prefix=other:"), "password", "", "ACL line"),
        (format!("rediss://tollgate@127.0.0.1:{tls}"), "password", "certificate", "ca="),
        (format!("rediss://tollgate@127.0.0.1:{tls}?ca=no.pem"), "password", "certificates", "PEM"),
    ] {
        let mut args = vec!["--store", &url, "--hash-key-file", "key"];
        if !password.is_empty() {
            args.extend(["--store-password-file", password]);
        }
        args.push("user=u");
        let run = check(&folder, &[], &args);
        assert_eq!((run.code, run.stdout.as_str()), (Some(3), ""), "{url}: {}", run.stderr);
        let (error, hinted) = run.stderr.split_once("\n\nhint: ").expect("an error and a hint");
        assert!(error.contains(cause) && hinted.contains(hint), "{url}: {}", run.stderr);
        for secret in ["s3cr3t", "wr0ng", "adm1n"] {
            assert!(!run.stderr.contains(secret), "{url}: {}", run.stderr);
        }
    }
    // With the right password and certificate, the same checks work.
    let args = ["--store", &url, "--hash-key-file", "key", "user=u"];
    assert_eq!(check(&folder, &[("TOLLGATE_STORE_PASSWORD", "s3cr3t")], &args).code, Some(0));
    let authority = server.certificates().expect("it has TLS").authority().display();
    let url = format!("rediss://tollgate@127.0.0.1:{tls}?ca={authority}");
    let args = ["--store", &url, "--store-password-file", "password", "--hash-key-file", "key", "user=u"];
    assert_eq!(check(&folder, &[], &args).code, Some(0));
}
