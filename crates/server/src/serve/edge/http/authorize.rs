//! `/v1/authorize`: what proxies ask before they let a request through (auth_request, forwardAuth, forward_auth).
//!
//! What is believed: the peer's address always; what forwarding headers say of method, path, host and client only from a
//! trusted proxy; further attributes only as the query names them, because a proxy writes the query and its clients do
//! not. A request id is never taken from here.

use std::borrow::Cow;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode, header};
use http_body_util::Full;
use percent_encoding::percent_decode_str;
use tollgate::Attributes;
use tollgate::core::client_address;
use tollgate::core::rules::Request;
use tollgate::problem::Problem;

use super::answer::{self, Answer, NO_STORE};
use super::check;
use super::complaint::Complaint;
use super::question::NAME_MAX;
use super::target;
use crate::serve::gate::Edge;
use crate::serve::shared::{Peer, Shared};

/// The most attributes that a query names of either kind, and the most characters it gives them: it is written by hand.
const NAMED_MAX: usize = 16;
/// Of a header that is used: URLs and tokens are long.
const HEADER_MAX: usize = 16 * 1024;
const GIVEN_MAX: usize = 200;
/// The headers in which proxies say what they were asked, in the words of one family of them and of another.
const METHODS: [HeaderName; 2] =
    [HeaderName::from_static("x-forwarded-method"), HeaderName::from_static("x-original-method")];
const TARGETS: [HeaderName; 2] =
    [HeaderName::from_static("x-forwarded-uri"), HeaderName::from_static("x-original-uri")];
const HOSTS: [HeaderName; 1] = [HeaderName::from_static("x-forwarded-host")];

pub(super) async fn authorize(parts: &Parts, peer: Peer, shared: &Shared) -> Result<Answer, Complaint> {
    // A page of another site can make a browser ask this without being asked first. A proxy hands on what browsers say.
    let of_page = parts.headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
    if of_page && !shared.proxies.trusts(peer.address) {
        let detail = "a browser asks this for a page of another site; ask from a proxy, and name it in trusted_proxies";
        return Err(Complaint::new(StatusCode::FORBIDDEN, "cross-site", detail));
    }
    let asked = Asked::read(parts.uri.query().unwrap_or_default())?;
    let forwarded = Forwarded::read(parts, peer, shared)?;
    let mut attributes = forwarded.attributes();
    asked.describe(&parts.headers, &mut attributes)?;
    let (origin, request) = (check::origin(Edge::Authorize, &parts.headers), Request::new(&attributes));
    let decision = match shared.gate.check_now(origin, request) {
        Some(decided) => decided,
        None => shared.gate.check(origin, request).await,
    }?;
    let mut answer = match Problem::of_refusal(&decision) {
        None => Answer::new(Full::new(Bytes::new())),
        Some(problem) => {
            let own = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
            answer::problem(asked.deny_status.unwrap_or(own), problem.to_json())
        }
    };
    answer.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    answer::tell(answer.headers_mut(), shared.dialect, &decision);
    Ok(answer)
}

/// What the query says.
#[derive(Default)]
struct Asked {
    /// The status of every refusal, for proxies that understand few.
    deny_status: Option<StatusCode>,
    /// Attributes as they stand here, and those that stand in a header of the request.
    fixed: Vec<(String, String)>,
    from_header: Vec<(String, HeaderName)>,
}

impl Asked {
    fn read(query: &str) -> Result<Asked, Complaint> {
        let mut asked = Asked::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            // A plus is a blank in a query.
            let value = value.replace('+', " ");
            let value = percent_decode_str(&value).decode_utf8().map_err(|_| unknown(pair))?;
            match key {
                "deny_status" if asked.deny_status.is_none() => {
                    asked.deny_status = Some(deny_status(&value)?)
                }
                "attribute" => asked.fixed.push(named(&value)?),
                "header" => {
                    let (name, header) = named(&value)?;
                    let header = HeaderName::try_from(header).map_err(|_| unknown(pair))?;
                    asked.from_header.push((name, header));
                }
                _ => return Err(unknown(pair)),
            }
        }
        if asked.fixed.len().max(asked.from_header.len()) > NAMED_MAX {
            let detail = format!("the query names more than {NAMED_MAX} attributes of a kind; name fewer");
            return Err(Complaint::bad("bad-query", detail));
        }
        Ok(asked)
    }

    /// Adds what the query names. A header that is not there sets nothing.
    fn describe<'a>(
        &'a self,
        headers: &'a HeaderMap,
        attributes: &mut Attributes<'a>,
    ) -> Result<(), Complaint> {
        self.fixed.iter().for_each(|(name, value)| attributes.set(name, value));
        for (name, header) in &self.from_header {
            if let Some(value) = only(headers, header)? {
                attributes.set(name, value);
            }
        }
        Ok(())
    }
}

/// `name:value`.
fn named(pair: &str) -> Result<(String, String), Complaint> {
    let (name, value) = pair.split_once(':').ok_or_else(|| unknown(pair))?;
    let is_name = (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    let is_value = value.len() <= GIVEN_MAX && value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !is_name || !is_value {
        return Err(unknown(pair));
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn deny_status(value: &str) -> Result<StatusCode, Complaint> {
    let status = value.parse().ok().filter(|status| (401..=499).contains(status));
    status
        .and_then(|status: u16| StatusCode::from_u16(status).ok())
        .ok_or_else(|| Complaint::bad("bad-query", "deny_status must be a number from 401 to 499"))
}

fn unknown(part: &str) -> Complaint {
    let known = "deny_status=403, attribute=NAME:VALUE, header=NAME:HEADER";
    Complaint::bad("bad-query", format!("{part:?} is not known in the query; known are {known}"))
}

/// What the proxy was asked, if it is believed.
struct Forwarded<'r> {
    method: Cow<'r, str>,
    path: Option<Cow<'r, str>>,
    host: Option<String>,
    ip: String,
}

impl<'r> Forwarded<'r> {
    fn read(parts: &'r Parts, peer: Peer, shared: &Shared) -> Result<Forwarded<'r>, Complaint> {
        let Parts { headers, method, .. } = parts;
        let proxies = &shared.proxies;
        let values: Vec<&[u8]> = match proxies.header().name() {
            Some(name) => headers.get_all(name).iter().map(|value| value.as_bytes()).collect(),
            None => Vec::new(),
        };
        let client = client_address(peer.address, &values, proxies);
        let mut forwarded = Forwarded {
            method: Cow::Borrowed(method.as_str()),
            path: None,
            host: None,
            ip: client.block(shared.prefixes).to_string(),
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
            // A dot at the end names the same host.
            let host = authority.host();
            forwarded.host = Some(host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase());
        }
        Ok(forwarded)
    }

    fn attributes(&self) -> Attributes<'_> {
        let mut attributes = Attributes::from([("method", &*self.method), ("ip", &self.ip)]);
        if let Some(path) = &self.path {
            attributes.set("path", path);
        }
        if let Some(host) = &self.host {
            attributes.set("host", host);
        }
        attributes
    }
}

/// The value of the one of these headers that is there. If several are and differ, one of them is the client's: a proxy
/// hands on what it does not know.
fn one_of<'h>(headers: &'h HeaderMap, names: &[HeaderName]) -> Result<Option<&'h str>, Complaint> {
    let mut found: Option<&str> = None;
    for name in names {
        let Some(value) = only(headers, name)? else { continue };
        if found.is_some_and(|other| other != value) {
            return Err(Complaint::bad(
                "forwarded-twice",
                format!("{} and {} differ; let the proxy remove the one it does not set", names[0], name),
            ));
        }
        found = Some(value);
    }
    Ok(found)
}

/// The value of a header that may be there once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Complaint> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    if second.is_some() {
        return Err(Complaint::bad("header-twice", format!("{name} is there more than once; send it once")));
    }
    let Some(value) = first else { return Ok(None) };
    let value = std::str::from_utf8(value.as_bytes()).ok().filter(|value| value.len() <= HEADER_MAX);
    value.map(Some).ok_or_else(|| unreadable(name))
}

fn unreadable(name: &HeaderName) -> Complaint {
    Complaint::bad("bad-header", format!("{name} cannot be read; send text of at most {HEADER_MAX} bytes"))
}
