//! Promise R2 in `docs/security.md`, with slow model providers. A worker that renews its lease keeps its run for the
//! whole duration of a call. A paused worker loses its run, and the response that it receives afterwards is discarded.

use crate::{
    api_client::{ApiClient, execute_body},
    server_process::{Server, ServerSetup, wait_until},
};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse, TestDatabase};
use serde_json::{Value, json};
use std::time::Duration;
use tokio_postgres::Client;
use uuid::Uuid;

/// Concurrent runs that wait for a provider.
const RUNS: usize = 3;
/// Duration of a provider call, in worker leases.
const LEASES_PER_CALL: u32 = 10;
/// The lease that [`ServerSetup`] configures.
const LEASE: Duration = Duration::from_secs(2);
/// Time limit that is much longer than any step of these tests.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// A response that starts immediately and pauses in the middle until the test releases the pause.
fn pausing_response(text: &str) -> ScriptedResponse {
    let body = completion_body(text).to_string();
    let (start, rest) = body.split_at(body.len() / 2);
    ScriptedResponse::events([start, rest]).with_pauses()
}

fn completion_body(text: &str) -> Value {
    let choice = json!({ "index": 0, "message": { "role": "assistant", "content": text }, "finish_reason": "stop" });
    json!({ "model": "rules", "choices": [choice], "usage": { "prompt_tokens": 40, "completion_tokens": 2 } })
}

/// A server without workers, with a provider account at a scripted endpoint.
struct Fixture {
    database: TestDatabase,
    endpoint: ScriptedEndpoint,
    setup: ServerSetup,
    server: Server,
    owner: Client,
}

impl Fixture {
    async fn start() -> Self {
        let database = TestDatabase::create().await.unwrap();
        let endpoint = ScriptedEndpoint::start().await;
        let setup = ServerSetup::new(&database.url_for_owner()).config_file(&account_config(&endpoint));
        let mut front_server = setup.spawn_without_worker();
        front_server.wait_until_ready().await;
        let owner = database.connect_as_owner().await.unwrap();
        Self { database, endpoint, setup, server: front_server, owner }
    }

    /// Starts a worker. The caller must keep the returned setup alive: its directory contains files that the worker
    /// reads during its start.
    fn start_worker(&self) -> (ServerSetup, Server) {
        let setup = ServerSetup::sharing_storage_of(&self.setup).config_file(&account_config(&self.endpoint));
        let worker = setup.spawn_worker();
        (setup, worker)
    }

    fn client(&self) -> &ApiClient {
        &self.server.client
    }

    async fn queue_run(&self, path: &str) -> Uuid {
        let response = self.client().post(&format!("{path}?mode=async"), &execute_body(), None).await.unwrap();
        assert_eq!(response.status, 202, "{response:?}");
        response.execution_id().unwrap()
    }

    /// Waits until the run ends. Returns the ended run.
    async fn wait_for_end(&self, run: Uuid) -> Value {
        let mut execution = Value::Null;
        wait_until("the run ended", STEP_TIMEOUT, async || {
            execution = self.client().get(&format!("/v1/executions/{run}")).await.unwrap().body;
            !execution["completed_at"].is_null()
        })
        .await;
        execution
    }

    async fn count(&self, sql: &str) -> i64 {
        self.owner.query_one(sql, &[]).await.unwrap().get(0)
    }
}

fn account_config(endpoint: &ScriptedEndpoint) -> String {
    let base = endpoint.url("/v1");
    format!("[[providers]]\naccount_slot = \"slow\"\nkind = \"openai\"\nbase_url = \"{base}\"\ntimeout = \"5m\"\n")
}

#[tokio::test]
async fn a_worker_keeps_its_run_during_a_call_of_ten_leases() {
    let fixture = Fixture::start().await;
    let path = fixture.client().create_active_workload_using("slow").await;
    fixture.endpoint.respond_in_sequence((0..RUNS).map(|number| pausing_response(&format!("answer {number}"))));
    let workers = [fixture.start_worker(), fixture.start_worker()];
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(fixture.queue_run(&path).await);
    }
    wait_until("every run called its provider", STEP_TIMEOUT, async || fixture.endpoint.request_count() == RUNS).await;
    // Counts leases that were renewed for at least ten lease durations, according to the database's clock.
    let renewed_leases = format!(
        "SELECT count(*) FROM execution_lease JOIN execution USING (tenant_id, execution_id)
         WHERE lapses_at > started_at + interval '{} seconds'",
        (LEASE * LEASES_PER_CALL).as_secs()
    );
    let expected = i64::try_from(RUNS).unwrap();
    wait_until("every lease was renewed for ten durations", STEP_TIMEOUT, async || {
        fixture.count(&renewed_leases).await == expected
    })
    .await;
    assert_eq!(fixture.count("SELECT count(*) FROM execution_lease WHERE takeovers > 0").await, 0);
    assert_eq!(fixture.endpoint.request_count(), RUNS, "a provider was called twice");
    fixture.endpoint.release_pauses(RUNS);
    let mut results = Vec::new();
    for run in runs {
        let ended_run = fixture.wait_for_end(run).await;
        assert_eq!(ended_run["status"], "completed", "{ended_run}");
        results.push(ended_run["queued_result"]["result"].as_str().unwrap().to_owned());
    }
    results.sort();
    assert_eq!(results, ["answer 0", "answer 1", "answer 2"]);
    assert_eq!(fixture.endpoint.request_count(), RUNS);
    drop(workers);
}

#[tokio::test]
async fn response_of_a_paused_worker_is_discarded() {
    let fixture = Fixture::start().await;
    let path = fixture.client().create_active_workload_using("slow").await;
    fixture.endpoint.respond_in_sequence([pausing_response("late"), pausing_response("in time")]);
    let (_setup, mut paused_worker) = fixture.start_worker();
    let run = fixture.queue_run(&path).await;
    wait_until("the first worker called the provider", STEP_TIMEOUT, async || fixture.endpoint.request_count() == 1)
        .await;
    paused_worker.pause();
    let (_other_setup, other_worker) = fixture.start_worker();
    wait_until("the second worker called the provider", STEP_TIMEOUT, async || fixture.endpoint.request_count() == 2)
        .await;

    // The second worker now owns the run and waits for its response. The endpoint releases pauses in the order of
    // requests, so the first release ends the call of the paused worker.
    paused_worker.resume();
    fixture.endpoint.release_pauses(1);
    // The terminated worker exits only after it has processed its run.
    paused_worker.terminate();
    assert!(paused_worker.wait_for_exit(STEP_TIMEOUT).await.success(), "{}", paused_worker.read_log());
    assert_eq!(fixture.count("SELECT count(*) FROM execution WHERE outcome IS NULL").await, 1);
    assert_eq!(fixture.count("SELECT count(*) FROM execution_lease WHERE takeovers = 1").await, 1);
    fixture.endpoint.release_pauses(1);
    let ended_run = fixture.wait_for_end(run).await;
    assert_eq!((&ended_run["status"], &ended_run["queued_result"]["result"]), (&json!("completed"), &json!("in time")));
    let count_ends = "SELECT count(*) FROM fact WHERE kind LIKE 'execution.%'";
    assert_eq!(fixture.count(count_ends).await, 1);
    let calls = "SELECT count(*) FROM evidence_artifact WHERE artifact_kind = 'provider_call'";
    assert_eq!(fixture.count(calls).await, 1);
    assert_eq!(fixture.count("SELECT count(*) FROM execution_lease").await, 0);
    drop(other_worker);
    drop(fixture.database);
}
