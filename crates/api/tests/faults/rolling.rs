//! R22: two servers and two workers over one database are restarted in turn under load, and nobody who speaks to them notices.

use crate::{
    process::{Place, Server, until},
    remote::inputs,
    wire::{Question, Spoken, Wire},
};
use fairway_testkit::{TestDatabase, is_long};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;
use uuid::Uuid;

const CLIENTS: usize = 6;
/// Answers between two restarts.
const BETWEEN: usize = 40;
/// Decides when the next server is restarted, the same in every run.
const SEED: u64 = 0x0C0F_FEE5;
/// Requests that a client sends on one connection before it opens another one, to the other server.
const ON_ONE_CONNECTION: usize = 16;
/// How long a server's end may take.
const END: Duration = Duration::from_secs(30);
/// How long a client looks for a server that takes its connection; one of them always should.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at a run in line.
const LOOK: Duration = Duration::from_millis(20);
/// A lease that nobody sees the end of: a run that is left to lapse is missed.
const LEASE: &str = "60s";

/// What the clients wrote down.
#[derive(Default)]
struct Book {
    /// The run that each key was answered with.
    runs: Mutex<BTreeMap<String, Uuid>>,
    answers: AtomicUsize,
    /// Answers that said that their connection ends.
    goodbyes: AtomicUsize,
    closed: AtomicBool,
}

/// A client behind a balancer: it speaks to either server, and where a connection is refused or was closed between
/// requests, it takes the same request to the other one.
struct Caller {
    servers: [SocketAddr; 2],
    at: usize,
    wire: Option<(Wire, usize)>,
    book: Arc<Book>,
}

impl Caller {
    async fn get(&mut self, question: Question<'_>) -> Spoken {
        let since = Instant::now();
        loop {
            assert!(since.elapsed() < PATIENCE, "neither server takes {}", question.path);
            let (mut wire, asked) = match self.wire.take() {
                Some(open) => open,
                None => match Wire::open(self.servers[self.at % 2]).await {
                    Some(wire) => (wire, 0),
                    None => {
                        self.at += 1;
                        continue;
                    }
                },
            };
            let Some(spoken) = wire.ask(&question).await else {
                self.at += 1;
                continue;
            };
            assert!(spoken.status < 500, "{}: {spoken:?}", question.path);
            self.book.answers.fetch_add(1, Ordering::SeqCst);
            if spoken.says_goodbye {
                self.book.goodbyes.fetch_add(1, Ordering::SeqCst);
                wire.ends().await;
                self.at += 1;
            } else if asked + 1 == ON_ONE_CONNECTION {
                self.at += 1;
            } else {
                self.wire = Some((wire, asked + 1));
            }
            return spoken;
        }
    }

    /// Runs the workload under a key of its own, and reads the run, until the book is closed. Every other run waits in line,
    /// and its end comes long before a lease would lapse.
    async fn work(mut self, path: String) {
        let body = inputs();
        let in_line = format!("{path}?mode=async");
        let mut waits = self.at.is_multiple_of(2);
        while !self.book.closed.load(Ordering::SeqCst) {
            let key = Uuid::now_v7().to_string();
            waits = !waits;
            if waits {
                let accepted = self.get(Question { path: &in_line, posts: Some((&body, &key)) }).await;
                assert_eq!(accepted.status, 202, "{accepted:?}");
                let run = id(&accepted);
                self.book.runs.lock().unwrap().insert(key, run);
                let since = Instant::now();
                loop {
                    let read = self.get(Question { path: &format!("/v1/executions/{run}"), posts: None }).await;
                    if read.body["outcome"] == "success" {
                        break;
                    }
                    assert!(since.elapsed() < PATIENCE && read.body["outcome"].is_null(), "{read:?}");
                    tokio::time::sleep(LOOK).await;
                }
                continue;
            }
            let ran = loop {
                let spoken = self.get(Question { path: &path, posts: Some((&body, &key)) }).await;
                // A request that was sent twice may find itself still under way.
                match spoken.status {
                    200 => break spoken,
                    202 | 409 => {}
                    _ => panic!("{spoken:?}"),
                }
            };
            let run = id(&ran);
            self.book.runs.lock().unwrap().insert(key, run);
            let read = self.get(Question { path: &format!("/v1/executions/{run}"), posts: None }).await;
            assert_eq!((read.status, read.body["outcome"].as_str()), (200, Some("success")), "{read:?}");
        }
    }
}

fn id(spoken: &Spoken) -> Uuid {
    let text = spoken.body.get("execution_id").and_then(Value::as_str);
    text.and_then(|text| Uuid::parse_str(text).ok()).unwrap_or_else(|| panic!("no run in {spoken:?}"))
}

/// A pseudo-random sequence (xorshift64).
fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state % 1_000_003).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_are_restarted_in_turn_and_nobody_notices() {
    let database = TestDatabase::create().await.unwrap();
    let first = Place::new(&database.url()).setting("FAIRWAY_WORKER_LEASE", LEASE);
    let beside = || Place::beside(&first).setting("FAIRWAY_WORKER_LEASE", LEASE);
    let homes = [beside(), beside()];
    let places = [beside(), first];
    let mut servers: Vec<Server> = Vec::new();
    for place in &places {
        let mut server = place.front();
        server.ready().await;
        servers.push(server);
    }
    let mut workers: Vec<Server> = homes.iter().map(Place::worker).collect();
    let path = servers[0].remote.runnable().await;

    let book = Arc::new(Book::default());
    let mut clients = JoinSet::new();
    for at in 0..CLIENTS {
        let addresses = [places[0].address, places[1].address];
        let caller = Caller { servers: addresses, at, wire: None, book: Arc::clone(&book) };
        clients.spawn(caller.work(path.clone()));
    }
    let mut chance = SEED;
    let heard = async |clients: &mut JoinSet<()>, more: usize| {
        let wanted = book.answers.load(Ordering::SeqCst) + more;
        until("answers", END, async || {
            // A client that ended has something to say.
            if let Some(ended) = clients.try_join_next() {
                ended.unwrap();
            }
            book.answers.load(Ordering::SeqCst) >= wanted
        })
        .await;
    };
    let rounds = if is_long() { 20 } else { 2 };
    for turn in 0..rounds * servers.len() {
        heard(&mut clients, BETWEEN / 2 + next(&mut chance) % BETWEEN).await;
        let (server, place) = (turn % servers.len(), &places[turn % places.len()]);
        let goodbyes = book.goodbyes.load(Ordering::SeqCst);
        servers[server].terminate();
        let status = servers[server].ended_within(END).await;
        assert!(status.success(), "{status}: {}", servers[server].said());
        until("a goodbye", PATIENCE, async || book.goodbyes.load(Ordering::SeqCst) > goodbyes).await;
        servers[server] = place.front();
        servers[server].ready().await;
        heard(&mut clients, BETWEEN / 4).await;
        workers[server].terminate();
        let status = workers[server].ended_within(END).await;
        assert!(status.success(), "{status}: {}", workers[server].said());
        workers[server] = homes[server].worker();
    }
    heard(&mut clients, BETWEEN).await;
    book.closed.store(true, Ordering::SeqCst);
    clients.join_all().await;

    let owner = database.owner().await.unwrap();
    let runs = book.runs.lock().unwrap().clone();
    let rows = owner.query("SELECT execution_id, outcome FROM execution", &[]).await.unwrap();
    let stored: BTreeMap<Uuid, Option<String>> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    for (key, run) in &runs {
        assert_eq!(stored.get(run), Some(&Some("success".to_owned())), "{key}");
    }
    assert_eq!(stored.len(), runs.len(), "each key has a run of its own, and there is no other");
    let count = async |sql: &str| owner.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    let ends = "SELECT count(*) FROM execution LEFT JOIN (
            SELECT (convert_from(body, 'UTF8')::json -> 'subject' ->> 'id')::uuid AS execution_id, count(*) AS told
            FROM fact WHERE kind LIKE 'execution.%' GROUP BY 1) AS ended USING (execution_id)
        WHERE told IS DISTINCT FROM 1";
    assert_eq!(count(ends).await, 0, "each run has one end in the log");
    assert_eq!(count("SELECT count(*) FROM execution_lease").await, 0, "nothing is left for recovery");
    assert_eq!(count("SELECT count(*) FROM execution_queue").await, 0, "nothing is left in line");
}
