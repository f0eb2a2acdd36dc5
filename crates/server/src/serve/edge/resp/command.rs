//! The commands there are: their names, what they take, who may give them, and `COMMAND`, which tells about them.

use std::fmt;

use super::frame::Words;
use super::reply::Reply;
use super::text::Quoted;
use super::{check, throttle};
use crate::access::Scopes;

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Throttle,
    Check,
    Peek,
    Forget,
    Ping,
    Echo,
    Hello,
    Auth,
    Client,
    Table,
    Info,
    Config,
    Select,
    Reset,
    Quit,
}

/// Who may give a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needs {
    /// Anybody: it is how one becomes known, or leaves.
    Nothing,
    /// Whoever may do something.
    Anything,
    Scope(Scopes, &'static str),
}

/// What is known of a command.
pub(crate) struct Entry {
    pub(crate) command: Command,
    pub(crate) name: &'static str,
    pub(crate) usage: &'static str,
    summary: &'static str,
    /// How many strings it has, its name included; negative if there may be more.
    arity: i64,
    flags: &'static [&'static str],
    /// Where its only key stands; 0 if it has none.
    key: i64,
    pub(crate) needs: Needs,
}

const CHECK: Needs = Needs::Scope(Scopes::CHECK, "check");
const ADMIN: Needs = Needs::Scope(Scopes::ADMIN, "admin");
const FAST: &[&str] = &["fast"];
const WRITES: &[&str] = &["write", "fast"];
const ANONYMOUS: &[&str] = &["fast", "no_auth"];

/// Those that are asked for most come first.
static ENTRIES: [Entry; 15] = [
    entry(
        (Command::Throttle, "CL.THROTTLE", throttle::USAGE),
        (-5, WRITES, 1, CHECK),
        "Asks a limit of the caller's own, as redis-cell does",
    ),
    entry(
        (Command::Check, "TG.CHECK", check::USAGE),
        (-3, WRITES, 0, CHECK),
        "Asks the rules whether a request may proceed, and charges it if so",
    ),
    entry((Command::Ping, "PING", "PING [message]"), (-1, FAST, 0, Needs::Anything), "Answers"),
    entry(
        (Command::Peek, "TG.PEEK", check::USAGE_PEEK),
        (-3, FAST, 0, CHECK),
        "Answers as TG.CHECK would, and charges nothing",
    ),
    entry(
        (Command::Forget, "TG.RESET", check::USAGE_RESET),
        (-3, WRITES, 0, ADMIN),
        "Forgets what was counted for those whom a request would be charged to",
    ),
    entry((Command::Echo, "ECHO", "ECHO message"), (2, FAST, 0, Needs::Anything), "Says what it is told"),
    entry(
        (Command::Hello, "HELLO", "HELLO [2|3 [AUTH user token] [SETNAME name]]"),
        (-1, ANONYMOUS, 0, Needs::Nothing),
        "Agrees on the version of the protocol",
    ),
    entry(
        (Command::Auth, "AUTH", "AUTH [user] token"),
        (-2, ANONYMOUS, 0, Needs::Nothing),
        "Shows a token; the name of the user does not matter",
    ),
    entry(
        (Command::Client, "CLIENT", "CLIENT GETNAME|SETNAME|SETINFO|ID|INFO|NO-EVICT|NO-TOUCH|REPLY [value]"),
        (-2, FAST, 0, Needs::Anything),
        "Tells and sets what is known of this connection",
    ),
    entry(
        (Command::Table, "COMMAND", "COMMAND [COUNT|LIST|INFO|DOCS [name ...]]"),
        (-1, FAST, 0, Needs::Anything),
        "Tells which commands there are",
    ),
    entry(
        (Command::Info, "INFO", "INFO [server|clients|stats ...]"),
        (-1, FAST, 0, Needs::Anything),
        "Tells about the server",
    ),
    entry(
        (Command::Config, "CONFIG", "CONFIG GET name [name ...]"),
        (-3, FAST, 0, Needs::Anything),
        "Tells what benchmarks want to know",
    ),
    entry(
        (Command::Select, "SELECT", "SELECT 0"),
        (2, FAST, 0, Needs::Anything),
        "Chooses the only database there is",
    ),
    entry(
        (Command::Reset, "RESET", "RESET"),
        (1, ANONYMOUS, 0, Needs::Nothing),
        "Makes the connection as it was in the beginning",
    ),
    entry((Command::Quit, "QUIT", "QUIT"), (-1, ANONYMOUS, 0, Needs::Nothing), "Ends the connection"),
];

const fn entry(
    (command, name, usage): (Command, &'static str, &'static str),
    (arity, flags, key, needs): (i64, &'static [&'static str], i64, Needs),
    summary: &'static str,
) -> Entry {
    Entry { command, name, usage, summary, arity, flags, key, needs }
}

impl Entry {
    /// The command of this name, whatever its case.
    #[inline]
    pub(crate) fn find(name: &[u8]) -> Option<&'static Entry> {
        // Most clients write a name as it stands here.
        let same = ENTRIES.iter().find(|entry| entry.name.as_bytes() == name);
        same.or_else(|| ENTRIES.iter().find(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name)))
    }

    /// Whether it can have so many strings.
    #[inline]
    pub(crate) const fn takes(&self, words: usize) -> bool {
        let words = words as i64;
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }
}

/// A command that there is not.
pub(crate) struct Unknown<'b>(pub(crate) &'b [u8]);

impl fmt::Display for Unknown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown command {}; there are", Quoted(self.0))?;
        for (index, entry) in ENTRIES.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma} {}", entry.name)?;
        }
        Ok(())
    }
}

/// Answers `COMMAND`, given what comes after it; false if it is no question.
pub(crate) fn answer(words: Words<'_, '_>, reply: &mut Reply<'_>) -> bool {
    let names = words.from(1);
    match words.get(0).map(<[u8]>::to_ascii_uppercase).as_deref() {
        None => all(reply),
        Some(b"COUNT") if names.len() == 0 => reply.count(ENTRIES.len() as u64),
        Some(b"LIST") if names.len() == 0 => {
            reply.array(ENTRIES.len());
            ENTRIES.iter().for_each(|entry| reply.bulk(entry.name.to_ascii_lowercase().as_bytes()));
        }
        Some(b"INFO") if names.len() == 0 => all(reply),
        Some(b"INFO") => {
            reply.array(names.len());
            for name in names.iter() {
                match Entry::find(name) {
                    Some(entry) => entry.tell(reply),
                    None => reply.null(),
                }
            }
        }
        Some(b"DOCS") => {
            let asked = |entry: &&Entry| {
                names.len() == 0 || names.iter().any(|name| entry.name.as_bytes().eq_ignore_ascii_case(name))
            };
            let told = ENTRIES.iter().filter(asked);
            reply.map(told.clone().count());
            told.for_each(|entry| entry.document(reply));
        }
        Some(_) => return false,
    }
    true
}

fn all(reply: &mut Reply<'_>) {
    reply.array(ENTRIES.len());
    ENTRIES.iter().for_each(|entry| entry.tell(reply));
}

impl Entry {
    /// As `COMMAND INFO` of Redis 7 does: name, arity, flags, keys from, to and step, and four lists that are empty here.
    fn tell(&self, reply: &mut Reply<'_>) {
        reply.array(10);
        reply.bulk(self.name.to_ascii_lowercase().as_bytes());
        reply.integer(self.arity);
        reply.set(self.flags.len());
        self.flags.iter().for_each(|&flag| reply.simple(flag));
        reply.integer(self.key);
        reply.integer(self.key);
        reply.integer(self.key.min(1));
        reply.set(0);
        (0..3).for_each(|_| reply.array(0));
    }

    fn document(&self, reply: &mut Reply<'_>) {
        reply.bulk(self.name.to_ascii_lowercase().as_bytes());
        reply.map(3);
        for (name, value) in [("summary", self.summary), ("group", "tollgate"), ("complexity", self.usage)] {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
        }
    }
}
