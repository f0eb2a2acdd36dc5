//! What a recorded check costs the store more than one that is not recorded, in instructions of Redis.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate::store::redis::{ScriptCodec, TimeSource};
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::stamped::Restore;
use tollgate_core::time::calendar::Periods;
use tollgate_core::{Item, Keyspace, Limit, Operation, Plan, Recording, SubjectHasher, Time};
use tollgate_testkit::redis::Flavour;

const NODE: u64 = 77;
const NOW: u64 = 1_700_000_000_000_000;
const PERIOD_US: u64 = 100_000_000;
/// Plans that travel in one call at 64 checks in flight.
const CALL: usize = 64;

/// A Redis whose instructions are counted.
struct CountedRedis {
    process: std::process::Child,
    stream: TcpStream,
    _folder: TempDir,
}

impl CountedRedis {
    fn start() -> CountedRedis {
        let folder = TempDir::new().expect("a folder");
        let port = tollgate_testkit::tools::free_port();
        // The program chooses its role by its own name, which valgrind does not change.
        let program = folder.path().join("redis-server");
        let found = Flavour::Redis70.command().get_program().to_owned();
        let path = env::var_os("PATH").expect("there is a PATH");
        let found = env::split_paths(&path).map(|folder| folder.join(&found)).find(|file| file.exists());
        symlink(found.expect("Redis 7.0 is installed"), &program).expect("it links");
        let process = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(&program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("this test needs valgrind (`cargo xtask test` installs it)");
        let deadline = Instant::now() + Duration::from_secs(60);
        let stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < deadline, "Redis does not start: {error}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        stream.set_nodelay(true).expect("a socket takes its options");
        CountedRedis { process, stream, _folder: folder }
    }

    fn apply(&mut self, codec: &ScriptCodec, plans: &[&Plan<'_>], by_digest: bool) {
        let timed: Vec<_> = plans.iter().map(|plan| (*plan, Time::from_us(NOW))).collect();
        self.stream.write_all(&codec.command(&timed, by_digest)).expect("the server reads");
        let (mut inbox, mut chunk) = (Vec::new(), [0; 16 * 1024]);
        while codec.read(plans, &inbox).expect("a reply").is_none() {
            let read = self.stream.read(&mut chunk).expect("the server answers");
            assert!(read > 0, "the server closed the connection");
            inbox.extend_from_slice(&chunk[..read]);
        }
    }

    /// Ends it and returns the instructions of its whole life.
    fn end(mut self) -> u64 {
        self.stream.write_all(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n").expect("the server reads");
        let stderr = self.process.stderr.take().expect("it is a pipe");
        let lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let counts = lines.filter_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
        let count = counts.last().expect("callgrind prints what it has counted");
        self.process.wait().expect("it ends");
        count
    }
}

/// Returns the instructions of Redis for one check, beyond those of its start.
fn instructions(stamped: bool, per_call: usize) -> f64 {
    let starts = [0, 1, 2, 3].map(|number| Time::from_us(NOW - PERIOD_US / 2 + number * PERIOD_US));
    let periods = Periods::new(starts).expect("they ascend");
    let limit = Limit::Quota(Quota::new(1 << 40, 0, QuotaPeriod::Calendar(periods)).expect("a limit"));
    let keyspace = Keyspace::new("test", "cost").expect("a name");
    let names: Vec<String> = (0..per_call).map(|number| format!("user-{number}")).collect();
    let hasher = SubjectHasher::new([7; 32]);
    let recording = Recording { stamped, ..Recording::default() };
    let plan_of = |name: &str, operation| {
        let key = keyspace.key(hasher.subject([("user", name)]));
        Plan::of(Item { ledger: Some(recording), ..Item::new(key, limit, operation) }).expect("a plan")
    };
    let codec =
        ScriptCodec::new(TimeSource::Application, Duration::from_secs(3_600), |_, source| source.to_owned());
    let codec = codec.with_node(NODE);
    let run = |calls: usize| {
        let mut redis = CountedRedis::start();
        if stamped {
            let restore = Operation::Restore(Restore {
                start: starts[0],
                end: starts[1],
                used: 0,
                held: 0,
                held_until: Time::ZERO,
                extra: 0,
                extra_no: 0,
                epoch: 9,
                known: true,
            });
            let restores: Vec<Plan<'_>> = names.iter().map(|name| plan_of(name, restore)).collect();
            redis.apply(&codec, &restores.iter().collect::<Vec<_>>(), false);
        }
        let charges: Vec<Plan<'_>> = names.iter().map(|name| plan_of(name, Operation::charge(1))).collect();
        let charges: Vec<&Plan<'_>> = charges.iter().collect();
        redis.apply(&codec, &charges, false);
        (0..calls).for_each(|_| redis.apply(&codec, &charges, true));
        redis.end()
    };
    let (few, many) = (200, 200 + 6_400 / per_call.max(4));
    (run(many) - run(few)) as f64 / ((many - few) * per_call) as f64
}

#[test]
fn a_recorded_check_costs_the_store_little_more() {
    for per_call in [1, CALL] {
        let (plain, recorded) = (instructions(false, per_call), instructions(true, per_call));
        let ratio = recorded / plain;
        println!("{per_call} checks per call: {plain:.0} instructions, recorded {recorded:.0}, {ratio:.3}x");
        assert!(ratio <= 1.4, "a recorded check costs the store {ratio:.3} times as much");
    }
}
