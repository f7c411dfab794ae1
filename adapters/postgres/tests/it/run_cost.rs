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
    began: Instant,
    url: String,
    counts: Arc<Counts>,
}

impl CountingProxy {
    async fn in_front_of(server: &ManagedServer) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (port, server_port) = (listener.local_addr().unwrap().port(), server.port());
        let url = server.url("cost").replace(&format!(":{server_port}/"), &format!(":{port}/"));
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (from_client, to_client) = client.into_split();
                let server = TcpStream::connect(("127.0.0.1", server_port)).await.unwrap();
                let (from_server, to_server) = server.into_split();
                let answered = Arc::new(AtomicBool::new(true));
                tokio::spawn(forward(from_client, to_server, Arc::clone(&answered), Some(Arc::clone(&counted))));
                tokio::spawn(forward(from_server, to_client, answered, None));
            }
        });
        Self { began: Instant::now(), url, counts }
    }

    /// Asserts that plans are not discarded too often. No connection is older than the proxy. Each connection
    /// discards its plans after 1, 2, 4 seconds and so on, and later once a minute.
    fn assert_plans_are_kept(&self) {
        let seconds = self.began.elapsed().as_secs();
        let most = seconds.min(64).checked_ilog2().map_or(0, |power| power + 1);
        let most = i64::from(most) + i64::try_from(seconds / 64).unwrap();
        assert!(self.counts.discards() <= most, "plans were discarded {} times in {seconds} s", self.counts.discards());
    }
}

async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    answered: Arc<AtomicBool>,
    counts: Option<Arc<Counts>>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(read @ 1..) = from.read(&mut buffer).await else { return };
        match &counts {
            Some(counts) if answered.swap(false, Ordering::SeqCst) => {
                let count = if buffer[..read] == *DISCARD_PLANS { &counts.discards } else { &counts.turns };
                count.fetch_add(1, Ordering::SeqCst);
            }
            Some(_) => {}
            None => answered.store(true, Ordering::SeqCst),
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

async fn runs(store: &Database, placed: &ReleaseWithDeployment, on: ExpectedRevisions, number: i64) {
    for _ in 0..number {
        let run = acceptance(placed);
        assert_eq!(store.accept(scope(), &run, on, None).await.unwrap(), AcceptOutcome::Accepted);
        store.finish(scope(), &ending(&run)).await.unwrap();
    }
}

/// The number of commits in the database, read after all its connections have closed. The query runs in another
/// database, so it is not counted.
async fn commits(elsewhere: &Client) -> i64 {
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'cost'";
    while elsewhere.query_one(others, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        tokio::task::yield_now().await;
    }
    let sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = 'cost'";
    elsewhere.query_one(sql, &[]).await.unwrap().get(0)
}

/// The number of commits for `number` runs over a new connection, including connecting and preparing. Discarding
/// plans is a transaction too, and is subtracted.
async fn commits_of(
    elsewhere: &Client,
    server: &ManagedServer,
    number: i64,
    placed: &ReleaseWithDeployment,
    on: ExpectedRevisions,
) -> i64 {
    let before = commits(elsewhere).await;
    let turns = CountingProxy::in_front_of(server).await;
    let store = open_store(&turns.url, 1);
    runs(&store, placed, on, number).await;
    drop(store);
    let commits = commits(elsewhere).await - before;
    turns.assert_plans_are_kept();
    commits - turns.counts.discards()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_costs_two_round_trips_two_commits_and_under_12_kib_of_wal() {
    let server = quiet_server();
    create_database(&server.url("postgres"), "cost").await.unwrap();
    let url = server.url("cost");
    migrate(&url).await.unwrap();
    let world = StoreFixture::new(&url, 1).await;
    let (workload, placed) = world.active().await;
    let on = world.accepted_on(&workload, &placed).await;

    let turns = CountingProxy::in_front_of(&server).await;
    let store = open_store(&turns.url, 1);
    runs(&store, &placed, on, 3).await;
    let before = turns.counts.turns();
    let position = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";
    let wal_before = world.query_number(position).await;
    runs(&store, &placed, on, RUNS).await;
    let wal = (world.query_number(position).await - wal_before) / RUNS;
    assert_eq!(turns.counts.turns() - before, 2 * RUNS);
    turns.assert_plans_are_kept();
    assert!(wal < WAL, "{wal} bytes of WAL a run");
    assert!(wal > 500, "{wal} bytes of WAL a run are implausibly few");
    drop(store);

    // Closes the fixture's connections, because their statements would be counted.
    drop(world);
    let elsewhere = connect(&server.url("postgres")).await;
    let few = commits_of(&elsewhere, &server, 10, &placed, on).await;
    let many = commits_of(&elsewhere, &server, 10 + RUNS, &placed, on).await;
    assert_eq!(many - few, 2 * RUNS);
}
