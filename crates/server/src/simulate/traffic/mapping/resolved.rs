//! A mapping whose fields are slots of one log's reader.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use percent_encoding::percent_decode_str;
use regex::Regex;
use tollgate::core::EXACT_MAX;
use tollgate::core::request::client_address::Prefixes;

use super::{Mapping, Source};
use crate::failure::Failure;
use crate::serve::edge::lossless_text::lossless_text;
use crate::serve::edge::request::VALUE_BYTES_MAX;
use crate::simulate::format::{Defaults, FieldReader, LogFormat, Skip, Values};
use crate::simulate::traffic::instant::{DurationUnit, TimeParser, duration_us};
use crate::simulate::traffic::records::{Batch, Facts, Names};

/// Turns the fields of a line into a request.
#[derive(Clone, Debug)]
pub(in crate::simulate) struct ResolvedMapping {
    attributes: Vec<(u16, Value)>,
    target: Vec<usize>,
    time: Vec<usize>,
    parser: TimeParser,
    time_is_start: bool,
    duration: Vec<(usize, DurationUnit)>,
    cost: Option<usize>,
    prefixes: Prefixes,
}

/// Where the value of an attribute comes from. Of several slots, the first with a value counts.
#[derive(Clone, Debug)]
enum Value {
    Address(Vec<usize>),
    Path,
    Host(Vec<usize>),
    Slots(Vec<usize>),
    Query(String),
    Constant(String),
    Pattern { of: Box<Value>, pattern: Regex },
}

impl ResolvedMapping {
    /// Finds the fields of a mapping and of the defaults of the format. Attributes that no rule reads are left out.
    pub(in crate::simulate) fn new(
        mapping: &Mapping,
        format: LogFormat,
        reader: &mut FieldReader,
        names: &Names,
    ) -> Result<ResolvedMapping, Failure> {
        let defaults = Defaults::of(format, reader);
        let mut slots =
            |fields: &[&str]| fields.iter().filter_map(|field| reader.slot(field)).collect::<Vec<_>>();
        let ip = slots(defaults.ip);
        let default_values = [
            ("host", Value::Host(slots(defaults.host))),
            ("ip", Value::Address(ip)),
            ("method", Value::Slots(slots(defaults.method))),
            ("path", Value::Path),
            ("user", Value::Slots(slots(defaults.user))),
        ];
        let target = slots(defaults.target);
        let (time, time_format) = match &mapping.time {
            Some(time) => (vec![required(reader, &time.field)?], time.format),
            None => (slots(defaults.time), defaults.time_format),
        };
        if time.is_empty() {
            let hint =
                format!("name the field with --time FIELD:FORMAT; the fields are {}", fields_of(reader));
            return Err(Failure::new("no field with the time of a request", hint));
        }
        let duration = match &mapping.duration_from {
            Some(duration) => vec![(required(reader, &duration.field)?, duration.unit)],
            None => {
                let known = defaults.duration.iter();
                known.filter_map(|&(field, unit)| Some((reader.slot(field)?, unit))).collect()
            }
        };
        let cost = mapping.cost_from.as_ref().map(|field| required(reader, field)).transpose()?;
        let mut attributes: Vec<(u16, Value)> = Vec::new();
        for (number, name) in names.iter().enumerate() {
            let mapped = mapping.attributes.iter().rev().find(|mapped| mapped.attribute == *name);
            let value = match mapped {
                Some(mapped) => value_of(&mapped.source, name, &default_values, reader)?,
                None => match default_values.iter().find(|(known, _)| known == name) {
                    Some((_, value)) => value.clone(),
                    None => continue,
                },
            };
            attributes.push((number as u16, value));
        }
        Ok(ResolvedMapping {
            attributes,
            target,
            time,
            parser: TimeParser::new(time_format),
            time_is_start: defaults.time_is_start && mapping.time.is_none(),
            duration,
            cost,
            prefixes: Prefixes::default(),
        })
    }

    /// Adds the request of a line to the batch.
    #[inline]
    pub(in crate::simulate) fn add(&mut self, values: &Values<'_>, batch: &mut Batch) -> Result<(), Skip> {
        let stamp = first(values, &self.time).and_then(|text| self.parser.parse(text));
        let stamp = stamp.ok_or(Skip::Unreadable("no time, or an invalid one"))?;
        let duration = self.duration.iter().find_map(|&(slot, unit)| {
            let text = values.get(slot)?.as_deref()?;
            duration_us(text.trim_end_matches(|c: char| c.is_ascii_alphabetic()), unit)
        });
        let cost = match self.cost {
            None => None,
            Some(slot) => {
                let text = values.get(slot).and_then(Option::as_deref);
                let cost = text.map(|text| text.parse().ok().filter(|&cost: &u64| cost <= EXACT_MAX));
                match cost {
                    Some(None) => return Err(Skip::Unreadable("an invalid cost")),
                    Some(cost) => cost,
                    None => None,
                }
            }
        };
        let target = first(values, &self.target);
        for (name, value) in &self.attributes {
            if let Some(text) = value.of(values, target, self.prefixes)
                && !text.is_empty()
            {
                if text.len() > VALUE_BYTES_MAX {
                    return Err(Skip::Unreadable("a value longer than a server accepts"));
                }
                batch.push_value(*name, &text);
            }
        }
        let at = stamp.at;
        batch.finish(Facts { at, whole_second: stamp.whole_second, duration_us: duration, cost });
        Ok(())
    }

    /// Whether the time of a request is that of its start.
    pub(in crate::simulate) const fn time_is_start(&self) -> bool {
        self.time_is_start
    }
}

/// The slot of a field that the user named.
fn required(reader: &mut FieldReader, field: &str) -> Result<usize, Failure> {
    let hint = || format!("the fields are {}", fields_of(reader));
    let hint = hint();
    reader.slot(field).ok_or_else(|| Failure::new(format!("unknown field `{field}`"), hint))
}

fn fields_of(reader: &FieldReader) -> String {
    let names = reader.field_names();
    if names.is_empty() {
        "members like `ts` and paths like `.request.uri`".to_owned()
    } else {
        names.join(", ")
    }
}

fn value_of(
    source: &Source,
    attribute: &str,
    defaults: &[(&str, Value)],
    reader: &mut FieldReader,
) -> Result<Value, Failure> {
    Ok(match source {
        Source::Constant(value) => Value::Constant(value.clone()),
        Source::Query(key) => Value::Query(key.clone()),
        Source::Field(field) => {
            let slot = vec![required(reader, field)?];
            match attribute {
                "ip" => Value::Address(slot),
                "host" => Value::Host(slot),
                _ => Value::Slots(slot),
            }
        }
        Source::Pattern { of, pattern } => {
            let default = defaults.iter().find(|(known, _)| known == of).map(|(_, value)| value.clone());
            let of = match default {
                Some(value) => value,
                None => Value::Slots(vec![required(reader, of)?]),
            };
            Value::Pattern { of: Box::new(of), pattern: pattern.clone() }
        }
    })
}

impl Value {
    #[inline]
    fn of<'v>(
        &'v self,
        values: &'v Values<'_>,
        target: Option<&'v str>,
        prefixes: Prefixes,
    ) -> Option<Cow<'v, str>> {
        match self {
            Value::Address(slots) => first(values, slots).map(|text| address_block(text, prefixes)),
            Value::Path => target.map(|target| Cow::Borrowed(without_query(target))),
            Value::Host(slots) => first(values, slots).map(host),
            Value::Slots(slots) => first(values, slots).map(Cow::Borrowed),
            Value::Query(key) => target.and_then(|target| query_value(target, key)),
            Value::Constant(value) => Some(Cow::Borrowed(value)),
            Value::Pattern { of, pattern } => {
                let text = of.of(values, target, prefixes)?;
                let found = pattern.captures(&text)?;
                let group = found.get(1).or_else(|| found.get(0))?;
                Some(Cow::Owned(group.as_str().to_owned()))
            }
        }
    }
}

#[inline]
fn first<'v>(values: &'v Values<'_>, slots: &[usize]) -> Option<&'v str> {
    slots.iter().find_map(|&slot| values.get(slot)?.as_deref())
}

/// The block of addresses that a server would count. Text without an address is taken as it is.
#[inline]
fn address_block(text: &str, prefixes: Prefixes) -> Cow<'_, str> {
    // Proxies append the address of their client at the right end.
    let text = text.rsplit(',').next().unwrap_or(text).trim();
    let address = text.parse::<IpAddr>().ok().or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    match address {
        None => Cow::Borrowed(text),
        // The usual case: a whole IPv4 address, in its canonical form already.
        Some(IpAddr::V4(address)) if prefixes == Prefixes::default() && !text.contains(':') => {
            debug_assert_eq!(prefixes.block(address.into()).to_string(), text);
            Cow::Borrowed(text)
        }
        Some(address) => Cow::Owned(prefixes.block(address).to_string()),
    }
}

#[inline]
fn without_query(target: &str) -> &str {
    &target[..memchr::memchr2(b'?', b'#', target.as_bytes()).unwrap_or(target.len())]
}

/// The name of a host without its port, in lower case, as `/v1/authorize` takes it.
fn host(text: &str) -> Cow<'_, str> {
    let name = match text.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => text,
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

fn query_value<'t>(target: &'t str, key: &str) -> Option<Cow<'t, str>> {
    let query = target.split_once('?')?.1;
    let query = query.split('#').next().unwrap_or(query);
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let (_, value) = pairs.into_iter().find(|(name, _)| *name == key)?;
    let value = if value.contains('+') { Cow::Owned(value.replace('+', " ")) } else { Cow::Borrowed(value) };
    if !value.contains('%') {
        return Some(value);
    }
    let decoded: Cow<'_, [u8]> = percent_decode_str(&value).into();
    Some(Cow::Owned(lossless_text(&decoded).into_owned()))
}
