//! The machine and the versions of a measurement.

use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// The machine and the software versions.
pub(super) struct Machine {
    /// The processor's model name.
    pub(super) processor: String,
    pub(super) cores: usize,
    pub(super) memory_gib: u64,
    pub(super) system: String,
    pub(super) compiler: String,
    /// `governor 0.10.4`
    pub(super) packages: Vec<String>,
}

impl Machine {
    /// Reads this machine, and the versions of these packages from the bench's lock file.
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
            system: output_of("uname", &["-s", "-r", "-m"])?,
            compiler: output_of("rustc", &["--version"])?,
            packages: packages.iter().filter_map(|name| locked(&lock, name)).collect(),
        })
    }
}

/// Returns the value after the colon of the first line with this name.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Returns the name and the newest version of a package; a lock file lists versions in ascending order.
fn locked(lock: &str, name: &str) -> Option<String> {
    let opening = format!("name = \"{name}\"\nversion = \"");
    let (_, rest) = lock.rsplit_once(&opening)?;
    Some(format!("{name} {}", rest.split_once('"')?.0))
}

fn output_of(program: &str, arguments: &[&str]) -> Result<String> {
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
    fn a_field_is_the_text_after_its_name() {
        assert_eq!(field("x : 1\nmodel name\t: Fast 3000\n", "model name").as_deref(), Some("Fast 3000"));
    }
}
