//! The memory limit of a process. It is set below the resident memory of an idle server, so that it is always exceeded.

use crate::{
    api_client::execute_body,
    server_process::{Server, ServerSetup, wait_until},
};
use fairway_testkit::TestDatabase;
use futures_util::future::join_all;
use serde_json::json;
use std::time::Duration;

/// Executes small requests, which also raise the memory of a new server to its idle level. Returns the execute path.
async fn execute_small_work(server: &Server) -> String {
    let run = server.client.create_active_workload().await;
    server.client.create(&run, &execute_body()).await;
    run
}

/// Starts a server whose memory limit is `hundredths` percent of the resident memory of an idle server.
async fn start_limited(database: &TestDatabase, hundredths: u64) -> (ServerSetup, Server) {
    let setup = ServerSetup::new(&database.url_for_owner());
    // This first server migrates the schema, which would add memory to the measured server.
    drop(setup.start().await);
    let idle_server = setup.start().await;
    execute_small_work(&idle_server).await;
    let mebibytes = (idle_server.memory().resident_kib >> 10) * hundredths / 100;
    drop(idle_server);
    let setup = setup.setting("FAIRWAY_MEMORY_LIMIT_MIB", mebibytes.to_string());
    let server = setup.start().await;
    (setup, server)
}

#[tokio::test]
async fn refuses_large_work_at_the_memory_limit_and_serves_small_work() {
    let database = TestDatabase::create().await.unwrap();
    // The memory of the idle server already exceeds the limit, so every large request is refused.
    let (_setup, server) = start_limited(&database, 90).await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.client.get(path).await.unwrap().status, 200, "{path}");
    }
    let run = execute_small_work(&server).await;
    let version = |bytes: usize| json!({ "content": { "system_prompt": "x".repeat(bytes) } });
    let prompt = server.client.create_asset("prompt_template").await;
    let versions = format!("/v1/assets/{prompt}/versions");
    let response = server.client.post(&versions, &version(300_000), None).await.unwrap();
    assert!(response.is_unavailable_with_retry_after(), "{response:?}");
    server.client.create(&versions, &version(10_000)).await;
    server.client.create(&run, &execute_body()).await;
    // The server estimates the memory of a list from its maximum page size.
    let long_page = server.client.get("/v1/workloads?limit=200").await.unwrap();
    assert!(long_page.is_unavailable_with_retry_after(), "{long_page:?}");
    for path in ["/v1/workloads?limit=1", "/v1/executions", "/v1/assets", "/v1/releases?limit=10"] {
        let short_page = server.client.get(path).await.unwrap();
        assert_eq!(short_page.status, 200, "{path}: {short_page:?}");
    }
    // The warning contains the estimates. A refusal under load is logged as a warning, never as an error.
    let log = server.read_log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("expected memory exceeds the soft limit")).collect();
    assert!(lines.iter().any(|line| line.contains("unmeasured_bytes") && line.contains("requested_bytes")), "{log}");
    assert!(log.contains("request failed; sending an error response") && !log.contains("ERROR"), "{log}");
}

/// An allocator that returns memory only during allocations would retain the freed memory of an idle process. The
/// memory limit would then count it.
#[tokio::test]
async fn returns_freed_memory_while_it_is_idle() {
    let built_with = option_env!("JEMALLOC_SYS_WITH_MALLOC_CONF");
    assert!(built_with.is_some_and(|settings| settings.contains("dirty_decay_ms:200")), "{built_with:?}");
    let database = TestDatabase::create().await.unwrap();
    let setup = ServerSetup::new(&database.url_for_owner());
    let server = setup.start().await;
    let run = execute_small_work(&server).await;
    let before_kib = server.memory().resident_kib;
    let mut large = execute_body();
    large["inputs"] = json!({ "ticket": "x".repeat(500_000) });
    join_all((0..6).map(|_| server.client.create(&run, &large))).await;
    let growth_kib = server.memory().peak_kib.saturating_sub(before_kib);
    assert!(growth_kib > 6 << 10, "six runs of 500 KB took {growth_kib} KiB");
    wait_until("the server returned most of the memory", Duration::from_secs(60), async || {
        server.memory().resident_kib < before_kib + growth_kib / 2
    })
    .await;
}
