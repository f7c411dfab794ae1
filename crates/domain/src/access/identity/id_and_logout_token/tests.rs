//! Tests of the rules for ID tokens and logout tokens.

use super::*;
use serde_json::json;
use time::OffsetDateTime;

const NOW: i64 = 1_800_000_000;
const CLIENT: &str = "portal";

fn rules() -> ClaimRules {
    ClaimRules {
        issuer: "https://idp.example".into(),
        audience: "fairway".into(),
        user_claim: "preferred_username".into(),
        groups_claim: "groups".into(),
        tenant_claim: None,
        bound_tenant: None,
        portal_client_id: Some(CLIENT.into()),
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::new(OffsetDateTime::from_unix_timestamp(seconds).unwrap())
}

fn token(base: Value, change: Value) -> UnverifiedToken<'static> {
    let (Value::Object(mut claims), Value::Object(change)) = (base, change) else { panic!("claims are objects") };
    for (name, value) in change {
        // A member with the value `null` removes the claim.
        if value.is_null() {
            claims.remove(&name)
        } else {
            claims.insert(name, value)
        };
    }
    UnverifiedToken::of_claims(claims)
}

fn id_token(change: Value) -> UnverifiedToken<'static> {
    let base =
        json!({"iss": "https://idp.example", "aud": CLIENT, "sub": "1", "exp": NOW + 60, "iat": NOW, "nonce": "n"});
    token(base, change)
}

fn logout_token(change: Value) -> UnverifiedToken<'static> {
    let events = json!({LOGOUT_EVENT: {}});
    let base = json!({
        "iss": "https://idp.example", "aud": CLIENT, "sub": "1", "sid": "s", "iat": NOW, "jti": "j", "events": events,
    });
    token(base, change)
}

#[test]
fn accepts_only_id_tokens_of_this_client_and_sign_in() {
    let check = |change: Value| rules().check_id_token(&id_token(change), CLIENT, Some("n"), at(NOW)).map(drop);
    assert_eq!(check(json!({})), Ok(()));
    assert_eq!(check(json!({"aud": [CLIENT]})), Ok(()));
    assert_eq!(check(json!({"aud": [CLIENT, "api"], "azp": CLIENT})), Ok(()));
    for (change, reason) in [
        (json!({"iss": "https://other.example"}), InvalidToken::Issuer),
        (json!({"aud": "fairway"}), InvalidToken::Audience),
        (json!({"aud": ["fairway"]}), InvalidToken::Audience),
        (json!({"aud": [CLIENT, "api"]}), InvalidToken::Audience),
        (json!({"aud": [CLIENT, "api"], "azp": "api"}), InvalidToken::Audience),
        (json!({"azp": "api"}), InvalidToken::Audience),
        (json!({"aud": null}), InvalidToken::Audience),
        (json!({"aud": {"portal": 1}}), InvalidToken::ClaimType),
        (json!({"nonce": null}), InvalidToken::Nonce),
        (json!({"nonce": "m"}), InvalidToken::Nonce),
        (json!({"events": {}}), InvalidToken::OtherPurpose),
        (json!({"exp": NOW - 61}), InvalidToken::Expired { seconds_ago: 61 }),
        (json!({"exp": null}), InvalidToken::Time),
        (json!({"exp": "9999999999"}), InvalidToken::Time),
        (json!({"sub": null}), InvalidToken::Subject),
    ] {
        assert_eq!(check(change.clone()), Err(reason), "{change}");
    }
    // A renewed ID token has no nonce.
    let renewed = id_token(json!({"nonce": null}));
    assert!(rules().check_id_token(&renewed, CLIENT, None, at(NOW)).is_ok());
}

#[test]
fn userinfo_adds_claims_that_token_omits() {
    let add_userinfo = |claims: Value, userinfo: Value| {
        let identity = rules().check_id_token(&id_token(claims), CLIENT, Some("n"), at(NOW)).unwrap();
        rules().add_userinfo(identity.assume_signature_verified(), userinfo.as_object().unwrap()).unwrap()
    };
    let listed = |names: &[&str]| GroupsClaim::Listed(names.iter().map(|name| (*name).to_owned()).collect());
    let from_userinfo = add_userinfo(
        json!({}),
        json!({"groups": ["a"], "preferred_username": "ada", "email": "a@b.example", "email_verified": true}),
    );
    assert!(from_userinfo.groups == listed(&["a"]) && from_userinfo.name.as_deref() == Some("ada"));
    assert_eq!(from_userinfo.email.as_deref(), Some("a@b.example"));
    // The claims of the signed token have precedence over the userinfo response.
    let from_token = add_userinfo(
        json!({"groups": ["a"], "preferred_username": "ada"}),
        json!({"groups": ["b"], "preferred_username": "bob"}),
    );
    assert!(from_token.groups == listed(&["a"]) && from_token.name.as_deref() == Some("ada"));
    // Groups in the userinfo response resolve an overage. Without them, the overage remains an error.
    let resolved = add_userinfo(json!({"hasgroups": true}), json!({"groups": ["a", "b"]}));
    assert!(resolved.groups == listed(&["a", "b"]));
    let unresolved = add_userinfo(json!({"hasgroups": true}), json!({}));
    assert!(unresolved.groups == GroupsClaim::Overage { source: None });
    let truncated = add_userinfo(json!({"hasgroups": true, "groups": ["a"]}), json!({}));
    assert!(truncated.groups == GroupsClaim::Overage { source: None }, "a list with an announcement is incomplete");
}

#[test]
fn overage_response_gives_groups_of_same_subject() {
    let overage_claims = json!({
        "_claim_names": {"groups": "s"}, "_claim_sources": {"s": {"endpoint": "https://idp.example/groups"}},
    });
    let rules = rules();
    let identity = |claims: Value| {
        rules.check_id_token(&id_token(claims), CLIENT, None, at(NOW)).unwrap().assume_signature_verified()
    };
    let add_overage_groups =
        |response: Value| rules.add_overage_groups(identity(overage_claims.clone()), response.as_object().unwrap());
    let groups = |response: Value| add_overage_groups(response).unwrap().groups;
    assert!(groups(json!({"groups": ["a", "b"]})) == GroupsClaim::Listed(vec!["a".into(), "b".into()]));
    for unknown in [json!({}), json!({"groups": null}), json!({"hasgroups": true}), json!({"value": ["a"]})] {
        assert!(matches!(groups(unknown.clone()), GroupsClaim::Overage { .. }), "{unknown}");
    }
    assert_eq!(add_overage_groups(json!({"groups": ["a"], "sub": "other"})).err(), Some(InvalidToken::Subject));
    assert_eq!(add_overage_groups(json!({"groups": {"a": true}})).err(), Some(InvalidToken::ClaimType));
    // The userinfo response can contain the claim source of the overage.
    let userinfo =
        rules.add_userinfo(identity(json!({"hasgroups": true})), overage_claims.as_object().unwrap()).unwrap();
    assert!(matches!(userinfo.groups, GroupsClaim::Overage { source: Some(_) }));
    assert!(rules.claims_mention_groups(overage_claims.as_object().unwrap()));
    assert!(!rules.claims_mention_groups(json!({"groups": null}).as_object().unwrap()));
}

#[test]
fn earlier_tokens_prove_the_subject_alone() {
    let rules = ClaimRules { tenant_claim: Some("org".into()), ..rules() };
    let claims =
        json!({"groups": ["ops"], "org": "acme", "email": "a@b.example", "email_verified": true, "exp": NOW - 999});
    let identity = rules.check_earlier_id_token(&id_token(claims), CLIENT).unwrap().assume_signature_verified();
    assert!(identity.groups == GroupsClaim::Absent && identity.email.is_none());
    assert!(identity.tenant == TenantClaim::Missing { claim: "org".into() });
    let userinfo = json!({"groups": ["dev"], "org": "globex"});
    let renewed = rules.add_userinfo(identity, userinfo.as_object().unwrap()).unwrap();
    assert!(renewed.groups == GroupsClaim::Listed(vec!["dev".into()]));
    assert!(renewed.tenant == TenantClaim::Named { claim: "org".into(), tenant: "globex".into() });
}

#[test]
fn logout_tokens_name_a_session_or_a_subject() {
    let check = |change: Value| rules().check_logout_token(&logout_token(change), CLIENT, at(NOW));
    assert_eq!(check(json!({})), Ok(LogoutTarget::IssuerSession("s".into())));
    assert_eq!(check(json!({"sid": null})), Ok(LogoutTarget::Subject("1".into())));
    for (change, reason) in [
        (json!({"sid": null, "sub": null}), InvalidToken::Subject),
        (json!({"iss": "https://other.example"}), InvalidToken::Issuer),
        (json!({"aud": "fairway"}), InvalidToken::Audience),
        (json!({"events": null}), InvalidToken::OtherPurpose),
        (json!({"events": {}}), InvalidToken::OtherPurpose),
        (json!({"events": {LOGOUT_EVENT: "x"}}), InvalidToken::OtherPurpose),
        (json!({"nonce": "n"}), InvalidToken::OtherPurpose),
        (json!({"jti": null}), InvalidToken::OtherPurpose),
        (json!({"iat": null}), InvalidToken::Time),
        (json!({"iat": NOW - 301}), InvalidToken::Expired { seconds_ago: 1 }),
        (json!({"iat": NOW + 61}), InvalidToken::NotYetValid { seconds_ahead: 61 }),
        (json!({"exp": NOW - 60}), InvalidToken::Expired { seconds_ago: 60 }),
    ] {
        assert_eq!(check(change.clone()), Err(reason), "{change}");
    }
}
