//! A test identity provider on loopback: publishes one key, signs any claims, and completes sign-ins.

#![expect(clippy::panic, reason = "a test fails when a sign-in lacks a parameter")]

mod faults;

use aws_lc_rs::{
    digest,
    signature::{Ed25519KeyPair, KeyPair as _},
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use faults::ResponseGate;
use serde_json::{Value, json};
use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// The audience of the access tokens.
pub const ACCESS_TOKEN_AUDIENCE: &str = "https://fairway.test";
/// The client id of the portal.
pub const PORTAL_CLIENT_ID: &str = "portal";
/// The client id of the command line.
pub const COMMAND_LINE_CLIENT_ID: &str = "fairway-cli";
/// The client id and secret of a pipeline, which uses client credentials.
pub const PIPELINE_CREDENTIALS: [&str; 2] = ["ci", "secret-of-ci"];
/// The bearer token for the claim source that lists the groups of an overage (groups that a token leaves out).
const GROUPS_TOKEN: &str = "token-of-the-groups-link";
/// The identifier (`kid`) of the signing key.
const KEY_ID: &str = "test-key";
/// Lifetime of the tokens, in seconds.
const LIFETIME: u64 = 600;

/// An issuer for one test. It stops when dropped.
#[derive(Debug)]
pub struct TestIssuer {
    state: Arc<IssuerState>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct IssuerState {
    address: SocketAddr,
    key: Ed25519KeyPair,
    /// The claims of the person who signs in, and the configured behaviour of the endpoints for that person.
    person: Mutex<Person>,
    /// The state of the command line's device sign-in.
    device: Mutex<Device>,
    /// The valid refresh tokens of browser sessions. Each token can be used once.
    refresh_tokens: Mutex<HashSet<String>>,
    /// Whether responses are withheld, and the number of withheld responses.
    gate: ResponseGate,
    /// Issued authorization codes, with the nonce and the PKCE challenge of their sign-in.
    codes: Mutex<HashMap<String, (String, String)>>,
}

#[derive(Clone, Debug)]
struct Person {
    id_token: Value,
    userinfo: Value,
    refuses_refresh: bool,
    /// The error with which the token endpoint refuses requests, if set.
    failure: Option<&'static str>,
    omits_id_tokens: bool,
    fails_userinfo: bool,
    names_issuer: bool,
    renewals: usize,
    /// The number of requests to the token endpoint.
    token_requests: usize,
    /// Status and body of the claim source that lists the groups of an overage.
    linked_groups: (&'static str, Value),
}

#[derive(Debug, Default)]
struct Device {
    /// The number of polls for device tokens. The first poll always receives `authorization_pending`.
    pending: usize,
    /// Whether the person refuses the sign-in from the second poll on.
    is_refused: bool,
    /// The number in the only valid refresh token.
    refresh: usize,
    revoked: Vec<String>,
    /// Lifetime of the access tokens of the command line, in seconds.
    lifetime: Option<u64>,
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
        let person = Mutex::new(Person {
            id_token: json!({}),
            userinfo: json!({}),
            refuses_refresh: false,
            failure: None,
            omits_id_tokens: false,
            fails_userinfo: false,
            names_issuer: false,
            renewals: 0,
            token_requests: 0,
            linked_groups: ("404 Not Found", Value::Null),
        });
        let state = Arc::new(IssuerState {
            address,
            key,
            person,
            device: Mutex::default(),
            refresh_tokens: Mutex::default(),
            gate: ResponseGate::default(),
            codes: Mutex::default(),
        });
        let server_state = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&server_state);
                tokio::spawn(async move {
                    // A client that closes its connection does not fail the test.
                    let _ = reply(stream, &state).await;
                });
            }
        });
        Ok(Self { state, task })
    }

    /// The issuer's identifier, which is also its base address.
    #[must_use]
    pub fn url(&self) -> String {
        self.state.url()
    }

    /// Sets the response of the claim source for groups. Returns ID token claims that refer to this claim source.
    #[must_use]
    pub fn set_group_claim_response(&self, status: &'static str, response: Value) -> Value {
        self.state.person().linked_groups = (status, response);
        let source = json!({"endpoint": format!("{}/groups", self.url()), "access_token": GROUPS_TOKEN});
        json!({"_claim_names": {"groups": "link"}, "_claim_sources": {"link": source}})
    }

    /// The current time in seconds since 1970.
    #[must_use]
    pub fn now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
    }

    /// Sets the claims of the person who signs in from now on: those of the ID token, and those of userinfo.
    pub fn set_person(&self, id_token: Value, userinfo: Value) {
        let mut person = self.state.person();
        person.id_token = id_token;
        person.userinfo = userinfo;
    }

    /// Refuses refresh tokens from now on, as a provider does after its own session has ended.
    pub fn refuse_refresh(&self) {
        self.state.person().refuses_refresh = true;
    }

    /// Refuses token requests with this error from now on.
    pub fn fail_token_requests(&self, error: &'static str) {
        self.state.person().failure = Some(error);
    }

    /// Omits the ID token when tokens are renewed, which OpenID Connect Core 12.2 permits.
    pub fn omit_refreshed_id_tokens(&self) {
        self.state.person().omits_id_tokens = true;
    }

    /// Announces that every callback contains the `iss` parameter (RFC 9207).
    pub fn announce_issuer_parameter(&self) {
        self.state.person().names_issuer = true;
    }

    /// The number of successful renewals.
    #[must_use]
    pub fn portal_refresh_count(&self) -> usize {
        self.state.person().renewals
    }

    /// The number of requests to the token endpoint.
    #[must_use]
    pub fn token_request_count(&self) -> usize {
        self.state.person().token_requests
    }

    /// Makes the person refuse the sign-in of the command line.
    pub fn refuse_device_sign_in(&self) {
        self.state.device().is_refused = true;
    }

    /// Sets the lifetime that the next access tokens of the command line announce, in seconds.
    pub fn set_announced_cli_token_lifetime(&self, seconds: u64) {
        self.state.device().lifetime = Some(seconds);
    }

    /// The number of refresh tokens that the command line received.
    #[must_use]
    pub fn cli_refresh_token_count(&self) -> usize {
        self.state.device().refresh
    }

    /// The tokens that the command line revoked.
    #[must_use]
    pub fn tokens_revoked_by_cli(&self) -> Vec<String> {
        self.state.device().revoked.clone()
    }

    /// Completes a sign-in at the address to which a server redirected. Returns path and query of the callback.
    ///
    /// # Panics
    /// When the address lacks a parameter.
    #[must_use]
    pub fn complete_sign_in(&self, address: &str) -> String {
        let (_, query) = address.split_once('?').unwrap_or_default();
        let parameter = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let value = pairs.into_iter().find_map(|(key, value)| (key == name).then_some(value));
            value.map_or_else(|| panic!("the sign-in lacks `{name}`"), str::to_owned)
        };
        assert_eq!(parameter("code_challenge_method"), "S256");
        let code = format!("code-{}", self.state.codes().len());
        self.state.codes().insert(code.clone(), (parameter("nonce"), parameter("code_challenge")));
        format!("/sign-in/callback?code={code}&state={}", parameter("state"))
    }

    /// A logout token with these claims.
    #[must_use]
    pub fn logout_token(&self, claims: Value) -> String {
        let events = json!({"http://schemas.openid.net/event/backchannel-logout": {}});
        let base =
            json!({"iss": self.url(), "aud": PORTAL_CLIENT_ID, "iat": Self::now(), "jti": "1", "events": events});
        self.sign(&json!({"alg": "EdDSA", "kid": KEY_ID, "typ": "logout+jwt"}), &with(base, claims))
    }

    /// An access token. `claims` override the default claims.
    #[must_use]
    pub fn token(&self, claims: Value) -> String {
        self.state.access_token(claims, LIFETIME)
    }

    /// A token of a person with this name and these groups.
    #[must_use]
    pub fn person_token(&self, name: &str, groups: &[&str]) -> String {
        self.token(json!({"sub": format!("id-of-{name}"), "preferred_username": name, "groups": groups}))
    }

    /// An access token of a client that acts for itself, without a person.
    #[must_use]
    pub fn service_token(&self, client: &str) -> String {
        self.token(json!({"sub": client, "client_id": client}))
    }

    /// Signs a token with this header.
    #[must_use]
    pub fn sign(&self, header: &Value, claims: &Value) -> String {
        self.state.sign(header, claims)
    }
}

fn with(mut base: Value, change: Value) -> Value {
    if let (Value::Object(base), Value::Object(change)) = (&mut base, change) {
        base.extend(change);
    }
    base
}

impl IssuerState {
    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn person(&self) -> MutexGuard<'_, Person> {
        self.person.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refresh_tokens(&self) -> MutexGuard<'_, HashSet<String>> {
        self.refresh_tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn access_token(&self, claims: Value, lifetime: u64) -> String {
        let base =
            json!({"iss": self.url(), "aud": ACCESS_TOKEN_AUDIENCE, "exp": TestIssuer::now().saturating_add(lifetime)});
        self.sign(&json!({"alg": "EdDSA", "kid": KEY_ID, "typ": "at+jwt"}), &with(base, claims))
    }

    /// Issues tokens for the command line. Each refresh token can be used once.
    fn command_line_tokens(&self) -> (&'static str, Value) {
        let mut device = self.device();
        device.refresh += 1;
        let claims = json!({"sub": "1", "preferred_username": "ada", "client_id": COMMAND_LINE_CLIENT_ID});
        // Only the announced lifetime varies, because the server still accepts tokens that expired recently.
        let access = self.access_token(claims, LIFETIME);
        let response = json!({
            "access_token": access, "token_type": "Bearer", "expires_in": device.lifetime.unwrap_or(LIFETIME),
            "refresh_token": format!("refresh-{}", device.refresh),
        });
        ("200 OK", response)
    }

    /// The response to a token request in the device flow.
    fn device_tokens(&self, code: Option<&str>) -> (&'static str, Value) {
        let refused = |error: &str| ("400 Bad Request", json!({"error": error}));
        if code != Some("device-code") {
            return refused("invalid_grant");
        }
        let (is_first, is_refused) = {
            let mut device = self.device();
            device.pending += 1;
            (device.pending == 1, device.is_refused)
        };
        match (is_first, is_refused) {
            (true, _) => refused("authorization_pending"),
            (false, true) => refused("access_denied"),
            (false, false) => self.command_line_tokens(),
        }
    }

    /// The response to a pipeline, which sends its client id and secret in the `Authorization` header.
    fn pipeline_tokens(&self, head: &str) -> (&'static str, Value) {
        let [client, secret] = PIPELINE_CREDENTIALS;
        let credentials = STANDARD.encode(format!("{client}:{secret}"));
        let is_known = head.lines().any(|line| {
            line.split_once(':').is_some_and(|(name, value)| {
                name.eq_ignore_ascii_case("authorization") && value.trim() == format!("Basic {credentials}")
            })
        });
        if !is_known {
            return ("401 Unauthorized", json!({"error": "invalid_client"}));
        }
        let access = self.access_token(json!({"sub": client, "client_id": client}), LIFETIME);
        ("200 OK", json!({"access_token": access, "token_type": "Bearer", "expires_in": LIFETIME}))
    }

    /// The response of the revocation endpoint.
    fn revoke(&self, form: &str) -> (&'static str, Value) {
        let token = form.split('&').find_map(|pair| pair.strip_prefix("token="));
        self.device().revoked.extend(token.map(str::to_owned));
        ("200 OK", Value::Null)
    }

    fn codes(&self) -> MutexGuard<'_, HashMap<String, (String, String)>> {
        self.codes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.key.sign(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    fn discovery(&self) -> Value {
        let url = self.url();
        json!({
            "issuer": url, "jwks_uri": format!("{url}/keys"), "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"), "userinfo_endpoint": format!("{url}/userinfo"),
            "end_session_endpoint": format!("{url}/logout"),
            "device_authorization_endpoint": format!("{url}/device"), "revocation_endpoint": format!("{url}/revoke"),
            "authorization_response_iss_parameter_supported": self.person().names_issuer,
        })
    }

    fn keys(&self) -> Value {
        let public = URL_SAFE_NO_PAD.encode(self.key.public_key().as_ref());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": KEY_ID, "x": public}]})
    }

    /// The response of the token endpoint. A code can be used once, with the PKCE verifier of its sign-in.
    fn tokens(&self, head: &str, form: &str) -> (&'static str, Value) {
        let field = |name: &str| {
            let mut pairs = form.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find_map(|(key, value)| (key == name).then_some(value.to_owned()))
        };
        let refused = ("400 Bad Request", json!({"error": "invalid_grant"}));
        self.person().token_requests += 1;
        if let Some(failure) = self.person().failure {
            return ("400 Bad Request", json!({"error": failure}));
        }
        let is_command_line = field("client_id").as_deref() == Some(COMMAND_LINE_CLIENT_ID);
        let nonce = match field("grant_type").as_deref() {
            Some("client_credentials") => return self.pipeline_tokens(head),
            Some(kind) if kind.ends_with("device_code") => return self.device_tokens(field("device_code").as_deref()),
            Some("refresh_token") if is_command_line => {
                let current = format!("refresh-{}", self.device().refresh);
                let is_valid = field("refresh_token") == Some(current) && !self.person().refuses_refresh;
                return if is_valid { self.command_line_tokens() } else { refused };
            }
            Some("authorization_code") => {
                let Some((nonce, challenge)) = field("code").and_then(|code| self.codes().remove(&code)) else {
                    return refused;
                };
                let verifier = field("code_verifier").unwrap_or_default();
                let hash = digest::digest(&digest::SHA256, verifier.as_bytes());
                if URL_SAFE_NO_PAD.encode(hash.as_ref()) != challenge {
                    return refused;
                }
                json!(nonce)
            }
            Some("refresh_token") if !self.person().refuses_refresh => {
                let is_valid = field("refresh_token").is_some_and(|token| self.refresh_tokens().remove(&token));
                if !is_valid {
                    return refused;
                }
                self.person().renewals += 1;
                Value::Null
            }
            _ => return refused,
        };
        let base = json!({
            "iss": self.url(), "aud": PORTAL_CLIENT_ID, "sub": "1", "sid": "session-1", "iat": TestIssuer::now(),
            "exp": TestIssuer::now().saturating_add(LIFETIME), "nonce": nonce.clone(),
        });
        let claims = with(base, self.person().id_token.clone());
        let id_token = self.sign(&json!({"alg": "EdDSA", "kid": KEY_ID, "typ": "JWT"}), &claims);
        let is_omitted = nonce.is_null() && self.person().omits_id_tokens;
        let refresh_token = {
            let mut valid = self.refresh_tokens();
            let token = format!("session-refresh-{}", self.person().token_requests);
            valid.insert(token.clone());
            token
        };
        let mut response = json!({
            "access_token": "opaque", "token_type": "Bearer", "expires_in": 300, "refresh_token": refresh_token,
            "id_token": id_token,
        });
        if let (true, Value::Object(members)) = (is_omitted, &mut response) {
            members.remove("id_token");
        }
        ("200 OK", response)
    }
}

async fn reply(mut stream: TcpStream, state: &IssuerState) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return Ok(()),
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    let (status, body) = match head.split(' ').nth(1) {
        Some("/.well-known/openid-configuration") => ("200 OK", state.discovery()),
        Some("/keys") => ("200 OK", state.keys()),
        Some("/token") => state.tokens(&head, &String::from_utf8_lossy(&body)),
        Some("/revoke") => state.revoke(&String::from_utf8_lossy(&body)),
        Some("/device") => {
            let url = state.url();
            let started = json!({
                "device_code": "device-code", "user_code": "WDJB-MJHT", "expires_in": 600, "interval": 1,
                "verification_uri": format!("{url}/activate"),
                "verification_uri_complete": format!("{url}/activate?user_code=WDJB-MJHT"),
            });
            ("200 OK", started)
        }
        // The claim source accepts only its own bearer token.
        Some("/groups") if head.to_ascii_lowercase().contains(&format!("authorization: bearer {GROUPS_TOKEN}")) => {
            state.person().linked_groups.clone()
        }
        Some("/userinfo") if state.person().fails_userinfo => ("503 Service Unavailable", Value::Null),
        Some("/userinfo") => ("200 OK", with(json!({"sub": "1"}), state.person().userinfo.clone())),
        _ => ("404 Not Found", Value::Null),
    };
    state.gate.pass().await;
    let (body, length) = (body.to_string(), body.to_string().len());
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}
