//! A managed PostgreSQL server: Fairway finds its programs on this machine, starts it, and stops it on exit.
//!
//! A managed server lets people try Fairway without installing or configuring a database. [`Binaries::find`] searches
//! for existing PostgreSQL programs. [`ManagedServer::start`] runs them on a dedicated directory and a free loopback
//! port. Dropping the value stops the server. `cargo xtask` can install PostgreSQL if none is found.
//!
//! - INVARIANT: at most one live process owns a directory; a second one is refused with [`StartError::InUse`].
//! - INVARIANT: the server never runs as root; it runs under an unprivileged account when the caller is root.
//! - If an owner was killed, the next start on its directory stops the server that it left running. No committed data
//!   is lost.
//! - Ctrl-C in the terminal does not reach the server, so that its owner can drain first and stop the server last.

pub mod binaries;
mod os_account;
pub mod parent_death;
pub mod server;
pub mod state_directories;
mod temporary_directories;
pub mod unused_port;

pub use binaries::{Binaries, FindError};
pub use server::{ClusterLifetime, ManagedServer, Options, StartError, StopError};
