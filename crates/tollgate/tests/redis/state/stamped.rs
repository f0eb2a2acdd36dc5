//! State of recorded rules: core, its Lua twin and a naive model agree on generated histories.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tollgate::store::redis::{ScriptCodec, TimeSource};
use tollgate_core::algorithm::meter::Meter;
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::stamped::{Adjust, Extra, Restore, Revision};
use tollgate_core::time::calendar::Periods;
use tollgate_core::{
    Account, Decline, Evaluation, Item, Keyspace, Limit, Mark, Operation, Outcome, Plan, Recording, Retry,
    Span, State, SubjectHasher, Time, Token, Verdict, evaluate_stamped,
};
use tollgate_testkit::redis::{Flavour, Server, Value};

const STEPS: u64 = 12_000;
/// Length of a calendar period.
const PERIOD_US: u64 = 10_000_000;
const ALLOWANCE: u64 = 100;
const NODES: [u64; 2] = [77, 1 << 52];

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A server that applies one Plan at a time.
struct Gate {
    stream: TcpStream,
    has_script: bool,
}

impl Gate {
    fn apply(&mut self, codec: &ScriptCodec, plan: &Plan<'_>, now: Time) -> Outcome {
        let command = codec.command(&[(plan, now)], self.has_script);
        self.has_script = true;
        self.stream.write_all(&command).expect("the server reads");
        let (mut inbox, mut chunk) = (Vec::new(), [0; 16 * 1024]);
        loop {
            let read = self.stream.read(&mut chunk).expect("the server answers");
            assert!(read > 0, "the server closed the connection");
            inbox.extend_from_slice(&chunk[..read]);
            if let Some(mut outcomes) = codec.read(&[plan], &inbox).expect("a reply") {
                return outcomes.remove(0).expect("it decides");
            }
        }
    }
}

/// The naive model of one account without reservations: what a recorded gate may believe.
#[derive(Default)]
struct Naive {
    node: Option<u64>,
    epoch: u32,
    revision: u32,
    adjusted: u32,
    extra: i64,
    extra_no: u64,
    /// Start and end of the period, and the units used in it; `None` if there is no account.
    period: Option<(u64, u64)>,
    used: i128,
}

impl Naive {
    fn begin_period(&mut self, start: u64, end: u64) {
        if self.period.is_none_or(|(_, ends)| ends <= start) {
            (self.period, self.used, self.extra) = (Some((start, end)), 0, 0);
        }
    }

    /// Returns the verdict, without times, and the units used after it.
    fn step(&mut self, node: u64, now: u64, operation: Operation) -> (&'static str, i128) {
        let start = now - now % PERIOD_US;
        let end = start + PERIOD_US;
        let in_force = self.period.is_some_and(|(_, ends)| now < ends);
        let period = self.period;
        let is_period = |start: Time| period.is_some_and(|(begins, _)| begins == start.us());
        if let Operation::Restore(restore) = operation {
            if self.node != Some(node) && restore.end.us() > now {
                let own =
                    self.node.is_some() && in_force && (!restore.known || self.extra_no > restore.extra_no);
                if !own {
                    (self.extra, self.extra_no) = (restore.extra, restore.extra_no);
                }
                self.used = if in_force { self.used.max(restore.used.into()) } else { restore.used.into() };
                if !in_force {
                    self.period = Some((restore.start.us(), restore.end.us()));
                }
                (self.node, self.epoch, self.revision) = (Some(node), restore.epoch, 0);
            }
            return ("done", self.used);
        }
        if self.node != Some(node) {
            return ("unverified", self.used);
        }
        let limit = |extra: i64| (i128::from(ALLOWANCE) + i128::from(extra)).max(0);
        let (used, extra) = if in_force { (self.used, self.extra) } else { (0, 0) };
        match operation {
            Operation::Charge { cost, .. } if used + i128::from(cost.max(1)) > limit(extra) => {
                return ("refused", used);
            }
            Operation::Charge { cost, .. } | Operation::Record { cost } if cost > 0 => {
                self.begin_period(start, end);
                self.used += i128::from(cost);
                self.revision += 1;
            }
            Operation::Charge { .. } => return ("admitted", used),
            Operation::Record { .. } => return ("recorded", used),
            Operation::Credit { cost } => {
                let given = i128::from(cost).min(used);
                if given > 0 {
                    self.used -= given;
                    self.revision += 1;
                }
                return ("done", used - given);
            }
            Operation::Extra(extra) => {
                if in_force && is_period(extra.start) && extra.number > self.extra_no {
                    (self.extra, self.extra_no) = (extra.extra, extra.number);
                    self.revision += 1;
                }
                return ("done", used);
            }
            Operation::Adjust(adjust) => {
                let same = adjust.epoch == self.epoch && adjust.adjusted == self.adjusted;
                if in_force && same && is_period(adjust.start) {
                    self.used = (self.used - i128::from(adjust.subtract)).max(0);
                    self.adjusted += 1;
                    self.revision += 1;
                }
                return ("done", if in_force { self.used } else { 0 });
            }
            Operation::Usage => return ("usage", used),
            _ => unreachable!("not generated"),
        }
        (if matches!(operation, Operation::Record { .. }) { "recorded" } else { "admitted" }, self.used)
    }
}

fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Admitted { .. } => "admitted",
        Verdict::Refused(Retry::Never) => "never",
        Verdict::Refused(_) => "refused",
        Verdict::Done { .. } => "done",
        Verdict::Recorded { .. } => "recorded",
        Verdict::Usage { .. } => "usage",
        Verdict::Declined(Decline::Unverified) => "unverified",
        _ => "other",
    }
}

fn calendar(now: u64) -> Limit {
    let start = now - now % PERIOD_US;
    let starts = [start - PERIOD_US, start, start + PERIOD_US, start + 2 * PERIOD_US].map(Time::from_us);
    let periods = Periods::new(starts).expect("they ascend");
    Limit::Quota(Quota::new(ALLOWANCE, 0, QuotaPeriod::Calendar(periods)).expect("a limit"))
}

fn operation(dice: &mut Dice, now: u64, revision: Revision, with_holds: bool) -> Operation {
    let token = Token(1 + u128::from(dice.below(4)));
    let (cost, start) = (dice.below(30), Time::from_us(now - now % PERIOD_US));
    let end = start.plus(Span::from_us(PERIOD_US));
    let extra = dice.below(80) as i64 - 40;
    match dice.below(if with_holds { 19 } else { 13 }) {
        0..=3 => Operation::charge(cost),
        4 => Operation::Record { cost },
        5 => Operation::Credit { cost },
        6 => Operation::Usage,
        7 | 8 => Operation::Restore(Restore {
            start: if with_holds && dice.below(8) == 0 {
                start.minus(Span::from_us(PERIOD_US))
            } else {
                start
            },
            end: if dice.below(8) == 0 { start } else { end },
            used: dice.below(60),
            held: if with_holds { dice.below(20) } else { 0 },
            held_until: Time::from_us(now + dice.below(2 * PERIOD_US)),
            extra,
            extra_no: dice.below(1_000),
            epoch: 1 + dice.below(1 << 30) as u32,
            known: dice.below(4) > 0,
        }),
        9 | 10 => Operation::Extra(Extra { extra, number: dice.below(1_000), start }),
        11 | 12 => Operation::Adjust(Adjust {
            subtract: dice.below(60) as i64 - 30,
            epoch: revision.epoch + u32::from(dice.below(6) == 0),
            adjusted: revision.adjusted + u32::from(dice.below(6) == 0),
            start,
        }),
        13 | 14 => Operation::Reserve { cost, token, hold: Span::from_us(1 + dice.below(PERIOD_US)) },
        15 => Operation::Extend { token, more: cost, hold: Span::from_us(1 + dice.below(PERIOD_US)) },
        16 => Operation::Settle { token, actual: cost },
        17 => Operation::Cancel { token },
        _ => Operation::refund(Mark::Window { start }, cost),
    }
}

fn run(seed: u64, with_holds: bool, limit_at: impl Fn(u64) -> Limit, is_naive: bool) {
    let server = Server::start(Flavour::Redis70).expect("Redis 7.0");
    let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("the server is there");
    stream.set_nodelay(true).expect("a socket takes its options");
    let mut gate = Gate { stream, has_script: false };
    let mut admin = server.admin().expect("it connects");
    let codecs = NODES.map(|node| {
        let margin = Duration::from_secs(3_600);
        ScriptCodec::new(TimeSource::Application, margin, |_, source| source.to_owned()).with_node(node)
    });
    let keyspace = Keyspace::new("test", "stamped").expect("a name");
    let key = keyspace.key(SubjectHasher::new([7; 32]).subject([("user", "u")]));
    let (mut dice, mut now) = (Dice(seed), 1_700_000_000_000_000_u64);
    let (mut account, mut naive, mut node, mut revision) =
        (Account::default(), Naive::default(), 0, Revision::default());
    let mut seen = std::collections::BTreeMap::<&str, u64>::new();
    for step in 0..STEPS {
        now += if dice.below(3) == 0 { dice.below(PERIOD_US / 4) } else { dice.below(1_000) };
        match dice.below(400) {
            0 => node = 1 - node,
            1 => {
                account = Account::default();
                naive = Naive::default();
                admin.flushall().expect("it flushes");
            }
            _ => (),
        }
        let limit = limit_at(now);
        let operation = operation(&mut dice, now, revision, with_holds);
        let recording = Recording { stamped: true, ..Recording::default() };
        let item = Item { ledger: Some(recording), ..Item::new(key, limit, operation) };
        let Ok(plan) = Plan::of(item) else { continue };
        let at = Time::from_us(now);
        let token = limit.hold_token(&operation);
        let hold = token.and_then(|token| account.holds.get(&token));
        let Evaluation { outcome, writes } =
            evaluate_stamped(&plan, at, NODES[node], |_| account.state.as_ref(), |_| hold.into());
        writes.into_iter().for_each(|(_, write)| account.commit(write));
        let found = gate.apply(&codecs[node], &plan, at);
        assert_eq!(found, outcome, "step {step}: {operation:?} on {:?}", account.state);
        let bytes = match admin.command(&[b"GET", key.to_string().as_bytes()]).expect("it reads") {
            Value::Bulk(bytes) => Some(State::decode(&bytes).expect("a state")),
            _ => None,
        };
        // Redis deletes what core may forget.
        assert!(
            bytes.is_none() || bytes == account.state,
            "step {step}: {operation:?}\n{bytes:?}\n{:?}",
            account.state
        );
        revision = outcome.revision(0);
        let answer = outcome.answers[0];
        *seen.entry(name(answer.verdict)).or_default() += 1;
        if is_naive {
            let (verdict, used) = naive.step(NODES[node], now, operation);
            assert_eq!(name(answer.verdict), verdict, "step {step}: {operation:?}");
            if let Verdict::Usage { used: found, .. } = answer.verdict {
                assert_eq!(i128::from(found), used, "step {step}");
                let expected = (naive.epoch, naive.revision, naive.adjusted);
                assert_eq!((revision.epoch, revision.revision, revision.adjusted), expected, "step {step}");
            }
        }
    }
    println!("{seen:?}");
    for verdict in ["admitted", "refused", "done", "usage", "unverified", "recorded"] {
        assert!(
            seen.get(verdict).is_some_and(|count| *count > STEPS / 100),
            "{verdict} is hardly seen: {seen:?}"
        );
    }
}

#[test]
fn stamped_quota_agrees_with_its_twin_and_the_naive_model() {
    run(1, false, calendar, true);
}

#[test]
fn stamped_quota_with_reservations_agrees_with_its_twin() {
    run(2, true, calendar, false);
}

#[test]
fn stamped_rolling_quota_agrees_with_its_twin() {
    let period = QuotaPeriod::Rolling(Span::from_us(PERIOD_US));
    run(3, true, move |_| Limit::Quota(Quota::new(ALLOWANCE, 7, period).expect("a limit")), false);
}

#[test]
fn stamped_meter_agrees_with_its_twin() {
    run(4, false, |_| Limit::Meter(Meter::new(Some(ALLOWANCE), None).expect("a limit")), false);
}
