//! Valid tokens and their identities.

use crate::{
    issuer_server::{IssuerServer, Setup, config},
    signing::{Scheme, TestKey},
};
use fairway_domain::{
    access::identity::{GroupsClaim, IdentityKind, InvalidToken, TenantClaim},
    slug::Slug,
};
use fairway_egress::{Guard, ServerMode};
use fairway_oidc::{IssuerConfigError, TokenVerifier};
use serde_json::json;
use std::sync::Arc;

#[tokio::test]
async fn accepts_tokens_of_every_algorithm() {
    let (rsa, ec, ed) = (TestKey::rsa("rsa"), TestKey::ec("ec"), TestKey::ed("ed"));
    let setup = Setup::with_keys(&[&rsa, &ec, &ed]).await;
    let claims = setup.claims();
    for key in [&rsa, &ec, &ed] {
        assert_eq!(setup.refusal(&key.token(&claims)).await, None, "{}", key.algorithm());
    }
    let pss = rsa.token_of(Scheme::Pss, r#"{"alg":"PS256","kid":"rsa"}"#, &claims.to_string());
    assert_eq!(setup.refusal(&pss).await, None, "PS256 without a type");
    for typ in ["JWT", "application/at+jwt"] {
        let header = json!({"alg": "ES256", "kid": "ec", "typ": typ, "x5t": "ignored"});
        assert_eq!(setup.refusal(&ec.token_with(&header, &claims)).await, None, "{typ}");
    }
    assert_eq!(setup.server.total(), 2, "one discovery document and one key set");
}

#[tokio::test]
async fn identity_has_the_claims_of_the_token() {
    let key = TestKey::ec("ec");
    let server = IssuerServer::start().await;
    server.publish("a", &[&key]);
    let mut issuer = config(&server.issuer("a"));
    issuer.rules.tenant_claim = Some("org".to_owned());
    issuer.rules.bound_tenant = Some(Slug::parse("acme").unwrap());
    let setup = Setup::new(server, vec![issuer]);
    let mut claims = setup.claims();
    for (name, value) in [
        ("preferred_username", json!("Ada")),
        ("groups", json!(["staff"])),
        ("org", json!("acme")),
        ("email", json!("ada@acme.example")),
        ("email_verified", json!(true)),
    ] {
        claims[name] = value;
    }
    let person = setup.verify(&key.token(&claims)).await.unwrap();
    assert_eq!((person.issuer.as_str(), person.subject.as_str()), (setup.server.issuer("a").as_str(), "248"));
    assert!(person.kind == IdentityKind::Person);
    assert_eq!(person.name.as_deref(), Some("Ada"));
    assert!(person.groups == GroupsClaim::Listed(vec!["staff".to_owned()]));
    assert!(person.tenant == TenantClaim::Named { claim: "org".to_owned(), tenant: "acme".to_owned() });
    assert_eq!(person.email.as_deref(), Some("ada@acme.example"));
    assert_eq!(person.bound_tenant, Some(Slug::parse("acme").unwrap()));
    let mut claims = setup.claims();
    claims["client_id"] = json!("248");
    let service = setup.verify(&key.token(&claims)).await.unwrap();
    assert!(service.kind == IdentityKind::Service { client_id: "248".to_owned() });
    assert!(service.tenant == TenantClaim::Missing { claim: "org".to_owned() });
}

#[tokio::test]
async fn equal_subjects_of_two_issuers_are_different_identities() {
    let (first_key, second_key) = (TestKey::ec("shared"), TestKey::ec("shared"));
    let server = IssuerServer::start().await;
    server.publish("a", &[&first_key]);
    server.publish("b", &[&second_key]);
    let issuers = vec![config(&server.issuer("a")), config(&server.issuer("b"))];
    let setup = Setup::new(server, issuers);
    let mut claims = setup.claims();
    let first_identity = setup.verify(&first_key.token(&claims)).await.unwrap();
    claims["iss"] = json!(setup.server.issuer("b"));
    let second_identity = setup.verify(&second_key.token(&claims)).await.unwrap();
    assert_eq!(first_identity.subject, second_identity.subject);
    assert_ne!(first_identity.issuer, second_identity.issuer);
    // At each issuer, this key identifier refers to a different key.
    assert_eq!(setup.refusal(&first_key.token(&claims)).await, Some(InvalidToken::Signature));
}

#[tokio::test]
async fn repeated_tokens_share_a_verification_until_they_expire() {
    let key = TestKey::rsa("rsa");
    let setup = Setup::with_keys(&[&key]).await;
    let mut claims = setup.claims();
    claims["exp"] = json!(setup.clock.seconds() + 30);
    let token = key.token(&claims);
    let first = setup.verify(&token).await.unwrap();
    assert!(Arc::ptr_eq(&first, &setup.verify(&token).await.unwrap()), "cached");
    setup.clock.advance(30);
    let reverified = setup.verify(&token).await.unwrap();
    assert!(!Arc::ptr_eq(&first, &reverified), "an expired token within the leeway is verified each time");
    assert!(!Arc::ptr_eq(&reverified, &setup.verify(&token).await.unwrap()));
    setup.clock.advance(60);
    assert_eq!(setup.refusal(&token).await, Some(InvalidToken::Expired { seconds_ago: 60 }));
    let token = key.token(&setup.claims());
    let first = setup.verify(&token).await.unwrap();
    setup.clock.advance(59);
    assert!(Arc::ptr_eq(&first, &setup.verify(&token).await.unwrap()));
    setup.clock.advance(1);
    assert!(!Arc::ptr_eq(&first, &setup.verify(&token).await.unwrap()), "after a minute");
}

#[tokio::test]
async fn configurations_need_distinct_issuers_and_readable_certificates() {
    let guard = Guard::new(ServerMode::Remote, Vec::new());
    let setup = Setup::with_keys(&[&TestKey::ec("ec")]).await;
    let error_of = |issuers| TokenVerifier::new(&guard, Arc::clone(&setup.clock) as _, issuers).err();
    let valid_config = config("https://idp.example");
    assert_eq!(error_of(vec![valid_config.clone()]), None);
    assert_eq!(error_of(Vec::new()), Some(IssuerConfigError::NoIssuer));
    assert_eq!(error_of(vec![valid_config.clone(), valid_config.clone()]), Some(IssuerConfigError::DuplicateIssuer));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let with_file = || {
        let mut config = valid_config.clone();
        config.ca_file = Some(path.clone());
        vec![config]
    };
    assert_eq!(error_of(with_file()), Some(IssuerConfigError::CaFile));
    for text in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAQAB\n-----END CERTIFICATE-----\n"] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(error_of(with_file()), Some(IssuerConfigError::CaCertificates), "{text}");
    }
}

#[tokio::test]
async fn debug_output_and_refusals_contain_no_value() {
    let key = TestKey::ec("ec");
    let setup = Setup::with_keys(&[&key]).await;
    let mut claims = setup.claims();
    claims["sub"] = json!("canary");
    let identity = setup.verify(&key.token(&claims)).await.unwrap();
    assert!(!format!("{identity:?} {:?}", setup.verifier).contains("canary"));
    claims["aud"] = json!("canary");
    let refusal = setup.verify(&key.token(&claims)).await.unwrap_err();
    assert!(!format!("{refusal:?} {refusal}").contains("canary"));
    // The error text for callers does not reveal the reason.
    assert_eq!(refusal.to_string(), "the access token is not valid");
}
