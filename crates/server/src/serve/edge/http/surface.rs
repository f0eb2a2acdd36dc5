//! What a listener serves over HTTP, and to which hosts and origins.
//!
//! A page of another site can make a browser send requests to addresses that only this machine reaches, and can point its
//! own name at them. Listeners on loopback addresses and the control listener therefore check `Host` and `Origin`.

use std::net::{IpAddr, SocketAddr};

use http::request::Parts;
use http::{HeaderMap, StatusCode, header};

use super::error::HttpError;
use super::route::{Route, RouteKind};

/// What one listener serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Surface {
    checks: bool,
    control: bool,
    /// Whether `Host` and `Origin` are checked.
    guarded: bool,
}

impl Surface {
    /// The listener `admin`.
    pub(crate) const CONTROL: Surface = Surface { checks: false, control: true, guarded: true };

    /// The listener `http` on this address.
    pub(crate) fn of_http(address: SocketAddr, control: bool) -> Surface {
        let guarded = is_loopback(address.ip());
        Surface { checks: true, control, guarded }
    }

    /// Whether the route is served here, to the host and origin of this request.
    pub(super) fn admit(
        self,
        route: Route,
        parts: &Parts,
        allowed_hosts: &[String],
    ) -> Result<(), HttpError> {
        match route.kind() {
            RouteKind::Check if !self.checks => Err(HttpError::not_here("http")),
            RouteKind::Control if !self.control => Err(HttpError::not_here("admin")),
            _ if self.guarded && route.is_guarded() => check_host_and_origin(parts, allowed_hosts),
            _ => Ok(()),
        }
    }
}

pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn check_host_and_origin(parts: &Parts, allowed_hosts: &[String]) -> Result<(), HttpError> {
    let headers = &parts.headers;
    let host = single(headers, &header::HOST);
    // A target in absolute form names the host too.
    let target = parts.uri.authority().map(|authority| authority.as_str());
    let are_known = host.is_some_and(|host| is_known(host, allowed_hosts))
        && target.is_none_or(|target| is_known(target, allowed_hosts));
    if !are_known {
        let detail = "unknown host; use localhost or a loopback address, or add the host to allowed_hosts";
        return Err(HttpError::new(StatusCode::MISDIRECTED_REQUEST, "unknown-host", detail));
    }
    let is_foreign = headers.contains_key(header::ORIGIN)
        && !single(headers, &header::ORIGIN)
            .and_then(|origin| origin.split_once("://"))
            .is_some_and(|(_, authority)| host.is_some_and(|host| host.eq_ignore_ascii_case(authority)));
    let is_cross_site =
        headers.get_all("sec-fetch-site").iter().any(|site| site != "same-origin" && site != "none");
    if is_foreign || is_cross_site {
        let detail = "a browser sent this for a page of another origin; send it from a page of this server, or not \
                      from a browser";
        return Err(HttpError::new(StatusCode::FORBIDDEN, "cross-origin", detail));
    }
    Ok(())
}

/// The value of a field that occurs once.
fn single<'h>(headers: &'h HeaderMap, name: &header::HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Whether an authority names this machine or an allowed host, on any port.
fn is_known(authority: &str, allowed_hosts: &[String]) -> bool {
    let host = host_of(authority);
    let host = host.strip_suffix('.').unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(is_loopback)
        || allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
}

/// The host without the port. An IPv6 address loses its brackets.
fn host_of(authority: &str) -> &str {
    if let Some((address, _)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_of(surface: Surface, route: Route, fields: &[(&str, &str)]) -> u16 {
        let mut request = http::Request::builder().uri("/");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).expect("it is valid").into_parts();
        let allowed = ["tollgate.internal".to_owned(), "10.0.0.5".to_owned()];
        match surface.admit(route, &parts, &allowed) {
            Ok(()) => 200,
            Err(error) => error.into_response().status().as_u16(),
        }
    }

    fn on_loopback() -> Surface {
        Surface::of_http(SocketAddr::from(([127, 0, 0, 1], 80)), true)
    }

    fn on_public() -> Surface {
        Surface::of_http(SocketAddr::from(([0, 0, 0, 0], 80)), false)
    }

    #[test]
    fn only_known_hosts_are_served_on_loopback_and_control_listeners() {
        for (host, status) in [
            ("localhost", 200),
            ("LocalHost:8080", 200),
            ("localhost.", 200),
            ("127.0.0.1:8080", 200),
            ("127.8.9.1", 200),
            ("[::1]:8080", 200),
            ("[::ffff:127.0.0.1]", 200),
            ("tollgate.internal:9000", 200),
            ("Tollgate.Internal", 200),
            ("10.0.0.5:9000", 200),
            ("10.0.0.6:9000", 421),
            ("evil.example", 421),
            ("localhost.evil.example", 421),
            ("localhost@evil.example", 421),
            ("evil.example:127.0.0.1", 421),
            ("", 421),
        ] {
            for surface in [on_loopback(), Surface::CONTROL] {
                assert_eq!(status_of(surface, Route::Rules, &[("host", host)]), status, "{host}");
            }
            assert_eq!(status_of(on_public(), Route::Rules, &[("host", host)]), 200, "{host}");
            // Gateways pass the host of their clients on, and probes name the machine.
            for route in [Route::Authorize, Route::Health, Route::Ready] {
                assert_eq!(status_of(on_loopback(), route, &[("host", host)]), 200, "{host}");
            }
        }
        assert_eq!(status_of(on_loopback(), Route::Rules, &[]), 421, "no host");
        let twice = [("host", "localhost"), ("host", "localhost")];
        assert_eq!(status_of(on_loopback(), Route::Rules, &twice), 421, "two hosts");
    }

    #[test]
    fn requests_of_pages_of_other_origins_are_refused() {
        const HOST: (&str, &str) = ("host", "localhost:8080");
        for (field, status) in [
            (("origin", "http://localhost:8080"), 200),
            (("origin", "https://LOCALHOST:8080"), 200),
            (("origin", "http://localhost:3000"), 403),
            (("origin", "http://evil.example"), 403),
            (("origin", "null"), 403),
            (("origin", ""), 403),
            (("sec-fetch-site", "same-origin"), 200),
            (("sec-fetch-site", "none"), 200),
            (("sec-fetch-site", "same-site"), 403),
            (("sec-fetch-site", "cross-site"), 403),
        ] {
            assert_eq!(status_of(on_loopback(), Route::Check, &[HOST, field]), status, "{field:?}");
            assert_eq!(status_of(Surface::CONTROL, Route::Reset, &[HOST, field]), status, "{field:?}");
            assert_eq!(status_of(on_public(), Route::Check, &[HOST, field]), 200, "{field:?}");
            assert_eq!(status_of(on_loopback(), Route::Authorize, &[HOST, field]), 200, "{field:?}");
        }
    }

    #[test]
    fn control_routes_are_never_served_on_a_public_listener() {
        const HOST: [(&str, &str); 1] = [("host", "localhost")];
        let page = Route::of("/").expect("the dashboard");
        for route in [Route::Reset, Route::History, Route::Events, page] {
            assert_eq!(status_of(on_public(), route, &HOST), 404, "{route:?}");
            assert_eq!(status_of(on_loopback(), route, &HOST), 200, "{route:?}");
            assert_eq!(status_of(Surface::CONTROL, route, &HOST), 200, "{route:?}");
        }
        for route in [Route::Check, Route::Refund, Route::Report, Route::Authorize] {
            assert_eq!(status_of(Surface::CONTROL, route, &HOST), 404, "{route:?}");
        }
        for route in [Route::Metrics, Route::Health, Route::Ready, Route::Rules, Route::Explain] {
            for surface in [on_public(), on_loopback(), Surface::CONTROL] {
                assert_eq!(status_of(surface, route, &HOST), 200, "{route:?}");
            }
        }
    }
}
