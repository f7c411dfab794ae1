//! A complete server for a test: its own database and artifacts, a free port, and real HTTP.

#![expect(clippy::panic, reason = "a test fails when its server does not start")]

mod client;
mod fixtures;

pub use client::{Client, Request, Response};
pub use fixtures::{ActiveWorkload, Fixtures, Version};

use crate::{ACCESS_TOKEN_AUDIENCE, FaultProxy, FaultyArtifactStore, StubScriptGateway, TestDatabase, TestIssuer};
use anyhow::Context as _;
use fairway_api::{
    compose::{AccessStoreDecorator, Adapters, EnabledBackgroundTasks, Process},
    config::Settings,
    serve,
};
use fairway_domain::{
    asset::artifact_store::ArtifactStore,
    clock::Clock,
    execution::{provider::Provider, script::ScriptGateway},
    id::IdSource,
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

/// A server for one test. It stops when dropped. The last server that shares the database removes the database.
///
/// A test app dereferences to the [`Client`] that sends its requests.
pub struct TestApp {
    client: Client,
    services: Services,
    server: Option<ServerThread>,
    database: Arc<TestDatabase>,
    data_dir: Arc<TempDir>,
    /// Keeps the fault proxy between server and database alive while the server runs.
    _proxy: Option<Arc<FaultProxy>>,
}

/// The server's thread, with a runtime of its own: a test that blocks or ends must not interrupt background tasks.
struct ServerThread {
    handle: fairway_api::serve::ServerHandle,
    thread: JoinHandle<anyhow::Result<()>>,
}

/// The differences from a server with default settings.
#[derive(Default)]
pub struct Builder {
    settings: Vec<(&'static str, String)>,
    file: Option<String>,
    shared: Option<(Arc<TestDatabase>, Arc<TempDir>)>,
    proxy: Option<Arc<FaultProxy>>,
    faults: Option<Arc<FaultyArtifactStore>>,
    artifacts: Option<Arc<dyn ArtifactStore>>,
    access: Option<AccessStoreDecorator>,
    provider: Option<Arc<dyn Provider>>,
    gateway: Option<Arc<dyn ScriptGateway>>,
    clock: Option<Arc<dyn Clock>>,
    ids: Option<Arc<dyn IdSource>>,
    without_worker: bool,
    without_notifications: bool,
}

impl Builder {
    /// Sets an environment variable, such as `FAIRWAY_SYNC_WAIT`.
    #[must_use]
    pub fn setting(mut self, variable: &'static str, value: impl Into<String>) -> Self {
        self.settings.push((variable, value.into()));
        self
    }

    /// Accepts the identities of this issuer only. `user:root` is a bootstrap administrator.
    #[must_use]
    pub fn oidc(self, issuer: &TestIssuer) -> Self {
        self.setting("FAIRWAY_AUTH_MODE", "oidc")
            .setting("FAIRWAY_OIDC_ISSUER", issuer.url())
            .setting("FAIRWAY_OIDC_AUDIENCE", ACCESS_TOKEN_AUDIENCE)
            .setting("FAIRWAY_BOOTSTRAP_ADMINS", "user:root")
    }

    /// Uses this text as `fairway.toml`.
    #[must_use]
    pub fn config_file(mut self, text: impl Into<String>) -> Self {
        self.file = Some(text.into());
        self
    }

    /// Starts no worker, so queued runs stay queued.
    #[must_use]
    pub fn without_worker(mut self) -> Self {
        self.without_worker = true;
        self
    }

    /// Starts neither the notification projector nor the notification sender. A test uses this when another server
    /// runs both.
    #[must_use]
    pub fn without_notifications(mut self) -> Self {
        self.without_notifications = true;
        self
    }

    /// Uses the database and the artifacts of another test server, which may still run or have stopped.
    #[must_use]
    pub fn sharing_storage_of(mut self, other: &TestApp) -> Self {
        self.shared = Some((Arc::clone(&other.database), Arc::clone(&other.data_dir)));
        self
    }

    /// Replaces the configured accounts by this provider.
    #[must_use]
    pub fn provider(mut self, provider: Arc<dyn Provider>) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Runs scripts through this gateway.
    #[must_use]
    pub fn gateway(mut self, gateway: Arc<dyn ScriptGateway>) -> Self {
        self.gateway = Some(gateway);
        self
    }

    /// Wraps the store of role bindings in this decorator.
    #[must_use]
    pub fn decorate_access_store(mut self, decorator: AccessStoreDecorator) -> Self {
        self.access = Some(decorator);
        self
    }

    /// Replaces the artifact store, which by default is a directory of the test.
    #[must_use]
    pub fn artifacts(mut self, artifacts: Arc<dyn ArtifactStore>) -> Self {
        self.artifacts = Some(artifacts);
        self
    }

    /// Injects faults into the artifact store.
    #[must_use]
    pub fn faulty_artifacts(mut self, faults: &Arc<FaultyArtifactStore>) -> Self {
        self.faults = Some(Arc::clone(faults));
        self
    }

    /// Connects to the database through this proxy.
    #[must_use]
    pub fn through_proxy(mut self, proxy: &Arc<FaultProxy>) -> Self {
        self.proxy = Some(Arc::clone(proxy));
        self
    }

    /// Replaces the server's clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Replaces the server's source of identifiers.
    #[must_use]
    pub fn ids(mut self, ids: Arc<dyn IdSource>) -> Self {
        self.ids = Some(ids);
        self
    }

    /// Starts the server and waits until it accepts connections.
    ///
    /// # Panics
    /// When the server does not start.
    pub async fn start(self) -> TestApp {
        match self.try_start().await {
            Ok(app) => app,
            Err(error) => panic!("failed to start the test server: {error:#}"),
        }
    }

    async fn try_start(self) -> anyhow::Result<TestApp> {
        let (database, data_dir) = match self.shared {
            Some(shared) => shared,
            None => (Arc::new(TestDatabase::create().await?), Arc::new(tempfile::tempdir()?)),
        };
        let url = self.proxy.as_ref().map_or_else(|| database.url_for_owner(), |proxy| proxy.url().to_owned());
        let default_settings = [
            ("FAIRWAY_BIND", "127.0.0.1:0".to_owned()),
            ("FAIRWAY_DATA_DIR", data_dir.path().display().to_string()),
            ("FAIRWAY_DATABASE_URL", url.clone()),
            // Effectively disables load shedding, which a busy machine would trigger. Tests of load shedding
            // override the value.
            ("FAIRWAY_WAITING_LINE", "10000".to_owned()),
            // Tests that call every operation read the inbox stream until it ends.
            ("FAIRWAY_INBOX_STREAM_LIFETIME", "1ms".to_owned()),
        ];
        let variables = default_settings.into_iter().chain(self.settings);
        let variables = variables.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let settings = Settings::load(self.file.as_deref(), variables)?;
        let mut adapters = Adapters::of(&settings)?;
        adapters.artifacts = self.artifacts.unwrap_or(adapters.artifacts);
        adapters.access_decorator = self.access;
        adapters.provider = self.provider.unwrap_or(adapters.provider);
        adapters.code_gateway = match (self.gateway, &settings.runtime_gateway) {
            (Some(gateway), _) => gateway,
            (None, Some(_)) => adapters.code_gateway,
            // The sandbox starts its children from the server's executable. A test program cannot serve as that
            // executable.
            (None, None) => StubScriptGateway::succeeding(),
        };
        adapters.clock = self.clock.unwrap_or(adapters.clock);
        adapters.ids = self.ids.unwrap_or(adapters.ids);
        if let Some(faults) = self.faults {
            faults.wrap(Arc::clone(&adapters.artifacts));
            adapters.artifacts = faults;
        }
        let process = Process::new(&settings, url, adapters.clone())?;
        let listener = TcpListener::bind(settings.bind)?;
        let address = listener.local_addr()?;
        let services = Process::new(&settings, database.url_for_owner(), adapters)?.background_pool_services().clone();
        let tasks = EnabledBackgroundTasks {
            executes_runs: !self.without_worker,
            sends_notifications: !self.without_notifications,
            // Tests execute erasures explicitly, so that they control the time of an erasure.
            erases_texts: false,
            ..EnabledBackgroundTasks::default()
        };
        let server = ServerThread::start(settings, tasks, process, listener).context("starting the listener")?;
        Ok(TestApp {
            client: Client::new(address, database.url_for_owner())?,
            services,
            server: Some(server),
            database,
            data_dir,
            _proxy: self.proxy,
        })
    }
}

impl ServerThread {
    fn start(
        settings: Settings,
        tasks: EnabledBackgroundTasks,
        process: Process,
        listener: TcpListener,
    ) -> anyhow::Result<Self> {
        let (ready, started) = mpsc::channel();
        let thread = thread::Builder::new().name("test-app".to_owned()).spawn(move || -> anyhow::Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let listening = serve::start_server(&settings, &process, listener, tasks)?;
                ready.send(listening.handle)?;
                Ok(listening.server.await?)
            })
        })?;
        match started.recv() {
            Ok(handle) => Ok(Self { handle, thread }),
            // A missing handle means that the thread has ended. The thread's result contains the reason.
            Err(_) => match thread.join() {
                Ok(ended) => ended.and(Err(anyhow::anyhow!("the server exited during startup"))),
                Err(_) => Err(anyhow::anyhow!("the server's thread panicked")),
            },
        }
    }

    fn stop(self, graceful: bool) {
        // `stop` sends the stop command. The join below waits for the thread to end.
        drop(self.handle.stop(graceful));
        // A failed shutdown is visible in the responses that the test checks, so this result is ignored.
        let _ = self.thread.join();
    }
}

impl TestApp {
    /// Starts a server with default settings and a fresh database.
    ///
    /// # Panics
    /// When the server does not start.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// A builder for a server with other settings.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The server's database.
    #[must_use]
    pub fn database(&self) -> &TestDatabase {
        &self.database
    }

    /// The server's operations over separate connections, for background tasks and commands that no request triggers.
    #[must_use]
    pub const fn services(&self) -> &Services {
        &self.services
    }

    /// The server's data folder, which contains the artifacts.
    #[must_use]
    pub fn data_dir(&self) -> &std::path::Path {
        self.data_dir.path()
    }

    /// The address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.client.address()
    }

    /// Shuts the server down gracefully, as SIGTERM does, and waits until active requests are complete.
    pub async fn shut_down_gracefully(mut self) {
        if let Some(server) = self.server.take() {
            let _ = tokio::task::spawn_blocking(move || server.stop(true)).await;
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
        if let Some(server) = self.server.take() {
            server.stop(false);
        }
    }
}
