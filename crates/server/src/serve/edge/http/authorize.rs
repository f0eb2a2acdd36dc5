//! `/v1/authorize`: proxies call it before they let a request pass (auth_request, forwardAuth, forward_auth).
//!
//! The peer's address is always used. Forwarding headers (method, path, host, client address) are used only from a trusted
//! proxy. Other attributes come only from the query, because the proxy writes it and its clients do not. There is no
//! request id.

use std::borrow::Cow;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode, header};
use http_body_util::Full;
use percent_encoding::percent_decode_str;
use tollgate::core::client_address;
use tollgate::problem::Problem;

use super::error::HttpError;
use super::response::{self, HttpResponse, NO_STORE};
use super::target;
use crate::serve::edge::auth::{Caller, Peer};
use crate::serve::edge::error::EdgeError;
use crate::serve::edge::request::{CheckRequest, NAME_BYTES_MAX, RequestError, VALUE_BYTES_MAX};
use crate::serve::gate::{Edge, Origin};
use crate::serve::server_state::ServerState;

/// Attributes of either kind in a query, and bytes of a value in it: it is written by hand.
const NAMED_MAX: usize = 16;
const GIVEN_MAX: usize = 200;
/// The headers in which proxies forward the request line. Proxies use one name or the other.
const METHODS: [HeaderName; 2] =
    [HeaderName::from_static("x-forwarded-method"), HeaderName::from_static("x-original-method")];
const TARGETS: [HeaderName; 2] =
    [HeaderName::from_static("x-forwarded-uri"), HeaderName::from_static("x-original-uri")];
const HOSTS: [HeaderName; 1] = [HeaderName::from_static("x-forwarded-host")];

pub(super) async fn authorize(
    parts: &Parts,
    peer: &Peer,
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    // A page of another site can make a browser send this without a preflight request. A proxy passes the field on.
    let is_cross_site = parts.headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
    if is_cross_site && !state.proxies.trusts(peer.address) {
        let detail = "a browser sent this for a page of another site; send it from a proxy, and add the proxy to \
                      trusted_proxies";
        return Err(HttpError::new(StatusCode::FORBIDDEN, "cross-site", detail));
    }
    let query = Query::read(parts.uri.query().unwrap_or_default())?;
    let forwarded = Forwarded::read(parts, peer, state)?;
    let mut request = CheckRequest::new();
    query.describe(&parts.headers, &mut request)?;
    forwarded.describe(&mut request).map_err(EdgeError::from)?;
    let request = caller.bind(request).map_err(EdgeError::from)?;
    if let Some(rule) = state.gate.unreturnable_lease(Edge::Authorize, request.attributes()) {
        return Err(HttpError::from(EdgeError::lease_without_receipt(&rule)).with_status(query.deny_status));
    }
    let origin = Origin::from_headers(Edge::Authorize, &parts.headers);
    let decision = state.gate.check(origin, request.request()).finish().await?;
    let mut response = match Problem::of_refusal(&decision) {
        None => HttpResponse::new(Full::new(Bytes::new())),
        Some(problem) => {
            let own = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
            response::problem(query.deny_status.unwrap_or(own), problem.to_json())
        }
    };
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response::add_limit_headers(response.headers_mut(), state.dialect, &decision);
    Ok(response)
}

/// The settings in the query.
#[derive(Default)]
struct Query {
    /// The status of every refusal, for proxies that support few.
    deny_status: Option<StatusCode>,
    /// Attributes with their values, and attributes whose value is in a header of the request.
    fixed: Vec<(String, String)>,
    from_header: Vec<(String, HeaderName)>,
}

impl Query {
    fn read(query: &str) -> Result<Query, HttpError> {
        let mut read = Query::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            // In a query, a plus is a space.
            let value = value.replace('+', " ");
            let value = percent_decode_str(&value).decode_utf8().map_err(|_| unknown(pair))?;
            match key {
                "deny_status" if read.deny_status.is_none() => read.deny_status = Some(deny_status(&value)?),
                "attribute" => read.fixed.push(named(&value)?),
                "header" => {
                    let (name, header) = named(&value)?;
                    let header = HeaderName::try_from(header).map_err(|_| unknown(pair))?;
                    read.from_header.push((name, header));
                }
                _ => return Err(unknown(pair)),
            }
        }
        if read.fixed.len().max(read.from_header.len()) > NAMED_MAX {
            let detail = format!("the query has more than {NAMED_MAX} attributes of a kind; use fewer");
            return Err(HttpError::bad_request("bad-query", detail));
        }
        Ok(read)
    }

    /// Adds the attributes that the query names. Headers precede fixed values, and later ones precede earlier ones. An
    /// absent header sets nothing.
    fn describe<'a>(
        &'a self,
        headers: &'a HeaderMap,
        request: &mut CheckRequest<'a>,
    ) -> Result<(), HttpError> {
        for (name, header) in self.from_header.iter().rev() {
            if let Some(value) = single(headers, header)?.filter(|_| !request.has(name)) {
                request.add(name, value).map_err(EdgeError::from)?;
            }
        }
        for (name, value) in self.fixed.iter().rev() {
            if !request.has(name) {
                request.add(name, value).map_err(EdgeError::from)?;
            }
        }
        Ok(())
    }
}

/// `name:value`.
fn named(pair: &str) -> Result<(String, String), HttpError> {
    let (name, value) = pair.split_once(':').ok_or_else(|| unknown(pair))?;
    let is_name =
        (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    let is_value = value.len() <= GIVEN_MAX && value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !is_name || !is_value {
        return Err(unknown(pair));
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn deny_status(value: &str) -> Result<StatusCode, HttpError> {
    let status = value.parse().ok().filter(|status| (401..=499).contains(status));
    status
        .and_then(|status: u16| StatusCode::from_u16(status).ok())
        .ok_or_else(|| HttpError::bad_request("bad-query", "deny_status must be a number from 401 to 499"))
}

fn unknown(part: &str) -> HttpError {
    let known = "deny_status=403, attribute=NAME:VALUE, header=NAME:HEADER";
    HttpError::bad_request("bad-query", format!("unknown query parameter {part:?}; known are {known}"))
}

/// The request that the proxy received, as far as its headers are trusted.
struct Forwarded<'r> {
    method: Cow<'r, str>,
    path: Option<Cow<'r, str>>,
    host: Option<String>,
    ip: String,
}

impl<'r> Forwarded<'r> {
    fn read(parts: &'r Parts, peer: &Peer, state: &ServerState) -> Result<Forwarded<'r>, HttpError> {
        let Parts { headers, method, .. } = parts;
        let proxies = &state.proxies;
        let values: Vec<&[u8]> = match proxies.header().name() {
            Some(name) => headers.get_all(name).iter().map(|value| value.as_bytes()).collect(),
            None => Vec::new(),
        };
        let client = client_address(peer.address, &values, proxies);
        let mut forwarded = Forwarded {
            method: Cow::Borrowed(method.as_str()),
            path: None,
            host: None,
            ip: client.block(state.prefixes).to_string(),
        };
        if !proxies.trusts(peer.address) {
            return Ok(forwarded);
        }
        if let Some(method) = one_of(headers, &METHODS)? {
            forwarded.method = Cow::Borrowed(method);
        }
        if let Some(target) = one_of(headers, &TARGETS)? {
            forwarded.path = Some(target::path(target).ok_or_else(|| unreadable(&TARGETS[0]))?);
        }
        if let Some(host) = one_of(headers, &HOSTS)? {
            let authority: http::uri::Authority = host.parse().map_err(|_| unreadable(&HOSTS[0]))?;
            // A trailing dot names the same host.
            let host = authority.host();
            forwarded.host = Some(host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase());
        }
        Ok(forwarded)
    }

    /// Adds what the query has not set already.
    fn describe<'a>(&'a self, request: &mut CheckRequest<'a>) -> Result<(), RequestError> {
        let attributes = [
            ("method", Some(&*self.method)),
            ("ip", Some(&*self.ip)),
            ("path", self.path.as_deref()),
            ("host", self.host.as_deref()),
        ];
        for (name, value) in attributes {
            if let Some(value) = value.filter(|_| !request.has(name)) {
                request.add(name, value)?;
            }
        }
        Ok(())
    }
}

/// The value of the header that is present. If several are and they differ, one of them comes from the client: a proxy
/// passes unknown headers on.
fn one_of<'h>(headers: &'h HeaderMap, names: &[HeaderName]) -> Result<Option<&'h str>, HttpError> {
    let mut found: Option<&str> = None;
    for name in names {
        let Some(value) = single(headers, name)? else { continue };
        if found.is_some_and(|other| other != value) {
            return Err(HttpError::bad_request(
                "forwarded-twice",
                format!("{} and {} differ; let the proxy remove the one it does not set", names[0], name),
            ));
        }
        found = Some(value);
    }
    Ok(found)
}

/// The value of a header that may occur once.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, HttpError> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    if second.is_some() {
        return Err(HttpError::bad_request(
            "header-twice",
            format!("{name} occurs more than once; send it once"),
        ));
    }
    let Some(value) = first else { return Ok(None) };
    let value = std::str::from_utf8(value.as_bytes()).ok().filter(|value| value.len() <= VALUE_BYTES_MAX);
    value.map(Some).ok_or_else(|| unreadable(name))
}

fn unreadable(name: &HeaderName) -> HttpError {
    HttpError::bad_request(
        "bad-header",
        format!("invalid {name}; send text of at most {VALUE_BYTES_MAX} bytes"),
    )
}
