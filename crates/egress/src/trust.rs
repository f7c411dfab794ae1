//! Trusted certificate authorities.

use crate::refusal::EgressError;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use std::sync::{Arc, OnceLock};

/// Loaded once per process: it takes some milliseconds, and all endpoints share it.
static TLS_CONFIG: OnceLock<Option<ClientConfig>> = OnceLock::new();

/// A TLS configuration that trusts the public authorities and those of the operating system, for private
/// authorities. `SSL_CERT_FILE` and `SSL_CERT_DIR` replace the latter.
pub(crate) fn tls_config() -> Result<ClientConfig, EgressError> {
    TLS_CONFIG.get_or_init(load).clone().ok_or(EgressError::Unreachable)
}

fn load() -> Option<ClientConfig> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let own = rustls_native_certs::load_native_certs();
    if !own.errors.is_empty() {
        tracing::debug!(errors = own.errors.len(), "failed to read some system certificates; continuing without them");
    }
    roots.add_parsable_certificates(own.certs);
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    match builder.with_safe_default_protocol_versions() {
        Ok(builder) => Some(builder.with_root_certificates(roots).with_no_client_auth()),
        Err(error) => {
            tracing::error!(%error, "failed to set up TLS; outgoing calls fail until a restart");
            None
        }
    }
}
