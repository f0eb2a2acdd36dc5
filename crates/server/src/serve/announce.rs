//! The message of a server that is ready.

use std::fmt::Write;
use std::net::SocketAddr;

use super::rules_in_force::STARTER_NAME;
use crate::config::{LogConfig, LogFormat};
use crate::protocol::Protocol;
use crate::stderr;

/// Prints the addresses and commands to try for people; logs the addresses for machines.
pub(crate) fn ready(
    addresses: &[(Protocol, SocketAddr)],
    has_tls: bool,
    store: &str,
    rules: &str,
    log: &LogConfig,
) {
    let address = |wanted| addresses.iter().find(|(protocol, _)| *protocol == wanted).map(|(_, at)| *at);
    let (http, resp, grpc) = (address(Protocol::Http), address(Protocol::Resp), address(Protocol::Grpc));
    let admin = address(Protocol::Admin);
    match log.format {
        LogFormat::Json => tracing::info!(
            event = "ready",
            http = http.map(|at| at.to_string()),
            resp = resp.map(|at| at.to_string()),
            grpc = grpc.map(|at| at.to_string()),
            admin = admin.map(|at| at.to_string()),
            tls = has_tls,
            store,
            rules,
            "ready"
        ),
        LogFormat::Text => stderr::write(&text([http, resp, grpc, admin], has_tls, store, rules)),
    }
}

fn text(
    [http, resp, grpc, admin]: [Option<SocketAddr>; 4],
    has_tls: bool,
    store: &str,
    rules: &str,
) -> String {
    let mut text = format!("tollgate {} is ready: {rules}, state {store}\n\n", env!("CARGO_PKG_VERSION"));
    let (s, tls) = if has_tls { ("s", " --tls") } else { ("", "") };
    let mut line = |what: std::fmt::Arguments<'_>| {
        text.write_fmt(format_args!("  {what}\n")).expect("writing to a string cannot fail");
    };
    if let Some(at) = http {
        line(format_args!("HTTP  http{s}://{at}"));
    }
    if let Some(at) = resp {
        line(format_args!("RESP  redis{s}://{at}"));
    }
    if let Some(at) = grpc {
        line(format_args!("gRPC  http{s}://{at}"));
    }
    if let Some(at) = admin {
        line(format_args!("admin http{s}://{at}"));
    }
    text.push_str("\nTry:\n\n");
    let mut line = |what: std::fmt::Arguments<'_>| {
        text.write_fmt(format_args!("  {what}\n")).expect("writing to a string cannot fail");
    };
    if let Some(at) = http {
        line(format_args!(
            "curl -i http{s}://{at}/v1/check -H 'content-type: application/json' -d '{{\"attributes\":{{\"api_key\":\"k-1\"}}}}'"
        ));
        line(format_args!("curl http{s}://{at}/v1/rules"));
    }
    if let Some(at) = resp {
        line(format_args!("redis-cli{tls} -h {} -p {} CL.THROTTLE user123 15 30 60 1", at.ip(), at.port()));
    }
    if let Some(at) = grpc {
        line(format_args!(
            "grpcurl{} {at} grpc.health.v1.Health/Check",
            if has_tls { "" } else { " -plaintext" }
        ));
    }
    text.push_str(if rules == STARTER_NAME {
        "\nYour own rules: `tollgate presets`, then `tollgate serve --rules FILE`. Ctrl-C stops the server.\n"
    } else {
        "\nThe server reads the rules file again when it changes. `tollgate explain` says how the rules treat a request. Ctrl-C \
         stops the server.\n"
    });
    text
}
