//! A raw HTTP/1.1 connection. It shows how the server ends a connection, which client libraries hide.

use serde_json::Value;
use std::{net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// Response timeout. Only a hanging connection takes this long.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// A TCP connection that a test keeps open for several HTTP requests.
pub(crate) struct RawConnection {
    stream: TcpStream,
    address: SocketAddr,
}

/// A complete HTTP response.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// Whether the response contains `Connection: close`.
    pub(crate) closes_connection: bool,
}

/// A request of the raw connection.
pub(crate) struct RawRequest<'a> {
    pub(crate) path: &'a str,
    /// Body and idempotency key of a POST; `None` for a GET.
    pub(crate) body_and_key: Option<(&'a Value, &'a str)>,
}

impl RawConnection {
    /// Connects. Returns `None` if the connection is refused.
    pub(crate) async fn open(address: SocketAddr) -> Option<Self> {
        let stream = TcpStream::connect(address).await.ok()?;
        stream.set_nodelay(true).unwrap();
        Some(Self { stream, address })
    }

    /// Sends a request and reads the response. Returns `None` if the server closed the connection before the first byte
    /// of a response, as it may between requests.
    ///
    /// # Panics
    /// When the connection ends within a response, or after [`RESPONSE_TIMEOUT`].
    pub(crate) async fn send(&mut self, question: &RawRequest<'_>) -> Option<RawResponse> {
        let request = question.to_http(self.address);
        timeout(RESPONSE_TIMEOUT, async {
            // A write to a closed connection may succeed. The subsequent read detects the close.
            let _ = self.stream.write_all(request.as_bytes()).await;
            self.read_response().await
        })
        .await
        .unwrap_or_else(|_| panic!("timeout waiting for {}", question.path))
    }

    async fn read_response(&mut self) -> Option<RawResponse> {
        let mut received = Vec::new();
        loop {
            if let Some(response) = RawResponse::parse(&received) {
                return Some(response);
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer).await {
                Ok(0) | Err(_) if received.is_empty() => return None,
                Ok(0) => panic!("closed in the middle of a response: {}", String::from_utf8_lossy(&received)),
                Ok(count) => received.extend_from_slice(&buffer[..count]),
                Err(error) => panic!("{error} in the middle of a response: {}", String::from_utf8_lossy(&received)),
            }
        }
    }

    /// Waits for an orderly close: the server sends neither further bytes nor a reset.
    pub(crate) async fn wait_for_close(mut self) {
        match timeout(RESPONSE_TIMEOUT, self.stream.read(&mut [0; 1])).await {
            Ok(Ok(0)) => {}
            Ok(Ok(_)) => panic!("received data after the last response"),
            Ok(Err(error)) => panic!("{error} after the last response"),
            Err(_) => panic!("the server announced the close but keeps the connection open"),
        }
    }
}

impl RawRequest<'_> {
    fn to_http(&self, address: SocketAddr) -> String {
        match self.body_and_key {
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

impl RawResponse {
    /// Parses a complete response; `None` while it is incomplete.
    fn parse(received: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(received).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let header = |header_name: &str| {
            head.lines()
                .filter_map(|line| line.split_once(':'))
                .find_map(|(name, value)| name.eq_ignore_ascii_case(header_name).then(|| value.trim().to_owned()))
        };
        let length: usize = header("content-length")?.parse().unwrap();
        if body.len() < length {
            return None;
        }
        Some(Self {
            status: head.split(' ').nth(1)?.parse().unwrap(),
            body: serde_json::from_str(body).unwrap_or_default(),
            closes_connection: header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")),
        })
    }
}
