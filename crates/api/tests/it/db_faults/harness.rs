//! Test harness: a server behind a fault proxy, and the row counts of its database before and after a request.

use super::{
    Attempt, BACKGROUND_TABLES, CONCURRENT_REQUESTS, FaultHarness, MAX_ATTEMPTS, RETRY, RowCounts, SETTLE_TIMEOUT,
    changing_request, named_runs, with_key,
};
use crate::support::workspace_fixture::WorkspaceFixture;
use fairway_testkit::{
    FaultProxy, ProxyFault, TestApp,
    app::{Client, Request, Response},
};
use futures_util::future::join_all;
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use uuid::Uuid;

/// The differences between row counts, without tables that have not changed.
pub(super) fn added_rows(before: &RowCounts, after: &RowCounts) -> RowCounts {
    let differences = after.iter().map(|(table, rows)| (table.clone(), rows - before[table]));
    differences.filter(|(_, rows)| *rows != 0).collect()
}

impl FaultHarness {
    pub(super) async fn start(seed: u64, fault: ProxyFault) -> Self {
        let direct = TestApp::builder().setting("FAIRWAY_WORKER_LEASE", "2s").start().await;
        let proxy = FaultProxy::start_for_database(direct.database(), seed);
        let proxied = TestApp::builder()
            .setting("FAIRWAY_WORKER_LEASE", "2s")
            .sharing_storage_of(&direct)
            .through_proxy(&proxy)
            .start()
            .await;
        let owner = direct.database().connect_as_owner().await.unwrap();
        let tables = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition
            AND relnamespace = 'public'::regnamespace AND NOT relname = ANY(string_to_array($1, ' '))";
        let tables = owner.query(tables, &[&BACKGROUND_TABLES]).await.unwrap();
        assert!(tables.len() > 20, "{}", tables.len());
        let count = tables.iter().map(|row| row.get::<_, String>(0));
        let count = count.map(|table| format!("SELECT '{table}' AS name, count(*) FROM {table}"));
        let count = count.collect::<Vec<_>>().join(" UNION ALL ");
        Self {
            direct,
            proxied,
            proxy,
            owner,
            count_sql: count,
            fault,
            expected: BTreeMap::new(),
            keys: 0,
            statuses: BTreeMap::new(),
        }
    }

    /// The row counts after all runs have ended and all facts have their index in the audit log.
    pub(super) async fn settled_rows(&self) -> RowCounts {
        self.proxy.wait_for_cut_statements().await;
        let busy = "SELECT (SELECT count(*) FROM execution_lease) + (SELECT count(*) FROM fact_pending)
            + (SELECT count(*) FROM execution WHERE outcome IS NULL AND status <> 'awaiting_review')";
        self.wait_until_none(busy, "every run ends and every fact is sequenced").await;
        let rows = self.owner.query(&self.count_sql, &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// Waits until the published checkpoint of every log covers its facts. Proofs and bundles contain the
    /// checkpoint, so two reads are equal only while no new checkpoint is due.
    async fn wait_until_checkpoints_are_published(&self) {
        self.settled_rows().await;
        let unpublished_sql =
            "SELECT count(*) FROM fact_log LEFT JOIN log_tree USING (tenant_id) WHERE fact_log.size > 0
            AND fact_log.size IS DISTINCT FROM split_part(log_tree.checkpoint, E'\\n', 2)::bigint";
        self.wait_until_none(unpublished_sql, "every checkpoint is published").await;
    }

    async fn wait_until_none(&self, count: &str, condition: &str) {
        let wait = async {
            while self.owner.query_one(count, &[]).await.unwrap().get::<_, i64>(0) != 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(SETTLE_TIMEOUT, wait).await.is_ok(), "{condition}");
    }

    /// The number of facts that contain one of these request identifiers.
    pub(super) async fn fact_count_of_requests(&self, requests: &[String]) -> i64 {
        let sql = "SELECT count(*) FROM fact WHERE convert_from(body, 'UTF8')::json ->> 'request_id' = ANY($1)";
        self.owner.query_one(sql, &[&requests]).await.unwrap().get(0)
    }

    /// Sends the request to the server behind the proxy until it gets a final response, with at most `tries`
    /// attempts. Returns all attempts.
    pub(super) async fn send(&mut self, request: &Request, tries: usize) -> Vec<Attempt> {
        let attempts = send_until_final(request, &self.proxied, tries).await;
        for Attempt { response, .. } in &attempts {
            *self.statuses.entry(response.status).or_default() += 1;
        }
        attempts
    }
}

impl Drop for FaultHarness {
    #[expect(clippy::print_stdout, reason = "the injected faults explain a failed test")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let faults = self.proxy.injected();
            println!("the last injected faults: {:#?}", &faults[faults.len().saturating_sub(12)..]);
        }
    }
}

/// Whether the response invites a retry of the same request.
fn invites_retry(response: &Response) -> bool {
    match response.status {
        503 => {
            response.expect_refusal(503, "unavailable");
            assert!(response.header("retry-after").is_some(), "{response}");
            true
        }
        409 => response.code() == "request_in_progress",
        _ => false,
    }
}

async fn send_until_final(request: &Request, server: &Client, tries: usize) -> Vec<Attempt> {
    let mut attempts = Vec::new();
    loop {
        let request_id = Uuid::now_v7().to_string();
        let response = request.clone().to_server(server).header("X-Request-Id", &request_id).await;
        let is_final = !invites_retry(&response);
        attempts.push(Attempt { request_id, response });
        if is_final || attempts.len() == tries {
            return attempts;
        }
        tokio::time::sleep(RETRY).await;
    }
}

impl FaultHarness {
    /// The status and the added rows of an operation without faults. They are measured once and stored.
    pub(super) async fn expected_effect(
        &mut self,
        fixture: &WorkspaceFixture<'_>,
        operation: &str,
        key: Option<&str>,
    ) -> (u16, RowCounts) {
        let name = format!("{operation} {}", key.is_some());
        if let Some(expected) = self.expected.get(&name) {
            return expected.clone();
        }
        let request = changing_request(fixture, operation).await;
        let rows_before = self.settled_rows().await;
        let response = with_key(key.map(|_| "calm"), request).await;
        assert!(response.status < 300, "{response}");
        let effect = (response.status, added_rows(&rows_before, &self.settled_rows().await));
        self.expected.insert(name, effect.clone());
        effect
    }

    /// Sends a change through the proxy. With an idempotency key, retries make its effect happen exactly once. Without
    /// a key, a single attempt has its effect once, or after a 503 at most once. Returns whether a fault was injected.
    pub(super) async fn assert_change(&mut self, fixture: &WorkspaceFixture<'_>, operation: &str, keyed: bool) -> bool {
        self.keys += 1;
        let key = keyed.then(|| format!("shaky-{}", self.keys));
        let (status, expected) = self.expected_effect(fixture, operation, key.as_deref()).await;
        let request = with_key(key.as_deref(), changing_request(fixture, operation).await);
        let rows_before = self.settled_rows().await;
        let faults_before = self.proxy.injected().len();
        self.proxy.set_fault(self.fault.clone());
        let attempts = self.send(&request, if keyed { MAX_ATTEMPTS } else { 1 }).await;
        self.proxy.set_fault(ProxyFault::None);
        let was_interrupted = self.proxy.injected().len() > faults_before;
        let added = added_rows(&rows_before, &self.settled_rows().await);
        let requests: Vec<String> = attempts.iter().map(|attempt| attempt.request_id.clone()).collect();
        let facts = added.get("fact").copied().unwrap_or_default();
        assert_eq!(self.fact_count_of_requests(&requests).await, facts, "{operation}: {attempts:?}");
        let last_response = &attempts.last().unwrap().response;
        if last_response.status == 503 {
            assert!(!keyed, "{operation} got no final response: {attempts:?}");
            assert!(added.is_empty() || added == expected, "{operation}, all or nothing: {added:?}");
            let is_named = last_response.json()["detail"]["may_have_happened"] == true;
            assert!(added.is_empty() || is_named, "{operation} is committed, and not named: {last_response}");
            return was_interrupted;
        }
        assert_eq!((last_response.status, &added), (status, &expected), "{operation}: {attempts:?}");
        if keyed {
            // The direct server replays the same response.
            let second_response = request.to_server(&self.direct).await;
            assert_eq!(second_response.status, status, "{second_response}");
            assert_eq!(second_response.header("idempotency-replayed"), Some("true"), "{second_response}");
            for name in ["location", "etag"] {
                assert_eq!(second_response.header(name), last_response.header(name), "{operation}: {second_response}");
            }
        }
        was_interrupted
    }

    /// Sends a run through the proxy. Asserts that every run that may be accepted is named in a response, and that
    /// every accepted run ends.
    pub(super) async fn assert_run(&mut self, request: &Request, key: Option<&str>, status: u16, code: &str) {
        let request = with_key(key, request.clone());
        let rows_before = self.settled_rows().await;
        self.proxy.set_fault(self.fault.clone());
        let attempts = self.send(&request, if key.is_some() { MAX_ATTEMPTS } else { 1 }).await;
        self.proxy.set_fault(ProxyFault::None);
        let added = added_rows(&rows_before, &self.settled_rows().await);
        let runs = added.get("execution").copied().unwrap_or_default();
        let requests: Vec<String> = attempts.iter().map(|attempt| attempt.request_id.clone()).collect();
        let last_response = &attempts.last().unwrap().response;
        let mut existing_runs = 0;
        for run in named_runs(&attempts) {
            let execution = self.direct.get(format!("/v1/executions/{run}")).await;
            if execution.status != 404 {
                existing_runs += 1;
                assert!(execution.expect(200)["outcome"].is_string(), "{execution}");
            }
        }
        assert_eq!(existing_runs, runs, "every run is named: {added:?} {attempts:?}");
        assert_eq!(added.get("fact").copied().unwrap_or_default(), runs, "{added:?} {attempts:?}");
        // Another server can end a lost run without a request, so there may be fewer facts with these request
        // identifiers than runs.
        assert!(self.fact_count_of_requests(&requests).await <= runs);
        if last_response.status != 503 {
            assert_eq!(runs, 1, "{attempts:?}");
            assert!(last_response.status == status || last_response.status == 202, "{attempts:?}");
            assert!(last_response.status == 202 || last_response.code() == code, "{attempts:?}");
        }
        assert!(runs <= 1 && (key.is_none() || last_response.status != 503), "{attempts:?}");
    }

    /// Asserts that a read returns the current state or 503.
    pub(super) async fn assert_read(&mut self, fixture: &WorkspaceFixture<'_>, operation: &str) {
        let request = fixture.successful_request(operation).await;
        let timeless = |response: &Response| {
            assert_eq!(response.status, 200, "{response}");
            // An event stream is not JSON.
            let mut body = serde_json::from_slice(&response.body).unwrap_or_else(|_| json!(response.text()));
            if operation == "read_rollout" {
                body["observed"]["soak_left_seconds"] = json!(null);
            }
            body
        };
        self.wait_until_checkpoints_are_published().await;
        let expected = timeless(&request.clone().await);
        self.proxy.set_fault(self.fault.clone());
        let attempts = self.send(&request, MAX_ATTEMPTS).await;
        self.proxy.set_fault(ProxyFault::None);
        assert_eq!(timeless(&attempts.last().unwrap().response), expected, "{operation}");
    }

    /// Sends concurrent requests whose commits the server groups. Asserts that each request has its effect once.
    pub(super) async fn assert_concurrent_changes(&mut self, fixture: &WorkspaceFixture<'_>) {
        let asset = fixture.path_parameter("asset_id");
        let path = format!("/v1/assets/{asset}/versions");
        let run = fixture.successful_request("execute_workload").await;
        let mut requests = Vec::new();
        for number in 0..CONCURRENT_REQUESTS {
            let content = json!({ "content": { "system_prompt": format!("Number {number}") } });
            requests.push(self.direct.post(&path, content).idempotency_key(&format!("crowd-{number}")));
            requests.push(run.clone().idempotency_key(&format!("crowd-{number}")));
        }
        let rows_before = self.settled_rows().await;
        self.proxy.set_fault(self.fault.clone());
        let attempts_by_request =
            join_all(requests.iter().map(|request| send_until_final(request, &self.proxied, MAX_ATTEMPTS))).await;
        self.proxy.set_fault(ProxyFault::None);
        let request_count = i64::try_from(CONCURRENT_REQUESTS).unwrap();
        let added = added_rows(&rows_before, &self.settled_rows().await);
        for table in ["asset_version", "execution"] {
            assert_eq!(added[table], request_count, "{table}: {added:?}");
        }
        assert_eq!((added["fact"], added["idempotency_key"]), (2 * request_count, 2 * request_count), "{added:?}");
        let mut created_ids = BTreeSet::new();
        for attempts in &attempts_by_request {
            let body = attempts.last().unwrap().response.json();
            assert!(attempts.last().unwrap().response.status < 300, "{attempts:?}");
            for name in ["asset_version_id", "execution_id"] {
                created_ids.extend(body[name].as_str().map(str::to_owned));
            }
            for Attempt { response, .. } in attempts {
                *self.statuses.entry(response.status).or_default() += 1;
            }
        }
        assert_eq!(created_ids.len(), 2 * CONCURRENT_REQUESTS, "each request gets its own resource");
    }
}
