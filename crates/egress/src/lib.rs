//! The one guard of every request that leaves the product.
//!
//! Where a request may go is decided three times: when somebody names an address ([`Guard::endpoint`]), each time that a
//! connection is made, on the addresses that the name has at that moment, and when an answer points elsewhere, which
//! nobody follows. An [`Endpoint`] speaks to one scheme, host and port alone, so that what was allowed for one address is
//! never used for another.
//!
//! INVARIANT: no other package makes a client for addresses that people name.

mod address;
mod answer;
mod endpoint;
mod guard;
mod refusal;
mod resolver;
mod trust;

pub use answer::{Answer, Body};
pub use endpoint::{Call, Endpoint, Limits};
pub use guard::{Allowance, AllowanceRefusal, AllowedTarget, Guard, Reach};
pub use refusal::{EgressError, EgressRefusal};
pub use reqwest::{Method, StatusCode, header};
pub use resolver::{Resolver, System};
pub use url::Url;
