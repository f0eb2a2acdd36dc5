//! Streams on a real Redis: parallel ones do not overspend, and the hold of a killed proxy expires.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use llm_proxy::{Model, Proxy, STEP, router};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate::store::redis::RedisSettings;
use tollgate::{HashKey, Limiter, Request, RuleUsage};
use tollgate_testkit::redis::{Flavour, Server};

const KEY: [u8; 32] = [7; 32];
const BUDGET: u64 = 20_000;
const STREAMS: u64 = 100;

fn rules() -> String {
    format!(
        "version: 1\nrules: [{{ id: tokens, per: tenant, limit: {{ quota: {BUDGET}/1d, period: rolling }} }}]"
    )
}

async fn limiter(server: &Server) -> Limiter {
    // A reply after the deadline leaves a hold until it expires. On a busy machine the default deadline is too short.
    let store = RedisSettings::url(&server.url()).unwrap().deadline(Duration::from_secs(5));
    let builder = Limiter::builder().rules_yaml(rules()).redis(store).hash_key(HashKey::new(KEY));
    builder.build().await.unwrap()
}

async fn usage(limiter: &Limiter) -> RuleUsage {
    limiter.usage(Request::from([("tenant", "acme")])).await.unwrap().remove(0)
}

/// Sends a prompt and returns the connection.
async fn ask(proxy: SocketAddr, tokens: u64) -> TcpStream {
    let mut connection = TcpStream::connect(proxy).await.unwrap();
    let request = format!(
        "POST /v1/chat HTTP/1.1\r\nhost: proxy\r\nx-tenant: acme\r\nx-tokens: {tokens}\r\ncontent-length: 11\r\n\
         connection: close\r\n\r\nwhat is it?"
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    connection
}

/// Reads a stream to its end. Returns the number of tokens that arrived, and how it ended.
async fn read(mut connection: TcpStream) -> (u64, String) {
    let mut text = String::new();
    connection.read_to_string(&mut text).await.unwrap();
    let tokens = text.matches("data: word-").count() as u64;
    let end = text.split("event: end\ndata: ").nth(1).map_or("", |end| end.lines().next().unwrap_or(""));
    let refused = text.starts_with("HTTP/1.1 429");
    (tokens, if refused { "refused".to_owned() } else { end.to_owned() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_parallel_streams_overspend_one_budget_by_at_most_one_extension() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let limiter = limiter(&server).await;
    let model = Model { pace: Duration::ZERO };
    let proxy = Proxy { limiter: limiter.clone(), model, hold: Duration::from_secs(60) };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, router(proxy)).into_future());

    // Together they want five times the budget.
    let streams: Vec<_> =
        (0..STREAMS).map(|_| tokio::spawn(async move { read(ask(address, 1_000).await).await })).collect();
    let (mut sent, mut ends) = (0, Vec::new());
    for stream in streams {
        let (tokens, end) = stream.await.unwrap();
        // The prompt has three words.
        sent += tokens + if end == "refused" { 0 } else { 3 };
        ends.push(end);
    }
    let usage = usage(&limiter).await;
    println!(
        "sent {sent} of {BUDGET}; booked {}, held {}, overspent {}",
        usage.used,
        usage.held,
        sent.saturating_sub(BUDGET)
    );
    assert!(sent <= BUDGET + STEP, "{sent} tokens of {BUDGET} were sent");
    assert_eq!((usage.used, usage.held), (sent, 0), "what was sent is booked, and nothing is held");
    assert!(sent > BUDGET - STEP, "the budget can be used: {sent}");
    assert!(ends.iter().any(|end| end == "budget") && ends.iter().all(|end| end != "store down"), "{ends:?}");
}

/// The proxy as a process. Killed when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn start(rules: &Path, store: &str) -> (Process, SocketAddr) {
    let key: String = KEY.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut child = Command::new(env!("CARGO_BIN_EXE_llm-proxy"))
        .arg(rules)
        .envs([("LLM_PROXY_STORE", store), ("LLM_PROXY_LISTEN", "127.0.0.1:0"), ("LLM_PROXY_HOLD_S", "2")])
        .envs([("LLM_PROXY_PACE_MS", "20"), ("TOLLGATE_HASH_KEY", key.as_str())])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().rsplit('/').next().unwrap().parse().unwrap();
    (Process(child), address)
}

#[tokio::test]
async fn the_hold_of_a_killed_proxy_expires() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, rules()).unwrap();
    let limiter = limiter(&server).await;
    let (process, address) = start(&file, &server.url());
    let mut lines = tokio::io::BufReader::new(ask(address, 1_000).await).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        if line == "data: word-3" {
            break;
        }
    }
    let held = usage(&limiter).await;
    assert_eq!(held.limit - held.remaining, 3 + STEP, "the prompt and one extension");
    // `kill` sends SIGKILL.
    drop(process);
    let killed = Instant::now();
    while usage(&limiter).await.remaining < BUDGET {
        assert!(killed.elapsed() < Duration::from_secs(10), "the hold does not expire");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // A stream that goes on afterwards starts with the whole budget.
    let (process, address) = start(&file, &server.url());
    assert_eq!(read(ask(address, 5).await).await, (5, "complete".to_owned()));
    let booked = usage(&limiter).await;
    assert_eq!((booked.limit - booked.remaining, booked.overdraft), (3 + 5, 0));
    drop(process);
}
