//! Runs the binary and checks its output and exit codes.

mod access_logs;
mod check;
mod explain;
mod lint;
mod remote;
mod tools;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

const COMMANDS: [&str; 28] = [
    "lint",
    "test",
    "explain",
    "import",
    "check",
    "usage",
    "why",
    "top",
    "override",
    "deny",
    "bypass",
    "rules",
    "audit",
    "doctor",
    "serve",
    "config",
    "token",
    "try",
    "simulate",
    "estimate",
    "guide",
    "presets",
    "reset",
    "ledger",
    "database",
    "schema",
    "completions",
    "man",
];
const TYPOS: &str = "crates/server/tests/rules/typos.yaml";
const PRECEDENCE: &str = "crates/server/tests/rules/precedence.yaml";
const SHOP: &str = "examples/rules/shop.yaml";

/// A rules file without problems.
const CLEAN: &str =
    "version: 1\nrules:\n  - { id: a, per: user, missing: refuse, limit: { sliding-log: 5/min } }\n";

const NOW: &str = "2026-11-15T12:00:00Z";

struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    fn last_line(&self) -> &str {
        self.stdout.lines().last().unwrap_or_default()
    }
}

fn binary(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(args).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TOLLGATE_BLESS", "TOLLGATE_HASH_KEY"] {
        command.env_remove(name);
    }
    command
}

fn tollgate(args: &[&str]) -> Run {
    run(binary(args), "")
}

fn tollgate_reading(input: &str, args: &[&str]) -> Run {
    run(binary(args), input)
}

fn run(mut command: Command, input: &str) -> Run {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).expect("the input is smaller than a pipe");
    drop(stdin);
    let output = child.wait_with_output().expect("the binary ends");
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("it prints text"),
        stderr: String::from_utf8(output.stderr).expect("it prints text"),
    }
}

/// Returns the path of a folder for one test, which does not exist yet.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("old files can be removed");
    }
    folder
}

/// Compares output with a file below `tests`. `TOLLGATE_BLESS=1 cargo test -p tollgate-server --test cli` writes the
/// files; read the difference before you commit it.
fn assert_snapshot(file: &str, found: &str) {
    // The help has lines of spaces, which no editor keeps.
    let found: String = found.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
    if std::env::var_os("TOLLGATE_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &found).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_else(|error| format!("{error}\n"));
    assert!(expected == found, "{file}\n--- expected\n{expected}--- found\n{found}");
}

#[test]
fn help_of_every_command_matches_its_snapshot() {
    assert_snapshot("help/tollgate.txt", &tollgate(&["--help"]).stdout);
    for command in COMMANDS {
        assert_snapshot(&format!("help/{command}.txt"), &tollgate(&[command, "--help"]).stdout);
    }
    for (command, subcommands) in [
        ("ledger", &["verify", "usage", "export", "correct", "grant", "adopt"][..]),
        ("database", &["status", "migrate", "backup", "restore", "retain"]),
        ("override", &["add", "list", "show", "remove"]),
        ("deny", &["add"]),
        ("bypass", &["add"]),
        ("rules", &["diff", "history", "fingerprint"]),
        ("audit", &["list", "verify"]),
        ("token", &["new", "list"]),
    ] {
        for subcommand in subcommands {
            let help = tollgate(&[command, subcommand, "--help"]).stdout;
            assert_snapshot(&format!("help/{command}-{subcommand}.txt"), &help);
        }
    }
    for format in ["envoy", "limitador"] {
        let help = tollgate(&["import", format, "--help"]).stdout;
        assert_snapshot(&format!("help/import-{format}.txt"), &help);
    }
}

#[test]
fn json_outputs_match_their_snapshots() {
    let cases: [(&str, &[&str]); 3] = [
        ("config", &["config", "--threads", "2"]),
        ("estimate", &["estimate", "--rules", SHOP, "--subjects", "1000"]),
        (
            "explain",
            &[
                "explain",
                "--rules",
                PRECEDENCE,
                "--at",
                NOW,
                "path=/v1/items/7",
                "method=GET",
                "user=u",
                "plan=pro",
            ],
        ),
    ];
    for (name, args) in cases {
        let run = tollgate(&[args, &["--format", "json"]].concat());
        assert_snapshot(&format!("json/{name}.json"), &run.stdout);
    }
}

#[test]
fn every_command_documents_its_exit_codes_and_is_listed() {
    let all = tollgate(&["--help"]);
    for command in COMMANDS {
        assert!(
            all.stdout.lines().any(|line| line.trim_start().starts_with(&format!("{command} "))),
            "{command}"
        );
        let help = tollgate(&[command, "--help"]);
        assert_eq!(help.code, Some(0), "{command}");
        let (_, codes) =
            help.stdout.split_once("Exit codes:").unwrap_or_else(|| panic!("{command}: no exit codes"));
        assert!(codes.contains('0') && codes.contains('2'), "{command}: {codes}");
    }
    let listed = all
        .stdout
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    assert_eq!(
        listed.count(),
        COMMANDS.len() + 1,
        "all commands are in this test's list, and there is `help`"
    );
}

#[test]
fn invalid_command_line_or_file_exits_with_2_and_prints_an_error_first() {
    let cases: &[&[&str]] = &[
        &["lnt"],
        &["lint"],
        &["lint", "--format", "xml", SHOP],
        &["lint", "-", "-"],
        &["lint", "no/such/file.yaml"],
        &["lint", "examples"],
        &["explain", "tenant=acme"],
        &["explain", "--rules", "no/such/file.yaml"],
        &["explain", "--rules", SHOP, "tenant"],
        &["explain", "--rules", SHOP, "=acme"],
        &["explain", "--rules", SHOP, "tenant=a", "tenant=b"],
        &["explain", "--rules", SHOP, "--at", "tomorrow"],
        &["explain", "--rules", SHOP, "--at", "1969-12-31T00:00:00Z"],
        &["explain", "--rules", SHOP, "--at", "2300-01-01T00:00:00Z"],
        &["explain", "--rules", SHOP, "--hash-key-file", SHOP],
        &["check", "tenant=acme"],
        &["check", "--rules", "no/such/file.yaml"],
        &["check", "--rules", SHOP, "tenant=a", "tenant=b"],
        &["check", "--rules", SHOP, "--at", "+soon"],
        &["check", "--rules", SHOP, "--at", "1.5s"],
        &["check", "--rules", SHOP, "--times", "0"],
        &["check", "--rules", SHOP, "--format", "text"],
        &["check", "--rules", SHOP, "--cost", "1051", "action=export", "tenant=t"],
        &["serve", "--http", "localhost:8080"],
        &["serve", "--http", "0.0.0.0:8080"],
        &["serve", "--store", "redis://localhost:6379"],
        &["serve", "--rules", "no/such/file.yaml"],
        &["serve", "--hash-key", "0123"],
        &["config", "--config", "no/such/file.yaml"],
        &["config", "--format", "yaml"],
        &["config", "--tokens", "a"],
        &["token", "--scopes", "everything"],
        &["token", "--name", "two words"],
        &["try"],
        &["try", "token-bucket: 2/s", "--every", "soon"],
        &["try", "token-bucket: 2/s", "--cost", "3"],
        &["estimate", "--rules", SHOP],
        &["estimate", "--rules", SHOP, "--subjects", "0"],
        &["estimate", "--rules", SHOP, "--subjects", "many"],
        &["estimate", "--rules", SHOP, "--subjects", "login-account=7"],
        &["estimate", "--rules", SHOP, "--subjects", "7", "--subjects", "serch-per-key=7"],
        &["estimate", "--rules", SHOP, "--subjects", "7", "--engine", "memcached"],
        &["estimate", "--rules", SHOP, "--subjects", "7", "--engine", "redis", "--server", "redis"],
        &["config", "--grace", "1s", "--shutdown-timeout", "1s"],
        &["guide", "--want", "everything"],
        &["presets", "no-such-preset"],
        &["completions", "tcl"],
        &["man", "--out", SHOP],
    ];
    for args in cases {
        let run = tollgate(args);
        assert_eq!(run.code, Some(2), "{args:?}: {}", run.stderr);
        // A problem with a position has a code after the word.
        assert!(
            run.stderr.starts_with("error: ") || run.stderr.starts_with("error["),
            "{args:?}: {}",
            run.stderr
        );
    }
}

#[test]
fn schema_is_json_and_its_help_explains_editors() {
    let schema = tollgate(&["schema"]).json();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert!(schema["properties"]["rules"].is_object());
    assert!(tollgate(&["schema", "--help"]).stdout.contains("# yaml-language-server: $schema="));
}

#[test]
fn completions_of_every_shell_contain_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let run = tollgate(&["completions", shell]);
        assert_eq!(run.code, Some(0), "{shell}");
        for command in COMMANDS {
            assert!(run.stdout.contains(command), "{shell} {command}");
        }
        assert!(run.stdout.contains("deny-warnings"), "{shell}");
    }
}

#[test]
fn man_writes_a_page_for_every_command() {
    let page = tollgate(&["man"]);
    assert!(page.code == Some(0) && page.stdout.contains(".TH tollgate 1"), "{}", page.stdout);
    let folder = scratch("man").join("man1");
    let run = tollgate(&["man", "--out", folder.to_str().expect("a path of text")]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    for command in COMMANDS {
        let page = std::fs::read_to_string(folder.join(format!("tollgate-{command}.1"))).expect(command);
        assert!(page.contains(".SH NAME") && page.contains("Exit codes:"), "{command}");
    }
    // And one for `tollgate`, one for each format of `import`, those of `ledger` and `database`, of each kind of live changes, of
    // `rules`, `audit` and `token`.
    let more = 3 + 11 + 3 * 4 + 3 + 2 + 2;
    assert_eq!(std::fs::read_dir(&folder).expect("pages were written").count(), COMMANDS.len() + more);
}

#[test]
fn colours_need_a_terminal_and_respect_no_color() {
    let cases: [&[&str]; 4] = [
        &["lint", TYPOS],
        &["explain", "--rules", TYPOS],
        &["explain", "--rules", SHOP],
        &["try", "fixed-window: 3/h"],
    ];
    for args in cases {
        let coloured = |variables: &[(&str, &str)]| {
            let mut command = binary(args);
            command.envs(variables.iter().copied());
            let run = run(command, "");
            (run.stdout + &run.stderr).contains('\u{1b}')
        };
        assert!(!coloured(&[]), "{args:?} in a pipe");
        assert!(coloured(&[("CLICOLOR_FORCE", "1")]), "{args:?} when forced");
        assert!(!coloured(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]), "{args:?} with NO_COLOR");
    }
}

#[test]
fn closed_standard_output_exits_with_141_and_no_error() {
    let mut child = binary(&["try", "fixed-window: 3/h", "--times", "100000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut stderr).expect("it prints text");
    assert_eq!((child.wait().expect("the binary ends").code(), stderr.as_str()), (Some(141), ""));
}

#[test]
fn token_is_printed_once_and_its_line_contains_only_a_digest() {
    let folder = scratch("token");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let first = tollgate(&["token", "--name", "ci", "--scopes", "check,read,check"]);
    let second = tollgate(&["token"]);
    assert_eq!((first.code, second.code), (Some(0), Some(0)), "{}{}", first.stderr, second.stderr);
    let token = first.stdout.trim_end();
    assert!(token.starts_with("tg_") && token.len() == 67, "256 bits: {token}");
    assert_ne!(first.stdout, second.stdout);
    assert!(!first.stderr.contains(token) && first.stderr.contains("name: ci"), "{}", first.stderr);
    assert!(first.stderr.contains("scopes: [check, read]"), "{}", first.stderr);
    assert!(second.stderr.contains("name: client") && second.stderr.contains("scopes: [check] }"));

    let file = folder.join("tollgate.yaml");
    std::fs::write(&file, &first.stderr).expect("a file can be written");
    let file = file.to_str().expect("a path is text");
    let config = tollgate(&["config", "--config", file, "--http", "0.0.0.0:8080", "--format", "json"]);
    assert_eq!(config.code, Some(0), "the printed line is a valid configuration: {}", config.stderr);
    let settings = config.json();
    let of = |name: &str| {
        let all = settings["settings"].as_array().expect("a list").iter();
        all.clone().find(|setting| setting["name"] == name).cloned().expect("it is listed")
    };
    assert_eq!(of("tokens")["value"], "ci (check, read)");
    assert_eq!((&of("tokens")["from"], &of("tokens")["line"]), (&"file".into(), &2.into()));
    assert_eq!((&of("http")["from"], &of("http")["flag"]), (&"flag".into(), &"--http".into()));
    assert_eq!((&of("anonymous")["value"], &of("anonymous")["from"]), (&"none".into(), &"default".into()));
}

#[test]
fn config_shows_the_origin_of_every_setting() {
    let folder = scratch("settings");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let file = folder.join("tollgate.yaml");
    std::fs::write(&file, "shutdown_timeout: 1s\nthreads: 5\nconnections_max: 7\n")
        .expect("a file can be written");
    let mut command = binary(&["config", "--shutdown-timeout", "3s"]);
    command.env("TOLLGATE_CONFIG", &file).env("TOLLGATE_SHUTDOWN_TIMEOUT", "2s").env("TOLLGATE_THREADS", "6");
    command.env("TOLLGATE_STORE_PASSWORD", "s3cr3t");
    let run = run(command, "");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    let line = |name: &str| {
        let line = run.stdout.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.map(|line| line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>())
            .expect("it is listed")
    };
    assert_eq!(line("shutdown_timeout"), ["3s", "--shutdown-timeout"]);
    assert_eq!(line("threads"), ["6", "TOLLGATE_THREADS"]);
    assert_eq!(line("connections_max"), ["7", &format!("{}:3", file.display())]);
    assert_eq!(line("http"), ["127.0.0.1:8080", "default"]);
    assert_eq!(line("store_password"), ["(secret)", "TOLLGATE_STORE_PASSWORD"]);
    assert!(!run.stdout.contains("s3cr3t"));
}

#[test]
fn old_names_of_flags_are_accepted_with_one_warning_and_not_listed() {
    for (args, old, new) in [
        (&["config", "--grace", "7s"][..], "--grace", "--shutdown-timeout"),
        (&["estimate", "--rules", SHOP, "--subjects", "7", "--server", "valkey"], "--server", "--engine"),
    ] {
        let run = tollgate(args);
        assert_eq!(run.code, Some(0), "{args:?}: {}", run.stderr);
        let warning = format!("{old} was renamed to {new}\n");
        assert!(
            run.stderr.starts_with("warning") && run.stderr.contains(&warning),
            "{args:?}: {}",
            run.stderr
        );
        assert_eq!(run.stderr.matches("warning").count(), 1, "{args:?}: {}", run.stderr);
        let replaced = args.iter().map(|&arg| if arg == old { new } else { arg }).collect::<Vec<_>>();
        let renamed = tollgate(&replaced);
        assert_eq!((renamed.code, renamed.stderr.as_str()), (Some(0), ""), "{replaced:?}");
        assert_eq!(renamed.stdout.replace(new, old), run.stdout, "{args:?}");
        let help = tollgate(&[args[0], "--help"]).stdout;
        assert!(help.contains(new) && !help.contains(&format!("{old} ")), "{help}");
    }
}

#[test]
fn serve_and_config_ignore_the_variables_of_client_commands() {
    // `serve` reads its configuration, and fails only because of the store.
    let serve = [
        "serve",
        "--require-store",
        "--store",
        "redis://127.0.0.1:1",
        "--http",
        "127.0.0.1:0",
        "--resp",
        "off",
    ];
    for (args, code) in [(&["config"][..], 0), (&serve, 3)] {
        let mut command = binary(args);
        command.env("TOLLGATE_SERVER", "http://localhost:8080").env("TOLLGATE_TOKEN", "tg_00");
        command.env("TOLLGATE_TOKEN_FILE", "no/such/file").env("TOLLGATE_HASH_KEY", "5e".repeat(32));
        let run = run(command, "");
        assert_eq!(run.code, Some(code), "{args:?}: {}", run.stderr);
    }
}
