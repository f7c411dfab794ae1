//! The rules for the tokens of the portal's client: ID tokens (OpenID Connect Core, 3.1.3.7 and 12.2) and logout tokens
//! (OpenID Connect Back-Channel Logout, 2.6).

use super::{
    ClaimRules, ClaimedIdentity, GroupsClaim, IdentityKind, InvalidToken, TenantClaim, UnverifiedToken,
    VerifiedIdentity,
    claims::{
        LEEWAY, check_times, expired_refusal, groups, is_identifier, not_yet_valid_refusal, text, time_claim,
        verified_email,
    },
};
use crate::{access::session::LogoutTarget, time::Timestamp};
use serde_json::{Map, Value};
use std::time::Duration;

/// The member of the claim `events` that identifies a logout token.
const LOGOUT_EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";
/// The maximum age of a logout token. It limits the time in which a replayed token can end sessions.
const MAX_LOGOUT_AGE: Duration = Duration::from_secs(5 * 60);

impl ClaimRules {
    /// Checks a new ID token of the portal's client at the time `now`. `nonce` is the nonce of the sign-in; it is
    /// `None` for a renewed token.
    ///
    /// # Errors
    /// The first rule that the token breaks.
    pub fn check_id_token(
        &self,
        token: &UnverifiedToken<'_>,
        client_id: &str,
        nonce: Option<&str>,
        now: Timestamp,
    ) -> Result<ClaimedIdentity, InvalidToken> {
        let expires_at = check_times(token, now)?;
        if nonce.is_some() && text(token, "nonce")? != nonce {
            return Err(InvalidToken::Nonce);
        }
        self.id_token_identity(token, client_id, expires_at)
    }

    /// Checks an earlier ID token again, without its signature and times, which were checked when it was new. The
    /// returned identity omits groups, tenant and e-mail address, because they may have changed since.
    ///
    /// # Errors
    /// The first rule that the token breaks.
    pub fn check_earlier_id_token(
        &self,
        token: &UnverifiedToken<'_>,
        client_id: &str,
    ) -> Result<ClaimedIdentity, InvalidToken> {
        let expires_at = time_claim(token, "exp")?.ok_or(InvalidToken::Time)?;
        let ClaimedIdentity(identity) = self.id_token_identity(token, client_id, expires_at)?;
        let tenant = match &self.tenant_claim {
            Some(claim) => TenantClaim::Missing { claim: claim.clone() },
            None => TenantClaim::NotConfigured,
        };
        Ok(ClaimedIdentity(VerifiedIdentity { groups: GroupsClaim::Absent, tenant, email: None, ..identity }))
    }

    fn id_token_identity(
        &self,
        token: &UnverifiedToken<'_>,
        client_id: &str,
        expires_at: Timestamp,
    ) -> Result<ClaimedIdentity, InvalidToken> {
        self.check_portal_client(token, client_id)?;
        if token.claim("events").is_some() {
            return Err(InvalidToken::OtherPurpose);
        }
        let subject = text(token, "sub")?.filter(|sub| is_identifier(sub)).ok_or(InvalidToken::Subject)?;
        Ok(ClaimedIdentity(VerifiedIdentity {
            issuer: self.issuer.clone(),
            subject: subject.to_owned(),
            // Issuers issue ID tokens only for persons.
            kind: IdentityKind::Person,
            name: text(token, &self.user_claim)?.filter(|name| !name.is_empty()).map(str::to_owned),
            groups: groups(token, &self.groups_claim)?,
            tenant: self.tenant(token),
            email: verified_email(token),
            expires_at,
            bound_tenant: self.bound_tenant.clone(),
        }))
    }

    /// Adds claims from a userinfo response that the ID token omits. The caller must have checked that the response
    /// belongs to the identity's subject. The response never replaces a claim of the signed token.
    ///
    /// # Errors
    /// When a claim has a wrong type.
    pub fn add_userinfo(
        &self,
        identity: VerifiedIdentity,
        userinfo: &Map<String, Value>,
    ) -> Result<VerifiedIdentity, InvalidToken> {
        let token = UnverifiedToken::of_claims(userinfo.clone());
        let name = text(&token, &self.user_claim)?.filter(|name| !name.is_empty()).map(str::to_owned);
        let userinfo_groups = groups(&token, &self.groups_claim)?;
        Ok(VerifiedIdentity {
            name: identity.name.or(name),
            groups: match (identity.groups, userinfo_groups) {
                (GroupsClaim::Absent, listed) => listed,
                // The ID token only says that there are more groups, and the userinfo response lists them.
                (GroupsClaim::Overage { .. }, listed @ GroupsClaim::Listed(_)) => listed,
                (GroupsClaim::Overage { source: None }, overage @ GroupsClaim::Overage { .. }) => overage,
                (token_groups @ (GroupsClaim::Listed(_) | GroupsClaim::Overage { .. }), _) => token_groups,
            },
            tenant: match identity.tenant {
                TenantClaim::Missing { .. } => self.tenant(&token),
                tenant @ (TenantClaim::NotConfigured | TenantClaim::Named { .. }) => tenant,
            },
            email: identity.email.or_else(|| verified_email(&token)),
            ..identity
        })
    }

    /// Adds the groups from the response of the overage's claim source. Without a list in the response, the groups stay
    /// unknown and the sign-in is refused later.
    ///
    /// # Errors
    /// When the response belongs to another subject, or a claim has a wrong type.
    pub fn add_overage_groups(
        &self,
        identity: VerifiedIdentity,
        response: &Map<String, Value>,
    ) -> Result<VerifiedIdentity, InvalidToken> {
        let token = UnverifiedToken::of_claims(response.clone());
        if text(&token, "sub")?.is_some_and(|subject| subject != identity.subject) {
            return Err(InvalidToken::Subject);
        }
        match groups(&token, &self.groups_claim)? {
            listed @ GroupsClaim::Listed(_) => Ok(VerifiedIdentity { groups: listed, ..identity }),
            GroupsClaim::Absent | GroupsClaim::Overage { .. } => Ok(identity),
        }
    }

    /// Whether the claims contain a groups claim or an overage, even in an unusable form.
    #[must_use]
    pub fn claims_mention_groups(&self, claims: &Map<String, Value>) -> bool {
        let token = UnverifiedToken::of_claims(claims.clone());
        !matches!(groups(&token, &self.groups_claim), Ok(GroupsClaim::Absent))
    }

    /// Checks a logout token at the time `now`, and returns the sessions that it ends.
    ///
    /// # Errors
    /// The first rule that the token breaks.
    pub fn check_logout_token(
        &self,
        token: &UnverifiedToken<'_>,
        client_id: &str,
        now: Timestamp,
    ) -> Result<LogoutTarget, InvalidToken> {
        self.check_portal_client(token, client_id)?;
        let issued_at = time_claim(token, "iat")?.ok_or(InvalidToken::Time)?;
        if issued_at > now.plus(LEEWAY) {
            return Err(not_yet_valid_refusal(issued_at, now));
        }
        if issued_at.plus(MAX_LOGOUT_AGE) < now {
            return Err(expired_refusal(issued_at.plus(MAX_LOGOUT_AGE), now));
        }
        if let Some(end) = time_claim(token, "exp")?.filter(|end| end.plus(LEEWAY) <= now) {
            return Err(expired_refusal(end, now));
        }
        let event = token.claim("events").and_then(|events| events.get(LOGOUT_EVENT));
        if !event.is_some_and(Value::is_object) || token.claim("nonce").is_some() {
            return Err(InvalidToken::OtherPurpose);
        }
        if text(token, "jti")?.is_none() {
            return Err(InvalidToken::OtherPurpose);
        }
        let identifier = |name| text(token, name).map(|value| value.filter(|value| is_identifier(value)));
        match (identifier("sid")?, identifier("sub")?) {
            (Some(session), _) => Ok(LogoutTarget::IssuerSession(session.to_owned())),
            (None, Some(subject)) => Ok(LogoutTarget::Subject(subject.to_owned())),
            (None, None) => Err(InvalidToken::Subject),
        }
    }

    /// Checks that the issuer issued the token to the portal's client. If the token has several audiences, `azp` must
    /// name that client.
    fn check_portal_client(&self, token: &UnverifiedToken<'_>, client_id: &str) -> Result<(), InvalidToken> {
        if token.issuer() != Some(self.issuer.as_str()) {
            return Err(InvalidToken::Issuer);
        }
        let is_only_audience = match token.claim("aud") {
            Some(Value::String(audience)) => audience == client_id,
            Some(Value::Array(audiences)) if audiences.iter().all(Value::is_string) => {
                if !audiences.iter().any(|audience| audience == client_id) {
                    return Err(InvalidToken::Audience);
                }
                audiences.len() == 1
            }
            None => return Err(InvalidToken::Audience),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                return Err(InvalidToken::ClaimType);
            }
        };
        let authorized_party = text(token, "azp")?;
        match authorized_party {
            Some(client) if client == client_id => Ok(()),
            None if is_only_audience => Ok(()),
            Some(_) | None => Err(InvalidToken::Audience),
        }
    }
}

#[cfg(test)]
mod tests;
