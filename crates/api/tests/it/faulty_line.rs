//! R3: a server whose connections to its database break in front of commits, behind them and in between still does
//! once what it is asked for once, and never refuses for good what it has done.

mod scene;

use crate::{
    document::{Route, routes},
    stage::Stage,
};
use fairway_testkit::{
    Cut, FaultyLine, LineFault, TestApp,
    app::{Answer, Client, Request},
};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    sync::Arc,
    time::{Duration, Instant},
};

/// Of ten thousand requests to the database.
const ONE_IN_A_HUNDRED: u64 = 100;

const ONE_IN_TWENTY: u64 = 500;

/// A client gives up only when something is wrong for good.
const TRIES: usize = 200;

const RETRY: Duration = Duration::from_millis(20);

/// Everything that is under way has ended by then: the lease of a run that was lost is over, too.
const PATIENCE: Duration = Duration::from_secs(20);

/// Clients that send at the same time, so that commits are gathered.
const AT_ONCE: usize = 24;

/// Asks for what cannot be done twice in one go: what these change is what they are named for.
const RUNS: [&str; 2] = ["execute_workload", "execute_workload_on_lane"];

/// Asks for a run of the generator: what it writes is what runs write.
const DRAFT: &str = "generate_asset_draft";

/// Asks for a run like any other.
const TOOL: &str = "call_tool";

/// Asks for a run that is under way, beside which nothing comes to rest: it has a test of its own.
const UNDER_WAY: &str = "cancel_execution";

/// Asks for a script, which is handed over once and whose end may be lost for good: `code` has tests of its own.
const SCRIPT: &str = "run_code";

/// What relays and caches do at times of their own.
const BESIDE: &str = "fact_order fact_pending fact_log execution_lease evidence_snapshot chore";

/// Where a walk starts, and how many there are.
fn walks() -> Vec<(u64, u64)> {
    let start = env::var("FAIRWAY_TEST_SEED").map_or(20_260_101, |seed| seed.parse().unwrap());
    let seeds = if fairway_testkit::is_long() { 20 } else { 1 };
    let seeds = start..start + seeds;
    seeds.flat_map(|seed| [ONE_IN_A_HUNDRED, ONE_IN_TWENTY].map(|odds| (seed, odds))).collect()
}

/// How many rows each table has.
type Rows = BTreeMap<String, i64>;

/// A server on a good line and one on a faulty one, over the same database.
struct Scene {
    calm: TestApp,
    shaky: TestApp,
    line: Arc<FaultyLine>,
    owner: tokio_postgres::Client,
    count: String,
    fault: LineFault,
    /// What each operation adds, where nothing breaks.
    expected: BTreeMap<String, (u16, Rows)>,
    keys: usize,
    /// How often each status was answered over the faulty line.
    answers: BTreeMap<u16, usize>,
}

/// A try, by the identifier under which the log would name it.
struct Sent {
    request_id: String,
    answer: Answer,
}

/// Everything that can be asked for and changes something, but for runs.
fn writing() -> Vec<Route> {
    let writes = |route: &Route| {
        route.method != "get" && !["validate_flow", RUNS[0], TOOL, UNDER_WAY, DRAFT, SCRIPT].contains(&route.id())
    };
    routes().into_iter().filter(writes).collect()
}

fn with(key: Option<&str>, request: Request) -> Request {
    match key {
        Some(key) => request.key(key),
        None => request,
    }
}

/// A request that changes something. Settings that are set to what they are would not, so they are turned back first.
async fn changing(stage: &Stage<'_>, operation: &str) -> Request {
    let request = stage.request(operation).await;
    let (back, forth) = match operation {
        "change_tenant_settings" => {
            (json!({ "advanced_notifications_enabled": false }), json!({ "advanced_notifications_enabled": true }))
        }
        "change_environment_settings" => {
            let of = |approvals: u8| {
                json!({
                    "min_approvals": approvals, "allow_self_approval": true, "pin_documents": false,
                })
            };
            (of(1), of(2))
        }
        _ => return request,
    };
    request.clone().json(back).await.expect(200);
    request.json(forth)
}

/// The runs that refusals named.
fn named(sent: &[Sent]) -> BTreeSet<String> {
    let runs = sent.iter().map(|sent| sent.answer.json());
    let runs = runs.flat_map(|body| [body["execution_id"].clone(), body["detail"]["execution_id"].clone()]);
    runs.filter_map(|run| run.as_str().map(str::to_owned)).collect()
}

impl std::fmt::Debug for Sent {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "\n{}: {}", self.request_id, self.answer)
    }
}

/// A workload whose runs are all denied.
async fn denied(stage: &Stage<'_>) -> Request {
    let deny = json!([{ "id": "no", "condition": "never", "outcome": "allow", "reason_code": "ok" }]);
    let deny = stage.given.policy_of("deny", deny).await;
    let workload = stage.given.active_under("denied", deny).await;
    stage.app.post(workload.execute_path(), json!({ "environment": "dev", "inputs": { "ticket": "x" } }))
}

/// The first workspace in a namespace makes that as well, the first settings of an environment their row, and the first
/// documents of a knowledge base its index.
async fn rehearse(stage: &Stage<'_>) {
    for operation in ["create_workspace", "change_environment_settings", "add_documents"] {
        let answer = stage.request(operation).await.await;
        assert!(answer.status < 300, "{answer}");
    }
}

/// Goes through everything that can be asked for. How often each cut was made, and each status answered.
async fn walk(seed: u64, odds: u64) -> (BTreeMap<Cut, usize>, BTreeMap<u16, usize>) {
    let mut scene = Scene::set(seed, LineFault::Drawn(odds)).await;
    let calm = Client::clone(&scene.calm);
    let stage = Stage::set(&calm).await;
    let denied = denied(&stage).await;
    rehearse(&stage).await;
    for route in writing() {
        if route.has_parameter("Idempotency-Key") {
            scene.change(&stage, route.id(), true).await;
        }
        scene.change(&stage, route.id(), false).await;
    }
    for operation in RUNS {
        let request = stage.request(operation).await;
        scene.run(&request, Some(operation), (200, "")).await;
        scene.run(&request, None, (200, "")).await;
    }
    scene.run(&denied, Some("denied"), (403, "policy_denied")).await;
    scene.run(&denied, None, (403, "policy_denied")).await;
    scene.crowd(&stage).await;
    for route in routes().iter().filter(|route| route.method == "get" && route.path.starts_with("/v1/")) {
        scene.read(&stage, route.id()).await;
    }
    let mut cuts = BTreeMap::new();
    for made in scene.line.made() {
        *cuts.entry(made.cut).or_default() += 1;
    }
    (cuts, std::mem::take(&mut scene.answers))
}

/// Each change, cut at its own commit in each way.
#[tokio::test]
async fn a_commit_that_is_cut_happened_once_or_not_at_all() {
    let mut scene = Scene::set(1, LineFault::None).await;
    let calm = Client::clone(&scene.calm);
    let stage = Stage::set(&calm).await;
    let denied = denied(&stage).await;
    rehearse(&stage).await;
    let changes = writing();
    for cut in [Cut::Before, Cut::Behind, Cut::Between] {
        scene.fault = LineFault::Once("fairway_commit(", cut);
        for route in &changes {
            let keyed = route.has_parameter("Idempotency-Key");
            assert!(scene.change(&stage, route.id(), keyed).await, "{cut:?} met no commit of {}", route.id());
        }
        for commit in ["INTO execution (", "INTO execution_result ("] {
            scene.fault = LineFault::Once(commit, cut);
            let request = stage.request("execute_workload").await;
            let cuts = scene.line.made().len();
            scene.run(&request, Some(&format!("{commit}{cut:?}").replace(' ', "-")), (200, "")).await;
            scene.run(&request, None, (200, "")).await;
            assert_eq!(scene.line.made().len(), cuts + 2, "{cut:?} met no {commit}");
        }
        scene.fault = LineFault::Once("INTO execution (", cut);
        scene.run(&denied, Some(&format!("denied-{cut:?}")), (403, "policy_denied")).await;
        scene.run(&denied, None, (403, "policy_denied")).await;
    }
    let cuts = scene.line.made().len();
    println!("{cuts} cuts, {:?}", scene.answers);
    assert_eq!(cuts, 3 * (changes.len() + 6), "each commit was cut in each way");
    assert!(scene.answers[&503] > changes.len(), "cuts were felt: {:?}", scene.answers);
}

#[tokio::test]
async fn what_was_committed_is_never_refused_for_good_and_never_done_twice() {
    let (mut cuts, mut answers) = (BTreeMap::new(), BTreeMap::new());
    for (seed, odds) in walks() {
        println!("seed {seed}, {odds} of 10000: FAIRWAY_TEST_SEED={seed} runs it first");
        let began = Instant::now();
        let (cut, answered) = walk(seed, odds).await;
        println!("    {cut:?}, {answered:?} after {:.1?}", began.elapsed());
        for (cut, times) in cut {
            *cuts.entry(cut).or_insert(0) += times;
        }
        for (status, times) in answered {
            *answers.entry(status).or_insert(0) += times;
        }
    }
    println!("all: {cuts:?}, {answers:?}");
    assert_eq!(cuts.len(), 3, "each kind of cut was made: {cuts:?}");
    assert!(answers[&503] > 10, "cuts were felt: {answers:?}");
}

/// Where the rights cannot be read, nobody is let in on what was remembered of them, and nothing is told.
#[tokio::test]
async fn without_a_look_at_rights_nothing_is_told_or_done() {
    let mut scene = Scene::set(1, LineFault::None).await;
    let calm = Client::clone(&scene.calm);
    let stage = Stage::set(&calm).await;
    let looked_at = |route: &Route| route.path.starts_with("/v1/") && route.id() != UNDER_WAY;
    let ours: Vec<Route> = routes().into_iter().filter(looked_at).collect();
    assert!(ours.len() > 40, "{}", ours.len());
    for fault in [LineFault::At("access_revision"), LineFault::Down] {
        for route in &ours {
            let request = stage.request(route.id()).await;
            // The server has just answered such a request, so that it remembers what there is to remember.
            if route.method == "get" {
                assert_eq!(request.clone().at(&scene.shaky).await.status, 200, "{}", route.id());
            }
            let before = scene.rows().await;
            scene.line.becomes(fault.clone());
            let answer = request.at(&scene.shaky).await;
            scene.line.becomes(LineFault::None);
            if answer.status != 503 {
                panic!("{fault:?}: {answer}");
            }
            // A tool has a word of its own for a run of which nobody knows whether it was accepted.
            let is_lost = route.id() == TOOL && answer.json()["detail"].get("execution_id").is_some();
            answer.refused(503, if is_lost { "tool_response_lost" } else { "unavailable" });
            assert_eq!(scene.rows().await, before, "{}", route.id());
            *scene.answers.entry(answer.status).or_default() += 1;
        }
    }
    assert_eq!(scene.answers, [(503, 2 * ours.len())].into());
}

/// Whatever was answered first, the run ends once, and who asks again with the same key finds it ended.
#[tokio::test]
async fn a_cancelling_that_is_cut_ends_its_run_once() {
    let scene = Scene::set(1, LineFault::None).await;
    let calm = Client::clone(&scene.calm);
    let stage = Stage::set(&calm).await;
    let mut cuts = 0;
    for commit in ["SET cancelled_by =", "DELETE FROM execution_lease"] {
        for cut in [Cut::Before, Cut::Behind, Cut::Between] {
            let request = stage.request(UNDER_WAY).await.key(&format!("{}-{cut:?}", commit.len()));
            scene.line.becomes(LineFault::Once(commit, cut));
            let mut answered = Vec::new();
            while answered.last() != Some(&200) {
                let answer = request.clone().at(&scene.shaky).await;
                assert!(matches!(answer.status, 200 | 503), "{answer}");
                answered.push(answer.status);
                assert!(answered.len() < 5, "{commit} {cut:?}: {answered:?}");
                if answer.status == 200 {
                    assert_eq!(answer.json()["status"], "cancelled");
                }
            }
            cuts += 1;
            assert_eq!(scene.line.made().len(), cuts, "{cut:?} met no {commit}");
        }
    }
    scene.line.becomes(LineFault::None);
    scene.rows().await;
    let ends = "SELECT count(*) FROM fact WHERE kind = 'execution.ended' AND convert_from(body, 'UTF8') LIKE '%\"cancelled\"%'";
    let ends: i64 = scene.owner.query_one(ends, &[]).await.unwrap().get(0);
    assert_eq!(usize::try_from(ends).unwrap(), cuts);
}
