//! `INFO` and `CONFIG GET`, as far as Redis clients and benchmarks use them.

use std::fmt::Write as _;

use crate::protocol::Protocol;
use crate::serve::edge::resp::frame::Words;
use crate::serve::edge::resp::reply::Reply;
use crate::serve::listen::connections::Connections;

/// The version of Redis whose commands work the same way here.
const REDIS_VERSION: &str = "7.0.0";
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Answers `INFO`, given the sections after it.
pub(crate) fn info(words: Words<'_, '_>, connections: &Connections, reply: &mut Reply<'_>) {
    let is_requested = |section: &str| {
        let all = ["default", "all", "everything"];
        let names = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        words.len() == 0
            || words.iter().any(|word| names(word, section) || all.iter().any(|all| names(word, all)))
    };
    let sections = [
        (
            "Server",
            format!(
                "redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nserver_name:tollgate\r\n\
                 tollgate_version:{VERSION}\r\nprocess_id:{}\r\n",
                std::process::id()
            ),
        ),
        ("Clients", format!("connected_clients:{}\r\n", connections.open_of(Protocol::Resp))),
        ("Persistence", "loading:0\r\n".to_owned()),
        ("Stats", format!("total_connections_received:{}\r\n", connections.accepted_of(Protocol::Resp))),
    ];
    let mut text = String::new();
    for (name, lines) in sections.iter().filter(|(name, _)| is_requested(name)) {
        let between = if text.is_empty() { "" } else { "\r\n" };
        // Writing to a string cannot fail.
        let written = write!(text, "{between}# {name}\r\n{lines}");
        debug_assert!(written.is_ok());
    }
    reply.bulk(text.as_bytes());
}

/// Answers `CONFIG GET`, given the names after it. Benchmarks read whether data is kept on disk; it is not.
pub(crate) fn config(names: Words<'_, '_>, reply: &mut Reply<'_>) {
    let settings = [("save", ""), ("appendonly", "no")];
    let is_requested =
        |name: &str| names.iter().any(|word| word == b"*" || word.eq_ignore_ascii_case(name.as_bytes()));
    let requested = settings.iter().filter(|(name, _)| is_requested(name));
    reply.map(requested.clone().count());
    for (name, value) in requested {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}
