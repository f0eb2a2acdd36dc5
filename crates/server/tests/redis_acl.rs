//! The line of an ACL file that the guide shows: enough for everything Tollgate does, and nothing in it is too much.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tokio::runtime::Runtime;
use tollgate::core::algorithm::sliding_log::SlidingLog;
use tollgate::core::{
    Item, Limit, Operation, Plan, Report, Scope, Span, Store, StoreError, SubjectHasher, Token,
};
use tollgate::store::redis::RedisSettings;
use tollgate_testkit::conformance::counting_limits;
use tollgate_testkit::redis::{Admin, Flavour, Server};

const DAY: Span = Span::from_secs(86_400);
/// The same line is what the store is tested with.
const STORE_TESTS: &str = include_str!("../../testkit/tests/redis_store.rs");

/// The words behind `user`, as the page has them.
fn line() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/redis.md");
    let page = fs::read_to_string(page).expect("the page can be read");
    let mut lines = page.lines().filter_map(|line| line.strip_prefix("user "));
    let line = lines.next().expect("the page shows an ACL line");
    assert_eq!(lines.next(), None, "one line, and no other");
    assert!(STORE_TESTS.contains(&format!("{line:?}")), "the store is tested with another line");
    assert!(page.contains(&quoted(line)), "the command on the page is another one");
    line.split_whitespace().map(str::to_owned).collect()
}

/// As a shell takes it.
fn quoted(line: &str) -> String {
    let words = line.split_whitespace().map(|word| match word.starts_with(['>', '~']) {
        true => format!("'{word}'"),
        false => word.to_owned(),
    });
    format!("ACL SETUSER {}\n", words.collect::<Vec<_>>().join(" "))
}

fn set_user(admin: &mut Admin, words: &[String]) {
    let mut command: Vec<&[u8]> = vec![b"ACL", b"SETUSER", words[0].as_bytes(), b"reset"];
    command.extend(words[1..].iter().map(|word| word.as_bytes()));
    admin.command(&command).expect("the server takes the line");
}

/// Everything there is to do: every operation, a long log, a request id, a script that is not known yet.
fn everything(runtime: &Runtime, server: &Server) -> Result<(), StoreError> {
    let mut admin = server.admin().expect("a connection");
    admin.flushall().expect("it can be emptied");
    admin.script_flush().expect("it can forget");
    let url = format!("redis://tollgate:secret@127.0.0.1:{}/1", server.port());
    let settings = RedisSettings::url(&url).expect("a URL").deadline(Duration::from_secs(10));
    let store = {
        let _inside = runtime.enter();
        settings.open().expect("a store")
    };
    let hasher = SubjectHasher::new([5; 32]);
    let scope = Scope::new("test", "allowed").expect("a scope");
    let ask = |limit: Limit, operation: Operation| {
        let mut plan = Plan::new();
        plan.push(Item::new(scope.key(hasher.subject([("user", "u")])), limit, operation)).expect("a plan");
        if matches!(operation, Operation::Charge { .. }) {
            let Operation::Charge { token, .. } = operation else { unreachable!("it is one") };
            plan.once(hasher.subject([("request", token.0.to_string().as_str())]), DAY, 0);
        }
        runtime.block_on(store.apply(&plan)).map(drop)
    };
    for limit in counting_limits(1_000, DAY).expect("limits") {
        let token = Token(1);
        ask(limit, Operation::Peek { cost: 1 })?;
        ask(limit, Operation::Charge { cost: 1, token: Token(u128::from(limit.capacity())) })?;
        ask(limit, Operation::Reserve { cost: 1, token, hold: DAY })?;
        ask(limit, Operation::Report { result: Report::Failure })?;
        ask(limit, Operation::Reset)?;
    }
    let log = Limit::SlidingLog(SlidingLog::new(1_000, DAY).expect("a log"));
    (0..40).try_for_each(|number| ask(log, Operation::Charge { cost: 1, token: Token(100 + number) }))
}

#[test]
fn the_acl_line_of_the_guide_is_enough_and_none_of_it_is_too_much() {
    let words = line();
    // That it is there, its password, and taking away are no permissions.
    let given = |word: &String| word.starts_with(['+', '~']);
    assert_eq!(words.iter().filter(|word| given(word)).count(), 11);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for flavour in Flavour::ALL {
        let server = Server::start(flavour).expect("a server starts");
        let mut admin = server.admin().expect("a connection");
        set_user(&mut admin, &words);
        everything(&runtime, &server).unwrap_or_else(|error| panic!("{flavour}: {error:?}"));
        for word in words.iter().filter(|word| given(word)) {
            let fewer: Vec<String> = words.iter().filter(|other| *other != word).cloned().collect();
            set_user(&mut admin, &fewer);
            match everything(&runtime, &server) {
                Err(StoreError::Misconfigured(_)) => (),
                other => panic!("{flavour} without {word}: {other:?}"),
            }
        }
    }
}
