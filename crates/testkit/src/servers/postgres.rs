//! A real PostgreSQL server for a test: started on a free port in a temporary folder, stopped when it is dropped.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::ports;

/// Where Debian installs the versions of PostgreSQL.
const INSTALLED: &str = "/usr/lib/postgresql";
/// The user whom Debian's package creates. PostgreSQL refuses to run as root.
const USER: &str = "postgres";
const START_MAX: Duration = Duration::from_secs(30);
const STOP_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// Why the server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// PostgreSQL is not installed.
    #[error("PostgreSQL is not installed in {INSTALLED}; the first stage of `cargo xtask test` installs it")]
    Missing,
    /// An operation of the operating system failed.
    #[error("cannot {what}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A program of PostgreSQL failed.
    #[error("{what} failed:\n{log}")]
    Failed {
        /// The program.
        what: &'static str,
        /// Its output.
        log: String,
    },
    /// All tried ports are in use.
    #[error("no free port after {} tries", ports::TRIES)]
    NoPort,
}

fn io(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { what, source }
}

/// A server on 127.0.0.1 with the user `postgres`, without a password.
///
/// Do not keep it in a `static`: a static is never dropped, so the server would outlive the test.
#[derive(Debug)]
pub struct Postgres {
    process: Child,
    port: u16,
    folder: TempDir,
}

impl Postgres {
    /// Starts a server and waits until it answers.
    pub fn start() -> Result<Postgres, Error> {
        let programs = programs()?;
        let folder = TempDir::with_prefix("tollgate-postgres-").map_err(io("create a folder"))?;
        let user = user()?;
        if let Some((user, group)) = user {
            chown(folder.path(), Some(user), Some(group)).map_err(io("give the folder to postgres"))?;
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700))
            .map_err(io("set permissions"))?;
        let command = |program: &str| {
            let mut command = Command::new(programs.join(program));
            command.current_dir(folder.path()).stdin(Stdio::null());
            if let Some((user, group)) = user {
                command.uid(user).gid(group);
            }
            command
        };
        let options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"];
        let created =
            command("initdb").args(options).args(["-D", "data"]).output().map_err(io("run initdb"))?;
        if !created.status.success() {
            let log = String::from_utf8_lossy(&created.stderr).into_owned();
            return Err(Error::Failed { what: "initdb", log });
        }
        for _ in 0..ports::TRIES {
            let port = ports::next();
            let log = folder.path().join("log");
            let printed = File::create(&log).map_err(io("create the log"))?;
            let complained = printed.try_clone().map_err(io("share the log"))?;
            let mut server = command("postgres");
            server.args(["-D", "data", "-h", "127.0.0.1", "-k", "", "-p", &port.to_string()]);
            server.stdout(printed).stderr(complained);
            let mut process = server.spawn().map_err(io("start postgres"))?;
            match wait(&mut process, &log)? {
                Started::Yes => return Ok(Postgres { process, port, folder }),
                Started::PortTaken => continue,
            }
        }
        Err(Error::NoPort)
    }

    /// Ends it at once, as a crash does. Nothing answers until [`Postgres::start_again`].
    pub fn crash(&mut self) -> Result<(), Error> {
        kill_process(Pid::from_child(&self.process), Signal::QUIT)
            .map_err(|error| io("stop postgres")(error.into()))?;
        self.process.wait().map_err(io("wait for postgres"))?;
        Ok(())
    }

    /// Kills all its processes with SIGKILL. Nothing answers until [`Postgres::start_again`].
    pub fn kill9(&mut self) -> Result<(), Error> {
        // A stopped one starts no further process while the others are listed, and does not restart them.
        kill_process(Pid::from_child(&self.process), Signal::STOP)
            .map_err(|error| io("stop postgres")(error.into()))?;
        let processes = self.processes()?;
        for &process in &processes {
            // Others may end by themselves as soon as the first one has gone.
            match kill_process(process, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => (),
                Err(error) => return Err(io("kill postgres")(error.into())),
            }
        }
        self.process.wait().map_err(io("wait for postgres"))?;
        // Until the last one has gone, its shared memory keeps the next server from starting.
        let deadline = Instant::now() + STOP_MAX;
        while processes.iter().any(|&process| is_running(process)) {
            if Instant::now() > deadline {
                let log = "a killed process does not end".to_owned();
                return Err(Error::Failed { what: "postgres", log });
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Returns its process, and then those that it has started.
    pub fn processes(&self) -> Result<Vec<Pid>, Error> {
        let own = self.process.id();
        let mut found = vec![Pid::from_child(&self.process)];
        for entry in fs::read_dir("/proc").map_err(io("list the processes"))? {
            let name = entry.map_err(io("list the processes"))?.file_name();
            let Some(id) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            // A process that has ended meanwhile has no file any more.
            let Ok(stat) = fs::read_to_string(format!("/proc/{id}/stat")) else { continue };
            let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
            if parent == Some(own) {
                found.extend(Pid::from_raw(id));
            }
        }
        Ok(found)
    }

    /// Starts it again on the same port with the same data.
    pub fn start_again(&mut self) -> Result<(), Error> {
        let log = self.folder.path().join("log-again");
        let printed = File::create(&log).map_err(io("create the log"))?;
        let complained = printed.try_clone().map_err(io("share the log"))?;
        let mut server = Command::new(programs()?.join("postgres"));
        server.current_dir(self.folder.path()).stdin(Stdio::null());
        if let Some((user, group)) = user()? {
            server.uid(user).gid(group);
        }
        server.args(["-D", "data", "-h", "127.0.0.1", "-k", "", "-p", &self.port.to_string()]);
        server.stdout(printed).stderr(complained);
        self.process = server.spawn().map_err(io("start postgres"))?;
        match wait(&mut self.process, &log)? {
            Started::Yes => Ok(()),
            Started::PortTaken => Err(Error::NoPort),
        }
    }

    /// Returns its URL for the given database; `postgres` always exists.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Runs SQL with psql and returns what it printed, without headers.
    pub fn psql(&self, database: &str, sql: &str) -> Result<String, Error> {
        let output = Command::new(programs()?.join("psql"))
            .args(["--no-psqlrc", "-tA", "-v", "ON_ERROR_STOP=1", "-d", &self.url(database), "-c", sql])
            .stdin(Stdio::null())
            .current_dir(self.folder.path())
            .output()
            .map_err(io("run psql"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => {
                let log = String::from_utf8_lossy(&output.stderr).into_owned();
                Err(Error::Failed { what: "psql", log })
            }
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // An immediate shutdown ends its child processes as well, which a kill would leave behind.
        let stopped = kill_process(Pid::from_child(&self.process), Signal::QUIT);
        let deadline = Instant::now() + STOP_MAX;
        while let Ok(None) = self.process.try_wait() {
            if stopped.is_err() || Instant::now() > deadline {
                eprintln!("PostgreSQL with process id {} does not stop: {stopped:?}", self.process.id());
                if let Err(error) = self.process.kill().and_then(|()| self.process.wait()) {
                    eprintln!("it stays behind: {error}");
                }
                return;
            }
            thread::sleep(POLL);
        }
    }
}

/// Whether the process exists and has not ended.
fn is_running(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid()));
    // After the name in parentheses comes the state. Z is a process that has ended.
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z')))
}

enum Started {
    Yes,
    PortTaken,
}

fn wait(process: &mut Child, log: &Path) -> Result<Started, Error> {
    let deadline = Instant::now() + START_MAX;
    loop {
        let text = fs::read_to_string(log).map_err(io("read the log"))?;
        if text.contains("database system is ready to accept connections") {
            return Ok(Started::Yes);
        }
        let ended = process.try_wait().map_err(io("ask for the state of postgres"))?.is_some();
        if ended && text.contains("Address already in use") {
            return Ok(Started::PortTaken);
        }
        if ended || Instant::now() > deadline {
            if !ended {
                process.kill().and_then(|()| process.wait()).map_err(io("kill postgres"))?;
            }
            return Err(Error::Failed { what: "postgres", log: text });
        }
        thread::sleep(POLL);
    }
}

/// Returns the folder with the programs of the newest installed version.
fn programs() -> Result<PathBuf, Error> {
    let versions = match fs::read_dir(INSTALLED) {
        Ok(versions) => versions,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(Error::Missing),
        Err(error) => return Err(io("list the installed versions")(error)),
    };
    let versions: Result<Vec<PathBuf>, io::Error> =
        versions.map(|version| Ok(version?.path().join("bin"))).collect();
    let mut versions = versions.map_err(io("list the installed versions"))?;
    versions.retain(|programs| programs.join("postgres").exists() && programs.join("initdb").exists());
    versions.sort();
    versions.pop().ok_or(Error::Missing)
}

/// Returns user and group that the server must run as, or `None` if this process is not root.
fn user() -> Result<Option<(u32, u32)>, Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(io("read the list of users"))?;
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<&str>>());
    let mut ids = fields
        .filter(|fields| fields.first() == Some(&USER))
        .filter_map(|fields| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?)));
    ids.next().map(Some).ok_or(Error::Missing)
}
