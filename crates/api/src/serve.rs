//! `fairway-server serve`: everything started in order, and stopped in the opposite one.

use crate::{
    app,
    compose::{Api, Parts, Process, Works},
    config::{Database, LocalModeExposure, Settings},
    http::{connection::Guarded, leaving::Leaving},
    local_mode::warn_of_exposure_forever,
};
use actix_http::{HttpService, Protocol};
use actix_server::Server;
pub use actix_server::ServerHandle;
use actix_service::{IntoServiceFactory as _, ServiceFactoryExt as _, fn_service, map_config};
use actix_web::{dev::AppConfig, rt::net::TcpStream, web};
use anyhow::Context as _;
use fairway_operations::{
    asset::Verified,
    rollout::{Landed, pilot_until},
};
use fairway_postgres::agrees_with_schema as agrees;
use fairway_private_postgres::{Binaries, Options, PrivateServer, StartError, state};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
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

/// Database of a private server.
const DATABASE: &str = "fairway";
/// How long the end is announced before connections are closed: a client that is busy hears it with its next answer, a
/// balancer with its next look at `/readyz`. A connection that was closed without a word may already carry a request.
const ANNOUNCED: Duration = Duration::from_millis(500);
/// How long requests under way may take once the server is told to stop, in seconds.
const DRAIN: u64 = 20;
/// How long runs under way may take once nobody is served any more. Then they are handed back.
const RUNS_END: Duration = Duration::from_secs(5);
/// The same in a worker, which has nothing else to end.
const WORKER_ENDS: Duration = Duration::from_secs(20);
/// How long a connection may lie idle between two requests, unless heads of requests are given less.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// How long a client may take to close its side once it was told to.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often partitions are made ahead of time, and those whose time is over are dropped.
const UPKEEP: Duration = Duration::from_secs(24 * 60 * 60);
/// How often payloads are tried to be dropped while somebody is in the way, and how long between.
const EXPIRY_TRIES: u32 = 20;
const EXPIRY_PAUSE: Duration = Duration::from_secs(15);

/// The two addresses of the database, and the private server behind them if it is ours.
pub struct DatabaseAddress {
    /// The service's.
    pub url: String,
    /// The owner's, for migrations.
    pub owner_url: String,
    private: Option<PrivateServer>,
}

impl DatabaseAddress {
    /// Finds the database of the settings, and starts it where it is a private one.
    ///
    /// # Errors
    /// When a private server cannot be found or started.
    pub async fn open(settings: &Settings) -> anyhow::Result<Self> {
        match (&settings.database, &settings.migrate_database) {
            (Database::Url(url), owner) => {
                let url = url.expose().to_owned();
                let owner_url = match owner {
                    Database::Url(owner) => owner.expose().to_owned(),
                    Database::Embedded => url.clone(),
                };
                Ok(Self { url, owner_url, private: None })
            }
            (Database::Embedded, _) => {
                let data_dir = settings.data_dir.clone();
                let server = tokio::task::spawn_blocking(move || start_private(&data_dir)).await??;
                let url = server.url(DATABASE);
                fairway_postgres::create_database(&server.url("postgres"), DATABASE)
                    .await
                    .context("the private PostgreSQL has no database for Fairway")?;
                Ok(Self { owner_url: url.clone(), url, private: Some(server) })
            }
        }
    }

    /// The same, also where another process runs the private server.
    ///
    /// # Errors
    /// When a private server cannot be found or started, or is just starting or stopping.
    pub async fn open_beside(settings: &Settings) -> anyhow::Result<Self> {
        if settings.database == Database::Embedded
            && let Ok(url) = Self::of_running(settings).await
        {
            return Ok(Self { owner_url: url.clone(), url, private: None });
        }
        Self::open(settings).await
    }

    /// Finds the database of the settings for a look at what is there: beside the server that runs on it, or without
    /// one. Nothing is made, and nothing is brought up to date.
    ///
    /// # Errors
    /// When it cannot be found or started, or holds nothing of Fairway.
    pub async fn look(settings: &Settings) -> anyhow::Result<Self> {
        let found = match &settings.database {
            Database::Url(_) => Self::open(settings).await?,
            Database::Embedded => {
                let data_dir = settings.data_dir.clone();
                tokio::task::spawn_blocking(move || find_private(&data_dir)).await?.context(WHERE)?
            }
        };
        match fairway_postgres::holds_schema(&found.url).await {
            Ok(true) => Ok(found),
            held => {
                found.close().await?;
                held.context("the database cannot be reached")?;
                anyhow::bail!("the database holds nothing of Fairway: {WHERE}")
            }
        }
    }

    /// The service's address of the database of the settings, where a private one runs already: its server has it started.
    ///
    /// # Errors
    /// When no private server runs there.
    pub async fn of_running(settings: &Settings) -> anyhow::Result<String> {
        match &settings.database {
            Database::Url(url) => Ok(url.expose().to_owned()),
            Database::Embedded => {
                let data_dir = settings.data_dir.clone();
                let find = move || anyhow::Ok(PrivateServer::url_of_running(&private(&data_dir)?.data_dir, DATABASE)?);
                tokio::task::spawn_blocking(find).await?.context("no server runs here").context(WHERE)
            }
        }
    }

    /// Stops the private server, if there is one.
    ///
    /// # Errors
    /// When it does not stop.
    pub async fn close(self) -> anyhow::Result<()> {
        let Some(server) = self.private else { return Ok(()) };
        tokio::task::spawn_blocking(move || server.stop()).await??;
        Ok(())
    }
}

/// How long a pilot waits before it looks again for a database that is away.
const AWAY: Duration = Duration::from_secs(1);

/// What to do where a database was to be looked at and is not there.
const WHERE: &str = "run this where the server runs, or name its data in FAIRWAY_DATA_DIR or FAIRWAY_DATABASE_URL";

fn start_private(data_dir: &Path) -> anyhow::Result<PrivateServer> {
    Ok(PrivateServer::start(private(data_dir)?)?)
}

/// The private server that another process runs on this directory; else it is started, if it was made before.
fn find_private(data_dir: &Path) -> anyhow::Result<DatabaseAddress> {
    let options = private(data_dir)?;
    let directory = options.data_dir.clone();
    let (url, private) = match PrivateServer::start_existing(options) {
        Ok(server) => (server.url(DATABASE), Some(server)),
        Err(StartError::InUse { .. }) => (PrivateServer::url_of_running(&directory, DATABASE)?, None),
        Err(error) => return Err(error.into()),
    };
    Ok(DatabaseAddress { owner_url: url.clone(), url, private })
}

fn private(data_dir: &Path) -> anyhow::Result<Options> {
    let state = state::directory().context("no directory for the state of private servers")?;
    let binaries = Binaries::find(&state).context("no PostgreSQL was found; `cargo xtask up` installs one")?;
    Ok(Options::of_data_directory(binaries, data_dir))
}

/// A server that listens.
pub struct Listening {
    /// To be awaited until it has stopped.
    pub server: Server,
    /// Stops it.
    pub handle: ServerHandle,
    /// The relays; they end when this is dropped.
    pub relays: JoinSet<()>,
}

/// Starts the workers and the relays on a listener.
///
/// # Errors
/// When a worker's connections cannot be set up or the listener cannot be used.
pub fn listen(
    settings: &Settings,
    process: &Process,
    listener: TcpListener,
    works: Works,
) -> anyhow::Result<Listening> {
    let mut relays = process.start_relays(works)?;
    if settings.local_mode_exposure == LocalModeExposure::Accepted {
        relays.spawn(warn_of_exposure_forever());
    }
    let base = web::Data::new(process.base(settings));
    let documents = web::Data::new(process.documents.clone());
    // One set of connections for each worker, made here so that a wrong address is an error and not a panic there.
    let count = thread::available_parallelism().map_or(1, usize::from);
    let workers = Workers::new(process, count)?;
    let header_timeout = settings.header_timeout;
    let keep_alive = KEEP_ALIVE.min(header_timeout);
    let builder = Server::build().workers(count).shutdown_timeout(DRAIN).disable_signals();
    let draining = builder.graceful_shutdown_signal();
    // What `HttpServer` of the framework would do, but over connections that are guarded.
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
                .client_disconnect_timeout(FAREWELL)
                .on_connect_ext(|connection: &Guarded<TcpStream>, data| {
                    data.insert(connection.line());
                })
                .finish(map_config(app, |()| AppConfig::default()));
            fn_service(move |socket: TcpStream| async move {
                // A stream says little things one after the other, and each would wait until the one before is acknowledged,
                // which clients put off for 40 ms. Where it cannot be said, the connection is gone.
                let _ = socket.set_nodelay(true);
                let peer = socket.peer_addr().ok();
                Ok((Guarded::new(socket, keep_alive.saturating_add(header_timeout)), Protocol::Http1, peer))
            })
            .and_then(http)
        })?
        .run();
    let handle = server.handle();
    Ok(Listening { server, handle, relays })
}

/// The connections of each worker thread, handed out as the threads start.
#[derive(Clone)]
struct Workers {
    first: Api,
    others: Arc<[Api]>,
    taken: Arc<AtomicUsize>,
}

impl Workers {
    fn new(process: &Process, count: usize) -> anyhow::Result<Self> {
        let others = (1..count).map(|_| process.worker()).collect::<anyhow::Result<Arc<[Api]>>>()?;
        Ok(Self { first: process.worker()?, others, taken: Arc::default() })
    }

    /// The next thread's; a thread that replaces a crashed one shares with another.
    fn next(&self) -> Api {
        let index = self.taken.fetch_add(1, Ordering::Relaxed);
        self.others.get(index).unwrap_or(&self.first).clone()
    }
}

/// Serves until SIGTERM or SIGINT, then says so, drains and ends.
///
/// # Errors
/// When something that is needed cannot be started.
pub async fn serve(settings: &Settings, works: Works) -> anyhow::Result<()> {
    allow_many_connections();
    fairway_memory_limit::limit_process(settings.memory_limit);
    let listener =
        TcpListener::bind(settings.bind).with_context(|| format!("{} cannot be listened on", settings.bind))?;
    let database = DatabaseAddress::open(settings).await?;
    let served = serve_over(settings, &database, listener, works).await;
    let closed = database.close().await;
    served.and(closed)
}

/// Takes as many open files as the system allows this process at all. What programs are started with is often 1 024, and so
/// many connections on which nothing happens would leave no room for others.
fn allow_many_connections() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, allowed)| setrlimit(Resource::RLIMIT_NOFILE, allowed, allowed).map(|()| allowed));
    match raised {
        Ok(allowed) => tracing::info!(allowed, "open files"),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "the limit on open files stays as it is")
        }
    }
}

async fn serve_over(
    settings: &Settings,
    database: &DatabaseAddress,
    listener: TcpListener,
    works: Works,
) -> anyhow::Result<()> {
    fairway_postgres::migrate(&database.owner_url).await.context("the database cannot be brought up to date")?;
    let process = Process::new(settings, database.url.clone(), Parts::of(settings)?)?;
    // An answer that a person looked at late is kept as long as any other.
    let kept = settings.result_retention.saturating_add(settings.review_deadline);
    tokio::spawn(keep_partitions(database.owner_url.clone(), kept));
    let Listening { server, handle, mut relays } = listen(settings, &process, listener, works)?;
    tracing::info!(bind = %settings.bind, "Fairway listens");
    let services = process.services().clone();
    tokio::spawn(async move {
        if let Err(error) = services.provision_generators().await {
            tracing::warn!(error = &error as &dyn std::error::Error, "generators could not be provisioned");
        }
    });
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut server = tokio::spawn(server);
    tokio::select! {
        ended = &mut server => ended??,
        _ = terminate.recv() => stop(process.leaving(), &handle, server).await?,
        _ = interrupt.recv() => stop(process.leaving(), &handle, server).await?,
    }
    process.services().let_runs_end(RUNS_END).await;
    match process.services().hand_back().await {
        Ok(runs) => tracing::info!(runs, "Fairway has stopped"),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "runs under way could not be handed back");
        }
    }
    relays.shutdown().await;
    Ok(())
}

/// Compares every version's row, checksum and artifact, beside a running server or without one.
///
/// # Errors
/// When the database or the artifact store cannot be reached, or there is none.
pub async fn verify_artifacts(settings: &Settings) -> anyhow::Result<Verified> {
    let database = DatabaseAddress::look(settings).await?;
    let verified = async {
        let process = Process::new(settings, database.url.clone(), Parts::of(settings)?)?;
        anyhow::Ok(process.services().verify_artifacts().await?)
    };
    let verified = verified.await;
    database.close().await?;
    verified
}

/// Goes on with rollouts until SIGTERM or SIGINT, beside the servers of the same database. A private PostgreSQL is its
/// server's: it is never started here, and looked for anew when it was started again at another address.
///
/// # Errors
/// When no server has run there since this one was started, or its schema is another one.
pub async fn pilot_rollouts(settings: &Settings) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let told = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let mut told = pin!(told);
    let mut address = DatabaseAddress::of_running(settings).await?;
    let mut agreed = agrees(&address).await.context("the database cannot be looked at")?;
    loop {
        if !agreed {
            anyhow::bail!("the database has the schema of another version: run the pilot of the servers' version");
        }
        let process = Process::new(settings, address.clone(), Parts::of(settings)?)?;
        tracing::info!("the rollout pilot looks around");
        if pilot_until(process.services(), told.as_mut()).await == Landed::Told {
            tracing::info!("the rollout pilot has stopped");
            return Ok(());
        }
        // It may be back, and elsewhere: a private one has another port each time.
        while let Err(error) = async {
            address = DatabaseAddress::of_running(settings).await?;
            agreed = agrees(&address).await?;
            anyhow::Ok(())
        }
        .await
        {
            tracing::warn!(error = format!("{error:#}"), "the database is away");
            tokio::select! {
                () = told.as_mut() => return Ok(()),
                () = tokio::time::sleep(AWAY) => {}
            }
        }
    }
}

/// Works on runs that wait in line until SIGTERM or SIGINT, beside the servers of the same database. What it began it ends
/// or hands back.
///
/// # Errors
/// When this deployment has no workers, no server has run there since this one was started, or its schema is another one.
pub async fn work(settings: &Settings) -> anyhow::Result<()> {
    if !settings.dispatch.has_workers() {
        anyhow::bail!("this deployment has no workers: `dispatch` is `{}`", settings.dispatch.as_str());
    }
    fairway_memory_limit::limit_process(settings.memory_limit);
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let address = DatabaseAddress::of_running(settings).await?;
    if !agrees(&address).await.context("the database cannot be looked at")? {
        anyhow::bail!("the database has the schema of another version: run the worker of the servers' version");
    }
    let process = Process::new(settings, address, Parts::of(settings)?)?;
    let mut relays = process.start_worker(Works::Yes)?;
    tracing::info!("the worker looks for runs");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping: no new runs, those under way end");
    process.services().let_runs_end(WORKER_ENDS).await;
    let runs = process.services().hand_back().await?;
    relays.shutdown().await;
    tracing::info!(runs, "the worker has stopped");
    Ok(())
}

async fn stop(
    leaving: &Leaving,
    handle: &ServerHandle,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
) -> anyhow::Result<()> {
    tracing::info!("stopping: clients are told to go");
    leaving.announce();
    tokio::time::sleep(ANNOUNCED).await;
    tracing::info!("stopping: no new connections, requests under way end");
    handle.stop(true).await;
    Ok(server.await??)
}

async fn keep_partitions(owner_url: String, kept: Duration) {
    loop {
        expire_payloads(&owner_url, kept).await;
        tokio::time::sleep(UPKEEP).await;
        match fairway_postgres::prepare_partitions(&owner_url).await {
            Ok(made) => tracing::info!(made, "partitions are made ahead"),
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "partitions could not be made ahead");
            }
        }
    }
}

/// Somebody who reads for long, such as a backup, is in the way; nobody waits behind a drop that waits for that.
async fn expire_payloads(owner_url: &str, kept: Duration) {
    for _ in 0..EXPIRY_TRIES {
        match fairway_postgres::expire_payloads(owner_url, kept).await {
            Ok(expired) => {
                if !expired.months.is_empty() {
                    tracing::info!(months = expired.months.join(", "), "payloads whose time is over are dropped");
                }
                if !expired.busy {
                    return;
                }
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "payloads could not be dropped");
                return;
            }
        }
        tokio::time::sleep(EXPIRY_PAUSE).await;
    }
    tracing::warn!("payloads whose time is over are in use; they are dropped another day");
}
