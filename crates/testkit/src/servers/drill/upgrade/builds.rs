//! The servers of the drill, their store and their database.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::KINDS;
use crate::drill::DrillError;
use crate::http1::{Answer, Http1};
use crate::postgres::Postgres;
use crate::redis::{Flavour, Server};
use crate::serving::{Serving, create_token};

/// Two servers of different builds. The first one is the one that is replaced.
pub(super) struct Builds {
    servers: Vec<(Serving, Http1)>,
    token: String,
    folder: TempDir,
    redis: Server,
    postgres: Postgres,
}

impl Builds {
    pub(super) fn start(previous: &str, current: &str) -> Result<Builds, DrillError> {
        let postgres = Postgres::start()?;
        postgres.psql("postgres", "CREATE DATABASE control")?;
        let redis = Server::start(Flavour::Redis70)?;
        let folder = tempfile::tempdir()?;
        let token = create_token(previous, "change,read");
        let rule = |(id, limit): &(&str, &str)| {
            format!("  - {{ id: {id}, match: {{ action: {id} }}, per: user, limit: {{ {limit} }} }}\n")
        };
        let rules: String = KINDS.iter().map(rule).collect();
        fs::write(folder.path().join("rules.yaml"), format!("version: 1\nrules:\n{rules}"))?;
        fs::write(folder.path().join("key"), "5e".repeat(32))?;
        let config = format!("anonymous: [check, refund]\ntokens:\n{}\n", token.line);
        fs::write(folder.path().join("tollgate.yaml"), config)?;
        let mut builds = Builds { servers: Vec::new(), token: token.token, folder, redis, postgres };
        // As the docs of upgrades say: the database first, by the new release.
        let url = builds.postgres.url("control");
        let migrated = Command::new(current).args(["database", "migrate", "--database", &url]).output()?;
        if !migrated.status.success() {
            return Err(format!("{}", String::from_utf8_lossy(&migrated.stderr)).into());
        }
        for (index, binary) in [previous, current].into_iter().enumerate() {
            let server = builds.serve(binary, index)?;
            builds.servers.push(server);
        }
        Ok(builds)
    }

    fn serve(&self, binary: &str, index: usize) -> Result<(Serving, Http1), DrillError> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let (rules, key, config) = (path("rules.yaml"), path("key"), path("tollgate.yaml"));
        let (url, journal, store) =
            (self.postgres.url("control"), path(&format!("journal-{index}")), self.redis.url());
        let args = ["--rules", &rules, "--hash-key-file", &key, "--config", &config, "--database", &url];
        // A busy machine must not make a failure policy answer.
        let more = ["--journal", &journal, "--store", &store, "--store-deadline", "5s", "--threads", "1"];
        let server = Serving::start(binary, &[&args[..], &more[..]].concat());
        let connection = Http1::connect(server.http)?;
        Ok((server, connection))
    }

    /// Ends the first server, and starts this binary in its place.
    pub(super) fn replace_first(&mut self, binary: &str) -> Result<(), DrillError> {
        let (mut old, connection) = self.servers.remove(0);
        drop(connection);
        old.signal("TERM");
        if old.exit_code() != Some(0) {
            return Err("a server did not exit with 0 after SIGTERM".into());
        }
        let server = self.serve(binary, 0)?;
        self.servers.insert(0, server);
        Ok(())
    }

    /// Sends a check or a peek, and returns the decision.
    pub(super) fn check(&mut self, path: &str, at: usize, body: &Value) -> Result<Value, DrillError> {
        let answer = self.servers[at].1.call("POST", path, &[], body)?;
        if matches!(answer.status, 200 | 429) { Ok(answer.json) } else { Err(format!("{answer:?}").into()) }
    }

    /// Sends a call with the token that may change.
    pub(super) fn call(
        &mut self,
        at: usize,
        method: &str,
        path: &str,
        body: &Value,
        etag: Option<&str>,
    ) -> Result<Answer, DrillError> {
        let authorization = format!("Bearer {}", self.token);
        let mut fields = vec![("if-match", etag.unwrap_or_default())];
        fields.retain(|(_, value)| !value.is_empty());
        if !path.ends_with("/refund") {
            fields.push(("authorization", &authorization));
        }
        Ok(self.servers[at].1.call(method, path, &fields, body)?)
    }
}
