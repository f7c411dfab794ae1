//! An endpoint on loopback that answers what the test says, breaks off, resets or hangs, and remembers what it was asked.

mod script;

pub use script::Script;

use script::{End, Part};
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

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Which of the connections it came over, counted from 1.
    pub connection: usize,
}

impl Asked {
    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; `null` when it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// An endpoint of one test. It is gone when it is dropped.
pub struct FaultyEndpoint {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    scripts: Mutex<VecDeque<Script>>,
    requests: Mutex<Vec<Asked>>,
    asked: watch::Sender<usize>,
    released: Semaphore,
}

impl FaultyEndpoint {
    /// An endpoint that answers 404 until it is told otherwise.
    ///
    /// # Panics
    /// When no port is free.
    #[expect(clippy::panic, reason = "a test that cannot have its endpoint ends here, with the reason")]
    pub async fn start() -> Self {
        let listener = match TcpListener::bind("127.0.0.1:0").await {
            Ok(listener) => listener,
            Err(error) => panic!("the endpoint of this test does not start: {error}"),
        };
        let address = listener.local_addr().unwrap_or_else(|error| panic!("a listener without an address: {error}"));
        let shared = Arc::new(Shared {
            scripts: Mutex::new([Script::status(404, "nothing is here yet")].into()),
            requests: Mutex::default(),
            asked: watch::Sender::new(0),
            released: Semaphore::new(0),
        });
        let task = tokio::spawn(listen(listener, Arc::clone(&shared)));
        Self { address, shared, task }
    }

    /// The address of a path, such as `/v1`.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Answers so from now on.
    pub fn says(&self, script: Script) {
        self.says_in_turn([script]);
    }

    /// Answers so, one after the other, and then with the last one for ever.
    pub fn says_in_turn(&self, scripts: impl IntoIterator<Item = Script>) {
        *lock(&self.shared.scripts) = scripts.into_iter().collect();
    }

    /// Lets answers go on over as many of their pauses.
    pub fn release(&self, pauses: usize) {
        self.shared.released.add_permits(pauses);
    }

    /// How often it was asked.
    #[must_use]
    pub fn count(&self) -> usize {
        *self.shared.asked.borrow()
    }

    /// Waits until it was asked so often.
    pub async fn asked(&self, times: usize) {
        // The sender is this very endpoint, so waiting cannot fail.
        let _ = self.shared.asked.subscribe().wait_for(|count| *count >= times).await;
    }

    /// What it was asked, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<Asked> {
        lock(&self.shared.requests).clone()
    }
}

impl Drop for FaultyEndpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    let mut connection = 0;
    while let Ok((stream, _)) = listener.accept().await {
        connection += 1;
        // Whoever leaves half-way has left.
        tokio::spawn(converse(stream, connection, Arc::clone(&shared)));
    }
}

/// Answers request after request of one connection.
async fn converse(stream: TcpStream, connection: usize, shared: Arc<Shared>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream, connection).await? {
        lock(&shared.requests).push(request);
        let script = next(&shared);
        shared.asked.send_modify(|count| *count += 1);
        match speak(&mut stream, &script, &shared).await? {
            End::Whole => {}
            End::BrokenOff => return stream.shutdown().await,
            End::Reset => return stream.get_ref().set_zero_linger(),
            End::Hanging => std::future::pending().await,
        }
    }
    Ok(())
}

fn next(shared: &Shared) -> Script {
    let mut scripts = lock(&shared.scripts);
    let next = if scripts.len() > 1 { scripts.pop_front() } else { scripts.front().cloned() };
    next.unwrap_or_else(|| Script::status(404, "nothing is said here"))
}

/// One request; `None` when there are no more.
async fn read(stream: &mut BufReader<TcpStream>, connection: usize) -> io::Result<Option<Asked>> {
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
    let mut request = Asked {
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

async fn speak(stream: &mut BufReader<TcpStream>, script: &Script, shared: &Shared) -> io::Result<End> {
    if !script.says_nothing() {
        stream.write_all(script.head().as_bytes()).await?;
    }
    for part in script.parts() {
        match part {
            Part::Text(text) => stream.write_all(&script.framed(text)).await?,
            // The permit is used up: each release is good for one pause.
            Part::Pause => shared.released.acquire().await.map_err(io::Error::other)?.forget(),
        }
        stream.flush().await?;
    }
    if script.end() == End::Whole {
        stream.write_all(script.closing()).await?;
        stream.flush().await?;
    }
    Ok(script.end())
}
