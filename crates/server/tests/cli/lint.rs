//! `tollgate lint`: problems, exit codes, formats.

use crate::{CLEAN, SHOP, TYPOS, tollgate, tollgate_reading};

#[test]
fn lint_finds_all_problems_of_all_files() {
    let run = tollgate_reading(CLEAN, &["lint", TYPOS, "-"]);
    assert_eq!((run.code, run.last_line()), (Some(1), "2 files, 3 errors"));
    for place in [":5:5", ":8:", ":10:"] {
        assert!(run.stdout.contains(&format!("--> {TYPOS}{place}")), "{place}: {}", run.stdout);
    }
    assert!(run.stdout.contains("did you mean `limit`?"));
}

#[test]
fn a_folder_is_checked_as_one_file_and_a_duplicate_names_both_places() {
    let folder = crate::scratch("lint-folder");
    std::fs::create_dir_all(&folder).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file");
    let path = folder.to_str().expect("text");
    let rule = "rules:\n  - { id: a, per: user, missing: refuse, limit: { sliding-log: 9/min } }\n";
    write("a.yaml", &format!("version: 1\n{rule}"));
    write(
        "overrides.yaml",
        "overrides:\n  - { when: { plan: pro }, rule: a, limit: { sliding-log: 99/min } }\n",
    );
    let together = tollgate(&["lint", path]);
    assert_eq!(
        (together.code, together.last_line()),
        (Some(0), "1 file, no problems"),
        "{}",
        together.stdout
    );
    let limit = ["check", "--peek", "--rules", path, "--format", "json", "plan=pro", "user=u"];
    assert!(tollgate(&limit).stdout.contains("\"limit\":99"));
    assert!(
        tollgate(&["explain", "--rules", path, "plan=pro", "user=u"]).stdout.contains("overrides.yaml:2")
    );

    write("z.yaml", &format!("# twice\n{rule}"));
    let twice = tollgate(&["lint", path]);
    assert_eq!(twice.code, Some(1), "{}", twice.stdout);
    for part in ["duplicate rule id", "z.yaml:3:", "a.yaml:3:", "first here"] {
        assert!(twice.stdout.contains(part), "{part}: {}", twice.stdout);
    }
    let sarif = tollgate(&["lint", "--format", "sarif", path]).stdout;
    assert!(sarif.contains("z.yaml\"") && sarif.contains("a.yaml\""), "{sarif}");
}

#[test]
fn lint_continues_after_an_unreadable_file() {
    let run = tollgate(&["lint", "no/such/file.yaml", TYPOS]);
    assert_eq!((run.code, run.last_line()), (Some(2), "1 file, 3 errors"));
    assert!(run.stderr.contains("no/such/file.yaml"), "{}", run.stderr);
}

#[test]
fn lint_fails_for_warnings_only_with_deny_warnings() {
    let ended = format!(
        "{CLEAN}overrides:\n  - {{ when: {{ plan: pro }}, rule: a, limit: {{ sliding-log: 9/min }}, until: 2001-01-01T00:00:00Z }}\n"
    );
    let note = CLEAN.replace("user, missing: refuse", "ip, missing: refuse");
    for (text, args, code, last) in [
        (CLEAN, &["lint", "-"][..], 0, "1 file, no problems"),
        (CLEAN, &["lint", "--deny-warnings", "-"], 0, "1 file, no problems"),
        (&note, &["lint", "--deny-warnings", "-"], 0, "1 file, 1 note"),
        (&ended, &["lint", "-"], 0, "1 file, 1 warning"),
        (&ended, &["lint", "--deny-warnings", "-"], 1, "1 file, 1 warning"),
        ("version: 2", &["lint", "-"], 1, "1 file, 2 errors"),
    ] {
        let run = tollgate_reading(text, args);
        assert_eq!((run.code, run.last_line()), (Some(code), last), "{args:?} {text}\n{}", run.stdout);
    }
}

#[test]
fn lint_options_add_attributes_and_cluster_checks() {
    let text = format!(
        "{CLEAN}  - {{ id: b, per: all, match: {{ colour: red }}, limit: {{ sliding-log: 5/s }} }}\n"
    );
    let found = |args: &[&str]| {
        let run = tollgate_reading(&text, &[&["lint", "-", "--format", "json"], args].concat());
        let problems = run.json()["problems"].as_array().cloned().unwrap_or_default();
        let has = |code: &str| problems.iter().any(|problem| problem["code"] == code);
        (has("unknown-attribute"), has("several-slots"))
    };
    assert_eq!(found(&[]), (true, false));
    assert_eq!(found(&["--known-attribute", "size,colour"]), (false, false));
    assert_eq!(found(&["--cluster", "--known-attribute", "size"]), (true, true));
}

#[test]
fn lint_formats_print_only_json_or_sarif() {
    let json = tollgate(&["lint", "--format", "json", TYPOS, SHOP]);
    let value = json.json();
    assert_eq!((json.code, json.stderr.as_str()), (Some(1), ""));
    assert_eq!((value["files"].as_u64(), value["errors"].as_u64()), (Some(2), Some(3)));
    let first = &value["problems"][0];
    assert_eq!(
        (first["file"].as_str(), first["line"].as_u64(), first["severity"].as_str(), first["code"].as_str()),
        (Some(TYPOS), Some(5), Some("error"), Some("unknown-key"))
    );
    let sarif = tollgate(&["lint", "--format", "sarif", TYPOS]);
    let value = sarif.json();
    assert_eq!((sarif.code, value["version"].as_str()), (Some(1), Some("2.1.0")));
    assert_eq!(value["runs"][0]["results"].as_array().map(Vec::len), Some(3));
}
