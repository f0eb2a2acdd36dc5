//! `tollgate serve`: the limiter for every language.

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::exit;
use crate::config::{self, Flags};
use crate::serve;

/// Serve decisions over HTTP and the protocol of Redis
///
/// Without a flag it is a working rate limiter for this machine: a few rules to try, state in memory, ports that only
/// programs on this machine reach. It says where it listens and what to type.
///
///   tollgate serve
///   tollgate serve --rules rules.yaml
///
/// The rules file is read again when it changes and on SIGHUP. A wrong one is reported, and the rules in force stay.
///
/// Any number of servers share limits through a Redis or Valkey. All of them need the same hash key:
///
///   openssl rand -hex 32 > key
///   tollgate serve --rules rules.yaml --store redis://localhost:6379 --hash-key-file key
///
/// For other machines it takes tokens, or certificates of clients, so that not everybody can ask. A token goes to the client, its
/// digest into the file of settings:
///
///   tollgate token --name checkout > checkout.token
///   tollgate serve --config tollgate.yaml --http 0.0.0.0:8080 --resp off
///
/// Every flag can stand in that file, with _ instead of -, and in a variable: --hash-key-file is `hash_key_file:` and
/// TOLLGATE_HASH_KEY_FILE. Variables beat the file, flags beat both; `tollgate config` takes the same flags and shows which
/// values are in force, and why:
///
///   rules: rules.yaml
///   http: 0.0.0.0:8080
///   tokens:
///     - { name: checkout, digest: "sha256:…", scopes: [check] }
///
/// On SIGTERM and SIGINT it takes no new connections and answers what is in flight, for as long as --grace.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  served until it was told to end
  2  the command line, the configuration or the rules file is wrong, or a port is taken; all problems are printed
  3  the store cannot be reached, does not let us in, or belongs to servers with another hash key

Environment: every flag by its name, like TOLLGATE_HTTP for --http, and what no command line may show:
  TOLLGATE_CONFIG                   the file of settings; --config beats it
  TOLLGATE_HASH_KEY                 the hash key of your servers, 64 hexadecimal digits; --hash-key-file beats it
  TOLLGATE_PREVIOUS_HASH_KEY        the one that it replaces; --previous-hash-key-file beats it
  TOLLGATE_STORE_PASSWORD           the password of the store; --store-password-file beats it
  TOLLGATE_STORE_SENTINEL_PASSWORD  the password of its sentinels; --store-sentinel-password-file beats it"
)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let read = || config::load(&args.flags, "nothing is served").map(|loaded| loaded.config);
    serve::run(read()?, read)?;
    Ok(exit::GOOD)
}
