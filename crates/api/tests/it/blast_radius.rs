//! Blast radius: the releases and workloads that depend on an asset, and the reference paths to it.

use crate::support::workspace_fixture::WORKSPACE;
use fairway_testkit::TestApp;
use serde_json::{Value, json};

/// Inserts a version with references by SQL, so that reference graphs of any shape need no valid content.
async fn insert_referring_version(app: &TestApp, asset: &str, label: &str, targets: &[(&str, Option<&str>)]) -> String {
    let owner = app.database().connect_as_owner().await.unwrap();
    let sql = "WITH asset AS (
            UPDATE asset SET last_ordinal = last_ordinal + 1 WHERE asset_id = $1::text::uuid
            RETURNING tenant_id, asset_id, last_ordinal
        )
        INSERT INTO asset_version (tenant_id, asset_version_id, asset_id, version_label, ordinal, content, artifact_ref,
            checksum, created_at, created_by)
        SELECT tenant_id, (overlay(gen_random_uuid()::text placing '7' from 15 for 1))::uuid, asset_id, $2, last_ordinal,
            '{}', 'x', 'blake3:' || repeat('0', 64), now(), 'user:eve'
        FROM asset RETURNING asset_version_id::text, tenant_id::text";
    let row = owner.query_one(sql, &[&asset, &label]).await.unwrap();
    let (version, tenant): (String, String) = (row.get(0), row.get(1));
    for (position, (slug, label)) in targets.iter().enumerate() {
        let sql = "INSERT INTO asset_reference VALUES ($1::text::uuid, $2::text::uuid, $3, $4, $5, '/refs/' || $3::integer::text)";
        let position = i32::try_from(position).unwrap();
        owner.execute(sql, &[&tenant, &version, &position, slug, label]).await.unwrap();
    }
    version
}

async fn draft_binding(app: &TestApp, workload: &str, version: &str, kind: &str) -> String {
    let draft = app.fixtures().draft(workload, &[]).await;
    let body = json!({ "asset_version_id": version, "role": kind });
    app.post(format!("/v1/releases/{draft}/bindings"), body).await.expect(201);
    draft
}

async fn blast_radius(app: &TestApp, asset: &str) -> Value {
    app.get(format!("/v1/assets/{asset}/blast-radius?workspace_id={WORKSPACE}")).await.expect(200)
}

fn ids<'v>(rows: &'v Value, name: &str) -> Vec<&'v str> {
    rows.as_array().unwrap().iter().map(|row| row[name].as_str().unwrap()).collect()
}

#[tokio::test]
async fn direct_bindings_are_in_the_blast_radius() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let policy = fixtures.allow_all_policy("policy").await;
    let empty = blast_radius(&app, &policy.asset_id).await;
    assert_eq!(empty, json!({ "releases": [], "workloads": [], "via": [], "truncated": false }));
    let (first_workload, second_workload) = (fixtures.workload("one").await, fixtures.workload("two").await);
    let first_release = fixtures.draft(&first_workload, std::slice::from_ref(&policy)).await;
    let second_release = fixtures.draft(&first_workload, std::slice::from_ref(&policy)).await;
    let third_release = fixtures.draft(&second_workload, std::slice::from_ref(&policy)).await;
    fixtures.transition(&second_release, "retired").await;
    let found = blast_radius(&app, &policy.asset_id).await;
    assert_eq!(ids(&found["releases"], "release_id"), [&third_release, &second_release, &first_release]);
    assert_eq!(ids(&found["releases"], "state"), ["draft", "retired", "draft"]);
    assert_eq!(ids(&found["workloads"], "workload_id"), [&second_workload, &first_workload]);
    assert_eq!(found["workloads"][1]["release_ids"], json!([second_release, first_release]));
    let release = &found["releases"][0];
    assert_eq!((&release["path"], &release["version_label"]), (&json!([]), &json!("v1")));
    assert_eq!((&release["workload_id"], &release["environment"]), (&json!(second_workload), &json!("dev")));
}

#[tokio::test]
async fn follows_references_backwards_with_pins_and_cycles() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let base = fixtures.allow_all_policy("base").await;
    let (middle_asset, top_asset) = (
        fixtures.asset_without_versions("skill", "middle").await,
        fixtures.asset_without_versions("agent", "top").await,
    );
    // Only the first version of `middle` references `base`. References to `top` and `middle` name a version or none.
    let v1 = insert_referring_version(&app, &middle_asset, "v1", &[("base", Some("v1")), ("top", None)]).await;
    let v2 = insert_referring_version(&app, &middle_asset, "v2", &[]).await;
    let pinned_to_v1 = insert_referring_version(&app, &top_asset, "v1", &[("middle", Some("v1"))]).await;
    let pinned_to_v2 = insert_referring_version(&app, &top_asset, "v2", &[("middle", Some("v2"))]).await;
    let unpinned = insert_referring_version(&app, &top_asset, "v3", &[("other", None), ("middle", None)]).await;
    let workload = fixtures.workload("main").await;
    let mut releases = Vec::new();
    for (version, kind) in
        [(&v1, "skill"), (&v2, "skill"), (&pinned_to_v1, "agent"), (&pinned_to_v2, "agent"), (&unpinned, "agent")]
    {
        releases.push(draft_binding(&app, &workload, version, kind).await);
    }
    let found = blast_radius(&app, &base.asset_id).await;
    let affected = [&releases[4], &releases[2], &releases[0]];
    assert_eq!(ids(&found["releases"], "release_id"), affected, "{found:#}");
    assert_eq!(found["truncated"], false);
    // The list has the nearest version first, and each version once despite the cycle from `middle` to `top`.
    let via = found["via"].as_array().unwrap();
    assert_eq!(via.len(), 3);
    assert_eq!(via[0]["asset_version_id"], json!(v1));
    let path_to_base = &found["releases"][0]["path"];
    assert_eq!(ids(path_to_base, "asset_version_id"), [&v1, &unpinned]);
    assert_eq!(path_to_base[0]["references"], json!({ "slug": "base", "version": "v1" }));
    assert_eq!((&path_to_base[0]["towards"], &path_to_base[0]["pointer"]), (&json!(null), &json!("/refs/0")));
    assert_eq!((&path_to_base[1]["towards"], &path_to_base[1]["pointer"]), (&json!(v1), &json!("/refs/1")));
    assert_eq!(path_to_base[1]["references"], json!({ "slug": "middle", "version": null }));
    // An asset within a reference cycle depends on itself, through the other asset of the cycle.
    let radius = blast_radius(&app, &middle_asset).await;
    assert_eq!(radius["truncated"], false);
    assert_eq!(ids(&radius["via"], "asset_slug"), ["top", "top", "top"]);
}

#[tokio::test]
async fn omits_hidden_rows_and_masks_paths_through_them() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let hidden = fixtures.workspace("hidden", "hidden").await;
    let base = fixtures.allow_all_policy("base").await;
    let between = fixtures.in_workspace(&hidden).asset_without_versions("skill", "between").await;
    let top_asset = fixtures.asset_without_versions("agent", "top").await;
    let hidden_version = insert_referring_version(&app, &between, "v1", &[("base", None)]).await;
    let visible = insert_referring_version(&app, &top_asset, "v1", &[("between", None)]).await;
    let hidden_workload = fixtures.in_workspace(&hidden).workload("theirs").await;
    let hidden_release = draft_binding(&app, &hidden_workload, &hidden_version, "skill").await;
    let visible_workload = fixtures.workload("ours").await;
    let our_release = draft_binding(&app, &visible_workload, &visible, "agent").await;
    fixtures.bind_role("user:ada", "viewer", "workspace", Some(WORKSPACE)).await;
    let path = format!("/v1/assets/{}/blast-radius", base.asset_id);
    let response = app.get(&path).as_actor("user:ada").await;
    let found = response.expect(200);
    assert_eq!(ids(&found["releases"], "release_id"), [&our_release]);
    assert_eq!(ids(&found["workloads"], "workload_id"), [&visible_workload]);
    assert_eq!(ids(&found["via"], "asset_slug"), ["top"]);
    let path_to_asset = &found["releases"][0]["path"];
    assert_eq!((&path_to_asset[0], &path_to_asset[1]["asset_slug"]), (&json!(null), &json!("top")));
    for hidden_id in [&hidden_version, &between, &hidden_workload, &hidden_release, &hidden] {
        let text = response.text().replace(&format!("\"towards\":\"{hidden_version}\""), "");
        assert!(!text.contains(hidden_id.as_str()), "{hidden_id} in {text}");
    }
    let full_radius = app.get(&path).await.expect(200);
    assert_eq!(full_radius["releases"].as_array().unwrap().len(), 2);
    // References never cross tenants, even for equal slugs.
    let other_tenant = fixtures.tenant("abroad").await;
    let foreign_workspace = fixtures.in_tenant(&other_tenant, WORKSPACE).workspace("there", "there").await;
    let foreign_policy = fixtures.in_tenant(&other_tenant, &foreign_workspace).allow_all_policy("base").await;
    let found = app
        .get(format!("/v1/assets/{}/blast-radius", foreign_policy.asset_id))
        .in_tenant(&other_tenant)
        .await
        .expect(200);
    assert_eq!(found["via"], json!([]));
}
