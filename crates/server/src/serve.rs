//! The server: one limiter behind several transports.

mod announce;
pub(crate) mod control;
mod doctor;
pub(crate) mod edge;
pub(crate) mod fleet;
mod gate;
pub(crate) mod listen;
mod maintenance;
mod observe;
mod readiness;
pub(crate) mod rules_in_force;
mod sampler;
mod server_state;
mod store;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tollgate::MemoryStore;
use tollgate::core::{Keyspace, StoreError};
use tollgate::engine::Setup;
use tollgate::guard::{FleetSize, Guarded};
use tollgate::ledger::{Ledger, LedgerError, Recorded};
use tollgate::limiter::BuildError;
use tollgate::store::redis::OpenError;
use tollgate_database::WriterSettings;
use tollgate_document::{Problems, Source};

use crate::config::{Config, LedgerConfig, LoadError, Loaded, StoreConfig};
use crate::failure::{Failure, error_chain};
use crate::protocol::Protocol;
use crate::reference::References;
use crate::stderr;
use control::{Audited, Control, ControlSettings};
use edge::auth::AccessPolicy;
use edge::resp::OutputBudget;

use fleet::Others;
use gate::{Backed, Gate};
use listen::connections::{ConnectionLimits, Connections};
use listen::listener::Listener;
use listen::tls::Tls;
use listen::worker::{self, Worker};
use maintenance::Maintenance;
use observe::history::History;
use observe::{AuthFailures, Capture, Recorder, StoreCalls, TimedStore, Traces, log};
use rules_in_force::RulesOrigin;
pub(crate) use rules_in_force::{STARTER, STARTER_NAME};
use server_state::ServerState;
use store::evictions::{self, Evictions};
use store::watch::StoreState;
use store::work_share::WorkShares;

/// Serves until a signal stops the server. `reread` returns the configuration again, for settings that can change meanwhile.
pub(crate) fn run(loaded: Loaded, reread: impl Fn() -> Result<Loaded, LoadError>) -> Result<()> {
    let Loaded { config, settings, .. } = loaded;
    let main = worker::runtime()?;
    let _within = main.enter();
    let log = log::start(&config.log)?;
    listen::open_files::raise_limit(config.connections_max);
    let Ports { shares, addresses } = listeners(&config)?;
    let store = store_name(&config.store);
    let access =
        AccessPolicy { tokens: config.access, anonymous: config.anonymous, certified: config.certified };
    let tls = config.tls.as_ref().map(|files| Tls::load(files, access.accepts_uncertified())).transpose()?;
    let (rules, source) = RulesOrigin::read(config.rules.as_deref())?;
    let calls = Arc::<StoreCalls>::default();
    let own_keys_max = config.store.own_keys_max();
    let rules_name = source.name().to_owned();
    let setup = Setup::default()
        .rules_source(source.clone())
        .request_horizon(config.request_id_horizon)
        .receipt_life(config.receipt_life);
    let control = config.ledger.as_ref().map(|database| {
        let (url, cache) = (database.url.clone(), database.changes.clone());
        Control::new(ControlSettings { url, cache, server: server_name() }).map(Arc::new)
    });
    let control = control.transpose()?;
    let database = config.ledger.as_ref().map(|ledger| ledger.url.clone());
    let ledger =
        main.block_on(open_ledger(config.ledger, config.request_id_horizon, is_recorded(&source)))?;
    let store_settings = match &config.store {
        StoreConfig::Memory { .. } => None,
        StoreConfig::Redis(settings) => Some(settings.fresh()),
    };
    let setup = setup.refuse_recorded(ledger.is_none());
    let setup = match &ledger {
        Some(ledger) => setup.account_names(ledger.account_names()),
        None => setup,
    };
    let fleet_size = Arc::new(FleetSize::stated(config.servers));
    let required = config.require_store;
    let setup = match config.hashers {
        Some(hashers) => setup.hash_key(hashers),
        None => setup,
    };
    let opened =
        open(config.store, setup, &rules_name, &calls, Arc::clone(&fleet_size), required, ledger.as_ref());
    let (limiter, store_state) = main.block_on(opened)?;
    let fleet = main.block_on(fleet::of(&limiter, required, store_state.is_up()))?;
    let (differences, others) = watch::channel(Others::default());
    let (evicted, evictions) = watch::channel(Evictions::default());
    let (findings, doctor) = watch::channel(doctor::Findings::default());
    let shared_store = limiter.redis_store();
    let patient = doctor::Doctor {
        store: store_settings.zip(shared_store.clone()),
        database,
        deadline: config.store_deadline,
    };
    let work = match shared_store.clone() {
        None => WorkShares::unlimited(),
        Some(store) => WorkShares::of_store(
            move || store.in_flight_target(),
            config.store_deadline,
            config.in_flight_max_per_caller,
        ),
    };
    let traces = config.traces.as_ref().map(Traces::start).transpose()?;
    let capture = config.capture.as_ref();
    let capture = capture.map(|capture| Capture::start(capture, limiter.hashers().current())).transpose()?;
    let recorder = limiter.with_rules(|rules| Recorder::new(rules, calls, &config.log, traces, capture));
    // In the namespace of the rules, which separates fleets on one store.
    let throttled = Keyspace::new(&limiter.with_rules(fleet::namespace), "CL.THROTTLE")?;
    let references =
        (References::new(limiter.hashers(), &server_name())?, rules.in_force().fingerprint.clone());
    let state = Arc::new(ServerState {
        gate: Gate::new(
            limiter,
            recorder,
            throttled,
            own_keys_max,
            ledger.clone(),
            references,
            config.request_id_horizon,
        ),
        control,
        rules,
        access: ArcSwap::from_pointee(access),
        tls,
        connections: Arc::new(Connections::new(ConnectionLimits {
            max: config.connections_max as u64,
            max_per_address: config.connections_max_per_address as u64,
            prefixes: config.prefixes,
        })),
        work,
        output: Arc::new(OutputBudget::new(config.resp_output_max)),
        auth_failures: AuthFailures::default(),
        control_on_http: config.control_on_http,
        allowed_hosts: config.allowed_hosts,
        dialect: config.dialect,
        grpc: config.grpc,
        proxies: config.proxies,
        proxy_protocol: config.proxy_protocol,
        prefixes: config.prefixes,
        others: fleet.is_some().then_some(others),
        evictions: shared_store.is_some().then_some(evictions),
        history: History::default(),
        doctor,
        ending: CancellationToken::new(),
    });
    let following = state.control.as_ref().map(|control| {
        state.gate.set_control(control);
        // Before the first look at the database, which also posts this row: the start comes before what callers do.
        control.note(Audited {
            actor: "(server)",
            action: "server.started",
            target: &state.rules.in_force().name,
            after: &format!("rules {}", state.rules.in_force().fingerprint),
            ..Audited::default()
        });
        main.block_on(control.start(&state.gate));
        main.spawn(Arc::clone(control).run(state.gate.clone(), state.ending.clone()))
    });
    let comparing = fleet.map(|fleet| {
        let (state, ending) = (Arc::clone(&state), state.ending.clone());
        let gate = state.gate.clone();
        let in_force = move || state.rules.in_force().fingerprint.clone();
        let note = move |servers| {
            fleet_size.note(u32::try_from(servers).unwrap_or(u32::MAX), std::time::Instant::now());
            gate.note_servers(servers);
        };
        main.spawn(fleet.compare(in_force, differences, note, ending))
    });
    doctor::start(Arc::clone(&state), patient, findings).context("cannot start the thread of the doctor")?;
    if let Some(store) = shared_store {
        main.spawn(state.gate.clone().book_late_usage(state.ending.clone()));
        main.spawn(store::watch::watch(store.clone(), store_state, state.ending.clone()));
        main.spawn(evictions::watch(store, evicted, state.ending.clone()));
    }
    sampler::sample(&state);
    main.spawn(sampler::run(Arc::clone(&state)));
    let mut workers = Vec::new();
    for (number, listeners) in shares.into_iter().enumerate() {
        workers.push(Worker::start(number, listeners, &state, config.shutdown_timeout)?);
    }
    let maintenance = Maintenance::new(&state)?;
    announce::ready(&addresses, state.tls.is_some(), &store, &state.rules.in_force().name, &config.log);
    // This runtime drives the connections of the store and of the traces, so it runs until the end.
    let all_answered = main.block_on(async {
        maintenance.run(&state, &settings, &reread).await;
        let mut all_answered = true;
        for worker in workers {
            all_answered &= worker.end().await?;
        }
        if let Some(comparing) = comparing {
            comparing.await?;
        }
        if let Some(following) = following {
            following.await?;
        }
        if let Some(ledger) = &ledger {
            ledger.close().await;
        }
        let gate = state.gate.clone();
        tokio::task::spawn_blocking(move || gate.end()).await?;
        Ok::<bool, anyhow::Error>(all_answered)
    })?;
    tracing::info!(event = "ended", all_answered, "ended");
    drop(log);
    Ok(())
}

async fn open(
    store: StoreConfig,
    setup: Setup,
    rules_name: &str,
    calls: &Arc<StoreCalls>,
    fleet_size: Arc<FleetSize>,
    required: bool,
    ledger: Option<&Ledger>,
) -> Result<(Backed, StoreState)> {
    let refused = |error: BuildError| match error {
        BuildError::Rules { problems } => {
            stderr::write(&problems);
            let hint = "`tollgate lint` reports the same without a server";
            anyhow::Error::from(Failure::new(
                format!("{rules_name} is invalid, so the server does not start"),
                hint,
            ))
        }
        other => other.into(),
    };
    match store {
        StoreConfig::Memory { keys_max, own_keys_max, state_bytes_max } => {
            // Keys of callers' own limits never use up what the rules have.
            let store = MemoryStore::new().keys_max(keys_max.saturating_add(own_keys_max));
            let store = match state_bytes_max {
                Some(bytes) => store.state_bytes_max(bytes),
                None => store,
            };
            let limiter = match ledger {
                None => Backed::Memory(setup.build(store).map_err(refused)?),
                Some(_) => {
                    let store = Guarded::new(Recorded::new(store, ledger), fleet_size);
                    Backed::RecordedMemory(setup.build(store).map_err(refused)?)
                }
            };
            Ok((limiter, StoreState::at_start(None)))
        }
        StoreConfig::Redis(settings) => {
            let hint = "`tollgate check --store` reports more about the store";
            let unusable = |error: &dyn std::error::Error| Failure::of_store(error_chain(error), hint);
            let opened = (*settings).open().map_err(|error| unusable(&error))?;
            let down = match opened.ready().await {
                Ok(()) => None,
                // A crash loop would not bring the store back, and no policy would answer meanwhile.
                Err(error @ StoreError::Transient(_)) if !required => Some(error_chain(&error)),
                Err(error) => return Err(unusable(&OpenError::from(error)).into()),
            };
            let state = StoreState::at_start(down);
            let remembers = opened.decides_by_its_own_clock();
            let store = Recorded::new(TimedStore::new(opened, Arc::clone(calls)), ledger);
            let store = Guarded::new(store, fleet_size).with_refusal_memory(remembers);
            let limiter = setup.build(store).map_err(refused)?;
            limiter.start_maintenance();
            Ok((Backed::Redis(limiter), state))
        }
    }
}

/// Opens the ledger and posts what an earlier process has left in the journal.
async fn open_ledger(
    config: Option<LedgerConfig>,
    request_id_horizon: Duration,
    is_needed: bool,
) -> Result<Option<Ledger>> {
    let Some(LedgerConfig { url, journal, keep_journal, journal_max, queue_max, changes: _ }) = config else {
        return Ok(None);
    };
    let settings = WriterSettings {
        name: server_name(),
        keep_journal,
        journal_max,
        queue_max,
        request_id_horizon,
        ..WriterSettings::new(journal)
    };
    match Ledger::with_settings(&url, settings).await {
        Ok(ledger) => {
            let recovered = ledger.status().recovered;
            tracing::info!(event = "ledger_open", database = %url, recovered, "the ledger is open");
            Ok(Some(ledger))
        }
        // Live changes have a copy on this server's disk, and no rule needs the ledger.
        Err(LedgerError::Database(error)) if !is_needed && error.is_transient() => {
            let error = error_chain(&error);
            tracing::error!(
                event = "ledger_down",
                error,
                "the database does not answer; rules with `ledger` need a restart when it does"
            );
            Ok(None)
        }
        Err(error) => {
            let hint = "`tollgate database status` says whether the database can be used";
            Err(Failure::of_store(error_chain(&error), hint).into())
        }
    }
}

/// Whether a rule of this text needs the ledger. A text with errors does: it is reported later.
fn is_recorded(source: &Source) -> bool {
    tollgate::rules::load(source, &mut Problems::new())
        .is_none_or(|rules| rules.rules().iter().any(|rule| rule.ledger.is_some()))
}

fn server_name() -> String {
    // Only a name for people: a system without this file has none.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if host.trim().is_empty() { "tollgate".to_owned() } else { host.trim().to_owned() }
}

fn store_name(store: &StoreConfig) -> String {
    match store {
        StoreConfig::Memory { .. } => "in memory".to_owned(),
        StoreConfig::Redis(_) => "in Redis".to_owned(),
    }
}

/// The bound ports.
struct Ports {
    /// For each thread, its sockets.
    shares: Vec<Vec<Listener>>,
    addresses: Vec<(Protocol, SocketAddr)>,
}

/// Binds every configured port.
fn listeners(config: &Config) -> Result<Ports> {
    let mut shares: Vec<Vec<Listener>> = (0..config.threads.max(1)).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    for (protocol, address) in config.addresses {
        let Some(mut address) = address else { continue };
        Listener::probe(address).map_err(|error| unusable(address, &error))?;
        for share in &mut shares {
            let listener = Listener::bind(protocol, address).map_err(|error| unusable(address, &error))?;
            // Port 0 was requested: the first socket chooses the port for all.
            address = listener.address().context("a socket has no address")?;
            share.push(listener);
        }
        addresses.push((protocol, address));
    }
    Ok(Ports { shares, addresses })
}

fn unusable(address: SocketAddr, error: &std::io::Error) -> Failure {
    let hint = "another program uses it, or this machine does not have the address; choose another with --http, --resp or --grpc";
    Failure::new(format!("cannot listen on {address}: {error}"), hint)
}
