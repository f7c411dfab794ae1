//! Classification of IP addresses: public or not.

use ipnet::{Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Non-public IPv4 networks: those of the IANA IPv4 Special-Purpose Address Registry that are not globally reachable,
/// multicast, and the internal address of one cloud.
const NON_PUBLIC_V4: [Ipv4Net; 17] = [
    v4([0, 0, 0, 0], 8),          // this network
    v4([10, 0, 0, 0], 8),         // private
    v4([100, 64, 0, 0], 10),      // carrier-grade NAT; metadata services of some clouds
    v4([127, 0, 0, 0], 8),        // loopback
    v4([169, 254, 0, 0], 16),     // link-local; metadata services of most clouds
    v4([168, 63, 129, 16], 32),   // public by registry, but internal to Microsoft Azure
    v4([172, 16, 0, 0], 12),      // private
    v4([192, 0, 0, 0], 24),       // protocol assignments
    v4([192, 0, 2, 0], 24),       // documentation
    v4([192, 88, 99, 0], 24),     // 6to4 relays
    v4([192, 168, 0, 0], 16),     // private
    v4([198, 18, 0, 0], 15),      // benchmarks
    v4([198, 51, 100, 0], 24),    // documentation
    v4([203, 0, 113, 0], 24),     // documentation
    v4([224, 0, 0, 0], 4),        // multicast
    v4([240, 0, 0, 0], 4),        // reserved
    v4([255, 255, 255, 255], 32), // broadcast
];

/// The globally allocated part of IPv6. Mapped (`::ffff:0:0/96`), translated (`64:ff9b::/96`), unique local
/// (`fc00::/7`), link-local (`fe80::/10`) and multicast addresses are outside of this network.
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0], 3);

/// Networks within [`GLOBAL_V6`] that are not public, or that embed IPv4 addresses.
const NON_PUBLIC_V6: [Ipv6Net; 4] = [
    v6([0x2001, 0, 0], 23),     // protocol assignments: Teredo, benchmarks, ORCHID
    v6([0x2001, 0xdb8, 0], 32), // documentation
    v6([0x2002, 0, 0], 16),     // 6to4
    v6([0x3fff, 0, 0], 20),     // documentation
];

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6([a, b, c]: [u16; 3], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), prefix)
}

/// Whether an address belongs to the public internet.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !NON_PUBLIC_V4.iter().any(|network| network.contains(&address)),
        IpAddr::V6(address) => {
            GLOBAL_V6.contains(&address) && !NON_PUBLIC_V6.iter().any(|network| network.contains(&address))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_public_addresses() {
        for address in ["1.1.1.1", "9.9.9.9", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1", "192.0.1.1"]
        {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in ["2606:4700:4700::1111", "2a00:1450:4001::1", "2001:4860:4860::8888", "2620:fe::fe"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn refuses_non_public_addresses() {
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.255",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:db8::1",
            "2002:a00:1::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }
}
