//! What a server does besides serving: it handles signals, reloads files, and deletes expired state.

mod file_watcher;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{interval, sleep};
use tollgate::limiter::BuildError;
use tollgate_document::Source;

use super::control::Audited;
use super::edge::auth::AccessPolicy;
use super::observe::log;
use super::rules_in_force::fingerprint;
use super::server_state::ServerState;
use crate::config::{Config, EffectiveSetting, LoadError, Loaded};
use file_watcher::FileWatcher;

/// How often the memory store deletes expired state.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// The signals and the files that a server watches.
pub(crate) struct Maintenance {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    watcher: Option<FileWatcher>,
}

impl Maintenance {
    /// Installs the signal handlers and watches the files. Called before the server reports that it is ready: a signal
    /// without a handler would kill it.
    pub(crate) fn new(state: &ServerState) -> Result<Maintenance> {
        let handle = |kind| signal(kind).context("cannot handle signals");
        let files = state.rules.file().into_iter().chain(state.tls.iter().flat_map(|tls| tls.files()));
        let watcher = match FileWatcher::new(files) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                tracing::warn!(event = "watch_failed", "files are read again on SIGHUP only: {error}");
                None
            }
        };
        Ok(Maintenance {
            interrupt: handle(SignalKind::interrupt())?,
            terminate: handle(SignalKind::terminate())?,
            hang_up: handle(SignalKind::hangup())?,
            watcher,
        })
    }

    /// Runs until a signal stops the server.
    pub(crate) async fn run(
        self,
        state: &Arc<ServerState>,
        settings: &[EffectiveSetting],
        reread: &impl Fn() -> Result<Loaded, LoadError>,
    ) {
        let Maintenance { mut interrupt, mut terminate, mut hang_up, watcher } = self;
        let mut sweep = interval(SWEEP_EVERY);
        let mut second = interval(SECOND);
        loop {
            tokio::select! {
                () = state.ending.cancelled() => break,
                () = either(&mut interrupt, &mut terminate) => break,
                _ = hang_up.recv() => {
                    reload_access(state, settings, reread);
                    reload_files(state).await;
                }
                () = changed(watcher.as_ref()) => {
                    sleep(FileWatcher::PAUSE).await;
                    reload_files(state).await;
                }
                _ = second.tick() => state.gate.recorder().begin_second(),
                _ = sweep.tick() => {
                    state.gate.sweep();
                    log::report_suppressed();
                }
            }
        }
        tracing::info!(
            event = "ending",
            open = state.connections.open(),
            "shutting down; requests in flight are answered"
        );
        state.ending.cancel();
        // A second signal exits at once.
        tokio::spawn(async move {
            either(&mut interrupt, &mut terminate).await;
            std::process::exit(130);
        });
    }
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => (),
        _ = other.recv() => (),
    }
}

async fn changed(watcher: Option<&FileWatcher>) {
    match watcher {
        Some(watcher) => watcher.next().await,
        None => std::future::pending().await,
    }
}

/// Reloads rules and certificates. Not on the runtime, which drives the store's connections: rules may take a while.
async fn reload_files(state: &Arc<ServerState>) {
    let state = Arc::clone(state);
    // A panic must not stop the server: the rules in force stay.
    if let Err(error) = tokio::task::spawn_blocking(move || reload_files_now(&state)).await {
        tracing::error!(
            event = "reload_failed",
            "the files could not be reloaded: {error}; the previous ones stay in force"
        );
    }
}

/// Logs what is invalid; the previous version stays in force.
fn reload_files_now(state: &ServerState) {
    match state.rules.changed() {
        None => (),
        Some(Ok(source)) => replace_rules(state, source),
        Some(Err(failure)) => {
            tracing::error!(event = "rules_refused", "{failure}; the previous rules stay in force");
            state.rules.set_unreadable(failure.to_string());
        }
    }
    match state.tls.as_ref().map_or(Ok(false), |tls| tls.reload(state.access.load().accepts_uncertified())) {
        Ok(false) => (),
        Ok(true) => tracing::info!(event = "certificates_replaced", "the certificates were replaced"),
        Err(error) => tracing::error!(
            event = "certificates_refused",
            "{error:#}; the previous certificates stay in force"
        ),
    }
}

fn replace_rules(state: &ServerState, source: Source) {
    let (name, fingerprint) = (source.name().to_owned(), fingerprint(&source));
    let before = state.rules.in_force().fingerprint.clone();
    match state.gate.replace_rules(source.clone()) {
        Ok(version) => {
            tracing::info!(event = "rules_replaced", version, fingerprint, "{name} is in force");
            if let Some(control) = &state.control {
                control.note(Audited {
                    actor: "(file)",
                    action: "rules.replaced",
                    target: &name,
                    before: &format!("rules {before}"),
                    after: &format!("rules {fingerprint}"),
                    ..Audited::default()
                });
            }
            state.rules.set_in_force(version, fingerprint, &source);
        }
        Err(error) => {
            let why = match error {
                BuildError::Rules { problems } => problems,
                other => other.to_string(),
            };
            tracing::error!(
                event = "rules_refused",
                "{name} is invalid; the previous rules stay in force\n{why}"
            );
            state.rules.set_invalid(fingerprint, why);
        }
    }
}

/// The settings that are in force after a reload. Certificates and rules are read again by their file names.
const RELOADED: [&str; 3] = ["tokens", "anonymous", "certified"];
/// The settings of the listeners.
const ADDRESSES: [&str; 4] = ["http", "resp", "grpc", "admin"];

/// Reloads tokens and scopes from the configuration. Other settings need a restart, and are named in the log.
fn reload_access(
    state: &ServerState,
    settings: &[EffectiveSetting],
    reread: &impl Fn() -> Result<Loaded, LoadError>,
) {
    let Loaded { config, settings: now, .. } = match reread() {
        Ok(loaded) => loaded,
        Err(error) => {
            tracing::error!(
                event = "config_refused",
                cause = error.cause(),
                stays = "tokens, scopes and all other settings",
                "the configuration is invalid; the previous one stays in force"
            );
            return;
        }
    };
    let changed = changed_settings(settings, &now);
    if !changed.is_empty() {
        let settings = changed.join(", ");
        tracing::warn!(
            event = "restart_needed",
            settings,
            "these settings have changed, and need a restart: {settings}"
        );
    }
    // The scopes may be meant for the new addresses only.
    if changed.iter().any(|name| ADDRESSES.contains(name)) {
        tracing::error!(
            event = "config_refused",
            cause = "the addresses have changed, which needs a restart",
            stays = "tokens, scopes and all other settings",
            "the configuration has other addresses; the previous one stays in force"
        );
        return;
    }
    let Config { access, anonymous, certified, .. } = config;
    if let Some(control) = &state.control {
        let before = state.access.load().tokens.names();
        let detail = serde_json::json!({ "before": before, "after": access.names() }).to_string();
        let (actor, action) = ("(file)", "tokens.replaced");
        control.note(Audited { actor, action, detail, ..Audited::default() });
    }
    state.access.store(Arc::new(AccessPolicy { tokens: access, anonymous, certified }));
    tracing::info!(event = "access_replaced", "tokens and scopes were replaced");
}

/// The names of the settings whose values differ and that a reload does not replace.
fn changed_settings(before: &[EffectiveSetting], now: &[EffectiveSetting]) -> Vec<&'static str> {
    let differs = |(before, now): &(&EffectiveSetting, &EffectiveSetting)| before.value != now.value;
    let names = before.iter().zip(now).filter(differs).map(|(before, _)| before.name);
    names.filter(|name| !RELOADED.contains(name)).collect()
}
