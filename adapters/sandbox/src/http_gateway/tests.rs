use super::*;
use fairway_domain::execution::script::{Language, Script};
use fairway_egress::{Allowance, ServerMode};
use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use uuid::Uuid;

/// The behaviour of a gateway after it has read a script.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Behaviour {
    SendsStatus(u16),
    SendsResponse(&'static str, &'static str),
    Garbles,
    HalfCloses,
    Resets,
    Hangs,
}

/// The received scripts by name with their counts, and the number of connections.
#[derive(Debug, Default)]
struct Received {
    scripts: HashMap<String, usize>,
    connections: usize,
    authorizations: Vec<String>,
}

struct Gateway {
    address: String,
    received: Arc<Mutex<Received>>,
    _listening: JoinSet<()>,
}

impl Gateway {
    /// Starts a gateway whose behaviour for each script depends on the script's name.
    async fn start(behaviour_of: impl Fn(&str) -> Behaviour + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        let received = Arc::<Mutex<Received>>::default();
        let (server_received, behaviour_of) = (Arc::clone(&received), Arc::new(behaviour_of));
        let mut listening = JoinSet::new();
        listening.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                server_received.lock().unwrap_or_else(PoisonError::into_inner).connections += 1;
                let (server_received, behaviour_of) = (Arc::clone(&server_received), Arc::clone(&behaviour_of));
                connections.spawn(async move { serve_connection(stream, &server_received, &*behaviour_of).await });
            }
        });
        Self { address, received, _listening: listening }
    }

    fn client(&self, timeout: Duration) -> HttpGateway {
        let guard = Guard::new(ServerMode::Local, vec![Allowance::parse("127.0.0.1").unwrap()]);
        HttpGateway {
            authorization: None,
            endpoint: guard.endpoint(&self.address, ResponseLimits { timeout, max_body: MAX_RESPONSE_BYTES }).unwrap(),
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    received: &Mutex<Received>,
    behaviour_of: &(dyn Fn(&str) -> Behaviour + Send + Sync),
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut name, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            match line.trim_end().split_once(": ") {
                Some(("idempotency-key", value)) => value.clone_into(&mut name),
                Some(("authorization", value)) => {
                    received.lock().unwrap_or_else(PoisonError::into_inner).authorizations.push(value.to_owned());
                }
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(_) => {}
                None if line.trim_end().is_empty() => break,
                None => {}
            }
        }
        stream.read_exact(&mut vec![0; length]).await?;
        *received.lock().unwrap_or_else(PoisonError::into_inner).scripts.entry(name.clone()).or_default() += 1;
        let response = |status: u16, header: &str, body: &str| {
            format!("HTTP/1.1 {status} Status\r\n{header}content-length: {}\r\n\r\n{body}", body.len())
        };
        match behaviour_of(&name) {
            Behaviour::SendsStatus(status) => {
                stream.write_all(response(status, "", r#"{"result":1}"#).as_bytes()).await?
            }
            Behaviour::SendsResponse(header, body) => stream.write_all(response(200, header, body).as_bytes()).await?,
            Behaviour::Garbles => stream.write_all(b"\x16\x03\x01 no HTTP at all\r\n\r\n").await?,
            Behaviour::HalfCloses => {
                stream.shutdown().await?;
                // The gateway keeps the connection open until the client disconnects.
                stream.read_to_end(&mut Vec::new()).await?;
                return Ok(());
            }
            Behaviour::Resets => return stream.get_ref().set_zero_linger(),
            Behaviour::Hangs => std::future::pending::<()>().await,
        }
    }
}

async fn run_script(gateway: &HttpGateway, name: Uuid) -> Result<ScriptResult, GatewayFailure> {
    let script = Script { language: Language::Starlark, code: "result = 1".to_owned() };
    gateway
        .prepare(script.language, ScriptLimits::MAXIMUM)
        .run(ScriptRequest { execution_id: name.into(), script: &script, limits: ScriptLimits::MAXIMUM })
        .await
}

#[tokio::test]
async fn refuses_encoded_and_ambiguous_responses() {
    for (header, body, is_read) in [
        ("", r#"{"result":1}"#, true),
        ("content-encoding: identity\r\n", r#"{"result":1}"#, true),
        ("content-encoding: gzip\r\n", r#"{"result":1}"#, false),
        ("", r#"{"result":1,"result":1}"#, false),
        ("", r#"{"result":{"a":1,"\u0061":1}}"#, false),
    ] {
        let gateway = Gateway::start(move |_| Behaviour::SendsResponse(header, body)).await;
        let result = run_script(&gateway.client(MAX_DURATION), Uuid::nil()).await;
        let expected = ScriptResult { result: Ok(json!(1)), stdout: String::new() };
        assert_eq!(result, if is_read { Ok(expected) } else { Err(GatewayFailure::Lost) }, "{header}{body}");
    }
}

#[tokio::test]
async fn sends_the_token_and_hides_it_from_debug_output() {
    let gateway = Gateway::start(|_| Behaviour::SendsStatus(200)).await;
    let without_token = gateway.client(MAX_DURATION);
    assert!(run_script(&without_token, Uuid::nil()).await.is_ok());
    let authorized = without_token.with_token(&Secret::new("s3cret".to_owned())).unwrap();
    assert!(run_script(&authorized, Uuid::nil()).await.is_ok());
    assert_eq!(gateway.received.lock().unwrap().authorizations, ["Bearer s3cret"]);
    assert!(!format!("{authorized:?}").contains("s3cret"), "{authorized:?}");
    assert_eq!(authorized.with_token(&Secret::new("a\nb".to_owned())).err(), Some(UnusableToken));
}

#[tokio::test]
async fn accepts_only_status_200() {
    for status in [200, 201, 202, 203, 206, 299, 400, 500] {
        let gateway = Gateway::start(move |_| Behaviour::SendsStatus(status)).await;
        let result = run_script(&gateway.client(MAX_DURATION), Uuid::nil()).await;
        let expected = ScriptResult { result: Ok(json!(1)), stdout: String::new() };
        assert_eq!(result, if status == 200 { Ok(expected) } else { Err(GatewayFailure::Lost) }, "{status}");
    }
}

/// The number of concurrent scripts, and of rounds with different faults. Each fault occurs a thousand times.
const CONCURRENT_SCRIPTS: usize = 300;
const ROUNDS: usize = 17;
/// The short timeout is for gateways that hang, and the long one for all others, because the machine may be loaded.
const SHORT_TIMEOUT: Duration = Duration::from_millis(1_500);
const LONG_TIMEOUT: Duration = Duration::from_secs(60);

/// Promise R4 of docs/security.md: under any fault, concurrent scripts over reused connections are sent once each, and
/// each caller receives the known outcome.
#[tokio::test]
async fn concurrent_scripts_are_sent_once_each() {
    const FAULTS: [Behaviour; 5] =
        [Behaviour::SendsStatus(200), Behaviour::Garbles, Behaviour::HalfCloses, Behaviour::Resets, Behaviour::Hangs];
    const SEED: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    // The fault of a script depends on its name. Names are multiples of a seed, so every run of the test has the
    // same faults.
    let fault = |name: Uuid| FAULTS[usize::try_from((name.as_u128() >> 64) % 5).unwrap()];
    let is_warm_up = |name: Uuid| name.as_u128() <= CONCURRENT_SCRIPTS as u128;
    let gateway = Gateway::start(move |name| match Uuid::parse_str(name).unwrap() {
        name if is_warm_up(name) => Behaviour::SendsStatus(200),
        name => fault(name),
    })
    .await;
    let (patient_client, impatient_client) = (gateway.client(LONG_TIMEOUT), gateway.client(SHORT_TIMEOUT));
    let run_concurrently = async |names: Vec<Uuid>| {
        let mut calls = JoinSet::new();
        for name in names {
            let hangs = !is_warm_up(name) && fault(name) == Behaviour::Hangs;
            let gateway = if hangs { impatient_client.clone() } else { patient_client.clone() };
            calls.spawn(async move { (name, run_script(&gateway, name).await) });
        }
        calls.join_all().await
    };
    let warm_up_results = run_concurrently((1..=CONCURRENT_SCRIPTS as u128).map(Uuid::from_u128).collect()).await;
    assert!(warm_up_results.iter().all(|(_, result)| result.is_ok()));
    let mut fault_counts: HashMap<Behaviour, usize> = HashMap::new();
    for round in 0..ROUNDS {
        let first = (round * CONCURRENT_SCRIPTS + 1) as u128;
        let names = (first..first + CONCURRENT_SCRIPTS as u128).map(|nth| Uuid::from_u128(nth.wrapping_mul(SEED)));
        for (name, result) in run_concurrently(names.collect()).await {
            let fault = fault(name);
            let expected = match fault {
                Behaviour::SendsStatus(_) | Behaviour::SendsResponse(..) => {
                    Ok(ScriptResult { result: Ok(json!(1)), stdout: String::new() })
                }
                Behaviour::Hangs => Err(GatewayFailure::TimedOut),
                Behaviour::Garbles | Behaviour::HalfCloses | Behaviour::Resets => Err(GatewayFailure::Lost),
            };
            assert_eq!(result, expected, "{fault:?} {name}");
            *fault_counts.entry(fault).or_default() += 1;
        }
    }
    assert!(
        fault_counts.len() == FAULTS.len() && fault_counts.values().all(|times| *times >= 1_000),
        "{fault_counts:?}"
    );
    let received = gateway.received.lock().unwrap();
    let scripts = CONCURRENT_SCRIPTS * (ROUNDS + 1);
    assert!(received.connections < scripts, "connections were reused");
    assert_eq!(received.scripts.len(), scripts);
    assert!(received.scripts.values().all(|times| *times == 1), "{:?}", received.scripts);
}
