//! Tollgate's own script, called as its store calls it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tollgate::core::algorithm::bucket::Bucket;
use tollgate::core::algorithm::concurrency::Concurrency;
use tollgate::core::algorithm::fixed_window::FixedWindow;
use tollgate::core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate::core::algorithm::sliding_log::SlidingLog;
use tollgate::core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate::core::time::calendar::{Calendar, Period};
use tollgate::core::{
    Answer, Item, Keyspace, Limit, Operation, Plan, Span, Subject, SubjectHasher, Time, Token, Verdict,
};
use tollgate::store::redis::{ScriptCodec, TimeSource};
use tollgate::{Clock, SystemClock};

use super::connection::Connection;
use super::contender::{Contender, Entrant, INTERVAL_US, PER_HOUR};
use super::script::Check;

pub(super) const TOKEN_BUCKET: Entrant = Entrant::new(
    "tollgate",
    "`EVALSHA` of the script of `RedisStore`, as it sends it: N Plans per call, each a charge of one token bucket",
    |connection, keys| load(connection, keys, token_bucket()?, Ask::Charge),
);

fn token_bucket() -> Result<Limit> {
    Ok(Limit::Bucket(Bucket::tokens(1, Span::from_us(INTERVAL_US), PER_HOUR)?))
}

fn monthly_quota() -> Result<Limit> {
    let month = Calendar::new(Period::Month { day: 1 }, "UTC")?.around(SystemClock.now());
    Ok(Limit::Quota(Quota::new(PER_HOUR, 0, QuotaPeriod::Calendar(month))?))
}

/// The same contender under its algorithm's name.
const BESIDE_OTHERS: Entrant = Entrant {
    name: "tollgate token bucket",
    what: "the same as tollgate, run together with the other algorithms",
    ..TOKEN_BUCKET
};

/// Every algorithm that counts requests.
pub(super) const ALGORITHMS: [Entrant; 6] =
    [BESIDE_OTHERS, FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG, CONCURRENCY, QUOTA];

const FIXED_WINDOW: Entrant =
    Entrant::new("tollgate fixed window", "the same with a window of one hour", |connection, keys| {
        load(connection, keys, Limit::FixedWindow(FixedWindow::new(PER_HOUR, HOUR)?), Ask::Charge)
    });

const SLIDING_WINDOW: Entrant = Entrant::new(
    "tollgate sliding window",
    "the same with a window of one hour in 6 buckets, with strict counting",
    |connection, keys| {
        let window = SlidingWindow::new(PER_HOUR, HOUR, 6, Counting::Strict)?;
        load(connection, keys, Limit::SlidingWindow(window), Ask::Charge)
    },
);

const SLIDING_LOG: Entrant = Entrant::new(
    "tollgate sliding log",
    "the same with a window of one hour; a log holds 16 entries at the first measured check and 48 at the last",
    |connection, keys| {
        load(connection, keys, Limit::SlidingLog(SlidingLog::new(PER_HOUR, HOUR)?), Ask::Charge)
    },
);

const CONCURRENCY: Entrant = Entrant {
    gives_back: true,
    ..Entrant::new(
        "tollgate concurrency",
        "the same; half of the checks take the only lease of their key, the other half release it",
        |connection, keys| {
            load(connection, keys, Limit::Concurrency(Concurrency::new(100, HOUR)?), Ask::Charge)
        },
    )
};

const QUOTA: Entrant = Entrant::new(
    "tollgate quota",
    "the same with a calendar month; nothing is reserved",
    |connection, keys| load(connection, keys, monthly_quota()?, Ask::Charge),
);

/// Checks, and what they are compared with: charges after the fact, and reservations.
pub(super) const OPERATIONS: [Entrant; 5] = [
    Entrant::new("check of a token bucket", "a charge of 1", |connection, keys| {
        load(connection, keys, token_bucket()?, Ask::Charge)
    }),
    Entrant::new("record in a token bucket", "a charge of 1 after the fact", |connection, keys| {
        load(connection, keys, token_bucket()?, Ask::Record)
    }),
    Entrant::new("check of a quota", "a charge of 1", |connection, keys| {
        load(connection, keys, monthly_quota()?, Ask::Charge)
    }),
    Entrant::new("record in a quota", "a charge of 1 after the fact", |connection, keys| {
        load(connection, keys, monthly_quota()?, Ask::Record)
    }),
    Entrant::new("reserve of a quota", "a reservation of 1 for an hour", |connection, keys| {
        load(connection, keys, monthly_quota()?, Ask::Reserve)
    }),
];

const HOUR: Span = Span::from_secs(3_600);
/// The store's default.
const MARGIN: Duration = Duration::from_secs(1);

/// One rule, as the store sees it.
struct OneRule {
    caller: ScriptCodec,
    scope: Keyspace,
    subjects: Vec<Subject>,
    limit: Limit,
    ask: Ask,
}

/// The operation that is measured.
#[derive(Clone, Copy)]
enum Ask {
    Charge,
    Record,
    Reserve,
}

fn load(connection: &mut Connection, keys: &[String], limit: Limit, ask: Ask) -> Result<Box<dyn Contender>> {
    let hasher = SubjectHasher::new([7; 32]);
    let rule = OneRule {
        caller: ScriptCodec::new(TimeSource::Store, MARGIN, |_, source| source.to_owned()),
        scope: Keyspace::new("shop", "search")?,
        subjects: keys.iter().map(|key| hasher.subject([("api_key", key.as_str())])).collect(),
        limit,
        ask,
    };
    // Called once with its text, so that the server caches it under its digest.
    let check = [Check { key: 0, ticket: 1, gives_back: false }];
    let reply = connection.ask(rule.command(&check, false)?)?;
    ensure!(rule.admitted(&check, &reply)? == 1, "the first check was not admitted");
    Ok(Box::new(rule))
}

impl OneRule {
    fn plan(&self, check: &Check) -> Result<Plan<'_>> {
        let token = Token(check.ticket as u128);
        let operation = match self.ask {
            Ask::Charge if check.gives_back => Operation::Release { token },
            Ask::Charge => Operation::Charge { cost: 1, token },
            Ask::Record => Operation::Record { cost: 1 },
            Ask::Reserve => Operation::Reserve { cost: 1, token, hold: HOUR },
        };
        let mut plan = Plan::new();
        plan.push(Item::new(self.scope.key(self.subjects[check.key]), self.limit, operation))?;
        Ok(plan)
    }

    fn plans(&self, checks: &[Check]) -> Result<Vec<Plan<'_>>> {
        checks.iter().map(|check| self.plan(check)).collect()
    }

    fn command(&self, checks: &[Check], by_digest: bool) -> Result<Vec<u8>> {
        let plans = self.plans(checks)?;
        // Redis's clock decides, so ours is not read.
        let timed: Vec<(&Plan<'_>, Time)> = plans.iter().map(|plan| (plan, Time::ZERO)).collect();
        Ok(self.caller.command(&timed, by_digest))
    }
}

impl Contender for OneRule {
    fn call(&self, checks: &[Check]) -> Result<Vec<u8>> {
        self.command(checks, true)
    }

    fn admitted(&self, checks: &[Check], reply: &[u8]) -> Result<usize> {
        let plans = self.plans(checks)?;
        let outcomes = self.caller.read(&plans.iter().collect::<Vec<_>>(), reply)?.context("half a reply")?;
        let mut admitted = 0;
        for (check, outcome) in checks.iter().zip(outcomes) {
            admitted += usize::from(outcome?.answers.iter().all(|answer| is_expected(check, answer)));
        }
        Ok(admitted)
    }
}

fn is_expected(check: &Check, answer: &Answer) -> bool {
    match answer.verdict {
        Verdict::Admitted { .. } => !check.gives_back,
        Verdict::Recorded { amount, .. } => amount == 1,
        Verdict::Done { amount } => check.gives_back && amount == 1,
        _ => false,
    }
}
