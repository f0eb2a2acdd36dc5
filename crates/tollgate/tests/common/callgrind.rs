//! Counts instructions: a test runs itself under callgrind, with a variable that says what to do.

use std::env;
use std::process::Command;

/// The instructions that `function` takes when `test` of this program runs with `variable` set.
pub(crate) fn instructions(test: &str, function: &str, variable: (&str, &str)) -> u64 {
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect=*{function}*"))
        .arg(env::current_exe().expect("a test knows its program"))
        .args(["--exact", test, "--test-threads=1"])
        .env(variable.0, variable.1)
        .output()
        .unwrap_or_else(|error| panic!("this test needs valgrind (`cargo xtask test` installs it): {error}"));
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{}\n{said}{}", run.status, String::from_utf8_lossy(&run.stdout));
    let collected = said.lines().find_map(|line| line.split_once("Collected :"));
    let collected = collected.and_then(|(_, count)| count.trim().parse::<u64>().ok());
    let collected = collected.filter(|&count| count > 0);
    collected.unwrap_or_else(|| panic!("callgrind did not see the function\n{said}"))
}
