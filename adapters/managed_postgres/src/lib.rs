//! A managed PostgreSQL server: found on this machine, started for one Fairway, stopped with it.
//!
//! Fairway can be tried without installing or configuring a database. [`Binaries::find`] searches existing
//! PostgreSQL programs. [`ManagedServer::start`] runs them on a directory of their own, on a free loopback port, and
//! stops them when dropped. `cargo xtask` covers the installation.
//!
//! - INVARIANT: at most one live process owns a directory; a second one is refused with [`StartError::InUse`].
//! - INVARIANT: the server never runs as root; it gets an unprivileged account when the caller is root.
//! - A server that outlived a killed owner is stopped by the next start on its directory, without loss of committed
//!   data.
//! - Ctrl-C in the terminal does not reach the server: its owner drains first and stops it last.

pub mod binaries;
mod os_account;
pub mod parent_death;
pub mod server;
pub mod state_directories;
mod temporary_directories;

pub use binaries::{Binaries, FindError};
pub use server::{Durability, ManagedServer, Options, StartError, StopError};
