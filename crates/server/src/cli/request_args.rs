//! What a command line says of a request and of the rules it meets.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tollgate::core::rules::RuleSet;
use tollgate::core::{Attributes, Time};
use tollgate::rules::load;
use tollgate_document::{Problems, Source};

use crate::cli::hash_key::HashKey;
use crate::cli::terminal;
use crate::failure::Failure;
use crate::files;

// Not a doc comment: that would become the help of every command that takes these arguments.
// The arguments of commands that ask rules about a request.
#[derive(clap::Args)]
pub(crate) struct Asked {
    /// The rules file; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: PathBuf,
    /// What the caller says it costs, for rules that do not say it themselves
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) cost: u64,
    #[command(flatten)]
    pub(crate) hash_key: HashKey,
    /// What is known of the request: tenant, user, api_key, ip, method, path, action, plan, anything
    #[arg(value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,
}

impl Asked {
    /// The rules in the file, and its text. A wrong file's problems are printed, and `purpose` says what cannot be done.
    pub(crate) fn rules(&self, purpose: &str) -> Result<(Source, RuleSet), Failure> {
        rules(&self.rules, purpose)
    }

    /// The attributes of the request.
    pub(crate) fn attributes(&self) -> Result<Attributes<'_>, Failure> {
        let mut attributes = Attributes::new();
        for (name, value) in &self.attributes {
            if attributes.get(name).is_some() {
                return Err(Failure::new(
                    format!("the attribute `{name}` is given twice"),
                    "a request has one value for each attribute",
                ));
            }
            attributes.set(name, value);
        }
        Ok(attributes)
    }
}

/// The rules in a file, and its text. A wrong file's problems are printed, and `purpose` says what cannot be done.
pub(crate) fn rules(path: &Path, purpose: &str) -> Result<(Source, RuleSet), Failure> {
    let source = files::read(path)?;
    let mut problems = Problems::new();
    match load(&source, &mut problems) {
        Some(rules) => Ok((source, rules)),
        None => {
            crate::stderr::write(&terminal::problems(&problems, &source));
            let hint = "servers read it the same way; they refuse a wrong file whole";
            Err(Failure::new(format!("{} has problems, so {purpose}", source.name()), hint))
        }
    }
}

fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write an attribute's name, `=` and its value, like tenant=acme".to_owned()),
    }
}

/// An instant like 2026-12-01T00:00:00Z.
pub(crate) fn instant(text: &str) -> Result<Time, String> {
    let at: Timestamp = text
        .parse()
        .map_err(|_| "write a date, a time and an offset, like 2026-12-01T00:00:00Z".to_owned())?;
    let us = u64::try_from(at.as_microsecond()).ok().filter(|&us| us <= Time::MAX.us());
    us.map(Time::from_us).ok_or_else(|| "times here are from 1970 to 2255".to_owned())
}
