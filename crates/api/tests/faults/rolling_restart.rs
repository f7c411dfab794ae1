//! Promise R22 in `docs/security.md`: two servers and two workers on one database restart in turn under load, without a
//! failed request.

use crate::{
    api_client::execute_body,
    raw_connection::{RawConnection, RawRequest, RawResponse},
    server_process::{Server, ServerSetup, wait_until},
};
use fairway_testkit::{TestDatabase, is_long_form_requested};
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
/// Mean number of responses between two restarts.
const RESPONSES_BETWEEN_RESTARTS: usize = 40;
/// Fixed seed that determines the times of restarts.
const SEED: u64 = 0x0C0F_FEE5;
/// Requests per connection; the next connection goes to the other server.
const REQUESTS_PER_CONNECTION: usize = 16;
/// Time limit for the shutdown of a server.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit within which a client must get a response from either server.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Poll interval for a queued run.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A lease longer than [`RESPONSE_TIMEOUT`]. A run that waits until its lease expires therefore fails the test.
const LEASE: &str = "60s";

/// The clients' record of runs and connections.
#[derive(Default)]
struct ClientRecord {
    /// The run of each idempotency key.
    runs_by_key: Mutex<BTreeMap<String, Uuid>>,
    response_count: AtomicUsize,
    /// Number of responses with `Connection: close`.
    announced_closes: AtomicUsize,
    is_stopped: AtomicBool,
}

/// A client that acts as a simple load balancer. If a server refuses the connection, or closes it between requests,
/// the client sends the same request to the other server.
struct BalancedClient {
    servers: [SocketAddr; 2],
    server_index: usize,
    connection: Option<(RawConnection, usize)>,
    record: Arc<ClientRecord>,
}

impl BalancedClient {
    async fn send(&mut self, request: RawRequest<'_>) -> RawResponse {
        let started_at = Instant::now();
        loop {
            assert!(started_at.elapsed() < RESPONSE_TIMEOUT, "no server answers {}", request.path);
            let (mut connection, sent_requests) = match self.connection.take() {
                Some(connection) => connection,
                None => match RawConnection::open(self.servers[self.server_index % 2]).await {
                    Some(connection) => (connection, 0),
                    None => {
                        self.server_index += 1;
                        continue;
                    }
                },
            };
            let Some(response) = connection.send(&request).await else {
                self.server_index += 1;
                continue;
            };
            assert!(response.status < 500, "{}: {response:?}", request.path);
            self.record.response_count.fetch_add(1, Ordering::SeqCst);
            if response.closes_connection {
                self.record.announced_closes.fetch_add(1, Ordering::SeqCst);
                connection.wait_for_close().await;
                self.server_index += 1;
            } else if sent_requests + 1 == REQUESTS_PER_CONNECTION {
                self.server_index += 1;
            } else {
                self.connection = Some((connection, sent_requests + 1));
            }
            return response;
        }
    }

    /// Executes the workload with new idempotency keys and reads each run, until the test stops. Every other run is
    /// queued, and must end long before a lease expires.
    async fn run_workloads(mut self, path: String) {
        let body = execute_body();
        let async_path = format!("{path}?mode=async");
        let mut is_queued = self.server_index.is_multiple_of(2);
        while !self.record.is_stopped.load(Ordering::SeqCst) {
            let key = Uuid::now_v7().to_string();
            is_queued = !is_queued;
            if is_queued {
                let accepted = self.send(RawRequest { path: &async_path, body_and_key: Some((&body, &key)) }).await;
                assert_eq!(accepted.status, 202, "{accepted:?}");
                let run = execution_id(&accepted);
                self.record.runs_by_key.lock().unwrap().insert(key, run);
                let started_at = Instant::now();
                loop {
                    let run_state =
                        self.send(RawRequest { path: &format!("/v1/executions/{run}"), body_and_key: None }).await;
                    if run_state.body["outcome"] == "success" {
                        break;
                    }
                    assert!(
                        started_at.elapsed() < RESPONSE_TIMEOUT && run_state.body["outcome"].is_null(),
                        "{run_state:?}"
                    );
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                continue;
            }
            let executed = loop {
                let response = self.send(RawRequest { path: &path, body_and_key: Some((&body, &key)) }).await;
                // If a request was sent twice, the first run of its key may still be active.
                match response.status {
                    200 => break response,
                    202 | 409 => {}
                    _ => panic!("{response:?}"),
                }
            };
            let run = execution_id(&executed);
            self.record.runs_by_key.lock().unwrap().insert(key, run);
            let run_state = self.send(RawRequest { path: &format!("/v1/executions/{run}"), body_and_key: None }).await;
            assert_eq!((run_state.status, run_state.body["outcome"].as_str()), (200, Some("success")), "{run_state:?}");
        }
    }
}

fn execution_id(response: &RawResponse) -> Uuid {
    let text = response.body.get("execution_id").and_then(Value::as_str);
    text.and_then(|text| Uuid::parse_str(text).ok()).unwrap_or_else(|| panic!("no execution_id in {response:?}"))
}

/// A pseudo-random sequence (xorshift64).
fn next_random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state % 1_000_003).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "one scenario, read from its start to its end")]
async fn rolling_restart_fails_no_request() {
    let database = TestDatabase::create().await.unwrap();
    let first_setup = ServerSetup::new(&database.url_for_owner()).setting("FAIRWAY_WORKER_LEASE", LEASE);
    let new_setup = || ServerSetup::sharing_storage_of(&first_setup).setting("FAIRWAY_WORKER_LEASE", LEASE);
    let worker_setups = [new_setup(), new_setup()];
    let setups = [new_setup(), first_setup];
    let mut servers: Vec<Server> = Vec::new();
    for setup in &setups {
        let mut server = setup.spawn_without_worker();
        server.wait_until_ready().await;
        servers.push(server);
    }
    let mut workers: Vec<Server> = worker_setups.iter().map(ServerSetup::spawn_worker).collect();
    let path = servers[0].client.create_active_workload().await;

    let record = Arc::new(ClientRecord::default());
    let mut clients = JoinSet::new();
    for client_index in 0..CLIENTS {
        let addresses = [setups[0].address, setups[1].address];
        let caller = BalancedClient {
            servers: addresses,
            server_index: client_index,
            connection: None,
            record: Arc::clone(&record),
        };
        clients.spawn(caller.run_workloads(path.clone()));
    }
    let mut random = SEED;
    let wait_for_responses = async |clients: &mut JoinSet<()>, count: usize| {
        let target = record.response_count.load(Ordering::SeqCst) + count;
        wait_until("enough responses arrived", SHUTDOWN_TIMEOUT, async || {
            // Propagates a client's panic to the test.
            if let Some(finished) = clients.try_join_next() {
                finished.unwrap();
            }
            record.response_count.load(Ordering::SeqCst) >= target
        })
        .await;
    };
    let rounds = if is_long_form_requested() { 20 } else { 2 };
    for turn in 0..rounds * servers.len() {
        wait_for_responses(
            &mut clients,
            RESPONSES_BETWEEN_RESTARTS / 2 + next_random(&mut random) % RESPONSES_BETWEEN_RESTARTS,
        )
        .await;
        let (server, setup) = (turn % servers.len(), &setups[turn % setups.len()]);
        let announced_closes = record.announced_closes.load(Ordering::SeqCst);
        servers[server].terminate();
        let status = servers[server].wait_for_exit(SHUTDOWN_TIMEOUT).await;
        assert!(status.success(), "{status}: {}", servers[server].read_log());
        wait_until("a client received `Connection: close`", RESPONSE_TIMEOUT, async || {
            record.announced_closes.load(Ordering::SeqCst) > announced_closes
        })
        .await;
        servers[server] = setup.spawn_without_worker();
        servers[server].wait_until_ready().await;
        wait_for_responses(&mut clients, RESPONSES_BETWEEN_RESTARTS / 4).await;
        workers[server].terminate();
        let status = workers[server].wait_for_exit(SHUTDOWN_TIMEOUT).await;
        assert!(status.success(), "{status}: {}", workers[server].read_log());
        workers[server] = worker_setups[server].spawn_worker();
    }
    wait_for_responses(&mut clients, RESPONSES_BETWEEN_RESTARTS).await;
    record.is_stopped.store(true, Ordering::SeqCst);
    clients.join_all().await;

    let owner = database.connect_as_owner().await.unwrap();
    let runs = record.runs_by_key.lock().unwrap().clone();
    let rows = owner.query("SELECT execution_id, outcome FROM execution", &[]).await.unwrap();
    let stored: BTreeMap<Uuid, Option<String>> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    for (key, run) in &runs {
        assert_eq!(stored.get(run), Some(&Some("success".to_owned())), "{key}");
    }
    assert_eq!(stored.len(), runs.len(), "keys and runs do not match");
    let count = async |sql: &str| owner.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    let wrong_ends = "SELECT count(*) FROM execution LEFT JOIN (
            SELECT (convert_from(body, 'UTF8')::json -> 'subject' ->> 'id')::uuid AS execution_id, count(*) AS told
            FROM fact WHERE kind LIKE 'execution.%' GROUP BY 1) AS ended USING (execution_id)
        WHERE told IS DISTINCT FROM 1";
    assert_eq!(count(wrong_ends).await, 0, "runs without exactly one end in the log");
    assert_eq!(count("SELECT count(*) FROM execution_lease").await, 0, "no lease is left for recovery");
    assert_eq!(count("SELECT count(*) FROM execution_queue").await, 0, "no run is left in the queue");
}
