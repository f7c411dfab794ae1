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
mod tally;
mod target_resources;

use crate::server_process::{Server, ServerSetup};
use attacks::Attack;
use fairway_testkit::{TestDatabase, is_long};
use std::{
    collections::BTreeMap,
    env,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tally::Tally;
use target_resources::Target;
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
    let setup = ServerSetup::new(&database.url());
    let place = setup.setting("FAIRWAY_WAITING_LINE", "24").setting("FAIRWAY_MEMORY_LIMIT_MIB", "400");
    let server = place.start().await;
    (place, server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resident_memory_stays_below_400_mib_under_attack() {
    let database = TestDatabase::create().await.unwrap();
    let (_place, server) = start_server(&database).await;
    let target = Arc::new(Target::prepare(&server).await);
    println!("before: {} MiB", server.memory().resident_kib >> 10);
    let mut random = Random::from_environment();
    if is_long() {
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

async fn run_attacks_in_sequence(server: &Server, target: &Arc<Target>, random: &mut Random) {
    let (mut report, mut missed) = (Vec::new(), Vec::new());
    for attack in selected_attacks() {
        server.reset_peak_memory();
        let started_at = Instant::now();
        let mut tally = attack.run(target, random, 1).await;
        // On a busy machine, load shedding can refuse all requests of an aim, so the attack is repeated.
        for _ in 1..ROUNDS {
            if tally.is_complete() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            tally.add(attack.run(target, random, 1).await);
        }
        let memory = server.memory();
        report.push(format!(
            "{attack:?}: peak {} MiB, after {:?}; {tally}",
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
        if !tally.is_complete() {
            missed.push(format!("{attack:?} did not reach {:?}: {tally:?}", tally.unreached()));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// The attacks that the environment variable selects, or all attacks.
fn selected_attacks() -> Vec<Attack> {
    let Ok(named) = env::var("FAIRWAY_TEST_MEMORY_ATTACKS") else { return Attack::ALL.to_vec() };
    let is_named = |attack: &Attack| named.split(',').any(|name| name == format!("{attack:?}"));
    let attacks: Vec<Attack> = Attack::ALL.into_iter().filter(is_named).collect();
    assert_eq!(attacks.len(), named.split(',').count(), "{named} contains an unknown or repeated attack");
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
        let at = self.random.below(self.remaining.len());
        self.remaining.swap_remove(at)
    }
}

async fn run_random_attacks(server: &Server, target: &Arc<Target>, random: &mut Random) {
    let deadline = Instant::now() + duration();
    let under_way: Arc<Mutex<Vec<Attack>>> = Arc::default();
    let tallies: Arc<Mutex<BTreeMap<Attack, Tally>>> = Arc::default();
    let deck = Arc::new(Mutex::new(AttackOrder { random: Random(random.next()), remaining: Vec::new() }));
    let mut attackers = JoinSet::new();
    for _ in 0..CONCURRENT_ATTACKS {
        let (mut random, deck) = (Random(random.next()), Arc::clone(&deck));
        let (target, under_way, tallies) = (Arc::clone(target), Arc::clone(&under_way), Arc::clone(&tallies));
        attackers.spawn(async move {
            while Instant::now() < deadline {
                let attack = deck.lock().unwrap().next();
                under_way.lock().unwrap().push(attack);
                let tally = attack.run(&target, &mut random, 4).await;
                tallies.lock().unwrap().entry(attack).or_default().add(tally);
                let mut under_way = under_way.lock().unwrap();
                let at = under_way.iter().position(|other| *other == attack).unwrap();
                under_way.swap_remove(at);
            }
        });
    }
    let (mut highest, mut reported) = (0, Instant::now());
    while !attackers.is_empty() {
        let memory = server.memory();
        if memory.peak_kib > highest {
            highest = memory.peak_kib;
            println!("peak {} MiB during {:?}", highest >> 10, under_way.lock().unwrap());
        }
        assert!(
            highest < MAX_RESIDENT_KIB,
            "{highest} KiB during {:?}\n{}",
            under_way.lock().unwrap(),
            last_lines(&server.read_log())
        );
        if reported.elapsed() > REPORT_INTERVAL {
            reported = Instant::now();
            let left = deadline.saturating_duration_since(Instant::now());
            println!("now {} MiB, peak {} MiB, {} s left", memory.resident_kib >> 10, highest >> 10, left.as_secs());
        }
        if let Ok(Some(ended)) = tokio::time::timeout(Duration::from_millis(200), attackers.join_next()).await {
            ended.unwrap();
        }
    }
    let mut tallies = std::mem::take(&mut *tallies.lock().unwrap());
    for attack in selected_attacks() {
        let tally = tallies.entry(attack).or_default();
        if !tally.is_complete() {
            // Load shedding may refuse every request of a concurrent attack. The attack is therefore repeated once,
            // alone.
            tally.add(attack.run(target, random, 1).await);
        }
        println!("{attack:?}: {tally}");
        assert!(tally.is_complete(), "{attack:?} did not reach {:?}: {tally:?}", tally.unreached());
    }
    let memory = server.memory();
    assert!(memory.peak_kib < MAX_RESIDENT_KIB, "{} KiB\n{}", memory.peak_kib, last_lines(&server.read_log()));
}

/// Runs in environments with unique, unknown names. The workload's interface is large, so a cached copy for each
/// name would be visible.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_environments_leave_nothing_in_memory() {
    let database = TestDatabase::create().await.unwrap();
    let (_place, server) = start_server(&database).await;
    let target = Arc::new(Target::prepare(&server).await);
    let mut random = Random::from_environment();
    Attack::UnknownEnvironments.run(&target, &mut random, 1).await;
    let before = server.memory().resident_kib;
    let tally = Attack::UnknownEnvironments.run(&target, &mut random, 4).await;
    assert!(tally.is_complete(), "{tally:?}");
    let grown = server.memory().resident_kib.saturating_sub(before);
    assert!(grown < 32 << 10, "600 unknown environments left {grown} KiB in memory");
}

/// Sends a hundred large bodies without their last byte, as a caller with the permission to send them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn withheld_bodies_stay_within_budget_and_other_runs_succeed() {
    const BODIES: usize = 100;
    let database = TestDatabase::create().await.unwrap();
    let (_place, server) = start_server(&database).await;
    let target = Target::prepare(&server).await;
    let content = serde_json::json!({ "content": { "system_prompt": "x".repeat(3_900_000) } }).to_string();
    let sent = client::post_bytes(format!("/v1/assets/{}/versions", target.prompt), content.into_bytes());
    let sent = sent.with_actor("user:author");
    server.reset_peak_memory();
    let before = server.memory().resident_kib;
    let mut random = Random::from_environment();
    let from: Vec<_> = (0..BODIES).map(|_| attacks::random_address(&mut random)).collect();
    let held = from.into_iter().map(|from| client::send_without_last_byte(from, target.address, &sent));
    let held: Vec<_> = futures_util::future::join_all(held).await.into_iter().flatten().collect();
    assert_eq!(target.run_as_owner().await.status, 200);
    let grown = server.memory().peak_kib.saturating_sub(before);
    assert!(grown < 128 << 10, "{BODIES} bodies took {grown} KiB");
    drop(held);
}

/// The last 20 lines of a text.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().rev().take(20).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
