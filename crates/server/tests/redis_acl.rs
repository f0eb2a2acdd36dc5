//! The ACL lines of the guide: each is sufficient for everything that Tollgate does, and no permission can be removed.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tollgate::core::algorithm::sliding_log::SlidingLog;
use tollgate::core::{
    Item, Key, Keyspace, Limit, Operation, Plan, Report, Span, Store, StoreError, Subject, SubjectHasher,
    Token,
};
use tollgate::store::redis::{OpenError, RedisSettings, RedisStore};
use tollgate_testkit::conformance::counting_limits;
use tollgate_testkit::redis::{Admin, Cluster, Flavour, SentinelSet, Server, Value, slot_of};

const DAY: Span = Span::from_secs(86_400);
const LONG: Duration = Duration::from_secs(10);
/// Much longer than a promotion takes, because the machine may be busy.
const PROMOTION_MAX: Duration = Duration::from_secs(40);
/// The tests of the store use the same line.
const STORE_TESTS: &str = include_str!("../../tollgate/tests/redis/connections.rs");

/// The lines of the page, in its order: one server, servers behind sentinels, servers of a cluster, sentinels.
fn lines() -> [Vec<String>; 4] {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/redis.md");
    let page = fs::read_to_string(page).expect("the page can be read");
    let lines: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("user tollgate "))
        .filter_map(|line| line.strip_prefix("user "))
        .collect();
    assert!(STORE_TESTS.contains(&format!("{:?}", lines[0])), "the store is tested with another line");
    assert!(page.contains(&quoted(lines[0])), "the command on the page is another one");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    lines.into_iter().map(words).collect::<Vec<_>>().try_into().expect("the page shows four lines")
}

/// The command on the page, quoted for a shell.
fn quoted(line: &str) -> String {
    let words = line.split_whitespace().map(|word| match word.starts_with(['>', '~']) {
        true => format!("'{word}'"),
        false => word.to_owned(),
    });
    format!("ACL SETUSER {}\n", words.collect::<Vec<_>>().join(" "))
}

/// The permissions of a line: commands, keys and channels.
fn permissions(words: &[String]) -> Vec<&String> {
    words.iter().filter(|word| word.starts_with(['+', '~', '&'])).collect()
}

fn without(words: &[String], permission: &str) -> Vec<String> {
    words.iter().filter(|word| *word != permission).cloned().collect()
}

fn set_user(admin: &mut Admin, name: &str, words: &[String]) {
    let mut command: Vec<&[u8]> = vec![b"ACL", b"SETUSER", name.as_bytes(), b"reset"];
    command.extend(words[1..].iter().map(|word| word.as_bytes()));
    admin.command(&command).expect("the server takes the line");
}

fn set_user_on(servers: &[&Server], words: &[String]) {
    for server in servers {
        set_user(&mut server.admin().expect("a connection"), &words[0], words);
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn open(runtime: &Runtime, url: &str) -> RedisStore {
    let _inside = runtime.enter();
    RedisSettings::url(url).expect("a URL").deadline(LONG).open().expect("a store")
}

fn subject(name: &str, value: &str) -> Subject {
    SubjectHasher::new([5; 32]).subject([(name, value)])
}

fn item(scope: &Keyspace, limit: Limit, operation: Operation) -> Item<'_> {
    Item::new(key(scope), limit, operation)
}

fn key(scope: &Keyspace) -> Key<'_> {
    scope.key(subject("user", "u"))
}

/// Does everything that Tollgate does: every operation, a long log, a request id, a script that is not cached.
fn everything(runtime: &Runtime, url: &str, servers: &[&Server]) -> Result<(), StoreError> {
    for server in servers {
        let mut admin = server.admin().expect("a connection");
        admin.flushall().expect("it can be emptied");
        admin.script_flush().expect("the script cache can be flushed");
    }
    let store = open(runtime, url);
    runtime.block_on(store.ready())?;
    runtime.block_on(store.evicted_keys())?;
    let scope = Keyspace::new("test", "allowed").expect("a keyspace");
    let ask = |limit: Limit, operation: Operation| {
        let mut plan = Plan::new();
        plan.push(item(&scope, limit, operation)).expect("a plan");
        if let Operation::Charge { token, .. } = operation {
            plan.set_request_id(subject("request", &token.0.to_string()), DAY, 0);
        }
        runtime.block_on(store.apply(&plan)).map(drop)
    };
    for limit in counting_limits(1_000, DAY).expect("limits") {
        let token = Token(1);
        ask(limit, Operation::Peek { cost: 1 })?;
        ask(limit, Operation::Charge { cost: 1, token: Token(u128::from(limit.capacity())) })?;
        ask(limit, Operation::Reserve { cost: 1, token, hold: DAY })?;
        ask(limit, Operation::Report { result: Report::Failure })?;
        ask(limit, Operation::Reset { receipt_life: Span::ZERO })?;
    }
    let log = Limit::SlidingLog(SlidingLog::new(1_000, DAY).expect("a log"));
    (0..40).try_for_each(|number| ask(log, Operation::Charge { cost: 1, token: Token(100 + number) }))
}

/// Checks that the line is sufficient, and that no permission can be left out except the listed ones.
fn check_line(
    runtime: &Runtime,
    flavour: Flavour,
    words: &[String],
    url: &str,
    servers: &[&Server],
    except: &[&str],
) {
    set_user_on(servers, words);
    everything(runtime, url, servers).unwrap_or_else(|error| panic!("{flavour}: {error:?}"));
    for word in permissions(words).into_iter().filter(|word| !except.contains(&word.as_str())) {
        set_user_on(servers, &without(words, word));
        match everything(runtime, url, servers) {
            Err(StoreError::Misconfigured(_)) => (),
            other => panic!("{flavour} without {word}: {other:?}"),
        }
    }
}

#[test]
fn the_acl_line_of_the_guide_is_sufficient_and_minimal() {
    let [words, ..] = lines();
    assert_eq!(permissions(&words).len(), 12);
    let runtime = runtime();
    for flavour in Flavour::ALL {
        let server = Server::start(flavour).expect("a server starts");
        let url = format!("redis://tollgate:secret@127.0.0.1:{}/1", server.port());
        check_line(&runtime, flavour, &words, &url, &[&server], &[]);
    }
}

#[test]
fn the_acl_line_for_servers_behind_sentinels_is_sufficient_and_minimal() {
    let [one, words, ..] = lines();
    assert_eq!(without(&words, "+role"), one, "what is added");
    let runtime = runtime();
    for flavour in Flavour::ALL {
        let set = SentinelSet::start(flavour).expect("a set starts");
        let url = set.url().replace("://", "://tollgate:secret@") + "/1";
        check_line(&runtime, flavour, &words, &url, &[set.primary().expect("there is one")], &[]);
    }
}

#[test]
fn the_acl_line_for_a_cluster_is_sufficient_and_minimal() {
    let [one, _, words, _] = lines();
    let added = ["+cluster|info", "+cluster|slots", "+asking"];
    let common = added.iter().fold(words.clone(), |words, added| without(&words, added));
    assert_eq!(common, without(&one, "+select"), "what is added, and what is left out");
    let runtime = runtime();
    for flavour in Flavour::ALL {
        let cluster = Cluster::start(flavour).expect("a cluster starts");
        let url = cluster.url().replace("://", "://tollgate:secret@");
        let primaries = cluster.primaries();
        let servers: Vec<&Server> = primaries.iter().map(|&node| cluster.node(node)).collect();
        check_line(&runtime, flavour, &words, &url, &servers, &["+asking"]);

        // While a slot moves, a new key is created on the target node.
        let scope = Keyspace::new("test", "asked-for").expect("a keyspace");
        let slot = slot_of(key(&scope).to_string().as_bytes());
        let from = cluster.owner(slot).expect("it has one");
        let to = primaries.iter().find(|&&node| node != from).expect("there are others");
        let _half_moved = cluster.begin_move(slot, *to).expect("it begins");
        let limit = counting_limits(1_000, DAY).expect("limits")[0];
        let charge = || {
            let mut plan = Plan::new();
            plan.push(item(&scope, limit, Operation::charge(1))).expect("a plan");
            let store = open(&runtime, &url);
            runtime.block_on(store.ready()).expect("it is there");
            runtime.block_on(store.apply(&plan))
        };
        set_user_on(&servers, &words);
        charge().unwrap_or_else(|error| panic!("{flavour}: {error:?}"));
        set_user_on(&servers, &without(&words, "+asking"));
        let denied = charge();
        assert!(denied.is_err(), "{flavour} without +asking: {denied:?}");
    }
}

/// Each permission is missing for a separate user, so that one failover shows what all of them lack.
#[test]
fn the_acl_line_for_sentinels_is_sufficient_and_minimal() {
    let [.., words] = lines();
    let permissions = permissions(&words);
    assert_eq!(permissions.len(), 7);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    for flavour in Flavour::ALL {
        let mut set = SentinelSet::start(flavour).expect("a set starts");
        let url = |user: &str| format!("{}?sentinel_user={user}&sentinel_password=secret", set.url());
        let users: Vec<(String, Vec<String>)> = permissions
            .iter()
            .enumerate()
            .map(|(number, permission)| (format!("lacks-{number}"), without(&words, permission)))
            .collect();
        for sentinel in 0..3 {
            let mut admin = set.sentinel(sentinel).admin().expect("a connection");
            set_user(&mut admin, &words[0], &words);
            users.iter().for_each(|(user, words)| set_user(&mut admin, user, words));
        }
        let store = open(&runtime, &url(&words[0]));
        runtime.block_on(store.ready()).unwrap_or_else(|error| panic!("{flavour}: {error:?}"));
        let _lacking: Vec<RedisStore> = users.iter().map(|(user, _)| open(&runtime, &url(user))).collect();
        for ((user, _), permission) in users.iter().zip(&permissions) {
            // Without these two, the primary is not found. The others only speed up a failover.
            if permission.ends_with("|master") || permission.ends_with("|get-master-addr-by-name") {
                let settings = RedisSettings::url(&url(user)).expect("a URL");
                match runtime.block_on(settings.connect()).map(drop) {
                    Err(OpenError::Redis(StoreError::Misconfigured(_))) => (),
                    other => panic!("{flavour} without {permission}: {other:?}"),
                }
            }
        }
        let old = set.kill9_primary().expect("it can be killed");
        set.wait_promoted(old, PROMOTION_MAX).expect("it has a successor");
        let until = Instant::now() + PROMOTION_MAX;
        while let Err(error) = runtime.block_on(store.ready()) {
            assert!(Instant::now() < until, "{flavour}: {error:?}");
        }
        loop {
            let denied = denied(&set);
            assert!(!denied.contains(&words[0]), "{flavour}: the line is not enough");
            let missing = users.iter().zip(&permissions).find(|((user, _), _)| !denied.contains(user));
            let Some((_, permission)) = missing else { break };
            assert!(Instant::now() < until, "{flavour}: nothing fails without {permission}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The users to whom a sentinel denied a command.
fn denied(set: &SentinelSet) -> Vec<String> {
    let mut users = Vec::new();
    for sentinel in 0..3 {
        let mut admin = set.sentinel(sentinel).admin().expect("a connection");
        let Value::Array(entries) = admin.command(&[b"ACL", b"LOG", b"128"]).expect("it answers") else {
            panic!("no list")
        };
        for entry in entries {
            let Value::Array(fields) = entry else { panic!("{entry:?}") };
            let name = fields.iter().position(|field| *field == Value::Bulk(b"username".to_vec()));
            let name = name.and_then(|at| fields.get(at + 1));
            let Some(Value::Bulk(name)) = name else { panic!("{fields:?}") };
            users.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    users
}
