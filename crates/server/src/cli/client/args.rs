//! The arguments and variables of remote commands.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use tollgate::shorthand;

use super::server_url::{ServerUrl, ServerUrlError};
use crate::cli::hash_key::variable;
use crate::failure::Failure;
use crate::files;

const SERVER: &str = "TOLLGATE_SERVER";
const TOKEN: &str = "TOLLGATE_TOKEN";
const TOKEN_FILE: &str = "TOLLGATE_TOKEN_FILE";
/// The default address of `tollgate serve`.
const SERVER_DEFAULT: &str = "http://127.0.0.1:8080";
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
const TIMEOUT_MAX: Duration = Duration::from_secs(3_600);
/// More servers are a mistake: each gets a connection.
const SERVERS_MAX: usize = 64;
/// Tokens of ours have 67 characters.
const TOKEN_BYTES_MAX: usize = 1_024;

// Not a doc comment: clap would use it as the help of every command with these arguments.
// Arguments of commands that call a server.
#[derive(clap::Args)]
pub(crate) struct ClientArgs {
    /// Server to call, like https://gate.example.com:9000; can be repeated by commands that only read. Without it,
    /// TOLLGATE_SERVER is used, and then http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    server: Vec<String>,
    /// File with the token; without it, TOLLGATE_TOKEN or the file that TOLLGATE_TOKEN_FILE names is used
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File of the CA certificates to trust instead of the system's
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// How long to wait for an answer, like 500ms or 30s [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = timeout)]
    timeout: Option<Duration>,
}

// Arguments of commands that change something on a server.
#[derive(clap::Args)]
pub(crate) struct DryRun {
    /// Check the change and show its effect without making it
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// The output format of remote commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs: the answer of the server
    Json,
}

impl ClientArgs {
    /// Whether the variable names a server, for commands that can do without one.
    pub(crate) fn has_server_variable(&self) -> Result<bool, Failure> {
        Ok(variable(SERVER)?.is_some())
    }

    /// Whether the command line has an argument that only a call needs.
    pub(crate) fn is_given(&self) -> bool {
        !self.server.is_empty()
            || self.token_file.is_some()
            || self.ca_file.is_some()
            || self.timeout.is_some()
    }

    /// The servers to call: those of the command line, or those of the variable, or the default.
    pub(super) fn servers(&self) -> Result<Vec<ServerUrl>, Failure> {
        let mut servers = Vec::new();
        // Parsed here and not by the command line, whose errors repeat a value that may hold a secret.
        for text in &self.server {
            servers.push(parse("--server", text)?);
        }
        if servers.is_empty() {
            let text = variable(SERVER)?.unwrap_or_else(|| SERVER_DEFAULT.to_owned());
            for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
                servers.push(parse(SERVER, one)?);
            }
        }
        if servers.is_empty() || servers.len() > SERVERS_MAX {
            let what = format!("{} servers; expected 1 to {SERVERS_MAX}", servers.len());
            return Err(Failure::new(what, format!("pass --server, or set {SERVER}")));
        }
        let mut unique: Vec<ServerUrl> = Vec::new();
        for server in servers {
            if !unique.contains(&server) {
                unique.push(server);
            }
        }
        Ok(unique)
    }

    /// The token; `None` for a call without one.
    pub(super) fn token(&self) -> Result<Option<String>, Failure> {
        let (token, origin) = match (&self.token_file, variable(TOKEN)?, variable(TOKEN_FILE)?) {
            (Some(path), _, _) => (read(path)?, path.display().to_string()),
            (None, Some(_), Some(_)) => {
                let hint = "unset one of them, or pass --token-file";
                return Err(Failure::new(format!("{TOKEN} and {TOKEN_FILE} are both set"), hint));
            }
            (None, Some(token), None) => (token.trim_ascii().to_owned(), TOKEN.to_owned()),
            (None, None, Some(path)) => (read(Path::new(&path))?, path),
            (None, None, None) => return Ok(None),
        };
        let is_token =
            (1..=TOKEN_BYTES_MAX).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
        if is_token {
            return Ok(Some(token));
        }
        let hint = "it holds one token and nothing else; `tollgate token` makes a new one";
        Err(Failure::new(format!("{origin} holds no token"), hint))
    }

    pub(super) fn ca_file(&self) -> Option<&Path> {
        self.ca_file.as_deref()
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT_DEFAULT)
    }
}

fn parse(origin: &str, text: &str) -> Result<ServerUrl, Failure> {
    text.parse().map_err(|error: ServerUrlError| {
        Failure::new(format!("invalid {origin}: {error}"), "write a URL like https://gate.example.com:9000")
    })
}

fn read(path: &Path) -> Result<String, Failure> {
    Ok(files::read(path)?.text().trim_ascii().to_owned())
}

/// Parses the time to wait for an answer.
fn timeout(text: &str) -> Result<Duration, String> {
    let span = shorthand::span(text).map_err(|error| error.to_string())?;
    let timeout = Duration::from_micros(span.us());
    if timeout.is_zero() || timeout > TIMEOUT_MAX {
        return Err("write a time from 1us to 1h".to_owned());
    }
    Ok(timeout)
}
