//! Attacks with runs whose inputs and outputs have megabytes. The server copies these values for the store and for
//! the caller.

use super::{
    super::{
        Random,
        client::{AttackRequest, get, post},
        outcome_counts::{Aim, OutcomeCounts},
        target_fixtures::{ActiveWorkload, AttackTarget},
    },
    random_name, send_all, send_concurrently, send_one,
};
use serde_json::json;
use std::sync::Arc;

/// Size of a ticket that nearly fills a body, in bytes.
const TICKET_BYTES: usize = 1_000_000;

/// Sends equal numbers of synchronous and queued runs, the queued ones last. A worker may still execute queued runs
/// during the next attack.
async fn send_runs(
    target: &Arc<AttackTarget>,
    workload: &ActiveWorkload,
    random: &mut Random,
    scale: usize,
    sync: Aim,
    queued: Aim,
) -> OutcomeCounts {
    let mut requests: Vec<AttackRequest> = Vec::new();
    for path in [workload.execute_path(), format!("{}?mode=async", workload.execute_path())] {
        let aim = if path.ends_with("async") { queued } else { sync };
        for _ in 0..30 * scale {
            let ticket = random_name(random).repeat(TICKET_BYTES / 17);
            let body = json!({ "environment": "dev", "inputs": { "ticket": ticket } });
            requests.push(post(path.as_str(), &body).with_actor("user:operator").with_aim(aim));
        }
    }
    send_all(target, random, requests).await
}

pub(super) async fn copying_runs(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let sync = Aim::at("copying run").proved_by("\"status\":\"completed\"");
    send_runs(target, &target.copying, random, scale, sync, Aim::at("queued copying run")).await
}

pub(super) async fn redacted_runs(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let sync = Aim::at("redacted run").proved_by("\"status\":\"completed\"");
    send_runs(target, &target.redacting, random, scale, sync, Aim::at("queued redacted run")).await
}

/// Runs with a large output to read.
const RUNS_TO_READ: usize = 6;
/// Concurrent readers of each run.
const READERS_PER_RUN: usize = 16;

pub(super) async fn large_outputs(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let mut counts = OutcomeCounts::default();
    let mut reads = Vec::new();
    for _ in 0..RUNS_TO_READ {
        let ticket = random_name(random).repeat(TICKET_BYTES / 17);
        let body = json!({ "environment": "dev", "inputs": { "ticket": ticket } });
        let run =
            post(target.copying.execute_path(), &body).with_actor("user:operator").with_aim(Aim::at("run to read"));
        let Some(run) = send_one(target, &mut counts, run).await.json_id("execution_id") else { continue };
        let aim = Aim::at("read of a large output").proved_by("\"status\":\"completed\"");
        let read_output = get(format!("/v1/executions/{run}")).with_actor("user:operator").with_aim(aim);
        reads.extend(std::iter::repeat_n(read_output, READERS_PER_RUN * scale));
    }
    counts.add(send_concurrently(target, random, reads, RUNS_TO_READ * READERS_PER_RUN).await);
    counts
}
