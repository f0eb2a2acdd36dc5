//! Faults of the ledger's disk and database, one at a time.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::LedgerFigures;
use super::caller::Callers;
use super::scene::{Scene, stop_for};
use crate::drill::DrillError;

/// A fault after the kills of a drill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LedgerFault {
    /// PostgreSQL does not answer for this long. SQLite cannot be stopped alone.
    DatabaseStopped(Duration),
    /// PostgreSQL is dead for this long.
    DatabaseDead(Duration),
    /// The database is restored to an earlier time while the servers run.
    SetBack,
    /// The disk of the first server's journal is full for this long. Needs the right to mount a file system.
    DiskFull(Duration),
}

impl fmt::Display for LedgerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LedgerFault::DatabaseStopped(time) => write!(f, "database stopped for {} s", time.as_secs_f32()),
            LedgerFault::DatabaseDead(time) => write!(f, "database dead for {} s", time.as_secs_f32()),
            LedgerFault::SetBack => write!(f, "database restored to an earlier time"),
            LedgerFault::DiskFull(time) => write!(f, "disk of the journal full for {} s", time.as_secs_f32()),
        }
    }
}

impl LedgerFault {
    /// Returns how long it lasts.
    pub(super) const fn length(self) -> Duration {
        match self {
            LedgerFault::DatabaseStopped(time)
            | LedgerFault::DatabaseDead(time)
            | LedgerFault::DiskFull(time) => time,
            LedgerFault::SetBack => Duration::ZERO,
        }
    }

    /// Injects the fault, and takes it away.
    pub(super) fn inject(
        self,
        scene: &mut Scene,
        callers: &Callers,
        figures: &mut LedgerFigures,
    ) -> Result<(), DrillError> {
        match self {
            LedgerFault::DatabaseStopped(time) => {
                let postgres = scene.postgres.as_ref().ok_or("only PostgreSQL can be stopped alone")?;
                stop_for(&postgres.processes()?, time)?;
                figures.stopped += 1;
            }
            LedgerFault::DatabaseDead(time) => {
                let postgres = scene.postgres.as_mut().ok_or("only PostgreSQL can be dead alone")?;
                postgres.kill9()?;
                thread::sleep(time);
                postgres.start_again()?;
                figures.databases_killed += 1;
            }
            LedgerFault::SetBack => set_back(scene, callers)?,
            LedgerFault::DiskFull(time) => disk_full(scene, time)?,
        }
        Ok(())
    }
}

/// Restores a copy of PostgreSQL that is older than the last charges. The servers go on, and notice it.
fn set_back(scene: &Scene, callers: &Callers) -> Result<(), DrillError> {
    let copy = scene.path("copy.dump");
    scene.command(&["database", "backup", &copy])?;
    callers.wait_for_progress()?;
    callers.wait_for_progress()?;
    // Waits for locks that the servers hold, and may be in their way: then it is tried again.
    let mut restored = Ok(String::new());
    for _ in 0..10 {
        restored = scene.command(&["database", "restore", &copy]);
        if restored.is_ok() {
            break;
        }
        thread::sleep(Duration::from_millis(200));
    }
    restored.map(drop)
}

/// Fills the file system of a journal, and frees it again.
fn disk_full(scene: &Scene, time: Duration) -> Result<(), DrillError> {
    let filler = scene.journal().join("filler");
    // Writes until the file system has no byte left.
    let filled = Command::new("dd")
        .args(["if=/dev/zero", "bs=4096", "status=none"])
        .arg(format!("of={}", filler.display()))
        .output()?;
    if filled.status.success() {
        return Err("the file system of the journal has no end; the drill mounts a small one".into());
    }
    thread::sleep(time);
    std::fs::remove_file(&filler)?;
    Ok(())
}

/// A small file system in memory.
pub(super) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts it. Needs the right to do so.
    pub(super) fn mount(folder: PathBuf) -> Result<SmallDisk, DrillError> {
        std::fs::create_dir_all(&folder)?;
        let mut command = Command::new("mount");
        let mounted = command.args(["-t", "tmpfs", "-o", "size=48m", "tollgate"]).arg(&folder).output()?;
        match mounted.status.success() {
            true => Ok(SmallDisk(folder)),
            false => {
                Err(format!("cannot mount a tmpfs: {}", String::from_utf8_lossy(&mounted.stderr)).into())
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.0).output();
        if !unmounted.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("{} stays mounted: {unmounted:?}", self.0.display());
        }
    }
}
