//! Runs the example script of each gateway, on free ports.

use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use tollgate_testkit::tools::free_port;

use crate::harness::recipe::Recipe;
use crate::llm::{LLM_ENVOY, LLM_NGINX};
use crate::proxies::caddy::CADDY;
use crate::proxies::envoy::ENVOY;
use crate::proxies::haproxy::HAPROXY;
use crate::proxies::nginx::NGINX;
use crate::proxies::traefik::TRAEFIK;

/// Runs the script with these arguments and returns the lines that it prints.
fn printed(recipe: &Recipe, args: &[&str]) -> Vec<String> {
    let folder = recipe.copy(&[8080, 8081, 9090, 9901, 10_000].map(|port| (port, free_port())), &|text| text);
    let (tool, path) = (recipe.tool.command(), tempfile::tempdir().expect("a folder"));
    for (name, program) in
        [(recipe.tool.name(), tool.get_program()), ("tollgate", env!("CARGO_BIN_EXE_tollgate").as_ref())]
    {
        symlink(program, path.path().join(name)).expect("a link can be made");
    }
    let path = format!("{}:{}", path.path().display(), std::env::var("PATH").expect("there is a path"));
    let mut script = Command::new("timeout");
    script.args(["120", "sh", "run.sh"]).args(args).current_dir(folder.path()).env("PATH", path);
    script.env("HOME", folder.path()).stdin(Stdio::null());
    for (name, value) in tool.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        script.env(name, value);
    }
    let output = script.output().expect("a shell runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text").lines().map(|line| line.trim().to_owned()).collect()
}

/// Five searches pass and the sixth is refused.
fn shows_five_and_a_refusal(recipe: &Recipe) {
    let printed = printed(recipe, &[]);
    assert_eq!(printed.len(), 6, "{printed:?}");
    for (line, left) in printed[..5].iter().zip((0..5).rev()) {
        let expected_start = format!("200 \"search-per-key\";r={left};t=");
        let is_right = if recipe.shows_allowed { line.starts_with(&expected_start) } else { line == "200" };
        assert!(is_right, "{left} left: {printed:?}");
    }
    let (expected_start, wait) = printed[5].rsplit_once(' ').expect("a wait");
    assert!(expected_start.starts_with("429 \"search-per-key\";r=0;t="), "{printed:?}");
    assert!(wait.parse().is_ok_and(|wait: u64| (1..=60).contains(&wait)), "{printed:?}");
}

#[test]
fn the_script_of_nginx_shows_five_searches_and_a_refusal() {
    shows_five_and_a_refusal(&NGINX);
}

#[test]
fn the_script_of_traefik_shows_five_searches_and_a_refusal() {
    shows_five_and_a_refusal(&TRAEFIK);
}

#[test]
fn the_script_of_caddy_shows_five_searches_and_a_refusal() {
    shows_five_and_a_refusal(&CADDY);
}

#[test]
fn the_script_of_haproxy_shows_five_searches_and_a_refusal() {
    shows_five_and_a_refusal(&HAPROXY);
}

#[test]
fn the_script_of_envoy_shows_five_searches_and_a_refusal() {
    shows_five_and_a_refusal(&ENVOY);
}

/// Two answers of 60 tokens pass a limit of 100, and the third request is refused.
fn shows_two_answers_and_a_refusal(recipe: &Recipe) {
    let printed = printed(recipe, &[recipe.tool.name()]);
    let [first, second, third] = &printed[..] else { panic!("{printed:?}") };
    assert_eq!((first.as_str(), second.as_str()), ("200", "200"), "{printed:?}");
    let wait = third.strip_prefix("429 ").and_then(|wait| wait.parse().ok());
    assert!(wait.is_some_and(|wait: u64| (1..=20).contains(&wait)), "{printed:?}");
}

#[test]
fn the_script_of_token_limits_shows_two_answers_and_a_refusal_behind_envoy() {
    shows_two_answers_and_a_refusal(&LLM_ENVOY);
}

#[test]
fn the_script_of_token_limits_shows_two_answers_and_a_refusal_behind_nginx() {
    shows_two_answers_and_a_refusal(&LLM_NGINX);
}
