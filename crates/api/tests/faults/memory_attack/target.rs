//! What the attackers find: workloads, roles of every kind, a public workload, a share link, and what an author may make.

use super::client::{Received, Sent, exchange, post};
use crate::{
    process::Server,
    remote::{Remote, WORKSPACE, inputs, policy},
};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use uuid::Uuid;

/// Roles that attackers have; each has an actor `user:<role>`.
pub(super) const ROLES: [&str; 6] = ["viewer", "runtime_user", "author", "approver", "operator", "auditor"];

/// A flow that returns its input, so that answers are as large as what was sent.
const ECHO: &str = "\
name: Echo
description: Returns what it is sent.
trigger: { type: api_request, inputs_schema: { ticket: string } }
entry_step: done
steps:
  - id: done
    type: return
    output: '{{trigger.ticket}}'
";

/// A workload with an active release in `dev`.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) id: Uuid,
    pub(super) slug: String,
}

impl Workload {
    pub(super) fn execute(&self) -> String {
        format!("/v1/workloads/by-slug/{}/execute", self.slug)
    }
}

/// A server to attack.
pub(super) struct Target {
    pub(super) address: SocketAddr,
    /// Returns its ticket, and has as large an interface as may be.
    pub(super) echo: Workload,
    /// Open to everybody.
    pub(super) public: Workload,
    /// Reached by share links.
    pub(super) shared: Workload,
    pub(super) share_token: String,
    /// Guarded by a schema whose errors explode; `None` where the server refuses such a schema.
    pub(super) guarded: Option<Workload>,
    pub(super) prompt: Uuid,
    /// A `model_config`, whose versions may be large.
    pub(super) config: Uuid,
    pub(super) knowledge_base: Uuid,
}

impl Target {
    pub(super) async fn prepare(server: &Server) -> Self {
        let remote = &server.remote;
        for role in ROLES {
            let principal = format!("user:{role}");
            let body = json!({
                "principal": principal, "role": role, "scope_kind": "workspace", "scope_ref": WORKSPACE,
            });
            remote.make("/v1/role-bindings", &body).await;
        }
        let echo = active(remote, None).await;
        let (public, shared) = (active(remote, None).await, active(remote, None).await);
        expose(remote, &echo, "authenticated").await;
        expose(remote, &public, "public").await;
        expose(remote, &shared, "link_shared").await;
        let links = format!("/v1/workloads/{}/share-links", shared.id);
        let link = remote.make(&links, &json!({ "label": "attackers" })).await;
        let share_token = link.body["token"].as_str().unwrap().to_owned();
        let guarded = match hostile_guardrail(remote).await {
            Some(version) => Some(active(remote, Some(version)).await),
            None => None,
        };
        Self {
            address: server.address(),
            echo,
            public,
            shared,
            share_token,
            guarded,
            prompt: remote.asset("prompt_template").await,
            config: remote.asset("model_config").await,
            knowledge_base: knowledge_base(remote).await,
        }
    }

    /// A request of somebody at the first loopback address.
    pub(super) async fn send(&self, sent: &Sent) -> Received {
        exchange(Ipv4Addr::LOCALHOST, self.address, sent).await
    }

    pub(super) async fn run_as_owner(&self) -> Received {
        // Attackers at other addresses may have used up what is left for a moment.
        let run = post(self.echo.execute(), &inputs());
        for _ in 0..50 {
            let ran = self.send(&run).await;
            if ran.status != 503 {
                return ran;
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        self.send(&run).await
    }
}

/// An interface of nearly 64 KiB as JSON.
pub(super) fn large_interface(access_mode: &str) -> Value {
    let options: Vec<String> = (0..200).map(|number| format!("{number:03}")).collect();
    let select = |number: usize| json!({ "name": format!("s{number}"), "type": "select", "options": options });
    let mut fields = vec![json!({ "name": "ticket", "type": "textarea" })];
    fields.extend((0..49).map(select));
    json!({ "presentation_mode": "form", "access_mode": access_mode, "input_fields": fields })
}

async fn expose(remote: &Remote, workload: &Workload, access_mode: &str) {
    let body = json!({ "interface_config": large_interface(access_mode) });
    let answer = remote.patch(&format!("/v1/workloads/{}", workload.id), &body).await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// A workload that returns its ticket, with a guardrail where one is named.
async fn active(remote: &Remote, guardrail: Option<Uuid>) -> Workload {
    let (id, slug) = remote.workload().await;
    let flow = json!({
        "slug": format!("f{}", Uuid::now_v7().simple()), "owner_ref": "team:x", "workspace_id": WORKSPACE,
        "content_yaml": ECHO,
    });
    let mut bound = vec![
        ("orchestration_flow", remote.make("/v1/flows", &flow).await.id("asset_version_id")),
        ("policy_bundle", remote.version("policy_bundle", policy()).await),
    ];
    bound.extend(guardrail.map(|version| ("guardrail_config", version)));
    let body = json!({ "workload_id": id, "environment": "dev" });
    let release = remote.make("/v1/releases", &body).await.id("release_id");
    let path = |verb: &str| format!("/v1/releases/{release}/{verb}");
    for (role, version) in bound {
        remote.make(&path("bindings"), &json!({ "role": role, "asset_version_id": version })).await;
    }
    remote.make(&path("transition"), &json!({ "to_state": "review_ready" })).await;
    let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": release });
    remote.make(&path("approvals"), &verdict).await;
    for state in ["approved", "active"] {
        remote.make(&path("transition"), &json!({ "to_state": state })).await;
    }
    Workload { id, slug }
}

/// A guardrail whose schema fails in thousands of branches for each item of an array.
async fn hostile_guardrail(remote: &Remote) -> Option<Uuid> {
    let branches = vec![json!(false); 9_000];
    let rail = |stage: &str| {
        json!({
            "id": format!("shape-{stage}"), "detector": "json_schema", "stage": stage, "action": "flag",
            "reason_code": "shape", "schema": { "items": { "allOf": branches } },
        })
    };
    let asset = remote.asset("guardrail_config").await;
    let body = json!({ "content": { "guardrails": [rail("input")] } });
    let answer = remote.post(&format!("/v1/assets/{asset}/versions"), &body, None).await.unwrap();
    assert!(matches!(answer.status, 201 | 400), "{answer:?}");
    (answer.status == 201).then(|| answer.id("asset_version_id"))
}

async fn knowledge_base(remote: &Remote) -> Uuid {
    let asset = remote.asset("knowledge_base").await;
    let content = json!({ "source_type": "inline", "access_contract": {
        "contract_id": "attacked", "version": "1", "default_decision": "deny",
        "allowed_principals": ["user:local", "user:author"], "allowed_workspaces": [WORKSPACE],
        "allowed_access_modes": ["retrieve"],
    } });
    remote.make(&format!("/v1/assets/{asset}/versions"), &json!({ "content": content })).await;
    asset
}
