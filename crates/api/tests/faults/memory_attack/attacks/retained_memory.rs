//! Attacks on memory that the server retains: runs without a waiting caller, their results, and release data in
//! every run.

use super::{
    super::{
        Random,
        client::{AttackRequest, get, post, send_and_ignore_response},
        tally::{Aim, Tally},
        target_resources::{COMPLETED_STATUS, Target, policy_with_patterns},
    },
    count_held, hold_connections, large_execute_body, random_address, random_name, send_all, send_one,
};
use crate::api_client::WORKSPACE;
use serde_json::json;
use std::sync::Arc;

/// Sends runs that continue after the response. Their size is the maximum that needs no memory reservation. Also
/// sends runs that wait for a review.
pub(super) async fn detached_runs(target: &Arc<Target>, random: &mut Random, scale: usize) -> Tally {
    let mut sent = Vec::new();
    for _ in 0..80 * scale {
        let body = large_execute_body(random, 30_000);
        let now = post(target.copying.execute_path(), &body).with_header("Prefer", "wait=0");
        sent.push(
            now.with_actor("user:runtime_user")
                .with_aim(Aim::at("run without a waiting caller").proved_by("execution_id")),
        );
        let queued = post(target.copying.execute_path(), &body).with_header("Prefer", "respond-async");
        sent.push(queued.with_actor("user:operator").with_aim(Aim::at("queued run").proved_by("execution_id")));
        let reviewed = post(target.reviewed.execute_path(), &body).with_actor("user:operator");
        sent.push(reviewed.with_aim(Aim::at("run under review").proved_by("\"review\":\"pending\"")));
    }
    let mut tally = send_all(target, random, sent).await;
    let large = post(target.reviewed.execute_path(), &large_execute_body(random, 900_000)).with_actor("user:operator");
    let large = large.with_aim(Aim::at("large run under review").proved_by("\"review\":\"pending\""));
    let Some(run) = send_one(target, &mut tally, large).await.json_id("execution_id") else { return tally };
    let read = get(format!("/v1/executions/{run}/review")).with_actor("user:approver");
    let read = read.with_aim(Aim::at("output for a reviewer").proved_by("\"output\""));
    tally.add(send_all(target, random, vec![read; 24 * scale]).await);
    tally
}

/// Creates policies at the limit of patterns and beyond it, and runs workloads under such a policy.
pub(super) async fn policy_patterns(target: &Arc<Target>, random: &mut Random, scale: usize) -> Tally {
    let mut tally = Tally::default();
    let body = json!({
        "slug": random_name(random), "asset_kind": "policy_bundle", "owner_ref": "team:x", "workspace_id": WORKSPACE,
    });
    let made = send_one(target, &mut tally, post("/v1/assets", &body).with_aim(Aim::at("policy"))).await;
    let Some(policy) = made.json_id("asset_id") else { return tally };
    let path = format!("/v1/assets/{policy}/versions");
    let mut sent = Vec::new();
    for _ in 0..8 * scale {
        let most = post(path.as_str(), &json!({ "content": policy_with_patterns(50, &random_name(random)) }));
        sent.push(most.with_aim(Aim::at("policy with 50 patterns")));
        let more = post(path.as_str(), &json!({ "content": policy_with_patterns(200, &random_name(random)) }));
        sent.push(more.with_aim(Aim::at("policy with 200 patterns").refused_as(400, "invalid_content")));
    }
    for _ in 0..40 * scale {
        let run =
            post(target.with_patterns.execute_path(), &large_execute_body(random, 100)).with_actor("user:runtime_user");
        sent.push(run.with_aim(Aim::at("run under a policy with patterns").proved_by(COMPLETED_STATUS)));
    }
    tally.add(send_all(target, random, sent).await);
    tally
}

/// Opens event streams of an ended run with large events, without reading them.
pub(super) async fn ended_streams(target: &Arc<Target>, random: &mut Random, scale: usize) -> Tally {
    let mut tally = Tally::default();
    let run =
        post(target.copying.execute_path(), &large_execute_body(random, 900_000)).with_aim(Aim::at("run to follow"));
    let Some(run) = send_one(target, &mut tally, run).await.json_id("execution_id") else { return tally };
    let stream = get(format!("/v1/executions/{run}/events")).with_header("Accept", "text/event-stream");
    let sent: Vec<AttackRequest> = vec![stream.with_aim(Aim::at("unread stream of an ended run")); 100 * scale];
    let from: Vec<_> = sent.iter().map(|sent| (random_address(random), sent)).collect();
    let opened = from.into_iter().map(|(from, sent)| send_and_ignore_response(from, target.address, sent)).collect();
    tally.add(count_held(&sent, hold_connections(opened).await));
    tally
}

/// Reads the evidence of large runs and of runs with many tool calls, as an operator and as an auditor.
pub(super) async fn evidence_graphs(target: &Arc<Target>, random: &mut Random, scale: usize) -> Tally {
    let mut tally = Tally::default();
    let mut reads = Vec::new();
    let arguments = json!({ "query": "days of leave", "knowledge_base_slug": target.vector_knowledge_base_slug });
    let calls = format!("Call: search {arguments}\n").repeat(8);
    let runs = [
        post(target.copying.execute_path(), &large_execute_body(random, 900_000)),
        post(target.agent.execute_path(), &json!({ "environment": "dev", "inputs": { "ticket": calls } })),
        post(target.many_tools.execute_path(), &large_execute_body(random, 100)),
    ];
    for run in runs {
        let run = run.with_aim(Aim::at("run with evidence"));
        let Some(run) = send_one(target, &mut tally, run).await.json_id("execution_id") else { continue };
        for actor in ["user:operator", "user:auditor"] {
            let read = get(format!("/v1/executions/{run}/evidence-graph")).with_actor(actor);
            reads.extend(vec![read.with_aim(Aim::at("evidence graph").proved_by("execution")); 12 * scale]);
        }
    }
    tally.add(send_all(target, random, reads).await);
    tally
}

/// Runs agents whose release binds many tools with large schemas. Every model call includes all of these schemas.
pub(super) async fn wide_tool_sets(target: &Arc<Target>, random: &mut Random, scale: usize) -> Tally {
    let run = |random: &mut Random| {
        let run =
            post(target.many_tools.execute_path(), &large_execute_body(random, 1_000)).with_actor("user:runtime_user");
        run.with_aim(Aim::at("agent with many tools").proved_by(COMPLETED_STATUS))
    };
    let sent = (0..24 * scale).map(|_| run(random)).collect();
    send_all(target, random, sent).await
}

/// Reads short lists of one tenant while another tenant executes large runs and reads long lists.
pub(super) async fn lists_during_large_work(target: &Arc<Target>, random: &mut Random, scale: usize) -> Tally {
    let mut sent = Vec::new();
    for at in 0..20 * scale {
        let run = post(target.copying.execute_path(), &large_execute_body(random, 900_000)).with_actor("user:operator");
        sent.push(run.with_aim(Aim::at("large run during lists")));
        sent.push(
            get("/v1/workloads?limit=200").with_actor("user:viewer").with_aim(Aim::at("long list during large runs")),
        );
        let path = ["/v1/workloads?limit=1", "/v1/assets?limit=10", "/v1/executions?limit=10"][at % 3];
        let list = get(path).with_header("X-Tenant-Id", &target.other_tenant.to_string());
        sent.extend(vec![list.with_aim(Aim::at("short list of another tenant")); 2]);
    }
    send_all(target, random, sent).await
}
