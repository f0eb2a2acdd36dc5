use std::net::{IpAddr, Ipv4Addr};

use arc_swap::ArcSwap;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;
use tollgate::MemoryStore;
use tollgate::core::{Keyspace, Prefixes, TrustedProxies};
use tollgate::engine::Setup;
use tollgate::headers::Dialect;

use super::*;
use crate::access::{Access, Scopes};
use crate::config::{LogConfig, LogFormat};
use crate::serve::edge::grpc::Messages;
use crate::serve::gate::{Backed, Gate};
use crate::serve::listen::connections::Connections;
use crate::serve::observe::Recorder;
use crate::serve::rules_in_force::RulesOrigin;
use crate::serve::shared::Doors;

fn shared(anonymous: Scopes) -> Arc<Shared> {
    let (rules, starter) = RulesOrigin::read(None).expect("the starter is read");
    let limiter =
        Setup::default().rules_yaml(starter.text()).build(MemoryStore::new()).expect("the starter is right");
    let log = LogConfig { format: LogFormat::Text, filter: String::new(), refusals_per_second: 1 };
    let recorder = limiter.with_rules(|rules| Recorder::new(rules, Arc::default(), &log, None));
    let scope = Keyspace::new("default", "CL.THROTTLE").expect("a keyspace");
    let certified = Scopes::NONE;
    Arc::new(Shared {
        gate: Gate::new(Backed::Memory(limiter), recorder, scope),
        rules,
        doors: ArcSwap::from_pointee(Doors { tokens: Access::default(), anonymous, certified }),
        tls: None,
        connections: Arc::new(Connections::new(1)),
        dialect: Dialect::default(),
        grpc: Messages::default(),
        proxies: TrustedProxies::default(),
        prefixes: Prefixes::default(),
        others: None,
        ending: CancellationToken::new(),
    })
}

const PEER: Peer = Peer { address: IpAddr::V4(Ipv4Addr::LOCALHOST), is_certified: false };

/// Runs on a clock that jumps to the next thing that waits.
fn at_any_time(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(test);
}

/// Both ends of a connection that holds so many bytes in either direction.
fn connect(scopes: Scopes, bytes: usize) -> (DuplexStream, tokio::task::JoinHandle<()>) {
    let (ours, theirs) = duplex(bytes);
    (ours, tokio::spawn(serve(theirs, PEER, shared(scopes))))
}

#[test]
fn nobody_is_waited_for_without_end() {
    at_any_time(async {
        for (who, sent, least_s, most_s) in [
            (Scopes::CHECK, "", 600, 600),
            (Scopes::CHECK, "PING\r\n", 600, 630),
            (Scopes::CHECK, "*1\r\n$4\r\nPIN", 30, 60),
            (Scopes::NONE, "", 30, 30),
            (Scopes::NONE, "PING\r\n", 30, 60),
        ] {
            let started = Instant::now();
            let (mut client, _serving) = connect(who, 1024);
            client.write_all(sent.as_bytes()).await.expect("it reads");
            client.read_to_end(&mut Vec::new()).await.expect("it ends");
            let lasted_s = started.elapsed().as_secs();
            assert!((least_s..=most_s).contains(&lasted_s), "{sent:?}: {lasted_s} s");
        }
    });
}

#[test]
fn a_client_that_reads_nothing_is_left_alone() {
    at_any_time(async {
        let started = Instant::now();
        let (mut client, serving) = connect(Scopes::CHECK, 64);
        client.write_all(b"COMMAND\r\nPING\r\n").await.expect("it reads");
        serving.await.expect("it ends");
        assert!((30..=70).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    });
}

/// A slow client that says something now and then is no stalled one.
#[test]
fn whoever_goes_on_is_waited_for() {
    at_any_time(async {
        let (mut client, _serving) = connect(Scopes::CHECK, 1024);
        for byte in b"*1\r\n$4\r\nPING\r\n" {
            client.write_all(&[*byte]).await.expect("it reads");
            sleep(Duration::from_secs(20)).await;
        }
        let mut answer = [0; 7];
        client.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(&answer, b"+PONG\r\n");
    });
}

#[test]
fn answers_that_nobody_reads_are_few_and_all_that_is_left_is_answered_later() {
    at_any_time(async {
        let (mut client, theirs) = duplex(1024 * 1024);
        let shared = shared(Scopes::CHECK);
        let (mut connection, mut session) = (Connection::new(theirs), Session::new(PEER, &shared));
        client.write_all(&b"COMMAND\r\n".repeat(400)).await.expect("there is room");
        connection.receive_now().await;
        let talk = answer(&mut connection, &mut session, &mut Places::new(), &shared).await;
        assert!(talk == Talk::Full);
        let waiting = connection.output.len();
        assert!((OUTPUT_MAX..OUTPUT_MAX + 2_000).contains(&waiting), "{waiting} bytes wait");
        connection.output.clear();
        let talk = answer(&mut connection, &mut session, &mut Places::new(), &shared).await;
        assert!(talk == Talk::Answered && !connection.output.is_empty());
    });
}

/// A client that reads nothing at all must not keep the thread busy: others on it would never be served.
#[test]
fn who_reads_nothing_leaves_the_thread_to_others() {
    at_any_time(async {
        // Room for a part of what is answered: the first write goes half way.
        let (mut client, theirs) = duplex(64 * 1024);
        tokio::spawn(serve(theirs, PEER, shared(Scopes::CHECK)));
        let questions = b"COMMAND\r\n".repeat(40_000);
        let asking = async {
            for part in questions.chunks(4_096) {
                if client.write_all(part).await.is_err() {
                    break;
                }
            }
        };
        // Time stands still while anything is ready to run, so it only passes if nothing is.
        let waited = tokio::time::timeout(Duration::from_secs(10), asking).await;
        assert!(waited.is_err(), "answers that nobody reads stop the questions");
    });
}

#[test]
fn a_token_that_is_taken_back_is_worth_nothing_on_connections_that_are_open() {
    use crate::access::{Digest, Token};
    at_any_time(async {
        let shared = shared(Scopes::NONE);
        let known = Token { name: "ci".to_owned(), digest: Digest::of(b"tg_ci"), scopes: Scopes::CHECK };
        let doors =
            |tokens| Doors { tokens: Access::new(tokens), anonymous: Scopes::NONE, certified: Scopes::NONE };
        shared.doors.store(Arc::new(doors(vec![known.clone()])));
        let (mut client, theirs) = duplex(4_096);
        tokio::spawn(serve(theirs, PEER, Arc::clone(&shared)));
        let mut told = [0; 64];
        let mut ask = async |question: &[u8]| {
            client.write_all(question).await.expect("it reads");
            let len = client.read(&mut told).await.expect("it answers");
            String::from_utf8_lossy(&told[..len]).into_owned()
        };
        assert_eq!(ask(b"AUTH tg_ci\r\n").await, "+OK\r\n");
        assert_eq!(ask(b"PING\r\n").await, "+PONG\r\n");
        shared.doors.store(Arc::new(doors(vec![known])));
        assert_eq!(ask(b"PING\r\n").await, "+PONG\r\n", "it is still known");
        shared.doors.store(Arc::new(doors(Vec::new())));
        assert!(ask(b"PING\r\n").await.starts_with("-NOAUTH"));
    });
}

/// A pipe like `printf … | nc` ends what it sends at once, and reads what it is told when it comes to that.
#[test]
fn who_has_said_all_and_reads_late_gets_everything() {
    at_any_time(async {
        // Less than the answers, so that most of them wait for the client.
        let (mut client, _serving) = connect(Scopes::CHECK, 64);
        client.write_all(&b"PING\r\n".repeat(1_000)).await.expect("it reads");
        client.shutdown().await.expect("one side is closed");
        sleep(Duration::from_secs(3)).await;
        let mut told = Vec::new();
        client.read_to_end(&mut told).await.expect("it is not cut off");
        assert_eq!(told.len(), b"+PONG\r\n".len() * 1_000);
    });
}

#[test]
fn what_is_on_its_way_when_the_server_is_to_end_is_answered() {
    at_any_time(async {
        let shared = shared(Scopes::CHECK);
        let (mut client, theirs) = duplex(1024);
        tokio::spawn(serve(theirs, PEER, Arc::clone(&shared)));
        client.write_all(b"PING\r\n").await.expect("it reads");
        sleep(Duration::from_millis(1)).await;
        shared.ending.cancel();
        sleep(Duration::from_millis(50)).await;
        client.write_all(b"PING\r\n").await.expect("it still reads");
        let mut told = Vec::new();
        client.read_to_end(&mut told).await.expect("it ends");
        assert_eq!(told, b"+PONG\r\n+PONG\r\n");
    });
}
