//! A server of a test: started on a free port, killed and swept away when it is dropped.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::admin::Admin;
use super::certificates::Certificates;
use super::config_file;
use super::error::{AdminError, Error};
use super::flavour::Flavour;
use super::ports;
use super::process::Process;

/// How long a server may take to answer: a second is plenty, but not when all cores compile.
const START_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// A server that keeps no data on disk, reached on 127.0.0.1.
///
/// A value in a `static` is never dropped, and its server outlives the test: keep it in the test.
#[derive(Debug)]
pub struct Server {
    options: Builder,
    port: u16,
    tls: Option<Tls>,
    /// None once it was killed. Before the folder, so that it ends first.
    process: Option<Process>,
    folder: TempDir,
}

#[derive(Debug)]
struct Tls {
    port: u16,
    certificates: Certificates,
}

/// How a server is to be started.
#[derive(Clone, Debug)]
pub struct Builder {
    flavour: Flavour,
    password: Option<String>,
    tls: bool,
    certificates: Option<Certificates>,
    arguments: Vec<String>,
    settings: Settings,
    bus: bool,
}

/// Where a server has its settings from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Settings {
    /// Its arguments. After a restart it is what it was at first.
    Arguments,
    /// A file, which it may write anew.
    File,
    /// The same, for a sentinel instead of a server of data.
    SentinelFile,
}

impl Settings {
    /// What the server logs when it listens.
    fn ready(self) -> &'static str {
        match self {
            Settings::Arguments | Settings::File => "Ready to accept connections",
            Settings::SentinelFile => "Sentinel ID is",
        }
    }
}

impl Builder {
    /// The default user has this password. [`Server::admin`] and [`Server::url`] know it; a URL takes it as it is,
    /// so it must need no escaping.
    pub fn password(mut self, password: &str) -> Builder {
        self.password = Some(password.to_owned());
        self
    }

    /// One more user, as a line of an ACL file without the word `user`: `alice on >secret ~tg:* +@all`.
    pub fn user(mut self, line: &str) -> Builder {
        self.arguments.push("--user".to_owned());
        self.arguments.extend(line.split_whitespace().map(str::to_owned));
        self
    }

    /// A second port that speaks TLS, with certificates made for this server.
    pub fn tls(mut self) -> Builder {
        self.tls = true;
        self
    }

    /// The same, with these certificates: servers that talk to each other must trust one authority.
    pub fn tls_with(mut self, certificates: Certificates) -> Builder {
        self.certificates = Some(certificates);
        self.tls()
    }

    /// Its settings lie in a file. CONFIG REWRITE changes it, as a sentinel does that gives the server
    /// another role, and what is written there outlives a restart.
    pub fn config_file(mut self) -> Builder {
        self.settings = Settings::File;
        self
    }

    /// A sentinel, which always needs a file to remember what it knows.
    pub(super) fn sentinel(mut self) -> Builder {
        self.settings = Settings::SentinelFile;
        self
    }

    /// A port that leaves room for the bus of a cluster.
    pub(super) fn bus(mut self) -> Builder {
        self.bus = true;
        self
    }

    /// More arguments of the server, such as `["--maxmemory", "2mb"]`. They come last, and so they win.
    pub fn arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Builder {
        self.arguments.extend(arguments.into_iter().map(Into::into));
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
            server.port = if server.options.bus { ports::next_with_bus() } else { ports::next() };
            if let Some(tls) = &mut server.tls {
                tls.port = ports::next();
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

    /// A server with more to it.
    pub fn builder(flavour: Flavour) -> Builder {
        Builder {
            flavour,
            password: None,
            tls: false,
            certificates: None,
            arguments: Vec::new(),
            settings: Settings::Arguments,
            bus: false,
        }
    }

    /// Which server it is.
    pub fn flavour(&self) -> Flavour {
        self.options.flavour
    }

    /// The port without TLS.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where clients reach it, with the password if there is one.
    pub fn url(&self) -> String {
        format!("redis://{}127.0.0.1:{}", self.credentials(), self.port)
    }

    /// Where clients reach it with TLS, if it was asked for.
    pub fn tls_url(&self) -> Option<String> {
        self.tls.as_ref().map(|tls| format!("rediss://{}127.0.0.1:{}", self.credentials(), tls.port))
    }

    /// The port with TLS, if it was asked for.
    pub fn tls_port(&self) -> Option<u16> {
        self.tls.as_ref().map(|tls| tls.port)
    }

    /// The certificates, if TLS was asked for.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.tls.as_ref().map(|tls| &tls.certificates)
    }

    /// The folder of this server, where a test may put files for it. It is removed with the server.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The id of its process.
    pub fn process_id(&self) -> Result<u32, Error> {
        Ok(self.process()?.id())
    }

    /// What it has printed since it was last started.
    pub fn log(&self) -> Result<String, Error> {
        self.process()?.log()
    }

    /// A connection for the test itself.
    pub fn admin(&self) -> Result<Admin, AdminError> {
        Admin::connect(self.port, self.options.password.as_deref())
    }

    /// The same, where connecting and every reply may take no longer than this.
    pub fn admin_within(&self, timeout: Duration) -> Result<Admin, AdminError> {
        Admin::connect_within(self.port, self.options.password.as_deref(), timeout)
    }

    /// Whether there is a process, frozen or not.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Kills it as a power failure would: connections break, and all data is gone.
    pub fn kill9(&mut self) -> Result<(), Error> {
        self.process.take().ok_or(Error::Killed)?.kill()
    }

    /// Freezes it: connections stay up, the kernel still accepts new ones, and nothing is answered.
    pub fn stop(&self) -> Result<(), Error> {
        self.process()?.signal(Signal::STOP)
    }

    /// Lets a frozen server go on, beginning with all it was sent meanwhile.
    pub fn resume(&self) -> Result<(), Error> {
        self.process()?.signal(Signal::CONT)
    }

    /// Kills it, if it still runs, and starts it again on the same port, with no data.
    pub fn restart(&mut self) -> Result<(), Error> {
        if self.process.is_some() {
            self.kill9()?;
        }
        if self.launch()? { Ok(()) } else { Err(Error::NoPort { tries: 1 }) }
    }

    /// The same, with more arguments, and without what it has written into its file.
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

    /// Starts the process and waits until it answers. False means that somebody else has the port.
    fn launch(&mut self) -> Result<bool, Error> {
        let process = Process::start(self.flavour(), &self.command_line(), self.log_file())?;
        // Owned from here on, so that it is killed whatever follows.
        self.process = Some(process);
        let deadline = Instant::now() + START_MAX;
        let mut tried = "not yet".to_owned();
        loop {
            if self.ended_for_want_of_a_port()? {
                self.process = None;
                return Ok(false);
            }
            // Before it says so, whoever answers on the port is not our server.
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

    /// False while it runs; an error if it ended for another reason.
    fn ended_for_want_of_a_port(&mut self) -> Result<bool, Error> {
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
            // Users of a test's own making may not be ours to log in as. It answers, and that is what counts.
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
            // So that a test can search the dump of a value for plain text.
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
    fn a_port_that_somebody_has_is_told_from_other_failures() {
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
