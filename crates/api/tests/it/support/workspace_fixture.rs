//! A workspace with one resource of each kind, and a successful request for every operation.

mod erasure_requests;
mod notification_requests;
mod request_bodies;
mod runs;
mod use_case_and_connection_requests;

use crate::support::documented_routes::Route;
use fairway_testkit::app::{ActiveWorkload, Client, Fixtures, Request, Version};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

/// The tenant and workspace that the first start of a server creates.
pub(crate) const TENANT: &str = "00000000-0000-7000-8000-000000000001";
pub(crate) const NAMESPACE: &str = "00000000-0000-7000-8000-000000000002";
pub(crate) const WORKSPACE: &str = "00000000-0000-7000-8000-000000000003";

/// Content of a knowledge base whose access contract has this identifier.
pub(crate) fn knowledge_content(contract: &str) -> Value {
    json!({ "source_type": "inline", "access_contract": {
        "contract_id": contract, "version": "1", "default_decision": "deny", "allowed_principals": ["user:local"],
        "allowed_workspaces": [WORKSPACE], "allowed_access_modes": ["retrieve"],
    } })
}

/// One resource of each kind in one workspace.
pub(crate) struct WorkspaceFixture<'a> {
    pub(crate) app: &'a Client,
    pub(crate) fixtures: Fixtures,
    pub(crate) tenant: String,
    pub(crate) workspace: String,
    pub(crate) workload: ActiveWorkload,
    pub(crate) flow: Version,
    pub(crate) knowledge: Version,
    pub(crate) execution: String,
    pub(crate) binding: String,
    pub(crate) grant: String,
    counter: AtomicU32,
    /// How many preference lists were created for each operation. Each list must differ from the previous ones.
    lists: Mutex<HashMap<String, usize>>,
}

/// An identifier that no binding, artifact or link has. The bindings of an active release cannot be deleted, so
/// tests use it.
const MISSING_ID: &str = "00000000-0000-7000-8000-0000000000bb";
/// A flow that returns its input.
pub(crate) const ECHO_FLOW: &str = "\
name: Echo
description: Returns the ticket.
trigger: { type: api_request, inputs_schema: { ticket: string } }
entry_step: answer
steps:
  - id: answer
    type: return
    output: '{{trigger.ticket}}'
";

impl<'a> WorkspaceFixture<'a> {
    /// Creates the fixture in the default tenant, in a workspace and a namespace of its own.
    pub(crate) async fn create(app: &'a Client) -> Self {
        let workspace = app.fixtures().workspace("here", "here").await;
        Self::create_in(app, app.fixtures().in_workspace(&workspace), TENANT, &workspace, "main").await
    }

    /// Creates the fixture in the default tenant, in another workspace and namespace.
    pub(crate) async fn in_other_workspace(app: &'a Client) -> Self {
        let workspace = app.fixtures().workspace("next-door", "next-door").await;
        Self::create_in(app, app.fixtures().in_workspace(&workspace), TENANT, &workspace, "next").await
    }

    /// Creates the fixture in another tenant.
    pub(crate) async fn in_other_tenant(app: &'a Client) -> Self {
        let tenant = app.fixtures().tenant("abroad").await;
        let workspace = app.fixtures().in_tenant(&tenant, WORKSPACE).workspace("there", "there").await;
        let fixtures = app.fixtures().in_tenant(&tenant, &workspace);
        Self::create_in(app, fixtures, &tenant, &workspace, "foreign").await
    }

    async fn create_in(app: &'a Client, fixtures: Fixtures, tenant: &str, workspace: &str, slug: &str) -> Self {
        let workload = fixtures.active_workload(slug).await;
        let flow = fixtures.flow(&format!("{slug}-flow"), ECHO_FLOW).await;
        let handbook = format!("{slug}-handbook");
        let knowledge = fixtures.asset_with_version("knowledge_base", &handbook, knowledge_content(&handbook)).await;
        let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
        let response = app.post(workload.execute_path(), body).in_tenant(tenant).await.expect(200);
        let binding =
            fixtures.bind_role(&format!("user:{slug}-somebody"), "viewer", "workspace", Some(workspace)).await;
        let prompt = workload.versions.iter().find(|version| version.kind == "prompt_template").unwrap();
        let path = format!("/v1/assets/{}/grants?workspace_id={workspace}", prompt.asset_id);
        let grant_response = app.post(path, json!({ "principal": "user:guest" })).in_tenant(tenant).await.expect(201);
        Self {
            app,
            fixtures,
            tenant: tenant.to_owned(),
            workspace: workspace.to_owned(),
            workload,
            flow,
            knowledge,
            execution: response["execution_id"].as_str().unwrap().to_owned(),
            binding,
            grant: grant_response["grant_id"].as_str().unwrap().to_owned(),
            counter: AtomicU32::new(0),
            lists: Mutex::default(),
        }
    }

    /// A name that no resource of the tenant has yet.
    pub(crate) fn unique_name(&self) -> String {
        format!("fresh-{}-{}", self.workload.slug, self.counter.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn policy(&self) -> &Version {
        self.workload.versions.iter().find(|version| version.kind == "policy_bundle").unwrap()
    }

    fn prompt(&self) -> &Version {
        self.workload.versions.iter().find(|version| version.kind == "prompt_template").unwrap()
    }

    /// The value that replaces a path parameter in successful requests.
    pub(crate) fn path_parameter(&self, name: &str) -> String {
        match name {
            "tenant_id" => self.tenant.clone(),
            "workspace_id" => self.workspace.clone(),
            "environment" => "elsewhere".to_owned(),
            "tool" => "execute_flow".to_owned(),
            "role_binding_id" => self.binding.clone(),
            "asset_id" => self.prompt().asset_id.clone(),
            "principal" => format!("user:{}-somebody", self.workload.slug),
            "grant_id" => self.grant.clone(),
            "asset_version_id" | "other_version_id" => self.prompt().asset_version_id.clone(),
            "kind" => "skill".to_owned(),
            "flow_id" => self.flow.asset_id.clone(),
            "workload_id" => self.workload.workload_id.clone(),
            "release_id" => self.workload.release_id.clone(),
            "binding_id" | "artifact_id" | "link_id" => MISSING_ID.to_owned(),
            "execution_id" => self.execution.clone(),
            "session_id" => "session-1".to_owned(),
            "slug" => self.workload.slug.clone(),
            "notification_id" | "destination_id" | "delivery_id" | "announcement_id" => MISSING_ID.to_owned(),
            "event_id" | "connection_id" | "access_request_id" | "use_case_id" | "erasure_id" => MISSING_ID.to_owned(),
            // A tile level that small logs do not have.
            "level" => "7".to_owned(),
            "index" => "000".to_owned(),
            name => panic!("no value for path parameter {{{name}}}"),
        }
    }

    /// The path with its parameters filled in.
    pub(crate) fn fill_path(&self, pattern: &str) -> String {
        let segments = pattern.split('/').map(|segment| {
            let name = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}'));
            name.map_or_else(|| segment.to_owned(), |name| self.path_parameter(name))
        });
        segments.collect::<Vec<_>>().join("/")
    }

    /// Path of the knowledge base's documents.
    pub(crate) fn documents_path(&self) -> String {
        format!("/v1/assets/{}/documents", self.knowledge.asset_id)
    }

    /// Creates a knowledge base with vector search whose documents have no vectors yet, and returns its identifier.
    async fn create_unembedded_base(&self) -> String {
        let name = self.unique_name();
        let mut content = knowledge_content(&name);
        let base = self.fixtures.asset_with_version("knowledge_base", &name, content.clone()).await.asset_id;
        let query = format!("?workspace_id={}", self.workspace);
        let documents =
            self.app.post(format!("/v1/assets/{base}/documents{query}"), self.successful_body("add_documents"));
        documents.in_tenant(&self.tenant).await.expect(201);
        content["retrieval"] = json!({ "strategy": "vector" });
        let versions = format!("/v1/assets/{base}/versions{query}");
        self.app.post(versions, json!({ "content": content })).in_tenant(&self.tenant).await.expect(201);
        base
    }

    /// The query parameters that a route requires, such as workspace, environment and category.
    pub(crate) fn required_query(&self, route: &Route) -> String {
        let mut values = vec![("environment", "dev"), ("workspace_id", self.workspace.as_str())];
        if route.operation_id() == "read_effective_preferences" {
            values = vec![("category", "incidents"), ("workspace_id", self.workspace.as_str())];
        }
        let accepted = values.into_iter().filter(|(name, _)| route.has_query_parameter(name));
        let pairs: Vec<String> = accepted.map(|(name, value)| format!("{name}={value}")).collect();
        if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
    }

    /// Waits until a checkpoint covers the data that the path returns.
    async fn wait_until_published(&self, path: &str) {
        let published = async {
            while self.app.get(path).in_tenant(&self.tenant).await.status != 200 {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), published).await.unwrap();
    }

    /// A path of the transparency log, returned once a checkpoint covers an event of the workspace.
    async fn published_log_path(&self, operation: &str) -> String {
        let events = format!("/v1/audit/events?workspace_id={}&limit=1", self.workspace);
        let sequenced = async {
            loop {
                let newest_events = self.app.get(&events).in_tenant(&self.tenant).await.expect(200);
                if let Some(event) = newest_events[0]["event_id"].as_str() {
                    return format!("/v1/audit/events/{event}/inclusion-proof");
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        let proof = tokio::time::timeout(std::time::Duration::from_secs(60), sequenced).await.unwrap();
        self.wait_until_published(&proof).await;
        match operation {
            "read_checkpoint" => "/v1/audit/checkpoint".to_owned(),
            "read_checkpoint_keys" => "/v1/audit/keys".to_owned(),
            "read_consistency_proof" => "/v1/audit/consistency-proof?from=0&to=0".to_owned(),
            "read_log_tile" => "/v1/audit/tile/0/000.p/1".to_owned(),
            _ => proof,
        }
    }

    /// Creates an active release that superseded another release, in a workload of its own.
    async fn create_superseding_release(&self) -> String {
        let workload = self.fixtures.workload(&self.unique_name()).await;
        let policy = self.fixtures.allow_all_policy(&self.unique_name()).await;
        let mut newest_run = String::new();
        for _ in 0..2 {
            newest_run = self.fixtures.approved_release(&workload, std::slice::from_ref(&policy)).await;
            self.fixtures.transition(&newest_run, "active").await;
        }
        newest_run
    }

    /// Creates a release whose rollout is at the first of two lanes.
    async fn start_rollout(&self) -> String {
        let workload = self.fixtures.workload(&self.unique_name()).await;
        let release = self
            .fixtures
            .approved_release(&workload, &[self.fixtures.allow_all_policy(&self.unique_name()).await])
            .await;
        let plan = json!({ "lane_sequence": ["restricted", "standard"], "soak_duration_minutes": 60 });
        let body = json!({ "to_state": "active", "rollout_plan": plan });
        let path = format!("/v1/releases/{release}/transition");
        self.app.post(path, body).in_tenant(&self.tenant).await.expect(200);
        release
    }

    /// Sets an interface on the workload. A repeated call changes nothing.
    async fn set_interface(&self) {
        let config = json!({ "interface_config": { "presentation_mode": "form", "input_fields": [
            { "name": "ticket", "type": "text" },
        ] } });
        let patch = self.app.patch(self.fill_path("/v1/workloads/{workload_id}"), config);
        patch.in_tenant(&self.tenant).await.expect(200);
    }

    /// Creates the workload whose page the server returns at `/`, unless it exists.
    async fn create_root_page(&self) {
        let existing = self.app.get("/v1/workloads/by-slug/ticket-classifier").in_tenant(&self.tenant).await;
        if existing.status == 404 {
            let workload = self.fixtures.workload("ticket-classifier").await;
            let form = json!({ "interface_config": { "presentation_mode": "form" } });
            let patch = self.app.patch(format!("/v1/workloads/{workload}"), form);
            patch.in_tenant(&self.tenant).await.expect(200);
        }
    }

    /// A request that succeeds for a caller with all permissions. Each request for a change has its own target
    /// resource.
    #[expect(clippy::too_many_lines, reason = "a table of cases")]
    pub(crate) async fn successful_request(&self, operation: &str) -> Request {
        if let Some(request) = self.successful_notification_request(operation).await {
            return request;
        }
        if let Some(request) = self.successful_use_case_request(operation).await {
            return request;
        }
        if let Some(request) = self.successful_erasure_request(operation).await {
            return request;
        }
        let (app, workspace) = (self.app, &self.workspace);
        let workload = &self.workload.workload_id;
        let release = &self.workload.release_id;
        let query = format!("workspace_id={workspace}");
        let path = match operation {
            "list_tenants" => "/v1/tenants".to_owned(),
            "read_tenant_settings" => self.fill_path("/v1/tenants/{tenant_id}/settings"),
            "list_workspaces" => "/v1/workspaces".to_owned(),
            "read_workspace" => self.fill_path("/v1/workspaces/{workspace_id}"),
            "read_environment_settings" => {
                self.fill_path("/v1/workspaces/{workspace_id}/environments/{environment}/settings")
            }
            "change_environment_settings" => {
                let path = self.fill_path("/v1/workspaces/{workspace_id}/environments/{environment}/settings");
                return app.put(path, self.successful_body(operation));
            }
            "read_session" => "/v1/session".to_owned(),
            "explain_access" => "/v1/session/can?operation=list_workspaces".to_owned(),
            "read_sign_in_settings" => "/v1/sign-in".to_owned(),
            "end_session" => return app.post("/v1/session/logout", self.successful_body(operation)),
            "list_roles" => "/v1/roles".to_owned(),
            "list_role_bindings" => format!("/v1/role-bindings?{query}"),
            "list_assets" => format!("/v1/assets?{query}"),
            "read_asset" => format!("{}?{query}", self.fill_path("/v1/assets/{asset_id}")),
            "list_asset_versions" => format!("{}?{query}", self.fill_path("/v1/assets/{asset_id}/versions")),
            "read_asset_version" => {
                format!("{}?{query}", self.fill_path("/v1/assets/{asset_id}/versions/{asset_version_id}"))
            }
            "list_asset_kinds" => "/v1/asset-kinds".to_owned(),
            "read_asset_kind_schema" => self.fill_path("/v1/asset-kinds/{kind}/schema"),
            "diff_asset_versions" => {
                let pattern = "/v1/assets/{asset_id}/versions/{asset_version_id}/diff/{other_version_id}";
                format!("{}?{query}", self.fill_path(pattern))
            }
            "read_blast_radius" => self.fill_path("/v1/assets/{asset_id}/blast-radius"),
            "list_asset_grants" => format!("{}?{query}", self.fill_path("/v1/assets/{asset_id}/grants")),
            "list_documents" => format!("{}?{query}", self.documents_path()),
            "list_flows" => format!("/v1/flows?{query}"),
            "read_flow" => format!("{}?{query}", self.fill_path("/v1/flows/{flow_id}")),
            "list_workloads" => format!("/v1/workloads?{query}"),
            "read_workload" => self.fill_path("/v1/workloads/{workload_id}"),
            "list_runtime_workloads" => {
                self.set_interface().await;
                "/v1/workloads/runtime-enabled".to_owned()
            }
            "read_runtime_workload" => {
                self.set_interface().await;
                self.fill_path("/v1/workloads/by-slug/{slug}")
            }
            "change_workload_access" => {
                let new_workload = self.fixtures.workload(&self.unique_name()).await;
                return app.patch(format!("/v1/workloads/{new_workload}"), self.successful_body(operation));
            }
            "list_releases" => format!("/v1/releases?workload_id={workload}"),
            "list_workload_releases" => self.fill_path("/v1/workloads/{workload_id}/releases"),
            "read_active_release" => format!("/v1/workloads/{workload}/active-release?environment=dev"),
            "read_release" => self.fill_path("/v1/releases/{release_id}"),
            "read_release_gates" => format!("/v1/releases/{}/gates", self.fixtures.draft(workload, &[]).await),
            "list_lanes" => format!("{}?environment=dev", self.fill_path("/v1/workloads/{workload_id}/lanes")),
            "read_release_bundle" => {
                let path = self.fill_path("/v1/releases/{release_id}/evidence-bundle");
                self.wait_until_published(&path).await;
                path
            }
            "list_approvals" => self.fill_path("/v1/releases/{release_id}/approvals"),
            "list_executions" => format!("/v1/executions?workload_id={workload}"),
            "read_usage" => format!("/v1/usage?workload_id={workload}"),
            "read_execution" => self.fill_path("/v1/executions/{execution_id}"),
            "read_execution_events" => self.fill_path("/v1/executions/{execution_id}/events"),
            "cancel_execution" => {
                return app.post(
                    format!("/v1/executions/{}/cancel", self.create_leased_run().await),
                    self.successful_body(operation),
                );
            }
            "read_execution_review" => format!("/v1/executions/{}/review", self.create_awaiting_review_run().await),
            "review_execution" => {
                return app.post(
                    format!("/v1/executions/{}/review", self.create_awaiting_review_run().await),
                    self.successful_body(operation),
                );
            }
            "settle_execution" => {
                return app.post(
                    format!("/v1/executions/{}/settle", self.create_unknown_run().await),
                    self.successful_body(operation),
                );
            }
            "read_evidence_graph" => self.fill_path("/v1/executions/{execution_id}/evidence-graph"),
            "read_evidence_artifact" => {
                let graph = self.fill_path("/v1/executions/{execution_id}/evidence-graph");
                let evidence = app.get(graph).in_tenant(&self.tenant).await.expect(200);
                let artifact = evidence["evidence_artifacts"][0]["artifact_id"].as_str().unwrap().to_owned();
                format!("{}/{artifact}", self.fill_path("/v1/executions/{execution_id}/evidence-artifacts"))
            }
            "read_evidence_bundle" => {
                let path = self.fill_path("/v1/executions/{execution_id}/evidence-bundle");
                self.wait_until_published(&path).await;
                path
            }
            "read_context_lineage" => {
                format!("{}?workspace_id={workspace}", self.fill_path("/v1/executions/{execution_id}/context-lineage"))
            }
            "read_runtime_plugins" => format!("/v1/runtime/plugins?{query}"),
            "read_runtime_system_meta" => format!("/v1/runtime/system-meta?{query}"),
            "read_runtime_mcp_manifest" => format!("/v1/runtime/mcp-manifest?{query}"),
            "read_page" => {
                self.create_root_page().await;
                "/ticket-classifier".to_owned()
            }
            "read_document" => "/openapi.json".to_owned(),
            "read_reference" => "/docs/".to_owned(),
            "list_audit_events" => format!("/v1/audit/events?{query}"),
            "read_checkpoint"
            | "read_checkpoint_keys"
            | "read_inclusion_proof"
            | "read_consistency_proof"
            | "read_log_tile" => self.published_log_path(operation).await,
            "healthz" | "readyz" | "metrics" => format!("/{operation}"),
            "delete_role_binding" => {
                let principal = format!("user:{}", self.unique_name());
                let binding = self.fixtures.bind_role(&principal, "viewer", "workspace", Some(workspace)).await;
                return app.delete(format!("/v1/role-bindings/{binding}"));
            }
            "list_principal_bindings" => {
                let path = self.fill_path("/v1/workloads/{workload_id}/principal-bindings");
                let bind = app.put(&path, json!({ "principal": self.path_parameter("principal") }));
                bind.in_tenant(&self.tenant).await.expect(200);
                path
            }
            "set_principal_binding" => {
                let path = self.fill_path("/v1/workloads/{workload_id}/principal-bindings");
                return app.put(path, self.successful_body(operation));
            }
            "delete_principal_binding" => {
                let path = self.fill_path("/v1/workloads/{workload_id}/principal-bindings");
                let bind = app.put(&path, self.successful_body("set_principal_binding")).in_tenant(&self.tenant);
                let principal = bind.await.expect(200)["principal"].as_str().unwrap().to_owned();
                return app.delete(format!("{path}/{principal}"));
            }
            "list_share_links" => {
                let path = self.fill_path("/v1/workloads/{workload_id}/share-links");
                app.post(&path, self.successful_body("create_share_link")).in_tenant(&self.tenant).await.expect(201);
                path
            }
            "create_share_link" => {
                return app
                    .post(self.fill_path("/v1/workloads/{workload_id}/share-links"), self.successful_body(operation));
            }
            "read_share_link" | "revoke_share_link" => {
                let path = self.fill_path("/v1/workloads/{workload_id}/share-links");
                let created = app
                    .post(&path, self.successful_body("create_share_link"))
                    .in_tenant(&self.tenant)
                    .await
                    .expect(201);
                let path = format!("{path}/{}", created["share_link_id"].as_str().unwrap());
                return if operation == "read_share_link" { app.get(path) } else { app.delete(path) };
            }
            "read_session_memory" => self.fill_path("/v1/workloads/{workload_id}/sessions/{session_id}/memory"),
            "erase_session_memory" | "erase_session_memory_of_others" => {
                let sessions = self.fill_path("/v1/workloads/{workload_id}/sessions");
                // The caller's first erasure creates a record that all its sessions share, so it is done in advance.
                app.delete(format!("{sessions}/first/memory")).in_tenant(&self.tenant).await.expect(204);
                let path = format!("{sessions}/{}/memory", self.unique_name());
                let owner = format!("?owner=user:{}", self.unique_name());
                return app.delete(if operation == "erase_session_memory" { path } else { path + &owner });
            }
            "create_tenant" => return app.post("/v1/tenants", self.successful_body(operation)),
            "change_tenant_settings" | "change_tenant_public_hosts" => {
                return app.patch(self.fill_path("/v1/tenants/{tenant_id}/settings"), self.successful_body(operation));
            }
            "create_workspace" => return app.post("/v1/workspaces", self.successful_body(operation)),
            "create_role_binding" => return app.post("/v1/role-bindings", self.successful_body(operation)),
            "create_asset" => return app.post("/v1/assets", self.successful_body(operation)),
            "generate_asset_draft" => {
                let generate = app.post(format!("/v1/asset-drafts/generate?{query}"), self.successful_body(operation));
                // The first request creates the tenant's generator, so it is sent in advance.
                generate.clone().in_tenant(&self.tenant).await.expect(200);
                return generate;
            }
            "activate_asset" | "retire_asset" | "archive_asset" => {
                let asset =
                    format!("/v1/assets/{}", self.fixtures.asset_without_versions("skill", &self.unique_name()).await);
                if operation == "activate_asset" {
                    app.post(format!("{asset}/retire?{query}"), json!({})).in_tenant(&self.tenant).await.expect(200);
                }
                let verb = operation.split('_').next().unwrap();
                return app.post(format!("{asset}/{verb}"), self.successful_body(operation));
            }
            "create_asset_grant" => {
                return app.post(self.fill_path("/v1/assets/{asset_id}/grants"), self.successful_body(operation));
            }
            "delete_asset_grant" => {
                let path = format!("{}?{query}", self.fill_path("/v1/assets/{asset_id}/grants"));
                let created = app
                    .post(path, self.successful_body("create_asset_grant"))
                    .in_tenant(&self.tenant)
                    .await
                    .expect(201);
                let grant = created["grant_id"].as_str().unwrap();
                return app.delete(format!("{}/{grant}?{query}", self.fill_path("/v1/assets/{asset_id}/grants")));
            }
            "create_asset_version" => {
                return app.post(self.fill_path("/v1/assets/{asset_id}/versions"), self.successful_body(operation));
            }
            "preview_prompt" => {
                return app
                    .post(self.fill_path("/v1/assets/{asset_id}/prompt-preview"), self.successful_body(operation));
            }
            "try_policy" => {
                let path = format!("/v1/assets/{}/policy-trial", self.policy().asset_id);
                return app.post(path, self.successful_body(operation));
            }
            "add_documents" => return app.post(self.documents_path(), self.successful_body(operation)),
            "fetch_documents" => {
                let name = self.unique_name();
                let mut content = knowledge_content(&name);
                content["source_type"] = json!("http");
                content["source_ref"] = json!("https://example.org/handbook");
                let base = self.fixtures.asset_with_version("knowledge_base", &name, content).await;
                // The server refuses to fetch from loopback addresses, so this request passes authorization only.
                let body = json!({ "documents": [{ "document_id": "a", "source_ref": "https://127.0.0.1/a" }] });
                return app.post(format!("/v1/assets/{}/documents?{query}", base.asset_id), body);
            }
            "reembed_documents" => {
                let base = self.create_unembedded_base().await;
                return app.post(format!("/v1/assets/{base}/documents/reembed"), self.successful_body(operation));
            }
            "revoke_access_contract" => {
                let contract = self.unique_name();
                let base =
                    self.fixtures.asset_with_version("knowledge_base", &contract, knowledge_content(&contract)).await;
                let mut body = self.successful_body(operation);
                body["contract_id"] = json!(contract);
                return app.post(format!("/v1/assets/{}/access-contract/revoke", base.asset_id), body);
            }
            "create_flow" => return app.post("/v1/flows", self.successful_body(operation)),
            "create_flow_version" => {
                return app.post(self.fill_path("/v1/flows/{flow_id}/versions"), self.successful_body(operation));
            }
            "validate_flow" => {
                return app.post(self.fill_path("/v1/flows/{flow_id}/validate"), self.successful_body(operation));
            }
            "create_workload" => return app.post("/v1/workloads", self.successful_body(operation)),
            "change_workload" | "change_workload_status" => {
                return app.patch(self.fill_path("/v1/workloads/{workload_id}"), self.successful_body(operation));
            }
            "create_release" => return app.post("/v1/releases", self.successful_body(operation)),
            "bind_version" => {
                let draft = self.fixtures.draft(workload, &[]).await;
                return app.post(format!("/v1/releases/{draft}/bindings"), self.successful_body(operation));
            }
            "unbind_version" => {
                let draft = self.fixtures.draft(workload, &[]).await;
                let bindings = format!("/v1/releases/{draft}/bindings");
                let created =
                    app.post(&bindings, self.successful_body("bind_version")).in_tenant(&self.tenant).await.expect(201);
                return app.delete(format!("{bindings}/{}", created["binding_id"].as_str().unwrap()));
            }
            "advance_rollout" => {
                let release = self.start_rollout().await;
                return app.post(format!("/v1/releases/{release}/rollout/advance"), self.successful_body(operation));
            }
            "read_rollout" => format!("/v1/releases/{}/rollout", self.start_rollout().await),
            "roll_back_release" => {
                let release = self.create_superseding_release().await;
                return app.post(format!("/v1/releases/{release}/rollback"), self.successful_body(operation));
            }
            "read_rollback_recommendation" => self.fill_path("/v1/releases/{release_id}/rollback-recommendation"),
            "list_release_artifacts" | "read_release_artifact" => {
                let release = self.create_superseding_release().await;
                let path = format!("/v1/releases/{release}/rollback");
                let created =
                    app.post(path, self.successful_body("roll_back_release")).in_tenant(&self.tenant).await.expect(200);
                let path = format!("/v1/releases/{release}/evidence-artifacts");
                match operation {
                    "list_release_artifacts" => path,
                    _ => format!("{path}/{}", created["artifact_id"].as_str().unwrap()),
                }
            }
            "submit_release" | "transition_release" => {
                let draft = self.fixtures.draft(workload, &[]).await;
                return app.post(format!("/v1/releases/{draft}/transition"), self.successful_body(operation));
            }
            "review_release" => {
                return app.post(format!("/v1/releases/{release}/approvals"), self.successful_body(operation));
            }
            "run_code" => return app.post("/v1/runtime/code", self.successful_body(operation)),
            "execute_workload" | "execute_workload_on_lane" => {
                return app.post(self.workload.execute_path(), self.successful_body(operation));
            }
            "call_tool" => return app.post("/v1/runtime/tools/execute_flow", self.successful_body(operation)),
            operation => panic!("no request for operation {operation}"),
        };
        app.get(path)
    }
}
