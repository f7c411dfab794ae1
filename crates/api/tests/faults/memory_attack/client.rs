//! Hostile HTTP clients on raw connections from any loopback address. They read and write slowly, or not at all.

use super::outcome_counts::Aim;
use serde_json::Value;
use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use uuid::Uuid;

/// Timeout of a client for a response. An attack continues if a response does not arrive.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes of a response that a client stores.
const MAX_KEPT_BYTES: usize = 4_000;
/// Length of a status line up to and including the status code.
const STATUS_LINE_BYTES: usize = "HTTP/1.1 200".len();
/// Time limit for the status of a held connection.
const STATUS_TIMEOUT: Duration = Duration::from_secs(3);

/// A request of an attack, with the aim that it should reach.
#[derive(Clone, Debug)]
pub(super) struct AttackRequest {
    pub(super) aim: Aim,
    method: &'static str,
    path: String,
    headers: String,
    body: Vec<u8>,
}

/// A response: its status and its first bytes.
#[derive(Debug)]
pub(super) struct AttackResponse {
    pub(super) status: u16,
    pub(super) prefix: String,
}

impl AttackResponse {
    /// Parses the first bytes of a response. The status is 0 if there are no bytes, because the server closed the
    /// connection.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let prefix = String::from_utf8_lossy(bytes).into_owned();
        let status = prefix.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        Self { status, prefix }
    }

    /// The identifier in the JSON member `name` of a response.
    pub(super) fn json_id(&self, name: &str) -> Option<Uuid> {
        let (_, rest) = self.prefix.split_once(&format!("\"{name}\":\""))?;
        rest.get(..36).and_then(|id| Uuid::parse_str(id).ok())
    }
}

pub(super) fn get(path: impl Into<String>) -> AttackRequest {
    AttackRequest {
        aim: Aim::at("request"),
        method: "GET",
        path: path.into(),
        headers: String::new(),
        body: Vec::new(),
    }
}

pub(super) fn post(path: impl Into<String>, body: &Value) -> AttackRequest {
    post_bytes(path, body.to_string().into_bytes())
}

pub(super) fn post_bytes(path: impl Into<String>, body: Vec<u8>) -> AttackRequest {
    let headers = "Content-Type: application/json\r\n".to_owned();
    AttackRequest { aim: Aim::at("request"), method: "POST", path: path.into(), headers, body }
}

pub(super) fn patch(path: impl Into<String>, body: &Value) -> AttackRequest {
    AttackRequest { method: "PATCH", ..post(path, body) }
}

impl AttackRequest {
    pub(super) fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    /// Sets the aim, which determines whether the response counts as a success of the attack.
    pub(super) fn with_aim(self, aim: Aim) -> Self {
        Self { aim, ..self }
    }

    pub(super) fn with_actor(self, actor: &str) -> Self {
        self.with_header("X-Actor-Ref", actor)
    }

    /// The request head. `Content-Length` is the length of the whole body.
    fn head(&self, host: SocketAddr) -> String {
        let Self { aim: _, method, path, headers, body } = self;
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}{length}\r\n")
    }
}

/// Opens a connection from a loopback address, with an optional receive buffer size in bytes.
pub(super) async fn connect(
    client_address: Ipv4Addr,
    server_address: SocketAddr,
    window: Option<u32>,
) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if let Some(window) = window {
        socket.set_recv_buffer_size(window)?;
    }
    socket.bind((client_address, 0).into())?;
    timeout(RESPONSE_TIMEOUT, socket.connect(server_address))
        .await
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}

/// Sends a request and reads its response. The status is 0 if the server closed the connection, or on a timeout.
pub(super) async fn exchange(
    client_address: Ipv4Addr,
    server_address: SocketAddr,
    request: &AttackRequest,
) -> AttackResponse {
    let received = timeout(RESPONSE_TIMEOUT, try_exchange(client_address, server_address, request))
        .await
        .unwrap_or_else(|_| Ok(Vec::new()));
    AttackResponse::parse(&received.unwrap_or_default())
}

async fn try_exchange(
    client_address: Ipv4Addr,
    server_address: SocketAddr,
    request: &AttackRequest,
) -> std::io::Result<Vec<u8>> {
    let mut stream = connect(client_address, server_address, None).await?;
    stream.write_all(request.head(server_address).as_bytes()).await?;
    // The server may respond and close before it has read the whole body, so an error is ignored.
    let _ = stream.write_all(&request.body).await;
    let (mut received, mut buffer) = (Vec::new(), vec![0; 16 << 10]);
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return Ok(received),
            Ok(count) => received.extend(buffer[..count].iter().take(MAX_KEPT_BYTES.saturating_sub(received.len()))),
        }
    }
}

/// Sends a request without the last byte of its body, and keeps the connection.
pub(super) async fn send_without_last_byte(
    client_address: Ipv4Addr,
    server_address: SocketAddr,
    request: &AttackRequest,
) -> std::io::Result<TcpStream> {
    let mut stream = connect(client_address, server_address, None).await?;
    stream.write_all(request.head(server_address).as_bytes()).await?;
    let body = &request.body[..request.body.len().saturating_sub(1)];
    // The server stops reading at its read-ahead limit, so the write may time out.
    let _ = timeout(Duration::from_secs(1), stream.write_all(body)).await;
    Ok(stream)
}

/// Sends a request and keeps the connection without reading from it.
pub(super) async fn send_and_ignore_response(
    client_address: Ipv4Addr,
    server_address: SocketAddr,
    request: &AttackRequest,
) -> std::io::Result<TcpStream> {
    let mut stream = connect(client_address, server_address, Some(4 << 10)).await?;
    stream.write_all(request.head(server_address).as_bytes()).await?;
    stream.write_all(&request.body).await?;
    Ok(stream)
}

/// Sends raw bytes and keeps the connection.
pub(super) async fn send_raw(
    client_address: Ipv4Addr,
    server_address: SocketAddr,
    bytes: &[u8],
) -> std::io::Result<TcpStream> {
    let mut stream = connect(client_address, server_address, None).await?;
    let _ = timeout(Duration::from_secs(1), stream.write_all(bytes)).await;
    Ok(stream)
}

/// A connection and the first bytes of its response. `None` after the server closed the connection without a response.
pub(super) type HeldConnection = Option<(TcpStream, Vec<u8>)>;

/// Reads a byte from each connection.
pub(super) async fn read_byte_from_each(connections: &mut [HeldConnection]) {
    for connection in connections {
        read_byte(connection, Duration::from_millis(1)).await;
    }
}

/// Reads each response up to its status. Continues to read non-empty responses, up to [`MAX_KEPT_BYTES`] bytes.
pub(super) async fn read_responses(connections: &mut [HeldConnection]) {
    let deadline = tokio::time::Instant::now() + STATUS_TIMEOUT;
    for connection in connections {
        while connection.as_ref().is_some_and(|(_, bytes)| bytes.len() < STATUS_LINE_BYTES) {
            let remaining = deadline.saturating_duration_since(tokio::time::Instant::now());
            if !read_byte(connection, remaining.max(Duration::from_millis(1))).await {
                break;
            }
        }
        // A refusal is short, and its error code is within these bytes.
        if let Some((stream, bytes)) = connection
            && !bytes.is_empty()
        {
            let mut buffer = vec![0; MAX_KEPT_BYTES];
            while let Ok(Ok(count)) = timeout(Duration::from_millis(20), stream.read(&mut buffer)).await {
                bytes.extend_from_slice(&buffer[..count]);
                if count == 0 || bytes.len() >= MAX_KEPT_BYTES {
                    break;
                }
            }
        }
    }
}

/// Reads one byte. Returns whether a byte arrived.
async fn read_byte(connection: &mut HeldConnection, limit: Duration) -> bool {
    let Some((stream, bytes)) = connection else { return false };
    let mut byte = [0];
    match timeout(limit, stream.read(&mut byte)).await {
        Ok(Ok(1..)) => {
            bytes.extend(byte);
            true
        }
        Ok(Ok(0) | Err(_)) => {
            if bytes.is_empty() {
                *connection = None;
            }
            false
        }
        Err(_) => false,
    }
}
