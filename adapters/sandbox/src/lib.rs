//! Script execution: in a confined child of this program ([`EmbeddedGateway`]), or at an external HTTP gateway
//! ([`HttpGateway`]).
//!
//! The child gets an empty environment, its own process group, and pipes for input and output. Before it reads the
//! script, it confines itself: limits of memory, time and files, and a filter that kills it on any system call
//! beyond computation. Its response is validated like untrusted input.

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
