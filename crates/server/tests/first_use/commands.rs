//! Commands, and their exit codes.

use tollgate_testkit::redis::{Flavour, Server};

use super::*;

#[test]
fn the_export_preset_admits_an_export_that_costs_more_than_its_leases() {
    let folder = folder();
    put(folder.path(), "rules.yaml", "version: 1\nrules: [{ use: expensive-export }]\n");
    let args = ["check", "--rules", "rules.yaml", "--cost", "5", "--format", "json", "tenant=acme"];
    let run = tollgate(folder.path(), &args);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let decision: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let costs: Vec<&Value> =
        decision["rules"].as_array().expect("rules").iter().map(|rule| &rule["cost"]).collect();
    assert_eq!(costs, [&json!(5), &json!(1), &json!(1)], "rows, exports and the lease");
}

#[test]
fn a_server_whose_store_is_down_exits_with_3() {
    let folder = folder();
    let (rules, key) = (put(folder.path(), "rules.yaml", RULES), put(folder.path(), "key", KEY));
    for args in [
        vec!["serve", "--rules", &rules, "--hash-key-file", &key],
        vec!["check", "--rules", &rules, "--hash-key-file", &key, "action=search"],
        vec![
            "reset",
            "--rules",
            &rules,
            "--hash-key-file",
            &key,
            "--rule",
            "searches",
            "--reason",
            "r",
            "tenant=t",
        ],
    ] {
        let mut args = args.clone();
        args.extend(["--store", "redis://127.0.0.1:1"]);
        if args[0] == "serve" {
            args.extend(["--http", "127.0.0.1:0", "--resp", "off", "--require-store"]);
        }
        let run = tollgate(folder.path(), &args);
        assert_eq!(run.code, Some(3), "{}: {}", args[0], run.stderr);
        assert!(run.stderr.contains("error: ") && run.stderr.contains("\n\nhint: "), "{}", run.stderr);
    }
}

#[test]
fn a_peek_charges_nothing_in_memory_and_in_a_store() {
    let redis = Server::start(Flavour::Redis70).expect("a server starts");
    let (folder, url) = (folder(), redis.url());
    put(folder.path(), "rules.yaml", RULES);
    put(folder.path(), "key", KEY);
    let request = ["--format", "json", "--times", "2", "action=search", "tenant=t", "user=u"];
    for store in [&[][..], &["--store", &url, "--hash-key-file", "key"]] {
        let args = [&["check", "--rules", "rules.yaml", "--peek"], store, &request].concat();
        let run = tollgate(folder.path(), &args);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let remaining: Vec<Value> = run
            .stdout
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["rules"][0]["remaining"].clone())
            .collect();
        assert_eq!(remaining, [json!(1), json!(1)], "{store:?}");
    }
    let both = ["check", "--rules", "rules.yaml", "--peek", "--id", "x", "user=u"];
    assert_eq!(tollgate(folder.path(), &both).code, Some(2), "a peek is never repeated");
}

#[test]
fn commands_with_another_hash_key_than_the_servers_change_nothing() {
    let redis = Server::start(Flavour::Redis70).expect("a server starts");
    let (folder, url) = (folder(), redis.url());
    let (rules, key) = (put(folder.path(), "rules.yaml", RULES), put(folder.path(), "key", KEY));
    put(folder.path(), "other", &KEY.replace('6', "7"));
    let _server = start(&["--rules", &rules, "--store", &url, "--hash-key-file", &key]);
    let mut admin = redis.admin().expect("a connection");
    let before = admin.scan("*").expect("keys");
    for command in [
        &["check", "--rules", "rules.yaml", "action=search", "tenant=t", "user=u"][..],
        &[
            "reset",
            "--rules",
            "rules.yaml",
            "--rule",
            "exports",
            "--reason",
            "r",
            "action=export",
            "tenant=t",
        ],
    ] {
        let wrong =
            tollgate(folder.path(), &[command, &["--store", &url, "--hash-key-file", "other"]].concat());
        assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(2), ""), "{}", wrong.stderr);
        assert!(wrong.stderr.contains("another hash key"), "{}", wrong.stderr);
    }
    assert_eq!(admin.scan("*").expect("keys").len(), before.len(), "nothing was written");
    let right = [
        "check",
        "--rules",
        "rules.yaml",
        "--store",
        &url,
        "--hash-key-file",
        "key",
        "action=search",
        "tenant=t",
        "user=u",
    ];
    assert_eq!(tollgate(folder.path(), &right).code, Some(0));
}

#[test]
fn reset_deletes_the_count_of_one_rule_and_says_when_nothing_matched() {
    let redis = Server::start(Flavour::Redis70).expect("a server starts");
    let (folder, url) = (folder(), redis.url());
    put(folder.path(), "rules.yaml", RULES);
    put(folder.path(), "key", KEY);
    let store = ["--rules", "rules.yaml", "--store", &url, "--hash-key-file", "key"];
    let request = ["action=search", "tenant=t", "user=u"];
    let check = |times: &str| {
        tollgate(folder.path(), &[&["check"], &store[..], &["--times", times], &request].concat()).code
    };
    let reset = |rule: &str, request: &[&str]| {
        let args = ["--rule", rule, "--reason", "ticket 4711", "--format", "json"];
        tollgate(folder.path(), &[&["reset"], &store[..], &args, request].concat())
    };
    assert_eq!((check("2"), check("1")), (Some(0), Some(1)));
    let done = reset("searches", &request);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let result: Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!((&result["rule"], &result["deleted"]), (&json!("searches"), &json!(true)));
    assert_eq!(result["reason"], "ticket 4711");
    assert_eq!(result["subject"].as_str().map(str::len), Some(10));
    assert_eq!((check("2"), check("1")), (Some(0), Some(1)), "the whole limit is available again");

    let other = reset("exports", &request);
    assert_eq!(other.code, Some(1), "{}", other.stderr);
    assert!(other.stdout.contains(r#""deleted":false"#), "{}", other.stdout);
    let unknown = reset("serches", &request);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("did you mean searches?"), "{}", unknown.stderr);
    assert_eq!(check("1"), Some(1), "nothing else was deleted");
}
