//! Script execution: in a confined child of this program ([`EmbeddedGateway`]), or at an external HTTP gateway
//! ([`HttpGateway`]).
//!
//! The child receives one environment variable (settings of its allocator), its own process group, and pipes for input
//! and output. It confines itself before it reads the script: it limits memory, time and files, and installs a filter
//! that kills it on any system call that computation does not need. The server validates the child's response like
//! untrusted input.

mod child;
mod confine;
mod embedded;
mod http_gateway;
mod ipc;
mod javascript;
mod output;
mod starlark;

pub use child::run_child;
pub use confine::{ConfineError, confine};
pub use embedded::EmbeddedGateway;
pub use http_gateway::{HttpGateway, UnusableToken};
