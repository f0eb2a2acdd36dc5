//! Real Caddy, which asks with `reverse_proxy`, the long form of `forward_auth`.

use tollgate_testkit::tools::Tool;

use crate::harness::recipe::Recipe;
use crate::harness::site::Site;
use crate::scenes;

pub(crate) const CADDY: Recipe = Recipe {
    tool: Tool::Caddy,
    folder: "caddy",
    page: include_str!("../../../../../docs/gateways/caddy.md"),
    files: &[("Caddyfile", "caddyfile"), ("rules.yaml", "yaml")],
    arguments: &["run", "--config", "Caddyfile"],
    shows_allowed: true,
    refused_body: r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"The limit is used up","status":429,"code":"quota-exceeded","violated-policies":["search-per-key"],"rule":"search-per-key","retry_after_ms":"#,
    store_down_body: r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"The service can do less than usual for now","status":503,"code":"temporary-reduced-capacity","violated-policies":["orders-per-address"],"rule":"orders-per-address","ref":"tgr_"#,
};

#[test]
fn clients_of_caddy_see_what_the_page_promises() {
    scenes::clients_see_what_the_page_promises(&CADDY);
}

#[test]
fn caddy_lets_no_header_pass_that_tollgate_cannot_read() {
    scenes::headers_that_tollgate_cannot_read_do_not_pass(&CADDY);
}

#[test]
fn caddy_refuses_targets_that_are_too_long() {
    scenes::targets_that_are_too_long_are_refused(&CADDY);
}

#[test]
fn nothing_a_client_of_caddy_sends_changes_who_is_charged() {
    scenes::nothing_a_client_sends_changes_who_is_charged(&CADDY);
}

#[test]
fn behind_caddy_failure_policies_apply_while_the_store_is_down() {
    scenes::failure_policies_apply_while_the_store_is_down(&CADDY);
}

#[test]
fn behind_caddy_refusals_of_other_kinds_have_their_own_status() {
    scenes::refusals_of_other_kinds_have_their_own_status(&CADDY);
}

#[test]
fn caddy_times_out_when_tollgate_hangs() {
    scenes::requests_pass_soon_while_tollgate_hangs(&CADDY);
}

#[test]
fn behind_caddy_requests_pass_while_tollgate_is_down() {
    scenes::requests_pass_while_tollgate_is_down(&CADDY);
}

#[test]
fn without_its_block_caddy_answers_502_while_tollgate_is_down() {
    let answer = scenes::answer_while_tollgate_is_down(&CADDY, &|text| {
        scenes::without(text, "reverse_proxy @undecided 127.0.0.1:8081", "handle_errors")
    });
    let seen = (answer.status, answer.body.as_str(), answer.header("ratelimit"));
    assert_eq!(seen, (502, "", None), "{answer:?}");
}

#[test]
fn behind_another_proxy_caddy_charges_its_clients() {
    let lines = [("        max_header_size", "trusted_proxies static 127.0.0.200")];
    scenes::behind_another_proxy_its_clients_are_charged(&CADDY, &lines);
}

#[test]
fn caddy_sends_a_token() {
    scenes::a_token_is_sent(&CADDY, &|text, token| {
        let line = "header_up -X-Original-Method";
        text.replace(line, &format!("{line}\nheader_up Authorization \"{token}\""))
    });
}

#[test]
fn the_short_form_of_caddy_adds_headers_to_refusals_only() {
    let short = CADDY.page.split("```caddyfile\n").find(|block| block.starts_with("forward_auth"));
    let (short, _) = short.and_then(|block| block.split_once("```")).expect("the page shows it");
    let site = Site::with(&CADDY, &[], &|text| match text.contains("route {") {
        true => format!(
            "{{\nadmin off\n}}\nhttp://127.0.0.1:10000 {{\n{short}\nreverse_proxy 127.0.0.1:8081\n}}\n"
        ),
        false => text,
    });
    for _ in 0..5 {
        let answer = site.get(2, "/search", &["x-original-uri: /free", "x-forwarded-for: 127.0.0.9"]);
        assert_eq!((answer.status, answer.header("ratelimit")), (200, None), "{answer:?}");
    }
    let refused = site.get(2, "/search", &[]);
    assert!(refused.status == 429 && refused.body.starts_with(CADDY.refused_body), "{refused:?}");
}

#[test]
fn the_page_of_caddy_shows_the_files_that_are_tested() {
    CADDY.assert_shown_on_its_page();
}
