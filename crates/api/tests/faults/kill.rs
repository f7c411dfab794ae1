//! R1, R2: what was acknowledged survives and ends once, whichever server is killed whenever, with its workers.

use crate::{
    artifacts::rows_and_artifacts_agree,
    process::{Place, Server, until},
    remote::{Remote, inputs},
};
use fairway_testkit::TestDatabase;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::task::JoinSet;
use uuid::Uuid;

const CLIENTS: usize = 6;
const KILLS: usize = 12;
/// Answers between two kills.
const BETWEEN: usize = 30;
/// How long after the last fault every run must have an end, as is promised.
const SETTLED: Duration = Duration::from_secs(60);
/// Decides who is killed, the same in every run.
const SEED: u64 = 0x5EED;

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
    answers: AtomicUsize,
    closed: AtomicBool,
}

impl Book {
    fn write(&self, key: &str, execution: Option<Uuid>) {
        self.told.lock().unwrap().entry(key.to_owned()).or_default().extend(execution);
    }
}

/// Sends runs, each with a key of its own, now to one server and now to the other, half of them into the line, and writes
/// down what it hears.
async fn client(number: usize, remotes: [Remote; 2], path: String, book: Arc<Book>) {
    let mut turn = number;
    while !book.closed.load(Ordering::SeqCst) {
        let key = Uuid::now_v7().to_string();
        book.write(&key, None);
        let path = if turn % 4 < 2 { path.clone() } else { format!("{path}?mode=async") };
        for _ in 0..2 {
            turn += 1;
            let Ok(answer) = remotes[turn % 2].post(&path, &inputs(), Some(&key)).await else { continue };
            assert!(matches!(answer.status, 200 | 202 | 409 | 503), "{answer:?}");
            book.write(&key, answer.execution());
            book.answers.fetch_add(1, Ordering::SeqCst);
            if answer.status == 200 {
                break;
            }
        }
    }
}

/// A pseudo-random sequence (xorshift64).
fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state % 1_000_003).unwrap()
}

#[tokio::test]
async fn every_run_ever_told_of_survives_kills_and_has_one_end() {
    let database = TestDatabase::create().await.unwrap();
    let first = Place::new(&database.url());
    let places = [Place::beside(&first), first];
    let mut servers: Vec<Server> = vec![places[0].start().await, places[1].start().await];
    let path = servers[0].remote.runnable().await;
    let remotes = [servers[0].remote.clone(), servers[1].remote.clone()];
    let owner = database.owner().await.unwrap();
    owner.batch_execute(NOTE_TAKEOVERS).await.unwrap();

    let book = Arc::new(Book::default());
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(client(number, remotes.clone(), path.clone(), Arc::clone(&book)));
    }
    let mut chance = SEED;
    for _ in 0..KILLS {
        let heard = book.answers.load(Ordering::SeqCst) + BETWEEN / 2 + next(&mut chance) % BETWEEN;
        until("answers", SETTLED, async || book.answers.load(Ordering::SeqCst) >= heard).await;
        let victim = next(&mut chance) % servers.len();
        servers[victim].kill();
        servers[victim] = places[victim].spawn();
    }
    book.closed.store(true, Ordering::SeqCst);
    clients.join_all().await;

    let open = "SELECT (SELECT count(*) FROM execution WHERE outcome IS NULL) + (SELECT count(*) FROM execution_lease)";
    until("every run has an end", SETTLED, async || owner.query_one(open, &[]).await.unwrap().get::<_, i64>(0) == 0)
        .await;
    for server in &mut servers {
        let remote = server.remote.clone();
        until("ready", SETTLED, async || remote.get("/readyz").await.is_ok_and(|answer| answer.status == 200)).await;
    }

    let told = book.told.lock().unwrap().clone();
    let mut runs = BTreeSet::new();
    for (number, (key, executions)) in told.iter().enumerate() {
        assert!(executions.len() <= 1, "the key {key} names {executions:?}");
        let remote = &remotes[number % 2];
        for execution in executions {
            let answer = remote.get(&format!("/v1/executions/{execution}")).await.unwrap();
            assert_eq!(answer.status, 200, "{execution} was acknowledged: {answer:?}");
            assert!(answer.body["outcome"].is_string(), "{answer:?}");
        }
        let again = remote.post(&path, &inputs(), Some(key)).await.unwrap();
        assert_eq!(again.status, 200, "{again:?}");
        let run = again.execution().unwrap();
        assert!(executions.iter().all(|told| *told == run), "{key}: {run} is not {executions:?}");
        runs.insert(run);
    }
    assert_eq!(runs.len(), told.len(), "each key has a run of its own");

    let count = async |sql: &str| owner.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    assert_eq!(count("SELECT count(*) FROM execution").await, i64::try_from(told.len()).unwrap());
    let ends = "SELECT count(*) FROM execution LEFT JOIN (
            SELECT (convert_from(body, 'UTF8')::json -> 'subject' ->> 'id')::uuid AS execution_id, count(*) AS told
            FROM fact WHERE kind LIKE 'execution.%' GROUP BY 1) AS ended USING (execution_id)
        WHERE told IS DISTINCT FROM 1";
    assert_eq!(count(ends).await, 0, "each run has one end in the log");
    assert_eq!(
        count("SELECT count(*) FROM execution WHERE outcome <> 'success'").await,
        0,
        "somebody goes on with each"
    );
    let taken_over = count("SELECT count(*) FROM taken_over").await;
    assert!(taken_over > 0, "no kill met a run under way: {KILLS} kills, {} runs", told.len());
    assert_eq!(count("SELECT count(*) FROM execution_queue").await, 0);
    rows_and_artifacts_agree(&owner, &places[1].artifacts()).await;
}
