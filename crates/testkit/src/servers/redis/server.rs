//! A Redis server for a test: started on a free port, and killed and cleaned up when it is dropped.

mod config_file;
mod process;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::admin::Admin;
use super::certificates::Certificates;
use super::error::{AdminError, Error};
use super::flavour::Flavour;
use crate::servers::ports;
use process::Process;

/// Deadline for the first answer. A second is enough unless all cores are busy compiling.
const START_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// A server on 127.0.0.1 that writes no data to disk.
///
/// Do not keep it in a `static`: a static is never dropped, so the server would outlive the test.
#[derive(Debug)]
pub struct Server {
    options: Builder,
    port: u16,
    tls: Option<Tls>,
    /// `None` after it was killed. Declared before the folder, so that it is dropped first.
    process: Option<Process>,
    folder: TempDir,
}

#[derive(Debug)]
struct Tls {
    port: u16,
    certificates: Certificates,
}

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Builder {
    flavour: Flavour,
    password: Option<String>,
    tls: bool,
    certificates: Option<Certificates>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    settings: Settings,
    bus: bool,
}

/// Where a server reads its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Settings {
    /// From its arguments. A restart restores them.
    Arguments,
    /// From a file, which it may rewrite.
    File,
    /// From a file, as a sentinel.
    SentinelFile,
}

impl Settings {
    /// Returns what the server logs when it listens.
    fn ready(self) -> &'static str {
        match self {
            Settings::Arguments | Settings::File => "Ready to accept connections",
            Settings::SentinelFile => "Sentinel ID is",
        }
    }
}

impl Builder {
    /// Sets the password of the default user. [`Server::admin`] and [`Server::url`] use it. It must not need escaping in a
    /// URL.
    pub fn password(mut self, password: &str) -> Builder {
        self.password = Some(password.to_owned());
        self
    }

    /// Adds a user, as a line of an ACL file without the word `user`: `alice on >secret ~tg:* +@all`.
    pub fn user(mut self, line: &str) -> Builder {
        self.arguments.push("--user".to_owned());
        self.arguments.extend(line.split_whitespace().map(str::to_owned));
        self
    }

    /// Adds a TLS port with new certificates.
    pub fn tls(mut self) -> Builder {
        self.tls = true;
        self
    }

    /// Adds a TLS port with these certificates. Servers that talk to each other must trust one authority.
    pub fn tls_with(mut self, certificates: Certificates) -> Builder {
        self.certificates = Some(certificates);
        self.tls()
    }

    /// Keeps its settings in a file. CONFIG REWRITE changes the file, for example when a sentinel changes the server's
    /// role, and the changes survive a restart.
    pub fn config_file(mut self) -> Builder {
        self.settings = Settings::File;
        self
    }

    /// Starts a sentinel, which always keeps its state in a file.
    pub(super) fn sentinel(mut self) -> Builder {
        self.settings = Settings::SentinelFile;
        self
    }

    /// Chooses a port for which the cluster bus port is free as well.
    pub(super) fn bus(mut self) -> Builder {
        self.bus = true;
        self
    }

    /// Adds arguments, such as `["--maxmemory", "2mb"]`. They come last and override others.
    pub fn arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Builder {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds environment variables of the process.
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Builder {
        self.environment.extend(variables);
        self
    }

    /// Starts the server and waits until it answers.
    pub fn start(self) -> Result<Server, Error> {
        let flavour = self.flavour;
        let folder = TempDir::with_prefix("tollgate-redis-").map_err(Error::io("create a folder"))?;
        let certificates = match (self.tls, &self.certificates) {
            (true, _) if !flavour.has_tls() => return Err(Error::NoTls { flavour }),
            (true, Some(certificates)) => Some(certificates.clone()),
            (true, None) => Some(Certificates::generate(folder.path())?),
            (false, _) => None,
        };
        let tls = certificates.map(|certificates| Tls { port: 0, certificates });
        let mut server = Server { options: self, port: 0, tls, process: None, folder };
        for _ in 0..ports::TRIES {
            let next = if server.options.bus { ports::next_with_bus } else { ports::next };
            server.port = next();
            if let Some(tls) = &mut server.tls {
                // The bus port of a node with TLS is derived from its TLS port.
                tls.port = next();
            }
            server.write_settings()?;
            if server.launch()? {
                return Ok(server);
            }
        }
        Err(Error::NoPort { tries: ports::TRIES })
    }
}

impl Server {
    /// Starts a server without password or TLS.
    pub fn start(flavour: Flavour) -> Result<Server, Error> {
        Server::builder(flavour).start()
    }

    /// Returns a builder for a server with other options.
    pub fn builder(flavour: Flavour) -> Builder {
        Builder {
            flavour,
            password: None,
            tls: false,
            certificates: None,
            arguments: Vec::new(),
            environment: Vec::new(),
            settings: Settings::Arguments,
            bus: false,
        }
    }

    /// Returns its flavour.
    pub fn flavour(&self) -> Flavour {
        self.options.flavour
    }

    /// Returns the port without TLS.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns its URL, with the password if there is one.
    pub fn url(&self) -> String {
        format!("redis://{}127.0.0.1:{}", self.credentials(), self.port)
    }

    /// Returns its TLS URL, if it has a TLS port.
    pub fn tls_url(&self) -> Option<String> {
        self.tls.as_ref().map(|tls| format!("rediss://{}127.0.0.1:{}", self.credentials(), tls.port))
    }

    /// Returns its TLS port, if it has one.
    pub fn tls_port(&self) -> Option<u16> {
        self.tls.as_ref().map(|tls| tls.port)
    }

    /// Returns the port that other nodes of a cluster use.
    pub(super) fn cluster_port(&self) -> u16 {
        self.tls_port().unwrap_or(self.port)
    }

    /// Returns its certificates, if it has a TLS port.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.tls.as_ref().map(|tls| &tls.certificates)
    }

    /// Returns the folder of this server, which is removed with it. A test may put files there.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the id of its process.
    pub fn process_id(&self) -> Result<u32, Error> {
        Ok(self.process()?.id())
    }

    /// Returns its output since its last start.
    pub fn log(&self) -> Result<String, Error> {
        self.process()?.log()
    }

    /// Opens a connection for the test itself.
    pub fn admin(&self) -> Result<Admin, AdminError> {
        Admin::connect(self.port, self.options.password.as_deref())
    }

    /// Opens a connection with this timeout for connecting and for every reply.
    pub fn admin_within(&self, timeout: Duration) -> Result<Admin, AdminError> {
        Admin::connect_within(self.port, self.options.password.as_deref(), timeout)
    }

    /// Whether its process exists, stopped or not.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Kills it, like a power failure: connections break, and all data is lost.
    pub fn kill9(&mut self) -> Result<(), Error> {
        self.process.take().ok_or(Error::Killed)?.kill()
    }

    /// Stops its process: connections stay open, the kernel still accepts new ones, and nothing is answered.
    pub fn stop(&self) -> Result<(), Error> {
        self.process()?.signal(Signal::STOP)
    }

    /// Resumes a stopped server. It first handles everything that was sent meanwhile.
    pub fn resume(&self) -> Result<(), Error> {
        self.process()?.signal(Signal::CONT)
    }

    /// Kills it, if it still runs, and starts it again on the same port without data.
    pub fn restart(&mut self) -> Result<(), Error> {
        if self.process.is_some() {
            self.kill9()?;
        }
        if self.launch()? { Ok(()) } else { Err(Error::NoPort { tries: 1 }) }
    }

    /// Restarts it with more arguments, and discards changes to its settings file.
    pub(super) fn restart_with(&mut self, arguments: &[&str]) -> Result<(), Error> {
        self.options.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self.write_settings()?;
        self.restart()
    }

    fn process(&self) -> Result<&Process, Error> {
        self.process.as_ref().ok_or(Error::Killed)
    }

    fn credentials(&self) -> String {
        self.options.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default()
    }

    /// Starts the process and waits until it answers. Returns false if its port is in use.
    fn launch(&mut self) -> Result<bool, Error> {
        let process =
            Process::start(self.flavour(), &self.command_line(), &self.options.environment, self.log_file())?;
        // Stored before anything can fail, so that it is killed on every error.
        self.process = Some(process);
        let deadline = Instant::now() + START_MAX;
        let mut tried = "not yet".to_owned();
        loop {
            if self.exited_because_port_in_use()? {
                self.process = None;
                return Ok(false);
            }
            // Before it logs that it listens, another program may answer on the port.
            let log = self.log()?;
            if log.contains(self.options.settings.ready()) {
                match self.ping() {
                    Ok(()) => return Ok(true),
                    Err(error) => tried = error.to_string(),
                }
            }
            if Instant::now() >= deadline {
                return Err(Error::Silent { flavour: self.flavour(), tried, log });
            }
            thread::sleep(POLL);
        }
    }

    /// Returns true if it exited because its port is in use, false while it runs, and an error if it exited otherwise.
    fn exited_because_port_in_use(&mut self) -> Result<bool, Error> {
        let flavour = self.flavour();
        let process = self.process.as_mut().ok_or(Error::Killed)?;
        let Some(status) = process.ended()? else { return Ok(false) };
        let log = process.log()?;
        if log.contains("Address already in use") {
            Ok(true)
        } else {
            Err(Error::Ended { flavour, status, log })
        }
    }

    fn ping(&self) -> Result<(), AdminError> {
        let pong = self.admin().and_then(|mut admin| admin.command(&[b"PING"]));
        match pong {
            // The test may have changed the users so that we cannot log in. Any answer shows that it runs.
            Ok(_) | Err(AdminError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    fn config_file(&self) -> PathBuf {
        self.folder.path().join("server.conf")
    }

    fn write_settings(&self) -> Result<(), Error> {
        match self.options.settings {
            Settings::Arguments => Ok(()),
            Settings::File | Settings::SentinelFile => {
                config_file::write(&self.config_file(), &self.arguments())
            }
        }
    }

    fn command_line(&self) -> Vec<String> {
        let file = self.config_file().display().to_string();
        match self.options.settings {
            Settings::Arguments => self.arguments(),
            Settings::File => vec![file],
            Settings::SentinelFile => vec![file, "--sentinel".to_owned()],
        }
    }

    fn arguments(&self) -> Vec<String> {
        let (port, folder) = (self.port.to_string(), self.folder.path().display().to_string());
        let fixed = [
            ["--bind", "127.0.0.1"],
            ["--port", &port],
            ["--dir", &folder],
            ["--daemonize", "no"],
            ["--save", ""],
            ["--appendonly", "no"],
            // Allows a test to search the dump of a value for plain text.
            ["--rdbcompression", "no"],
        ];
        let mut arguments: Vec<String> = fixed.into_iter().flatten().map(str::to_owned).collect();
        if let Some(tls) = &self.tls {
            arguments.extend(tls.arguments());
        }
        if let Some(password) = &self.options.password {
            arguments.extend(["--requirepass".to_owned(), password.clone()]);
        }
        arguments.extend(self.options.arguments.iter().cloned());
        arguments
    }
}

impl Tls {
    fn arguments(&self) -> impl Iterator<Item = String> {
        let path = |path: &Path| path.display().to_string();
        let pairs = [
            ("--tls-port", self.port.to_string()),
            ("--tls-cert-file", path(self.certificates.server())),
            ("--tls-key-file", path(self.certificates.key())),
            ("--tls-ca-cert-file", path(self.certificates.authority())),
            ("--tls-auth-clients", "no".to_owned()),
        ];
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_port_in_use_is_distinguished_from_other_failures() {
        for flavour in Flavour::ALL {
            let mut server = Server::start(flavour).expect("it starts");
            let taken = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
            server.port = taken.local_addr().expect("it has an address").port();
            server.process = None;
            assert!(!server.launch().expect("no other failure"), "{flavour}");
            assert!(server.process.is_none(), "{flavour}");
        }
    }
}
