//! The state of one connection: its protocol version, its access, its name; and the execution of its commands.

use std::sync::Arc;

use super::commands::info;
use super::commands::limit_command::LimitCommand;
use super::commands::table::{self, Command, Entry, UnknownCommand};
use super::commands::throttle::LastLimit;
use super::frame::{Limits, LosslessWords, Words};
use super::reply::{Reply, RespVersion};
use super::text::Quoted;
use crate::access::Digest;
use crate::protocol::Protocol;
use crate::serve::edge::auth::{AccessPolicy, AuthError, Caller, Credentials, Needs, Peer};
use crate::serve::edge::error::EdgeError;
use crate::serve::gate::Edge;
use crate::serve::server_state::ServerState;

/// Bytes of a connection's name.
const NAME_BYTES_MAX: usize = 64;

pub(crate) struct Session {
    peer: Peer,
    pub(crate) version: RespVersion,
    caller: Arc<Caller>,
    /// The policy that `caller` comes from. It can be replaced while the connection is open.
    access: Arc<AccessPolicy>,
    token: Option<Digest>,
    name: String,
    replies: Replies,
    last_limit: LastLimit,
}

/// Whether the client wants replies (`CLIENT REPLY`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replies {
    On,
    Off,
    /// Not to the next command.
    SkipNext,
    /// Not to the current command.
    Skip,
}

/// The result of a command.
#[expect(
    clippy::large_enum_variant,
    reason = "it is matched where it is made; a box would allocate for every command"
)]
pub(crate) enum Step<'b> {
    /// Its reply is written.
    Done,
    /// It waits for the store; a silent one gets no reply.
    Wait { command: LimitCommand<'b>, is_silent: bool },
    /// The client closes the connection.
    Quit,
}

impl Session {
    pub(crate) fn new(peer: Peer, state: &ServerState) -> Session {
        let access = state.access.load_full();
        let mut session = Session {
            peer,
            version: RespVersion::default(),
            caller: Arc::new(Caller::NOBODY),
            access,
            token: None,
            name: String::new(),
            replies: Replies::On,
            last_limit: LastLimit::default(),
        };
        session.update_caller();
        session
    }

    /// Whether the caller has no scope.
    pub(crate) fn has_no_scope(&self) -> bool {
        self.caller.has_no_scope()
    }

    /// Who sends the commands.
    pub(crate) const fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    pub(crate) fn limits(&self) -> &'static Limits {
        if self.has_no_scope() { &Limits::ANONYMOUS } else { &Limits::AUTHENTICATED }
    }

    /// Runs one command. Its reply is written at once if possible, unless earlier commands wait for the store.
    #[inline]
    pub(crate) fn run<'b>(
        &mut self,
        state: &ServerState,
        words: Words<'b, '_>,
        others_wait: bool,
        out: &mut Vec<u8>,
    ) -> Step<'b> {
        if !Arc::ptr_eq(&self.access, &state.access.load()) {
            self.access = state.access.load_full();
            self.update_caller();
        }
        let is_silent = self.replies != Replies::On;
        if self.replies == Replies::SkipNext {
            self.replies = Replies::Skip;
        }
        let before = out.len();
        let version = self.version;
        let step = self.dispatch(state, words, (others_wait, is_silent), &mut Reply::new(out, version));
        if is_silent {
            return self.suppress_reply(step, out, before);
        }
        step
    }

    /// Sets the caller by the current access policy. A token that is no longer known has no scope.
    #[cold]
    fn update_caller(&mut self) {
        let credentials = self.token.map_or(Credentials::None, Credentials::Digest);
        let caller = self.access.authenticate(&self.peer, credentials);
        self.caller = Arc::new(caller.unwrap_or(Caller::NOBODY));
    }

    /// Removes the reply of a command if the client does not want it.
    #[cold]
    fn suppress_reply<'b>(&mut self, step: Step<'b>, out: &mut Vec<u8>, before: usize) -> Step<'b> {
        match self.replies {
            // This command has switched replies on.
            Replies::On => return step,
            Replies::Skip => self.replies = Replies::On,
            Replies::Off | Replies::SkipNext => (),
        }
        out.truncate(before);
        match step {
            Step::Wait { command, .. } => Step::Wait { command, is_silent: true },
            step => step,
        }
    }

    #[inline]
    fn dispatch<'b>(
        &mut self,
        state: &ServerState,
        words: Words<'b, '_>,
        (others_wait, is_silent): (bool, bool),
        reply: &mut Reply<'_>,
    ) -> Step<'b> {
        let name = words.get(0).unwrap_or_default();
        let Some(entry) = Entry::find(name) else {
            // A caller without a scope does not learn which commands exist.
            match self.caller.authorize(Needs::AnyScope) {
                Ok(()) => reply.error("ERR", UnknownCommand(name)),
                Err(error) => write_auth_error(error, state, reply),
            }
            return Step::Done;
        };
        if let Err(error) = self.caller.authorize(entry.needs) {
            write_auth_error(error, state, reply);
            return Step::Done;
        }
        let rest = words.from(1);
        // The arguments of this one are counted where they are read.
        if entry.command != Command::Throttle && !entry.takes(words.len()) {
            write_usage(entry, reply);
            return Step::Done;
        }
        if !entry.command.asks_gate() {
            if entry.command == Command::Quit {
                reply.simple("OK");
                return Step::Quit;
            }
            self.run_connection_command(entry, state, rest, reply);
            return Step::Done;
        }
        let command = match LimitCommand::read(entry, rest, &mut self.last_limit, false) {
            Ok(command) => command,
            Err(error) if error.is_not_text() => {
                LimitCommand::Lossless { entry, words: Box::new(LosslessWords::new(rest)) }
            }
            Err(error) => return write_argument_error(error, reply),
        };
        // Without a reply there is no receipt, and nothing could release a lease.
        if is_silent
            && let LimitCommand::Check(request) = &command
            && state.gate.unreturnable_lease(Edge::Resp, request.attributes()).is_some()
        {
            return Step::Done;
        }
        if !others_wait && command.run_now(&state.gate, &self.caller, reply) {
            return Step::Done;
        }
        Step::Wait { command, is_silent: false }
    }

    /// Runs a command that has nothing to do with limits.
    fn run_connection_command(
        &mut self,
        entry: &Entry,
        state: &ServerState,
        rest: Words<'_, '_>,
        reply: &mut Reply<'_>,
    ) {
        match (entry.command, rest.get(0), rest.len()) {
            (Command::Ping, None, _) => reply.simple("PONG"),
            (Command::Ping | Command::Echo, Some(message), 1) => reply.bulk(message),
            (Command::Auth, Some(token), 1) => self.authenticate(token, state, reply),
            (Command::Auth, Some(_), 2) => {
                self.authenticate(rest.get(1).unwrap_or_default(), state, reply);
            }
            (Command::Hello, ..) => self.hello(entry, state, rest, reply),
            (Command::Client, Some(what), _) => self.client(entry, what, rest.from(1), reply),
            (Command::Describe, ..) if table::answer(rest, reply) => (),
            (Command::Info, ..) => info::info(rest, &state.connections, reply),
            (Command::Config, Some(get), _) if get.eq_ignore_ascii_case(b"GET") => {
                info::config(rest.from(1), reply);
            }
            (Command::Select, Some(b"0"), 1) => reply.simple("OK"),
            (Command::Select, ..) => reply.error("ERR", "DB index is out of range; the only database is 0"),
            (Command::Reset, ..) => {
                self.version = RespVersion::default();
                self.token = None;
                self.update_caller();
                self.replies = Replies::On;
                self.name.clear();
                reply.simple("RESET");
            }
            _ => write_usage(entry, reply),
        }
    }

    fn authenticate(&mut self, token: &[u8], state: &ServerState, reply: &mut Reply<'_>) {
        let digest = Digest::of(token);
        match self.access.authenticate(&self.peer, Credentials::Digest(digest)) {
            Ok(caller) => {
                (self.token, self.caller) = (Some(digest), Arc::new(caller));
                reply.simple("OK");
            }
            Err(error) => write_auth_error(error, state, reply),
        }
    }

    fn hello(&mut self, entry: &Entry, state: &ServerState, rest: Words<'_, '_>, reply: &mut Reply<'_>) {
        let version = match rest.get(0) {
            None => self.version,
            Some(b"2") => RespVersion::Resp2,
            Some(b"3") => RespVersion::Resp3,
            Some(_) => return reply.error("NOPROTO", "unsupported protocol version; supported are 2 and 3"),
        };
        let mut options = rest.from(1);
        let (mut caller, mut digest, mut name) = (Arc::clone(&self.caller), self.token, None);
        while let Some(option) = options.get(0) {
            let taken = match (option.to_ascii_uppercase().as_slice(), options.get(1), options.get(2)) {
                (b"AUTH", Some(_), Some(token)) => {
                    let sent = Digest::of(token);
                    match self.access.authenticate(&self.peer, Credentials::Digest(sent)) {
                        Ok(found) => (caller, digest) = (Arc::new(found), Some(sent)),
                        Err(error) => return write_auth_error(error, state, reply),
                    }
                    3
                }
                (b"SETNAME", Some(given), _) => match connection_name(given) {
                    Some(given) => {
                        name = Some(given);
                        2
                    }
                    None => return write_name_error(reply),
                },
                _ => return write_usage(entry, reply),
            };
            options = options.from(taken);
        }
        if caller.has_no_scope() {
            return reply.error(
                "NOAUTH",
                "HELLO must be called with the client already authenticated, or as HELLO 3 AUTH user token",
            );
        }
        (self.version, self.caller, self.token) = (version, caller, digest);
        if let Some(name) = name {
            self.name = name;
        }
        self.write_hello(&mut reply.with_version(version));
    }

    fn write_hello(&self, reply: &mut Reply<'_>) {
        let proto = match reply.version() {
            RespVersion::Resp2 => 2,
            RespVersion::Resp3 => 3,
        };
        reply.map(7);
        reply.bulk(b"server");
        reply.bulk(b"tollgate");
        reply.bulk(b"version");
        reply.bulk(info::VERSION.as_bytes());
        reply.bulk(b"proto");
        reply.integer(proto);
        reply.bulk(b"id");
        reply.count(self.peer.connection);
        reply.bulk(b"mode");
        reply.bulk(b"standalone");
        reply.bulk(b"role");
        reply.bulk(b"master");
        reply.bulk(b"modules");
        reply.array(0);
    }

    fn client(&mut self, entry: &Entry, what: &[u8], rest: Words<'_, '_>, reply: &mut Reply<'_>) {
        let first = rest.get(0).map(<[u8]>::to_ascii_uppercase);
        match (what.to_ascii_uppercase().as_slice(), first.as_deref(), rest.len()) {
            (b"ID", None, _) => reply.count(self.peer.connection),
            (b"INFO", None, _) => {
                let (id, address, name) = (self.peer.connection, self.peer.address, &self.name);
                let resp = if self.version == RespVersion::Resp2 { 2 } else { 3 };
                let line = format!("id={id} addr={address} name={name} db=0 resp={resp}\n");
                reply.bulk(line.as_bytes());
            }
            (b"GETNAME", None, _) if self.name.is_empty() => reply.null(),
            (b"GETNAME", None, _) => reply.bulk(self.name.as_bytes()),
            (b"SETNAME", Some(_), 1) => match rest.get(0).and_then(connection_name) {
                Some(name) => {
                    self.name = name;
                    reply.simple("OK");
                }
                None => write_name_error(reply),
            },
            // Accepted and ignored.
            (b"SETINFO", Some(b"LIB-NAME" | b"LIB-VER"), 2) => reply.simple("OK"),
            (b"NO-EVICT" | b"NO-TOUCH", Some(b"ON" | b"OFF"), 1) => reply.simple("OK"),
            (b"REPLY", Some(b"ON"), 1) => {
                self.replies = Replies::On;
                reply.simple("OK");
            }
            (b"REPLY", Some(b"OFF"), 1) => self.replies = Replies::Off,
            (b"REPLY", Some(b"SKIP"), 1) if self.replies == Replies::Off => (),
            (b"REPLY", Some(b"SKIP"), 1) => self.replies = Replies::SkipNext,
            (
                b"ID" | b"INFO" | b"GETNAME" | b"SETNAME" | b"SETINFO" | b"NO-EVICT" | b"NO-TOUCH" | b"REPLY",
                ..,
            ) => write_usage(entry, reply),
            _ => {
                let usage = entry.usage;
                reply.error("ERR", format_args!("unknown subcommand {}; write {usage}", Quoted(what)));
            }
        }
    }
}

#[cold]
fn write_auth_error(error: AuthError, state: &ServerState, reply: &mut Reply<'_>) {
    reply.edge_error(&state.auth_failures.note(error, Protocol::Resp));
}

#[cold]
fn write_argument_error<'b>(error: impl std::fmt::Display, reply: &mut Reply<'_>) -> Step<'b> {
    reply.edge_error(&EdgeError::bad_request(error.to_string()));
    Step::Done
}

#[cold]
fn write_usage(entry: &Entry, reply: &mut Reply<'_>) {
    let (name, usage) = (entry.name.to_ascii_lowercase(), entry.usage);
    reply.error("ERR", format_args!("wrong number of arguments for '{name}' command; write {usage}"));
}

#[cold]
fn write_name_error(reply: &mut Reply<'_>) {
    let what = format_args!(
        "Client names cannot contain spaces, newlines or special characters, and have at most {NAME_BYTES_MAX} bytes"
    );
    reply.error("ERR", what);
}

fn connection_name(name: &[u8]) -> Option<String> {
    let fits = name.len() <= NAME_BYTES_MAX && name.iter().all(u8::is_ascii_graphic);
    fits.then(|| name.iter().copied().map(char::from).collect())
}
