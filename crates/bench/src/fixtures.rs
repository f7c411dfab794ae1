//! Fixtures of the scenarios, created through the HTTP API: workloads with active releases, assets, drafts.

mod variant;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use tokio_postgres::Client;

use crate::connection::{BenchRequest, Connection, get, patch, post, with_header};
use crate::fill_assets::Catalogue;
use crate::fill_history::StoredRuns;

/// Number of workloads with an active release in [`ENVIRONMENT`].
pub(crate) const WORKLOAD_COUNT: usize = 100;
/// The environment of all releases.
pub(crate) const ENVIRONMENT: &str = "dev";
/// Number of assets that receive versions. There are more assets than clients, so that no two clients share an asset.
const ASSET_COUNT: usize = 64;
/// Number of releases that alternate between draft and review; more than clients, so that no two clients share a
/// release.
const DRAFT_COUNT: usize = 128;
/// Number of release pairs that compete for a lane; more than clients, so that no two clients share a pair.
const COMPETING_PAIRS: usize = 64;
/// The lane for which the two releases of a pair compete.
pub(crate) const CONTESTED_LANE: &str = "guided";
const OWNER: &str = "team:bench";
/// The workspace of the fixtures, which the first start creates.
pub(crate) const WORKSPACE: &str = "00000000-0000-7000-8000-000000000003";
/// An administrator of the default tenant: in local mode, an actor without a role binding administers it.
pub(crate) const DEFAULT_TENANT_ADMIN: &str = "user:bench-outsider";
/// An administrator of another workspace in the default tenant, which contains no fixtures.
pub(crate) const OTHER_WORKSPACE_ADMIN: &str = "user:bench-neighbour";

/// A runnable workload.
pub(crate) struct Workload {
    pub(crate) slug: String,
    pub(crate) id: String,
}

/// A release that alternates between draft and review.
#[derive(Clone)]
pub(crate) struct Draft {
    pub(crate) id: String,
    state: Rc<Cell<ReviewState>>,
}

#[derive(Clone, Copy)]
enum ReviewState {
    Draft,
    Review,
}

/// Two releases of one workload. Each keeps one lane, and they compete for the third lane.
#[derive(Clone)]
pub(crate) struct CompetingReleases {
    /// Whether the second release activates next on the contested lane.
    second_is_next: Rc<Cell<bool>>,
    releases: [String; 2],
}

impl CompetingReleases {
    /// The release to activate next. The caller must send the request, because this call advances the state.
    pub(crate) fn next_release(&self) -> &str {
        let is_second = self.second_is_next.replace(!self.second_is_next.get());
        let [first_release, second_release] = &self.releases;
        if is_second { second_release } else { first_release }
    }
}

/// The identifiers of one resource of each kind that is read by identifier.
#[derive(Default)]
pub(crate) struct ResourceIds {
    pub(crate) workload: String,
    pub(crate) asset: String,
    pub(crate) release: String,
    pub(crate) execution: String,
}

/// The data that scenarios read or change, created once before all measurements.
pub(crate) struct Fixtures {
    pub(crate) workloads: Rc<[Workload]>,
    /// A workload with a flow of three steps.
    pub(crate) three_step_workload: Workload,
    /// Stored runs, if a scenario reads them.
    pub(crate) stored_runs: Option<StoredRuns>,
    pub(crate) assets: Rc<[String]>,
    pub(crate) drafts: Rc<[Draft]>,
    pub(crate) competing_releases: Rc<[CompetingReleases]>,
    /// Many assets, if a scenario lists them.
    pub(crate) catalogue: Option<Catalogue>,
    /// Resources of the default tenant that the readers of the timing benchmark must not see.
    pub(crate) hidden_resources: ResourceIds,
    /// The workspace that [`OTHER_WORKSPACE_ADMIN`] administers.
    pub(crate) other_workspace: String,
    /// Resources of another tenant.
    pub(crate) other_tenant_resources: ResourceIds,
    /// The versions that every release in the default tenant binds.
    pub(crate) bindings: Bindings,
    /// A counter for unique values in requests.
    pub(crate) counter: Rc<Cell<u64>>,
}

impl Draft {
    /// The state to request next. The caller must send the request, because this call advances the state.
    pub(crate) fn toggle_state(&self) -> &'static str {
        let (state, next_state) = match self.state.get() {
            ReviewState::Draft => ("review_ready", ReviewState::Review),
            ReviewState::Review => ("draft", ReviewState::Draft),
        };
        self.state.set(next_state);
        state
    }
}

impl Fixtures {
    /// Creates all fixtures on the server at `address`. Also creates the catalogue of assets when `catalogue_database`
    /// connects to the server's database.
    ///
    /// # Errors
    /// When the server refuses a request.
    pub(crate) async fn create(address: SocketAddr, catalogue_database: Option<&Client>) -> Result<Fixtures> {
        let catalogue = match catalogue_database {
            Some(database) => Some(Catalogue::create(database, address).await.context("creating the catalogue")?),
            None => None,
        };
        let mut builder = FixtureBuilder { connection: Connection::open(address).await?, other_tenant: None };
        let bindings = builder.bindings().await.context("creating the assets")?;
        let mut workloads = Vec::with_capacity(WORKLOAD_COUNT);
        for number in 0..WORKLOAD_COUNT {
            workloads.push(
                builder
                    .workload(&format!("bench-{number}"), &bindings)
                    .await
                    .context("creating a workload with its release")?,
            );
        }
        let mut assets = Vec::with_capacity(ASSET_COUNT);
        for number in 0..ASSET_COUNT {
            assets.push(builder.asset(&format!("bench-versions-{number}"), "prompt_template").await?);
        }
        let mut drafts = Vec::with_capacity(DRAFT_COUNT);
        for workload in workloads.iter().cycle().take(DRAFT_COUNT) {
            let id = builder.release(&workload.id, &bindings).await.context("drafting a release")?;
            drafts.push(Draft { id, state: Rc::new(Cell::new(ReviewState::Draft)) });
        }
        let mut competing_releases = Vec::with_capacity(COMPETING_PAIRS);
        for number in 0..COMPETING_PAIRS {
            competing_releases.push(
                builder
                    .competing_releases(&format!("bench-competing-{number}"), &bindings)
                    .await
                    .context("creating two competing releases")?,
            );
        }
        let three_step_workload = builder
            .three_step_workload("bench-steps", &bindings)
            .await
            .context("creating a workload with three steps")?;
        let hidden_resources = builder
            .resources("bench-hidden", &bindings)
            .await
            .context("creating the resources that readers must not see")?;
        let other_workspace = builder.other_workspace().await.context("creating another workspace")?;
        builder.switch_to_new_tenant().await.context("creating another tenant")?;
        let other_bindings = builder.bindings().await.context("creating the assets of another tenant")?;
        let other_tenant_resources = builder
            .resources("bench-other-tenant", &other_bindings)
            .await
            .context("creating the resources of another tenant")?;
        Ok(Fixtures {
            catalogue,
            three_step_workload,
            stored_runs: None,
            hidden_resources,
            other_workspace,
            other_tenant_resources,
            workloads: workloads.into(),
            assets: assets.into(),
            drafts: drafts.into(),
            competing_releases: competing_releases.into(),
            bindings,
            counter: Rc::new(Cell::new(0)),
        })
    }
}

/// The versions that every release binds, by role, and the asset of the policy bundle.
#[derive(Clone, Default)]
pub(crate) struct Bindings {
    versions: Vec<(&'static str, String)>,
    policy_bundle: String,
}

struct FixtureBuilder {
    connection: Connection,
    /// The tenant and workspace for fixtures; `None` for the default tenant and workspace.
    other_tenant: Option<OtherTenant>,
}

struct OtherTenant {
    tenant: String,
    workspace: String,
}

impl FixtureBuilder {
    async fn post(&mut self, path: &str, body: Value) -> Result<Value> {
        self.send(post(path, &body)).await
    }

    async fn send(&mut self, request: BenchRequest) -> Result<Value> {
        let request = match &self.other_tenant {
            Some(OtherTenant { tenant, .. }) => with_header(request, "x-tenant-id", tenant),
            None => request,
        };
        self.connection.json(request).await
    }

    /// Posts a body. Adds the workspace to the body unless the default workspace is used.
    async fn post_in_workspace(&mut self, path: &str, mut body: Value) -> Result<Value> {
        if let (Some(OtherTenant { workspace, .. }), Some(fields)) = (&self.other_tenant, body.as_object_mut()) {
            fields.insert("workspace_id".to_owned(), json!(workspace));
        }
        self.post(path, body).await
    }

    /// Creates a second workspace of the default tenant, with an administrator for this workspace only.
    async fn other_workspace(&mut self) -> Result<String> {
        let workspace = self.workspace("bench-other-workspace").await?;
        let role = json!({
            "principal": OTHER_WORKSPACE_ADMIN, "role": "workspace_admin",
            "scope_kind": "workspace", "scope_ref": workspace,
        });
        self.post("/v1/role-bindings", role).await?;
        Ok(workspace)
    }

    /// Creates another tenant, and creates subsequent fixtures there.
    async fn switch_to_new_tenant(&mut self) -> Result<()> {
        let created = self.post("/v1/tenants", json!({"slug": "bench-other-tenant", "name": "Other tenant"})).await?;
        let tenant = required_string(&created, "tenant_id")?;
        self.other_tenant = Some(OtherTenant { tenant: tenant.clone(), workspace: String::new() });
        let workspace = self.workspace("bench-other-tenant").await?;
        self.other_tenant = Some(OtherTenant { tenant, workspace });
        Ok(())
    }

    async fn workspace(&mut self, slug: &str) -> Result<String> {
        let body = json!({"slug": slug, "name": slug, "namespace": slug});
        required_string(&self.post("/v1/workspaces", body).await?, "workspace_id")
    }

    /// Creates one resource of each kind, including an execution.
    async fn resources(&mut self, slug: &str, bindings: &Bindings) -> Result<ResourceIds> {
        let workload = self.workload(slug, bindings).await?;
        let release = self.release(&workload.id, bindings).await?;
        let asset = self.asset(&format!("{slug}-asset"), "prompt_template").await?;
        let body = json!({"environment": ENVIRONMENT, "inputs": {"text": "I want a refund."}});
        let execution = self.post(&format!("/v1/workloads/by-slug/{}/execute", workload.slug), body).await?;
        Ok(ResourceIds {
            workload: workload.id,
            asset,
            release,
            execution: required_string(&execution, "execution_id")?,
        })
    }

    async fn asset(&mut self, slug: &str, kind: &str) -> Result<String> {
        let body = json!({"slug": slug, "asset_kind": kind, "owner_ref": OWNER});
        required_string(&self.post_in_workspace("/v1/assets", body).await?, "asset_id")
    }

    async fn bindings(&mut self) -> Result<Bindings> {
        let mut versions = Vec::new();
        let mut policy_bundle = None;
        for (kind, content) in [
            ("prompt_template", prompt_content(0)),
            ("model_policy", model_policy()),
            ("policy_bundle", policy_bundle_content()),
            ("orchestration_flow", flow()),
        ] {
            let created = self.create_version(&format!("bench-{}", kind.replace('_', "-")), kind, content).await?;
            versions.push((kind, created.version));
            if kind == "policy_bundle" {
                policy_bundle = Some(created.asset);
            }
        }
        Ok(Bindings { versions, policy_bundle: policy_bundle.context("no policy bundle was created")? })
    }

    async fn workload(&mut self, slug: &str, bindings: &Bindings) -> Result<Workload> {
        let body = json!({"slug": slug, "owner_ref": OWNER, "invocation_mode": "api"});
        let id = required_string(&self.post_in_workspace("/v1/workloads", body).await?, "workload_id")?;
        // The form defines the inputs, which the server validates. A workload without a form is not offered as an
        // MCP tool.
        let field = json!({"name": "text", "type": "text", "required": true});
        let form = json!({"presentation_mode": "form", "input_fields": [field]});
        let path = format!("/v1/workloads/{id}");
        self.send(patch(&path, &json!({"interface_config": form}))).await?;
        self.active_release(&id, bindings, json!({"to_state": "active"})).await?;
        Ok(Workload { slug: slug.to_owned(), id })
    }

    /// Creates a workload with a flow that evaluates the policy again before the model call.
    async fn three_step_workload(&mut self, slug: &str, bindings: &Bindings) -> Result<Workload> {
        let flow = self.create_version(&format!("{slug}-flow"), "orchestration_flow", three_step_flow()).await?;
        self.workload(slug, &bindings.with("orchestration_flow", &flow.version)).await
    }

    /// Creates, approves and activates a release with this activation request.
    async fn active_release(&mut self, workload: &str, bindings: &Bindings, activation: Value) -> Result<String> {
        let release = self.release(workload, bindings).await?;
        let transition_path = format!("/v1/releases/{release}/transition");
        self.post(&transition_path, json!({"to_state": "review_ready"})).await?;
        let approval = json!({"outcome": "approved", "subject_kind": "release", "subject_ref": release});
        self.post(&format!("/v1/releases/{release}/approvals"), approval).await?;
        self.post(&transition_path, json!({"to_state": "approved"})).await?;
        self.post(&transition_path, activation).await?;
        Ok(release)
    }

    /// Creates a workload with two releases. The second release initially has the contested lane.
    async fn competing_releases(&mut self, slug: &str, bindings: &Bindings) -> Result<CompetingReleases> {
        let workload = self.workload(slug, bindings).await?;
        let releases = self.connection.json(get(&format!("/v1/workloads/{}/releases", workload.id))).await?;
        let first = required_string(releases.get(0).context("the workload has no release")?, "release_id")?;
        let second =
            self.active_release(&workload.id, bindings, json!({"to_state": "active", "lane": "standard"})).await?;
        self.post(&format!("/v1/releases/{second}/transition"), json!({"to_state": "active", "lane": CONTESTED_LANE}))
            .await?;
        Ok(CompetingReleases { second_is_next: Rc::new(Cell::new(false)), releases: [first, second] })
    }

    /// Creates a draft with all bindings.
    async fn release(&mut self, workload: &str, bindings: &Bindings) -> Result<String> {
        let body = json!({
            "workload_id": workload, "environment": ENVIRONMENT, "target_lane": "all",
            "policy_bundle_id": bindings.policy_bundle,
        });
        let release = required_string(&self.post("/v1/releases", body).await?, "release_id")?;
        for (role, version) in &bindings.versions {
            let binding = json!({"asset_version_id": version, "role": role});
            self.post(&format!("/v1/releases/{release}/bindings"), binding).await?;
        }
        Ok(release)
    }
}

/// The content of a prompt template of about 1 KiB, unique for each number.
pub(crate) fn prompt_content(number: u64) -> Value {
    let rules = "Keep to what the ticket says and never add anything that it does not say. ".repeat(10);
    json!({
        "system_prompt": format!(
            "You sort support tickets, edition {number}. {rules}\nOne of: billing (invoice, refund, charge), \
             outage (down, error, slow), other\nThe ticket: $arg:text"
        ),
        "variables": [{"name": "text", "description": "What the customer wrote.", "type": "string"}],
    })
}

fn model_policy() -> Value {
    model_policy_for("local", "local-1", "local")
}

/// A model policy with one route.
fn model_policy_for(provider: &str, model: &str, account_slot: &str) -> Value {
    json!({
        "provider_route": {
            "route_id": "primary", "provider": provider, "model": model, "account_slot": account_slot,
            "region": "eu-west-1", "residency": "eu", "state": "approved", "sensitivity_tiers": ["internal"],
            "capability_tags": ["chat"], "cost_class": "standard", "prompt_caching": false, "logging": "metadata",
        },
        "fallback_routes": [], "supports_streaming": account_slot != "local", "supports_tool_use": false,
        "temperature": 0.2, "max_tokens": 200,
    })
}

fn policy_bundle_content() -> Value {
    json!({"rules": [
        {
            "id": "short-tickets-in-dev",
            "condition": "environment == 'dev' && size(inputs.text) < 10000",
            "outcome": "allow", "reason_code": "within_bounds",
        },
        {
            "id": "nobody-unknown",
            "condition": "actor.type == 'anonymous' || workload.slug.startsWith('secret-')",
            "outcome": "deny", "reason_code": "unknown_caller",
        },
    ]})
}

fn flow() -> Value {
    json!({
        "name": "sort-ticket", "description": "Asks the model once and returns what it says.",
        "trigger": {"type": "api_request", "inputs_schema": {"text": "string"}},
        "entry_step": "sort",
        "steps": [
            {
                "id": "sort", "type": "llm_call",
                "inputs": {"prompt": "{{release.prompt_template}}", "text": "{{trigger.text}}"},
                "model_policy": "{{release.model_policy}}", "next": "done",
            },
            {"id": "done", "type": "return", "output": {"class": "{{steps.sort.output}}"}},
        ],
    })
}

fn three_step_flow() -> Value {
    json!({
        "name": "check-and-sort-ticket", "description": "Asks the policy, then the model, and returns what it says.",
        "trigger": {"type": "api_request", "inputs_schema": {"text": "string"}},
        "entry_step": "check",
        "steps": [
            {
                "id": "check", "type": "task", "action": "evaluate_policy", "inputs": {"text": "{{trigger.text}}"},
                "on_success": "sort", "on_failure": "stop",
            },
            {
                "id": "sort", "type": "llm_call",
                "inputs": {"prompt": "{{release.prompt_template}}", "text": "{{trigger.text}}"},
                "model_policy": "{{release.model_policy}}", "next": "done",
            },
            {"id": "done", "type": "return", "output": {"class": "{{steps.sort.output}}"}},
            {"id": "stop", "type": "return", "output": "stopped"},
        ],
    })
}

fn required_string(value: &Value, name: &str) -> Result<String> {
    let found = value.get(name).and_then(Value::as_str);
    Ok(found.with_context(|| format!("the response has no `{name}`: {value}"))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draft_alternates_between_states() {
        let draft = Draft { id: "x".to_owned(), state: Rc::new(Cell::new(ReviewState::Draft)) };
        let same = draft.clone();
        assert_eq!(
            [draft.toggle_state(), same.toggle_state(), draft.toggle_state()],
            ["review_ready", "draft", "review_ready"]
        );
    }

    #[test]
    fn prompts_are_distinct_and_about_one_kibibyte() {
        assert_ne!(prompt_content(1), prompt_content(2));
        assert!((800..1_400).contains(&prompt_content(1).to_string().len()));
    }
}
