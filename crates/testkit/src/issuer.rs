//! An identity provider on loopback: publishes one key, and signs any claims that a test wants.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// The audience of its access tokens.
pub const AUDIENCE: &str = "https://fairway.test";
/// The identifier of its key.
const KEY_ID: &str = "test-key";
/// Lifetime of its tokens, in seconds.
const LIFETIME: u64 = 600;

/// An issuer for one test. It stops when dropped.
#[derive(Debug)]
pub struct TestIssuer {
    address: SocketAddr,
    key: Ed25519KeyPair,
    task: JoinHandle<()>,
}

impl Drop for TestIssuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TestIssuer {
    /// Starts an issuer with a new key.
    ///
    /// # Errors
    /// When no key can be made, or no port is free.
    pub async fn start() -> anyhow::Result<Self> {
        let key = Ed25519KeyPair::generate()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let issuer = format!("http://{address}");
        let discovery = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}).to_string();
        let public = URL_SAFE_NO_PAD.encode(key.public_key().as_ref());
        let keys = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": KEY_ID, "x": public}]});
        let keys = keys.to_string();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let documents = (discovery.clone(), keys.clone());
                tokio::spawn(async move {
                    // A client that goes away is no failure of the test.
                    let _ = reply(stream, &documents.0, &documents.1).await;
                });
            }
        });
        Ok(Self { address, key, task })
    }

    /// The issuer's identifier.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Seconds since 1970.
    #[must_use]
    pub fn now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
    }

    /// An access token. `claims` replace the default ones.
    #[must_use]
    pub fn token(&self, claims: Value) -> String {
        let mut all = json!({"iss": self.url(), "aud": AUDIENCE, "exp": Self::now().saturating_add(LIFETIME)});
        if let (Value::Object(all), Value::Object(claims)) = (&mut all, claims) {
            all.extend(claims);
        }
        self.sign(&json!({"alg": "EdDSA", "kid": KEY_ID, "typ": "at+jwt"}), &all)
    }

    /// A token of a person with this name and these groups.
    #[must_use]
    pub fn person(&self, name: &str, groups: &[&str]) -> String {
        self.token(json!({"sub": format!("id-of-{name}"), "preferred_username": name, "groups": groups}))
    }

    /// A token of a client that acts for itself.
    #[must_use]
    pub fn service(&self, client: &str) -> String {
        self.token(json!({"sub": client, "client_id": client}))
    }

    /// Signs a token with this header.
    #[must_use]
    pub fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.key.sign(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

async fn reply(mut stream: TcpStream, discovery: &str, keys: &str) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return Ok(()),
        }
    }
    let head = String::from_utf8_lossy(&head);
    let (status, body) = match head.split(' ').nth(1) {
        Some("/.well-known/openid-configuration") => ("200 OK", discovery),
        Some("/keys") => ("200 OK", keys),
        _ => ("404 Not Found", ""),
    };
    let length = body.len();
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}
