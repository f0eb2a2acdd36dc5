//! One client's side of the conversation: what it has told of itself, what it may do, and what it says next.

use std::sync::Arc;

use super::about::{self, Presence};
use super::command::{self, Command, Entry, Needs, Unknown};
use super::frame::{Limits, Words};
use super::question::{self, Question};
use super::reply::{Protocol, Reply};
use super::text::Quoted;
use super::throttle::Recent;
use super::{check, throttle};
use crate::access::{Digest, Scopes};
use crate::serve::shared::{Doors, Peer, Shared};

/// The most bytes of a connection's name.
const NAME_MAX: usize = 64;

pub(crate) struct Session {
    presence: Presence,
    peer: Peer,
    pub(crate) protocol: Protocol,
    scopes: Scopes,
    /// By whom it was judged what it may do, and by which token: both can change while it is connected.
    doors: Arc<Doors>,
    token: Option<Digest>,
    name: String,
    replies: Replies,
    recent: Recent,
}

/// Whether the client wants to hear answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replies {
    On,
    Off,
    /// To the next command it does not.
    SkipNext,
    /// To this one it does not.
    Skip,
}

/// What came of a command.
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart where it is made; in a box it would be allocated"
)]
pub(crate) enum Step<'b> {
    /// Its answer is written, if the client wants one.
    Answered,
    /// The store has to be waited for; the answer is not to be written if `unheard`.
    Ask { question: Question<'b>, unheard: bool },
    /// The client has left.
    Left,
}

impl Session {
    pub(crate) fn new(peer: Peer, shared: &Shared) -> Session {
        let doors = shared.doors.load_full();
        Session {
            presence: Presence::new(),
            peer,
            protocol: Protocol::default(),
            scopes: doors.scopes_of(&peer),
            doors,
            token: None,
            name: String::new(),
            replies: Replies::On,
            recent: Recent::default(),
        }
    }

    /// Whether it may do nothing yet.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.scopes.is_none()
    }

    pub(crate) fn limits(&self) -> &'static Limits {
        if self.is_anonymous() { &Limits::ANONYMOUS } else { &Limits::KNOWN }
    }

    /// Carries out one command. It is answered at once where that can be, unless earlier ones still wait.
    #[inline]
    pub(crate) fn carry_out<'b>(
        &mut self,
        shared: &Shared,
        words: Words<'b, '_>,
        waiting: bool,
        out: &mut Vec<u8>,
    ) -> Step<'b> {
        if !Arc::ptr_eq(&self.doors, &shared.doors.load()) {
            self.judge_again(shared);
        }
        let unheard = self.replies != Replies::On;
        if self.replies == Replies::SkipNext {
            self.replies = Replies::Skip;
        }
        let before = out.len();
        let protocol = self.protocol;
        let step = self.dispatch(shared, words, waiting, &mut Reply::new(out, protocol));
        if unheard {
            return self.unsaid(step, out, before);
        }
        step
    }

    /// Tokens and scopes were read again: what was shown may be worth something else now.
    #[cold]
    fn judge_again(&mut self, shared: &Shared) {
        self.doors = shared.doors.load_full();
        let by_token = self.token.and_then(|token| self.doors.tokens.scopes_by(&token));
        self.scopes = by_token.unwrap_or_else(|| self.doors.scopes_of(&self.peer));
    }

    /// The same for a client that does not want to hear the answer.
    #[cold]
    fn unsaid<'b>(&mut self, step: Step<'b>, out: &mut Vec<u8>, before: usize) -> Step<'b> {
        match self.replies {
            // This very command made it listen again.
            Replies::On => return step,
            Replies::Skip => self.replies = Replies::On,
            Replies::Off | Replies::SkipNext => (),
        }
        out.truncate(before);
        match step {
            Step::Ask { question, .. } => Step::Ask { question, unheard: true },
            step => step,
        }
    }

    #[inline]
    fn dispatch<'b>(
        &mut self,
        shared: &Shared,
        words: Words<'b, '_>,
        waiting: bool,
        reply: &mut Reply<'_>,
    ) -> Step<'b> {
        let name = words.get(0).unwrap_or_default();
        let Some(entry) = Entry::find(name) else {
            // Whoever may do nothing is told nothing.
            match self.may(Needs::Anything) {
                Ok(()) => reply.error("ERR", Unknown(name)),
                Err(refused) => refused.tell(reply),
            }
            return Step::Answered;
        };
        if let Err(refused) = self.may(entry.needs) {
            refused.tell(reply);
            return Step::Answered;
        }
        let rest = words.from(1);
        match entry.command {
            Command::Throttle => match throttle::Question::read(rest, &mut self.recent) {
                Ok(question) if !waiting && question::throttle_now(&question, &shared.gate, reply) => (),
                Ok(question) => return Step::ask(Question::Throttle(question)),
                Err(wrong) => reply.error("ERR", wrong),
            },
            Command::Check => match check::Question::read(entry.usage, rest) {
                Ok(question) if !waiting && question::check_now(&question, &shared.gate, reply) => (),
                Ok(question) => return Step::ask(Question::Check(question)),
                Err(wrong) => reply.error("ERR", wrong),
            },
            _ if !entry.takes(words.len()) => arguments(entry, reply),
            Command::Peek => match check::Question::read(entry.usage, rest) {
                Ok(question) => return Step::ask(Question::Peek(question)),
                Err(wrong) => reply.error("ERR", wrong),
            },
            Command::Forget => match check::Question::read(entry.usage, rest) {
                Ok(question) => return Step::ask(Question::Forget(question)),
                Err(wrong) => reply.error("ERR", wrong),
            },
            Command::Quit => {
                reply.simple("OK");
                return Step::Left;
            }
            _ => self.converse(entry, shared, rest, reply),
        }
        Step::Answered
    }

    /// What has nothing to do with limits.
    fn converse(&mut self, entry: &Entry, shared: &Shared, rest: Words<'_, '_>, reply: &mut Reply<'_>) {
        match (entry.command, rest.get(0), rest.len()) {
            (Command::Ping, None, _) => reply.simple("PONG"),
            (Command::Ping | Command::Echo, Some(message), 1) => reply.bulk(message),
            (Command::Auth, Some(token), 1) => self.authenticate(shared, token, reply),
            (Command::Auth, Some(_), 2) => {
                self.authenticate(shared, rest.get(1).unwrap_or_default(), reply);
            }
            (Command::Hello, ..) => self.hello(entry, shared, rest, reply),
            (Command::Client, Some(what), _) => self.client(entry, what, rest.from(1), reply),
            (Command::Table, ..) if command::answer(rest, reply) => (),
            (Command::Info, ..) => about::info(rest, reply),
            (Command::Config, Some(get), _) if get.eq_ignore_ascii_case(b"GET") => {
                about::config(rest.from(1), reply);
            }
            (Command::Select, Some(b"0"), 1) => reply.simple("OK"),
            (Command::Select, ..) => reply.error("ERR", "DB index is out of range; there is only 0"),
            (Command::Reset, ..) => {
                self.protocol = Protocol::default();
                (self.token, self.scopes) = (None, self.doors.scopes_of(&self.peer));
                self.replies = Replies::On;
                self.name.clear();
                reply.simple("RESET");
            }
            _ => arguments(entry, reply),
        }
    }

    fn authenticate(&mut self, shared: &Shared, token: &[u8], reply: &mut Reply<'_>) {
        match shared.scopes_of(token) {
            Some(scopes) => {
                (self.token, self.scopes) = (Some(Digest::of(token)), scopes);
                reply.simple("OK");
            }
            None => wrong_token(reply),
        }
    }

    fn hello(&mut self, entry: &Entry, shared: &Shared, rest: Words<'_, '_>, reply: &mut Reply<'_>) {
        let protocol = match rest.get(0) {
            None => self.protocol,
            Some(b"2") => Protocol::Resp2,
            Some(b"3") => Protocol::Resp3,
            Some(_) => return reply.error("NOPROTO", "unsupported protocol version; there are 2 and 3"),
        };
        let mut options = rest.from(1);
        let (mut scopes, mut shown, mut name) = (self.scopes, self.token, None);
        while let Some(option) = options.get(0) {
            let taken = match (option.to_ascii_uppercase().as_slice(), options.get(1), options.get(2)) {
                (b"AUTH", Some(_), Some(token)) => {
                    let Some(found) = shared.scopes_of(token) else { return wrong_token(reply) };
                    (scopes, shown) = (found, Some(Digest::of(token)));
                    3
                }
                (b"SETNAME", Some(given), _) => match connection_name(given) {
                    Some(given) => {
                        name = Some(given);
                        2
                    }
                    None => return wrong_name(reply),
                },
                _ => return arguments(entry, reply),
            };
            options = options.from(taken);
        }
        if scopes.is_none() {
            return reply.error(
                "NOAUTH",
                "HELLO must be called with the client already authenticated, or as HELLO 3 AUTH user token",
            );
        }
        (self.protocol, self.scopes, self.token) = (protocol, scopes, shown);
        if let Some(name) = name {
            self.name = name;
        }
        self.introduce(&mut reply.speaking(protocol));
    }

    fn introduce(&self, reply: &mut Reply<'_>) {
        let proto = match reply.protocol() {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        };
        reply.map(7);
        reply.bulk(b"server");
        reply.bulk(b"tollgate");
        reply.bulk(b"version");
        reply.bulk(about::VERSION.as_bytes());
        reply.bulk(b"proto");
        reply.integer(proto);
        reply.bulk(b"id");
        reply.count(self.presence.id);
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
            (b"ID", None, _) => reply.count(self.presence.id),
            (b"INFO", None, _) => {
                let (id, address, name) = (self.presence.id, self.peer.address, &self.name);
                let resp = if self.protocol == Protocol::Resp2 { 2 } else { 3 };
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
                None => wrong_name(reply),
            },
            // Taken and not kept: nobody here asks for it.
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
            ) => arguments(entry, reply),
            _ => {
                let usage = entry.usage;
                reply.error("ERR", format_args!("unknown subcommand {}; write {usage}", Quoted(what)));
            }
        }
    }

    fn may(&self, needs: Needs) -> Result<(), Refused> {
        match needs {
            Needs::Scope(scope, _) if self.scopes.allow(scope) => Ok(()),
            Needs::Nothing => Ok(()),
            _ if self.is_anonymous() => Err(Refused::Unknown),
            Needs::Anything => Ok(()),
            Needs::Scope(_, name) => Err(Refused::Scope(name)),
        }
    }
}

impl<'b> Step<'b> {
    const fn ask(question: Question<'b>) -> Step<'b> {
        Step::Ask { question, unheard: false }
    }
}

/// Why a client may not do something.
enum Refused {
    Unknown,
    Scope(&'static str),
}

impl Refused {
    #[cold]
    fn tell(self, reply: &mut Reply<'_>) {
        match self {
            Refused::Unknown => reply.error("NOAUTH", "Authentication required; send AUTH with a token"),
            Refused::Scope(name) => reply.error(
                "NOPERM",
                format_args!("this needs a token with the scope '{name}'; send AUTH with one"),
            ),
        }
    }
}

#[cold]
fn arguments(entry: &Entry, reply: &mut Reply<'_>) {
    let (name, usage) = (entry.name.to_ascii_lowercase(), entry.usage);
    reply.error("ERR", format_args!("wrong number of arguments for '{name}' command; write {usage}"));
}

#[cold]
fn wrong_token(reply: &mut Reply<'_>) {
    reply.error("WRONGPASS", "invalid username-password pair or user is disabled; the password is a token");
}

#[cold]
fn wrong_name(reply: &mut Reply<'_>) {
    let what = format_args!(
        "Client names cannot contain spaces, newlines or special characters, and have at most {NAME_MAX} bytes"
    );
    reply.error("ERR", what);
}

fn connection_name(name: &[u8]) -> Option<String> {
    let fits = name.len() <= NAME_MAX && name.iter().all(u8::is_ascii_graphic);
    fits.then(|| name.iter().copied().map(char::from).collect())
}
