//! `pg_dump`, `pg_restore` and `psql`: PostgreSQL is copied by its own programs.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tollgate_database::DatabaseUrl;

use crate::failure::Failure;
use crate::text::escape_control;

/// Writes a dump of the database to a new file.
pub(super) fn dump(url: &DatabaseUrl, to: &Path) -> Result<(), Failure> {
    let mut command = program("pg_dump", url);
    command.args(["--format=custom", "--no-owner", "--no-privileges", "--file"]).arg(to);
    run("pg_dump", command)
}

/// The tables of Tollgate. `pg_restore --clean` cannot drop partitions.
const DROP: &str = "DROP TABLE IF EXISTS audit, live_change, control, account, request, receipt, reservation, balance, entry, \
                    block, writer, schema_version CASCADE";

/// Replaces the tables by those of a dump, in one transaction.
pub(super) fn restore(url: &DatabaseUrl, from: &Path) -> Result<(), Failure> {
    let mut script = from.as_os_str().to_owned();
    script.push(".restoring.sql");
    let script = PathBuf::from(script);
    // The whole script first: a reader of half a script would commit a half.
    let mut command = program("pg_restore", url);
    command.args(["--no-owner", "--no-privileges", "--file"]).arg(&script).arg(from);
    let restored = run("pg_restore", command).and_then(|()| {
        let mut command = program("psql", url);
        command.args(["--no-psqlrc", "--quiet", "--single-transaction", "--set", "ON_ERROR_STOP=1"]);
        command.args(["--command", DROP, "--file"]).arg(&script);
        run("psql", command)
    });
    let removed = std::fs::remove_file(&script);
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let hint = "it has the contents of the dump; remove it";
            restored.and(Err(Failure::new(format!("cannot remove {}: {error}", script.display()), hint)))
        }
        _ => restored,
    }
}

fn program(name: &str, url: &DatabaseUrl) -> Command {
    let mut command = Command::new(name);
    // In the environment, because other users can read the arguments of a process.
    command.envs(url.postgres_variables()).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn run(name: &str, mut command: Command) -> Result<(), Failure> {
    let output = command.output().map_err(|error| {
        let hint = "install the client programs of PostgreSQL, of the server's version or newer (Debian: postgresql-client)";
        Failure::new(format!("cannot run {name}: {error}"), hint)
    })?;
    if output.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<String> = printed.lines().filter(|line| !line.is_empty()).map(escape_control).collect();
    let hint =
        "check that the database runs, that this user may read and write it, and the version of the program";
    Err(Failure::of_store(format!("{name} failed: {}", lines.join("; ")), hint))
}
