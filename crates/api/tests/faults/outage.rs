//! R21: while the database is away every request is refused at once and honestly, and afterwards all is there.

use crate::{
    postgres::Postgres,
    process::{Server, until},
    remote::{Answer, Heard, Remote, inputs, policy},
};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use uuid::Uuid;

/// How long a refusal may take.
const PROMPT: Duration = Duration::from_secs(2);
/// Rounds of requests of which one has to be refused within [`PROMPT`].
const ROUNDS: usize = 3;
/// How long after the database is back the first success may take.
const BACK: Duration = Duration::from_secs(5);
/// How long the server is watched while the database is away.
const WATCHED: Duration = Duration::from_secs(2);
/// Between two requests of a client that does not give up meanwhile.
const RETRY: Duration = Duration::from_millis(100);
/// A server that waits takes less than one of so many parts of a processor.
const SHARE: u32 = 5;
/// Requests of each of the six kinds at the same time: together more than there are connections.
const AT_ONCE: usize = 6;

/// What a request of each kind hears.
async fn ask(remote: &Remote, number: usize, paths: &Paths) -> Heard {
    match number % 6 {
        0 => remote.post(&paths.execute, &inputs(), None).await,
        1 => remote.post(&paths.execute, &inputs(), Some(&Uuid::now_v7().to_string())).await,
        2 => remote.get(&paths.execution).await,
        3 => remote.post(&paths.versions, &json!({ "content": policy() }), None).await,
        4 => remote.get("/v1/audit/events?limit=5").await,
        _ => remote.get(&paths.active).await,
    }
}

#[derive(Clone)]
struct Paths {
    execute: String,
    execution: String,
    versions: String,
    active: String,
}

impl Paths {
    /// Makes what they name.
    async fn of(remote: &Remote) -> Self {
        let execute = remote.runnable().await;
        let (workload, _) = remote.workload().await;
        let release = remote.approved(workload).await;
        remote.make(&format!("/v1/releases/{release}/transition"), &json!({ "to_state": "active" })).await;
        let versions = format!("/v1/assets/{}/versions", remote.asset("policy_bundle").await);
        let first = remote.post(&execute, &inputs(), None).await.unwrap();
        Self {
            execution: format!("/v1/executions/{}", first.execution().unwrap()),
            execute,
            versions,
            active: format!("/v1/workloads/{workload}/active-release?environment=dev"),
        }
    }
}

/// Asks everything one after the other; nothing stands against any of it. Answers with the runs that it was told of.
async fn gets_everything(server: &Server, paths: &Paths) -> Vec<Uuid> {
    let mut told = Vec::new();
    for number in 0..12 {
        let answer = ask(&server.remote, number, paths).await.unwrap();
        assert!(matches!(answer.status, 200 | 201), "{answer:?}: {}", server.said());
        told.extend(answer.execution());
    }
    told
}

/// Asks everything at once, and says how long each answer took.
async fn ask_everything(remote: &Remote, paths: &Paths, at_once: usize) -> Vec<(Duration, Answer)> {
    let mut asked = JoinSet::new();
    for number in 0..6 * at_once {
        let (remote, paths) = (remote.clone(), paths.clone());
        asked.spawn(async move {
            let since = Instant::now();
            let answer = ask(&remote, number, &paths).await.unwrap();
            (since.elapsed(), answer)
        });
    }
    asked.join_all().await
}

/// Asserts that all requests of a round are refused within [`PROMPT`]. Other programs can delay a round, so one of
/// [`ROUNDS`] rounds has to stay within it.
async fn assert_prompt_refusals(remote: &Remote, paths: &Paths, at_once: usize) {
    let mut slowest = Vec::new();
    for _ in 0..ROUNDS {
        let round = ask_everything(remote, paths, at_once).await;
        assert!(!round.is_empty());
        for (_, answer) in &round {
            assert!(answer.asks_to_come_back(), "{answer:?}");
        }
        let longest = round.iter().map(|(took, _)| *took).max().unwrap();
        if longest < PROMPT {
            return;
        }
        slowest.push(longest);
    }
    panic!("refusals took longer than {PROMPT:?} in each round: {slowest:?}");
}

async fn is_refused_at_once(remote: &Remote, paths: &Paths) {
    assert_prompt_refusals(remote, paths, AT_ONCE).await;
    let since = Instant::now();
    let unready = remote.get("/readyz").await.unwrap();
    assert_eq!((unready.status, unready.body["database"].as_str()), (503, Some("unavailable")));
    assert!(since.elapsed() < PROMPT, "{:?}", since.elapsed());
    assert_eq!(remote.get("/healthz").await.unwrap().status, 200);
}

/// Relays and pools try again in their own time: while nothing can be done, next to nothing is done.
async fn waits_quietly(server: &Server, paths: &Paths) {
    let (since, before) = (Instant::now(), server.processor_time());
    let mut pace = tokio::time::interval(RETRY);
    let mut number = 0;
    while since.elapsed() < WATCHED {
        pace.tick().await;
        let answer = ask(&server.remote, number, paths).await.unwrap();
        assert!(answer.asks_to_come_back(), "{answer:?}");
        number += 1;
    }
    let (elapsed, taken) = (since.elapsed(), server.processor_time() - before);
    assert!(taken * SHARE < elapsed, "{taken:?} of processor time in {elapsed:?} without a database");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_refused_at_once_and_forgotten_at_once() {
    fairway_testkit::init();
    let mut postgres = Postgres::new();
    let place = postgres.place().await;
    let server = place.start().await;
    let remote = &server.remote;
    let paths = Paths::of(remote).await;

    for _ in 0..2 {
        let acknowledged = gets_everything(&server, &paths).await;
        postgres.crash();
        is_refused_at_once(remote, &paths).await;
        waits_quietly(&server, &paths).await;
        postgres.start();
        let since = Instant::now();
        until("the first success", BACK, async || {
            let answer = remote.post(&paths.execute, &inputs(), None).await.unwrap();
            assert!(answer.status == 200 || answer.asks_to_come_back(), "{answer:?}");
            answer.status == 200
        })
        .await;
        assert!(since.elapsed() < BACK);
        until("ready", BACK, async || remote.get("/readyz").await.unwrap().status == 200).await;
        gets_everything(&server, &paths).await;
        for execution in acknowledged {
            let found = remote.get(&format!("/v1/executions/{execution}")).await.unwrap();
            assert_eq!((found.status, found.body["outcome"].as_str()), (200, Some("success")), "{found:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_hangs_keeps_nobody_waiting_for_those_in_front() {
    fairway_testkit::init();
    let postgres = Postgres::new();
    let place = postgres.place().await;
    let server = place.start().await;
    let remote = &server.remote;
    let paths = Paths::of(remote).await;
    gets_everything(&server, &paths).await;

    let frozen = postgres.freeze();
    // More than several statements together take in, so that some wait behind others.
    assert_prompt_refusals(remote, &paths, 6 * AT_ONCE).await;
    drop(frozen);
    until("ready", BACK, async || remote.get("/readyz").await.unwrap().status == 200).await;
    gets_everything(&server, &paths).await;
}
