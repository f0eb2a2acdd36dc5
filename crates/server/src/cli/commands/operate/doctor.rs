//! `tollgate doctor`: finds what is wrong with store, rules and database, and says how to fix it.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};
use tollgate::store::redis::RedisSettings;
use tollgate_document::suggest;

use crate::cli::client::{Call, Client, ClientArgs, Format, all_of};
use crate::cli::exit;
use crate::cli::hash_key::variable;
use crate::cli::request_args::load_source_and_rules;
use crate::cli::terminal::{self, DIM, GREEN, RED, YELLOW};
use crate::config::{self, Config, Flags, StoreConfig};
use crate::doctor::{self, CHECKS, Patient, Scan, Status, Wanted};
use crate::failure::Failure;
use crate::files;
use crate::text::escape_control;

const USER_PASSWORD: &str = "TOLLGATE_STORE_USER_PASSWORD";

/// Find what is wrong with store, rules and database
///
/// The command reads the configuration of `tollgate serve`, from the same file, variables and flags, and looks at what a
/// server would use. Each finding has a reason and a fix. It is safe on a live store: keys are scanned in small steps at a
/// capped rate, and findings about a part of the keys say so. It writes one key, which expires after a second.
///
///   tollgate doctor --config tollgate.yaml
///   tollgate doctor --store redis://localhost:6379 --hash-key-file key --only store-policy --only store-persistence
///
/// Some checks need rights that a server does not need. Give another user with the second ACL line of docs/guides/redis.md;
/// without it, these checks are skipped and name what is missing:
///
///   export TOLLGATE_STORE_USER_PASSWORD
///   tollgate doctor --config tollgate.yaml --store-user doctor
///
/// What a running server has found about itself and its store:
///
///   tollgate doctor --server https://gate.example.com:9000 --token-file operator.token
///
/// The list of checks is below.
#[derive(clap::Args)]
#[command(verbatim_doc_comment, after_long_help = after_help())]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    client: ClientArgs,
    /// Make only this check; can be repeated
    #[arg(long, value_name = "ID", value_parser = check)]
    only: Vec<String>,
    /// Leave this check out; can be repeated
    #[arg(long, value_name = "ID", value_parser = check)]
    skip: Vec<String>,
    /// Exit with 1 if there are warnings
    #[arg(long)]
    deny_warnings: bool,
    /// User of the store for checks that need more rights than a server
    #[arg(long, value_name = "USER")]
    store_user: Option<String>,
    /// File with the password of --store-user; without it, TOLLGATE_STORE_USER_PASSWORD is used
    #[arg(long, value_name = "FILE", requires = "store_user")]
    store_user_password_file: Option<PathBuf>,
    /// Subjects that the store must have room for
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    subjects: u64,
    /// Keys to scan at most; more make the findings those of a sample
    #[arg(long, value_name = "N", default_value_t = Scan::DEFAULT.keys_max)]
    scan_keys: u64,
    /// Keys to scan per second
    #[arg(long, value_name = "N", default_value_t = Scan::DEFAULT.rate, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    scan_rate: u32,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

fn after_help() -> String {
    let width = CHECKS.iter().map(|check| check.id.len()).max().unwrap_or(0);
    let checks: String =
        CHECKS.iter().map(|check| format!("  {:<width$}  {}\n", check.id, check.about)).collect();
    format!(
        "Checks:\n{checks}\
\nExit codes:
  0  no check failed; or only warnings, without --deny-warnings
  1  a check failed; or there are warnings, with --deny-warnings
  2  the command line or the configuration is invalid
  3  the store did not answer; or a server did not, with --server
  4  the server declined: a missing token or scope

Environment: the variables of `tollgate serve`, and these:
  TOLLGATE_STORE_USER_PASSWORD  password of --store-user; --store-user-password-file overrides it
  TOLLGATE_TOKEN                token, with --server; --token-file overrides it
  TOLLGATE_TOKEN_FILE           file with the token, with --server; --token-file overrides it"
    )
}

fn check(text: &str) -> Result<String, String> {
    if CHECKS.iter().any(|check| check.id == text) {
        return Ok(text.to_owned());
    }
    Err(match suggest(text, CHECKS.iter().map(|check| check.id)) {
        Some(near) => format!("unknown check; did you mean {near}?"),
        None => "unknown check; `tollgate doctor --help` lists all".to_owned(),
    })
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let report = if args.client.is_given() { of_servers(args)? } else { examine(args)? };
    let findings = report["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    terminal::print(&match args.format {
        Format::Json => format!("{report:#}\n"),
        Format::Text => text(findings),
    })?;
    let has = |status: Status| findings.iter().any(|finding| finding["status"] == status.name());
    let is_unreachable = findings
        .iter()
        .any(|finding| finding["id"] == "store-reachable" && finding["status"] == Status::Fail.name());
    Ok(match (has(Status::Fail), has(Status::Warn) && args.deny_warnings) {
        _ if is_unreachable => exit::store_failed(),
        (false, false) => exit::SUCCESS,
        _ => exit::NEGATIVE,
    })
}

/// What running servers have found. Of one server the report is whole; several have their findings in one list.
fn of_servers(args: &Args) -> Result<Value> {
    if !args.only.is_empty() || args.store_user.is_some() {
        let hint = "a server decides which checks it makes; leave --only and --store-user out, or --server";
        return Err(Failure::new("--server cannot be combined with checks made here", hint).into());
    }
    let client = Client::new(&args.client)?;
    let mut reports = Vec::new();
    for (server, answer) in all_of(client.call_all(&Call::get("/v1/doctor")))? {
        let mut report = answer.json()?;
        if report["at_ms"].is_null() {
            let hint = "a server examines itself two seconds after its start; try again";
            return Err(Failure::of_store(format!("{server} has not examined itself yet"), hint).into());
        }
        if let Some(findings) = report["findings"].as_array_mut() {
            findings.retain(|finding| !args.skip.iter().any(|skipped| finding["id"] == skipped.as_str()));
        }
        reports.push((server.to_string(), report));
    }
    if reports.len() == 1 {
        return Ok(reports.swap_remove(0).1);
    }
    let findings = reports.iter().flat_map(|(server, report)| {
        let findings = report["findings"].as_array().into_iter().flatten().cloned();
        findings.map(move |mut finding| {
            finding["server"] = server.as_str().into();
            finding
        })
    });
    Ok(json!({ "findings": findings.collect::<Value>() }))
}

fn examine(args: &Args) -> Result<Value> {
    let loaded = config::load(&args.flags, "nothing is examined")?;
    crate::stderr::write(&loaded.warnings);
    let Config { rules, store, store_deadline, hashers, ledger, .. } = loaded.config;
    let (source, rules) = load_source_and_rules(rules.as_deref(), "nothing is examined")?;
    let store = match store {
        StoreConfig::Memory { .. } => None,
        StoreConfig::Redis(settings) => Some(*settings),
    };
    let password = match &args.store_user_password_file {
        Some(path) => Some(files::read(path)?.text().trim_ascii().to_owned()),
        None => variable(USER_PASSWORD)?,
    };
    let admin = args.store_user.as_ref().zip(store.as_ref().map(RedisSettings::fresh));
    let patient = Patient {
        rules: &rules,
        source: &source,
        store,
        store_as_admin: admin.map(|(user, settings)| settings.credentials(user, password.as_deref())),
        hashers: hashers.as_ref(),
        deadline: store_deadline,
        database: ledger.as_ref().map(|ledger| &ledger.url),
        subjects: args.subjects,
        scan: Scan { keys_max: args.scan_keys, rate: args.scan_rate },
    };
    let wanted = Wanted { only: args.only.clone(), skip: args.skip.clone() };
    let mut bar = Progress::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report =
        runtime.block_on(doctor::examine(&patient, &wanted, |scanned, total| bar.show(scanned, total)));
    bar.clear();
    Ok(report.to_json())
}

fn text(findings: &[Value]) -> String {
    let width = findings.iter().filter_map(|finding| finding["id"].as_str()).map(str::len).max().unwrap_or(0);
    let mut text = String::new();
    let member = |of: &Value, name: &str| of[name].as_str().map(escape_control);
    for finding in findings {
        let status = member(finding, "status").unwrap_or_default();
        let style = match status.as_str() {
            "pass" => GREEN,
            "warn" => YELLOW,
            "fail" => RED,
            _ => DIM,
        };
        let server = member(finding, "server").map(|server| format!("{server}: ")).unwrap_or_default();
        let (id, reason) =
            (member(finding, "id").unwrap_or_default(), member(finding, "reason").unwrap_or_default());
        text += &format!("{style}{status}{style:#}  {id:<width$}  {server}{reason}\n");
        if let Some(fix) = member(finding, "fix") {
            text += &format!("{:width$}        fix: {fix}\n", "");
        }
    }
    let count = |status: Status| findings.iter().filter(|finding| finding["status"] == status.name()).count();
    let counts = [Status::Pass, Status::Warn, Status::Fail, Status::Skip];
    let counts: Vec<String> = counts.map(|status| format!("{} {}", count(status), status.name())).into();
    format!("{text}\n{}\n", counts.join(", "))
}

/// A line on a terminal that says how far the scan is.
struct Progress {
    is_shown: bool,
    last_percent: u64,
}

impl Progress {
    fn new() -> Progress {
        Progress { is_shown: std::io::stderr().is_terminal(), last_percent: u64::MAX }
    }

    fn show(&mut self, scanned: u64, total: u64) {
        let percent = (scanned * 100 / total.max(1)).min(100);
        if self.is_shown && percent != self.last_percent {
            self.last_percent = percent;
            let done = (percent / 5) as usize;
            let bar = format!("{}{}", "#".repeat(done), "-".repeat(20 - done));
            crate::stderr::write(&format!("\rscanning keys [{bar}] {percent:>3} %"));
        }
    }

    fn clear(&self) {
        if self.last_percent != u64::MAX {
            crate::stderr::write("\r\u{1b}[K");
        }
    }
}
