//! Test infrastructure: a managed PostgreSQL server, databases cloned from a migrated template, and the app on a free
//! port. Never used outside tests.

mod agent_flow_yaml;
pub mod app;
mod clock;
mod database;
mod documented_status_and_headers;
mod fault_proxy;
mod faulty_artifact_store;
mod issuer;
mod litellm_gateway;
mod long_form;
mod permissions_by_actor_name;
mod s3_server;
mod scripted_endpoint;
mod smtp_server;
mod stub_provider;
mod stub_script_gateway;

pub use agent_flow_yaml::AGENT_FLOW;
pub use app::TestApp;
pub use clock::MovableClock;
pub use database::{TestDatabase, connect};
pub use documented_status_and_headers::assert_documented_status_and_headers;
pub use fairway_managed_postgres::unused_port::unused_address;
pub use fault_proxy::{FaultPoint, FaultProxy, InjectedFault, ProxyFault};
pub use faulty_artifact_store::{ArtifactFault, FaultyArtifactStore};
pub use issuer::{ACCESS_TOKEN_AUDIENCE, COMMAND_LINE_CLIENT_ID, PIPELINE_CREDENTIALS, PORTAL_CLIENT_ID, TestIssuer};
pub use litellm_gateway::{LITELLM_API_KEY, LiteLlmGateway};
pub use permissions_by_actor_name::PermissionsByActorName;
pub use s3_server::{S3_ACCESS_KEY, S3Server};
pub use scripted_endpoint::{RecordedRequest, ScriptedEndpoint, ScriptedResponse};
pub use smtp_server::{ReceivedMail, SmtpServer};
pub use stub_provider::{ProviderBehaviour, StubProvider};
pub use stub_script_gateway::{ScriptGatewayBehaviour, StubScriptGateway};

/// Whether this test run requests the long forms of tests. Only `cargo xtask model` does.
///
/// # Panics
/// When the running test is not listed in `long_forms.txt`.
#[must_use]
pub fn is_long_form_requested() -> bool {
    long_form::is_long(std::env::args(), |name| std::env::var_os(name).is_some())
}

/// Installs the process-wide cryptography provider for TLS; later calls have no effect.
pub fn install_crypto_provider() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
