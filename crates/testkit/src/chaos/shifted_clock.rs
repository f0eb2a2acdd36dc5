//! A library that shifts the wall clock of a process that preloads it. It is compiled when a test needs it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::drill::DrillError;

const SOURCE: &str = include_str!("shifted_clock/shift.c");

/// The library, and the file that says by how much the clock is shifted.
pub struct ShiftedClock {
    folder: TempDir,
    shift: File,
}

impl ShiftedClock {
    /// Compiles the library. The clock is not shifted yet.
    pub fn compile() -> Result<ShiftedClock, DrillError> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("shift"), 0_i64.to_ne_bytes())?;
        let shift = File::options().write(true).open(folder.path().join("shift"))?;
        let clock = ShiftedClock { folder, shift };
        let mut command = Command::new("cc");
        command.args(["-O2", "-shared", "-fPIC", "-x", "c", "-", "-o"]).arg(clock.library());
        let mut compiler = command.stdin(Stdio::piped()).spawn()?;
        compiler.stdin.take().ok_or("the compiler reads nothing")?.write_all(SOURCE.as_bytes())?;
        let status = compiler.wait()?;
        if status.success() { Ok(clock) } else { Err(format!("cc: {status}").into()) }
    }

    /// Returns the environment of a process whose clock is shifted.
    pub fn environment(&self) -> Vec<(String, String)> {
        let shift = self.folder.path().join("shift");
        let variables = [("LD_PRELOAD", self.library()), ("CLOCK_SHIFT_FILE", shift)];
        variables.map(|(name, path)| (name.to_owned(), path.display().to_string())).to_vec()
    }

    /// Sets by how many seconds the clock is ahead, at once.
    pub fn set(&self, seconds: i64) -> Result<(), DrillError> {
        self.shift.write_all_at(&(seconds * 1_000_000).to_ne_bytes(), 0)?;
        Ok(())
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("shift.so")
    }
}
