//! The server under attack, with the resources that attacks use: roles of every kind, workloads, a share link, and
//! an author's assets.

use super::client::{AttackRequest, AttackResponse, exchange, post};
use crate::{
    api_client::{ApiClient, Response, WORKSPACE, allow_all_policy, execute_body},
    server_process::Server,
};
use fairway_testkit::AGENT_FLOW;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use uuid::Uuid;

/// Roles of attackers. Each role is bound to an actor `user:<role>`.
pub(super) const ROLES: [&str; 6] = ["viewer", "runtime_user", "author", "approver", "operator", "auditor"];

/// A text in the response of every successful run.
pub(super) const COMPLETED_STATUS: &str = "\"status\":\"completed\"";

/// Number of tools of the agent with many tools. Their compiled schemas remain below the limit of a release.
const TOOL_COUNT: usize = 40;

/// A flow that returns its input, so that responses are as large as requests.
const ECHO_FLOW: &str = "\
name: Echo
description: Returns what it is sent.
trigger: { type: api_request, inputs_schema: { ticket: string } }
entry_step: done
steps:
  - id: done
    type: return
    output: '{{trigger.ticket}}'
";

/// A flow that returns its input three times.
const COPY_FLOW: &str = "\
name: Copy
description: Returns what it is sent three times.
trigger: { type: api_request, inputs_schema: { ticket: string } }
entry_step: done
steps:
  - id: done
    type: return
    output: { a: '{{trigger.ticket}}', b: '{{trigger.ticket}}', c: '{{trigger.ticket}}' }
";

/// A workload with an active release in `dev`.
#[derive(Clone, Debug)]
pub(super) struct ActiveWorkload {
    pub(super) id: Uuid,
    pub(super) slug: String,
}

impl ActiveWorkload {
    pub(super) fn execute_path(&self) -> String {
        format!("/v1/workloads/by-slug/{}/execute", self.slug)
    }
}

/// The server under attack, with the identifiers of its resources.
pub(super) struct AttackTarget {
    pub(super) address: SocketAddr,
    /// Returns its ticket. Its interface is near the maximum size.
    pub(super) echo: ActiveWorkload,
    /// Returns its ticket three times. Its form accepts a ticket of any length.
    pub(super) copying: ActiveWorkload,
    /// Returns its ticket under the obligation `redact_output`. Its form accepts a ticket of any length.
    pub(super) redacting: ActiveWorkload,
    /// Returns its ticket after a human review. Its form accepts a ticket of any length.
    pub(super) reviewed: ActiveWorkload,
    /// Returns its ticket under a policy with the maximum number of patterns.
    pub(super) with_patterns: ActiveWorkload,
    /// Has the access mode `public`.
    pub(super) public: ActiveWorkload,
    /// Has the access mode `link_shared`.
    pub(super) link_shared: ActiveWorkload,
    pub(super) share_token: String,
    /// Has a guardrail whose schema has thousands of failing branches.
    pub(super) guarded: ActiveWorkload,
    /// An agent that searches a knowledge base.
    pub(super) agent: ActiveWorkload,
    /// An agent with many tools that have large schemas.
    pub(super) many_tools: ActiveWorkload,
    /// A second, empty tenant.
    pub(super) other_tenant: Uuid,
    /// The knowledge base of the agent, with vector search.
    pub(super) vector_knowledge_base: Uuid,
    pub(super) vector_knowledge_base_slug: String,
    pub(super) flow: Uuid,
    pub(super) prompt: Uuid,
    /// A `model_config`, which accepts large versions.
    pub(super) config: Uuid,
    pub(super) knowledge_base: Uuid,
}

impl AttackTarget {
    pub(super) async fn prepare(server: &Server) -> Self {
        let remote = &server.client;
        for role in ROLES {
            let principal = format!("user:{role}");
            let body = json!({
                "principal": principal, "role": role, "scope_kind": "workspace", "scope_ref": WORKSPACE,
            });
            remote.create("/v1/role-bindings", &body).await;
        }
        let echo = create_active_workload(remote, ECHO_FLOW, &[]).await;
        let (public, shared) = (
            create_active_workload(remote, ECHO_FLOW, &[]).await,
            create_active_workload(remote, ECHO_FLOW, &[]).await,
        );
        let redacting =
            create_active_workload_under(remote, ECHO_FLOW, policy_with_obligation("redact_output"), &[]).await;
        let reviewed =
            create_active_workload_under(remote, ECHO_FLOW, policy_with_obligation("human_review"), &[]).await;
        let patterned = create_active_workload_under(remote, ECHO_FLOW, policy_with_patterns(50, "x"), &[]).await;
        let copying = create_active_workload(remote, COPY_FLOW, &[]).await;
        expose(remote, &echo, "authenticated").await;
        expose(remote, &public, "public").await;
        expose(remote, &shared, "link_shared").await;
        let links = format!("/v1/workloads/{}/share-links", shared.id);
        let link = remote.create(&links, &json!({ "label": "attackers" })).await;
        let share_token = link.body["token"].as_str().unwrap().to_owned();
        let guardrail = remote.create_version("guardrail_config", guardrail_with_failing_branches()).await;
        let guarded = create_active_workload(remote, ECHO_FLOW, &[("guardrail_config", guardrail)]).await;
        let (vectors, vectors_slug, version) = create_knowledge_base(remote, "vector").await;
        let agent = create_search_agent(remote, vectors, version).await;
        let other_tenant = remote.create("/v1/tenants", &json!({ "slug": "other", "name": "Other" })).await;
        Self {
            address: server.address(),
            echo,
            copying,
            redacting,
            reviewed,
            with_patterns: patterned,
            public,
            link_shared: shared,
            share_token,
            guarded,
            agent,
            many_tools: create_many_tools_agent(remote).await,
            other_tenant: other_tenant.required_id("tenant_id"),
            vector_knowledge_base: vectors,
            vector_knowledge_base_slug: vectors_slug,
            flow: create_flow(remote, ECHO_FLOW).await.required_id("asset_id"),
            prompt: remote.create_asset("prompt_template").await,
            config: remote.create_asset("model_config").await,
            knowledge_base: create_knowledge_base(remote, "lexical").await.0,
        }
    }

    /// Sends a request from the first loopback address.
    pub(super) async fn send(&self, request: &AttackRequest) -> AttackResponse {
        exchange(Ipv4Addr::LOCALHOST, self.address, request).await
    }

    pub(super) async fn run_as_owner(&self) -> AttackResponse {
        // Requests of attackers at other addresses may still exhaust a limit, so a 503 is retried.
        let run = post(self.echo.execute_path(), &execute_body());
        for _ in 0..50 {
            let response = self.send(&run).await;
            if response.status != 503 {
                return response;
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        self.send(&run).await
    }
}

/// An interface configuration of nearly 64 KiB as JSON.
pub(super) fn large_interface(access_mode: &str) -> Value {
    let options: Vec<String> = (0..200).map(|number| format!("{number:03}")).collect();
    let select = |number: usize| json!({ "name": format!("s{number}"), "type": "select", "options": options });
    let mut fields = vec![json!({ "name": "ticket", "type": "textarea" })];
    fields.extend((0..49).map(select));
    json!({ "presentation_mode": "form", "access_mode": access_mode, "input_fields": fields })
}

async fn expose(remote: &ApiClient, workload: &ActiveWorkload, access_mode: &str) {
    let body = json!({ "interface_config": large_interface(access_mode) });
    let response = remote.patch(&format!("/v1/workloads/{}", workload.id), &body).await.unwrap();
    assert_eq!(response.status, 200, "{response:?}");
}

async fn create_flow(remote: &ApiClient, yaml: &str) -> Response {
    let flow = json!({
        "slug": format!("f{}", Uuid::now_v7().simple()), "owner_ref": "team:x", "workspace_id": WORKSPACE,
        "content_yaml": yaml,
    });
    remote.create("/v1/flows", &flow).await
}

/// Creates a workload with an active release. It binds a flow, a policy that allows everything, and the versions
/// `other_versions`.
async fn create_active_workload(remote: &ApiClient, yaml: &str, other_versions: &[(&str, Uuid)]) -> ActiveWorkload {
    create_active_workload_under(remote, yaml, allow_all_policy(), other_versions).await
}

/// Like [`create_active_workload`], but with the given policy.
async fn create_active_workload_under(
    remote: &ApiClient,
    yaml: &str,
    policy: Value,
    other_versions: &[(&str, Uuid)],
) -> ActiveWorkload {
    let (id, slug) = remote.create_workload().await;
    let mut versions = vec![
        ("orchestration_flow", create_flow(remote, yaml).await.required_id("asset_version_id")),
        ("policy_bundle", remote.create_version("policy_bundle", policy).await),
    ];
    versions.extend(other_versions);
    let body = json!({ "workload_id": id, "environment": "dev" });
    let release = remote.create("/v1/releases", &body).await.required_id("release_id");
    let path = |verb: &str| format!("/v1/releases/{release}/{verb}");
    for (role, version) in versions {
        remote.create(&path("bindings"), &json!({ "role": role, "asset_version_id": version })).await;
    }
    remote.create(&path("transition"), &json!({ "to_state": "review_ready" })).await;
    let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": release });
    remote.create(&path("approvals"), &verdict).await;
    for state in ["approved", "active"] {
        remote.create(&path("transition"), &json!({ "to_state": state })).await;
    }
    ActiveWorkload { id, slug }
}

/// A guardrail whose schema has thousands of failing branches for each item of an array.
fn guardrail_with_failing_branches() -> Value {
    let schema = json!({ "properties": { "ticket": { "items": { "anyOf": vec![json!(false); 9_000] } } } });
    json!({ "guardrails": [{
        "id": "shape", "detector": "json_schema", "stage": "input", "action": "block", "reason_code": "shape",
        "schema": schema,
    }] })
}

/// A policy that allows every request and imposes an obligation.
fn policy_with_obligation(obligation: &str) -> Value {
    json!({ "rules": [{
        "id": "all", "condition": "always", "outcome": "allow_with_obligations", "reason_code": "open",
        "obligations": [obligation],
    }] })
}

/// A policy that allows every request. It has `count` patterns, each near the maximum compiled size.
pub(super) fn policy_with_patterns(count: usize, keyword: &str) -> Value {
    let rule = |number: usize| {
        json!({
            "id": format!("r{number}"), "condition": format!("inputs.ticket.matches('^{keyword}{number}[a-z]{{1,200}}$')"),
            "outcome": "deny", "reason_code": "matched",
        })
    };
    let mut rules: Vec<Value> = (0..count).map(rule).collect();
    // A policy has at most 200 rules.
    rules.truncate(199);
    rules.push(json!({ "id": "all", "condition": "always", "outcome": "allow", "reason_code": "open" }));
    json!({ "rules": rules })
}

/// Creates an agent with many tools. Each tool has a schema with many described members.
async fn create_many_tools_agent(remote: &ApiClient) -> ActiveWorkload {
    let route = json!({
        "route_id": "local", "provider": "local", "model": "rules", "account_slot": "local", "state": "approved",
    });
    let models = json!({ "provider_route": route, "supports_tool_use": true });
    let mut versions = vec![("model_policy", remote.create_version("model_policy", models).await)];
    for number in 0..TOOL_COUNT {
        let member = |index: usize| (format!("m{index}"), json!({ "type": "string", "description": "d".repeat(200) }));
        let members: serde_json::Map<String, Value> = (0..100).map(member).collect();
        let tool = json!({
            "name": format!("search_{number}"), "input_schema": { "type": "object", "properties": members },
            "annotations": { "read_only": true }, "binding": { "kind": "builtin", "ref": "query_knowledge_base" },
        });
        versions.push(("tool_definition", remote.create_version("tool_definition", tool).await));
    }
    create_active_workload(remote, AGENT_FLOW, &versions).await
}

/// Adds a document to a knowledge base, and creates an agent that searches it.
async fn create_search_agent(remote: &ApiClient, knowledge_base: Uuid, version: Uuid) -> ActiveWorkload {
    let text = "Everybody has thirty days of leave. ".repeat(500);
    let documents = json!({ "documents": [{ "document_id": "leave", "text": text }] });
    let path = format!("/v1/assets/{knowledge_base}/documents?workspace_id={WORKSPACE}");
    remote.create(&path, &documents).await;
    let route = json!({
        "route_id": "local", "provider": "local", "model": "rules", "account_slot": "local", "state": "approved",
    });
    let tool = json!({
        "name": "search", "input_schema": { "type": "object", "required": ["query"] },
        "annotations": { "read_only": true }, "binding": { "kind": "builtin", "ref": "query_knowledge_base" },
    });
    let models = json!({ "provider_route": route, "supports_tool_use": true });
    let versions = [
        ("model_policy", remote.create_version("model_policy", models).await),
        ("tool_definition", remote.create_version("tool_definition", tool).await),
        ("knowledge_base", version),
    ];
    create_active_workload(remote, AGENT_FLOW, &versions).await
}

/// Creates a knowledge base. Returns its asset, slug and version.
async fn create_knowledge_base(remote: &ApiClient, strategy: &str) -> (Uuid, String, Uuid) {
    let slug = format!("k{}", Uuid::now_v7().simple());
    let body = json!({
        "slug": slug, "asset_kind": "knowledge_base", "owner_ref": "team:x", "workspace_id": WORKSPACE,
    });
    let asset = remote.create("/v1/assets", &body).await.required_id("asset_id");
    // Small chunks produce many embeddings for vector search.
    let tokens = if strategy == "vector" { 64 } else { 512 };
    let content = json!({
        "source_type": "inline", "retrieval": { "strategy": strategy, "top_k": 50, "chunk_size_tokens": tokens },
        "access_contract": {
            "contract_id": slug, "version": "1", "default_decision": "deny",
            "allowed_principals": ["user:local", "user:author"], "allowed_workspaces": [WORKSPACE],
            "allowed_access_modes": ["retrieve"],
        },
    });
    let created = remote.create(&format!("/v1/assets/{asset}/versions"), &json!({ "content": content })).await;
    (asset, slug, created.required_id("asset_version_id"))
}
