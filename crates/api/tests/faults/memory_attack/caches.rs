//! What keys that callers make up leave in the memory of a process, cache by cache.

use super::{
    Random,
    attacks::{address, name},
    client::{Sent, exchange, get, post},
    tally::{Aim, Tally},
    target::Target,
};
use crate::process::{Place, Server};
use fairway_testkit::{TestDatabase, is_long};
use futures_util::{StreamExt as _, stream};
use serde_json::json;
use std::{collections::HashSet, net::Ipv4Addr, sync::Arc};

/// Keys that each cache is offered in the long form; a build for tests serves a hundred of them a second.
const KEYS: usize = 10_000;
/// Keys that each cache is offered in the short form.
const FEW_KEYS: usize = 400;
/// What a process may hold beside the share of a cache, in KiB.
const BESIDE: u64 = 4 << 10;
/// Requests under way.
const AT_ONCE: usize = 16;

/// Caches whose keys a caller makes up, and what each may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cache {
    /// Workloads with their deployment, by slug and environment; the requests have idempotency keys and sessions besides.
    Workloads,
    /// The same by made-up slugs, of callers with made-up names.
    Callers,
    /// Rendered active releases, and the tenants of who reads them.
    ActiveReleases,
    /// Clients that the rate limit refuses.
    RefusedClients,
    /// Public workloads that were looked up lately, by made-up slugs of visitors.
    PublicWorkloads,
    /// Share links: none are kept.
    ShareLinks,
    /// Counts and prepared statements of lists, by made-up filters.
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

    /// Bytes that the cache may hold, in KiB: `MAX_BYTES` of the operations.
    const fn share(self) -> u64 {
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
    fn requests(self, target: &Target, random: &mut Random) -> Vec<Sent> {
        let run = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
        let (made_up, actor) = (name(random), format!("user:{}", name(random)));
        let not_found = |aim: &'static str| Aim::at(aim).refused_as(404, "not_found");
        match self {
            Self::Workloads => {
                let body = json!({ "environment": made_up, "session_id": made_up, "inputs": { "ticket": "a refund" } });
                let aim = Aim::at("made-up environment").refused_as(409, "no_active_release");
                vec![post(target.echo.execute(), &body).header("Idempotency-Key", &made_up).aim(aim)]
            }
            Self::Callers => {
                let path = format!("/v1/workloads/by-slug/{made_up}/execute");
                vec![post(path, &run).actor(&actor).aim(not_found("made-up caller"))]
            }
            Self::ActiveReleases => {
                let path = format!("/v1/workloads/{}/active-release?environment={made_up}", target.echo.id);
                vec![get(path).actor("user:viewer").aim(not_found("active release of a made-up environment"))]
            }
            Self::RefusedClients => {
                let visit = post(target.public.execute(), &run).actor("anonymous");
                let refused =
                    Aim::at("refused client").refused_as(429, "rate_limited").proved_by("no answer is a proof");
                vec![visit.clone().aim(Aim::at("first visit")), visit.aim(refused)]
            }
            Self::PublicWorkloads => {
                let path = format!("/v1/workloads/by-slug/{made_up}/execute");
                let aim = Aim::at("made-up slug").refused_as(404, "not_found");
                vec![post(path, &run).actor("anonymous").aim(aim)]
            }
            Self::ShareLinks => {
                let kept = target.share_token.len() - 16;
                let token = format!("{}{:016x}", &target.share_token[..kept], random.next());
                let aim = Aim::at("made-up token").refused_as(401, "share_token_invalid");
                vec![post(format!("{}?token={token}", target.shared.execute()), &run).aim(aim)]
            }
            Self::Lists => {
                let list = get(format!("/v1/workloads/runtime-enabled?q={made_up}"));
                vec![list.aim(Aim::at("made-up filter"))]
            }
        }
    }

    /// Offers so many keys, each from an address of its own.
    async fn offer(self, keys: usize, target: &Arc<Target>, (random, used): (&mut Random, &mut Addresses)) -> Tally {
        let offered: Vec<_> = (0..keys).map(|_| (used.next(random), self.requests(target, random))).collect();
        let sending = offered.into_iter().map(|(from, requests)| async move {
            let mut tally = Tally::default();
            for sent in requests {
                tally.count(&sent, &exchange(from, target.address, &sent).await);
            }
            tally
        });
        let add = |mut sum: Tally, tally: Tally| async move {
            sum.add(tally);
            sum
        };
        stream::iter(sending).buffer_unordered(AT_ONCE).fold(Tally::default(), add).await
    }
}

/// Addresses that requests came from. The second visit from one is refused, so none is used twice: among 10,000 drawn from
/// 16 million, some are equal.
#[derive(Default)]
struct Addresses(HashSet<Ipv4Addr>);

impl Addresses {
    /// An address that no request came from yet.
    fn next(&mut self, random: &mut Random) -> Ipv4Addr {
        loop {
            let drawn = address(random);
            if self.0.insert(drawn) {
                return drawn;
            }
        }
    }
}

/// A server that refuses each client's second visit, and nobody for load.
async fn start(database: &TestDatabase) -> (Place, Server) {
    let place = Place::new(&database.url()).setting("FAIRWAY_PUBLIC_RATE_BURST", "1");
    let place = place.setting("FAIRWAY_PUBLIC_RATE_PER_MINUTE", "1").setting("FAIRWAY_GENERATOR", "off");
    let server = place.start().await;
    (place, server)
}

/// Keys leave no more than the share of their cache, each of them counted where it arrived. Before the measurement, a quarter
/// as many are offered for what a process makes once: connections, statements, buffers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_keys_leave_little_in_memory() {
    let database = TestDatabase::create().await.unwrap();
    let (_place, server) = start(&database).await;
    let target = Arc::new(Target::prepare(&server).await);
    let (mut random, mut used) = (Random::from_environment(), Addresses::default());
    let keys = if is_long() { KEYS } else { FEW_KEYS };
    for cache in Cache::ALL {
        cache.offer(keys / 4, &target, (&mut random, &mut used)).await;
        let before = server.memory().now;
        let tally = cache.offer(keys, &target, (&mut random, &mut used)).await;
        let grown = server.memory().now.saturating_sub(before);
        println!("{cache:?}: {grown} KiB; {tally}");
        assert_eq!(tally.least_reached(), keys, "{cache:?}: {tally:?}");
        assert!(grown < cache.share() + BESIDE, "{keys} keys left {grown} KiB in {cache:?}");
    }
}
