//! Finds free ports.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Asks the kernel for a free port of the loopback address. Another program may take the port before the caller
/// uses it.
pub(crate) fn free() -> io::Result<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr().map(|address| address.port())
}
