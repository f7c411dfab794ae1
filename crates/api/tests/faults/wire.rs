//! One connection, read byte by byte: a test can tell how it ended, and a client library would hide that.

use serde_json::Value;
use std::{net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// Nothing is waited for this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection that is kept alive from answer to answer.
pub(crate) struct Wire {
    stream: TcpStream,
    address: SocketAddr,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Spoken {
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// Whether it said that the connection ends with it.
    pub(crate) says_goodbye: bool,
}

/// What is asked.
pub(crate) struct Question<'a> {
    pub(crate) path: &'a str,
    /// A POST with this body and idempotency key; without, a GET.
    pub(crate) posts: Option<(&'a Value, &'a str)>,
}

impl Wire {
    /// `None` when nobody listens, or whoever did was just leaving.
    pub(crate) async fn open(address: SocketAddr) -> Option<Self> {
        let stream = TcpStream::connect(address).await.ok()?;
        stream.set_nodelay(true).unwrap();
        Some(Self { stream, address })
    }

    /// The answer. `None` when the connection ended without a byte of one: it had been closed between requests.
    pub(crate) async fn ask(&mut self, question: &Question<'_>) -> Option<Spoken> {
        let request = question.written(self.address);
        timeout(PATIENCE, async {
            // Where the other side has closed, writing may fail or not; reading tells.
            let _ = self.stream.write_all(request.as_bytes()).await;
            self.read_answer().await
        })
        .await
        .unwrap_or_else(|_| panic!("{} hangs", question.path))
    }

    async fn read_answer(&mut self) -> Option<Spoken> {
        let mut received = Vec::new();
        loop {
            if let Some(spoken) = Spoken::parse(&received) {
                return Some(spoken);
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer).await {
                Ok(0) | Err(_) if received.is_empty() => return None,
                Ok(0) => panic!("closed in the middle of an answer: {}", String::from_utf8_lossy(&received)),
                Ok(read) => received.extend_from_slice(&buffer[..read]),
                Err(error) => panic!("{error} in the middle of an answer: {}", String::from_utf8_lossy(&received)),
            }
        }
    }

    /// Waits until the other side closes, in order: no byte more, and no reset.
    pub(crate) async fn ends(mut self) {
        match timeout(PATIENCE, self.stream.read(&mut [0; 1])).await {
            Ok(Ok(0)) => {}
            Ok(Ok(_)) => panic!("more than the last answer came"),
            Ok(Err(error)) => panic!("{error} after the last answer"),
            Err(_) => panic!("it said goodbye and stays"),
        }
    }
}

impl Question<'_> {
    fn written(&self, address: SocketAddr) -> String {
        match self.posts {
            None => format!("GET {} HTTP/1.1\r\nHost: {address}\r\n\r\n", self.path),
            Some((body, key)) => {
                let body = body.to_string();
                format!(
                    "POST {} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
                     Idempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
                    self.path,
                    body.len()
                )
            }
        }
    }
}

impl Spoken {
    /// `None` while something is still missing.
    fn parse(received: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(received).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let header = |wanted: &str| {
            head.lines()
                .filter_map(|line| line.split_once(':'))
                .find_map(|(name, value)| name.eq_ignore_ascii_case(wanted).then(|| value.trim().to_owned()))
        };
        let length: usize = header("content-length")?.parse().unwrap();
        if body.len() < length {
            return None;
        }
        Some(Self {
            status: head.split(' ').nth(1)?.parse().unwrap(),
            body: serde_json::from_str(body).unwrap_or_default(),
            says_goodbye: header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")),
        })
    }
}
