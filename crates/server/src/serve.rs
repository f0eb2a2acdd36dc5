//! The server: one limiter behind several protocols.

pub(crate) mod access;
mod gate;
mod http;
mod listener;
mod observe;
mod resp;
mod shared;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, anyhow};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tollgate::core::Scope;
use tollgate::{Limiter, MemoryStore};

use crate::config::{Config, StoreConfig};
use crate::terminal::Failure;
use gate::{Backed, Gate};
use listener::{Listener, Protocols};
use observe::Recorder;
use shared::Shared;

/// The rules of a server that was told none.
pub(crate) const STARTER: &str = include_str!("serve/starter.yaml");

/// Serves until it is told to end.
pub(crate) fn run(config: Config) -> Result<()> {
    let main = runtime()?;
    let ports = [(Protocols::Http, config.http), (Protocols::Resp, config.resp)];
    let mut shares = Vec::new();
    for _ in 0..config.threads.max(1) {
        shares.push(listeners(&ports)?);
    }
    let limiter = main.block_on(open(config.rules.as_deref(), config.store))?;
    let own_limits = Scope::new("default", "CL.THROTTLE").context("the scope of callers' own limits")?;
    let shared = Arc::new(Shared {
        gate: Gate::new(limiter, Recorder::default(), own_limits),
        access: config.access.clone(),
        dialect: config.dialect,
        proxies: config.proxies.clone(),
        ending: CancellationToken::new(),
    });
    let room = Arc::new(Semaphore::new(config.connections_max));
    let tasks = TaskTracker::new();
    let mut workers = Vec::new();
    for (number, listeners) in shares.into_iter().enumerate() {
        let (shared, room, tasks) = (Arc::clone(&shared), Arc::clone(&room), tasks.clone());
        let anonymous = config.anonymous;
        let work = move || -> Result<()> {
            let runtime = runtime()?;
            for listener in listeners {
                runtime.spawn(listener.accept(
                    Arc::clone(&shared),
                    anonymous,
                    Arc::clone(&room),
                    tasks.clone(),
                ));
            }
            runtime.block_on(async {
                shared.ending.cancelled().await;
                tasks.wait().await;
            });
            Ok(())
        };
        workers.push(thread::Builder::new().name(format!("serve-{number}")).spawn(work)?);
    }
    main.block_on(tokio::signal::ctrl_c())?;
    shared.ending.cancel();
    tasks.close();
    for worker in workers {
        worker.join().map_err(|_| anyhow!("a thread that serves has panicked"))??;
    }
    Ok(())
}

fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("cannot start a runtime")
}

async fn open(rules: Option<&Path>, store: StoreConfig) -> Result<Backed> {
    let rules = match rules {
        None => STARTER.to_owned(),
        Some(path) => crate::input::read(path)?.text().to_owned(),
    };
    match store {
        StoreConfig::Memory { keys_max } => {
            let store = MemoryStore::new().keys_max(keys_max);
            Ok(Backed::Memory(Limiter::builder().store(store).rules_yaml(rules).build()?))
        }
        StoreConfig::Redis(settings) => {
            let store = settings.connect().await?;
            Ok(Backed::Redis(Limiter::builder().store(store).rules_yaml(rules).build()?))
        }
    }
}

/// One thread's share of every port.
fn listeners(ports: &[(Protocols, Option<SocketAddr>)]) -> Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    for &(speaks, address) in ports {
        let Some(address) = address else { continue };
        let listener = Listener::bind(speaks, address).map_err(|error| {
            let hint =
                "something else listens there, or the address is not of this machine; choose another one";
            Failure::new(format!("cannot listen on {address}: {error}"), hint)
        })?;
        listeners.push(listener);
    }
    Ok(listeners)
}
