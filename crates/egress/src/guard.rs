//! The egress guard decides which destinations requests may reach.

use crate::{
    address::is_public,
    endpoint_client::{ClientOptions, EndpointClient, ResponseLimits},
    error::EgressError,
    refusal::EgressRefusal,
    resolver::{Resolver, SystemResolver},
    trusted_authorities::Authorities,
};
use ipnet::IpNet;
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};
use url::{Host, Url};

/// Ports that need no allowance.
const DEFAULT_PORTS: [u16; 2] = [443, 8443];

/// Mode of the server, which decides whether plain HTTP to loopback addresses can be allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerMode {
    /// A server for one user on one machine, which may send plain HTTP to loopback addresses with an allowance.
    Local,
    /// Any other server, which sends HTTPS only.
    Remote,
}

/// A destination that the operator allows in addition to the public internet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// The network or host.
    pub target: AllowedTarget,
    /// The only allowed port; `None` for every port.
    pub port: Option<u16>,
}

/// A destination that an allowance permits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AllowedTarget {
    /// The addresses of this network.
    Network(IpNet),
    /// The host of this name, regardless of the addresses to which it resolves.
    Host(String),
}

/// The text is not a network, address or host name with an optional port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("is neither a network such as 10.0.0.0/8 nor a host name, with an optional `:port`")]
pub struct AllowanceRefusal;

impl AllowanceRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        "egress_allowance"
    }
}

impl Allowance {
    /// Parses `10.0.0.0/8`, `10.1.2.3`, `fd00::/8` or `gateway.internal`, each with an optional `:port`. IPv6 with a
    /// port is written in brackets: `[fd00::/8]:8443`.
    ///
    /// # Errors
    /// When the text has another form.
    pub fn parse(text: &str) -> Result<Self, AllowanceRefusal> {
        if let Some(target) = AllowedTarget::parse(text) {
            return Ok(Self { target, port: None });
        }
        let (target, port) = text.rsplit_once(':').ok_or(AllowanceRefusal)?;
        let bracketed = target.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        // Only IPv6 addresses may be in brackets, and an IPv6 address with a port must be.
        if bracketed.is_some() != target.contains(':') {
            return Err(AllowanceRefusal);
        }
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| is_number && *port != 0).ok_or(AllowanceRefusal)?;
        let target = AllowedTarget::parse(bracketed.unwrap_or(target)).ok_or(AllowanceRefusal)?;
        Ok(Self { target, port: Some(port) })
    }

    /// Returns whether the allowance covers this port.
    fn covers_port(&self, port: u16) -> bool {
        self.port.is_none_or(|allowed| allowed == port)
    }
}

impl fmt::Display for Allowance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.target, self.port) {
            (AllowedTarget::Network(network), None) => write!(formatter, "{network}"),
            (AllowedTarget::Network(network @ IpNet::V4(_)), Some(port)) => write!(formatter, "{network}:{port}"),
            (AllowedTarget::Network(network @ IpNet::V6(_)), Some(port)) => write!(formatter, "[{network}]:{port}"),
            (AllowedTarget::Host(name), None) => formatter.write_str(name),
            (AllowedTarget::Host(name), Some(port)) => write!(formatter, "{name}:{port}"),
        }
    }
}

impl AllowedTarget {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(network) = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)) {
            return Some(Self::Network(network));
        }
        // URL parsers read numbers in octal, hexadecimal or short notation as IPv4 addresses, so such texts are not
        // host names.
        match Host::parse(text) {
            Ok(Host::Domain(name)) if !text.contains(':') => Some(Self::Host(without_trailing_dot(&name).to_owned())),
            Ok(Host::Domain(_) | Host::Ipv4(_) | Host::Ipv6(_)) | Err(_) => None,
        }
    }
}

/// Whether a name denotes this machine by definition (RFC 6761, section 6.3), regardless of what a resolver returns.
fn is_localhost(name: &str) -> bool {
    let name = without_trailing_dot(name);
    name == "localhost" || name.ends_with(".localhost")
}

/// The host name without a trailing dot.
fn without_trailing_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// The scheme, host and port of an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    scheme: String,
    host: Host<String>,
    port: u16,
}

impl Origin {
    pub(crate) fn of(url: &Url) -> Result<Self, EgressRefusal> {
        let host = url.host().ok_or(EgressRefusal::InvalidAddress)?.to_owned();
        let port = url.port_or_known_default().ok_or(EgressRefusal::Scheme)?;
        Ok(Self { scheme: url.scheme().to_owned(), host, port })
    }
}

/// The rules for connections to one origin.
#[derive(Debug)]
pub(crate) struct ConnectionPolicy {
    is_encrypted: bool,
    has_default_port: bool,
    allows_any_address: bool,
    networks: Vec<IpNet>,
}

impl ConnectionPolicy {
    /// The policy of an origin that the operator configured.
    const CONFIGURED: Self =
        Self { is_encrypted: true, has_default_port: true, allows_any_address: true, networks: Vec::new() };

    /// Checks, before name resolution, whether a connection to this port can be allowed for any address.
    pub(crate) fn check_port(&self) -> Result<(), EgressRefusal> {
        if self.has_default_port || self.allows_any_address || !self.networks.is_empty() {
            Ok(())
        } else {
            Err(EgressRefusal::Port)
        }
    }

    /// Checks whether a connection to this address is allowed.
    pub(crate) fn check(&self, address: IpAddr) -> Result<(), EgressRefusal> {
        let allowed = self.allows_any_address || self.networks.iter().any(|network| network.contains(&address));
        if !self.is_encrypted {
            // Only local mode creates policies without encryption.
            return match (address.is_loopback(), allowed) {
                (true, true) => Ok(()),
                (true, false) => Err(EgressRefusal::Network),
                (false, true | false) => Err(EgressRefusal::Scheme),
            };
        }
        match (allowed, is_public(address), self.has_default_port) {
            (true, true | false, true | false) | (false, true, true) => Ok(()),
            (false, false, true | false) => Err(EgressRefusal::Network),
            (false, true, false) => Err(EgressRefusal::Port),
        }
    }
}

/// Decides which destinations requests may reach, and creates their clients.
#[derive(Clone)]
pub struct Guard {
    mode: ServerMode,
    allowances: Vec<Allowance>,
    /// Origins from the server's settings. They are allowed regardless of address, port and encryption.
    configured_origins: Vec<Origin>,
    resolver: Arc<dyn Resolver>,
    authorities: Option<Authorities>,
    connect_timeout: Option<Duration>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Guard").field("reach", &self.mode).field("allowances", &self.allowances).finish()
    }
}

impl Guard {
    /// Creates a guard that allows the public internet and the given targets.
    #[must_use]
    pub fn new(mode: ServerMode, allowances: Vec<Allowance>) -> Self {
        Self {
            mode,
            allowances,
            configured_origins: Vec::new(),
            resolver: Arc::new(SystemResolver),
            authorities: None,
            connect_timeout: None,
        }
    }

    /// Makes endpoints trust only these certificate authorities.
    #[must_use]
    pub fn with_only_authorities(self, authorities: Authorities) -> Self {
        Self { authorities: Some(authorities), ..self }
    }

    /// Limits the time of each connection attempt, in addition to [`Limits::timeout`].
    #[must_use]
    pub fn with_connect_timeout(self, timeout: Duration) -> Self {
        Self { connect_timeout: Some(timeout), ..self }
    }

    /// Replaces the resolver of the operating system.
    #[must_use]
    pub fn with_resolver(self, resolver: Arc<dyn Resolver>) -> Self {
        Self { resolver, ..self }
    }

    /// Allows the origin of this address, because the operator configured it. Other ports and schemes of its host
    /// stay subject to the rules.
    #[must_use]
    pub fn with_allowed_origin(mut self, url: &Url) -> Self {
        self.configured_origins.extend(Origin::of(url));
        self
    }

    /// Creates a client for an address and the paths below it. The guard checks the addresses of the host name again
    /// on each connection.
    ///
    /// # Errors
    /// When the destination is refused for every address of its host.
    pub fn endpoint(&self, address: &str, limits: ResponseLimits) -> Result<EndpointClient, EgressError> {
        let url = Url::parse(address).map_err(|_| EgressRefusal::InvalidAddress)?;
        let policy = self.connection_policy(&url)?;
        let options = ClientOptions {
            resolver: Arc::clone(&self.resolver),
            policy: Arc::new(policy),
            authorities: self.authorities.clone(),
            connect_timeout: self.connect_timeout,
        };
        EndpointClient::new(url, limits, options)
    }

    /// Returns the rules for connections to a host over a protocol other than HTTP. The caller is responsible for
    /// encryption.
    pub(crate) fn dial_policy(&self, url: &Url, host: &Host<String>, port: u16) -> ConnectionPolicy {
        if Origin::of(url).is_ok_and(|origin| self.configured_origins.contains(&origin)) {
            return ConnectionPolicy::CONFIGURED;
        }
        let is_allowed_host = match host {
            Host::Domain(name) => self.allows_host(without_trailing_dot(name), port),
            Host::Ipv4(_) | Host::Ipv6(_) => false,
        };
        ConnectionPolicy {
            is_encrypted: true,
            has_default_port: DEFAULT_PORTS.contains(&port),
            allows_any_address: is_allowed_host,
            networks: self.allowed_networks(port),
        }
    }

    pub(crate) fn resolver(&self) -> &dyn Resolver {
        &*self.resolver
    }

    fn connection_policy(&self, url: &Url) -> Result<ConnectionPolicy, EgressRefusal> {
        let is_encrypted = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(EgressRefusal::Scheme),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EgressRefusal::Credentials);
        }
        let origin = Origin::of(url)?;
        if self.configured_origins.contains(&origin) {
            // A configured origin is allowed with and without encryption.
            return Ok(ConnectionPolicy::CONFIGURED);
        }
        if !is_encrypted && self.mode == ServerMode::Remote {
            return Err(EgressRefusal::Scheme);
        }
        let is_allowed_host = match &origin.host {
            Host::Domain(name) => self.allows_host(without_trailing_dot(name), origin.port),
            Host::Ipv4(_) | Host::Ipv6(_) => false,
        };
        let policy = ConnectionPolicy {
            is_encrypted,
            has_default_port: DEFAULT_PORTS.contains(&origin.port),
            allows_any_address: is_allowed_host,
            networks: self.allowed_networks(origin.port),
        };
        match origin.host {
            // A literal address is checked here, because no later name resolution checks it.
            Host::Ipv4(address) => policy.check(address.into())?,
            Host::Ipv6(address) => policy.check(address.into())?,
            // A name is refused here if every address to which it could resolve would be refused. Names of `localhost`
            // resolve to loopback addresses only.
            Host::Domain(ref name) if is_localhost(name) && !is_allowed_host => {
                policy.check(Ipv4Addr::LOCALHOST.into())?
            }
            Host::Domain(_) if !is_encrypted && !is_allowed_host && policy.networks.is_empty() => {
                return Err(EgressRefusal::Scheme);
            }
            Host::Domain(_)
                if is_encrypted && !policy.has_default_port && !is_allowed_host && policy.networks.is_empty() =>
            {
                return Err(EgressRefusal::Port);
            }
            Host::Domain(_) => {}
        }
        Ok(policy)
    }

    /// Returns the targets of the allowances that cover this port.
    fn targets(&self, port: u16) -> impl Iterator<Item = &AllowedTarget> {
        self.allowances.iter().filter(move |allowance| allowance.covers_port(port)).map(|allowance| &allowance.target)
    }

    fn allows_host(&self, host: &str, port: u16) -> bool {
        self.targets(port).any(|target| match target {
            AllowedTarget::Host(name) => name == host,
            AllowedTarget::Network(_) => false,
        })
    }

    fn allowed_networks(&self, port: u16) -> Vec<IpNet> {
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

    fn guard(mode: ServerMode, allowances: &[&str]) -> Guard {
        Guard::new(mode, allowances.iter().map(|text| Allowance::parse(text).unwrap()).collect())
    }

    fn refused(guard: &Guard, url: &str) -> Option<EgressRefusal> {
        guard.connection_policy(&Url::parse(url).unwrap()).err()
    }

    #[test]
    fn parses_networks_addresses_and_host_names() {
        let network = |text: &str| AllowedTarget::Network(text.parse().unwrap());
        let host = |name: &str| AllowedTarget::Host(name.to_owned());
        for (text, target, port, displayed) in [
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
            let allowance = Allowance::parse(text).unwrap();
            assert_eq!(allowance, Allowance { target, port }, "{text}");
            assert_eq!(allowance.to_string(), displayed);
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
    fn allowance_with_a_port_covers_only_that_port() {
        let by_name = guard(ServerMode::Remote, &["gateway.internal:9000"]);
        assert_eq!(refused(&by_name, "https://gateway.internal:9000/"), None);
        assert_eq!(refused(&by_name, "https://gateway.internal:9001/"), Some(EgressRefusal::Port));
        let by_network = guard(ServerMode::Remote, &["10.0.0.0/8:9443", "[fd00::/8]:9443"]);
        for host in ["10.1.1.1", "[fd00::1]"] {
            assert_eq!(refused(&by_network, &format!("https://{host}:9443/")), None, "{host}");
            for port in ["", ":8443", ":9444"] {
                let url = format!("https://{host}{port}/");
                assert_eq!(refused(&by_network, &url), Some(EgressRefusal::Network), "{url}");
            }
        }
        let loopback = guard(ServerMode::Local, &["127.0.0.1:4000"]);
        assert_eq!(refused(&loopback, "http://127.0.0.1:4000/"), None);
        assert_eq!(refused(&loopback, "http://127.0.0.1:5432/"), Some(EgressRefusal::Network));
        // The guard checks the addresses of a host name on connection, together with the port.
        let (allowed_port, other_port) = ("https://name.example:9443/", "https://name.example/");
        let policy = |url: &str| by_network.connection_policy(&Url::parse(url).unwrap()).unwrap();
        assert_eq!(policy(allowed_port).check("10.1.1.1".parse().unwrap()), Ok(()));
        assert_eq!(policy(other_port).check("10.1.1.1".parse().unwrap()), Err(EgressRefusal::Network));
    }

    #[test]
    fn refuses_names_early_if_nothing_can_allow_them() {
        let without_allowances = guard(ServerMode::Remote, &[]);
        assert_eq!(refused(&without_allowances, "https://example.com/"), None);
        assert_eq!(refused(&without_allowances, "https://example.com:8443/"), None);
        assert_eq!(refused(&without_allowances, "https://example.com:22/"), Some(EgressRefusal::Port));
        assert_eq!(refused(&without_allowances, "http://example.com/"), Some(EgressRefusal::Scheme));
        assert_eq!(refused(&without_allowances, "https://user@example.com/"), Some(EgressRefusal::Credentials));
        assert_eq!(refused(&without_allowances, "https://:secret@example.com/"), Some(EgressRefusal::Credentials));
        let with_allowance = guard(ServerMode::Remote, &["gateway.internal"]);
        assert_eq!(refused(&with_allowance, "https://gateway.internal.:9000/"), None);
        assert_eq!(refused(&with_allowance, "https://gateway.internal.evil:9000/"), Some(EgressRefusal::Port));
        assert_eq!(refused(&with_allowance, "http://gateway.internal/"), Some(EgressRefusal::Scheme));
    }

    #[test]
    fn localhost_is_loopback_without_a_lookup() {
        let without_allowance = guard(ServerMode::Local, &[]);
        for url in ["https://localhost/", "https://localhost./", "https://api.localhost/", "http://LOCALHOST:4000/"] {
            assert_eq!(refused(&without_allowance, url), Some(EgressRefusal::Network), "{url}");
        }
        assert_eq!(refused(&without_allowance, "http://name.example/"), Some(EgressRefusal::Scheme));
        let with_allowance = guard(ServerMode::Local, &["127.0.0.0/8"]);
        assert_eq!(refused(&with_allowance, "http://localhost:4000/"), None);
        assert_eq!(refused(&with_allowance, "https://notlocalhost/"), None);
    }

    #[test]
    fn plain_http_to_loopback_requires_local_mode_and_allowance() {
        let url = "http://127.0.0.1:4000/";
        assert_eq!(refused(&guard(ServerMode::Local, &[]), url), Some(EgressRefusal::Network));
        assert_eq!(refused(&guard(ServerMode::Remote, &["127.0.0.0/8"]), url), Some(EgressRefusal::Scheme));
        assert_eq!(refused(&guard(ServerMode::Local, &["127.0.0.0/8"]), url), None);
        // Without encryption, an allowance counts for loopback addresses only.
        assert_eq!(
            refused(&guard(ServerMode::Local, &["10.0.0.0/8"]), "http://10.1.1.1/"),
            Some(EgressRefusal::Scheme)
        );
        assert_eq!(refused(&guard(ServerMode::Local, &["10.0.0.0/8"]), "https://10.1.1.1:9443/"), None);
    }

    #[test]
    fn configured_origins_are_allowed_exactly() {
        let guard =
            guard(ServerMode::Remote, &[]).with_allowed_origin(&Url::parse("http://127.0.0.1:4000/v1").unwrap());
        assert_eq!(refused(&guard, "http://127.0.0.1:4000/v1/chat"), None);
        assert_eq!(refused(&guard, "http://127.1:4000/"), None, "the same address in another notation");
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
