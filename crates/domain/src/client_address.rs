//! The address or network by which rate limits and load shedding identify a client.

use std::net::{IpAddr, Ipv6Addr};

/// The length of the IPv6 prefix that identifies a client, because a client typically controls all addresses with the
/// same prefix.
const IPV6_PREFIX_BITS: u32 = 64;

/// The address or IPv6 network by which rate limits identify a client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClientAddress(IpAddr);

impl ClientAddress {
    /// The client that uses an address. It is identified by the address itself for IPv4 (also IPv4-mapped IPv6), and by
    /// its network for IPv6.
    #[must_use]
    pub fn from_ip_truncating_v6(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let network = u128::from(address) & (u128::MAX << (u128::BITS - IPV6_PREFIX_BITS));
                IpAddr::V6(Ipv6Addr::from(network))
            }
        })
    }

    pub(crate) fn ip(self) -> IpAddr {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> ClientAddress {
        ClientAddress::from_ip_truncating_v6(text.parse().unwrap())
    }

    #[test]
    fn identifies_clients_by_address_or_network() {
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
        assert_eq!(client("2001:db8:1:2::1"), client("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(client("2001:db8:1:2::1"), client("2001:db8:1:3::1"));
    }
}
