//! Gateways that ask Tollgate before they let a request through: real ones, with the very files of their pages.

#[path = "common/answer.rs"]
mod answer;
#[path = "gateways/caddy.rs"]
mod caddy;
#[path = "gateways/envoy.rs"]
mod envoy;
#[path = "gateways/haproxy.rs"]
mod haproxy;
#[path = "gateways/nginx.rs"]
mod nginx;
#[path = "gateways/recipe.rs"]
mod recipe;
#[path = "gateways/rules.rs"]
mod rules;
#[path = "gateways/run.rs"]
mod run;
#[path = "gateways/scenes.rs"]
mod scenes;
#[path = "common/serving.rs"]
#[allow(dead_code, reason = "every file of tests uses its own part")]
mod serving;
#[path = "common/shop.rs"]
mod shop;
#[path = "gateways/site.rs"]
mod site;
#[path = "gateways/traefik.rs"]
mod traefik;
