//! A proxy to PostgreSQL that injects connection faults: it cuts a connection before or after a statement runs, or
//! delivers the statement late.
//!
//! The proxy parses only the messages that mark the end of a request and of its response (PostgreSQL
//! documentation, "Frontend/Backend Protocol", message formats).

#![expect(clippy::panic, reason = "a test fails when its proxy does not start")]

mod frame;
mod statement_tracker;

use crate::TestDatabase;
use frame::FrameStream;
use statement_tracker::StatementTracker;
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_postgres::{Config, config::Host};

/// The point of a request at which the connection is cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FaultPoint {
    /// The end of the request never reaches PostgreSQL, so the statement does not run.
    Before,
    /// The statement runs, and its response is lost.
    After,
    /// The client loses the connection at once, and the statement reaches PostgreSQL later. An immediate retry can
    /// run first.
    Late,
    /// The statement runs, and the proxy withholds its response while the client keeps the connection open. Random
    /// draws never select this point.
    Withheld,
}

/// The delay of a late statement, longer than the client's retry delay.
const LATE_DELAY: Duration = Duration::from_millis(60);

const FAULT_POINTS: [FaultPoint; 3] = [FaultPoint::Before, FaultPoint::After, FaultPoint::Late];

/// The condition under which the proxy cuts a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProxyFault {
    /// Cuts no connection.
    None,
    /// Cuts at this many of 10,000 requests, which the seed selects.
    Drawn(u64),
    /// Cuts before every statement whose text contains this string.
    Matching(&'static str),
    /// Cuts once, at the next execution of a statement whose text contains this string.
    Once(&'static str, FaultPoint),
    /// Cuts before every statement, and closes every new connection.
    Down,
    /// Like [`Self::Down`], but only after the next execution of a statement whose text contains this string.
    DownAfter(&'static str),
}

/// An injected fault, with the statement that it affected.
#[derive(Clone, Debug)]
pub struct InjectedFault {
    /// The point of the request at which the connection was cut.
    pub point: FaultPoint,
    /// The beginning of the affected statement's text.
    pub statement: String,
}

/// A proxy between a server and its database. Direct connections to the database are unaffected.
pub struct FaultProxy {
    url: String,
    shared: Arc<Shared>,
    _running: ProxyThread,
}

struct Shared {
    server: SocketAddr,
    seed: u64,
    fault: Mutex<ProxyFault>,
    /// The number of occurrences of each statement, on which random draws depend. Draws of one statement are
    /// independent of other statements. Background statements therefore do not change the draws of a request, and
    /// a seed is reproducible.
    occurrences: Mutex<HashMap<String, u64>>,
    injected: Mutex<Vec<InjectedFault>>,
    /// The number of cut connections whose statements PostgreSQL still executes.
    unfinished: watch::Sender<usize>,
}

/// The proxy's thread, with a runtime of its own, because tests block their runtime.
struct ProxyThread {
    stop: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ProxyThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FaultProxy {
    /// Starts a proxy to this database, without a fault.
    ///
    /// # Panics
    /// When the proxy cannot listen, or the database is not reachable over TCP.
    #[must_use]
    pub fn start_for_database(database: &TestDatabase, seed: u64) -> Arc<Self> {
        Self::start_for_url(&database.url_for_owner(), seed)
    }

    /// Starts a proxy to the database at this URL.
    ///
    /// # Panics
    /// When the proxy cannot listen, or the database is not reachable over TCP.
    #[must_use]
    pub fn start_for_url(url: &str, seed: u64) -> Arc<Self> {
        match Self::try_to(url, seed) {
            Ok(proxy) => Arc::new(proxy),
            Err(error) => panic!("failed to start the database proxy: {error:#}"),
        }
    }

    fn try_to(url: &str, seed: u64) -> anyhow::Result<Self> {
        let config: Config = url.parse()?;
        let (Some(Host::Tcp(host)), Some(port)) = (config.get_hosts().first(), config.get_ports().first()) else {
            anyhow::bail!("the database URL has no host and port");
        };
        let server = SocketAddr::new(host.parse()?, *port);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let (server_part, proxy_part) = (format!("@{server}/"), format!("@{}/", listener.local_addr()?));
        anyhow::ensure!(url.contains(&server_part), "the database URL has an unexpected form");
        let shared = Arc::new(Shared {
            server,
            seed,
            fault: Mutex::new(ProxyFault::None),
            occurrences: Mutex::default(),
            injected: Mutex::default(),
            unfinished: watch::Sender::new(0),
        });
        let (stop, stopped) = watch::channel(());
        let thread = thread::Builder::new().name("fault-proxy".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || runtime.block_on(shared.forward_connections(listener, stopped))
        })?;
        let running = ProxyThread { stop: Some(stop), thread: Some(thread) };
        Ok(Self { url: url.replace(&server_part, &proxy_part), shared, _running: running })
    }

    /// The URL of the database through this proxy.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Replaces the fault for all later requests and new connections.
    pub fn set_fault(&self, fault: ProxyFault) {
        *lock(&self.shared.fault) = fault;
    }

    /// The injected faults, oldest first.
    #[must_use]
    pub fn injected(&self) -> Vec<InjectedFault> {
        lock(&self.shared.injected).clone()
    }

    /// Waits until PostgreSQL has processed all statements of cut connections.
    pub async fn wait_for_cut_statements(&self) {
        // `self` owns the sender, so the wait cannot fail.
        let _ = self.shared.unfinished.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Shared {
    async fn forward_connections(self: Arc<Self>, listener: std::net::TcpListener, mut stopped: watch::Receiver<()>) {
        let Ok(listener) = TcpListener::from_std(listener) else { return };
        loop {
            tokio::select! {
                // The proxy was dropped.
                _ = stopped.changed() => return,
                accepted = listener.accept() => {
                    let Ok((client, _)) = accepted else { return };
                    let shared = Arc::clone(&self);
                    // Errors need no handling: client and server both see the closed connection.
                    tokio::spawn(async move { shared.forward(client).await });
                }
            }
        }
    }

    /// Forwards one connection until a side closes it or a fault cuts it.
    async fn forward(self: Arc<Self>, client: TcpStream) -> io::Result<()> {
        if *lock(&self.fault) == ProxyFault::Down {
            return Ok(());
        }
        let server = TcpStream::connect(self.server).await?;
        let (mut client, mut server) = (FrameStream::new(client)?, FrameStream::new(server)?);
        let start = client.read_startup().await?;
        server.write(&start).await?;
        // PostgreSQL responds to the startup message as to a request, so the count of requests starts at 1.
        let (mut request_count, mut response_count) = (1_usize, 0_usize);
        let mut statements = StatementTracker::default();
        loop {
            tokio::select! {
                filled = client.fill() => {
                    if !filled? {
                        return Ok(());
                    }
                    let mut outgoing = Vec::new();
                    while let Some(frame) = client.next() {
                        if !statements.record(&frame) {
                            outgoing.extend_from_slice(&frame);
                            continue;
                        }
                        let fault_point = self.next_fault(&statements);
                        match fault_point {
                            // Without the message that ends the request, PostgreSQL discards the effects of the
                            // preceding messages.
                            Some(FaultPoint::Before) => return server.write(&outgoing).await,
                            None | Some(FaultPoint::After | FaultPoint::Late | FaultPoint::Withheld) => {
                                outgoing.extend_from_slice(&frame);
                            }
                        }
                        request_count += 1;
                        match fault_point {
                            None | Some(FaultPoint::Before) => {}
                            Some(FaultPoint::Late) => {
                                return self.send_late(client, server, &outgoing).await;
                            }
                            Some(FaultPoint::After) => {
                                server.write(&outgoing).await?;
                                let unanswered = request_count - response_count;
                                return drop_last_response(&mut client, &mut server, unanswered).await;
                            }
                            Some(FaultPoint::Withheld) => {
                                server.write(&outgoing).await?;
                                drop_last_response(&mut client, &mut server, request_count - response_count).await?;
                                while client.fill().await? {}
                                return Ok(());
                            }
                        }
                    }
                    server.write(&outgoing).await?;
                }
                filled = server.fill() => {
                    if !filled? {
                        return Ok(());
                    }
                    let mut outgoing = Vec::new();
                    while let Some(frame) = server.next() {
                        response_count += usize::from(frame::is_ready_for_query(&frame));
                        outgoing.extend_from_slice(&frame);
                    }
                    client.write(&outgoing).await?;
                }
            }
        }
    }

    /// Sends the request after a delay, and closes the connection to PostgreSQL after the response.
    async fn send_late(&self, client: FrameStream, mut server: FrameStream, sent: &[u8]) -> io::Result<()> {
        // The connection is counted before the client loses it: a client that sees the cut may call
        // `wait_for_cut_statements` at once.
        self.unfinished.send_modify(|count| *count += 1);
        drop(client);
        tokio::time::sleep(LATE_DELAY).await;
        let ended = match server.write(sent).await {
            Ok(()) => server.finish().await,
            error => error,
        };
        self.unfinished.send_modify(|count| *count -= 1);
        ended
    }

    /// Decides whether the proxy injects a fault at the current request.
    fn next_fault(&self, tracker: &StatementTracker) -> Option<FaultPoint> {
        let statement = tracker.statement();
        let mut fault = lock(&self.fault);
        let fault_point = match &*fault {
            ProxyFault::None => None,
            ProxyFault::Down => Some(FaultPoint::Before),
            ProxyFault::Matching(text) => statement.contains(text).then_some(FaultPoint::Before),
            ProxyFault::Once(text, fault_point) => {
                let fault_point = Some(*fault_point).filter(|_| tracker.is_executed() && statement.contains(text));
                if fault_point.is_some() {
                    *fault = ProxyFault::None;
                }
                fault_point
            }
            ProxyFault::DownAfter(text) => {
                if tracker.is_executed() && statement.contains(text) {
                    *fault = ProxyFault::Down;
                }
                None
            }
            ProxyFault::Drawn(rate) => {
                let mut occurrences = lock(&self.occurrences);
                let times = occurrences.entry(statement.to_owned()).or_default();
                *times += 1;
                let mut hasher = DefaultHasher::new();
                (self.seed, statement, *times).hash(&mut hasher);
                let drawn = hasher.finish();
                let kind = usize::try_from(drawn / 10_000 % 3).ok().and_then(|kind| FAULT_POINTS.get(kind));
                kind.copied().filter(|_| drawn % 10_000 < *rate)
            }
        };
        if let Some(fault_point) = fault_point {
            let statement = statement.split_whitespace().collect::<Vec<_>>().join(" ");
            lock(&self.injected)
                .push(InjectedFault { point: fault_point, statement: statement.chars().take(120).collect() });
        }
        fault_point
    }
}

/// Forwards the responses to earlier requests, drops the response to the last request, and closes the client's
/// connection.
async fn drop_last_response(
    client: &mut FrameStream,
    server: &mut FrameStream,
    mut open_requests: usize,
) -> io::Result<()> {
    loop {
        while let Some(frame) = server.next() {
            if open_requests > 1 {
                client.write(&frame).await?;
            }
            open_requests -= usize::from(frame::is_ready_for_query(&frame));
            if open_requests == 0 {
                return Ok(());
            }
        }
        if !server.fill().await? {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests;
