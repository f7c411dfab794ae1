//! A loopback endpoint with scripted responses: it can truncate, reset or hang, and it records all requests.

mod scripted_response;

pub use scripted_response::ScriptedResponse;

use scripted_response::{Part, ResponseEnd};
use serde_json::Value;
use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinHandle,
};

/// A request that the endpoint received.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// The HTTP method as received, such as `POST`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Header names in lower case, with values.
    pub headers: Vec<(String, String)>,
    /// The request body as received.
    pub body: Vec<u8>,
    /// The sequential number of the connection, starting at 1.
    pub connection: usize,
}

impl RecordedRequest {
    /// The first value of the header with this lower-case name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; `null` when it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// An endpoint for one test; stopped when dropped.
pub struct ScriptedEndpoint {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    responses: Mutex<VecDeque<ScriptedResponse>>,
    requests: Mutex<Vec<RecordedRequest>>,
    request_count: watch::Sender<usize>,
    released: Semaphore,
}

impl ScriptedEndpoint {
    /// Starts an endpoint that responds with 404 until a response is set.
    ///
    /// # Panics
    /// When no port is free.
    #[expect(clippy::panic, reason = "a test fails when its endpoint does not start")]
    pub async fn start() -> Self {
        let listener = match TcpListener::bind("127.0.0.1:0").await {
            Ok(listener) => listener,
            Err(error) => panic!("failed to start the test endpoint: {error}"),
        };
        let address = listener.local_addr().unwrap_or_else(|error| panic!("the listener has no address: {error}"));
        let shared = Arc::new(Shared {
            responses: Mutex::new([ScriptedResponse::status(404, "no response is set")].into()),
            requests: Mutex::default(),
            request_count: watch::Sender::new(0),
            released: Semaphore::new(0),
        });
        let task = tokio::spawn(accept_connections(listener, Arc::clone(&shared)));
        Self { address, shared, task }
    }

    /// The URL of a path, such as `/v1`.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sets the response to all later requests.
    pub fn respond_with(&self, response: ScriptedResponse) {
        self.respond_in_sequence([response]);
    }

    /// Sets the responses to later requests, in order; the last one repeats.
    pub fn respond_in_sequence(&self, responses: impl IntoIterator<Item = ScriptedResponse>) {
        *lock(&self.shared.responses) = responses.into_iter().collect();
    }

    /// Releases this many pauses, at which pausing responses wait.
    pub fn release_pauses(&self, pauses: usize) {
        self.shared.released.add_permits(pauses);
    }

    /// The number of requests that the endpoint has received.
    #[must_use]
    pub fn request_count(&self) -> usize {
        *self.shared.request_count.borrow()
    }

    /// Waits until the endpoint has received this number of requests.
    pub async fn wait_for_requests(&self, request_count: usize) {
        // `self` owns the sender, so the wait cannot fail.
        let _ = self.shared.request_count.subscribe().wait_for(|count| *count >= request_count).await;
    }

    /// The recorded requests, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        lock(&self.shared.requests).clone()
    }
}

impl Drop for ScriptedEndpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept_connections(listener: TcpListener, shared: Arc<Shared>) {
    let mut connection = 0;
    while let Ok((stream, _)) = listener.accept().await {
        connection += 1;
        // An error ends only this connection.
        tokio::spawn(serve_connection(stream, connection, Arc::clone(&shared)));
    }
}

/// Answers the requests of one connection.
async fn serve_connection(stream: TcpStream, connection: usize, shared: Arc<Shared>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream, connection).await? {
        lock(&shared.requests).push(request);
        let response = next_response(&shared);
        shared.request_count.send_modify(|count| *count += 1);
        match write_response(&mut stream, &response, &shared).await? {
            ResponseEnd::Complete => {}
            ResponseEnd::Truncated => return stream.shutdown().await,
            ResponseEnd::Reset => return stream.get_ref().set_zero_linger(),
            ResponseEnd::Open => std::future::pending().await,
        }
    }
    Ok(())
}

fn next_response(shared: &Shared) -> ScriptedResponse {
    let mut responses = lock(&shared.responses);
    let next = if responses.len() > 1 { responses.pop_front() } else { responses.front().cloned() };
    next.unwrap_or_else(|| ScriptedResponse::status(404, "no response is set"))
}

/// Reads one request; `None` at the end of the connection.
async fn read_request(stream: &mut BufReader<TcpStream>, connection: usize) -> io::Result<Option<RecordedRequest>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut lines = lines.into_iter();
    let first = lines.next().unwrap_or_default();
    let mut words = first.split(' ').map(str::to_owned);
    let header =
        |line: String| line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
    let mut request = RecordedRequest {
        method: words.next().unwrap_or_default(),
        path: words.next().unwrap_or_default(),
        headers: lines.filter_map(header).collect(),
        body: Vec::new(),
        connection,
    };
    let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    request.body.resize(length, 0);
    stream.read_exact(&mut request.body).await?;
    Ok(Some(request))
}

async fn write_response(
    stream: &mut BufReader<TcpStream>,
    response: &ScriptedResponse,
    shared: &Shared,
) -> io::Result<ResponseEnd> {
    if response.has_initial_pause() {
        shared.released.acquire().await.map_err(io::Error::other)?.forget();
    }
    if !response.has_no_response() {
        stream.write_all(response.head().as_bytes()).await?;
    }
    for part in response.parts() {
        match part {
            Part::Text(text) => stream.write_all(&response.frame(text)).await?,
            // Consumes the permit, so that each release ends exactly one pause.
            Part::Pause => shared.released.acquire().await.map_err(io::Error::other)?.forget(),
        }
        stream.flush().await?;
    }
    if response.end() == ResponseEnd::Complete {
        stream.write_all(response.terminator()).await?;
        stream.flush().await?;
    }
    Ok(response.end())
}
