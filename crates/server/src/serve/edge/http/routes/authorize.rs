//! `/v1/authorize`: proxies call it before they let a request pass (auth_request, forwardAuth, forward_auth).
//!
//! The peer's address is always used. Forwarding headers (method, path, host, client address) are used only from a trusted
//! proxy. Other attributes come only from the query, because the proxy writes it and its clients do not. There is no
//! request id.

use std::borrow::Cow;
use std::net::IpAddr;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode, header};
use http_body_util::Full;
use percent_encoding::percent_decode_str;
use tollgate::core::client_address;
use tollgate::core::request::path;
use tollgate::problem::Problem;

use crate::serve::edge::auth::{Caller, Peer};
use crate::serve::edge::error::EdgeError;
use crate::serve::edge::http::error::HttpError;
use crate::serve::edge::http::event_stream::ResponseBody;
use crate::serve::edge::http::response::{self, HttpResponse, NO_STORE};
use crate::serve::edge::lossless_text::lossless_text;
use crate::serve::edge::request::{CheckRequest, NAME_BYTES_MAX, RequestError, VALUE_BYTES_MAX};
use crate::serve::gate::{Edge, Origin};
use crate::serve::server_state::ServerState;

/// Attributes of either kind in a query: it is written by hand.
const NAMED_MAX: usize = 16;
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
    let from_headers = query.read_headers(&parts.headers)?;
    let forwarded = Forwarded::read(parts, peer, state)?;
    let mut request = CheckRequest::new();
    query.describe(&from_headers, &mut request).map_err(EdgeError::from)?;
    forwarded.describe(&mut request).map_err(EdgeError::from)?;
    let request = caller.bind(request).map_err(EdgeError::from)?;
    if let Some(rule) = state.gate.unreturnable_lease(Edge::Authorize, request.attributes()) {
        return Err(HttpError::from(EdgeError::lease_without_receipt(&rule)).with_status(query.deny_status));
    }
    let origin = Origin::from_headers(Edge::Authorize, &parts.headers);
    let decision = state.gate.check(origin, request.request()).finish().await?;
    let reference = state.gate.reference(&decision);
    let mut response = match Problem::of_refusal(&decision) {
        None => HttpResponse::new(ResponseBody::Full(Full::new(Bytes::new()))),
        Some(problem) => {
            let own = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
            let document = with_reference(problem.to_json(), reference.as_deref());
            response::problem(query.deny_status.unwrap_or(own), document)
        }
    };
    response::add_reference(response.headers_mut(), reference);
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response::add_limit_headers(response.headers_mut(), state.dialect, &decision);
    Ok(response)
}

/// Adds the reference to a document, which is a JSON object.
fn with_reference(mut document: String, reference: Option<&str>) -> String {
    if let (Some(reference), Some('}')) = (reference, document.pop()) {
        document.push_str(&format!(r#","ref":"{reference}""#));
    }
    document.push('}');
    document
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
            // A proxy may copy a parameter of its client into it, of any bytes.
            let decoded: Cow<'_, [u8]> = percent_decode_str(&value).into();
            let value = lossless_text(&decoded);
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

    /// Returns the attributes whose value is in a header. An absent header sets nothing.
    fn read_headers<'a>(&'a self, headers: &'a HeaderMap) -> Result<Vec<(&'a str, Cow<'a, str>)>, HttpError> {
        let mut found = Vec::new();
        for (name, header) in self.from_header.iter().rev() {
            if let Some(value) = single(headers, header)? {
                found.push((name.as_str(), value));
            }
        }
        Ok(found)
    }

    /// Adds the attributes that the query names. Headers precede fixed values, and later ones precede earlier ones.
    fn describe<'a>(
        &'a self,
        from_headers: &'a [(&'a str, Cow<'a, str>)],
        request: &mut CheckRequest<'a>,
    ) -> Result<(), RequestError> {
        let fixed = self.fixed.iter().rev().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in from_headers.iter().map(|(name, value)| (*name, &**value)).chain(fixed) {
            if !request.has(name) {
                request.add(name, value)?;
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
    if !is_name {
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
    client: IpAddr,
    /// The block that is counted.
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
            client: client.ip(),
            ip: client.block(state.prefixes).to_string(),
        };
        if !proxies.trusts(peer.address) {
            return Ok(forwarded);
        }
        if let Some(method) = one_of(headers, &METHODS)? {
            forwarded.method = method;
        }
        if let Some(target) = one_of(headers, &TARGETS)? {
            if !path::is_target(&target) {
                return Err(unreadable(&TARGETS[0]));
            }
            // Rules do not see the query. It is cut here, because few paths are then changed later.
            forwarded.path = Some(match target {
                Cow::Borrowed(target) => Cow::Borrowed(without_query(target)),
                Cow::Owned(target) => Cow::Owned(without_query(&target).to_owned()),
            });
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
                if name == "ip" {
                    request.set_client_address(self.client);
                }
            }
        }
        Ok(())
    }
}

fn without_query(target: &str) -> &str {
    target.split(['?', '#']).next().unwrap_or(target)
}

/// The value of the header that is present. If several are and they differ, one of them comes from the client: a proxy
/// passes unknown headers on.
fn one_of<'h>(headers: &'h HeaderMap, names: &[HeaderName]) -> Result<Option<Cow<'h, str>>, HttpError> {
    let mut found: Option<Cow<'h, str>> = None;
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

/// The value of a header that may occur once. It may have any bytes.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<Cow<'h, str>>, HttpError> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    if second.is_some() {
        return Err(HttpError::bad_request(
            "header-twice",
            format!("{name} occurs more than once; send it once"),
        ));
    }
    let Some(value) = first else { return Ok(None) };
    let value = lossless_text(value.as_bytes());
    if value.len() <= VALUE_BYTES_MAX { Ok(Some(value)) } else { Err(unreadable(name)) }
}

fn unreadable(name: &HeaderName) -> HttpError {
    HttpError::bad_request(
        "bad-header",
        format!("invalid {name}; send a valid value of at most {VALUE_BYTES_MAX} bytes"),
    )
}
