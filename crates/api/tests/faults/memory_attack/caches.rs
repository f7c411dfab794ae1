//! Bounds the memory that each cache of a process uses for keys that callers invent.

use super::{
    Random,
    attacks::{random_address, random_name},
    client::{AttackRequest, exchange, get, post},
    outcome_counts::{Aim, OutcomeCounts},
    target_fixtures::AttackTarget,
};
use crate::server_process::{Server, ServerSetup};
use fairway_testkit::{TestDatabase, is_long_form_requested};
use futures_util::{StreamExt as _, stream};
use serde_json::json;
use std::{collections::HashSet, net::Ipv4Addr, sync::Arc};

/// Number of keys for each cache in the long form. A test build serves about a hundred keys per second.
const LONG_FORM_KEYS: usize = 10_000;
/// Number of keys for each cache in the short form.
const SHORT_FORM_KEYS: usize = 400;
/// Permitted growth of the process beyond the memory limit of a cache, in KiB.
const SLACK_KIB: u64 = 4 << 10;
/// Concurrent requests.
const CONCURRENCY: usize = 16;

/// Caches whose keys a caller chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cache {
    /// Workloads with their deployment, by slug and environment. The requests also contain idempotency keys and
    /// sessions.
    Workloads,
    /// Callers with unknown names, who request unknown slugs.
    Callers,
    /// Response bodies of active releases.
    ActiveReleases,
    /// Clients that the rate limit has refused.
    RefusedClients,
    /// Recent lookups of public workloads, by slugs that visitors invent.
    PublicWorkloads,
    /// Share links. They are not cached, so their limit is zero.
    ShareLinks,
    /// Totals and prepared statements of lists, by filter values that callers invent.
    Lists,
}

impl Cache {
    const ALL: [Self; 7] = [
        Self::Workloads,
        Self::Callers,
        Self::ActiveReleases,
        Self::RefusedClients,
        Self::PublicWorkloads,
        Self::ShareLinks,
        Self::Lists,
    ];

    /// Memory limit of the cache, in KiB: `CACHE_BYTE_LIMITS` in `crates/operations`, or `MAX_BYTES` in
    /// `crates/api/src/release/active_release_body_cache.rs`.
    const fn limit_kib(self) -> u64 {
        match self {
            Self::Workloads => 12 << 10,
            Self::Callers => 8 << 10,
            Self::ActiveReleases => (12 + 2) << 10,
            Self::RefusedClients => 5 << 10,
            Self::PublicWorkloads => 1 << 10,
            Self::ShareLinks | Self::Lists => 0,
        }
    }

    /// The requests that offer one key.
    fn requests(self, target: &AttackTarget, random: &mut Random) -> Vec<AttackRequest> {
        let run = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
        let (random_slug, actor) = (random_name(random), format!("user:{}", random_name(random)));
        let not_found = |aim: &'static str| Aim::at(aim).refused_as(404, "not_found");
        match self {
            Self::Workloads => {
                let body = json!({ "environment": random_slug, "session_id": random_slug, "inputs": { "ticket": "a refund" } });
                let aim = Aim::at("unknown environment").refused_as(409, "no_active_release");
                vec![post(target.echo.execute_path(), &body).with_header("Idempotency-Key", &random_slug).with_aim(aim)]
            }
            Self::Callers => {
                let path = format!("/v1/workloads/by-slug/{random_slug}/execute");
                vec![post(path, &run).with_actor(&actor).with_aim(not_found("unknown caller"))]
            }
            Self::ActiveReleases => {
                let path = format!("/v1/workloads/{}/active-release?environment={random_slug}", target.echo.id);
                vec![
                    get(path).with_actor("user:viewer").with_aim(not_found("active release of an unknown environment")),
                ]
            }
            Self::RefusedClients => {
                let run_request = post(target.public.execute_path(), &run).with_actor("anonymous");
                let rate_limited =
                    Aim::at("refused client").refused_as(429, "rate_limited").proved_by("matches no response");
                vec![run_request.clone().with_aim(Aim::at("first visit")), run_request.with_aim(rate_limited)]
            }
            Self::PublicWorkloads => {
                let path = format!("/v1/workloads/by-slug/{random_slug}/execute");
                let aim = Aim::at("unknown slug").refused_as(404, "not_found");
                vec![post(path, &run).with_actor("anonymous").with_aim(aim)]
            }
            Self::ShareLinks => {
                let prefix_length = target.share_token.len() - 16;
                let token = format!("{}{:016x}", &target.share_token[..prefix_length], random.next());
                let aim = Aim::at("unknown token").refused_as(401, "share_token_invalid");
                vec![post(format!("{}?token={token}", target.link_shared.execute_path()), &run).with_aim(aim)]
            }
            Self::Lists => {
                let list = get(format!("/v1/workloads/runtime-enabled?q={random_slug}"));
                vec![list.with_aim(Aim::at("unknown filter"))]
            }
        }
    }

    /// Sends the requests for `keys` keys, each from its own address.
    async fn offer_keys(
        self,
        keys: usize,
        target: &Arc<AttackTarget>,
        random: &mut Random,
        used: &mut UniqueAddresses,
    ) -> OutcomeCounts {
        let offered: Vec<_> = (0..keys).map(|_| (used.next(random), self.requests(target, random))).collect();
        let sending = offered.into_iter().map(|(address, requests)| async move {
            let mut counts = OutcomeCounts::default();
            for request in requests {
                counts.count(&request, &exchange(address, target.address, &request).await);
            }
            counts
        });
        let add_counts = |mut sum: OutcomeCounts, counts: OutcomeCounts| async move {
            sum.add(counts);
            sum
        };
        stream::iter(sending).buffer_unordered(CONCURRENCY).fold(OutcomeCounts::default(), add_counts).await
    }
}

/// Client addresses that were already used. The server refuses a second visit from an address, so each address is
/// used once. Among 10,000 random draws from 16 million addresses, some are equal.
#[derive(Default)]
struct UniqueAddresses(HashSet<Ipv4Addr>);

impl UniqueAddresses {
    /// Draws an unused address.
    fn next(&mut self, random: &mut Random) -> Ipv4Addr {
        loop {
            let address = random_address(random);
            if self.0.insert(address) {
                return address;
            }
        }
    }
}

/// Starts a server whose rate limit refuses the second visit of a client.
async fn start_server(database: &TestDatabase) -> (ServerSetup, Server) {
    let setup = ServerSetup::new(&database.url_for_owner()).setting("FAIRWAY_PUBLIC_RATE_BURST", "1");
    let setup = setup.setting("FAIRWAY_PUBLIC_RATE_PER_MINUTE", "1").setting("FAIRWAY_GENERATOR", "off");
    let server = setup.start().await;
    (setup, server)
}

/// Keys that callers invent occupy at most the memory limit of their cache, and every key reaches the cache. A quarter
/// as many keys precede the measurement, for allocations that happen once: connections, statements and buffers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_keys_leave_little_in_memory() {
    let database = TestDatabase::create().await.unwrap();
    let (_setup, server) = start_server(&database).await;
    let target = Arc::new(AttackTarget::prepare(&server).await);
    let (mut random, mut used_addresses) = (Random::from_environment(), UniqueAddresses::default());
    let keys = if is_long_form_requested() { LONG_FORM_KEYS } else { SHORT_FORM_KEYS };
    for cache in Cache::ALL {
        cache.offer_keys(keys / 4, &target, &mut random, &mut used_addresses).await;
        let before_kib = server.memory().resident_kib;
        let counts = cache.offer_keys(keys, &target, &mut random, &mut used_addresses).await;
        let growth_kib = server.memory().resident_kib.saturating_sub(before_kib);
        println!("{cache:?}: {growth_kib} KiB; {counts}");
        assert_eq!(counts.min_reached(), keys, "{cache:?}: {counts:?}");
        assert!(growth_kib < cache.limit_kib() + SLACK_KIB, "{keys} keys left {growth_kib} KiB in {cache:?}");
    }
}
