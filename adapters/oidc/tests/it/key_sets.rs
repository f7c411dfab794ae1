//! Key sets of issuers: rotation and revocation of keys, outages, and hostile key sets.

use crate::{
    issuer::{IssuerServer, Reply, Scene, config, key_set, ok},
    signing::TestKey,
};
use fairway_domain::access::identity::{InvalidToken, TokenRefusal};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Maximum time to wait for a background task.
const DEADLINE: Duration = Duration::from_secs(60);

/// Asserts that the issuer counts as unavailable. Returns the seconds until the next fetch.
async fn unavailable(scene: &Scene, token: &str) -> u64 {
    match scene.verify(token).await {
        Err(TokenRefusal::Unavailable { retry_after }) => retry_after.as_secs(),
        Err(invalid @ TokenRefusal::Invalid(_)) => panic!("{invalid:?}"),
        Ok(_) => panic!("the token is accepted"),
    }
}

#[tokio::test]
async fn new_key_works_within_a_minute() {
    let (old, new) = (TestKey::ec("old"), TestKey::ec("new"));
    let scene = Scene::with_keys(&[&old]).await;
    let claims = scene.claims();
    assert_eq!(scene.refusal(&old.token(&claims)).await, None);
    scene.server.publish("a", &[&old, &new]);
    scene.clock.advance(29);
    assert_eq!(scene.refusal(&new.token(&claims)).await, Some(InvalidToken::UnknownKey), "within 30 seconds");
    assert_eq!(scene.fetches(), 1);
    scene.clock.advance(1);
    assert_eq!(scene.refusal(&new.token(&claims)).await, None);
    assert_eq!(scene.refusal(&old.token(&claims)).await, None);
    assert_eq!(scene.fetches(), 2);
}

#[tokio::test]
async fn removed_key_is_refused_within_ten_minutes() {
    let (old, new) = (TestKey::ec("old"), TestKey::ec("new"));
    let scene = Scene::with_keys(&[&old, &new]).await;
    let (removed, kept) = (old.token(&scene.claims()), new.token(&scene.claims()));
    assert_eq!(scene.refusal(&removed).await, None);
    scene.server.publish("a", &[&new]);
    scene.clock.advance(4 * 60);
    assert_eq!(scene.refusal(&removed).await, None, "no fetch is due yet");
    // No request refreshed the keys in the meantime. They are so old that this request must wait for a fetch.
    scene.clock.advance(5 * 60);
    assert_eq!(scene.refusal(&removed).await, Some(InvalidToken::UnknownKey));
    assert_eq!(scene.refusal(&kept).await, None);
    assert_eq!(scene.fetches(), 2);
}

#[tokio::test]
async fn refreshes_in_the_background_after_five_minutes() {
    let (old, new) = (TestKey::ec("old"), TestKey::ec("new"));
    let scene = Scene::with_keys(&[&old, &new]).await;
    let removed = old.token(&scene.claims());
    assert_eq!(scene.refusal(&removed).await, None);
    scene.clock.advance(299);
    assert_eq!(scene.refusal(&removed).await, None);
    assert_eq!(scene.fetches(), 1);
    scene.server.set("/a/keys", Reply::Held(key_set(&[&new])));
    scene.clock.advance(1);
    assert_eq!(scene.refusal(&removed).await, None, "the request does not wait");
    scene.server.release();
    // The verified token is cached for a minute. The removal of its key must invalidate the cache entry earlier.
    let begin = Instant::now();
    while scene.refusal(&removed).await.is_none() {
        assert!(begin.elapsed() < DEADLINE, "the removed key is still accepted");
        tokio::task::yield_now().await;
    }
    assert_eq!(scene.fetches(), 2);
}

#[tokio::test]
async fn unchanged_keys_keep_cached_tokens() {
    let key = TestKey::ec("ec");
    let scene = Scene::with_keys(&[&key]).await;
    let token = key.token(&scene.claims());
    scene.verify(&token).await.unwrap();
    scene.clock.advance(9 * 60 - 1);
    let cached = scene.verify(&token).await.unwrap();
    scene.clock.advance(1);
    // Whether or not the background refresh has ended, the keys are the same as before, so the cached token remains.
    assert!(std::sync::Arc::ptr_eq(&cached, &scene.verify(&token).await.unwrap()));
}

#[tokio::test]
async fn another_key_with_the_same_identifier_replaces() {
    let (old, new) = (TestKey::ec("ec"), TestKey::rsa("ec"));
    let scene = Scene::with_keys(&[&old]).await;
    let (old_token, new_token) = (old.token(&scene.claims()), new.token(&scene.claims()));
    assert_eq!(scene.refusal(&old_token).await, None);
    scene.server.publish("a", &[&new]);
    assert_eq!(scene.refusal(&new_token).await, Some(InvalidToken::KeyAlgorithm));
    scene.clock.advance(9 * 60);
    assert_eq!(scene.refusal(&new_token).await, None);
    assert_eq!(scene.refusal(&old_token).await, Some(InvalidToken::KeyAlgorithm));
}

#[tokio::test]
async fn flood_of_unknown_keys_causes_one_fetch_in_30_seconds() {
    let key = TestKey::ed("ed");
    let scene = Scene::with_keys(&[&key]).await;
    let claims = scene.claims();
    assert_eq!(scene.refusal(&key.token(&claims)).await, None);
    let unknown = |number: usize| {
        let header = json!({"alg": "EdDSA", "kid": format!("unknown-{number}")});
        key.token_with(&header, &claims)
    };
    for round in 1..=4 {
        scene.clock.advance(30);
        let mut tasks = Vec::new();
        for number in 0..100 {
            let (verifier, token) = (std::sync::Arc::clone(&scene.verifier), unknown(number));
            tasks.push(tokio::spawn(async move {
                use fairway_domain::access::identity::IdentityProvider as _;
                verifier.verify(&token).await.unwrap_err()
            }));
        }
        for task in tasks {
            assert_eq!(task.await.unwrap(), TokenRefusal::Invalid(InvalidToken::UnknownKey));
        }
        scene.clock.advance(29);
        assert_eq!(scene.refusal(&unknown(1_000)).await, Some(InvalidToken::UnknownKey));
        assert_eq!(scene.fetches(), 1 + round, "round {round}");
        scene.clock.advance(-29);
    }
    assert_eq!(scene.refusal(&key.token(&claims)).await, None);
}

#[tokio::test]
async fn first_tokens_share_a_fetch_that_no_client_cancels() {
    let key = TestKey::ec("ec");
    let server = IssuerServer::start().await;
    server.publish("a", &[&key]);
    server.set("/a/keys", Reply::Held(key_set(&[&key])));
    let issuers = vec![config(&server.issuer("a"))];
    let scene = Scene::new(server, issuers);
    let verify = |token: String| {
        let verifier = std::sync::Arc::clone(&scene.verifier);
        tokio::spawn(async move {
            use fairway_domain::access::identity::IdentityProvider as _;
            verifier.verify(&token).await.map(|identity| identity.subject.clone())
        })
    };
    let first = verify(key.token(&scene.claims()));
    scene.server.wait_for_total(2).await;
    let others: Vec<_> = (0..20).map(|_| verify(key.token(&scene.claims()))).collect();
    // The client whose request started the fetch disconnects. The fetch continues for other requests.
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    scene.server.release();
    for other in others {
        assert_eq!(other.await.unwrap().as_deref(), Ok("248"));
    }
    assert_eq!(scene.server.total(), 2, "one discovery document and one key set");
}

#[tokio::test]
async fn outage_keeps_the_last_keys_for_known_keys_only() {
    let (key, new) = (TestKey::ec("ec"), TestKey::ec("new"));
    let scene = Scene::with_keys(&[&key]).await;
    let mut claims = scene.claims();
    claims["exp"] = json!(scene.clock.seconds() + 200_000);
    let (known, unknown) = (key.token(&claims), new.token(&claims));
    assert_eq!(scene.refusal(&known).await, None);
    scene.server.set("/a/keys", Reply::Raw("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_owned()));
    scene.clock.advance(30);
    assert_eq!(unavailable(&scene, &unknown).await, 30);
    scene.clock.advance(20);
    assert_eq!(unavailable(&scene, &unknown).await, 10);
    assert_eq!(scene.fetches(), 2, "a failure does not allow an earlier fetch");
    assert_eq!(scene.refusal(&known).await, None);
    scene.clock.advance(12 * 60 * 60);
    assert_eq!(scene.refusal(&known).await, None, "within a day");
    assert_eq!(unavailable(&scene, &unknown).await, 30);
    scene.clock.advance(12 * 60 * 60);
    assert!(unavailable(&scene, &known).await <= 30, "after a day");
    scene.server.publish("a", &[&key, &new]);
    scene.clock.advance(30);
    assert_eq!(scene.refusal(&known).await, None);
    assert_eq!(scene.refusal(&unknown).await, None);
}

#[tokio::test]
async fn issuer_that_is_down_at_first_works_later() {
    let key = TestKey::ec("ec");
    let server = IssuerServer::start().await;
    let issuers = vec![config(&server.issuer("a"))];
    let scene = Scene::new(server, issuers);
    let token = key.token(&scene.claims());
    assert_eq!(unavailable(&scene, &token).await, 30);
    scene.server.publish("a", &[&key]);
    scene.clock.advance(29);
    assert_eq!(unavailable(&scene, &token).await, 1);
    scene.clock.advance(1);
    assert_eq!(scene.refusal(&token).await, None);
}

#[tokio::test]
async fn clock_that_is_set_back_delays_no_rotation() {
    let (old, new) = (TestKey::ec("old"), TestKey::ec("new"));
    let scene = Scene::with_keys(&[&old]).await;
    scene.clock.advance(86_400);
    let mut claims = scene.claims();
    assert_eq!(scene.refusal(&old.token(&claims)).await, None);
    scene.server.publish("a", &[&new]);
    scene.clock.advance(-86_400);
    claims["exp"] = json!(scene.clock.seconds() + 60);
    assert_eq!(scene.refusal(&new.token(&claims)).await, None);
    assert_eq!(scene.refusal(&old.token(&claims)).await, Some(InvalidToken::UnknownKey));
}

/// Replies with which a hostile or broken issuer responds to a request for its keys.
fn hostile_replies(scene: &Scene, key: &TestKey) -> Vec<(&'static str, Reply)> {
    let good = key_set(&[key]);
    let json = |value: Value| Reply::Json(value.to_string());
    let oct = json!({"kty": "oct", "kid": "ec", "k": "AQAB"});
    let mut private = key.jwk();
    private["d"] = json!("AQAB");
    let redirect =
        format!("HTTP/1.1 302 Found\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n", scene.server.issuer("good"));
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
        ("duplicate member", Reply::Json(good.replacen('{', r#"{"keys":[],"#, 1))),
        ("huge", Reply::Json(format!("{good}{}", " ".repeat(300 * 1024)))),
        ("deeply nested", Reply::Json(format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)))),
        ("endless", Reply::Endless),
        ("redirect", Reply::Raw(redirect)),
        ("not found", Reply::Raw("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned())),
        ("created", Reply::Raw(ok(&good).replacen("200 OK", "201 Created", 1))),
        ("compressed", Reply::Raw(ok(&good).replacen("\r\n", "\r\nContent-Encoding: gzip\r\n", 1))),
        ("cut off", Reply::Raw(ok(&good).replacen("Content-Length: ", "Content-Length: 9", 1))),
        ("no HTTP", Reply::Raw("220 ready\r\n".to_owned())),
        ("closed", Reply::Raw(String::new())),
    ]
}

#[tokio::test]
async fn hostile_replies_change_no_keys() {
    let key = TestKey::ec("ec");
    let scene = Scene::with_keys(&[&key]).await;
    let mut claims = scene.claims();
    claims["exp"] = json!(scene.clock.seconds() + 80_000);
    let (known, unknown) = (key.token(&claims), TestKey::ec("new").token(&claims));
    assert_eq!(scene.refusal(&known).await, None);
    scene.server.set("/good", Reply::Json(key_set(&[&key])));
    for path in ["/a/keys", "/a/.well-known/openid-configuration"] {
        for (name, reply) in hostile_replies(&scene, &key) {
            scene.server.set(path, reply);
            scene.clock.advance(600);
            let before = scene.server.count(path);
            assert_eq!(scene.refusal(&known).await, None, "{path}: {name}");
            assert_eq!(scene.server.count(path), before + 1, "{path}: {name}");
            assert!(unavailable(&scene, &unknown).await <= 30, "{path}: {name}");
        }
        scene.server.publish("a", &[&key]);
    }
    assert_eq!(scene.server.count("/good"), 0, "no redirect is followed");
}

#[tokio::test]
async fn discovery_of_another_issuer_changes_no_keys() {
    let (key, attacker) = (TestKey::ec("ec"), TestKey::ec("attacker"));
    let scene = Scene::with_keys(&[&key]).await;
    let claims = scene.claims();
    assert_eq!(scene.refusal(&key.token(&claims)).await, None);
    scene.server.set("/attacker", Reply::Json(key_set(&[&attacker])));
    let issuer = scene.server.issuer("a");
    let keys = format!("http://{}/attacker", scene.server.address);
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
        scene.server.set("/a/.well-known/openid-configuration", Reply::Json(document.to_string()));
        scene.clock.advance(30);
        assert_eq!(unavailable(&scene, &attacker.token(&claims)).await, 30, "{name}");
    }
    assert_eq!(scene.server.count("/attacker"), 0);
    assert_eq!(scene.refusal(&key.token(&claims)).await, None);
}

/// This is the only test that waits for the five-second timeout of a fetch.
#[tokio::test]
async fn silent_and_slow_issuers_delay_a_request_for_five_seconds_at_most() {
    let delay = async |reply: Reply| {
        let key = TestKey::ec("ec");
        let scene = Scene::with_keys(&[&key]).await;
        scene.server.set("/a/keys", reply);
        let token = key.token(&scene.claims());
        let before = Instant::now();
        assert_eq!(unavailable(&scene, &token).await, 30);
        assert!(before.elapsed() < DEADLINE);
        // The next request does not wait, because a failed fetch is not repeated at once.
        assert_eq!(unavailable(&scene, &token).await, 30);
        assert_eq!(scene.fetches(), 1);
    };
    tokio::join!(delay(Reply::Silent), delay(Reply::Slow));
}
