//! A shop, a gateway in front of it, and the Tollgate that the gateway asks. All are real processes, which end with the test.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tollgate_testkit::serving::Serving;
use tollgate_testkit::tools::free_port;

use crate::harness::recipe::Recipe;
use crate::harness::response::Response;
use crate::harness::shop::Shop;

/// Long, because the machine may be busy with other tests.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Site {
    pub(crate) server: Serving,
    pub(crate) shop: Shop,
    gateway: Child,
    port: u16,
    folder: TempDir,
    _rules: TempDir,
}

impl Site {
    /// Starts all three as the page shows them, and waits until a request gets through.
    pub(crate) fn start(recipe: &Recipe) -> Site {
        Site::with(recipe, &[], &|text| text)
    }

    /// Starts all three with additional settings of the server and with changed files.
    pub(crate) fn with(recipe: &Recipe, settings: &[&str], change: &dyn Fn(String) -> String) -> Site {
        let shop = Shop::open();
        Site::start_all(recipe, shop.address.port(), Some(shop), settings, change)
    }

    /// The same before another server than the shop.
    pub(crate) fn before(
        recipe: &Recipe,
        port: u16,
        settings: &[&str],
        change: &dyn Fn(String) -> String,
    ) -> Site {
        Site::start_all(recipe, port, None, settings, change)
    }

    fn start_all(
        recipe: &Recipe,
        shop_port: u16,
        shop: Option<Shop>,
        settings: &[&str],
        change: &dyn Fn(String) -> String,
    ) -> Site {
        let rules = tempfile::tempdir().expect("a folder");
        let path = rules.path().join("rules.yaml");
        fs::write(&path, change(recipe.text("rules.yaml"))).expect("a file can be written");
        let path = path.to_str().expect("a path of text");
        let trusted = if settings.contains(&"--trusted-proxies") {
            &[][..]
        } else {
            &["--trusted-proxies", "127.0.0.1"]
        };
        let header = ["--proxy-header", "x-forwarded-for"];
        let args = [&["--rules", path, "--grpc", "127.0.0.1:0"], &header[..], trusted, settings].concat();
        let server = Serving::start(env!("CARGO_BIN_EXE_tollgate"), &args);
        let (shop, port) = (shop.unwrap_or_else(Shop::open), free_port());
        let grpc = server.grpc.expect("it speaks gRPC").port();
        let ports = [
            (8080, server.http.port()),
            (8081, shop_port),
            (9090, grpc),
            (9901, free_port()),
            (10_000, port),
        ];
        let folder = recipe.copy(&ports, change);
        let log = File::create(folder.path().join("log")).expect("a file can be made");
        let gateway = recipe
            .tool
            .command()
            .args(recipe.arguments)
            .current_dir(folder.path())
            // Some gateways store data in the home folder.
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be shared"))
            .stderr(log)
            // So that a signal to the group also ends worker processes.
            .process_group(0)
            .spawn()
            .expect("the gateway runs");
        let mut site = Site { server, shop, gateway, port, folder, _rules: rules };
        site.wait();
        site
    }

    /// Waits until the shop answers a request. Its address is not used by any test.
    fn wait(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        let is_ready = |site: &Site| site.ask(1, "/ready", &[]).is_some_and(|answer| answer.status == 200);
        while !is_ready(self) {
            let ended = self.gateway.try_wait().expect("the state of the child");
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "the gateway does not serve: {ended:?}\n{}",
                fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The address of a path at the gateway.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Sends a request from 127.0.0.`from`, with more arguments for curl; `None` if there is no response.
    fn ask(&self, from: u8, path: &str, args: &[&str]) -> Option<Response> {
        let (from, url) = (format!("127.0.0.{from}"), self.url(path));
        Response::fetch(&[&["--interface", &from, &url], args].concat())
    }

    /// Sends a request from 127.0.0.`from`, with more arguments for curl.
    pub(crate) fn curl(&self, from: u8, path: &str, args: &[&str]) -> Response {
        self.ask(from, path, args).unwrap_or_else(|| panic!("no response to {path} {args:?}"))
    }

    /// Sends a GET request with these header fields.
    pub(crate) fn get(&self, from: u8, path: &str, headers: &[&str]) -> Response {
        let args: Vec<&str> = headers.iter().flat_map(|header| ["--header", header]).collect();
        self.curl(from, path, &args)
    }

    /// Kills Tollgate.
    pub(crate) fn kill_tollgate(&mut self) {
        self.server.signal("KILL");
        assert_eq!(self.server.exit_code(), None, "a signal ended it");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let group = format!("-{}", self.gateway.id());
        // The gateway may have exited already.
        drop(Command::new("kill").args(["-s", "KILL", "--", &group]).stderr(Stdio::null()).status());
        drop(self.gateway.wait());
    }
}

/// The request that the shop received, from its response.
pub(crate) fn seen(answer: &Response) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}
