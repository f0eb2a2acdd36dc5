//! `tollgate audit verify`: recomputes the hashes of the trail.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use tollgate_database::audit::{AuditChain, AuditHead};

use super::{PAGE, page, row};
use crate::cli::client::{Client, ClientArgs, Format};
use crate::cli::{exit, terminal};
use crate::failure::Failure;
use crate::hex;

/// Recompute the hashes of all rows
///
/// The hashes are computed here: the server is not trusted. A chain alone shows neither a cut tail nor a trail that was
/// rewritten. Keep the number and the hash of a row elsewhere (the log has both for each row), and pass them with --expect.
#[derive(clap::Args)]
#[command(after_long_help = "\
Exit codes:
  0  the trail is intact
  1  a row was changed, deleted or moved, or the expected row is not in the trail
  2  the command line is invalid
  3  the server did not answer, or its database did not
  4  the server declined: a missing token or scope, or no database

Environment:
  TOLLGATE_SERVER      server to call, like https://gate.example.com:9000; --server overrides it
  TOLLGATE_TOKEN       token; --token-file overrides it
  TOLLGATE_TOKEN_FILE  file with the token; --token-file overrides it")]
pub(super) struct Args {
    /// Number and hash of a row that was kept elsewhere
    #[arg(long, value_name = "SEQ:HEAD", value_parser = head)]
    expect: Option<AuditHead>,
    #[command(flatten)]
    client: ClientArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

fn head(text: &str) -> Result<AuditHead, String> {
    let head = text.split_once(':').and_then(|(seq, hash)| {
        let seq = seq.parse().ok().filter(|&seq| seq > 0)?;
        Some(AuditHead { seq, hash: hex::to_32_bytes(hash)? })
    });
    head.ok_or_else(|| "write SEQ:HEAD, the number of a row and the 64 digits of its hash".to_owned())
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let mut chain: Option<AuditChain> = None;
    let verified = 'rows: loop {
        let (rows, end) = page(&client, chain.as_ref().map_or(0, AuditChain::last_seq), PAGE)?;
        // The end at the first call: rows that are added meanwhile come after it.
        let chain = match &mut chain {
            Some(chain) => chain,
            None => chain.insert(AuditChain::new(row::head(&end).ok_or_else(unreadable)?, args.expect)),
        };
        for row in &rows {
            if let Err(fault) = chain.follow(&row::parse(row).ok_or_else(unreadable)?) {
                break 'rows Err(fault);
            }
        }
        if (rows.len() as i64) < PAGE {
            break chain.clone().finish();
        }
    };
    terminal::print(&match (args.format, &verified) {
        (Format::Json, Ok(head)) => {
            format!(
                "{}\n",
                json!({ "intact": true, "seq": head.seq, "head": hex::of(&head.hash), "fault": null })
            )
        }
        (Format::Json, Err(fault)) => {
            format!("{}\n", json!({ "intact": false, "seq": null, "head": null, "fault": fault.to_string() }))
        }
        (Format::Text, Ok(AuditHead { seq, hash })) => {
            let kept = if *seq == 0 {
                String::new()
            } else {
                format!("; keep this head elsewhere: {seq}:{}", hex::of(hash))
            };
            format!("{seq} rows are intact{kept}\n")
        }
        (Format::Text, Err(fault)) => format!("the trail is not intact: {fault}\n"),
    })?;
    Ok(if verified.is_ok() { exit::SUCCESS } else { exit::NEGATIVE })
}

fn unreadable() -> Failure {
    let hint = "check that --server names a Tollgate server of the same release";
    Failure::of_store("the answer is not an audit trail", hint)
}
