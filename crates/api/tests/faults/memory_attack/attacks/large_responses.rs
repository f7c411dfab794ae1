//! Attacks that request large responses: lists, diffs and blast radii.

use super::{
    super::{
        Random,
        client::{AttackRequest, get, patch, post, send_and_ignore_response},
        tally::{Aim, Tally},
        target_resources::{Target, large_interface},
    },
    count_held, hold_connections,
    large_content::large_model_config,
    random_actor, random_address, random_name, send_all, send_one,
};
use crate::api_client::{WORKSPACE, allow_all_policy};
use serde_json::json;
use std::sync::Arc;

pub(super) async fn large_interfaces(target: &Arc<Target>, random: &mut Random, scale: usize) -> Tally {
    let mut tally = Tally::default();
    for _ in 0..4 * scale {
        let slug = random_name(random);
        let body = json!({ "slug": slug, "owner_ref": "team:x", "invocation_mode": "form", "workspace_id": WORKSPACE });
        let new = post("/v1/workloads", &body).with_actor("user:author").with_aim(Aim::at("new workload"));
        let made = send_one(target, &mut tally, new).await;
        let Some(id) = made.json_id("workload_id") else { continue };
        let path = format!("/v1/workloads/{id}");
        let interface = json!({ "interface_config": large_interface("authenticated") });
        let change = patch(&path, &interface).with_actor("user:author").with_aim(Aim::at("large interface"));
        send_one(target, &mut tally, change).await;
        // The description brings the body near its limit, so that the interface exceeds the smaller limit of its own.
        let mut fields = large_interface("authenticated");
        fields["description"] = json!("x".repeat(900_000));
        let change = patch(&path, &json!({ "interface_config": fields })).with_actor("user:author");
        let aim = Aim::at("interface of 900 KB").refused_as(422, "validation_error");
        send_one(target, &mut tally, change.with_aim(aim)).await;
    }
    let lists = ["/v1/workloads?limit=200", "/v1/workloads/runtime-enabled?limit=200"];
    let list = |at: usize| get(lists[at % 2]).with_aim(Aim::at("list of workloads"));
    let sent = (0..40 * scale).map(|at| list(at).with_actor(&random_actor(random))).collect();
    tally.add(send_all(target, random, sent).await);
    tally
}

pub(super) async fn slow_readers(target: &Arc<Target>, random: &mut Random, scale: usize) -> Tally {
    let pages = [
        ("unread workloads", "/v1/workloads?limit=200".to_owned()),
        ("unread document", "/openapi.json".to_owned()),
        ("unread versions", format!("/v1/assets/{}/versions?workspace_id={WORKSPACE}&limit=200", target.config)),
        ("unread manifest", format!("/v1/runtime/mcp-manifest?workspace_id={WORKSPACE}&limit=200")),
        ("unread executions", "/v1/executions?limit=200".to_owned()),
        ("unread audit events", "/v1/audit/events?limit=200".to_owned()),
    ];
    let read = |at: usize| {
        let (name, path) = &pages[at % pages.len()];
        get(path.as_str()).with_aim(Aim::at(name))
    };
    let sent: Vec<AttackRequest> = (0..60 * scale).map(read).collect();
    let from: Vec<_> = sent.iter().map(|sent| (random_address(random), sent)).collect();
    let opened = from.into_iter().map(|(from, sent)| send_and_ignore_response(from, target.address, sent)).collect();
    count_held(&sent, hold_connections(opened).await)
}

pub(super) async fn tool_manifests(target: &Arc<Target>, random: &mut Random, scale: usize) -> Tally {
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} });
    let manifest = format!("/v1/runtime/mcp-manifest?workspace_id={WORKSPACE}&limit=200");
    let mut sent = Vec::new();
    for _ in 0..20 * scale {
        sent.push(get(manifest.as_str()).with_actor(&random_actor(random)).with_aim(Aim::at("manifest")));
        let listed = post("/mcp", &list).with_header("Accept", "application/json, text/event-stream");
        let listed = listed.with_header("MCP-Protocol-Version", "2025-11-25").with_actor("user:operator");
        sent.push(listed.with_aim(Aim::at("list of tools").proved_by("\"tools\"")));
    }
    send_all(target, random, sent).await
}

/// Reads diffs between two versions that have no common values.
pub(super) async fn version_diffs(target: &Arc<Target>, random: &mut Random, scale: usize) -> Tally {
    let (mut tally, mut versions) = (Tally::default(), Vec::new());
    for _ in 0..2 {
        let made = post(format!("/v1/assets/{}/versions", target.config), &large_model_config(random))
            .with_actor("user:author");
        let made = send_one(target, &mut tally, made.with_aim(Aim::at("large version"))).await;
        versions.extend(made.json_id("asset_version_id"));
    }
    if let [one, other] = versions[..] {
        let path = format!("/v1/assets/{}/versions/{one}/diff/{other}?workspace_id={WORKSPACE}", target.config);
        let diff = get(path).with_actor("user:viewer").with_aim(Aim::at("diff").proved_by("\"op\""));
        tally.add(send_all(target, random, vec![diff; 8 * scale]).await);
    }
    tally
}

/// Reads the blast radius of a policy that many releases bind.
pub(super) async fn blast_radius(target: &Arc<Target>, random: &mut Random, scale: usize) -> Tally {
    let mut tally = Tally::default();
    let body = json!({
        "slug": random_name(random), "asset_kind": "policy_bundle", "owner_ref": "team:x", "workspace_id": WORKSPACE,
    });
    let made = send_one(target, &mut tally, post("/v1/assets", &body).with_aim(Aim::at("bound asset"))).await;
    let Some(asset) = made.json_id("asset_id") else { return tally };
    let version = post(format!("/v1/assets/{asset}/versions"), &json!({ "content": allow_all_policy() }));
    let made = send_one(target, &mut tally, version.with_aim(Aim::at("bound version"))).await;
    let Some(version) = made.json_id("asset_version_id") else { return tally };
    let draft = json!({ "workload_id": target.echo.id, "environment": "dev" });
    let binding = json!({ "role": "policy_bundle", "asset_version_id": version });
    for _ in 0..20 * scale {
        let made = send_one(target, &mut tally, post("/v1/releases", &draft).with_aim(Aim::at("draft"))).await;
        let Some(release) = made.json_id("release_id") else { continue };
        let bound = post(format!("/v1/releases/{release}/bindings"), &binding).with_aim(Aim::at("binding"));
        send_one(target, &mut tally, bound).await;
    }
    let radius = get(format!("/v1/assets/{asset}/blast-radius?workspace_id={WORKSPACE}"));
    let radius = radius.with_aim(Aim::at("blast radius").proved_by("\"release_id\""));
    tally.add(send_all(target, random, vec![radius; 60 * scale]).await);
    tally
}

/// Adds many verdicts with long notes, and lists them.
pub(super) async fn approval_notes(target: &Arc<Target>, random: &mut Random, scale: usize) -> Tally {
    let mut tally = Tally::default();
    let draft = json!({ "workload_id": target.echo.id, "environment": "dev" });
    let mut lists = Vec::new();
    for _ in 0..2 * scale {
        let made = send_one(target, &mut tally, post("/v1/releases", &draft).with_aim(Aim::at("draft"))).await;
        let Some(release) = made.json_id("release_id") else { continue };
        let path = format!("/v1/releases/{release}/approvals");
        let verdict = json!({
            "outcome": "rejected", "subject_kind": "release", "subject_ref": release,
            "note": "\u{1F6A2}".repeat(2_000),
        });
        let given = post(path.as_str(), &verdict).with_aim(Aim::at("verdict with a note"));
        let actors = ["user:local", "user:approver", "user:operator"];
        let verdicts = (0..60).map(|at| given.clone().with_actor(actors[at % actors.len()])).collect();
        tally.add(send_all(target, random, verdicts).await);
        let list = get(format!("{path}?limit=200")).with_aim(Aim::at("list of verdicts").proved_by("\"note\""));
        lists.extend(vec![list; 30]);
    }
    tally.add(send_all(target, random, lists).await);
    tally
}
