//! Threat T50 in `docs/security.md`: responses contain times in UTC, whatever the time zones of the process and the
//! database are.

use crate::{
    api_client::{ApiClient, execute_body},
    server_process::ServerSetup,
};
use fairway_testkit::TestDatabase;
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};

fn to_rfc3339(text: OffsetDateTime) -> String {
    text.format(&Rfc3339).unwrap()
}

async fn execution_count(remote: &ApiClient, query: &str) -> usize {
    remote.get(&format!("/v1/executions?{query}")).await.unwrap().body.as_array().unwrap().len()
}

#[tokio::test]
async fn times_are_utc_in_any_time_zone() {
    let database = TestDatabase::create().await.unwrap();
    let owner = database.connect_as_owner().await.unwrap();
    owner
        .batch_execute(
            "DO $$ BEGIN
            EXECUTE format('ALTER DATABASE %I SET timezone = ''America/St_Johns''', current_database());
        END $$",
        )
        .await
        .unwrap();
    let setup = ServerSetup::new(&database.url_for_owner()).setting("TZ", "Asia/Kathmandu");
    let server = setup.start().await;
    let remote = &server.client;
    let path = remote.create_active_workload().await;
    let before = OffsetDateTime::now_utc() - Duration::SECOND;
    let run = remote.create(&path, &execute_body()).await.required_id("execution_id");
    let after = OffsetDateTime::now_utc() + Duration::SECOND;

    let run_state = remote.get(&format!("/v1/executions/{run}")).await.unwrap().body;
    for text in [&run_state["started_at"], &run_state["completed_at"]] {
        let text = text.as_str().unwrap();
        assert!(text.ends_with('Z'), "{text}");
        let time = OffsetDateTime::parse(text, &Rfc3339).unwrap();
        assert!(before <= time && time <= after, "{text} is not now");
    }
    let (before, after) = (to_rfc3339(before), to_rfc3339(after));
    assert_eq!(execution_count(remote, &format!("since={before}&until={after}")).await, 1);
    assert_eq!(execution_count(remote, &format!("until={before}")).await, 0);
    assert_eq!(execution_count(remote, &format!("since={after}")).await, 0);
}
