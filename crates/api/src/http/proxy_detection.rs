//! Detection of requests that a proxy forwards.
//!
//! Local mode trusts the identity header, because only this machine reaches its loopback address. A proxy on this
//! machine forwards requests of other machines. Such a request has a non-loopback host, or a header that proxies add. A
//! proxy that rewrites the host and adds no header cannot be detected.

use super::site_guard::host_of;
use actix_web::HttpRequest;

/// Header names that proxies, tunnels, load balancers and CDNs add to forwarded requests.
/// Sources: RFC 7239 (`Forwarded`), RFC 9110 sections 7.6.2 and 7.6.3 (`Max-Forwards`, `Via`), and product manuals.
const PROXY_HEADERS: [&str; 28] = [
    "client-ip",
    "disguised-host",
    "do-connecting-ip",
    "front-end-https",
    "http-client-ip",
    "incap-client-ip",
    "max-forwards",
    "proxy-client-ip",
    "remote-addr",
    "remote-user",
    "rndr-id",
    "surrogate-capability",
    "true-client-ip",
    "via",
    "wl-proxy-client-ip",
    "x-appgw-trace-id",
    "x-bluecoat-via",
    "x-client-ip",
    "x-cloud-trace-context",
    "x-cluster-client-ip",
    "x-host",
    "x-ms-proxy",
    "x-nginx-proxy",
    "x-originating-ip",
    "x-request-start",
    "x-scheme",
    "x-url-scheme",
    "x-varnish",
];

/// Prefixes of header names that proxies add, for products with several such headers. RFC 8586 defines `CDN-Loop`.
const PROXY_HEADER_PREFIXES: [&str; 43] = [
    "akamai-",
    "ali-",
    "cdn-",
    "cf-",
    "cloudfront-",
    "fastly-",
    "fly-",
    "forwarded",
    "http-x-forwarded",
    "l5d-",
    "ngrok-",
    "ssl-client-",
    "tailscale-",
    "true-client-",
    "x-akamai-",
    "x-amz-cf-",
    "x-amzn-",
    "x-appengine-",
    "x-arr-",
    "x-auth-request-",
    "x-authentik-",
    "x-azure-",
    "x-cdn-",
    "x-cf-",
    "x-envoy-",
    "x-fastly-",
    "x-fd-",
    "x-forwarded",
    "x-goog-",
    "x-http-forwarded",
    "x-kong-",
    "x-nf-",
    "x-original-",
    "x-pomerium-",
    "x-proxy",
    "x-railway-",
    "x-real-",
    "x-remote-",
    "x-ssl-",
    "x-sucuri-",
    "x-traefik-",
    "x-vercel-",
    "x-webauth-",
];

/// Whether a request has a header that proxies add, or a host that is not a loopback name.
pub(crate) fn is_forwarded(request: &HttpRequest) -> bool {
    let asks_for_loopback = || host_of(request).is_some_and(|host| host.is_loopback());
    request.headers().keys().any(|name| is_added_by_proxies(name.as_str())) || !asks_for_loopback()
}

/// Whether proxies add headers with this lower-case name. An underscore counts as a hyphen, because CGI-like gateways
/// do not distinguish them.
fn is_added_by_proxies(name: &str) -> bool {
    let hyphenated;
    let name = if name.contains('_') {
        hyphenated = name.replace('_', "-");
        hyphenated.as_str()
    } else {
        name
    };
    // Every prefix of the name is sorted before the name. Both lists are sorted, and no prefix begins with another one,
    // so only the last of the prefixes before the name can match.
    let before = PROXY_HEADER_PREFIXES.partition_point(|prefix| *prefix <= name);
    let prefix = PROXY_HEADER_PREFIXES.get(..before).and_then(<[&str]>::last);
    PROXY_HEADERS.binary_search(&name).is_ok() || prefix.is_some_and(|prefix| name.starts_with(prefix))
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
    fn treats_loopback_host_without_proxy_headers_as_local() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.9.9.9", "[::1]:1"] {
            assert!(!is_forwarded_with(&[("Host", host), ("X-Actor-Ref", "user:ada")]), "{host}");
        }
    }

    #[test]
    fn detects_foreign_hosts_and_proxy_headers() {
        for host in ["fairway.example", "localhost.example", "10.0.0.1", "127.1", "[::2]", "", "a b"] {
            assert!(is_forwarded_with(&[("Host", host)]), "{host}");
        }
        assert!(is_forwarded_with(&[]), "no host");
        assert!(is_forwarded_with(&[("Host", "localhost"), ("Host", "localhost")]), "two hosts");
        for header in FORWARDING_HEADERS {
            assert!(is_forwarded_with(&[("Host", "localhost"), (header, "")]), "{header}");
        }
        for header in PROXY_HEADERS {
            assert!(is_forwarded_with(&[("Host", "localhost"), (header, "127.0.0.1")]), "{header}");
        }
        for prefix in PROXY_HEADER_PREFIXES {
            assert!(is_added_by_proxies(&format!("{prefix}x")), "{prefix}");
        }
    }

    #[test]
    fn lists_are_sorted_and_prefixes_are_distinct() {
        assert!(PROXY_HEADERS.is_sorted() && PROXY_HEADER_PREFIXES.is_sorted());
        for pair in PROXY_HEADER_PREFIXES.windows(2) {
            assert!(!pair[1].starts_with(pair[0]), "{pair:?}");
        }
    }

    /// Headers that products and standards add, in the spelling of their manuals.
    const FORWARDING_HEADERS: [&str; 60] = [
        "Forwarded",
        "Forwarded-For",
        "Forwarded-Proto",
        "X-Forwarded",
        "X-Forwarded-For",
        "x-forwarded-host",
        "X-Forwarded-Proto",
        "X-FORWARDED-USER",
        "X-Forwarded-Client-Cert",
        "X_Forwarded_For",
        "X-Http-Forwarded-For",
        "Via",
        "CDN-Loop",
        "CDN-RequestId",
        "X-Real-IP",
        "X-Client-IP",
        "X-Cluster-Client-IP",
        "X-Original-Forwarded-For",
        "X-Original-Host",
        "X-Original-URL",
        "X-Envoy-External-Address",
        "X-Envoy-Original-Path",
        "X-Azure-ClientIP",
        "X-Azure-FDID",
        "X-FD-HealthProbe",
        "X-ARR-LOG-ID",
        "X-AppGW-Trace-Id",
        "X-Amzn-Trace-Id",
        "X-Amz-Cf-Id",
        "CloudFront-Viewer-Address",
        "X-Cloud-Trace-Context",
        "X-Goog-IAP-JWT-Assertion",
        "X-AppEngine-User-IP",
        "True-Client-IP",
        "CF-Connecting-IP",
        "CF-Ray",
        "Cf-Access-Jwt-Assertion",
        "Fastly-Client-IP",
        "Fastly-FF",
        "Fly-Client-IP",
        "Fly-Request-Id",
        "X-ProxyUser-Ip",
        "Ngrok-Trace-Id",
        "Ngrok-Auth-User-Email",
        "Tailscale-User-Login",
        "X-Akamai-Edgescape",
        "Surrogate-Capability",
        "X-Vercel-Id",
        "X-Request-Start",
        "X-Kong-Request-Id",
        "Do-Connecting-IP",
        "X-Remote-Addr",
        "X-Remote-Group",
        "X-Remote-IP",
        "X-Remote-User",
        "X-Auth-Request-User",
        "X-Auth-Request-Email",
        "X-Authentik-Username",
        "X-Pomerium-Jwt-Assertion",
        "X-WEBAUTH-USER",
    ];

    #[test]
    fn treats_client_headers_as_local() {
        for header in [
            "Accept",
            "Authorization",
            "Cache-Control",
            "Content-Type",
            "Cookie",
            "Expect",
            "Idempotency-Key",
            "If-Match",
            "Last-Event-ID",
            "Mcp-Protocol-Version",
            "Mcp-Session-Id",
            "Origin",
            "Prefer",
            "Referer",
            "Sec-Fetch-Site",
            "Traceparent",
            "User-Agent",
            "X-Actor-Ref",
            "X-Prometheus-Scrape-Timeout-Seconds",
            "X-Request-Id",
            "X-Requested-With",
            "X-Result-Token",
            "X-Share-Token",
            "X-Tenant-Id",
        ] {
            assert!(!is_forwarded_with(&[("Host", "localhost"), (header, "x")]), "{header}");
        }
    }
}
