//! `tollgate serve`: the limiter for every language.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::config::Config;
use crate::{exit, serve};

/// Serve decisions over HTTP and the protocol of Redis
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The rules file
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Where HTTP is spoken
    #[arg(long, value_name = "ADDRESS")]
    http: Option<SocketAddr>,
    /// Where the protocol of Redis is spoken
    #[arg(long, value_name = "ADDRESS")]
    resp: Option<SocketAddr>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let read = || {
        let mut config = Config { rules: args.rules.clone(), ..Config::default() };
        config.http = args.http.or(config.http);
        config.resp = args.resp.or(config.resp);
        Ok(config)
    };
    serve::run(read()?, read)?;
    Ok(exit::GOOD)
}
