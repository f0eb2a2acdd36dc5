//! The process of a server: its log, its signals, its end.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::error::Error;
use super::flavour::Flavour;

/// A running server, killed when it is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the server. What it prints goes into the file `log`, from its beginning.
    pub(super) fn start(flavour: Flavour, arguments: &[String], log: PathBuf) -> Result<Process, Error> {
        let printed = File::create(&log).map_err(Error::io("create the log"))?;
        let complained = printed.try_clone().map_err(Error::io("share the log"))?;
        let mut command = flavour.command();
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

    /// How it ended, if it did.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.child.try_wait().map_err(Error::io("ask for the state of the server"))
    }

    /// Kills it, and returns when it is gone.
    pub(super) fn kill(mut self) -> Result<(), Error> {
        self.end().map_err(Error::io("kill the server"))
    }

    /// What it has printed so far.
    pub(super) fn log(&self) -> Result<String, Error> {
        let log = fs::read(&self.log).map_err(Error::io("read the log"))?;
        Ok(String::from_utf8_lossy(&log).into_owned())
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal. The process is not waited for before its end, so its id belongs to no other.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), Error> {
        kill_process(Pid::from_child(&self.child), signal).map_err(Error::io("send a signal to the server"))
    }

    /// Does nothing when it is called again.
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
