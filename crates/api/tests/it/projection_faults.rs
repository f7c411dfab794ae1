//! Failing projections: a batch of facts causes too many rows for one statement.

use crate::{
    delivery::suspend,
    support::workspace_fixture::{TENANT, WorkspaceFixture},
};
use fairway_testkit::TestApp;
use std::time::{Duration, Instant};

/// Number of facts in the projector's first batch.
const FACTS: usize = 12;
/// Maximum number of notifications that one commit may write; fewer than all facts cause.
const MAX_WRITTEN: usize = 8;

#[tokio::test]
async fn failed_batch_is_tried_again_with_fewer_facts() {
    let app = TestApp::builder().without_notifications().start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let owner = app.database().connect_as_owner().await.unwrap();
    // A trigger simulates a statement that takes too long: the commit fails if it writes too many rows.
    let limit = format!(
        "CREATE FUNCTION refuse_many() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF (SELECT count(*) FROM added) > {MAX_WRITTEN} THEN RAISE EXCEPTION 'too many rows'; END IF;
            RETURN NULL;
         END $$;
         CREATE TRIGGER refuse_many AFTER INSERT ON notification REFERENCING NEW TABLE AS added
            FOR EACH STATEMENT EXECUTE FUNCTION refuse_many()"
    );
    owner.batch_execute(&limit).await.unwrap();
    for _ in 0..FACTS {
        suspend(&fixture).await;
    }
    let tenant: uuid::Uuid = TENANT.parse().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let sequenced = "SELECT size FROM fact_log WHERE tenant_id = $1
        AND NOT EXISTS (SELECT FROM fact_pending WHERE fact_pending.tenant_id = $1)";
    while owner.query_opt(sequenced, &[&tenant]).await.unwrap().is_none() {
        assert!(Instant::now() < deadline, "facts are not sequenced");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let _other_server = TestApp::builder().sharing_storage_of(&app).start().await;
    let suspensions = "SELECT count(*) FROM notification WHERE event_kind = 'workload.changed'
        AND recipient = 'user:local'";
    let expected = i64::try_from(FACTS).unwrap();
    while owner.query_one(suspensions, &[]).await.unwrap().get::<_, i64>(0) < expected {
        assert!(Instant::now() < deadline, "the facts are not projected");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
