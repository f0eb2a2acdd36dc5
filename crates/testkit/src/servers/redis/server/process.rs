//! The process of a server: its log, its signals and its exit.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::redis::error::Error;
use crate::redis::flavour::Flavour;

/// A running server, killed when it is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the server. Its output overwrites the file `log`.
    pub(super) fn start(
        flavour: Flavour,
        arguments: &[String],
        environment: &[(String, String)],
        log: PathBuf,
    ) -> Result<Process, Error> {
        let printed = File::create(&log).map_err(Error::io("create the log"))?;
        let complained = printed.try_clone().map_err(Error::io("share the log"))?;
        let mut command = flavour.command();
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.args(arguments).stdin(Stdio::null()).stdout(printed).stderr(complained);
        match command.spawn() {
            Ok(child) => Ok(Process { child, log }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let program = command.get_program().to_string_lossy().into_owned();
                Err(Error::Missing { flavour, program })
            }
            Err(error) => Err(Error::io(format!("start {flavour}"))(error)),
        }
    }

    /// Returns its exit status, if it has exited.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.child.try_wait().map_err(Error::io("ask for the state of the server"))
    }

    /// Kills it and waits until it has exited.
    pub(super) fn kill(mut self) -> Result<(), Error> {
        self.end().map_err(Error::io("kill the server"))
    }

    /// Returns its output so far.
    pub(super) fn log(&self) -> Result<String, Error> {
        let log = fs::read(&self.log).map_err(Error::io("read the log"))?;
        Ok(String::from_utf8_lossy(&log).into_owned())
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal. The process has not been reaped, so no other process has its id.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), Error> {
        kill_process(Pid::from_child(&self.child), signal).map_err(Error::io("send a signal to the server"))
    }

    /// Idempotent.
    fn end(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("the server with process id {} stays behind: {error}", self.child.id());
        }
    }
}
