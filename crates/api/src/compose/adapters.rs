//! The adapters behind the ports, as the settings select them.

use super::AdapterError;
use crate::{
    config::{AuthMode, GatewaySettings, Issuer, ProviderAccount, ProviderEndpoint, ProviderKind, Settings},
    http::authentication::CliClient,
    runtime_info::ProviderPlugin,
    system_clock_and_ids::{SystemClock, SystemIds},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use fairway_artifacts::{ObjectArtifactStore, ObjectCheckpointArchive};
use fairway_domain::{
    access::{AccessStore, identity::IdentityProvider, sign_in_provider::SignInProvider},
    asset::artifact_store::ArtifactStore,
    clock::Clock,
    connection::probe::EndpointProber,
    execution::{http_call::HttpCaller, provider::Provider, script::ScriptGateway},
    id::IdSource,
    notification::message::MessageSender,
    secret::{Secret, SecretReader},
    transparency_log::{CheckpointArchive, CheckpointSigner, Witness, WitnessKey},
};
use fairway_egress::{Allowance, EgressError, Guard, ServerMode, Url};
use fairway_message_sender::{GuardedSender, MailServer};
use fairway_oidc::{OidcSignIn, SignInConfig, TokenVerifier};
use fairway_operations::access::IdentityMode;
use fairway_providers::{
    AccountConnection, AccountRouter, Anthropic, LocalProvider, OpenAi, ProviderWithAccountSettings,
};
use fairway_sandbox::{EmbeddedGateway, HttpGateway};
use fairway_secrets::{CheckpointKeySource, SecretSigner, SecretSources, Vault};
use fairway_tool_client::ToolAndHookClient;
use fairway_witness_client::HttpWitness;
use std::sync::Arc;

/// A decorator around the store of role bindings.
pub type AccessStoreDecorator = Arc<dyn Fn(Arc<dyn AccessStore>) -> Arc<dyn AccessStore> + Send + Sync>;

/// The adapters behind the ports; tests replace them.
#[derive(Clone)]
pub struct Adapters {
    /// Decorates the store of role bindings; `None` outside tests.
    pub access_decorator: Option<AccessStoreDecorator>,
    /// Store of artifacts, such as the canonical bytes of versions.
    pub artifacts: Arc<dyn ArtifactStore>,
    /// Keeps published checkpoints outside the database.
    pub checkpoint_archive: Arc<dyn CheckpointArchive>,
    /// Signs the checkpoints of the transparency logs.
    pub checkpoint_signer: Arc<dyn CheckpointSigner>,
    /// Independent parties that cosign checkpoints.
    pub witnesses: Vec<Arc<dyn Witness>>,
    /// Calls model providers.
    pub provider: Arc<dyn Provider>,
    /// Calls the URLs of tools and hooks.
    pub http_caller: Arc<dyn HttpCaller>,
    /// Checks the endpoints of connections.
    pub endpoint_probe: Arc<dyn EndpointProber>,
    /// Sends notifications outside the inbox.
    pub message_sender: Arc<dyn MessageSender>,
    /// Executes scripts.
    pub code_gateway: Arc<dyn ScriptGateway>,
    /// Verifies access tokens; `None` in local mode.
    pub identity_provider: Option<Arc<dyn IdentityProvider>>,
    /// Performs browser sign-ins; `None` if no issuer has a client for the portal.
    pub sign_in: Option<Arc<dyn SignInProvider>>,
    /// The source of the current time.
    pub clock: Arc<dyn Clock>,
    /// The source of new identifiers.
    pub ids: Arc<dyn IdSource>,
}

impl Adapters {
    /// Creates the adapters that the settings select.
    ///
    /// # Errors
    /// When the artifact store, a provider account, the vault or the runtime gateway cannot be set up.
    pub fn of(settings: &Settings) -> Result<Self, AdapterError> {
        let guard = egress_guard(settings);
        warn_of_open_ports(&settings.egress_allow);
        let secrets = secret_reader(settings, &guard)?;
        let mut accounts: Vec<(String, Arc<dyn Provider>)> = Vec::new();
        for account in &settings.providers {
            let provider = provider(account, &guard, &secrets).map_err(|source| AdapterError::ProviderAccount {
                account_slot: account.account_slot.clone(),
                source,
            })?;
            accounts.push((account.account_slot.clone(), provider));
        }
        let verifier = token_verifier(settings, &guard)?;
        let sign_in = match &verifier {
            Some(verifier) => sign_in(settings, verifier, &guard, &secrets)?,
            None => None,
        };
        let tool_client = Arc::new(ToolAndHookClient::new(guard.clone(), Arc::clone(&secrets)));
        Ok(Self {
            access_decorator: None,
            artifacts: Arc::new(ObjectArtifactStore::open(&settings.artifacts).map_err(AdapterError::ArtifactStore)?),
            checkpoint_archive: Arc::new(
                ObjectCheckpointArchive::open(&settings.checkpoint_archive).map_err(AdapterError::CheckpointArchive)?,
            ),
            checkpoint_signer: checkpoint_signer(settings, &secrets),
            witnesses: witnesses(settings, &guard)?,
            provider: Arc::new(AccountRouter::new(accounts)),
            code_gateway: gateway(settings, &guard)?,
            sign_in,
            http_caller: tool_client.clone(),
            endpoint_probe: tool_client,
            message_sender: message_sender(settings, &guard, &secrets)?,
            identity_provider: verifier.map(|verifier| verifier as Arc<dyn IdentityProvider>),
            clock: Arc::new(SystemClock),
            ids: Arc::new(SystemIds),
        })
    }
}

/// The sender of notifications, with the operator's mail server if one is configured.
fn message_sender(
    settings: &Settings,
    guard: &Guard,
    secrets: &Arc<dyn SecretReader>,
) -> Result<Arc<dyn MessageSender>, AdapterError> {
    let server = settings.mail.as_ref().map(|mail| MailServer::parse(guard, mail.url.expose(), &mail.from));
    let server = server.transpose().map_err(AdapterError::MailServer)?;
    let sender = GuardedSender::new(guard.clone(), Arc::clone(secrets), Arc::new(SystemClock), server);
    Ok(Arc::new(sender.with_public_url(settings.public_url.as_ref().map(|url| url.as_str()))))
}

/// The signer of checkpoints. Without a configured key, it generates one in the data directory.
fn checkpoint_signer(settings: &Settings, secrets: &Arc<dyn SecretReader>) -> Arc<dyn CheckpointSigner> {
    let current = settings.checkpoint_key.clone().map_or_else(
        || CheckpointKeySource::GeneratedFile(settings.data_dir.join("checkpoint.key")),
        CheckpointKeySource::Reference,
    );
    let generate = || Secret::new(BASE64_STANDARD.encode(SystemIds.secret()));
    Arc::new(SecretSigner::new(Arc::clone(secrets), current, settings.checkpoint_previous_key.clone(), generate))
}

/// The witnesses that cosign checkpoints.
fn witnesses(settings: &Settings, guard: &Guard) -> Result<Vec<Arc<dyn Witness>>, AdapterError> {
    let witness = |(key, address): &(WitnessKey, Url)| {
        let witness = HttpWitness::new(guard, key.clone(), address);
        let witness = witness.map_err(|source| AdapterError::Witness { name: key.name().to_owned(), source })?;
        Ok(Arc::new(witness) as Arc<dyn Witness>)
    };
    settings.witnesses.iter().map(witness).collect()
}

/// The runtime gateway: the embedded sandbox, unless the settings name an external gateway.
fn gateway(settings: &Settings, guard: &Guard) -> Result<Arc<dyn ScriptGateway>, AdapterError> {
    match &settings.runtime_gateway {
        None => Ok(Arc::new(EmbeddedGateway::new())),
        Some(GatewaySettings { address, token }) => {
            let gateway = HttpGateway::new(guard, address.as_str()).map_err(AdapterError::RuntimeGateway)?;
            let gateway = match token {
                Some(token) => {
                    let token = Secret::new(token.expose().to_owned());
                    gateway.with_token(&token).map_err(AdapterError::RuntimeGatewayToken)?
                }
                None => gateway,
            };
            Ok(Arc::new(gateway))
        }
    }
}

/// The verifier of access tokens, in OIDC mode.
fn token_verifier(settings: &Settings, guard: &Guard) -> Result<Option<Arc<TokenVerifier>>, AdapterError> {
    match settings.auth_mode {
        AuthMode::Local => Ok(None),
        AuthMode::Oidc => {
            let issuers = settings.issuers.iter().map(|issuer| issuer.config.clone()).collect();
            let verifier = TokenVerifier::new(guard, Arc::new(SystemClock), issuers);
            Ok(Some(Arc::new(verifier.map_err(AdapterError::IdentityProviders)?)))
        }
    }
}

/// The sign-in of browsers, if an issuer has a client for the portal.
fn sign_in(
    settings: &Settings,
    verifier: &TokenVerifier,
    guard: &Guard,
    secrets: &Arc<dyn SecretReader>,
) -> Result<Option<Arc<dyn SignInProvider>>, AdapterError> {
    let sign_in_config = |issuer: &Issuer| {
        let client = issuer.client.clone()?;
        Some(SignInConfig {
            issuer: issuer.config.clone(),
            name: issuer.name.clone(),
            client_id: client.client_id,
            secret_ref: client.secret_ref,
            scopes: issuer.scopes.clone(),
        })
    };
    let configs: Vec<SignInConfig> = settings.issuers.iter().filter_map(sign_in_config).collect();
    if configs.is_empty() {
        return Ok(None);
    }
    let sign_in = OidcSignIn::new(verifier, guard, Arc::new(SystemClock), Arc::clone(secrets), configs);
    Ok(Some(Arc::new(sign_in.map_err(AdapterError::SignIn)?)))
}

/// The OAuth client of the command line at each issuer.
pub(super) fn cli_clients(settings: &Settings) -> Vec<CliClient> {
    let cli_client = |issuer: &Issuer| CliClient {
        issuer: issuer.config.rules.issuer.clone(),
        name: issuer.name.clone(),
        client_id: issuer.cli_client_id.clone(),
        scopes: issuer.scopes.clone(),
    };
    settings.issuers.iter().map(cli_client).collect()
}

pub(super) const fn identity_mode(settings: &Settings) -> IdentityMode {
    match settings.auth_mode {
        AuthMode::Local => IdentityMode::Local,
        AuthMode::Oidc => IdentityMode::Oidc,
    }
}

/// Warns of each egress allowance without a port, because it also opens databases and consoles on the same host.
fn warn_of_open_ports(allowances: &[Allowance]) {
    for allowance in allowances.iter().filter(|allowance| allowance.port.is_none()) {
        tracing::warn!(
            %allowance,
            setting = "FAIRWAY_EGRESS_ALLOW",
            "egress allowance without `:port` opens every port of its target; name the port"
        );
    }
}

/// The egress guard: the targets that requests of this server may reach.
pub(crate) fn egress_guard(settings: &Settings) -> Guard {
    let mode = match settings.auth_mode {
        AuthMode::Local => ServerMode::Local,
        AuthMode::Oidc => ServerMode::Remote,
    };
    Guard::new(mode, settings.egress_allow.clone())
}

pub(crate) fn secret_reader(settings: &Settings, guard: &Guard) -> Result<Arc<dyn SecretReader>, AdapterError> {
    let vault = settings.vault.as_ref().map(|vault| {
        let token = Secret::new(vault.token.expose().to_owned());
        Vault::new(guard, vault.address.as_str(), &token)
    });
    Ok(Arc::new(SecretSources::new(settings.secrets_dir.clone(), vault.transpose().map_err(AdapterError::Secrets)?)))
}

pub(crate) fn provider(
    account: &ProviderAccount,
    guard: &Guard,
    secrets: &Arc<dyn SecretReader>,
) -> Result<Arc<dyn Provider>, EgressError> {
    let connection = |endpoint: &ProviderEndpoint| {
        let key = endpoint.secret_ref.clone().map(|reference| (Arc::clone(secrets), reference));
        AccountConnection::new(&account.account_slot, guard, &endpoint.base_url, endpoint.timeout, key)
    };
    let provider: Arc<dyn Provider> = match &account.kind {
        ProviderKind::Local => Arc::new(LocalProvider),
        ProviderKind::OpenAi(endpoint) => Arc::new(OpenAi::new(connection(endpoint)?, &endpoint.base_url)),
        ProviderKind::Anthropic(endpoint) => Arc::new(Anthropic::new(connection(endpoint)?, &endpoint.base_url)),
    };
    let account = ProviderWithAccountSettings::new(provider)
        .with_residency(account.residency.clone())
        .with_max_concurrent_calls(account.concurrency)
        .with_prices(account.prices.clone());
    Ok(Arc::new(account))
}

/// The provider accounts that callers can list. The built-in `local` account is included, unless the settings name it.
pub(super) fn provider_plugins(accounts: &[ProviderAccount]) -> Arc<[ProviderPlugin]> {
    let built_in = ProviderAccount::LOCAL;
    let is_named = accounts.iter().any(|account| account.account_slot == built_in);
    let plugin = ProviderPlugin { account_slot: built_in.to_owned(), kind: built_in };
    (!is_named).then_some(plugin).into_iter().chain(accounts.iter().map(provider_plugin)).collect()
}

fn provider_plugin(account: &ProviderAccount) -> ProviderPlugin {
    let kind = match &account.kind {
        ProviderKind::Local => "local",
        ProviderKind::OpenAi(_) => "openai",
        ProviderKind::Anthropic(_) => "anthropic",
    };
    ProviderPlugin { account_slot: account.account_slot.clone(), kind }
}
