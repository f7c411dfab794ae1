//! Compares the server's access decisions over HTTP with an independent model (`tools/access/permission_model.py`).

use crate::support::workspace_fixture::{TENANT, WorkspaceFixture};
use decision_model::{DOCUMENT, DecisionModel};
use fairway_domain::access::{GrantScope, Role};
use fairway_operations::access::Operation;
use fairway_testkit::{TestApp, app::Response};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

#[path = "../../../operations/src/access/authorize/tests/decision_model.rs"]
mod decision_model;

/// The number of callers with random roles.
const CALLERS: usize = 20;
/// The number of random (caller, scope, operation) triples that `GET /v1/session/can` explains.
const EXPLAINED: usize = 20_000;
/// Number of requests that are sent concurrently.
const CLIENTS: usize = 16;

/// Operations that the test requests as every caller, with the kind of scope in which they act. They cover reads and
/// changes under every access rule.
const REQUESTED: &[(&str, &str)] = &[
    ("read_session", "tenant"),
    ("list_roles", "tenant"),
    ("list_tenants", "platform"),
    ("read_tenant_settings", "tenant"),
    ("read_default_profiles", "tenant"),
    ("read_preferences", "tenant"),
    ("list_inbox", "tenant"),
    ("read_environment_settings", "workspace"),
    ("list_role_bindings", "workspace"),
    ("list_workspace_destinations", "workspace"),
    ("list_assets", "workspace"),
    ("list_workloads", "workspace"),
    ("list_connections", "workspace"),
    ("read_asset", "workspace"),
    ("list_asset_grants", "workspace"),
    ("read_connection", "workspace"),
    ("read_workload", "workload"),
    ("list_share_links", "workload"),
    ("list_principal_bindings", "workload"),
    ("list_workload_releases", "workload"),
    ("read_release", "workload"),
    ("list_approvals", "workload"),
    ("read_execution", "workload"),
    ("read_evidence_graph", "workload"),
    ("create_workspace", "tenant"),
    ("change_environment_settings", "workspace"),
    ("create_asset", "workspace"),
    ("create_workload", "workspace"),
    ("create_connection", "workspace"),
    ("change_connection", "workspace"),
    ("create_asset_version", "workspace"),
    ("change_workload", "workload"),
    ("set_principal_binding", "workload"),
    ("create_share_link", "workload"),
    ("create_release", "workload"),
    ("bind_version", "workload"),
    ("execute_workload", "workload"),
    ("execute_workload_on_lane", "workload"),
];

/// A pseudo-random sequence (SplitMix64) from a seed.
struct Random(u64);

impl Random {
    fn one_of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        &list[usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(list.len()).unwrap()).unwrap()]
    }
}

fn seed() -> u64 {
    std::env::var("FAIRWAY_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// Splits a scope `kind:id` into its kind and its identifier.
fn split(scope: &str) -> (&str, Option<&str>) {
    scope.split_once(':').map_or((scope, None), |(kind, id)| (kind, Some(id)))
}

/// Scopes for the test: two workspaces in different namespaces, and a third workspace in the namespace of the first.
struct AccessScenario<'a> {
    own_workspace: WorkspaceFixture<'a>,
    parents: BTreeMap<String, String>,
    /// Actors with their grants, in the form that the model reads.
    callers: Vec<(String, Value)>,
}

impl<'a> AccessScenario<'a> {
    async fn create(app: &'a TestApp, random: &mut Random) -> Self {
        let own_workspace = WorkspaceFixture::create(app).await;
        let other_workspace = WorkspaceFixture::in_other_workspace(app).await;
        let sibling_workspace = app.fixtures().workspace("beside", "here").await;
        let mut parents = BTreeMap::from([(format!("tenant:{TENANT}"), "platform".to_owned())]);
        for workspace in [&own_workspace.workspace, &other_workspace.workspace, &sibling_workspace] {
            let workspace_view = app.get(format!("/v1/workspaces/{workspace}")).await.expect(200);
            let namespace = format!("namespace:{}", workspace_view["namespace_id"].as_str().unwrap());
            parents.insert(format!("workspace:{workspace}"), namespace.clone());
            parents.insert(namespace, format!("tenant:{TENANT}"));
        }
        for fixture in [&own_workspace, &other_workspace] {
            let workload = format!("workload:{}", fixture.workload.workload_id);
            parents.insert(workload, format!("workspace:{}", fixture.workspace));
        }
        let mut scenario = Self { own_workspace, parents, callers: Vec::new() };
        for number in 0..CALLERS {
            scenario.add_caller(&format!("user:caller-{number}"), number % 3 + 1, random).await;
        }
        scenario
    }

    fn scopes(&self) -> Vec<String> {
        self.parents.keys().cloned().chain(["platform".to_owned()]).collect()
    }

    async fn add_caller(&mut self, actor: &str, roles: usize, random: &mut Random) {
        let scopes = self.scopes();
        let mut grants = BTreeSet::new();
        for _ in 0..roles {
            let scope = random.one_of(&scopes);
            let (kind, id) = split(scope);
            let reference = id.map(|id| id.parse().unwrap());
            let bound_scope = GrantScope::from_parts(kind, reference).unwrap();
            let roles: Vec<Role> = Role::ALL.into_iter().filter(|role| role.may_be_bound_at(&bound_scope)).collect();
            let role = random.one_of(&roles).as_str();
            if grants.insert((role, scope.clone())) {
                self.own_workspace.fixtures.bind_role(actor, role, kind, id).await;
            }
        }
        let grants: Vec<Value> = grants.into_iter().map(|(role, scope)| json!([role, scope])).collect();
        self.callers.push((actor.to_owned(), json!(grants)));
    }

    fn model(&self) -> DecisionModel {
        DecisionModel::start(Path::new(DOCUMENT), &self.parents)
    }

    /// The scope of this kind that contains the first workload.
    fn own_scope(&self, kind: &str) -> String {
        let mut scope = format!("workload:{}", self.own_workspace.workload.workload_id);
        while split(&scope).0 != kind {
            scope = self.parents[&scope].clone();
        }
        scope
    }
}

fn question(grants: &Value, operation: &str, scope: &str, request: bool) -> Value {
    json!({
        "tenant": format!("tenant:{TENANT}"), "grants": grants, "operation": operation, "at": scope, "request": request,
    })
}

#[tokio::test]
async fn explanations_agree_with_the_independent_model() {
    let app = TestApp::start().await;
    let mut random = Random(seed());
    let mut scenario = AccessScenario::create(&app, &mut random).await;
    let revoked = app.fixtures().bind_role("user:revoked", "viewer", "platform", None).await;
    app.delete(format!("/v1/role-bindings/{revoked}")).await.expect(204);
    scenario.callers.push(("user:revoked".to_owned(), json!([])));
    let scopes = scenario.scopes();
    let (mut questions, mut requests) = (Vec::new(), Vec::new());
    for _ in 0..EXPLAINED {
        let (actor, grants) = random.one_of(&scenario.callers);
        let operation = random.one_of(Operation::ALL).id();
        let scope = random.one_of(&scopes);
        let (kind, id) = split(scope);
        let reference = id.map_or_else(String::new, |id| format!("&scope_ref={id}"));
        let path = format!("/v1/session/can?operation={operation}&actor={actor}&scope_kind={kind}{reference}");
        questions.push(question(grants, operation, scope, false));
        requests.push(app.get(path));
    }
    let verdicts = scenario.model().answer(&questions);
    let mut explanations = Vec::new();
    for part in requests.chunks(CLIENTS) {
        explanations.extend(join_all(part.iter().cloned().map(IntoFuture::into_future)).await);
    }
    let mut differences = Vec::new();
    let mut allowed = 0;
    for ((question, verdict), explanation) in questions.iter().zip(&verdicts).zip(explanations) {
        let explained = explanation.expect(200);
        allowed += usize::from(verdict == "allowed");
        // If the caller has no role in the tenant, the model names no permission. The refusal of a request then
        // names the permission that makes workloads visible.
        let is_named = match (verdict.strip_prefix("forbidden "), explained["permission"].as_str()) {
            (Some(missing), Some(named)) => missing == named,
            _ => true,
        };
        if explained["allowed"] != json!(verdict == "allowed") || !is_named {
            differences.push(format!("{question}\n  documented: {verdict}, explained: {explained}"));
        }
    }
    assert!(allowed > EXPLAINED / 20, "only {allowed} of {EXPLAINED} are allowed");
    assert!(differences.is_empty(), "{} disagreements\n{}", differences.len(), differences.join("\n"));
}

/// The access verdict that a response expresses.
fn shown_verdict(response: &Response) -> String {
    match response.status {
        200 | 201 | 204 => "allowed".to_owned(),
        403 => format!("forbidden {}", response.expect_refusal(403, "forbidden")["permission"].as_str().unwrap()),
        404 => {
            response.expect_refusal(404, "not_found");
            "not found".to_owned()
        }
        _ => response.to_string(),
    }
}

/// Whether a response agrees with the verdict. If several permissions are missing, the response names only one of them.
fn is_shown(verdict: &str, shown: &str) -> bool {
    match (verdict.strip_prefix("forbidden "), shown.strip_prefix("forbidden ")) {
        (Some(missing), Some(named)) => missing.split(' ').any(|permission| permission == named),
        _ => verdict == shown,
    }
}

#[tokio::test]
async fn responses_agree_with_the_independent_model() {
    let app = TestApp::start().await;
    let scenario = AccessScenario::create(&app, &mut Random(seed())).await;
    let mut model = scenario.model();
    let mut differences = Vec::new();
    let mut counts = BTreeMap::<String, usize>::new();
    for &(operation, kind) in REQUESTED {
        let scope = scenario.own_scope(kind);
        let questions: Vec<Value> =
            scenario.callers.iter().map(|(_, grants)| question(grants, operation, &scope, true)).collect();
        let mut prepared = None;
        for ((actor, grants), verdict) in scenario.callers.iter().zip(model.answer(&questions)) {
            let request = match prepared.take() {
                Some(request) => request,
                None => scenario.own_workspace.successful_request(operation).await,
            };
            let response = request.clone().as_actor(actor).await;
            let found = shown_verdict(&response);
            if found != "allowed" || request.method() == "GET" {
                prepared = Some(request);
            }
            if !is_shown(&verdict, &found) {
                differences.push(format!("{operation} with {grants}\n  documented: {verdict}, got: {found}"));
            }
            *counts.entry(found.split(' ').next().unwrap().to_owned()).or_default() += 1;
        }
    }
    assert!(differences.is_empty(), "{} disagreements\n{}", differences.len(), differences.join("\n"));
    for kind in ["allowed", "not", "forbidden"] {
        assert!(counts.get(kind).is_some_and(|count| *count > 50), "{counts:?}");
    }
}
