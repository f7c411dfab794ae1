//! Where requests may go.

use crate::{
    address::is_public,
    endpoint::{Endpoint, Limits},
    refusal::{EgressError, EgressRefusal},
    resolver::{Resolver, System},
};
use ipnet::IpNet;
use std::{fmt, net::IpAddr, sync::Arc};
use url::{Host, Url};

/// Ports that anybody may be asked at.
const USUAL_PORTS: [u16; 2] = [443, 8443];

/// Whether plain HTTP may be spoken with this very machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// A server for one person on one machine: with loopback addresses that are allowed, plain HTTP may be spoken.
    Local,
    /// Any other: HTTPS alone.
    Remote,
}

/// One target that the operator of the server allows beside the public internet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// Where requests may go.
    pub target: AllowedTarget,
    /// The one port that is allowed there; `None` for every port.
    pub port: Option<u16>,
}

/// What an allowance opens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AllowedTarget {
    /// Addresses of this network.
    Network(IpNet),
    /// The host of this name, wherever its name leads.
    Host(String),
}

/// The text is neither a network, nor an address, nor a host name, with a port or without one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("is neither a network such as 10.0.0.0/8 nor a host name, with `:port` or without it")]
pub struct AllowanceRefusal;

impl AllowanceRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        "egress_allowance"
    }
}

impl Allowance {
    /// Reads `10.0.0.0/8`, `10.1.2.3`, `fd00::/8` or `gateway.internal`, each with `:port` behind it or without. IPv6 with a
    /// port stands in brackets: `[fd00::/8]:8443`.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn parse(text: &str) -> Result<Self, AllowanceRefusal> {
        if let Some(target) = AllowedTarget::parse(text) {
            return Ok(Self { target, port: None });
        }
        let (target, port) = text.rsplit_once(':').ok_or(AllowanceRefusal)?;
        let bracketed = target.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        // Brackets tell where an address of IPv6 ends, and stand around nothing else.
        if bracketed.is_some() != target.contains(':') {
            return Err(AllowanceRefusal);
        }
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| is_number && *port != 0).ok_or(AllowanceRefusal)?;
        let target = AllowedTarget::parse(bracketed.unwrap_or(target)).ok_or(AllowanceRefusal)?;
        Ok(Self { target, port: Some(port) })
    }

    /// Whether it opens this port.
    fn opens(&self, port: u16) -> bool {
        self.port.is_none_or(|allowed| allowed == port)
    }
}

impl fmt::Display for Allowance {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.target, self.port) {
            (AllowedTarget::Network(network), None) => write!(out, "{network}"),
            (AllowedTarget::Network(network @ IpNet::V4(_)), Some(port)) => write!(out, "{network}:{port}"),
            (AllowedTarget::Network(network @ IpNet::V6(_)), Some(port)) => write!(out, "[{network}]:{port}"),
            (AllowedTarget::Host(name), None) => out.write_str(name),
            (AllowedTarget::Host(name), Some(port)) => write!(out, "{name}:{port}"),
        }
    }
}

impl AllowedTarget {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(network) = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)) {
            return Some(Self::Network(network));
        }
        // Numbers in other spellings are addresses to a browser, and names to nobody.
        match Host::parse(text) {
            Ok(Host::Domain(name)) if !text.contains(':') => Some(Self::Host(spelled(&name).to_owned())),
            Ok(Host::Domain(_) | Host::Ipv4(_) | Host::Ipv6(_)) | Err(_) => None,
        }
    }
}

/// A name without the dot that may end it.
fn spelled(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Scheme, host and port of an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    scheme: String,
    host: Host<String>,
    port: u16,
}

impl Origin {
    pub(crate) fn of(url: &Url) -> Result<Self, EgressRefusal> {
        let host = url.host().ok_or(EgressRefusal::NoAddress)?.to_owned();
        let port = url.port_or_known_default().ok_or(EgressRefusal::Scheme)?;
        Ok(Self { scheme: url.scheme().to_owned(), host, port })
    }
}

/// What is asked of the addresses of one origin.
#[derive(Debug)]
pub(crate) struct Demand {
    encrypts: bool,
    has_usual_port: bool,
    anywhere: bool,
    networks: Vec<IpNet>,
}

impl Demand {
    /// Whether this address may be connected to.
    pub(crate) fn check(&self, address: IpAddr) -> Result<(), EgressRefusal> {
        let allowed = self.anywhere || self.networks.iter().any(|network| network.contains(&address));
        if !self.encrypts {
            // Only local mode gets here.
            return match (address.is_loopback(), allowed) {
                (true, true) => Ok(()),
                (true, false) => Err(EgressRefusal::Network),
                (false, true | false) => Err(EgressRefusal::Scheme),
            };
        }
        match (allowed, is_public(address), self.has_usual_port) {
            (true, true | false, true | false) | (false, true, true) => Ok(()),
            (false, false, true | false) => Err(EgressRefusal::Network),
            (false, true, false) => Err(EgressRefusal::Port),
        }
    }
}

/// Decides where requests may go, and hands out the clients that go there.
#[derive(Clone)]
pub struct Guard {
    reach: Reach,
    allowances: Vec<Allowance>,
    /// Endpoints that whoever runs the server named exactly.
    configured: Vec<Origin>,
    resolver: Arc<dyn Resolver>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Guard").field("reach", &self.reach).field("allowances", &self.allowances).finish()
    }
}

impl Guard {
    /// A guard that lets requests to the public internet through, and to what is allowed besides.
    #[must_use]
    pub fn new(reach: Reach, allowances: Vec<Allowance>) -> Self {
        Self { reach, allowances, configured: Vec::new(), resolver: Arc::new(System) }
    }

    /// The same with another way of finding addresses.
    #[must_use]
    pub fn resolving_by(self, resolver: Arc<dyn Resolver>) -> Self {
        Self { resolver, ..self }
    }

    /// The same, with this scheme, host and port allowed exactly: somebody who runs the server wrote them into its settings.
    #[must_use]
    pub fn also_allowing(mut self, url: &Url) -> Self {
        self.configured.extend(Origin::of(url));
        self
    }

    /// A client for what lies at an address and below. Whether the name's addresses may be reached is only known when it
    /// connects, and decided each time.
    ///
    /// # Errors
    /// When nothing may be sent there, wherever the name leads.
    pub fn endpoint(&self, address: &str, limits: Limits) -> Result<Endpoint, EgressError> {
        let url = Url::parse(address).map_err(|_| EgressRefusal::NoAddress)?;
        let demand = self.demand(&url)?;
        Endpoint::new(url, limits, Arc::clone(&self.resolver), Arc::new(demand))
    }

    fn demand(&self, url: &Url) -> Result<Demand, EgressRefusal> {
        let encrypts = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(EgressRefusal::Scheme),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EgressRefusal::Credentials);
        }
        let origin = Origin::of(url)?;
        if self.configured.contains(&origin) {
            // Encrypted or not: it is what was configured.
            return Ok(Demand { encrypts: true, has_usual_port: true, anywhere: true, networks: Vec::new() });
        }
        if !encrypts && self.reach == Reach::Remote {
            return Err(EgressRefusal::Scheme);
        }
        let named = match &origin.host {
            Host::Domain(name) => self.names(spelled(name), origin.port),
            Host::Ipv4(_) | Host::Ipv6(_) => false,
        };
        let demand = Demand {
            encrypts,
            has_usual_port: USUAL_PORTS.contains(&origin.port),
            anywhere: named,
            networks: self.networks(origin.port),
        };
        match origin.host {
            // No name, so nobody resolves it later.
            Host::Ipv4(address) => demand.check(address.into())?,
            Host::Ipv6(address) => demand.check(address.into())?,
            // A port that nothing can allow needs no look at the name.
            Host::Domain(_) if encrypts && !demand.has_usual_port && !named && demand.networks.is_empty() => {
                return Err(EgressRefusal::Port);
            }
            Host::Domain(_) => {}
        }
        Ok(demand)
    }

    /// The targets that are allowed at this port.
    fn targets(&self, port: u16) -> impl Iterator<Item = &AllowedTarget> {
        self.allowances.iter().filter(move |allowance| allowance.opens(port)).map(|allowance| &allowance.target)
    }

    fn names(&self, host: &str, port: u16) -> bool {
        self.targets(port).any(|target| match target {
            AllowedTarget::Host(name) => name == host,
            AllowedTarget::Network(_) => false,
        })
    }

    fn networks(&self, port: u16) -> Vec<IpNet> {
        let network = |target: &AllowedTarget| match target {
            AllowedTarget::Network(network) => Some(*network),
            AllowedTarget::Host(_) => None,
        };
        self.targets(port).filter_map(network).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(reach: Reach, allowances: &[&str]) -> Guard {
        Guard::new(reach, allowances.iter().map(|text| Allowance::parse(text).unwrap()).collect())
    }

    fn refused(guard: &Guard, url: &str) -> Option<EgressRefusal> {
        guard.demand(&Url::parse(url).unwrap()).err()
    }

    #[test]
    fn allowances_are_networks_addresses_and_names() {
        let network = |text: &str| AllowedTarget::Network(text.parse().unwrap());
        let host = |name: &str| AllowedTarget::Host(name.to_owned());
        for (text, target, port, shown) in [
            ("10.0.0.0/8", network("10.0.0.0/8"), None, "10.0.0.0/8"),
            ("10.1.2.3", network("10.1.2.3/32"), None, "10.1.2.3/32"),
            ("fd00::/8", network("fd00::/8"), None, "fd00::/8"),
            ("fd00::1:443", network("fd00::1:443/128"), None, "fd00::1:443/128"),
            ("Gateway.Internal.", host("gateway.internal"), None, "gateway.internal"),
            ("10.0.0.0/8:8443", network("10.0.0.0/8"), Some(8443), "10.0.0.0/8:8443"),
            ("10.1.2.3:1", network("10.1.2.3/32"), Some(1), "10.1.2.3/32:1"),
            ("[fd00::/8]:65535", network("fd00::/8"), Some(65_535), "[fd00::/8]:65535"),
            ("[::1]:9000", network("::1/128"), Some(9000), "[::1/128]:9000"),
            ("Gateway.Internal.:9000", host("gateway.internal"), Some(9000), "gateway.internal:9000"),
        ] {
            let read = Allowance::parse(text).unwrap();
            assert_eq!(read, Allowance { target, port }, "{text}");
            assert_eq!(read.to_string(), shown);
        }
        for text in [
            "0x7f000001",
            "https://host",
            "https://host:443",
            "a b",
            "10.0.0.0/33",
            "",
            ":443",
            "host:",
            "host:0",
            "host:+443",
            "host:65536",
            "host:https",
            "host:443:443",
            "[host]:443",
            "[10.0.0.0/8]:443",
            "[fd00::/8]",
            "fd00::/8:443",
        ] {
            assert_eq!(Allowance::parse(text), Err(AllowanceRefusal), "{text}");
        }
    }

    #[test]
    fn an_allowance_with_a_port_opens_that_port_alone() {
        let by_name = guard(Reach::Remote, &["gateway.internal:9000"]);
        assert_eq!(refused(&by_name, "https://gateway.internal:9000/"), None);
        assert_eq!(refused(&by_name, "https://gateway.internal:9001/"), Some(EgressRefusal::Port));
        let by_network = guard(Reach::Remote, &["10.0.0.0/8:9443", "[fd00::/8]:9443"]);
        for host in ["10.1.1.1", "[fd00::1]"] {
            assert_eq!(refused(&by_network, &format!("https://{host}:9443/")), None, "{host}");
            for port in ["", ":8443", ":9444"] {
                let url = format!("https://{host}{port}/");
                assert_eq!(refused(&by_network, &url), Some(EgressRefusal::Network), "{url}");
            }
        }
        let loopback = guard(Reach::Local, &["127.0.0.1:4000"]);
        assert_eq!(refused(&loopback, "http://127.0.0.1:4000/"), None);
        assert_eq!(refused(&loopback, "http://127.0.0.1:5432/"), Some(EgressRefusal::Network));
        // A name that stands for such an address is checked when it connects, for the port that it is asked at.
        let (open, closed) = ("https://name.example:9443/", "https://name.example/");
        let demand = |url: &str| by_network.demand(&Url::parse(url).unwrap()).unwrap();
        assert_eq!(demand(open).check("10.1.1.1".parse().unwrap()), Ok(()));
        assert_eq!(demand(closed).check("10.1.1.1".parse().unwrap()), Err(EgressRefusal::Network));
    }

    #[test]
    fn names_are_refused_early_where_nothing_can_allow_them() {
        let plain = guard(Reach::Remote, &[]);
        assert_eq!(refused(&plain, "https://example.com/"), None);
        assert_eq!(refused(&plain, "https://example.com:8443/"), None);
        assert_eq!(refused(&plain, "https://example.com:22/"), Some(EgressRefusal::Port));
        assert_eq!(refused(&plain, "http://example.com/"), Some(EgressRefusal::Scheme));
        assert_eq!(refused(&plain, "https://user@example.com/"), Some(EgressRefusal::Credentials));
        assert_eq!(refused(&plain, "https://:secret@example.com/"), Some(EgressRefusal::Credentials));
        let open = guard(Reach::Remote, &["gateway.internal"]);
        assert_eq!(refused(&open, "https://gateway.internal.:9000/"), None);
        assert_eq!(refused(&open, "https://gateway.internal.evil:9000/"), Some(EgressRefusal::Port));
        assert_eq!(refused(&open, "http://gateway.internal/"), Some(EgressRefusal::Scheme));
    }

    #[test]
    fn loopback_in_the_clear_takes_local_mode_and_an_allowance() {
        let url = "http://127.0.0.1:4000/";
        assert_eq!(refused(&guard(Reach::Local, &[]), url), Some(EgressRefusal::Network));
        assert_eq!(refused(&guard(Reach::Remote, &["127.0.0.0/8"]), url), Some(EgressRefusal::Scheme));
        assert_eq!(refused(&guard(Reach::Local, &["127.0.0.0/8"]), url), None);
        // What is allowed elsewhere is still to be encrypted.
        assert_eq!(refused(&guard(Reach::Local, &["10.0.0.0/8"]), "http://10.1.1.1/"), Some(EgressRefusal::Scheme));
        assert_eq!(refused(&guard(Reach::Local, &["10.0.0.0/8"]), "https://10.1.1.1:9443/"), None);
    }

    #[test]
    fn what_is_configured_is_allowed_exactly() {
        let guard = guard(Reach::Remote, &[]).also_allowing(&Url::parse("http://127.0.0.1:4000/v1").unwrap());
        assert_eq!(refused(&guard, "http://127.0.0.1:4000/v1/chat"), None);
        assert_eq!(refused(&guard, "http://127.1:4000/"), None, "the same address in another spelling");
        for (url, refusal) in [
            ("http://127.0.0.1:4001/", EgressRefusal::Scheme),
            ("https://127.0.0.1:4000/", EgressRefusal::Network),
            ("http://127.0.0.2:4000/", EgressRefusal::Scheme),
            ("http://localhost:4000/", EgressRefusal::Scheme),
            ("http://me@127.0.0.1:4000/", EgressRefusal::Credentials),
        ] {
            assert_eq!(refused(&guard, url), Some(refusal), "{url}");
        }
    }
}
