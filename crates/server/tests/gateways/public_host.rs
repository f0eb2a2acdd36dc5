//! Clients of a gateway use the public host of the site, and browsers send an origin. Neither keeps the gateway from
//! asking a server that listens on a loopback address.

use crate::harness::recipe::Recipe;
use crate::harness::site::{Site, seen};
use crate::proxies::caddy::CADDY;
use crate::proxies::haproxy::HAPROXY;
use crate::proxies::nginx::NGINX;
use crate::proxies::traefik::TRAEFIK;

fn passes(recipe: &Recipe) {
    // The file of Caddy names the address of its site, which would not match the host.
    let site = Site::with(recipe, &[], &|text| text.replace("http://127.0.0.1:10000 {", "http://:10000 {"));
    let fields = ["host: shop.example", "origin: https://shop.example", "sec-fetch-site: same-origin"];
    for _ in 0..5 {
        let answer = site.get(2, "/search", &fields);
        assert_eq!(seen(&answer)["path"], "/search");
    }
    assert_eq!(site.get(2, "/search", &fields).status, 429, "the requests were counted");
}

#[test]
fn nginx_passes_a_public_host_and_an_origin() {
    passes(&NGINX);
}

#[test]
fn traefik_passes_a_public_host_and_an_origin() {
    passes(&TRAEFIK);
}

#[test]
fn caddy_passes_a_public_host_and_an_origin() {
    passes(&CADDY);
}

#[test]
fn haproxy_passes_a_public_host_and_an_origin() {
    passes(&HAPROXY);
}
