//! R2 with providers that take their time: who waits for one and says that it lives keeps its run, however long that takes;
//! who stood still meanwhile has lost it, and what it hears afterwards is written nowhere.

use crate::{
    process::{Place, Server, until},
    remote::{Remote, inputs},
};
use fairway_testkit::{FaultyEndpoint, Script, TestDatabase};
use serde_json::{Value, json};
use std::time::Duration;
use tokio_postgres::Client;
use uuid::Uuid;

/// Runs that wait for a provider at the same time.
const RUNS: usize = 3;
/// How many leases of a worker, as [`Place`] sets them, a call takes.
const LEASES: u32 = 10;
const LEASE: Duration = Duration::from_secs(2);
/// Much longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer that begins at once, and of which the rest comes when the test says so.
fn slowly(text: &str) -> Script {
    let answer = answer(text).to_string();
    let (beginning, rest) = answer.split_at(answer.len() / 2);
    Script::events([beginning, rest]).pausing()
}

fn answer(text: &str) -> Value {
    let choice = json!({ "index": 0, "message": { "role": "assistant", "content": text }, "finish_reason": "stop" });
    json!({ "model": "rules", "choices": [choice], "usage": { "prompt_tokens": 40, "completion_tokens": 2 } })
}

/// A server that runs nothing by itself, over an account at an endpoint.
struct Scene {
    database: TestDatabase,
    endpoint: FaultyEndpoint,
    place: Place,
    front: Server,
    owner: Client,
}

impl Scene {
    async fn set() -> Self {
        let database = TestDatabase::create().await.unwrap();
        let endpoint = FaultyEndpoint::start().await;
        let place = Place::new(&database.url()).file(&account(&endpoint));
        let mut front = place.front();
        front.ready().await;
        let owner = database.owner().await.unwrap();
        Self { database, endpoint, place, front, owner }
    }

    /// A worker and its place, whose files the worker reads while it starts: keep both.
    fn worker(&self) -> (Place, Server) {
        let place = Place::beside(&self.place).file(&account(&self.endpoint));
        let worker = place.worker();
        (place, worker)
    }

    fn remote(&self) -> &Remote {
        &self.front.remote
    }

    async fn queued(&self, path: &str) -> Uuid {
        let answer = self.remote().post(&format!("{path}?mode=async"), &inputs(), None).await.unwrap();
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.execution().unwrap()
    }

    /// The run, once it has an end.
    async fn ended(&self, run: Uuid) -> Value {
        let mut read = Value::Null;
        until("the run's end", PATIENCE, async || {
            read = self.remote().get(&format!("/v1/executions/{run}")).await.unwrap().body;
            !read["completed_at"].is_null()
        })
        .await;
        read
    }

    async fn count(&self, sql: &str) -> i64 {
        self.owner.query_one(sql, &[]).await.unwrap().get(0)
    }
}

fn account(endpoint: &FaultyEndpoint) -> String {
    let base = endpoint.url("/v1");
    format!("[[providers]]\naccount_slot = \"slow\"\nkind = \"openai\"\nbase_url = \"{base}\"\ntimeout = \"5m\"\n")
}

#[tokio::test]
async fn a_call_of_ten_leases_is_nobody_else_s() {
    let scene = Scene::set().await;
    let path = scene.remote().runnable_by("slow").await;
    scene.endpoint.says_in_turn((0..RUNS).map(|number| slowly(&format!("answer {number}"))));
    let workers = [scene.worker(), scene.worker()];
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(scene.queued(&path).await);
    }
    until("every run is asked for", PATIENCE, async || scene.endpoint.count() == RUNS).await;
    // Leases that are prolonged often enough, and by the database's clock: as many as if nothing had happened for so long.
    let lived = format!(
        "SELECT count(*) FROM execution_lease JOIN execution USING (tenant_id, execution_id)
         WHERE lapses_at > started_at + interval '{} seconds'",
        (LEASE * LEASES).as_secs()
    );
    let all = i64::try_from(RUNS).unwrap();
    until("ten leases", PATIENCE, async || scene.count(&lived).await == all).await;
    assert_eq!(scene.count("SELECT count(*) FROM execution_lease WHERE takeovers > 0").await, 0);
    assert_eq!(scene.endpoint.count(), RUNS, "nobody was asked for again");
    scene.endpoint.release(RUNS);
    let mut said = Vec::new();
    for run in runs {
        let read = scene.ended(run).await;
        assert_eq!(read["status"], "completed", "{read}");
        said.push(read["queued_result"]["result"].as_str().unwrap().to_owned());
    }
    said.sort();
    assert_eq!(said, ["answer 0", "answer 1", "answer 2"]);
    assert_eq!(scene.endpoint.count(), RUNS);
    drop(workers);
}

#[tokio::test]
async fn what_a_worker_hears_after_it_stood_still_is_written_nowhere() {
    let scene = Scene::set().await;
    let path = scene.remote().runnable_by("slow").await;
    scene.endpoint.says_in_turn([slowly("late"), slowly("in time")]);
    let (_place, mut sleeper) = scene.worker();
    let run = scene.queued(&path).await;
    until("the first is asked", PATIENCE, async || scene.endpoint.count() == 1).await;
    sleeper.freeze();
    let (_other_place, other) = scene.worker();
    until("the second is asked", PATIENCE, async || scene.endpoint.count() == 2).await;

    // The other one has the run and waits. Pauses end in the order in which they began.
    sleeper.thaw();
    scene.endpoint.release(1);
    // It ends when it has done with what it had.
    sleeper.terminate();
    assert!(sleeper.ended_within(PATIENCE).await.success(), "{}", sleeper.said());
    assert_eq!(scene.count("SELECT count(*) FROM execution WHERE outcome IS NULL").await, 1);
    assert_eq!(scene.count("SELECT count(*) FROM execution_lease WHERE takeovers = 1").await, 1);
    scene.endpoint.release(1);
    let read = scene.ended(run).await;
    assert_eq!((&read["status"], &read["queued_result"]["result"]), (&json!("completed"), &json!("in time")));
    let ends = "SELECT count(*) FROM fact WHERE kind LIKE 'execution.%'";
    assert_eq!(scene.count(ends).await, 1);
    let calls = "SELECT count(*) FROM evidence_artifact WHERE artifact_kind = 'provider_call'";
    assert_eq!(scene.count(calls).await, 1);
    assert_eq!(scene.count("SELECT count(*) FROM execution_lease").await, 0);
    drop(other);
    drop(scene.database);
}
