//! `tollgate top`: the subjects that were refused most, or that are nearest to their limit.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Value, json};

use super::why::compare_hash_keys;
use crate::cli::client::table::{Align, Table, cell, instant_cell};
use crate::cli::client::{Call, Client, ClientArgs, Format, all_of};
use crate::cli::{exit, terminal};

/// How often --watch asks.
const EVERY: Duration = Duration::from_secs(2);
/// Clears the screen and goes to its first line.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";
/// More than any number of subjects to print.
const ANSWER_MAX: usize = 1_000;

/// Show the subjects that are refused most, or nearest to their limit
///
/// Subjects show as the beginnings of their hashes, as in logs, with the attributes that their rule lists in `show:`. The
/// counts cover the last five to ten minutes. They come from lists of fixed size: a count can be too high by at most its
/// error. The token needs the scope `read`.
///
///   tollgate top
///   tollgate top --by used --rule search-per-key
///   tollgate top --watch
///
/// Each server counts for itself. The answers of several servers are added up:
///
///   tollgate top --server http://10.0.0.5:9000 --server http://10.0.0.6:9000
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  the subjects were printed; also an empty list
  2  the command line is invalid, no rule has this id, or the hash keys of the servers differ
  3  a server did not answer
  4  a server declined: a missing token or scope

Environment:
  TOLLGATE_SERVER      servers to call, separated by commas; --server overrides it
  TOLLGATE_TOKEN       token; --token-file overrides it
  TOLLGATE_TOKEN_FILE  file with the token; --token-file overrides it"
)]
pub(crate) struct Args {
    #[command(flatten)]
    client: ClientArgs,
    /// Which subjects
    #[arg(long, value_enum, default_value_t = By::Refused)]
    by: By,
    /// Only the subjects of this rule
    #[arg(long, value_name = "ID")]
    rule: Option<String>,
    /// Number of subjects
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    /// Show them again every two seconds, until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum By {
    /// Refused most often
    Refused,
    /// Nearest to their limit
    Used,
    /// Most often refused by shadow rules
    ShadowRefused,
}

impl By {
    const fn name(self) -> &'static str {
        match self {
            By::Refused => "refused",
            By::Used => "used",
            By::ShadowRefused => "shadow-refused",
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut target = format!("/v1/top?by={}&limit={ANSWER_MAX}", args.by.name());
    if let Some(rule) = &args.rule {
        let is_id = !rule.is_empty()
            && rule.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./@".contains(&byte));
        if !is_id {
            let hint = "ids of rules have letters, digits, - _ . and /";
            return Err(crate::failure::Failure::new("invalid --rule", hint).into());
        }
        target += &format!("&rule={rule}");
    }
    let (client, call) = (Client::new(&args.client)?, Call::get(target));
    loop {
        let answer = merged(&client, &call, args)?;
        let clear = if args.watch && std::io::stdout().is_terminal() { CLEAR } else { "" };
        terminal::print(&match args.format {
            Format::Json => format!("{answer}\n"),
            Format::Text => format!("{clear}{}", text(&answer, args.by)),
        })?;
        if !args.watch {
            return Ok(exit::SUCCESS);
        }
        client.pause(EVERY);
    }
}

/// The subjects of all servers. Counts of one subject are added; of numbers, those nearest to the limit count.
fn merged(client: &Client, call: &Call, args: &Args) -> Result<Value> {
    let mut answers = Vec::new();
    for (_, answer) in all_of(client.call_all(call))? {
        answers.push(answer.json()?);
    }
    compare_hash_keys(&answers, None)?;
    let mut places = HashMap::<(String, String), usize>::new();
    let mut subjects: Vec<Value> = Vec::new();
    for subject in answers.iter().flat_map(|answer| answer["subjects"].as_array().into_iter().flatten()) {
        let key = (cell(subject, "rule"), cell(subject, "subject"));
        match places.get(&key) {
            None => {
                places.insert(key, subjects.len());
                subjects.push(subject.clone());
            }
            Some(&place) => add(&mut subjects[place], subject),
        }
    }
    let order = if args.by == By::Used { "used_permille" } else { "count" };
    subjects.sort_by_key(|subject| std::cmp::Reverse(subject[order].as_u64()));
    subjects.truncate(args.limit.into());
    let without = answers.iter().filter_map(|answer| answer["rules_without_lists"].as_u64()).max();
    Ok(json!({
        "by": args.by.name(),
        "servers": answers.iter().map(|answer| &answer["server"]).collect::<Vec<_>>(),
        "rules_without_lists": without,
        "subjects": subjects,
    }))
}

fn add(known: &mut Value, other: &Value) {
    for name in ["count", "error"] {
        if let (Some(one), Some(more)) = (known[name].as_u64(), other[name].as_u64()) {
            known[name] = one.saturating_add(more).into();
        }
    }
    if other["used_permille"].as_u64() > known["used_permille"].as_u64() {
        *known = other.clone();
    }
}

fn text(answer: &Value, by: By) -> String {
    let subjects = answer["subjects"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut text = match (subjects.is_empty(), by) {
        (true, By::Refused) => "nothing was refused in the last minutes\n".to_owned(),
        (true, By::ShadowRefused) => {
            "no shadow rule would have refused anything in the last minutes\n".to_owned()
        }
        (true, By::Used) => "no subject has used anything of its limit in the last minutes\n".to_owned(),
        (false, By::Used) => used(subjects).text(),
        (false, _) => counted(subjects).text(),
    };
    if let Some(without) = answer["rules_without_lists"].as_u64().filter(|&without| without > 0) {
        text += &format!("\n{without} rules have no lists of subjects, because too many others have\n");
    }
    text
}

fn counted(subjects: &[Value]) -> Table {
    let mut table = Table::new(&[
        ("times", Align::Right),
        ("error", Align::Right),
        ("rule", Align::Left),
        ("subject", Align::Left),
        ("", Align::Left),
    ]);
    for subject in subjects {
        let cells = ["count", "error", "rule", "subject"].map(|name| cell(subject, name));
        table.row(cells.into_iter().chain([shown(subject)]));
    }
    table
}

fn used(subjects: &[Value]) -> Table {
    let mut table = Table::new(&[
        ("used", Align::Right),
        ("limit", Align::Right),
        ("remaining", Align::Right),
        ("whole again at", Align::Left),
        ("rule", Align::Left),
        ("subject", Align::Left),
        ("", Align::Left),
    ]);
    for subject in subjects {
        let used = subject["used_permille"].as_u64().unwrap_or(0);
        let percent = format!("{}.{} %", used / 10, used % 10);
        let numbers =
            [cell(subject, "limit"), cell(subject, "remaining"), instant_cell(subject, "reset_at_ms")];
        let names = [cell(subject, "rule"), cell(subject, "subject"), shown(subject)];
        table.row([percent].into_iter().chain(numbers).chain(names));
    }
    table
}

fn shown(subject: &Value) -> String {
    subject["show"].as_str().unwrap_or_default().to_owned()
}
