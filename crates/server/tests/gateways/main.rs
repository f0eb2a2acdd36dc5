//! Gateways that ask Tollgate before they let a request through: real ones, with the very files of their pages.

mod answer;
mod backend;
mod caddy;
mod envoy;
mod haproxy;
mod nginx;
mod paths;
mod recipe;
mod rules;
mod run;
mod scenes;
mod shop;
mod site;
mod traefik;
