//! Draft and active releases: bindings, gates and lanes.

use fairway_testkit::{
    TestApp,
    app::{Response, Version},
};
use serde_json::{Value, json};

async fn read_gates(app: &TestApp, release: &str) -> Vec<Value> {
    let gates = app.get(format!("/v1/releases/{release}/gates")).await.expect(200);
    gates.as_array().unwrap().clone()
}

/// Each gate as one line: `to_state lane gate verdict code`.
fn gate_summaries(gates: &[Value]) -> Vec<String> {
    let field = |gate: &Value, name: &str| gate[name].as_str().unwrap_or("*").to_owned();
    let names = ["to_state", "lane", "gate", "verdict", "code"];
    gates.iter().map(|gate| names.map(|name| field(gate, name)).join(" ")).collect()
}

pub(crate) async fn unbind(app: &TestApp, release: &str, binding: &Value) -> Response {
    app.delete(format!("/v1/releases/{release}/bindings/{}", binding.as_str().unwrap())).await
}

pub(crate) async fn bind(app: &TestApp, release: &str, version: &Version) -> Response {
    let body = json!({ "asset_version_id": version.asset_version_id, "role": version.kind });
    app.post(format!("/v1/releases/{release}/bindings"), body).await
}

pub(crate) async fn transition_to(app: &TestApp, release: &str, state: &str) -> Response {
    app.post(format!("/v1/releases/{release}/transition"), json!({ "to_state": state })).await
}

#[tokio::test]
async fn bindings_change_in_drafts_only() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let (workload, policy) = (fixtures.workload("main").await, fixtures.allow_all_policy("policy").await);
    let release = fixtures.draft(&workload, std::slice::from_ref(&policy)).await;
    let release_view = app.get(format!("/v1/releases/{release}")).await.expect(200);
    let first_binding = release_view["bindings"][0]["binding_id"].clone();
    bind(&app, &release, &policy).await.expect_refusal(409, "duplicate_role");
    assert_eq!(unbind(&app, &release, &first_binding).await.status, 204);
    unbind(&app, &release, &first_binding).await.expect_refusal(404, "not_found");
    let second_binding = bind(&app, &release, &policy).await.expect(201)["binding_id"].clone();
    assert_ne!(first_binding, second_binding);

    // An approval does not cover bindings that were changed afterwards.
    let approval = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": release });
    transition_to(&app, &release, "review_ready").await.expect(200);
    app.post(format!("/v1/releases/{release}/approvals"), approval).await.expect(201);
    unbind(&app, &release, &second_binding).await.expect_refusal(409, "release_not_editable");
    transition_to(&app, &release, "draft").await.expect(200);
    assert_eq!(unbind(&app, &release, &second_binding).await.status, 204);
    bind(&app, &release, &fixtures.allow_all_policy("another").await).await.expect(201);
    transition_to(&app, &release, "review_ready").await.expect(200);
    transition_to(&app, &release, "approved").await.expect_refusal(422, "approval_required");

    // The binding belongs to another release, so it cannot be deleted through this release.
    let other_release = fixtures.draft(&workload, &[policy]).await;
    let other_binding =
        app.get(format!("/v1/releases/{other_release}")).await.expect(200)["bindings"][0]["binding_id"].clone();
    unbind(&app, &release, &other_binding).await.expect_refusal(404, "not_found");
    let owner = app.database().connect_as_owner().await.unwrap();
    let count = "SELECT count(*) FROM fact WHERE kind = 'release.binding_removed'";
    assert_eq!(owner.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 2);
}

#[tokio::test]
async fn gates_agree_with_the_transition() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let workload = fixtures.workload("main").await;
    let prompt = fixtures.ticket_prompt("prompt").await;
    let empty = fixtures.draft(&workload, &[]).await;
    assert_eq!(gate_summaries(&read_gates(&app, &empty).await)[0], "review_ready * bindings warn no_bindings");
    let release = fixtures.draft(&workload, &[prompt]).await;
    assert_eq!(
        gate_summaries(&read_gates(&app, &release).await),
        [
            "review_ready * bindings pass bindings",
            "review_ready * references pass references",
            "review_ready * policy_bundle warn policy_bundle_missing",
        ]
    );

    transition_to(&app, &release, "review_ready").await.expect(200);
    let warning_line = "approved * policy_bundle warn policy_bundle_missing";
    let in_review = read_gates(&app, &release).await;
    assert_eq!(gate_summaries(&in_review), ["approved * approvals blocked approval_required", warning_line]);
    let message = "an activation would be refused: bind a version with the role `policy_bundle`";
    assert_eq!(in_review[1]["message"], message, "the warning names the later refusal");
    transition_to(&app, &release, "approved").await.expect_refusal(422, "approval_required");
    let approval = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": release });
    app.post(format!("/v1/releases/{release}/approvals"), approval).await.expect(201);
    assert_eq!(
        gate_summaries(&read_gates(&app, &release).await),
        ["approved * approvals pass approvals", warning_line]
    );
    transition_to(&app, &release, "approved").await.expect(200);

    let current_gates = read_gates(&app, &release).await;
    assert_eq!(
        gate_summaries(&current_gates),
        [
            "active * approvals pass approvals",
            "active restricted lane pass lane",
            "active guided lane pass lane",
            "active standard lane pass lane",
            "active * workload pass workload",
            "active * policy_bundle blocked policy_bundle_missing",
            "active * flow pass flow",
            "active * model_policy pass model_policy",
            "active * provider_account pass provider_account",
            "active * obligations pass obligations",
            "active * memory pass memory",
            "active * controls pass controls",
            "active * references pass references",
            "active * use_case pass use_case",
        ]
    );
    let refusal = transition_to(&app, &release, "active").await.expect_refusal(422, "activation_blocked");
    let blocking = current_gates.iter().find(|gate| gate["verdict"] == "blocked").unwrap();
    assert_eq!(refusal["missing"], json!([{ "code": blocking["code"], "message": blocking["message"] }]));
    transition_to(&app, &release, "retired").await.expect(200);
    assert!(read_gates(&app, &release).await.is_empty());
}

#[tokio::test]
async fn gates_of_an_active_release_cover_its_other_lanes() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let workload = fixtures.workload("main").await;
    let release = fixtures.approved_release(&workload, &[fixtures.allow_all_policy("policy").await]).await;
    let body = json!({ "to_state": "active", "lane": "guided" });
    app.post(format!("/v1/releases/{release}/transition"), body.clone()).await.expect(200);
    let lanes: Vec<String> =
        gate_summaries(&read_gates(&app, &release).await).into_iter().filter(|line| line.contains(" lane ")).collect();
    assert_eq!(
        lanes,
        [
            "active restricted lane pass lane",
            "active guided lane blocked invalid_transition",
            "active standard lane pass lane"
        ]
    );
    app.post(format!("/v1/releases/{release}/transition"), body).await.expect_refusal(409, "invalid_transition");
}

#[tokio::test]
async fn lanes_list_their_holders_with_times() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let workload = fixtures.workload("main").await;
    let versions = vec![fixtures.allow_all_policy("policy").await];
    let path = format!("/v1/workloads/{workload}/lanes?environment=dev");
    let empty: Vec<Value> =
        ["restricted", "guided", "standard"].map(|lane| json!({ "lane": lane, "holder": null, "history": [] })).into();
    assert_eq!(app.get(&path).await.expect(200), json!(empty));

    let (first_release, second_release) =
        (fixtures.approved_release(&workload, &versions).await, fixtures.approved_release(&workload, &versions).await);
    transition_to(&app, &first_release, "active").await.expect(200);
    let body = json!({ "to_state": "active", "lane": "restricted" });
    app.post(format!("/v1/releases/{second_release}/transition"), body).await.expect(200);
    transition_to(&app, &first_release, "retired").await.expect(200);
    let lanes = app.get(&path).await.expect(200);
    let holders: Vec<&Value> = lanes.as_array().unwrap().iter().map(|lane| &lane["holder"]).collect();
    assert_eq!(holders, [&json!(second_release), &json!(null), &json!(null)]);
    let [later_entry, earlier_entry] = lanes[0]["history"].as_array().unwrap().as_slice() else { panic!("{lanes}") };
    assert_eq!((&later_entry["release_id"], &later_entry["to"]), (&json!(second_release), &json!(null)));
    assert_eq!((&earlier_entry["release_id"], &earlier_entry["to"]), (&json!(first_release), &later_entry["from"]));
    assert_eq!(later_entry["reason"], "activation");
    // After the first release retired, no release held `standard`.
    let [only] = lanes[2]["history"].as_array().unwrap().as_slice() else { panic!("{lanes}") };
    assert_eq!(only["release_id"], json!(first_release));
    assert!(only["to"].as_str().unwrap() > only["from"].as_str().unwrap());
    app.get(format!("/v1/workloads/{workload}/lanes")).await.expect_refusal(422, "validation_error");
}

/// A verdict that waits for a concurrent change of the bindings is refused, because the reviewed bindings have changed.
#[tokio::test]
async fn verdict_on_changed_bindings_is_refused() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let workload = fixtures.workload("main").await;
    let release = fixtures
        .draft(&workload, &[fixtures.allow_all_policy("policy").await, fixtures.ticket_prompt("prompt").await])
        .await;
    fixtures.transition(&release, "review_ready").await;
    let (second_connection, owner) =
        (app.database().connect_as_owner().await.unwrap(), app.database().connect_as_owner().await.unwrap());
    second_connection.batch_execute("BEGIN").await.unwrap();
    // A transaction that is not yet committed returns the release to draft and removes the prompt's binding.
    let change_sql = format!(
        "UPDATE release SET state = 'draft', bindings_digest = NULL, revision = revision + 2
            WHERE release_id = '{release}';
         DELETE FROM release_binding WHERE release_id = '{release}' AND role = 'prompt_template'"
    );
    second_connection.batch_execute(&change_sql).await.unwrap();
    let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": release });
    let send_verdict = async { app.post(format!("/v1/releases/{release}/approvals"), verdict).await };
    let commit_when_blocked = async {
        let waiting_sql =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while owner.query_one(waiting_sql, &[]).await.unwrap().get::<_, i64>(0) < 1 {}
        second_connection.batch_execute("COMMIT").await.unwrap();
    };
    let (response, ()) = tokio::join!(send_verdict, commit_when_blocked);
    response.expect_refusal(409, "concurrent_change");
    let approvals = app.get(format!("/v1/releases/{release}/approvals")).await.expect(200);
    assert_eq!(approvals, json!([]));
}

#[tokio::test]
async fn retired_workload_refuses_releases_activations_and_links() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let workload = fixtures.workload("main").await;
    let policy = fixtures.allow_all_policy("policy").await;
    let transition = |release: &str, body: Value| app.post(format!("/v1/releases/{release}/transition"), body);
    let older_release = fixtures.approved_release(&workload, std::slice::from_ref(&policy)).await;
    fixtures.transition(&older_release, "active").await;
    let rolling = fixtures.approved_release(&workload, std::slice::from_ref(&policy)).await;
    let plan = json!({ "lane_sequence": ["restricted", "standard"], "soak_duration_minutes": 0 });
    transition(&rolling, json!({ "to_state": "active", "rollout_plan": plan })).await.expect(200);
    let approved = fixtures.approved_release(&workload, &[policy]).await;
    app.patch(format!("/v1/workloads/{workload}"), json!({ "status": "retired" })).await.expect(200);

    let draft = json!({ "workload_id": workload, "environment": "dev" });
    app.post("/v1/releases", draft).await.expect_refusal(409, "workload_retired");
    let link = json!({ "ttl_hours": 1, "max_uses": 1 });
    app.post(format!("/v1/workloads/{workload}/share-links"), link).await.expect_refusal(409, "workload_retired");
    for release in [&approved, &rolling] {
        transition(release, json!({ "to_state": "active" })).await.expect_refusal(409, "workload_retired");
    }
    let advance = format!("/v1/releases/{rolling}/rollout/advance");
    app.post(advance, json!({})).await.expect_refusal(409, "workload_retired");
    let rollback = format!("/v1/releases/{rolling}/rollback");
    app.post(rollback, json!({ "reason": "It is over." })).await.expect_refusal(409, "workload_retired");
    let gates = app.get(format!("/v1/releases/{approved}/gates")).await.expect(200);
    let gate = gates.as_array().unwrap().iter().find(|gate| gate["gate"] == "workload").unwrap();
    assert_eq!((&gate["verdict"], &gate["code"]), (&json!("blocked"), &json!("workload_retired")));
    // Releases of the retired workload can still be retired.
    for release in [&approved, &rolling, &older_release] {
        transition(release, json!({ "to_state": "retired" })).await.expect(200);
    }
}

#[tokio::test]
async fn gates_warn_about_policy_inputs_that_nothing_declares() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let workload = fixtures.workload("main").await;
    let rules = json!([
        { "id": "typo", "condition": "inputs.tiket == 'x' && inputs.ticket == 'y'", "outcome": "allow", "reason_code": "a" },
        { "id": "tested", "condition": "has(inputs.other) && inputs.other", "outcome": "allow", "reason_code": "b" },
    ]);
    let release = fixtures.approved_release(&workload, &[fixtures.policy_with_rules("policy", rules).await]).await;
    let warnings = async || {
        let gates = read_gates(&app, &release).await;
        let of_policy = gates.iter().filter(|gate| gate["gate"] == "policy_bundle").cloned();
        of_policy.collect::<Vec<Value>>()
    };
    assert_eq!(warnings().await[0]["verdict"], "pass", "without a declaration, a run may have any input");
    let form = json!({ "presentation_mode": "form", "input_fields": [{ "name": "ticket", "type": "text" }] });
    app.patch(format!("/v1/workloads/{workload}"), json!({ "interface_config": form })).await.expect(200);
    let found = warnings().await;
    let [warning] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((&warning["verdict"], &warning["code"]), (&json!("warn"), &json!("policy_input_undeclared")));
    let message = warning["message"].as_str().unwrap();
    assert!(
        message.contains("`typo`") && message.contains("`tiket`") && message.contains("has(inputs.tiket)"),
        "{message}"
    );
    let unread = json!([{ "id": "unread", "condition": "inputs.none == 'x'", "outcome": "allow", "reason_code": "a" }]);
    let reviewed = fixtures.policy_with_rules("reviewed", unread).await;
    let under_review = fixtures.draft_in(&workload, "dev", &[reviewed]).await;
    fixtures.transition(&under_review, "review_ready").await;
    let gates = read_gates(&app, &under_review).await;
    let warning_gate = gates.iter().find(|gate| gate["code"] == "policy_input_undeclared").unwrap();
    assert_eq!(
        (&warning_gate["to_state"], &warning_gate["verdict"]),
        (&json!("approved"), &json!("warn")),
        "reviewers are told too"
    );
    // A gate with a warning does not prevent the activation.
    transition_to(&app, &release, "active").await.expect(200);
}

#[tokio::test]
async fn gates_warn_about_prompt_variables_that_no_step_passes() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let workload = fixtures.workload("main").await;
    let flow = |inputs: &str| {
        format!(
            "trigger: {{type: api_request, inputs_schema: {{question: string}}}}\nentry_step: ask\nsteps:\n  \
             - {{id: ask, type: llm_call, inputs: {{prompt: \"{{{{release.prompt_template}}}}\"{inputs}}}}}\n  \
             - {{id: end, type: return, output: \"{{{{steps.ask.output}}}}\"}}\n"
        )
    };
    let mut versions = vec![
        fixtures.allow_all_policy("policy").await,
        fixtures.ticket_prompt("sort").await,
        fixtures.model_policy("model").await,
        fixtures.flow("passing", &flow(", ticket: \"{{trigger.question}}\"")).await,
    ];
    let warnings = async |release: &str| {
        let gates = read_gates(&app, release).await;
        gates.into_iter().filter(|gate| gate["code"] == "prompt_variable_not_passed").collect::<Vec<Value>>()
    };
    let passing = fixtures.draft(&workload, &versions).await;
    assert_eq!(warnings(&passing).await, Vec::<Value>::new());
    versions[3] = fixtures.flow("forgetful", &flow("")).await;
    let draft = fixtures.draft(&workload, &versions).await;
    let release = fixtures.approved_release(&workload, &versions).await;
    for (release, to_state) in [(&draft, "review_ready"), (&release, "active")] {
        let found = warnings(release).await;
        let [warning] = found.as_slice() else { panic!("{found:?}") };
        let members = ["to_state", "gate", "verdict"].map(|name| warning[name].as_str().unwrap());
        assert_eq!(members, [to_state, "flow", "warn"]);
        let message = warning["message"].as_str().unwrap();
        assert!(["`ask`", "`ticket`", "`sort`"].iter().all(|name| message.contains(name)), "{message}");
    }
    fixtures.transition(&release, "active").await;
    let body = json!({ "environment": "dev", "inputs": { "question": "a refund" } });
    let run = app.post("/v1/workloads/by-slug/main/execute", body).await;
    let message = run.expect_refusal(422, "prompt_argument_missing")["message"].clone();
    let cause = "the step `ask` of the flow does not pass it, and the run has no input of this name";
    assert_eq!(message, format!("the argument `ticket` is missing: {cause}"));
}
