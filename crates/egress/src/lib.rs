//! The egress guard of every outgoing request.
//!
//! A destination is checked when a client is created ([`Guard::endpoint`]) and again for every address of each new
//! connection. Redirects are never followed. An [`EndpointClient`] is bound to one scheme, host and port, so that the
//! decision for one address never applies to another.
//!
//! INVARIANT: no other package creates clients for addresses from user input.

mod address;
mod endpoint_client;
mod error;
mod guard;
mod non_http_connection;
mod refusal;
mod resolver;
mod response;
mod trusted_authorities;

pub use endpoint_client::{EgressRequest, EndpointClient, ResponseLimits};
pub use error::EgressError;
pub use guard::{Allowance, AllowanceRefusal, AllowedTarget, Guard, ServerMode};
pub use refusal::EgressRefusal;
pub use reqwest::{Method, StatusCode, header};
pub use resolver::{Resolver, SystemResolver};
pub use response::{Body, EgressResponse};
pub use trusted_authorities::{Authorities, AuthoritiesRefusal};
pub use url::Url;
