//! Follows a page as a reader would: saves its files, starts its servers, and runs its commands in one folder.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use tollgate_testkit::postgres::Postgres;
use tollgate_testkit::redis::{Flavour, Server};
use tollgate_testkit::serving::Serving;

use super::page::{Action, Step, is_shown, masked, root, steps};

/// Commands that run all tests or administer the machine.
const NOT_RUN: [&str; 2] = ["cargo xtask", "sudo "];
/// Ends the servers of the page.
const STOP: &str = "sudo systemctl stop tollgate";
/// A command that hangs fails the test after this many seconds.
const SECONDS_MAX: &str = "60";

pub(crate) struct Session {
    folder: TempDir,
    /// Addresses as a page shows them, and the addresses of the servers that were started for it.
    addresses: Vec<(String, String)>,
    /// Running servers, each with the HTTP port that the page shows.
    servers: Vec<(String, Serving)>,
    redis: Option<Server>,
    /// Variables that the page exports.
    variables: Vec<(String, String)>,
    postgres: Option<Postgres>,
}

impl Session {
    /// Follows all steps of a page.
    pub(crate) fn follow(page: &str) {
        let mut session = Session {
            folder: tempfile::tempdir().expect("a folder"),
            addresses: Vec::new(),
            servers: Vec::new(),
            redis: None,
            variables: Vec::new(),
            postgres: None,
        };
        let examples = root().join("examples").canonicalize().expect("the examples");
        symlink(examples, session.folder.path().join("examples")).expect("a link");
        let steps = steps(&root().join(page));
        assert!(!steps.is_empty(), "{page} shows no command");
        for Step { line, action } in steps {
            let position = format!("{page}:{line}");
            match action {
                Action::Save { name, text } => {
                    let text = session.with_real_addresses(&text);
                    fs::write(session.folder.path().join(name), text).expect("write a file");
                }
                Action::Run { command } => session.run(&position, &command),
                Action::Compare { command, output } => session.compare(&position, &command, &output),
            }
        }
    }

    fn run(&mut self, position: &str, command: &str) {
        if let Some(arguments) = command.strip_prefix("cargo install ") {
            assert_installs_the_binary(position, arguments);
            return;
        }
        if command == STOP {
            for (_, mut server) in self.servers.drain(..) {
                server.signal("TERM");
                assert_eq!(server.exit_code(), Some(0), "{position}");
            }
            return;
        }
        if NOT_RUN.iter().any(|prefix| command.starts_with(prefix)) {
            return;
        }
        let serve = command
            .strip_prefix("tollgate serve")
            .or(command.strip_prefix("cargo run -p tollgate-server -- serve"));
        if let Some(flags) = serve {
            self.serve(flags);
            return;
        }
        if let Some((name, value)) = command.strip_prefix("export ").and_then(|rest| rest.split_once('=')) {
            let value = self.with_real_addresses(value);
            self.variables.push((name.to_owned(), value));
            return;
        }
        let output = self.shell(command);
        assert!(
            output.status.success(),
            "{position}: {command}\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn compare(&mut self, position: &str, command: &str, shown: &str) {
        let output = self.shell(command);
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(
            is_shown(&masked(&printed), &masked(shown)),
            "{position}: {command}\nshown:\n{shown}\nprinted:\n{printed}"
        );
    }

    /// Starts a server with the flags of the page on free ports.
    fn serve(&mut self, flags: &str) {
        let (mut args, mut http, mut resp) =
            (Vec::new(), "127.0.0.1:8080".to_owned(), "127.0.0.1:6380".to_owned());
        let flags = self.with_real_addresses(flags);
        let mut words = flags.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "--http" => http = words.next().expect("an address").to_owned(),
                "--resp" => resp = words.next().expect("an address").to_owned(),
                // The server is started in the folder of the tests, and its files are in the folder of the session.
                word if word.starts_with("sqlite:") => {
                    let path = self.folder.path().join(word.trim_start_matches("sqlite:"));
                    args.push(format!("sqlite:{}", path.display()));
                }
                word => {
                    let path = self.folder.path().join(word);
                    args.push(if path.is_file() { path.display().to_string() } else { word.to_owned() });
                }
            }
        }
        let port = |address: &str| address.rsplit(':').next().unwrap_or_default().to_owned();
        // A reader stops the server whose port the next one needs.
        self.servers.retain(|(other, _)| *other != port(&http));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let server = Serving::start(env!("CARGO_BIN_EXE_tollgate"), &args);
        let real = server.http.to_string();
        // The newest server of an address is the one that the page talks about.
        for host in ["localhost", "127.0.0.1"] {
            self.addresses.insert(0, (format!("{host}:{}", port(&http)), real.clone()));
        }
        self.addresses.insert(0, (format!("-p {}", port(&resp)), format!("-p {}", server.resp.port())));
        self.servers.push((port(&http), server));
    }

    fn shell(&mut self, command: &str) -> Output {
        let binary = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().expect("the folder of the binary");
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").expect("PATH"));
        let real = self.with_real_addresses(command);
        let mut shell = Command::new("timeout");
        shell.args([SECONDS_MAX, "sh", "-c", &real]).current_dir(self.folder.path()).env("PATH", path);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOLLGATE_")) {
            shell.env_remove(name);
        }
        shell.envs(self.variables.iter().map(|(name, value)| (name, value)));
        shell.env_remove("CLICOLOR_FORCE").stdin(Stdio::null()).output().expect("a shell")
    }

    /// Starts Redis or PostgreSQL when a command needs it for the first time.
    fn with_real_addresses(&mut self, command: &str) -> String {
        const REDIS: [&str; 2] = ["localhost:6379", "redis.example.com:6379"];
        if self.redis.is_none() && REDIS.iter().any(|address| command.contains(address)) {
            let redis = Server::start(Flavour::Redis70).expect("a Redis server");
            let real = format!("127.0.0.1:{}", redis.port());
            self.addresses.extend(REDIS.map(|address| (address.to_owned(), real.clone())));
            self.redis = Some(redis);
        }
        const POSTGRES: &str = "db.internal:5432/postgres";
        if self.postgres.is_none() && command.contains(POSTGRES) {
            let postgres = Postgres::start().expect("a PostgreSQL server");
            let url = postgres.url("postgres");
            let (_, real) = url.split_once('@').expect("a user");
            self.addresses.push((POSTGRES.to_owned(), real.to_owned()));
            self.postgres = Some(postgres);
        }
        self.addresses.iter().fold(command.to_owned(), |command, (shown, real)| command.replace(shown, real))
    }
}

/// Installing takes minutes, so this checks only that the folder of `--path` has the binary.
fn assert_installs_the_binary(position: &str, arguments: &str) {
    let path = arguments.split_once("--path ").and_then(|(_, rest)| rest.split_whitespace().next());
    let manifest = root().join(path.unwrap_or_else(|| panic!("{position}: no --path"))).join("Cargo.toml");
    let manifest = fs::read_to_string(&manifest).unwrap_or_else(|error| panic!("{position}: {error}"));
    let (_, binary) = manifest.split_once("[[bin]]").unwrap_or_else(|| panic!("{position}: no binary there"));
    assert!(binary.contains("name = \"tollgate\""), "{position}: another binary is there");
}
