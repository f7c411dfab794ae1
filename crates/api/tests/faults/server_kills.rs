//! Promises R1 and R2 in `docs/security.md`: every acknowledged run survives kills of servers and of their workers, and
//! ends exactly once.

use crate::{
    api_client::{ApiClient, execute_body},
    artifact_consistency::assert_rows_match_artifacts,
    checkpoint_history::assert_one_published_history,
    server_process::{Server, ServerSetup, wait_until},
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
/// Mean number of responses between two kills.
const RESPONSES_BETWEEN_KILLS: usize = 30;
/// Documented time limit for every run to end after the last fault.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);
/// Fixed seed that determines which server is killed.
const SEED: u64 = 0x5EED;

/// SQL that records each run whose expired lease another worker reclaimed.
const RECLAIM_TRIGGER: &str = "CREATE TABLE taken_over (execution_id uuid);
    CREATE FUNCTION note_takeover() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        INSERT INTO taken_over VALUES (NEW.execution_id);
        RETURN NULL;
    END $$;
    CREATE TRIGGER noted AFTER UPDATE ON execution_lease FOR EACH ROW
    WHEN (NEW.takeovers > OLD.takeovers) EXECUTE FUNCTION note_takeover();";

/// The clients' record: each idempotency key, with the runs in its responses.
#[derive(Default)]
struct ClientRecord {
    runs_by_key: Mutex<BTreeMap<String, BTreeSet<Uuid>>>,
    response_count: AtomicUsize,
    is_stopped: AtomicBool,
}

impl ClientRecord {
    fn record(&self, key: &str, execution: Option<Uuid>) {
        self.runs_by_key.lock().unwrap().entry(key.to_owned()).or_default().extend(execution);
    }
}

/// Sends runs to the servers in turn, each with a new idempotency key. Half of them are asynchronous. Records the
/// responses.
async fn run_client(number: usize, remotes: [ApiClient; 2], path: String, record: Arc<ClientRecord>) {
    let mut turn = number;
    while !record.is_stopped.load(Ordering::SeqCst) {
        let key = Uuid::now_v7().to_string();
        record.record(&key, None);
        let path = if turn % 4 < 2 { path.clone() } else { format!("{path}?mode=async") };
        for _ in 0..2 {
            turn += 1;
            let Ok(response) = remotes[turn % 2].post(&path, &execute_body(), Some(&key)).await else { continue };
            assert!(matches!(response.status, 200 | 202 | 409 | 503), "{response:?}");
            record.record(&key, response.execution_id());
            record.response_count.fetch_add(1, Ordering::SeqCst);
            if response.status == 200 {
                break;
            }
        }
    }
}

/// A pseudo-random sequence (xorshift64).
fn next_random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state % 1_000_003).unwrap()
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one scenario, read from its start to its end")]
async fn acknowledged_runs_survive_kills_and_end_once() {
    let database = TestDatabase::create().await.unwrap();
    let first_setup = ServerSetup::new(&database.url_for_owner());
    let setups = [ServerSetup::sharing_storage_of(&first_setup), first_setup];
    let mut servers: Vec<Server> = vec![setups[0].start().await, setups[1].start().await];
    let path = servers[0].client.create_active_workload().await;
    let remotes = [servers[0].client.clone(), servers[1].client.clone()];
    let owner = database.connect_as_owner().await.unwrap();
    owner.batch_execute(RECLAIM_TRIGGER).await.unwrap();

    let record = Arc::new(ClientRecord::default());
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(run_client(number, remotes.clone(), path.clone(), Arc::clone(&record)));
    }
    let mut random = SEED;
    for _ in 0..KILLS {
        let target = record.response_count.load(Ordering::SeqCst)
            + RESPONSES_BETWEEN_KILLS / 2
            + next_random(&mut random) % RESPONSES_BETWEEN_KILLS;
        wait_until("enough responses arrived", RECOVERY_TIMEOUT, async || {
            record.response_count.load(Ordering::SeqCst) >= target
        })
        .await;
        let killed_index = next_random(&mut random) % servers.len();
        servers[killed_index].kill();
        servers[killed_index] = setups[killed_index].spawn();
    }
    record.is_stopped.store(true, Ordering::SeqCst);
    clients.join_all().await;

    let unfinished =
        "SELECT (SELECT count(*) FROM execution WHERE outcome IS NULL) + (SELECT count(*) FROM execution_lease)";
    wait_until("every run ended", RECOVERY_TIMEOUT, async || {
        owner.query_one(unfinished, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    for server in &mut servers {
        let remote = server.client.clone();
        wait_until("the server is ready", RECOVERY_TIMEOUT, async || {
            remote.get("/readyz").await.is_ok_and(|response| response.status == 200)
        })
        .await;
    }

    let runs_by_key = record.runs_by_key.lock().unwrap().clone();
    let mut runs = BTreeSet::new();
    for (number, (key, executions)) in runs_by_key.iter().enumerate() {
        assert!(executions.len() <= 1, "the key {key} has several runs: {executions:?}");
        let remote = &remotes[number % 2];
        for execution in executions {
            let response = remote.get(&format!("/v1/executions/{execution}")).await.unwrap();
            assert_eq!(response.status, 200, "{execution} was acknowledged: {response:?}");
            assert!(response.body["outcome"].is_string(), "{response:?}");
        }
        let replayed = remote.post(&path, &execute_body(), Some(key)).await.unwrap();
        assert_eq!(replayed.status, 200, "{replayed:?}");
        let run = replayed.execution_id().unwrap();
        assert!(executions.iter().all(|repeated_run| *repeated_run == run), "{key}: {run} is not {executions:?}");
        runs.insert(run);
    }
    assert_eq!(runs.len(), runs_by_key.len(), "keys and runs do not match");

    let count = async |sql: &str| owner.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    assert_eq!(count("SELECT count(*) FROM execution").await, i64::try_from(runs_by_key.len()).unwrap());
    let wrong_ends = "SELECT count(*) FROM execution LEFT JOIN (
            SELECT (convert_from(body, 'UTF8')::json -> 'subject' ->> 'id')::uuid AS execution_id, count(*) AS told
            FROM fact WHERE kind LIKE 'execution.%' GROUP BY 1) AS ended USING (execution_id)
        WHERE told IS DISTINCT FROM 1";
    assert_eq!(count(wrong_ends).await, 0, "runs without exactly one end in the log");
    assert_eq!(
        count("SELECT count(*) FROM execution WHERE outcome <> 'success'").await,
        0,
        "runs without success after reclaim"
    );
    let reclaimed_runs = count("SELECT count(*) FROM taken_over").await;
    assert!(reclaimed_runs > 0, "no kill interrupted an active run: {KILLS} kills, {} runs", runs_by_key.len());
    assert_eq!(count("SELECT count(*) FROM execution_queue").await, 0);
    assert_rows_match_artifacts(&owner, &setups[1].artifacts_dir()).await;
    let published = assert_one_published_history(&owner, &setups[1].archive_dir()).await;
    assert!(published > KILLS / 2, "{published} checkpoints were published");
}
