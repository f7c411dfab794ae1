//! Runs scripts of agents: in a child of this very program that may do nothing but think ([`Embedded`]), or at a gateway of
//! somebody else ([`External`]).
//!
//! The child gets an empty environment, a process group of its own, and pipes for what goes in and comes out. It gives up
//! everything else before it reads the script: memory, time and files by limits, and every system call that it does not need
//! to think by a filter that ends it. What it answers is believed as little as if a stranger had sent it.

mod child;
mod confine;
mod embedded;
mod external;
mod javascript;
mod said;
mod starlark;
mod wire;

pub use child::serve;
pub use confine::{ConfineError, confine};
pub use embedded::Embedded;
pub use external::{External, UnusableToken};
