//! Test infrastructure: a managed PostgreSQL server, databases cloned from a migrated template, and the app on a free
//! port. Never used outside tests.

pub mod app;
mod artifacts;
mod bucket;
mod clock;
mod database;
mod endpoint;
mod fault_proxy;
mod flows;
mod gateway;
mod issuer;
mod long_form;
mod mail;
mod openapi_check;
mod permissions;
mod provider;
mod stub_gateway;

pub use app::TestApp;
pub use artifacts::{ArtifactFault, FaultyArtifacts};
pub use bucket::{ACCESS_KEY, S3Server};
pub use clock::MovableClock;
pub use database::{TestDatabase, connect};
pub use endpoint::{FaultyEndpoint, RecordedRequest, ScriptedResponse};
pub use fault_proxy::{FaultPoint, FaultProxy, InjectedFault, ProxyFault};
pub use flows::AGENT_FLOW;
pub use gateway::{GATEWAY_KEY, LiteLlmGateway};
pub use issuer::{AUDIENCE, COMMAND_LINE, PIPELINE, PORTAL, TestIssuer};
pub use mail::{ReceivedMail, SmtpServer};
pub use openapi_check::assert_documented;
pub use permissions::PermissionsByActorName;
pub use provider::{Behaviour, StubProvider};
pub use stub_gateway::{GatewayBehaviour, StubGateway};

/// Whether this test run requests the long forms of tests, as `cargo xtask model` does.
///
/// # Panics
/// When the running test is not listed in `long_forms.txt`.
#[must_use]
pub fn is_long() -> bool {
    long_form::is_long(std::env::args(), |name| std::env::var_os(name).is_some())
}

/// Installs the process-wide cryptography provider for TLS; later calls have no effect.
pub fn init() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
