use super::*;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;

const NOW: i64 = 1_800_000_000;

fn rules() -> ClaimRules {
    ClaimRules {
        issuer: "https://issuer.example".into(),
        audience: "https://fairway.example".into(),
        user_claim: "preferred_username".into(),
        groups_claim: "groups".into(),
        tenant_claim: None,
        bound_tenant: None,
        portal_client_id: Some("portal".into()),
    }
}

fn claims() -> Value {
    json!({"iss": "https://issuer.example", "aud": "https://fairway.example", "sub": "248", "exp": NOW + 300})
}

/// The valid claims with the changes in `members`. A member with the value `null` removes the claim.
fn claims_with(members: Value) -> Value {
    let mut claims = claims();
    for (name, value) in members.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}

fn check_text(rules: &ClaimRules, claims: &str, now: Timestamp) -> Result<VerifiedIdentity, InvalidToken> {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","kid":"k"}"#);
    let token = format!("{header}.{}.c2ln", URL_SAFE_NO_PAD.encode(claims));
    let token = UnverifiedToken::parse_access_token(&token).unwrap();
    rules.check_access_token(&token, now).map(ClaimedIdentity::assume_signature_verified)
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::new(OffsetDateTime::from_unix_timestamp(seconds).unwrap())
}

fn check(rules: &ClaimRules, claims: &Value) -> Result<VerifiedIdentity, InvalidToken> {
    check_text(rules, &claims.to_string(), at(NOW))
}

fn refusal(members: Value) -> Option<InvalidToken> {
    check(&rules(), &claims_with(members)).err()
}

fn identity(members: Value) -> VerifiedIdentity {
    check(&rules(), &claims_with(members)).unwrap()
}

#[test]
fn compares_the_issuer_byte_by_byte() {
    assert_eq!(refusal(json!({})), None);
    for issuer in [
        json!("https://issuer.example/"),
        json!("https://ISSUER.example"),
        json!("http://issuer.example"),
        json!("https://issuer.example:443"),
        json!("https://issuer.example#"),
        json!(" https://issuer.example"),
        json!("issuer.example"),
        json!(""),
        json!(["https://issuer.example"]),
        json!(7),
        json!(null),
    ] {
        assert_eq!(refusal(json!({ "iss": issuer })), Some(InvalidToken::Issuer), "{issuer}");
    }
}

#[test]
fn finds_the_audience_by_exact_equality() {
    for allowed in [
        json!("https://fairway.example"),
        json!(["https://fairway.example"]),
        json!(["other", "https://fairway.example"]),
        json!(["portal", "https://fairway.example"]),
    ] {
        assert_eq!(refusal(json!({ "aud": allowed })), None, "{allowed}");
    }
    for (audience, reason) in [
        (json!("https://fairway.example/"), InvalidToken::Audience),
        (json!("https://fairway.example.attacker.example"), InvalidToken::Audience),
        (json!("https://fairway"), InvalidToken::Audience),
        (json!("fairway.example"), InvalidToken::Audience),
        (json!("https://FAIRWAY.example"), InvalidToken::Audience),
        (json!("other https://fairway.example"), InvalidToken::Audience),
        (json!("https://fairway.example,other"), InvalidToken::Audience),
        (json!(["https://fairway.example/"]), InvalidToken::Audience),
        (json!(""), InvalidToken::Audience),
        (json!([]), InvalidToken::Audience),
        (json!(null), InvalidToken::Audience),
        (json!([["https://fairway.example"]]), InvalidToken::ClaimType),
        (json!(["https://fairway.example", 7]), InvalidToken::ClaimType),
        (json!({"0": "https://fairway.example"}), InvalidToken::ClaimType),
        (json!(true), InvalidToken::ClaimType),
        (json!("portal"), InvalidToken::PortalOnly),
        (json!(["portal", "portal"]), InvalidToken::PortalOnly),
    ] {
        assert_eq!(refusal(json!({ "aud": audience })), Some(reason), "{audience}");
    }
}

#[test]
fn refuses_tokens_of_other_purposes() {
    for claim in FOREIGN_CLAIMS {
        for value in [json!("x"), json!({}), json!(1)] {
            assert_eq!(refusal(json!({ claim: value })), Some(InvalidToken::OtherPurpose), "{claim}");
        }
        let text = claims().to_string().replacen('{', &format!(r#"{{"{claim}":null,"#), 1);
        assert_eq!(check_text(&rules(), &text, at(NOW)).err(), Some(InvalidToken::OtherPurpose), "{claim}: null");
    }
}

#[test]
fn tolerates_a_minute_between_clocks() {
    for (members, reason) in [
        (json!({"exp": NOW - 59}), None),
        (json!({"exp": NOW - 60}), Some(InvalidToken::Expired { seconds_ago: 60 })),
        (json!({"exp": NOW as f64 - 59.5}), None),
        (json!({"exp": NOW as f64 - 60.5}), Some(InvalidToken::Expired { seconds_ago: 60 })),
        (json!({"nbf": NOW + 60}), None),
        (json!({"nbf": NOW + 61}), Some(InvalidToken::NotYetValid { seconds_ahead: 61 })),
        (json!({"nbf": NOW as f64 + 60.5}), Some(InvalidToken::NotYetValid { seconds_ahead: 60 })),
        (json!({"nbf": 0}), None),
        (json!({"exp": 0}), Some(InvalidToken::Expired { seconds_ago: u64::try_from(NOW).unwrap() })),
    ] {
        assert_eq!(refusal(members.clone()), reason, "{members}");
    }
    assert_eq!(identity(json!({"exp": NOW + 300})).expires_at, at(NOW + 300));
}

#[test]
fn requires_times_as_numbers_in_range() {
    assert_eq!(refusal(json!({"exp": null})), Some(InvalidToken::Time), "absent");
    for name in ["exp", "nbf", "iat"] {
        for value in [
            json!("1800000300"),
            json!("2027-01-15T08:00:00Z"),
            json!(-1),
            json!(-0.5),
            json!(-1e300),
            json!(1e300),
            json!(253_402_300_800_u64),
            json!(u64::MAX),
            json!(true),
            json!([1_800_000_300]),
            json!({"seconds": 1_800_000_300}),
        ] {
            assert_eq!(refusal(json!({ name: value })), Some(InvalidToken::Time), "{name}: {value}");
        }
        let text = claims().to_string().replace(&format!(r#""{name}":1800000300"#), r#""x":1"#);
        let text = text.replacen('{', &format!(r#"{{"{name}":null,"#), 1);
        assert_eq!(check_text(&rules(), &text, at(NOW)).err(), Some(InvalidToken::Time), "{name}: null");
    }
    assert_eq!(refusal(json!({"exp": 253_402_300_799_u64})), None);
}

#[test]
fn requires_a_short_subject() {
    for subject in [json!(null), json!(""), json!("s".repeat(256)), json!("a\nb"), json!("a\u{7f}")] {
        assert_eq!(refusal(json!({ "sub": subject })), Some(InvalidToken::Subject), "{subject}");
    }
    for subject in [json!(7), json!(["248"]), json!({}), json!(true)] {
        assert_eq!(refusal(json!({ "sub": subject })), Some(InvalidToken::ClaimType), "{subject}");
    }
}

#[test]
fn tokens_for_client_credentials_are_services() {
    let service = |id: &str| IdentityKind::Service { client_id: id.into() };
    let keycloak = |name: &str, client: &str| json!({"preferred_username": name, "azp": client});
    for (members, kind) in [
        // RFC 9068: a client that acts for itself is the subject of its own token.
        (json!({}), IdentityKind::Person),
        (json!({"client_id": "app"}), IdentityKind::Person),
        (json!({"client_id": "248"}), service("248")),
        (json!({"azp": "248"}), service("248")),
        (json!({"client_id": "app", "azp": "248"}), service("248")),
        (json!({"cid": "248"}), service("248")),
        (json!({"client_id": 248}), IdentityKind::Person),
        // Entra ID, with the optional claim `idtyp`.
        (json!({"idtyp": "app", "azp": "app"}), service("app")),
        (json!({"idtyp": "app", "appid": "app"}), service("app")),
        (json!({"idtyp": "app", "oid": "other", "azp": "app"}), service("app")),
        (json!({"idtyp": "app"}), IdentityKind::Person),
        (json!({"idtyp": "user", "azp": "app"}), IdentityKind::Person),
        (json!({"idtyp": "user", "oid": "248", "azp": "app"}), IdentityKind::Person),
        (json!({"idtyp": ["app"], "oid": "248", "azp": "app"}), IdentityKind::Person),
        (json!({"idtyp": "app", "azp": ""}), IdentityKind::Person),
        // Entra ID, without `idtyp`, in tokens of version 2 and of version 1.
        (json!({"oid": "248", "azp": "app"}), service("app")),
        (json!({"oid": "248", "appid": "app"}), service("app")),
        (json!({"oid": "248", "azp": "app", "roles": ["Run"]}), service("app")),
        (json!({"oid": "248", "azp": "app", "scp": "run"}), IdentityKind::Person),
        (json!({"oid": "248", "azp": "app", "scp": ""}), IdentityKind::Person),
        (json!({"oid": "other", "azp": "app"}), IdentityKind::Person),
        (json!({"oid": "248"}), IdentityKind::Person),
        (json!({"oid": "248", "client_id": "app"}), IdentityKind::Person),
        // Keycloak, whose user names are in lower case.
        (json!({"preferred_username": "service-account-ci", "clientId": "ci"}), service("ci")),
        (json!({"preferred_username": "service-account-build-bot", "client_id": "Build-Bot"}), service("Build-Bot")),
        (json!({"preferred_username": "service-account-ci", "client_id": "ci", "azp": "ci"}), service("ci")),
        (json!({"preferred_username": "service-account-ci", "client_id": "ci"}), service("ci")),
        // A person whose user name looks like a service account, signed in through the same or another client.
        (keycloak("service-account-ci", "ci"), IdentityKind::Person),
        (keycloak("service-account-ci", "fairway-cli"), IdentityKind::Person),
        (keycloak("service-account-", "fairway-cli"), IdentityKind::Person),
        (keycloak("service-account-ci-2", "ci"), IdentityKind::Person),
        (keycloak("x-service-account-ci", "ci"), IdentityKind::Person),
        (keycloak("ci", "ci"), IdentityKind::Person),
        (json!({"preferred_username": "service-account-ci"}), IdentityKind::Person),
    ] {
        assert!(identity(members.clone()).kind == kind, "{members}");
    }
}

#[test]
fn reads_groups_and_distinguishes_overage_from_empty_list() {
    let listed = |groups: &[&str]| GroupsClaim::Listed(groups.iter().map(|group| (*group).into()).collect());
    let endpoint = "https://issuer.example/groups";
    let overage_with_source = |token: Option<&str>| GroupsClaim::Overage {
        source: Some(DistributedClaimSource { endpoint: endpoint.into(), access_token: token.map(str::to_owned) }),
    };
    for (members, groups) in [
        (json!({}), GroupsClaim::Absent),
        (json!({"groups": []}), listed(&[])),
        (json!({"groups": ["a", "b"]}), listed(&["a", "b"])),
        (json!({"groups": "a"}), listed(&["a"])),
        (json!({"hasgroups": true}), GroupsClaim::Overage { source: None }),
        (json!({"hasgroups": false}), GroupsClaim::Absent),
        (
            json!({"_claim_names": {"groups": "src"}, "_claim_sources": {"src": {"endpoint": endpoint}}}),
            overage_with_source(None),
        ),
        (
            json!({
                "_claim_names": {"groups": "src"}, "_claim_sources": {"src": {"endpoint": endpoint, "access_token": "t"}},
            }),
            overage_with_source(Some("t")),
        ),
        (json!({"_claim_names": {"groups": "src"}, "groups": ["a"]}), GroupsClaim::Overage { source: None }),
        (json!({"_claim_names": {"groups": 7}}), GroupsClaim::Overage { source: None }),
        (json!({"_claim_names": {"roles": "src"}}), GroupsClaim::Absent),
    ] {
        assert!(identity(members.clone()).groups == groups, "{members}");
    }
    for wrong in [json!(7), json!(["a", 7]), json!({"a": true}), json!([["a"]])] {
        assert_eq!(refusal(json!({ "groups": wrong })), Some(InvalidToken::ClaimType), "{wrong}");
    }
}

#[test]
fn names_the_tenant_claim_without_a_value_when_it_is_missing() {
    assert!(identity(json!({"org": "acme"})).tenant == TenantClaim::NotConfigured);
    let rules = ClaimRules { tenant_claim: Some("org".into()), ..rules() };
    let tenant = |members: Value| check(&rules, &claims_with(members)).unwrap().tenant;
    let missing = TenantClaim::Missing { claim: "org".into() };
    for members in [json!({}), json!({"org": ""}), json!({"org": 7}), json!({"org": ["acme"]})] {
        assert!(tenant(members.clone()) == missing, "{members}");
    }
    assert!(tenant(json!({"org": "acme"})) == TenantClaim::Named { claim: "org".into(), tenant: "acme".into() });
}

#[test]
fn reads_only_verified_email_addresses() {
    for (verified, email) in
        [(json!(true), Some("a@b.example")), (json!(false), None), (json!("true"), None), (json!(null), None)]
    {
        let claimed_email = identity(json!({"email": "a@b.example", "email_verified": verified})).email;
        assert_eq!(claimed_email.as_deref(), email, "{verified}");
    }
}

#[test]
fn reads_configured_name_and_bound_tenant() {
    let person = identity(json!({"preferred_username": "Ada"}));
    assert_eq!((person.issuer.as_str(), person.subject.as_str()), ("https://issuer.example", "248"));
    assert_eq!((person.name.as_deref(), person.bound_tenant), (Some("Ada"), None));
    assert_eq!(identity(json!({"preferred_username": ""})).name, None);
    assert_eq!(identity(json!({"name": "Ada"})).name, None);
    assert_eq!(refusal(json!({"preferred_username": ["Ada"]})), Some(InvalidToken::ClaimType));
    let tenant = Slug::parse("acme").unwrap();
    let bound_rules = ClaimRules { bound_tenant: Some(tenant.clone()), ..rules() };
    assert_eq!(check(&bound_rules, &claims()).unwrap().bound_tenant, Some(tenant));
}

#[test]
fn debug_output_omits_every_value() {
    let person = identity(json!({"preferred_username": "canary", "sub": "canary", "email": "canary"}));
    assert!(!format!("{person:?}").contains("canary"));
}
