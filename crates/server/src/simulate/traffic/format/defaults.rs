//! What the fields of each format mean, unless `--map` says otherwise.

use super::{FieldReader, LogFormat};
use crate::simulate::traffic::instant::{DurationUnit, TimeFormat};

/// The fields of one format that make a request. Of several names, the first that a line has counts.
#[derive(Clone, Copy, Debug)]
pub(in crate::simulate) struct Defaults {
    pub(in crate::simulate) ip: &'static [&'static str],
    pub(in crate::simulate) user: &'static [&'static str],
    pub(in crate::simulate) method: &'static [&'static str],
    pub(in crate::simulate) target: &'static [&'static str],
    pub(in crate::simulate) host: &'static [&'static str],
    pub(in crate::simulate) time: &'static [&'static str],
    pub(in crate::simulate) time_format: TimeFormat,
    /// Whether `time` is the start of the request. Most servers log its end.
    pub(in crate::simulate) time_is_start: bool,
    pub(in crate::simulate) duration: &'static [(&'static str, DurationUnit)],
}

const ACCESS: Defaults = Defaults {
    ip: &["remote_addr"],
    user: &["remote_user"],
    method: &["method"],
    target: &["request_uri"],
    host: &["host"],
    time: &["time_local"],
    time_format: TimeFormat::Clf,
    time_is_start: false,
    duration: &[("rt", DurationUnit::Seconds), ("request_time", DurationUnit::Seconds)],
};

/// Its fifth word after the agent is the duration, like `12ms`.
const TRAEFIK_TEXT: Defaults = Defaults { duration: &[("extra4", DurationUnit::Milliseconds)], ..ACCESS };

const TRAEFIK_JSON: Defaults = Defaults {
    ip: &["ClientHost", "ClientAddr"],
    user: &["ClientUsername"],
    method: &["RequestMethod"],
    target: &["RequestPath"],
    host: &["RequestHost", "RequestAddr"],
    time: &["StartUTC", "StartLocal", "time"],
    time_format: TimeFormat::Rfc3339,
    time_is_start: true,
    duration: &[("Duration", DurationUnit::Nanoseconds)],
};

const CADDY: Defaults = Defaults {
    ip: &[".request.client_ip", ".request.remote_ip"],
    user: &["user_id"],
    method: &[".request.method"],
    target: &[".request.uri"],
    host: &[".request.host"],
    time: &["ts"],
    time_format: TimeFormat::Auto,
    time_is_start: false,
    duration: &[("duration", DurationUnit::Seconds)],
};

const ENVOY: Defaults = Defaults {
    ip: &["x_forwarded_for", "downstream_remote_address", "downstream_direct_remote_address"],
    user: &[],
    method: &["method", ":method"],
    target: &["path", ":path", "x-envoy-origin-path"],
    host: &["authority", ":authority"],
    time: &["start_time"],
    time_format: TimeFormat::Auto,
    time_is_start: true,
    duration: &[("duration", DurationUnit::Milliseconds)],
};

const HAPROXY: Defaults = Defaults {
    ip: &["client_ip"],
    user: &[],
    method: &["method"],
    target: &["request_uri"],
    host: &[],
    time: &["accept_date"],
    time_format: TimeFormat::Clf,
    time_is_start: true,
    duration: &[("duration", DurationUnit::Milliseconds)],
};

/// Names that many programs use. `request_time` is in seconds in nginx, whose JSON is the most common.
const ANY: Defaults = Defaults {
    ip: &["remote_addr", "client_ip", "remote_ip", "ip", "clientip", "client"],
    user: &["user", "remote_user", "user_id"],
    method: &["method", "request_method", "http_method", "verb"],
    target: &["path", "request_uri", "uri", "url", "request_path"],
    host: &["host", "http_host", "server_name", "authority"],
    time: &["time", "timestamp", "@timestamp", "ts", "time_iso8601", "start_time", "time_local", "msec"],
    time_format: TimeFormat::Auto,
    time_is_start: false,
    duration: &[
        ("request_time", DurationUnit::Seconds),
        ("duration_ms", DurationUnit::Milliseconds),
        ("duration_s", DurationUnit::Seconds),
    ],
};

impl Defaults {
    /// Returns what the fields of this reader mean.
    pub(in crate::simulate) fn of(format: LogFormat, reader: &FieldReader) -> Defaults {
        match (format, reader) {
            (LogFormat::Traefik, FieldReader::Access(_)) => TRAEFIK_TEXT,
            (LogFormat::Traefik, _) => TRAEFIK_JSON,
            (LogFormat::Caddy, _) => CADDY,
            (LogFormat::Envoy, _) => ENVOY,
            (LogFormat::Haproxy, _) => HAPROXY,
            (LogFormat::Nginx, _) => ACCESS,
            (LogFormat::Json | LogFormat::Csv | LogFormat::Auto | LogFormat::Capture, _) => ANY,
        }
    }
}
