//! `tollgate token list`: the tokens of a configuration.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

use crate::access::Token;
use crate::cli::client::Format;
use crate::cli::client::table::{Align, Table};
use crate::cli::{exit, terminal};
use crate::config::{self, Flags};

/// Digits of a digest that are shown to people.
const DIGEST_CHARS: usize = 15;

/// List the tokens of a server's configuration
///
/// The command reads the configuration file like `tollgate serve`, and contacts no server. It shows names, scopes and what
/// the tokens are bound to. A configuration has no tokens, only their digests.
///
///   tollgate token list --config tollgate.yaml
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  the tokens were printed; also if there are 0
  2  the command line or the configuration is invalid; all problems are printed"
)]
pub(super) struct Args {
    /// Configuration file [env: TOLLGATE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let flags = Flags { file: args.config.clone(), settings: Vec::new() };
    let loaded = config::load(&flags, "no tokens are listed")?;
    crate::stderr::write(&loaded.warnings);
    let tokens: Vec<&Token> = loaded.config.access.all().collect();
    terminal::print(&match args.format {
        Format::Json => {
            let tokens: Vec<Value> = tokens.into_iter().map(to_json).collect();
            format!("{}\n", json!({ "tokens": tokens }))
        }
        Format::Text if tokens.is_empty() => "no tokens\n".to_owned(),
        Format::Text => table(&tokens).text(),
    })?;
    Ok(exit::SUCCESS)
}

fn to_json(token: &Token) -> Value {
    let attributes = token.bound.attributes().iter().map(|(name, value)| (name.clone(), json!(value)));
    json!({
        "name": token.name,
        "scopes": token.scopes.names().collect::<Vec<_>>(),
        "digest": token.digest.to_string(),
        "attributes": attributes.collect::<Value>(),
        "rules": token.bound.rules(),
    })
}

fn table(tokens: &[&Token]) -> Table {
    let names = ["name", "scopes", "digest", "attributes", "rules"];
    let mut table = Table::new(&names.map(|name| (name, Align::Left)));
    for token in tokens {
        let attributes = token.bound.attributes().iter().map(|(name, value)| format!("{name}={value}"));
        let attributes: Vec<String> = attributes.collect();
        let or_all = |texts: &[String]| if texts.is_empty() { "all".to_owned() } else { texts.join(" ") };
        let digest: String = token.digest.to_string().chars().take(DIGEST_CHARS).collect();
        let rules = or_all(token.bound.rules().unwrap_or_default());
        table.row([token.name.clone(), token.scopes.to_string(), digest, or_all(&attributes), rules]);
    }
    table
}
