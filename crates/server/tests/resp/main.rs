//! The Redis protocol (RESP): real clients, and one that sends any bytes, against a real server.

mod client;
mod docs;
mod shares;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use client::{Client, command, say};
use proptest::prelude::*;
use tollgate_server::fuzzing;
use tollgate_testkit::redis::{Flavour, Server};
use tollgate_testkit::serving::{Serving, create_token};
use tollgate_testkit::tools::Tool;

const FRESH: &[u8] = b"*5\r\n:0\r\n:16\r\n:16\r\n:-1\r\n:0\r\n";

fn start(args: &[&str]) -> Serving {
    Serving::start(env!("CARGO_BIN_EXE_tollgate"), args)
}

fn redis_cli(server: &Serving, args: &[&str]) -> String {
    let run = Command::new("redis-cli").args(["-p", &server.resp.port().to_string()]).args(args).output();
    succeeded(run.expect("redis-cli runs"))
}

fn succeeded(output: Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    stdout.into_owned()
}

#[test]
fn redis_cli_gets_the_documented_answers_of_redis_cell() {
    let server = start(&[]);
    let ask = |args: &str| redis_cli(&server, &args.split(' ').collect::<Vec<_>>());
    assert_eq!(ask("CL.THROTTLE user123 15 30 60 1"), "0\n16\n15\n-1\n2\n");
    assert_eq!(ask("CL.THROTTLE user123 15 30 60"), "0\n16\n14\n-1\n4\n");
    assert_eq!(ask("CL.THROTTLE user123 15 30 60 0"), "0\n16\n14\n-1\n4\n");
    assert_eq!(ask("-3 CL.THROTTLE user123 15 30 60 15"), "1\n16\n14\n2\n4\n");
    assert_eq!(ask("-3 TG.CHECK user jane").lines().take(4).collect::<Vec<_>>().join("|"), CHECKED);
    assert_eq!(ask("COMMAND COUNT"), "30\n");
    assert!(ask("INFO server").contains("tollgate_version:"));
}

const CHECKED: &str = "allowed (true)|rule requests-per-client|limit 20|remaining 19";

#[test]
fn redis_benchmark_runs_and_counts_no_error() {
    let server = start(&[]);
    let port = server.resp.port().to_string();
    let run = Command::new("redis-benchmark")
        .args(["-p", &port, "-P", "64", "-c", "8", "-n", "20000", "-q"])
        .args(["CL.THROTTLE", "key:__rand_int__", "15", "30", "60"])
        .output();
    let output = run.expect("redis-benchmark runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let stdout = succeeded(output);
    assert!(stdout.contains("requests per second") && !stdout.contains("rror"), "{stdout}");
    assert_eq!(stderr, "");
}

#[test]
fn redis_py_works_in_both_versions_and_in_long_pipelines() {
    let server = start(&[]);
    let script = include_str!("redis_py.py");
    let run = Tool::RedisPy.command().args(["-c", script, &server.resp.port().to_string()]).output();
    assert_eq!(succeeded(run.expect("python runs")), "good\n");
}

#[test]
fn ioredis_works() {
    let server = start(&[]);
    let script = include_str!("ioredis.js");
    let run = Tool::IoRedis.command().args(["-e", script, &server.resp.port().to_string()]).output();
    assert_eq!(succeeded(run.expect("node runs")), "good\n");
}

#[test]
fn a_bad_command_gets_an_error_with_the_fix_and_changes_nothing() {
    let server = start(&[]);
    let mut client = Client::connect(server.resp);
    let table = include_str!("bad_commands.txt").lines().filter(|line| !line.starts_with('#'));
    let mut count = 0;
    for row in table {
        let (sent, expected) = row.split_once(" => ").expect("a command and an error");
        let words: Vec<Vec<u8>> = sent.split(' ').map(unescaped).collect();
        client.send(&command(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()));
        let line = client.line();
        assert!(line.starts_with(expected), "{sent}\n{line}\n{expected}");
        assert!(line.len() < 400, "{line}");
        count += 1;
    }
    assert!(count >= 100, "{count} rows");
    // The connection is still open, and nothing was charged.
    client.expect(&say("CL.THROTTLE k 15 30 60 0"), FRESH);
    let full =
        b"*20\r\n$7\r\nallowed\r\n:1\r\n$4\r\nrule\r\n$19\r\nrequests-per-client\r\n$5\r\nlimit\r\n:20\r\n\
        $9\r\nremaining\r\n:20\r\n";
    client.expect(&say("TG.PEEK user u COST 0"), full);
}

/// The bytes of a word in the table.
fn unescaped(word: &str) -> Vec<u8> {
    let Some((before, after)) = word.split_once('\\') else {
        return if word == "\"\"" { Vec::new() } else { word.as_bytes().to_vec() };
    };
    let (byte, rest) = match after.split_at(1) {
        ("r", rest) => (b'\r', rest),
        ("n", rest) => (b'\n', rest),
        ("x", rest) => (u8::from_str_radix(&rest[..2], 16).expect("two digits"), &rest[2..]),
        _ => panic!("{word}"),
    };
    let rest = if rest.is_empty() { Vec::new() } else { unescaped(rest) };
    [before.as_bytes(), &[byte], &rest].concat()
}

#[test]
fn invalid_bytes_get_an_error_and_close_the_connection() {
    let long = |kind: &str, len: usize| [kind.as_bytes(), &vec![b'x'; len]].concat();
    let big = [b"*64\r\n".to_vec(), command(&[&[b'x'; 16_000]])[4..].repeat(5)].concat();
    let server = start(&[]);
    for (sent, expected) in [
        (b"*1\r\n:4\r\n".to_vec(), "expected '$', got ':'; every part of a command is a string"),
        (b"*1\r\nPING\r\n".to_vec(), "expected '$', got 'P'"),
        (b"*1\r\n\xff".to_vec(), "expected '$', got '\\xff'"),
        (b"*x\r\n".to_vec(), "invalid multibulk length; a command has at most 137 strings"),
        (b"*\r\n".to_vec(), "invalid multibulk length"),
        (b"*1x".to_vec(), "invalid multibulk length"),
        (b"*138\r\n".to_vec(), "invalid multibulk length"),
        (b"*9999999999".to_vec(), "invalid multibulk length"),
        (b"*1\rx".to_vec(), "invalid multibulk length"),
        (b"*1\r\n$-1\r\n".to_vec(), "invalid bulk length; a string has 0 to 65536 bytes"),
        (b"*1\r\n$65537\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$999999999999".to_vec(), "invalid bulk length"),
        (b"*1\r\n$4a\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$4\r\nPINGPONG".to_vec(), "expected CRLF after a string"),
        (b"*1\r\n$4\r\nPING\n\r".to_vec(), "expected CRLF after a string"),
        (big, "too big command; it has at most 65536 bytes"),
        (long("", 1024), "too big inline request; a line has at most 1024 bytes"),
        ([b"a ".repeat(138), b"\n".to_vec()].concat(), "invalid multibulk length"),
        (b"PING \"open\r\n".to_vec(), "unbalanced quotes in request; close them"),
        (b"PING 'open\r\n".to_vec(), "unbalanced quotes in request"),
        (b"PING \"a\"b\r\n".to_vec(), "unbalanced quotes in request"),
        (b"PING a\"b\"\r\n".to_vec(), "unbalanced quotes in request"),
        (b"POST / HTTP/1.1\r\n".to_vec(), "this is HTTP, which is served on another port"),
        (b"Host: localhost\r\n".to_vec(), "this is HTTP"),
    ] {
        let shown = sent.get(..40).unwrap_or(&sent).escape_ascii().to_string();
        let mut client = Client::connect(server.resp);
        // Commands before the invalid bytes are answered, commands after them are not.
        client.expect(&say("PING"), b"+PONG\r\n");
        client.send(&sent);
        client.send(b"\r\nCL.THROTTLE k 15 30 60 5\r\n");
        let line = client.line();
        assert!(line.starts_with(&format!("-ERR Protocol error: {expected}")), "{shown}\n{line}");
        assert_eq!(client.rest(), b"", "{shown}");
    }
    Client::connect(server.resp).expect(&say("CL.THROTTLE k 15 30 60 0"), FRESH);
}

#[test]
fn commands_arrive_in_any_pieces_and_in_both_forms() {
    let server = start(&[]);
    let sent =
        [say("PING"), b"ping 'a b'\r\n".to_vec(), say("ECHO x"), b"\r\n*0\r\n".to_vec(), say("echo y")];
    let (sent, expected) = (sent.concat(), b"+PONG\r\n$3\r\na b\r\n$1\r\nx\r\n$1\r\ny\r\n".as_slice());
    let mut client = Client::connect(server.resp);
    for cut in 0..=sent.len() {
        client.send(&sent[..cut]);
        client.expect(&sent[cut..], expected);
    }
    for byte in &sent {
        client.send(&[*byte]);
    }
    client.expect(b"", expected);
}

#[test]
fn ten_thousand_pipelined_commands_are_answered_in_order() {
    let server = start(&[]);
    let mut client = Client::connect(server.resp);
    let (mut sent, mut expected) = (Vec::new(), String::new());
    for number in 0..10_000 {
        let text = number.to_string();
        sent.extend_from_slice(&command(&[b"ECHO", text.as_bytes()]));
        expected += &format!("${}\r\n{text}\r\n", text.len());
    }
    client.expect(&sent, expected.as_bytes());
    // 10,000 charges: exactly the limit is admitted.
    client.send(&say("CL.THROTTLE row 999 1 3600").repeat(10_000));
    let answers = String::from_utf8(client.finish()).expect("text");
    assert_eq!(answers.matches("*5\r\n:0\r\n:1000\r\n").count(), 1_000);
    assert_eq!(answers.matches("*5\r\n:1\r\n:1000\r\n:0\r\n:3600\r\n").count(), 9_000);
}

#[test]
fn a_client_that_reads_late_gets_everything() {
    let server = start(&[]);
    let mut client = Client::connect(server.resp);
    // Replies of several megabytes to commands of some kilobytes.
    client.send(&b"COMMAND\r\n".repeat(2_000));
    client.send(&say("ECHO last"));
    let answers = client.finish();
    assert!(answers.len() > 1_500_000 && answers.ends_with(b"$4\r\nlast\r\n"), "{} bytes", answers.len());
}

#[test]
fn both_protocol_versions_reply_the_same_in_their_own_types() {
    let server = start(&[]);
    let mut client = Client::connect(server.resp);
    client.expect(&say("CLIENT GETNAME"), b"$-1\r\n");
    client.expect(&say("CONFIG GET save"), b"*2\r\n$4\r\nsave\r\n$0\r\n\r\n");
    client.send(&say("HELLO 3 SETNAME me"));
    assert_eq!(client.line(), "%7");
    let rest = "$6 server $8 tollgate $7 version * * $5 proto :3 $2 id * $4 mode $10 standalone $4 role $6 master $7 modules *0";
    for expected in rest.split(' ') {
        let line = client.line();
        assert!(expected == "*" || line == expected, "{line} instead of {expected}");
    }
    client.expect(&say("CLIENT GETNAME"), b"$2\r\nme\r\n");
    client.expect(&say("CONFIG GET save"), b"%1\r\n$4\r\nsave\r\n$0\r\n\r\n");
    client.expect(&say("CL.THROTTLE k 15 30 60 0"), FRESH);
    let decided = b"%10\r\n$7\r\nallowed\r\n#t\r\n$4\r\nrule\r\n_\r\n$5\r\nlimit\r\n_\r\n$9\r\nremaining\r\n_\r\n\
        $14\r\nretry_after_ms\r\n:0\r\n$11\r\nreset_at_ms\r\n_\r\n$8\r\ndelay_ms\r\n:0\r\n$6\r\nsource\r\n$9\r\nunmatched\r\n\
        $8\r\ndegraded\r\n#f\r\n$7\r\nreceipt\r\n_\r\n";
    client.expect(&say("TG.CHECK cost 3 id x"), decided);
    client.expect(&say("RESET"), b"+RESET\r\n");
    let decided = String::from_utf8_lossy(decided).replace("%10", "*20").replace("#t", ":1");
    let decided = decided.replace("#f", ":0").replace("_\r\n", "$-1\r\n");
    client.expect(&say("TG.CHECK cost 3 id x"), decided.as_bytes());
    client.expect(&say("CLIENT GETNAME"), b"$-1\r\n");
}

#[test]
fn a_client_that_turned_replies_off_gets_none() {
    let server = start(&[]);
    let mut client = Client::connect(server.resp);
    client.send(&say("CLIENT REPLY OFF"));
    client.send(&say("CL.THROTTLE k 15 30 60 3"));
    client.send(&say("NONSENSE"));
    client.expect(&say("CLIENT REPLY ON"), b"+OK\r\n");
    client.send(&say("CLIENT REPLY SKIP"));
    client.send(&say("TG.PEEK user u"));
    client.expect(&say("CL.THROTTLE k 15 30 60 0"), b"*5\r\n:0\r\n:16\r\n:13\r\n:-1\r\n:6\r\n");
    client.expect(&say("QUIT"), b"+OK\r\n");
    assert_eq!(client.rest(), b"");
}

#[test]
fn an_id_is_charged_once() {
    let server = start(&[]);
    let mut client = Client::connect(server.resp);
    client.send(&say("TG.CHECK user u COST 5 ID r1"));
    client.send(&say("TG.CHECK user u ID r1 COST 5"));
    client.send(&say("TG.CHECK user u COST 6 ID r1"));
    client.send(&say("QUIT"));
    let answers = String::from_utf8(client.rest()).expect("text");
    assert_eq!(answers.matches("remaining\r\n:15\r\n").count(), 2, "{answers}");
    assert!(
        answers.contains("-ERR this request id was used for another request; choose a new id"),
        "{answers}"
    );
}

/// A client's own bytes are counted, whatever they are: an error would let them pass at a caller that ignores errors.
#[test]
fn arguments_of_any_bytes_are_counted_without_loss() {
    let server = start(&[]);
    let mut client = Client::connect(server.resp);
    let remaining = |client: &mut Client, words: &[&[u8]]| {
        client.send(&[command(words), say("PING")].concat());
        let lines: Vec<String> =
            std::iter::repeat_with(|| client.line()).take_while(|line| line != "+PONG").collect();
        let index = lines.iter().position(|line| line == "remaining").unwrap_or_else(|| panic!("{lines:?}"));
        lines[index + 1].clone()
    };
    for (user, left) in [
        (&b"\xff"[..], [":19", ":18"]),
        (b"\xfe", [":19", ":18"]),
        (b"a\xffb", [":19", ":18"]),
        ("\u{10FFFF}".as_bytes(), [":19", ":18"]),
        (b"\xf4\x8f\xbf\xbf", [":17", ":16"]),
    ] {
        for left in left {
            assert_eq!(
                remaining(&mut client, &[b"TG.CHECK", b"user", user]),
                left,
                "{}",
                user.escape_ascii()
            );
        }
    }
    let throttle = |key: &[u8]| command(&[b"CL.THROTTLE", key, b"15", b"30", b"60", b"4"]);
    client.expect(&throttle(b"\xff"), b"*5\r\n:0\r\n:16\r\n:12\r\n:-1\r\n:8\r\n");
    client.expect(&throttle(b"\xff"), b"*5\r\n:0\r\n:16\r\n:8\r\n:-1\r\n:16\r\n");
    client.expect(&throttle("\u{10FFFF}".as_bytes()), b"*5\r\n:0\r\n:16\r\n:12\r\n:-1\r\n:8\r\n");
    // A value that is too long as text gets an error, and the connection stays open.
    client.send(&command(&[b"TG.CHECK", b"user", &[0xff; 5_000]]));
    assert!(client.line().starts_with("-ERR attribute \"user\" has 20000 bytes, more than 16384"));
    client.expect(&say("PING"), b"+PONG\r\n");
}

#[test]
fn a_token_permits_what_its_scopes_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let (asks, asks_line) = token("check");
    let (rules, rules_line) = token("check,change");
    let config = folder.path().join("tollgate.yaml");
    let text = format!("anonymous: none\ntokens:\n{asks_line}\n{rules_line}\n");
    fs::write(&config, text).expect("a file can be written");
    let server = start(&["--config", config.to_str().expect("text")]);
    let mut client = Client::connect(server.resp);
    let anonymous = b"-NOAUTH Authentication required; send AUTH with a token\r\n";
    for words in ["PING", "NONSENSE", "CL.THROTTLE k 1 1 1", "TG.CHECK user u", "INFO", "COMMAND"] {
        client.expect(&say(words), anonymous);
    }
    client.send(&say("HELLO 3"));
    assert!(client.line().starts_with("-NOAUTH HELLO must be called with the client already authenticated"));
    client.expect(&say(&format!("AUTH {asks}")), b"+OK\r\n");
    client.expect(&say("PING"), b"+PONG\r\n");
    client.expect(&say("CL.THROTTLE k 15 30 60 0"), FRESH);
    client.send(&say("TG.RESET user u"));
    assert!(client.line().starts_with("-NOPERM this needs a token with the scope 'change'"));
    // An unknown token does not change the scopes; `RESET` removes them.
    client.send(&say("AUTH nonsense"));
    assert!(client.line().starts_with("-WRONGPASS"));
    client.expect(&say("PING"), b"+PONG\r\n");
    client.expect(&say("RESET"), b"+RESET\r\n");
    client.expect(&say("PING"), anonymous);
    client.send(&say(&format!(
        "HELLO 2 AUTH default {rules} SETNAME a-name-that-is-rather-long-for-a-connection"
    )));
    assert_eq!(client.line(), "*14");
    client.send(&say("QUIT"));
    assert!(client.rest().ends_with(b"+OK\r\n"));

    // The scope `admin` permits `TG.RESET`.
    let admin = |args: &str| {
        let given = ["--no-auth-warning", "-a", &rules];
        redis_cli(&server, &[given.as_slice(), &args.split(' ').collect::<Vec<_>>()].concat())
    };
    assert!(admin("TG.CHECK user u COST 7").contains("remaining\n13\n"));
    assert_eq!(admin("TG.RESET user u"), "requests-per-client\n");
    assert_eq!(server.wait_for("reset")["token"], "check-change");
    assert!(
        admin("TG.RESET unused x").contains("ERR no rule matches these attributes, so nothing was reset")
    );
    assert!(admin("TG.PEEK user u COST 0").contains("remaining\n20\n"));

    // Without a token, only short commands are accepted.
    for sent in [command(&[b"AUTH", &[b'x'; 129]]), b"*9\r\n".to_vec(), vec![b'x'; 256]] {
        let mut client = Client::connect(server.resp);
        client.send(&sent);
        assert!(client.line().starts_with("-ERR Protocol error: "));
        assert_eq!(client.rest(), b"");
    }
}

/// A new token with these scopes, and its line for the configuration.
fn token(scopes: &str) -> (String, String) {
    let created = create_token(env!("CARGO_BIN_EXE_tollgate"), scopes);
    (created.token, created.line)
}

#[test]
fn commands_sent_before_shutdown_are_answered() {
    let mut server = start(&[]);
    let mut client = Client::connect(server.resp);
    let mut idle = Client::connect(server.resp);
    idle.expect(&say("PING"), b"+PONG\r\n");
    client.expect(&say("PING"), b"+PONG\r\n");
    client.send(&say("CL.THROTTLE end 99 1 3600").repeat(50));
    server.signal("TERM");
    let answers = String::from_utf8(client.rest()).expect("text");
    assert_eq!(answers.matches("*5\r\n:0\r\n:100\r\n").count(), 50, "{answers}");
    assert_eq!(idle.rest(), b"");
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn with_redis_pipelined_commands_are_batched_and_answered_in_order() {
    let mut redis = Server::start(Flavour::Redis70).expect("a server starts");
    let key = "6a".repeat(32);
    let folder = tempfile::tempdir().expect("a folder");
    let key_file = folder.path().join("key");
    fs::write(&key_file, &key).expect("a file can be written");
    let rules = folder.path().join("rules.yaml");
    fs::write(&rules, RULES).expect("a file can be written");
    let path = |path: &Path| path.to_str().expect("text").to_owned();
    let url = redis.url();
    let mut args = vec!["--store", &url, "--store-deadline", "5s"];
    let (key_file, rules) = (path(&key_file), path(&rules));
    args.extend(["--hash-key-file", &key_file, "--rules", &rules]);
    let server = start(&args);
    let mut client = Client::connect(server.resp);
    let (mut sent, mut expected) = (Vec::new(), String::new());
    for number in 1..=500 {
        sent.extend_from_slice(&say("CL.THROTTLE row 999 1 3600"));
        sent.extend_from_slice(&say(&format!("ECHO {number}")));
        expected += &format!("*5\r\n:0\r\n:1000\r\n:{}\r\n:-1\r\n:{}\r\n", 1000 - number, 3600 * number);
        let text = number.to_string();
        expected += &format!("${}\r\n{text}\r\n", text.len());
    }
    client.expect(&sent, expected.as_bytes());
    let stats = redis.admin().expect("it runs").info("commandstats").expect("an answer");
    let calls =
        stats.get("cmdstat_evalsha").and_then(|stats| stats.strip_prefix("calls=")?.split(',').next());
    let calls: u32 = calls.and_then(|calls| calls.parse().ok()).expect("calls of the script");
    assert!(calls <= 100, "{calls} calls for 500 checks");

    // While the store is down, `CL.THROTTLE` is an error, and failure policies answer for rules.
    redis.kill9().expect("it can be killed");
    client.send(&say("CL.THROTTLE row 999 1 3600"));
    let line = client.line();
    assert!(
        line.starts_with("-UNAVAILABLE the store did not answer; whether the request was counted is unknown"),
        "{line}"
    );
    client.send(&say("HELLO 3"));
    client.send(&say("TG.CHECK user u action closed"));
    client.send(&say("TG.CHECK user u action open"));
    client.send(&say("QUIT"));
    let answers = String::from_utf8(client.rest()).expect("text");
    for (allowed, rule) in [("#f", "closed"), ("#t", "open")] {
        let answer = format!("allowed\r\n{allowed}\r\n$4\r\nrule\r\n${}\r\n{rule}\r\n", rule.len());
        assert!(answers.contains(&answer), "{answers}");
    }
    assert_eq!(answers.matches("source\r\n$8\r\nfallback\r\n").count(), 2, "{answers}");
}

const RULES: &str = "
version: 1
rules:
  - { id: closed, match: { action: closed }, per: user, limit: { token-bucket: 1/s }, on_failure: closed }
  - { id: open, match: { action: open }, per: user, limit: { token-bucket: 1/s }, on_failure: open }
";

#[test]
fn the_corpus_of_the_fuzz_target_holds_truncated_and_changed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/resp");
    let files: Vec<_> =
        fs::read_dir(folder).expect("a corpus").map(|file| file.expect("a file").path()).collect();
    assert!(files.len() >= 20, "{} files", files.len());
    for path in files {
        // The name is printed if the property fails.
        println!("{}", path.display());
        let bytes = fs::read(&path).expect("a file");
        fuzzing::resp(&bytes);
        for offset in 0..bytes.len().min(100) {
            fuzzing::resp(&bytes[..offset]);
            let mut changed = bytes.clone();
            for byte in [0, b'0', b'\n', b'"', 0xff] {
                changed[offset] = byte;
                fuzzing::resp(&changed);
            }
        }
    }
}

/// Words of commands, and random bytes.
fn words() -> impl Strategy<Value = Vec<u8>> {
    let known =
        ["CL.THROTTLE", "TG.CHECK", "user", "COST", "ID", "0", "1", "15", "-1", "9007199254740991", ""];
    prop_oneof![
        4 => proptest::sample::select(known.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..12),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_arguments_panic(words in proptest::collection::vec(words(), 1..10)) {
        fuzzing::resp(&command(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        fuzzing::resp(&bytes);
    }

    #[test]
    fn no_broken_frame_panics(text in "([*$0-9\r\n\"'\\\\ a-z-]|\r\n|[*]2\r\n|[$]1\r\n){0,60}") {
        fuzzing::resp(text.as_bytes());
    }
}
