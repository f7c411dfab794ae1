use super::*;
use fairway_domain::execution::code::{Language, Script};
use fairway_egress::{Allowance, Reach};
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

/// What a gateway does once it has read a script.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Does {
    Answers(u16),
    Garbles,
    HalfCloses,
    Resets,
    Hangs,
}

/// Scripts that came, by name, with how often they did; and the connections that they came over.
#[derive(Debug, Default)]
struct Came {
    scripts: HashMap<String, usize>,
    connections: usize,
}

struct Gateway {
    address: String,
    came: Arc<Mutex<Came>>,
    _listening: JoinSet<()>,
}

impl Gateway {
    /// A gateway that does to a script what is said for its name.
    async fn start(does: impl Fn(&str) -> Does + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        let came = Arc::<Mutex<Came>>::default();
        let (book, does) = (Arc::clone(&came), Arc::new(does));
        let mut listening = JoinSet::new();
        listening.spawn(async move {
            let mut conversations = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                book.lock().unwrap_or_else(PoisonError::into_inner).connections += 1;
                let (book, does) = (Arc::clone(&book), Arc::clone(&does));
                conversations.spawn(async move { converse(stream, &book, &*does).await });
            }
        });
        Self { address, came, _listening: listening }
    }

    fn called(&self, time: Duration) -> External {
        let guard = Guard::new(Reach::Local, vec![Allowance::parse("127.0.0.1").unwrap()]);
        External { endpoint: guard.endpoint(&self.address, Limits { time, body: MOST_ANSWER }).unwrap() }
    }
}

async fn converse(
    stream: TcpStream,
    book: &Mutex<Came>,
    does: &(dyn Fn(&str) -> Does + Send + Sync),
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
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(_) => {}
                None if line.trim_end().is_empty() => break,
                None => {}
            }
        }
        stream.read_exact(&mut vec![0; length]).await?;
        *book.lock().unwrap_or_else(PoisonError::into_inner).scripts.entry(name.clone()).or_default() += 1;
        match does(&name) {
            Does::Answers(status) => {
                let body = r#"{"result":1}"#;
                let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).await?;
            }
            Does::Garbles => stream.write_all(b"\x16\x03\x01 no HTTP at all\r\n\r\n").await?,
            Does::HalfCloses => {
                stream.shutdown().await?;
                // Its other half stays open until whoever asked leaves.
                stream.read_to_end(&mut Vec::new()).await?;
                return Ok(());
            }
            Does::Resets => return stream.get_ref().set_zero_linger(),
            Does::Hangs => std::future::pending::<()>().await,
        }
    }
}

async fn hand_over(external: &External, name: Uuid) -> Result<CodeResult, GatewayFailure> {
    let script = Script { language: Language::Starlark, code: "result = 1".to_owned() };
    external.run(CodeRequest { execution_id: name.into(), script: &script }).await
}

#[tokio::test]
async fn an_answer_has_status_200_and_no_other() {
    for status in [200, 201, 202, 203, 206, 299, 400, 500] {
        let gateway = Gateway::start(move |_| Does::Answers(status)).await;
        let came = hand_over(&gateway.called(LONGEST), Uuid::nil()).await;
        let gave = CodeResult { result: Ok(json!(1)), stdout: String::new() };
        assert_eq!(came, if status == 200 { Ok(gave) } else { Err(GatewayFailure::Lost) }, "{status}");
    }
}

/// R4: whatever happens to forty scripts that go out side by side, over connections that others used before, each is handed
/// over once, and its caller is told what is known.
#[tokio::test]
async fn scripts_that_go_out_together_are_handed_over_once_each() {
    const FAULTS: [Does; 5] = [Does::Answers(200), Does::Garbles, Does::HalfCloses, Does::Resets, Does::Hangs];
    // The faults are dealt by the name, and names are multiples of a seed: the same ones in each run of the test.
    let names = |seed: u128| (1..=40_u128).map(move |nth| Uuid::from_u128(nth.wrapping_mul(seed)));
    let fault = |name: &str| {
        let number = Uuid::parse_str(name).map_or(0, |name| name.as_u128());
        FAULTS[usize::try_from((number >> 64) % 5).unwrap()]
    };
    for seed in [0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835, 0xda94_2042_e4dd_58b5_d6e8_feb8_6659_fd93_u128] {
        let warm: Vec<Uuid> = (1..=40).map(Uuid::from_u128).collect();
        let gateway = Gateway::start(move |name| match Uuid::parse_str(name) {
            Ok(name) if name.as_u128() <= 40 => Does::Answers(200),
            Ok(_) | Err(_) => fault(name),
        })
        .await;
        let external = gateway.called(Duration::from_millis(750));
        let all_at_once = async |names: Vec<Uuid>| {
            let mut calls = JoinSet::new();
            for name in names {
                let external = external.clone();
                calls.spawn(async move { (name, hand_over(&external, name).await) });
            }
            calls.join_all().await
        };
        assert!(all_at_once(warm.clone()).await.iter().all(|(_, came)| came.is_ok()));
        let before = gateway.came.lock().unwrap().connections;
        let mut told: HashMap<Does, usize> = HashMap::new();
        for (name, came) in all_at_once(names(seed).collect()).await {
            let fault = fault(&name.to_string());
            let expected = match fault {
                Does::Answers(_) => Ok(CodeResult { result: Ok(json!(1)), stdout: String::new() }),
                Does::Hangs => Err(GatewayFailure::TimedOut),
                Does::Garbles | Does::HalfCloses | Does::Resets => Err(GatewayFailure::Lost),
            };
            assert_eq!(came, expected, "{fault:?} {name}");
            *told.entry(fault).or_default() += 1;
        }
        assert_eq!(told.len(), FAULTS.len(), "{told:?}: each fault was dealt");
        let came = gateway.came.lock().unwrap();
        assert!(came.connections < before + 40, "connections were used again");
        assert_eq!(came.scripts.len(), 80);
        assert!(came.scripts.values().all(|times| *times == 1), "{:?}", came.scripts);
    }
}
