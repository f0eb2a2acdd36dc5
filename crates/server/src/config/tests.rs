//! Which layer wins, and how invalid values are reported.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tollgate::headers::{Dialect, Reset};
use tollgate_document::Colour;

use super::settings::{AcceptedIn, Kind, RENAMED, SETTINGS};
use super::*;
use crate::access::Digest;

const KEY: &str = "6a4c1f0d9e8b7a695847362514039281706f5e4d3c2b1a0918f7e6d5c4b3a291";
const OTHER_KEY: &str = "7a4c1f0d9e8b7a695847362514039281706f5e4d3c2b1a0918f7e6d5c4b3a291";
const DIGEST: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const CORES: usize = 3;

/// A folder with a configuration file and the files that it may name.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("tollgate-config-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        for (file, text) in [
            ("key", KEY),
            ("other-key", OTHER_KEY),
            ("short-key", "0123"),
            ("password", "s3cr3t\n"),
            ("empty", "\n"),
            ("rules.yaml", "version: 1\nrules: []\n"),
            ("cert.pem", ""),
        ] {
            fs::write(folder.join(file), text).expect("a file can be written");
        }
        Folder(folder)
    }

    /// Reads these layers.
    fn read(
        &self,
        file: &str,
        variables: &[(&str, &str)],
        flags: &[(&'static str, &str)],
    ) -> (Layers, Config) {
        let path = self.0.join("tollgate.yaml");
        fs::write(&path, file).expect("a file can be written");
        let flags = Flags {
            file: (!file.is_empty()).then_some(path),
            settings: flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        };
        let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        read(&flags, variables.collect(), CORES).expect("the file can be read")
    }

    fn valid(&self, file: &str, variables: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Config {
        let (layers, config) = self.read(file, variables, flags);
        assert_eq!(layers.render(Colour::Plain), "", "{file} {variables:?} {flags:?}");
        config
    }

    fn problems(&self, file: &str, variables: &[(&str, &str)], flags: &[(&'static str, &str)]) -> String {
        let (layers, _) = self.read(file, variables, flags);
        layers.render(Colour::Plain).replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover folder does no harm.
        drop(fs::remove_dir_all(&self.0));
    }
}

fn port(config: &Config) -> u16 {
    config.addresses[0].1.map_or(0, |address| address.port())
}

#[test]
fn each_layer_overrides_the_one_below() {
    let folder = Folder::new("layers");
    let file = "http: 127.0.0.1:1001\n";
    let variable = [("TOLLGATE_HTTP", "127.0.0.1:1002")];
    let flag = [("http", "127.0.0.1:1003")];
    for (expected, config, origin) in [
        (8080, folder.read("", &[], &[]), "default"),
        (1001, folder.read(file, &[], &[]), "tollgate.yaml:1"),
        (1002, folder.read("", &variable, &[]), "TOLLGATE_HTTP"),
        (1002, folder.read(file, &variable, &[]), "TOLLGATE_HTTP"),
        (1003, folder.read("", &[], &flag), "--http"),
        (1003, folder.read(file, &[], &flag), "--http"),
        (1003, folder.read(file, &variable, &flag), "--http"),
        // An empty variable counts as unset.
        (1001, folder.read(file, &[("TOLLGATE_HTTP", "")], &[]), "tollgate.yaml:1"),
    ] {
        let (layers, config) = config;
        assert_eq!(layers.error_count(), 0);
        assert_eq!(port(&config), expected);
        let settings = show::effective_settings(&layers, &config);
        let http = settings.iter().find(|setting| setting.name == "http").expect("it is in the table");
        assert_eq!(http.value.as_deref(), Some(format!("127.0.0.1:{expected}").as_str()));
        assert!(http.origin.to_string().ends_with(origin), "{} {origin}", http.origin);
    }
}

#[test]
fn config_flag_overrides_the_config_variable() {
    let folder = Folder::new("found");
    let [one, two] = [("one.yaml", "threads: 11\n"), ("two.yaml", "threads: 22\n")].map(|(name, text)| {
        fs::write(folder.0.join(name), text).expect("a file can be written");
        folder.0.join(name)
    });
    let variables = vec![(OsString::from(CONFIG_VARIABLE), one.into_os_string())];
    let by_variable = read(&Flags::default(), variables.clone(), CORES).expect("the file can be read");
    assert_eq!(by_variable.1.threads, 11);
    let by_flag =
        read(&Flags { file: Some(two), ..Flags::default() }, variables, CORES).expect("the file can be read");
    assert_eq!(by_flag.1.threads, 22);
}

#[test]
fn secret_comes_from_the_highest_layer_and_there_from_its_file() {
    let folder = Folder::new("secrets");
    let id = |config: &Config| config.hashers.as_ref().map(|hashers| hashers.current().fingerprint());
    let own = id(&folder.valid("hash_key_file: key\n", &[], &[]));
    let other = id(&folder.valid("", &[("TOLLGATE_HASH_KEY", OTHER_KEY)], &[]));
    assert!(own.is_some() && other.is_some() && own != other);
    let above = folder.valid("hash_key_file: key\n", &[("TOLLGATE_HASH_KEY", OTHER_KEY)], &[]);
    assert_eq!(id(&above), other, "a variable overrides the configuration file");
    let path = folder.0.join("key").display().to_string();
    let both_variables = [("TOLLGATE_HASH_KEY", OTHER_KEY), ("TOLLGATE_HASH_KEY_FILE", path.as_str())];
    assert_eq!(id(&folder.valid("", &both_variables, &[])), own, "within one layer, the file wins");
    let both =
        folder.valid("{ hash_key_file: key, hash_key_id: 1, previous_hash_key_file: other-key }", &[], &[]);
    let hashers = both.hashers.expect("there are keys");
    assert_eq!(hashers.current().key_id(), 1);
    assert_eq!(hashers.previous().map(|key| key.fingerprint()), other);
}

#[test]
fn every_setting_of_the_file_reaches_the_configuration() {
    let folder = Folder::new("whole");
    let config = folder.valid(
        &format!(
            "rules: rules.yaml
store: redis+sentinel://tollgate@s1:1,s2:2/gate
store_password_file: password
store_sentinel_password_file: password
store_deadline: 40ms
keys_max: 5_000
own_keys_max: 50
state_bytes_max: 2_000_000
in_flight_max_per_caller: 12
servers: 3
resp_output_max: 70_000
hash_key_file: key
hash_key_id: 2
previous_hash_key_file: other-key
previous_hash_key_id: 1
request_id_horizon: 5min
http: 0.0.0.0:8443
resp: off
grpc: '[::1]:9090'
admin: 127.0.0.1:9000
allowed_hosts: [tollgate.internal, 10.0.0.5]
tls_certificate: cert.pem
tls_key: cert.pem
tls_client_ca: cert.pem
tokens:
  - {{ name: ci, digest: '{DIGEST}', scopes: [check, change] }}
  - {{ name: acme, digest: '{}', scopes: [check, refund], attributes: {{ tenant: acme }} }}
  - {{ name: old.ci, digest: '{}', scopes: read }}
anonymous: none
certified: [read]
insecure: false
trusted_proxies: [10.0.0.0/8, ::1]
proxy_header: forwarded
client_prefix_v4: 24
client_prefix_v6: 56
headers: x-ratelimit-delta
threads: 7
connections_max: 99
connections_max_per_address: 9
shutdown_timeout: 1min
log_format: json
log_filter: warn,tollgate=debug
log_refusals_per_second: 0
traces_endpoint: http://localhost:4317
traces_one_in: 10
",
            DIGEST.replace("ad", "af"),
            DIGEST.replace("ad", "ae")
        ),
        &[],
        &[],
    );
    assert_eq!(
        config.rules,
        Some(folder.0.join("rules.yaml")),
        "relative paths start in the folder of the file"
    );
    let StoreConfig::Redis(settings) = &config.store else { panic!("{:?}", config.store) };
    let debug = format!("{settings:?}");
    assert!(debug.contains("40ms") && debug.contains("gate") && !debug.contains("s3cr3t"), "{debug}");
    assert_eq!(config.request_id_horizon, Duration::from_secs(300));
    assert_eq!(
        config.addresses,
        [
            (Protocol::Http, Some("0.0.0.0:8443".parse().expect("an address"))),
            (Protocol::Resp, None),
            (Protocol::Grpc, Some("[::1]:9090".parse().expect("an address"))),
            (Protocol::Admin, Some("127.0.0.1:9000".parse().expect("an address"))),
        ]
    );
    let tls = config.tls.as_ref().expect("there is TLS");
    assert_eq!(tls.client_ca, Some(folder.0.join("cert.pem")));
    let token = |digest: Digest| config.access.find(&digest).expect("it is configured");
    assert_eq!(token(Digest::of(b"abc")).scopes, Scopes::CHECK.and(Scopes::CHANGE));
    let bound = token(DIGEST.replace("ad", "af").parse().expect("a digest"));
    assert_eq!(bound.bound.attributes(), [("tenant".to_owned(), "acme".to_owned())]);
    assert_eq!(bound.scopes, Scopes::CHECK.and(Scopes::REFUND));
    assert_eq!((config.anonymous, config.certified), (Scopes::NONE, Scopes::READ));
    assert!(config.proxies.trusts("10.9.8.7".parse().expect("an address")));
    assert!(!config.proxies.trusts("11.9.8.7".parse().expect("an address")));
    assert_eq!(config.proxies.header().name(), Some("forwarded"));
    let block = config.prefixes.block("192.0.2.77".parse().expect("an address"));
    assert_eq!(block.to_string(), "192.0.2.0/24");
    assert_eq!(config.dialect, Dialect::XRateLimit { reset: Reset::Delta });
    assert_eq!((config.threads, config.connections_max, config.shutdown_timeout.as_secs()), (7, 99, 60));
    assert_eq!((config.connections_max_per_address, config.control_on_http), (9, false));
    assert_eq!((config.in_flight_max_per_caller, config.resp_output_max), (12, 70_000));
    assert_eq!(config.servers, 3);
    assert_eq!(config.store_deadline, Duration::from_millis(40));
    assert_eq!(config.allowed_hosts, ["tollgate.internal", "10.0.0.5"]);
    let log = &config.log;
    assert_eq!(
        (log.format, log.filter.as_str(), log.refusals_per_second),
        (LogFormat::Json, "warn,tollgate=debug", 0)
    );
    let traces = config.traces.as_ref().expect("there are traces");
    assert_eq!((traces.endpoint.as_str(), traces.one_in), ("http://localhost:4317", 10));
}

#[test]
fn defaults_are_safe() {
    let folder = Folder::new("defaults");
    let config = folder.valid("# nothing yet\n", &[], &[]);
    for (protocol, address) in config.addresses {
        let is_on = !matches!(protocol, Protocol::Grpc | Protocol::Admin);
        assert_eq!(address.is_some_and(|address| address.ip().is_loopback()), is_on, "{protocol:?}");
    }
    assert_eq!(config.threads, CORES);
    assert_eq!(config.connections_max_per_address, 2_500, "a quarter of the maximum");
    assert_eq!(config.anonymous, Scopes::CHECK_FAMILY.and(Scopes::READ), "only this machine can connect");
    assert_eq!(config.certified, Scopes::CHECK);
    assert!(matches!(
        config.store,
        StoreConfig::Memory { keys_max: 10_000_000, own_keys_max: 1_000_000, state_bytes_max: None }
    ));
    assert_eq!((config.in_flight_max_per_caller, config.resp_output_max), (256, 64 * 1024 * 1024));
    assert_eq!(config.dialect, Dialect::default());
    let tokens = format!("tokens: [{{ name: a, digest: '{DIGEST}', scopes: check }}]\n");
    assert_eq!(
        folder.valid(&tokens, &[], &[]).anonymous,
        Scopes::NONE,
        "with tokens, anonymous callers have no scope"
    );
    let certificates = "{ tls_certificate: cert.pem, tls_key: cert.pem, tls_client_ca: cert.pem }";
    assert_eq!(
        folder.valid(certificates, &[], &[]).anonymous,
        Scopes::NONE,
        "with a client CA, anonymous callers have no scope"
    );
    let granted = folder.valid(&tokens, &[("TOLLGATE_ANONYMOUS", "read, check")], &[]);
    assert_eq!(granted.anonymous, Scopes::CHECK.and(Scopes::READ));
}

#[test]
fn control_routes_are_on_http_only_if_it_is_loopback_and_admin_is_unset() {
    let folder = Folder::new("control");
    for (file, expected) in [
        ("# nothing\n", true),
        ("http: '[::1]:80'\n", true),
        ("{ http: 0.0.0.0:80, insecure: true }", false),
        ("{ http: 10.0.0.5:80, insecure: true }", false),
        ("admin: off\n", false),
        ("admin: 127.0.0.1:9000\n", false),
        ("http: off\n", false),
    ] {
        assert_eq!(folder.valid(file, &[], &[]).control_on_http, expected, "{file}");
    }
}

#[test]
fn public_listener_requires_credentials_or_insecure() {
    let folder = Folder::new("public");
    let tokens = format!("tokens: [{{ name: a, digest: '{DIGEST}', scopes: check }}]\n");
    let certificates = "{ tls_certificate: cert.pem, tls_key: cert.pem, tls_client_ca: cert.pem }";
    for address in ["0.0.0.0:80", "[::]:80", "192.0.2.1:80", "[2001:db8::1]:80", "[::ffff:192.0.2.1]:80"] {
        for name in ["http", "resp", "grpc", "admin"] {
            let problems = folder.problems("", &[], &[(name, address)]);
            assert!(
                problems.contains("public-without-access") && problems.contains(&format!("--> --{name}:1:1")),
                "{problems}"
            );
            assert!(
                problems.contains("tollgate token") && problems.contains("--insecure"),
                "the report contains the fixes: {problems}"
            );
            folder.valid("", &[], &[(name, address), ("insecure", "true")]);
            folder.valid(&tokens, &[], &[(name, address)]);
            folder.valid(certificates, &[], &[(name, address)]);
        }
    }
    let tls_alone =
        folder.problems("{ tls_certificate: cert.pem, tls_key: cert.pem }", &[], &[("http", "0.0.0.0:80")]);
    assert!(
        tls_alone.contains("public-without-access"),
        "TLS alone does not authenticate callers: {tls_alone}"
    );
    for address in ["127.0.0.1:80", "127.9.9.9:80", "[::1]:80", "[::ffff:127.0.0.1]:80", "off"] {
        folder.valid("", &[], &[("resp", address)]);
    }
}

/// A file, the position of its problem, the code, and a part of the report.
type BadFile = (&'static str, &'static str, &'static str, &'static str);

#[test]
fn every_problem_of_a_file_is_reported_with_its_position_and_a_hint() {
    let folder = Folder::new("files");
    let cases: &[BadFile] = &[
        ("htpp: off", "1:1", "unknown-key", "did you mean `http`?"),
        ("keys-max: 5", "1:1", "unknown-key", "did you mean `keys_max`?"),
        ("threads: 2\nthreads: 3", "2:1", "duplicate-key", "threads"),
        ("- http", "1:1", "wrong-type", "a configuration"),
        ("http: [", "1:7", "syntax", "add the closing `]`"),
        ("http: localhost:8080", "1:7", "bad-text", "127.0.0.1:8080 or [::1]:8080"),
        ("http: 8080", "1:7", "bad-text", "0.0.0.0:8080 for all interfaces"),
        ("http: :8080", "1:7", "bad-text", "127.0.0.1:8080 for this machine only"),
        ("http: ::1:8080", "1:7", "bad-text", "in brackets, like [::1]:8080"),
        ("http: none", "1:7", "bad-text", "write `off`"),
        ("http: 127.0.0.1:99999", "1:7", "bad-text", "like 127.0.0.1:8080"),
        ("http: { port: 80 }", "1:7", "wrong-type", "an IP address and a port"),
        ("{ http: off, resp: off }", "1:9", "no-port", "http: 127.0.0.1:8080"),
        ("resp: 127.0.0.1:8080", "1:7", "same-port", "duplicate address 127.0.0.1:8080"),
        ("http: 0.0.0.0:8080", "1:7", "public-without-access", "tollgate token"),
        ("store: memry", "1:8", "bad-text", "did you mean `memory`?"),
        ("store: http://host", "1:8", "bad-text", "redis://"),
        ("store: redis://host/zero", "1:8", "bad-text", "number of a database"),
        ("store: redis://host", "1:8", "no-hash-key", "openssl rand -hex 32"),
        (
            "{ store: 'redis://u:pw9@host', hash_key_file: key }",
            "1:10",
            "bad-text",
            "TOLLGATE_STORE_PASSWORD",
        ),
        ("store_password: pw9", "1:17", "bad-text", "secrets are not accepted in this file"),
        ("store_password_file: password", "1:22", "unused-setting", "set store: redis://HOST:PORT"),
        (
            "{ store: 'redis://h', hash_key_file: key, store_sentinel_password_file: password }",
            "1:73",
            "unused-setting",
            "redis+sentinel://",
        ),
        (
            "{ store: 'redis://h', hash_key_file: key, store_password_file: empty }",
            "1:64",
            "empty-secret",
            "write the secret to it",
        ),
        ("store_deadline: 25", "1:17", "wrong-type", "25ms"),
        ("store_deadline: 0s", "1:17", "duration-out-of-range", "from 1ms to 1min"),
        ("store_deadline: soon", "1:17", "bad-text", "like 30s"),
        ("keys_max: 0", "1:11", "number-out-of-range", "from 1 to 1000000000"),
        ("keys_max: many", "1:11", "bad-number", "a whole number"),
        ("keys_max: '5'", "1:11", "bad-number", "remove the quotes: 5"),
        ("rules: no/such.yaml", "1:8", "unreadable-file", "relative paths start in the folder of this file"),
        ("hash_key_file: .", "1:16", "unreadable-file", "is a directory"),
        ("hash_key_file: short-key", "1:16", "bad-hash-key", "64 hexadecimal digits"),
        ("hash_key_id: 1", "1:14", "no-hash-key", "TOLLGATE_HASH_KEY"),
        ("{ hash_key_file: key, hash_key_id: 256 }", "1:36", "number-out-of-range", "from 0 to 255"),
        ("previous_hash_key_file: key", "1:25", "no-hash-key", "only the previous one is set"),
        (
            "{ hash_key_file: key, previous_hash_key_file: other-key }",
            "1:47",
            "bad-rotation",
            "previous_hash_key_id",
        ),
        (
            "{ hash_key_file: key, hash_key_id: 1, previous_hash_key_file: key }",
            "1:63",
            "bad-rotation",
            "differ",
        ),
        ("request_id_horizon: 2d", "1:21", "duration-out-of-range", "from 1s to 1d"),
        ("tls_certificate: cert.pem", "1:18", "incomplete-tls", "missing setting `tls_key`"),
        ("tls_key: cert.pem", "1:10", "incomplete-tls", "missing setting `tls_certificate`"),
        ("tls_client_ca: cert.pem", "1:16", "incomplete-tls", "missing setting `tls_certificate`"),
        ("tokens: abc", "1:9", "wrong-type", "a list"),
        ("tokens: [{ name: a, scopes: check }]", "1:10", "missing-key", "missing key `digest`"),
        (
            "tokens: [{ name: a, digest: 'sha256:00', scopes: check }]",
            "1:29",
            "bad-text",
            "64 hexadecimal digits",
        ),
        ("allowed_hosts: 'http://x'", "1:16", "bad-text", "without scheme"),
        ("anonymous: chek", "1:12", "bad-choice", "did you mean `check`?"),
        ("anonymous: [none, read]", "1:13", "none-and-more", "remove `none`"),
        ("anonymous: [check, change]", "1:20", "scope-needs-token", "only tokens can have it"),
        ("{ anonymous: admin, insecure: true }", "1:14", "scope-needs-token", "only tokens can have it"),
        ("certified: admin", "1:12", "scope-needs-token", "only tokens can have it"),
        ("insecure: yes", "1:11", "wrong-type", "write `true`"),
        ("trusted_proxies: 10.0.0.1/8", "1:18", "bad-text", "`10.0.0.0/8`"),
        ("trusted_proxies: 10.0.0.0/8", "1:18", "no-proxy-header", "proxy_header: x-forwarded-for"),
        ("proxy_header: forwarded", "1:15", "no-proxies", "trusted_proxies: 10.0.0.0/8"),
        ("proxy_header: X_Forwarded_For", "1:15", "bad-choice", "did you mean `x-forwarded-for`?"),
        ("client_prefix_v4: 33", "1:19", "number-out-of-range", "from 0 to 32"),
        ("headers: ietf08", "1:10", "bad-choice", "did you mean `ietf-08`?"),
        ("threads: 0", "1:10", "number-out-of-range", "from 1 to 1024"),
        ("connections_max: -1", "1:18", "bad-number", "from 1 to 1000000"),
        ("shutdown_timeout: 2h", "1:19", "duration-out-of-range", "from 0s to 1h"),
        ("log_format: jsn", "1:13", "bad-choice", "did you mean `json`?"),
        ("log_filter: verbose", "1:13", "bad-text", "the levels are off, error, warn"),
        ("log_filter: info,tollgate=dbg", "1:13", "bad-text", "unknown level"),
        ("traces_endpoint: localhost:4317", "1:18", "bad-text", "like http://localhost:4317"),
        ("traces_one_in: 10", "1:16", "unused-setting", "traces_endpoint: http://localhost:4317"),
    ];
    for (file, at, code, words) in cases {
        let problems = folder.problems(file, &[], &[]);
        let expected = [format!("error[{code}]"), format!("--> tollgate.yaml:{at}\n"), (*words).to_owned()];
        for part in expected {
            assert!(problems.contains(&part), "{file}: expected {part}\n{problems}");
        }
        assert_eq!(problems.matches("error[").count(), 1, "one mistake, one problem: {file}\n{problems}");
        assert!(!problems.contains("pw9"), "{problems}");
    }
}

#[test]
fn every_problem_of_a_variable_or_flag_is_reported_with_its_name() {
    let folder = Folder::new("others");
    let variables: &[(&str, &str, &str, &str)] = &[
        ("TOLLGATE_HTP", "off", "environment:1:1", "did you mean TOLLGATE_HTTP?"),
        ("TOLLGATE_TOKENS", "abc", "environment:1:1", "in the configuration file"),
        ("TOLLGATE_SOMETHING_ELSE", "x", "environment:1:1", "unset it"),
        ("TOLLGATE_HTTP", "localhost:1", "TOLLGATE_HTTP:1:1", "127.0.0.1:1"),
        ("TOLLGATE_RESP", "0.0.0.0:6380", "TOLLGATE_RESP:1:1", "tollgate token"),
        ("TOLLGATE_THREADS", "many", "TOLLGATE_THREADS:1:1", "from 1 to 1024"),
        ("TOLLGATE_THREADS", " ", "TOLLGATE_THREADS:1:1", "from 1 to 1024"),
        ("TOLLGATE_INSECURE", "1", "TOLLGATE_INSECURE:1:1", "`true` or `false`"),
        ("TOLLGATE_INSECURE", "yes", "TOLLGATE_INSECURE:1:1", "write `true`"),
        ("TOLLGATE_ANONYMOUS", "check, reed", "TOLLGATE_ANONYMOUS:1:8", "did you mean `read`?"),
        ("TOLLGATE_TRUSTED_PROXIES", " 10.1", "TOLLGATE_TRUSTED_PROXIES:1:2", "10.1"),
        ("TOLLGATE_STORE", "redis://:pw9@host", "TOLLGATE_STORE:1:1", "TOLLGATE_STORE_PASSWORD"),
        ("TOLLGATE_STORE", "redis://host", "TOLLGATE_STORE:1:1", "TOLLGATE_HASH_KEY"),
        ("TOLLGATE_HASH_KEY", "pw9", "TOLLGATE_HASH_KEY:1:1", "64 hexadecimal digits"),
        ("TOLLGATE_HASH_KEY_FILE", "no/such", "TOLLGATE_HASH_KEY_FILE:1:1", "in the current directory"),
        (
            "TOLLGATE_STORE_PASSWORD_FILE",
            "Cargo.toml",
            "TOLLGATE_STORE_PASSWORD_FILE:1:1",
            "the memory store has no password",
        ),
        ("TOLLGATE_SHUTDOWN_TIMEOUT", "10", "TOLLGATE_SHUTDOWN_TIMEOUT:1:1", "a duration"),
        (
            "TOLLGATE_TRACES_ENDPOINT",
            "http://u:pw9@host",
            "TOLLGATE_TRACES_ENDPOINT:1:1",
            "must not contain a user or password",
        ),
    ];
    for (name, value, at, words) in variables {
        let problems = folder.problems("", &[(name, value)], &[]);
        assert!(
            problems.contains(&format!("--> {at}\n")) && problems.contains(words),
            "{name}={value}\n{problems}"
        );
        assert_eq!(problems.matches("error[").count(), 1, "{name}={value}\n{problems}");
        assert!(!problems.contains("pw9"), "{problems}");
    }
    let flags: &[(&'static str, &str, &str)] = &[
        ("http", "8080", "127.0.0.1:8080"),
        ("store", "redis://u:pw9@host", "TOLLGATE_STORE_PASSWORD"),
        ("store_deadline", "2min", "from 1ms to 1min"),
        ("log_format", "yaml", "`text` or `json`"),
        ("rules", "no/such.yaml", "cannot read no/such.yaml"),
        ("insecure", "maybe", "`true` or `false`"),
    ];
    for (name, value, words) in flags {
        let problems = folder.problems("", &[], &[(name, value)]);
        let flag = name.replace('_', "-");
        assert!(
            problems.contains(&format!("--> --{flag}:1:1\n")) && problems.contains(words),
            "--{flag} {value}\n{problems}"
        );
        assert!(!problems.contains("pw9"), "{problems}");
    }
    // Kubernetes sets these for a service with that name.
    let by_kubernetes = [
        ("TOLLGATE_SERVICE_HOST", "10.0.0.9"),
        ("TOLLGATE_PORT", "tcp://10.0.0.9:80"),
        ("TOLLGATE_PORT_80_TCP_ADDR", "10.0.0.9"),
        ("TOLLGATE_HTTP_SERVICE_PORT_WEB", "80"),
    ];
    folder.valid("", &by_kubernetes, &[]);
}

#[test]
fn problems_of_all_layers_are_reported_at_once() {
    let folder = Folder::new("all");
    let problems = folder.problems(
        "threads: 0\nhttp: 8080\nheadrs: ietf-08\n",
        &[("TOLLGATE_SHUTDOWN_TIMEOUT", "soon"), ("TOLLGATE_THREADS", "2")],
        &[("log_format", "xml")],
    );
    for at in [
        "tollgate.yaml:1:10",
        "tollgate.yaml:2:7",
        "tollgate.yaml:3:1",
        "TOLLGATE_SHUTDOWN_TIMEOUT:1:1",
        "--log-format:1:1",
    ] {
        assert!(problems.contains(at), "{at}\n{problems}");
    }
    assert_eq!(problems.matches("error[").count(), 5, "{problems}");
}

#[test]
fn secrets_are_never_printed() {
    let folder = Folder::new("redaction");
    let file = "store: redis+cluster://tollgate@a:1,b:2\nstore_password_file: password\nhash_key_file: key\n";
    let (layers, config) = folder.read(file, &[("TOLLGATE_STORE_PASSWORD", "pw9")], &[]);
    let settings = show::effective_settings(&layers, &config);
    let shown: String = settings.iter().map(|setting| format!("{}\n", setting.to_json())).collect();
    let debug = format!("{config:?}");
    for secret in ["s3cr3t", "pw9", KEY] {
        assert!(!shown.contains(secret) && !debug.contains(secret), "{shown}{debug}");
    }
    assert!(shown.contains(r#""value":"(secret)""#) && debug.contains("tollgate"), "{shown}{debug}");

    let problems = folder.problems(
        "store: redis://u:pw9@host\nhash_key: pw9\ntokens:\n  - { name: a, digest: pw9, scopes: check, x: tg_pw9 }\n  - { token: pw9 }\n",
        &[("TOLLGATE_HASH_KEY", "pw9"), ("TOLLGATE_STOR_PASSWORD", "pw9")],
        &[("store", "redis://h?password=pw9")],
    );
    assert!(!problems.contains("pw9"), "{problems}");
    assert!(problems.matches("error[").count() >= 8, "{problems}");
}

#[test]
fn tokens_need_unique_names_and_digests_and_a_scope() {
    let folder = Folder::new("tokens");
    let other = DIGEST.replace("ad", "ae");
    for (tokens, words) in [
        (
            format!(
                "[{{ name: a, digest: '{DIGEST}', scopes: check }}, {{ name: a, digest: '{other}', scopes: check }}]"
            ),
            "duplicate token name `a`",
        ),
        (
            format!(
                "[{{ name: a, digest: '{DIGEST}', scopes: check }}, {{ name: b, digest: '{DIGEST}', scopes: check }}]"
            ),
            "the tokens `a` and `b` are the same",
        ),
        (format!("[{{ name: a, digest: '{DIGEST}', scopes: none }}]"), "token `a` has no scope"),
        (format!("[{{ digest: '{DIGEST}', scopes: change }}]"), "missing key `name`"),
        (
            format!(
                "[{{ name: a, digest: '{DIGEST}', scopes: [check, read], attributes: {{ tenant: a }} }}]"
            ),
            "is bound and has the scope `read`",
        ),
        (
            format!("[{{ name: a, digest: '{DIGEST}', scopes: change, attributes: {{ tenant: a }} }}]"),
            "is bound and has the scope `change`",
        ),
        (format!("[{{ name: a, digest: '{DIGEST}', scopes: [] }}]"), "at least 1"),
        (format!("[{{ name: 'a b', digest: '{DIGEST}', scopes: check }}]"), "invalid name"),
    ] {
        let problems = folder.problems(&format!("tokens: {tokens}\n"), &[], &[]);
        assert!(problems.contains(words) && problems.matches("error[").count() == 1, "{words}\n{problems}");
    }
}

#[test]
fn setting_names_are_unique_and_defaults_are_valid() {
    let mut names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), SETTINGS.len());
    for setting in SETTINGS {
        assert_eq!(
            setting.kind == Kind::Secret,
            setting.accepted_in == AcceptedIn::Variable,
            "{}",
            setting.name
        );
        assert!(!setting.help.ends_with('.') && !setting.help.contains('\n'), "{}", setting.name);
        if setting.kind == Kind::Secret {
            let file = format!("{}_file", setting.name);
            assert!(
                SETTINGS.iter().any(|setting| setting.name == file),
                "{file}: a secret can also come from a file"
            );
        }
        let is_described = setting.default.is_empty() || setting.default.starts_with('(');
        if let (false, Some(variable)) = (is_described, setting.variable()) {
            let mut layers = Layers::default();
            layers.add_variables([(OsString::from(variable), OsString::from(setting.default))]);
            assert_eq!(layers.render(Colour::Plain), "", "{}", setting.name);
        }
    }
}

#[test]
fn flags_match_the_table() {
    let command = <Flags as clap::Args>::augment_args(clap::Command::new("serve"));
    command.clone().debug_assert();
    let mut flags: Vec<String> =
        command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect();
    let mut expected: Vec<String> = SETTINGS.iter().filter_map(|setting| setting.flag()).collect();
    expected.push("--config".to_owned());
    expected.extend(RENAMED.iter().map(|renamed| settings::flag_name(renamed.old)));
    flags.sort();
    expected.sort();
    assert_eq!(flags, expected);
    let parse = |words: &[&str]| {
        let matches =
            command.clone().try_get_matches_from([&["serve"], words].concat()).expect("a valid command line");
        <Flags as clap::FromArgMatches>::from_arg_matches(&matches).expect("flags").settings
    };
    let several = parse(&["--trusted-proxies", "10.0.0.0/8", "--trusted-proxies=::1,::2", "--insecure"]);
    assert_eq!(
        several,
        [("insecure", "true".to_owned()), ("trusted_proxies", "10.0.0.0/8,::1,::2".to_owned())]
    );
    assert_eq!(parse(&["--insecure=false"]), [("insecure", "false".to_owned())]);
}

#[test]
fn old_name_of_a_setting_is_accepted_with_a_warning_in_every_layer() {
    let folder = Folder::new("renamed");
    let seconds = |config: &Config| config.shutdown_timeout.as_secs();
    for (layer, read, old, new) in [
        ("tollgate.yaml", folder.read("grace: 7s\n", &[], &[]), "`grace`", "`shutdown_timeout`"),
        (
            "TOLLGATE_GRACE",
            folder.read("", &[("TOLLGATE_GRACE", "7s")], &[]),
            "TOLLGATE_GRACE",
            "TOLLGATE_SHUTDOWN_TIMEOUT",
        ),
        ("--grace", folder.read("", &[], &[("grace", "7s")]), "--grace", "--shutdown-timeout"),
    ] {
        let (layers, config) = read;
        assert_eq!((layers.error_count(), seconds(&config)), (0, 7), "{layer}");
        let warnings = layers.render(Colour::Plain);
        let expected = format!("warning[renamed-setting]: {old} was renamed to {new}\n");
        assert!(warnings.starts_with(&expected) && warnings.contains(layer), "{layer}\n{warnings}");
        assert_eq!(warnings.matches("warning[").count(), 1, "{warnings}");
    }
    // A higher layer overrides a lower one, whatever names they use.
    let above = folder.read("shutdown_timeout: 1s\n", &[("TOLLGATE_GRACE", "2s")], &[("grace", "3s")]);
    assert_eq!((above.0.error_count(), seconds(&above.1)), (0, 3));
    let above = folder.read("grace: 1s\n", &[("TOLLGATE_GRACE", "2s")], &[("shutdown_timeout", "3s")]);
    assert_eq!((above.0.error_count(), seconds(&above.1)), (0, 3));
    let invalid = folder.problems("grace: 2h\n", &[], &[]);
    assert!(invalid.contains("error[duration-out-of-range]"), "{invalid}");
}

#[test]
fn old_and_new_name_in_one_layer_are_an_error() {
    let folder = Folder::new("both-names");
    let variables = [("TOLLGATE_GRACE", "1s"), ("TOLLGATE_SHUTDOWN_TIMEOUT", "1s")];
    for problems in [
        folder.problems("grace: 1s\nshutdown_timeout: 1s\n", &[], &[]),
        folder.problems("shutdown_timeout: 1s\ngrace: 1s\n", &[], &[]),
        folder.problems("", &variables, &[]),
        folder.problems("", &[], &[("shutdown_timeout", "1s"), ("grace", "1s")]),
    ] {
        assert!(problems.contains("error[duplicate-"), "{problems}");
        assert_eq!(problems.matches("error[").count(), 1, "{problems}");
    }
}

#[test]
fn variables_of_client_commands_are_ignored() {
    let folder = Folder::new("client-variables");
    let variables = [
        ("TOLLGATE_SERVER", "http://localhost:8080"),
        ("TOLLGATE_TOKEN", "tg_00"),
        ("TOLLGATE_TOKEN_FILE", "no/such"),
    ];
    folder.valid("", &variables, &[]);
}

#[test]
fn every_old_name_leads_to_a_setting_and_is_not_one() {
    for renamed in RENAMED {
        assert!(SETTINGS.iter().any(|setting| setting.name == renamed.new), "{}", renamed.new);
        assert!(SETTINGS.iter().all(|setting| setting.name != renamed.old), "{}", renamed.old);
    }
}
