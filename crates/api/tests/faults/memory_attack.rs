//! Bounds the resident memory of a server under attack by clients of every role.
//!
//! The short form runs each attack alone. It repeats an attack that has not reached all of its aims, up to
//! [`ROUNDS`] times.
//! The long form (`cargo xtask model`) runs random attacks concurrently, from the seed `FAIRWAY_TEST_SEED`, for
//! `FAIRWAY_TEST_MEMORY_SECONDS` (600 by default).
//! `FAIRWAY_TEST_MEMORY_ATTACKS` selects attacks by name, separated by commas, to find the cause of a memory peak.

#![expect(clippy::print_stdout, reason = "the long form reports its progress")]

mod attacks;
mod caches;
mod client;
mod outcome_counts;
mod target_fixtures;

use crate::server_process::{Server, ServerSetup};
use attacks::Attack;
use fairway_testkit::{TestDatabase, is_long_form_requested};
use outcome_counts::OutcomeCounts;
use std::{
    collections::BTreeMap,
    env,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use target_fixtures::AttackTarget;
use tokio::task::JoinSet;

/// Maximum resident memory of the server, in KiB.
const MAX_RESIDENT_KIB: u64 = 400 << 10;
/// Default duration of the long form.
const DEFAULT_DURATION: Duration = Duration::from_secs(600);
/// Concurrent attacks in the long form.
const CONCURRENT_ATTACKS: usize = 4;
/// Interval between progress reports in the long form.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// A pseudo-random sequence (splitmix64). Clones advance independently.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn from_environment() -> Self {
        let seed = env::var("FAIRWAY_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        Self(seed.unwrap_or(0x0C0F_FEE5))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }
}

fn duration() -> Duration {
    let seconds = env::var("FAIRWAY_TEST_MEMORY_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    seconds.map_or(DEFAULT_DURATION, Duration::from_secs)
}

/// Starts a server with the default limits for waiting requests and memory.
async fn start_server(database: &TestDatabase) -> (ServerSetup, Server) {
    let setup = ServerSetup::new(&database.url_for_owner());
    let setup = setup.setting("FAIRWAY_WAITING_LINE", "24").setting("FAIRWAY_MEMORY_LIMIT_MIB", "400");
    let server = setup.start().await;
    (setup, server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resident_memory_stays_below_400_mib_under_attack() {
    let database = TestDatabase::create().await.unwrap();
    let (_setup, server) = start_server(&database).await;
    let target = Arc::new(AttackTarget::prepare(&server).await);
    println!("before: {} MiB", server.memory().resident_kib >> 10);
    let mut random = Random::from_environment();
    if is_long_form_requested() {
        run_random_attacks(&server, &target, &mut random).await;
    } else {
        run_attacks_in_sequence(&server, &target, &mut random).await;
    }
    // The server still serves legitimate requests.
    let run = target.run_as_owner().await;
    assert_eq!(run.status, 200, "{run:?}\n{}", server.read_log());
}

/// Maximum number of rounds of an attack in the short form. An attack ends early when it has reached all of its aims.
const ROUNDS: usize = 12;

async fn run_attacks_in_sequence(server: &Server, target: &Arc<AttackTarget>, random: &mut Random) {
    let (mut report, mut incomplete_attacks) = (Vec::new(), Vec::new());
    for attack in selected_attacks() {
        server.reset_peak_memory();
        let started_at = Instant::now();
        let mut counts = attack.run(target, random, 1).await;
        // On a busy machine, load shedding can refuse all requests of an aim, so the attack is repeated.
        for _ in 1..ROUNDS {
            if counts.is_complete() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            counts.add(attack.run(target, random, 1).await);
        }
        let memory = server.memory();
        report.push(format!(
            "{attack:?}: peak {} MiB, after {:?}; {counts}",
            memory.peak_kib >> 10,
            started_at.elapsed()
        ));
        println!("{}", report[report.len() - 1]);
        assert!(
            memory.peak_kib < MAX_RESIDENT_KIB,
            "{attack:?} raised the memory to {} KiB\n{}",
            memory.peak_kib,
            report.join("\n")
        );
        if !counts.is_complete() {
            incomplete_attacks.push(format!("{attack:?} did not reach {:?}: {counts:?}", counts.unreached()));
        }
    }
    assert!(incomplete_attacks.is_empty(), "{}", incomplete_attacks.join("\n"));
}

/// The attacks that the environment variable selects, or all attacks.
fn selected_attacks() -> Vec<Attack> {
    let Ok(names) = env::var("FAIRWAY_TEST_MEMORY_ATTACKS") else { return Attack::ALL.to_vec() };
    let is_named = |attack: &Attack| names.split(',').any(|name| name == format!("{attack:?}"));
    let attacks: Vec<Attack> = Attack::ALL.into_iter().filter(is_named).collect();
    assert_eq!(attacks.len(), names.split(',').count(), "{names} contains an unknown or repeated attack");
    attacks
}

/// Draws attacks in random order, each once per pass.
struct AttackOrder {
    random: Random,
    remaining: Vec<Attack>,
}

impl AttackOrder {
    fn next(&mut self) -> Attack {
        if self.remaining.is_empty() {
            self.remaining.extend(selected_attacks());
        }
        let index = self.random.below(self.remaining.len());
        self.remaining.swap_remove(index)
    }
}

async fn run_random_attacks(server: &Server, target: &Arc<AttackTarget>, random: &mut Random) {
    let deadline = Instant::now() + duration();
    let running_attacks: Arc<Mutex<Vec<Attack>>> = Arc::default();
    let counts_by_attack: Arc<Mutex<BTreeMap<Attack, OutcomeCounts>>> = Arc::default();
    let attack_order = Arc::new(Mutex::new(AttackOrder { random: Random(random.next()), remaining: Vec::new() }));
    let mut attackers = JoinSet::new();
    for _ in 0..CONCURRENT_ATTACKS {
        let (mut random, attack_order) = (Random(random.next()), Arc::clone(&attack_order));
        let (target, running_attacks, counts_by_attack) =
            (Arc::clone(target), Arc::clone(&running_attacks), Arc::clone(&counts_by_attack));
        attackers.spawn(async move {
            while Instant::now() < deadline {
                let attack = attack_order.lock().unwrap().next();
                running_attacks.lock().unwrap().push(attack);
                let counts = attack.run(&target, &mut random, 4).await;
                counts_by_attack.lock().unwrap().entry(attack).or_default().add(counts);
                let mut running_attacks = running_attacks.lock().unwrap();
                let index = running_attacks.iter().position(|running| *running == attack).unwrap();
                running_attacks.swap_remove(index);
            }
        });
    }
    let (mut highest, mut reported) = (0, Instant::now());
    while !attackers.is_empty() {
        let memory = server.memory();
        if memory.peak_kib > highest {
            highest = memory.peak_kib;
            println!("peak {} MiB during {:?}", highest >> 10, running_attacks.lock().unwrap());
        }
        assert!(
            highest < MAX_RESIDENT_KIB,
            "{highest} KiB during {:?}\n{}",
            running_attacks.lock().unwrap(),
            last_lines(&server.read_log())
        );
        if reported.elapsed() > REPORT_INTERVAL {
            reported = Instant::now();
            let remaining = deadline.saturating_duration_since(Instant::now());
            println!(
                "now {} MiB, peak {} MiB, {} s left",
                memory.resident_kib >> 10,
                highest >> 10,
                remaining.as_secs()
            );
        }
        if let Ok(Some(ended)) = tokio::time::timeout(Duration::from_millis(200), attackers.join_next()).await {
            ended.unwrap();
        }
    }
    let mut counts_by_attack = std::mem::take(&mut *counts_by_attack.lock().unwrap());
    for attack in selected_attacks() {
        let counts = counts_by_attack.entry(attack).or_default();
        if !counts.is_complete() {
            // Load shedding may refuse every request of a concurrent attack. The attack is therefore repeated once,
            // alone.
            counts.add(attack.run(target, random, 1).await);
        }
        println!("{attack:?}: {counts}");
        assert!(counts.is_complete(), "{attack:?} did not reach {:?}: {counts:?}", counts.unreached());
    }
    let memory = server.memory();
    assert!(memory.peak_kib < MAX_RESIDENT_KIB, "{} KiB\n{}", memory.peak_kib, last_lines(&server.read_log()));
}

/// Runs in environments with unique, unknown names. The workload's interface is large, so a cached copy for each
/// name would be visible.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_environments_leave_nothing_in_memory() {
    let database = TestDatabase::create().await.unwrap();
    let (_setup, server) = start_server(&database).await;
    let target = Arc::new(AttackTarget::prepare(&server).await);
    let mut random = Random::from_environment();
    Attack::UnknownEnvironments.run(&target, &mut random, 1).await;
    let before_kib = server.memory().resident_kib;
    let counts = Attack::UnknownEnvironments.run(&target, &mut random, 4).await;
    assert!(counts.is_complete(), "{counts:?}");
    let growth_kib = server.memory().resident_kib.saturating_sub(before_kib);
    assert!(growth_kib < 32 << 10, "600 unknown environments left {growth_kib} KiB in memory");
}

/// Sends a hundred large bodies without their last byte, as a caller with the permission to send them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn withheld_bodies_stay_within_budget_and_other_runs_succeed() {
    const BODIES: usize = 100;
    let database = TestDatabase::create().await.unwrap();
    let (_setup, server) = start_server(&database).await;
    let target = AttackTarget::prepare(&server).await;
    let content = serde_json::json!({ "content": { "system_prompt": "x".repeat(3_900_000) } }).to_string();
    let version_request = client::post_bytes(format!("/v1/assets/{}/versions", target.prompt), content.into_bytes());
    let request = version_request.with_actor("user:author");
    server.reset_peak_memory();
    let before_kib = server.memory().resident_kib;
    let mut random = Random::from_environment();
    let addresses: Vec<_> = (0..BODIES).map(|_| attacks::random_address(&mut random)).collect();
    let connections =
        addresses.into_iter().map(|address| client::send_without_last_byte(address, target.address, &request));
    let held_connections: Vec<_> = futures_util::future::join_all(connections).await.into_iter().flatten().collect();
    assert_eq!(target.run_as_owner().await.status, 200);
    let growth_kib = server.memory().peak_kib.saturating_sub(before_kib);
    assert!(growth_kib < 128 << 10, "{BODIES} bodies took {growth_kib} KiB");
    drop(held_connections);
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().rev().take(20).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
