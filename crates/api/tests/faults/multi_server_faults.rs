//! Promises R1, R2 and R12 in `docs/security.md`: two servers and several workers on one database, with kills, pauses,
//! disconnections and database crashes. No acknowledged run is lost, and every run ends exactly once. A share link is
//! used exactly as often as allowed.

use crate::{
    api_client::{ApiClient, execute_body},
    crashable_postgres::CrashablePostgres,
    server_process::{Server, ServerSetup, wait_until},
};
use fairway_testkit::{FaultProxy, ProxyFault, is_long_form_requested};
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
const SERVERS: usize = 2;
/// Number of runs that the share link allows.
const LINK_USES: i64 = 60;
/// Pause between two requests of a client.
const REQUEST_INTERVAL: Duration = Duration::from_millis(25);
/// Mean number of responses between two faults.
const RESPONSES_BETWEEN_FAULTS: usize = 30;
/// Three times the lease that [`ServerSetup`] configures.
const THREE_LEASES: Duration = Duration::from_secs(6);
/// Documented time limit for every run to end after the last fault.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of refusals after which a guest stops using the link.
const MAX_REFUSALS: usize = 5;
/// Maximum attempts to pause or disconnect workers that have active runs.
const MAX_ATTEMPTS: usize = 10;
const SEED: u64 = 0xF1EE7;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    /// A server or a worker is killed and restarted.
    Killed,
    /// A worker is paused for three leases and then resumes.
    Paused,
    /// A worker is disconnected from the database for three leases.
    Disconnected,
    /// PostgreSQL stops immediately and recovers from its log.
    DatabaseCrashed,
}

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
    /// Runs in the responses to guests of the share link.
    link_runs: Mutex<BTreeSet<Uuid>>,
    response_count: AtomicUsize,
    is_stopped: AtomicBool,
}

/// Sends runs to the servers in turn, each with a new idempotency key. Most runs are asynchronous.
async fn run_client(number: usize, remotes: [ApiClient; SERVERS], path: String, record: Arc<ClientRecord>) {
    let mut turn = number;
    while !record.is_stopped.load(Ordering::SeqCst) {
        let key = Uuid::now_v7().to_string();
        record.runs_by_key.lock().unwrap().entry(key.clone()).or_default();
        let path = if turn.is_multiple_of(4) { path.clone() } else { format!("{path}?mode=async") };
        for _ in 0..2 {
            turn += 1;
            tokio::time::sleep(REQUEST_INTERVAL).await;
            let Ok(response) = remotes[turn % SERVERS].post(&path, &execute_body(), Some(&key)).await else { continue };
            assert!(matches!(response.status, 200 | 202 | 409 | 429 | 503), "{response:?}");
            record.response_count.fetch_add(1, Ordering::SeqCst);
            // Responses with other statuses contain a run only when the run's outcome is unknown.
            if matches!(response.status, 200 | 202) {
                record.runs_by_key.lock().unwrap().entry(key.clone()).or_default().extend(response.execution_id());
                break;
            }
        }
    }
}

/// Sends runs through the share link, also during faults, until its uses are exhausted.
async fn run_guest(number: usize, remotes: [ApiClient; SERVERS], path: String, record: Arc<ClientRecord>) {
    let (mut turn, mut refusals) = (number, 0);
    while refusals < MAX_REFUSALS {
        turn += 1;
        tokio::time::sleep(REQUEST_INTERVAL).await;
        let Ok(response) = remotes[turn % SERVERS].post(&path, &execute_body(), None).await else { continue };
        match response.status {
            200 | 202 => assert!(record.link_runs.lock().unwrap().insert(response.execution_id().unwrap())),
            401 => refusals += 1,
            429 | 503 => {}
            _ => panic!("{response:?}"),
        }
    }
}

/// Creates a share link with [`LINK_USES`] uses. Returns an execute path with the link's token.
async fn create_link(remote: &ApiClient) -> String {
    let (workload, slug) = remote.create_workload().await;
    let config = json!({ "interface_config": {
        "presentation_mode": "form", "access_mode": "link_shared",
        "input_fields": [{ "name": "ticket", "type": "text" }],
    } });
    assert_eq!(remote.patch(&format!("/v1/workloads/{workload}"), &config).await.unwrap().status, 200);
    let release = remote.create_approved_release(workload).await;
    remote.create(&format!("/v1/releases/{release}/transition"), &json!({ "to_state": "active" })).await;
    let created =
        remote.create(&format!("/v1/workloads/{workload}/share-links"), &json!({ "max_uses": LINK_USES })).await;
    let token = created.body["token"].as_str().unwrap();
    format!("/v1/workloads/by-slug/{slug}/execute?mode=async&token={token}")
}

/// A pseudo-random sequence (xorshift64).
fn next_random(state: &mut u64, limit: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state % 1_000_003).unwrap() % limit
}

/// All faults, shuffled by the seed.
fn shuffled_faults(random: &mut u64) -> Vec<Fault> {
    let counts = if is_long_form_requested() { [200, 10, 10, 20] } else { [8, 1, 1, 2] };
    let kinds = [Fault::Killed, Fault::Paused, Fault::Disconnected, Fault::DatabaseCrashed];
    let mut faults: Vec<Fault> = kinds.into_iter().zip(counts).flat_map(|(kind, count)| vec![kind; count]).collect();
    for last_index in (1..faults.len()).rev() {
        faults.swap(last_index, next_random(random, last_index + 1));
    }
    faults
}

/// The servers and the workers, with a fault proxy between each worker and the database.
struct Fleet {
    servers: Vec<(ServerSetup, Server)>,
    workers: Vec<(ServerSetup, Server, Arc<FaultProxy>)>,
}

impl Fleet {
    async fn start(postgres: &CrashablePostgres, workers: usize) -> Self {
        let first_setup = postgres.create_server_setup().await;
        let setups = [ServerSetup::sharing_storage_of(&first_setup), first_setup];
        let mut front_servers = Vec::new();
        for setup in setups {
            let mut server = setup.spawn_without_worker();
            server.wait_until_ready().await;
            front_servers.push((setup, server));
        }
        let workers = (0..workers).map(|number| {
            let proxy = FaultProxy::start_for_url(&postgres.url("fairway"), u64::try_from(number).unwrap());
            let setup =
                ServerSetup::sharing_storage_of(&front_servers[1].0).setting("FAIRWAY_DATABASE_URL", proxy.url());
            let worker = setup.spawn_worker();
            (setup, worker, proxy)
        });
        let workers = workers.collect();
        Self { servers: front_servers, workers }
    }

    fn kill(&mut self, killed_index: usize) {
        if let Some((setup, server)) = self.servers.get_mut(killed_index) {
            server.kill();
            *server = setup.spawn_without_worker();
        } else {
            let (setup, worker, _) = &mut self.workers[killed_index - SERVERS];
            worker.kill();
            *worker = setup.spawn_worker();
        }
    }

    /// Pauses or disconnects all workers but one for three leases. Repeats this until the remaining worker reclaims
    /// a run.
    ///
    /// # Panics
    /// When no attempt led to a reclaim.
    async fn suspend_all_but_one(&self, fault: Fault, random: &mut u64, owner: &Client) {
        let reclaims = "SELECT count(*) FROM taken_over";
        let count = async || owner.query_one(reclaims, &[]).await.unwrap().get::<_, i64>(0);
        for _ in 0..MAX_ATTEMPTS {
            let remaining = next_random(random, self.workers.len());
            let other_workers = self.workers.iter().enumerate().filter(|(number, _)| *number != remaining);
            let other_workers: Vec<&(ServerSetup, Server, Arc<FaultProxy>)> =
                other_workers.map(|(_, worker)| worker).collect();
            let before = count().await;
            for (_, worker, proxy) in &other_workers {
                match fault {
                    Fault::Paused => worker.pause(),
                    Fault::Disconnected => proxy.set_fault(ProxyFault::Down),
                    Fault::Killed | Fault::DatabaseCrashed => {
                        unreachable!("killed and crashed processes restart at once")
                    }
                }
            }
            tokio::time::sleep(THREE_LEASES).await;
            for (_, worker, proxy) in &other_workers {
                worker.resume();
                proxy.set_fault(ProxyFault::None);
            }
            if count().await > before {
                return;
            }
        }
        panic!("no run was reclaimed with {fault:?} workers");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "one scenario, read from its start to its end")]
async fn acknowledged_runs_survive_all_faults_and_end_once() {
    fairway_testkit::install_crypto_provider();
    let mut postgres = CrashablePostgres::new();
    let mut fleet = Fleet::start(&postgres, if is_long_form_requested() { 8 } else { 3 }).await;
    let remotes: [ApiClient; SERVERS] = [fleet.servers[0].1.client.clone(), fleet.servers[1].1.client.clone()];
    let path = remotes[0].create_active_workload().await;
    let link = create_link(&remotes[0]).await;
    let mut owner = postgres.connect_as_superuser("fairway").await;
    owner.batch_execute(RECLAIM_TRIGGER).await.unwrap();

    let record = Arc::new(ClientRecord::default());
    let (mut clients, mut holders) = (JoinSet::new(), JoinSet::new());
    for number in 0..CLIENTS {
        clients.spawn(run_client(number, remotes.clone(), path.clone(), Arc::clone(&record)));
    }
    for number in 0..SERVERS {
        holders.spawn(run_guest(number, remotes.clone(), link.clone(), Arc::clone(&record)));
    }
    let mut random = SEED;
    for fault in shuffled_faults(&mut random) {
        let target = record.response_count.load(Ordering::SeqCst)
            + RESPONSES_BETWEEN_FAULTS / 2
            + next_random(&mut random, RESPONSES_BETWEEN_FAULTS);
        wait_until("enough responses arrived", RECOVERY_TIMEOUT, async || {
            record.response_count.load(Ordering::SeqCst) >= target
        })
        .await;
        match fault {
            Fault::Killed => fleet.kill(next_random(&mut random, SERVERS + fleet.workers.len())),
            Fault::Paused | Fault::Disconnected => fleet.suspend_all_but_one(fault, &mut random, &owner).await,
            Fault::DatabaseCrashed => {
                postgres.crash();
                postgres.start();
                owner = postgres.connect_as_superuser("fairway").await;
            }
        }
    }
    holders.join_all().await;
    record.is_stopped.store(true, Ordering::SeqCst);
    clients.join_all().await;

    let unfinished =
        "SELECT (SELECT count(*) FROM execution WHERE outcome IS NULL) + (SELECT count(*) FROM execution_lease)";
    wait_until("every run ended", RECOVERY_TIMEOUT, async || {
        owner.query_one(unfinished, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    for (_, server) in &mut fleet.servers {
        server.wait_until_ready().await;
    }

    let runs_by_key = record.runs_by_key.lock().unwrap().clone();
    let by_link = record.link_runs.lock().unwrap().clone();
    let acknowledged: BTreeSet<Uuid> = runs_by_key.values().flatten().chain(&by_link).copied().collect();
    let rows = owner.query("SELECT execution_id, outcome FROM execution", &[]).await.unwrap();
    let stored: BTreeMap<Uuid, String> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    for run in &acknowledged {
        assert_eq!(stored.get(run).map(String::as_str), Some("success"), "{run} was acknowledged");
    }
    for (number, (key, runs)) in runs_by_key.iter().enumerate() {
        assert!(runs.len() <= 1, "the key {key} has several runs: {runs:?}");
        // Repeats the requests whose keys have no recorded response, and a sample of the others.
        if runs.is_empty() || number.is_multiple_of(20) {
            let replayed = remotes[number % SERVERS].post(&path, &execute_body(), Some(key)).await.unwrap();
            assert_eq!(replayed.status, 200, "{replayed:?}");
            let run = replayed.execution_id().unwrap();
            assert!(runs.iter().all(|repeated_run| *repeated_run == run), "{key}: {run} is not {runs:?}");
        }
    }
    let count = async |sql: &str| owner.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    let (keys, uses) = (i64::try_from(runs_by_key.len()).unwrap(), i64::try_from(by_link.len()).unwrap());
    assert_eq!(
        count("SELECT count(*) FROM execution").await,
        keys + LINK_USES,
        "keys, uses of the link and runs do not match"
    );
    assert!(uses <= LINK_USES, "{uses}");
    assert_eq!(count("SELECT count(*) FROM execution WHERE share_link_id IS NOT NULL").await, LINK_USES);
    assert_eq!(count("SELECT use_count::bigint FROM share_link").await, LINK_USES);
    let wrong_ends = "SELECT count(*) FROM execution LEFT JOIN (
            SELECT (convert_from(body, 'UTF8')::json -> 'subject' ->> 'id')::uuid AS execution_id, count(*) AS told
            FROM fact WHERE kind LIKE 'execution.%' GROUP BY 1) AS ended USING (execution_id)
        WHERE told IS DISTINCT FROM 1";
    assert_eq!(count(wrong_ends).await, 0, "runs without exactly one end in the log");
    assert_eq!(count("SELECT count(*) FROM execution WHERE outcome IS DISTINCT FROM 'success'").await, 0);
    assert_eq!(count("SELECT count(*) FROM execution_queue").await, 0);
}
