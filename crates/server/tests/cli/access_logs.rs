//! `tollgate simulate`: its numbers against those that naive models count.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::Value;
use tollgate_server::fuzzing::log;

use super::{Run, assert_snapshot, tollgate, tollgate_reading};

/// Files of one test, removed at its end.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Files {
        Files { folder: tempfile::tempdir().expect("a folder") }
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path: PathBuf = self.folder.path().join(name);
        std::fs::write(&path, text).expect("it can be written");
        path.into_os_string().into_string().expect("a UTF-8 path")
    }
}

fn rules(limit: &str, per: &str) -> String {
    format!("version: 1\nrules:\n  - id: only\n    per: {per}\n    limit: {limit}\n")
}

fn simulate(args: &[&str]) -> Run {
    tollgate(&[&["simulate", "--format", "json"], args].concat())
}

/// A line of nginx at this second of 18 November 2026, 20:00.
fn nginx(second: u64, ip: &str, request: &str) -> String {
    let (minute, second) = (second / 60, second % 60);
    format!(
        "{ip} - - [18/Nov/2026:20:{minute:02}:{second:02} +0000] \"{request} HTTP/1.1\" 200 12 \"-\" \"curl/8\"\n"
    )
}

fn rule<'r>(report: &'r Value, set: &str, id: &str) -> &'r Value {
    let rules = report[set]["rules"].as_array().expect("rules");
    rules.iter().find(|rule| rule["id"] == id).unwrap_or_else(|| panic!("no rule {id}"))
}

/// A pseudo-random sequence, the same in every run.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn help_of_simulate_matches_its_snapshot() {
    assert_snapshot("help/simulate.txt", &tollgate(&["simulate", "--help"]).stdout);
}

#[test]
fn refusals_of_a_fixed_window_are_those_of_a_naive_count() {
    let files = Files::new();
    let (mut state, mut log, mut counts) = (7, String::new(), HashMap::<(u64, u64), u64>::new());
    let (mut refused, mut hit) = (0_u64, std::collections::HashSet::new());
    for number in 0..6_000_u64 {
        let (second, client) = (number / 20, random(&mut state) % 40);
        log += &nginx(second, &format!("192.0.2.{client}"), "GET /a?b=c");
        let count = counts.entry((client, second / 60)).or_default();
        *count += 1;
        if *count > 30 {
            refused += 1;
            hit.insert(client);
        }
    }
    let rules = files.write("rules.yaml", rules("{ fixed-window: 30/min }", "ip"));
    let log = files.write("access.log", log);
    let run = simulate(&["--rules", &rules, &log]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let report = run.json();
    let only = rule(&report, "new", "only");
    assert_eq!((&only["checks"], &only["refused"]), (&6_000.into(), &refused.into()));
    assert_eq!(only["subjects_hit"], hit.len());
    assert_eq!(only["peak_subjects"], 40);
    assert_eq!(report["new"]["first"], "2026-11-18T20:00:00Z");
    assert!(refused > 0 && hit.len() < 40, "the case is not trivial: {refused} {}", hit.len());
    let over_time: u64 =
        only["timeline"]["refused"].as_array().expect("slots").iter().filter_map(Value::as_u64).sum();
    assert_eq!(over_time, refused);
}

#[test]
fn requests_of_one_second_are_spread_unless_that_is_off() {
    let files = Files::new();
    let rules = files.write("rules.yaml", rules("{ token-bucket: 10/s, burst: 1 }", "ip"));
    let log: String = (0..50).map(|number| nginx(number / 10, "192.0.2.1", "GET /")).collect();
    let log = files.write("access.log", log);
    let refused = |spread: &str| {
        simulate(&["--rules", &rules, "--spread", spread, &log]).json()["new"]["refused"]
            .as_u64()
            .expect("a number")
    };
    // Ten a second are a tenth of a second apart, or all at once.
    assert_eq!((refused("on"), refused("off")), (0, 45));
}

#[test]
fn the_same_traffic_in_every_format_has_the_same_refusals() {
    let files = Files::new();
    let rules = files.write(
        "rules.yaml",
        "version: 1\nrules:\n  - { id: only, match: { path: /v1/search, method: GET }, per: ip, limit: { fixed-window: 3/min } }\n",
    );
    let clients: Vec<u64> = (0..200).map(|number| number % 7).collect();
    let at = 1_795_032_000_u64;
    let requests =
        || clients.iter().zip(0_u64..).map(|(client, number)| (format!("192.0.2.{client}"), number));
    let lines = |line: &dyn Fn(&str, u64) -> String| {
        requests().map(|(ip, second)| line(&ip, second)).collect::<String>()
    };
    let rfc = |second: u64| format!("2026-11-18T20:{:02}:{:02}.000Z", second / 60, second % 60);
    let clf = |second: u64| format!("18/Nov/2026:20:{:02}:{:02}", second / 60, second % 60);
    let cases = [
        ("nginx", lines(&|ip, second| nginx(second, ip, "GET /v1/search?q=1"))),
        (
            "json",
            lines(&|ip, second| {
                format!(
                    "{{\"time\":{},\"remote_addr\":\"{ip}\",\"method\":\"GET\",\"uri\":\"/v1/search?q\"}}\n",
                    at + second
                )
            }),
        ),
        (
            "csv",
            format!(
                "time,ip,method,path\n{}",
                lines(&|ip, second| format!("{},{ip},GET,\"/v1/search\"\n", rfc(second)))
            ),
        ),
        (
            "envoy",
            lines(&|ip, second| {
                format!(
                    "[{}] \"GET /v1/search HTTP/2\" 200 - 0 0 0 0 \"{ip}\" \"-\" \"-\" \"h\" \"-\"\n",
                    rfc(second)
                )
            }),
        ),
        (
            "caddy",
            lines(&|ip, second| {
                format!(
                    "{{\"level\":\"info\",\"ts\":{}.0,\"logger\":\"http.log.access\",\"request\":{{\"client_ip\":\"{ip}\",\"method\":\"GET\",\"host\":\"h\",\"uri\":\"/v1/search\"}},\"duration\":0.0}}\n",
                    at + second
                )
            }),
        ),
        (
            "traefik",
            lines(&|ip, second| {
                format!(
                    "{{\"ClientHost\":\"{ip}\",\"RequestMethod\":\"GET\",\"RequestPath\":\"/v1/search\",\"StartUTC\":\"{}\",\"Duration\":0}}\n",
                    rfc(second)
                )
            }),
        ),
        (
            "haproxy",
            lines(&|ip, second| {
                format!(
                    "{ip}:999 [{}.000] in s/s 0/0/0/0/0 200 9 - - ---- 1/1/1/1/0 0/0 \"GET /v1/search HTTP/1.1\"\n",
                    clf(second)
                )
            }),
        ),
    ];
    // A window of a minute has 8 or 9 requests of each of the 7 clients; 200 s are 3 windows and a third.
    let mut counts = HashMap::<(u64, u64), u64>::new();
    let expected = clients.iter().zip(0_u64..).filter(|(client, second)| {
        let count = counts.entry((**client, second / 60)).or_default();
        *count += 1;
        *count > 3
    });
    let expected = expected.count();
    for (format, log) in cases {
        let path = files.write(format, &log);
        for named in ["auto", format] {
            let run = simulate(&["--rules", &rules, "--log-format", named, &path]);
            assert_eq!(run.code, Some(0), "{format}: {}", run.stderr);
            let report = run.json();
            assert_eq!(rule(&report, "new", "only")["refused"], expected, "{format} as {named}: {report:#}");
            assert_eq!(report["inputs"][0]["format"], format);
        }
        let piped = tollgate_reading(&log, &["simulate", "--format", "json", "--rules", &rules, "-"]);
        assert_eq!(rule(&piped.json(), "new", "only")["refused"], expected, "{format} on standard input");
    }
}

#[test]
fn logs_of_several_servers_are_merged_by_time() {
    let files = Files::new();
    let rules = files.write("rules.yaml", rules("{ sliding-log: 1/min }", "all"));
    // One request every 40 s on each of two servers, 20 s apart: together every third is admitted.
    let log = |offset: u64| (0..30).map(|n| nginx(offset + n * 40, "192.0.2.1", "GET /")).collect::<String>();
    let (first, second) = (files.write("a.log", log(0)), files.write("b.log", log(20)));
    let report = simulate(&["--rules", &rules, &second, &first]).json();
    assert_eq!((&report["new"]["requests"], &report["new"]["refused"]), (&60.into(), &40.into()));
}

#[test]
fn sources_of_attributes_are_mapped_by_flags_and_by_a_file() {
    let files = Files::new();
    let rules = files.write(
        "rules.yaml",
        "version: 1\nrules:\n  - { id: only, match: { action: search, plan: free, tenant: acme }, per: [api_key, user], limit: { fixed-window: 5/h } }\n",
    );
    let line = |number: u64| {
        format!(
            "{{\"at\":\"{number}\",\"x_tenant\":\"acme\",\"headers\":{{\"X-User\":[\"u-{}\"]}},\"uri\":\"/v1/search?key=k%2B1\",\"units\":2}}\n",
            number % 2
        )
    };
    let log = files.write("log", (1_795_032_000..1_795_032_020).map(line).collect::<String>());
    let flags = [
        "--map",
        "tenant=x_tenant",
        "--map",
        "user=.headers.X-User[0]",
        "--map",
        "api_key=query:key",
        "--map",
        "plan=const:free",
        "--map",
        r"action=path~^/v1/(\w+)",
        "--time",
        "at:unix",
        "--cost-from",
        "units",
    ];
    let by_flags = simulate(&[&["--rules", &rules, &log], &flags[..]].concat());
    // Each of two users has 10 requests of cost 2; two of them fit into 5.
    assert_eq!(rule(&by_flags.json(), "new", "only")["refused"], 16, "{}", by_flags.stderr);
    let file = files.write(
        "map.yaml",
        "attributes:\n  tenant: x_tenant\n  user: .headers.X-User[0]\n  api_key: query:key\n  plan: const:free\n  action: path~^/v1/(\\w+)\ntime: at:unix\ncost_from: units\n",
    );
    let by_file = simulate(&["--rules", &rules, "--map-file", &file, &log]);
    assert_eq!(rule(&by_file.json(), "new", "only")["refused"], 16, "{}", by_file.stderr);
    let wrong = files.write("wrong.yaml", "attributes: { user: 'path~(' }\ntimes: x\n");
    let run = simulate(&["--rules", &rules, "--map-file", &wrong, &log]);
    assert!(
        run.code == Some(2) && run.stderr.contains("invalid pattern") && run.stderr.contains("times"),
        "{}",
        run.stderr
    );
    let unknown = simulate(&["--rules", &rules, "--log-format", "nginx", "--time", "nonsense=x:unix", &log]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.stderr);
}

#[test]
fn concurrency_is_simulated_with_durations_only() {
    let files = Files::new();
    let rules = files.write("rules.yaml", rules("{ concurrency: 2, lease: 10s }", "all"));
    // One request a second, each of 4.5 s: of every five, the first two are admitted.
    let line = |number: u64, duration: &str| {
        let end = 1_795_032_000_000 + number * 1_000 + if duration.is_empty() { 0 } else { 4_500 };
        format!("{{\"time\":{end},\"uri\":\"/\"{duration}}}\n")
    };
    let with = files.write("with", (0..50).map(|n| line(n, ",\"request_time\":4.5")).collect::<String>());
    let report = simulate(&["--rules", &rules, &with]).json();
    assert_eq!(
        (&report["new"]["requests"], &report["new"]["refused"]),
        (&50.into(), &30.into()),
        "{report:#}"
    );
    let without = files.write("without", (0..50).map(|n| line(n, "")).collect::<String>());
    let report = simulate(&["--rules", &rules, &without]).json();
    assert_eq!(report["new"]["refused"], 0);
    assert_eq!(report["not_simulated"][0]["reason"], "concurrency; log has no durations");
    // A lease is renewed while its request runs, also beyond its time.
    let rules = files.write("short.yaml", self::rules("{ concurrency: 2, lease: 1s }", "all"));
    assert_eq!(simulate(&["--rules", &rules, &with]).json()["new"]["refused"], 30);
}

#[test]
fn two_rule_sets_are_compared_by_subject() {
    let files = Files::new();
    let old = files.write("old.yaml", rules("{ fixed-window: 10/min }", "ip"));
    let new = files.write("new.yaml", "version: 1\nrules:\n  - { id: only, per: ip, limit: { fixed-window: 20/min } }\n  - { id: posts, match: { method: POST }, per: ip, limit: { fixed-window: 2/min } }\n");
    let mut log = String::new();
    for second in 0..15 {
        log += &nginx(second, "192.0.2.1", "GET /");
    }
    for second in 15..20 {
        log += &nginx(second, "192.0.2.2", "POST /");
    }
    for second in 20..45 {
        log += &nginx(second, "192.0.2.3", "GET /");
    }
    let log = files.write("access.log", log);
    let report = simulate(&["--rules", &new, "--against", &old, "--show-subjects", &log]).json();
    let listed = |list: &str| {
        let list = report[list]["listed"].as_array().expect("a list").iter();
        list.map(|subject| subject["values"].as_str().expect("values").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed("newly_refused"), ["ip=192.0.2.2"]);
    assert_eq!(listed("newly_allowed"), ["ip=192.0.2.1"]);
    assert_eq!((&report["new"]["refused"], &report["old"]["refused"]), (&8.into(), &20.into()));
    let hidden = simulate(&["--rules", &new, "--against", &old, &log]).stdout;
    assert!(!hidden.contains("192.0.2"), "subjects are hashes unless they are asked for");
    let text = tollgate(&["simulate", "--rules", &new, "--against", &old, &log]).stdout;
    assert!(text.contains("Newly refused: 1 subject    Newly allowed: 1\n"), "{text}");
}

#[test]
fn requirements_decide_the_exit_code() {
    let files = Files::new();
    let rules = files.write("rules.yaml", rules("{ fixed-window: 9/min }", "ip"));
    let log = files
        .write("access.log", (0..10).map(|second| nginx(second, "192.0.2.1", "GET /")).collect::<String>());
    // Exactly a tenth is refused.
    for (requirement, code) in [
        ("refused <= 10%", 0),
        ("refused < 10%", 1),
        ("refused{rule=only} == 1", 0),
        ("refused > 10%", 1),
        ("subjects_hit{rule=only} < 1", 1),
        ("peak_subjects{rule=only} >= 1", 0),
        ("newly_refused < 1", 2),
        ("refused{rule=onyl} < 1", 2),
        ("refusals < 1", 2),
    ] {
        let run = tollgate(&["simulate", "--rules", &rules, "--require", requirement, &log]);
        assert_eq!(run.code, Some(code), "{requirement}: {}{}", run.stdout, run.stderr);
        let mark = if code == 0 { "✓" } else { "✗" };
        if code < 2 {
            let found = if requirement.contains('%') { "10.00%" } else { "1" };
            assert!(run.stdout.starts_with(&format!("{mark} {requirement}  {found}\n")), "{}", run.stdout);
        }
    }
}

#[test]
fn broken_and_cut_logs_are_counted() {
    let files = Files::new();
    let rules = files.write("rules.yaml", rules("{ fixed-window: 30/min }", "ip"));
    let mut log: Vec<u8> =
        (0..99).flat_map(|second| nginx(second, "192.0.2.1", "GET /").into_bytes()).collect();
    log.extend(b"\xff\xfe broken \x00\n");
    let one = files.write("one", &log);
    let run = simulate(&["--rules", &rules, &one]);
    assert_eq!(run.code, Some(0), "exactly one percent is accepted: {}", run.stderr);
    assert_eq!(run.json()["inputs"][0]["first_unreadable"]["line"], 100);
    log.extend(b"broken\n");
    let two = files.write("two", &log);
    let run = simulate(&["--rules", &rules, &two]);
    assert!(
        run.code == Some(2) && run.stderr.contains("2 of 101 lines are unreadable (1.98%)"),
        "{}",
        run.stderr
    );
    assert_eq!(simulate(&["--rules", &rules, "--unreadable-max", "2%", &two]).code, Some(0));
    let nothing = files.write("nothing", "garbage\nmore garbage\n");
    let run = simulate(&["--rules", &rules, &nothing]);
    assert!(run.code == Some(2) && run.stderr.contains("unknown log format"), "{}", run.stderr);
    let empty = files.write("empty", "");
    assert_eq!(simulate(&["--rules", &rules, &empty]).code, Some(0));
    assert_eq!(simulate(&["--rules", &rules, "/does/not/exist"]).code, Some(2));
    let mixed = nginx(1, "192.0.2.1", "GET /") + "{\"time\":1}\n" + &nginx(2, "192.0.2.1", "GET /");
    let mixed = files.write("mixed", mixed);
    assert_eq!(simulate(&["--rules", &rules, "--unreadable-max", "50%", &mixed]).json()["unreadable"], 1);
}

#[test]
fn synthetic_traffic_is_the_same_in_every_run() {
    let files = Files::new();
    let rules = files.write("rules.yaml", rules("{ token-bucket: 2/s, burst: 5 }", "user"));
    let spec = "rate=500/s,arrivals=poisson,subjects=2000,zipf=1.1,for=1min";
    let run = || {
        let mut report = simulate(&["--rules", &rules, "--synthetic", spec]).json();
        report["seconds"] = Value::Null;
        report
    };
    let report = run();
    assert_eq!(report, run());
    let requests = report["new"]["requests"].as_u64().expect("a number");
    assert!((29_000..31_000).contains(&requests), "{requests}");
    assert!(report["new"]["refused"].as_u64() > Some(1_000), "{}", report["new"]["refused"]);
    // A subject cannot spend more than its burst and two a second.
    let mut checked = String::new();
    for top in report["top"].as_array().expect("a list") {
        let (checks, refused) = (top["checks"].as_u64().unwrap_or(0), top["refused"].as_u64().unwrap_or(0));
        write!(checked, "{checks} {refused}; ").expect("a string");
        assert!(checks - refused <= 5 + 2 * 60, "{top}");
    }
    assert!(!checked.is_empty());
}

#[test]
fn the_corpus_of_logs_holds_truncated_and_changed() {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut count = 0;
    for format in ["nginx", "json", "csv", "envoy", "caddy", "traefik", "haproxy", "capture"] {
        for entry in std::fs::read_dir(corpus.join(format!("log_{format}"))).expect("there is a corpus") {
            let path = entry.expect("it can be listed").path();
            // The name is printed if the property fails.
            println!("{}", path.display());
            let bytes = std::fs::read(&path).expect("it can be read");
            log(format, &bytes);
            for offset in 0..bytes.len() {
                log(format, &bytes[..offset]);
                let mut changed = bytes.clone();
                for byte in [0, b'"', b'\\', b'[', b' ', b'\n', b'9', 0xff] {
                    changed[offset] = byte;
                    log(format, &changed);
                }
            }
            count += 1;
        }
    }
    assert!(count >= 14, "{count} files");
}

#[test]
fn the_report_for_browsers_is_one_file_that_runs_nothing_from_a_log() {
    let files = Files::new();
    let hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>";
    let rules = files.write("rules.yaml", rules("{ fixed-window: 2/min }", "user"));
    let line = |second: u64| {
        let user = Value::from(hostile);
        format!("{{\"time\":{},\"user\":{user},\"path\":\"/\"}}\n", 1_795_032_000 + second)
    };
    let log = files.write("log", (0..30).map(line).collect::<String>());
    let path = files.write("report.html", "");
    let run = simulate(&["--rules", &rules, "--against", &rules, "--show-subjects", "--html", &path, &log]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let page = std::fs::read_to_string(&path).expect("the report");
    assert!(page.contains("&lt;img src=x onerror"), "the value is shown");
    assert!(!page.contains("<img") && page.matches("<script").count() == 2, "and is no element");
    assert!(!page.contains("http://") && !page.contains("https://"), "nothing is loaded");
    let data =
        page.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).expect("data");
    let data: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(data["new"]["refused"], 28);
    assert!(data["top"][0]["values"].as_str().expect("values").contains(hostile));
    assert_eq!(page.matches("<svg").count(), 2, "one chart of all rules and one of the rule");
    assert_eq!(page.matches("<details>").count(), 2, "each with a table");
    let hidden = simulate(&["--rules", &rules, "--html", &path, &log]);
    assert_eq!(hidden.code, Some(0), "{}", hidden.stderr);
    assert!(!std::fs::read_to_string(&path).expect("the report").contains("onerror"), "subjects are hashes");
}

#[test]
fn a_suggested_number_holds_on_the_other_half_of_the_trace() {
    let files = Files::new();
    let (mut state, mut halves) = (3, [String::new(), String::new()]);
    // Clients of different rates: client k sends about k requests a minute, for two hours.
    for minute in 0..120_u64 {
        for client in 0..40_u64 {
            let drawn: Vec<u64> = (0..client * 2).map(|_| random(&mut state)).collect();
            let mut seconds: Vec<u64> =
                drawn.iter().filter(|drawn| drawn.is_multiple_of(2)).map(|drawn| drawn / 2 % 60).collect();
            seconds.sort_unstable();
            for second in seconds {
                let line = format!(
                    "{{\"time\":{},\"ip\":\"192.0.2.{client}\",\"path\":\"/\"}}\n",
                    1_795_032_000 + minute * 60 + second
                );
                halves[(minute / 60) as usize] += &line;
            }
        }
    }
    // The clients of one minute follow each other; the replay needs the order of time.
    let halves = halves.map(|half| {
        let mut lines: Vec<&str> = half.lines().collect();
        lines.sort();
        lines.join("\n")
    });
    let [first, second] = [files.write("first", &halves[0]), files.write("second", &halves[1])];
    for limit in [
        "{ fixed-window: 10/min }",
        "{ sliding-window: 10/min, buckets: 6 }",
        "{ token-bucket: 10/min, burst: 12 }",
        "{ sliding-log: 10/min }",
    ] {
        let text = rules(limit, "ip");
        let path = files.write("rules.yaml", &text);
        let report = simulate(&["--rules", &path, "--suggest", "refused < 2%", &first]).json();
        let suggested = &report["suggestions"][0];
        assert!(suggested["percent_now"].as_f64() > Some(20.0), "{limit}: {suggested}");
        let (before, after) =
            (suggested["before"].as_str().expect("a line"), suggested["after"].as_str().expect("a line"));
        let changed = files.write("changed.yaml", text.replace(before, after));
        let share = |log: &str| {
            let report = simulate(&["--rules", &changed, log]).json();
            let only = rule(&report, "new", "only");
            only["refused"].as_f64().expect("a number") * 100.0 / only["checks"].as_f64().expect("a number")
        };
        let (on_first, held_out) = (share(&first), share(&second));
        println!("{limit}: {after}; {on_first:.3} %, held out {held_out:.3} %");
        assert!(on_first < 2.0, "{limit}: {after} {on_first}");
        assert!(held_out < 3.0, "{limit}: {after} {held_out}");
    }
}
