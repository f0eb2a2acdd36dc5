//! A real `tollgate serve` on free ports, whose words are kept, ended with the test.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// On a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Serving {
    pub(crate) http: SocketAddr,
    pub(crate) resp: SocketAddr,
    /// If it was asked for, and events are told as JSON.
    pub(crate) grpc: Option<SocketAddr>,
    child: Child,
    lines: Receiver<String>,
    all: Arc<Mutex<String>>,
}

/// Starts a server with these arguments beside its ports, and waits until it says that it is ready. Its events are told
/// as JSON.
pub(crate) fn start(args: &[&str]) -> Serving {
    start_for_people(&[&["--log-format", "json"], args].concat())
}

/// The same, and it speaks as people find it.
pub(crate) fn start_for_people(args: &[&str]) -> Serving {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(["serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0"]).args(args);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOLLGATE_")) {
        command.env_remove(name);
    }
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let stderr = child.stderr.take().expect("it is piped");
    let (sender, lines) = channel();
    let all = Arc::<Mutex<String>>::default();
    let kept = Arc::clone(&all);
    // Everything is read at once, so that the server never has to wait.
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            kept.lock().expect("nobody panics with it").push_str(&format!("{line}\n"));
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut serving = Serving { http: nowhere, resp: nowhere, grpc: None, child, lines, all };
    serving.find_ports();
    serving
}

impl Serving {
    fn find_ports(&mut self) {
        let mut found = (None, None);
        while found.0.is_none() || found.1.is_none() {
            let line = self.next_line();
            if let Ok(event) = serde_json::from_str::<Value>(&line) {
                let address = |field: &str| event[field].as_str().and_then(|at| at.parse().ok());
                found = (address("http"), address("resp"));
                self.grpc = address("grpc");
            } else if let Some((_, at)) = line.split_once("://") {
                let place = if line.trim_start().starts_with("HTTP") { &mut found.0 } else { &mut found.1 };
                *place = at.trim().parse().ok();
            }
        }
        (self.http, self.resp) = (found.0.expect("a port"), found.1.expect("a port"));
    }

    fn next_line(&self) -> String {
        self.lines
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| panic!("nothing more is said after\n{}", self.text()))
    }

    /// The next event of this name; those before it are passed over.
    pub(crate) fn wait_for(&self, event: &str) -> Value {
        loop {
            let line = self.next_line();
            match serde_json::from_str::<Value>(&line) {
                Ok(told) if told["event"] == event => return told,
                _ => (),
            }
        }
    }

    /// Everything that was said so far.
    pub(crate) fn text(&self) -> String {
        let settled = Instant::now() + Duration::from_millis(500);
        // What is said when it is ready comes in one piece, but a pipe may bring it in several.
        loop {
            let text = self.all.lock().expect("nobody panics with it").clone();
            if text.contains("Ctrl-C") || text.contains("\"ended\"") || Instant::now() > settled {
                return text;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits for its end.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().expect("a child can be waited for").code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
