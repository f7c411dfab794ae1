//! Detects requests that a proxy forwards.
//!
//! Local mode believes the identity that a request names, because only this machine reaches its loopback address. A proxy on
//! this machine breaks that reason: it brings the requests of other machines. Such a request shows by the host that it asks
//! for, or by a header that proxies add. A proxy that rewrites the host and adds no header cannot be detected.

use super::site_guard::host_of;
use actix_web::HttpRequest;

/// Headers by which proxies, load balancers and content networks tell of the client, beside those of [`PREFIX`].
/// Source: RFC 7239 (`Forwarded`), RFC 9110 section 7.6.3 (`Via`), and the products' manuals.
const HEADERS: [&str; 13] = [
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-original-forwarded-for",
    "x-original-host",
    "x-envoy-external-address",
    "x-azure-clientip",
    "true-client-ip",
    "cf-connecting-ip",
    "fastly-client-ip",
    "tailscale-user-login",
];
/// `X-Forwarded-For`, `-Host`, `-Proto` and all others of the family.
const PREFIX: &str = "x-forwarded";

/// Whether a request shows that a proxy forwarded it, or asks for a host that is not a loopback name.
pub(crate) fn is_forwarded(request: &HttpRequest) -> bool {
    let asks_for_loopback = || host_of(request).is_some_and(|host| host.is_loopback());
    let has_forwarding_header =
        || request.headers().keys().any(|name| name.as_str().starts_with(PREFIX) || HEADERS.contains(&name.as_str()));
    has_forwarding_header() || !asks_for_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    fn is_forwarded_with(headers: &[(&'static str, &'static str)]) -> bool {
        let request = headers.iter().fold(TestRequest::default(), |request, header| request.append_header(*header));
        is_forwarded(&request.to_http_request())
    }

    #[test]
    fn loopback_hosts_without_forwarding_headers_are_local() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.9.9.9", "[::1]:1"] {
            assert!(!is_forwarded_with(&[("Host", host), ("X-Actor-Ref", "user:ada")]), "{host}");
        }
    }

    #[test]
    fn foreign_hosts_and_forwarding_headers_are_forwarded() {
        for host in ["fairway.example", "localhost.example", "10.0.0.1", "127.1", "[::2]", "", "a b"] {
            assert!(is_forwarded_with(&[("Host", host)]), "{host}");
        }
        assert!(is_forwarded_with(&[]), "no host");
        assert!(is_forwarded_with(&[("Host", "localhost"), ("Host", "localhost")]), "two hosts");
        for header in ["X-Forwarded-For", "x-forwarded-host", "X-Forwarded-Proto", "X-FORWARDED-USER", "X-Forwarded"] {
            assert!(is_forwarded_with(&[("Host", "localhost"), (header, "")]), "{header}");
        }
        for header in HEADERS {
            assert!(is_forwarded_with(&[("Host", "localhost"), (header, "127.0.0.1")]), "{header}");
        }
    }
}
