//! Installs the programs that the other stages need and a fresh machine with Rust lacks.

use anyhow::{Context, Result, bail};
use std::fmt;
use std::io::ErrorKind;
use std::process::{Command, Stdio};

/// The table: to need one more program is to add one row.
const NEEDS: &[Need] = &[
    Need {
        probe: &["cc", "--version"],
        from: Source::Debian(&["gcc", "libc6-dev"]),
        why: "links every program, and compiles the C parts of dependencies",
    },
    Need {
        probe: &["git", "--version"],
        from: Source::Debian(&["git"]),
        why: "tells tidy which files are ours",
    },
    Need {
        probe: &["valgrind", "--version"],
        from: Source::Debian(&["valgrind"]),
        why: "counts the instructions that matching takes",
    },
    Need { probe: &["cargo", "fmt", "--version"], from: Source::Rustup("rustfmt"), why: "checks the format" },
    Need { probe: &["cargo", "clippy", "--version"], from: Source::Rustup("clippy"), why: "lints" },
];

struct Need {
    /// A command that succeeds when the need is met.
    probe: &'static [&'static str],
    from: Source,
    why: &'static str,
}

#[derive(Clone, Copy)]
enum Source {
    Debian(&'static [&'static str]),
    Rustup(&'static str),
}

/// What this machine lets us do.
struct Machine {
    /// How apt-get is called with the rights to install; None where there is no apt-get or there are no rights.
    apt: Option<&'static [&'static str]>,
    rustup: bool,
}

/// Meets every need, or fails naming all that are not met and how to meet them.
pub(crate) fn run() -> Result<()> {
    let missing = missing(NEEDS)?;
    if missing.is_empty() {
        println!("setup: nothing is missing");
        return Ok(());
    }
    for command in commands(&missing, &machine()?)? {
        println!("setup: {}", command.join(" "));
        let (program, arguments) = command.split_first().context("an empty command")?;
        let status = Command::new(program)
            .args(arguments)
            .status()
            .with_context(|| format!("cannot run {program}"))?;
        if !status.success() {
            bail!("`{}` failed: {status}\n{}", command.join(" "), by_hand(&missing));
        }
    }
    let still_missing = self::missing(NEEDS)?;
    if !still_missing.is_empty() {
        bail!("installed, and yet missing\n{}", by_hand(&still_missing));
    }
    Ok(())
}

fn missing(needs: &'static [Need]) -> Result<Vec<&'static Need>> {
    let mut missing = Vec::new();
    for need in needs {
        if !succeeds(need.probe)? {
            missing.push(need);
        }
    }
    Ok(missing)
}

/// The commands that install what is missing here.
fn commands(missing: &[&Need], machine: &Machine) -> Result<Vec<Vec<&'static str>>> {
    let (mut packages, mut components) = (Vec::new(), Vec::new());
    for need in missing {
        match need.from {
            Source::Debian(names) => packages.extend(names),
            Source::Rustup(name) => components.push(name),
        }
    }
    let apt = match machine.apt {
        Some(apt) => apt,
        None if packages.is_empty() => &[],
        None => bail!("this machine lacks programs that only its owner can install\n{}", by_hand(missing)),
    };
    if !components.is_empty() && !machine.rustup {
        bail!("this machine lacks parts of the Rust toolchain, and has no rustup\n{}", by_hand(missing));
    }
    let mut commands = Vec::new();
    if !packages.is_empty() {
        commands.push([apt, &["update"]].concat());
        commands.push([apt, &["install", "-y"], &packages].concat());
    }
    if !components.is_empty() {
        commands.push([&["rustup", "component", "add"], components.as_slice()].concat());
    }
    Ok(commands)
}

fn by_hand(missing: &[&Need]) -> String {
    let lines: Vec<String> = missing.iter().map(|need| format!("  {need}")).collect();
    format!("install by hand:\n{}", lines.join("\n"))
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, why, .. } = self;
        let program = self.probe[..self.probe.len() - 1].join(" ");
        match from {
            Source::Debian(names) => write!(f, "{program} ({why}): Debian package {}", names.join(" ")),
            Source::Rustup(name) => write!(f, "{program} ({why}): `rustup component add {name}`"),
        }
    }
}

fn machine() -> Result<Machine> {
    const AS_ROOT: &[&str] = &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"];
    const BY_SUDO: &[&str] = &["sudo", "-n", "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"];
    let apt = if !is_debian()? {
        None
    } else if user_id()? == "0" {
        Some(AS_ROOT)
    } else if succeeds(&["sudo", "-n", "true"])? {
        Some(BY_SUDO)
    } else {
        None
    };
    Ok(Machine { apt, rustup: succeeds(&["rustup", "--version"])? })
}

fn is_debian() -> Result<bool> {
    match std::fs::read_to_string("/etc/os-release") {
        Ok(text) => Ok(names_debian(&text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).context("cannot read /etc/os-release"),
    }
}

fn names_debian(os_release: &str) -> bool {
    os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
        .any(|names| names.trim_matches('"').split(' ').any(|name| name == "debian"))
}

fn user_id() -> Result<String> {
    let output = Command::new("id").arg("-u").output().context("cannot run id")?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// A program that does not exist does not succeed; one that cannot be started for another reason is an error.
fn succeeds(command: &[&str]) -> Result<bool> {
    let status = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match status {
        Ok(status) => Ok(status.success()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot run {}", command[0])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESENT: Need =
        Need { probe: &["sh", "-c", "exit 0"], from: Source::Debian(&["dash"]), why: "a shell" };
    const BROKEN: Need =
        Need { probe: &["sh", "-c", "exit 1"], from: Source::Rustup("rustfmt"), why: "formats" };
    const ABSENT: Need =
        Need { probe: &["no-such-program", "--version"], from: Source::Debian(&["absent"]), why: "a test" };
    const APT: Option<&[&str]> = Some(&["apt-get"]);

    #[test]
    fn a_program_that_is_absent_or_broken_is_missing() {
        let missing = missing(&[PRESENT, BROKEN, ABSENT]).expect("probing works");
        let programs: Vec<&str> = missing.iter().map(|need| need.probe[0]).collect();
        assert_eq!(programs, ["sh", "no-such-program"]);
    }

    #[test]
    fn each_source_gets_its_command() {
        let commands =
            commands(&[&BROKEN, &ABSENT], &Machine { apt: APT, rustup: true }).expect("both are possible");
        let lines: Vec<String> = commands.iter().map(|command| command.join(" ")).collect();
        assert_eq!(lines, ["apt-get update", "apt-get install -y absent", "rustup component add rustfmt"]);
    }

    #[test]
    fn what_cannot_be_installed_is_named_with_its_package() {
        for (apt, rustup) in [(None, true), (APT, false)] {
            let error =
                commands(&[&BROKEN, &ABSENT], &Machine { apt, rustup }).expect_err("one is impossible");
            let error = error.to_string();
            assert!(error.contains("no-such-program (a test): Debian package absent"), "{error}");
            assert!(error.contains("`rustup component add rustfmt`"), "{error}");
        }
    }

    #[test]
    fn debian_and_its_relatives_are_known_by_name() {
        assert!(names_debian("NAME=x\nID=debian\n"));
        assert!(names_debian("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"));
        assert!(!names_debian("NAME=debian\nID=fedora\nID_LIKE=\"rhel\"\n"));
    }
}
