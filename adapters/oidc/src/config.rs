//! The configuration of OpenID Connect issuers, and its validation.

use fairway_domain::access::identity::ClaimRules;
use fairway_egress::Url;
use std::{net::IpAddr, path::PathBuf};

/// An issuer whose access tokens are accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IssuerConfig {
    /// The rules for its tokens, including the issuer's identifier: an `https` address, or an `http` address on
    /// loopback.
    pub rules: ClaimRules,
    /// A file with the certificate authorities for connections to the issuer, in PEM form. They replace the default
    /// authorities.
    pub ca_file: Option<PathBuf>,
}

/// Reason why the configuration of an issuer is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IssuerConfigError {
    /// No issuer is configured.
    #[error("an issuer is required")]
    NoIssuer,
    /// Two configurations have the same issuer.
    #[error("an issuer is configured twice")]
    DuplicateIssuer,
    /// The issuer is not a plain `https` or `http` address: it is malformed, has another scheme, or has a query, a
    /// fragment or credentials.
    #[error("the issuer must be an https address without query, fragment and credentials")]
    Issuer,
    /// The issuer uses `http` on another machine.
    #[error("an issuer with http is allowed on loopback only")]
    PlainHttp,
    /// The audience is empty.
    #[error("the audience is required")]
    Audience,
    /// The audience equals the portal's client, so tokens that are issued to the portal would be accepted as access
    /// tokens.
    #[error("the audience must differ from the client of the portal")]
    AudienceIsPortalClient,
    /// The name of a configured claim is empty, or is the name of a claim with a standard meaning.
    #[error("a configured claim has no name, or the name of a claim with another meaning")]
    Claim,
    /// The file of certificate authorities cannot be read.
    #[error("the file of certificate authorities cannot be read")]
    CaFile,
    /// The file of certificate authorities has no valid certificate.
    #[error("the file of certificate authorities must contain certificates in PEM form")]
    CaCertificates,
}

impl IssuerConfigError {
    /// The stable code of the error.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NoIssuer => "oidc_no_issuer",
            Self::DuplicateIssuer => "oidc_duplicate_issuer",
            Self::Issuer => "oidc_issuer",
            Self::PlainHttp => "oidc_plain_http",
            Self::Audience => "oidc_audience",
            Self::AudienceIsPortalClient => "oidc_audience_is_portal_client",
            Self::Claim => "oidc_claim",
            Self::CaFile => "oidc_ca_file",
            Self::CaCertificates => "oidc_ca_certificates",
        }
    }
}

impl IssuerConfigError {
    /// The name of the setting that is invalid.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::NoIssuer | Self::DuplicateIssuer | Self::Issuer | Self::PlainHttp => "issuer",
            Self::Audience | Self::AudienceIsPortalClient => "audience",
            Self::Claim => "user_claim",
            Self::CaFile | Self::CaCertificates => "ca_file",
        }
    }
}

/// Claims with a standard meaning, which contain neither groups nor tenants. `sub` is absent, because it may serve
/// as the user name.
const RESERVED_CLAIMS: [&str; 7] = ["iss", "aud", "exp", "nbf", "iat", "jti", "email_verified"];

impl IssuerConfig {
    /// Checks the settings that the claim rules do not check: the audience must differ from the portal's client,
    /// and no configured claim may have a standard meaning.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn check(&self) -> Result<(), IssuerConfigError> {
        self.address()?;
        let ClaimRules { audience, portal_client_id, user_claim, groups_claim, tenant_claim, .. } = &self.rules;
        if audience.is_empty() {
            return Err(IssuerConfigError::Audience);
        }
        if portal_client_id.as_ref() == Some(audience) {
            return Err(IssuerConfigError::AudienceIsPortalClient);
        }
        let mut claims = [Some(user_claim), Some(groups_claim), tenant_claim.as_ref()].into_iter();
        if claims.any(|name| name.is_some_and(|name| name.is_empty() || RESERVED_CLAIMS.contains(&name.as_str()))) {
            return Err(IssuerConfigError::Claim);
        }
        Ok(())
    }

    /// The host of the issuer, for display.
    #[must_use]
    pub fn host(&self) -> Option<String> {
        self.address().ok()?.host_str().map(str::to_owned)
    }

    /// The address of the issuer (OpenID Connect Discovery, 3).
    pub(crate) fn address(&self) -> Result<Url, IssuerConfigError> {
        let url = Url::parse(&self.rules.issuer).map_err(|_| IssuerConfigError::Issuer)?;
        let has_credentials = !url.username().is_empty() || url.password().is_some();
        if has_credentials
            || url.query().is_some()
            || url.fragment().is_some()
            || self.rules.issuer.trim() != self.rules.issuer
        {
            return Err(IssuerConfigError::Issuer);
        }
        match url.scheme() {
            "https" => Ok(url),
            "http" if is_loopback(&url) => Ok(url),
            "http" => Err(IssuerConfigError::PlainHttp),
            _ => Err(IssuerConfigError::Issuer),
        }
    }
}

/// Whether the host of an address is this machine: `localhost` (RFC 6761) or a loopback address.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(issuer: &str) -> IssuerConfig {
        IssuerConfig {
            rules: ClaimRules {
                issuer: issuer.into(),
                audience: "fairway".into(),
                user_claim: "preferred_username".into(),
                groups_claim: "groups".into(),
                tenant_claim: None,
                bound_tenant: None,
                portal_client_id: Some("portal".into()),
            },
            ca_file: None,
        }
    }

    #[test]
    fn plain_http_is_for_loopback_only() {
        for good in
            ["https://idp.example", "https://idp.example/realms/a/", "http://127.0.0.1:8080", "http://[::1]:8080/realm"]
        {
            assert_eq!(config(good).check().err(), None, "{good}");
        }
        assert_eq!(config("http://localhost:8080").check().err(), None);
        for plain in ["http://idp.example", "http://10.0.0.1", "http://localhost.example", "http://127.0.0.1.example"] {
            assert_eq!(config(plain).check().err(), Some(IssuerConfigError::PlainHttp), "{plain}");
        }
        for wrong in [
            "",
            "idp.example",
            "ftp://idp.example",
            "https://idp.example?a",
            "https://idp.example/#a",
            "https://user@idp.example",
            "https://:secret@idp.example",
            " https://idp.example",
            "https://idp.example\n",
        ] {
            assert_eq!(config(wrong).check().err(), Some(IssuerConfigError::Issuer), "{wrong}");
        }
    }

    #[test]
    fn refuses_ambiguous_audiences_and_claims() {
        let error_with = |change: fn(&mut IssuerConfig)| {
            let mut config = config("https://idp.example");
            change(&mut config);
            config.check().err()
        };
        assert_eq!(error_with(|config| config.rules.audience.clear()), Some(IssuerConfigError::Audience));
        assert_eq!(
            error_with(|config| config.rules.audience = "portal".into()),
            Some(IssuerConfigError::AudienceIsPortalClient)
        );
        assert_eq!(error_with(|config| config.rules.user_claim.clear()), Some(IssuerConfigError::Claim));
        assert_eq!(error_with(|config| config.rules.groups_claim = "aud".into()), Some(IssuerConfigError::Claim));
        assert_eq!(error_with(|config| config.rules.tenant_claim = Some("iss".into())), Some(IssuerConfigError::Claim));
        assert_eq!(error_with(|config| config.rules.user_claim = "sub".into()), None);
    }
}
