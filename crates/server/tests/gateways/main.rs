//! Gateways that ask Tollgate before they let a request through: real ones, with the very files of their pages.

mod answer;
mod caddy;
mod envoy;
mod haproxy;
mod nginx;
mod public_host;
mod recipe;
mod rules;
mod run;
mod scenes;
mod shop;
mod site;
mod traefik;
