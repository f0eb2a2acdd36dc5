//! Runs every command that the documentation shows and compares its output with the page.

mod page;
mod redis_program;
mod session;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tollgate_testkit::redis::{Cluster, Flavour, SentinelSet, Server};
use tollgate_testkit::serving::Serving;

use page::{Action, Step, all_pages, is_shown, masked, root, steps};
use session::Session;

/// Their commands need sentinels and a cluster. The second page continues where the first one ends.
const REDIS_PAGES: [&str; 2] = ["docs/guides/redis.md", "docs/reference/redis.md"];
/// Pages that a reader follows from top to bottom, with servers and files that they start and write.
const SESSION_PAGES: [&str; 14] = [
    "README.md",
    "docs/start.md",
    "docs/guides/billing.md",
    "docs/guides/live-changes.md",
    "docs/guides/server.md",
    "docs/guides/simulate.md",
    "docs/operating/deploy.md",
    "docs/operating/ledger.md",
    "docs/operating/monitor.md",
    "docs/operating/runbook.md",
    "docs/operating/upgrade.md",
    "docs/operating/troubleshoot.md",
    "docs/operating/why.md",
    "docs/operating/doctor.md",
];
const PROGRAM: &str = include_str!("redis_program.rs");

#[test]
fn every_command_in_the_docs_prints_what_the_page_shows() {
    let mut commands = 0;
    for page in all_pages() {
        let followed = SESSION_PAGES.iter().chain(&REDIS_PAGES).any(|other| page == root().join(other));
        if followed {
            continue;
        }
        for Step { line, action } in steps(&page) {
            let position = format!("{}:{line}", page.display());
            match action {
                Action::Compare { command, output } => {
                    commands += 1;
                    compare(&format!("{position}: {command}"), &command, &output);
                }
                Action::Run { command } => {
                    panic!(
                        "{position}: {command}: add the page to SESSION_PAGES, so that its `sh` blocks are run"
                    )
                }
                // Only sessions need the files of a page.
                Action::Save { .. } => (),
            }
        }
    }
    assert!(commands > 0, "no page shows a command");
}

/// Runs one command of a page that needs no server.
fn compare(position: &str, command: &str, shown: &str) {
    let arguments =
        command.strip_prefix("tollgate ").unwrap_or_else(|| panic!("{position}: not a tollgate command"));
    let run = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(words(arguments).unwrap_or_else(|| panic!("{position}: unclosed quote")))
        .current_dir(root())
        .env_remove("CLICOLOR_FORCE")
        .env_remove("TOLLGATE_HASH_KEY")
        .output()
        .unwrap_or_else(|error| panic!("{position}: {error}"));
    let printed = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
    let (printed, shown) = (printed.trim_end(), shown.trim_end());
    assert!(is_shown(printed, shown), "{position}\nshown:\n{shown}\n\nprinted:\n{printed}");
}

#[test]
fn readme_can_be_followed() {
    Session::follow("README.md");
}

#[test]
fn start_page_can_be_followed() {
    Session::follow("docs/start.md");
}

#[test]
fn server_guide_can_be_followed() {
    Session::follow("docs/guides/server.md");
}

#[test]
fn simulate_guide_can_be_followed() {
    Session::follow("docs/guides/simulate.md");
}

#[test]
fn billing_guide_can_be_followed() {
    Session::follow("docs/guides/billing.md");
}

#[test]
fn guide_to_live_changes_can_be_followed() {
    Session::follow("docs/guides/live-changes.md");
}

#[test]
fn operating_pages_can_be_followed() {
    for page in SESSION_PAGES.iter().filter(|page| page.starts_with("docs/operating/")) {
        Session::follow(page);
    }
}

/// Also finds commands in sentences and in blocks that are not run.
#[test]
fn every_tollgate_command_in_the_docs_exists() {
    let list = |args: &[&str]| -> BTreeSet<String> {
        let run = Command::new(env!("CARGO_BIN_EXE_tollgate")).args(args).output().expect("the binary runs");
        let text = String::from_utf8(run.stdout).expect("text");
        let first_word = |line: &str| line.split_whitespace().next().map(str::to_owned);
        text.lines().filter_map(first_word).collect()
    };
    let (commands, presets) = (list(&["--help"]), list(&["presets"]));
    let is_name = |word: &str| word.starts_with(|c: char| c.is_ascii_lowercase());
    for page in all_pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for (index, line) in text.lines().enumerate() {
            let starts = line.match_indices("tollgate ").filter(|(at, _)| {
                let before = line[..*at].trim_start();
                before.is_empty() && line.starts_with("    ") || before == "$" || before.ends_with('`')
            });
            for (at, _) in starts {
                let end = line[at..].find('`').map_or(line.len(), |end| at + end);
                let words: Vec<&str> = line[at..end].split_whitespace().collect();
                let position = format!("{}:{}: {}", page.display(), index + 1, words.join(" "));
                if let [_, command, ..] = words[..]
                    && is_name(command)
                {
                    assert!(commands.contains(command), "{position}: unknown command");
                }
                // `cli.md` shows the error for a misspelled preset.
                if let [_, "presets", preset, ..] = words[..]
                    && is_name(preset)
                    && !page.ends_with("docs/reference/cli.md")
                {
                    assert!(presets.contains(preset), "{position}: unknown preset");
                }
            }
        }
    }
}

#[test]
fn guides_name_only_metrics_and_log_events_of_the_reference() {
    let reference = fs::read_to_string(root().join("docs/reference/metrics.md")).expect("the reference");
    let known: BTreeSet<&str> = reference.split(['`', '{', '[', ' ', ',']).collect();
    for page in SESSION_PAGES {
        let text = fs::read_to_string(root().join(page)).expect("a page");
        let names = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in names.filter(|name| name.starts_with("rate_limit_") || name.starts_with("tollgate_")) {
            let family = name.trim_end_matches("_bucket");
            assert!(known.contains(family), "{page}: unknown metric {name}");
        }
        let (_, events) = text.split_once("## Log events").unwrap_or_default();
        for row in
            events.lines().take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with("| `"))
        {
            let cell = row.split('|').nth(1).unwrap_or_default();
            for event in cell.split('`').skip(1).step_by(2) {
                assert!(known.contains(event), "{page}: unknown log event {event}");
            }
        }
    }
}

/// Promises and decision records are worth as much as the tests that they name.
#[test]
fn every_test_named_by_promises_and_decisions_exists() {
    let mut sources = Vec::new();
    for folder in ["crates", "xtask"] {
        collect_sources(&root().join(folder), &mut sources);
    }
    let tests: BTreeSet<String> = sources
        .iter()
        .flat_map(|source| source.lines())
        .filter_map(|line| {
            let name = line
                .trim_start()
                .trim_start_matches("pub(crate) ")
                .trim_start_matches("async ")
                .strip_prefix("fn ")?;
            Some(name.split(['(', '<']).next().unwrap_or(name).to_owned())
        })
        .collect();
    let mut pages = vec![root().join("docs/promises.md")];
    let records = fs::read_dir(root().join("docs/decisions")).expect("the decision records");
    pages.extend(records.map(|entry| entry.expect("the decision records").path()));
    let mut named = 0;
    for page in pages {
        let text = fs::read_to_string(&page).expect("the page");
        for name in tests_named_in(&text) {
            named += 1;
            assert!(tests.contains(name), "{}: test `{name}` does not exist", page.display());
        }
    }
    assert!(named > 40, "the pages name tests");
}

/// The code spans of a page that have the form of a test name.
fn tests_named_in(page: &str) -> impl Iterator<Item = &str> {
    let spans = page.split('`').skip(1).step_by(2);
    spans
        .filter(|name| name.matches('_').count() > 2 && !name.contains([' ', '.', ':', '=']))
        .filter(|name| !name.starts_with("rate_limit_"))
}

fn collect_sources(folder: &Path, sources: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("read the sources") {
        let path: PathBuf = entry.expect("read the sources").path();
        if path.is_dir() && !path.ends_with("target") {
            collect_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(fs::read_to_string(&path).expect("a source file"));
        }
    }
}

#[test]
fn metrics_page_lists_exactly_the_metric_families_of_a_server() {
    let page = fs::read_to_string(root().join("docs/reference/metrics.md")).expect("the page");
    let redis = Server::start(Flavour::Redis70).expect("a Redis server");
    let key = redis.folder().join("key");
    fs::write(&key, "5e".repeat(32)).expect("write the hash key");
    let (url, key) = (redis.url(), key.to_str().expect("a path of text").to_owned());
    let capture = redis.folder().join("capture.jsonl");
    let capture = capture.to_str().expect("a path of text");
    let with_memory = Serving::start(env!("CARGO_BIN_EXE_tollgate"), &["--capture-file", capture]);
    let with_redis =
        Serving::start(env!("CARGO_BIN_EXE_tollgate"), &["--store", &url, "--hash-key-file", &key]);
    let database = format!("sqlite:{}", redis.folder().join("usage.db").display());
    let with_ledger =
        Serving::start(env!("CARGO_BIN_EXE_tollgate"), &["--database", &database, "--hash-key-file", &key]);
    let mut counted = BTreeSet::new();
    for server in [&with_memory, &with_redis, &with_ledger] {
        let url = format!("http://{}/metrics", server.http);
        let run = Command::new("curl").args(["--silent", "--fail", &url]).output().expect("curl runs");
        let text = String::from_utf8(run.stdout).expect("text");
        counted.extend(
            text.lines().filter_map(|line| Some(line.strip_prefix("# TYPE ")?.split_once(' ')?.0.to_owned())),
        );
    }
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let names = rows.filter_map(|row| row.split('|').nth(1)).flat_map(|cell| cell.split('`'));
    let named: BTreeSet<String> = names
        .filter(|name| name.starts_with("rate_limit_") || name.starts_with("tollgate_"))
        .map(str::to_owned)
        .collect();
    assert_eq!(named, counted);
}

/// Runs against a server with TLS and the user of the page, a primary with sentinels, and a cluster.
#[test]
fn every_command_of_the_redis_pages_prints_what_the_page_shows() {
    let server = Server::builder(Flavour::Redis70).tls().start().expect("a Redis server");
    let folder = server.folder().join("reader");
    fs::create_dir(&folder).expect("a folder");
    symlink(root().join("examples").canonicalize().expect("the examples"), folder.join("examples"))
        .expect("a link");
    fs::copy(server.certificates().expect("TLS").authority(), folder.join("ca.pem")).expect("copy the CA");
    fs::write(folder.join("password"), "secret\n").expect("write the password");
    let tollgate = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().expect("the folder of the binary");
    let path = format!("{}:{}", tollgate.display(), std::env::var("PATH").expect("PATH"));
    let tls_port = server.tls_port().expect("TLS");
    let set = SentinelSet::start(Flavour::Redis70).expect("a set with sentinels");
    let cluster = Cluster::start(Flavour::Redis70).expect("a cluster");
    let sentinels = set.sentinel_ports();
    let mut addresses =
        vec![("redis.example.com:6379".to_owned(), tls_port), ("localhost:6379".to_owned(), server.port())];
    for (node, sentinel) in sentinels.into_iter().enumerate() {
        let number = node + 1;
        addresses.push((format!("s{number}.example.com:26379"), sentinel));
        addresses.push((format!("c{number}.example.com:6379"), cluster.node_port(node)));
    }
    let mut commands: Vec<(String, String, String)> = Vec::new();
    for page in REDIS_PAGES {
        for Step { line, action } in steps(&root().join(page)) {
            let Action::Compare { command, output } = action else {
                panic!("{page}:{line}: show commands of this page in `console` blocks")
            };
            commands.push((format!("{page}:{line}"), command, output));
        }
    }
    // The guide uses the ACL user before it shows how to create it.
    commands.sort_by_key(|(_, command, _)| !command.contains("ACL SETUSER"));
    assert!(commands.len() > 8, "the pages show commands");
    for (position, command, output) in commands {
        let real = addresses.iter().fold(command.clone(), |command, (shown, port)| {
            command.replace(shown, &format!("127.0.0.1:{port}"))
        });
        let run = Command::new("sh")
            .args(["-c", &real])
            .current_dir(&folder)
            .env("PATH", &path)
            .env_remove("CLICOLOR_FORCE")
            .env_remove("TOLLGATE_HASH_KEY")
            .env_remove("TOLLGATE_STORE_PASSWORD")
            .env_remove("TOLLGATE_STORE_SENTINEL_PASSWORD")
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("{position}: {error}"));
        let printed = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
        assert!(
            is_shown(&masked(&printed), &masked(&output)),
            "{position}: {command}\nshown:\n{output}\nprinted:\n{printed}"
        );
        if command.contains("SENTINEL FAILOVER") {
            set.wait_settled().expect("the failover ends");
        }
    }
}

#[test]
fn redis_guide_shows_the_program_that_runs() {
    let page = fs::read_to_string(root().join(REDIS_PAGES[0])).expect("the page");
    let (_, shown) = PROGRAM.split_once("\n\n").expect("a header and the program");
    assert!(page.contains(&format!("```rust\n{shown}```\n")), "the page does not show {shown}");

    let server = Server::start(Flavour::Redis70).expect("a Redis server");
    // The program names its rules file relative to the root of the repository.
    std::env::set_current_dir(root()).expect("the root");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let limiter = redis_program::limiter(&server.url(), &"5e".repeat(32)).await.expect("a limiter");
        let request = [("action", "search"), ("tenant", "t"), ("user", "u")];
        let decision = limiter.check(request).await.expect("a decision");
        assert_eq!(decision.rule(), Some("search-per-key"));
        assert!(decision.allowed() && !decision.degraded());
    });
}

/// Splits a command line as a shell does: blanks separate words, single quotes keep them together.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    (!quoted).then_some(words)
}

#[test]
fn commands_are_split_as_a_shell_does() {
    for (line, expected) in [
        ("try --times 3", Some(vec!["try", "--times", "3"])),
        (
            "try 'token-bucket: 2/s, burst: 5' --cost  1",
            Some(vec!["try", "token-bucket: 2/s, burst: 5", "--cost", "1"]),
        ),
        ("user='Jo Doe' x=''", Some(vec!["user=Jo Doe", "x="])),
        ("''", Some(vec![""])),
        ("try 'open", None),
    ] {
        let expected = expected.map(|words| words.into_iter().map(str::to_owned).collect());
        assert_eq!(words(line), expected, "{line}");
    }
}
