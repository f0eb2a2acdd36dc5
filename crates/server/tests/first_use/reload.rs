//! SIGHUP with a configuration file that has changed.

use super::*;

const CONFIG: &str = "rules: rules.yaml
connections_max: 100
tokens:
  - { name: one, digest: \"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\", scopes: [check] }
";

#[test]
fn an_invalid_configuration_is_an_event_with_its_cause_and_what_stays() {
    let folder = folder();
    put(folder.path(), "rules.yaml", RULES);
    let config = put(folder.path(), "tollgate.yaml", CONFIG);
    let server = start(&["--config", &config]);
    put(folder.path(), "tollgate.yaml", &CONFIG.replace("connections_max: 100", "conections_max: 100"));
    server.signal("HUP");
    let refused = server.wait_for("config_refused");
    assert_eq!(refused["level"], "ERROR");
    let cause = refused["cause"].as_str().expect("a cause");
    assert!(cause.contains("unknown key `conections_max`") && cause.contains("tollgate.yaml:2:1"), "{cause}");
    assert!(!cause.contains('\u{1b}'), "no colours: {cause:?}");
    assert_eq!(refused["stays"], "tokens, scopes and all other settings");
    // Every line of the log is an event: nothing was printed beside it.
    let text = server.text();
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{text}");

    fs::remove_file(&config).expect("it is there");
    server.signal("HUP");
    let unreadable = server.wait_for("config_refused");
    assert!(unreadable["cause"].as_str().is_some_and(|cause| cause.contains("cannot read")), "{unreadable}");
}

#[test]
fn changed_settings_that_need_a_restart_are_named() {
    let folder = folder();
    put(folder.path(), "rules.yaml", RULES);
    let config = put(folder.path(), "tollgate.yaml", CONFIG);
    let server = start(&["--config", &config]);
    let changed = CONFIG
        .replace("connections_max: 100", "connections_max: 200\nshutdown_timeout: 7s")
        .replace("[check]", "[read]");
    put(folder.path(), "tollgate.yaml", &changed);
    server.signal("HUP");
    let named = server.wait_for("restart_needed");
    // The default of one setting depends on another.
    assert_eq!(named["settings"], "connections_max, connections_max_per_address, shutdown_timeout");
    server.wait_for("access_replaced");

    put(folder.path(), "tollgate.yaml", &format!("{CONFIG}grpc: 127.0.0.1:0\n"));
    server.signal("HUP");
    assert_eq!(server.wait_for("restart_needed")["settings"], "grpc");
    let refused = server.wait_for("config_refused");
    assert!(refused["cause"].as_str().is_some_and(|cause| cause.contains("addresses")), "{refused}");
}
