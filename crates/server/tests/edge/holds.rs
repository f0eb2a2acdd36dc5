//! Leases, reservations, meters and usage: HTTP and RESP give the same answers on the same state, and a receipt of one is
//! valid on the other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tollgate_testkit::redis::{Flavour, Server};
use tollgate_testkit::serving::Serving;

use super::{command, connect, start};

const RULES: &str = "version: 1
rules:
  - { id: tokens, match: { action: chat }, per: user, limit: { quota: 100/year } }
  - { id: streams, match: { action: chat }, per: user, limit: { concurrency: 3, lease: 1h } }
  - { id: searches, match: { action: search }, per: user, limit: { sliding-log: 5/h } }
  - { id: seats, match: { action: seat }, per: user, limit: { meter: 10 } }
";

/// A server, and one connection of each transport.
struct Both {
    server: Serving,
    resp: BufReader<TcpStream>,
    _folder: TempDir,
    _redis: Option<Server>,
}

/// Runs a test on the memory store and on Redis.
fn on_each_store(test: impl Fn(&mut Both)) {
    test(&mut Both::start(None));
    test(&mut Both::start(Some(Server::start(Flavour::Redis70).expect("a server starts"))));
}

impl Both {
    fn start(redis: Option<Server>) -> Both {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rules.yaml");
        std::fs::write(&path, RULES).expect("a file can be written");
        let key = folder.path().join("key");
        std::fs::write(&key, "6b".repeat(32)).expect("a file can be written");
        let (rules, key) = (path.to_str().expect("text"), key.to_str().expect("text"));
        let url = redis.as_ref().map(Server::url);
        let mut args = vec!["--rules", rules, "--hash-key-file", key];
        if let Some(url) = &url {
            // A busy machine must not make a failure policy answer.
            args.extend(["--store", url, "--store-deadline", "5s"]);
        }
        let server = start(&args);
        let mut resp = BufReader::new(connect(server.resp));
        resp.get_mut().write_all(&command(&["HELLO", "3"])).expect("the server reads");
        read(&mut resp);
        Both { server, resp, _folder: folder, _redis: redis }
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = connect(self.server.http);
        stream.write_all(head.as_bytes()).expect("the server reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, serde_json::from_str(body).expect("JSON"))
    }

    /// Sends a command and returns its reply; an error is a string that begins with `-`.
    fn send(&mut self, words: &[&str]) -> Value {
        self.resp.get_mut().write_all(&command(words)).expect("the server reads");
        read(&mut self.resp)
    }

    /// The usage of a request, which is the same over both.
    fn usage(&mut self, action: &str) -> Value {
        let (status, over_http) =
            self.post("/v1/usage", &json!({ "attributes": { "action": action, "user": "u" } }));
        assert_eq!(status, 200, "{over_http}");
        let over_resp = self.send(&["TG.USAGE", "action", action, "user", "u"]);
        assert_eq!(without_reset(over_resp), without_reset(over_http.clone()));
        over_http
    }
}

/// The usage without the instants of resets: of an unused rule that is now.
fn without_reset(mut usage: Value) -> Value {
    for rule in usage["rules"].as_array_mut().into_iter().flatten() {
        assert!(rule["reset_at_ms"].take().is_u64(), "{rule}");
    }
    usage
}

/// Reads one reply of RESP3.
fn read(reader: &mut impl BufRead) -> Value {
    let mut line = String::new();
    reader.read_line(&mut line).expect("a reply");
    let (kind, rest) = line.trim_end().split_at(1);
    let count = || rest.parse::<usize>().unwrap_or_else(|_| panic!("a count: {line:?}"));
    match kind {
        "+" => json!(rest),
        "-" => json!(format!("-{rest}")),
        ":" => json!(rest.parse::<i64>().expect("a number")),
        "#" => json!(rest == "t"),
        "_" => Value::Null,
        "$" => {
            let mut bytes = vec![0; count() + 2];
            reader.read_exact(&mut bytes).expect("a string");
            bytes.truncate(bytes.len() - 2);
            json!(String::from_utf8(bytes).expect("text"))
        }
        "*" => (0..count()).map(|_| read(reader)).collect(),
        "%" => {
            let pairs = (0..count()).map(|_| match read(reader) {
                Value::String(name) => (name, read(reader)),
                other => panic!("{other} is no name"),
            });
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        _ => panic!("{line:?}"),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

#[test]
fn a_reservation_of_either_transport_is_settled_on_the_other() {
    on_each_store(|both| {
        let chat = json!({ "attributes": { "action": "chat", "user": "u" }, "cost": 40 });
        let (status, over_http) = both.post("/v1/reservations", &chat);
        assert_eq!(status, 200, "{over_http}");
        let over_resp =
            both.send(&["TG.RESERVE", "action", "chat", "user", "u", "COST", "50", "TTL", "60000"]);
        assert_eq!(
            (&over_resp["allowed"], &over_resp["remaining"]),
            (&json!(true), &json!(10)),
            "{over_resp}"
        );
        assert!(over_resp["expires_at_ms"].is_u64() && over_resp["ttl_ms"].is_u64(), "{over_resp}");
        let refused = both.send(&["TG.RESERVE", "action", "chat", "user", "u", "COST", "11"]);
        assert_eq!((&refused["allowed"], &refused["receipt"]), (&json!(false), &Value::Null), "{refused}");

        let usage = both.usage("chat");
        let quota = ["used", "held", "remaining", "overdraft"].map(|name| &usage["rules"][0][name]);
        assert_eq!(quota, [&json!(0), &json!(90), &json!(10), &json!(0)], "{usage}");
        let settled = both.send(&["TG.SETTLE", &text(&over_http["receipt"]), "30"]);
        assert_eq!(settled["rules"][0]["amount"], 10, "{settled}");
        let body = json!({ "receipt": over_resp["receipt"] });
        let (status, cancelled) = both.post("/v1/reservations/cancel", &body);
        assert_eq!((status, &cancelled["rules"][0]["amount"]), (200, &json!(50)), "{cancelled}");
        let usage = both.usage("chat");
        assert_eq!(
            (&usage["rules"][0]["used"], &usage["rules"][1]["held"]),
            (&json!(30), &json!(0)),
            "{usage}"
        );

        // A common amount, and one for a single rule.
        let held = both.send(&["TG.RESERVE", "action", "chat", "user", "u", "COST", "20"]);
        let receipt = text(&held["receipt"]);
        let unknown = text(&both.send(&["TG.SETTLE", &receipt, "1", "RULE", "searches", "1"]));
        assert!(unknown.starts_with("-ERR the receipt has no rule \"searches\""), "{unknown}");
        both.send(&["TG.SETTLE", &receipt, "9", "RULE", "tokens", "7"]);
        assert_eq!(both.usage("chat")["rules"][0]["used"], 37);
    });
}

#[test]
fn a_lease_of_either_transport_is_renewed_and_released_on_the_other() {
    on_each_store(|both| {
        let chat = ["TG.LEASE", "action", "chat", "user", "u"];
        let over_resp = both.send(&chat);
        assert_eq!((&over_resp["lease_ms"], &over_resp["allowed"]), (&json!(3_600_000), &json!(true)));
        let (status, over_http) =
            both.post("/v1/leases", &json!({ "attributes": { "action": "chat", "user": "u" } }));
        assert_eq!(status, 200, "{over_http}");
        // A check takes a lease too, and its receipt releases it.
        let checked = both.send(&["TG.CHECK", "action", "chat", "user", "u"]);
        assert_eq!(checked["allowed"], json!(true), "{checked}");
        assert_eq!(both.send(&chat)["allowed"], json!(false));
        let body = json!({ "receipt": over_resp["receipt"] });
        let renewed = both.post("/v1/leases/renew", &body).1;
        assert_eq!(renewed, both.send(&["TG.RENEW", &text(&over_resp["receipt"])]));
        assert_eq!(renewed["lease_ms"], 3_600_000);
        for held in [&over_http, &checked] {
            let released = both.send(&["TG.RELEASE", &text(&held["receipt"])]);
            assert_eq!(released["rules"][0]["amount"], 1, "{released}");
            let lost = text(&both.send(&["TG.RENEW", &text(&held["receipt"])]));
            assert!(lost.starts_with("-NOTHELD the lease of rule \"streams\" is lost"), "{lost}");
        }
        assert_eq!(both.post("/v1/leases/release", &body).0, 200);
        assert_eq!(both.usage("chat")["rules"][1]["held"], 0);
        let none = text(&both.send(&["TG.LEASE", "action", "search", "user", "u"]));
        assert!(none.starts_with("-ERR no rule with a concurrency limit matches"), "{none}");
    });
}

#[test]
fn a_receipt_of_tg_check_is_refunded_once() {
    on_each_store(|both| {
        let checked = both.send(&["TG.CHECK", "action", "search", "user", "u", "COST", "5"]);
        let receipt = text(&checked["receipt"]);
        let refunded = both.send(&["TG.REFUND", &receipt, "AMOUNT", "2"]);
        assert_eq!(refunded["rules"][0]["amount"], 2, "{refunded}");
        let (_, again) = both.post("/v1/refund", &json!({ "receipt": receipt }));
        assert_eq!(
            (&again["rules"][0]["amount"], &again["rules"][0]["already_returned"]),
            (&json!(2), &json!(true))
        );
        assert_eq!(both.usage("search")["rules"][0]["used"], 3);
        let peeked = both.send(&["TG.PEEK", "action", "search", "user", "u"]);
        assert_eq!(peeked["receipt"], Value::Null, "a peek charges nothing");
    });
}

#[test]
fn meters_count_the_same_on_both_transports() {
    on_each_store(|both| {
        let seat = json!({ "attributes": { "action": "seat", "user": "u" }, "amount": "0.25", "scale": 2 });
        assert_eq!(both.post("/v1/meters/add", &seat).0, 413, "25 units never fit into 10");
        let added =
            both.send(&["TG.METER.ADD", "action", "seat", "user", "u", "AMOUNT", "0.5", "SCALE", "1"]);
        let half = json!({ "rule": "seats", "value": "0.5", "limit": "1.0", "remaining": "0.5" });
        assert_eq!(added, json!({ "meters": [half], "replayed": false }));
        let seat = json!({ "attributes": { "action": "seat", "user": "u" } });
        let five = json!({ "rule": "seats", "value": 5, "limit": 10, "remaining": 5 });
        assert_eq!(both.post("/v1/meters", &seat), (200, json!({ "meters": [five] })));
        assert_eq!(both.send(&["TG.METER.GET", "action", "seat", "user", "u"]), json!({ "meters": [five] }));
        let full = text(&both.send(&["TG.METER.ADD", "action", "seat", "user", "u", "AMOUNT", "6"]));
        assert!(full.starts_with("-FULL the meter of rule \"seats\" has room for 5 more"), "{full}");
    });
}

#[test]
fn records_credits_and_extensions_are_the_same_on_both_transports_and_counted_once() {
    on_each_store(|both| {
        let chat = |cost: u64, id: &str| json!({ "attributes": { "action": "chat", "user": "u" }, "cost": cost, "id": id });
        // The same id over both transports is the same record.
        let (status, over_http) = both.post("/v1/record", &chat(130, "r-1"));
        assert_eq!(status, 200, "{over_http}");
        let mut over_resp =
            both.send(&["TG.RECORD", "action", "chat", "user", "u", "COST", "130", "ID", "r-1"]);
        assert_eq!(over_resp["replayed"].take(), json!(true));
        assert_eq!(over_resp["rules"][0]["amount"], over_http["rules"][0]["amount"]);
        assert_eq!(both.usage("chat")["rules"][0]["overdraft"], 30);
        let credited = both.send(&["TG.CREDIT", "action", "chat", "user", "u", "COST", "60", "ID", "c-1"]);
        assert_eq!((&credited["rules"][0]["amount"], &credited["replayed"]), (&json!(60), &json!(false)));
        assert_eq!(both.post("/v1/credit", &chat(60, "c-1")).1["replayed"], json!(true));
        assert_eq!(both.usage("chat")["rules"][0]["used"], 70);

        let held = both.send(&["TG.RESERVE", "action", "chat", "user", "u", "COST", "10"]);
        let extended = both.send(&["TG.EXTEND", &text(&held["receipt"]), "15", "TTL", "60000", "ID", "e-1"]);
        assert_eq!((&extended["allowed"], &extended["remaining"]), (&json!(true), &json!(5)), "{extended}");
        let body = json!({ "receipt": held["receipt"], "more": 15, "ttl_ms": 60_000, "id": "e-1" });
        let (status, again) = both.post("/v1/reservations/extend", &body);
        assert_eq!(
            (status, &again["replayed"], &again["receipt"]),
            (200, &json!(true), &extended["receipt"])
        );
        let refused = both.send(&["TG.EXTEND", &text(&extended["receipt"]), "6"]);
        assert_eq!((&refused["allowed"], &refused["rule"]), (&json!(false), &json!("tokens")), "{refused}");
        let (status, _) =
            both.post("/v1/reservations/extend", &json!({ "receipt": extended["receipt"], "more": 6 }));
        assert_eq!(status, 429);
        let settled = both.send(&["TG.SETTLE", &text(&extended["receipt"]), "20"]);
        assert_eq!(settled["rules"][0]["amount"], 5, "{settled}");
        assert_eq!(both.usage("chat")["rules"][0]["used"], 90);
        let ended = text(&both.send(&["TG.EXTEND", &text(&extended["receipt"]), "1"]));
        assert!(ended.starts_with("-NOTHELD the reservation of rule \"tokens\" has ended"), "{ended}");

        let seat = ["action", "seat", "user", "u", "AMOUNT", "4", "ID", "m-1"];
        for replayed in [false, true] {
            let added = both.send(&[&["TG.METER.ADD"], &seat[..]].concat());
            assert_eq!(added["replayed"], json!(replayed), "{added}");
        }
        for replayed in [false, true] {
            let less = both.send(&[&["TG.METER.SUBTRACT"], &seat[..]].concat());
            assert_eq!(
                (&less["meters"][0]["amount"], &less["replayed"]),
                (&json!(4), &json!(replayed)),
                "{less}"
            );
        }
        assert_eq!(both.usage("seat")["rules"][0]["used"], 0);
    });
}
