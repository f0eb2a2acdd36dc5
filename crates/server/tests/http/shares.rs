//! What one client cannot take from the others.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::client::Client;
use super::{RULES, problem, search, start};

/// A connection from 127.0.0.`from`.
fn connect_from(from: u8, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, from], 0)).into()).expect("an address of this machine");
    socket.connect(&to.into()).expect("the server listens");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket has a timeout");
    stream
}

/// Opens connections that send nothing; returns those that the server kept.
fn idle_connections(count: usize, from: u8, to: SocketAddr) -> Vec<TcpStream> {
    let all: Vec<TcpStream> = (0..count).map(|_| connect_from(from, to)).collect();
    let is_kept = |stream: &TcpStream| matches!((&*stream).read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
    all.into_iter().filter(is_kept).collect()
}

#[test]
fn idle_connections_of_one_address_do_not_lock_others_out() {
    let serving = start(&["--rules", RULES, "--connections-max", "40"]);
    let attacker = idle_connections(100, 2, serving.http);
    assert_eq!(attacker.len(), 10, "a quarter of the maximum");
    // The share counts all listeners together.
    assert!(idle_connections(1, 2, serving.resp).is_empty());
    let mut client = Client::connect(serving.http);
    assert_eq!(client.post("/v1/check", &search("jane", 1)).status, 200);
    assert!(
        client.get("/metrics").body.contains("tollgate_connections_over_share_total{protocol=\"http\"} 90\n")
    );
    drop(client);

    // Several addresses fill the server together. It still says that it is alive, and nothing else.
    let more: Vec<_> = (3..=5).flat_map(|from| idle_connections(10, from, serving.http)).collect();
    assert_eq!(attacker.len() + more.len(), 40);
    for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/metrics", 503)] {
        let mut client = Client::connect(serving.http);
        let answer = client.get(path);
        assert_eq!((answer.status, answer.header("connection")), (status, Some("close")), "{path}");
        assert!(client.is_closed());
        if status == 503 {
            problem(&answer, 503, "too-many-connections");
            assert_eq!(answer.header("retry-after"), Some("1"));
        }
    }
    drop(attacker);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while Client::connect(serving.http).get("/metrics").status != 200 {
        assert!(std::time::Instant::now() < deadline, "closed connections make room");
    }
}

#[test]
fn a_full_server_serves_its_control_listener() {
    let serving = start(&[
        "--rules",
        RULES,
        "--connections-max",
        "4",
        "--connections-max-per-address",
        "4",
        "--admin",
        "127.0.0.1:0",
    ]);
    let _attacker = idle_connections(60, 2, serving.http);
    let mut client = Client::connect(serving.admin.expect("a separate listener"));
    for path in ["/healthz", "/readyz", "/metrics", "/"] {
        assert_eq!(client.get(path).status, 200, "{path}");
    }
}
