//! R1, R2, R12: two servers and several workers, processes of their own on one database, of which any dies, stands still or is
//! cut off, and the database with them: nothing that was acknowledged is lost, everything ends once, and a link is used as
//! often as it may be.

use crate::{
    postgres::Postgres,
    process::{Place, Server, until},
    remote::{Remote, inputs},
};
use fairway_testkit::{FaultyLine, LineFault, is_long};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::task::JoinSet;
use tokio_postgres::Client;
use uuid::Uuid;

const CLIENTS: usize = 6;
const FRONTS: usize = 2;
/// How often the link may be used.
const USES: i64 = 60;
/// Between two requests of a client.
const PACE: Duration = Duration::from_millis(25);
/// Answers between two faults.
const BETWEEN: usize = 30;
/// Three leases of a worker, as [`Place`] sets them.
const THREE_LEASES: Duration = Duration::from_secs(6);
/// How long after the last fault every run must have an end, as is promised.
const SETTLED: Duration = Duration::from_secs(60);
/// Refusals after which whoever holds the link believes them.
const REFUSALS: usize = 5;
/// Tries to freeze or cut off workers that have runs.
const TRIES: usize = 10;
const SEED: u64 = 0xF1EE7;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    /// A server or a worker is killed, and started again.
    Killed,
    /// A worker stands still for three leases, and goes on as if nothing had been.
    Frozen,
    /// A worker does not reach the database for three leases.
    CutOff,
    /// PostgreSQL loses its memory.
    Crashed,
}

/// Keeps a row of each run that a worker took over from one that fell silent.
const NOTE_TAKEOVERS: &str = "CREATE TABLE taken_over (execution_id uuid);
    CREATE FUNCTION note_takeover() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        INSERT INTO taken_over VALUES (NEW.execution_id);
        RETURN NULL;
    END $$;
    CREATE TRIGGER noted AFTER UPDATE ON execution_lease FOR EACH ROW
    WHEN (NEW.takeovers > OLD.takeovers) EXECUTE FUNCTION note_takeover();";

/// What the clients wrote down: each key that they sent, and the runs that they were ever told of under it.
#[derive(Default)]
struct Book {
    told: Mutex<BTreeMap<String, BTreeSet<Uuid>>>,
    /// Runs that whoever holds the link was told of.
    by_link: Mutex<BTreeSet<Uuid>>,
    answers: AtomicUsize,
    closed: AtomicBool,
}

/// Sends runs, each with a key of its own, now to one server and now to the other, most of them into the line.
async fn client(number: usize, remotes: [Remote; FRONTS], path: String, book: Arc<Book>) {
    let mut turn = number;
    while !book.closed.load(Ordering::SeqCst) {
        let key = Uuid::now_v7().to_string();
        book.told.lock().unwrap().entry(key.clone()).or_default();
        let path = if turn.is_multiple_of(4) { path.clone() } else { format!("{path}?mode=async") };
        for _ in 0..2 {
            turn += 1;
            tokio::time::sleep(PACE).await;
            let Ok(answer) = remotes[turn % FRONTS].post(&path, &inputs(), Some(&key)).await else { continue };
            assert!(matches!(answer.status, 200 | 202 | 409 | 429 | 503), "{answer:?}");
            book.answers.fetch_add(1, Ordering::SeqCst);
            // What else names a run says that nobody knows whether it is there.
            if matches!(answer.status, 200 | 202) {
                book.told.lock().unwrap().entry(key.clone()).or_default().extend(answer.execution());
                break;
            }
        }
    }
}

/// Uses a link until it is used up, through faults and all.
async fn holder(number: usize, remotes: [Remote; FRONTS], path: String, book: Arc<Book>) {
    let (mut turn, mut refusals) = (number, 0);
    while refusals < REFUSALS {
        turn += 1;
        tokio::time::sleep(PACE).await;
        let Ok(answer) = remotes[turn % FRONTS].post(&path, &inputs(), None).await else { continue };
        match answer.status {
            200 | 202 => assert!(book.by_link.lock().unwrap().insert(answer.execution().unwrap())),
            401 => refusals += 1,
            429 | 503 => {}
            _ => panic!("{answer:?}"),
        }
    }
}

/// A path that uses a link, and uses it at most [`USES`] times.
async fn link(remote: &Remote) -> String {
    let (workload, slug) = remote.workload().await;
    let config = json!({ "interface_config": {
        "presentation_mode": "form", "access_mode": "link_shared",
        "input_fields": [{ "name": "ticket", "type": "text" }],
    } });
    assert_eq!(remote.patch(&format!("/v1/workloads/{workload}"), &config).await.unwrap().status, 200);
    let release = remote.approved(workload).await;
    remote.make(&format!("/v1/releases/{release}/transition"), &json!({ "to_state": "active" })).await;
    let made = remote.make(&format!("/v1/workloads/{workload}/share-links"), &json!({ "max_uses": USES })).await;
    let token = made.body["token"].as_str().unwrap();
    format!("/v1/workloads/by-slug/{slug}/execute?mode=async&token={token}")
}

/// A pseudo-random sequence (xorshift64).
fn next(state: &mut u64, below: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state % 1_000_003).unwrap() % below
}

/// All faults, in an order that the seed decides.
fn faults(chance: &mut u64) -> Vec<Fault> {
    let counts = if is_long() { [200, 10, 10, 20] } else { [8, 1, 1, 2] };
    let kinds = [Fault::Killed, Fault::Frozen, Fault::CutOff, Fault::Crashed];
    let mut all: Vec<Fault> = kinds.into_iter().zip(counts).flat_map(|(kind, count)| vec![kind; count]).collect();
    for last in (1..all.len()).rev() {
        all.swap(last, next(chance, last + 1));
    }
    all
}

/// The servers, the workers, and the line of each worker to the database.
struct Fleet {
    fronts: Vec<(Place, Server)>,
    workers: Vec<(Place, Server, Arc<FaultyLine>)>,
}

impl Fleet {
    async fn start(postgres: &Postgres, workers: usize) -> Self {
        let first = postgres.place().await;
        // Whoever needs longer than a lease to commit is not what is looked for here.
        let places = [Place::beside(&first), first];
        let mut fronts = Vec::new();
        for place in places {
            let mut server = place.front();
            server.ready().await;
            fronts.push((place, server));
        }
        let workers = (0..workers).map(|number| {
            let line = FaultyLine::to_url(&postgres.url("fairway"), u64::try_from(number).unwrap());
            let place = Place::beside(&fronts[1].0).setting("FAIRWAY_DATABASE_URL", line.url());
            let worker = place.worker();
            (place, worker, line)
        });
        let workers = workers.collect();
        Self { fronts, workers }
    }

    fn kill(&mut self, victim: usize) {
        if let Some((place, server)) = self.fronts.get_mut(victim) {
            server.kill();
            *server = place.front();
        } else {
            let (place, worker, _) = &mut self.workers[victim - FRONTS];
            worker.kill();
            *worker = place.worker();
        }
    }

    /// Keeps all workers but one from going on for three leases; that one has taken over what they had.
    async fn away(&self, fault: Fault, chance: &mut u64, owner: &Client) {
        let taken_over = "SELECT count(*) FROM taken_over";
        let count = async || owner.query_one(taken_over, &[]).await.unwrap().get::<_, i64>(0);
        for _ in 0..TRIES {
            let stays = next(chance, self.workers.len());
            let others = self.workers.iter().enumerate().filter(|(number, _)| *number != stays);
            let others: Vec<&(Place, Server, Arc<FaultyLine>)> = others.map(|(_, worker)| worker).collect();
            let before = count().await;
            for (_, worker, line) in &others {
                match fault {
                    Fault::Frozen => worker.freeze(),
                    Fault::CutOff => line.becomes(LineFault::Down),
                    Fault::Killed | Fault::Crashed => unreachable!("they come back at once"),
                }
            }
            tokio::time::sleep(THREE_LEASES).await;
            for (_, worker, line) in &others {
                worker.thaw();
                line.becomes(LineFault::None);
            }
            if count().await > before {
                return;
            }
        }
        panic!("no worker had runs when it was {fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_loses_nothing_and_ends_everything_once() {
    fairway_testkit::init();
    let mut postgres = Postgres::new();
    let mut fleet = Fleet::start(&postgres, if is_long() { 8 } else { 3 }).await;
    let remotes: [Remote; FRONTS] = [fleet.fronts[0].1.remote.clone(), fleet.fronts[1].1.remote.clone()];
    let path = remotes[0].runnable().await;
    let link = link(&remotes[0]).await;
    let mut owner = postgres.client("fairway").await;
    owner.batch_execute(NOTE_TAKEOVERS).await.unwrap();

    let book = Arc::new(Book::default());
    let (mut clients, mut holders) = (JoinSet::new(), JoinSet::new());
    for number in 0..CLIENTS {
        clients.spawn(client(number, remotes.clone(), path.clone(), Arc::clone(&book)));
    }
    for number in 0..FRONTS {
        holders.spawn(holder(number, remotes.clone(), link.clone(), Arc::clone(&book)));
    }
    let mut chance = SEED;
    for fault in faults(&mut chance) {
        let heard = book.answers.load(Ordering::SeqCst) + BETWEEN / 2 + next(&mut chance, BETWEEN);
        until("answers", SETTLED, async || book.answers.load(Ordering::SeqCst) >= heard).await;
        match fault {
            Fault::Killed => fleet.kill(next(&mut chance, FRONTS + fleet.workers.len())),
            Fault::Frozen | Fault::CutOff => fleet.away(fault, &mut chance, &owner).await,
            Fault::Crashed => {
                postgres.crash();
                postgres.start();
                owner = postgres.client("fairway").await;
            }
        }
    }
    holders.join_all().await;
    book.closed.store(true, Ordering::SeqCst);
    clients.join_all().await;

    let open = "SELECT (SELECT count(*) FROM execution WHERE outcome IS NULL) + (SELECT count(*) FROM execution_lease)";
    until("every run has an end", SETTLED, async || owner.query_one(open, &[]).await.unwrap().get::<_, i64>(0) == 0)
        .await;
    for (_, server) in &mut fleet.fronts {
        server.ready().await;
    }

    let told = book.told.lock().unwrap().clone();
    let by_link = book.by_link.lock().unwrap().clone();
    let known: BTreeSet<Uuid> = told.values().flatten().chain(&by_link).copied().collect();
    let rows = owner.query("SELECT execution_id, outcome FROM execution", &[]).await.unwrap();
    let stored: BTreeMap<Uuid, String> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    for run in &known {
        assert_eq!(stored.get(run).map(String::as_str), Some("success"), "{run} was acknowledged");
    }
    for (number, (key, runs)) in told.iter().enumerate() {
        assert!(runs.len() <= 1, "the key {key} names {runs:?}");
        // Those whose first answer got lost, and some of the others.
        if runs.is_empty() || number.is_multiple_of(20) {
            let again = remotes[number % FRONTS].post(&path, &inputs(), Some(key)).await.unwrap();
            assert_eq!(again.status, 200, "{again:?}");
            let run = again.execution().unwrap();
            assert!(runs.iter().all(|told| *told == run), "{key}: {run} is not {runs:?}");
        }
    }
    let count = async |sql: &str| owner.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    let (keys, uses) = (i64::try_from(told.len()).unwrap(), i64::try_from(by_link.len()).unwrap());
    assert_eq!(count("SELECT count(*) FROM execution").await, keys + USES, "each key has a run of its own");
    assert!(uses <= USES, "{uses}");
    assert_eq!(count("SELECT count(*) FROM execution WHERE share_link_id IS NOT NULL").await, USES);
    assert_eq!(count("SELECT use_count::bigint FROM share_link").await, USES);
    let ends = "SELECT count(*) FROM execution LEFT JOIN (
            SELECT (convert_from(body, 'UTF8')::json -> 'subject' ->> 'id')::uuid AS execution_id, count(*) AS told
            FROM fact WHERE kind LIKE 'execution.%' GROUP BY 1) AS ended USING (execution_id)
        WHERE told IS DISTINCT FROM 1";
    assert_eq!(count(ends).await, 0, "each run has one end in the log");
    assert_eq!(count("SELECT count(*) FROM execution WHERE outcome IS DISTINCT FROM 'success'").await, 0);
    assert_eq!(count("SELECT count(*) FROM execution_queue").await, 0);
}
