//! The rules that the claims of an access token must satisfy.

use super::{
    DistributedClaimSource, GroupsClaim, IdentityKind, InvalidToken, TenantClaim, UnverifiedToken, VerifiedIdentity,
};
use crate::{slug::Slug, time::Timestamp};
use serde_json::{Number, Value};
use std::time::Duration;
use time::OffsetDateTime;

/// The tolerated difference between the clocks of the issuer and of this server.
pub(super) const LEEWAY: Duration = Duration::from_secs(60);
/// The last second of the year 9999, counted from 1970.
const MAX_SECONDS: u64 = 253_402_300_799;
/// The maximum length of a subject (OpenID Connect Core, 2) or client identifier, in bytes.
const MAX_SUBJECT_BYTES: usize = 255;
/// The claims that access tokens never contain. They belong to ID tokens (OpenID Connect Core, 2 and 3.3.2.11), logout
/// tokens and security event tokens (RFC 8417).
const FOREIGN_CLAIMS: [&str; 4] = ["nonce", "at_hash", "c_hash", "events"];
/// The claims that can name the client to which the token was issued.
const CLIENT_CLAIMS: [&str; 4] = ["client_id", "azp", "appid", "cid"];

/// The claims that the tokens of one configured issuer must have, and the names of the claims that describe the
/// identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimRules {
    /// The issuer identifier, which is compared byte by byte.
    pub issuer: String,
    /// The audience that every token must contain.
    pub audience: String,
    /// The name of the claim that contains the name of a person.
    pub user_claim: String,
    /// The name of the claim that lists the groups.
    pub groups_claim: String,
    /// The name of the claim that contains the tenant, if one is configured.
    pub tenant_claim: Option<String>,
    /// The tenant to which the configuration binds all subjects of the issuer, if any.
    pub bound_tenant: Option<Slug>,
    /// The OAuth client of the portal. A token for this client alone is not an access token for this server.
    pub portal_client_id: Option<String>,
}

/// The identity that the claims of a token state. It is unproven until the signature is verified.
#[must_use]
pub struct ClaimedIdentity(pub(super) VerifiedIdentity);

impl std::fmt::Debug for ClaimedIdentity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("ClaimedIdentity")
    }
}

impl ClaimedIdentity {
    /// Converts the claimed identity to a verified one. The caller must have verified the signature with a key of
    /// [`ClaimRules::issuer`].
    #[must_use]
    pub fn assume_signature_verified(self) -> VerifiedIdentity {
        self.0
    }
}

impl UnverifiedToken<'_> {
    /// The time at which the issuer issued the token, by its own clock; `None` if the claim is absent or not a time.
    #[must_use]
    pub fn issued_at(&self) -> Option<Timestamp> {
        time_claim(self, "iat").ok().flatten()
    }
}

impl ClaimRules {
    /// Checks the claims of an access token at the time `now`.
    ///
    /// # Errors
    /// The first rule that the token breaks.
    pub fn check_access_token(
        &self,
        token: &UnverifiedToken<'_>,
        now: Timestamp,
    ) -> Result<ClaimedIdentity, InvalidToken> {
        if token.issuer() != Some(self.issuer.as_str()) {
            return Err(InvalidToken::Issuer);
        }
        if FOREIGN_CLAIMS.iter().any(|name| token.claim(name).is_some()) {
            return Err(InvalidToken::OtherPurpose);
        }
        self.check_audience(token)?;
        let expires_at = check_times(token, now)?;
        let subject = text(token, "sub")?.filter(|sub| is_identifier(sub)).ok_or(InvalidToken::Subject)?;
        Ok(ClaimedIdentity(VerifiedIdentity {
            issuer: self.issuer.clone(),
            subject: subject.to_owned(),
            kind: kind(token, subject),
            name: text(token, &self.user_claim)?.filter(|name| !name.is_empty()).map(str::to_owned),
            groups: groups(token, &self.groups_claim)?,
            tenant: self.tenant(token),
            email: verified_email(token),
            expires_at,
            bound_tenant: self.bound_tenant.clone(),
        }))
    }

    fn check_audience(&self, token: &UnverifiedToken<'_>) -> Result<(), InvalidToken> {
        let audiences = match token.claim("aud") {
            Some(Value::String(audience)) => vec![audience.as_str()],
            Some(Value::Array(items)) => {
                let texts: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
                texts.ok_or(InvalidToken::ClaimType)?
            }
            None => return Err(InvalidToken::Audience),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
                return Err(InvalidToken::ClaimType);
            }
        };
        let is_portal = |audience: &&str| self.portal_client_id.as_deref() == Some(*audience);
        if !audiences.is_empty() && audiences.iter().all(is_portal) {
            return Err(InvalidToken::PortalOnly);
        }
        if audiences.contains(&self.audience.as_str()) { Ok(()) } else { Err(InvalidToken::Audience) }
    }

    pub(super) fn tenant(&self, token: &UnverifiedToken<'_>) -> TenantClaim {
        let Some(claim) = &self.tenant_claim else { return TenantClaim::NotConfigured };
        match token.claim(claim).and_then(Value::as_str).filter(|tenant| !tenant.is_empty()) {
            Some(tenant) => TenantClaim::Named { claim: claim.clone(), tenant: tenant.to_owned() },
            None => TenantClaim::Missing { claim: claim.clone() },
        }
    }
}

/// Checks the claims `exp`, `nbf` and `iat` at the time `now`, and returns the expiry.
pub(super) fn check_times(token: &UnverifiedToken<'_>, now: Timestamp) -> Result<Timestamp, InvalidToken> {
    let expires_at = time_claim(token, "exp")?.ok_or(InvalidToken::Time)?;
    let not_before = time_claim(token, "nbf")?;
    // `iat` does not limit the validity, but a wrong type shows that the token is forged or broken.
    time_claim(token, "iat")?;
    if now >= expires_at.plus(LEEWAY) {
        return Err(expired_refusal(expires_at, now));
    }
    if let Some(start) = not_before.filter(|start| *start > now.plus(LEEWAY)) {
        return Err(not_yet_valid_refusal(start, now));
    }
    Ok(expires_at)
}

/// The refusal of an expired token, with the time since its expiry.
pub(super) fn expired_refusal(end: Timestamp, now: Timestamp) -> InvalidToken {
    InvalidToken::Expired { seconds_ago: end.duration_until(now).as_secs() }
}

/// The refusal of a token that is not valid yet, with the time until its validity begins.
pub(super) fn not_yet_valid_refusal(start: Timestamp, now: Timestamp) -> InvalidToken {
    InvalidToken::NotYetValid { seconds_ahead: now.duration_until(start).as_secs() }
}

pub(super) fn time_claim(token: &UnverifiedToken<'_>, name: &str) -> Result<Option<Timestamp>, InvalidToken> {
    match token.claim(name) {
        None => Ok(None),
        Some(Value::Number(number)) => timestamp(number).map(Some).ok_or(InvalidToken::Time),
        Some(Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_)) => {
            Err(InvalidToken::Time)
        }
    }
}

/// The time of a `NumericDate` (RFC 7519, 2), which is a number of seconds since 1970, with or without a fraction.
fn timestamp(number: &Number) -> Option<Timestamp> {
    let nanos = match number.as_u64() {
        Some(seconds) if seconds <= MAX_SECONDS => i128::from(seconds).checked_mul(1_000_000_000)?,
        Some(_) => return None,
        None => {
            let seconds = number.as_f64().filter(|seconds| (0.0..=MAX_SECONDS as f64).contains(seconds))?;
            (seconds * 1e9) as i128
        }
    };
    OffsetDateTime::from_unix_timestamp_nanos(nanos).ok().map(Timestamp::new)
}

/// Reads a claim that is a string if it is present. The value `null` counts as absent.
pub(super) fn text<'a>(token: &'a UnverifiedToken<'_>, name: &str) -> Result<Option<&'a str>, InvalidToken> {
    match token.claim(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => Err(InvalidToken::ClaimType),
    }
}

pub(super) fn is_identifier(text: &str) -> bool {
    (1..=MAX_SUBJECT_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// The kind of the token's subject. It is a service only if the token was issued to a client that acts for itself
/// (client credentials). Every other subject is a person, so that people cannot become services by claims that they
/// influence.
fn kind(token: &UnverifiedToken<'_>, subject: &str) -> IdentityKind {
    let client = own_subject(token, subject)
        .or_else(|| entra_application(token, subject))
        .or_else(|| keycloak_service_account(token));
    client.map_or(IdentityKind::Person, |id| IdentityKind::Service { client_id: id.to_owned() })
}

/// The identifier of the client, if the client is the subject of its own token (RFC 9068, 5).
fn own_subject<'a>(token: &'a UnverifiedToken<'_>, subject: &str) -> Option<&'a str> {
    clients(token, &CLIENT_CLAIMS).find(|id| *id == subject)
}

/// The identifier of an Entra ID application, if the token belongs to one. The optional claim `idtyp` identifies such
/// tokens. Without `idtyp`, only an application has an `oid` equal to the subject, and only a token of a person has
/// scopes (`scp`).
fn entra_application<'a>(token: &'a UnverifiedToken<'_>, subject: &str) -> Option<&'a str> {
    let is_application = match token.claim("idtyp") {
        Some(kind) => kind == "app",
        None => token.claim("oid").is_some_and(|object| object == subject) && token.claim("scp").is_none(),
    };
    clients(token, &["azp", "appid"]).next().filter(|_| is_application)
}

/// The identifier of a Keycloak service account, if the token belongs to one. Such a token has the user name
/// `service-account-<client>` and names the client in `client_id` (`clientId` in older versions). `azp` does not prove
/// a service account, because a token of a person with such a user name contains it too.
fn keycloak_service_account<'a>(token: &'a UnverifiedToken<'_>) -> Option<&'a str> {
    let name = token.claim("preferred_username").and_then(Value::as_str)?.strip_prefix("service-account-")?;
    clients(token, &["client_id", "clientId"]).find(|id| id.to_lowercase() == name)
}

/// The values of these claims that are well-formed client identifiers.
fn clients<'a>(token: &'a UnverifiedToken<'_>, names: &[&str]) -> impl Iterator<Item = &'a str> {
    names.iter().filter_map(move |name| token.claim(name)?.as_str()).filter(|id| is_identifier(id))
}

pub(super) fn groups(token: &UnverifiedToken<'_>, name: &str) -> Result<GroupsClaim, InvalidToken> {
    // The overage has precedence over the list, because a token with an overage may list only some of the groups.
    if let Some(overage) = overage(token, name) {
        return Ok(overage);
    }
    match token.claim(name) {
        None | Some(Value::Null) => Ok(GroupsClaim::Absent),
        Some(Value::String(group)) => Ok(GroupsClaim::Listed(vec![group.clone()])),
        Some(Value::Array(items)) => {
            let groups: Option<Vec<String>> = items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
            groups.map(GroupsClaim::Listed).ok_or(InvalidToken::ClaimType)
        }
        Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => Err(InvalidToken::ClaimType),
    }
}

/// The overage of the groups claim, if the token states one: as a distributed claim (OpenID Connect Core, 5.6.2) or by
/// `hasgroups`.
fn overage(token: &UnverifiedToken<'_>, name: &str) -> Option<GroupsClaim> {
    let member = |claim: &str, key: &str| token.claim(claim).and_then(|value| value.get(key));
    if let Some(source) = member("_claim_names", name) {
        let source = source.as_str().and_then(|source| member("_claim_sources", source));
        let member = |name: &str| source?.get(name)?.as_str().map(str::to_owned);
        let source = member("endpoint")
            .map(|endpoint| DistributedClaimSource { endpoint, access_token: member("access_token") });
        return Some(GroupsClaim::Overage { source });
    }
    (token.claim("hasgroups") == Some(&Value::Bool(true))).then_some(GroupsClaim::Overage { source: None })
}

pub(super) fn verified_email(token: &UnverifiedToken<'_>) -> Option<String> {
    let is_verified = token.claim("email_verified") == Some(&Value::Bool(true));
    token.claim("email").and_then(Value::as_str).filter(|_| is_verified).map(str::to_owned)
}

#[cfg(test)]
mod tests;
