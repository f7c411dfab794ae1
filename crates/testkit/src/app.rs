//! The whole server in a test: its own database, its own artifacts, a port of its own, real HTTP.

#![expect(clippy::panic, reason = "a test that cannot have its server ends here, with the reason")]

mod client;
mod given;

pub use client::{Answer, Client, Request};
pub use given::{ActiveWorkload, Given, Version};

use crate::{FaultyArtifacts, FaultyLine, StubGateway, TestDatabase};
use anyhow::Context as _;
use fairway_api::{
    compose::{AccessLayer, Parts, Process, Works},
    config::Settings,
    serve,
};
use fairway_domain::{
    asset::ports::ArtifactStore,
    execution::{code::CodeGateway, provider::Provider},
    id::Ids,
    time::Clock,
};
use fairway_operations::Services;
use std::{
    ffi::OsString,
    net::{SocketAddr, TcpListener},
    ops::Deref,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};
use tempfile::TempDir;

/// A server for one test. It stops when dropped, and its database goes with the last server over it.
///
/// Requests are made through the [`Client`] that it derefs to.
pub struct TestApp {
    client: Client,
    services: Services,
    running: Option<Running>,
    database: Arc<TestDatabase>,
    home: Arc<TempDir>,
    /// Carries as long as the server runs.
    _line: Option<Arc<FaultyLine>>,
}

/// The server's thread. A runtime of its own, so that a test that blocks or ends does not stop the relays half-way.
struct Running {
    handle: fairway_api::serve::ServerHandle,
    thread: JoinHandle<anyhow::Result<()>>,
}

/// What a test wants to be different from a server with all its defaults.
#[derive(Default)]
pub struct Builder {
    settings: Vec<(&'static str, String)>,
    file: Option<String>,
    shared: Option<(Arc<TestDatabase>, Arc<TempDir>)>,
    line: Option<Arc<FaultyLine>>,
    faults: Option<Arc<FaultyArtifacts>>,
    artifacts: Option<Arc<dyn ArtifactStore>>,
    access: Option<AccessLayer>,
    provider: Option<Arc<dyn Provider>>,
    gateway: Option<Arc<dyn CodeGateway>>,
    clock: Option<Arc<dyn Clock>>,
    ids: Option<Arc<dyn Ids>>,
    works_not: bool,
}

impl Builder {
    /// Sets a variable, such as `FAIRWAY_SYNC_WAIT`.
    #[must_use]
    pub fn setting(mut self, variable: &'static str, value: impl Into<String>) -> Self {
        self.settings.push((variable, value.into()));
        self
    }

    /// Reads this text as its `fairway.toml`.
    #[must_use]
    pub fn file(mut self, text: impl Into<String>) -> Self {
        self.file = Some(text.into());
        self
    }

    /// Leaves runs that wait in line to others.
    #[must_use]
    pub fn without_worker(mut self) -> Self {
        self.works_not = true;
        self
    }

    /// Over the database and the artifacts of another server, which may still run or have stopped.
    #[must_use]
    pub fn beside(mut self, other: &TestApp) -> Self {
        self.shared = Some((Arc::clone(&other.database), Arc::clone(&other.home)));
        self
    }

    /// Asks this provider instead of the configured accounts.
    #[must_use]
    pub fn provider(mut self, provider: Arc<dyn Provider>) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Has scripts run by this gateway.
    #[must_use]
    pub fn gateway(mut self, gateway: Arc<dyn CodeGateway>) -> Self {
        self.gateway = Some(gateway);
        self
    }

    /// Reads role bindings through this layer.
    #[must_use]
    pub fn access(mut self, layer: AccessLayer) -> Self {
        self.access = Some(layer);
        self
    }

    /// Keeps artifacts there instead of in the test's folder.
    #[must_use]
    pub fn artifacts(mut self, artifacts: Arc<dyn ArtifactStore>) -> Self {
        self.artifacts = Some(artifacts);
        self
    }

    /// Puts faults between the server and the artifacts.
    #[must_use]
    pub fn faulty_artifacts(mut self, faults: &Arc<FaultyArtifacts>) -> Self {
        self.faults = Some(Arc::clone(faults));
        self
    }

    /// Speaks to its database over this line.
    #[must_use]
    pub fn over(mut self, line: &Arc<FaultyLine>) -> Self {
        self.line = Some(Arc::clone(line));
        self
    }

    /// Tells the server the time.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Gives the server its identifiers.
    #[must_use]
    pub fn ids(mut self, ids: Arc<dyn Ids>) -> Self {
        self.ids = Some(ids);
        self
    }

    /// Starts the server and waits until it listens.
    ///
    /// # Panics
    /// When it does not start; the test is over then.
    pub async fn start(self) -> TestApp {
        match self.try_start().await {
            Ok(app) => app,
            Err(error) => panic!("the server of this test does not start: {error:#}"),
        }
    }

    async fn try_start(self) -> anyhow::Result<TestApp> {
        let (database, home) = match self.shared {
            Some(shared) => shared,
            None => (Arc::new(TestDatabase::create().await?), Arc::new(tempfile::tempdir()?)),
        };
        let url = self.line.as_ref().map_or_else(|| database.url(), |line| line.url().to_owned());
        let fixed = [
            ("FAIRWAY_BIND", "127.0.0.1:0".to_owned()),
            ("FAIRWAY_DATA_DIR", home.path().display().to_string()),
            ("FAIRWAY_DATABASE_URL", url.clone()),
            // Whatever a busy machine makes of it: tests that want requests refused for load say so.
            ("FAIRWAY_WAITING_LINE", "10000".to_owned()),
        ];
        let variables = fixed.into_iter().chain(self.settings);
        let variables = variables.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let settings = Settings::load(self.file.as_deref(), variables)?;
        let mut parts = Parts::of(&settings)?;
        parts.artifacts = self.artifacts.unwrap_or(parts.artifacts);
        parts.access = self.access;
        parts.provider = self.provider.unwrap_or(parts.provider);
        parts.gateway = match (self.gateway, &settings.runtime_gateway) {
            (Some(gateway), _) => gateway,
            (None, Some(_)) => parts.gateway,
            // This program is a test, and no server whose children are sandboxes.
            (None, None) => StubGateway::quiet(),
        };
        parts.clock = self.clock.unwrap_or(parts.clock);
        parts.ids = self.ids.unwrap_or(parts.ids);
        if let Some(faults) = self.faults {
            faults.stand_before(Arc::clone(&parts.artifacts));
            parts.artifacts = faults;
        }
        let process = Process::new(&settings, url, parts.clone())?;
        let listener = TcpListener::bind(settings.bind)?;
        let address = listener.local_addr()?;
        let services = Process::new(&settings, database.url(), parts)?.services().clone();
        let works = if self.works_not { Works::No } else { Works::Yes };
        let running = Running::start((settings, works), process, listener).context("its listener")?;
        Ok(TestApp {
            client: Client::new(address, database.url())?,
            services,
            running: Some(running),
            database,
            home,
            _line: self.line,
        })
    }
}

impl Running {
    fn start((settings, works): (Settings, Works), process: Process, listener: TcpListener) -> anyhow::Result<Self> {
        let (ready, started) = mpsc::channel();
        let thread = thread::Builder::new().name("test-app".to_owned()).spawn(move || -> anyhow::Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let listening = serve::listen(&settings, &process, listener, works)?;
                ready.send(listening.handle)?;
                Ok(listening.server.await?)
            })
        })?;
        match started.recv() {
            Ok(handle) => Ok(Self { handle, thread }),
            // Without a handle the thread has ended, and says why.
            Err(_) => match thread.join() {
                Ok(ended) => ended.and(Err(anyhow::anyhow!("the server ended at once"))),
                Err(_) => Err(anyhow::anyhow!("the server's thread panicked")),
            },
        }
    }

    fn stop(self, graceful: bool) {
        // The command is on its way as soon as the future is made; the thread's end is what is waited for.
        drop(self.handle.stop(graceful));
        // A server that ended badly shows in what the test asked of it.
        let _ = self.thread.join();
    }
}

impl TestApp {
    /// A server with all its defaults over a fresh database.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// A server that is to differ from the defaults.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The database behind the server.
    #[must_use]
    pub fn database(&self) -> &TestDatabase {
        &self.database
    }

    /// The operations that the server works with, over connections of the test's own: for what relays and commands do,
    /// which no request asks for.
    #[must_use]
    pub const fn services(&self) -> &Services {
        &self.services
    }

    /// The server's own folder, with the artifacts in it.
    #[must_use]
    pub fn home(&self) -> &std::path::Path {
        self.home.path()
    }

    /// Where the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.client.address()
    }

    /// Stops the server as SIGTERM does, and waits until requests under way are answered.
    pub async fn drain(mut self) {
        if let Some(running) = self.running.take() {
            let _ = tokio::task::spawn_blocking(move || running.stop(true)).await;
        }
    }
}

impl Deref for TestApp {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for TestApp {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop(false);
        }
    }
}
