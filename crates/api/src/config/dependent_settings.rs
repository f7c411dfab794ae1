//! Settings that are read together, because one setting requires or completes another.

use super::{
    ConfigError, GatewaySettings, LogSettings, MailSettings, VaultSettings, checked_table::invalid, parsers,
    raw_settings::RawSettings, setting,
};
use fairway_domain::{
    access::session::SessionLifetime, anonymous_rate_limit::Quota, knowledge::retrieval::EmbeddingModel,
};

pub(super) fn session_lifetime(raw: &RawSettings) -> Result<SessionLifetime, ConfigError> {
    Ok(SessionLifetime {
        idle: raw.read(&setting::SESSION_IDLE, parsers::duration)?,
        total: raw.read(&setting::SESSION_LIFETIME, parsers::duration)?,
    })
}

/// The error for an explicit idle time above the session lifetime, because that idle time could never expire. A
/// longer default idle time is accepted.
pub(super) fn session_contradiction(lifetime: SessionLifetime, raw: &RawSettings) -> Option<ConfigError> {
    let is_idle_set = raw.is_set(&setting::SESSION_IDLE);
    (is_idle_set && lifetime.idle > lifetime.total)
        .then(|| invalid(setting::SESSION_IDLE.key, "must not be longer than `session.lifetime`"))
}

pub(super) fn public_rate(raw: &RawSettings) -> Result<Quota, ConfigError> {
    Ok(Quota {
        per_minute: raw.read(&setting::PUBLIC_RATE_PER_MINUTE, parsers::rate)?,
        burst: raw.read(&setting::PUBLIC_RATE_BURST, parsers::rate)?,
    })
}

pub(super) fn log(raw: &RawSettings) -> Result<LogSettings, ConfigError> {
    Ok(LogSettings {
        filter: raw.read(&setting::LOG, parsers::log_filter)?,
        format: raw.read(&setting::LOG_FORMAT, parsers::log_format)?,
    })
}

pub(super) fn embedding_model(raw: &RawSettings) -> Result<EmbeddingModel, ConfigError> {
    Ok(EmbeddingModel {
        account: raw.read(&setting::EMBEDDING_ACCOUNT, parsers::account_or_model_name)?,
        model: raw.read(&setting::EMBEDDING_MODEL, parsers::account_or_model_name)?,
    })
}

/// The mail server, if configured. URL and sender are required together.
pub(super) fn mail(raw: &RawSettings) -> Result<Option<MailSettings>, ConfigError> {
    let url = raw.read_optional(&setting::SMTP_URL, parsers::mail_server)?;
    let from = raw.read_optional(&setting::MAIL_FROM, parsers::mail_sender)?;
    match (url, from) {
        (Some(url), Some(from)) => Ok(Some(MailSettings { url, from })),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => Err(ConfigError::IncompleteMail),
    }
}

/// The vault, if configured. URL and token are required together.
pub(super) fn vault(raw: &RawSettings) -> Result<Option<VaultSettings>, ConfigError> {
    let address = raw.read_optional(&setting::VAULT_ADDR, parsers::web_address)?;
    let token = raw.read_optional(&setting::VAULT_TOKEN, parsers::token)?;
    match (address, token) {
        (Some(address), Some(token)) => Ok(Some(VaultSettings { address, token })),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => Err(ConfigError::IncompleteVault),
    }
}

/// The external runtime gateway, if configured. The embedded gateway accepts no token.
pub(super) fn gateway(raw: &RawSettings) -> Result<Option<GatewaySettings>, ConfigError> {
    let address = raw.read(&setting::RUNTIME_GATEWAY_URL, parsers::gateway)?;
    let token = raw.read_optional(&setting::RUNTIME_GATEWAY_TOKEN, parsers::bearer_token)?;
    match (address, token) {
        (Some(address), token) => Ok(Some(GatewaySettings { address, token })),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(ConfigError::TokenWithoutGateway),
    }
}
