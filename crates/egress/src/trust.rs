//! Whose certificates are believed.

use crate::refusal::EgressError;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use std::sync::{Arc, OnceLock};

/// Read once for the process: it takes some milliseconds, and every endpoint shares it.
static TRUST: OnceLock<Option<ClientConfig>> = OnceLock::new();

/// TLS that believes the public authorities, and those that this machine believes besides (`SSL_CERT_FILE` and
/// `SSL_CERT_DIR` name others), so that a gateway in the house can have a certificate of the house.
pub(crate) fn tls() -> Result<ClientConfig, EgressError> {
    TRUST.get_or_init(read).clone().ok_or(EgressError::Unreachable)
}

fn read() -> Option<ClientConfig> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let own = rustls_native_certs::load_native_certs();
    if !own.errors.is_empty() {
        tracing::debug!(errors = own.errors.len(), "some certificates of this machine cannot be read");
    }
    roots.add_parsable_certificates(own.certs);
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    match builder.with_safe_default_protocol_versions() {
        Ok(builder) => Some(builder.with_root_certificates(roots).with_no_client_auth()),
        Err(error) => {
            tracing::error!(%error, "TLS cannot be set up");
            None
        }
    }
}
