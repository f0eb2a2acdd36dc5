//! Real gateways that ask Tollgate before they forward a request, configured by the files that their pages show.

mod harness;
mod llm;
mod paths;
mod proxies;
mod public_host;
mod rules;
mod run;
mod scenes;
