//! A real `tollgate serve` on free ports. Its log is kept, and it stops with the test.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Timeout for a log line, on a machine that is busy with other tests.
const LINE_TIMEOUT: Duration = Duration::from_secs(30);

/// A token that `tollgate token` has created.
pub struct NewToken {
    /// The token itself, which a caller sends.
    pub token: String,
    /// Its digest, `sha256:` and hexadecimal digits.
    pub digest: String,
    /// The line for `tokens:` in a configuration file.
    pub line: String,
}

/// Creates a token with these scopes, separated by commas.
pub fn create_token(binary: &str, scopes: &str) -> NewToken {
    let name = scopes.replace(',', "-");
    let output = Command::new(binary)
        .args(["token", "--name", &name, "--scopes", scopes])
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{output:?}");
    let stderr = String::from_utf8(output.stderr).expect("text");
    let line = stderr.lines().find(|line| line.contains("sha256:")).expect("a line for the configuration");
    let digest = line.split('"').find(|word| word.starts_with("sha256:")).expect("a digest");
    NewToken {
        token: String::from_utf8(output.stdout).expect("text").trim().to_owned(),
        digest: digest.to_owned(),
        line: line.to_owned(),
    }
}

/// A server process and its addresses.
pub struct Serving {
    /// The address of the HTTP port.
    pub http: SocketAddr,
    /// The address of the RESP port.
    pub resp: SocketAddr,
    /// The address of the gRPC port, if it is on and the log is JSON.
    pub grpc: Option<SocketAddr>,
    /// The address of the control listener, if it is separate and the log is JSON.
    pub admin: Option<SocketAddr>,
    child: Child,
    lines: Receiver<String>,
    all: Arc<Mutex<String>>,
}

impl Serving {
    /// Starts `binary serve` with these arguments and free ports, and waits until it is ready. Its log is JSON.
    ///
    /// A test passes `env!("CARGO_BIN_EXE_tollgate")`.
    pub fn start(binary: &str, args: &[&str]) -> Serving {
        Serving::start_in(binary, args, &[])
    }

    /// Starts a server with these environment variables as well.
    pub fn start_in(binary: &str, args: &[&str], environment: &[(String, String)]) -> Serving {
        Serving::launch(binary, &[&["--log-format", "json"], args].concat(), environment)
    }

    /// Starts a server whose log is text, as people see it.
    pub fn start_with_text_log(binary: &str, args: &[&str]) -> Serving {
        Serving::launch(binary, args, &[])
    }

    fn launch(binary: &str, args: &[&str], environment: &[(String, String)]) -> Serving {
        let mut command = Command::new(binary);
        command.args(["serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0"]).args(args);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOLLGATE_")) {
            command.env_remove(name);
        }
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let stderr = child.stderr.take().expect("it is piped");
        let (sender, lines) = channel();
        let all = Arc::<Mutex<String>>::default();
        let kept = Arc::clone(&all);
        // The log is read at once, so that the server never waits for it.
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                kept.lock().expect("no thread panics with the lock").push_str(&format!("{line}\n"));
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut serving =
            Serving { http: nowhere, resp: nowhere, grpc: None, admin: None, child, lines, all };
        serving.find_ports();
        serving
    }

    fn find_ports(&mut self) {
        let mut found = (None, None);
        while found.0.is_none() || found.1.is_none() {
            let line = self.next_line();
            if let Ok(event) = serde_json::from_str::<Value>(&line) {
                let address = |field: &str| event[field].as_str().and_then(|at| at.parse().ok());
                found = (address("http"), address("resp"));
                self.grpc = address("grpc");
                self.admin = address("admin");
            } else if let Some((_, at)) = line.split_once("://") {
                let address = if line.trim_start().starts_with("HTTP") { &mut found.0 } else { &mut found.1 };
                *address = at.trim().parse().ok();
            }
        }
        (self.http, self.resp) = (found.0.expect("a port"), found.1.expect("a port"));
    }

    fn next_line(&self) -> String {
        self.lines
            .recv_timeout(LINE_TIMEOUT)
            .unwrap_or_else(|_| panic!("no more log lines after\n{}", self.text()))
    }

    /// Waits for the next event with this name, and skips others.
    pub fn wait_for(&self, event: &str) -> Value {
        loop {
            let line = self.next_line();
            match serde_json::from_str::<Value>(&line) {
                Ok(logged) if logged["event"] == event => return logged,
                _ => (),
            }
        }
    }

    /// The whole log so far.
    pub fn text(&self) -> String {
        let settled = Instant::now() + Duration::from_millis(500);
        // The message of a ready server may arrive in several pieces.
        loop {
            let text = self.all.lock().expect("no thread panics with the lock").clone();
            if text.contains("Ctrl-C") || text.contains("\"ended\"") || Instant::now() > settled {
                return text;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the id of its process.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits until it exits.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().expect("a child can be waited for").code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have exited already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
