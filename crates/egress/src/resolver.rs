//! Which addresses a name has, looked at before any of them is used.

use crate::{
    guard::Demand,
    refusal::{EgressError, EgressRefusal},
};
use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};
use tokio::net::lookup_host;

/// Most addresses of one name. Big services have a dozen; thousands are an attack on whoever tries them.
const MOST: usize = 64;

/// Finds the addresses of names.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// The addresses of a name, in the order in which they are to be tried.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The machine's own way of finding them.
#[derive(Clone, Copy, Debug)]
pub struct System;

#[async_trait]
impl Resolver for System {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        // One more than are taken, so that too many are noticed and not cut.
        Ok(lookup_host((name, 0)).await?.map(|address| address.ip()).take(MOST.saturating_add(1)).collect())
    }
}

/// Resolves a name once for each connection and hands out its addresses only if every one of them may be reached.
pub(crate) struct Checked {
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) demand: Arc<Demand>,
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let (resolver, demand) = (Arc::clone(&self.resolver), Arc::clone(&self.demand));
        Box::pin(async move {
            let found = resolver.resolve(name.as_str()).await.map_err(|_| EgressError::Unresolved)?;
            if found.is_empty() {
                return Err(EgressError::Unresolved.into());
            }
            if found.len() > MOST {
                return Err(EgressError::Refused(EgressRefusal::TooManyAddresses).into());
            }
            // A name that stands for good and bad addresses is a trick, or becomes one with the next try.
            found.iter().try_for_each(|address| demand.check(*address)).map_err(EgressError::Refused)?;
            // The client puts its port in.
            let addresses = found.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}
