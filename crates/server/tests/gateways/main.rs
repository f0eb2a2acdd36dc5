//! Real gateways that ask Tollgate before they forward a request, configured by the files that their pages show.

mod backend;
mod caddy;
mod envoy;
mod haproxy;
mod llm;
mod model;
mod nginx;
mod paths;
mod public_host;
mod recipe;
mod response;
mod rules;
mod run;
mod scenes;
mod shop;
mod site;
mod traefik;
