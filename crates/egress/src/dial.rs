//! Connections of other protocols than HTTP, under the same rules: each address is checked before it is used.

use crate::{
    guard::{ConnectionPolicy, Guard},
    refusal::{EgressError, EgressRefusal},
    resolver::MAX_ADDRESSES,
};
use std::net::{IpAddr, SocketAddr};
use tokio::net::TcpStream;
use url::{Host, Url};

impl Guard {
    /// Opens a TCP connection to the host and port of an address, such as `postgres://db.internal:5432`. Ports other than
    /// 443 and 8443 require an allowance.
    ///
    /// # Errors
    /// When the destination is refused, its name does not resolve, or the connection fails.
    pub async fn dial(&self, address: &str, default_port: u16) -> Result<TcpStream, EgressError> {
        let url = Url::parse(address).map_err(|_| EgressRefusal::InvalidAddress)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EgressRefusal::Credentials.into());
        }
        let port = url.port().unwrap_or(default_port);
        // The parser keeps the host of an unknown scheme as a text, also that of an address.
        let host = url.host_str().and_then(|host| Host::parse(host).ok()).ok_or(EgressRefusal::InvalidAddress)?;
        let policy = self.dial_policy(&host, port);
        let addresses = match host {
            Host::Ipv4(address) => vec![IpAddr::from(address)],
            Host::Ipv6(address) => vec![IpAddr::from(address)],
            Host::Domain(name) => {
                policy.check_port()?;
                let found = self.resolver().resolve(&name).await.map_err(|_| EgressError::Unresolved)?;
                if found.is_empty() {
                    return Err(EgressError::Unresolved);
                }
                found
            }
        };
        connect(&policy, &addresses, port).await
    }
}

/// Connects to the first address that accepts, if all of them are allowed.
async fn connect(policy: &ConnectionPolicy, addresses: &[IpAddr], port: u16) -> Result<TcpStream, EgressError> {
    if addresses.len() > MAX_ADDRESSES {
        return Err(EgressRefusal::TooManyAddresses.into());
    }
    addresses.iter().try_for_each(|address| policy.check(*address))?;
    for address in addresses {
        if let Ok(stream) = TcpStream::connect(SocketAddr::new(*address, port)).await {
            return Ok(stream);
        }
    }
    Err(EgressError::Unreachable)
}
