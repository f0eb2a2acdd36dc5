//! Every fault of the proxy has its documented effect in front of a real server, and is counted.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU32;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tollgate_testkit::fault_proxy::{FaultProxy, Faults, Injected, Line};
use tollgate_testkit::redis::{Admin, AdminError, Flavour, Server, Value};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(200);
const INCR: &[u8] = b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n";

fn both() -> (Server, FaultProxy) {
    let server = Server::start(Flavour::Redis70).unwrap_or_else(|error| panic!("{error}"));
    let proxy = FaultProxy::start(server.port(), 7).expect("there is a free port");
    (server, proxy)
}

fn client(proxy: &FaultProxy) -> Admin {
    Admin::connect_within(proxy.port(), None, LONG).expect("the proxy accepts")
}

/// Opens a raw connection.
fn raw(proxy: &FaultProxy) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", proxy.port())).expect("the proxy accepts");
    stream.set_nodelay(true).expect("it is a socket");
    stream.set_read_timeout(Some(LONG)).expect("it is a socket");
    stream
}

fn read_exactly(stream: &mut TcpStream, expected: &[u8]) {
    let mut bytes = vec![0; expected.len()];
    stream.read_exact(&mut bytes).expect("the bytes arrive");
    assert_eq!(bytes.escape_ascii().to_string(), expected.escape_ascii().to_string());
}

fn incr(admin: &mut Admin) -> Result<Value, AdminError> {
    admin.command(&[b"INCR", b"n"])
}

/// Returns how often the server executed INCR.
fn executed(server: &Server) -> u64 {
    let reply = server.admin().and_then(|mut admin| admin.command(&[b"GET", b"n"]));
    match reply.expect("the server answers") {
        Value::Nil => 0,
        Value::Bulk(count) => String::from_utf8_lossy(&count).parse().expect("a number"),
        other => panic!("{other:?}"),
    }
}

fn rate(bytes_per_sec: u32) -> Line {
    Line { bytes_per_sec: NonZeroU32::new(bytes_per_sec), ..Line::default() }
}

fn delay(delay: Duration) -> Line {
    Line { delay, ..Line::default() }
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Retries up to three times, because a busy machine can delay everything.
fn soon(max: Duration, mut attempt: impl FnMut() -> Duration) {
    let late: Vec<Duration> = (0..3).map(|_| attempt()).take_while(|took| *took >= max).collect();
    assert!(late.len() < 3, "late every time: {late:?}");
}

#[test]
fn without_faults_all_bytes_pass_unchanged_and_replies_are_counted() {
    let (server, proxy) = both();
    let mut admin = client(&proxy);
    let large: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    admin.command(&[b"SET", b"large", &large]).expect("it goes through");
    assert_eq!(admin.command(&[b"GET", b"large"]).expect("it comes back"), Value::Bulk(large));
    let refused = admin.command(&[b"NONSENSE"]).expect_err("errors come back");
    assert!(matches!(refused, AdminError::Refused(_)), "{refused:?}");

    let mut pipeline = raw(&proxy);
    pipeline.write_all(&INCR.repeat(100)).expect("it goes through");
    pipeline.write_all(b"*2\r\n$4\r\nMGET\r\n$1\r\nx\r\nGET n\r\n").expect("it goes through");
    let replies: String = (1..=100).map(|i| format!(":{i}\r\n")).collect();
    read_exactly(&mut pipeline, (replies + "*1\r\n$-1\r\n$3\r\n100\r\n").as_bytes());
    assert_eq!(executed(&server), 100);
    let injected = proxy.injected();
    let expected =
        Injected { connections: 2, replies: 3 + 102, requests: injected.requests, ..Injected::default() };
    assert_eq!(injected, expected);
}

const DELAY: Duration = Duration::from_secs(1);

/// Sends ten separate requests, with a delay in one direction, and returns how long they took in all.
fn ten_delayed(server: &Server, proxy: &FaultProxy, (requests, replies): (Duration, Duration)) -> Duration {
    let before = executed(server);
    let mut stream = raw(proxy);
    let faults = Faults { requests: delay(requests), replies: delay(replies), ..Faults::default() };
    proxy.set(faults).expect("it listens");
    let began = Instant::now();
    for _ in 0..10 {
        stream.write_all(INCR).expect("it goes through");
        thread::sleep(Duration::from_millis(10));
    }
    if requests.is_zero() {
        wait_for("all are executed", || executed(server) == before + 10);
    } else {
        let at_once = executed(server) - before;
        assert!(at_once == 0 || began.elapsed() >= DELAY, "{at_once} came too early");
    }
    let expected: String = (1..=10).map(|i| format!(":{}\r\n", before + i)).collect();
    read_exactly(&mut stream, expected.as_bytes());
    assert!(began.elapsed() >= DELAY, "{:?}", began.elapsed());
    began.elapsed()
}

#[test]
fn a_delay_affects_one_direction_and_does_not_accumulate() {
    let (server, proxy) = both();
    for direction in [(DELAY, Duration::ZERO), (Duration::ZERO, DELAY)] {
        soon(DELAY * 4, || ten_delayed(&server, &proxy, direction));
    }
    let Injected { delayed_requests, delayed_replies, .. } = proxy.injected();
    assert!(delayed_requests >= 1, "{delayed_requests}");
    assert!(delayed_replies >= 10 && delayed_replies % 10 == 0, "{delayed_replies}");
}

#[test]
fn a_lost_reply_belongs_to_a_request_that_was_executed() {
    let (server, proxy) = both();
    let mut stream = raw(&proxy);
    proxy.set(Faults { lose_reply: 1.0, ..Faults::default() }).expect("it listens");
    stream.write_all(INCR).expect("it goes through");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the connection is closed in order");
    assert_eq!(rest, b"");
    assert_eq!(executed(&server), 1);
    let expected =
        Injected { connections: 1, requests: 1, replies: 1, lost_replies: 1, ..Injected::default() };
    assert_eq!(proxy.injected(), expected);
}

/// Sends 300 requests one after another. Returns which of them failed, and the proxy's counters.
fn broken(seed: u64, faults: Faults) -> (Vec<bool>, Injected) {
    let server = Server::start(Flavour::Redis70).unwrap_or_else(|error| panic!("{error}"));
    let proxy = FaultProxy::start(server.port(), seed).expect("there is a free port");
    proxy.set(faults).expect("it listens");
    let mut admin = client(&proxy);
    let broken: Vec<bool> = (0..300).map(|_| incr(&mut admin).is_err()).collect();
    assert_eq!(executed(&server), 300);
    (broken, proxy.injected())
}

#[test]
fn faults_have_the_set_frequency_and_depend_on_the_seed() {
    let faults = Faults { lose_reply: 0.2, cut_reply: 0.1, ..Faults::default() };
    let (first, injected) = broken(7, faults);
    let count = first.iter().filter(|broken| **broken).count() as u64;
    assert_eq!(count, injected.lost_replies + injected.cut_replies);
    assert!((40..=80).contains(&injected.lost_replies), "{injected:?}");
    assert!((15..=45).contains(&injected.cut_replies), "{injected:?}");
    assert_eq!(broken(7, faults), (first.clone(), injected));
    assert_ne!(broken(8, faults).0, first);
}

#[test]
fn a_cut_reply_is_half_a_reply_and_a_reset() {
    let (server, proxy) = both();
    let mut stream = raw(&proxy);
    proxy.set(Faults { cut_reply: 1.0, ..Faults::default() }).expect("it listens");
    stream.write_all(b"*2\r\n$4\r\nECHO\r\n$10\r\n0123456789\r\n").expect("it goes through");
    read_exactly(&mut stream, b"$10\r\n012");
    let error = stream.read(&mut [0; 1]).expect_err("there is no more");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);

    let mut admin = client(&proxy);
    incr(&mut admin).expect_err("its reply is cut");
    assert_eq!(executed(&server), 1);
    proxy.set(Faults::default()).expect("it listens");
    assert_eq!(incr(&mut admin).expect("it answers again"), Value::Integer(2));
    let expected =
        Injected { connections: 3, requests: 3, replies: 3, cut_replies: 2, ..Injected::default() };
    assert_eq!(proxy.injected(), expected);
}

#[test]
fn a_half_open_connection_stays_open_and_drops_everything() {
    let (mut server, proxy) = both();
    let (mut old, mut unused) = (raw(&proxy), raw(&proxy));
    wait_for("both are connected", || proxy.injected().connections == 2);
    proxy.set(Faults { half_open: true, ..Faults::default() }).expect("it listens");
    let mut new = raw(&proxy);
    for stream in [&mut old, &mut new] {
        stream.write_all(INCR).expect("it is accepted");
    }
    wait_for("both are swallowed", || proxy.injected().half_open == 2);
    assert_eq!(executed(&server), 0);

    // The fault ends. The dropped bytes are lost, and the connections do not notice.
    proxy.set(Faults::default()).expect("it listens");
    unused.write_all(INCR).expect("it goes through");
    read_exactly(&mut unused, b":1\r\n");
    old.write_all(INCR).expect("it is accepted");
    server.kill9().expect("it can be killed");
    assert_eq!(unused.read(&mut [0; 1]).expect("the connection is closed"), 0);
    for stream in [&mut old, &mut new] {
        stream.set_read_timeout(Some(SHORT)).expect("it is a socket");
        let error = stream.read(&mut [0; 1]).expect_err("nothing comes, not even an end");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
    assert_eq!(proxy.injected().half_open, 2);
}

#[test]
fn a_reply_is_dropped_if_the_connection_became_half_open_meanwhile() {
    let (server, proxy) = both();
    let mut stream = raw(&proxy);
    server.stop().expect("it can be stopped");
    stream.write_all(INCR).expect("it goes through");
    wait_for("the server has it", || proxy.injected().requests == 1);
    proxy.set(Faults { half_open: true, ..Faults::default() }).expect("it listens");
    server.resume().expect("it can be resumed");
    wait_for("the reply is swallowed", || proxy.injected().half_open == 1);
    assert_eq!(executed(&server), 1);
    stream.set_read_timeout(Some(SHORT)).expect("it is a socket");
    assert_eq!(stream.read(&mut [0; 1]).expect_err("no reply").kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_slow_reply_arrives_byte_by_byte_after_its_request_was_executed() {
    let (server, proxy) = both();
    let mut stream = raw(&proxy);
    proxy.set(Faults { replies: rate(4), ..Faults::default() }).expect("it listens");
    let mut tries = 0;
    soon(Duration::from_millis(750), || {
        tries += 1;
        let (began, mut latest) = (Instant::now(), Duration::ZERO);
        stream.write_all(INCR).expect("it goes through");
        for (index, expected) in format!(":{tries}\r\n").bytes().enumerate() {
            read_exactly(&mut stream, &[expected]);
            let (took, due) = (began.elapsed(), Duration::from_millis(250 * (index as u64 + 1)));
            assert!(took >= due, "byte {index} after {took:?}");
            assert_eq!(executed(&server), tries);
            latest = latest.max(took - due);
        }
        latest
    });
    assert_eq!(proxy.injected().slow_replies, tries);
}

#[test]
fn a_slow_request_is_executed_after_its_last_byte_and_its_rate_can_be_raised() {
    let (server, proxy) = both();
    let mut stream = raw(&proxy);
    proxy.set(Faults { requests: rate(20), ..Faults::default() }).expect("it listens");
    let began = Instant::now();
    stream.write_all(INCR).expect("it is accepted");
    let (due, at_once) = (Duration::from_millis(50) * INCR.len() as u32, executed(&server));
    assert!(at_once == 0 || began.elapsed() >= due, "it came too early");
    read_exactly(&mut stream, b":1\r\n");
    assert!(began.elapsed() >= due, "{:?}", began.elapsed());

    let mut count = 1;
    soon(Duration::from_secs(2), || {
        count += 1;
        proxy.set(Faults { requests: rate(4), ..Faults::default() }).expect("it listens");
        let began = Instant::now();
        stream.write_all(INCR).expect("it is accepted");
        wait_for("it has begun", || proxy.injected().slow_requests == count);
        proxy.set(Faults::default()).expect("it listens");
        read_exactly(&mut stream, format!(":{count}\r\n").as_bytes());
        began.elapsed()
    });
}

#[test]
fn new_connections_are_refused_while_open_ones_continue() {
    let (_server, proxy) = both();
    let mut old = client(&proxy);
    assert_eq!(incr(&mut old).expect("it answers"), Value::Integer(1));
    for round in 1..=3 {
        proxy.set(Faults { refuse: true, ..Faults::default() }).expect("it can close its port");
        let error = TcpStream::connect(("127.0.0.1", proxy.port())).expect_err("no listener");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(incr(&mut old).expect("it answers"), Value::Integer(2 * round));
        proxy.set(Faults::default()).expect("it listens again");
        assert_eq!(incr(&mut client(&proxy)).expect("it answers"), Value::Integer(2 * round + 1));
    }
    assert_eq!(proxy.injected().connections, 4);
}

#[test]
fn closing_either_side_closes_the_other() {
    let (mut server, proxy) = both();
    let clients = |server: &Server| {
        let info = server.admin().and_then(|mut admin| admin.info("clients")).expect("it answers");
        info["connected_clients"].clone()
    };
    let stream = raw(&proxy);
    wait_for("it is connected", || clients(&server) == "2");
    drop(stream);
    wait_for("the server has seen it go", || clients(&server) == "1");

    let mut stream = raw(&proxy);
    wait_for("it is connected", || clients(&server) == "2");
    server.kill9().expect("it can be killed");
    assert_eq!(stream.read(&mut [0; 1]).expect("an end in order"), 0);

    let mut nowhere = raw(&proxy);
    assert_eq!(nowhere.read(&mut [0; 1]).expect_err("no server").kind(), ErrorKind::ConnectionReset);
    assert_eq!(proxy.injected().unreachable, 1);
    server.restart().expect("it starts again");
    assert_eq!(incr(&mut client(&proxy)).expect("it answers"), Value::Integer(1));
}

#[test]
fn a_dropped_proxy_stops_at_once() {
    let (_server, proxy) = both();
    let hour = Duration::from_hours(1);
    let (mut idle, mut delayed) = (raw(&proxy), raw(&proxy));
    proxy.set(Faults { requests: delay(hour), ..Faults::default() }).expect("it listens");
    delayed.write_all(INCR).expect("it is accepted");
    wait_for("it is held back", || proxy.injected().delayed_requests == 1);
    let port = proxy.port();
    let began = Instant::now();
    drop(proxy);
    for stream in [&mut idle, &mut delayed] {
        assert_eq!(stream.read(&mut [0; 1]).expect("an end in order"), 0);
    }
    TcpStream::connect(("127.0.0.1", port)).expect_err("no listener");
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
}

#[test]
fn bytes_that_are_not_resp_pass_through() {
    let server = Server::builder(Flavour::Redis70).tls().start().expect("it starts");
    let proxy = FaultProxy::start(server.tls_port().expect("it has TLS"), 7).expect("there is a free port");
    let output = Command::new("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &proxy.port().to_string(), "--tls", "--cacert"])
        .arg(server.certificates().expect("it has TLS").authority())
        .arg("PING")
        .output()
        .expect("redis-cli comes with the server");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "PONG\n");
    let Injected { unreadable, replies, .. } = proxy.injected();
    assert_eq!(unreadable, 1);
    assert!(replies >= 2, "{replies}");
}
