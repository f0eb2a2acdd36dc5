//! `tollgate why`: why a subject is refused, or why one request was.

mod text;

use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

use crate::cli::client::{Call, Client, ClientArgs, Format, ServerAnswer, all_of};
use crate::cli::hash_key::HashKeyArgs;
use crate::cli::request_args::{AttributeArgs, attribute};
use crate::cli::{exit, terminal};
use crate::failure::Failure;
use crate::reference;
use crate::text::escape_control;

/// Show why requests are refused, or why one was
///
/// With attributes, the command shows the live numbers of every rule for that subject: which override applies, what
/// remains, when a retry is admitted, and the last refusals. Nothing is charged. The token needs the scope `read`.
///
///   tollgate why action=search api_key=k-1
///
/// Every refusal has a reference: `ref` in its body, and the header `Tollgate-Ref`. It explains that refusal, also days
/// later and after the rules were changed:
///
///   tollgate why tgr_AQwDfg…
///
/// The last refusals are kept by each server, so name all of them. Their numbers are the same, because they share a store:
///
///   tollgate why --server http://10.0.0.5:8080 --server http://10.0.0.6:8080 tenant=acme
///
/// With the hash key, a reference is opened here, without a server:
///
///   tollgate why --hash-key-file key tgr_AQwDfg…
///
/// No answer of a server is believed before its hash key is compared with those of the other servers, and with the one that
/// is given here: another key would mean another subject.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  the request would be allowed; or the reference was explained
  1  the request would be refused
  2  the command line, the attributes or the reference is invalid, or the hash keys differ
  3  a server did not answer, or its store did not
  4  a server declined: a missing token or scope

Environment:
  TOLLGATE_SERVER      servers to call, separated by commas; --server overrides it
  TOLLGATE_TOKEN       token; --token-file overrides it
  TOLLGATE_TOKEN_FILE  file with the token; --token-file overrides it
  TOLLGATE_HASH_KEY    hash key to compare with, 64 hexadecimal digits; --hash-key-file overrides it"
)]
pub(crate) struct Args {
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    hash_key: HashKeyArgs,
    /// Cost of the request, for rules without a `cost` [default: 1]
    #[arg(long, value_name = "N")]
    cost: Option<u64>,
    /// The reference of a refusal, or attributes of requests such as tenant, user, api_key, ip, method, path or action
    #[arg(value_name = "REF | NAME=VALUE", required = true, value_parser = subject)]
    about: Vec<About>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// One word of what the command is about.
#[derive(Clone, Debug)]
enum About {
    Reference(String),
    Attribute(String, String),
}

fn subject(text: &str) -> Result<About, String> {
    if reference::is_reference(text) {
        return Ok(About::Reference(text.to_owned()));
    }
    let (name, value) = attribute(text).map_err(|_| {
        format!("write NAME=VALUE, like tenant=acme, or the reference of a refusal, {}…", reference::PREFIX)
    })?;
    Ok(About::Attribute(name, value))
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match args.about.as_slice() {
        [About::Reference(text)] => explain_reference(args, text),
        about if about.iter().any(|one| matches!(one, About::Reference(_))) => {
            let hint = "ask for one reference at a time, without attributes";
            Err(Failure::new("a reference stands alone", hint).into())
        }
        about => {
            let pairs = about.iter().filter_map(|one| match one {
                About::Attribute(name, value) => Some((name.clone(), value.clone())),
                About::Reference(_) => None,
            });
            explain_subject(args, &AttributeArgs::of(pairs.collect()))
        }
    }
}

fn explain_reference(args: &Args, text: &str) -> Result<ExitCode> {
    let refusal = if args.hash_key.is_given() && !args.client.is_given() {
        let hasher = args.hash_key.required()?;
        let opened = reference::open_with(&hasher, text).map_err(|error| {
            let hint = "pass the hash key, and with --hash-key-id its id, of the server that refused";
            Failure::new(error.to_string(), hint)
        })?;
        opened.to_json()
    } else {
        let client = Client::new(&args.client)?;
        let answers = client.call_all(&Call::post("/v1/explain", json!({ "ref": text })));
        first_of(answers)?["refusal"].clone()
    };
    terminal::print(&match args.format {
        Format::Json => format!("{refusal}\n"),
        Format::Text => text::refusal(&refusal),
    })?;
    Ok(exit::SUCCESS)
}

/// The answer of the first server that opened the reference: during a change of the hash key, some servers may not.
fn first_of(answers: Vec<ServerAnswer>) -> Result<Value, Failure> {
    let mut failure = None;
    for ServerAnswer { answer, .. } in answers {
        match answer {
            Ok(answer) => return answer.json(),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    Err(failure.unwrap_or_else(|| Failure::new("no server was asked", "pass --server")))
}

fn explain_subject(args: &Args, attributes: &AttributeArgs) -> Result<ExitCode> {
    let mut body = json!({ "attributes": attributes.to_json()? });
    if let Some(cost) = args.cost {
        body["cost"] = cost.into();
    }
    let ours = args.hash_key.get()?.map(|hasher| hasher.fingerprint());
    let client = Client::new(&args.client)?;
    let answers = all_of(client.call_all(&Call::post("/v1/explain", body)))?;
    let mut explained: Vec<Value> = Vec::new();
    for (_, answer) in &answers {
        explained.push(answer.json()?);
    }
    compare_hash_keys(&explained, ours.as_deref())?;
    let merged = merge(explained);
    terminal::print(&match args.format {
        Format::Json => format!("{merged}\n"),
        Format::Text => text::explanation(&merged),
    })?;
    Ok(if merged["decision"]["allowed"] == true { exit::SUCCESS } else { exit::NEGATIVE })
}

/// Fails if a server counts other subjects than the others, or than the caller expects.
pub(super) fn compare_hash_keys(answers: &[Value], ours: Option<&str>) -> Result<(), Failure> {
    let mut expected = ours.map(str::to_owned);
    for answer in answers {
        let hash_key = &answer["hash_key"];
        let found = hash_key["fingerprint"].as_str().unwrap_or_default().to_owned();
        if hash_key["fleet"] == "differs" {
            let hint = "give all servers on the store the same hash key; see docs/guides/redis.md";
            return Err(Failure::new("the servers on the store have different hash keys", hint));
        }
        match &expected {
            Some(expected) if *expected != found => {
                let what = format!(
                    "the hash keys differ ({} and {}), so the subjects do too",
                    escape_control(expected),
                    escape_control(&found)
                );
                let hint = "name servers of one store, and their hash key";
                return Err(Failure::new(what, hint));
            }
            Some(_) => (),
            None => expected = Some(found),
        }
    }
    Ok(())
}

/// The first answer, with the last refusals of all servers.
fn merge(explained: Vec<Value>) -> Value {
    let mut refusals = Vec::new();
    for answer in &explained {
        for refusal in answer["recent_refusals"].as_array().into_iter().flatten() {
            let mut refusal = refusal.clone();
            refusal["server"] = answer["server"].clone();
            refusals.push(refusal);
        }
    }
    refusals.sort_by_key(|refusal| std::cmp::Reverse(refusal["last_ms"].as_u64()));
    let mut merged = explained.into_iter().next().unwrap_or(Value::Null);
    merged["recent_refusals"] = Value::Array(refusals);
    merged
}
