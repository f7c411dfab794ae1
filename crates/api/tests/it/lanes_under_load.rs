//! Lanes that many clients move at once, with somebody who looks all the while.

use fairway_testkit::{
    TestApp,
    app::{Answer, Client, Version},
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
/// How often somebody looks.
const GLANCE: Duration = Duration::from_millis(5);
/// Releases that clients choose from: the newest, of which each round brings two more.
const IN_PLAY: usize = 6;

/// How many clients ask at once, and how often.
struct Load {
    clients: usize,
    rounds: usize,
}

impl Load {
    fn asked() -> Self {
        if fairway_testkit::is_long() { Self { clients: 64, rounds: 200 } } else { Self { clients: 16, rounds: 6 } }
    }
}

/// What a client asks for in a round: numbers out of the seed and its place.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn lane(&mut self) -> &'static str {
        LANES[self.below(LANES.len())]
    }

    fn plan(&mut self) -> Value {
        let first = self.below(LANES.len());
        let lanes: Vec<&str> = (0..=self.below(LANES.len())).map(|step| LANES[(first + step) % LANES.len()]).collect();
        json!({ "lane_sequence": lanes, "soak_duration_minutes": 5, "auto_advance": false })
    }
}

/// What a client asks for, one after another, with the names of its requests.
async fn ask(app: &Client, (workload, releases): (&str, &[String]), mut draw: Draw) -> Vec<(&'static str, Answer)> {
    let release = &releases[draw.below(releases.len())];
    let path = format!("/v1/releases/{release}");
    let activate = |body: Value| app.post(format!("{path}/transition"), body);
    match draw.below(20) {
        0..6 => vec![("activate", activate(json!({ "to_state": "active", "lane": draw.lane() })).await)],
        6 => vec![("activate all", activate(json!({ "to_state": "active" })).await)],
        7..13 => {
            // Whoever begins a rollout goes on with it, as far as others let it.
            let mut asked =
                vec![("roll out", activate(json!({ "to_state": "active", "rollout_plan": draw.plan() })).await)];
            for _ in 0..draw.below(4) {
                asked.push(("advance", app.post(format!("{path}/rollout/advance"), json!({})).await));
            }
            asked
        }
        13..19 => {
            // Whoever takes a release back has seen it on a lane.
            let lane = draw.lane();
            let serving = format!("/v1/workloads/{workload}/active-release?environment=dev&lane={lane}");
            let serving = app.get(serving).await.expect(200);
            let path = format!("/v1/releases/{}/rollback", serving["release_id"].as_str().unwrap());
            let one = json!({ "reason": "x", "lane": lane });
            let body = if draw.below(3) == 0 { json!({ "reason": "x" }) } else { one };
            vec![("roll back", app.post(path, body).await)]
        }
        _ => {
            // Only what holds no lane, and only as it was seen: a holder that retires leaves its lanes empty.
            let seen = app.get(&path).await;
            if seen.expect(200)["state"] == "active" {
                return Vec::new();
            }
            let tag = seen.header("etag").unwrap();
            vec![("retire", activate(json!({ "to_state": "retired" })).header("If-Match", tag).await)]
        }
    }
}

/// How an answer counts. Whoever is refused is told where the release is, and where that leads.
#[track_caller]
fn judge(asked: &str, answer: &Answer) -> String {
    if answer.status == 200 {
        return "200".to_owned();
    }
    let code = answer.code();
    let expected = match (asked, code.as_str()) {
        (_, "invalid_transition") => {
            let detail = answer.refused(409, &code);
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
        | ("advance", "rollout_not_in_progress") => answer.status == 409,
        ("retire", "precondition_failed") => answer.status == 412,
        _ => false,
    };
    assert!(expected, "{asked}: neither done nor refused with the true state\n{answer}");
    code
}

/// Looks at the lanes until it is told to stop: each has one holder, and who holds one is active. Answers how often.
async fn watch(app: Client, owner: tokio_postgres::Client, workload: String, over: Arc<AtomicBool>) -> usize {
    let holders = "SELECT ARRAY[restricted_release_id, guided_release_id, standard_release_id]::text[],
            ARRAY(SELECT release_id::text FROM release
                WHERE release.workload_id = deployment.workload_id AND state = 'active')
        FROM deployment WHERE workload_id = $1::text::uuid";
    let mut glances = tokio::time::interval(GLANCE);
    glances.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut looked = 0;
    while !over.load(Ordering::Relaxed) {
        glances.tick().await;
        let row = owner.query_one(holders, &[&workload]).await.unwrap();
        let held: Vec<Option<String>> = row.get(0);
        assert!(held.iter().all(Option::is_some), "a lane is empty: {held:?}");
        let (held, active): (BTreeSet<String>, Vec<String>) = (held.into_iter().flatten().collect(), row.get(1));
        assert_eq!(
            active.into_iter().collect::<BTreeSet<String>>(),
            held,
            "those who hold lanes are active, and no others"
        );

        let told = app.get(format!("/v1/workloads/{workload}/lanes?environment=dev")).await.expect(200);
        let told: Vec<(&Value, bool)> =
            told.as_array().unwrap().iter().map(|lane| (&lane["lane"], lane["holder"].is_string())).collect();
        assert_eq!(
            told,
            LANES.map(|lane| (json!(lane), true)).iter().map(|(lane, held)| (lane, *held)).collect::<Vec<_>>()
        );
        let lane = LANES[looked % LANES.len()];
        let path = format!("/v1/workloads/{workload}/active-release?environment=dev&lane={lane}");
        let serving = app.get(path).await.expect(200);
        assert_eq!(serving["state"], "active", "{serving}");
        looked += 1;
    }
    looked
}

struct Moved {
    lane: String,
    from: Option<String>,
    to: Option<String>,
    reason: String,
}

/// What happened to the lanes, oldest first, and within one move the most careful lane first.
async fn moves(app: &TestApp, workload: &str) -> Vec<Moved> {
    let sql = "SELECT lane, from_release_id::text, to_release_id::text, reason FROM deployment_history
        WHERE workload_id = $1::text::uuid
        ORDER BY revision, array_position(ARRAY['restricted', 'guided', 'standard'], lane)";
    let rows = app.database().owner().await.unwrap().query(sql, &[&workload]).await.unwrap();
    let moved =
        |row: &tokio_postgres::Row| Moved { lane: row.get(0), from: row.get(1), to: row.get(2), reason: row.get(3) };
    rows.iter().map(moved).collect()
}

/// Whom each release names as the one that it replaced.
async fn links(app: &TestApp, workload: &str) -> BTreeMap<String, Option<String>> {
    let sql = "SELECT release_id::text, supersedes_release_id::text FROM release WHERE workload_id = $1::text::uuid";
    let rows = app.database().owner().await.unwrap().query(sql, &[&workload]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Each lane's history is one path that ends at its holder, and each release names the holder that it replaced first.
async fn is_sound(app: &TestApp, workload: &str) -> usize {
    let moves = moves(app, workload).await;
    let mut last: BTreeMap<&str, Option<&String>> = BTreeMap::new();
    let mut first: BTreeMap<&String, &String> = BTreeMap::new();
    let mut taken_back: BTreeSet<(&str, &String)> = BTreeSet::new();
    for Moved { lane, from, to, reason } in &moves {
        assert_eq!(last.insert(lane, to.as_ref()).flatten(), from.as_ref(), "{lane} has one path");
        let to = to.as_ref().unwrap();
        if reason == "rollback" {
            taken_back.insert((lane, from.as_ref().unwrap()));
            assert!(!taken_back.contains(&(lane.as_str(), to)), "{lane} went back to whom it was taken from");
        } else if let Some(from) = from {
            first.entry(to).or_insert(from);
        }
    }
    for lane in LANES {
        let path = format!("/v1/workloads/{workload}/active-release?environment=dev&lane={lane}");
        assert_eq!(app.get(path).await.expect(200)["release_id"].as_str(), last[lane].map(String::as_str));
    }
    for (release, replaced) in links(app, workload).await {
        assert_eq!(replaced.as_ref(), first.get(&release).copied(), "whom {release} replaced first");
    }
    moves.len()
}

/// A workload with a release on all lanes, and the version that every release of it binds.
async fn served(app: &TestApp) -> (String, Vec<Version>, String) {
    let given = app.given();
    let (workload, versions) = (given.workload("main").await, vec![given.policy("policy").await]);
    let first = given.approved(&workload, &versions).await;
    given.transition(&first, "active").await;
    (workload, versions, first)
}

#[tokio::test]
async fn whatever_many_ask_for_each_lane_has_one_holder() {
    let Load { clients, rounds } = Load::asked();
    let seed: u64 = env::var("FAIRWAY_TEST_SEED").map_or(20_260_101, |seed| seed.parse().unwrap());
    let app = TestApp::start().await;
    let (workload, versions, first) = served(&app).await;
    let over = Arc::new(AtomicBool::new(false));
    let owner = app.database().owner().await.unwrap();
    let watcher = tokio::spawn(watch(Client::clone(&app), owner, workload.clone(), Arc::clone(&over)));
    let mut releases = vec![first];
    let mut answers: BTreeMap<(&str, String), usize> = BTreeMap::new();
    let started = Instant::now();
    for round in 0..rounds {
        for _ in 0..2 {
            releases.push(app.given().approved(&workload, &versions).await);
        }
        let in_play = &releases[releases.len().saturating_sub(IN_PLAY)..];
        let attempts = (0..clients).map(|client| {
            let place = u64::try_from(round * clients + client).unwrap();
            ask(&app, (&workload, in_play), Draw(seed.wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15))))
        });
        for (asked, answer) in join_all(attempts).await.into_iter().flatten() {
            *answers.entry((asked, judge(asked, &answer))).or_default() += 1;
        }
        assert!(!watcher.is_finished(), "seed {seed}, round {round}: {:?}", watcher.await);
    }
    let took = started.elapsed();
    over.store(true, Ordering::Relaxed);
    let looked = watcher.await.unwrap();
    let moved = is_sound(&app, &workload).await;
    println!("{clients} clients, {rounds} rounds from seed {seed} in {took:.1?}: {moved} moves, {looked} looks");
    for ((asked, code), count) in &answers {
        println!("{count:6} {asked}: {code}");
    }
    assert!(looked > rounds && moved > 2 * rounds, "{looked} looks at {moved} moves");
    // Each sort of move was made, so each was made beside the others.
    let done = |asked: &str| answers.get(&(asked, "200".to_owned())).is_some_and(|count| *count > 0);
    assert!(["activate", "roll out", "advance", "roll back"].into_iter().all(done), "{answers:#?}");
}

/// Where releases take all lanes at once, who replaced whom is one path, whoever asks for it how often.
#[tokio::test]
async fn releases_that_take_all_lanes_follow_one_another() {
    const CLIENTS: usize = 4;
    let app = TestApp::start().await;
    let (workload, versions, first) = served(&app).await;
    let mut releases = Vec::new();
    for _ in 0..6 {
        releases.push(app.given().approved(&workload, &versions).await);
    }
    let attempts = (0..CLIENTS * releases.len()).map(|client| {
        let path = format!("/v1/releases/{}/transition", releases[client % releases.len()]);
        app.post(path, json!({ "to_state": "active" })).into_future()
    });
    let answers = join_all(attempts).await;
    let won = answers.iter().filter(|answer| judge("activate all", answer) == "200").count();
    assert_eq!(won, releases.len(), "each takes all lanes once");
    is_sound(&app, &workload).await;
    let mut links = links(&app, &workload).await;
    let path = format!("/v1/workloads/{workload}/active-release?environment=dev");
    let mut at = app.get(path).await.expect(200)["release_id"].as_str().unwrap().to_owned();
    while let Some(replaced) = links.remove(&at).unwrap() {
        at = replaced;
    }
    assert_eq!((at, links.len()), (first, 0), "the path goes through all of them and ends at the first");
}
