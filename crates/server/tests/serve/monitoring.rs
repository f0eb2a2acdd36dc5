//! The files for Prometheus and Grafana, read by their own programs.

use std::path::{Path, PathBuf};

use tollgate_testkit::tools::Tool;

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file)
}

#[test]
fn alerts_fire_and_do_not_fire() {
    let output = Tool::Promtool
        .command()
        .args(["test", "rules"])
        .arg(deploy("prometheus/alerts_test.yaml"))
        .output()
        .expect("promtool runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let alerts = std::fs::read_to_string(deploy("prometheus/alerts.yaml")).expect("the alerts");
    let tests = std::fs::read_to_string(deploy("prometheus/alerts_test.yaml")).expect("the tests");
    for alert in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let named = |fires: bool| {
            tests.split("- eval_time").chain(tests.split("- { eval_time")).any(|test| {
                let test = test.split("- eval_time").next().unwrap_or(test);
                let test = test.split("- { eval_time").next().unwrap_or(test);
                test.contains(&format!("alertname: {alert}")) && test.contains("exp_alerts") == fires
            })
        };
        assert!(
            named(true) && named(false),
            "{alert} lacks a test in which it fires, or one in which it does not"
        );
    }
}

#[test]
fn the_dashboard_matches_grafanas_schema() {
    let output = Tool::Grafana
        .command()
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/dashboard.py"))
        .arg(deploy("grafana/tollgate.json"))
        .output()
        .expect("python runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}
