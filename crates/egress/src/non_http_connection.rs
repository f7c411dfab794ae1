//! Connections over protocols other than HTTP. The guard checks each address before the connection, as for HTTP.

use crate::{
    error::EgressError,
    guard::{ConnectionPolicy, Guard},
    refusal::EgressRefusal,
    resolver::MAX_ADDRESSES,
};
use std::net::{IpAddr, SocketAddr};
use tokio::net::TcpStream;
use url::{Host, Url};

impl Guard {
    /// Opens a TCP connection to the host and port of an address, such as `postgres://db.internal:5432`. Ports other
    /// than 443 and 8443 require an allowance.
    ///
    /// # Errors
    /// When the destination is refused, its name does not resolve, or the connection fails.
    pub async fn dial(&self, address: &str, default_port: u16) -> Result<TcpStream, EgressError> {
        for address in self.checked_addresses(address, default_port).await? {
            if let Ok(stream) = TcpStream::connect(address).await {
                return Ok(stream);
            }
        }
        Err(EgressError::Unreachable)
    }

    /// Returns the socket addresses of the host and port of an address, if all of them are allowed. Libraries that
    /// open their own connections can connect to the returned addresses without a further check.
    ///
    /// # Errors
    /// When the destination is refused, or its name does not resolve.
    pub async fn checked_addresses(&self, address: &str, default_port: u16) -> Result<Vec<SocketAddr>, EgressError> {
        let url = Url::parse(address).map_err(|_| EgressRefusal::InvalidAddress)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EgressRefusal::Credentials.into());
        }
        let port = url.port().unwrap_or(default_port);
        // For a scheme that the URL parser does not recognize, it returns an IP address as a host name. `Host::parse`
        // recognizes the address.
        let host = url.host_str().and_then(|host| Host::parse(host).ok()).ok_or(EgressRefusal::InvalidAddress)?;
        let policy = self.dial_policy(&url, &host, port);
        let addresses = match host {
            Host::Ipv4(address) => vec![IpAddr::from(address)],
            Host::Ipv6(address) => vec![IpAddr::from(address)],
            Host::Domain(name) => {
                policy.check_port()?;
                let resolved = self.resolver().resolve(&name).await.map_err(|_| EgressError::Unresolved)?;
                if resolved.is_empty() {
                    return Err(EgressError::Unresolved);
                }
                resolved
            }
        };
        check(&policy, &addresses)?;
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }
}

/// Checks that all addresses of a name are allowed.
fn check(policy: &ConnectionPolicy, addresses: &[IpAddr]) -> Result<(), EgressRefusal> {
    if addresses.len() > MAX_ADDRESSES {
        return Err(EgressRefusal::TooManyAddresses);
    }
    addresses.iter().try_for_each(|address| policy.check(*address))
}
