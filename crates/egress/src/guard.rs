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

/// One thing that whoever runs the server allows beside the public internet: a network, or a host by its name, at any port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Allowance {
    /// Addresses of this network.
    Network(IpNet),
    /// The host of this name, wherever its name leads.
    Host(String),
}

/// The text is neither a network, nor an address, nor a host name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("is neither a network such as 10.0.0.0/8 nor a host name")]
pub struct AllowanceRefusal;

impl AllowanceRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        "egress_allowance"
    }
}

impl Allowance {
    /// Reads `10.0.0.0/8`, `10.1.2.3`, `fd00::/8` or `gateway.internal`.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn parse(text: &str) -> Result<Self, AllowanceRefusal> {
        if let Ok(network) = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)) {
            return Ok(Self::Network(network));
        }
        // Numbers in other spellings are addresses to a browser, and names to nobody.
        match Host::parse(text) {
            Ok(Host::Domain(name)) if !text.contains(':') => Ok(Self::Host(spelled(&name).to_owned())),
            Ok(Host::Domain(_) | Host::Ipv4(_) | Host::Ipv6(_)) | Err(_) => Err(AllowanceRefusal),
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
            Host::Domain(name) => self.names(spelled(name)),
            Host::Ipv4(_) | Host::Ipv6(_) => false,
        };
        let demand = Demand {
            encrypts,
            has_usual_port: USUAL_PORTS.contains(&origin.port),
            anywhere: named,
            networks: self.networks(),
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

    fn names(&self, host: &str) -> bool {
        self.allowances.iter().any(|allowance| match allowance {
            Allowance::Host(name) => name == host,
            Allowance::Network(_) => false,
        })
    }

    fn networks(&self) -> Vec<IpNet> {
        let network = |allowance: &Allowance| match allowance {
            Allowance::Network(network) => Some(*network),
            Allowance::Host(_) => None,
        };
        self.allowances.iter().filter_map(network).collect()
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
        for (text, read) in [
            ("10.0.0.0/8", Some(Allowance::Network("10.0.0.0/8".parse().unwrap()))),
            ("10.1.2.3", Some(Allowance::Network("10.1.2.3/32".parse().unwrap()))),
            ("fd00::/8", Some(Allowance::Network("fd00::/8".parse().unwrap()))),
            ("Gateway.Internal.", Some(Allowance::Host("gateway.internal".to_owned()))),
            ("0x7f000001", None),
            ("host:443", None),
            ("https://host", None),
            ("a b", None),
            ("10.0.0.0/33", None),
            ("", None),
        ] {
            assert_eq!(Allowance::parse(text).ok(), read, "{text}");
        }
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
