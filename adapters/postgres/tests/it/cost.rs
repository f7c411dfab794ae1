//! What a run costs the database: two round trips, two commits, and little to write.

use crate::stage::{World, acceptance, connected, ending, open, scope};
use fairway_domain::execution::ports::{Accepted, AcceptedOn, ExecutionStore};
use fairway_domain::release::ports::PlacedRelease;
use fairway_postgres::{Database, create_database, migrate};
use fairway_private_postgres::{Binaries, PrivateServer, state};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering},
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
/// Most bytes of WAL that one run may write, without full-page images.
const WAL: i64 = 12 * 1024;

/// A server of one's own: what others write would be counted too.
fn quiet_server() -> PrivateServer {
    fairway_testkit::init();
    let binaries = Binaries::find(&state::directory().unwrap()).unwrap();
    PrivateServer::throwaway(binaries, vec![("autovacuum".to_owned(), "off".to_owned())]).unwrap()
}

/// A man in the middle who counts how often the client speaks after it was answered.
struct Turns {
    port: u16,
    count: Arc<AtomicI64>,
}

impl Turns {
    async fn before(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let count = Arc::new(AtomicI64::new(0));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = TcpStream::connect(("127.0.0.1", server)).await.unwrap().into_split();
                let answered = Arc::new(AtomicBool::new(true));
                tokio::spawn(pass(from_client, to_server, Arc::clone(&answered), Some(Arc::clone(&counted))));
                tokio::spawn(pass(from_server, to_client, answered, None));
            }
        });
        Self { port, count }
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    answered: Arc<AtomicBool>,
    count: Option<Arc<AtomicI64>>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(read @ 1..) = from.read(&mut buffer).await else { return };
        match &count {
            Some(count) if answered.swap(false, Ordering::SeqCst) => {
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

async fn runs(store: &Database, placed: &PlacedRelease, on: AcceptedOn, number: i64) {
    for _ in 0..number {
        let run = acceptance(placed);
        assert_eq!(store.accept(scope(), &run, on, None).await.unwrap(), Accepted::Yes);
        store.finish(scope(), &ending(&run)).await.unwrap();
    }
}

/// Commits of the database, once everybody has handed theirs in. Asked from another database, where asking counts.
async fn commits(elsewhere: &Client) -> i64 {
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'cost'";
    while elsewhere.query_one(others, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        tokio::task::yield_now().await;
    }
    let sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = 'cost'";
    elsewhere.query_one(sql, &[]).await.unwrap().get(0)
}

/// Commits of a number of runs over a connection of their own, with what connecting and preparing costs.
async fn commits_of(elsewhere: &Client, url: &str, number: i64, (placed, on): (&PlacedRelease, AcceptedOn)) -> i64 {
    let before = commits(elsewhere).await;
    let store = open(url, 1);
    runs(&store, placed, on, number).await;
    drop(store);
    commits(elsewhere).await - before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_two_round_trips_two_commits_and_under_twelve_kibibytes_of_wal() {
    let server = quiet_server();
    create_database(&server.url("postgres"), "cost").await.unwrap();
    let url = server.url("cost");
    migrate(&url).await.unwrap();
    let world = World::new(&url, 1).await;
    let (workload, placed) = world.active().await;
    let on = world.accepted_on(&workload, &placed).await;

    let turns = Turns::before(server.port()).await;
    let through = url.replace(&format!(":{}/", server.port()), &format!(":{}/", turns.port));
    let store = open(&through, 1);
    runs(&store, &placed, on, 3).await;
    let before = turns.count.load(Ordering::SeqCst);
    let position = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";
    let wal_before = world.number(position).await;
    runs(&store, &placed, on, RUNS).await;
    let wal = (world.number(position).await - wal_before) / RUNS;
    assert_eq!(turns.count.load(Ordering::SeqCst) - before, 2 * RUNS);
    assert!(wal < WAL, "{wal} bytes of WAL a run");
    assert!(wal > 500, "{wal} bytes of WAL a run cannot be all");
    drop(store);

    // The world's own counts must not come in between.
    drop(world);
    let elsewhere = connected(&server.url("postgres")).await;
    let few = commits_of(&elsewhere, &url, 10, (&placed, on)).await;
    let many = commits_of(&elsewhere, &url, 10 + RUNS, (&placed, on)).await;
    assert_eq!(many - few, 2 * RUNS);
}
