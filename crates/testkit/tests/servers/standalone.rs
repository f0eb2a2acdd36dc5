//! Single servers: they start, answer, stop, die and restart on command, and leave nothing behind.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{env, thread};

use tollgate_testkit::redis::{Admin, AdminError, Certificates, Error, Flavour, Server, Value, no_orphans};

const SHORT: Duration = Duration::from_millis(200);
const HOUR: Duration = Duration::from_hours(1);

fn start(flavour: Flavour) -> Server {
    Server::start(flavour).unwrap_or_else(|error| panic!("{error}"))
}

fn pong() -> Value {
    Value::Simple("PONG".to_owned())
}

fn text(text: &str) -> Value {
    Value::Bulk(text.into())
}

fn set(admin: &mut Admin, key: &str, value: &str, arguments: &[&str]) {
    let mut command = vec!["SET", key, value];
    command.extend(arguments);
    let command: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
    admin.command(&command).expect("SET works");
}

/// What must not exist any more after a server is dropped.
struct Traces {
    port: u16,
    folder: PathBuf,
    process: PathBuf,
}

impl Traces {
    fn of(server: &Server) -> Traces {
        let process = Path::new("/proc").join(server.process_id().expect("it runs").to_string());
        let traces = Traces { port: server.port(), folder: server.folder().to_path_buf(), process };
        assert_eq!(traces.found(), ["port", "folder", "process"]);
        traces
    }

    fn found(&self) -> Vec<&'static str> {
        let port = TcpStream::connect(("127.0.0.1", self.port)).is_ok();
        let found = [("port", port), ("folder", self.folder.exists()), ("process", self.process.exists())];
        found.into_iter().filter(|(_, found)| *found).map(|(name, _)| name).collect()
    }
}

#[test]
fn every_flavour_starts_with_its_version() {
    let cases = [
        (Flavour::Redis70, "redis_version", "7.0."),
        (Flavour::Redis62, "redis_version", "6.2."),
        (Flavour::Valkey9, "valkey_version", "9."),
    ];
    assert_eq!(cases.map(|(flavour, _, _)| flavour), Flavour::ALL);
    for (flavour, field, version) in cases {
        let server = start(flavour);
        let mut admin = server.admin().expect("it accepts");
        assert_eq!(admin.command(&[b"PING"]).expect("it answers"), pong());
        let info = admin.info("server").expect("it answers");
        assert!(info[field].starts_with(version), "{flavour}: {}", info[field]);
        assert_eq!(info["process_id"], server.process_id().expect("it runs").to_string(), "{flavour}");
        assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    }
}

#[test]
fn a_dropped_server_leaves_nothing_behind() {
    for flavour in Flavour::ALL {
        let server = start(flavour);
        let traces = Traces::of(&server);
        drop(server);
        assert_eq!(traces.found(), [""; 0], "{flavour}");
    }
}

#[test]
fn a_panic_and_a_freeze_leave_nothing_behind() {
    let server = start(Flavour::Redis70);
    let traces = Traces::of(&server);
    let panicked = thread::spawn(move || {
        server.stop().expect("it can be stopped");
        panic!("on purpose, with {}", server.url());
    });
    assert!(panicked.join().is_err());
    assert_eq!(traces.found(), [""; 0]);
}

#[test]
fn no_data_is_written_to_disk() {
    for flavour in Flavour::ALL {
        let server = start(flavour);
        let mut admin = server.admin().expect("it accepts");
        set(&mut admin, "a", "1", &[]);
        admin.command(&[b"SHUTDOWN"]).expect_err("it ends instead of answering");
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", server.port())).is_ok() {
            assert!(Instant::now() < deadline, "{flavour} does not shut down");
            thread::sleep(Duration::from_millis(5));
        }
        let files = server.folder().read_dir().expect("the folder is there");
        let names: Vec<_> = files.map(|file| file.expect("it can be read").file_name()).collect();
        assert_eq!(names, ["server.log"], "{flavour}");
    }
}

#[test]
fn a_stopped_server_is_silent_until_it_is_resumed() {
    for flavour in Flavour::ALL {
        let server = start(flavour);
        let mut admin = server.admin().expect("it accepts");
        assert_eq!(admin.command(&[b"PING"]).expect("it answers"), pong());
        server.stop().expect("it can be stopped");
        admin.set_timeout(SHORT);
        let error = admin.command(&[b"INCR", b"a"]).expect_err("no answer");
        assert!(error.is_timeout(), "{flavour}: {error:?}");
        server.resume().expect("it can be resumed");
        admin.set_timeout(Duration::from_secs(10));
        assert_eq!(admin.command(&[b"PING"]).expect("it answers again"), pong(), "{flavour}");
    }
}

#[test]
fn a_killed_server_comes_back_empty_on_the_same_port() {
    for flavour in Flavour::ALL {
        let mut server = start(flavour);
        let (port, first) = (server.port(), server.process_id().expect("it runs"));
        let mut admin = server.admin().expect("it accepts");
        set(&mut admin, "a", "1", &[]);

        server.kill9().expect("it can be killed");
        admin.command(&[b"PING"]).expect_err("the connection is broken");
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "{flavour}");
        assert!(matches!(server.kill9(), Err(Error::Killed)));
        assert!(matches!(server.stop(), Err(Error::Killed)));
        assert!(matches!(server.resume(), Err(Error::Killed)));

        server.restart().expect("it starts again");
        assert_eq!(server.port(), port);
        assert_ne!(server.process_id().expect("it runs"), first);
        assert_eq!(admin.command(&[b"GET", b"a"]).expect("it answers"), Value::Nil, "{flavour}");
        server.restart().expect("it starts again while it runs");
        admin.command(&[b"PING"]).expect_err("the connection is broken");
        assert_eq!(admin.command(&[b"PING"]).expect("the second try reconnects"), pong());
    }
}

#[test]
fn a_server_has_its_configured_password_users_and_arguments() {
    for flavour in Flavour::ALL {
        let server = Server::builder(flavour)
            .password("secret")
            .user("alice on >wonder ~tg:* +get")
            .arguments(["--maxmemory", "3145728"])
            .start()
            .expect("it starts");
        assert_eq!(server.url(), format!("redis://:secret@127.0.0.1:{}", server.port()));
        let mut admin = server.admin().expect("the password is right");
        let maxmemory = Value::Array(vec![text("maxmemory"), text("3145728")]);
        assert_eq!(admin.command(&[b"CONFIG", b"GET", b"maxmemory"]).expect("it answers"), maxmemory);

        let wrong = Admin::connect(server.port(), Some("guess")).expect_err("the password is wrong");
        assert!(matches!(wrong, AdminError::Refused(_)), "{wrong:?}");
        let mut alice = Admin::connect(server.port(), None).expect("anyone can connect");
        let refused = alice.command(&[b"PING"]).expect_err("no other command is permitted");
        assert!(refused.to_string().contains("NOAUTH"), "{refused}");
        alice.command(&[b"AUTH", b"alice", b"wonder"]).expect("alice is known");
        assert_eq!(alice.command(&[b"GET", b"tg:a"]).expect("alice may read it"), Value::Nil);
        for command in [[b"GET".as_slice(), b"a"], [b"DEL", b"tg:a"]] {
            let refused = alice.command(&command).expect_err("alice may not");
            assert!(refused.to_string().contains("NOPERM"), "{refused}");
        }
    }
}

#[test]
fn a_server_that_does_not_start_shows_its_log() {
    for flavour in Flavour::ALL {
        let error = Server::builder(flavour).arguments(["--no-such-option", "1"]).start();
        let error = error.expect_err("the option is wrong");
        assert!(matches!(error, Error::Ended { .. }), "{error:?}");
        assert!(error.to_string().contains("no-such-option"), "{error}");
    }
}

#[test]
fn a_missing_server_fails_the_test_and_names_the_install_command() {
    let nothing = tempfile::tempdir().expect("there is room");
    let output = Command::new(env::current_exe().expect("we are a program"))
        .args(["--exact", "no_data_is_written_to_disk", "--nocapture"])
        .env("CARGO_TARGET_DIR", nothing.path())
        .output()
        .expect("we can be run once more");
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{printed}");
    assert!(printed.contains("Redis 6.2 is missing"), "{printed}");
    assert!(printed.contains("`cargo xtask test` installs it"), "{printed}");
}

fn tls_ping(port: u16, authority: &Path) -> Output {
    Command::new("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "--tls", "--cacert"])
        .arg(authority)
        .arg("PING")
        .output()
        .expect("redis-cli comes with the server")
}

#[test]
fn a_tls_server_is_trusted_only_with_its_own_authority() {
    let server = Server::builder(Flavour::Redis70).tls().start().expect("it starts");
    let port = server.tls_port().expect("TLS was asked for");
    assert_eq!(server.tls_url(), Some(format!("rediss://127.0.0.1:{port}")));
    let trusted = server.certificates().expect("TLS was asked for").authority();
    assert_eq!(String::from_utf8_lossy(&tls_ping(port, trusted).stdout), "PONG\n");

    let elsewhere = tempfile::tempdir().expect("there is room");
    let other = Certificates::generate(elsewhere.path()).expect("another authority");
    let refused = tls_ping(port, other.authority());
    assert_eq!(String::from_utf8_lossy(&refused.stdout), "");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("certificate verify failed"), "{refused:?}");
    let plain = Admin::connect(port, None).expect("the port is open").command(&[b"PING"]);
    assert!(plain.is_err(), "{plain:?}");
    assert_eq!(server.admin().expect("the other port").command(&[b"PING"]).expect("speaks plainly"), pong());
}

#[test]
fn a_flavour_without_tls_reports_it() {
    for flavour in Flavour::ALL.into_iter().filter(|flavour| !flavour.has_tls()) {
        let error = Server::builder(flavour).tls().start().expect_err("it has no TLS");
        assert!(matches!(error, Error::NoTls { .. }), "{error:?}");
        let truly = Server::builder(flavour).arguments(["--tls-port", "1"]).start();
        assert!(truly.is_err(), "{flavour} has TLS after all");
    }
    assert_eq!(Flavour::ALL.into_iter().filter(|flavour| flavour.has_tls()).count(), 1);
}

#[test]
fn a_scan_returns_every_matching_key_once() {
    for flavour in Flavour::ALL {
        let server = start(flavour);
        let mut admin = server.admin().expect("it accepts");
        let fill =
            b"for i = 1, 5000 do redis.call('SET', 'tg:' .. (10000 + i), i) end redis.call('SET', 'x', 1)";
        admin.command(&[b"EVAL", fill, b"0"]).expect("the script runs");
        let expected: Vec<Vec<u8>> = (10_001..=15_000).map(|i| format!("tg:{i}").into_bytes()).collect();
        assert_eq!(admin.scan("tg:*").expect("it answers"), expected, "{flavour}");
        admin.flushall().expect("it answers");
        assert_eq!(admin.scan("*").expect("it answers"), Vec::<Vec<u8>>::new(), "{flavour}");
    }
}

#[test]
fn ttl_and_memory_usage_of_a_key_are_returned() {
    for flavour in Flavour::ALL {
        let server = start(flavour);
        let mut admin = server.admin().expect("it accepts");
        set(&mut admin, "lasting", "1", &[]);
        set(&mut admin, "passing", "1", &["PX", "60000"]);
        set(&mut admin, "large", &"x".repeat(100_000), &[]);
        assert_eq!(admin.pttl(b"none").expect("it answers"), -2);
        assert_eq!(admin.pttl(b"lasting").expect("it answers"), -1);
        assert!((30_000..=60_000).contains(&admin.pttl(b"passing").expect("it answers")));
        assert_eq!(admin.memory_usage(b"none").expect("it answers"), None);
        let mut size = |key: &[u8]| admin.memory_usage(key).expect("it answers").expect("it is there");
        assert!((16..200).contains(&size(b"lasting")), "{flavour}: {}", size(b"lasting"));
        assert!((100_000..150_000).contains(&size(b"large")), "{flavour}: {}", size(b"large"));
    }
}

#[test]
fn scripts_can_be_flushed_and_cpu_time_is_reported() {
    for flavour in Flavour::ALL {
        let server = start(flavour);
        let mut admin = server.admin().expect("it accepts");
        let busy = b"local n = 0 for i = 1, 2e7 do n = n + i end return 1";
        let Value::Bulk(hash) = admin.command(&[b"SCRIPT", b"LOAD", busy]).expect("it answers") else {
            panic!("a script has a hash");
        };
        let before = admin.cpu_seconds().expect("it answers");
        admin.command(&[b"EVALSHA", &hash, b"0"]).expect("the script is known");
        let used = admin.cpu_seconds().expect("it answers") - before;
        assert!((0.01..5.0).contains(&used), "{flavour}: {used}");
        admin.script_flush().expect("it answers");
        let error = admin.command(&[b"EVALSHA", &hash, b"0"]).expect_err("the script is forgotten");
        assert!(error.to_string().contains("NOSCRIPT"), "{error}");
    }
}

#[test]
fn orphans_are_found() {
    for flavour in Flavour::ALL {
        let server = start(flavour);
        let mut admin = server.admin().expect("it accepts");
        set(&mut admin, "tg:1", "a", &["PX", "3000000"]);
        set(&mut admin, "tg:2", "b", &["PX", "60000"]);
        let check = |admin: &mut Admin| no_orphans(admin, "tg:", HOUR, &["alice", ""]);
        assert_eq!(check(&mut admin), Ok(2), "{flavour}");

        // If it were compressed, the name at its end would not be found.
        let long = "xali-".repeat(100) + "alice";
        let bad: [(&str, &str, &[&str], &str); 5] = [
            ("other:1", "a", &["PX", "1000000"], "does not begin with tg:"),
            ("tg:3", "a", &[], "never expires"),
            ("tg:4", "a", &["PX", "4000000"], "the bound is 3600000 ms"),
            ("tg:{alice}", "a", &["PX", "1000000"], "\"alice\" in its name"),
            ("tg:5", &long, &["PX", "1000000"], "\"alice\" in its value"),
        ];
        for (key, value, arguments, problem) in bad {
            set(&mut admin, key, value, arguments);
            let found = check(&mut admin).expect_err(problem);
            assert!(found.contains(problem) && found.contains(key), "{flavour}: {found}");
            admin.command(&[b"DEL", key.as_bytes()]).expect("it answers");
        }
        admin.command(&[b"HSET", b"tg:6", b"field", b"of alice"]).expect("it answers");
        admin.command(&[b"PEXPIRE", b"tg:6", b"1000000"]).expect("it answers");
        let found = check(&mut admin).expect_err("it is in a hash");
        assert!(found.contains("\"alice\" in its value"), "{flavour}: {found}");
    }
}
