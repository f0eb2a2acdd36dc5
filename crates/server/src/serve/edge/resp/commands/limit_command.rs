//! Commands that ask the gate, and their replies.

use std::fmt;
use std::sync::Arc;

use tollgate::Decision;
use tollgate::core::Span;
use tollgate::limiter::CheckError;

use super::arguments::{AMOUNT, ArgumentError, Arguments, COST, ID, RULE, SCALE, TTL};
use super::check;
use super::table::{Command, Entry};
use super::throttle::{LastLimit, ThrottleArgumentError, ThrottleRequest};
use crate::protocol::Protocol;
use crate::serve::edge::auth::Caller;
use crate::serve::edge::calls::holds::{ExtendRequest, Held, Settlement};
use crate::serve::edge::calls::meters::{Meters, Scale};
use crate::serve::edge::calls::{answer, charges, holds, meters};
use crate::serve::edge::error::EdgeError;
use crate::serve::edge::request::{self, CheckRequest};
use crate::serve::edge::resp::frame::{LosslessWords, Words};
use crate::serve::edge::resp::reply::{Reply, RespVersion};
use crate::serve::gate::{Call, Edge, Gate, ThrottleError, Throttled};
use crate::serve::store::work_share::WorkPermit;

pub(crate) enum LimitCommand<'b> {
    Throttle(ThrottleRequest<'b>),
    Check(CheckRequest<'b>),
    Peek(CheckRequest<'b>),
    DeleteState(CheckRequest<'b>),
    Usage(CheckRequest<'b>),
    Record(CheckRequest<'b>),
    Credit(CheckRequest<'b>),
    Lease(CheckRequest<'b>),
    Renew {
        receipt: &'b str,
    },
    Release {
        receipt: &'b str,
    },
    Refund {
        receipt: &'b str,
        amount: u64,
    },
    Reserve {
        request: CheckRequest<'b>,
        hold: Span,
    },
    Extend(ExtendRequest<'b>),
    Settle {
        receipt: &'b str,
        settlement: Settlement<'b>,
    },
    Cancel {
        receipt: &'b str,
    },
    MeterRead {
        request: CheckRequest<'b>,
        meters: Meters<'b>,
    },
    MeterAdd {
        request: CheckRequest<'b>,
        meters: Meters<'b>,
        amount: u64,
    },
    MeterSubtract {
        request: CheckRequest<'b>,
        meters: Meters<'b>,
        amount: u64,
    },
    MeterReset {
        request: CheckRequest<'b>,
        rule: Option<&'b str>,
    },
    /// A command with words that are not UTF-8, which are replaced without loss.
    Lossless {
        entry: &'static Entry,
        words: Box<LosslessWords>,
    },
}

/// Why the arguments of a command are invalid.
pub(crate) enum ReadError<'b> {
    Throttle(ThrottleArgumentError<'b>),
    Arguments(ArgumentError<'b>),
}

impl ReadError<'_> {
    /// Whether a word is not UTF-8, so that lossless words are needed.
    pub(crate) fn is_not_text(&self) -> bool {
        matches!(
            self,
            ReadError::Throttle(ThrottleArgumentError::KeyNotText)
                | ReadError::Arguments(ArgumentError::NotText)
        )
    }
}

impl fmt::Display for ReadError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Throttle(error) => error.fmt(f),
            ReadError::Arguments(error) => error.fmt(f),
        }
    }
}

impl<'b> LimitCommand<'b> {
    /// Reads what follows the name of the command.
    #[inline]
    pub(crate) fn read(
        entry: &Entry,
        words: Words<'b, '_>,
        last_limit: &mut LastLimit,
        is_lossless: bool,
    ) -> Result<LimitCommand<'b>, ReadError<'b>> {
        if entry.command == Command::Throttle {
            let throttle = ThrottleRequest::read(words, last_limit, is_lossless);
            return throttle.map(LimitCommand::Throttle).map_err(ReadError::Throttle);
        }
        Arguments::read(entry.usage, options(entry.command), words, is_lossless)
            .and_then(|arguments| LimitCommand::from_arguments(entry.command, &arguments))
            .map_err(ReadError::Arguments)
    }

    fn from_arguments(
        command: Command,
        arguments: &Arguments<'b, '_>,
    ) -> Result<LimitCommand<'b>, ArgumentError<'b>> {
        let receipt = |words: usize| match arguments.words.len() {
            len if len == words => arguments.word(0),
            _ => Err(arguments.wrong_number()),
        };
        Ok(match command {
            Command::Check => LimitCommand::Check(arguments.request()?),
            Command::Peek => LimitCommand::Peek(arguments.request()?),
            Command::DeleteState => LimitCommand::DeleteState(arguments.request()?),
            Command::Usage => LimitCommand::Usage(arguments.request()?),
            Command::Record => LimitCommand::Record(arguments.request()?),
            Command::Credit => LimitCommand::Credit(arguments.request()?),
            Command::Lease => LimitCommand::Lease(arguments.request()?),
            Command::Renew => LimitCommand::Renew { receipt: receipt(1)? },
            Command::Release => LimitCommand::Release { receipt: receipt(1)? },
            Command::Cancel => LimitCommand::Cancel { receipt: receipt(1)? },
            Command::Refund => {
                let amount = arguments.number(AMOUNT)?.map(request::amount).transpose()?;
                LimitCommand::Refund { receipt: receipt(1)?, amount: amount.unwrap_or(u64::MAX) }
            }
            Command::Reserve => {
                let hold = request::hold(arguments.number(TTL)?)?;
                LimitCommand::Reserve { request: arguments.request()?, hold }
            }
            Command::Extend => LimitCommand::Extend(ExtendRequest {
                receipt: receipt(2)?,
                more: request::amount(arguments.number_at(1, "more")?)?,
                hold: request::hold(arguments.number(TTL)?)?,
                id: arguments.option(ID)?.map(request::id).transpose()?,
            }),
            Command::Settle => {
                LimitCommand::Settle { receipt: arguments.word(0)?, settlement: settlement(arguments)? }
            }
            Command::MeterRead => {
                LimitCommand::MeterRead { request: arguments.request()?, meters: read_meters(arguments)? }
            }
            Command::MeterAdd => {
                let (request, meters) = (arguments.request()?, read_meters(arguments)?);
                LimitCommand::MeterAdd { request, meters, amount: meter_amount(arguments, meters.scale)? }
            }
            Command::MeterSubtract => {
                let (request, meters) = (arguments.request()?, read_meters(arguments)?);
                let amount = meter_amount(arguments, meters.scale)?;
                LimitCommand::MeterSubtract { request, meters, amount }
            }
            Command::MeterReset => {
                LimitCommand::MeterReset { request: arguments.request()?, rule: arguments.option(RULE)? }
            }
            _ => return Err(arguments.wrong_number()),
        })
    }

    /// The request of a command that describes one.
    pub(crate) const fn request(&self) -> Option<&CheckRequest<'b>> {
        match self {
            LimitCommand::Check(request)
            | LimitCommand::Peek(request)
            | LimitCommand::DeleteState(request)
            | LimitCommand::Usage(request)
            | LimitCommand::Record(request)
            | LimitCommand::Credit(request)
            | LimitCommand::Lease(request)
            | LimitCommand::Reserve { request, .. }
            | LimitCommand::MeterRead { request, .. }
            | LimitCommand::MeterAdd { request, .. }
            | LimitCommand::MeterSubtract { request, .. }
            | LimitCommand::MeterReset { request, .. } => Some(request),
            LimitCommand::Throttle(_)
            | LimitCommand::Renew { .. }
            | LimitCommand::Release { .. }
            | LimitCommand::Refund { .. }
            | LimitCommand::Extend(_)
            | LimitCommand::Settle { .. }
            | LimitCommand::Cancel { .. }
            | LimitCommand::Lossless { .. } => None,
        }
    }

    /// Whether it must not run together with others: what earlier commands did must have been counted.
    pub(crate) const fn runs_alone(&self) -> bool {
        match self {
            LimitCommand::Throttle(_)
            | LimitCommand::Check(_)
            | LimitCommand::Peek(_)
            | LimitCommand::Record(_) => false,
            LimitCommand::Lossless { entry, .. } => {
                !matches!(entry.command, Command::Throttle | Command::Check | Command::Peek | Command::Record)
            }
            _ => true,
        }
    }

    /// Runs the command and writes its reply, if the store answers at once. Otherwise nothing has happened.
    #[inline]
    pub(crate) fn run_now(&self, gate: &Gate, caller: &Caller, reply: &mut Reply<'_>) -> bool {
        match self {
            LimitCommand::Throttle(request) => {
                let call =
                    gate.throttle((Edge::Resp, caller), request.key, &request.limit, request.operation());
                let Call::Ready(throttled) = call else { return false };
                write_throttled(request, &throttled, reply);
            }
            // A bound token is rare, and a copy of the request is made for it.
            LimitCommand::Check(_) if caller.bound().is_some() => return false,
            LimitCommand::Check(request) => {
                let Call::Ready(decided) = gate.check(Edge::Resp, request.request()) else { return false };
                write_decided(&decided, (gate, caller), reply);
            }
            _ => return false,
        }
        true
    }

    /// Runs the command, and returns its encoded reply.
    pub(crate) async fn run(
        self,
        gate: &Gate,
        caller: Arc<Caller>,
        work: WorkPermit,
        version: RespVersion,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        if let LimitCommand::Lossless { entry, words } = self {
            let again = match LimitCommand::read(entry, words.words(), &mut LastLimit::default(), true) {
                Ok(command) => command,
                Err(error) => {
                    let error = EdgeError::bad_request(error.to_string());
                    Reply::new(&mut out, version).edge_error(&error);
                    return out;
                }
            };
            return Box::pin(again.run(gate, caller, work, version)).await;
        }
        let reply = &mut Reply::new(&mut out, version);
        let _turn = match work.turn().await {
            Ok(turn) => turn,
            Err(overloaded) => {
                reply.edge_error(&overloaded.into());
                return out;
            }
        };
        if let Err(error) = self.reply(gate, &caller, reply).await {
            reply.edge_error(&error);
        }
        out
    }

    async fn reply(self, gate: &Gate, caller: &Caller, reply: &mut Reply<'_>) -> Result<(), EdgeError> {
        let edge = (Edge::Resp, caller);
        match self {
            LimitCommand::Throttle(request) => {
                let call = gate.throttle(edge, request.key, &request.limit, request.operation());
                write_throttled(&request, &call.finish().await, reply);
            }
            LimitCommand::Check(request) => {
                let request = caller.bind(request)?;
                let decided = gate.check(Edge::Resp, request.request()).finish().await;
                write_decided(&decided, (gate, caller), reply);
            }
            LimitCommand::Peek(request) => {
                let request = caller.bind(request)?;
                write_decided(&gate.peek(request.request()).await, (gate, caller), reply);
            }
            LimitCommand::DeleteState(request) => {
                let reset = gate.reset(Edge::Resp, caller, request.request(), None).await;
                let returned = reset.map_err(|error| EdgeError::from(&error))?;
                if returned.is_empty() {
                    return Err(EdgeError::nothing_matched(None));
                }
                check::write_reset(&returned, reply);
            }
            LimitCommand::Usage(request) => {
                reply.value(&answer::usage(&charges::usage(gate, caller, request).await?));
            }
            LimitCommand::Record(request) => {
                reply.value(&answer::recorded(&charges::record(gate, caller, request).await?));
            }
            LimitCommand::Credit(request) => {
                reply.value(&answer::credits(&charges::credit(gate, caller, request).await?));
            }
            LimitCommand::Lease(request) => {
                let held = holds::lease(gate, edge, request).await?;
                write_held(&held, b"lease_ms", (gate, caller), reply);
            }
            LimitCommand::Renew { receipt } => {
                reply.value(&answer::renewed(&holds::renew(gate, caller, receipt).await?));
            }
            LimitCommand::Release { receipt } => {
                reply.value(&answer::results(&holds::release(gate, caller, receipt).await?));
            }
            LimitCommand::Refund { receipt, amount } => {
                reply.value(&answer::returns(&holds::refund(gate, caller, receipt, amount).await?));
            }
            LimitCommand::Reserve { request, hold } => {
                let held = holds::reserve(gate, edge, request, hold).await?;
                write_held(&held, b"ttl_ms", (gate, caller), reply);
            }
            LimitCommand::Extend(request) => {
                reply.value(&answer::extended(&holds::extend(gate, caller, &request).await?));
            }
            LimitCommand::Settle { receipt, settlement } => {
                let returned = holds::settle(gate, (Protocol::Resp, caller), receipt, &settlement).await?;
                reply.value(&answer::returns(&returned));
            }
            LimitCommand::Cancel { receipt } => {
                reply.value(&answer::returns(&holds::cancel(gate, caller, receipt).await?));
            }
            LimitCommand::MeterRead { request, meters } => {
                reply.value(&meters::read(gate, caller, request, meters).await?);
            }
            LimitCommand::MeterAdd { request, meters, amount } => {
                reply.value(&meters::add(gate, caller, request, amount, meters).await?);
            }
            LimitCommand::MeterSubtract { request, meters, amount } => {
                reply.value(&meters::subtract(gate, caller, request, amount, meters).await?);
            }
            LimitCommand::MeterReset { request, rule } => {
                reply.value(&meters::reset(gate, edge, &request, rule).await?);
            }
            // `run` has read it again.
            LimitCommand::Lossless { .. } => return Err(EdgeError::bad_request("an argument is not UTF-8")),
        }
        Ok(())
    }
}

/// The options of a command.
const fn options(command: Command) -> &'static [&'static str] {
    match command {
        Command::Check | Command::Peek | Command::Lease | Command::Record | Command::Credit => &[COST, ID],
        Command::Extend => &[TTL, ID],
        Command::Reserve => &[COST, TTL, ID],
        Command::Refund => &[AMOUNT],
        Command::MeterRead => &[SCALE, RULE],
        Command::MeterAdd | Command::MeterSubtract => &[AMOUNT, SCALE, RULE, ID],
        Command::MeterReset => &[RULE],
        _ => &[],
    }
}

/// The meters that the options name.
fn read_meters<'b>(arguments: &Arguments<'b, '_>) -> Result<Meters<'b>, ArgumentError<'b>> {
    let scale = Scale::new(arguments.number(SCALE)?.unwrap_or(0))?;
    Ok(Meters { rule: arguments.option(RULE)?, scale })
}

/// The units of the option `AMOUNT`, which is 1 if it is absent.
fn meter_amount<'b>(arguments: &Arguments<'b, '_>, scale: Scale) -> Result<u64, ArgumentError<'b>> {
    Ok(scale.amount(arguments.option(AMOUNT)?.unwrap_or("1"))?)
}

/// `receipt [actual] [RULE id n ...]`.
fn settlement<'b>(arguments: &Arguments<'b, '_>) -> Result<Settlement<'b>, ArgumentError<'b>> {
    let words = arguments.words;
    let has_common = words.get(1).is_some_and(|word| word != RULE.as_bytes());
    let actual = if has_common { Some(request::used(arguments.number_at(1, "actual")?)?) } else { None };
    let first = if has_common { 2 } else { 1 };
    let is_in_threes = words.len().saturating_sub(first).is_multiple_of(3);
    if !is_in_threes || words.len() == 1 {
        return Err(arguments.wrong_number());
    }
    let mut named: Vec<(&str, u64)> = Vec::new();
    for index in (first..words.len()).step_by(3) {
        if words.get(index) != Some(RULE.as_bytes()) {
            return Err(arguments.wrong_number());
        }
        let (rule, amount) =
            (arguments.word(index + 1)?, arguments.number_at(index + 2, "the amount of a rule")?);
        if named.iter().any(|(known, _)| *known == rule) {
            return Err(ArgumentError::DuplicateRule { found: rule.as_bytes() });
        }
        named.push((rule, request::used(amount)?));
    }
    Ok(Settlement { actual, named })
}

#[inline]
fn write_throttled(
    request: &ThrottleRequest<'_>,
    throttled: &Result<Throttled, ThrottleError>,
    reply: &mut Reply<'_>,
) {
    match throttled {
        Ok(Throttled { now, answer }) => {
            if request.write_reply(*now, answer, reply).is_none() {
                reply.edge_error(&EdgeError::from(&ThrottleError::Unanswered));
            }
        }
        Err(error) => reply.edge_error(&EdgeError::from(error)),
    }
}

#[inline]
fn write_decided(
    decided: &Result<Decision, CheckError>,
    (gate, caller): (&Gate, &Caller),
    reply: &mut Reply<'_>,
) {
    match decided {
        Ok(decision) => {
            let (receipt, reference) = (gate.seal(decision, caller), gate.reference(decision));
            check::write_decision(decision, (receipt.as_deref(), reference.as_deref()), &[], reply);
        }
        Err(error) => reply.edge_error(&EdgeError::from(error)),
    }
}

fn write_held(held: &Held, lasts: &[u8], (gate, caller): (&Gate, &Caller), reply: &mut Reply<'_>) {
    let holds: [(&[u8], _); 2] = [(b"expires_at_ms", held.expires_at_ms), (lasts, held.lasts_ms)];
    let (receipt, reference) = (gate.seal(&held.decision, caller), gate.reference(&held.decision));
    check::write_decision(&held.decision, (receipt.as_deref(), reference.as_deref()), &holds, reply);
}
