//! Failures to compose a process from its settings.

use actix_web::http::header::InvalidHeaderValue;
use fairway_artifacts::OpenError;
use fairway_domain::store::StoreError;
use fairway_egress::EgressError;
use fairway_message_sender::MailServerRefusal;
use fairway_oidc::IssuerConfigError;
use fairway_sandbox::UnusableToken;
use fairway_secrets::VaultSettingsError;

/// Failure to create an adapter that the settings select.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// The settings of the vault are invalid.
    #[error("failed to set up the sources of secrets")]
    Secrets(#[source] VaultSettingsError),
    /// The egress guard refuses the address of a provider account.
    #[error("failed to set up the provider account `{account_slot}`")]
    ProviderAccount {
        /// The slot of the account, as the settings name it.
        account_slot: String,
        /// Reason why the egress guard refuses the address.
        source: EgressError,
    },
    /// The artifact store cannot be opened.
    #[error("failed to open the artifact store")]
    ArtifactStore(#[source] OpenError),
    /// The checkpoint archive cannot be opened.
    #[error("failed to open the checkpoint archive")]
    CheckpointArchive(#[source] OpenError),
    /// The settings of the mail server are invalid.
    #[error("failed to set up the mail server")]
    MailServer(#[source] MailServerRefusal),
    /// The egress guard refuses the address of a witness.
    #[error("failed to set up the witness `{name}`")]
    Witness {
        /// The name of the witness.
        name: String,
        /// Reason why the egress guard refuses the address.
        source: EgressError,
    },
    /// The egress guard refuses the address of the runtime gateway.
    #[error("failed to set up the runtime gateway")]
    RuntimeGateway(#[source] EgressError),
    /// The token of the runtime gateway cannot be sent in a header.
    #[error("failed to set up the runtime gateway")]
    RuntimeGatewayToken(#[source] UnusableToken),
    /// The configuration of an identity provider is invalid.
    #[error("failed to set up the identity providers")]
    IdentityProviders(#[source] IssuerConfigError),
    /// The configuration of the browser sign-in is invalid.
    #[error("failed to set up the sign-in")]
    SignIn(#[source] IssuerConfigError),
}

/// Failure to compose a process.
#[derive(Debug, thiserror::Error)]
pub enum ComposeError {
    /// The database URL is invalid.
    #[error(transparent)]
    Database(#[from] StoreError),
    /// The metrics cannot be registered.
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
    /// The server's public address cannot be part of a header.
    #[error(transparent)]
    Authentication(#[from] InvalidHeaderValue),
    /// The OpenAPI document cannot be serialized.
    #[error(transparent)]
    OpenApi(#[from] serde_json::Error),
}
