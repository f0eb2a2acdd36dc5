//! Real nginx, which asks with `auth_request`.

use tollgate_testkit::tools::Tool;

use crate::harness::recipe::Recipe;
use crate::harness::site::Site;
use crate::scenes;

pub(crate) const NGINX: Recipe = Recipe {
    tool: Tool::Nginx,
    folder: "nginx",
    page: include_str!("../../../../../docs/gateways/nginx.md"),
    files: &[("nginx.conf", "nginx"), ("rules.yaml", "yaml")],
    arguments: &["-p", ".", "-e", "stderr", "-c", "nginx.conf"],
    shows_allowed: true,
    refused_body: r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"The limit is used up","status":429,"code":"quota-exceeded"}"#,
    store_down_body: r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"The service can do less than usual for now","status":503,"code":"temporary-reduced-capacity"}"#,
};

#[test]
fn clients_of_nginx_see_what_the_page_promises() {
    scenes::clients_see_what_the_page_promises(&NGINX);
}

#[test]
fn nginx_lets_no_header_pass_that_tollgate_cannot_read() {
    scenes::headers_that_tollgate_cannot_read_do_not_pass(&NGINX);
}

#[test]
fn nginx_refuses_targets_that_are_too_long() {
    scenes::targets_that_are_too_long_are_refused(&NGINX);
}

#[test]
fn nothing_a_client_of_nginx_sends_changes_who_is_charged() {
    scenes::nothing_a_client_sends_changes_who_is_charged(&NGINX);
}

#[test]
fn behind_nginx_failure_policies_apply_while_the_store_is_down() {
    scenes::failure_policies_apply_while_the_store_is_down(&NGINX);
}

#[test]
fn nginx_times_out_when_tollgate_hangs() {
    scenes::requests_pass_soon_while_tollgate_hangs(&NGINX);
}

#[test]
fn behind_nginx_requests_pass_while_tollgate_is_down() {
    scenes::requests_pass_while_tollgate_is_down(&NGINX);
}

#[test]
fn without_its_line_nginx_answers_500_while_tollgate_is_down() {
    let answer = scenes::answer_while_tollgate_is_down(&NGINX, &|text| {
        scenes::without(text, "error_page 502 504 = @yes;", "auth_request")
    });
    assert_eq!((answer.status, answer.header("ratelimit")), (500, None), "{answer:?}");
}

#[test]
fn behind_nginx_refusals_of_other_kinds_have_their_own_status() {
    scenes::refusals_of_other_kinds_have_their_own_status(&NGINX);
}

#[test]
fn behind_another_proxy_nginx_charges_its_clients() {
    let line = "set_real_ip_from 127.0.0.200; real_ip_header X-Forwarded-For;";
    scenes::behind_another_proxy_its_clients_are_charged(&NGINX, &[("        location / {", line)]);
}

#[test]
fn nginx_sends_a_token() {
    scenes::a_token_is_sent(&NGINX, &|text, token| {
        let line = "proxy_set_header Connection \"\";";
        text.replace(line, &format!("{line} proxy_set_header Authorization \"{token}\";"))
    });
}

#[test]
fn with_deny_status_nginx_answers_403() {
    let more = ["proxy_intercept_errors on;", "error_page 400 429 503 = @no;", "error_page 403 = @refused;"];
    let site = Site::with(&NGINX, &[], &|text| {
        let text = more.iter().fold(text, |text, line| scenes::without(text, line, "auth_request"));
        text.replace("/v1/authorize?", "/v1/authorize?deny_status=403&")
    });
    for _ in 0..5 {
        assert_eq!(site.get(2, "/search", &[]).status, 200);
    }
    let refused = site.get(2, "/search", &[]);
    assert_eq!(refused.status, 403);
    assert!(refused.header("ratelimit").is_some_and(|value| value.starts_with("\"search-per-key\";r=0;t=")));
}

#[test]
fn the_page_of_nginx_shows_the_files_that_are_tested() {
    NGINX.assert_shown_on_its_page();
}
