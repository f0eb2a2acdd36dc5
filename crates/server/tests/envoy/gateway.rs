//! Real Envoy with the very files that the page shows; only the ports are others.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_testkit::tools::Tool;

use crate::serving::{self, Serving};

const CONFIGURATION: &str = include_str!("../../../../examples/gateways/envoy/envoy.yaml");
const RULES: &str = include_str!("../../../../examples/gateways/envoy/rules.yaml");
const PAGE: &str = include_str!("../../../../docs/gateways/envoy.md");

/// On a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways/envoy")
}

/// A shop that answers everything with 200.
fn shop() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(stream: TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
        }
        (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").ok()?;
    }
}

/// A running Envoy.
struct Envoy {
    child: Child,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

impl Envoy {
    /// Starts it with the file of the page, and waits until it listens.
    fn start(tollgate: SocketAddr, shop: SocketAddr, change: impl Fn(String) -> String) -> Envoy {
        let folder = tempfile::tempdir().expect("a folder");
        let mut text = change(CONFIGURATION.to_owned());
        for (shown, port) in [(9901, 0), (10000, 0), (8081, shop.port()), (9090, tollgate.port())] {
            let line = format!("port_value: {shown} ");
            assert!(text.contains(&line), "{line}");
            text = text.replace(&line, &format!("port_value: {port} "));
        }
        let path = folder.path().join("envoy.yaml");
        std::fs::write(&path, text).expect("a file can be written");
        let admin = folder.path().join("admin");
        let log = folder.path().join("log");
        let child = Tool::Envoy
            .command()
            .args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning", "--config-path"])
            .arg(&path)
            .arg("--admin-address-path")
            .arg(&admin)
            .arg("--log-path")
            .arg(&log)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Envoy runs");
        let mut envoy = Envoy { child, address: shop, folder };
        envoy.address = envoy.wait(&admin);
        envoy
    }

    /// Where it listens, once it does.
    fn wait(&mut self, admin: &Path) -> SocketAddr {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(at) = std::fs::read_to_string(admin)
                && let Some(listening) = listening(at.trim())
            {
                return listening;
            }
            let ended = self.child.try_wait().expect("a child can be looked at");
            let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "Envoy does not listen: {ended:?}\n{}",
                log()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn get(&self, path: &str, headers: &[&str]) -> Answer {
        let url = format!("http://{}{path}", self.address);
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--include", "--max-time", "20", &url]);
        for header in headers {
            command.args(["--header", header]);
        }
        let output = command.output().expect("curl runs");
        assert!(output.status.success(), "{output:?}");
        Answer::read(&String::from_utf8(output.stdout).expect("text"))
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Asks Envoy itself: its listeners, once it is live.
fn listening(admin: &str) -> Option<SocketAddr> {
    let get = |path: &str| {
        let output =
            Command::new("curl").args(["--silent", &format!("http://{admin}{path}")]).output().ok()?;
        String::from_utf8(output.stdout).ok()
    };
    if get("/ready")?.trim() != "LIVE" {
        return None;
    }
    get("/listeners")?.lines().find_map(|line| line.strip_prefix("shop::")?.parse().ok())
}

/// What a client sees.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Answer {
    fn read(text: &str) -> Answer {
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
        let header =
            |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
        Answer {
            status: status.parse().expect("a number"),
            headers: lines.filter_map(header).collect(),
            body: body.to_owned(),
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

fn served() -> Serving {
    let rules = examples().join("rules.yaml");
    let rules = rules.to_str().expect("text");
    serving::start(&["--grpc", "127.0.0.1:0", "--rules", rules])
}

fn port(server: &Serving) -> SocketAddr {
    server.grpc.expect("it speaks gRPC")
}

#[test]
fn clients_of_envoy_see_what_the_page_promises() {
    let server = served();
    let envoy = Envoy::start(port(&server), shop(), |text| text);
    let key = "x-api-key: k-1";
    for left in (0..5).rev() {
        let answer = envoy.get("/search", &[key]);
        assert_eq!((answer.status, answer.body.as_str()), (200, "hello"), "{answer:?}");
        let policy = "\"search-per-key\";q=5;w=60";
        assert_eq!(answer.header("ratelimit-policy"), Some(policy), "{answer:?}");
        let standing = answer.header("ratelimit").expect("a header");
        assert!(standing.starts_with(&format!("\"search-per-key\";r={left};t=")), "{standing}");
        assert_eq!(answer.header("retry-after"), None);
    }
    // The shadow would have refused the last two: nobody sees it.
    let refused = envoy.get("/search", &[key]);
    assert_eq!((refused.status, refused.body.as_str()), (429, ""), "{refused:?}");
    assert_eq!(refused.header("x-envoy-ratelimited"), Some("true"));
    assert!(refused.header("ratelimit").is_some_and(|field| field.starts_with("\"search-per-key\";r=0;t=")));
    let wait: u64 = refused.header("retry-after").and_then(|wait| wait.parse().ok()).expect("a wait");
    assert!((1..=60).contains(&wait), "{wait}");
    // Another key is somebody else, and what was refused was charged to nobody: six so far by this address.
    assert_eq!(envoy.get("/search", &["x-api-key: k-2"]).status, 200);
    let other = envoy.get("/", &["x-forwarded-for: 203.0.113.7", "x-api-key: k-1"]);
    assert_eq!(other.status, 200);
    let standing = other.header("ratelimit").expect("a header");
    assert!(standing.starts_with("\"requests-per-address\";r=93;t="), "{standing}");
    // Without a key there is no second descriptor: Envoy sends none, and the address alone is counted.
    let keyless = envoy.get("/search", &[]);
    assert!(
        keyless.header("ratelimit").is_some_and(|field| field.starts_with("\"requests-per-address\";r=92;"))
    );
}

#[test]
fn when_nobody_answers_envoy_does_as_it_was_told() {
    let mut server = served();
    let shop = shop();
    let open = Envoy::start(port(&server), shop, |text| text);
    let closed = Envoy::start(port(&server), shop, |text| {
        text.replace("failure_mode_deny: false", "failure_mode_deny: true")
    });
    assert_eq!((open.get("/", &[]).status, closed.get("/", &[]).status), (200, 200));
    server.signal("KILL");
    assert_eq!(server.exit_code(), None, "a signal ended it");
    let passed = open.get("/", &[]);
    assert_eq!((passed.status, passed.header("ratelimit")), (200, None), "{passed:?}");
    let refused = closed.get("/", &[]);
    assert_eq!((refused.status, refused.body.as_str()), (500, ""), "{refused:?}");
}

#[test]
fn a_key_of_more_than_64_kib_is_refused_and_not_let_through() {
    let server = served();
    let envoy = Envoy::start(port(&server), shop(), |text| {
        text.replace(
            "use_remote_address: true",
            "use_remote_address: true\n                max_request_headers_kb: 96",
        )
    });
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("headers");
    std::fs::write(&file, format!("x-api-key: {}\n", "k".repeat(70 * 1024))).expect("a file can be written");
    let header = format!("@{}", file.display());
    assert_eq!(envoy.get("/search", &[&header]).status, 429);
    assert_eq!(envoy.get("/search", &["x-api-key: k-1"]).status, 200, "others are served");
}

#[test]
fn the_page_shows_the_files_that_are_tested() {
    for text in [CONFIGURATION, RULES] {
        assert!(PAGE.contains(&format!("```yaml\n{text}```\n")), "the page does not show\n{text}");
    }
}
