//! What the server tells of itself: `INFO` and `CONFIG GET`, as far as clients of Redis ask.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use super::frame::Words;
use super::reply::Reply;

/// What there is in Redis of this version, and is here, works the same way.
const REDIS_VERSION: &str = "7.0.0";
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

static CONNECTED: AtomicU64 = AtomicU64::new(0);
static RECEIVED: AtomicU64 = AtomicU64::new(0);

/// A connection that is there, counted until it is dropped.
pub(crate) struct Presence {
    /// Which one it is, from 1.
    pub(crate) id: u64,
}

impl Presence {
    pub(crate) fn new() -> Presence {
        CONNECTED.fetch_add(1, Ordering::Relaxed);
        Presence { id: 1 + RECEIVED.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        CONNECTED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers `INFO`, given what comes after it.
pub(crate) fn info(words: Words<'_, '_>, reply: &mut Reply<'_>) {
    let is_asked = |section: &str| {
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
        ("Clients", format!("connected_clients:{}\r\n", CONNECTED.load(Ordering::Relaxed))),
        ("Persistence", "loading:0\r\n".to_owned()),
        ("Stats", format!("total_connections_received:{}\r\n", RECEIVED.load(Ordering::Relaxed))),
    ];
    let mut told = String::new();
    for (name, lines) in sections.iter().filter(|(name, _)| is_asked(name)) {
        let between = if told.is_empty() { "" } else { "\r\n" };
        // Writing to a string cannot fail.
        let written = write!(told, "{between}# {name}\r\n{lines}");
        debug_assert!(written.is_ok());
    }
    reply.bulk(told.as_bytes());
}

/// Answers `CONFIG GET`, given the names that come after it. Nothing is kept on disk, which is what benchmarks ask.
pub(crate) fn config(names: Words<'_, '_>, reply: &mut Reply<'_>) {
    let settings = [("save", ""), ("appendonly", "no")];
    let is_asked =
        |name: &str| names.iter().any(|word| word == b"*" || word.eq_ignore_ascii_case(name.as_bytes()));
    let told = settings.iter().filter(|(name, _)| is_asked(name));
    reply.map(told.clone().count());
    for (name, value) in told {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}
