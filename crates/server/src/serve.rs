//! The server: one limiter behind several protocols.

mod announce;
mod changes;
pub(crate) mod edge;
mod fleet;
mod gate;
mod listen;
mod observe;
mod readiness;
mod rules_in_force;
mod shared;
mod store_status;
mod upkeep;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tollgate::MemoryStore;
use tollgate::core::{Keyspace, SubjectHashers};
use tollgate::engine::Setup;
use tollgate::limiter::BuildError;
use tollgate_document::Source;

use crate::cli::terminal::Failure;
use crate::config::{Config, StoreConfig};
use crate::protocol::Protocol;
use fleet::Others;
use gate::{Backed, Gate};
use listen::connections::Connections;
use listen::listener::Listener;
use listen::tls::Tls;
use listen::worker::{self, Worker};
use observe::{Recorder, StoreCalls, Traces, Watched, log};
use rules_in_force::RulesOrigin;
use shared::{Doors, Shared};

/// Serves until it is told to end. `reread` gives the configuration anew, for what can change while it runs.
pub(crate) fn run(config: Config, reread: impl Fn() -> Result<Config>) -> Result<()> {
    let main = worker::runtime()?;
    let asked_for = config.addresses;
    let _within = main.enter();
    let log = log::start(&config.log)?;
    listen::open_files::allow(config.connections_max);
    let Ports { shares, addresses } = listeners(&config)?;
    let store = told(&config.store);
    let doors = Doors { tokens: config.access, anonymous: config.anonymous, certified: config.certified };
    let tls = config.tls.as_ref().map(|files| Tls::load(files, doors.accepts_anonymous())).transpose()?;
    let (rules, source) = RulesOrigin::read(config.rules.as_deref())?;
    let calls = Arc::<StoreCalls>::default();
    let limiter =
        main.block_on(open(config.store, config.hashers, config.request_id_horizon, source, &calls))?;
    let fleet = main.block_on(fleet::of(&limiter))?;
    let (heard, others) = watch::channel(Others::default());
    let traces = config.traces.as_ref().map(Traces::start).transpose()?;
    let recorder = limiter.with_rules(|rules| Recorder::new(rules, calls, &config.log, traces));
    // Beside the rules, so that two sets of servers that share a store are told apart in this too.
    let throttled = Keyspace::new(&limiter.with_rules(fleet::namespace), "CL.THROTTLE")?;
    let shared = Arc::new(Shared {
        gate: Gate::new(limiter, recorder, throttled),
        rules,
        doors: ArcSwap::from_pointee(doors),
        tls,
        connections: Arc::new(Connections::new(config.connections_max)),
        dialect: config.dialect,
        grpc: config.grpc_messages,
        proxies: config.proxies,
        prefixes: config.prefixes,
        others: fleet.is_some().then_some(others),
        ending: CancellationToken::new(),
    });
    if let Some(fleet) = fleet {
        let (shared, ending) = (Arc::clone(&shared), shared.ending.clone());
        main.spawn(fleet.compare(move || shared.rules.in_force().fingerprint.clone(), heard, ending));
    }
    let mut workers = Vec::new();
    for (number, listeners) in shares.into_iter().enumerate() {
        workers.push(Worker::start(number, listeners, &shared, config.shutdown_timeout)?);
    }
    announce::ready(&addresses, shared.tls.is_some(), &store, &shared.rules.in_force().name, &config.log);
    // All of it on this runtime, which carries the connections to the store and the traces to the end.
    let all_answered = main.block_on(async {
        upkeep::until_the_end(&shared, asked_for, &reread).await?;
        let mut all_answered = true;
        for worker in workers {
            all_answered &= worker.end().await?;
        }
        let gate = shared.gate.clone();
        tokio::task::spawn_blocking(move || gate.end()).await?;
        Ok::<bool, anyhow::Error>(all_answered)
    })?;
    tracing::info!(event = "ended", all_answered, "ended");
    drop(log);
    Ok(())
}

async fn open(
    store: StoreConfig,
    hashers: Option<SubjectHashers>,
    horizon: Duration,
    rules: Source,
    calls: &Arc<StoreCalls>,
) -> Result<Backed> {
    let name = rules.name().to_owned();
    let refused = |error: BuildError| match error {
        BuildError::Rules { problems } => {
            crate::cli::terminal::complain(&problems);
            let hint = "`tollgate lint` says the same without starting anything";
            anyhow::Error::from(Failure::new(format!("{name} has problems, so nothing is served"), hint))
        }
        other => other.into(),
    };
    let setup = Setup::default().rules_source(rules).request_horizon(horizon);
    let setup = match hashers {
        Some(hashers) => setup.hash_key(hashers),
        None => setup,
    };
    match store {
        StoreConfig::Memory { keys_max } => {
            let store = MemoryStore::new().keys_max(keys_max);
            Ok(Backed::Memory(setup.build(store).map_err(refused)?))
        }
        StoreConfig::Redis(settings) => {
            let store = Watched::new((*settings).connect().await?, Arc::clone(calls));
            Ok(Backed::Redis(setup.build(store).map_err(refused)?))
        }
    }
}

fn told(store: &StoreConfig) -> String {
    match store {
        StoreConfig::Memory { .. } => "in memory".to_owned(),
        StoreConfig::Redis(_) => "in Redis".to_owned(),
    }
}

/// The ports, as sockets and as addresses.
struct Ports {
    /// For each thread its share of every port.
    shares: Vec<Vec<Listener>>,
    addresses: Vec<(Protocol, SocketAddr)>,
}

/// Every port that was asked for.
fn listeners(config: &Config) -> Result<Ports> {
    let mut shares: Vec<Vec<Listener>> = (0..config.threads.max(1)).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    for (protocol, address) in config.addresses {
        let Some(mut address) = address else { continue };
        Listener::probe(address).map_err(|error| unusable(address, &error))?;
        for share in &mut shares {
            let listener = Listener::bind(protocol, address).map_err(|error| unusable(address, &error))?;
            // Any port was asked for: the first one finds it for all.
            address = listener.address().context("a socket has no address")?;
            share.push(listener);
        }
        addresses.push((protocol, address));
    }
    Ok(Ports { shares, addresses })
}

fn unusable(address: SocketAddr, error: &std::io::Error) -> Failure {
    let hint = "something else listens there, or the address is not one of this machine; choose another";
    Failure::new(format!("cannot listen on {address}: {error}"), hint)
}
