//! How the fields of a log become the attributes, the time and the cost of a request.

mod assignment;
mod file;
mod resolved;

pub(crate) use assignment::{Assignment, Source};
pub(crate) use file::read as read_file;
pub(in crate::simulate) use resolved::ResolvedMapping;

use super::instant::{DurationUnit, TimeFormat};

/// What `--map`, `--time`, `--cost-from`, `--duration-from` and the map file say. They precede the defaults of the format.
#[derive(Clone, Default, Debug)]
pub(crate) struct Mapping {
    /// In order; the last one for an attribute counts.
    pub(crate) attributes: Vec<Assignment>,
    pub(crate) time: Option<TimeSource>,
    pub(crate) cost_from: Option<String>,
    pub(crate) duration_from: Option<DurationSource>,
}

/// The field of the time stamp.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TimeSource {
    field: String,
    format: TimeFormat,
}

/// The field of the duration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DurationSource {
    field: String,
    unit: DurationUnit,
}

impl TimeSource {
    /// Parses `FIELD:FORMAT`, or a field alone.
    pub(crate) fn parse(text: &str) -> Result<TimeSource, String> {
        let (field, format) = match text.rsplit_once(':') {
            Some((field, name)) => match TimeFormat::named(name) {
                Some(format) => (field, format),
                None => {
                    return Err(format!("unknown time format `{name}`; use rfc3339, unix, unix_ms or clf"));
                }
            },
            None => (text, TimeFormat::Auto),
        };
        if field.is_empty() {
            return Err("write FIELD:FORMAT, like ts:unix".to_owned());
        }
        Ok(TimeSource { field: field.to_owned(), format })
    }
}

impl DurationSource {
    /// Parses `FIELD:UNIT`.
    pub(crate) fn parse(text: &str) -> Result<DurationSource, String> {
        let unit = text.rsplit_once(':').and_then(|(field, name)| Some((field, DurationUnit::named(name)?)));
        match unit {
            Some((field, unit)) if !field.is_empty() => Ok(DurationSource { field: field.to_owned(), unit }),
            _ => Err("write FIELD:UNIT with a unit of s, ms, us or ns, like request_time:s".to_owned()),
        }
    }
}
