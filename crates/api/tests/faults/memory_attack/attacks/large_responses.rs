//! Attacks that request large responses: lists, diffs and blast radii.

use super::{
    super::{
        Random,
        client::{AttackRequest, get, patch, post, send_and_ignore_response},
        outcome_counts::{Aim, OutcomeCounts},
        target_fixtures::{AttackTarget, large_interface},
    },
    count_held, hold_connections,
    large_content::large_model_config,
    random_actor, random_address, random_name, send_all, send_one,
};
use crate::api_client::{WORKSPACE, allow_all_policy};
use serde_json::json;
use std::sync::Arc;

pub(super) async fn large_interfaces(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let mut counts = OutcomeCounts::default();
    for _ in 0..4 * scale {
        let slug = random_name(random);
        let body = json!({ "slug": slug, "owner_ref": "team:x", "invocation_mode": "form", "workspace_id": WORKSPACE });
        let new = post("/v1/workloads", &body).with_actor("user:author").with_aim(Aim::at("new workload"));
        let response = send_one(target, &mut counts, new).await;
        let Some(id) = response.json_id("workload_id") else { continue };
        let path = format!("/v1/workloads/{id}");
        let interface = json!({ "interface_config": large_interface("authenticated") });
        let change = patch(&path, &interface).with_actor("user:author").with_aim(Aim::at("large interface"));
        send_one(target, &mut counts, change).await;
        // The description brings the body near its limit, so that the interface exceeds the smaller limit of its own.
        let mut fields = large_interface("authenticated");
        fields["description"] = json!("x".repeat(900_000));
        let change = patch(&path, &json!({ "interface_config": fields })).with_actor("user:author");
        let aim = Aim::at("interface of 900 KB").refused_as(422, "validation_error");
        send_one(target, &mut counts, change.with_aim(aim)).await;
    }
    let lists = ["/v1/workloads?limit=200", "/v1/workloads/runtime-enabled?limit=200"];
    let list = |index: usize| get(lists[index % 2]).with_aim(Aim::at("list of workloads"));
    let requests = (0..40 * scale).map(|index| list(index).with_actor(&random_actor(random))).collect();
    counts.add(send_all(target, random, requests).await);
    counts
}

pub(super) async fn slow_readers(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let pages = [
        ("unread workloads", "/v1/workloads?limit=200".to_owned()),
        ("unread document", "/openapi.json".to_owned()),
        ("unread versions", format!("/v1/assets/{}/versions?workspace_id={WORKSPACE}&limit=200", target.config)),
        ("unread manifest", format!("/v1/runtime/mcp-manifest?workspace_id={WORKSPACE}&limit=200")),
        ("unread executions", "/v1/executions?limit=200".to_owned()),
        ("unread audit events", "/v1/audit/events?limit=200".to_owned()),
    ];
    let request_at = |index: usize| {
        let (name, path) = &pages[index % pages.len()];
        get(path.as_str()).with_aim(Aim::at(name))
    };
    let requests: Vec<AttackRequest> = (0..60 * scale).map(request_at).collect();
    let addressed_requests: Vec<_> = requests.iter().map(|request| (random_address(random), request)).collect();
    let connections = addressed_requests
        .into_iter()
        .map(|(address, request)| send_and_ignore_response(address, target.address, request))
        .collect();
    count_held(&requests, hold_connections(connections).await)
}

pub(super) async fn tool_manifests(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} });
    let manifest = format!("/v1/runtime/mcp-manifest?workspace_id={WORKSPACE}&limit=200");
    let mut requests = Vec::new();
    for _ in 0..20 * scale {
        requests.push(get(manifest.as_str()).with_actor(&random_actor(random)).with_aim(Aim::at("manifest")));
        let list_tools = post("/mcp", &list).with_header("Accept", "application/json, text/event-stream");
        let list_tools = list_tools.with_header("MCP-Protocol-Version", "2025-11-25").with_actor("user:operator");
        requests.push(list_tools.with_aim(Aim::at("list of tools").proved_by("\"tools\"")));
    }
    send_all(target, random, requests).await
}

/// Reads diffs between two versions that have no common values.
pub(super) async fn version_diffs(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let (mut counts, mut versions) = (OutcomeCounts::default(), Vec::new());
    for _ in 0..2 {
        let version = post(format!("/v1/assets/{}/versions", target.config), &large_model_config(random))
            .with_actor("user:author");
        let response = send_one(target, &mut counts, version.with_aim(Aim::at("large version"))).await;
        versions.extend(response.json_id("asset_version_id"));
    }
    if let [first_version, second_version] = versions[..] {
        let path = format!(
            "/v1/assets/{}/versions/{first_version}/diff/{second_version}?workspace_id={WORKSPACE}",
            target.config
        );
        let diff = get(path).with_actor("user:viewer").with_aim(Aim::at("diff").proved_by("\"op\""));
        counts.add(send_all(target, random, vec![diff; 8 * scale]).await);
    }
    counts
}

/// Reads the blast radius of a policy that many releases bind.
pub(super) async fn blast_radius(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let mut counts = OutcomeCounts::default();
    let body = json!({
        "slug": random_name(random), "asset_kind": "policy_bundle", "owner_ref": "team:x", "workspace_id": WORKSPACE,
    });
    let response = send_one(target, &mut counts, post("/v1/assets", &body).with_aim(Aim::at("bound asset"))).await;
    let Some(asset) = response.json_id("asset_id") else { return counts };
    let version = post(format!("/v1/assets/{asset}/versions"), &json!({ "content": allow_all_policy() }));
    let response = send_one(target, &mut counts, version.with_aim(Aim::at("bound version"))).await;
    let Some(version) = response.json_id("asset_version_id") else { return counts };
    let draft = json!({ "workload_id": target.echo.id, "environment": "dev" });
    let binding = json!({ "role": "policy_bundle", "asset_version_id": version });
    for _ in 0..20 * scale {
        let response = send_one(target, &mut counts, post("/v1/releases", &draft).with_aim(Aim::at("draft"))).await;
        let Some(release) = response.json_id("release_id") else { continue };
        let bind = post(format!("/v1/releases/{release}/bindings"), &binding).with_aim(Aim::at("binding"));
        send_one(target, &mut counts, bind).await;
    }
    let radius = get(format!("/v1/assets/{asset}/blast-radius?workspace_id={WORKSPACE}"));
    let radius = radius.with_aim(Aim::at("blast radius").proved_by("\"release_id\""));
    counts.add(send_all(target, random, vec![radius; 60 * scale]).await);
    counts
}

/// Adds many verdicts with long notes, and lists them.
pub(super) async fn approval_notes(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let mut counts = OutcomeCounts::default();
    let draft = json!({ "workload_id": target.echo.id, "environment": "dev" });
    let mut lists = Vec::new();
    for _ in 0..2 * scale {
        let response = send_one(target, &mut counts, post("/v1/releases", &draft).with_aim(Aim::at("draft"))).await;
        let Some(release) = response.json_id("release_id") else { continue };
        let path = format!("/v1/releases/{release}/approvals");
        let verdict = json!({
            "outcome": "rejected", "subject_kind": "release", "subject_ref": release,
            "note": "\u{1F6A2}".repeat(2_000),
        });
        let approval = post(path.as_str(), &verdict).with_aim(Aim::at("verdict with a note"));
        let actors = ["user:local", "user:approver", "user:operator"];
        let verdicts = (0..60).map(|index| approval.clone().with_actor(actors[index % actors.len()])).collect();
        counts.add(send_all(target, random, verdicts).await);
        let list = get(format!("{path}?limit=200")).with_aim(Aim::at("list of verdicts").proved_by("\"note\""));
        lists.extend(vec![list; 30]);
    }
    counts.add(send_all(target, random, lists).await);
    counts
}
