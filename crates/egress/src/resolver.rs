//! Name resolution that checks every address of a name before a connection uses any of them.

use crate::{error::EgressError, guard::ConnectionPolicy, refusal::EgressRefusal};
use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};
use tokio::net::lookup_host;

/// Maximum number of addresses of one name. Large services have a dozen; thousands indicate an attack.
pub(crate) const MAX_ADDRESSES: usize = 64;

/// Resolves names to addresses.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// Returns the addresses of a name, in the order in which to try them.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the operating system.
#[derive(Clone, Copy, Debug)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        // Reads one address more than the limit, so that the caller detects an excess.
        Ok(lookup_host((name, 0)).await?.map(|address| address.ip()).take(MAX_ADDRESSES.saturating_add(1)).collect())
    }
}

/// Resolves a name for each connection, and returns its addresses only if all of them are allowed.
pub(crate) struct CheckedResolver {
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) policy: Arc<ConnectionPolicy>,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (resolver, policy) = (Arc::clone(&self.resolver), Arc::clone(&self.policy));
        Box::pin(async move {
            let resolved = resolver.resolve(name.as_str()).await.map_err(|_| EgressError::Unresolved)?;
            if resolved.is_empty() {
                return Err(EgressError::Unresolved.into());
            }
            if resolved.len() > MAX_ADDRESSES {
                return Err(EgressError::Refused(EgressRefusal::TooManyAddresses).into());
            }
            // A mix of allowed and refused addresses indicates an attack: the next connection might use a refused
            // address.
            resolved.iter().try_for_each(|address| policy.check(*address)).map_err(EgressError::Refused)?;
            // Port 0 is a placeholder: the HTTP client sets the port.
            let addresses = resolved.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}
