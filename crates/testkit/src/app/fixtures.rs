//! Test fixtures that are created through the API.

use super::{Client, Request, TestApp};
use serde_json::{Value, json};

/// The default workspace, which the first start creates.
const WORKSPACE: &str = "00000000-0000-7000-8000-000000000003";

/// Creates fixtures in a workspace as an actor.
#[derive(Clone)]
pub struct Fixtures {
    client: Client,
    actor: Option<String>,
    tenant: Option<String>,
    workspace: String,
}

/// An asset version together with its asset.
#[derive(Clone, Debug)]
pub struct Version {
    /// The identifier of the asset to which the version belongs.
    pub asset_id: String,
    /// The identifier of the version itself.
    pub asset_version_id: String,
    /// The asset's kind, which is also its binding role.
    pub kind: String,
    /// The asset's slug.
    pub slug: String,
}

/// A workload that can run in `dev`.
#[derive(Clone, Debug)]
pub struct ActiveWorkload {
    /// The workload's id.
    pub workload_id: String,
    /// The workload's slug.
    pub slug: String,
    /// The release that is active on all lanes.
    pub release_id: String,
    /// The versions that the release binds.
    pub versions: Vec<Version>,
}

impl ActiveWorkload {
    /// The path of the workload's `execute` operation.
    #[must_use]
    pub fn execute_path(&self) -> String {
        format!("/v1/workloads/by-slug/{}/execute", self.slug)
    }
}

/// Reads an identifier from the member `name` of a response body.
///
/// # Panics
/// When the identifier is missing.
#[track_caller]
fn required_id(body: &Value, name: &str) -> String {
    match body.get(name).and_then(Value::as_str) {
        Some(id) => id.to_owned(),
        None => panic!("no `{name}` in {body}"),
    }
}

impl Fixtures {
    pub(super) fn of(client: Client) -> Self {
        Self { client, actor: None, tenant: None, workspace: WORKSPACE.to_owned() }
    }

    /// Creates fixtures as this actor.
    #[must_use]
    pub fn as_actor(&self, actor: &str) -> Self {
        Self { actor: Some(actor.to_owned()), ..self.clone() }
    }

    /// Creates fixtures in a workspace of this tenant.
    #[must_use]
    pub fn in_tenant(&self, tenant: &str, workspace: &str) -> Self {
        Self { tenant: Some(tenant.to_owned()), ..self.in_workspace(workspace) }
    }

    /// Creates fixtures in this workspace.
    #[must_use]
    pub fn in_workspace(&self, workspace: &str) -> Self {
        Self { workspace: workspace.to_owned(), ..self.clone() }
    }

    fn post(&self, path: impl Into<String>, body: Value) -> Request {
        let mut request = self.client.post(path, body);
        if let Some(actor) = &self.actor {
            request = request.as_actor(actor);
        }
        if let Some(tenant) = &self.tenant {
            request = request.in_tenant(tenant);
        }
        request
    }

    /// Creates a tenant with this slug, and returns its identifier.
    pub async fn tenant(&self, slug: &str) -> String {
        let created = self.post("/v1/tenants", json!({ "slug": slug, "name": slug })).await;
        required_id(&created.expect(201), "tenant_id")
    }

    /// Creates a workspace in this namespace, and returns its identifier.
    pub async fn workspace(&self, slug: &str, namespace: &str) -> String {
        let body = json!({ "slug": slug, "name": slug, "namespace": namespace });
        required_id(&self.post("/v1/workspaces", body).await.expect(201), "workspace_id")
    }

    /// Binds a role to a principal in a scope, and returns the identifier of the role binding.
    pub async fn bind_role(&self, principal: &str, role: &str, scope_kind: &str, scope_ref: Option<&str>) -> String {
        let body = json!({ "principal": principal, "role": role, "scope_kind": scope_kind, "scope_ref": scope_ref });
        required_id(&self.post("/v1/role-bindings", body).await.expect(201), "role_binding_id")
    }

    /// Creates an asset without versions, and returns its identifier.
    pub async fn asset_without_versions(&self, kind: &str, slug: &str) -> String {
        let body = json!({
            "slug": slug, "asset_kind": kind, "owner_ref": "team:tests", "workspace_id": self.workspace,
        });
        required_id(&self.post("/v1/assets", body).await.expect(201), "asset_id")
    }

    /// Creates an asset with one version.
    pub async fn asset_with_version(&self, kind: &str, slug: &str, content: Value) -> Version {
        let asset_id = self.asset_without_versions(kind, slug).await;
        let asset_version_id = self.add_version(&asset_id, content).await;
        Version { asset_id, asset_version_id, kind: kind.to_owned(), slug: slug.to_owned() }
    }

    /// Adds a version to an asset, and returns the identifier of the version.
    pub async fn add_version(&self, asset_id: &str, content: Value) -> String {
        let created = self.post(format!("/v1/assets/{asset_id}/versions"), json!({ "content": content })).await;
        required_id(&created.expect(201), "asset_version_id")
    }

    /// Creates a prompt with the argument `ticket`.
    pub async fn ticket_prompt(&self, slug: &str) -> Version {
        let content = json!({
            "system_prompt": "Sort the ticket.\nOne of: billing (invoice, refund), other.\nTicket: $arg:ticket",
            "variables": [{ "name": "ticket", "type": "string" }],
        });
        self.asset_with_version("prompt_template", slug, content).await
    }

    /// Creates a model policy for the built-in provider.
    pub async fn model_policy(&self, slug: &str) -> Version {
        let route = json!({
            "route_id": "local", "provider": "local", "model": "rules", "account_slot": "local", "state": "approved",
        });
        self.asset_with_version("model_policy", slug, json!({ "provider_route": route })).await
    }

    /// Creates a policy that allows everything.
    pub async fn allow_all_policy(&self, slug: &str) -> Version {
        let rules = json!([{ "id": "all", "condition": "always", "outcome": "allow", "reason_code": "all_allowed" }]);
        self.policy_with_rules(slug, rules).await
    }

    /// Creates a policy with these rules.
    pub async fn policy_with_rules(&self, slug: &str, rules: Value) -> Version {
        self.asset_with_version("policy_bundle", slug, json!({ "rules": rules })).await
    }

    /// Creates a flow from YAML, and returns its first version.
    pub async fn flow(&self, slug: &str, yaml: &str) -> Version {
        let body = json!({
            "slug": slug, "owner_ref": "team:tests", "content_yaml": yaml, "workspace_id": self.workspace,
        });
        let created = self.post("/v1/flows", body).await.expect(201);
        Version {
            asset_id: required_id(&created, "asset_id"),
            asset_version_id: required_id(&created, "asset_version_id"),
            kind: "orchestration_flow".to_owned(),
            slug: slug.to_owned(),
        }
    }

    /// Creates a workload without releases, and returns its identifier.
    pub async fn workload(&self, slug: &str) -> String {
        let body = json!({
            "slug": slug, "owner_ref": "team:tests", "invocation_mode": "form", "workspace_id": self.workspace,
        });
        required_id(&self.post("/v1/workloads", body).await.expect(201), "workload_id")
    }

    /// Creates a release draft with these bindings in `dev`, and returns its identifier.
    pub async fn draft(&self, workload_id: &str, versions: &[Version]) -> String {
        self.draft_in(workload_id, "dev", versions).await
    }

    /// Creates a release draft with these bindings in an environment, and returns its identifier.
    pub async fn draft_in(&self, workload_id: &str, environment: &str, versions: &[Version]) -> String {
        let body = json!({ "workload_id": workload_id, "environment": environment, "target_lane": "all" });
        let release_id = required_id(&self.post("/v1/releases", body).await.expect(201), "release_id");
        for version in versions {
            let body = json!({ "asset_version_id": version.asset_version_id, "role": version.kind });
            self.post(format!("/v1/releases/{release_id}/bindings"), body).await.expect(201);
        }
        release_id
    }

    /// Creates an approved release with these bindings in `dev`, and returns its identifier.
    pub async fn approved_release(&self, workload_id: &str, versions: &[Version]) -> String {
        self.approved_release_in(workload_id, "dev", versions).await
    }

    /// Creates an approved release with these bindings in an environment. Outside `dev`, a second actor approves
    /// the release, because self-approval is refused there.
    pub async fn approved_release_in(&self, workload_id: &str, environment: &str, versions: &[Version]) -> String {
        let release_id = self.draft_in(workload_id, environment, versions).await;
        self.transition(&release_id, "review_ready").await;
        let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": release_id });
        let approval = self.post(format!("/v1/releases/{release_id}/approvals"), verdict);
        let approval = if environment == "dev" { approval } else { approval.as_actor("user:second-person") };
        approval.await.expect(201);
        self.transition(&release_id, "approved").await;
        release_id
    }

    /// Moves a release to another state.
    pub async fn transition(&self, release_id: &str, to_state: &str) {
        let path = format!("/v1/releases/{release_id}/transition");
        self.post(path, json!({ "to_state": to_state })).await.expect(200);
    }

    /// Creates a workload with an active release on all lanes of `dev`, with a prompt, a model policy, and a policy
    /// that allows everything.
    pub async fn active_workload(&self, slug: &str) -> ActiveWorkload {
        let policy = self.allow_all_policy(&format!("{slug}-policy")).await;
        self.active_workload_with_policy(slug, policy).await
    }

    /// Like [`Self::active_workload`] with another policy.
    pub async fn active_workload_with_policy(&self, slug: &str, policy: Version) -> ActiveWorkload {
        let prompt = self.ticket_prompt(&format!("{slug}-prompt")).await;
        let model = self.model_policy(&format!("{slug}-model")).await;
        self.active_workload_with_bindings(slug, vec![prompt, model, policy]).await
    }

    /// Creates a workload with an active release on all lanes of `dev`, with these bindings.
    pub async fn active_workload_with_bindings(&self, slug: &str, versions: Vec<Version>) -> ActiveWorkload {
        let workload_id = self.workload(slug).await;
        let release_id = self.approved_release(&workload_id, &versions).await;
        self.transition(&release_id, "active").await;
        ActiveWorkload { workload_id, slug: slug.to_owned(), release_id, versions }
    }
}

impl TestApp {
    /// See [`Fixtures::prompt`].
    pub async fn prompt(&self, slug: &str) -> Version {
        self.fixtures().ticket_prompt(slug).await
    }

    /// See [`Fixtures::active_workload`].
    pub async fn active_workload(&self, slug: &str) -> ActiveWorkload {
        self.fixtures().active_workload(slug).await
    }
}
