//! R15: whoever asks for something that it cannot see learns nothing about whether it exists. A foreign identifier and
//! one that nobody has get the same answer, from the same statements, in the same time.

use crate::{
    document::{Route, routes},
    overheard::Overheard,
    stage::Stage,
    tenancy::told,
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

/// Administers the default tenant and asks for what is another tenant's.
const BOSS: &str = "user:boss";
/// Administers a workspace of the default tenant and asks for what is in another one.
const NEIGHBOUR: &str = "user:neighbour";
/// Placeholders that name nothing of anybody: kinds and tools are known to all, every word names an environment, and
/// everybody has sessions of its own.
const NAMES_NOTHING: [&str; 4] = ["kind", "tool", "environment", "session_id"];

/// Two requests that differ in one identifier: the first names something that exists and the caller cannot see.
struct Pair {
    what: String,
    foreign: Request,
    /// What stands for the identifier; a fresh one is put in for each request.
    place: String,
}

/// Stands where an identifier that nobody has is put in.
const MARK: &str = "~nobodys~";

impl Pair {
    /// The same request for something that does not exist. Its identifier is as old as the others: the age tells which
    /// partition is looked in.
    fn unknown(&self) -> Request {
        let fresh = Uuid::now_v7();
        let stand_in = match self.place.as_str() {
            place if place.starts_with("user:") => format!("user:{fresh}"),
            place if Uuid::parse_str(place).is_ok() => fresh.to_string(),
            place => fresh.simple().to_string().chars().take(place.len()).collect(),
        };
        let (path, body) = (self.foreign.path(), self.foreign.text());
        let replace = |text: &str| text.replace(MARK, &stand_in);
        filled(&self.foreign, replace(path), &replace(&body))
    }

    fn foreign(&self) -> Request {
        let replace = |text: &str| text.replace(MARK, &self.place);
        filled(&self.foreign, replace(self.foreign.path()), &replace(&self.foreign.text()))
    }
}

fn filled(request: &Request, path: String, body: &str) -> Request {
    let request = request.clone().to_path(path);
    if body.is_empty() { request } else { request.bytes("application/json", body.to_owned()) }
}

/// What a caller owns, and what it asks for and cannot see.
struct View<'a> {
    actor: &'static str,
    own: &'a Stage<'a>,
    foreign: &'a Stage<'a>,
}

impl View<'_> {
    /// The identifier that stands at a place of a route's path in a request of it.
    fn segment(route: &Route, request: &Request, name: &str) -> Option<String> {
        let path = request.path().split('?').next()?.to_owned();
        let at = route.path.split('/').position(|segment| segment == format!("{{{name}}}"))?;
        path.split('/').nth(at).map(str::to_owned)
    }

    /// Whether a placeholder names something that the caller cannot see.
    fn is_hidden(&self, name: &str) -> bool {
        // Workspaces and the tenant itself are known to everybody of the tenant.
        let is_known = self.actor == NEIGHBOUR && ["tenant_id", "workspace_id"].contains(&name);
        !is_known && !NAMES_NOTHING.contains(&name)
    }

    /// A pair out of a request that names `place` somewhere.
    fn pair(&self, what: String, request: Request, place: &str) -> Pair {
        // The caller looks from its own workspace: that it cannot see the other one is told by other requests.
        let here = |text: &str| text.replace(&self.foreign.workspace, &self.own.workspace);
        let mark = |text: &str| text.replace(place, MARK);
        let (path, body) = (request.path().to_owned(), request.text());
        let (route, query) = path.split_once('?').map_or((path.as_str(), ""), |(route, query)| (route, query));
        let query = if query.is_empty() { String::new() } else { format!("?{}", here(&mark(query))) };
        let foreign = filled(&request, mark(route) + &query, &here(&mark(&body))).as_actor(self.actor);
        Pair { what: format!("{what} by {}", self.actor), foreign, place: place.to_owned() }
    }

    /// Every identifier of every path.
    async fn of_paths(&self) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for route in routes() {
            let names = route.placeholders();
            let hidden: Vec<&str> = names.iter().copied().filter(|name| self.is_hidden(name)).collect();
            if hidden.is_empty() || route.path == "/{slug}" {
                continue;
            }
            let request = self.foreign.request(route.id()).await;
            for name in &hidden {
                let place = Self::segment(&route, &request, name).unwrap();
                pairs.push(self.pair(format!("{} {{{name}}}", route.id()), request.clone(), &place));
            }
            // Something of one's own, and below it what belongs to somebody else.
            if let [_, .., last] = names[..]
                && self.is_hidden(last)
            {
                let own = self.own.request(route.id()).await;
                let (mine, theirs) = (Self::segment(&route, &own, last), Self::segment(&route, &request, last));
                let (mine, theirs) = (mine.unwrap(), theirs.unwrap());
                let path = own.path().replacen(&mine, &theirs, 1);
                pairs.push(self.pair(format!("{} {{{last}}} below one's own", route.id()), own.to_path(path), &theirs));
            }
        }
        pairs
    }

    /// Identifiers and slugs in queries and bodies.
    async fn of_bodies(&self) -> Vec<Pair> {
        let (app, own, theirs) = (self.own.app, self.own, self.foreign);
        let policy = theirs.workload.versions.iter().find(|version| version.kind == "policy_bundle").unwrap();
        let draft = own.given.draft(&own.workload.workload_id, &[]).await;
        let release = json!({ "workload_id": theirs.workload.workload_id, "environment": "dev" });
        let with_policy = json!({
            "workload_id": own.workload.workload_id, "environment": "dev", "policy_bundle_id": policy.asset_id,
        });
        let binding = json!({ "asset_version_id": policy.asset_version_id, "role": "policy_bundle" });
        let role = json!({
            "principal": "user:x", "role": "viewer", "scope_kind": "workload",
            "scope_ref": theirs.workload.workload_id,
        });
        let script = json!({
            "workspace_id": own.workspace, "workload_slug": theirs.workload.slug, "environment": "dev",
            "language": "starlark", "code": "result = 1",
        });
        let flow = json!({ "arguments": {
            "workload_slug": theirs.workload.slug, "environment": "dev", "inputs": {},
        } });
        let search = json!({ "arguments": { "knowledge_base_slug": theirs.knowledge.slug, "query": "leave" } });
        let evidence = json!({ "arguments": { "execution_id": theirs.execution } });
        let list = |path: &str, name: &str, id: &str| app.get(format!("{path}?{name}={id}"));
        let requests = [
            ("the workload of a release", app.post("/v1/releases", release), &theirs.workload.workload_id),
            ("the policy of a release", app.post("/v1/releases", with_policy), &policy.asset_id),
            (
                "the version of a binding",
                app.post(format!("/v1/releases/{draft}/bindings"), binding),
                &policy.asset_version_id,
            ),
            ("the workload of a role", app.post("/v1/role-bindings", role), &theirs.workload.workload_id),
            ("the workload of a script", app.post("/v1/runtime/code", script), &theirs.workload.slug),
            ("the workload of a tool", app.post("/v1/runtime/tools/execute_flow", flow), &theirs.workload.slug),
            (
                "the knowledge base of a tool",
                app.post("/v1/runtime/tools/query_knowledge_base", search),
                &theirs.knowledge.slug,
            ),
            ("the run of a tool", app.post("/v1/runtime/tools/inspect_evidence", evidence), &theirs.execution),
            (
                "the workload of listed releases",
                list("/v1/releases", "workload_id", &theirs.workload.workload_id),
                &theirs.workload.workload_id,
            ),
            (
                "the workload of listed runs",
                list("/v1/executions", "workload_id", &theirs.workload.workload_id),
                &theirs.workload.workload_id,
            ),
            (
                "the release of listed runs",
                list("/v1/executions", "release_id", &theirs.workload.release_id),
                &theirs.workload.release_id,
            ),
        ];
        requests.into_iter().map(|(what, request, place)| self.pair(what.to_owned(), request, place)).collect()
    }
}

/// Every pair of one caller, who asks from another tenant or from another workspace.
async fn pairs(app: &Client, actor: &'static str) -> Vec<Pair> {
    let home = Stage::set(app).await;
    let other = match actor {
        BOSS => Stage::set_abroad(app).await,
        _ => Stage::set_next_door(app).await,
    };
    let view = match actor {
        BOSS => View { actor, own: &home, foreign: &other },
        _ => View { actor, own: &other, foreign: &home },
    };
    view.foreign.with_much_evidence().await;
    if actor == NEIGHBOUR {
        home.given.role(actor, "workspace_admin", ("workspace", Some(&other.workspace))).await;
    }
    let pairs: Vec<Pair> = [view.of_paths().await, view.of_bodies().await].into_iter().flatten().collect();
    assert!(pairs.len() > 75, "only {} pairs", pairs.len());
    pairs
}

/// The statements that each trace holds, by its identifier.
fn statements(spans: Vec<Span>) -> BTreeMap<String, Vec<String>> {
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
async fn another_tenants_identifier_gets_the_answer_and_the_statements_of_an_unknown_one() {
    compare(BOSS).await;
}

#[tokio::test]
async fn another_workspaces_identifier_gets_the_answer_and_the_statements_of_an_unknown_one() {
    compare(NEIGHBOUR).await;
}

async fn compare(actor: &'static str) {
    let server = Overheard::start("warn").await;
    let pairs = pairs(&server.client, actor).await;
    let traced = |number: usize| format!("{:032x}", number + 1);
    let mut wrong = Vec::new();
    for (number, pair) in pairs.iter().enumerate() {
        let send = async |request: Request, trace: String| {
            request.header("traceparent", format!("00-{trace}-00000000000000aa-01")).await
        };
        // Once before, so that neither finds anything in a cache that the other does not.
        let (first, _) = (pair.foreign().await, pair.unknown().await);
        let foreign = send(pair.foreign(), traced(2 * number)).await;
        let unknown = send(pair.unknown(), traced(2 * number + 1)).await;
        let is_list = pair.what.contains("listed");
        let expected = if is_list { foreign.body == b"[]" } else { [403, 404].contains(&foreign.status) };
        if !expected || told(&foreign) != told(&unknown) || first.status != foreign.status {
            wrong.push(format!("{}: {foreign}\ninstead of {unknown}", pair.what));
        }
    }
    let (said, _) = server.end().await;
    let spans = said.traced.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    let traces = statements(spans.flat_map(|scope| scope.spans).collect());
    for (number, pair) in pairs.iter().enumerate() {
        let of = |number: usize| traces.get(&traced(number)).cloned().unwrap_or_default();
        let (foreign, unknown) = (of(2 * number), of(2 * number + 1));
        assert!(!unknown.is_empty(), "{} was not traced", pair.what);
        if foreign != unknown {
            wrong.push(format!("{}: {foreign:?}\ninstead of {unknown:?}", pair.what));
        }
    }
    assert!(wrong.is_empty(), "{} of {} pairs differ\n{}", wrong.len(), pairs.len(), wrong.join("\n"));
}

/// Pairs of requests that are timed in a row, rounds until the medians have to agree, and how far they may be apart.
fn measure() -> (usize, usize, f64) {
    if fairway_testkit::is_long() { (2_000, 3, 0.1) } else { (10, 24, 0.35) }
}

/// How far the medians of a round are apart, as a share of the lower one. Each of the two goes first as often as the
/// other, so that whatever else the machine does meets both alike.
async fn apart(pair: &Pair, count: usize) -> f64 {
    let mut times = [Vec::with_capacity(count), Vec::with_capacity(count)];
    for turn in 0..count {
        for at in if turn % 2 == 0 { [0, 1] } else { [1, 0] } {
            let request = if at == 0 { pair.foreign() } else { pair.unknown() };
            let since = Instant::now();
            request.await;
            times[at].push(since.elapsed());
        }
    }
    let [foreign, unknown] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2].max(Duration::from_nanos(1)).as_secs_f64()
    });
    (foreign - unknown).abs() / foreign.min(unknown)
}

#[tokio::test]
async fn another_tenants_identifier_takes_the_time_of_an_unknown_one() {
    time(BOSS).await;
}

#[tokio::test]
async fn another_workspaces_identifier_takes_the_time_of_an_unknown_one() {
    time(NEIGHBOUR).await;
}

/// A round may be disturbed; what takes longer in earnest takes longer in every round.
async fn time(actor: &'static str) {
    let app = TestApp::start().await;
    let (count, rounds, most) = measure();
    let mut wrong = Vec::new();
    for pair in pairs(&app, actor).await {
        let mut found = Vec::new();
        while found.len() < rounds && !found.last().is_some_and(|apart| *apart < most) {
            found.push(apart(&pair, count).await);
        }
        if !found.last().is_some_and(|apart| *apart < most) {
            let shares: Vec<String> = found.iter().map(|apart| format!("{:.0} %", apart * 100.0)).collect();
            wrong.push(format!("{}: {}", pair.what, shares.join(", ")));
        }
    }
    assert!(wrong.is_empty(), "the medians are always apart:\n{}", wrong.join("\n"));
}
