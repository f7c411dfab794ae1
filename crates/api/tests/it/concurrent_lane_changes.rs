//! Many clients change lanes concurrently while an observer checks the invariants of lanes.

use fairway_testkit::{
    TestApp,
    app::{Client, Response, Version},
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

const LANES: [&str; 3] = ["restricted", "guided", "standard"];
/// Interval between two checks of the observer.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Number of newest releases that clients choose from. Each round adds two releases.
const CANDIDATE_RELEASES: usize = 6;

/// Numbers of concurrent clients and of rounds.
struct Load {
    clients: usize,
    rounds: usize,
}

impl Load {
    fn configured() -> Self {
        if fairway_testkit::is_long_form_requested() {
            Self { clients: 64, rounds: 200 }
        } else {
            Self { clients: 16, rounds: 6 }
        }
    }
}

/// Random numbers of one client in one round, derived from the seed and from the client's index over all rounds.
struct RandomSource(u64);

impl RandomSource {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn lane(&mut self) -> &'static str {
        LANES[self.below(LANES.len())]
    }

    fn rollout_plan(&mut self) -> Value {
        let first_lane = self.below(LANES.len());
        let lanes: Vec<&str> =
            (0..=self.below(LANES.len())).map(|step| LANES[(first_lane + step) % LANES.len()]).collect();
        json!({ "lane_sequence": lanes, "soak_duration_minutes": 5, "auto_advance": false })
    }
}

/// Sends one random kind of change as one client: a single request, or a sequence. Returns each response with the
/// name of its request.
async fn send_random_request(
    app: &Client,
    workload: &str,
    releases: &[String],
    mut draw: RandomSource,
) -> Vec<(&'static str, Response)> {
    let release = &releases[draw.below(releases.len())];
    let path = format!("/v1/releases/{release}");
    let activate = |body: Value| app.post(format!("{path}/transition"), body);
    match draw.below(20) {
        0..6 => vec![("activate", activate(json!({ "to_state": "active", "lane": draw.lane() })).await)],
        6 => vec![("activate all", activate(json!({ "to_state": "active" })).await)],
        7..13 => {
            // The client starts a rollout and advances it. Concurrent changes of other clients may stop the rollout.
            let mut responses = vec![(
                "roll out",
                activate(json!({ "to_state": "active", "rollout_plan": draw.rollout_plan() })).await,
            )];
            for _ in 0..draw.below(4) {
                responses.push(("advance", app.post(format!("{path}/rollout/advance"), json!({})).await));
            }
            responses
        }
        13..19 => {
            // A rollback names a release that currently holds a lane.
            let lane = draw.lane();
            let serving = format!("/v1/workloads/{workload}/active-release?environment=dev&lane={lane}");
            let serving = app.get(serving).await.expect(200);
            let path = format!("/v1/releases/{}/rollback", serving["release_id"].as_str().unwrap());
            let lane_body = json!({ "reason": "x", "lane": lane });
            let body = if draw.below(3) == 0 { json!({ "reason": "x" }) } else { lane_body };
            vec![("roll back", app.post(path, body).await)]
        }
        _ => {
            // Retires only a release without a lane, guarded by `If-Match`. Retiring a holder would leave its lanes
            // without a holder.
            let response = app.get(&path).await;
            if response.expect(200)["state"] == "active" {
                return Vec::new();
            }
            let tag = response.header("etag").unwrap();
            vec![("retire", activate(json!({ "to_state": "retired" })).header("If-Match", tag).await)]
        }
    }
}

/// Returns the status or the error code of a response. Asserts that a refusal names the release's current state and
/// its valid transitions.
#[track_caller]
fn classify_response(request: &str, response: &Response) -> String {
    if response.status == 200 {
        return "200".to_owned();
    }
    let code = response.code();
    let expected = match (request, code.as_str()) {
        (_, "invalid_transition") => {
            let detail = response.expect_refusal(409, &code);
            let valid: &[&[&str]] = match detail["current_state"].as_str().unwrap() {
                "approved" => &[&["active", "retired"]],
                "active" => &[&["active", "retired"], &["retired"]],
                "superseded" => &[&["retired"]],
                "retired" => &[&[]],
                _ => &[],
            };
            valid.iter().any(|valid| json!(valid) == detail["valid_transitions"])
        }
        ("roll back", "no_previous_release")
        | ("roll out", "rollout_in_progress")
        | ("advance", "rollout_not_in_progress") => response.status == 409,
        ("retire", "precondition_failed") => response.status == 412,
        _ => false,
    };
    assert!(expected, "{request}: unexpected refusal\n{response}");
    code
}

/// Checks repeatedly, until `is_finished` is set, that each lane has one holder and that exactly the holders are
/// active. Returns the number of checks.
async fn watch_lanes(
    app: Client,
    owner: tokio_postgres::Client,
    workload: String,
    is_finished: Arc<AtomicBool>,
) -> usize {
    let holders = "SELECT ARRAY[restricted_release_id, guided_release_id, standard_release_id]::text[],
            ARRAY(SELECT release_id::text FROM release
                WHERE release.workload_id = deployment.workload_id AND state = 'active')
        FROM deployment WHERE workload_id = $1::text::uuid";
    let mut interval = tokio::time::interval(POLL_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut checks = 0;
    while !is_finished.load(Ordering::Relaxed) {
        interval.tick().await;
        let row = owner.query_one(holders, &[&workload]).await.unwrap();
        let lane_holders: Vec<Option<String>> = row.get(0);
        assert!(lane_holders.iter().all(Option::is_some), "a lane is empty: {lane_holders:?}");
        let (holders, active): (BTreeSet<String>, Vec<String>) =
            (lane_holders.into_iter().flatten().collect(), row.get(1));
        assert_eq!(
            active.into_iter().collect::<BTreeSet<String>>(),
            holders,
            "exactly the releases that hold lanes are active"
        );

        let rows = app.get(format!("/v1/workloads/{workload}/lanes?environment=dev")).await.expect(200);
        let rows: Vec<(&Value, bool)> =
            rows.as_array().unwrap().iter().map(|lane| (&lane["lane"], lane["holder"].is_string())).collect();
        assert_eq!(
            rows,
            LANES.map(|lane| (json!(lane), true)).iter().map(|(lane, is_held)| (lane, *is_held)).collect::<Vec<_>>()
        );
        let lane = LANES[checks % LANES.len()];
        let path = format!("/v1/workloads/{workload}/active-release?environment=dev&lane={lane}");
        let serving = app.get(path).await.expect(200);
        assert_eq!(serving["state"], "active", "{serving}");
        checks += 1;
    }
    checks
}

struct LaneHistoryRow {
    lane: String,
    from_release: Option<String>,
    to_release: Option<String>,
    reason: String,
}

/// The history of all lanes, oldest change first. Within one change, the narrowest lane comes first.
async fn lane_history(app: &TestApp, workload: &str) -> Vec<LaneHistoryRow> {
    let sql = "SELECT lane, from_release_id::text, to_release_id::text, reason FROM deployment_history
        WHERE workload_id = $1::text::uuid
        ORDER BY revision, array_position(ARRAY['restricted', 'guided', 'standard'], lane)";
    let rows = app.database().connect_as_owner().await.unwrap().query(sql, &[&workload]).await.unwrap();
    let history_row = |row: &tokio_postgres::Row| LaneHistoryRow {
        lane: row.get(0),
        from_release: row.get(1),
        to_release: row.get(2),
        reason: row.get(3),
    };
    rows.iter().map(history_row).collect()
}

/// For each release, the release that it superseded.
async fn superseded_releases(app: &TestApp, workload: &str) -> BTreeMap<String, Option<String>> {
    let sql = "SELECT release_id::text, supersedes_release_id::text FROM release WHERE workload_id = $1::text::uuid";
    let rows = app.database().connect_as_owner().await.unwrap().query(sql, &[&workload]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Asserts that each lane's history is one path that ends at the lane's holder. Also asserts that each release names
/// the first holder that it replaced. Returns the number of history rows.
async fn assert_consistent_history(app: &TestApp, workload: &str) -> usize {
    let moves = lane_history(app, workload).await;
    let mut last_holders: BTreeMap<&str, Option<&String>> = BTreeMap::new();
    let mut first_replaced: BTreeMap<&String, &String> = BTreeMap::new();
    let mut rolled_back: BTreeSet<(&str, &String)> = BTreeSet::new();
    for LaneHistoryRow { lane, from_release, to_release, reason } in &moves {
        assert_eq!(
            last_holders.insert(lane, to_release.as_ref()).flatten(),
            from_release.as_ref(),
            "{lane} has one path"
        );
        let to_release = to_release.as_ref().unwrap();
        if reason == "rollback" {
            rolled_back.insert((lane, from_release.as_ref().unwrap()));
            assert!(
                !rolled_back.contains(&(lane.as_str(), to_release)),
                "{lane} was rolled back to a release that was rolled back earlier"
            );
        } else if let Some(from_release) = from_release {
            first_replaced.entry(to_release).or_insert(from_release);
        }
    }
    for lane in LANES {
        let path = format!("/v1/workloads/{workload}/active-release?environment=dev&lane={lane}");
        assert_eq!(app.get(path).await.expect(200)["release_id"].as_str(), last_holders[lane].map(String::as_str));
    }
    for (release, replaced) in superseded_releases(app, workload).await {
        assert_eq!(replaced.as_ref(), first_replaced.get(&release).copied(), "first holder that {release} replaced");
    }
    moves.len()
}

/// Creates a workload with a release on all lanes. Returns the workload, the versions that each release binds, and
/// that release.
async fn active_workload(app: &TestApp) -> (String, Vec<Version>, String) {
    let fixtures = app.fixtures();
    let (workload, versions) = (fixtures.workload("main").await, vec![fixtures.allow_all_policy("policy").await]);
    let first_release = fixtures.approved_release(&workload, &versions).await;
    fixtures.transition(&first_release, "active").await;
    (workload, versions, first_release)
}

/// Maximum number of rounds, as a multiple of the configured number.
const MAX_EXTENSION: usize = 10;

#[tokio::test]
async fn each_lane_has_one_holder_under_concurrent_changes() {
    let Load { clients, rounds } = Load::configured();
    let seed: u64 = env::var("FAIRWAY_TEST_SEED").map_or(20_260_101, |seed| seed.parse().unwrap());
    let app = TestApp::start().await;
    let (workload, versions, first_release) = active_workload(&app).await;
    let is_finished = Arc::new(AtomicBool::new(false));
    let owner = app.database().connect_as_owner().await.unwrap();
    let lane_watch = tokio::spawn(watch_lanes(Client::clone(&app), owner, workload.clone(), Arc::clone(&is_finished)));
    let mut releases = vec![first_release];
    let mut response_counts: BTreeMap<(&str, String), usize> = BTreeMap::new();
    let started = Instant::now();
    // Each kind of change must succeed at least once. If one has not, additional rounds follow.
    let succeeded = |counts: &BTreeMap<(&str, String), usize>| {
        let kinds = ["activate", "roll out", "advance", "roll back"];
        kinds.into_iter().all(|kind| counts.contains_key(&(kind, "200".to_owned())))
    };
    let mut round = 0;
    while round < rounds || !succeeded(&response_counts) && round < MAX_EXTENSION * rounds {
        for _ in 0..2 {
            releases.push(app.fixtures().approved_release(&workload, &versions).await);
        }
        let candidates = &releases[releases.len().saturating_sub(CANDIDATE_RELEASES)..];
        let attempts = (0..clients).map(|client| {
            let client_index = u64::try_from(round * clients + client).unwrap();
            send_random_request(
                &app,
                &workload,
                candidates,
                RandomSource(seed.wrapping_add(client_index.wrapping_mul(0x9e37_79b9_7f4a_7c15))),
            )
        });
        for (request, response) in join_all(attempts).await.into_iter().flatten() {
            *response_counts.entry((request, classify_response(request, &response))).or_default() += 1;
        }
        assert!(!lane_watch.is_finished(), "seed {seed}, round {round}: {:?}", lane_watch.await);
        round += 1;
    }
    let took = started.elapsed();
    is_finished.store(true, Ordering::Relaxed);
    let checks = lane_watch.await.unwrap();
    let lane_changes = assert_consistent_history(&app, &workload).await;
    println!(
        "{clients} clients, {rounds} rounds from seed {seed} in {took:.1?}: {lane_changes} lane changes, {checks} checks"
    );
    for ((request, code), count) in &response_counts {
        println!("{count:6} {request}: {code}");
    }
    assert!(checks > rounds && lane_changes > 2 * rounds, "{checks} checks of {lane_changes} lane changes");
    assert!(succeeded(&response_counts), "a kind of change never succeeded under load: {response_counts:#?}");
}

/// Releases that are activated on all lanes at once supersede each other in one chain, even if requests are repeated
/// concurrently.
#[tokio::test]
async fn releases_activated_on_all_lanes_form_one_chain() {
    const CLIENTS: usize = 4;
    let app = TestApp::start().await;
    let (workload, versions, first_release) = active_workload(&app).await;
    let mut releases = Vec::new();
    for _ in 0..6 {
        releases.push(app.fixtures().approved_release(&workload, &versions).await);
    }
    let attempts = (0..CLIENTS * releases.len()).map(|client| {
        let path = format!("/v1/releases/{}/transition", releases[client % releases.len()]);
        app.post(path, json!({ "to_state": "active" })).into_future()
    });
    let responses = join_all(attempts).await;
    let successes = responses.iter().filter(|response| classify_response("activate all", response) == "200").count();
    assert_eq!(successes, releases.len(), "each takes all lanes once");
    assert_consistent_history(&app, &workload).await;
    let mut links = superseded_releases(&app, &workload).await;
    let path = format!("/v1/workloads/{workload}/active-release?environment=dev");
    let mut release_id = app.get(path).await.expect(200)["release_id"].as_str().unwrap().to_owned();
    while let Some(replaced) = links.remove(&release_id).unwrap() {
        release_id = replaced;
    }
    assert_eq!((release_id, links.len()), (first_release, 0), "the chain contains all releases and ends at the first");
}
