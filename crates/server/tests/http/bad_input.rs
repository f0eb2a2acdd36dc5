//! Invalid requests and the error that each of them gets.

use super::client::{Client, request};
use super::{problem, search, served};

/// A path, a body, and a part of the error that names the fix.
type Bad = (&'static str, &'static str, &'static str);

/// Answered with 400.
const BODIES: &[Bad] = &[
    // Not JSON.
    ("/v1/check", "", "not JSON"),
    ("/v1/check", " ", "not JSON"),
    ("/v1/check", "{", "not JSON"),
    ("/v1/check", "}", "not JSON"),
    ("/v1/check", "attributes", "not JSON"),
    ("/v1/check", "{'attributes':{}}", "not JSON"),
    ("/v1/check", r#"{"attributes":{}"#, "not JSON"),
    ("/v1/check", r#"{"attributes":{},}"#, "not JSON"),
    ("/v1/check", r#"{"attributes":{}}{}"#, "not JSON"),
    ("/v1/check", r#"{"attributes":{}} x"#, "not JSON"),
    ("/v1/check", r#"{"attributes":{"user":"a}}"#, "not JSON"),
    ("/v1/check", r#"{"attributes":{"user":"\x"}}"#, "not JSON"),
    ("/v1/check", r#"{"attributes":{"user":"\ud800"}}"#, "not JSON"),
    ("/v1/check", "{\"attributes\":{\"user\":\"a\nb\"}}", "not JSON"),
    ("/v1/check", r#"{"attributes":{},"cost":01}"#, "not JSON"),
    ("/v1/check", r#"{"attributes":{},"cost":+1}"#, "not JSON"),
    ("/v1/check", r#"{"attributes":{},"cost":.5}"#, "not JSON"),
    ("/v1/check", r#"{"attributes":{},"cost":0x10}"#, "not JSON"),
    ("/v1/check", r#"{"attributes":{},"cost":NaN}"#, "not JSON"),
    ("/v1/check", r#"{"attributes":{},"cost":Infinity}"#, "not JSON"),
    ("/v1/check", r#"{"attributes":{},"cost":1e999}"#, "not JSON"),
    ("/v1/check", r#"{attributes:{}}"#, "not JSON"),
    ("/v1/check", r#"{"attributes" {}}"#, "not JSON"),
    ("/v1/check", "// a comment\n{\"attributes\":{}}", "not JSON"),
    ("/v1/check", "\u{feff}{\"attributes\":{}}", "not JSON"),
    // Not an object.
    ("/v1/check", "null", "an object with attributes, cost, id"),
    ("/v1/check", "true", "an object with attributes, cost, id"),
    ("/v1/check", "1", "an object with attributes, cost, id"),
    ("/v1/check", r#""attributes""#, "an object with attributes, cost, id"),
    ("/v1/check", "[]", "an object with attributes, cost, id"),
    ("/v1/check", r#"[{"attributes":{}}]"#, "an object with attributes, cost, id"),
    // Members.
    ("/v1/check", "{}", "attributes is missing"),
    ("/v1/check", r#"{"cost":1}"#, "attributes is missing"),
    ("/v1/check", r#"{"attributes":{},"attributes":{}}"#, "duplicate member attributes"),
    ("/v1/check", r#"{"attributes":{},"cost":1,"cost":2}"#, "duplicate member cost"),
    ("/v1/check", r#"{"attributes":{},"id":"a","id":"a"}"#, "duplicate member id"),
    ("/v1/check", r#"{"attributes":{},"Cost":1}"#, "use attributes, cost, id"),
    ("/v1/check", r#"{"attributes":{},"result":"success"}"#, "use attributes, cost, id"),
    ("/v1/check", r#"{"attributes":{},"receipt":"x"}"#, "use attributes, cost, id"),
    ("/v1/check", r#"{"attributes":{},"token":1}"#, "use attributes, cost, id"),
    ("/v1/check", r#"{"":{},"attributes":{}}"#, "use attributes, cost, id"),
    ("/v1/peek", r#"{"attributes":{},"id":"a"}"#, "use attributes, cost"),
    ("/v1/explain", r#"{"attributes":{},"id":"a"}"#, "use attributes, cost"),
    // Attributes.
    ("/v1/check", r#"{"attributes":null}"#, "an object of strings"),
    ("/v1/check", r#"{"attributes":[]}"#, "an object of strings"),
    ("/v1/check", r#"{"attributes":"user=jane"}"#, "an object of strings"),
    ("/v1/check", r#"{"attributes":1}"#, "an object of strings"),
    ("/v1/check", r#"{"attributes":true}"#, "an object of strings"),
    ("/v1/check", r#"{"attributes":{"user":1.5}}"#, "a string in quotes"),
    ("/v1/check", r#"{"attributes":{"user":-1.5}}"#, "a string in quotes"),
    ("/v1/check", r#"{"attributes":{"user":null}}"#, "a string in quotes"),
    ("/v1/check", r#"{"attributes":{"user":["jane"]}}"#, "a string in quotes"),
    ("/v1/check", r#"{"attributes":{"user":{"id":"jane"}}}"#, "a string in quotes"),
    ("/v1/check", r#"{"attributes":{"":"jane"}}"#, "has no name"),
    ("/v1/check", r#"{"attributes":{"user":"jane","user":"john"}}"#, "duplicate attribute \"user\""),
    ("/v1/check", r#"{"attributes":{"user":"jane","us\u0065r":"john"}}"#, "duplicate attribute \"user\""),
    // Costs.
    ("/v1/check", r#"{"attributes":{},"cost":-1}"#, "a whole number from 0 to 9007199254740991"),
    ("/v1/check", r#"{"attributes":{},"cost":-9223372036854775808}"#, "a whole number from 0"),
    ("/v1/check", r#"{"attributes":{},"cost":-0.5}"#, "a whole number from 0"),
    ("/v1/check", r#"{"attributes":{},"cost":0.5}"#, "a whole number from 0"),
    ("/v1/check", r#"{"attributes":{},"cost":1.000001}"#, "a whole number from 0"),
    ("/v1/check", r#"{"attributes":{},"cost":1e-1}"#, "a whole number from 0"),
    ("/v1/check", r#"{"attributes":{},"cost":9007199254740992}"#, "exceeds the maximum 9007199254740991"),
    ("/v1/check", r#"{"attributes":{},"cost":9007199254740992.0}"#, "a whole number from 0"),
    ("/v1/check", r#"{"attributes":{},"cost":18446744073709551615}"#, "exceeds the maximum 9007199254740991"),
    ("/v1/check", r#"{"attributes":{},"cost":18446744073709551616}"#, "a whole number from 0"),
    ("/v1/check", r#"{"attributes":{},"cost":1e300}"#, "a whole number from 0"),
    ("/v1/check", r#"{"attributes":{},"cost":"1"}"#, "without quotes"),
    ("/v1/check", r#"{"attributes":{},"cost":""}"#, "without quotes"),
    ("/v1/check", r#"{"attributes":{},"cost":null}"#, "a whole number from 0"),
    ("/v1/check", r#"{"attributes":{},"cost":true}"#, "a whole number from 0"),
    ("/v1/check", r#"{"attributes":{},"cost":[1]}"#, "a whole number from 0"),
    ("/v1/check", r#"{"attributes":{},"cost":{"n":1}}"#, "a whole number from 0"),
    // Ids.
    ("/v1/check", r#"{"attributes":{},"id":""}"#, "256 bytes"),
    ("/v1/check", r#"{"attributes":{},"id":7}"#, "a string in quotes"),
    ("/v1/check", r#"{"attributes":{},"id":null}"#, "a string in quotes"),
    ("/v1/check", r#"{"attributes":{},"id":["a"]}"#, "a string in quotes"),
    // Other paths.
    ("/v1/peek", r#"{"attributes":{},"cost":-1}"#, "a whole number from 0"),
    ("/v1/peek", "{}", "attributes is missing"),
    ("/v1/explain", "[]", "an object with attributes, cost"),
    ("/v1/leases", "{}", "attributes is missing"),
    ("/v1/leases", r#"{"attributes":{},"lease":"1h"}"#, "use attributes, cost, id"),
    ("/v1/check/batch", "{}", "a list of 1 to 64"),
    ("/v1/check/batch", "[]", "at least one"),
    ("/v1/check/batch", "[1]", "an object with attributes, cost, id"),
    ("/v1/check/batch", "[[]]", "an object with attributes, cost, id"),
    (
        "/v1/check/batch",
        r#"[{"attributes":{"action":"search","user":"witness"}},{}]"#,
        "attributes is missing",
    ),
    ("/v1/check/batch", r#"[{"attributes":{"action":"search","user":"witness"}}"#, "not JSON"),
    (
        "/v1/check/batch",
        r#"[{"attributes":{"action":"search","user":"witness"}},{"attributes":{},"cost":-1}]"#,
        "a whole number",
    ),
    ("/v1/refund", "{}", "receipt is missing"),
    ("/v1/refund", r#"{"receipt":1}"#, "a string in quotes"),
    ("/v1/refund", r#"{"receipt":null}"#, "a string in quotes"),
    ("/v1/refund", r#"{"receipt":["a"]}"#, "a string in quotes"),
    ("/v1/refund", r#"{"receipt":"a","receipt":"b"}"#, "duplicate member receipt"),
    ("/v1/refund", r#"{"receipt":"a","cost":5}"#, "use receipt"),
    ("/v1/leases/renew", "{}", "receipt is missing"),
    ("/v1/leases/renew", r#"{"token":"a"}"#, "use receipt"),
    ("/v1/leases/release", r#"[]"#, "an object with receipt"),
    ("/v1/report", r#"{"attributes":{}}"#, "result is missing"),
    ("/v1/report", r#"{"result":"failure"}"#, "attributes is missing"),
    ("/v1/report", r#"{"attributes":{},"result":"failed"}"#, "success or failure"),
    ("/v1/report", r#"{"attributes":{},"result":false}"#, "a string in quotes"),
    ("/v1/report", r#"{"attributes":{},"result":"failure","cost":1}"#, "use attributes, result"),
    // Reservations.
    ("/v1/reservations", "{}", "attributes is missing"),
    ("/v1/reservations", r#"{"attributes":{},"ttl":1}"#, "use attributes, cost, ttl_ms, id"),
    ("/v1/reservations", r#"{"attributes":{},"ttl_ms":0}"#, "milliseconds from 1 to 604800000"),
    ("/v1/reservations", r#"{"attributes":{},"ttl_ms":604800001}"#, "milliseconds from 1 to 604800000"),
    ("/v1/reservations", r#"{"attributes":{},"ttl_ms":18446744073709551615}"#, "milliseconds from 1 to"),
    ("/v1/reservations", r#"{"attributes":{},"ttl_ms":-1}"#, "ttl_ms as a whole number"),
    ("/v1/reservations", r#"{"attributes":{},"ttl_ms":1.5}"#, "ttl_ms as a whole number"),
    ("/v1/reservations", r#"{"attributes":{},"ttl_ms":"1"}"#, "without quotes"),
    ("/v1/reservations", r#"{"attributes":{},"ttl_ms":null}"#, "ttl_ms as a whole number"),
    ("/v1/reservations", r#"{"attributes":{},"cost":-1}"#, "cost as a whole number"),
    ("/v1/reservations", r#"{"attributes":{},"cost":0.5}"#, "cost as a whole number"),
    ("/v1/reservations", r#"{"attributes":{},"id":""}"#, "256 bytes"),
    ("/v1/reservations/settle", "{}", "receipt is missing"),
    ("/v1/reservations/settle", r#"{"receipt":"a"}"#, "actual is missing"),
    ("/v1/reservations/settle", r#"{"actual":1}"#, "receipt is missing"),
    ("/v1/reservations/settle", r#"{"receipt":null,"actual":1}"#, "a string in quotes"),
    ("/v1/reservations/settle", r#"{"receipt":"a","actual":-1}"#, "actual as a whole number"),
    ("/v1/reservations/settle", r#"{"receipt":"a","actual":1.5}"#, "actual as a whole number"),
    ("/v1/reservations/settle", r#"{"receipt":"a","actual":9007199254740992}"#, "exceeds the maximum"),
    ("/v1/reservations/settle", r#"{"receipt":"a","rules":[]}"#, "an object of rule ids"),
    ("/v1/reservations/settle", r#"{"receipt":"a","rules":{}}"#, "actual is missing"),
    ("/v1/reservations/settle", r#"{"receipt":"a","rules":{"r":-1}}"#, "a whole number"),
    ("/v1/reservations/settle", r#"{"receipt":"a","rules":{"r":"1"}}"#, "without quotes"),
    ("/v1/reservations/settle", r#"{"receipt":"a","rules":{"r":1,"r":2}}"#, "duplicate rule \"r\""),
    ("/v1/reservations/settle", r#"{"receipt":"a","actual":1,"cost":1}"#, "use receipt, actual, rules"),
    ("/v1/reservations/cancel", "{}", "receipt is missing"),
    ("/v1/reservations/cancel", r#"{"receipt":"a","actual":1}"#, "use receipt"),
    ("/v1/usage", "{}", "attributes is missing"),
    ("/v1/usage", r#"{"attributes":{},"cost":1}"#, "use attributes"),
    ("/v1/reservations/extend", "{}", "receipt is missing"),
    ("/v1/reservations/extend", r#"{"receipt":"a"}"#, "more is missing"),
    ("/v1/reservations/extend", r#"{"receipt":"a","more":0}"#, "amount 0 is out of range"),
    ("/v1/reservations/extend", r#"{"receipt":"a","more":-1}"#, "more as a whole number"),
    ("/v1/reservations/extend", r#"{"receipt":"a","more":1.5}"#, "more as a whole number"),
    ("/v1/reservations/extend", r#"{"receipt":"a","more":9007199254740992}"#, "out of range"),
    ("/v1/reservations/extend", r#"{"receipt":"a","more":1,"ttl_ms":0}"#, "milliseconds from 1 to"),
    ("/v1/reservations/extend", r#"{"receipt":"a","more":1,"id":""}"#, "256 bytes"),
    ("/v1/reservations/extend", r#"{"receipt":"a","more":1,"cost":1}"#, "use receipt, more, ttl_ms, id"),
    ("/v1/record", "{}", "attributes is missing"),
    ("/v1/record", r#"{"attributes":{},"cost":-1}"#, "cost as a whole number"),
    ("/v1/record", r#"{"attributes":{},"cost":0.5}"#, "cost as a whole number"),
    ("/v1/record", r#"{"attributes":{},"cost":9007199254740992}"#, "exceeds the maximum"),
    ("/v1/record", r#"{"attributes":{},"amount":1}"#, "use attributes, cost, id"),
    ("/v1/credit", r#"{"attributes":{},"cost":-1}"#, "cost as a whole number"),
    ("/v1/credit", r#"{"receipt":"a"}"#, "use attributes, cost, id"),
    // Meters.
    ("/v1/meters/subtract", r#"{"attributes":{}}"#, "amount is missing"),
    ("/v1/meters/subtract", r#"{"attributes":{},"amount":-1}"#, "amount as a whole number"),
    ("/v1/meters", "{}", "attributes is missing"),
    ("/v1/meters", r#"{"attributes":{},"amount":1}"#, "use attributes, scale, rule"),
    ("/v1/meters", r#"{"attributes":{},"scale":16}"#, "exceeds the maximum 15"),
    ("/v1/meters", r#"{"attributes":{},"scale":-1}"#, "scale as a whole number"),
    ("/v1/meters", r#"{"attributes":{},"rule":1}"#, "a string in quotes"),
    ("/v1/meters/add", r#"{"attributes":{}}"#, "amount is missing"),
    ("/v1/meters/add", r#"{"attributes":{},"amount":0}"#, "above 0"),
    ("/v1/meters/add", r#"{"attributes":{},"amount":-1}"#, "amount as a whole number"),
    ("/v1/meters/add", r#"{"attributes":{},"amount":0.5}"#, "a decimal number in quotes"),
    ("/v1/meters/add", r#"{"attributes":{},"amount":"0.5"}"#, "at most 0 digits after the point"),
    ("/v1/meters/add", r#"{"attributes":{},"amount":[1]}"#, "amount as a whole number"),
    ("/v1/meters/add", r#"{"attributes":{},"amount":"1","scale":"2"}"#, "without quotes"),
    ("/v1/meters/add", r#"{"attributes":{},"amount":"9007199254740992"}"#, "9007199254740991 units"),
];

/// Bodies that are too long to write down: path, body, status, and a part of the error.
fn generated() -> Vec<(&'static str, Vec<u8>, u16, &'static str)> {
    let attributes = |count: usize| {
        let each: Vec<String> = (0..count).map(|n| format!(r#""a{n}":"x""#)).collect();
        format!(r#"{{"attributes":{{{}}}}}"#, each.join(","))
    };
    let value = |len: usize| format!(r#"{{"attributes":{{"user":"{}"}}}}"#, "x".repeat(len));
    let name = |len: usize| format!(r#"{{"attributes":{{"{}":"x"}}}}"#, "n".repeat(len));
    let id = format!(r#"{{"attributes":{{}},"id":"{}"}}"#, "i".repeat(257));
    let batch = format!("[{}]", vec![r#"{"attributes":{}}"#; 65].join(","));
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let large = format!(r#"{{"attributes":{{}},"id":"{}"}}"#, "i".repeat(64 * 1024));
    let latin = b"{\"attributes\":{\"user\":\"\xe4\"}}".to_vec();
    let (broken, nul) = (b"\xff\xfe{}".to_vec(), b"{\"attributes\":{\"user\":\"\0\"}}".to_vec());
    vec![
        (CHECK, attributes(65).into(), 400, "more than 64 attributes"),
        (CHECK, value(16_385).into(), 400, "more than 16384"),
        (CHECK, name(257).into(), 400, "more than 256"),
        (CHECK, id.into(), 400, "257 bytes, more than 256"),
        ("/v1/check/batch", batch.into(), 400, "more than 64 checks"),
        (CHECK, deep.into(), 400, "an object with attributes"),
        (CHECK, large.into(), 413, "65536 bytes"),
        (CHECK, latin, 400, "not JSON"),
        (CHECK, broken, 400, "not JSON"),
        (CHECK, nul, 400, "not JSON"),
    ]
}

/// A method, a path, header fields, the status, and a part of the error.
type Head = (&'static str, &'static str, &'static [(&'static str, &'static str)], u16, &'static str);

/// Requests whose head is invalid.
const HEADS: &[Head] = &[
    ("POST", "/v1/check", &[], 415, "Content-Type: application/json"),
    ("POST", "/v1/check", &[("content-type", "")], 415, "Content-Type: application/json"),
    ("POST", "/v1/check", &[("content-type", "text/plain")], 415, "Content-Type: application/json"),
    ("POST", "/v1/check", &[("content-type", "text/json")], 415, "Content-Type: application/json"),
    ("POST", "/v1/check", &[("content-type", "application/x-www-form-urlencoded")], 415, "Content-Type"),
    ("POST", "/v1/check", &[("content-type", "multipart/form-data; boundary=x")], 415, "Content-Type"),
    ("POST", "/v1/check", &[("content-type", "application/jsonp")], 415, "Content-Type: application/json"),
    ("POST", "/v1/check", &[JSON, ("content-encoding", "gzip")], 415, "without Content-Encoding"),
    ("GET", "/v1/check", &[JSON], 405, "POST"),
    ("PUT", "/v1/check", &[JSON], 405, "POST"),
    ("DELETE", "/v1/leases", &[JSON], 405, "POST"),
    ("POST", "/v1/rules", &[JSON], 405, "GET, HEAD"),
    ("DELETE", "/healthz", &[JSON], 405, "GET, HEAD"),
    ("POST", "/v1/check/", &[JSON], 404, "/openapi.json"),
    ("POST", "//v1/check", &[JSON], 404, "/openapi.json"),
    ("POST", "/V1/check", &[JSON], 404, "/openapi.json"),
    ("POST", "/v1/%63heck", &[JSON], 404, "/openapi.json"),
    ("POST", "/v2/check", &[JSON], 404, "/openapi.json"),
    ("POST", "/v1/check", &[JSON, ("authorization", "Bearer tg_unknown")], 401, "unknown token"),
    ("POST", "/v1/check", &[JSON, ("authorization", "Basic dTpw")], 401, "Bearer"),
    ("POST", "/v1/check", &[JSON, ("authorization", "")], 401, "Bearer"),
    ("GET", "/v1/authorize?deny_status=200", &[], 400, "from 401 to 499"),
    ("GET", "/v1/authorize?deny_status=400", &[], 400, "from 401 to 499"),
    ("GET", "/v1/authorize?deny_status=500", &[], 400, "from 401 to 499"),
    ("GET", "/v1/authorize?deny_status=", &[], 400, "from 401 to 499"),
    ("GET", "/v1/authorize?deny_status=x", &[], 400, "from 401 to 499"),
    ("GET", "/v1/authorize?deny_status=403&deny_status=403", &[], 400, "unknown query parameter"),
    ("GET", "/v1/authorize?user=jane", &[], 400, "attribute=NAME:VALUE"),
    ("GET", "/v1/authorize?attribute=user", &[], 400, "attribute=NAME:VALUE"),
    ("GET", "/v1/authorize?attribute=:jane", &[], 400, "attribute=NAME:VALUE"),
    ("GET", "/v1/authorize?attribute=us%ffer:jane", &[], 400, "attribute=NAME:VALUE"),
    ("GET", "/v1/authorize?header=user", &[], 400, "header=NAME:HEADER"),
    ("GET", "/v1/authorize?header=user:x%20y", &[], 400, "header=NAME:HEADER"),
    ("GET", "/v1/authorize?id=1", &[], 400, "unknown query parameter"),
    ("GET", "/v1/authorize?header=user:x-user", &[("x-user", "a"), ("x-user", "b")], 400, "send it once"),
];

const CHECK: &str = "/v1/check";
const JSON: (&str, &str) = ("content-type", "application/json");

#[test]
fn bad_input_gets_an_error_with_the_fix_and_changes_nothing() {
    let (serving, mut client) = served();
    let witness = search("witness", 2);
    assert_eq!(client.post("/v1/check", &witness).status, 200);
    let before = client.post("/v1/peek", &witness).json();
    let mut tried = 0;
    let mut expect_error = |client: &mut Client, what: &str, status: u16, fix: &str| {
        let answer = client.answer();
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        let document = answer.json();
        let detail = document["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(fix), "{what}: {detail}");
        assert!(answer.body.len() < 1_000, "{what}: the error is short");
        problem(&answer, status, document["code"].as_str().unwrap_or_default());
        tried += 1;
    };
    for (path, body, fix) in BODIES {
        client.send(&request("POST", path, &[JSON], body.as_bytes()));
        expect_error(&mut client, &format!("{path} {body}"), 400, fix);
    }
    for (path, body, status, fix) in generated() {
        // The server may close the connection after a request that is too large.
        let mut client = Client::connect(serving.http);
        client.send(&request("POST", path, &[JSON], &body));
        expect_error(&mut client, &String::from_utf8_lossy(&body[..body.len().min(80)]), status, fix);
    }
    for (method, path, headers, status, fix) in HEADS {
        let mut client = Client::connect(serving.http);
        client.send(&request(method, path, headers, search("witness", 1).as_bytes()));
        expect_error(&mut client, &format!("{method} {path} {headers:?}"), *status, fix);
    }
    assert!(tried > 130, "{tried}");
    let after = client.post("/v1/peek", &witness).json();
    assert_eq!(
        (&before["remaining"], &before["rules"][1]["remaining"]),
        (&after["remaining"], &after["rules"][1]["remaining"])
    );
}

#[test]
fn the_largest_and_the_unusual_valid_input_is_accepted() {
    let (_serving, mut client) = served();
    let each: Vec<String> = (0..64).map(|n| format!(r#""a{n}":"x""#)).collect();
    let (value, id) = ("ä".repeat(8_192), "i".repeat(256));
    for body in [
        format!(r#"{{"attributes":{{{}}}}}"#, each.join(",")),
        format!(r#"{{"attributes":{{"{}":"{value}"}},"id":"{id}"}}"#, "ä".repeat(128)),
        r#"{"attributes":{},"cost":9007199254740991}"#.to_owned(),
        r#"{"attributes":{},"cost":0}"#.to_owned(),
        r#"{"attributes":{},"cost":2.0}"#.to_owned(),
        r#"{"attributes":{},"cost":1e3}"#.to_owned(),
        r#"{"attributes":{},"cost":-0}"#.to_owned(),
        "\n\t {\"cost\" : 1 , \"attributes\" : { } } \r\n".to_owned(),
        r#"{"attributes":{"us\u0065r":"\ud83d\ude00 \"\\\/\u0000"}}"#.to_owned(),
    ] {
        let answer = client.post("/v1/check", &body);
        assert_eq!(answer.status, 200, "{body:.100}: {answer:?}");
    }
    for media_type in
        ["application/json", "Application/JSON; charset=utf-8", "application/json;charset=UTF-8"]
    {
        client.send(&request("POST", "/v1/check", &[("content-type", media_type)], br#"{"attributes":{}}"#));
        assert_eq!(client.answer().status, 200, "{media_type}");
    }
}
