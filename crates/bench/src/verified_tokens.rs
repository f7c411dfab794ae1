//! Benchmark of reads with access tokens of an identity provider, compared with the same reads in local mode.
//!
//! One server verifies tokens, and one trusts its clients. They use the same database. An issuer on loopback, in
//! this process, publishes its key, which the verifying server fetches every few minutes. Every client has its own
//! identity in both modes, so that the caches of callers behave alike.

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn_local};

use crate::benchmark_run::Measurement;
use crate::child_process::ChildProcess;
use crate::closed_loop_clients::ClientScript;
use crate::environment::start_processes::{start_server, start_verifying_server};
use crate::environment::{DATABASE, Postgres, RunDirectory};
use crate::fixtures::Fixtures;
use crate::paired_comparison::PairedComparison;
use crate::scenario::Scenario;
use crate::thresholds::{CLIENTS, TargetResult, TargetVerdict};

/// The name by which `--only` selects this benchmark.
pub(crate) const NAME: &str = "verified token";
/// The audience of the tokens.
pub(crate) const AUDIENCE: &str = "fairway-bench";
/// The group that administers the platform on the verifying server. In local mode, every actor without a role
/// binding is an administrator.
pub(crate) const ADMINISTRATORS: &str = "group:bench";
/// Maximum time of a read with a token, relative to the same read in local mode.
const MAX_RATIO: f64 = 1.15;
/// Lifetime of the tokens. No token expires during a benchmark.
const LIFETIME: Duration = Duration::from_secs(4 * 60 * 60);
const KEY_ID: &str = "bench";
/// Number of rounds; an odd number has a median. Reads are so short that results of a few rounds vary by a third.
const ROUNDS: usize = 31;

/// An identity provider that issues access tokens. It stops when dropped.
pub(crate) struct Issuer {
    address: SocketAddr,
    key: Rc<Ed25519KeyPair>,
    task: JoinHandle<()>,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Issuer {
    async fn start() -> Result<Issuer> {
        let key = Ed25519KeyPair::generate().map_err(|_| anyhow!("no signing key could be made"))?;
        let key = Rc::new(key);
        let listener = TcpListener::bind("127.0.0.1:0").await.context("starting the issuer")?;
        let address = listener.local_addr()?;
        let published = Rc::clone(&key);
        let task = spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // An error needs no handling: the server fetches again after a failure.
                let _ = reply(stream, address, &published).await;
            }
        });
        Ok(Issuer { address, key, task })
    }

    /// The identifier of the issuer, which is also its base address.
    pub(crate) fn url(&self) -> String {
        url(self.address)
    }

    /// A token of one client of the benchmark.
    fn token(&self, client: usize) -> Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let header = json!({"alg": "EdDSA", "kid": KEY_ID, "typ": "at+jwt"});
        let claims = json!({
            "iss": self.url(), "aud": AUDIENCE, "sub": format!("bench-{client}"), "iat": now.as_secs(),
            "exp": now.saturating_add(LIFETIME).as_secs(), "preferred_username": name(client),
            "groups": ADMINISTRATORS.trim_start_matches("group:"),
        });
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&header), encode(&claims));
        let signature = URL_SAFE_NO_PAD.encode(self.key.sign(signed.as_bytes()).as_ref());
        Ok(format!("{signed}.{signature}"))
    }
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// The user name of a client in both modes.
fn name(client: usize) -> String {
    format!("bench-verified-{client}")
}

/// Responds to one request with the key set or with the discovery document.
async fn reply(mut stream: TcpStream, address: SocketAddr, key: &Ed25519KeyPair) -> Result<()> {
    let (mut head, mut part) = (Vec::new(), [0; 1_024]);
    while !head.ends_with(b"\r\n\r\n") {
        let read = stream.read(&mut part).await?;
        if read == 0 {
            return Ok(());
        }
        head.extend_from_slice(part.get(..read).unwrap_or_default());
    }
    let document = document(&head, address, key).to_string();
    let response = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{document}",
        document.len()
    );
    stream.write_all(response.as_bytes()).await?;
    Ok(stream.shutdown().await?)
}

fn document(head: &[u8], address: SocketAddr, key: &Ed25519KeyPair) -> Value {
    let issuer = url(address);
    if head.starts_with(b"GET /keys ") {
        let public = URL_SAFE_NO_PAD.encode(key.public_key().as_ref());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": KEY_ID, "x": public}]})
    } else {
        json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")})
    }
}

/// Measures both servers in alternating rounds. `measure` loads a server with the given clients.
///
/// # Errors
/// When a server does not start, or a read fails.
pub(crate) async fn measure(
    run_directory: &RunDirectory,
    postgres: &Postgres,
    program: &Path,
    fixtures: &Fixtures,
    measure: impl AsyncFn(&ChildProcess, Vec<ClientScript>) -> Result<Measurement>,
) -> Result<PairedComparison> {
    let issuer = Issuer::start().await?;
    let (mut local, _) = start_server(run_directory, postgres, DATABASE, program).await?;
    let mut verifying = start_verifying_server(run_directory, postgres, program, &issuer).await?;
    let tokens = (0..CLIENTS).map(|client| issuer.token(client)).collect::<Result<Vec<_>>>()?;
    let bearer: Vec<String> = tokens.iter().map(|token| format!("Bearer {token}")).collect();
    let actors: Vec<String> = (0..CLIENTS).map(|client| format!("user:{}", name(client))).collect();
    let mut rounds = Vec::new();
    let trusted = async || measure(&local, scripts(fixtures, "x-actor-ref", &actors)?).await;
    let verified = async || {
        let measured = measure(&verifying, scripts(fixtures, "authorization", &bearer)?).await;
        measured.with_context(|| verifying.log_tail())
    };
    for round in 0..ROUNDS {
        // The order alternates, so that other load affects both servers alike.
        rounds.push(if round % 2 == 0 {
            let first = trusted().await?;
            (first, verified().await?)
        } else {
            let first = verified().await?;
            (trusted().await?, first)
        });
    }
    verifying.stop().await?;
    local.stop().await?;
    Ok(PairedComparison { scenario: Scenario::ActiveRelease, clients: CLIENTS, rounds })
}

/// Scripts of clients that read an active release. Each client sends one of these header values.
fn scripts(fixtures: &Fixtures, header: &'static str, values: &[String]) -> Result<Vec<ClientScript>> {
    let scripts = Scenario::ActiveRelease.client_scripts(fixtures, values.len())?;
    Ok(scripts.into_iter().zip(values).map(|(script, value)| script.with_header(header, value)).collect())
}

/// The rows of this benchmark in the report.
pub(crate) fn table_rows(comparison: &PairedComparison) -> Vec<(&'static str, String)> {
    let (min, max) = comparison.slowdown_range();
    let (local, verified) = comparison.medians(Measurement::rate);
    let rates = [local, verified].map(|rate| rate.map_or_else(|| "n/a".to_owned(), |rate| format!("{rate:.0}")));
    vec![
        ("active-release reads per second in local mode, with a verified token", rates.join(", ")),
        ("verified token: smallest and largest ratio of a round", format!("{min:.2}, {max:.2}")),
    ]
}

/// Evaluates the target. Without a measurement it counts as not measured.
pub(crate) fn judge(comparison: Option<&PairedComparison>) -> TargetResult {
    let ratio = comparison.and_then(PairedComparison::median_slowdown);
    TargetResult {
        name: format!("{NAME}: time of a read beside local mode, {CLIENTS} clients"),
        target: format!("at most {MAX_RATIO}"),
        measured: ratio.map_or_else(|| "n/a".to_owned(), |ratio| format!("{ratio:.3}")),
        verdict: ratio.map_or(TargetVerdict::NotMeasured, |ratio| TargetVerdict::of(ratio <= MAX_RATIO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closed_loop_clients::tests::load_result;
    use crate::connection::{Connection, get};
    use crate::cost_meter::Cost;
    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};

    #[test]
    fn target_judges_the_median_ratio() {
        let verdict = |verified: &[u64]| {
            let measurement = |requests| Measurement { load: load_result(requests), cost: Cost::default() };
            let rounds = verified.iter().map(|requests| (measurement(1_000), measurement(*requests))).collect();
            judge(Some(&PairedComparison { scenario: Scenario::ActiveRelease, clients: CLIENTS, rounds })).verdict
        };
        assert_eq!(verdict(&[100, 900, 1_000]), TargetVerdict::Met);
        assert_eq!(verdict(&[800, 850, 1_000]), TargetVerdict::Missed);
        assert_eq!(judge(None).verdict, TargetVerdict::NotMeasured);
    }

    #[test]
    fn issuer_publishes_the_key_of_its_tokens() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let issuer = Issuer::start().await.unwrap();
            let read = async |path: &str| {
                let mut connection = Connection::open(issuer.address).await.unwrap();
                connection.json(get(path)).await.unwrap()
            };
            let discovery = read("/.well-known/openid-configuration").await;
            let expected = json!({"issuer": issuer.url(), "jwks_uri": format!("{}/keys", issuer.url())});
            assert_eq!(discovery, expected);
            let keys = read("/keys").await;
            let public = URL_SAFE_NO_PAD.decode(keys["keys"][0]["x"].as_str().unwrap()).unwrap();
            let token = issuer.token(3).unwrap();
            let (signed, signature) = token.rsplit_once('.').unwrap();
            let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
            UnparsedPublicKey::new(&ED25519, public).verify(signed.as_bytes(), &signature).unwrap();
            let claims = URL_SAFE_NO_PAD.decode(signed.split_once('.').unwrap().1).unwrap();
            let claims: Value = serde_json::from_slice(&claims).unwrap();
            assert_eq!((&claims["aud"], &claims["groups"]), (&json!(AUDIENCE), &json!("bench")));
            assert_eq!(claims["preferred_username"], "bench-verified-3");
        });
    }
}
