//! The long-running commands of `fairway-server`: startup in order, and shutdown in reverse order.

use crate::{
    app,
    compose::{Adapters, Api, BackgroundTasks, Process},
    config::{Database, LocalModeExposure, Settings},
    http::{connection::GuardedConnection, shutdown::ShutdownSignal},
    local_mode::warn_of_exposure_forever,
    open_files,
    portal::page::NOT_BUILT,
    provider_check::warn_of_unreadable_keys,
    worker_metrics,
};
use actix_http::{HttpService, Protocol};
use actix_server::Server;
pub use actix_server::ServerHandle;
use actix_service::{IntoServiceFactory as _, ServiceFactoryExt as _, fn_service, map_config};
use actix_web::{dev::AppConfig, rt::net::TcpStream, web};
use anyhow::Context as _;
use fairway_managed_postgres::{Binaries, ManagedServer, Options, StartError, state};
use fairway_operations::{
    asset::VerificationReport,
    rollout::{self, StopReason},
};
use fairway_postgres::matches_schema as agrees;
use std::{
    net::TcpListener,
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};

/// Name of the database on a managed PostgreSQL server.
const DATABASE_NAME: &str = "fairway";
/// Time between the shutdown announcement and the close of connections. Active clients see `Connection: close` on their
/// next response, load balancers a failing `/readyz`. Without the announcement a request can arrive on a connection
/// that is already closed.
const SHUTDOWN_NOTICE: Duration = Duration::from_millis(500);
/// Time limit for requests in flight after the server stops accepting connections, in seconds.
const DRAIN_SECONDS: u64 = 20;
/// Time limit for active runs after the last connection closes. The server then releases their leases.
const RUN_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for deliveries in progress at shutdown. The server then returns them to the outbox.
const DELIVERY_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for active runs in a worker, which has no connections to drain.
const WORKER_DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Idle time of a connection between two requests; the header timeout applies if it is shorter.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Time limit for a client to close its side of a connection after the server's close.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval at which the server creates future partitions and drops expired ones.
const PARTITION_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
/// Attempts to drop expired payloads while readers hold locks on them, and the pause between two attempts.
const EXPIRY_ATTEMPTS: u32 = 20;
const EXPIRY_RETRY_DELAY: Duration = Duration::from_secs(15);

/// The opened database: its two URLs, and the managed PostgreSQL server if this process started it.
pub struct OpenDatabase {
    /// URL of the service role.
    pub url: String,
    /// URL of the owner role, for migrations.
    pub owner_url: String,
    private_server: Option<ManagedServer>,
}

impl OpenDatabase {
    /// Resolves the database of the settings, and starts the server if it is a managed one.
    ///
    /// # Errors
    /// When a managed server cannot be found or started.
    pub async fn open(settings: &Settings) -> anyhow::Result<Self> {
        match (&settings.database, &settings.migrate_database) {
            (Database::Url(url), owner) => {
                let url = url.expose().to_owned();
                let owner_url = match owner {
                    Database::Url(owner) => owner.expose().to_owned(),
                    Database::Embedded => url.clone(),
                };
                Ok(Self { url, owner_url, private_server: None })
            }
            (Database::Embedded, _) => {
                let data_dir = settings.data_dir.clone();
                let server = tokio::task::spawn_blocking(move || start_managed_server(&data_dir)).await??;
                let url = server.url(DATABASE_NAME);
                fairway_postgres::create_database(&server.url("postgres"), DATABASE_NAME)
                    .await
                    .context("failed to create the database on the managed PostgreSQL server")?;
                Ok(Self { owner_url: url.clone(), url, private_server: Some(server) })
            }
        }
    }

    /// Resolves the database as [`open`](Self::open) does, and also accepts a managed server that another process runs.
    ///
    /// # Errors
    /// When a managed server cannot be found or started, or is starting or stopping at the moment.
    pub async fn open_or_join(settings: &Settings) -> anyhow::Result<Self> {
        if settings.database == Database::Embedded
            && let Ok(url) = Self::service_url(settings).await
        {
            return Ok(Self { owner_url: url.clone(), url, private_server: None });
        }
        Self::open(settings).await
    }

    /// Opens the existing database of the settings, with or without a running Fairway server. Creates and migrates
    /// nothing.
    ///
    /// # Errors
    /// When the database cannot be found or started, or has no Fairway schema.
    pub async fn open_existing(settings: &Settings) -> anyhow::Result<Self> {
        let found = match &settings.database {
            Database::Url(_) => Self::open(settings).await?,
            Database::Embedded => {
                let data_dir = settings.data_dir.clone();
                tokio::task::spawn_blocking(move || find_managed_server(&data_dir)).await?.context(LOCATION_HINT)?
            }
        };
        match fairway_postgres::has_schema(&found.url).await {
            Ok(true) => Ok(found),
            held => {
                found.close().await?;
                held.context("failed to reach the database")?;
                anyhow::bail!("the database holds nothing of Fairway: {LOCATION_HINT}")
            }
        }
    }

    /// The service URL of the configured database. A managed server must already run: `fairway-server serve` starts it.
    ///
    /// # Errors
    /// When no managed server runs in the data directory.
    pub async fn service_url(settings: &Settings) -> anyhow::Result<String> {
        match &settings.database {
            Database::Url(url) => Ok(url.expose().to_owned()),
            Database::Embedded => {
                let data_dir = settings.data_dir.clone();
                let find = move || {
                    anyhow::Ok(ManagedServer::url_of_running(
                        &managed_server_options(&data_dir)?.data_dir,
                        DATABASE_NAME,
                    )?)
                };
                tokio::task::spawn_blocking(find).await?.context("no server runs here").context(LOCATION_HINT)
            }
        }
    }

    /// Stops the managed server that this process started, if there is one.
    ///
    /// # Errors
    /// When the server does not stop.
    pub async fn close(self) -> anyhow::Result<()> {
        let Some(server) = self.private_server else { return Ok(()) };
        tokio::task::spawn_blocking(move || server.stop()).await??;
        Ok(())
    }
}

/// Delay before the rollout controller retries an unavailable database.
const DATABASE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Hint that follows the error for a missing database.
const LOCATION_HINT: &str = "run this on the server's host, or set FAIRWAY_DATA_DIR or FAIRWAY_DATABASE_URL";

fn start_managed_server(data_dir: &Path) -> anyhow::Result<ManagedServer> {
    Ok(ManagedServer::start(managed_server_options(data_dir)?)?)
}

/// Finds the managed server that another process runs on this directory, or starts an existing cluster.
fn find_managed_server(data_dir: &Path) -> anyhow::Result<OpenDatabase> {
    let options = managed_server_options(data_dir)?;
    let directory = options.data_dir.clone();
    let (url, private) = match ManagedServer::start_existing(options) {
        Ok(server) => (server.url(DATABASE_NAME), Some(server)),
        Err(StartError::InUse { .. }) => (ManagedServer::url_of_running(&directory, DATABASE_NAME)?, None),
        Err(error) => return Err(error.into()),
    };
    Ok(OpenDatabase { owner_url: url.clone(), url, private_server: private })
}

fn managed_server_options(data_dir: &Path) -> anyhow::Result<Options> {
    let state = state::directory().context("no state directory for managed PostgreSQL servers")?;
    let binaries = Binaries::find(&state).context("no PostgreSQL was found; `cargo xtask up` installs one")?;
    Ok(Options::of_data_directory(binaries, data_dir))
}

/// A running HTTP server.
pub struct RunningServer {
    /// Resolves when the server has stopped.
    pub server: Server,
    /// Stops the server.
    pub handle: ServerHandle,
    /// The background tasks; dropping the set aborts them.
    pub background_tasks: JoinSet<()>,
}

/// Starts the worker threads and the background tasks on a listener.
///
/// # Errors
/// When the database connections of a worker thread or the listener cannot be set up.
pub fn start_server(
    settings: &Settings,
    process: &Process,
    listener: TcpListener,
    tasks: BackgroundTasks,
) -> anyhow::Result<RunningServer> {
    let mut relays = process.start_background_tasks(tasks)?;
    if settings.local_mode_exposure == LocalModeExposure::Accepted {
        relays.spawn(warn_of_exposure_forever());
    }
    let base = web::Data::new(process.http_base(settings));
    if !base.portal.is_built() {
        tracing::info!("{NOT_BUILT}");
    }
    let documents = web::Data::new(process.openapi.clone());
    // Each worker thread has its own connections. A wrong URL is an error here; in the thread it would be a panic.
    let count = thread::available_parallelism().map_or(1, usize::from);
    let workers = WorkerApis::new(process, count)?;
    let header_timeout = settings.header_timeout;
    let keep_alive = KEEP_ALIVE.min(header_timeout);
    let builder = Server::build().workers(count).shutdown_timeout(DRAIN_SECONDS).disable_signals();
    let draining = builder.graceful_shutdown_signal();
    // Equivalent to the framework's `HttpServer`, but over `GuardedConnection`.
    let server = builder
        .listen("fairway", listener, move || {
            let draining = draining.clone();
            let app = app::app(web::Data::new(workers.next()), base.clone(), documents.clone());
            let app = app.into_factory().map_err(|error| error.error_response());
            let http = HttpService::build()
                .graceful_shutdown_signal(move || {
                    let draining = draining.clone();
                    async move { draining.notified().await }
                })
                .keep_alive(keep_alive)
                .client_request_timeout(header_timeout)
                .client_disconnect_timeout(DISCONNECT_TIMEOUT)
                .on_connect_ext(|connection: &GuardedConnection<TcpStream>, data| {
                    data.insert(connection.activity());
                })
                .finish(map_config(app, |()| AppConfig::default()));
            fn_service(move |socket: TcpStream| async move {
                // Event streams send small packets. With Nagle's algorithm each packet waits for the previous
                // acknowledgement, which clients delay by 40 ms. An error means that the connection is closed.
                let _ = socket.set_nodelay(true);
                let peer = socket.peer_addr().ok();
                Ok((GuardedConnection::new(socket, keep_alive.saturating_add(header_timeout)), Protocol::Http1, peer))
            })
            .and_then(http)
        })?
        .run();
    let handle = server.handle();
    Ok(RunningServer { server, handle, background_tasks: relays })
}

/// The `Api` of each worker thread, handed out when the threads start.
#[derive(Clone)]
struct WorkerApis {
    first: Api,
    others: Arc<[Api]>,
    next_index: Arc<AtomicUsize>,
}

impl WorkerApis {
    fn new(process: &Process, count: usize) -> anyhow::Result<Self> {
        let others = (1..count).map(|_| process.worker_api()).collect::<anyhow::Result<Arc<[Api]>>>()?;
        Ok(Self { first: process.worker_api()?, others, next_index: Arc::default() })
    }

    /// The `Api` of the next thread. A thread that replaces a crashed one shares the first `Api`.
    fn next(&self) -> Api {
        let index = self.next_index.fetch_add(1, Ordering::Relaxed);
        self.others.get(index).unwrap_or(&self.first).clone()
    }
}

/// Serves until SIGTERM or SIGINT, then announces the shutdown, drains and returns.
///
/// # Errors
/// When the listener, the database or a background task cannot be started.
pub async fn serve(settings: &Settings, tasks: BackgroundTasks) -> anyhow::Result<()> {
    open_files::raise_limit();
    fairway_memory_limit::limit_process(settings.memory_limit);
    let listener =
        TcpListener::bind(settings.bind).with_context(|| format!("failed to listen on {}", settings.bind))?;
    let database = OpenDatabase::open(settings).await?;
    let served = serve_with_database(settings, &database, listener, tasks).await;
    let closed = database.close().await;
    served.and(closed)
}

async fn serve_with_database(
    settings: &Settings,
    database: &OpenDatabase,
    listener: TcpListener,
    tasks: BackgroundTasks,
) -> anyhow::Result<()> {
    fairway_postgres::migrate(&database.owner_url).await.context("failed to migrate the database")?;
    let process = Process::new(settings, database.url.clone(), Adapters::of(settings)?)?;
    warn_of_unreadable_keys(settings).await?;
    // The retention of a reviewed result starts at the review, so the review deadline is added.
    let kept = settings.result_retention.saturating_add(settings.review_deadline);
    tokio::spawn(maintain_partitions(database.owner_url.clone(), kept));
    let RunningServer { server, handle, background_tasks: mut relays } =
        start_server(settings, &process, listener, tasks)?;
    tracing::info!(bind = %settings.bind, "server listening");
    let services = process.services().clone();
    tokio::spawn(async move {
        if let Err(error) = services.draft_generator.provision_generators().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to list tenants for generator provisioning; a tenant's first draft request provisions its \
                 generator"
            );
        }
    });
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut server = tokio::spawn(server);
    tokio::select! {
        ended = &mut server => ended??,
        _ = terminate.recv() => shut_down(process.shutdown_signal(), &handle, server).await?,
        _ = interrupt.recv() => shut_down(process.shutdown_signal(), &handle, server).await?,
    }
    let sender = &process.services().notification_sender;
    tokio::join!(process.services().run_recovery.drain(RUN_DRAIN_TIMEOUT), sender.drain(DELIVERY_DRAIN_TIMEOUT));
    match process.services().run_recovery.release_leases().await {
        Ok(runs) => tracing::info!(runs, "server stopped; released the leases of active runs"),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to release the leases of active runs; they expire"
            );
        }
    }
    relays.shutdown().await;
    Ok(())
}

/// Compares the row, checksum and artifact of every version, with or without a running server.
///
/// # Errors
/// When the database or the artifact store is missing or unreachable.
pub async fn verify_artifacts(settings: &Settings) -> anyhow::Result<VerificationReport> {
    let database = OpenDatabase::open_existing(settings).await?;
    let verified = async {
        let process = Process::new(settings, database.url.clone(), Adapters::of(settings)?)?;
        anyhow::Ok(process.services().artifacts.verify_artifacts().await?)
    };
    let verified = verified.await;
    database.close().await?;
    verified
}

/// Advances rollouts until SIGTERM or SIGINT, next to the servers of the same database. It never starts a managed
/// PostgreSQL server. After a lost connection it resolves the URL again, because a restarted server has another port.
///
/// # Errors
/// When the database is not reachable at the start, or its schema belongs to another version.
pub async fn run_rollout_controller(settings: &Settings) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let shutdown = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let mut shutdown = pin!(shutdown);
    let mut address = OpenDatabase::service_url(settings).await?;
    let mut schema_matches = agrees(&address).await.context("failed to read the schema version")?;
    loop {
        if !schema_matches {
            anyhow::bail!(
                "the database schema belongs to another version; run the rollout pilot of the servers' version"
            );
        }
        let process = Process::new(settings, address.clone(), Adapters::of(settings)?)?;
        tracing::info!("rollout controller started");
        if rollout::run_rollout_controller(&process.services().rollouts, shutdown.as_mut()).await
            == StopReason::Shutdown
        {
            tracing::info!("rollout controller stopped");
            return Ok(());
        }
        // A managed server may be back at another port.
        while let Err(error) = async {
            address = OpenDatabase::service_url(settings).await?;
            schema_matches = agrees(&address).await?;
            anyhow::Ok(())
        }
        .await
        {
            tracing::warn!(error = format!("{error:#}"), "database unavailable; retrying in 1 s");
            tokio::select! {
                () = shutdown.as_mut() => return Ok(()),
                () = tokio::time::sleep(DATABASE_RETRY_DELAY) => {}
            }
        }
    }
}

/// Executes queued runs until SIGTERM or SIGINT, next to the servers of the same database. At shutdown it drains its
/// active runs and releases the leases of the rest.
///
/// # Errors
/// When this deployment has no workers, the database is not reachable, or its schema belongs to another version.
pub async fn run_worker(settings: &Settings) -> anyhow::Result<()> {
    if !settings.dispatch.has_workers() {
        anyhow::bail!("this deployment has no workers: `dispatch` is `{}`", settings.dispatch.as_str());
    }
    fairway_memory_limit::limit_process(settings.memory_limit);
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let address = OpenDatabase::service_url(settings).await?;
    if !agrees(&address).await.context("failed to read the schema version")? {
        anyhow::bail!("the database schema belongs to another version; run the worker of the servers' version");
    }
    let process = Process::new(settings, address, Adapters::of(settings)?)?;
    warn_of_unreadable_keys(settings).await?;
    let mut relays = process.start_worker(true)?;
    worker_metrics::start(settings.worker_metrics_bind, process.metrics(), &mut relays)?;
    tracing::info!("worker started");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!(timeout_s = WORKER_DRAIN_TIMEOUT.as_secs(), "shutting down: draining active runs");
    process.services().run_recovery.drain(WORKER_DRAIN_TIMEOUT).await;
    let runs = process.services().run_recovery.release_leases().await?;
    relays.shutdown().await;
    tracing::info!(runs, "worker stopped; released the leases of active runs");
    Ok(())
}

async fn shut_down(
    leaving: &ShutdownSignal,
    handle: &ServerHandle,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
) -> anyhow::Result<()> {
    tracing::info!("shutting down: announcing the close to clients");
    leaving.announce();
    tokio::time::sleep(SHUTDOWN_NOTICE).await;
    tracing::info!("shutting down: draining connections");
    handle.stop(true).await;
    Ok(server.await??)
}

async fn maintain_partitions(owner_url: String, kept: Duration) {
    loop {
        expire_payloads(&owner_url, kept).await;
        tokio::time::sleep(PARTITION_INTERVAL).await;
        match fairway_postgres::create_partitions(&owner_url).await {
            Ok(partitions) => tracing::info!(partitions, "created future partitions"),
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "failed to create future partitions; retrying in 24 h"
                );
            }
        }
    }
}

/// Drops expired payload partitions. A long reader such as a backup blocks the drop, so each attempt gives up at once:
/// queries must not queue behind a waiting drop.
async fn expire_payloads(owner_url: &str, kept: Duration) {
    for _ in 0..EXPIRY_ATTEMPTS {
        match fairway_postgres::expire_payloads(owner_url, kept).await {
            Ok(expired) => {
                if !expired.months.is_empty() {
                    tracing::info!(months = expired.months.join(", "), "dropped expired payloads");
                }
                if !expired.is_incomplete {
                    return;
                }
            }
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "failed to drop expired payloads; retrying in 24 h"
                );
                return;
            }
        }
        tokio::time::sleep(EXPIRY_RETRY_DELAY).await;
    }
    tracing::warn!(
        attempts = EXPIRY_ATTEMPTS,
        "failed to drop all expired payloads, because queries use them; retrying in 24 h"
    );
}
