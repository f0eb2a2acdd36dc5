//! Real Traefik, which asks with `forwardAuth`.

use tollgate_testkit::tools::Tool;

use crate::harness::recipe::Recipe;
use crate::harness::site::seen;
use crate::scenes;

pub(crate) const TRAEFIK: Recipe = Recipe {
    tool: Tool::Traefik,
    folder: "traefik",
    page: include_str!("../../../../../docs/gateways/traefik.md"),
    files: &[("traefik.yaml", "yaml"), ("routes.yaml", "yaml"), ("rules.yaml", "yaml")],
    arguments: &["--configFile=traefik.yaml"],
    shows_allowed: false,
    refused_body: r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"The limit is used up","status":429,"code":"quota-exceeded","violated-policies":["search-per-key"],"rule":"search-per-key","retry_after_ms":"#,
    store_down_body: r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"The service can do less than usual for now","status":503,"code":"temporary-reduced-capacity","violated-policies":["orders-per-address"],"rule":"orders-per-address","ref":"tgr_"#,
};

#[test]
fn clients_of_traefik_see_what_the_page_promises() {
    scenes::clients_see_what_the_page_promises(&TRAEFIK);
}

#[test]
fn traefik_lets_no_header_pass_that_tollgate_cannot_read() {
    scenes::headers_that_tollgate_cannot_read_do_not_pass(&TRAEFIK);
}

#[test]
fn traefik_refuses_targets_that_are_too_long() {
    scenes::targets_that_are_too_long_are_refused(&TRAEFIK);
}

#[test]
fn nothing_a_client_of_traefik_sends_changes_who_is_charged() {
    scenes::nothing_a_client_sends_changes_who_is_charged(&TRAEFIK);
}

#[test]
fn behind_traefik_failure_policies_apply_while_the_store_is_down() {
    scenes::failure_policies_apply_while_the_store_is_down(&TRAEFIK);
}

#[test]
fn behind_traefik_refusals_of_other_kinds_have_their_own_status() {
    scenes::refusals_of_other_kinds_have_their_own_status(&TRAEFIK);
}

#[test]
fn traefik_answers_500_while_tollgate_is_down() {
    let answer = scenes::answer_while_tollgate_is_down(&TRAEFIK, &|text| text);
    let seen = (answer.status, answer.body.as_str(), answer.header("ratelimit"));
    assert_eq!(seen, (500, "", None), "{answer:?}");
}

#[test]
fn behind_another_proxy_traefik_charges_its_clients_and_trusts_that_proxy() {
    let site = scenes::behind_another_proxy_its_clients_are_charged(
        &TRAEFIK,
        &[
            ("    address: 127.0.0.1:10000\n", "    forwardedHeaders: { trustedIPs: [127.0.0.200] }"),
            ("        authRequestHeaders:", "        trustForwardHeader: true"),
        ],
    );
    // The page warns of this: the other proxy passes on a header of its client.
    let headers = ["x-forwarded-for: 127.0.0.55", "x-forwarded-uri: /free"];
    let asked = seen(&site.get(200, "/search", &headers));
    let value = asked["headers"]["ratelimit"].as_str().expect("a header");
    assert!(value.starts_with("\"requests-per-address\";r=99;"), "{value}");
}

#[test]
fn the_page_of_traefik_shows_the_files_that_are_tested() {
    TRAEFIK.assert_shown_on_its_page();
}
