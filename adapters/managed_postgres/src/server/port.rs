//! Free ports.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Lets the kernel choose a free port of the loopback address. Another program may take it before it is used.
pub(crate) fn free() -> io::Result<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr().map(|address| address.port())
}
