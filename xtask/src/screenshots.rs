//! `cargo xtask screenshots`: the pictures of the dashboard and the example report of the simulator, for the documentation.
//!
//! Not part of `cargo xtask gen`: it needs a browser, and two browsers draw no two equal pictures.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::json;
use tollgate_testkit::redis::{Flavour, Server};
use tollgate_testkit::serving::{Serving, create_token};
use tollgate_testkit::tools::Tool;

const RULES: &str = include_str!("screenshots/rules.yaml");
/// The rules of the example report, and what the older ones have instead.
const REPORT_RULES: &str = include_str!("screenshots/search.yaml");
const OLD_SEARCH: (&str, &str) = ("fixed-window: 120/min", "fixed-window: 600/min");
const SCRIPT: &str = "xtask/src/screenshots/pictures.js";
/// Where the pictures of the dashboard are.
const PICTURES: &str = "docs/operating/pictures";
/// The example report, and its picture.
const REPORT: &str = "docs/guides/pictures/simulation-report.html";
const REPORT_PICTURE: &str = "docs/guides/pictures/simulation-report.png";
/// The traffic of the example report. The same seed gives the same requests.
const TRAFFIC: &str = "rate=60/s,arrivals=poisson,subjects=4000,zipf=0.9,for=30min,seed=7";

/// Builds the server, puts load on it, and takes all pictures.
pub(crate) fn run(root: &Path) -> Result<()> {
    let binary = build(root)?;
    let folder = tempfile::tempdir().context("no folder")?;
    let file = |name: &str, text: &str| -> Result<String> {
        let path = folder.path().join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path.display().to_string())
    };
    let token = create_token(&binary, "read,change");
    let line = token.line.replace("read-change", "jane");
    let config = file("tollgate.yaml", &format!("anonymous: check\ntokens:\n{line}\n"))?;
    let (rules, key) = (file("rules.yaml", RULES)?, file("key", &"6b".repeat(32))?);
    file("search.yaml", REPORT_RULES)?;
    file("old.yaml", &REPORT_RULES.replace(OLD_SEARCH.0, OLD_SEARCH.1))?;
    report(root, &binary, folder.path())?;

    let redis = Server::start(Flavour::Redis70)?;
    let database = format!("sqlite:{}", folder.path().join("usage.db").display());
    let (url, data) = (redis.url(), folder.path().join("data").display().to_string());
    let args = ["--rules", &rules, "--config", &config, "--hash-key-file", &key, "--store", &url];
    let server =
        Serving::start(&binary, &[&args[..], &["--database", &database, "--data-dir", &data]].concat());
    let task = json!({
        "url": format!("http://{}", server.http), "token": token.token, "folder": root.join(PICTURES),
        "report": root.join(REPORT), "reportPicture": root.join(REPORT_PICTURE),
    });
    let task = file("task.json", &task.to_string())?;
    let taken = Tool::Browser.command().current_dir(root).args([SCRIPT, &task]).status();
    let taken = taken.context("node does not run")?;
    if !taken.success() {
        bail!("no pictures: {taken}");
    }
    println!("screenshots: look at {PICTURES} and {REPORT_PICTURE} before you commit them");
    Ok(())
}

fn build(root: &Path) -> Result<String> {
    let mut build = Command::new("cargo");
    let built = build.args(["build", "--locked", "--bin", "tollgate"]).current_dir(root).status();
    if !built.context("cannot run cargo")?.success() {
        bail!("the server was not built");
    }
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    Ok(root.join(target).join("debug/tollgate").display().to_string())
}

/// Writes the example report about the rules in `folder`, which the report names. An exit code of 1 says that a threshold was
/// missed, as the example shows.
fn report(root: &Path, binary: &str, folder: &Path) -> Result<()> {
    let page = root.join(REPORT);
    if let Some(folder) = page.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let mut command = Command::new(binary);
    command.current_dir(folder);
    command.args(["simulate", "--rules", "search.yaml", "--against", "old.yaml", "--synthetic", TRAFFIC]);
    command.args(["--map", "path=const:/search", "--html"]).arg(&page);
    command.args(["--require", "refused < 5%", "--require", "newly_refused < 2"]);
    let output = command.output().context("the binary does not run")?;
    if !matches!(output.status.code(), Some(0 | 1)) {
        bail!("no report: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
