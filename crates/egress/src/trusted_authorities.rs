//! Trusted certificate authorities.

use crate::error::EgressError;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use std::{
    fmt,
    sync::{Arc, OnceLock},
};

/// TLS configuration of all endpoints without authorities of their own. It is loaded once per process, because
/// loading takes milliseconds.
static TLS_CONFIG: OnceLock<Option<ClientConfig>> = OnceLock::new();

/// Returns a TLS configuration that trusts public authorities and those of the operating system, which may be
/// private. `SSL_CERT_FILE` and `SSL_CERT_DIR` replace the authorities of the operating system.
pub(crate) fn tls_config() -> Result<ClientConfig, EgressError> {
    TLS_CONFIG.get_or_init(load).clone().ok_or(EgressError::Unreachable)
}

fn load() -> Option<ClientConfig> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let system = rustls_native_certs::load_native_certs();
    if !system.errors.is_empty() {
        tracing::debug!(
            errors = system.errors.len(),
            "failed to read some system certificates; continuing without them"
        );
    }
    roots.add_parsable_certificates(system.certs);
    config(roots)
}

fn config(roots: RootCertStore) -> Option<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    match builder.with_safe_default_protocol_versions() {
        Ok(builder) => Some(builder.with_root_certificates(roots).with_no_client_auth()),
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "failed to set up TLS; outgoing calls fail until a restart"
            );
            None
        }
    }
}

/// Certificate authorities that an operator configured for a destination. They replace the default authorities.
#[derive(Clone)]
pub struct Authorities(ClientConfig);

impl fmt::Debug for Authorities {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Authorities")
    }
}

/// The text contains no certificate, or a certificate that cannot be parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the file must contain certificates in PEM form")]
pub struct AuthoritiesRefusal;

impl AuthoritiesRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        "egress_authorities"
    }
}

impl Authorities {
    /// Reads the authorities from certificates in PEM form.
    ///
    /// # Errors
    /// When the text contains no certificate, or a certificate that cannot be parsed.
    pub fn from_pem(pem: &[u8]) -> Result<Self, AuthoritiesRefusal> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|_| AuthoritiesRefusal)?;
            roots.add(certificate).map_err(|_| AuthoritiesRefusal)?;
        }
        if roots.is_empty() {
            return Err(AuthoritiesRefusal);
        }
        config(roots).map(Self).ok_or(AuthoritiesRefusal)
    }

    pub(crate) fn into_tls_config(self) -> ClientConfig {
        self.0
    }
}
