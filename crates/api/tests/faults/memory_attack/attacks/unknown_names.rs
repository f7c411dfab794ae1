//! Attacks with unknown names, each of which could add an entry to a cache or a map.

use super::{
    super::{
        Random,
        client::{exchange, get, post},
        outcome_counts::{Aim, OutcomeCounts},
        target_fixtures::AttackTarget,
    },
    random_address, random_name, send_all,
};
use futures_util::future::join_all;
use serde_json::json;
use std::sync::Arc;

pub(super) async fn share_tokens(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    let mut requests = Vec::new();
    for index in 0..150 * scale {
        let (mut token, mut aim) = (target.share_token.clone(), Aim::at("share link"));
        if index % 4 > 0 {
            token.truncate(token.len() - 16);
            token.push_str(&format!("{:016x}", random.next()));
            aim = Aim::at("unknown token").refused_as(401, "share_token_invalid");
        }
        requests.push(post(format!("{}?token={token}", target.link_shared.execute_path()), &body).with_aim(aim));
    }
    send_all(target, random, requests).await
}

pub(super) async fn client_addresses(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let aim = Aim::at("public run").refused_as(429, "rate_limited");
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    let run = post(target.public.execute_path(), &body).with_actor("anonymous").with_aim(aim);
    let mut counts = OutcomeCounts::default();
    for _ in 0..10 * scale {
        let address = random_address(random);
        // The rate limit refuses the last of these requests, and the server caches the refusal.
        for received in join_all((0..12).map(|_| exchange(address, target.address, &run))).await {
            counts.count(&run, &received);
        }
    }
    counts
}

pub(super) async fn unknown_names(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    let unknown = |name: &'static str| Aim::at(name).refused_as(404, "not_found");
    let mut requests = Vec::new();
    for _ in 0..60 * scale {
        let (slug, actor) = (random_name(random), format!("user:{}", random_name(random)));
        let tenant = format!("{:08x}-0000-7000-8000-{:012x}", random.next() >> 32, random.next() >> 16);
        requests
            .push(get(format!("/v1/workloads/by-slug/{slug}")).with_actor(&actor).with_aim(unknown("unknown slug")));
        let run = post(format!("/v1/workloads/by-slug/{slug}/execute"), &body);
        requests.push(run.with_actor(&actor).with_aim(unknown("run of an unknown slug")));
        let list = get("/v1/workloads?limit=1").with_actor(&actor);
        requests.push(list.with_header("X-Tenant-Id", &tenant).with_aim(unknown("list of an unknown tenant")));
        for environment in [slug.as_str(), "dev"] {
            let active = format!("/v1/workloads/{}/active-release?environment={environment}", target.echo.id);
            requests
                .push(get(active.clone()).with_actor(&actor).with_aim(unknown("active release for an unknown actor")));
            let aim = unknown("active release for a member");
            requests.push(get(active).with_actor("user:viewer").with_aim(aim));
        }
        let search = get(format!("/v1/workloads/runtime-enabled?q={slug}")).with_actor(&actor);
        requests.push(search.with_aim(Aim::at("search by an unknown actor")));
    }
    send_all(target, random, requests).await
}
