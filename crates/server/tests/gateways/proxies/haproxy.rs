//! Real HAProxy, which asks with a script.

use tollgate_testkit::tools::Tool;

use crate::harness::recipe::Recipe;
use crate::scenes;

pub(crate) const HAPROXY: Recipe = Recipe {
    tool: Tool::HaProxy,
    folder: "haproxy",
    page: include_str!("../../../../../docs/gateways/haproxy.md"),
    files: &[("haproxy.cfg", "haproxy"), ("tollgate.lua", "lua"), ("rules.yaml", "yaml")],
    arguments: &["-f", "haproxy.cfg"],
    shows_allowed: true,
    refused_body: r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"The limit is used up","status":429,"code":"quota-exceeded","violated-policies":["search-per-key"],"rule":"search-per-key","retry_after_ms":"#,
    store_down_body: r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"The service can do less than usual for now","status":503,"code":"temporary-reduced-capacity","violated-policies":["orders-per-address"],"rule":"orders-per-address","ref":"tgr_"#,
};

#[test]
fn clients_of_haproxy_see_what_the_page_promises() {
    scenes::clients_see_what_the_page_promises(&HAPROXY);
}

#[test]
fn haproxy_lets_no_header_pass_that_tollgate_cannot_read() {
    scenes::headers_that_tollgate_cannot_read_do_not_pass(&HAPROXY);
}

#[test]
fn haproxy_refuses_targets_that_are_too_long() {
    scenes::targets_that_are_too_long_are_refused(&HAPROXY);
}

#[test]
fn nothing_a_client_of_haproxy_sends_changes_who_is_charged() {
    scenes::nothing_a_client_sends_changes_who_is_charged(&HAPROXY);
}

#[test]
fn behind_haproxy_failure_policies_apply_while_the_store_is_down() {
    scenes::failure_policies_apply_while_the_store_is_down(&HAPROXY);
}

#[test]
fn behind_haproxy_refusals_of_other_kinds_have_their_own_status() {
    scenes::refusals_of_other_kinds_have_their_own_status(&HAPROXY);
}

#[test]
fn haproxy_times_out_when_tollgate_hangs() {
    scenes::requests_pass_soon_while_tollgate_hangs(&HAPROXY);
}

#[test]
fn behind_haproxy_requests_pass_while_tollgate_is_down() {
    scenes::requests_pass_while_tollgate_is_down(&HAPROXY);
}

#[test]
fn configured_closed_haproxy_answers_503_while_tollgate_is_down() {
    let answer = scenes::answer_while_tollgate_is_down(&HAPROXY, &|text| {
        text.replace("http-request lua.tollgate open", "http-request lua.tollgate closed")
    });
    let seen = (answer.status, answer.body.as_str(), answer.header("ratelimit"));
    assert_eq!(seen, (503, "", None), "{answer:?}");
}

#[test]
fn behind_another_proxy_haproxy_charges_its_clients() {
    let line = "http-request set-src req.hdr_ip(x-forwarded-for,-1) if { src 127.0.0.200 }";
    let place = "    http-request lua.tollgate open\n";
    scenes::behind_another_proxy_its_clients_are_charged(&HAPROXY, &[(place, line)]);
}

#[test]
fn haproxy_sends_a_token() {
    scenes::a_token_is_sent(&HAPROXY, &|text, token| {
        let line = "    retries 0\n";
        text.replace(line, &format!("{line}    http-request set-header Authorization \"{token}\"\n"))
    });
}

#[test]
fn the_page_of_haproxy_shows_the_files_that_are_tested() {
    HAPROXY.assert_shown_on_its_page();
}
