//! Log formats: how one line becomes named fields. What the fields mean is in `mapping.rs`.

pub(in crate::simulate) mod access_line;
pub(crate) mod capture;
mod csv;
mod defaults;
pub(in crate::simulate) mod detect;
mod envoy_text;
mod haproxy;
mod json_lines;
mod quoted;

use std::borrow::Cow;

use access_line::AccessLine;
use csv::Csv;
pub(in crate::simulate) use defaults::Defaults;
use envoy_text::EnvoyText;
use haproxy::HaproxyLine;
use json_lines::JsonLines;

/// A log format, as `--log-format` names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Recognise the format of each file by its first lines
    Auto,
    /// The combined format of nginx and Apache, also with further fields
    Nginx,
    /// One JSON object per line
    Json,
    /// Comma-separated values with a header line
    Csv,
    /// The default format of Envoy, or its JSON
    Envoy,
    /// The JSON of Caddy
    Caddy,
    /// The common format of Traefik, or its JSON
    Traefik,
    /// The HTTP format of HAProxy, with or without a syslog header
    Haproxy,
    /// What `tollgate serve --capture-file` writes; only captures replay exactly
    Capture,
}

/// Why a line is not a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::simulate) enum Skip {
    /// The line is readable, and is not about a request that a limiter would see.
    NotARequest,
    /// The line is not of the format. The text says what is missing.
    Unreadable(&'static str),
}

/// The values of a line's fields, by slot.
pub(in crate::simulate) type Values<'l> = Vec<Option<Cow<'l, str>>>;

/// Reads the fields of lines in one format.
#[derive(Clone, Debug)]
pub(in crate::simulate) enum FieldReader {
    Access(AccessLine),
    Json(JsonLines),
    Csv(Csv),
    Haproxy(HaproxyLine),
    EnvoyText(EnvoyText),
}

impl FieldReader {
    /// Returns the reader of a format, chosen by the first lines of a file where a format has two notations. `None` for a
    /// capture, which is not read as fields.
    pub(in crate::simulate) fn new(format: LogFormat, sample: &[&str]) -> Option<FieldReader> {
        let is_json =
            sample.iter().find(|line| !line.trim().is_empty()).is_some_and(|line| line.starts_with('{'));
        Some(match format {
            LogFormat::Nginx => FieldReader::Access(AccessLine::default()),
            LogFormat::Traefik if !is_json => FieldReader::Access(AccessLine::default()),
            LogFormat::Envoy if !is_json => FieldReader::EnvoyText(EnvoyText),
            LogFormat::Json | LogFormat::Caddy | LogFormat::Traefik | LogFormat::Envoy => {
                FieldReader::Json(JsonLines::default())
            }
            LogFormat::Csv => FieldReader::Csv(Csv::new(sample.first().copied().unwrap_or_default())),
            LogFormat::Haproxy => FieldReader::Haproxy(HaproxyLine),
            LogFormat::Capture | LogFormat::Auto => return None,
        })
    }

    /// Returns the slot of a field, or `None` if lines of this format never have it.
    pub(in crate::simulate) fn slot(&mut self, field: &str) -> Option<usize> {
        match self {
            FieldReader::Access(reader) => reader.slot(field),
            FieldReader::Json(reader) => reader.slot(field),
            FieldReader::Csv(reader) => reader.slot(field),
            FieldReader::Haproxy(reader) => reader.slot(field),
            FieldReader::EnvoyText(reader) => reader.slot(field),
        }
    }

    /// Returns the names of the fields, for messages.
    pub(in crate::simulate) fn field_names(&self) -> Vec<String> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        match self {
            FieldReader::Access(_) => names(access_line::FIELDS),
            FieldReader::Json(_) => Vec::new(),
            FieldReader::Csv(reader) => reader.columns().to_vec(),
            FieldReader::Haproxy(_) => names(haproxy::FIELDS),
            FieldReader::EnvoyText(_) => names(envoy_text::FIELDS),
        }
    }

    /// Reads the fields of one line. Slots of fields that the line does not have are `None`.
    #[inline]
    pub(in crate::simulate) fn read<'l>(&self, line: &'l str, values: &mut Values<'l>) -> Result<(), Skip> {
        values.clear();
        match self {
            FieldReader::Access(reader) => reader.read(line, values),
            FieldReader::Json(reader) => reader.read(line, values),
            FieldReader::Csv(reader) => reader.read(line, values),
            FieldReader::Haproxy(reader) => reader.read(line, values),
            FieldReader::EnvoyText(reader) => reader.read(line, values),
        }
    }
}
