//! A refusal as few bytes: numbers in groups of seven bits, names after their lengths.

use smallvec::SmallVec;
use tollgate::Decision;
use tollgate::core::decision::{RetryAfter, Source};
use tollgate::core::{Algorithm, Exactness};
use tollgate::limiter::RuleDecision;
use tollgate::{Clock, SystemClock};

/// The first byte. Another layout gets another number.
const VERSION: u8 = 1;
/// Refusing rules of one refusal that are described; more are counted.
const RULES_MAX: usize = 4;
/// The server's name is cut to this.
const SERVER_LEN_MAX: usize = 24;
const SOURCES: [Source; 8] = [
    Source::Store,
    Source::Slice,
    Source::Memory,
    Source::Prefilter,
    Source::Fallback,
    Source::Unmatched,
    Source::List,
    Source::Rule,
];
const EXACTNESS: [Exactness; 4] =
    [Exactness::Exact, Exactness::Conservative, Exactness::Bounded, Exactness::Unbounded];

pub(super) type Plain = SmallVec<[u8; 160]>;

/// What one refusal was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    /// When, in microseconds since 1970: by the store's clock, or by the server's if the store was not asked.
    pub(crate) at_us: u64,
    /// The name of the server that answered.
    pub(crate) server: String,
    /// The fingerprint of the rules that were in force.
    pub(crate) rules_fingerprint: String,
    pub(crate) source: Source,
    pub(crate) exactness: Exactness,
    /// The beginning of the hash of the headline's subject, as logs show it.
    pub(crate) subject: Option<String>,
    /// The rules that refused, the headline first.
    pub(crate) refused_by: Vec<RefusingRule>,
    /// Further rules that refused.
    pub(crate) more: u64,
}

/// A rule that refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RefusingRule {
    pub(crate) rule: String,
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) cost: u64,
    /// Whether an override set the limit.
    pub(crate) is_override: bool,
    pub(crate) numbers: Option<RuleNumbers>,
}

/// The numbers of the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RuleNumbers {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// `None` if waiting did not help.
    pub(crate) retry_after_ms: Option<u64>,
    pub(crate) reset_at_ms: u64,
}

/// The part of a server's name that a reference has.
pub(super) fn cut(server: &str) -> &str {
    let end = server.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|&end| end <= SERVER_LEN_MAX);
    &server[..end.last().unwrap_or(0)]
}

/// Writes the refusal in a decision, without building a [`Refusal`].
pub(super) fn write_decision(out: &mut Plain, decision: &Decision, server: &str, rules: &str) {
    let decided_at_us = decision.decided_at().us();
    let at_us = if decided_at_us == 0 { SystemClock.now().us() } else { decided_at_us };
    let headline = decision.headline();
    let subject = headline.as_ref().and_then(RuleDecision::subject);
    let subject = subject.map(|subject| (subject.to_u128() >> 64) as u64);
    write_head(out, (at_us, server, rules), decision.source(), decision.exactness(), subject);
    let index = decision.plan_decision().headline;
    let others = decision
        .rules()
        .enumerate()
        .filter(|(at, rule)| Some(*at) != index && rule.blocking() && !rule.allowed());
    let refusing = headline.into_iter().chain(others.map(|(_, rule)| rule));
    let count_at = out.len();
    out.push(0);
    let mut count = 0_u64;
    for rule in refusing {
        count += 1;
        if count > RULES_MAX as u64 {
            continue;
        }
        out[count_at] += 1;
        let outcome = rule.outcome();
        let numbers = outcome.numbers.map(|numbers| RuleNumbers {
            limit: numbers.limit,
            remaining: numbers.remaining,
            retry_after_ms: match numbers.retry_after {
                RetryAfter::Ms(ms) => Some(ms),
                RetryAfter::Never => None,
            },
            reset_at_ms: numbers.reset_at_ms,
        });
        write_rule(out, rule.id(), outcome.algorithm, outcome.cost, outcome.variant != 0, numbers, at_us);
    }
    write_number(out, count.saturating_sub(RULES_MAX as u64));
}

/// Writes a refusal.
pub(super) fn write(out: &mut Plain, refusal: &Refusal) {
    let subject = refusal.subject.as_deref().and_then(parse_prefix);
    let head = (refusal.at_us, refusal.server.as_str(), refusal.rules_fingerprint.as_str());
    write_head(out, head, refusal.source, refusal.exactness, subject);
    let described = &refusal.refused_by[..refusal.refused_by.len().min(RULES_MAX)];
    out.push(described.len() as u8);
    for rule in described {
        let RefusingRule { rule, algorithm, cost, is_override, numbers } = rule;
        write_rule(out, rule, *algorithm, *cost, *is_override, *numbers, refusal.at_us);
    }
    write_number(out, refusal.more + (refusal.refused_by.len() - described.len()) as u64);
}

fn write_head(
    out: &mut Plain,
    (at_us, server, rules): (u64, &str, &str),
    source: Source,
    exactness: Exactness,
    subject: Option<u64>,
) {
    out.push(VERSION);
    write_number(out, at_us);
    write_text(out, cut(server));
    // A fingerprint has 16 hexadecimal digits.
    out.extend_from_slice(&u64::from_str_radix(rules, 16).unwrap_or(0).to_be_bytes());
    out.push(
        index_in(&SOURCES, &source) << 4
            | index_in(&EXACTNESS, &exactness) << 1
            | u8::from(subject.is_some()),
    );
    if let Some(subject) = subject {
        out.extend_from_slice(&subject.to_be_bytes());
    }
}

fn write_rule(
    out: &mut Plain,
    id: &str,
    algorithm: Option<Algorithm>,
    cost: u64,
    is_override: bool,
    numbers: Option<RuleNumbers>,
    at_us: u64,
) {
    write_text(out, id);
    let algorithm = algorithm.map_or(0, |algorithm| index_in(&Algorithm::ALL, &algorithm) + 1);
    out.push(algorithm << 2 | u8::from(is_override) << 1 | u8::from(numbers.is_some()));
    write_number(out, cost);
    if let Some(numbers) = numbers {
        write_number(out, numbers.limit);
        write_number(out, numbers.remaining);
        // One more, so that 0 says that waiting does not help.
        write_number(out, numbers.retry_after_ms.map_or(0, |ms| ms.saturating_add(1)));
        // A reset is near the refusal, so the difference is shorter. It wraps for resets in the past.
        write_number(out, numbers.reset_at_ms.wrapping_sub(at_us / 1_000));
    }
}

/// Reads a refusal. `None` if it has another layout.
pub(super) fn read(bytes: &[u8]) -> Option<Refusal> {
    let mut rest = Reader(bytes);
    if rest.byte()? != VERSION {
        return None;
    }
    let at_us = rest.number()?;
    let server = rest.text()?;
    let rules_fingerprint = format!("{:016x}", rest.word()?);
    let kinds = rest.byte()?;
    let source = *SOURCES.get(usize::from(kinds >> 4))?;
    let exactness = *EXACTNESS.get(usize::from(kinds >> 1 & 0b111))?;
    let subject = if kinds & 1 == 1 { Some(prefix(rest.word()?)) } else { None };
    let count = rest.byte()?;
    let refused_by = (0..count).map(|_| read_rule(&mut rest, at_us)).collect::<Option<_>>()?;
    let more = rest.number()?;
    let refusal = Refusal { at_us, server, rules_fingerprint, source, exactness, subject, refused_by, more };
    rest.0.is_empty().then_some(refusal)
}

fn read_rule(rest: &mut Reader<'_>, at_us: u64) -> Option<RefusingRule> {
    let rule = rest.text()?;
    let kinds = rest.byte()?;
    let algorithm = match kinds >> 2 {
        0 => None,
        number => Some(*Algorithm::ALL.get(usize::from(number) - 1)?),
    };
    let cost = rest.number()?;
    let numbers = if kinds & 1 == 1 {
        Some(RuleNumbers {
            limit: rest.number()?,
            remaining: rest.number()?,
            retry_after_ms: rest.number()?.checked_sub(1),
            reset_at_ms: rest.number()?.wrapping_add(at_us / 1_000),
        })
    } else {
        None
    };
    Some(RefusingRule { rule, algorithm, cost, is_override: kinds & 0b10 != 0, numbers })
}

fn index_in<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|other| other == one).unwrap_or(0) as u8
}

#[inline]
fn write_number(out: &mut Plain, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Names have at most 64 bytes.
fn write_text(out: &mut Plain, text: &str) {
    let text = &text.as_bytes()[..text.len().min(127)];
    out.push(text.len() as u8);
    out.extend_from_slice(text);
}

struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn word(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*first))
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn text(&mut self) -> Option<String> {
        let len = usize::from(self.byte()?);
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }
}

/// The first half of a subject as logs show it.
fn prefix(half: u64) -> String {
    tollgate::core::Subject::from_u128(u128::from(half) << 64).prefix()
}

/// The first half of the subject with this prefix; bits that the prefix does not have are 0.
fn parse_prefix(prefix: &str) -> Option<u64> {
    let padded = format!("{prefix:A<22}");
    let subject: tollgate::core::Subject = padded.parse().ok()?;
    Some((subject.to_u128() >> 64) as u64)
}
