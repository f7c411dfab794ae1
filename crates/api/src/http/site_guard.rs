//! Protection against other web sites. It refuses unknown host names (DNS rebinding) and cross-site changes by
//! browsers. The server sends no CORS headers, so other sites cannot read responses either.

use super::{fallback::openapi_path, route_origins::RouteOrigins};
use crate::{error::ApiError, http::HttpState};
use actix_web::{
    Error, HttpRequest, ResponseError as _,
    body::{EitherBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method,
        header::{self, HeaderMap, HeaderName},
    },
    middleware::Next,
    web,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use url::Url;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Rules for the host names that the server serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostRules {
    /// Loopback names and addresses, and these additional names.
    LoopbackAnd(Vec<HostName>),
    /// As [`Self::LoopbackAnd`], except that the paths of probes accept every host, because load balancers choose the
    /// host of a probe.
    LoopbackAndProbes(Vec<HostName>),
    /// Every host, for tests of other rules.
    #[cfg(test)]
    AnyHost,
}

/// The paths of probes. Their responses depend on no caller and change nothing.
const PROBE_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// The scheme of the server's pages. It is a setting, because a proxy may terminate TLS, and clients can forge the
/// headers that report the scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// Without TLS.
    Http,
    /// With TLS.
    Https,
}

impl Scheme {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A host name or address in lower case, with or without a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostName {
    name: String,
    port: Option<u16>,
}

impl HostName {
    /// Parses `name`, `name:port`, `[address]` or `[address]:port`; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, port) = match text.strip_prefix('[') {
            Some(bracketed) => {
                let (address, port) = bracketed.split_once(']')?;
                let address: Ipv6Addr = address.parse().ok()?;
                let port = if port.is_empty() { None } else { Some(port.strip_prefix(':')?) };
                (format!("[{address}]"), port)
            }
            None => match text.split_once(':') {
                Some((name, port)) => (name.to_ascii_lowercase(), Some(port)),
                None => (text.to_ascii_lowercase(), None),
            },
        };
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        let is_valid = name.starts_with('[') || (!name.is_empty() && name.bytes().all(is_name_byte));
        let port = match port {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(digits.parse().ok()?),
            Some(_) => return None,
            None => None,
        };
        is_valid.then_some(Self { name, port })
    }

    /// The host in the URL of this server. It covers every port, because a proxy may forward from another port.
    pub(crate) fn of_url(url: &Url) -> Option<Self> {
        Some(Self { port: None, ..Self::parse(url.host_str()?)? })
    }

    /// The host of a bound address. It covers every port. `None` for the unspecified address, because requests do
    /// not name it.
    pub(crate) fn of_address(address: IpAddr) -> Option<Self> {
        let name = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        (!address.is_unspecified()).then_some(Self { name, port: None })
    }

    /// The name or address, without the port.
    pub(crate) fn into_name(self) -> String {
        self.name
    }

    /// Whether the name is a loopback name or address.
    pub(crate) fn is_loopback(&self) -> bool {
        let v4 = || self.name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback());
        self.name == "localhost" || self.name == "[::1]" || v4()
    }

    /// Whether the name is an address.
    pub(crate) fn is_address(&self) -> bool {
        self.name.starts_with('[') || self.name.parse::<Ipv4Addr>().is_ok()
    }

    /// Whether an allowed host covers this host. An allowed host without a port covers every port.
    fn is_covered_by(&self, allowed: &Self) -> bool {
        self.name == allowed.name && (allowed.port.is_none() || allowed.port == self.port)
    }
}

impl std::fmt::Display for HostName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.port {
            Some(port) => write!(out, "{}:{port}", self.name),
            None => out.write_str(&self.name),
        }
    }
}

/// Middleware that refuses unknown hosts and cross-site changes.
///
/// # Errors
/// The errors of the inner service.
pub async fn site_guard<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let verdict = match request.app_data::<web::Data<HttpState>>() {
        Some(base) => base.site_rules.check(&request, base.public_scheme),
        None => Err(ApiError::internal()),
    };
    match verdict {
        Ok(()) => Ok(next.call(request).await?.map_into_left_body()),
        Err(refusal) => {
            let (request, _) = request.into_parts();
            Ok(ServiceResponse::new(request, refusal.error_response()).map_into_right_body())
        }
    }
}

impl HostRules {
    /// Whether the server serves a host at this path.
    fn serves(&self, host: Option<&HostName>, path: &str) -> bool {
        let allowed = match self {
            Self::LoopbackAndProbes(_) if PROBE_PATHS.contains(&path) => return true,
            Self::LoopbackAnd(allowed) | Self::LoopbackAndProbes(allowed) => allowed,
            #[cfg(test)]
            Self::AnyHost => return true,
        };
        host.is_some_and(|host| host.is_loopback() || allowed.iter().any(|name| host.is_covered_by(name)))
    }

    fn check(&self, request: &ServiceRequest, scheme: Scheme) -> Result<(), ApiError> {
        let host = host_of(request.request());
        if !self.serves(host.as_ref(), request.path()) {
            return Err(ApiError::misdirected_request());
        }
        if changes_state(request.method()) && names_site(request.headers()) {
            let pattern = request.match_pattern().unwrap_or_default();
            let is_refused = match RouteOrigins::of(&openapi_path(&pattern)) {
                RouteOrigins::Own | RouteOrigins::Framed => is_cross_site(request.headers(), scheme, host.as_ref()),
                RouteOrigins::NoBrowser => true,
            };
            if is_refused {
                return Err(ApiError::cross_site_request());
            }
        }
        Ok(())
    }
}

/// The requested host. Forwarding headers do not count, because clients can forge them.
pub(crate) fn host_of(request: &HttpRequest) -> Option<HostName> {
    let mut values = request.headers().get_all(header::HOST);
    let header_host = match (values.next(), values.next()) {
        (Some(value), None) => Some(HostName::parse(value.to_str().ok()?)?),
        (Some(_), Some(_)) => return None,
        (None, _) => None,
    };
    match request.uri().authority() {
        // An absolute request target repeats the host; a mismatch is refused.
        Some(target) => {
            let target = HostName::parse(target.as_str())?;
            header_host.is_none_or(|header_host| header_host == target).then_some(target)
        }
        None => header_host,
    }
}

fn changes_state(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}

/// Whether a request names the site that sent it, as requests of browsers do.
fn names_site(headers: &HeaderMap) -> bool {
    headers.contains_key(&SEC_FETCH_SITE) || headers.contains_key(header::ORIGIN)
}

/// Whether a browser reports a cross-site request. Clients other than browsers send neither of these headers.
fn is_cross_site(headers: &HeaderMap, scheme: Scheme, host: Option<&HostName>) -> bool {
    let foreign_fetch =
        headers.get_all(&SEC_FETCH_SITE).any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"));
    let foreign_origin = headers.get_all(header::ORIGIN).any(|origin| {
        let is_same = origin.to_str().ok().zip(host).is_some_and(|(origin, host)| is_same_origin(origin, scheme, host));
        !is_same
    });
    foreign_fetch || foreign_origin
}

/// Whether scheme, host and port of an origin match. `null` (a sandboxed page, a file) never matches.
fn is_same_origin(origin: &str, scheme: Scheme, host: &HostName) -> bool {
    let Ok(origin) = Url::parse(origin) else { return false };
    // Either side may omit the default port.
    let port = scheme.default_port();
    origin.scheme() == scheme.as_str()
        && origin.host_str() == Some(&*host.name)
        && origin.port().unwrap_or(port) == host.port.unwrap_or(port)
}

#[cfg(test)]
mod tests;
