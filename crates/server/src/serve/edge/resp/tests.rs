use std::net::{IpAddr, Ipv4Addr};

use arc_swap::ArcSwap;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;
use tollgate::MemoryStore;
use tollgate::core::{Keyspace, Prefixes, TrustedProxies};
use tollgate::engine::Setup;
use tollgate::headers::Dialect;

use super::connection::OUTPUT_MAX;
use super::output_budget::{OUTPUT_MIN, OutputBudget, OutputShare};
use super::*;
use crate::access::{Access, Scopes};
use crate::config::{GrpcConfig, LogConfig, LogFormat};
use crate::reference::References;
use crate::serve::edge::auth::AccessPolicy;
use crate::serve::gate::{Backed, Gate};
use crate::serve::listen::connections::{ConnectionLimits, Connections};
use crate::serve::observe::history::History;
use crate::serve::observe::{AuthFailures, Recorder};
use crate::serve::rules_in_force::RulesOrigin;
use crate::serve::store::work_share::WorkShares;

/// Unread output of all connections of a test.
const OUTPUT_BUDGET: usize = 1024 * 1024;

/// A server of the starter rules in memory, without listeners.
pub(in crate::serve::edge) fn server_state(anonymous: Scopes) -> Arc<ServerState> {
    let (rules, starter) = RulesOrigin::read(None).expect("the starter is read");
    let limiter =
        Setup::default().rules_yaml(starter.text()).build(MemoryStore::new()).expect("the starter is right");
    let log = LogConfig { format: LogFormat::Text, filter: String::new(), refusals_per_second: 1 };
    let recorder = limiter.with_rules(|rules| Recorder::new(rules, Arc::default(), &log, None, None));
    let scope = Keyspace::new("default", "CL.THROTTLE").expect("a keyspace");
    let certified = Scopes::NONE;
    let references = (References::new(limiter.hashers(), "test").expect("keys"), String::new());
    Arc::new(ServerState {
        gate: Gate::new(
            Backed::Memory(limiter),
            recorder,
            scope,
            100,
            None,
            references,
            std::time::Duration::from_secs(60),
        ),
        control: None,
        rules,
        access: ArcSwap::from_pointee(AccessPolicy { tokens: Access::default(), anonymous, certified }),
        tls: None,
        connections: Arc::new(Connections::new(ConnectionLimits {
            max: 1,
            max_per_address: 1,
            prefixes: Prefixes::default(),
        })),
        work: WorkShares::unlimited(),
        output: Arc::new(OutputBudget::new(OUTPUT_BUDGET)),
        auth_failures: AuthFailures::default(),
        control_on_http: true,
        allowed_hosts: Vec::new(),
        dialect: Dialect::default(),
        grpc: GrpcConfig::default(),
        proxies: TrustedProxies::default(),
        proxy_protocol: TrustedProxies::default(),
        prefixes: Prefixes::default(),
        others: None,
        evictions: None,
        history: History::default(),
        doctor: tokio::sync::watch::channel(Default::default()).1,
        ending: CancellationToken::new(),
    })
}

fn peer() -> Peer {
    Peer {
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        is_certified: false,
        connection: 1,
        is_for_health: false,
        in_flight: Arc::default(),
    }
}

/// Runs with paused time, which jumps to the next timer.
fn with_paused_time(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(test);
}

/// Both ends of a connection with buffers of this size.
fn connect(scopes: Scopes, bytes: usize) -> (DuplexStream, tokio::task::JoinHandle<()>) {
    let (ours, theirs) = duplex(bytes);
    (ours, tokio::spawn(serve(theirs, peer(), server_state(scopes))))
}

#[test]
fn idle_and_stalled_connections_are_closed() {
    with_paused_time(async {
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
fn a_client_that_does_not_read_is_disconnected() {
    with_paused_time(async {
        let started = Instant::now();
        let (mut client, serving) = connect(Scopes::CHECK, 64);
        client.write_all(b"COMMAND\r\nPING\r\n").await.expect("it reads");
        serving.await.expect("it ends");
        assert!((30..=70).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    });
}

#[test]
fn a_slow_client_that_keeps_sending_is_not_disconnected() {
    with_paused_time(async {
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

/// Runs turn after turn until the input or the room for output ends.
async fn run_all(
    connection: &mut Connection<DuplexStream>,
    session: &mut Session,
    state: &ServerState,
) -> Progress {
    loop {
        match run_commands(connection, session, &mut WordSpans::new(), state).await {
            Progress::Turn => (),
            progress => return progress,
        }
    }
}

#[test]
fn a_long_pipeline_ends_its_turn_after_a_bounded_number_of_commands() {
    with_paused_time(async {
        let (mut client, theirs) = duplex(1024 * 1024);
        let state = server_state(Scopes::CHECK);
        let share = OutputShare::new(Arc::clone(&state.output));
        let (mut connection, mut session) = (Connection::new(theirs, share), Session::new(peer(), &state));
        client.write_all(&b"PING\r\n".repeat(600)).await.expect("there is room");
        connection.receive_now().await;
        let mut answered = Vec::new();
        loop {
            let before = connection.output.len();
            let progress = run_commands(&mut connection, &mut session, &mut WordSpans::new(), &state).await;
            answered.push((connection.output.len() - before) / b"+PONG\r\n".len());
            if progress == Progress::Done {
                break;
            }
            assert!(progress == Progress::Turn);
        }
        assert_eq!(answered.iter().sum::<usize>(), 600, "nothing is lost between turns");
        assert!(answered.iter().all(|&commands| commands <= 64), "{answered:?}");
    });
}

#[test]
fn bystanders_are_answered_between_the_turns_of_a_pipeline() {
    with_paused_time(async {
        let state = server_state(Scopes::CHECK);
        let (mut busy, theirs) = duplex(1024 * 1024);
        busy.write_all(&b"PING\r\n".repeat(100_000)).await.expect("there is room");
        let (mut bystander, bystanders) = duplex(1024);
        bystander.write_all(b"PING\r\n").await.expect("there is room");
        tokio::spawn(serve(theirs, peer(), Arc::clone(&state)));
        tokio::spawn(serve(bystanders, peer(), state));
        let mut answer = [0; 7];
        bystander.read_exact(&mut answer).await.expect("an answer");
        let mut answered = vec![0; 1024 * 1024];
        let len = match tokio::time::timeout(Duration::ZERO, busy.read(&mut answered)).await {
            Ok(read) => read.expect("it is open"),
            Err(_) => 0,
        };
        // A few turns of 64 commands, not the whole input of 64 KiB.
        assert!(len <= 8 * 64 * answer.len(), "{} commands ran first", len / answer.len());
    });
}

#[test]
fn unread_output_of_all_clients_is_bounded() {
    with_paused_time(async {
        let state = server_state(Scopes::CHECK);
        let mut clients = Vec::new();
        for _ in 0..32 {
            // Their ends take nothing in, and no client reads.
            let (mut client, theirs) = duplex(64 * 1024);
            tokio::spawn(serve(theirs, peer(), Arc::clone(&state)));
            let commands = b"COMMAND\r\n".repeat(2_000);
            let sent = tokio::time::timeout(Duration::from_secs(1), client.write_all(&commands)).await;
            clients.push((client, sent.is_ok()));
        }
        // All connections run until they wait for their clients.
        sleep(Duration::from_secs(1)).await;
        let unread = state.output.unread();
        let one_turn = 64 * 2_500;
        assert!(unread >= OUTPUT_BUDGET, "the budget was exhausted: {unread}");
        assert!(
            unread <= OUTPUT_BUDGET + 256 * 1024 + one_turn + 32 * (OUTPUT_MIN + 2_500),
            "{unread} bytes wait"
        );
        drop(clients);
    });
}

#[test]
fn unread_output_is_bounded_and_the_remaining_commands_run_later() {
    with_paused_time(async {
        let (mut client, theirs) = duplex(1024 * 1024);
        let state = server_state(Scopes::CHECK);
        let (mut connection, mut session) = (
            Connection::new(theirs, OutputShare::new(Arc::clone(&state.output))),
            Session::new(peer(), &state),
        );
        client.write_all(&b"COMMAND\r\n".repeat(400)).await.expect("there is room");
        connection.receive_now().await;
        let progress = run_all(&mut connection, &mut session, &state).await;
        assert!(progress == Progress::Full);
        let waiting = connection.output.len();
        assert!((OUTPUT_MAX..OUTPUT_MAX + 2_000).contains(&waiting), "{waiting} bytes wait");
        let mut progress = progress;
        for _ in 0..3 {
            if progress == Progress::Full {
                connection.output.clear();
                progress = run_all(&mut connection, &mut session, &state).await;
            }
        }
        assert!(progress == Progress::Done && !connection.output.is_empty());
    });
}

/// It must not keep the thread busy: other connections on it would never be served.
#[test]
fn a_client_that_does_not_read_does_not_block_others() {
    with_paused_time(async {
        // Room for a part of the output: the first write is partial.
        let (mut client, theirs) = duplex(64 * 1024);
        tokio::spawn(serve(theirs, peer(), server_state(Scopes::CHECK)));
        let commands = b"COMMAND\r\n".repeat(40_000);
        let sending = async {
            for part in commands.chunks(4_096) {
                if client.write_all(part).await.is_err() {
                    break;
                }
            }
        };
        // Paused time advances only when nothing is ready to run.
        let waited = tokio::time::timeout(Duration::from_secs(10), sending).await;
        assert!(waited.is_err(), "unread output stops the input");
    });
}

#[test]
fn a_revoked_token_loses_its_scopes_on_open_connections() {
    use crate::access::{Binding, Digest, Token};
    with_paused_time(async {
        let state = server_state(Scopes::NONE);
        let bound = Binding::default();
        let known = Token::new("ci", Digest::of(b"tg_ci"), Scopes::CHECK, bound);
        let policy = |tokens| AccessPolicy {
            tokens: Access::new(tokens),
            anonymous: Scopes::NONE,
            certified: Scopes::NONE,
        };
        state.access.store(Arc::new(policy(vec![known.clone()])));
        let (mut client, theirs) = duplex(4_096);
        tokio::spawn(serve(theirs, peer(), Arc::clone(&state)));
        let mut received = [0; 64];
        let mut ask = async |question: &[u8]| {
            client.write_all(question).await.expect("it reads");
            let len = client.read(&mut received).await.expect("it answers");
            String::from_utf8_lossy(&received[..len]).into_owned()
        };
        assert_eq!(ask(b"AUTH tg_ci\r\n").await, "+OK\r\n");
        assert_eq!(ask(b"PING\r\n").await, "+PONG\r\n");
        state.access.store(Arc::new(policy(vec![known])));
        assert_eq!(ask(b"PING\r\n").await, "+PONG\r\n", "it is still known");
        state.access.store(Arc::new(policy(Vec::new())));
        assert!(ask(b"PING\r\n").await.starts_with("-NOAUTH"));
    });
}

/// A pipe like `printf … | nc` closes its sending side at once, and reads later.
#[test]
fn a_half_closed_client_that_reads_late_gets_all_replies() {
    with_paused_time(async {
        // Smaller than the output, so that most of it waits for the client.
        let (mut client, _serving) = connect(Scopes::CHECK, 64);
        client.write_all(&b"PING\r\n".repeat(1_000)).await.expect("it reads");
        client.shutdown().await.expect("one side is closed");
        sleep(Duration::from_secs(3)).await;
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.expect("it is not cut off");
        assert_eq!(received.len(), b"+PONG\r\n".len() * 1_000);
    });
}

#[test]
fn commands_in_flight_at_shutdown_are_answered() {
    with_paused_time(async {
        let state = server_state(Scopes::CHECK);
        let (mut client, theirs) = duplex(1024);
        tokio::spawn(serve(theirs, peer(), Arc::clone(&state)));
        client.write_all(b"PING\r\n").await.expect("it reads");
        sleep(Duration::from_millis(1)).await;
        state.ending.cancel();
        sleep(Duration::from_millis(50)).await;
        client.write_all(b"PING\r\n").await.expect("it still reads");
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.expect("it ends");
        assert_eq!(received, b"+PONG\r\n+PONG\r\n");
    });
}
