//! The evidence of a run: the graph, its documents, and the lineage of the output.

use crate::{execution::run, support::workspace_fixture::WORKSPACE};
use fairway_testkit::{
    ProviderBehaviour, StubProvider, TestApp,
    app::{ActiveWorkload, Version},
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The model's output, which viewers must not read.
const MODEL_OUTPUT: &str = "call 4111 1111 1111 1111";
const FLOW: &str = "\
name: Checked and shortened
description: Asks the policy, asks the model, asks it again about what it said.
trigger: { type: api_request, inputs_schema: { ticket: string } }
entry_step: check
steps:
  - id: check
    type: task
    action: evaluate_policy
    inputs: { stage: second }
    on_success: sort
  - id: sort
    type: llm_call
    inputs: { prompt: '{{release.prompt_template}}' }
    next: shorten
  - id: shorten
    type: llm_call
    inputs: { prompt: 'Shorten this', message: '{{steps.sort.output}}' }
    next: done
  - id: done
    type: return
    output: '{{steps.shorten.output}}'
";

/// A workload whose policy imposes two obligations: a transcript at acceptance, and a notification of the owner
/// during the flow.
async fn workload_with_obligations(app: &TestApp) -> ActiveWorkload {
    let fixtures = app.fixtures();
    let obligation_rule = |id: &str, condition: &str, obligation: &str| {
        json!({ "id": id, "condition": condition, "outcome": "allow_with_obligations", "reason_code": id,
            "obligations": [obligation] })
    };
    let rules = json!([
        obligation_rule("watched", "always", "record_transcript"),
        obligation_rule("told", "has(inputs.stage) && inputs.stage == 'second'", "notify_owner"),
    ]);
    let versions: Vec<Version> = vec![
        fixtures.ticket_prompt("prompt").await,
        fixtures.model_policy("model").await,
        fixtures.policy_with_rules("policy", rules).await,
        fixtures.flow("flow", FLOW).await,
    ];
    fixtures.active_workload_with_bindings("main", versions).await
}

async fn completed_run() -> (TestApp, ActiveWorkload, String) {
    let provider = StubProvider::new(ProviderBehaviour::Answers(MODEL_OUTPUT.to_owned()));
    let app = TestApp::builder().provider(provider).start().await;
    let workload = workload_with_obligations(&app).await;
    let response = run(&app, &workload).await.expect(200);
    let id = response["execution_id"].as_str().unwrap().to_owned();
    app.fixtures().bind_role("user:viewer", "viewer", "workspace", Some(WORKSPACE)).await;
    app.fixtures().bind_role("user:operator", "operator", "workspace", Some(WORKSPACE)).await;
    (app, workload, id)
}

fn lineage_path(id: &str) -> String {
    format!("/v1/executions/{id}/context-lineage?workspace_id={WORKSPACE}")
}

/// The relationships of the specification, each with the node types of its source and its target.
const RELATIONSHIPS: [(&str, &str, &str); 7] = [
    ("executed_under", "execution", "release"),
    ("belongs_to", "release", "workload"),
    ("binds", "release", "asset"),
    ("governed_by", "execution", "policy_decision"),
    ("requires", "policy_decision", "obligation"),
    ("produced", "execution", "evidence_artifact"),
    ("approved_by", "release", "approval"),
];

#[tokio::test]
async fn graph_matches_the_flat_sections_and_has_every_relationship() {
    let (app, workload, id) = completed_run().await;
    let path = format!("/v1/executions/{id}/evidence-graph");
    let sections = app.get(format!("{path}?format=flat")).await.expect(200);
    let graph = app.get(format!("{path}?format=graph")).await.expect(200);
    assert_eq!(graph["format"], "graph");
    let mut types: BTreeMap<String, String> = BTreeMap::new();
    let mut data: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for node in graph["nodes"].as_array().unwrap() {
        let (id, name) = (node["id"].as_str().unwrap().to_owned(), node["type"].as_str().unwrap().to_owned());
        assert_eq!(types.insert(id, name.clone()), None, "duplicate node id: {node}");
        data.entry(name).or_default().push(node["data"].clone());
    }
    let mut actual: BTreeSet<(String, String, String)> = BTreeSet::new();
    for edge in graph["edges"].as_array().unwrap() {
        let type_of = |side: &str| types[edge[side].as_str().unwrap()].clone();
        actual.insert((edge["relationship"].as_str().unwrap().to_owned(), type_of("source"), type_of("target")));
    }
    let expected_relationships =
        RELATIONSHIPS.map(|(name, source, target)| (name.to_owned(), source.to_owned(), target.to_owned()));
    assert_eq!(
        actual,
        expected_relationships.into(),
        "the graph has every relationship between the specified node types"
    );
    // The data of the nodes equals the sections of the flat format.
    for (section, name) in [
        ("bindings", "binding"),
        ("obligations", "obligation"),
        ("evidence_artifacts", "evidence_artifact"),
        ("approvals", "approval"),
    ] {
        assert_eq!(sections[section], json!(data[name]), "{section}");
    }
    for section in ["execution", "release", "workload"] {
        assert_eq!(json!([sections[section]]), json!(data[section]));
    }
    assert_eq!(data["asset"].len(), 4);
    // The graph contains both decisions. The flat format contains only the effective one.
    let decisions: Vec<&Value> = data["policy_decision"].iter().map(|decision| &decision["rules"]).collect();
    assert_eq!(decisions, [&json!(["watched"]), &json!(["watched", "told"])]);
    assert_eq!(sections["policy_decision"], data["policy_decision"][1]);
    assert_eq!(sections["release"]["release_id"], workload.release_id);
    // Every obligation has an edge to each decision that imposes it.
    let requires = |edge: &&Value| edge["relationship"] == "requires";
    let required: Vec<&Value> = graph["edges"].as_array().unwrap().iter().filter(requires).collect();
    assert_eq!(required.len(), 3, "both decisions impose the transcript, one the notification: {required:?}");
}

/// The model receives the assets that a prompt includes, so evidence names these assets too.
#[tokio::test]
async fn evidence_names_assets_included_by_bound_content() {
    let provider = StubProvider::new(ProviderBehaviour::Answers(MODEL_OUTPUT.to_owned()));
    let app = TestApp::builder().provider(provider).start().await;
    let fixtures = app.fixtures();
    let tone = fixtures
        .asset_with_version("skill", "tone", json!({ "name": "n", "description": "d", "body": "Be brief." }))
        .await;
    let outer_content = json!({
        "system_prompt": "@asset-ref:tone @asset-ref:tone Sort: $arg:ticket",
        "variables": [{ "name": "ticket", "type": "string" }],
    });
    let versions = vec![
        fixtures.asset_with_version("prompt_template", "outer", outer_content).await,
        fixtures.model_policy("model").await,
        fixtures.allow_all_policy("policy").await,
    ];
    let workload = fixtures.active_workload_with_bindings("main", versions).await;
    // The evidence does not contain a version that is newer than the release.
    let newer =
        fixtures.add_version(&tone.asset_id, json!({ "name": "n", "description": "d", "body": "Be long." })).await;
    let response = run(&app, &workload).await.expect(200);
    let path = format!("/v1/executions/{}/evidence-graph", response["execution_id"].as_str().unwrap());
    let graph = app.get(format!("{path}?format=graph")).await.expect(200);
    let nodes = graph["nodes"].as_array().unwrap();
    let included: Vec<&Value> = nodes.iter().filter(|node| node["data"]["asset_slug"] == "tone").collect();
    let data = json!({ "asset_slug": "tone", "asset_kind": "skill", "asset_version_ids": [tone.asset_version_id] });
    assert_eq!(
        included,
        [&json!({ "id": "asset:tone", "type": "asset", "data": data })],
        "one asset node and no binding"
    );
    let release = format!("release:{}", workload.release_id);
    let edge = json!({ "source": release, "target": "asset:tone", "relationship": "binds" });
    assert_eq!(graph["edges"].as_array().unwrap().iter().filter(|other_edge| **other_edge == edge).count(), 1);
    let sections = app.get(path).await.expect(200);
    assert_eq!(sections["bindings"].as_array().unwrap().len(), 3, "only assets with a role are bindings");
    let references =
        json!([{ "asset_kind": "skill", "asset_slug": "tone", "asset_version_id": tone.asset_version_id }]);
    assert_eq!(sections["references"], references, "a repeated reference is listed once");
    assert!(!graph.to_string().contains(&newer) && !sections.to_string().contains(&newer));
}

/// Evidence identifies each version of an asset that the model received, even if there are several.
#[tokio::test]
async fn evidence_names_every_version_of_an_asset() {
    let provider = StubProvider::new(ProviderBehaviour::Answers(MODEL_OUTPUT.to_owned()));
    let app = TestApp::builder().provider(provider).start().await;
    let fixtures = app.fixtures();
    let skill = |body: &str| json!({ "name": "n", "description": "d", "body": body });
    let tone = fixtures.asset_with_version("skill", "tone", skill("Be brief.")).await;
    let longer = fixtures.add_version(&tone.asset_id, skill("Be long.")).await;
    let bound_skill = fixtures.asset_with_version("skill", "manners", skill("Be kind.")).await;
    let included = fixtures.add_version(&bound_skill.asset_id, skill("Be polite.")).await;
    let outer_content = json!({
        "system_prompt": "@asset-ref:tone @asset-ref:tone@v1 @asset-ref:manners Sort: $arg:ticket",
        "variables": [{ "name": "ticket", "type": "string" }],
    });
    let (model, policy) = (fixtures.model_policy("model").await, fixtures.allow_all_policy("policy").await);
    let outer_prompt = fixtures.asset_with_version("prompt_template", "outer", outer_content).await;
    let workload = fixtures
        .active_workload_with_bindings("main", vec![outer_prompt.clone(), model, policy, bound_skill.clone()])
        .await;
    let response = run(&app, &workload).await.expect(200);
    let path = format!("/v1/executions/{}/evidence-graph", response["execution_id"].as_str().unwrap());

    let graph = app.get(format!("{path}?format=graph")).await.expect(200);
    let nodes = graph["nodes"].as_array().unwrap();
    let asset = |slug: &str| {
        let id = format!("asset:{slug}");
        let found: Vec<&Value> = nodes.iter().filter(|node| node["id"] == id).collect();
        assert_eq!(found.len(), 1, "an asset with several versions has one node: {found:?}");
        assert_eq!(found[0]["type"], "asset");
        found[0]["data"]["asset_version_ids"].clone()
    };
    assert_eq!(asset("tone"), json!([tone.asset_version_id, longer]), "one reference with a label, one without");
    assert_eq!(
        asset("manners"),
        json!([bound_skill.asset_version_id, included]),
        "one version is bound, another included"
    );
    assert_eq!(asset("outer"), json!([outer_prompt.asset_version_id]));
    let bindings: Vec<&Value> = nodes.iter().filter(|node| node["type"] == "binding").collect();
    assert_eq!(bindings.len(), 4, "{bindings:?}");
    let manners_bindings: Vec<&Value> =
        bindings.into_iter().filter(|node| node["data"]["asset_slug"] == "manners").map(|node| &node["data"]).collect();
    let role = json!({ "role": "skill", "asset_slug": "manners", "asset_version_id": bound_skill.asset_version_id });
    assert_eq!(manners_bindings, [&role], "an included version has no role");

    let sections = app.get(&path).await.expect(200);
    let versions_in = |section: &str| -> BTreeSet<(String, String)> {
        let field = |item: &Value, name: &str| item[name].as_str().unwrap().to_owned();
        let items = sections[section].as_array().unwrap();
        let versions: BTreeSet<_> =
            items.iter().map(|item| (field(item, "asset_slug"), field(item, "asset_version_id"))).collect();
        assert_eq!(versions.len(), items.len(), "{section}: duplicate version: {items:?}");
        versions
    };
    let expected = [("tone", &tone.asset_version_id), ("tone", &longer), ("manners", &included)];
    assert_eq!(versions_in("references"), expected.map(|(slug, id)| (slug.to_owned(), id.clone())).into());
    // The asset nodes of the graph contain the same versions as the flat sections.
    let mut versions_in_sections = versions_in("bindings");
    versions_in_sections.extend(versions_in("references"));
    let assets = nodes.iter().filter(|node| node["type"] == "asset").flat_map(|node| {
        let slug = node["data"]["asset_slug"].as_str().unwrap();
        let versions = node["data"]["asset_version_ids"].as_array().unwrap();
        versions.iter().map(move |version| (slug.to_owned(), version.as_str().unwrap().to_owned()))
    });
    assert_eq!(assets.collect::<BTreeSet<_>>(), versions_in_sections);
}

#[tokio::test]
async fn evidence_shows_when_obligations_were_fulfilled() {
    let (app, _, id) = completed_run().await;
    let evidence = app.get(format!("/v1/executions/{id}/evidence-graph")).await.expect(200);
    let obligations: Vec<&Value> = evidence["obligations"].as_array().unwrap().iter().collect();
    assert_eq!(obligations.len(), 2);
    for (obligation, name) in obligations.iter().zip(["record_transcript", "notify_owner"]) {
        assert_eq!(obligation["obligation_name"], name);
        assert!(obligation["fulfilled_at"].as_str().unwrap().ends_with('Z'));
    }
    // The fact of the run's end includes the category that notifies the owner.
    let owner = app.database().connect_as_owner().await.unwrap();
    let sql = "SELECT convert_from(body, 'UTF8')::json FROM fact WHERE kind = 'execution.ended'";
    let fact: Value = owner.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(fact["detail"]["notify"], "team:tests");
    assert!(fact["categories"].as_array().unwrap().contains(&json!("reports")), "{fact}");
    assert!(!fact.to_string().contains("4111 1111"), "facts hold no payload");
    // The run lists every completed step.
    let execution = app.get(format!("/v1/executions/{id}")).await.expect(200);
    let steps: Vec<&Value> = execution["steps"].as_array().unwrap().iter().map(|step| &step["step_id"]).collect();
    assert_eq!(steps, ["check", "sort", "shorten", "done"]);
}

#[tokio::test]
async fn viewers_read_documents_and_only_operators_read_payloads() {
    let (app, workload, id) = completed_run().await;
    let evidence = app.get(format!("/v1/executions/{id}/evidence-graph")).await.expect(200);
    let artifacts = evidence["evidence_artifacts"].as_array().unwrap();
    let kinds: Vec<&Value> = artifacts.iter().map(|artifact| &artifact["artifact_kind"]).collect();
    assert_eq!(kinds, ["provider_call", "provider_call", "transcript"]);
    let path = |artifact: &Value| {
        format!("/v1/executions/{id}/evidence-artifacts/{}", artifact["artifact_id"].as_str().unwrap())
    };
    let call = app.get(path(&artifacts[0])).as_actor("user:viewer").await.expect(200);
    assert_eq!((&call["content"]["step_id"], &call["payload_withheld"]), (&json!("sort"), &json!(false)));
    assert_eq!(call["storage_ref"], artifacts[0]["storage_ref"]);
    assert!(call["content"]["latency_us"].is_u64());

    let transcript = path(&artifacts[2]);
    let viewer_view = app.get(&transcript).as_actor("user:viewer").await.expect(200);
    assert_eq!((&viewer_view["payload"], &viewer_view["payload_withheld"]), (&Value::Null, &json!(true)));
    assert!(!viewer_view.to_string().contains("4111 1111"), "{viewer_view}");
    let operator_view = app.get(&transcript).as_actor("user:operator").await.expect(200);
    assert_eq!(operator_view["payload_withheld"], false);
    let calls = operator_view["payload"]["calls"].as_array().unwrap();
    assert_eq!((calls.len(), &calls[1]["answer"]), (2, &json!(MODEL_OUTPUT)));
    assert_eq!(calls[1]["messages"], json!([{ "role": "user", "content": MODEL_OUTPUT }]));

    // Payloads can be erased. The evidence documents remain.
    let owner = app.database().connect_as_owner().await.unwrap();
    owner.execute("DELETE FROM evidence_payload", &[]).await.unwrap();
    let erased = app.get(&transcript).as_actor("user:operator").await.expect(200);
    assert_eq!((&erased["payload"], &erased["content"]), (&Value::Null, &operator_view["content"]));
    assert_eq!(erased["payload_withheld"], false);

    // A document is found only under the run that it belongs to.
    let other_run = run(&app, &workload).await.expect(200);
    let path_of_other_run = transcript.replace(&id, other_run["execution_id"].as_str().unwrap());
    app.get(path_of_other_run).await.expect_refusal(404, "not_found");
}

/// The redaction of long output runs on the blocking pool, so it must not delay other requests.
#[tokio::test]
async fn redaction_of_long_output_does_not_block_other_requests() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let rules = json!([{ "id": "all", "condition": "always", "outcome": "allow_with_obligations", "reason_code": "masked",
        "obligations": ["redact_output"] }]);
    let flow = fixtures.flow("flow", crate::support::workspace_fixture::ECHO_FLOW).await;
    let workload = fixtures
        .active_workload_with_bindings("main", vec![fixtures.policy_with_rules("policy", rules).await, flow])
        .await;
    let ticket = "1 ".repeat(25_000) + "mia@example.com";
    let body = json!({ "environment": "dev", "inputs": { "ticket": ticket } });
    let execute_long_run = || app.post(workload.execute_path(), body.clone());
    let mut runs = std::pin::pin!(async {
        tokio::join!(execute_long_run(), execute_long_run(), execute_long_run(), execute_long_run())
    });
    let other_requests = async {
        for _ in 0..10 {
            app.get("/healthz").await.expect(200);
        }
    };
    tokio::select! {
        biased;
        () = other_requests => {}
        _ = &mut runs => panic!("redaction of four long outputs blocked ten short requests"),
    }
    let (first, second, third, fourth) = runs.await;
    for response in [first, second, third, fourth] {
        assert!(response.expect(200)["output"].as_str().unwrap().ends_with("1 [email]"));
    }
}

#[tokio::test]
async fn only_operators_read_approval_notes() {
    let (app, _, id) = completed_run().await;
    let path = format!("/v1/executions/{id}/evidence-graph");
    let owner = app.database().connect_as_owner().await.unwrap();
    let insert_note_sql = "INSERT INTO approval_note (tenant_id, approval_id, body)
        SELECT tenant_id, approval_id, 'looked at it with Grace' FROM approval
        ON CONFLICT (tenant_id, approval_id) DO UPDATE SET body = excluded.body";
    owner.execute(insert_note_sql, &[]).await.unwrap();
    for format in ["flat", "graph"] {
        let viewer_view = app.get(format!("{path}?format={format}")).as_actor("user:viewer").await.expect(200);
        assert!(!viewer_view.to_string().contains("Grace"), "{viewer_view}");
        assert!(viewer_view.to_string().contains("\"note_withheld\":true"), "{viewer_view}");
        let operator_view = app.get(format!("{path}?format={format}")).as_actor("user:operator").await.expect(200);
        assert!(operator_view.to_string().contains("looked at it with Grace"), "{operator_view}");
    }
}

#[tokio::test]
async fn digests_cover_the_stored_inputs_and_results() {
    let (app, _, id) = completed_run().await;
    let evidence = app.get(format!("/v1/executions/{id}/evidence-graph")).await.expect(200);
    let owner = app.database().connect_as_owner().await.unwrap();
    for (table, name) in [("execution_input", "input_digest"), ("execution_result", "output_digest")] {
        let row = owner.query_one(&format!("SELECT salt, body FROM {table}"), &[]).await.unwrap();
        let (salt, body): (Vec<u8>, String) = (row.get(0), row.get(1));
        let digest = blake3::Hasher::new().update(&salt).update(body.as_bytes()).finalize();
        assert_eq!(evidence["execution"][name], format!("blake3:{}", digest.to_hex()), "{name}");
    }
    owner.batch_execute("DELETE FROM execution_input; DELETE FROM execution_result").await.unwrap();
    let later_graph = app.get(format!("/v1/executions/{id}/evidence-graph")).await.expect(200);
    assert_eq!(later_graph, evidence, "evidence does not change when payloads are erased");
}

#[tokio::test]
async fn lineage_names_the_sources_of_the_output() {
    let (app, _, id) = completed_run().await;
    let lineage = app.get(lineage_path(&id)).await.expect(200);
    let members: BTreeSet<&str> = lineage.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(members, ["items", "limit", "offset", "total"].into());
    let items = lineage["items"].as_array().unwrap();
    let lines: Vec<String> = items
        .iter()
        .rev()
        .map(|item| {
            let field = |name: &str| item[name].as_str().unwrap();
            format!(
                "{} {} {} {} {}",
                field("origin"),
                field("influence_role"),
                field("action_class"),
                field("trust"),
                field("ref")
            )
        })
        .collect();
    assert_eq!(
        lines,
        [
            "user_input input read untrusted inputs",
            "prompt_template instruction generate trusted prompt@v1",
            "user_input input generate untrusted inputs",
            "system instruction generate trusted flow@v1#steps.shorten",
            "user_input input generate untrusted inputs",
            "tool_result evidence generate untrusted steps.sort.output",
        ]
    );
    assert_eq!((&lineage["total"], &lineage["limit"], &lineage["offset"]), (&json!(6), &json!(50), &json!(0)));
    let evidence = app.get(format!("/v1/executions/{id}/evidence-graph")).await.expect(200);
    assert_eq!(items[5]["digest"], evidence["execution"]["input_digest"]);
    assert_eq!((&items[5]["redacted"], &items[0]["redacted"]), (&json!(false), &json!(true)));
    assert!(!lineage.to_string().contains("refund") && !lineage.to_string().contains("4111 1111"), "{lineage}");

    for (filter, count) in [
        ("origin=user_input", 3),
        ("influence_role=instruction", 2),
        ("action_class=read", 1),
        ("origin=user_input&action_class=generate", 2),
        ("origin=memory", 0),
    ] {
        let page = app.get(format!("{}&{filter}", lineage_path(&id))).await.expect(200);
        assert_eq!((page["items"].as_array().unwrap().len(), page["total"].as_u64()), (count, Some(count as u64)));
    }
    let page = app.get(format!("{}&limit=2&offset=1", lineage_path(&id))).await.expect(200);
    assert_eq!((&page["items"], &page["total"]), (&json!(items[1..3]), &json!(6)));
    for query in
        ["limit=0", "limit=201", "limit=x", "offset=-1", "limit=1&limit=1", "origin=web", "action_class=", "q=x"]
    {
        app.get(format!("{}&{query}", lineage_path(&id))).await.expect_refusal(422, "validation_error");
    }
    app.get(format!("{}&offset=1000000000000000000", lineage_path(&id))).await.expect_refusal(422, "offset_too_deep");
    app.get(format!("/v1/executions/{id}/context-lineage")).await.expect_refusal(422, "validation_error");

    // After the inputs are erased, the lineage marks the affected items as redacted.
    let owner = app.database().connect_as_owner().await.unwrap();
    owner.execute("DELETE FROM execution_input", &[]).await.unwrap();
    let filtered_lineage = app.get(format!("{}&origin=user_input", lineage_path(&id))).await.expect(200);
    assert!(filtered_lineage["items"].as_array().unwrap().iter().all(|item| item["redacted"] == true));
}

#[tokio::test]
async fn lineage_detail_depends_on_the_role() {
    let (app, _, id) = completed_run().await;
    let operators = ["action_posture", "untrusted_reason", "decision_evidence_refs"];
    let viewer_view = app.get(lineage_path(&id)).as_actor("user:viewer").await.expect(200);
    for item in viewer_view["items"].as_array().unwrap() {
        assert!(operators.iter().all(|field| item.get(field).is_none()), "{item}");
    }
    let operator_view = app.get(lineage_path(&id)).as_actor("user:operator").await.expect(200);
    let items = operator_view["items"].as_array().unwrap();
    assert_eq!(items[0]["untrusted_reason"], "model_output");
    assert_eq!((&items[4]["untrusted_reason"], &items[4]["trust"]), (&Value::Null, &json!("trusted")));
    assert_eq!(items[0]["action_posture"], "allow_with_obligations");
    let refs = |item: &Value| item["decision_evidence_refs"].as_array().unwrap().len();
    assert_eq!((refs(&items[5]), refs(&items[0])), (1, 2), "an item refers only to the decisions made before it");
    let evidence = app.get(format!("/v1/executions/{id}/evidence-graph")).await.expect(200);
    assert_eq!(items[0]["decision_evidence_refs"][0], evidence["policy_decision"]["decision_id"]);

    let other_workspace = app.fixtures().workspace("other", "default").await;
    app.fixtures().bind_role("user:elsewhere", "operator", "workspace", Some(&other_workspace)).await;
    let foreign_path = format!("/v1/executions/{id}/context-lineage?workspace_id={other_workspace}");
    for actor in ["user:operator", "user:elsewhere"] {
        app.get(&foreign_path).as_actor(actor).await.expect_refusal(404, "not_found");
    }
    app.get(lineage_path(&id)).as_actor("user:elsewhere").await.expect_refusal(404, "not_found");
}

/// The submitter can see its own run, so the refusal names the missing permission. Callers that cannot see the run
/// get 404.
#[tokio::test]
async fn refusal_of_evidence_names_the_permission_to_submitters() {
    let app = TestApp::start().await;
    let workload = app.active_workload("main").await;
    for (actor, role) in [("user:ada", "runtime_user"), ("user:eve", "runtime_user"), ("user:grace", "viewer")] {
        app.fixtures().bind_role(actor, role, "workspace", Some(WORKSPACE)).await;
    }
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    let response = app.post(workload.execute_path(), body).as_actor("user:ada").await.expect(200);
    let path = format!("/v1/executions/{}", response["execution_id"].as_str().unwrap());
    let evidence = app.get(format!("{path}/evidence-graph")).await.expect(200);
    let artifact = evidence["evidence_artifacts"][0]["artifact_id"].as_str().unwrap();
    for suffix in [
        "/evidence-graph".to_owned(),
        "/evidence-graph?format=graph".to_owned(),
        format!("/evidence-artifacts/{artifact}"),
        format!("/context-lineage?workspace_id={WORKSPACE}"),
    ] {
        let read_as = |actor: &str| app.get(format!("{path}{suffix}")).as_actor(actor);
        assert_eq!(
            read_as("user:ada").await.expect_refusal(403, "forbidden")["permission"],
            "execution.view",
            "{suffix}"
        );
        for outsider in ["user:eve", "anonymous"] {
            read_as(outsider).await.expect_refusal(404, "not_found");
        }
        read_as("user:grace").await.expect(200);
    }
    let other_workspace = app.fixtures().workspace("elsewhere", "elsewhere").await;
    let lineage = format!("{path}/context-lineage?workspace_id={other_workspace}");
    app.get(lineage).as_actor("user:ada").await.expect_refusal(404, "not_found");
}
