//! Database cost of a run: two round trips, two commits, and few bytes of write-ahead log (WAL).

use crate::fixture::{StoreFixture, acceptance, connect, ending, open_store, scope};
use fairway_domain::{
    execution::ports::{AcceptOutcome, ExpectedRevisions, RunStore},
    release::ports::ReleaseWithDeployment,
};
use fairway_managed_postgres::{Binaries, ManagedServer, state_directories};
use fairway_postgres::{Database, create_database, migrate};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Instant,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};
use tokio_postgres::Client;

const RUNS: i64 = 100;
/// Maximum bytes of WAL for one run, without full-page images.
const WAL: i64 = 12 * 1024;

/// Starts a separate PostgreSQL server, because the counters of a shared server would include writes of other tests.
fn quiet_server() -> ManagedServer {
    fairway_testkit::install_crypto_provider();
    let binaries = Binaries::find(&state_directories::directory().unwrap()).unwrap();
    ManagedServer::start_temporary(binaries, vec![("autovacuum".to_owned(), "off".to_owned())]).unwrap()
}

/// The message with which the store discards the plans of a connection: a query of the simple protocol.
const DISCARD_PLANS: &[u8] = b"Q\0\0\0\x12DISCARD PLANS\0";

/// Numbers of client turns on proxied connections. A turn is a message that the client sends after a response.
#[derive(Default)]
struct Counts {
    /// Turns that execute statements.
    turns: AtomicI64,
    /// Turns that discard plans. Their number depends on the age of the connection, and not on the number of runs.
    discards: AtomicI64,
}

impl Counts {
    fn turns(&self) -> i64 {
        self.turns.load(Ordering::SeqCst)
    }

    fn discards(&self) -> i64 {
        self.discards.load(Ordering::SeqCst)
    }
}

/// A proxy to PostgreSQL that counts the client's turns.
struct CountingProxy {
    started_at: Instant,
    url: String,
    counts: Arc<Counts>,
}

impl CountingProxy {
    async fn in_front_of(server: &ManagedServer) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (port, server_port) = (listener.local_addr().unwrap().port(), server.port());
        let url = server.url("cost").replace(&format!(":{server_port}/"), &format!(":{port}/"));
        let counts = Arc::new(Counts::default());
        let proxy_counts = Arc::clone(&counts);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (from_client, to_client) = client.into_split();
                let server = TcpStream::connect(("127.0.0.1", server_port)).await.unwrap();
                let (from_server, to_server) = server.into_split();
                let answered = Arc::new(AtomicBool::new(true));
                tokio::spawn(forward(from_client, to_server, Arc::clone(&answered), Some(Arc::clone(&proxy_counts))));
                tokio::spawn(forward(from_server, to_client, answered, None));
            }
        });
        Self { started_at: Instant::now(), url, counts }
    }

    /// Asserts that plans are not discarded too often. No connection is older than the proxy. Each connection
    /// discards its plans after 1, 2, 4 seconds and so on, and later once a minute.
    fn assert_plans_are_kept(&self) {
        let seconds = self.started_at.elapsed().as_secs();
        let max_discards = seconds.min(64).checked_ilog2().map_or(0, |power| power + 1);
        let max_discards = i64::from(max_discards) + i64::try_from(seconds / 64).unwrap();
        assert!(
            self.counts.discards() <= max_discards,
            "plans were discarded {} times in {seconds} s",
            self.counts.discards()
        );
    }
}

async fn forward(
    mut reader: OwnedReadHalf,
    mut writer: OwnedWriteHalf,
    answered: Arc<AtomicBool>,
    counts: Option<Arc<Counts>>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(read @ 1..) = reader.read(&mut buffer).await else { return };
        match &counts {
            Some(counts) if answered.swap(false, Ordering::SeqCst) => {
                let count = if buffer[..read] == *DISCARD_PLANS { &counts.discards } else { &counts.turns };
                count.fetch_add(1, Ordering::SeqCst);
            }
            Some(_) => {}
            None => answered.store(true, Ordering::SeqCst),
        }
        if writer.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

async fn runs(store: &Database, deployed_release: &ReleaseWithDeployment, revisions: ExpectedRevisions, number: i64) {
    for _ in 0..number {
        let run = acceptance(deployed_release);
        assert_eq!(store.accept(scope(), &run, revisions, None).await.unwrap(), AcceptOutcome::Accepted);
        store.finish(scope(), &ending(&run)).await.unwrap();
    }
}

/// The number of commits in the database, read after all its connections have closed. The query runs in another
/// database, so it is not counted.
async fn commits(other_client: &Client) -> i64 {
    let open_connections = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'cost'";
    while other_client.query_one(open_connections, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        tokio::task::yield_now().await;
    }
    let sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = 'cost'";
    other_client.query_one(sql, &[]).await.unwrap().get(0)
}

/// The number of commits for `number` runs over a new connection, including connecting and preparing. Discarding
/// plans is a transaction too, and is subtracted.
async fn commits_of(
    other_client: &Client,
    server: &ManagedServer,
    number: i64,
    deployed_release: &ReleaseWithDeployment,
    revisions: ExpectedRevisions,
) -> i64 {
    let before = commits(other_client).await;
    let proxy = CountingProxy::in_front_of(server).await;
    let store = open_store(&proxy.url, 1);
    runs(&store, deployed_release, revisions, number).await;
    drop(store);
    let commits = commits(other_client).await - before;
    proxy.assert_plans_are_kept();
    commits - proxy.counts.discards()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_costs_two_round_trips_two_commits_and_under_12_kib_of_wal() {
    let server = quiet_server();
    create_database(&server.url("postgres"), "cost").await.unwrap();
    let url = server.url("cost");
    migrate(&url).await.unwrap();
    let fixture = StoreFixture::new(&url, 1).await;
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;

    let proxy = CountingProxy::in_front_of(&server).await;
    let store = open_store(&proxy.url, 1);
    runs(&store, &deployed_release, revisions, 3).await;
    let before = proxy.counts.turns();
    let position = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";
    let wal_before = fixture.query_number(position).await;
    runs(&store, &deployed_release, revisions, RUNS).await;
    let wal = (fixture.query_number(position).await - wal_before) / RUNS;
    assert_eq!(proxy.counts.turns() - before, 2 * RUNS);
    proxy.assert_plans_are_kept();
    assert!(wal < WAL, "{wal} bytes of WAL a run");
    assert!(wal > 500, "{wal} bytes of WAL a run are implausibly few");
    drop(store);

    // Closes the fixture's connections, because their statements would be counted.
    drop(fixture);
    let other_client = connect(&server.url("postgres")).await;
    let few_runs = commits_of(&other_client, &server, 10, &deployed_release, revisions).await;
    let many_runs = commits_of(&other_client, &server, 10 + RUNS, &deployed_release, revisions).await;
    assert_eq!(many_runs - few_runs, 2 * RUNS);
}
