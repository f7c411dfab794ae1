//! An issuer on loopback that counts requests and simulates faults, and a clock that only the test moves.

use crate::signing::TestKey;
use fairway_domain::{
    access::identity::{ClaimRules, IdentityProvider as _, InvalidToken, TokenRefusal, VerifiedIdentity},
    clock::Clock,
    time::Timestamp,
};
use fairway_egress::{Guard, ServerMode};
use fairway_oidc::{IssuerConfig, TokenVerifier};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use time::OffsetDateTime;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinHandle,
};

/// The initial time of the clock in every test, in seconds since 1970.
pub(crate) const START: i64 = 1_800_000_000;
pub(crate) const AUDIENCE: &str = "https://fairway.example";

/// A clock that only the test moves.
pub(crate) struct TestClock(AtomicI64);

impl TestClock {
    pub(crate) fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }

    pub(crate) fn seconds(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::new(OffsetDateTime::from_unix_timestamp(self.seconds()).unwrap())
    }
}

/// The reply of the issuer to requests for a path.
#[derive(Clone)]
pub(crate) enum Reply {
    /// Status 200 with this body.
    Json(String),
    /// These bytes, as the whole response.
    Raw(String),
    /// Status 200 with this body, after the test calls [`IssuerServer::release`].
    Held(String),
    /// A response head, followed by an endless body of `x`.
    Endless,
    /// No response. The connection stays open.
    Silent,
    /// A response head, followed by single bytes with pauses, so that the connection is never idle for long.
    Slow,
}

#[derive(Default)]
struct State {
    replies: Mutex<HashMap<String, Reply>>,
    counts: Mutex<HashMap<String, usize>>,
    total: watch::Sender<usize>,
}

/// An HTTP server for any number of issuers, each below its own path.
pub(crate) struct IssuerServer {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    gate: Arc<Semaphore>,
    task: JoinHandle<()>,
}

impl Drop for IssuerServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl IssuerServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, gate) = (Arc::<State>::default(), Arc::new(Semaphore::new(0)));
        let (server_state, server_gate) = (Arc::clone(&state), Arc::clone(&gate));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(reply(stream, Arc::clone(&server_state), Arc::clone(&server_gate)));
            }
        });
        Self { address, state, gate, task }
    }

    pub(crate) fn issuer(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// Publishes the discovery document and the keys of an issuer.
    pub(crate) fn publish(&self, name: &str, keys: &[&TestKey]) {
        let issuer = self.issuer(name);
        let discovery = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")});
        self.set(&format!("/{name}/.well-known/openid-configuration"), Reply::Json(discovery.to_string()));
        self.set(&format!("/{name}/keys"), Reply::Json(key_set(keys)));
    }

    pub(crate) fn set(&self, path: &str, reply: Reply) {
        self.state.replies.lock().unwrap().insert(path.to_owned(), reply);
    }

    /// The number of requests for a path.
    pub(crate) fn count(&self, path: &str) -> usize {
        self.state.counts.lock().unwrap().get(path).copied().unwrap_or(0)
    }

    /// The number of requests for any path.
    pub(crate) fn total(&self) -> usize {
        *self.state.total.borrow()
    }

    /// Waits until this number of requests has arrived.
    pub(crate) async fn wait_for_total(&self, requests: usize) {
        let mut total = self.state.total.subscribe();
        total.wait_for(|total| *total >= requests).await.unwrap();
    }

    /// Sends one held reply.
    pub(crate) fn release(&self) {
        self.gate.add_permits(1);
    }
}

pub(crate) fn key_set(keys: &[&TestKey]) -> String {
    json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()}).to_string()
}

/// A response with status 200.
pub(crate) fn ok(body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

async fn reply(mut stream: TcpStream, state: Arc<State>, gate: Arc<Semaphore>) {
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let mut bytes = [0; 1024];
        match stream.read(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(length) => head.extend_from_slice(&bytes[..length]),
        }
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let reply_to_send = state.replies.lock().unwrap().get(&path).cloned();
    *state.counts.lock().unwrap().entry(path).or_default() += 1;
    state.total.send_modify(|total| *total += 1);
    let text = match reply_to_send {
        None => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned(),
        Some(Reply::Json(body)) => ok(&body),
        Some(Reply::Raw(text)) => text,
        Some(Reply::Held(body)) => {
            gate.acquire().await.unwrap().forget();
            ok(&body)
        }
        Some(Reply::Endless) => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await;
            while stream.write_all(&[b'x'; 8192]).await.is_ok() {}
            return;
        }
        Some(Reply::Slow) => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await;
            // The loop ends when the client disconnects.
            while stream.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            return;
        }
        Some(Reply::Silent) => {
            // The read ends when the client disconnects.
            let _ = stream.read(&mut [0; 1]).await;
            return;
        }
    };
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// A verifier that is configured with issuers of a test server.
pub(crate) struct Setup {
    pub(crate) server: IssuerServer,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) verifier: Arc<TokenVerifier>,
}

impl Setup {
    /// Creates a verifier for issuer `a`, which publishes these keys.
    pub(crate) async fn with_keys(keys: &[&TestKey]) -> Self {
        let server = IssuerServer::start().await;
        server.publish("a", keys);
        let issuers = vec![config(&server.issuer("a"))];
        Self::new(server, issuers)
    }

    pub(crate) fn new(server: IssuerServer, issuers: Vec<IssuerConfig>) -> Self {
        let clock = Arc::new(TestClock(AtomicI64::new(START)));
        let guard = Guard::new(ServerMode::Remote, Vec::new());
        let verifier = TokenVerifier::new(&guard, Arc::<TestClock>::clone(&clock), issuers).unwrap();
        Self { server, clock, verifier: Arc::new(verifier) }
    }

    /// The claims of a valid token of issuer `a` that expires in an hour.
    pub(crate) fn claims(&self) -> Value {
        json!({"iss": self.server.issuer("a"), "aud": AUDIENCE, "sub": "248", "exp": self.clock.seconds() + 3_600})
    }

    pub(crate) async fn verify(&self, token: &str) -> Result<Arc<VerifiedIdentity>, TokenRefusal> {
        self.verifier.verify(token).await
    }

    /// The reason why the verifier refuses a token; `None` if the token is valid.
    pub(crate) async fn refusal(&self, token: &str) -> Option<InvalidToken> {
        match self.verify(token).await {
            Ok(_) => None,
            Err(TokenRefusal::Invalid(reason)) => Some(reason),
            Err(unavailable @ TokenRefusal::Unavailable { .. }) => panic!("{unavailable:?}"),
        }
    }

    /// The number of requests for the key set of issuer `a`.
    pub(crate) fn fetches(&self) -> usize {
        self.server.count("/a/keys")
    }
}

pub(crate) fn config(issuer: &str) -> IssuerConfig {
    IssuerConfig {
        rules: ClaimRules {
            issuer: issuer.to_owned(),
            audience: AUDIENCE.to_owned(),
            user_claim: "preferred_username".to_owned(),
            groups_claim: "groups".to_owned(),
            tenant_claim: None,
            bound_tenant: None,
            portal_client_id: Some("portal".to_owned()),
        },
        ca_file: None,
    }
}
