//! What one client cannot take from the others: keys and log lines.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::client::Client;
use super::{say, start};

#[test]
fn keys_of_callers_own_limits_never_use_up_the_keys_of_rules() {
    let server = start(&["--keys-max", "64", "--own-keys-max", "16"]);
    let mut client = Client::connect(server.resp);
    // One key each that lives for a year.
    for number in 0..500 {
        client.send(&say(&format!("CL.THROTTLE flood-{number} 9 10 31536000")));
    }
    client.send(&say("PING"));
    while client.line() != "+PONG" {}
    // Each fresh user of a rule has the whole limit.
    for number in 0..60 {
        client.send(&say(&format!("TG.CHECK user fresh-{number} COST 20")));
        let mut reply = Vec::new();
        while reply.last().map(String::as_str) != Some("receipt") {
            reply.push(client.line());
        }
        // The length of the receipt, and the receipt.
        client.line();
        client.line();
        assert_eq!(reply[3], ":1", "user {number}: {reply:?}");
    }
}

#[test]
fn state_of_callers_own_limits_lives_for_at_most_a_year() {
    let server = start(&[]);
    let mut client = Client::connect(server.resp);
    client.send(&say("CL.THROTTLE k 0 1 31622401"));
    assert_eq!(client.line(), "-ERR period is 31622401; it must be 1 to 31622400");
    client.send(&say("CL.THROTTLE k 1 1 31622400"));
    let line = client.line();
    assert!(
        line.starts_with("-ERR 1 per 31622400 s with max_burst 1 takes longer than 31622400 s to refill"),
        "{line}"
    );
    client.send(&say("CL.THROTTLE k 0 1 31622400"));
    assert_eq!(client.line(), "*5");
}

/// Guessed tokens are counted, and logged at most once a second.
#[test]
fn failed_log_ins_do_not_flood_the_log() {
    let server = start(&[]);
    let mut client = Client::connect(server.resp);
    for _ in 0..300 {
        client.send(&say("AUTH tg_guessed"));
        assert!(client.line().starts_with("-WRONGPASS"));
    }
    let mut http = TcpStream::connect(server.http).expect("the server listens");
    http.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .expect("it reads");
    let mut page = String::new();
    http.read_to_string(&mut page).expect("a page");
    assert!(page.contains("tollgate_auth_failures_total{reason=\"unknown-token\"} 300\n"), "{page}");
    let lines = server.text().matches("\"unknown_token\"").count();
    assert!((1..=20).contains(&lines), "{lines} lines for 300 attempts");
    assert!(!server.text().contains("tg_guessed"), "a token is never logged");
}
