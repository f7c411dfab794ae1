//! Model routes: their order, and routes that a sovereignty profile excludes.

use fairway_domain::execution::provider::{
    Completion, DeltaListener, EmbeddingCall, Embeddings, Provider, ProviderCall, ProviderError, ProviderFailure,
};
use fairway_testkit::app::{ActiveWorkload, Response, TestApp, Version};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// A provider that responds only for the account `good`. Data of the account `posing` resides in `US`.
#[derive(Default)]
struct AccountProvider {
    called_routes: Mutex<Vec<String>>,
}

#[async_trait::async_trait]
impl Provider for AccountProvider {
    async fn complete(
        &self,
        call: &ProviderCall,
        _: Option<&dyn DeltaListener>,
    ) -> Result<Completion, ProviderFailure> {
        self.called_routes.lock().unwrap().push(call.route.route_id.clone());
        if call.route.account_slot != "good" {
            return Err(ProviderError::Unavailable.into());
        }
        let text = format!("by {}", call.route.route_id);
        Ok(Completion { text, tokens_in: 3, tokens_out: 2, cost_micros: Some(7), ..Completion::default() })
    }

    async fn embed(&self, _: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        Err(ProviderError::Unsupported.into())
    }

    fn residency(&self, account_slot: &str) -> Option<&str> {
        (account_slot == "posing").then_some("US")
    }
}

fn route(id: &str, account: &str, residency: Option<&str>) -> Value {
    let mut route = json!({ "route_id": id, "provider": "acme", "model": "m", "account_slot": account });
    route["state"] = json!("approved");
    if let Some(residency) = residency {
        route["residency"] = json!(residency);
    }
    route
}

async fn active_workload(app: &TestApp, slug: &str, routes: &[Value], profile: Option<Value>) -> ActiveWorkload {
    let fixtures = app.fixtures();
    let name = |suffix: &str| format!("{slug}-{suffix}");
    let policy = json!({ "provider_route": routes[0], "fallback_routes": routes[1..] });
    let mut versions: Vec<Version> = vec![
        fixtures.ticket_prompt(&name("prompt")).await,
        fixtures.allow_all_policy(&name("policy")).await,
        fixtures.asset_with_version("model_policy", &name("models"), policy).await,
    ];
    if let Some(profile) = profile {
        versions.push(fixtures.asset_with_version("sovereignty_profile", &name("sovereignty"), profile).await);
    }
    fixtures.active_workload_with_bindings(slug, versions).await
}

async fn execute(app: &TestApp, workload: &ActiveWorkload) -> Response {
    let inputs = json!({ "ticket": "a refund" });
    app.post(workload.execute_path(), json!({ "environment": "dev", "inputs": inputs })).await
}

/// The evidence artifacts of one kind of a run.
async fn evidence_documents(app: &TestApp, execution: &Value, kind: &str) -> Vec<Value> {
    let id = execution.as_str().unwrap();
    let evidence = app.get(format!("/v1/executions/{id}/evidence-graph")).await.expect(200);
    let mut documents = Vec::new();
    for artifact in evidence["evidence_artifacts"].as_array().unwrap() {
        if artifact["artifact_kind"] == kind {
            let path = format!("/v1/executions/{id}/evidence-artifacts/{}", artifact["artifact_id"].as_str().unwrap());
            documents.push(app.get(path).await.expect(200)["content"].clone());
        }
    }
    documents
}

#[tokio::test]
async fn fallback_route_answers_and_each_attempt_is_evidence() {
    let provider = Arc::new(AccountProvider::default());
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let routes = [route("first", "bad", None), route("second", "good", None), route("third", "good", None)];
    let workload = active_workload(&app, "main", &routes, None).await;
    let response = execute(&app, &workload).await.expect(200);
    assert_eq!((&response["status"], &response["output"]), (&json!("completed"), &json!("by second")));
    assert_eq!(*provider.called_routes.lock().unwrap(), ["first", "second"]);
    let calls = evidence_documents(&app, &response["execution_id"], "provider_call").await;
    assert_eq!(calls.len(), 1);
    let call = &calls[0];
    assert_eq!((&call["route_id"], &call["cost_micros"]), (&json!("second"), &json!(7)));
    assert_eq!((&call["tokens_in"], &call["tokens_out"]), (&json!(3), &json!(2)));
    let attempts: Vec<(&str, &str)> = call["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| (attempt["route_id"].as_str().unwrap(), attempt["result"].as_str().unwrap()))
        .collect();
    assert_eq!(attempts, [("first", "provider_unavailable"), ("second", "answered")]);
}

#[tokio::test]
async fn skipped_routes_outside_the_jurisdictions_are_evidence() {
    let provider = Arc::new(AccountProvider::default());
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let routes = [
        route("here", "bad", Some("DE")),
        route("there", "good", Some("US")),
        route("posing", "posing", Some("DE")),
        route("nowhere", "good", None),
    ];
    let profile = json!({ "jurisdictions_allowed": ["eu"] });
    let held_back = active_workload(&app, "held-back", &routes, Some(profile.clone())).await;
    let response = execute(&app, &held_back).await.expect(200);
    assert_eq!((&response["status"], &response["error"]["code"]), (&json!("failed"), &json!("provider_unavailable")));
    assert_eq!(*provider.called_routes.lock().unwrap(), ["here", "here"], "no other route is called");
    let refused_routes = evidence_documents(&app, &response["execution_id"], "route_refused").await;
    let reasons: Vec<(&str, &Value)> =
        refused_routes.iter().map(|route| (route["route_id"].as_str().unwrap(), &route["reasons"])).collect();
    let (wrong_jurisdiction, account) =
        (json!(["jurisdiction_not_allowed"]), json!(["account_jurisdiction_not_allowed"]));
    assert_eq!(reasons, [("there", &wrong_jurisdiction), ("posing", &account), ("nowhere", &wrong_jurisdiction)]);
    // Without the sovereignty profile, the fallback route is permitted and answers.
    let unrestricted = active_workload(&app, "open", &routes, None).await;
    assert_eq!(execute(&app, &unrestricted).await.expect(200)["output"], "by there");
}

#[tokio::test]
async fn no_compliant_route_refuses_the_run_and_warns_in_the_gates() {
    let provider = Arc::new(AccountProvider::default());
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let fixtures = app.fixtures();
    let models = json!({ "provider_route": route("there", "good", Some("US")), "fallback_routes": [] });
    let versions = vec![
        fixtures.ticket_prompt("prompt").await,
        fixtures.allow_all_policy("policy").await,
        fixtures.asset_with_version("model_policy", "models", models).await,
        fixtures
            .asset_with_version("sovereignty_profile", "sovereignty", json!({ "jurisdictions_allowed": ["DE"] }))
            .await,
    ];
    let restricted_workload = fixtures.workload("closed").await;
    let release = fixtures.approved_release(&restricted_workload, &versions).await;
    let gates = app.get(format!("/v1/releases/{release}/gates")).await.expect(200);
    let warnings = |gates: &Value| -> Vec<(Value, Value)> {
        let is_model_policy_gate = |gate: &&Value| gate["gate"] == "model_policy";
        gates
            .as_array()
            .unwrap()
            .iter()
            .filter(is_model_policy_gate)
            .map(|gate| (gate["verdict"].clone(), gate["code"].clone()))
            .collect()
    };
    assert_eq!(warnings(&gates), [(json!("warn"), json!("no_compliant_route"))]);
    fixtures.transition(&release, "active").await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    let refusal =
        app.post("/v1/workloads/by-slug/closed/execute", body).await.expect_refusal(422, "no_compliant_route");
    assert!(provider.called_routes.lock().unwrap().is_empty());
    let refusals = evidence_documents(&app, &refusal["execution_id"], "route_refused").await;
    assert_eq!((refusals.len(), &refusals[0]["route_id"]), (1, &json!("there")));
    // The gate requires only one route that complies with the profile.
    let models = json!({ "provider_route": route("here", "good", Some("DE")), "fallback_routes": [] });
    let versions: Vec<Version> = {
        let mut versions = versions;
        versions[2] = fixtures.asset_with_version("model_policy", "other-models", models).await;
        versions
    };
    let compliant_workload = fixtures.workload("fine").await;
    let release = fixtures.approved_release(&compliant_workload, &versions).await;
    let gates = app.get(format!("/v1/releases/{release}/gates")).await.expect(200);
    assert_eq!(warnings(&gates), [(json!("pass"), json!("model_policy"))]);
}
