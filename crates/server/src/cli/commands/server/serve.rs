//! `tollgate serve`: the server.

use std::process::ExitCode;

use anyhow::Result;
use tollgate::store::redis::OpenError;

use crate::cli::exit;
use crate::cli::store_args::open_failure;
use crate::config::{self, Flags};
use crate::serve;

/// Serve decisions over HTTP, the Redis protocol (RESP) and gRPC (Envoy)
///
/// Without flags, the server is a working rate limiter for this machine: it uses a few starter rules and the memory store,
/// and listens only on loopback addresses. It prints its addresses and commands to try.
///
///   tollgate serve
///   tollgate serve --rules rules.yaml
///
/// The gRPC listener, which speaks Envoy's rate limit service, is off by default:
///
///   tollgate serve --rules rules.yaml --grpc 127.0.0.1:8081
///
/// The server reloads the rules file when it changes and on SIGHUP. If the new file is invalid, the server logs its
/// problems and keeps the rules in force. With a folder, it reads all files in it that end in .yaml or .yml as one:
///
///   tollgate serve --rules rules/
///
/// Any number of servers can share limits through a Redis or Valkey. All of them need the same hash key:
///
///   openssl rand -hex 32 > key
///   tollgate serve --rules rules.yaml --store redis://localhost:6379 --hash-key-file key
///
/// To listen for other machines, the server needs tokens or client certificates. Give the token to the caller, and add its
/// digest to the configuration file:
///
///   tollgate token --name checkout > checkout.token
///   tollgate serve --config tollgate.yaml --http 0.0.0.0:8080 --resp off
///
/// Every flag is also a key of that file and a variable: --hash-key-file is `hash_key_file:` and TOLLGATE_HASH_KEY_FILE.
/// Variables override the file, and flags override both. `tollgate config` accepts the same flags and prints the effective
/// values with their origins. A configuration file:
///
///   rules: rules.yaml
///   http: 0.0.0.0:8080
///   tokens:
///     - { name: checkout, digest: "sha256:…", scopes: [check] }
///
/// On SIGTERM and SIGINT, the server accepts no new connections and answers the requests in flight. It waits for them for
/// at most --shutdown-timeout.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
    0  the server was shut down by a signal
    2  the command line, the configuration or the rules file is invalid, a port is in use, or the servers on the store have
       another hash key; all problems are printed
    3  the store cannot be reached, or rejects the credentials
  130  a second SIGTERM or SIGINT ended the shutdown before all requests were answered

Environment: one variable per flag, like TOLLGATE_HTTP for --http, and these, which have no flag or a different one:
  TOLLGATE_CONFIG                   configuration file; --config overrides it
  TOLLGATE_HASH_KEY                 hash key of your servers, 64 hexadecimal digits; --hash-key-file overrides it
  TOLLGATE_PREVIOUS_HASH_KEY        hash key that is being replaced; --previous-hash-key-file overrides it
  TOLLGATE_STORE_PASSWORD           password of the store; --store-password-file overrides it
  TOLLGATE_STORE_SENTINEL_PASSWORD  password of the sentinels; --store-sentinel-password-file overrides it"
)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let loaded = config::load(&args.flags, "the server does not start")?;
    crate::stderr::write(&loaded.warnings);
    let result = serve::run(loaded, || config::try_load(&args.flags));
    result.map_err(|error| match error.downcast::<OpenError>() {
        Ok(error) => open_failure(&error).into(),
        Err(error) => error,
    })?;
    Ok(exit::SUCCESS)
}
