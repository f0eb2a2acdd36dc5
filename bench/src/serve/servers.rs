//! The servers and how each is started: default settings, one thread per core.

use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::contender::{PER_HOUR, Protocol, RULES};
use super::process::Process;

/// Paths of the programs.
#[derive(clap::Args)]
pub(crate) struct Programs {
    #[arg(long, hide = true, required_if_eq("suite", "serve"))]
    tollgate: Option<PathBuf>,
    #[arg(long, hide = true, required_if_eq("suite", "serve"))]
    throttlecrab: Option<PathBuf>,
    #[arg(long, hide = true, required_if_eq("suite", "serve"))]
    nginx: Option<PathBuf>,
}

/// One of the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ServerKind {
    Tollgate,
    Throttlecrab,
    Nginx,
    Bare,
}

/// All servers, idle until they are measured.
pub(super) struct Servers {
    tollgate: Server,
    throttlecrab: Server,
    nginx: Server,
    bare: Server,
    /// Their names and versions.
    pub(super) versions: String,
    /// The last field, because the servers write into it until they end.
    _folder: TempDir,
}

pub(super) struct Server {
    pub(super) process: Process,
    ports: Ports,
}

#[derive(Clone, Copy)]
struct Ports {
    http: u16,
    resp: u16,
    grpc: u16,
}

impl Servers {
    pub(super) fn start(programs: &Programs) -> Result<Servers> {
        let folder = TempDir::with_prefix("tollgate-bench-")?;
        let tollgate = programs.tollgate.as_deref().context("no tollgate")?;
        let throttlecrab = programs.throttlecrab.as_deref().context("no throttlecrab")?;
        let nginx = programs.nginx.as_deref().context("no nginx")?;
        let bare = std::env::current_exe()?.with_file_name("bare-server");
        let versions =
            [version(tollgate, "--version")?, version(throttlecrab, "--version")?, version(nginx, "-v")?];
        Ok(Servers {
            tollgate: start_tollgate(tollgate, folder.path())?,
            throttlecrab: start_throttlecrab(throttlecrab, folder.path())?,
            nginx: start_nginx(nginx, folder.path())?,
            bare: start_bare(&bare, folder.path())?,
            versions: versions.join(", "),
            _folder: folder,
        })
    }

    pub(super) const fn get(&self, kind: ServerKind) -> &Server {
        match kind {
            ServerKind::Tollgate => &self.tollgate,
            ServerKind::Throttlecrab => &self.throttlecrab,
            ServerKind::Nginx => &self.nginx,
            ServerKind::Bare => &self.bare,
        }
    }
}

impl Server {
    pub(super) const fn port(&self, protocol: Protocol) -> u16 {
        match protocol {
            Protocol::Resp => self.ports.resp,
            Protocol::Http => self.ports.http,
            Protocol::Grpc => self.ports.grpc,
        }
    }
}

fn start_tollgate(program: &Path, folder: &Path) -> Result<Server> {
    let rules = folder.join("rules.yaml");
    fs::write(&rules, RULES)?;
    let ports = Ports::free()?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--rules").arg(rules).args(ports.addresses());
    ports.all("tollgate", &mut command, folder)
}

fn start_throttlecrab(program: &Path, folder: &Path) -> Result<Server> {
    let ports = Ports::free()?;
    let mut command = Command::new(program);
    command.args(["--http", "--http-host", "127.0.0.1", "--http-port", &ports.http.to_string()]);
    command.args(["--grpc", "--grpc-host", "127.0.0.1", "--grpc-port", &ports.grpc.to_string()]);
    command.args(["--redis", "--redis-host", "127.0.0.1", "--redis-port", &ports.resp.to_string()]);
    ports.all("throttlecrab", &mut command, folder)
}

fn start_bare(program: &Path, folder: &Path) -> Result<Server> {
    let ports = Ports::free()?;
    ports.all("bare", Command::new(program).args(ports.addresses()), folder)
}

/// The response comes from `empty_gif`, because `return` runs before `limit_req`.
fn start_nginx(program: &Path, folder: &Path) -> Result<Server> {
    let ports = Ports::free()?;
    let Ports { http, .. } = ports;
    let workers = thread::available_parallelism()?;
    let mut temporary = String::new();
    for of in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        write!(temporary, "{of}_temp_path {of}; ")?;
    }
    // nginx supports requests per second or per minute only.
    let per_minute = PER_HOUR / 60;
    let settings = format!(
        "daemon off; worker_processes {workers}; error_log stderr crit; pid nginx.pid;
        events {{ worker_connections 1024; }}
        http {{
            {temporary} access_log off; keepalive_requests 1000000000;
            limit_req_zone $http_x_api_key zone=keys:32m rate={per_minute}r/m;
            server {{
                listen 127.0.0.1:{http} reuseport;
                location / {{ limit_req zone=keys burst={PER_HOUR} nodelay; empty_gif; }}
            }}
        }}\n"
    );
    fs::write(folder.join("nginx.conf"), settings)?;
    let mut command = Command::new(program);
    command.arg("-p").arg(folder).args(["-c", "nginx.conf", "-e", "stderr"]);
    Ok(Server { process: Process::start("nginx", &mut command, &[http], folder)?, ports })
}

impl Ports {
    /// Finds free ports.
    fn free() -> Result<Ports> {
        let any = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        // Held until all are found; otherwise the same port could be found twice.
        let (http, resp, grpc) = (any()?, any()?, any()?);
        let port = |socket: &TcpListener| socket.local_addr().map(|address| address.port());
        Ok(Ports { http: port(&http)?, resp: port(&resp)?, grpc: port(&grpc)? })
    }

    /// The addresses as arguments.
    fn addresses(self) -> [String; 6] {
        let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string();
        let [http, resp, grpc] = ["--http", "--resp", "--grpc"].map(str::to_owned);
        [http, at(self.http), resp, at(self.resp), grpc, at(self.grpc)]
    }

    /// Starts a server that listens on all of them.
    fn all(self, name: &str, command: &mut Command, folder: &Path) -> Result<Server> {
        let process = Process::start(name, command, &[self.http, self.resp, self.grpc], folder)?;
        Ok(Server { process, ports: self })
    }
}

/// Returns the program's name and version, from standard output or standard error.
fn version(program: &Path, argument: &str) -> Result<String> {
    let said = Command::new(program)
        .arg(argument)
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(said.status.success(), "{} {argument}: {}", program.display(), said.status);
    let said = String::from_utf8([said.stdout, said.stderr].concat())?;
    Ok(said.trim().replace("nginx version: nginx/", "nginx "))
}
