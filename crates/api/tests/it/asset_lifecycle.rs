//! The lifecycle of assets: activation, retirement, archiving, and the releases that block archiving.

use crate::support::workspace_fixture::{WORKSPACE, WorkspaceFixture};
use fairway_testkit::{TestApp, app::Response};
use futures_util::future::join;
use serde_json::{Value, json};

const UNKNOWN_WORKSPACE: &str = "0190f000-0000-7000-8000-00000000dead";

fn path(asset: &str, verb: &str) -> String {
    format!("/v1/assets/{asset}/{verb}?workspace_id={WORKSPACE}")
}

async fn post_action(app: &TestApp, asset: &str, verb: &str) -> Response {
    app.post(path(asset, verb), json!({})).await
}

#[tokio::test]
async fn asset_follows_its_lifecycle_transitions() {
    let app = TestApp::start().await;
    let asset = app.fixtures().asset_without_versions("skill", "thing").await;
    let asset_view = app.get(format!("/v1/assets/{asset}?workspace_id={WORKSPACE}")).await;
    assert_eq!(asset_view.expect(200)["lifecycle_state"], "active", "a new asset is active");
    for (verb, state) in [("retire", "retired"), ("activate", "active"), ("retire", "retired")] {
        let response = post_action(&app, &asset, verb).await;
        assert_eq!(response.expect(200)["lifecycle_state"], state);
        let refusal = post_action(&app, &asset, verb).await.expect_refusal(409, "invalid_transition");
        assert_eq!(refusal["current_state"], state);
        assert!(refusal["valid_transitions"].as_array().unwrap().contains(&json!("archived")), "{refusal}");
    }
    // No request creates an asset in state `draft`, so the test sets this state in the database.
    let draft = app.fixtures().asset_without_versions("skill", "draft").await;
    let owner = app.database().connect_as_owner().await.unwrap();
    let set_draft_sql = format!("UPDATE asset SET lifecycle_state = 'draft' WHERE asset_id = '{draft}'");
    owner.batch_execute(&set_draft_sql).await.unwrap();
    post_action(&app, &draft, "retire").await.expect_refusal(409, "invalid_transition");
    assert_eq!(post_action(&app, &draft, "activate").await.expect(200)["lifecycle_state"], "active");

    assert_eq!(post_action(&app, &asset, "archive").await.expect(200)["lifecycle_state"], "archived");
    for verb in ["activate", "retire", "archive"] {
        let refusal = post_action(&app, &asset, verb).await.expect_refusal(409, "invalid_transition");
        assert_eq!(refusal["valid_transitions"], json!([]), "`archived` is a final state");
    }
    let version = app.post(format!("/v1/assets/{asset}/versions"), json!({ "content": {} })).await;
    assert!([400, 409].contains(&version.status), "{version}");
}

#[tokio::test]
async fn archived_asset_keeps_versions_and_rejects_new_ones() {
    let app = TestApp::start().await;
    let prompt = app.prompt("prompt").await;
    let tag = app.get(format!("/v1/assets/{}?workspace_id={WORKSPACE}", prompt.asset_id)).await;
    post_action(&app, &prompt.asset_id, "archive").await.expect(200);
    let path = format!("/v1/assets/{}/versions", prompt.asset_id);
    let listed = app.get(format!("{path}?workspace_id={WORKSPACE}")).await.expect(200);
    assert_eq!(listed[0]["asset_version_id"], prompt.asset_version_id);
    let body = json!({ "content": { "system_prompt": "x" } });
    app.post(path, body).await.expect_refusal(409, "asset_archived");
    let after = app.get(format!("/v1/assets/{}?workspace_id={WORKSPACE}", prompt.asset_id)).await;
    assert_ne!(tag.header("etag"), after.header("etag"));
}

#[tokio::test]
async fn lifecycle_actions_accept_preconditions_and_keys() {
    let app = TestApp::start().await;
    let asset = app.fixtures().asset_without_versions("skill", "thing").await;
    let asset_view = app.get(format!("/v1/assets/{asset}?workspace_id={WORKSPACE}")).await;
    let tag = asset_view.header("etag").unwrap();
    let retire = |tag: &str| app.post(path(&asset, "retire"), json!({})).header("If-Match", tag);
    retire("\"99\"").await.expect_refusal(412, "precondition_failed");
    let retired = retire(tag).idempotency_key("once").await;
    retired.expect(200);
    assert_ne!(retired.header("etag"), Some(tag));
    let replay = retire(tag).idempotency_key("once").await;
    assert_eq!(replay.expect(200), retired.json());
    assert_eq!(replay.header("idempotency-replayed"), Some("true"));
    retire(tag).await.expect_refusal(412, "precondition_failed");
    app.post(path(&asset, "retire"), json!({ "workspace_id": WORKSPACE }))
        .idempotency_key("once")
        .await
        .expect_refusal(409, "idempotency_key_conflict");
}

#[tokio::test]
async fn requires_exactly_one_workspace() {
    let app = TestApp::start().await;
    let asset = app.fixtures().asset_without_versions("skill", "thing").await;
    let other_workspace = app.fixtures().workspace("other", "default").await;
    let verb = format!("/v1/assets/{asset}/retire");
    let missing = app.post(&verb, json!({})).await.expect_refusal(422, "validation_error");
    assert_eq!(
        (&missing["fields"][0]["path"], &missing["fields"][0]["code"]),
        (&json!("workspace_id"), &json!("missing"))
    );
    let conflicting_response =
        app.post(format!("{verb}?workspace_id={WORKSPACE}"), json!({ "workspace_id": other_workspace })).await;
    assert_eq!(conflicting_response.expect_refusal(422, "validation_error")["fields"][0]["path"], "workspace_id");
    let repeated_response =
        app.post(format!("{verb}?workspace_id={WORKSPACE}&workspace_id={WORKSPACE}"), json!({})).await;
    assert_eq!(repeated_response.expect_refusal(422, "validation_error")["fields"][0]["path"], "workspace_id");
    app.post(format!("{verb}?workspace_id={UNKNOWN_WORKSPACE}"), json!({})).await.expect_refusal(404, "not_found");
    for field in ["lifecycle_state", "created_by", "revision"] {
        let response = app.post(&verb, json!({ "workspace_id": WORKSPACE, field: "active" })).await;
        assert_eq!(response.expect_refusal(422, "validation_error")["fields"][0]["code"], "unknown_field");
    }
    // A request may name the same workspace in query and body, and may omit the body.
    app.post(format!("{verb}?workspace_id={other_workspace}"), json!({ "workspace_id": other_workspace }))
        .await
        .expect(200);
    app.request_by_method_name("post", path(&asset, "activate")).await.expect(200);
}

#[tokio::test]
async fn unfinished_releases_block_archiving() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let policy = fixtures.allow_all_policy("policy").await;
    let workload = fixtures.workload("main").await;
    let draft = fixtures.draft(&workload, std::slice::from_ref(&policy)).await;
    let blocking_release = async |state: &str| {
        let refusal = post_action(&app, &policy.asset_id, "archive").await.expect_refusal(409, "asset_in_use");
        let expected = json!([{
            "release_id": draft, "state": state, "workload_id": workload, "workload_slug": "main", "environment": "dev",
            "message": "of the workload `main` in `dev`",
        }]);
        assert_eq!((&refusal["blocking_releases"], &refusal["hidden_releases"]), (&expected, &json!(0)));
    };
    blocking_release("draft").await;
    fixtures.transition(&draft, "review_ready").await;
    blocking_release("review_ready").await;
    let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": draft });
    app.post(format!("/v1/releases/{draft}/approvals"), verdict).await.expect(201);
    fixtures.transition(&draft, "approved").await;
    blocking_release("approved").await;
    fixtures.transition(&draft, "active").await;
    blocking_release("active").await;
    // A retired asset cannot be bound anew. A release that already binds it stays active.
    post_action(&app, &policy.asset_id, "retire").await.expect(200);
    let other_draft = fixtures.draft(&workload, &[]).await;
    let binding = json!({ "asset_version_id": policy.asset_version_id, "role": "policy_bundle" });
    app.post(format!("/v1/releases/{other_draft}/bindings"), binding).await.expect_refusal(409, "asset_not_active");
    blocking_release("active").await;
    fixtures.transition(&draft, "retired").await;
    post_action(&app, &policy.asset_id, "archive").await.expect(200);
}

#[tokio::test]
async fn hidden_blocking_releases_are_counted_and_not_listed() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let hidden = fixtures.workspace("hidden", "default").await;
    let policy = fixtures.allow_all_policy("policy").await;
    let hidden_fixtures = fixtures.in_workspace(&hidden);
    let workload = hidden_fixtures.workload("theirs").await;
    let release = hidden_fixtures.draft(&workload, std::slice::from_ref(&policy)).await;
    fixtures.bind_role("user:ada", "author", "workspace", Some(WORKSPACE)).await;
    let response = app.post(path(&policy.asset_id, "archive"), json!({})).as_actor("user:ada").await;
    let refusal = response.expect_refusal(409, "asset_in_use");
    assert_eq!((&refusal["blocking_releases"], &refusal["hidden_releases"]), (&json!([]), &json!(1)));
    for secret in [&release, &workload, &hidden] {
        assert!(!response.text().contains(secret.as_str()), "{response}");
    }
}

/// Whichever request comes first, no draft binds an archived asset afterwards.
#[tokio::test]
async fn concurrent_archiving_and_binding_let_one_succeed() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let workload = fixtures.workload("main").await;
    let (mut archived_count, mut bound_count) = (0, 0);
    for round in 0..24 {
        let policy = fixtures.allow_all_policy(&format!("policy-{round}")).await;
        let draft = fixtures.draft(&workload, &[]).await;
        let body = json!({ "asset_version_id": policy.asset_version_id, "role": "policy_bundle" });
        let bind = app.post(format!("/v1/releases/{draft}/bindings"), body);
        let archive = app.post(path(&policy.asset_id, "archive"), json!({}));
        // The order of the two requests alternates.
        let (bind, archive) = if round % 2 == 0 {
            join(bind.into_future(), archive.into_future()).await
        } else {
            let (archive, bind) = join(archive.into_future(), bind.into_future()).await;
            (bind, archive)
        };
        match (bind.status, archive.status) {
            (201, 409) => {
                archive.expect_refusal(409, "asset_in_use");
                bound_count += 1;
            }
            (409, 200) => {
                bind.expect_refusal(409, "asset_not_active");
                archived_count += 1;
            }
            _ => panic!("{bind}\n{archive}"),
        }
    }
    assert_eq!(archived_count + bound_count, 24);
}

/// The binding's transaction is still open while the asset is archived. A statement that locks and checks in the
/// same snapshot would not see the binding.
#[tokio::test]
async fn archiving_detects_a_binding_committed_while_it_waits() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let policy = fixtures.allow_all_policy("policy").await;
    let draft = fixtures.draft(&fixtures.workload("main").await, &[]).await;
    let mut owner = app.database().connect_as_owner().await.unwrap();
    let binding = owner.transaction().await.unwrap();
    let (asset, version) = (&policy.asset_id, &policy.asset_version_id);
    let locked = format!("SELECT FROM asset WHERE asset_id = '{asset}' FOR SHARE");
    binding.batch_execute(&locked).await.unwrap();
    let insert = format!(
        "INSERT INTO release_binding SELECT tenant_id, gen_random_uuid(), release_id, 'policy_bundle', '{version}', now(),
         'user:eve' FROM release WHERE release_id = '{draft}'"
    );
    binding.batch_execute(&insert).await.unwrap();
    let archive = tokio::spawn(app.post(path(asset, "archive"), json!({})).into_future());
    let observer = app.database().connect_as_owner().await.unwrap();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while !archive.is_finished() && observer.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
    binding.commit().await.unwrap();
    archive.await.unwrap().expect_refusal(409, "asset_in_use");
}

/// The asset is archived in a transaction that is still open when the binding is requested.
#[tokio::test]
async fn binding_waits_for_concurrent_archiving() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let policy = fixtures.allow_all_policy("policy").await;
    let draft = fixtures.draft(&fixtures.workload("main").await, &[]).await;
    let mut owner = app.database().connect_as_owner().await.unwrap();
    let archiving = owner.transaction().await.unwrap();
    let archive = format!(
        "UPDATE asset SET lifecycle_state = 'archived', revision = revision + 1 WHERE asset_id = '{}'",
        policy.asset_id
    );
    archiving.batch_execute(&archive).await.unwrap();
    let body = json!({ "asset_version_id": policy.asset_version_id, "role": "policy_bundle" });
    let bind = tokio::spawn(app.post(format!("/v1/releases/{draft}/bindings"), body).into_future());
    let observer = app.database().connect_as_owner().await.unwrap();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while !bind.is_finished() && observer.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
    archiving.commit().await.unwrap();
    bind.await.unwrap().expect_refusal(409, "asset_not_active");
}

#[tokio::test]
async fn lifecycle_changes_are_recorded_as_facts() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    for operation in ["activate_asset", "retire_asset", "archive_asset"] {
        fixture.successful_request(operation).await.await.expect(200);
    }
    let owner = app.database().connect_as_owner().await.unwrap();
    let sql = "SELECT convert_from(body, 'UTF8')::jsonb -> 'detail' ->> 'to' FROM fact WHERE kind = 'asset.moved'
        ORDER BY fact_id";
    let states: Vec<String> = owner.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(states, ["retired", "active", "retired", "archived"]);
    let _: Value = app.get("/readyz").await.expect(200);
}
