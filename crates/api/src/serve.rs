//! The long-running commands of `fairway-server`: startup in order, and shutdown in reverse order.

mod error;
mod resolve_database;

use crate::{
    app,
    compose::{Adapters, Api, ComposeError, EnabledBackgroundTasks, Process},
    config::{LocalModeExposure, Settings},
    http::{connection_guard::GuardedConnection, shutdown_signal::ShutdownFlag},
    local_mode_warning::warn_of_exposure_forever,
    open_file_limit,
    portal::page::NOT_BUILT,
    provider_check::warn_of_unreadable_keys,
    worker_metrics_server,
};
use actix_http::{HttpService, Protocol};
use actix_server::Server;
pub use actix_server::ServerHandle;
use actix_service::{IntoServiceFactory as _, ServiceFactoryExt as _, fn_service, map_config};
use actix_web::{dev::AppConfig, rt::net::TcpStream, web};
pub use error::ServeError;
use fairway_operations::rollout::{self, StopReason};
use fairway_postgres::matches_schema as agrees;
pub use resolve_database::{DatabaseError, ResolvedDatabase};
use std::{
    net::TcpListener,
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

/// Time between the shutdown announcement and the close of connections. Active clients receive `Connection: close`
/// on their next response, and load balancers receive a failing `/readyz`. Without the announcement, a request
/// could arrive on a connection that is already closed.
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

/// Delay before the rollout controller retries an unavailable database.
const DATABASE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// A running HTTP server with its background tasks.
pub struct RunningServer {
    /// Resolves when the server has stopped.
    pub server: Server,
    /// Handle that stops the server.
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
    tasks: EnabledBackgroundTasks,
) -> Result<RunningServer, ServeError> {
    let mut background_tasks = process.start_background_tasks(tasks)?;
    if settings.local_mode_exposure == LocalModeExposure::Accepted {
        background_tasks.spawn(warn_of_exposure_forever());
    }
    let base = web::Data::new(process.http_state(settings));
    if !base.portal.is_built() {
        tracing::info!("{NOT_BUILT}");
    }
    let documents = web::Data::new(process.openapi.clone());
    // Each worker thread has its own connections. They are created here, because an invalid URL in the thread would
    // be a panic.
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
    Ok(RunningServer { server, handle, background_tasks })
}

/// The `Api` of each worker thread, handed out when the threads start.
#[derive(Clone)]
struct WorkerApis {
    first: Api,
    others: Arc<[Api]>,
    next_index: Arc<AtomicUsize>,
}

impl WorkerApis {
    fn new(process: &Process, count: usize) -> Result<Self, ComposeError> {
        let others = (1..count).map(|_| process.worker_thread_api()).collect::<Result<Arc<[Api]>, _>>()?;
        Ok(Self { first: process.worker_thread_api()?, others, next_index: Arc::default() })
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
pub async fn serve(settings: &Settings, tasks: EnabledBackgroundTasks) -> Result<(), ServeError> {
    open_file_limit::raise_limit();
    fairway_memory_limit::limit_process(settings.memory_limit);
    let listener =
        TcpListener::bind(settings.bind).map_err(|source| ServeError::Listen { address: settings.bind, source })?;
    let database = ResolvedDatabase::resolve_or_start(settings).await?;
    let outcome = serve_with_database(settings, &database, listener, tasks).await;
    if !database.is_joined() {
        tracing::info!("shutting down: stopping the managed PostgreSQL");
    }
    let stop_result = database.stop_managed_server().await;
    outcome?;
    stop_result?;
    // The last message of a shutdown: from here on, another server can start on the data directory.
    tracing::info!("server stopped");
    Ok(())
}

async fn serve_with_database(
    settings: &Settings,
    database: &ResolvedDatabase,
    listener: TcpListener,
    tasks: EnabledBackgroundTasks,
) -> Result<(), ServeError> {
    fairway_postgres::migrate(&database.owner_url).await.map_err(ServeError::Migrate)?;
    let process = Process::new(settings, database.url.clone(), Adapters::of(settings)?)?;
    warn_of_unreadable_keys(settings).await?;
    // The retention of a reviewed result starts at the review, so the review deadline is added.
    let retention = settings.result_retention.saturating_add(settings.review_deadline);
    tokio::spawn(maintain_partitions(database.owner_url.clone(), retention));
    let RunningServer { server, handle, mut background_tasks } = start_server(settings, &process, listener, tasks)?;
    tracing::info!(bind = %settings.bind, "server listening");
    let services = process.background_pool_services().clone();
    tokio::spawn(async move {
        if let Err(error) = services.draft_generator.provision_generators().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to list the tenants that need a generator; the server creates the generator of a tenant when \
                 the tenant first requests a draft"
            );
        }
    });
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut server = tokio::spawn(server);
    tokio::select! {
        result = &mut server => result??,
        _ = terminate.recv() => shut_down(process.shutdown_flag(), &handle, server).await?,
        _ = interrupt.recv() => shut_down(process.shutdown_flag(), &handle, server).await?,
    }
    let sender = &process.background_pool_services().notification_sender;
    tokio::join!(
        process.background_pool_services().run_recovery.drain(RUN_DRAIN_TIMEOUT),
        sender.drain(DELIVERY_DRAIN_TIMEOUT)
    );
    match process.background_pool_services().run_recovery.release_leases().await {
        Ok(runs) => tracing::info!(runs, "shutting down: released active runs to other workers, or ended them"),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to release the leases of active runs; when the leases expire, a worker resumes the runs or \
                 recovery ends them"
            );
        }
    }
    background_tasks.shutdown().await;
    Ok(())
}

/// Advances rollouts until SIGTERM or SIGINT, next to the servers of the same database. It never starts a managed
/// PostgreSQL server. After a lost connection it resolves the URL again, because a restarted server has another port.
///
/// # Errors
/// When the database is not reachable at the start, or its schema belongs to another version.
pub async fn run_rollout_controller(settings: &Settings) -> Result<(), ServeError> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let shutdown = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let mut shutdown = pin!(shutdown);
    let mut address = ResolvedDatabase::resolve_running_service_url(settings).await?;
    let mut schema_matches = agrees(&address).await.map_err(ServeError::SchemaVersion)?;
    loop {
        if !schema_matches {
            return Err(ServeError::SchemaMismatch { process: "rollout pilot" });
        }
        let process = Process::new(settings, address.clone(), Adapters::of(settings)?)?;
        tracing::info!("rollout controller started");
        if rollout::run_rollout_controller(&process.background_pool_services().rollouts, shutdown.as_mut()).await
            == StopReason::Shutdown
        {
            tracing::info!("rollout controller stopped");
            return Ok(());
        }
        // A restarted managed server may listen on another port, so the URL is resolved again.
        while let Err(error) = async {
            address = ResolvedDatabase::resolve_running_service_url(settings).await?;
            schema_matches = agrees(&address).await.map_err(ServeError::SchemaVersion)?;
            Ok::<_, ServeError>(())
        }
        .await
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "database unavailable; retrying in 1 s");
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
pub async fn run_worker(settings: &Settings) -> Result<(), ServeError> {
    if !settings.dispatch.has_workers() {
        return Err(ServeError::NoWorkers(settings.dispatch.as_str()));
    }
    fairway_memory_limit::limit_process(settings.memory_limit);
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let address = ResolvedDatabase::resolve_running_service_url(settings).await?;
    if !agrees(&address).await.map_err(ServeError::SchemaVersion)? {
        return Err(ServeError::SchemaMismatch { process: "worker" });
    }
    let process = Process::new(settings, address, Adapters::of(settings)?)?;
    warn_of_unreadable_keys(settings).await?;
    let mut background_tasks = process.start_recovery_and_worker(true)?;
    worker_metrics_server::start(settings.worker_metrics_bind, process.metrics(), &mut background_tasks)?;
    tracing::info!("worker started");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!(timeout_s = WORKER_DRAIN_TIMEOUT.as_secs(), "shutting down: draining active runs");
    process.background_pool_services().run_recovery.drain(WORKER_DRAIN_TIMEOUT).await;
    let runs = process.background_pool_services().run_recovery.release_leases().await?;
    background_tasks.shutdown().await;
    tracing::info!(runs, "worker stopped; released the leases of active runs");
    Ok(())
}

async fn shut_down(
    shutdown: &ShutdownFlag,
    handle: &ServerHandle,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
) -> Result<(), ServeError> {
    tracing::info!("shutting down: closing each connection after its next response");
    shutdown.announce();
    tokio::time::sleep(SHUTDOWN_NOTICE).await;
    tracing::info!("shutting down: draining connections");
    handle.stop(true).await;
    Ok(server.await??)
}

async fn maintain_partitions(owner_url: String, retention: Duration) {
    loop {
        expire_payloads(&owner_url, retention).await;
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

/// Drops expired payload partitions. A long reader such as a backup blocks the drop. Each attempt then gives up at
/// once, because further queries would queue behind a waiting drop.
async fn expire_payloads(owner_url: &str, retention: Duration) {
    for _ in 0..EXPIRY_ATTEMPTS {
        match fairway_postgres::expire_payloads(owner_url, retention).await {
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
        "some expired payloads were not dropped, because queries use them; retrying in 24 h"
    );
}
