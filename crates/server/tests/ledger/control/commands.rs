//! The commands of live changes, the audit trail and rules, against real servers.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use tollgate_testkit::serving::Serving;

use super::http::eventually;
use super::{BINARY, Operators, RULES, limit_of, status_of};
use crate::stop;

/// A command that has run.
#[derive(Debug)]
struct Done {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Done {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON in each line")).collect()
    }
}

/// Runs a command with the token that may change.
fn command(operators: &Operators, server: &Serving, args: &[&str]) -> Done {
    run_as(&operators.change, server, args)
}

fn run_as(token: &str, server: &Serving, args: &[&str]) -> Done {
    let mut command = Command::new(BINARY);
    command.args(args).env("TOLLGATE_SERVER", format!("http://{}", server.http)).env("TOLLGATE_TOKEN", token);
    command.env_remove("TOLLGATE_TOKEN_FILE");
    let output = command.output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Done {
        code: output.status.code().expect("it exits"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// The words of a command line without quotes.
fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[test]
fn an_override_is_added_listed_and_removed_by_command() {
    let operators = Operators::new();
    let server = operators.serve(&[]);
    let acme = json!({ "action": "search", "tenant": "acme" });
    let run = |line: &str| command(&operators, &server, &words(line));

    let add = "override add --rule search --when tenant=acme --scale 2 --for 2h --reason launch --id o-1";
    let trial = run(&format!("{add} --dry-run"));
    assert_eq!((trial.code, limit_of(&server, &acme)), (0, 10), "{trial:?}");
    assert!(trial.stdout.starts_with("would add o-1: it raises the limit\n"), "{trial:?}");
    let added = run(add);
    assert_eq!((added.code, limit_of(&server, &acme)), (0, 20), "{added:?}");
    assert!(added.stdout.starts_with("added o-1: it raises the limit\n"), "{added:?}");
    // The id makes a repeated call harmless, and another change under it a conflict.
    let rows = run("audit list --format json").lines().len();
    assert_eq!((run(add).code, run("audit list --format json").lines().len()), (0, rows));
    assert_eq!(run(&add.replace("scale 2", "scale 3")).code, 4);

    let listed = run("override list --format json").json();
    assert_eq!(listed["changes"][0]["when"], json!({ "tenant": "acme" }), "{listed}");
    let table = run("override list").stdout;
    let row = table.lines().nth(1).expect("a row");
    for cell in ["o-1", "search", "tenant=acme", "x 2", "change-read", "launch", "in force"] {
        assert!(row.contains(cell), "{cell}: {table}");
    }
    assert!(run("override show o-1").stdout.contains("when    tenant=acme\n"));

    // Less than now needs a word, and so does an end that is missing.
    let lower = words("override add --rule search --when tenant=acme --for 1h --reason abuse");
    let lower = [&lower[..], &["--limit", "fixed-window: 1/h"]].concat();
    let declined = command(&operators, &server, &lower);
    assert_eq!(declined.code, 4, "{declined:?}");
    assert!(declined.stderr.contains("(lowers)"), "{declined:?}");
    let lowered = command(&operators, &server, &[&lower[..], &["--allow-lower"]].concat());
    assert_eq!((lowered.code, limit_of(&server, &acme)), (0, 1), "{lowered:?}");
    let endless = run("override add --rule search --when tenant=acme --scale 2 --reason x");
    assert_eq!(endless.code, 2);
    assert!(endless.stderr.contains("missing end"), "{endless:?}");

    let removed = run("override remove o-1 --reason over");
    assert_eq!(removed.code, 0, "{removed:?}");
    assert!(removed.stdout.starts_with("removed o-1\n"), "{removed:?}");
    let gone = run("override show o-1");
    assert_eq!(gone.code, 2, "{gone:?}");
    assert!(gone.stderr.contains("no live change has the id `o-1`"), "{gone:?}");
    // A token that may only read.
    let refused = run_as(&operators.read, &server, &words("deny add --when tenant=x --reason y"));
    assert_eq!(refused.code, 4, "{refused:?}");
    assert_eq!(
        run_as(&operators.read, &server, &words("deny list")).stdout,
        "no live changes of this kind; `tollgate deny add` makes one\n"
    );
    assert_eq!(run("override show ../v1/audit").code, 2);
}

#[test]
fn a_subject_is_denied_by_the_hash_that_top_shows_and_a_bypass_lets_pass() {
    let operators = Operators::new();
    let server = operators.serve(&[]);
    let acme = json!({ "action": "search", "tenant": "acme" });
    let run = |line: &str| command(&operators, &server, &words(line));
    let why = run("why action=search tenant=acme --format json").json();
    let subject = why["rules"][0]["subject"].as_str().expect("a hash").to_owned();
    let denied = run(&format!("deny add --rule search --subject {subject} --reason abuse --id d-1"));
    assert_eq!((denied.code, status_of(&server, &acme)), (0, 403), "{denied:?}");
    let without_rule = run(&format!("deny add --subject {subject} --reason abuse"));
    assert_eq!(without_rule.code, 2);
    assert_eq!((run("deny remove d-1 --reason mistake").code, status_of(&server, &acme)), (0, 200));

    let bypass = run("bypass add --when tenant=acme --for 1h --reason test --id b-1 --format json").json();
    assert_eq!((&bypass["kind"], &bypass["in_force"]), (&json!("bypass"), &json!(true)));
    let used = run_as("", &server, &words("check action=search tenant=acme --times 30"));
    assert_eq!(used.code, 0, "{used:?}");
    // Everybody needs a word.
    let all = run("bypass add --for 1h --reason test");
    assert_eq!(all.code, 2);
    assert!(all.stderr.contains("all: true"), "{all:?}");
    assert_eq!(run("bypass add --all --for 1h --reason test --dry-run").code, 0);
}

/// The block goes into the rules file, and means there what the live change meant.
#[test]
fn a_list_as_yaml_is_a_block_for_the_rules_file() {
    let operators = Operators::new();
    let server = operators.serve(&[]);
    let key = operators.place.path("api-key");
    fs::write(&key, "sk-live-1\n").expect("a file can be written");
    for line in [
        "override add --rule search --when tenant=acme --scale 2.5 --for 2h --reason launch",
        "override add --rule search --when tenant=b --when tenant=c --when path={\"prefix\":\"/v\"} --limit {\"fixed-window\":\"30/h\"} --permanent --reason contract",
        "override add --rule search --all --scale 3 --permanent --reason everybody",
        &format!("override add --rule calls --when api_key=@{key} --scale 2 --permanent --reason vip"),
        "deny add --when ip=192.0.2.0/24 --for 1h --reason flood",
        "bypass add --when user=load* --permanent --reason test",
    ] {
        let added = command(&operators, &server, &words(line));
        assert_eq!(added.code, 0, "{line}: {added:?}");
        assert!(!added.stdout.contains("sk-live-1"), "{added:?}");
    }
    let audit = command(&operators, &server, &["audit", "list", "--format", "json"]).stdout;
    for (what, text) in [("audit", audit), ("log", server.text())] {
        assert!(!text.contains("sk-live-1"), "{what}: {text}");
    }
    let [overrides, deny, bypass] = ["override", "deny", "bypass"]
        .map(|kind| command(&operators, &server, &[kind, "list", "--format", "yaml"]).stdout);
    assert!(
        overrides.contains("names a value by its keyed hash") && deny.contains("ends at"),
        "{overrides}{deny}"
    );
    let rules = &RULES[..RULES.find("overrides:").expect("overrides")];
    let file = operators.place.path("with-block.yaml");
    fs::write(&file, format!("{rules}{overrides}{deny}{bypass}")).expect("a file can be written");
    let linted = command(&operators, &server, &["lint", &file]);
    assert_eq!(linted.code, 0, "{linted:?}\n{overrides}{deny}{bypass}");
    for (attributes, limit) in
        [("tenant=acme", "\"limit\":25"), ("tenant=c path=/v1", "\"limit\":30"), ("tenant=x", "\"limit\":30")]
    {
        let line = format!("check --peek --format json action=search {attributes} --rules {file}");
        let checked = command(&operators, &server, &words(&line));
        assert!(checked.stdout.contains(limit), "{attributes}: {checked:?}");
    }
}

#[test]
fn the_audit_trail_is_listed_followed_and_verified_by_command() {
    let operators = Operators::new();
    let server = operators.serve(&[]);
    let run = |line: &str| command(&operators, &server, &words(line));
    for scale in [2, 3] {
        let line = format!(
            "override add --rule search --when tenant=acme --scale {scale} --for 1h --reason =1+{scale} --id o-{scale}"
        );
        assert_eq!(run(&line).code, 0);
    }
    let rows = || run("audit list --since 1h --format json").lines();
    assert!(eventually(|| rows().iter().any(|row| row["action"] == "server.started")));
    let added: Vec<Value> = rows().into_iter().filter(|row| row["action"] == "override.add").collect();
    assert_eq!(added.len(), 2, "{added:?}");
    let table = run("audit list").stdout;
    assert!(table.contains("search tenant=acme x 3") && table.contains("change-read"), "{table}");
    // A spreadsheet does not compute what a reason says.
    assert!(run("audit list --format csv").stdout.contains(",'=1+2\n"));

    let mut follow = Command::new(BINARY)
        .args(["audit", "list", "--follow", "--format", "json"])
        .env("TOLLGATE_SERVER", format!("http://{}", server.http))
        .env("TOLLGATE_TOKEN", &operators.read)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let lines = std::io::BufReader::new(follow.stdout.take().expect("a pipe"));
    let mut lines = std::io::BufRead::lines(lines);
    let mut next = |action: &str| {
        lines.by_ref().map(|line| line.expect("a line")).find(|line| line.contains(action)).expect("a row")
    };
    next("override.add");
    assert_eq!(run("deny add --when tenant=x --reason followed").code, 0);
    assert!(next("deny.add").contains("followed"));
    follow.kill().expect("it ends");
    follow.wait().expect("it ends");

    let verified = run("audit verify");
    assert_eq!(verified.code, 0, "{verified:?}");
    let head = verified.stdout.trim().rsplit(' ').next().expect("a head").to_owned();
    assert_eq!(run(&format!("audit verify --expect {head}")).code, 0);
    let (seq, hash) = head.split_once(':').expect("number and hash");
    let wrong = run(&format!(
        "audit verify --format json --expect {seq}:{}",
        hash.replace(['0', '1', '2', '3'], "f")
    ));
    assert_eq!((wrong.code, &wrong.json()["intact"]), (1, &json!(false)));
    assert_eq!(run("audit verify --expect 5").code, 2);
    // The command recomputes the hashes: a row that was edited in the database is found.
    stop(server);
    let file = rusqlite::Connection::open(operators.place.path("usage.db")).expect("it opens");
    assert_eq!(file.execute("UPDATE audit SET reason = 'x' WHERE seq = 2", []).expect("it changes a row"), 1);
    let server = operators.serve(&[]);
    let found = command(&operators, &server, &["audit", "verify"]);
    assert_eq!(found.code, 1, "{found:?}");
    assert_eq!(found.stdout, "the trail is not intact: row 2 was changed after it was written, or moved\n");
}

#[test]
fn rules_are_compared_and_their_history_is_shown_by_command() {
    let operators = Operators::new();
    let server = operators.serve(&[]);
    let rules = operators.place.path("rules.yaml");
    let diff = |file: &str| command(&operators, &server, &["rules", "diff", file]);
    let same = diff(&rules);
    assert_eq!(same.code, 0, "{same:?}");
    // Live changes are not a difference; nor are comments.
    let add = "override add --rule search --when tenant=acme --scale 2 --for 2h --reason launch";
    assert_eq!(command(&operators, &server, &words(add)).code, 0);
    let other = operators.place.path("other.yaml");
    fs::write(&other, format!("# note\n{RULES}")).expect("a file can be written");
    let commented = diff(&other);
    assert_eq!(commented.code, 0, "{commented:?}");
    assert!(commented.stdout.starts_with("no difference but comments and layout"), "{commented:?}");
    let cost = RULES.replace(
        "per: tenant, limit: { fixed-window: 10/h }",
        "per: tenant, limit: { fixed-window: 11/h }, on_failure: closed",
    );
    fs::write(&other, &cost).expect("a file can be written");
    let differs = diff(&other);
    assert_eq!(differs.code, 1, "{differs:?}");
    for line in ["~ rule search", "on_failure: nothing on the server, closed in the file"] {
        assert!(differs.stdout.contains(line), "{differs:?}");
    }
    fs::write(&other, "rules: [").expect("a file can be written");
    assert_eq!(diff(&other).code, 2);

    let fingerprint =
        |file: &str| command(&operators, &server, &["rules", "fingerprint", file]).stdout.trim().to_owned();
    let first = fingerprint(&rules);
    fs::write(&rules, &cost).expect("a file can be written");
    server.signal("HUP");
    let second = fingerprint(&rules);
    assert_ne!(first, second);
    let history = || command(&operators, &server, &["rules", "history"]).stdout;
    assert!(eventually(|| history()
        .lines()
        .last()
        .is_some_and(|line| line.contains(&second) && line.contains(&first))));
    assert!(
        history().lines().nth(1).is_some_and(|line| line.contains(&first) && line.ends_with("started")),
        "{}",
        history()
    );
    let at = |when: &str| command(&operators, &server, &["rules", "history", "--at", when]);
    assert_eq!(at("2020-01-01T00:00:00Z").code, 1);
    assert!(at("2099-01-01T00:00:00Z").stdout.contains(&second));
}

#[test]
fn a_reset_by_command_is_audited_and_can_be_tried() {
    let operators = Operators::new();
    let server = operators.serve(&[]);
    let attributes = json!({ "action": "search", "tenant": "acme" });
    let run = |line: &str| command(&operators, &server, &words(line));
    // Anonymous callers may check; this token may not.
    assert_eq!(run_as("", &server, &words("check --times 11 action=search tenant=acme")).code, 1);
    let reset = "reset --rule search --reason ticket-4711 action=search tenant=acme";
    let trial = run(&format!("{reset} --dry-run"));
    assert_eq!((trial.code, status_of(&server, &attributes)), (0, 429), "{trial:?}");
    assert!(trial.stdout.starts_with("would delete the consumption of "), "{trial:?}");
    let done = run(reset);
    assert_eq!((done.code, status_of(&server, &attributes)), (0, 200), "{done:?}");
    let other = run("reset --rule search --reason x action=none tenant=acme");
    assert_eq!(other.code, 1, "{other:?}");
    assert!(other.stdout.starts_with("nothing was deleted: rule search does not match"), "{other:?}");
    let audit = run("audit list --format json").stdout;
    assert!(audit.contains("ticket-4711") && !audit.contains("acme"), "{audit}");
    let both = run("reset --rule search --reason x --rules rules.yaml --server http://localhost:1 tenant=a");
    assert_eq!(both.code, 2, "{both:?}");
}

#[test]
fn tokens_of_a_configuration_are_listed_without_secrets() {
    let operators = Operators::new();
    let server = operators.serve(&[]);
    let config = operators.place.path("tollgate.yaml");
    let listed = command(&operators, &server, &["token", "list", "--config", &config]);
    assert_eq!(listed.code, 0, "{listed:?}");
    assert!(
        listed.stdout.lines().any(|line| line.starts_with("change-read  ") && line.contains("change")),
        "{listed:?}"
    );
    assert!(!listed.stdout.contains(&operators.change));
    let [plain, new] = [&["token", "--name", "x"][..], &["token", "new", "--name", "x"]]
        .map(|args| command(&operators, &server, args));
    for created in [plain, new] {
        assert!(created.code == 0 && created.stdout.starts_with("tg_"), "{created:?}");
    }
}

/// Commands without a database name the setting.
#[test]
fn commands_without_a_database_exit_with_4_and_name_the_setting() {
    let operators = Operators::new();
    let (rules, config) = (operators.place.path("rules.yaml"), operators.place.path("tollgate.yaml"));
    let server = Serving::start(BINARY, &["--rules", &rules, "--config", &config]);
    for line in ["override list", "deny list", "bypass list", "audit list", "audit verify", "rules history"] {
        let declined = command(&operators, &server, &words(line));
        assert_eq!(declined.code, 4, "{line}: {declined:?}");
        assert!(declined.stderr.contains("database: sqlite:PATH"), "{declined:?}");
    }
}
