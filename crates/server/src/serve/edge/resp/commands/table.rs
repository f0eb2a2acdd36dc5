//! The table of commands: names, arguments and access, and the command `COMMAND`, which describes them.

use std::fmt;

use super::throttle;
use crate::access::Scopes;
use crate::serve::edge::auth::Needs;
use crate::serve::edge::resp::frame::Words;
use crate::serve::edge::resp::reply::Reply;
use crate::serve::edge::resp::text::Quoted;

/// A command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Throttle,
    Check,
    Peek,
    DeleteState,
    Usage,
    Record,
    Credit,
    Lease,
    Renew,
    Release,
    Refund,
    Reserve,
    Extend,
    Settle,
    Cancel,
    MeterRead,
    MeterAdd,
    MeterSubtract,
    MeterReset,
    Ping,
    Echo,
    Hello,
    Auth,
    Client,
    Describe,
    Info,
    Config,
    Select,
    Reset,
    Quit,
}

/// The properties of a command.
pub(crate) struct Entry {
    pub(crate) command: Command,
    pub(crate) name: &'static str,
    pub(crate) usage: &'static str,
    summary: &'static str,
    /// The number of strings including the name; negative if it is a minimum.
    arity: i64,
    flags: &'static [&'static str],
    /// The position of its key; 0 if it has none.
    key: i64,
    pub(crate) needs: Needs,
}

const CHECK: Needs = Needs::Scope(Scopes::CHECK);
const REFUND: Needs = Needs::Scope(Scopes::REFUND);
const RECORD: Needs = Needs::Scope(Scopes::RECORD);
const CHANGE: Needs = Needs::Scope(Scopes::CHANGE);
const FAST: &[&str] = &["fast"];
const WRITES: &[&str] = &["write", "fast"];
const ANONYMOUS: &[&str] = &["fast", "no_auth"];

const ENTRIES_LEN: usize = 30;

/// The most frequent ones come first.
static ENTRIES: [Entry; ENTRIES_LEN] = [
    entry(
        (Command::Throttle, "CL.THROTTLE", throttle::USAGE),
        (-5, WRITES, 1, CHECK),
        "Checks a key against a limit in the command, like redis-cell",
    ),
    entry(
        (Command::Check, "TG.CHECK", "TG.CHECK attribute value [attribute value ...] [COST n] [ID x]"),
        (-3, WRITES, 0, CHECK),
        "Checks a request against the rules, and charges it if allowed",
    ),
    entry((Command::Ping, "PING", "PING [message]"), (-1, FAST, 0, Needs::AnyScope), "Replies PONG"),
    entry(
        (Command::Peek, "TG.PEEK", "TG.PEEK attribute value [attribute value ...] [COST n] [ID x]"),
        (-3, FAST, 0, CHECK),
        "Returns what TG.CHECK would return, and charges nothing",
    ),
    entry(
        (Command::DeleteState, "TG.RESET", "TG.RESET attribute value [attribute value ...]"),
        (-3, WRITES, 0, CHANGE),
        "Deletes the consumption of the subjects of a request",
    ),
    entry(
        (Command::Usage, "TG.USAGE", "TG.USAGE attribute value [attribute value ...]"),
        (-3, FAST, 0, CHECK),
        "Returns what the subjects of a request have used under each rule",
    ),
    entry(
        (Command::Record, "TG.RECORD", "TG.RECORD attribute value [attribute value ...] [COST n] [ID x]"),
        (-3, WRITES, 0, RECORD),
        "Books what was used, also beyond the limit",
    ),
    entry(
        (Command::Credit, "TG.CREDIT", "TG.CREDIT attribute value [attribute value ...] [COST n] [ID x]"),
        (-3, WRITES, 0, RECORD),
        "Takes consumption back without a receipt",
    ),
    entry(
        (Command::Refund, "TG.REFUND", "TG.REFUND receipt [AMOUNT n]"),
        (-2, WRITES, 0, REFUND),
        "Gives back what a receipt charged, once",
    ),
    entry(
        (Command::Lease, "TG.LEASE", "TG.LEASE attribute value [attribute value ...] [COST n] [ID x]"),
        (-3, WRITES, 0, CHECK),
        "Makes a check that holds a lease under a concurrency rule",
    ),
    entry((Command::Renew, "TG.RENEW", "TG.RENEW receipt"), (2, WRITES, 0, CHECK), "Renews leases"),
    entry((Command::Release, "TG.RELEASE", "TG.RELEASE receipt"), (2, WRITES, 0, CHECK), "Releases leases"),
    entry(
        (
            Command::Reserve,
            "TG.RESERVE",
            "TG.RESERVE attribute value [attribute value ...] [COST n] [TTL ms] [ID x]",
        ),
        (-3, WRITES, 0, CHECK),
        "Makes a check whose cost is an estimate, and holds it",
    ),
    entry(
        (Command::Extend, "TG.EXTEND", "TG.EXTEND receipt more [TTL ms] [ID x]"),
        (-3, WRITES, 0, CHECK),
        "Holds more for a reservation",
    ),
    entry(
        (Command::Settle, "TG.SETTLE", "TG.SETTLE receipt [actual] [RULE id n ...]"),
        (-3, WRITES, 0, REFUND),
        "Settles a reservation at what was really used",
    ),
    entry(
        (Command::Cancel, "TG.CANCEL", "TG.CANCEL receipt"),
        (2, WRITES, 0, REFUND),
        "Gives back what a reservation holds",
    ),
    entry(
        (
            Command::MeterRead,
            "TG.METER.GET",
            "TG.METER.GET attribute value [attribute value ...] [SCALE digits] [RULE id]",
        ),
        (-3, FAST, 0, CHECK),
        "Returns the meters of a request",
    ),
    entry(
        (
            Command::MeterAdd,
            "TG.METER.ADD",
            "TG.METER.ADD attribute value [attribute value ...] [AMOUNT n] [SCALE digits] [RULE id] [ID x]",
        ),
        (-3, WRITES, 0, CHECK),
        "Adds to the meters of a request",
    ),
    entry(
        (
            Command::MeterSubtract,
            "TG.METER.SUBTRACT",
            "TG.METER.SUBTRACT attribute value [attribute value ...] [AMOUNT n] [SCALE digits] [RULE id] [ID x]",
        ),
        (-3, WRITES, 0, RECORD),
        "Subtracts from the meters of a request",
    ),
    entry(
        (
            Command::MeterReset,
            "TG.METER.RESET",
            "TG.METER.RESET attribute value [attribute value ...] [RULE id]",
        ),
        (-3, WRITES, 0, CHANGE),
        "Sets the meters of a request to zero",
    ),
    entry((Command::Echo, "ECHO", "ECHO message"), (2, FAST, 0, Needs::AnyScope), "Returns the message"),
    entry(
        (Command::Hello, "HELLO", "HELLO [2|3 [AUTH user token] [SETNAME name]]"),
        (-1, ANONYMOUS, 0, Needs::Nothing),
        "Selects the protocol version",
    ),
    entry(
        (Command::Auth, "AUTH", "AUTH [user] token"),
        (-2, ANONYMOUS, 0, Needs::Nothing),
        "Authenticates with a token; the user name is ignored",
    ),
    entry(
        (Command::Client, "CLIENT", "CLIENT GETNAME|SETNAME|SETINFO|ID|INFO|NO-EVICT|NO-TOUCH|REPLY [value]"),
        (-2, FAST, 0, Needs::AnyScope),
        "Reads and sets properties of the connection",
    ),
    entry(
        (Command::Describe, "COMMAND", "COMMAND [COUNT|LIST|INFO|DOCS [name ...]]"),
        (-1, FAST, 0, Needs::AnyScope),
        "Describes the commands",
    ),
    entry(
        (Command::Info, "INFO", "INFO [server|clients|stats ...]"),
        (-1, FAST, 0, Needs::AnyScope),
        "Returns information about the server",
    ),
    entry(
        (Command::Config, "CONFIG", "CONFIG GET name [name ...]"),
        (-3, FAST, 0, Needs::AnyScope),
        "Returns settings that benchmarks read",
    ),
    entry(
        (Command::Select, "SELECT", "SELECT 0"),
        (2, FAST, 0, Needs::AnyScope),
        "Selects the only database",
    ),
    entry(
        (Command::Reset, "RESET", "RESET"),
        (1, ANONYMOUS, 0, Needs::Nothing),
        "Resets the connection to its initial state",
    ),
    entry((Command::Quit, "QUIT", "QUIT"), (-1, ANONYMOUS, 0, Needs::Nothing), "Closes the connection"),
];

const fn entry(
    (command, name, usage): (Command, &'static str, &'static str),
    (arity, flags, key, needs): (i64, &'static [&'static str], i64, Needs),
    summary: &'static str,
) -> Entry {
    Entry { command, name, usage, summary, arity, flags, key, needs }
}

impl Command {
    /// Whether it asks the gate. The others concern the connection.
    pub(crate) const fn asks_gate(self) -> bool {
        match self {
            Command::Throttle
            | Command::Check
            | Command::Peek
            | Command::DeleteState
            | Command::Usage
            | Command::Record
            | Command::Credit
            | Command::Lease
            | Command::Renew
            | Command::Release
            | Command::Refund
            | Command::Reserve
            | Command::Extend
            | Command::Settle
            | Command::Cancel
            | Command::MeterRead
            | Command::MeterAdd
            | Command::MeterSubtract
            | Command::MeterReset => true,
            Command::Ping
            | Command::Echo
            | Command::Hello
            | Command::Auth
            | Command::Client
            | Command::Describe
            | Command::Info
            | Command::Config
            | Command::Select
            | Command::Reset
            | Command::Quit => false,
        }
    }
}

impl Entry {
    /// The commands that ask the gate.
    pub(crate) fn all() -> impl Iterator<Item = &'static Entry> {
        ENTRIES.iter().filter(|entry| entry.command.asks_gate())
    }

    /// The command with this name, in any case.
    #[inline]
    pub(crate) fn find(name: &[u8]) -> Option<&'static Entry> {
        // Most clients send names in upper case.
        let same = ENTRIES.iter().find(|entry| entry.name.as_bytes() == name);
        same.or_else(|| ENTRIES.iter().find(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name)))
    }

    /// Whether it can have this number of strings.
    #[inline]
    pub(crate) const fn takes(&self, words: usize) -> bool {
        let words = words as i64;
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }
}

/// The error for an unknown command.
pub(crate) struct UnknownCommand<'b>(pub(crate) &'b [u8]);

impl fmt::Display for UnknownCommand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown command {}; known are", Quoted(self.0))?;
        for (index, entry) in ENTRIES.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma} {}", entry.name)?;
        }
        Ok(())
    }
}

/// Answers `COMMAND`, given its arguments; false if they are invalid.
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
                    Some(entry) => entry.write_info(reply),
                    None => reply.null(),
                }
            }
        }
        Some(b"DOCS") => {
            let is_requested = |entry: &&Entry| {
                names.len() == 0 || names.iter().any(|name| entry.name.as_bytes().eq_ignore_ascii_case(name))
            };
            let requested = ENTRIES.iter().filter(is_requested);
            reply.map(requested.clone().count());
            requested.for_each(|entry| entry.write_docs(reply));
        }
        Some(_) => return false,
    }
    true
}

fn all(reply: &mut Reply<'_>) {
    reply.array(ENTRIES.len());
    ENTRIES.iter().for_each(|entry| entry.write_info(reply));
}

impl Entry {
    /// The form of `COMMAND INFO` of Redis 7: name, arity, flags, first key, last key, step, and four lists, empty here.
    fn write_info(&self, reply: &mut Reply<'_>) {
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

    fn write_docs(&self, reply: &mut Reply<'_>) {
        reply.bulk(self.name.to_ascii_lowercase().as_bytes());
        reply.map(3);
        for (name, value) in [("summary", self.summary), ("group", "tollgate"), ("complexity", self.usage)] {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
        }
    }
}
