//! Addresses for the servers that checks and tests start as separate processes, and for the managed PostgreSQL.
//!
//! A check chooses the address of a server before the server binds it, because other settings contain the address. In
//! between, the kernel must not give the port to an outgoing connection, which includes an attempt to connect to that
//! port: such a connection connects to itself. The ports are therefore below Linux's default range of ports for
//! outgoing connections, which begins at 32768.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 12_000;

/// Number of ports that this process has tried. A port is chosen once, even if its server has not bound it yet.
static TRIED: AtomicU32 = AtomicU32::new(0);

/// A loopback address with a port that no socket is bound to.
///
/// # Errors
/// When every port is in use.
pub fn unused_address() -> io::Result<SocketAddr> {
    (0..PORTS)
        .map(|_| SocketAddr::from((Ipv4Addr::LOCALHOST, next_port())))
        .find(|address| TcpListener::bind(address).is_ok())
        .ok_or_else(|| io::Error::new(ErrorKind::AddrInUse, "every port between 20000 and 31999 is in use"))
}

/// The next port. Processes begin at different ports, so that concurrent checks rarely choose the same.
fn next_port() -> u16 {
    let number = process::id().wrapping_mul(97).wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
    let offset = number % u32::from(PORTS);
    FIRST_PORT.saturating_add(u16::try_from(offset).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn chooses_each_port_once_and_none_of_outgoing_connections() {
        let chosen_ports: Vec<u16> = (0..50).map(|_| unused_address().unwrap().port()).collect();
        assert_eq!(chosen_ports.iter().collect::<BTreeSet<_>>().len(), chosen_ports.len(), "{chosen_ports:?}");
        assert!(chosen_ports.iter().all(|port| (20_000..32_768).contains(port)), "{chosen_ports:?}");
    }

    #[test]
    fn skips_a_port_in_use() {
        let next = unused_address().unwrap().port() + 1;
        let occupied: Vec<_> =
            (next..next + 3).filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()).collect();
        let ports: Vec<u16> = occupied.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        assert!(!ports.is_empty());
        assert!(!ports.contains(&unused_address().unwrap().port()), "{ports:?}");
    }
}
