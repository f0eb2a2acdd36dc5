//! Resets that a server makes.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

use super::{Args, print_result};
use crate::cli::client::{Call, Client};
use crate::failure::Failure;

/// Asks the server to delete the consumption.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let request = &args.request;
    if request.rules.is_some() || request.hash_key.is_given() || request.cost.is_some() || args.store.is_set()
    {
        let hint =
            "remove --rules, --store, --hash-key-file, --hash-key-id and --cost: the server has its own";
        return Err(Failure::new("--server cannot be combined with what decides here", hint).into());
    }
    let body =
        json!({ "attributes": request.attributes.to_json()?, "rule": args.rule, "reason": args.reason });
    let call = Call::post("/v1/reset", body).accept_code("nothing-matched");
    let client = Client::new(&args.client)?;
    // The trial names the subject, by the server's hash key.
    let trial = client.call(&call.clone().dry_run(true))?.json()?;
    let found = of_rule(&trial["results"], &args.rule);
    let Some(subject) = found.and_then(|result| result["subject"].as_str()) else {
        return print_result(args, None, "");
    };
    if !args.dry_run.dry_run {
        let done = client.call(&call)?.json()?;
        let result = of_rule(&done["rules"], &args.rule).unwrap_or(&Value::Null);
        if let Some(declined) = result["declined"].as_str() {
            let what = format!("rule {} did not delete the consumption: {declined}", args.rule);
            return Err(Failure::new(what, "limits of this kind cannot be reset").into());
        }
    }
    print_result(args, Some(subject), "")
}

/// The result of a rule, in a list of results.
fn of_rule<'v>(results: &'v Value, rule: &str) -> Option<&'v Value> {
    results.as_array()?.iter().find(|result| result["rule"] == rule)
}
