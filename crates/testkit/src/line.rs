//! A line to PostgreSQL that breaks: in front of a commit, behind it, or while it is under way.
//!
//! It understands as much of the protocol as it takes to know where a request ends and when it is answered (the
//! message formats of PostgreSQL's documentation, part "Frontend/Backend Protocol").

#![expect(clippy::panic, reason = "a test that cannot have its line ends here, with the reason")]

mod frame;

use crate::TestDatabase;
use frame::{Asked, Frames};
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

/// What a cut does to the request that it meets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cut {
    /// Its end never reaches PostgreSQL, so it never happens.
    Before,
    /// It is done, and nobody hears of it.
    Behind,
    /// It is sent, and the line is gone at once. It arrives late: whoever asks again at once is there before it.
    Between,
    /// It is done, and its answer is kept back for as long as the connection lasts. None is ever drawn.
    Withheld,
}

/// How late is late: longer than a client waits before it asks again.
const LATE: Duration = Duration::from_millis(60);

const CUTS: [Cut; 3] = [Cut::Before, Cut::Behind, Cut::Between];

/// When the line is cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LineFault {
    /// Never.
    None,
    /// At so many of ten thousand requests, drawn from the seed.
    Drawn(u64),
    /// In front of every statement that holds these words.
    At(&'static str),
    /// At the next statement that holds these words when it is carried out, and then never again.
    Once(&'static str, Cut),
    /// In front of everything, new connections included.
    Down,
}

/// A cut that was made, and the statement that it met.
#[derive(Clone, Debug)]
pub struct Made {
    /// How.
    pub cut: Cut,
    /// The beginning of the statement.
    pub statement: String,
}

/// Stands between a server and its database. Whoever connects to the database itself is not touched.
pub struct FaultyLine {
    url: String,
    shared: Arc<Shared>,
    _running: Running,
}

struct Shared {
    server: SocketAddr,
    seed: u64,
    fault: Mutex<LineFault>,
    /// How often each statement came by. Each has draws of its own, so that what relays ask for beside a request does
    /// not shift what the request meets, and a seed shows the same again.
    seen: Mutex<HashMap<String, u64>>,
    made: Mutex<Vec<Made>>,
    /// Connections that were cut while PostgreSQL still works for them.
    working: watch::Sender<usize>,
}

/// The thread that carries. A runtime of its own, because tests block theirs.
struct Running {
    over: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FaultyLine {
    /// A line to this database that holds until it is told otherwise.
    ///
    /// # Panics
    /// When nothing can listen, or the database is not reached over TCP.
    #[must_use]
    pub fn to(database: &TestDatabase, seed: u64) -> Arc<Self> {
        Self::to_url(&database.url(), seed)
    }

    /// A line to the database at this address.
    ///
    /// # Panics
    /// When nothing can listen, or the database is not reached over TCP.
    #[must_use]
    pub fn to_url(url: &str, seed: u64) -> Arc<Self> {
        match Self::try_to(url, seed) {
            Ok(line) => Arc::new(line),
            Err(error) => panic!("there is no line to the database: {error:#}"),
        }
    }

    fn try_to(url: &str, seed: u64) -> anyhow::Result<Self> {
        let config: Config = url.parse()?;
        let (Some(Host::Tcp(host)), Some(port)) = (config.get_hosts().first(), config.get_ports().first()) else {
            anyhow::bail!("no host and port in the database's address");
        };
        let server = SocketAddr::new(host.parse()?, *port);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let (from, to) = (format!("@{server}/"), format!("@{}/", listener.local_addr()?));
        anyhow::ensure!(url.contains(&from), "the database's address is not written as expected");
        let shared = Arc::new(Shared {
            server,
            seed,
            fault: Mutex::new(LineFault::None),
            seen: Mutex::default(),
            made: Mutex::default(),
            working: watch::Sender::new(0),
        });
        let (over, until) = watch::channel(());
        let thread = thread::Builder::new().name("faulty-line".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || runtime.block_on(shared.carry_all(listener, until))
        })?;
        let running = Running { over: Some(over), thread: Some(thread) };
        Ok(Self { url: url.replace(&from, &to), shared, _running: running })
    }

    /// The address of the database over this line.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Goes on with this fault.
    pub fn becomes(&self, fault: LineFault) {
        *lock(&self.shared.fault) = fault;
    }

    /// The cuts so far, in their order.
    #[must_use]
    pub fn made(&self) -> Vec<Made> {
        lock(&self.shared.made).clone()
    }

    /// Waits until PostgreSQL is through with everything that was sent before its line was cut.
    pub async fn settled(&self) {
        // The sender is this very line, so waiting cannot fail.
        let _ = self.shared.working.subscribe().wait_for(|working| *working == 0).await;
    }
}

impl Shared {
    async fn carry_all(self: Arc<Self>, listener: std::net::TcpListener, mut until: watch::Receiver<()>) {
        let Ok(listener) = TcpListener::from_std(listener) else { return };
        loop {
            tokio::select! {
                // The line was dropped.
                _ = until.changed() => return,
                accepted = listener.accept() => {
                    let Ok((client, _)) = accepted else { return };
                    let shared = Arc::clone(&self);
                    // However it ends: both sides see that the connection is gone.
                    tokio::spawn(async move { shared.carry(client).await });
                }
            }
        }
    }

    /// Carries one connection until a side closes it or it is cut.
    async fn carry(self: Arc<Self>, client: TcpStream) -> io::Result<()> {
        if *lock(&self.fault) == LineFault::Down {
            return Ok(());
        }
        let server = TcpStream::connect(self.server).await?;
        let (mut client, mut server) = (Frames::over(client)?, Frames::over(server)?);
        let start = client.start().await?;
        server.write(&start).await?;
        // The start is answered like a request.
        let (mut asked, mut answered) = (1_usize, 0_usize);
        let mut statements = Asked::default();
        loop {
            tokio::select! {
                came = client.fill() => {
                    if !came? {
                        return Ok(());
                    }
                    let mut sent = Vec::new();
                    while let Some(frame) = client.next() {
                        if !statements.ends_with(&frame) {
                            sent.extend_from_slice(&frame);
                            continue;
                        }
                        let cut = self.draw(&statements);
                        match cut {
                            // What leads up to the end changes nothing without it.
                            Some(Cut::Before) => return server.write(&sent).await,
                            None | Some(Cut::Behind | Cut::Between | Cut::Withheld) => sent.extend_from_slice(&frame),
                        }
                        asked += 1;
                        match cut {
                            None | Some(Cut::Before) => {}
                            Some(Cut::Between) => {
                                return self.arrive_late(client, server, &sent).await;
                            }
                            Some(Cut::Behind) => {
                                server.write(&sent).await?;
                                return swallow(&mut client, &mut server, asked - answered).await;
                            }
                            Some(Cut::Withheld) => {
                                server.write(&sent).await?;
                                swallow(&mut client, &mut server, asked - answered).await?;
                                while client.fill().await? {}
                                return Ok(());
                            }
                        }
                    }
                    server.write(&sent).await?;
                }
                came = server.fill() => {
                    if !came? {
                        return Ok(());
                    }
                    let mut sent = Vec::new();
                    while let Some(frame) = server.next() {
                        answered += usize::from(frame::is_ready(&frame));
                        sent.extend_from_slice(&frame);
                    }
                    client.write(&sent).await?;
                }
            }
        }
    }

    /// Lets PostgreSQL have what was sent, a while later, and see only then that nobody is there.
    async fn arrive_late(&self, client: Frames, mut server: Frames, sent: &[u8]) -> io::Result<()> {
        // First this: whoever sees that the line is gone may ask at once whether everything is settled.
        self.working.send_modify(|working| *working += 1);
        drop(client);
        tokio::time::sleep(LATE).await;
        let ended = match server.write(sent).await {
            Ok(()) => server.finish().await,
            lost => lost,
        };
        self.working.send_modify(|working| *working -= 1);
        ended
    }

    /// Whether the line is cut here, and how.
    fn draw(&self, asked: &Asked) -> Option<Cut> {
        let statement = asked.statement();
        let mut fault = lock(&self.fault);
        let cut = match &*fault {
            LineFault::None => None,
            LineFault::Down => Some(Cut::Before),
            LineFault::At(words) => statement.contains(words).then_some(Cut::Before),
            LineFault::Once(words, cut) => {
                let cut = Some(*cut).filter(|_| asked.is_carried_out() && statement.contains(words));
                if cut.is_some() {
                    *fault = LineFault::None;
                }
                cut
            }
            LineFault::Drawn(odds) => {
                let mut seen = lock(&self.seen);
                let times = seen.entry(statement.to_owned()).or_default();
                *times += 1;
                let mut hasher = DefaultHasher::new();
                (self.seed, statement, *times).hash(&mut hasher);
                let drawn = hasher.finish();
                let kind = usize::try_from(drawn / 10_000 % 3).ok().and_then(|kind| CUTS.get(kind));
                kind.copied().filter(|_| drawn % 10_000 < *odds)
            }
        };
        if let Some(cut) = cut {
            let statement = statement.split_whitespace().collect::<Vec<_>>().join(" ");
            lock(&self.made).push(Made { cut, statement: statement.chars().take(120).collect() });
        }
        cut
    }
}

/// Carries the answers to what was asked before, keeps the last one, and ends the connection.
async fn swallow(client: &mut Frames, server: &mut Frames, mut open: usize) -> io::Result<()> {
    loop {
        while let Some(frame) = server.next() {
            if open > 1 {
                client.write(&frame).await?;
            }
            open -= usize::from(frame::is_ready(&frame));
            if open == 0 {
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
