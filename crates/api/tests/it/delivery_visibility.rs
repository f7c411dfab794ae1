//! Visibility and retries of deliveries by role, workspace, workload and tenant, and the links in messages.

use crate::{
    delivery::{DELIVERIES, await_deliveries, opt_in_to_incidents, suspend, webhook},
    support::workspace_fixture::WorkspaceFixture,
};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse, TestApp, app::Client};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The identifiers of the deliveries that an actor lists.
async fn visible_ids(app: &Client, actor: &str, query: &str) -> BTreeSet<String> {
    let listed = app.get(format!("{DELIVERIES}?limit=200{query}")).as_actor(actor).await;
    let rows = listed.expect(200).as_array().unwrap().clone();
    assert_eq!(listed.header("x-total-count"), Some(rows.len().to_string().as_str()), "{actor} {query}");
    rows.iter().map(|delivery| delivery["delivery_id"].as_str().unwrap().to_owned()).collect()
}

fn id_set<const N: usize>(ids: [&str; N]) -> BTreeSet<String> {
    ids.map(str::to_owned).into()
}

#[tokio::test]
async fn deliveries_are_seen_in_the_scope_of_a_role_alone() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let other_workspace = WorkspaceFixture::in_other_workspace(&app).await;
    let other_tenant = WorkspaceFixture::in_other_tenant(&app).await;
    let workspace_delivery = fixture.create_failed_delivery().await;
    let other_delivery = other_workspace.create_failed_delivery().await;
    let foreign_delivery = other_tenant.create_failed_delivery().await;
    opt_in_to_incidents(&app, "webhook").await;
    suspend(&fixture).await;
    let is_of_workload = |delivery: &Value| delivery["workload_id"] == fixture.workload.workload_id.as_str();
    let all_deliveries = await_deliveries(&app, |found| found.iter().any(is_of_workload)).await;
    let workload_delivery =
        all_deliveries.iter().find(|delivery| is_of_workload(delivery)).unwrap()["delivery_id"].as_str().unwrap();
    for (actor, role, kind, scope) in [
        ("user:operator", "operator", "workspace", &fixture.workspace),
        ("user:auditor", "auditor", "workspace", &fixture.workspace),
        ("user:manager", "workspace_admin", "workspace", &fixture.workspace),
        ("user:viewer", "viewer", "workspace", &fixture.workspace),
        ("user:neighbour", "workspace_admin", "workspace", &other_workspace.workspace),
        ("user:narrow", "operator", "workload", &fixture.workload.workload_id),
        ("user:admin", "tenant_admin", "tenant", &fixture.tenant),
    ] {
        fixture.fixtures.bind_role(actor, role, kind, Some(scope.as_str())).await;
    }
    other_tenant.fixtures.bind_role("user:stranger", "tenant_admin", "tenant", Some(&other_tenant.tenant)).await;
    let in_workspace = format!("&workspace_id={}", fixture.workspace);
    for actor in ["user:operator", "user:auditor", "user:manager"] {
        assert_eq!(visible_ids(&app, actor, "").await, id_set([&workspace_delivery, workload_delivery]), "{actor}");
        assert_eq!(
            visible_ids(&app, actor, &in_workspace).await,
            id_set([&workspace_delivery, workload_delivery]),
            "{actor}"
        );
    }
    assert_eq!(visible_ids(&app, "user:neighbour", "").await, id_set([&other_delivery]));
    assert_eq!(visible_ids(&app, "user:narrow", "").await, id_set([workload_delivery]));
    assert_eq!(
        visible_ids(&app, "user:admin", "").await,
        id_set([&workspace_delivery, &other_delivery, workload_delivery])
    );
    assert_eq!(visible_ids(&app, "user:admin", &in_workspace).await, id_set([&workspace_delivery, workload_delivery]));
    let foreign = visible_ids(&app, "user:stranger", "").await;
    assert!(
        foreign.contains(&foreign_delivery)
            && foreign.is_disjoint(&id_set([&workspace_delivery, &other_delivery, workload_delivery])),
        "{foreign:?}"
    );
    let list = |query: &str, actor: &str| app.get(format!("{DELIVERIES}?{query}")).as_actor(actor);
    let of_workspace = format!("workspace_id={}", fixture.workspace);
    list("limit=1", "user:viewer").await.expect_refusal(403, "forbidden");
    list(&of_workspace, "user:viewer").await.expect_refusal(403, "forbidden");
    // A member of the tenant sees its workspaces, so the refusal names the missing permission. Callers of other
    // tenants get 404.
    list(&of_workspace, "user:neighbour").await.expect_refusal(403, "forbidden");
    list(&of_workspace, "user:stranger").await.expect_refusal(404, "not_found");
    let retry = |id: &str, actor: &str| app.post(format!("{DELIVERIES}/{id}/retry"), json!({})).as_actor(actor);
    for actor in ["user:operator", "user:auditor"] {
        retry(&workspace_delivery, actor).await.expect_refusal(403, "forbidden");
    }
    for (id, actor) in [
        (workspace_delivery.as_str(), "user:neighbour"),
        (workspace_delivery.as_str(), "user:stranger"),
        (other_delivery.as_str(), "user:manager"),
        (foreign_delivery.as_str(), "user:admin"),
        (foreign_delivery.as_str(), "user:manager"),
    ] {
        retry(id, actor).await.expect_refusal(404, "not_found");
    }
    retry(&workspace_delivery, "user:manager").await.expect(200);
}

#[tokio::test]
async fn messages_name_the_actor_and_link_to_the_subject() {
    let builder = TestApp::builder().setting("FAIRWAY_EGRESS_ALLOW", "127.0.0.0/8");
    let app = builder.setting("FAIRWAY_PUBLIC_URL", "https://fairway.test").start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let receiver = ScriptedEndpoint::start().await;
    receiver.respond_with(ScriptedResponse::json(&json!({})));
    webhook(&app, "hook", &receiver.url("/in"), None).await;
    opt_in_to_incidents(&app, "webhook").await;
    suspend(&fixture).await;
    receiver.wait_for_requests(1).await;
    let event = receiver.requests()[0].json();
    let workload = fixture.workload.workload_id.as_str();
    let link = format!("https://fairway.test/console/workloads/{workload}?workspace={}", fixture.workspace);
    assert_eq!(event["data"]["link"], link);
    assert_eq!(event["data"]["body"], format!("workload {workload}, by user:local"));
}
