//! Key sets of issuers: rotation and revocation of keys, outages, and hostile key sets.

use crate::{
    issuer_server::{IssuerServer, Reply, Setup, config, key_set, ok},
    signing::TestKey,
};
use fairway_domain::access::identity::{InvalidToken, TokenRefusal};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Maximum time to wait for a background task.
const DEADLINE: Duration = Duration::from_secs(60);

/// Asserts that the issuer counts as unavailable. Returns the seconds until the next fetch.
async fn unavailable(setup: &Setup, token: &str) -> u64 {
    match setup.verify(token).await {
        Err(TokenRefusal::Unavailable { retry_after }) => retry_after.as_secs(),
        Err(invalid @ TokenRefusal::Invalid(_)) => panic!("{invalid:?}"),
        Ok(_) => panic!("the token is accepted"),
    }
}

#[tokio::test]
async fn new_key_works_within_a_minute() {
    let (old, new) = (TestKey::ec("old"), TestKey::ec("new"));
    let setup = Setup::with_keys(&[&old]).await;
    let claims = setup.claims();
    assert_eq!(setup.refusal(&old.token(&claims)).await, None);
    setup.server.publish("a", &[&old, &new]);
    setup.clock.advance(29);
    assert_eq!(setup.refusal(&new.token(&claims)).await, Some(InvalidToken::UnknownKey), "within 30 seconds");
    assert_eq!(setup.fetches(), 1);
    setup.clock.advance(1);
    assert_eq!(setup.refusal(&new.token(&claims)).await, None);
    assert_eq!(setup.refusal(&old.token(&claims)).await, None);
    assert_eq!(setup.fetches(), 2);
}

#[tokio::test]
async fn removed_key_is_refused_within_ten_minutes() {
    let (old, new) = (TestKey::ec("old"), TestKey::ec("new"));
    let setup = Setup::with_keys(&[&old, &new]).await;
    let (removed_key_token, remaining_key_token) = (old.token(&setup.claims()), new.token(&setup.claims()));
    assert_eq!(setup.refusal(&removed_key_token).await, None);
    setup.server.publish("a", &[&new]);
    setup.clock.advance(4 * 60);
    assert_eq!(setup.refusal(&removed_key_token).await, None, "no fetch is due yet");
    // No request refreshed the keys in the meantime. They are so old that this request must wait for a fetch.
    setup.clock.advance(5 * 60);
    assert_eq!(setup.refusal(&removed_key_token).await, Some(InvalidToken::UnknownKey));
    assert_eq!(setup.refusal(&remaining_key_token).await, None);
    assert_eq!(setup.fetches(), 2);
}

#[tokio::test]
async fn refreshes_in_the_background_after_five_minutes() {
    let (old, new) = (TestKey::ec("old"), TestKey::ec("new"));
    let setup = Setup::with_keys(&[&old, &new]).await;
    let removed_key_token = old.token(&setup.claims());
    assert_eq!(setup.refusal(&removed_key_token).await, None);
    setup.clock.advance(299);
    assert_eq!(setup.refusal(&removed_key_token).await, None);
    assert_eq!(setup.fetches(), 1);
    setup.server.set("/a/keys", Reply::Held(key_set(&[&new])));
    setup.clock.advance(1);
    assert_eq!(setup.refusal(&removed_key_token).await, None, "the request does not wait");
    setup.server.release();
    // The verified token is cached for a minute. The removal of its key must invalidate the cache entry earlier.
    let start = Instant::now();
    while setup.refusal(&removed_key_token).await.is_none() {
        assert!(start.elapsed() < DEADLINE, "the removed key is still accepted");
        tokio::task::yield_now().await;
    }
    assert_eq!(setup.fetches(), 2);
}

#[tokio::test]
async fn unchanged_keys_keep_cached_tokens() {
    let key = TestKey::ec("ec");
    let setup = Setup::with_keys(&[&key]).await;
    let token = key.token(&setup.claims());
    setup.verify(&token).await.unwrap();
    setup.clock.advance(9 * 60 - 1);
    let cached = setup.verify(&token).await.unwrap();
    setup.clock.advance(1);
    // Whether or not the background refresh has ended, the keys are the same as before, so the cached token remains.
    assert!(std::sync::Arc::ptr_eq(&cached, &setup.verify(&token).await.unwrap()));
}

#[tokio::test]
async fn another_key_with_the_same_identifier_replaces() {
    let (old, new) = (TestKey::ec("ec"), TestKey::rsa("ec"));
    let setup = Setup::with_keys(&[&old]).await;
    let (old_token, new_token) = (old.token(&setup.claims()), new.token(&setup.claims()));
    assert_eq!(setup.refusal(&old_token).await, None);
    setup.server.publish("a", &[&new]);
    assert_eq!(setup.refusal(&new_token).await, Some(InvalidToken::KeyAlgorithm));
    setup.clock.advance(9 * 60);
    assert_eq!(setup.refusal(&new_token).await, None);
    assert_eq!(setup.refusal(&old_token).await, Some(InvalidToken::KeyAlgorithm));
}

#[tokio::test]
async fn flood_of_unknown_keys_causes_one_fetch_in_30_seconds() {
    let key = TestKey::ed("ed");
    let setup = Setup::with_keys(&[&key]).await;
    let claims = setup.claims();
    assert_eq!(setup.refusal(&key.token(&claims)).await, None);
    let token_of_unknown_key = |number: usize| {
        let header = json!({"alg": "EdDSA", "kid": format!("unknown-{number}")});
        key.token_with(&header, &claims)
    };
    for round in 1..=4 {
        setup.clock.advance(30);
        let mut tasks = Vec::new();
        for number in 0..100 {
            let (verifier, token) = (std::sync::Arc::clone(&setup.verifier), token_of_unknown_key(number));
            tasks.push(tokio::spawn(async move {
                use fairway_domain::access::identity::IdentityProvider as _;
                verifier.verify(&token).await.unwrap_err()
            }));
        }
        for task in tasks {
            assert_eq!(task.await.unwrap(), TokenRefusal::Invalid(InvalidToken::UnknownKey));
        }
        setup.clock.advance(29);
        assert_eq!(setup.refusal(&token_of_unknown_key(1_000)).await, Some(InvalidToken::UnknownKey));
        assert_eq!(setup.fetches(), 1 + round, "round {round}");
        setup.clock.advance(-29);
    }
    assert_eq!(setup.refusal(&key.token(&claims)).await, None);
}

#[tokio::test]
async fn first_tokens_share_a_fetch_that_no_client_cancels() {
    let key = TestKey::ec("ec");
    let server = IssuerServer::start().await;
    server.publish("a", &[&key]);
    server.set("/a/keys", Reply::Held(key_set(&[&key])));
    let issuers = vec![config(&server.issuer("a"))];
    let setup = Setup::new(server, issuers);
    let verify = |token: String| {
        let verifier = std::sync::Arc::clone(&setup.verifier);
        tokio::spawn(async move {
            use fairway_domain::access::identity::IdentityProvider as _;
            verifier.verify(&token).await.map(|identity| identity.subject.clone())
        })
    };
    let first_task = verify(key.token(&setup.claims()));
    setup.server.wait_for_total(2).await;
    let other_tasks: Vec<_> = (0..20).map(|_| verify(key.token(&setup.claims()))).collect();
    // The client whose request started the fetch disconnects. The fetch continues for other requests.
    first_task.abort();
    assert!(first_task.await.unwrap_err().is_cancelled());
    setup.server.release();
    for task in other_tasks {
        assert_eq!(task.await.unwrap().as_deref(), Ok("248"));
    }
    assert_eq!(setup.server.total(), 2, "one discovery document and one key set");
}

#[tokio::test]
async fn outage_keeps_the_last_keys_for_known_keys_only() {
    let (key, new) = (TestKey::ec("ec"), TestKey::ec("new"));
    let setup = Setup::with_keys(&[&key]).await;
    let mut claims = setup.claims();
    claims["exp"] = json!(setup.clock.seconds() + 200_000);
    let (known_token, unknown_token) = (key.token(&claims), new.token(&claims));
    assert_eq!(setup.refusal(&known_token).await, None);
    setup.server.set("/a/keys", Reply::Raw("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_owned()));
    setup.clock.advance(30);
    assert_eq!(unavailable(&setup, &unknown_token).await, 30);
    setup.clock.advance(20);
    assert_eq!(unavailable(&setup, &unknown_token).await, 10);
    assert_eq!(setup.fetches(), 2, "a failure does not allow an earlier fetch");
    assert_eq!(setup.refusal(&known_token).await, None);
    setup.clock.advance(12 * 60 * 60);
    assert_eq!(setup.refusal(&known_token).await, None, "within a day");
    assert_eq!(unavailable(&setup, &unknown_token).await, 30);
    setup.clock.advance(12 * 60 * 60);
    assert!(unavailable(&setup, &known_token).await <= 30, "after a day");
    setup.server.publish("a", &[&key, &new]);
    setup.clock.advance(30);
    assert_eq!(setup.refusal(&known_token).await, None);
    assert_eq!(setup.refusal(&unknown_token).await, None);
}

#[tokio::test]
async fn issuer_that_is_down_at_first_works_later() {
    let key = TestKey::ec("ec");
    let server = IssuerServer::start().await;
    let issuers = vec![config(&server.issuer("a"))];
    let setup = Setup::new(server, issuers);
    let token = key.token(&setup.claims());
    assert_eq!(unavailable(&setup, &token).await, 30);
    setup.server.publish("a", &[&key]);
    setup.clock.advance(29);
    assert_eq!(unavailable(&setup, &token).await, 1);
    setup.clock.advance(1);
    assert_eq!(setup.refusal(&token).await, None);
}

#[tokio::test]
async fn clock_that_is_set_back_delays_no_rotation() {
    let (old, new) = (TestKey::ec("old"), TestKey::ec("new"));
    let setup = Setup::with_keys(&[&old]).await;
    setup.clock.advance(86_400);
    let mut claims = setup.claims();
    assert_eq!(setup.refusal(&old.token(&claims)).await, None);
    setup.server.publish("a", &[&new]);
    setup.clock.advance(-86_400);
    claims["exp"] = json!(setup.clock.seconds() + 60);
    assert_eq!(setup.refusal(&new.token(&claims)).await, None);
    assert_eq!(setup.refusal(&old.token(&claims)).await, Some(InvalidToken::UnknownKey));
}

/// Replies with which a hostile or broken issuer responds to a request for its keys.
fn hostile_replies(setup: &Setup, key: &TestKey) -> Vec<(&'static str, Reply)> {
    let keys = key_set(&[key]);
    let json = |value: Value| Reply::Json(value.to_string());
    let oct = json!({"kty": "oct", "kid": "ec", "k": "AQAB"});
    let mut private = key.jwk();
    private["d"] = json!("AQAB");
    let redirect =
        format!("HTTP/1.1 302 Found\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n", setup.server.issuer("good"));
    vec![
        ("empty body", Reply::Json(String::new())),
        ("garbage", Reply::Json("\u{0}\u{1}<html>".to_owned())),
        ("an array", json(json!([]))),
        ("no keys member", json(json!({}))),
        ("no keys", json(json!({"keys": []}))),
        ("keys as an object", json(json!({"keys": {"ec": key.jwk()}}))),
        ("symmetric key", json(json!({"keys": [oct]}))),
        ("private key", json(json!({"keys": [private]}))),
        ("too many keys", json(json!({"keys": vec![key.jwk(); 65]}))),
        ("duplicate member", Reply::Json(keys.replacen('{', r#"{"keys":[],"#, 1))),
        ("huge", Reply::Json(format!("{keys}{}", " ".repeat(300 * 1024)))),
        ("deeply nested", Reply::Json(format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)))),
        ("endless", Reply::Endless),
        ("redirect", Reply::Raw(redirect)),
        ("not found", Reply::Raw("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned())),
        ("created", Reply::Raw(ok(&keys).replacen("200 OK", "201 Created", 1))),
        ("compressed", Reply::Raw(ok(&keys).replacen("\r\n", "\r\nContent-Encoding: gzip\r\n", 1))),
        ("cut off", Reply::Raw(ok(&keys).replacen("Content-Length: ", "Content-Length: 9", 1))),
        ("no HTTP", Reply::Raw("220 ready\r\n".to_owned())),
        ("closed", Reply::Raw(String::new())),
    ]
}

#[tokio::test]
async fn hostile_replies_change_no_keys() {
    let key = TestKey::ec("ec");
    let setup = Setup::with_keys(&[&key]).await;
    let mut claims = setup.claims();
    claims["exp"] = json!(setup.clock.seconds() + 80_000);
    let (known_token, unknown_token) = (key.token(&claims), TestKey::ec("new").token(&claims));
    assert_eq!(setup.refusal(&known_token).await, None);
    setup.server.set("/good", Reply::Json(key_set(&[&key])));
    for path in ["/a/keys", "/a/.well-known/openid-configuration"] {
        for (name, reply) in hostile_replies(&setup, &key) {
            setup.server.set(path, reply);
            setup.clock.advance(600);
            let requests = setup.server.count(path);
            assert_eq!(setup.refusal(&known_token).await, None, "{path}: {name}");
            assert_eq!(setup.server.count(path), requests + 1, "{path}: {name}");
            assert!(unavailable(&setup, &unknown_token).await <= 30, "{path}: {name}");
        }
        setup.server.publish("a", &[&key]);
    }
    assert_eq!(setup.server.count("/good"), 0, "no redirect is followed");
}

#[tokio::test]
async fn discovery_of_another_issuer_changes_no_keys() {
    let (key, attacker) = (TestKey::ec("ec"), TestKey::ec("attacker"));
    let setup = Setup::with_keys(&[&key]).await;
    let claims = setup.claims();
    assert_eq!(setup.refusal(&key.token(&claims)).await, None);
    setup.server.set("/attacker", Reply::Json(key_set(&[&attacker])));
    let issuer = setup.server.issuer("a");
    let keys = format!("http://{}/attacker", setup.server.address);
    for (name, document) in [
        ("another issuer", json!({"issuer": "https://attacker.example", "jwks_uri": keys})),
        ("a slash", json!({"issuer": format!("{issuer}/"), "jwks_uri": keys})),
        ("no issuer", json!({"jwks_uri": keys})),
        ("no address", json!({"issuer": issuer})),
        ("a file", json!({"issuer": issuer, "jwks_uri": "file:///etc/passwd"})),
        ("another machine without TLS", json!({"issuer": issuer, "jwks_uri": "http://192.0.2.1/keys"})),
        ("credentials", json!({"issuer": issuer, "jwks_uri": keys.replace("http://", "http://user@")})),
        // The egress guard allows only the origin of the issuer itself.
        ("a service on this machine", json!({"issuer": issuer, "jwks_uri": "http://127.0.0.1:9/keys"})),
        ("an internal service", json!({"issuer": issuer, "jwks_uri": "https://169.254.169.254/keys"})),
    ] {
        setup.server.set("/a/.well-known/openid-configuration", Reply::Json(document.to_string()));
        setup.clock.advance(30);
        assert_eq!(unavailable(&setup, &attacker.token(&claims)).await, 30, "{name}");
    }
    assert_eq!(setup.server.count("/attacker"), 0);
    assert_eq!(setup.refusal(&key.token(&claims)).await, None);
}

/// This is the only test that waits for the five-second timeout of a fetch.
#[tokio::test]
async fn silent_and_slow_issuers_delay_a_request_for_five_seconds_at_most() {
    let delay = async |reply: Reply| {
        let key = TestKey::ec("ec");
        let setup = Setup::with_keys(&[&key]).await;
        setup.server.set("/a/keys", reply);
        let token = key.token(&setup.claims());
        let start = Instant::now();
        assert_eq!(unavailable(&setup, &token).await, 30);
        assert!(start.elapsed() < DEADLINE);
        // The next request does not wait, because a failed fetch is not repeated at once.
        assert_eq!(unavailable(&setup, &token).await, 30);
        assert_eq!(setup.fetches(), 1);
    };
    tokio::join!(delay(Reply::Silent), delay(Reply::Slow));
}
