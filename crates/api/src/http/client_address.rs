//! The client address of a request. Clients can forge `X-Forwarded-For`, so only entries of trusted proxies count: from
//! the right, up to the first address outside the trusted networks.

use super::HttpState;
use actix_web::{
    HttpRequest,
    http::header::{HeaderMap, HeaderName},
    web,
};
use fairway_domain::client_address::ClientAddress;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The networks of proxies whose `X-Forwarded-For` is trusted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Trusts the proxies in these networks.
    #[must_use]
    pub const fn new(networks: Vec<IpNet>) -> Self {
        Self(networks)
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The right-most address outside the trusted networks, starting with the peer. If a trusted proxy sent an
    /// invalid address, the proxy itself counts as the client.
    fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        let values: Vec<&str> =
            headers.get_all(&FORWARDED_FOR).map(|value| value.to_str().unwrap_or_default()).collect();
        let entries = values.iter().rev().flat_map(|value| value.rsplit(','));
        for entry in entries {
            if !self.trusts(client) {
                break;
            }
            match parse_address(entry.trim()) {
                Some(address) => client = address,
                None => break,
            }
        }
        client
    }
}

/// Parses an address with or without a port.
fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    bare.parse().ok().or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

/// The client address of a request. A request without a peer has the unspecified address.
pub(crate) fn client_of(request: &HttpRequest) -> ClientAddress {
    let peer = request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
    let base = request.app_data::<web::Data<HttpState>>();
    ClientAddress::from_ip_truncating_v6(base.map_or(peer, |base| base.trusted_proxies.client(peer, request.headers())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    fn client(proxies: &[&str], peer: &str, forwarded: &[&str]) -> String {
        let proxies = TrustedProxies::new(proxies.iter().map(|network| network.parse().unwrap()).collect());
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(FORWARDED_FOR, HeaderValue::from_str(value).unwrap());
        }
        proxies.client(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn trusts_forwarded_for_entries_of_trusted_proxies_only() {
        let proxies = ["10.0.0.0/8", "fd00::/8"];
        for (trusted, peer, forwarded, expected) in [
            // Without trusted proxies, the peer is the client.
            (&[][..], "192.0.2.9", &["203.0.113.7"][..], "192.0.2.9"),
            (&proxies, "192.0.2.9", &["203.0.113.7"], "192.0.2.9"),
            (&proxies, "10.0.0.1", &[], "10.0.0.1"),
            (&proxies, "10.0.0.1", &["203.0.113.7"], "203.0.113.7"),
            // A client can forge entries only to the left of the entry that its proxy adds.
            (&proxies, "10.0.0.1", &["198.51.100.1, 203.0.113.7"], "203.0.113.7"),
            (&proxies, "10.0.0.1", &["198.51.100.1", "203.0.113.7, 10.0.0.2"], "203.0.113.7"),
            (&proxies, "10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            (&proxies, "::ffff:10.0.0.1", &["203.0.113.7"], "203.0.113.7"),
            (&proxies, "fd00::1", &["[2001:db8::1]:443"], "2001:db8::1"),
            (&proxies, "10.0.0.1", &["203.0.113.7:50"], "203.0.113.7"),
            (&proxies, "10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
            (&proxies, "10.0.0.1", &["203.0.113.7, unknown"], "10.0.0.1"),
            (&proxies, "10.0.0.1", &["203.0.113.7,"], "10.0.0.1"),
            (&proxies, "10.0.0.1", &["203.0.113.7, nonsense, 10.0.0.2"], "10.0.0.2"),
        ] {
            assert_eq!(client(trusted, peer, forwarded), expected, "{peer} {forwarded:?}");
        }
    }
}
