//! Counts instructions: a test runs itself again under callgrind, with an environment variable that selects the work.

use std::env;
use std::process::Command;

/// Returns the number of instructions in `function` when the test `test` runs with `variable` set.
pub fn instructions(test: &str, function: &str, variable: (&str, &str)) -> u64 {
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect=*{function}*"))
        .arg(env::current_exe().expect("the path of the test program"))
        .args(["--exact", test, "--test-threads=1"])
        .env(variable.0, variable.1)
        .output()
        .unwrap_or_else(|error| panic!("this test needs valgrind (`cargo xtask test` installs it): {error}"));
    let output = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{}\n{output}{}", run.status, String::from_utf8_lossy(&run.stdout));
    let collected = output.lines().find_map(|line| line.split_once("Collected :"));
    let collected = collected.and_then(|(_, count)| count.trim().parse::<u64>().ok());
    let collected = collected.filter(|&count| count > 0);
    collected.unwrap_or_else(|| panic!("callgrind did not see the function\n{output}"))
}
