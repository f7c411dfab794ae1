//! Promise R15 in `docs/security.md`: a caller cannot learn whether a resource exists that it may not see. Requests
//! with a foreign and with an unknown identifier must get the same response, execute the same SQL statements, and take
//! the same time.

use crate::{
    support::{
        captured_telemetry::CapturedServer,
        documented_routes::{Route, routes},
        workspace_fixture::WorkspaceFixture,
    },
    tenancy::comparable_response,
};
use fairway_testkit::{
    TestApp,
    app::{Client, Request},
};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// An administrator of the default tenant, which requests resources of another tenant.
const TENANT_ADMIN: &str = "user:boss";
/// An administrator of a workspace in the default tenant, which requests resources of another workspace.
const OTHER_WORKSPACE_ADMIN: &str = "user:neighbour";
/// Path parameters that identify no protected resource. Kinds, tools and tiles are public. Any word can name an
/// environment, and sessions are separate for each caller.
const UNPROTECTED_PARAMETERS: [&str; 6] = ["kind", "tool", "environment", "session_id", "level", "index"];

/// Two requests that differ in one identifier. The first names an existing resource that the caller cannot see, the
/// second an unknown one.
struct RequestPair {
    description: String,
    template: Request,
    /// The identifier of the foreign resource, in place of [`PLACEHOLDER`]. Each request to an unknown resource gets
    /// a new identifier of the same form.
    identifier: String,
}

/// Stands for the identifier in the request template.
const PLACEHOLDER: &str = "~nobodys~";

impl RequestPair {
    /// The request for a resource that does not exist. Its identifier is as recent as the foreign one, because the
    /// timestamp in the identifier selects the partition.
    fn unknown_request(&self) -> Request {
        let new_id = Uuid::now_v7();
        let replacement = match self.identifier.as_str() {
            place if place.starts_with("user:") => format!("user:{new_id}"),
            place if Uuid::parse_str(place).is_ok() => new_id.to_string(),
            original => new_id.simple().to_string().chars().take(original.len()).collect(),
        };
        let (path, body) = (self.template.path(), self.template.body_text());
        let replace = |text: &str| text.replace(PLACEHOLDER, &replacement);
        with_target(&self.template, replace(path), &replace(&body))
    }

    fn foreign_request(&self) -> Request {
        let replace = |text: &str| text.replace(PLACEHOLDER, &self.identifier);
        with_target(&self.template, replace(self.template.path()), &replace(&self.template.body_text()))
    }
}

fn with_target(request: &Request, path: String, body: &str) -> Request {
    let request = request.clone().with_path(path);
    if body.is_empty() { request } else { request.with_body("application/json", body.to_owned()) }
}

/// A caller, the resources that it owns, and foreign resources that it cannot see.
struct CallerView<'a> {
    actor: &'static str,
    own: &'a WorkspaceFixture<'a>,
    foreign: &'a WorkspaceFixture<'a>,
}

impl CallerView<'_> {
    /// The value of a path parameter in a request for the route.
    fn path_parameter(route: &Route, request: &Request, name: &str) -> Option<String> {
        let path = request.path().split('?').next()?.to_owned();
        let position = route.path.split('/').position(|segment| segment == format!("{{{name}}}"))?;
        path.split('/').nth(position).map(str::to_owned)
    }

    /// Whether a path parameter identifies a resource that the caller cannot see.
    fn is_hidden(&self, name: &str) -> bool {
        // Every caller of a tenant can see the tenant and its workspaces.
        let is_known = self.actor == OTHER_WORKSPACE_ADMIN && ["tenant_id", "workspace_id"].contains(&name);
        !is_known && !UNPROTECTED_PARAMETERS.contains(&name)
    }

    /// Creates a pair from a request that contains the identifier `original`.
    fn request_pair(&self, name: String, request: Request, original: &str) -> RequestPair {
        // The query names the caller's own workspace. Other pairs cover foreign workspaces.
        let to_own_workspace = |text: &str| text.replace(&self.foreign.workspace, &self.own.workspace);
        let mask = |text: &str| text.replace(original, PLACEHOLDER);
        let (path, body) = (request.path().to_owned(), request.body_text());
        let (route, query) = path.split_once('?').map_or((path.as_str(), ""), |(route, query)| (route, query));
        let query = if query.is_empty() { String::new() } else { format!("?{}", to_own_workspace(&mask(query))) };
        let foreign = with_target(&request, mask(route) + &query, &to_own_workspace(&mask(&body))).as_actor(self.actor);
        RequestPair {
            description: format!("{name} by {}", self.actor),
            template: foreign,
            identifier: original.to_owned(),
        }
    }

    /// Request pairs for every path parameter of every route.
    async fn pairs_of_paths(&self) -> Vec<RequestPair> {
        let mut pairs = Vec::new();
        for route in routes() {
            let names = route.placeholders();
            let hidden: Vec<&str> = names.iter().copied().filter(|name| self.is_hidden(name)).collect();
            if hidden.is_empty() || route.path == "/{slug}" {
                continue;
            }
            let request = self.foreign.successful_request(route.operation_id()).await;
            for name in &hidden {
                let original = Self::path_parameter(&route, &request, name).unwrap();
                pairs.push(self.request_pair(
                    format!("{} {{{name}}}", route.operation_id()),
                    request.clone(),
                    &original,
                ));
            }
            // Combines the caller's own parent resource with a foreign resource below it.
            if let [_, .., last] = names[..]
                && self.is_hidden(last)
            {
                let own_request = self.own.successful_request(route.operation_id()).await;
                let (own_value, foreign_value) =
                    (Self::path_parameter(&route, &own_request, last), Self::path_parameter(&route, &request, last));
                let (own_value, foreign_value) = (own_value.unwrap(), foreign_value.unwrap());
                let path = own_request.path().replacen(&own_value, &foreign_value, 1);
                pairs.push(self.request_pair(
                    format!("{} {{{last}}} below one's own", route.operation_id()),
                    own_request.with_path(path),
                    &foreign_value,
                ));
            }
        }
        pairs
    }

    /// Request pairs for identifiers and slugs in queries and bodies.
    async fn pairs_of_bodies(&self) -> Vec<RequestPair> {
        let (app, own, foreign) = (self.own.app, self.own, self.foreign);
        let policy = foreign.workload.versions.iter().find(|version| version.kind == "policy_bundle").unwrap();
        let draft = own.fixtures.draft(&own.workload.workload_id, &[]).await;
        let release = json!({ "workload_id": foreign.workload.workload_id, "environment": "dev" });
        let with_policy = json!({
            "workload_id": own.workload.workload_id, "environment": "dev", "policy_bundle_id": policy.asset_id,
        });
        let binding = json!({ "asset_version_id": policy.asset_version_id, "role": "policy_bundle" });
        let role = json!({
            "principal": "user:x", "role": "viewer", "scope_kind": "workload",
            "scope_ref": foreign.workload.workload_id,
        });
        let script = json!({
            "workspace_id": own.workspace, "workload_slug": foreign.workload.slug, "environment": "dev",
            "language": "starlark", "code": "result = 1",
        });
        let flow = json!({ "arguments": {
            "workload_slug": foreign.workload.slug, "environment": "dev", "inputs": {},
        } });
        let search = json!({ "arguments": { "knowledge_base_slug": foreign.knowledge.slug, "query": "leave" } });
        let evidence = json!({ "arguments": { "execution_id": foreign.execution } });
        let list = |path: &str, name: &str, id: &str| app.get(format!("{path}?{name}={id}"));
        let requests = [
            ("the workload of a release", app.post("/v1/releases", release), &foreign.workload.workload_id),
            ("the policy of a release", app.post("/v1/releases", with_policy), &policy.asset_id),
            (
                "the version of a binding",
                app.post(format!("/v1/releases/{draft}/bindings"), binding),
                &policy.asset_version_id,
            ),
            ("the workload of a role", app.post("/v1/role-bindings", role), &foreign.workload.workload_id),
            ("the workload of a script", app.post("/v1/runtime/code", script), &foreign.workload.slug),
            ("the workload of a tool", app.post("/v1/runtime/tools/execute_flow", flow), &foreign.workload.slug),
            (
                "the knowledge base of a tool",
                app.post("/v1/runtime/tools/query_knowledge_base", search),
                &foreign.knowledge.slug,
            ),
            ("the run of a tool", app.post("/v1/runtime/tools/inspect_evidence", evidence), &foreign.execution),
            (
                "the workload of listed releases",
                list("/v1/releases", "workload_id", &foreign.workload.workload_id),
                &foreign.workload.workload_id,
            ),
            (
                "the workload of listed runs",
                list("/v1/executions", "workload_id", &foreign.workload.workload_id),
                &foreign.workload.workload_id,
            ),
            (
                "the release of listed runs",
                list("/v1/executions", "release_id", &foreign.workload.release_id),
                &foreign.workload.release_id,
            ),
        ];
        requests
            .into_iter()
            .map(|(name, request, original)| self.request_pair(name.to_owned(), request, original))
            .collect()
    }
}

/// All request pairs of one caller, which belongs to another tenant or to another workspace.
async fn all_pairs(app: &Client, actor: &'static str) -> Vec<RequestPair> {
    let own_fixture = WorkspaceFixture::create(app).await;
    let foreign_fixture = match actor {
        TENANT_ADMIN => WorkspaceFixture::in_other_tenant(app).await,
        _ => WorkspaceFixture::in_other_workspace(app).await,
    };
    let view = match actor {
        TENANT_ADMIN => CallerView { actor, own: &own_fixture, foreign: &foreign_fixture },
        _ => CallerView { actor, own: &foreign_fixture, foreign: &own_fixture },
    };
    view.foreign.multiply_evidence().await;
    if actor == OTHER_WORKSPACE_ADMIN {
        own_fixture.fixtures.bind_role(actor, "workspace_admin", "workspace", Some(&foreign_fixture.workspace)).await;
    }
    let pairs: Vec<RequestPair> =
        [view.pairs_of_paths().await, view.pairs_of_bodies().await].into_iter().flatten().collect();
    assert!(pairs.len() > 75, "only {} pairs", pairs.len());
    pairs
}

/// The spans of each trace, by trace identifier. A span is represented by its name and its sorted `what` attributes.
fn spans_by_trace(spans: Vec<Span>) -> BTreeMap<String, Vec<String>> {
    let mut traces: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for span in spans {
        let id: String = span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = span.attributes.iter().filter(|part| part.key == "what").map(|part| format!("{:?}", part.value));
        traces.entry(id).or_default().push(std::iter::once(span.name).chain(parts).collect::<Vec<_>>().join(" "));
    }
    for spans in traces.values_mut() {
        spans.sort_unstable();
    }
    traces
}

#[tokio::test]
async fn foreign_tenant_ids_get_the_response_of_unknown_ids() {
    assert_same_responses_and_statements(TENANT_ADMIN).await;
}

#[tokio::test]
async fn foreign_workspace_ids_get_the_response_of_unknown_ids() {
    assert_same_responses_and_statements(OTHER_WORKSPACE_ADMIN).await;
}

async fn assert_same_responses_and_statements(actor: &'static str) {
    let server = CapturedServer::start("warn").await;
    let pairs = all_pairs(&server.client, actor).await;
    let traced = |number: usize| format!("{:032x}", number + 1);
    let mut differences = Vec::new();
    for (number, pair) in pairs.iter().enumerate() {
        let send = async |request: Request, trace: String| {
            request.header("traceparent", format!("00-{trace}-00000000000000aa-01")).await
        };
        // Both requests are sent once in advance, so that the caches are equally warm.
        let (first_response, _) = (pair.foreign_request().await, pair.unknown_request().await);
        let foreign = send(pair.foreign_request(), traced(2 * number)).await;
        let unknown = send(pair.unknown_request(), traced(2 * number + 1)).await;
        let is_list = pair.description.contains("listed");
        let expected = if is_list { foreign.body == b"[]" } else { [403, 404].contains(&foreign.status) };
        if !expected
            || comparable_response(&foreign) != comparable_response(&unknown)
            || first_response.status != foreign.status
        {
            differences.push(format!("{}: {foreign}\ninstead of {unknown}", pair.description));
        }
    }
    let (telemetry, _) = server.shut_down().await;
    let spans = telemetry.trace_request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    let traces = spans_by_trace(spans.flat_map(|scope| scope.spans).collect());
    for (number, pair) in pairs.iter().enumerate() {
        let spans_of = |number: usize| traces.get(&traced(number)).cloned().unwrap_or_default();
        let (foreign, unknown) = (spans_of(2 * number), spans_of(2 * number + 1));
        assert!(!unknown.is_empty(), "{} has no trace", pair.description);
        if foreign != unknown {
            differences.push(format!("{}: {foreign:?}\ninstead of {unknown:?}", pair.description));
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} pairs differ\n{}",
        differences.len(),
        pairs.len(),
        differences.join("\n")
    );
}

/// The number of requests in a round, the maximum number of rounds, and the maximum relative difference of the medians.
fn sampling() -> (usize, usize, f64) {
    if fairway_testkit::is_long_form_requested() { (2_000, 3, 0.1) } else { (10, 24, 0.35) }
}

/// The difference between the two medians of a round, relative to the lower median. The order of the requests
/// alternates, so that other load on the machine affects both alike.
async fn relative_difference(pair: &RequestPair, count: usize) -> f64 {
    let mut times = [Vec::with_capacity(count), Vec::with_capacity(count)];
    for turn in 0..count {
        for side in if turn % 2 == 0 { [0, 1] } else { [1, 0] } {
            let request = if side == 0 { pair.foreign_request() } else { pair.unknown_request() };
            let started_at = Instant::now();
            request.await;
            times[side].push(started_at.elapsed());
        }
    }
    let [foreign, unknown] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2].max(Duration::from_nanos(1)).as_secs_f64()
    });
    (foreign - unknown).abs() / foreign.min(unknown)
}

#[tokio::test]
async fn foreign_tenant_ids_take_the_time_of_unknown_ids() {
    assert_same_duration(TENANT_ADMIN).await;
}

#[tokio::test]
async fn foreign_workspace_ids_take_the_time_of_unknown_ids() {
    assert_same_duration(OTHER_WORKSPACE_ADMIN).await;
}

/// Other load can disturb single rounds, so a pair fails only if its medians differ too much in every round.
async fn assert_same_duration(actor: &'static str) {
    let app = TestApp::start().await;
    let (count, rounds, limit) = sampling();
    let mut mismatches = Vec::new();
    for pair in all_pairs(&app, actor).await {
        let mut differences = Vec::new();
        while differences.len() < rounds && !differences.last().is_some_and(|difference| *difference < limit) {
            differences.push(relative_difference(&pair, count).await);
        }
        if !differences.last().is_some_and(|difference| *difference < limit) {
            let shares: Vec<String> =
                differences.iter().map(|difference| format!("{:.0} %", difference * 100.0)).collect();
            mismatches.push(format!("{}: {}", pair.description, shares.join(", ")));
        }
    }
    assert!(mismatches.is_empty(), "the medians differ in every round:\n{}", mismatches.join("\n"));
}
