//! What a server does beside serving: it listens to signals, reads files again, and tidies up.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{interval, sleep};
use tollgate::limiter::BuildError;
use tollgate_document::Source;

use super::changes::Changes;
use super::rules_in_force::fingerprint;
use super::shared::{Doors, Shared};
use crate::config::{Addresses, Config};

/// How often memory is looked through for state that counts for nothing any more.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Keeps house until a signal ends the server.
pub(crate) async fn until_the_end(
    shared: &Arc<Shared>,
    asked_for: Addresses,
    reread: &impl Fn() -> Result<Config>,
) -> Result<()> {
    let listen = |kind| signal(kind).context("cannot listen to signals");
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let mut hang_up = listen(SignalKind::hangup())?;
    let files = shared.rules.file().into_iter().chain(shared.tls.iter().flat_map(|tls| tls.files()));
    let changes = match Changes::of(files) {
        Ok(changes) => Some(changes),
        Err(error) => {
            tracing::warn!(event = "watch_failed", "files are read again on SIGHUP only: {error}");
            None
        }
    };
    let mut sweep = interval(SWEEP_EVERY);
    loop {
        tokio::select! {
            () = shared.ending.cancelled() => break,
            () = either(&mut interrupt, &mut terminate) => break,
            _ = hang_up.recv() => {
                reload_doors(shared, asked_for, reread);
                reload_files(shared).await;
            }
            () = changed(changes.as_ref()) => {
                sleep(Changes::PAUSE).await;
                reload_files(shared).await;
            }
            _ = sweep.tick() => shared.gate.sweep(),
        }
    }
    tracing::info!(event = "ending", open = shared.connections.open(), "ending; what has begun is answered");
    shared.ending.cancel();
    // Whoever says it twice does not want to wait.
    tokio::spawn(async move {
        either(&mut interrupt, &mut terminate).await;
        std::process::exit(130);
    });
    Ok(())
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => (),
        _ = other.recv() => (),
    }
}

async fn changed(changes: Option<&Changes>) {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

/// Rules and certificates. Beside the runtime, which carries the connections to the store: rules may take a while to read.
async fn reload_files(shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    // A panic here would be ours, and no reason to stop serving by the rules in force.
    if let Err(error) = tokio::task::spawn_blocking(move || reload_files_now(&shared)).await {
        tracing::error!(
            event = "reload_failed",
            "the files could not be read again: {error}; those in force stay"
        );
    }
}

/// What is wrong is told, and what was in force stays.
fn reload_files_now(shared: &Shared) {
    match shared.rules.changed() {
        None => (),
        Some(Ok(source)) => replace_rules(shared, source),
        Some(Err(failure)) => {
            tracing::error!(event = "rules_refused", "{failure}; the rules in force stay");
            shared.rules.unreadable(failure.to_string());
        }
    }
    match shared.tls.as_ref().map_or(Ok(false), |tls| tls.reload(shared.doors.load().accepts_anonymous())) {
        Ok(false) => (),
        Ok(true) => tracing::info!(event = "certificates_replaced", "the certificates were read again"),
        Err(error) => tracing::error!(event = "certificates_refused", "{error:#}; those in force stay"),
    }
}

fn replace_rules(shared: &Shared, source: Source) {
    let (name, fingerprint) = (source.name().to_owned(), fingerprint(&source));
    match shared.gate.replace_rules(source) {
        Ok(version) => {
            tracing::info!(event = "rules_replaced", version, fingerprint, "{name} is in force");
            shared.rules.replaced(version, fingerprint);
        }
        Err(error) => {
            let why = match error {
                BuildError::Rules { problems } => problems,
                other => other.to_string(),
            };
            tracing::error!(event = "rules_refused", "{name} is wrong; the rules in force stay\n{why}");
            shared.rules.wrong(fingerprint, why);
        }
    }
}

/// Who may do what, from the configuration. What else is in there needs a new start.
fn reload_doors(shared: &Shared, asked_for: Addresses, reread: &impl Fn() -> Result<Config>) {
    match reread() {
        // What may be open there may not be open here.
        Ok(Config { addresses, .. }) if addresses != asked_for => {
            tracing::error!(
                event = "config_refused",
                "the configuration names other addresses, which needs a new start; what was in force stays"
            );
        }
        Ok(Config { access, anonymous, certified, .. }) => {
            shared.doors.store(Arc::new(Doors { tokens: access, anonymous, certified }));
            tracing::info!(event = "access_replaced", "tokens and scopes were read again");
        }
        Err(error) => {
            tracing::error!(event = "config_refused", "{error:#}; what was in force stays");
        }
    }
}
