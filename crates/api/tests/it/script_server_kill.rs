//! A server is killed after it has committed a script and before it dispatches the script.

use crate::{
    dispatch::{execution_path, expire_leases},
    execution::wait_until_ended,
    support::workspace_fixture::WORKSPACE,
};
use fairway_managed_postgres::parent_death::{self, DeathSignal};
use fairway_testkit::{
    FaultPoint, FaultProxy, ProxyFault, ScriptedEndpoint, ScriptedResponse, StubScriptGateway, TestApp, app::Client,
    unused_address,
};
use serde_json::{Value, json};
use std::{
    env,
    net::TcpStream,
    process::{Child, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Time limit for the server to become ready and to commit a script.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A server in a separate process.
struct ServerProcess {
    client: Client,
    child: Child,
    _data_dir: TempDir,
}

impl ServerProcess {
    async fn start(database: &str, gateway: &str) -> Self {
        let data_dir = tempfile::tempdir().unwrap();
        let address = unused_address().unwrap();
        let mut command = parent_death::command(env!("CARGO_BIN_EXE_fairway-server"), DeathSignal::Terminate);
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FAIRWAY_")) {
            command.env_remove(name);
        }
        command
            .arg("serve")
            .current_dir(data_dir.path())
            .env("FAIRWAY_BIND", address.to_string())
            .env("FAIRWAY_DATABASE_URL", database)
            .env("FAIRWAY_DATA_DIR", data_dir.path().join("data"))
            .env("FAIRWAY_RUNTIME_GATEWAY_URL", gateway)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let client = Client::new(address, database.to_owned()).unwrap();
        let started_at = Instant::now();
        while TcpStream::connect(address).is_err() || client.get("/readyz").await.status != 200 {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none() && started_at.elapsed() < TIMEOUT, "{ended:?}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Self { client, child, _data_dir: data_dir }
    }
}

async fn query_count(app: &TestApp, sql: &str) -> i64 {
    app.database().connect_as_owner().await.unwrap().query_one(sql, &[]).await.unwrap().get(0)
}

/// Promise R4 in `docs/security.md`: the row is committed, the script is never dispatched, and the outcome of the run
/// is unknown.
#[tokio::test]
async fn script_of_a_server_killed_before_dispatch_is_unknown_and_never_sent() {
    let (gateway, idle_gateway) = (ScriptedEndpoint::start().await, StubScriptGateway::succeeding());
    let surviving_server = TestApp::builder().gateway(idle_gateway.clone()).start().await;
    surviving_server.active_workload("main").await;
    let proxy = FaultProxy::start_for_database(surviving_server.database(), 1);
    let mut killed_server = ServerProcess::start(proxy.url(), &gateway.url("/")).await;
    let body = json!({
        "workspace_id": WORKSPACE, "workload_slug": "main", "environment": "dev", "language": "starlark",
        "code": "result = 1",
    });
    gateway.respond_with(ScriptedResponse::json(&json!({ "result": 1 })));
    killed_server.client.post("/v1/runtime/code", body.clone()).await.expect(200);
    assert_eq!(gateway.request_count(), 1, "a committed script is dispatched");

    proxy.set_fault(ProxyFault::Once("INTO execution (", FaultPoint::Withheld));
    let request = tokio::spawn(killed_server.client.post("/v1/runtime/code", body).into_future());
    let started_at = Instant::now();
    while query_count(&surviving_server, "SELECT count(*) FROM execution_lease").await == 0 {
        assert!(started_at.elapsed() < TIMEOUT, "{:?}", proxy.injected());
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    killed_server.child.kill().unwrap();
    killed_server.child.wait().unwrap();
    request.await.unwrap_err();

    let accepted = "SELECT count(*) FROM fact WHERE kind = 'execution.code_accepted'";
    assert_eq!(query_count(&surviving_server, accepted).await, 2, "both acceptances are recorded");
    let running = surviving_server.get("/v1/executions?status=running").await.expect(200);
    let id: &Value = &running[0]["execution_id"];
    expire_leases(&surviving_server).await;
    let ended_run = wait_until_ended(&surviving_server, id).await;
    assert_eq!((&ended_run["status"], &ended_run["outcome"]), (&json!("unknown"), &json!("unknown")));
    surviving_server.post(execution_path(id, "/settle"), json!({ "outcome": "failure" })).await.expect(200);
    assert_eq!((gateway.request_count(), idle_gateway.script_count()), (1, 0), "the script is never dispatched");
}
