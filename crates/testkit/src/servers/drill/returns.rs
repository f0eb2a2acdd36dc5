//! Refunds, settlements and records that are sent again until their reply arrives, while replies are lost. What is counted
//! at the end must be exactly what was charged, less what was given back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Runtime;
use tollgate::store::redis::{RedisSettings, RedisStore};
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::{
    Answer, Item, Keyspace, Limit, Nonce, Operation, Outcome, Plan, PlanError, Span, Store, Subject,
    SubjectHasher, Token, Verdict,
};

use super::DrillError;
use crate::fault_proxy::{FaultProxy, Faults};
use crate::redis::{Flavour, Server};
use crate::servers::random::Random;

/// Longer than any drill.
const LONG: Span = Span::from_secs(30 * 86_400);
const RECEIPT_LIFE: Span = Span::from_secs(3_600);
const MOST: u64 = 1 << 40;
const SUBJECTS: usize = 20;
const TASKS: usize = 64;
const TRIES: usize = 1_000;
/// A reply that does not arrive in this time is lost, too.
const DEADLINE: Duration = Duration::from_secs(2);

/// The figures of the drill.
#[derive(Clone, Copy, Debug)]
pub struct Returns {
    /// Refunds and settlements that took effect.
    pub returned: u64,
    /// Records that took effect.
    pub recorded: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Replies that were lost.
    pub lost: u64,
    /// Units that are counted, over all subjects.
    pub counted: u64,
    /// Units that must be counted.
    pub expected: u64,
    /// Subjects with another count than expected.
    pub wrong_subjects: u64,
}

impl fmt::Display for Returns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Returns { returned, recorded, retries, lost, counted, expected, wrong_subjects } = self;
        write!(
            f,
            "{returned} refunds and settlements, {recorded} records, {retries} retries, {lost} replies lost; {counted} units \
             counted of {expected} expected, {wrong_subjects} subjects wrong"
        )
    }
}

/// Refunds and settles `count` charges in all, while each reply is lost with this probability.
pub fn retried_returns(
    runtime: &Runtime,
    count: u64,
    lose_reply: f64,
    seed: u64,
) -> Result<Returns, DrillError> {
    let server = Server::start(Flavour::Redis70)?;
    let proxy = FaultProxy::start(server.port(), seed)?;
    let connect = |url: &str| -> Result<RedisStore, DrillError> {
        Ok(runtime.block_on(RedisSettings::url(url)?.deadline(DEADLINE).connect())?)
    };
    let (direct, lossy) = (connect(&server.url())?, connect(&proxy.url())?);
    proxy.set(Faults { lose_reply, ..Faults::default() })?;
    let drill = Arc::new(ReturnDrill::new(seed)?);
    let next = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (drill, next, direct, lossy) =
                (Arc::clone(&drill), Arc::clone(&next), direct.clone(), lossy.clone());
            runtime.spawn(async move {
                let mut random = Random::new(seed ^ (task as u64 + 1) << 32);
                // Each turn has one refund and one settlement.
                while next.fetch_add(2, Ordering::Relaxed) < count {
                    drill.charge_and_return(&direct, &lossy, &mut random).await?;
                }
                Ok::<(), DrillError>(())
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task)??;
    }
    proxy.set(Faults::default())?;
    let (mut counted, mut wrong_subjects) = (0, 0);
    for account in &drill.accounts {
        let units = runtime.block_on(drill.counted(&direct, account))?;
        wrong_subjects += u64::from(units != account.expected.load(Ordering::Relaxed));
        counted += units;
    }
    let sum = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let found = Returns {
        returned: sum(&drill.returned),
        recorded: sum(&drill.recorded),
        retries: sum(&drill.retries),
        lost: proxy.injected().lost_replies,
        counted,
        expected: drill.accounts.iter().map(|account| sum(&account.expected)).sum(),
        wrong_subjects,
    };
    println!("returns: {found}");
    Ok(found)
}

/// The rules, and what must be counted.
struct ReturnDrill {
    window: Limit,
    quota: Limit,
    keyspaces: [Keyspace; 2],
    hasher: SubjectHasher,
    accounts: Vec<Account>,
    returned: AtomicU64,
    recorded: AtomicU64,
    retries: AtomicU64,
}

struct Account {
    subject: Subject,
    expected: AtomicU64,
}

impl ReturnDrill {
    fn new(seed: u64) -> Result<ReturnDrill, DrillError> {
        let hasher = SubjectHasher::new([9; 32]);
        let account = |number: usize| Account {
            subject: hasher.subject([("user", format!("{seed}-{number}").as_str())]),
            expected: AtomicU64::new(0),
        };
        Ok(ReturnDrill {
            window: Limit::FixedWindow(FixedWindow::new(MOST, LONG)?),
            quota: Limit::Quota(Quota::new(MOST, 0, QuotaPeriod::Rolling(LONG))?),
            keyspaces: [Keyspace::new("drill", "window")?, Keyspace::new("drill", "quota")?],
            accounts: (0..SUBJECTS).map(account).collect(),
            hasher,
            returned: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            retries: AtomicU64::new(0),
        })
    }

    fn windows(&self, account: &Account, operation: Operation) -> Item<'_> {
        Item::new(self.keyspaces[0].key(account.subject), self.window, operation)
    }

    fn quotas(&self, account: &Account, operation: Operation) -> Item<'_> {
        Item::new(self.keyspaces[1].key(account.subject), self.quota, operation)
    }

    /// Charges and reserves, then refunds, settles and records through the store that loses replies.
    async fn charge_and_return(
        &self,
        direct: &RedisStore,
        lossy: &RedisStore,
        random: &mut Random,
    ) -> Result<(), DrillError> {
        let account = &self.accounts[random.below(SUBJECTS)];
        let number = u128::from(random.bits()) << 64 | u128::from(random.bits()) | 1;
        let (cost, token) = (1 + random.below(5) as u64, Token(number));
        let charged = direct.apply(&Plan::of(self.windows(account, Operation::charge(cost)))?).await?;
        let reserve = Operation::Reserve { cost, token, hold: Span::from_secs(600) };
        let reserved = direct.apply(&Plan::of(self.quotas(account, reserve))?).await?;
        if !charged.answers[0].is_admitted() || !reserved.answers[0].is_admitted() {
            return Err("a charge was refused".into());
        }
        let amount = random.below(cost as usize) as u64 + 1;
        let refund = Operation::Refund { mark: charged.answers[0].mark, cost, amount };
        let refund =
            Plan::returning(self.windows(account, refund), Nonce(number), charged.now, RECEIPT_LIFE)?;
        let actual = random.below(2 * cost as usize) as u64;
        let settle = Plan::of(self.quotas(account, Operation::Settle { token, actual }))?;
        let recorded = 1 + random.below(3) as u64;
        let record = self.record(account, recorded, number)?;

        let expect = |answer: Answer, wanted: Verdict| match answer.verdict {
            verdict if verdict == wanted => Ok(()),
            verdict => Err(DrillError::from(format!("{verdict:?} instead of {wanted:?}"))),
        };
        expect(self.until_answered(lossy, &refund, random).await?, Verdict::Done { amount })?;
        expect(self.until_answered(lossy, &settle, random).await?, Verdict::Done { amount: actual })?;
        let answer = self.until_answered(lossy, &record, random).await?;
        if !matches!(answer.verdict, Verdict::Recorded { amount, overdraft: 0, .. } if amount == recorded) {
            return Err(format!("{:?} instead of a record of {recorded}", answer.verdict).into());
        }
        self.returned.fetch_add(2, Ordering::Relaxed);
        self.recorded.fetch_add(1, Ordering::Relaxed);
        account.expected.fetch_add(cost - amount + actual + recorded, Ordering::Relaxed);
        Ok(())
    }

    /// Returns a record under an id.
    fn record(&self, account: &Account, cost: u64, number: u128) -> Result<Plan<'_>, PlanError> {
        let mut plan = Plan::of(self.windows(account, Operation::Record { cost }))?;
        let id = self.hasher.subject([("id", number.to_string().as_str())]);
        plan.set_request_id(id, Span::from_secs(600), 0);
        Ok(plan)
    }

    /// Sends a follow-up until there is an answer, and sometimes once more. All answers must be the same.
    async fn until_answered(
        &self,
        store: &RedisStore,
        plan: &Plan<'_>,
        random: &mut Random,
    ) -> Result<Answer, DrillError> {
        let first = self.send(store, plan).await?.answers[0];
        if random.below(4) == 0 {
            let again = self.send(store, plan).await?;
            if again.answers[0].verdict != first.verdict || plan.request_id().is_some() && !again.replayed {
                return Err(format!("{again:?} after {first:?}").into());
            }
        }
        Ok(first)
    }

    async fn send(&self, store: &RedisStore, plan: &Plan<'_>) -> Result<Outcome, DrillError> {
        for _ in 0..TRIES {
            match store.apply(plan).await {
                Ok(outcome) => return Ok(outcome),
                Err(_) => {
                    self.retries.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
        Err("no answer".into())
    }

    /// Returns the units that the store counts for a subject under both rules.
    async fn counted(&self, store: &RedisStore, account: &Account) -> Result<u64, DrillError> {
        let mut plan = Plan::of(self.windows(account, Operation::Peek { cost: 0 }))?;
        plan.push(self.quotas(account, Operation::Peek { cost: 0 }))?;
        Ok(store.apply(&plan).await?.answers.iter().map(|answer| MOST - answer.remaining).sum())
    }
}
