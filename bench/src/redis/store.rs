//! Tollgate's Redis store, called by many tasks at once as in a service.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::runtime::{Builder, Runtime};
use tollgate::core::algorithm::bucket::Bucket;
use tollgate::core::{Item, Keyspace, Limit, Operation, Plan, Span, Store, Subject, SubjectHasher};
use tollgate::store::redis::{RedisSettings, RedisStore};

use super::contender::{Entrant, INTERVAL_US, PER_HOUR};
use super::script::{Check, PIPELINE};

/// Called by one pipeline's worth of tasks and by more, over one connection per thread and over one in total.
pub(super) const STORES: [Entrant; 4] = [
    Entrant::store(
        "RedisStore",
        "`RedisStore::apply` from as many tasks at once as there are calls in a pipeline, on a runtime of 2 threads and so \
         over 2 connections",
        2,
        PIPELINE,
    ),
    Entrant::store("RedisStore, one connection", "the same over one connection", 1, PIPELINE),
    Entrant::store("RedisStore, 512 tasks", "the same from 512 tasks over 2 connections", 2, 512),
    Entrant::store("512 tasks, one connection", "the same from 512 tasks over one connection", 1, 512),
];

const DEADLINE: Duration = Duration::from_secs(10);

/// A store and the tasks that call it.
pub(super) struct AskedStore {
    runtime: Runtime,
    shared: Arc<SharedStore>,
    tasks: usize,
}

struct SharedStore {
    store: RedisStore,
    scope: Keyspace,
    subjects: Vec<Subject>,
    limit: Limit,
}

impl AskedStore {
    /// Connects to one database of the server on this port.
    pub(super) fn open(
        port: u16,
        database: usize,
        (connection_count, tasks): (usize, usize),
        keys: &[String],
    ) -> Result<AskedStore> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let settings = RedisSettings::url(&format!("redis://127.0.0.1:{port}/{database}"))?;
        let store = runtime.block_on(settings.deadline(DEADLINE).connections(connection_count).connect())?;
        let hasher = SubjectHasher::new([7; 32]);
        let shared = SharedStore {
            store,
            scope: Keyspace::new("shop", "search")?,
            subjects: keys.iter().map(|key| hasher.subject([("api_key", key.as_str())])).collect(),
            limit: Limit::Bucket(Bucket::tokens(1, Span::from_us(INTERVAL_US), PER_HOUR)?),
        };
        Ok(AskedStore { runtime, shared: Arc::new(shared), tasks })
    }

    /// Lets the tasks make these checks; returns how many were admitted.
    pub(super) fn send(&self, pipelines: &[[Check; PIPELINE]]) -> Result<usize> {
        let checks: Arc<[Check]> = pipelines.as_flattened().into();
        let start = |task| {
            let (shared, checks, tasks) = (Arc::clone(&self.shared), Arc::clone(&checks), self.tasks);
            self.runtime.spawn(async move {
                let mut admitted = 0;
                for check in checks.iter().skip(task).step_by(tasks) {
                    admitted += usize::from(shared.is_admitted(check).await?);
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

impl SharedStore {
    async fn is_admitted(&self, check: &Check) -> Result<bool> {
        let mut plan = Plan::new();
        plan.push(Item::new(self.scope.key(self.subjects[check.key]), self.limit, Operation::charge(1)))?;
        match self.store.apply(&plan).await {
            Ok(outcome) => Ok(outcome.answers[0].is_admitted()),
            Err(error) => bail!("the store does not answer: {error}"),
        }
    }
}
