//! The client of a server's HTTP API. Every remote command uses it, so that tokens, TLS, timeouts, errors and exit codes are
//! the same in all of them.

mod args;
mod call;
mod connection;
mod errors;
mod server_url;
pub(crate) mod table;

use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::join_all;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

use crate::failure::Failure;
pub(crate) use args::{ClientArgs, DryRun, Format};
pub(crate) use call::{Answer, Call};
pub(crate) use server_url::ServerUrl;

/// Calls one or several servers. Each call opens a separate connection.
pub(crate) struct Client {
    servers: Vec<ServerUrl>,
    token: Option<String>,
    tls: Option<TlsConnector>,
    timeout: Duration,
    runtime: Runtime,
}

/// The answer of one server, or why it did not answer.
pub(crate) struct ServerAnswer {
    pub(crate) server: ServerUrl,
    pub(crate) answer: Result<Answer, Failure>,
}

impl Client {
    /// Opens the client that the command line and the variables describe. Connects to no server yet.
    pub(crate) fn new(args: &ClientArgs) -> Result<Client> {
        let servers = args.servers()?;
        let token = args.token()?;
        let tls = if servers.iter().any(ServerUrl::has_tls) {
            Some(connection::tls_connector(args.ca_file())?)
        } else if args.ca_file().is_some() {
            let hint = "remove it, or write https:// in --server";
            return Err(Failure::new("unused --ca-file: no server is called with TLS", hint).into());
        } else {
            None
        };
        if let Some(exposed) = servers.iter().find(|server| token.is_some() && server.exposes_secrets()) {
            let hint = "write https:// in --server, and set tls_certificate and tls_key on the server";
            let what = format!("the token travels to {exposed} without encryption");
            super::terminal::warn(&what, hint);
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime of the client")?;
        Ok(Client { servers, token, tls, timeout: args.timeout(), runtime })
    }

    /// Calls the one server of the command line. For commands that change something: several servers are an error.
    pub(crate) fn call(&self, call: &Call) -> Result<Answer, Failure> {
        let [server] = self.servers.as_slice() else {
            let hint = "pass --server once; servers that share a store share what it changes";
            return Err(Failure::new("several servers: this command calls one", hint));
        };
        self.runtime.block_on(self.call_server(server, call))
    }

    /// Calls every server at the same time. For commands that read: the caller merges the answers.
    pub(crate) fn call_all(&self, call: &Call) -> Vec<ServerAnswer> {
        let calls = self.servers.iter().map(|server| async move {
            ServerAnswer { server: server.clone(), answer: self.call_server(server, call).await }
        });
        self.runtime.block_on(join_all(calls))
    }

    /// Waits, for commands that ask again and again.
    pub(crate) fn pause(&self, pause: Duration) {
        // The timer is made inside of the runtime.
        self.runtime.block_on(async { tokio::time::sleep(pause).await });
    }

    /// Sends the call, waits for the whole answer, and returns it if its status says success.
    async fn call_server(&self, server: &ServerUrl, call: &Call) -> Result<Answer, Failure> {
        let exchange = connection::exchange(server, self.tls.as_ref(), self.token.as_deref(), call);
        let answered = match tokio::time::timeout(self.timeout, exchange).await {
            Ok(answered) => answered.map_err(|error| errors::unanswered(server, &error))?,
            Err(_) => return Err(errors::late(server, self.timeout)),
        };
        if answered.status.is_success() || call.accepts(&answered) {
            Ok(answered)
        } else {
            Err(errors::of_status(server, call, &answered, self.token.is_some()))
        }
    }
}

/// The answers of all servers, if all have answered; otherwise the first failure.
pub(crate) fn all_of(answers: Vec<ServerAnswer>) -> Result<Vec<(ServerUrl, Answer)>, Failure> {
    answers.into_iter().map(|one| Ok((one.server, one.answer?))).collect()
}
