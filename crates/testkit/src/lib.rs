//! Test infrastructure: a managed PostgreSQL server, databases cloned from a migrated template, and the app on a free
//! port. Never used outside tests.

pub mod app;
mod clock;
mod database;
mod fault_proxy;
mod faulty_artifact_store;
mod flows;
mod issuer;
mod litellm_gateway;
mod long_form;
mod openapi_check;
mod s3_server;
mod scripted_endpoint;
mod single_permission_callers;
mod smtp_server;
mod stub_gateway;
mod stub_provider;

pub use app::TestApp;
pub use clock::MovableClock;
pub use database::{TestDatabase, connect};
pub use fairway_managed_postgres::unused_port::unused_address;
pub use fault_proxy::{FaultPoint, FaultProxy, InjectedFault, ProxyFault};
pub use faulty_artifact_store::{ArtifactFault, FaultyArtifacts};
pub use flows::AGENT_FLOW;
pub use issuer::{AUDIENCE, COMMAND_LINE_CLIENT_ID, PIPELINE_CREDENTIALS, PORTAL_CLIENT_ID, TestIssuer};
pub use litellm_gateway::{GATEWAY_KEY, LiteLlmGateway};
pub use openapi_check::assert_documented;
pub use s3_server::{ACCESS_KEY, S3Server};
pub use scripted_endpoint::{RecordedRequest, ScriptedEndpoint, ScriptedResponse};
pub use single_permission_callers::PermissionsByActorName;
pub use smtp_server::{ReceivedMail, SmtpServer};
pub use stub_gateway::{GatewayBehaviour, StubGateway};
pub use stub_provider::{ProviderBehaviour, StubProvider};

/// Whether this test run requests the long forms of tests. Only `cargo xtask model` does.
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
