//! Attacks by runs: inputs, schemas, idempotency keys, streams, scripts and tools.

use super::{
    super::{
        Random,
        client::{AttackRequest, post, send_and_ignore_response},
        outcome_counts::{Aim, OutcomeCounts},
        target_fixtures::{AttackTarget, COMPLETED_STATUS},
    },
    count_held, hold_connections, large_execute_body, random_address, random_name, send_all, send_concurrently,
};
use crate::api_client::WORKSPACE;
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) async fn exploding_schema(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let mut requests = Vec::new();
    let run = |count: usize| {
        let body = json!({ "environment": "dev", "inputs": { "ticket": vec![1; count] } });
        post(target.guarded.execute_path(), &body)
    };
    for _ in 0..3 * scale {
        let checked = Aim::at("schema with many failing branches").refused_as(422, "guardrail_blocked");
        requests.push(run(1_000).with_aim(checked));
        let unchecked = Aim::at("schema beyond the check budget").proved_by("\"guardrail_unavailable\"");
        requests.push(run(3_000 * scale).with_aim(unchecked));
    }
    send_all(target, random, requests).await
}

pub(super) async fn unknown_environments(
    target: &Arc<AttackTarget>,
    random: &mut Random,
    scale: usize,
) -> OutcomeCounts {
    let mut requests = Vec::new();
    for _ in 0..150 * scale {
        let body = json!({ "environment": random_name(random), "inputs": { "ticket": "a refund" } });
        let aim = Aim::at("run in an unknown environment").refused_as(409, "no_active_release");
        let run = post(target.echo.execute_path(), &body).with_aim(aim);
        requests.push(if random.below(2) == 0 { run.with_actor("user:runtime_user") } else { run });
    }
    send_all(target, random, requests).await
}

pub(super) async fn streams(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let run = post(target.echo.execute_path(), &large_execute_body(random, 30_000))
        .with_header("Accept", "text/event-stream");
    let requests: Vec<AttackRequest> = vec![run.with_aim(Aim::at("unread stream")); 100 * scale];
    let addressed_requests: Vec<_> = requests.iter().map(|request| (random_address(random), request)).collect();
    let connections = addressed_requests
        .into_iter()
        .map(|(address, request)| send_and_ignore_response(address, target.address, request))
        .collect();
    count_held(&requests, hold_connections(connections).await)
}

pub(super) async fn idempotency_keys(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let mut requests = Vec::new();
    for _ in 0..80 * scale {
        let (key, session) = (random_name(random), random_name(random));
        let mut body = large_execute_body(random, 32_000);
        body["session_id"] = json!(session);
        let run = post(target.echo.execute_path(), &body)
            .with_actor("user:runtime_user")
            .with_header("Idempotency-Key", &key);
        requests.push(run.with_aim(Aim::at("run with a key").proved_by(COMPLETED_STATUS)));
    }
    send_all(target, random, requests).await
}

pub(super) async fn queued_runs(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let path = format!("{}?mode=async", target.echo.execute_path());
    let mut requests = Vec::new();
    for _ in 0..60 * scale {
        let body = large_execute_body(random, 32_000);
        requests.push(post(path.as_str(), &body).with_actor("user:operator").with_aim(Aim::at("queued run")));
    }
    send_all(target, random, requests).await
}

/// Runs scripts of the maximum length that maximize allocations, output and results.
pub(super) async fn scripts(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let script = |aim: Aim, language: &str, code: &str| {
        let long_code = format!("{code}{}", "\n".repeat(250_000));
        let body = json!({
            "workspace_id": WORKSPACE, "workload_slug": target.echo.slug, "environment": "dev", "language": language,
            "code": long_code,
        });
        post("/v1/runtime/code", &body).with_aim(aim)
    };
    let run = |name: &'static str| Aim::at(name).proved_by(COMPLETED_STATUS);
    let failed = |name: &'static str| Aim::at(name).proved_by("\"status\":\"failed\"");
    let kinds = [
        script(run("script with a large result"), "javascript", "'x'.repeat(60000)"),
        script(run("script that prints"), "starlark", "print('x' * 60000)"),
        script(failed("script that returns too much"), "starlark", "result = 'x' * 1000000"),
        script(
            failed("script that allocates"),
            "javascript",
            "const all = []; while (true) all.push('x'.repeat(9999))",
        ),
    ];
    let requests: Vec<AttackRequest> = (0..16 * scale).map(|index| kinds[index % kinds.len()].clone()).collect();
    // The concurrency is 4, because the sandbox refuses more concurrent scripts of a tenant.
    send_concurrently(target, random, requests, 4).await
}

/// Runs agents whose model requests the maximum number of tool calls per message.
pub(super) async fn agent_steps(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let mut requests = Vec::new();
    for _ in 0..8 * scale {
        let arguments = json!({
            "query": format!("{} {}", "days of leave ".repeat(20), random_name(random)),
            "knowledge_base_slug": target.vector_knowledge_base_slug,
        });
        let ticket = format!("Call: search {arguments}\n").repeat(8);
        let body: Value = json!({ "environment": "dev", "inputs": { "ticket": ticket } });
        // The model returns the result of its last tool call, by which the aim recognizes success.
        requests.push(
            post(target.agent.execute_path(), &body).with_aim(Aim::at("agent with tools").proved_by("thirty days")),
        );
    }
    send_all(target, random, requests).await
}
