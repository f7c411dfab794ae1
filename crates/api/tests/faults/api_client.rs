//! An API client that returns connection errors instead of failing the test, with helpers that create resources.

use fairway_testkit::assert_documented_status_and_headers;
use reqwest::{Client, Method, RequestBuilder, header::HeaderMap};
use serde_json::{Value, json};
use std::{net::SocketAddr, time::Duration};
use uuid::Uuid;

/// The workspace that the first start of a server creates.
pub(crate) const WORKSPACE: &str = "00000000-0000-7000-8000-000000000003";
/// Request timeout. Only a request to a hanging server takes this long.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Idle time after which the client closes a connection. The server's idle time is longer: otherwise a request could
/// race with the server's close.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// An API client for one address. The server process behind the address may change.
#[derive(Clone)]
pub(crate) struct ApiClient {
    client: Client,
    base_url: String,
    actor: Option<&'static str>,
}

/// A response with its JSON body; null if the body is not JSON.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Response {
    pub(crate) fn required_id(&self, name: &str) -> Uuid {
        let text = self.body.get(name).and_then(Value::as_str);
        text.and_then(|text| Uuid::parse_str(text).ok()).unwrap_or_else(|| panic!("no `{name}` in {self:?}"))
    }

    /// The execution id. Some error responses contain one too.
    pub(crate) fn execution_id(&self) -> Option<Uuid> {
        let found = self.body.get("execution_id").or_else(|| self.body.pointer("/detail/execution_id"))?;
        Uuid::parse_str(found.as_str()?).ok()
    }

    /// Whether the response is a 503 with `Retry-After` in seconds.
    pub(crate) fn is_unavailable_with_retry_after(&self) -> bool {
        let retry_after = self.headers.get("retry-after").and_then(|value| value.to_str().ok());
        self.status == 503 && retry_after.is_some_and(|seconds| seconds.parse::<u32>().is_ok())
    }
}

pub(crate) type ResponseResult = reqwest::Result<Response>;

impl ApiClient {
    pub(crate) fn for_address(address: SocketAddr) -> Self {
        fairway_testkit::install_crypto_provider();
        let client = Client::builder()
            .no_proxy()
            .tcp_nodelay(true)
            .timeout(REQUEST_TIMEOUT)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT);
        let client = client.build().unwrap();
        Self { client, base_url: format!("http://{address}"), actor: None }
    }

    /// A client that sends its requests as this actor.
    pub(crate) fn acting_as(&self, actor: Option<&'static str>) -> Self {
        Self { actor, ..self.clone() }
    }

    pub(crate) async fn get(&self, path: &str) -> ResponseResult {
        self.send(Method::GET, path, None, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value, key: Option<&str>) -> ResponseResult {
        self.send(Method::POST, path, Some(body), key).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> ResponseResult {
        self.send(Method::PATCH, path, Some(body), None).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> ResponseResult {
        self.send(Method::PUT, path, Some(body), None).await
    }

    /// Sends raw bytes with the content type `application/json`.
    pub(crate) async fn post_bytes(&self, path: &str, body: Vec<u8>) -> ResponseResult {
        let request = self.client.post(format!("{}{path}", self.base_url)).header("Content-Type", "application/json");
        Self::execute(request.body(body)).await
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>, key: Option<&str>) -> ResponseResult {
        let mut request = self.client.request(method, format!("{}{path}", self.base_url));
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(actor) = self.actor {
            request = request.header("X-Actor-Ref", actor);
        }
        Self::execute(request).await
    }

    async fn execute(request: RequestBuilder) -> ResponseResult {
        let (client, request) = request.build_split();
        let request = request?;
        let (method, path) = (request.method().clone(), request.url().path().to_owned());
        let response = client.execute(request).await?;
        assert_documented_status_and_headers(method.as_str(), &path, response.status().as_u16(), response.headers());
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await?;
        Ok(Response { status, headers, body: serde_json::from_slice(&body).unwrap_or_default() })
    }

    /// Creates a resource.
    ///
    /// # Panics
    /// When the status is neither 200 nor 201.
    pub(crate) async fn create(&self, path: &str, body: &Value) -> Response {
        let response = self.post(path, body, None).await.unwrap();
        assert!(matches!(response.status, 200 | 201), "{path}: {response:?}");
        response
    }

    pub(crate) async fn create_asset(&self, kind: &str) -> Uuid {
        let slug = format!("a{}", Uuid::now_v7().simple());
        let body = json!({ "slug": slug, "asset_kind": kind, "owner_ref": "team:x", "workspace_id": WORKSPACE });
        self.create("/v1/assets", &body).await.required_id("asset_id")
    }

    /// Creates an asset with one version. Returns the version id.
    pub(crate) async fn create_version(&self, kind: &str, content: Value) -> Uuid {
        let asset = self.create_asset(kind).await;
        let body = json!({ "content": content });
        self.create(&format!("/v1/assets/{asset}/versions"), &body).await.required_id("asset_version_id")
    }

    pub(crate) async fn create_workload(&self) -> (Uuid, String) {
        let slug = format!("w{}", Uuid::now_v7().simple());
        let body = json!({
            "slug": slug, "owner_ref": "team:x", "invocation_mode": "form", "workspace_id": WORKSPACE,
        });
        (self.create("/v1/workloads", &body).await.required_id("workload_id"), slug)
    }

    /// Creates an approved release of the workload, with a route through the built-in provider.
    pub(crate) async fn create_approved_release(&self, workload: Uuid) -> Uuid {
        self.create_approved_release_using(workload, "local").await
    }

    /// Like [`Self::create_approved_release`], but with a route through this provider account.
    async fn create_approved_release_using(&self, workload: Uuid, account: &str) -> Uuid {
        let prompt = json!({
            "system_prompt": "One of: billing (refund), other.\nTicket: $arg:ticket",
            "variables": [{ "name": "ticket", "type": "string" }],
        });
        let route = json!({
            "route_id": "main", "provider": account, "model": "rules", "account_slot": account, "state": "approved",
        });
        let bindings = [
            ("prompt_template", self.create_version("prompt_template", prompt).await),
            ("model_policy", self.create_version("model_policy", json!({ "provider_route": route })).await),
            ("policy_bundle", self.create_version("policy_bundle", allow_all_policy()).await),
        ];
        let body = json!({ "workload_id": workload, "environment": "dev" });
        let release = self.create("/v1/releases", &body).await.required_id("release_id");
        let path = |verb: &str| format!("/v1/releases/{release}/{verb}");
        for (role, version) in bindings {
            self.create(&path("bindings"), &json!({ "role": role, "asset_version_id": version })).await;
        }
        self.create(&path("transition"), &json!({ "to_state": "review_ready" })).await;
        let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": release });
        self.create(&path("approvals"), &verdict).await;
        self.create(&path("transition"), &json!({ "to_state": "approved" })).await;
        release
    }

    /// Creates a workload with an active release. Returns the path of its execute operation.
    pub(crate) async fn create_active_workload(&self) -> String {
        self.create_active_workload_using("local").await
    }

    /// Like [`Self::create_active_workload`], but with a route through this provider account.
    pub(crate) async fn create_active_workload_using(&self, account: &str) -> String {
        let (workload, slug) = self.create_workload().await;
        let release = self.create_approved_release_using(workload, account).await;
        self.create(&format!("/v1/releases/{release}/transition"), &json!({ "to_state": "active" })).await;
        format!("/v1/workloads/by-slug/{slug}/execute")
    }
}

/// The body of an execute request.
pub(crate) fn execute_body() -> Value {
    json!({ "environment": "dev", "inputs": { "ticket": "I want a refund" } })
}

/// A policy that allows every run, with unique content.
pub(crate) fn allow_all_policy() -> Value {
    json!({
        "description": Uuid::now_v7().to_string(),
        "rules": [{ "id": "all", "condition": "always", "outcome": "allow", "reason_code": "all_allowed" }],
    })
}
