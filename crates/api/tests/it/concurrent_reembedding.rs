//! Concurrent re-embedding and ingest: the index may change while the embedding model computes vectors.

use crate::{
    embedding_models::{
        SEARCH_FLOW, documents_path, knowledge_base, server_with_accounts, text_document, warning_codes,
    },
    share_link::query_number,
};
use async_trait::async_trait;
use fairway_domain::{
    execution::provider::{
        Completion, DeltaListener, EmbeddingCall, Embeddings, Provider, ProviderCall, ProviderError, ProviderFailure,
    },
    knowledge::document::MAX_CHUNKS_PER_COMMIT,
};
use fairway_testkit::{
    TestApp,
    app::{Request, Response, Version},
};
use serde_json::{Value, json};
use std::{
    future::IntoFuture as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
};

/// SQL that counts revisions whose chunks have vectors of more than one model.
const COUNT_MIXED_REVISIONS: &str = "SELECT count(*) FROM (
        SELECT FROM knowledge_ingest AS ingest JOIN knowledge_chunk AS chunk
            ON chunk.from_revision <= ingest.revision
            AND (chunk.until_revision IS NULL OR chunk.until_revision > ingest.revision)
        GROUP BY ingest.revision HAVING count(DISTINCT chunk.embedded_by) > 1
    ) AS mixed";
const COUNT_REEMBEDDINGS: &str = "SELECT count(*) FROM fact WHERE kind = 'knowledge.documents_reembedded'";
const COUNT_INGESTS: &str = "SELECT count(*) FROM knowledge_ingest";

/// An embedding provider that responds to one call for each permit that the test adds.
struct GatedEmbedder {
    /// The account and the texts of each received call.
    calls: Mutex<Vec<(String, Vec<String>)>>,
    count: watch::Sender<usize>,
    permits: Semaphore,
    /// Whether calls with a permit fail.
    fails: AtomicBool,
    /// How often the server has checked whether an account is configured.
    account_checks: AtomicUsize,
}

impl GatedEmbedder {
    /// Creates an embedder that answers `calls` calls.
    fn with_permits(calls: usize) -> Arc<Self> {
        Arc::new(Self {
            calls: Mutex::default(),
            count: watch::Sender::new(0),
            permits: Semaphore::new(calls),
            fails: AtomicBool::new(false),
            account_checks: AtomicUsize::new(0),
        })
    }

    fn open() -> Arc<Self> {
        Self::with_permits(Semaphore::MAX_PERMITS)
    }

    async fn wait_for_calls(&self, times: usize) {
        self.count.subscribe().wait_for(|count| *count >= times).await.unwrap();
    }

    fn accounts(&self) -> Vec<String> {
        self.calls.lock().unwrap().iter().map(|(account, _)| account.clone()).collect()
    }

    fn texts(&self) -> Vec<Vec<String>> {
        self.calls.lock().unwrap().iter().map(|(_, texts)| texts.clone()).collect()
    }
}

#[async_trait]
impl Provider for GatedEmbedder {
    async fn complete(&self, _: &ProviderCall, _: Option<&dyn DeltaListener>) -> Result<Completion, ProviderFailure> {
        Err(ProviderError::Unsupported.into())
    }

    async fn embed(&self, call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        self.calls.lock().unwrap().push((call.route.account_slot.clone(), call.texts.clone()));
        self.count.send_modify(|count| *count += 1);
        self.permits.acquire().await.unwrap().forget();
        if self.fails.load(Ordering::Relaxed) {
            return Err(ProviderError::Unsupported.into());
        }
        Ok(Embeddings { vectors: vec![vec![1.0, 0.0]; call.texts.len()], tokens_in: 1, cost_micros: None })
    }

    fn residency(&self, _: &str) -> Option<&str> {
        None
    }

    fn has_account(&self, _: &str) -> bool {
        self.account_checks.fetch_add(1, Ordering::Relaxed);
        true
    }
}

const ACCOUNTS: &[&str] = &["old", "new"];

/// Starts a server that embeds through `gate` with the account `account`. If `other_server` is given, the server uses
/// its database.
async fn start_gated_server(gate: &Arc<GatedEmbedder>, account: &str, other_server: Option<&TestApp>) -> TestApp {
    let builder = server_with_accounts(ACCOUNTS, account).provider(Arc::clone(gate) as Arc<dyn Provider>);
    match other_server {
        Some(app) => builder.sharing_storage_of(app).start().await,
        None => builder.start().await,
    }
}

fn spawn_request(request: Request) -> JoinHandle<Response> {
    tokio::spawn(request.into_future())
}

#[tokio::test]
async fn ingest_uses_the_model_of_a_concurrent_reembedding() {
    let gate = GatedEmbedder::with_permits(1);
    let app = start_gated_server(&gate, "old", None).await;
    let base = knowledge_base(&app, "handbook", json!({ "strategy": "vector" })).await;
    app.post(documents_path(&base, ""), text_document("leave", "Thirty days of leave.")).await.expect(201);
    let ingest = spawn_request(app.post(documents_path(&base, ""), text_document("travel", "Go by train.")));
    gate.wait_for_calls(2).await;
    let changed_server = start_gated_server(&GatedEmbedder::open(), "new", Some(&app)).await;
    let second_response = changed_server.post(documents_path(&base, "/reembed"), json!({})).await.expect(200);
    assert_eq!((&second_response["index_revision"], &second_response["complete"]), (&json!(2), &json!(true)));
    gate.permits.add_permits(2);
    let added = ingest.await.unwrap().expect(201);
    assert_eq!((&added["index_revision"], warning_codes(&added)), (&json!(3), vec!["embedding_model_kept"]));
    assert_eq!(query_number(&app, COUNT_MIXED_REVISIONS).await, 0, "a revision has vectors of two models");
    assert_eq!(gate.accounts(), ["old", "old", "new"]);
}

#[tokio::test]
async fn ingest_embeds_at_most_three_times() {
    let gate = GatedEmbedder::with_permits(1);
    let app = start_gated_server(&gate, "old", None).await;
    let base = knowledge_base(&app, "handbook", json!({ "strategy": "vector" })).await;
    app.post(documents_path(&base, ""), text_document("leave", "Thirty days of leave.")).await.expect(201);
    let new_server = start_gated_server(&GatedEmbedder::open(), "new", Some(&app)).await;
    let old_server = start_gated_server(&GatedEmbedder::open(), "old", Some(&app)).await;
    let ingest = spawn_request(app.post(documents_path(&base, ""), text_document("travel", "Go by train.")));
    for (round, server) in [&new_server, &old_server, &new_server].into_iter().enumerate() {
        gate.wait_for_calls(2 + round).await;
        server.post(documents_path(&base, "/reembed"), json!({})).await.expect(200);
        gate.permits.add_permits(1);
    }
    // Adds a permit for a fourth call, so that the test would detect one.
    gate.permits.add_permits(1);
    ingest.await.unwrap().expect_refusal(409, "concurrent_change");
    assert_eq!(gate.accounts(), ["old", "old", "new", "old"]);
    assert_eq!(query_number(&app, COUNT_MIXED_REVISIONS).await, 0, "a revision has vectors of two models");
}

#[tokio::test]
async fn concurrent_reembeddings_create_one_revision() {
    let app = start_gated_server(&GatedEmbedder::open(), "old", None).await;
    let base = knowledge_base(&app, "handbook", json!({ "strategy": "vector" })).await;
    app.post(documents_path(&base, ""), text_document("leave", "Thirty days of leave.")).await.expect(201);
    let gates = [GatedEmbedder::with_permits(0), GatedEmbedder::with_permits(0)];
    let servers = [
        start_gated_server(&gates[0], "new", Some(&app)).await,
        start_gated_server(&gates[1], "new", Some(&app)).await,
    ];
    let reembed = |app: &TestApp| spawn_request(app.post(documents_path(&base, "/reembed"), json!({})));
    let (first_request, second_request) = (reembed(&servers[0]), reembed(&servers[1]));
    for gate in &gates {
        gate.wait_for_calls(1).await;
    }
    gates[0].permits.add_permits(1);
    let first_response = first_request.await.unwrap().expect(200);
    assert_eq!((&first_response["index_revision"], &first_response["chunk_count"]), (&json!(2), &json!(1)));
    gates[1].permits.add_permits(2);
    let second_response = second_request.await.unwrap().expect(200);
    let report = (&second_response["index_revision"], &second_response["chunk_count"], &second_response["complete"]);
    assert_eq!(report, (&json!(2), &json!(0), &json!(true)), "no chunk is left to embed");
    assert_eq!((query_number(&app, COUNT_INGESTS).await, query_number(&app, COUNT_REEMBEDDINGS).await), (2, 1));
}

/// A request with an idempotency key (an ingest or a re-embedding), to a server that embeds with the account `new`.
struct KeyedRequest {
    gate: Arc<GatedEmbedder>,
    server: TestApp,
    base: Version,
    status: u16,
    path_suffix: &'static str,
    body: Value,
    /// A different request body, for a request with the same key.
    other_body: Value,
}

impl KeyedRequest {
    /// An ingest and a re-embedding, each on a server whose embedding provider has no permits. Leases expire after
    /// an hour.
    async fn ingest_and_reembedding(app: &TestApp) -> Vec<Self> {
        let mut requests = Vec::new();
        for (name, path, status, body, other_body) in [
            ("ingest", "", 201, text_document("travel", "Go by train."), text_document("travel", "Go by bus.")),
            ("reembedding", "/reembed", 200, json!({}), json!({ "max_chunks": 1 })),
        ] {
            let base = knowledge_base(app, name, json!({ "strategy": "vector" })).await;
            if path == "/reembed" {
                app.post(documents_path(&base, ""), text_document("leave", "Thirty days of leave.")).await.expect(201);
            }
            let gate = GatedEmbedder::with_permits(0);
            let server = server_with_accounts(ACCOUNTS, "new").setting("FAIRWAY_WORKER_LEASE", "1h");
            let server = server.provider(Arc::clone(&gate) as Arc<dyn Provider>).sharing_storage_of(app).start().await;
            requests.push(Self { gate, server, base, status, path_suffix: path, body, other_body });
        }
        requests
    }

    fn request(&self, app: &TestApp) -> Request {
        app.post(documents_path(&self.base, self.path_suffix), self.body.clone()).idempotency_key("twin")
    }
}

fn is_replayed(response: &Response) -> bool {
    response.header("idempotency-replayed") == Some("true")
}

#[tokio::test]
async fn keyed_request_in_progress_calls_the_model_once() {
    let app = start_gated_server(&GatedEmbedder::open(), "old", None).await;
    for keyed in KeyedRequest::ingest_and_reembedding(&app).await {
        let first_request = spawn_request(keyed.request(&keyed.server));
        keyed.gate.wait_for_calls(1).await;
        for server in [&keyed.server, &app] {
            keyed.request(server).await.expect_refusal(409, "request_in_progress");
        }
        let response = keyed.request(&app).json(keyed.other_body.clone()).await;
        response.expect_refusal(409, "idempotency_key_conflict");
        keyed.gate.permits.add_permits(1);
        let first_response = first_request.await.unwrap();
        assert!(!is_replayed(&first_response), "{first_response}");
        let first_body = first_response.expect(keyed.status);
        let second_response = keyed.request(&keyed.server).await;
        assert!(is_replayed(&second_response), "{second_response}");
        assert_eq!(second_response.expect(keyed.status), first_body);
        assert_eq!(keyed.gate.accounts().len(), 1, "{:?}", keyed.gate.texts());
    }
}

#[tokio::test]
async fn failed_keyed_request_releases_its_key() {
    let app = start_gated_server(&GatedEmbedder::open(), "old", None).await;
    for keyed in KeyedRequest::ingest_and_reembedding(&app).await {
        keyed.gate.fails.store(true, Ordering::Relaxed);
        keyed.gate.permits.add_permits(2);
        keyed.request(&keyed.server).await.expect_refusal(503, "embedding_unavailable");
        keyed.gate.fails.store(false, Ordering::Relaxed);
        let second_response = keyed.request(&keyed.server).await;
        assert!(!is_replayed(&second_response), "{second_response}");
        second_response.expect(keyed.status);
    }
}

#[tokio::test]
async fn keyed_request_continues_after_its_client_disconnects() {
    let app = start_gated_server(&GatedEmbedder::open(), "old", None).await;
    for keyed in KeyedRequest::ingest_and_reembedding(&app).await {
        let first_request = spawn_request(keyed.request(&keyed.server));
        keyed.gate.wait_for_calls(1).await;
        first_request.abort();
        assert!(first_request.await.unwrap_err().is_cancelled());
        keyed.request(&keyed.server).await.expect_refusal(409, "request_in_progress");
        keyed.gate.permits.add_permits(1);
        let second_response = loop {
            let second_response = keyed.request(&keyed.server).await;
            if second_response.status != 409 {
                break second_response;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert!(is_replayed(&second_response), "{second_response}");
        second_response.expect(keyed.status);
        assert_eq!(keyed.gate.accounts().len(), 1, "{:?}", keyed.gate.texts());
    }
}

#[tokio::test]
async fn expired_key_lease_lets_a_retry_do_the_work_once() {
    let app = start_gated_server(&GatedEmbedder::open(), "old", None).await;
    for keyed in KeyedRequest::ingest_and_reembedding(&app).await {
        let first_request = spawn_request(keyed.request(&keyed.server));
        keyed.gate.wait_for_calls(1).await;
        app.database().set_clock_offset(2 * 60 * 60).await.unwrap();
        let other_server = start_gated_server(&GatedEmbedder::open(), "new", Some(&app)).await;
        let second_response = keyed.request(&other_server).await;
        assert!(!is_replayed(&second_response), "{second_response}");
        let second_body = second_response.expect(keyed.status);
        keyed.gate.permits.add_permits(2);
        let first_response = first_request.await.unwrap();
        assert!(is_replayed(&first_response), "the first request returns the outcome of the retry: {first_response}");
        assert_eq!(first_response.expect(keyed.status), second_body);
        app.database().set_clock_offset(0).await.unwrap();
    }
    assert_eq!((query_number(&app, COUNT_INGESTS).await, query_number(&app, COUNT_REEMBEDDINGS).await), (3, 1));
}

#[tokio::test]
async fn reembedding_decides_at_most_three_times_and_embeds_chunks_once() {
    let app = start_gated_server(&GatedEmbedder::open(), "old", None).await;
    let base = knowledge_base(&app, "handbook", json!({ "strategy": "vector" })).await;
    app.post(documents_path(&base, ""), text_document("d0", "text 0")).await.expect(201);
    let gate = GatedEmbedder::with_permits(0);
    let changed_server = start_gated_server(&gate, "new", Some(&app)).await;
    let reembedding = spawn_request(changed_server.post(documents_path(&base, "/reembed"), json!({})));
    for round in 1..=3 {
        gate.wait_for_calls(round).await;
        app.post(documents_path(&base, ""), text_document(&format!("d{round}"), &format!("text {round}")))
            .await
            .expect(201);
        gate.permits.add_permits(1);
    }
    // Adds a permit for a fourth attempt, so that the test would detect one.
    gate.permits.add_permits(1);
    reembedding.await.unwrap().expect_refusal(409, "concurrent_change");
    assert_eq!(gate.texts(), [["text 0"], ["text 1"], ["text 2"]]);
    assert_eq!(query_number(&app, COUNT_REEMBEDDINGS).await, 0);
}

#[tokio::test]
async fn chunk_limit_is_the_same_in_code_messages_and_openapi() {
    let app = TestApp::start().await;
    let base = knowledge_base(&app, "handbook", json!({ "strategy": "vector" })).await;
    for limit in [0, MAX_CHUNKS_PER_COMMIT + 1] {
        let response = app.post(documents_path(&base, "/reembed"), json!({ "max_chunks": limit })).await;
        let problem = &response.expect_refusal(422, "validation_error")["fields"][0];
        assert_eq!(problem["message"], format!("must be 1 to {MAX_CHUNKS_PER_COMMIT}"));
    }
    app.post(documents_path(&base, "/reembed"), json!({ "max_chunks": MAX_CHUNKS_PER_COMMIT })).await.expect(200);
    let document = app.get("/openapi.json").await.expect(200);
    let limit = &document["components"]["schemas"]["NewReembedding"]["properties"]["max_chunks"];
    assert_eq!((&limit["minimum"], &limit["maximum"]), (&json!(1), &json!(MAX_CHUNKS_PER_COMMIT)));
    // Two paragraphs do not fit into one chunk, so each paragraph becomes one chunk.
    let mut content = crate::support::workspace_fixture::knowledge_content("many");
    content["retrieval"] = json!({ "strategy": "lexical", "chunk_size_tokens": 16 });
    let large_base = app.fixtures().asset_with_version("knowledge_base", "many", content).await;
    let paragraph = "One two three four five six seven eight nine ten eleven twelve.\n\n";
    let response = app
        .post(documents_path(&large_base, ""), text_document("many", &paragraph.repeat(MAX_CHUNKS_PER_COMMIT + 1)))
        .await;
    let problem = &response.expect_refusal(422, "validation_error")["fields"][0];
    let message = problem["message"].as_str().unwrap();
    assert!(message.contains(&format!("at most {MAX_CHUNKS_PER_COMMIT} chunks")), "{message}");
}

#[tokio::test]
async fn gates_check_the_vectors_of_each_knowledge_base_once() {
    let gate = GatedEmbedder::open();
    let app = start_gated_server(&gate, "old", None).await;
    let base = knowledge_base(&app, "handbook", json!({ "strategy": "vector" })).await;
    app.post(documents_path(&base, ""), text_document("leave", "Thirty days of leave.")).await.expect(201);
    let fixtures = app.fixtures();
    let versions = [fixtures.allow_all_policy("policy").await, fixtures.flow("flow", SEARCH_FLOW).await, base.clone()];
    let workload = fixtures.workload("desk").await;
    let release = fixtures.approved_release(&workload, &versions).await;
    let checks_before = gate.account_checks.load(Ordering::Relaxed);
    let gates = app.get(format!("/v1/releases/{release}/gates")).await.expect(200);
    let names: Vec<_> = gates.as_array().unwrap().iter().map(|gate| gate["gate"].as_str().unwrap()).collect();
    assert!(names.contains(&"embedding") && names.contains(&"vector_search"), "{names:?}");
    assert_eq!(gate.account_checks.load(Ordering::Relaxed) - checks_before, 1);
}
