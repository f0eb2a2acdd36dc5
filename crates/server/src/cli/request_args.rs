//! The arguments that describe a request and name its rules file.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::Value;
use tollgate::core::rules::{Request, RuleSet};
use tollgate::core::{Attributes, Time};
use tollgate::rules::load;
use tollgate_document::{Problems, Source};

use crate::cli::hash_key::HashKeyArgs;
use crate::cli::terminal;
use crate::failure::Failure;
use crate::files;
use crate::serve::{STARTER, STARTER_NAME};
use crate::text::escape_control;

// Not a doc comment: clap would use it as the help of every command with these arguments.
// Arguments of commands that apply rules to a request.
#[derive(clap::Args)]
pub(crate) struct RequestArgs {
    /// Rules file, or folder of rules files; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
    /// Cost of the request, for rules without a `cost`: 1 if omitted, and 0 under postpaid rules
    #[arg(long, value_name = "N")]
    pub(crate) cost: Option<u64>,
    #[command(flatten)]
    pub(crate) hash_key: HashKeyArgs,
    #[command(flatten)]
    pub(crate) attributes: AttributeArgs,
}

// Not a doc comment: clap would use it as the help of every command with these arguments.
// Arguments that describe a request.
#[derive(clap::Args)]
pub(crate) struct AttributeArgs {
    /// Attributes of the request, such as tenant, user, api_key, ip, method, path, action or plan
    #[arg(value_name = "NAME=VALUE", value_parser = attribute)]
    pairs: Vec<(String, String)>,
}

impl AttributeArgs {
    /// These names and values.
    pub(crate) const fn of(pairs: Vec<(String, String)>) -> AttributeArgs {
        AttributeArgs { pairs }
    }

    /// The names and values, each name once.
    pub(crate) fn pairs(&self) -> Result<&[(String, String)], Failure> {
        for (index, (name, _)) in self.pairs.iter().enumerate() {
            if self.pairs[..index].iter().any(|(other, _)| other == name) {
                return Err(Failure::new(
                    format!("duplicate attribute `{}`", escape_control(name)),
                    "give each attribute one value",
                ));
            }
        }
        Ok(&self.pairs)
    }

    /// The attributes as the JSON of a request body.
    pub(crate) fn to_json(&self) -> Result<Value, Failure> {
        let pairs = self.pairs()?.iter();
        Ok(pairs.map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect())
    }
}

impl RequestArgs {
    /// Loads the rules file. See [`load_rules`].
    pub(crate) fn load_rules(&self, consequence: &str) -> Result<(Source, RuleSet), Failure> {
        let Some(path) = &self.rules else {
            let hint = "pass your rules file with --rules; `tollgate presets public-endpoint > rules.yaml` writes one";
            return Err(Failure::new(format!("missing --rules: {consequence}"), hint));
        };
        load_rules(path, consequence)
    }

    /// Returns the request with these attributes.
    pub(crate) fn request<'a>(&self, attributes: &'a Attributes<'a>) -> Request<'a> {
        let request = Request::new(attributes);
        self.cost.map_or(request, |cost| request.cost(cost))
    }

    /// Returns the attributes of the request.
    pub(crate) fn attributes(&self) -> Result<Attributes<'_>, Failure> {
        let mut attributes = Attributes::new();
        for (name, value) in self.attributes.pairs()? {
            attributes.set(name, value);
        }
        Ok(attributes)
    }
}

/// Loads the rules of a server: those of its file, or the starter rules.
pub(crate) fn load_source_and_rules(
    path: Option<&Path>,
    consequence: &str,
) -> Result<(Source, RuleSet), Failure> {
    match path {
        Some(path) => load_rules(path, consequence),
        None => load_source(Source::new(STARTER_NAME, STARTER.as_bytes()), consequence),
    }
}

/// Loads a rules file and returns its text and its rules.
///
/// If the file is invalid, prints its problems and returns an error that ends with `consequence`.
pub(crate) fn load_rules(path: &Path, consequence: &str) -> Result<(Source, RuleSet), Failure> {
    load_source(files::read_rules(path)?, consequence)
}

fn load_source(source: Source, consequence: &str) -> Result<(Source, RuleSet), Failure> {
    let mut problems = Problems::new();
    match load(&source, &mut problems) {
        Some(rules) => Ok((source, rules)),
        None => {
            crate::stderr::write(&terminal::problems(&problems, &source));
            let hint = "correct the problems above; a server does not load an invalid rules file either";
            Err(Failure::new(format!("invalid rules file {}: {consequence}", source.name()), hint))
        }
    }
}

/// Parses `NAME=VALUE`.
pub(crate) fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE, like tenant=acme".to_owned()),
    }
}

/// Parses an instant like 2026-12-01T00:00:00Z.
pub(crate) fn instant(text: &str) -> Result<Time, String> {
    let at: Timestamp = text
        .parse()
        .map_err(|_| "write a date, a time and an offset, like 2026-12-01T00:00:00Z".to_owned())?;
    let us = u64::try_from(at.as_microsecond()).ok().filter(|&us| us <= Time::MAX.us());
    us.map(Time::from_us).ok_or_else(|| "write a time from 1970 to 2255".to_owned())
}
