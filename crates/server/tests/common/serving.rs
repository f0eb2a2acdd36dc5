//! A real `tollgate serve` on free ports, ended with the test.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::Value;

pub(crate) struct Serving {
    pub(crate) http: SocketAddr,
    pub(crate) resp: SocketAddr,
    pub(crate) child: Child,
}

/// Starts a server with these arguments beside its ports, and waits until it says that it is ready.
pub(crate) fn start(args: &[&str]) -> Serving {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command
        .args(["serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--log-format", "json"])
        .args(args);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOLLGATE_")) {
        command.env_remove(name);
    }
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
    let mut said = String::new();
    let ready = lines.by_ref().find_map(|line| {
        said.push_str(&line);
        serde_json::from_str::<Value>(&line).ok().filter(|event| event["event"] == "ready")
    });
    let ready = ready.unwrap_or_else(|| panic!("it ended before it was ready: {said}"));
    // What it says from now on is read, so that it never has to wait, and forgotten.
    thread::spawn(move || lines.for_each(drop));
    let address = |field: &str| ready[field].as_str().and_then(|at| at.parse().ok()).expect("an address");
    Serving { http: address("http"), resp: address("resp"), child }
}

impl Serving {
    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
