//! Every command a page shows is run, and prints what the page says it prints. Those of the page about Redis get a server.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tollgate::Attributes;
use tollgate_testkit::redis::{Cluster, Flavour, SentinelSet, Server};
use tollgate_testkit::serving::Serving;

#[path = "redis_guide/program.rs"]
mod program;

/// Its commands need a server, and are run by a test of their own.
const REDIS_PAGE: &str = "docs/guides/redis.md";
const SERVER_PAGE: &str = "docs/guides/server.md";
const PROGRAM: &str = include_str!("redis_guide/program.rs");

/// A command in a `console` block and the lines below it.
struct Shown {
    page: PathBuf,
    line: usize,
    command: String,
    output: String,
}

#[test]
fn every_command_in_the_docs_prints_what_the_page_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    collect(&root.join("docs"), &mut pages);
    pages.retain(|page| *page != root.join(REDIS_PAGE) && *page != root.join(SERVER_PAGE));
    let shown: Vec<Shown> = pages.iter().flat_map(|page| shown_in(page)).collect();
    assert!(!shown.is_empty(), "no page shows a command");
    for Shown { page, line, command, output } in shown {
        let place = format!("{}:{line}: {command}", page.display());
        let arguments =
            command.strip_prefix("tollgate ").unwrap_or_else(|| panic!("{place}: only tollgate is run"));
        let run = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(words(arguments).unwrap_or_else(|| panic!("{place}: a quote is not closed")))
            .current_dir(&root)
            .env_remove("CLICOLOR_FORCE")
            .env_remove("TOLLGATE_HASH_KEY")
            .output()
            .unwrap_or_else(|error| panic!("{place}: {error}"));
        let printed = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
        let (printed, output) = (printed.trim_end(), output.trim_end());
        assert!(is_shown(printed, output), "{place}\nshown:\n{output}\n\nprinted:\n{printed}");
    }
}

/// The commands of the page about servers, in their order and by a shell, against one that was told nothing.
#[test]
fn every_command_of_the_server_guide_prints_what_the_page_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let server = Serving::start(env!("CARGO_BIN_EXE_tollgate"), &[]);
    let tollgate = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().expect("it lies in a folder");
    let path = format!("{}:{}", tollgate.display(), std::env::var("PATH").expect("there is a path"));
    let shown = shown_in(&root.join(SERVER_PAGE));
    assert!(shown.len() > 3, "the page shows commands");
    for Shown { line, command, output, .. } in shown {
        let real = command
            .replace("localhost:8080", &server.http.to_string())
            .replace("-h localhost -p 6380", &format!("-h 127.0.0.1 -p {}", server.resp.port()));
        let run = Command::new("sh").args(["-c", &real]).env("PATH", &path).output().expect("a shell");
        let printed = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
        assert!(
            is_shown(printed.trim_end(), output.trim_end()),
            "{SERVER_PAGE}:{line}: {command}\nshown:\n{output}\nprinted:\n{printed}"
        );
    }
}

/// Every family of a server on either store is on the page, and nothing else is.
#[test]
fn the_page_of_metrics_names_what_servers_count_and_nothing_else() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/reference/metrics.md")).expect("the page can be read");
    let redis = Server::start(Flavour::Redis70).expect("a server starts");
    let key = redis.folder().join("key");
    fs::write(&key, "5e".repeat(32)).expect("a file can be written");
    let (url, key) = (redis.url(), key.to_str().expect("a path of text").to_owned());
    let in_memory = Serving::start(env!("CARGO_BIN_EXE_tollgate"), &[]);
    let in_redis =
        Serving::start(env!("CARGO_BIN_EXE_tollgate"), &["--store", &url, "--hash-key-file", &key]);
    let mut counted = BTreeSet::new();
    for server in [&in_memory, &in_redis] {
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

/// The commands of the page about Redis, in their order and by a shell, against a server with TLS and with the user of
/// the page, a set with sentinels and a cluster. Instants, waits and hashes differ from run to run: that there is one is
/// what counts.
#[test]
fn every_command_of_the_redis_guide_prints_what_the_page_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let server = Server::builder(Flavour::Redis70).tls().start().expect("a server starts");
    let folder = server.folder().join("reader");
    fs::create_dir(&folder).expect("a folder can be made");
    symlink(root.join("examples").canonicalize().expect("there are examples"), folder.join("examples"))
        .expect("a link can be made");
    fs::copy(server.certificates().expect("it has TLS").authority(), folder.join("ca.pem"))
        .expect("a file can be copied");
    fs::write(folder.join("password"), "secret\n").expect("a file can be written");
    let tollgate = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().expect("it lies in a folder");
    let path = format!("{}:{}", tollgate.display(), std::env::var("PATH").expect("there is a path"));
    let tls_port = server.tls_port().expect("it has TLS");
    let set = SentinelSet::start(Flavour::Redis70).expect("a set starts");
    let cluster = Cluster::start(Flavour::Redis70).expect("a cluster starts");
    let sentinels = set.sentinel_ports();
    let mut places =
        vec![("redis.example.com:6379".to_owned(), tls_port), ("localhost:6379".to_owned(), server.port())];
    for (node, sentinel) in sentinels.into_iter().enumerate() {
        let number = node + 1;
        places.push((format!("s{number}.example.com:26379"), sentinel));
        places.push((format!("c{number}.example.com:6379"), cluster.node_port(node)));
    }
    // The page comes to the user before it has made it.
    let mut shown = shown_in(&root.join(REDIS_PAGE));
    shown.sort_by_key(|shown| !shown.command.contains("ACL SETUSER"));
    assert!(shown.len() > 8, "the page shows commands");
    for Shown { line, command, output, .. } in shown {
        let real = places.iter().fold(command.clone(), |command, (shown, port)| {
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
            .unwrap_or_else(|error| panic!("{line}: {error}"));
        let printed = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
        let (told, expected) = (masked(&printed), masked(&output));
        assert!(
            is_shown(&told, &expected),
            "{REDIS_PAGE}:{line}: {command}\nshown:\n{output}\nprinted:\n{printed}"
        );
        if command.contains("SENTINEL FAILOVER") {
            set.wait_settled().expect("the reader types no faster than that");
        }
    }
}

#[test]
fn the_program_of_the_redis_guide_runs_as_the_page_shows_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join(REDIS_PAGE)).expect("the page can be read");
    let (_, shown) = PROGRAM.split_once("\n\n").expect("a line says what the file is");
    assert!(page.contains(&format!("```rust\n{shown}```\n")), "the page does not show {shown}");

    let server = Server::start(Flavour::Redis70).expect("a server starts");
    // The program reads its rules from where examples lie.
    std::env::set_current_dir(root).expect("there is a root");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let limiter = program::limiter(&server.url(), &"5e".repeat(32)).await.expect("a limiter");
        let request = Attributes::from([("action", "search"), ("tenant", "t"), ("user", "u")]);
        let decision = limiter.check(&request).await.expect("a decision");
        assert_eq!(decision.headline().map(|rule| rule.id()), Some("search-per-key"));
        assert!(decision.allowed && !decision.degraded);
    });
}

/// The words of each line, one blank apart; instants, waits and hashes by what they are.
fn masked(text: &str) -> String {
    let line = |line: &str| line.split_whitespace().map(mask).collect::<Vec<_>>().join(" ");
    text.trim_end().lines().map(line).collect::<Vec<_>>().join("\n")
}

fn mask(word: &str) -> String {
    let is_hash = |part: &str| {
        part.len() == 22 && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let starts = word.starts_with(|c: char| c.is_ascii_digit());
    if starts && word.contains('T') && word.ends_with('Z') && digits >= 14 {
        return "INSTANT".to_owned();
    }
    let units = word.split(|c: char| c.is_ascii_digit()).filter(|unit| !unit.is_empty());
    if starts && digits < word.len() && units.clone().all(|unit| ["ms", "s", "min", "h", "d"].contains(&unit))
    {
        return "WAIT".to_owned();
    }
    let parts = word.split(':').map(|part| {
        let bare = part.trim_start_matches('{').trim_end_matches('}');
        if is_hash(bare) { part.replace(bare, "HASH") } else { part.to_owned() }
    });
    parts.collect::<Vec<_>>().join(":")
}

#[test]
fn what_differs_from_run_to_run_is_masked_and_nothing_else() {
    for (word, expected) in [
        ("2026-11-16T09:30:00.123456Z", "INSTANT"),
        ("500ms", "WAIT"),
        ("14d13h30min", "WAIT"),
        ("tg:1:n:{AAv7LzIOy6gMWogPYx0XU3}:r:AAaW32L4l3DTl86dhIZV1r", "tg:1:n:{HASH}:r:HASH"),
        ("400", "400"),
        ("-", "-"),
        ("1.2GiB", "1.2GiB"),
        ("exports-per-month", "exports-per-month"),
    ] {
        assert_eq!(mask(word), expected);
    }
    assert_eq!(masked("a   b\n\n c \n"), "a b\n\nc");
}

/// The words of a command line, of which a shell would make the same: blanks separate, single quotes keep together.
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

/// Whether a page that shows `shown` tells the truth about `printed`. A line of three dots stands for any lines.
fn is_shown(printed: &str, shown: &str) -> bool {
    let shown: Vec<&str> = shown.lines().collect();
    let parts: Vec<&[&str]> = shown.split(|line| *line == "...").collect();
    let mut rest: &[&str] = &printed.lines().collect::<Vec<_>>();
    let last = parts.len() - 1;
    for (index, part) in parts.iter().enumerate() {
        let found = match index {
            0 if last == 0 => (rest == *part).then_some(0),
            0 => rest.starts_with(part).then_some(0),
            index if index == last => rest.ends_with(part).then(|| rest.len() - part.len()),
            _ => (0..rest.len()).find(|&at| rest[at..].starts_with(part)),
        };
        let Some(at) = found else { return false };
        rest = &rest[at + part.len()..];
    }
    true
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

#[test]
fn three_dots_stand_for_any_lines_and_for_nothing_else() {
    for (shown, is) in [
        ("a\nb\nc\nd", true),
        ("a\n...\nd", true),
        ("...\nd", true),
        ("a\n...", true),
        ("a\n...\nc\n...", true),
        ("a\nb", false),
        ("b\n...\nd", false),
        ("a\n...\nc", false),
        ("a\n...\nx\n...\nd", false),
        ("a\nb\nc\n...\nc\nd", false),
        ("...\nd\n...\nc", false),
    ] {
        assert_eq!(is_shown("a\nb\nc\nd", shown), is, "{shown:?}");
    }
}

fn collect(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("docs can be read") {
        let path = entry.expect("docs can be read").path();
        if path.is_dir() {
            collect(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

/// Commands start with `$ ` inside a block that opens with three backticks and `console`.
fn shown_in(page: &Path) -> Vec<Shown> {
    let text = fs::read_to_string(page).expect("a page can be read");
    let mut shown: Vec<Shown> = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            line if inside => match (line.strip_prefix("$ "), shown.last_mut()) {
                (Some(command), _) => shown.push(Shown {
                    page: page.to_owned(),
                    line: index + 1,
                    command: command.to_owned(),
                    output: String::new(),
                }),
                (None, Some(last)) => last.output += &format!("{line}\n"),
                (None, None) => panic!("{}:{}: output without a command", page.display(), index + 1),
            },
            _ => (),
        }
    }
    shown
}
