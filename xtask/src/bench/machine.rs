//! On what and with what it was measured.

use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// The machine and the versions of what ran on it.
pub(super) struct Machine {
    /// What the processor calls itself.
    pub(super) processor: String,
    pub(super) cores: usize,
    pub(super) memory_gib: u64,
    pub(super) system: String,
    pub(super) compiler: String,
    /// `governor 0.10.4`
    pub(super) packages: Vec<String>,
}

impl Machine {
    /// This machine, and the versions of these packages in the lock file of the bench.
    pub(super) fn look(root: &Path, packages: &[&str]) -> Result<Machine> {
        let read = |path: &str| std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
        let unknown = || "unknown".to_owned();
        let processor = field(&read("/proc/cpuinfo")?, "model name").unwrap_or_else(unknown);
        let memory = field(&read("/proc/meminfo")?, "MemTotal").unwrap_or_default();
        let memory_kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
        let lock =
            std::fs::read_to_string(root.join("bench/Cargo.lock")).context("cannot read bench/Cargo.lock")?;
        Ok(Machine {
            processor,
            cores: std::thread::available_parallelism().context("cannot count the cores")?.get(),
            memory_gib: memory_kib.div_ceil(1 << 20),
            system: said_by("uname", &["-s", "-r", "-m"])?,
            compiler: said_by("rustc", &["--version"])?,
            packages: packages.iter().filter_map(|name| locked(&lock, name)).collect(),
        })
    }
}

/// What stands behind the colon of the first line of this name.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The name and the newest version of a package in a lock file, which lists them in ascending order.
fn locked(lock: &str, name: &str) -> Option<String> {
    let opening = format!("name = \"{name}\"\nversion = \"");
    let (_, rest) = lock.rsplit_once(&opening)?;
    Some(format!("{name} {}", rest.split_once('"')?.0))
}

fn said_by(program: &str, arguments: &[&str]) -> Result<String> {
    let output =
        Command::new(program).args(arguments).output().with_context(|| format!("cannot run {program}"))?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_lock_file() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"a\"\nversion = \"2.0.0\"\n";
        assert_eq!(locked(lock, "a").as_deref(), Some("a 2.0.0"));
        assert_eq!(locked(lock, "b"), None);
    }

    #[test]
    fn a_field_is_what_stands_behind_its_name() {
        assert_eq!(field("x : 1\nmodel name\t: Fast 3000\n", "model name").as_deref(), Some("Fast 3000"));
    }
}
