//! Tollgate's store, asked by many tasks at once as a service asks it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::runtime::{Builder, Runtime};
use tollgate::core::algorithm::bucket::Bucket;
use tollgate::core::{Item, Limit, Operation, Plan, Keyspace, Span, Store, Subject, SubjectHasher};
use tollgate::store::redis::{RedisSettings, RedisStore};

use super::contender::{Entrant, INTERVAL_US, PER_HOUR};
use super::script::{Check, PIPELINE};

/// Asked by as many as go into a pipeline and by more, over as many connections as there are threads and over one.
pub(super) const STORES: [Entrant; 4] = [
    Entrant::store(
        "RedisStore",
        "`RedisStore::apply` from as many tasks at once as there are calls in a pipeline, on a runtime of 2 threads and so \
         over 2 connections",
        2,
        PIPELINE,
    ),
    Entrant::store("RedisStore, one lane", "the same over one connection", 1, PIPELINE),
    Entrant::store("RedisStore, 512 tasks", "the same from 512 tasks over 2 connections", 2, 512),
    Entrant::store("RedisStore, 512 tasks, one lane", "the same from 512 tasks over one connection", 1, 512),
];

const DEADLINE: Duration = Duration::from_secs(10);

/// A store and the tasks that ask it.
pub(super) struct AskedStore {
    runtime: Runtime,
    asked: Arc<Asked>,
    tasks: usize,
}

struct Asked {
    store: RedisStore,
    scope: Keyspace,
    subjects: Vec<Subject>,
    limit: Limit,
}

impl AskedStore {
    /// Connects to a database of the server on this port.
    pub(super) fn open(
        port: u16,
        database: usize,
        (lanes, tasks): (usize, usize),
        keys: &[String],
    ) -> Result<AskedStore> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let settings = RedisSettings::url(&format!("redis://127.0.0.1:{port}/{database}"))?;
        let store = runtime.block_on(settings.deadline(DEADLINE).lanes(lanes).connect())?;
        let hasher = SubjectHasher::new([7; 32]);
        let asked = Asked {
            store,
            scope: Keyspace::new("shop", "search")?,
            subjects: keys.iter().map(|key| hasher.subject([("api_key", key.as_str())])).collect(),
            limit: Limit::Bucket(Bucket::tokens(1, Span::from_us(INTERVAL_US), PER_HOUR)?),
        };
        Ok(AskedStore { runtime, asked: Arc::new(asked), tasks })
    }

    /// Lets the tasks make these checks, and says how many were admitted.
    pub(super) fn send(&self, pipelines: &[[Check; PIPELINE]]) -> Result<usize> {
        let checks: Arc<[Check]> = pipelines.as_flattened().into();
        let start = |task| {
            let (asked, checks, tasks) = (Arc::clone(&self.asked), Arc::clone(&checks), self.tasks);
            self.runtime.spawn(async move {
                let mut admitted = 0;
                for check in checks.iter().skip(task).step_by(tasks) {
                    admitted += usize::from(asked.is_admitted(check).await?);
                }
                Ok::<usize, anyhow::Error>(admitted)
            })
        };
        let tasks: Vec<_> = (0..self.tasks).map(start).collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += self.runtime.block_on(task)??;
        }
        Ok(admitted)
    }
}

impl Asked {
    async fn is_admitted(&self, check: &Check) -> Result<bool> {
        let mut plan = Plan::new();
        plan.push(Item::new(self.scope.key(self.subjects[check.key]), self.limit, Operation::charge(1)))?;
        match self.store.apply(&plan).await {
            Ok(outcome) => Ok(outcome.answers[0].is_admitted()),
            Err(error) => bail!("the store does not answer: {error}"),
        }
    }
}
