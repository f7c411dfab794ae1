//! Valid tokens and their identities.

use crate::{
    issuer::{IssuerServer, Scene, config},
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
    let scene = Scene::with_keys(&[&rsa, &ec, &ed]).await;
    let claims = scene.claims();
    for key in [&rsa, &ec, &ed] {
        assert_eq!(scene.refusal(&key.token(&claims)).await, None, "{}", key.algorithm());
    }
    let pss = rsa.token_of(Scheme::Pss, r#"{"alg":"PS256","kid":"rsa"}"#, &claims.to_string());
    assert_eq!(scene.refusal(&pss).await, None, "PS256 without a type");
    for typ in ["JWT", "application/at+jwt"] {
        let header = json!({"alg": "ES256", "kid": "ec", "typ": typ, "x5t": "ignored"});
        assert_eq!(scene.refusal(&ec.token_with(&header, &claims)).await, None, "{typ}");
    }
    assert_eq!(scene.server.total(), 2, "one discovery document and one key set");
}

#[tokio::test]
async fn identity_has_the_claims_of_the_token() {
    let key = TestKey::ec("ec");
    let server = IssuerServer::start().await;
    server.publish("a", &[&key]);
    let mut issuer = config(&server.issuer("a"));
    issuer.rules.tenant_claim = Some("org".to_owned());
    issuer.rules.bound_tenant = Some(Slug::parse("acme").unwrap());
    let scene = Scene::new(server, vec![issuer]);
    let mut claims = scene.claims();
    for (name, value) in [
        ("preferred_username", json!("Ada")),
        ("groups", json!(["staff"])),
        ("org", json!("acme")),
        ("email", json!("ada@acme.example")),
        ("email_verified", json!(true)),
    ] {
        claims[name] = value;
    }
    let person = scene.verify(&key.token(&claims)).await.unwrap();
    assert_eq!((person.issuer.as_str(), person.subject.as_str()), (scene.server.issuer("a").as_str(), "248"));
    assert!(person.kind == IdentityKind::Person);
    assert_eq!(person.name.as_deref(), Some("Ada"));
    assert!(person.groups == GroupsClaim::Listed(vec!["staff".to_owned()]));
    assert!(person.tenant == TenantClaim::Named { claim: "org".to_owned(), tenant: "acme".to_owned() });
    assert_eq!(person.email.as_deref(), Some("ada@acme.example"));
    assert_eq!(person.bound_tenant, Some(Slug::parse("acme").unwrap()));
    let mut claims = scene.claims();
    claims["client_id"] = json!("248");
    let service = scene.verify(&key.token(&claims)).await.unwrap();
    assert!(service.kind == IdentityKind::Service { client_id: "248".to_owned() });
    assert!(service.tenant == TenantClaim::Missing { claim: "org".to_owned() });
}

#[tokio::test]
async fn equal_subjects_of_two_issuers_are_different_identities() {
    let (first, second) = (TestKey::ec("shared"), TestKey::ec("shared"));
    let server = IssuerServer::start().await;
    server.publish("a", &[&first]);
    server.publish("b", &[&second]);
    let issuers = vec![config(&server.issuer("a")), config(&server.issuer("b"))];
    let scene = Scene::new(server, issuers);
    let mut claims = scene.claims();
    let of_first = scene.verify(&first.token(&claims)).await.unwrap();
    claims["iss"] = json!(scene.server.issuer("b"));
    let of_second = scene.verify(&second.token(&claims)).await.unwrap();
    assert_eq!(of_first.subject, of_second.subject);
    assert_ne!(of_first.issuer, of_second.issuer);
    // At each issuer, this key identifier refers to a different key.
    assert_eq!(scene.refusal(&first.token(&claims)).await, Some(InvalidToken::Signature));
}

#[tokio::test]
async fn repeated_tokens_share_a_verification_until_they_expire() {
    let key = TestKey::rsa("rsa");
    let scene = Scene::with_keys(&[&key]).await;
    let mut claims = scene.claims();
    claims["exp"] = json!(scene.clock.seconds() + 30);
    let token = key.token(&claims);
    let first = scene.verify(&token).await.unwrap();
    assert!(Arc::ptr_eq(&first, &scene.verify(&token).await.unwrap()), "cached");
    scene.clock.advance(30);
    let again = scene.verify(&token).await.unwrap();
    assert!(!Arc::ptr_eq(&first, &again), "an expired token within the leeway is verified each time");
    assert!(!Arc::ptr_eq(&again, &scene.verify(&token).await.unwrap()));
    scene.clock.advance(60);
    assert_eq!(scene.refusal(&token).await, Some(InvalidToken::Expired { seconds_ago: 60 }));
    let token = key.token(&scene.claims());
    let first = scene.verify(&token).await.unwrap();
    scene.clock.advance(59);
    assert!(Arc::ptr_eq(&first, &scene.verify(&token).await.unwrap()));
    scene.clock.advance(1);
    assert!(!Arc::ptr_eq(&first, &scene.verify(&token).await.unwrap()), "after a minute");
}

#[tokio::test]
async fn configurations_need_distinct_issuers_and_readable_certificates() {
    let guard = Guard::new(ServerMode::Remote, Vec::new());
    let scene = Scene::with_keys(&[&TestKey::ec("ec")]).await;
    let new = |issuers| TokenVerifier::new(&guard, Arc::clone(&scene.clock) as _, issuers).err();
    let good = config("https://idp.example");
    assert_eq!(new(vec![good.clone()]), None);
    assert_eq!(new(Vec::new()), Some(IssuerConfigError::NoIssuer));
    assert_eq!(new(vec![good.clone(), good.clone()]), Some(IssuerConfigError::DuplicateIssuer));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let with_file = || {
        let mut config = good.clone();
        config.ca_file = Some(path.clone());
        vec![config]
    };
    assert_eq!(new(with_file()), Some(IssuerConfigError::CaFile));
    for text in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAQAB\n-----END CERTIFICATE-----\n"] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(new(with_file()), Some(IssuerConfigError::CaCertificates), "{text}");
    }
}

#[tokio::test]
async fn debug_output_and_refusals_contain_no_value() {
    let key = TestKey::ec("ec");
    let scene = Scene::with_keys(&[&key]).await;
    let mut claims = scene.claims();
    claims["sub"] = json!("canary");
    let identity = scene.verify(&key.token(&claims)).await.unwrap();
    assert!(!format!("{identity:?} {:?}", scene.verifier).contains("canary"));
    claims["aud"] = json!("canary");
    let refusal = scene.verify(&key.token(&claims)).await.unwrap_err();
    assert!(!format!("{refusal:?} {refusal}").contains("canary"));
    // The error text for callers does not reveal the reason.
    assert_eq!(refusal.to_string(), "the access token is not valid");
}
