//! The generator (the built-in workload that drafts prompts) is provisioned exactly once, soon after the start. This
//! holds even if several servers start concurrently.

use crate::server_process::{ServerSetup, wait_until};
use fairway_testkit::TestDatabase;
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn concurrently_started_servers_provision_one_generator() {
    let database = TestDatabase::create().await.unwrap();
    let first_setup = ServerSetup::new(&database.url_for_owner()).setting("FAIRWAY_GENERATOR", "on");
    let second_setup = ServerSetup::sharing_storage_of(&first_setup).setting("FAIRWAY_GENERATOR", "on");
    let (first_server, second_server) = tokio::join!(first_setup.start(), second_setup.start());
    let owner = database.connect_as_owner().await.unwrap();
    // The servers provision the generator without any request.
    let active = "SELECT count(*) FROM release JOIN workload USING (tenant_id, workload_id)
        WHERE slug = 'fairway-generator' AND state = 'active'";
    let provisioned = async || owner.query_one(active, &[]).await.unwrap().get::<_, i64>(0) == 1;
    wait_until("a generator is active", Duration::from_secs(30), provisioned).await;
    let path = "/v1/asset-drafts/generate?workspace_id=00000000-0000-7000-8000-000000000003";
    let body = json!({ "description": "Sort letters by their urgency." });
    for server in [&first_server, &second_server] {
        let response = server.client.post(path, &body, None).await.unwrap();
        assert_eq!(response.status, 200, "{response:?}");
    }
    for (table, rows) in [("release", 1_i64), ("asset", 3), ("asset_version", 3), ("execution", 2)] {
        let counted = owner.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap();
        assert_eq!(counted.get::<_, i64>(0), rows, "{table}");
    }
    drop((first_server, second_server));
}

#[tokio::test]
async fn tenant_without_workspace_causes_no_warning_at_start() {
    let database = TestDatabase::create().await.unwrap();
    let first_setup = ServerSetup::new(&database.url_for_owner());
    let server = first_setup.start().await;
    server.client.create("/v1/tenants", &json!({ "slug": "new", "name": "New" })).await;
    drop(server);
    let second_setup = ServerSetup::sharing_storage_of(&first_setup).setting("FAIRWAY_GENERATOR", "on");
    let server = second_setup.start().await;
    let owner = database.connect_as_owner().await.unwrap();
    // Provisioning lists tenants newest first, so the generator of the new tenant is provisioned before those of
    // older tenants.
    let active = "SELECT count(*) FROM release JOIN workload USING (tenant_id, workload_id)
        WHERE slug = 'fairway-generator' AND state = 'active'";
    let provisioned = async || owner.query_one(active, &[]).await.unwrap().get::<_, i64>(0) == 1;
    wait_until("a generator is active", Duration::from_secs(30), provisioned).await;
    assert!(
        !server.read_log().contains("failed to create the built-in workload fairway-generator"),
        "{}",
        server.read_log()
    );
}
