//! Commands that call a server: exit codes, tokens, TLS, several servers, and text from servers on a terminal.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::thread;

use serde_json::json;
use tollgate_testkit::redis::Certificates;
use tollgate_testkit::serving::{Serving, create_token};

use crate::{Run, binary, run, scratch, tollgate};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");
const RULES: &str = "
version: 1
rules:
  - { id: two, match: { action: search }, per: user, limit: { sliding-log: 2/h } }
  - { id: one, match: { action: login }, per: user, limit: { sliding-log: 1/h } }
";
const KEY: &str = "6a4c1f0d9e8b7a695847362514039281706f5e4d3c2b1a0918f7e6d5c4b3a291";

fn folder(name: &str) -> PathBuf {
    let folder = scratch(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("rules.yaml"), RULES).expect("a file");
    std::fs::write(folder.join("key"), KEY).expect("a file");
    folder
}

fn text(path: PathBuf) -> String {
    path.to_str().expect("text").to_owned()
}

fn served(folder: &std::path::Path, args: &[&str]) -> Serving {
    let (rules, key) = (text(folder.join("rules.yaml")), text(folder.join("key")));
    Serving::start(BINARY, &[&["--rules", &rules, "--hash-key-file", &key], args].concat())
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// Runs the binary with only these variables of ours.
fn call(variables: &[(&str, &str)], args: &[&str]) -> Run {
    let mut command = binary(args);
    for name in ["TOLLGATE_SERVER", "TOLLGATE_TOKEN", "TOLLGATE_TOKEN_FILE"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    run(command, "")
}

#[test]
fn a_check_and_a_peek_ask_the_server_and_answer_by_their_exit_code() {
    let folder = folder("remote-check");
    let server = served(&folder, &[]);
    let url = url(server.http);
    let at = |args: &[&str]| call(&[], &[args, &["--server", &url, "action=search", "user=u"]].concat());
    assert_eq!(at(&["check", "--peek"]).code, Some(0));
    let charged = at(&["check", "--times", "3"]);
    assert_eq!((charged.code, charged.last_line()), (Some(1), "2 admitted, 1 refused"), "{}", charged.stderr);
    let peeked = at(&["check", "--peek", "--format", "json"]);
    assert_eq!((peeked.code, &peeked.json()["allowed"]), (Some(1), &json!(false)));
    let usage = at(&["usage", "--format", "json"]);
    assert_eq!((usage.code, &usage.json()["rules"][0]["used"]), (Some(0), &json!(2)));
    let table = at(&["usage"]).stdout;
    assert!(
        table.lines().nth(1).is_some_and(|line| line.starts_with("two  ") && line.contains(" 2 ")),
        "{table}"
    );
    let none = call(&[("TOLLGATE_SERVER", &url)], &["usage", "action=none"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(1), "no rule matches these attributes\n"));
    let mixed = at(&["check", "--rules", "rules.yaml"]);
    assert_eq!(mixed.code, Some(2), "{}", mixed.stderr);
}

#[test]
fn a_server_that_does_not_answer_is_exit_code_3_with_a_hint() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let nowhere = url(free.local_addr().expect("an address"));
    // It accepts and never answers.
    let late = call(&[], &["usage", "--server", &nowhere, "--timeout", "100ms", "user=u"]);
    assert_eq!(late.code, Some(3));
    assert!(
        late.stderr.contains("did not answer within 100ms") && late.stderr.contains("--timeout"),
        "{}",
        late.stderr
    );
    drop(free);
    let down = call(&[], &["usage", "--server", &nowhere, "user=u"]);
    assert_eq!(down.code, Some(3));
    assert!(down.stderr.contains("check that the server runs"), "{}", down.stderr);
    for args in [
        &["usage", "--server", "localhost:8080", "user=u"][..],
        &["usage", "--server", "http://a:b@localhost", "user=u"],
        &["usage", "--timeout", "0s", "user=u"],
        &["usage", "--ca-file", "ca.pem", "user=u"],
        &["usage", "user"],
        &["why", "tgr_abc", "user=u"],
        &["why"],
        &["top", "--rule", "a&by=used"],
    ] {
        let wrong = call(&[], args);
        assert_eq!(wrong.code, Some(2), "{args:?}: {}", wrong.stderr);
        assert!(!wrong.stderr.contains("a:b@"), "{}", wrong.stderr);
    }
}

#[test]
fn a_token_comes_from_a_file_or_a_variable_and_without_it_the_server_declines() {
    let folder = folder("remote-token");
    let (reads, checks) = (create_token(BINARY, "read"), create_token(BINARY, "check"));
    let config = text(folder.join("tollgate.yaml"));
    std::fs::write(&config, format!("anonymous: none\ntokens:\n{}\n{}\n", reads.line, checks.line))
        .expect("a file");
    let server = served(&folder, &["--config", &config]);
    let url = url(server.http);
    let file = text(folder.join("read.token"));
    std::fs::write(&file, format!("{}\n", reads.token)).expect("a file");
    let top = |variables: &[(&str, &str)], args: &[&str]| {
        call(variables, &[&["top", "--server", &url], args].concat())
    };
    assert_eq!(top(&[], &["--token-file", &file]).code, Some(0));
    assert_eq!(top(&[("TOLLGATE_TOKEN", &reads.token)], &[]).code, Some(0));
    assert_eq!(top(&[("TOLLGATE_TOKEN_FILE", &file)], &[]).code, Some(0));
    let none = top(&[], &[]);
    assert_eq!(none.code, Some(4));
    assert!(none.stderr.contains("401") && none.stderr.contains("--token-file"), "{}", none.stderr);
    let lacks = top(&[("TOLLGATE_TOKEN", &checks.token)], &[]);
    assert_eq!(lacks.code, Some(4));
    assert!(lacks.stderr.contains("403") && !lacks.stderr.contains(&checks.token), "{}", lacks.stderr);
    let both = top(&[("TOLLGATE_TOKEN", &reads.token), ("TOLLGATE_TOKEN_FILE", &file)], &[]);
    assert_eq!(both.code, Some(2));
    let broken = top(&[("TOLLGATE_TOKEN", "two words")], &[]);
    assert_eq!(broken.code, Some(2));
    assert!(!broken.stderr.contains("two words"), "{}", broken.stderr);
}

#[test]
fn a_server_with_tls_is_verified_by_the_given_authority() {
    let folder = folder("remote-tls");
    let certificates = Certificates::generate(&folder).expect("certificates");
    let certificate = text(certificates.server().to_owned());
    let key = text(certificates.key().to_owned());
    let server = served(&folder, &["--tls-certificate", &certificate, "--tls-key", &key]);
    let url = format!("https://localhost:{}", server.http.port());
    let authority = text(certificates.authority().to_owned());
    let known = call(&[], &["check", "--peek", "--server", &url, "--ca-file", &authority, "user=u"]);
    assert_eq!(known.code, Some(0), "{}", known.stderr);
    // The server's own certificate is no authority that signed it.
    let unknown = call(&[], &["check", "--peek", "--server", &url, "--ca-file", &certificate, "user=u"]);
    assert_eq!(unknown.code, Some(3), "{}", unknown.stderr);
    let plain = call(&[], &["check", "--peek", "--server", &url.replace("https", "http"), "user=u"]);
    assert_eq!(plain.code, Some(3), "{}", plain.stderr);
}

#[test]
fn why_opens_a_reference_over_a_server_and_with_the_key_alone() {
    let folder = folder("remote-why");
    let server = served(&folder, &[]);
    let url = url(server.http);
    let check = ["check", "--server", &url, "--times", "2", "--format", "json", "action=login", "user=u"];
    let checked = call(&[], &check);
    let refusal: serde_json::Value = serde_json::from_str(checked.last_line()).expect("a decision");
    let reference = refusal["ref"].as_str().expect("a reference");
    let asked = call(&[("TOLLGATE_SERVER", &url)], &["why", reference, "--format", "json"]);
    assert_eq!(asked.code, Some(0), "{}", asked.stderr);
    let key = text(folder.join("key"));
    let opened = call(&[], &["why", "--hash-key-file", &key, reference, "--format", "json"]);
    assert_eq!(opened.code, Some(0), "{}", opened.stderr);
    for name in ["rule", "limit", "remaining", "retry_after_ms", "reset_at_ms", "cost"] {
        assert_eq!((&asked.json()[name], &opened.json()[name]), (&refusal[name], &refusal[name]), "{name}");
    }
    let shown = call(&[("TOLLGATE_SERVER", &url)], &["why", reference]).stdout;
    assert!(
        shown.starts_with("refused by rule one at 20") && shown.contains("which are in force"),
        "{shown}"
    );
    let forged = format!("{}AAAA", &reference[..reference.len() - 4]);
    assert_eq!(call(&[("TOLLGATE_SERVER", &url)], &["why", &forged]).code, Some(2));
    assert_eq!(call(&[], &["why", "--hash-key-file", &key, &forged]).code, Some(2));

    let live = call(&[("TOLLGATE_SERVER", &url)], &["why", "action=login", "user=u"]);
    assert_eq!(live.code, Some(1), "{}", live.stderr);
    assert!(
        live.stdout.starts_with("would be refused by rule one; a retry is admitted in "),
        "{}",
        live.stdout
    );
    assert!(live.stdout.contains("last refusals"), "{}", live.stdout);
    let other = call(&[("TOLLGATE_SERVER", &url)], &["why", "action=login", "user=other"]);
    assert_eq!(other.code, Some(0), "{}", other.stderr);
    assert!(other.stdout.contains("no refusals of this subject are remembered"), "{}", other.stdout);
}

#[test]
fn answers_of_several_servers_are_merged_and_another_hash_key_is_noticed() {
    let folder = folder("remote-merge");
    let servers = [served(&folder, &[]), served(&folder, &[])];
    let urls = servers.each_ref().map(|server| url(server.http));
    for (index, times) in [(0, "4"), (1, "3")] {
        let checked =
            call(&[], &["check", "--server", &urls[index], "--times", times, "action=login", "user=u"]);
        assert_eq!(checked.code, Some(1), "{}", checked.stderr);
    }
    let both = urls.join(",");
    let top = call(&[("TOLLGATE_SERVER", &both)], &["top", "--format", "json"]).json();
    assert_eq!(top["subjects"].as_array().map(Vec::len), Some(1), "{top}");
    assert_eq!((&top["subjects"][0]["count"], &top["subjects"][0]["rule"]), (&json!(5), &json!("one")));
    let why =
        call(&[("TOLLGATE_SERVER", &both)], &["why", "--format", "json", "action=login", "user=u"]).json();
    let counts: u64 = why["recent_refusals"]
        .as_array()
        .expect("refusals")
        .iter()
        .filter_map(|one| one["count"].as_u64())
        .sum();
    assert_eq!(counts, 5, "{why}");
    let shown = call(&[("TOLLGATE_SERVER", &both)], &["top"]).stdout;
    assert!(shown.lines().nth(1).is_some_and(|line| line.trim_start().starts_with("5 ")), "{shown}");

    // A server with another key answers about another subject.
    std::fs::write(folder.join("key"), KEY.replace('6', "7")).expect("a file");
    let other = served(&folder, &[]);
    let mixed = format!("{both},{}", url(other.http));
    for command in [&["top"][..], &["why", "action=login", "user=u"]] {
        let declined = call(&[("TOLLGATE_SERVER", &mixed)], command);
        assert_eq!(declined.code, Some(2), "{command:?}: {}", declined.stdout);
        assert!(declined.stderr.contains("the hash keys differ"), "{}", declined.stderr);
    }
    // So does the key that is given here.
    let key = text(folder.join("key"));
    let ours = call(&[], &["why", "--server", &urls[0], "--hash-key-file", &key, "action=login", "user=u"]);
    assert_eq!(ours.code, Some(2), "{}", ours.stdout);
}

#[test]
fn text_of_a_server_cannot_control_the_terminal() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = url(listener.local_addr().expect("an address"));
    let answers = thread::spawn(move || {
        let rules = json!({ "rules": [{ "rule": "\u{1b}[2Jevil\r\n\u{9b}31m", "limit": 1, "used": 1 }] });
        let problem = json!({ "detail": "\u{1b}]0;title\u{7}", "code": "\u{1b}[1m" });
        for (status, body) in [("200 OK", rules), ("401 Unauthorized", problem)] {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut head = [0; 4_096];
            assert!(stream.read(&mut head).expect("a request") > 0);
            let body = body.to_string();
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).expect("the client reads");
        }
    });
    for _ in 0..2 {
        let shown = call(&[], &["usage", "--server", &server, "user=u"]);
        let all = format!("{}{}", shown.stdout, shown.stderr);
        assert!(!all.contains(['\u{1b}', '\u{9b}', '\u{7}', '\r']), "{all:?}");
        assert!(all.contains("\\u{1b}"), "{all:?}");
    }
    answers.join().expect("it answered");
}

#[test]
fn help_of_remote_commands_names_the_variables_and_exit_codes() {
    for command in [
        &["usage"][..],
        &["why"],
        &["top"],
        &["reset"],
        &["override", "add"],
        &["deny", "list"],
        &["bypass", "remove"],
        &["rules", "diff"],
        &["rules", "history"],
        &["audit", "list"],
        &["audit", "verify"],
    ] {
        let help = tollgate(&[command, &["--help"]].concat()).stdout;
        for word in
            ["--server", "--token-file", "--ca-file", "--timeout", "TOLLGATE_SERVER", "  3  ", "  4  "]
        {
            assert!(help.contains(word), "{command:?}: {word}");
        }
    }
}
