//! Attacks on memory that the server retains: runs without a waiting caller, their results, and release data in
//! every run.

use super::{
    super::{
        Random,
        client::{AttackRequest, get, post, send_and_ignore_response},
        outcome_counts::{Aim, OutcomeCounts},
        target_fixtures::{AttackTarget, COMPLETED_STATUS, policy_with_patterns},
    },
    count_held, hold_connections, large_execute_body, random_address, random_name, send_all, send_one,
};
use crate::api_client::WORKSPACE;
use serde_json::json;
use std::sync::Arc;

/// Sends runs that continue after the response. Their size is the maximum that needs no memory reservation. Also
/// sends runs that wait for a review.
pub(super) async fn detached_runs(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let mut requests = Vec::new();
    for _ in 0..80 * scale {
        let body = large_execute_body(random, 30_000);
        let immediate = post(target.copying.execute_path(), &body).with_header("Prefer", "wait=0");
        requests.push(
            immediate
                .with_actor("user:runtime_user")
                .with_aim(Aim::at("run without a waiting caller").proved_by("execution_id")),
        );
        let queued = post(target.copying.execute_path(), &body).with_header("Prefer", "respond-async");
        requests.push(queued.with_actor("user:operator").with_aim(Aim::at("queued run").proved_by("execution_id")));
        let reviewed = post(target.reviewed.execute_path(), &body).with_actor("user:operator");
        requests.push(reviewed.with_aim(Aim::at("run under review").proved_by("\"review\":\"pending\"")));
    }
    let mut counts = send_all(target, random, requests).await;
    let large = post(target.reviewed.execute_path(), &large_execute_body(random, 900_000)).with_actor("user:operator");
    let large = large.with_aim(Aim::at("large run under review").proved_by("\"review\":\"pending\""));
    let Some(run) = send_one(target, &mut counts, large).await.json_id("execution_id") else { return counts };
    let read_review = get(format!("/v1/executions/{run}/review")).with_actor("user:approver");
    let read_review = read_review.with_aim(Aim::at("output for a reviewer").proved_by("\"output\""));
    counts.add(send_all(target, random, vec![read_review; 24 * scale]).await);
    counts
}

/// Creates policies at the limit of patterns and beyond it, and runs workloads under such a policy.
pub(super) async fn policy_patterns(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let mut counts = OutcomeCounts::default();
    let body = json!({
        "slug": random_name(random), "asset_kind": "policy_bundle", "owner_ref": "team:x", "workspace_id": WORKSPACE,
    });
    let response = send_one(target, &mut counts, post("/v1/assets", &body).with_aim(Aim::at("policy"))).await;
    let Some(policy) = response.json_id("asset_id") else { return counts };
    let path = format!("/v1/assets/{policy}/versions");
    let mut requests = Vec::new();
    for _ in 0..8 * scale {
        let accepted_policy =
            post(path.as_str(), &json!({ "content": policy_with_patterns(50, &random_name(random)) }));
        requests.push(accepted_policy.with_aim(Aim::at("policy with 50 patterns")));
        let oversized_policy =
            post(path.as_str(), &json!({ "content": policy_with_patterns(200, &random_name(random)) }));
        requests
            .push(oversized_policy.with_aim(Aim::at("policy with 200 patterns").refused_as(400, "invalid_content")));
    }
    for _ in 0..40 * scale {
        let run =
            post(target.with_patterns.execute_path(), &large_execute_body(random, 100)).with_actor("user:runtime_user");
        requests.push(run.with_aim(Aim::at("run under a policy with patterns").proved_by(COMPLETED_STATUS)));
    }
    counts.add(send_all(target, random, requests).await);
    counts
}

/// Opens event streams of an ended run with large events, without reading them.
pub(super) async fn ended_streams(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let mut counts = OutcomeCounts::default();
    let run =
        post(target.copying.execute_path(), &large_execute_body(random, 900_000)).with_aim(Aim::at("run to follow"));
    let Some(run) = send_one(target, &mut counts, run).await.json_id("execution_id") else { return counts };
    let stream = get(format!("/v1/executions/{run}/events")).with_header("Accept", "text/event-stream");
    let requests: Vec<AttackRequest> = vec![stream.with_aim(Aim::at("unread stream of an ended run")); 100 * scale];
    let addressed_requests: Vec<_> = requests.iter().map(|request| (random_address(random), request)).collect();
    let connections = addressed_requests
        .into_iter()
        .map(|(address, request)| send_and_ignore_response(address, target.address, request))
        .collect();
    counts.add(count_held(&requests, hold_connections(connections).await));
    counts
}

/// Reads the evidence of large runs and of runs with many tool calls, as an operator and as an auditor.
pub(super) async fn evidence_graphs(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let mut counts = OutcomeCounts::default();
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
        let Some(run) = send_one(target, &mut counts, run).await.json_id("execution_id") else { continue };
        for actor in ["user:operator", "user:auditor"] {
            let read_graph = get(format!("/v1/executions/{run}/evidence-graph")).with_actor(actor);
            reads.extend(vec![read_graph.with_aim(Aim::at("evidence graph").proved_by("execution")); 12 * scale]);
        }
    }
    counts.add(send_all(target, random, reads).await);
    counts
}

/// Runs agents whose release binds many tools with large schemas. Every model call includes all of these schemas.
pub(super) async fn wide_tool_sets(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let run = |random: &mut Random| {
        let run =
            post(target.many_tools.execute_path(), &large_execute_body(random, 1_000)).with_actor("user:runtime_user");
        run.with_aim(Aim::at("agent with many tools").proved_by(COMPLETED_STATUS))
    };
    let requests = (0..24 * scale).map(|_| run(random)).collect();
    send_all(target, random, requests).await
}

/// Reads short lists of one tenant while another tenant executes large runs and reads long lists.
pub(super) async fn lists_during_large_work(
    target: &Arc<AttackTarget>,
    random: &mut Random,
    scale: usize,
) -> OutcomeCounts {
    let mut requests = Vec::new();
    for index in 0..20 * scale {
        let run = post(target.copying.execute_path(), &large_execute_body(random, 900_000)).with_actor("user:operator");
        requests.push(run.with_aim(Aim::at("large run during lists")));
        requests.push(
            get("/v1/workloads?limit=200").with_actor("user:viewer").with_aim(Aim::at("long list during large runs")),
        );
        let path = ["/v1/workloads?limit=1", "/v1/assets?limit=10", "/v1/executions?limit=10"][index % 3];
        let list = get(path).with_header("X-Tenant-Id", &target.other_tenant.to_string());
        requests.extend(vec![list.with_aim(Aim::at("short list of another tenant")); 2]);
    }
    send_all(target, random, requests).await
}
