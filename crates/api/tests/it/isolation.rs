//! Isolation of tenants and workspaces. For every identifier in every documented operation, a request contains the
//! identifier of a foreign resource, in another tenant or workspace. The response must equal the response to an
//! unknown identifier.
//!
//! The cases are derived from the OpenAPI document. A new operation or identifier without a case fails the test.

use crate::{
    support::{
        documented_routes::{Route, openapi_document, routes},
        workspace_fixture::WorkspaceFixture,
    },
    tenancy::{UNKNOWN_ID, comparable_response},
};
use fairway_testkit::{
    TestApp,
    app::{Request, Response},
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// An administrator of the default tenant.
const TENANT_ADMIN: &str = "user:boss";
/// An administrator of one workspace in the default tenant.
const WORKSPACE_ADMIN: &str = "user:neighbour";
/// Names that do not identify a resource of a tenant. Kinds, tools and tiles are the same for all tenants. Any word
/// can name an environment, a session or a principal. Contract names are scoped to a knowledge base.
const NO_IDENTIFIERS: [&str; 8] =
    ["kind", "tool", "environment", "session_id", "principal", "level", "index", "contract_id"];
/// Identifiers that the document describes as text instead of a UUID.
const SLUGS: [&str; 2] = ["slug", "workload_slug"];
/// Identifiers of workspaces. Members of a tenant see all its workspaces, so their requests get 403 instead of 404.
const KNOWN_TO_MEMBERS: [&str; 3] = ["workspace_id", "grantee_workspace_id", "audience"];
/// Operations that every member may perform with any workspace of its tenant.
const OPEN_TO_MEMBERS: [&str; 3] = ["read_workspace", "read_effective_preferences", "create_asset_grant"];
const UNKNOWN_SLUG: &str = "no-such-slug";

/// The part of a request that contains an identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Path,
    Query,
    Body,
}

/// An identifier in the requests of a route.
#[derive(Clone, Debug)]
struct Identifier {
    part: Part,
    name: String,
}

/// Path, query and body of a request, which the test can change separately.
#[derive(Clone)]
struct Parts {
    segments: Vec<String>,
    query: BTreeMap<String, String>,
    body: Option<Map<String, Value>>,
}

impl Parts {
    fn from_request(request: &Request) -> Self {
        let (path, query) = request.path().split_once('?').unwrap_or((request.path(), ""));
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Self {
            segments: path.split('/').map(str::to_owned).collect(),
            query: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            body: serde_json::from_str(&request.body_text()).ok(),
        }
    }

    fn value(&self, route: &Route, identifier: &Identifier) -> Option<String> {
        match identifier.part {
            Part::Path => Some(self.segments[position(route, &identifier.name)].clone()),
            Part::Query => self.query.get(&identifier.name).cloned(),
            Part::Body => Some(self.body.as_ref()?.get(&identifier.name)?.as_str()?.to_owned()),
        }
    }

    /// Replaces the value of an identifier.
    fn with_value(mut self, route: &Route, identifier: &Identifier, value: &str) -> Self {
        let name = identifier.name.as_str();
        if identifier.part == Part::Path {
            self.segments[position(route, name)] = value.to_owned();
        } else {
            // A workspace may be in the query or in the body. A contradiction would be refused before the identifier
            // is checked.
            self.query.remove(name);
            self.body.iter_mut().for_each(|body| drop(body.remove(name)));
        }
        match identifier.part {
            Part::Path => {}
            Part::Query => drop(self.query.insert(name.to_owned(), value.to_owned())),
            Part::Body => {
                let field =
                    if name == "audience" { json!({ "roles": [], "workspaces": [value] }) } else { json!(value) };
                drop(self.body.get_or_insert_default().insert(name.to_owned(), field));
            }
        }
        self.complete(route, name, value);
        self
    }

    /// Adjusts other members that must agree with the changed identifier.
    fn complete(&mut self, route: &Route, name: &str, value: &str) {
        match (route.operation_id(), name) {
            ("review_release", "release_id") => {
                self.body.iter_mut().for_each(|body| drop(body.insert("subject_ref".to_owned(), json!(value))));
            }
            ("review_release", "subject_ref") => self.segments[position(route, "release_id")] = value.to_owned(),
            ("explain_access", "scope_ref") => drop(self.query.insert("scope_kind".to_owned(), "workload".to_owned())),
            // A grant names either a workspace or a principal.
            ("create_asset_grant", "grantee_workspace_id") => {
                self.body.iter_mut().for_each(|body| drop(body.remove("principal")));
            }
            ("create_role_binding", "scope_ref") => {
                self.body.iter_mut().for_each(|body| drop(body.insert("scope_kind".to_owned(), json!("workload"))));
            }
            _ => {}
        }
    }

    /// Creates a request from these parts. Method and headers are those of `original`.
    fn request(&self, original: &Request) -> Request {
        let pairs: Vec<String> = self.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
        let request = original.clone().with_path(self.segments.join("/") + &query);
        match &self.body {
            Some(body) => request.json(Value::Object(body.clone())),
            None => request,
        }
    }
}

/// The index of a path parameter's segment.
fn position(route: &Route, name: &str) -> usize {
    route.path.split('/').position(|segment| segment == format!("{{{name}}}")).unwrap()
}

/// Whether a schema describes a UUID, or contains one.
fn has_uuid(document: &Value, schema: &Value) -> bool {
    if let Some(target) = schema["$ref"].as_str() {
        return has_uuid(document, document.pointer(target.strip_prefix('#').unwrap()).unwrap());
    }
    let any_branch = |name: &str| {
        schema[name].as_array().is_some_and(|branches| branches.iter().any(|branch| has_uuid(document, branch)))
    };
    let fields = schema["properties"].as_object();
    schema["format"] == "uuid"
        || ["allOf", "anyOf", "oneOf"].into_iter().any(any_branch)
        || schema.get("items").is_some_and(|items| has_uuid(document, items))
        || fields.is_some_and(|fields| fields.values().any(|field| has_uuid(document, field)))
}

fn is_identifier(document: &Value, name: &str, schema: &Value) -> bool {
    let is_named = name.ends_with("_id") || SLUGS.contains(&name);
    !NO_IDENTIFIERS.contains(&name) && (is_named || has_uuid(document, schema))
}

/// All identifiers that the document describes in the requests of a route.
fn identifiers(document: &Value, route: &Route) -> Vec<Identifier> {
    let mut found = Vec::new();
    let mut add = |part, name: &str| found.push(Identifier { part, name: name.to_owned() });
    for name in route.placeholders() {
        assert!(
            name.ends_with("_id") || SLUGS.contains(&name) || NO_IDENTIFIERS.contains(&name),
            "what is {{{name}}}?"
        );
        if !NO_IDENTIFIERS.contains(&name) {
            add(Part::Path, name);
        }
    }
    let parameters = route.operation["parameters"].as_array();
    for parameter in parameters.into_iter().flatten().filter(|parameter| parameter["in"] == "query") {
        let name = parameter["name"].as_str().unwrap();
        if is_identifier(document, name, &parameter["schema"]) {
            add(Part::Query, name);
        }
    }
    if route.takes_body() {
        let schema = route.body_schema(document);
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            // A slug is skipped, because a new workload or asset defines its own slug.
            if name != "slug" && is_identifier(document, name, field) {
                assert!(!route.takes_list(), "{}: no case for an identifier in a list", route.operation_id());
                add(Part::Body, name);
            }
        }
    }
    found
}

fn is_required(route: &Route, name: &str) -> bool {
    let parameters = route.operation["parameters"].as_array();
    parameters.into_iter().flatten().any(|parameter| parameter["name"] == name && parameter["required"] == true)
}

/// A caller with its own resources, and the foreign resources that it must not see.
struct View<'a> {
    actor: &'static str,
    own: &'a WorkspaceFixture<'a>,
    foreign: &'a WorkspaceFixture<'a>,
}

impl View<'_> {
    fn shares_tenant(&self) -> bool {
        self.own.tenant == self.foreign.tenant
    }

    /// The foreign value of an identifier, from a successful request for the foreign resources or from their fixture.
    async fn foreign_value(&self, route: &Route, identifier: &Identifier, request: &Parts) -> String {
        let foreign = self.foreign;
        match identifier.name.as_str() {
            "slug" | "workload_slug" => foreign.workload.slug.clone(),
            "scope_ref" => foreign.workload.workload_id.clone(),
            name => match request.value(route, identifier) {
                Some(value) => value,
                None => match name {
                    "workspace_id" | "grantee_workspace_id" | "audience" => foreign.workspace.clone(),
                    "workload_id" | "subject_id" => foreign.workload.workload_id.clone(),
                    "source_event_id" => {
                        let path = format!("/v1/audit/events?limit=1&workspace_id={}", foreign.workspace);
                        let events = foreign.app.get(path).in_tenant(&foreign.tenant).await.expect(200);
                        events[0]["event_id"].as_str().unwrap().to_owned()
                    }
                    "release_id" => foreign.workload.release_id.clone(),
                    "policy_bundle_id" => foreign.policy().asset_id.clone(),
                    "destination_id" => {
                        let destination = foreign.successful_request("read_workspace_destination").await;
                        destination.path().rsplit('/').next().unwrap().to_owned()
                    }
                    name => panic!("{}: no foreign value of {name}", route.operation_id()),
                },
            },
        }
    }

    /// Whether the response to a foreign identifier equals the response to an unknown identifier, and reveals nothing.
    fn verdict(&self, operation: &str, foreign: &Response, unknown: &Response) -> bool {
        // For an announcement, an unknown workspace is a validation error.
        let is_refused = foreign.status == 404
            || (foreign.status == 403 && self.shares_tenant())
            || (foreign.status == 422 && operation == "make_announcement");
        let is_empty = foreign.status == 200 && foreign.body == b"[]";
        (is_refused || is_empty) && comparable_response(foreign) == comparable_response(unknown)
    }

    /// Sends the requests of a route with each foreign identifier. Returns the number of identifiers.
    async fn check_route(&self, document: &Value, route: &Route, wrong: &mut Vec<String>) -> usize {
        let operation = route.operation_id();
        let mut identifiers = identifiers(document, route);
        // Within one tenant, the tenant's identifier is not foreign.
        identifiers.retain(|identifier| !(self.shares_tenant() && identifier.name == "tenant_id"));
        if identifiers.is_empty() {
            return 0;
        }
        let own_request = self.own.successful_request(operation).await;
        let foreign_request = self.foreign.successful_request(operation).await;
        let (own_parts, foreign_parts) = (Parts::from_request(&own_request), Parts::from_request(&foreign_request));
        for identifier in &identifiers {
            let foreign = self.foreign_value(route, identifier, &foreign_parts).await;
            assert_ne!(own_parts.value(route, identifier), Some(foreign.clone()), "{operation}: {identifier:?}");
            let unknown = if Uuid::try_parse(&foreign).is_ok() { UNKNOWN_ID } else { UNKNOWN_SLUG };
            let is_known = self.shares_tenant() && KNOWN_TO_MEMBERS.contains(&identifier.name.as_str());
            // First replaces only the identifier in the caller's own request, then uses the complete request for the
            // foreign resources.
            for (parts, original) in [(&own_parts, &own_request), (&foreign_parts, &foreign_request)] {
                let send = |value: &str| {
                    parts.clone().with_value(route, identifier, value).request(original).as_actor(self.actor)
                };
                let foreign_response = send(&foreign).await;
                let is_expected = if is_known {
                    [403, 404].contains(&foreign_response.status) || OPEN_TO_MEMBERS.contains(&operation)
                } else {
                    self.verdict(operation, &foreign_response, &send(unknown).await)
                };
                if !is_expected {
                    wrong.push(format!("{operation} by {}, {identifier:?}: {foreign_response}", self.actor));
                }
            }
        }
        identifiers.len()
    }

    /// Checks identifiers in the arguments of tools, which the OpenAPI document does not describe.
    async fn check_arguments_of_tools(&self, wrong: &mut Vec<String>) {
        let app = self.own.app;
        let foreign_fixture = self.foreign;
        let call = |tool: &str, arguments: Value| {
            app.post(format!("/v1/runtime/tools/{tool}"), json!({ "arguments": arguments })).as_actor(self.actor)
        };
        let flow = |slug: &str| {
            call("execute_flow", json!({ "workload_slug": slug, "environment": "dev", "inputs": { "ticket": "x" } }))
        };
        let search =
            |slug: &str| call("query_knowledge_base", json!({ "knowledge_base_slug": slug, "query": "leave" }));
        let inspect = |id: &str| call("inspect_evidence", json!({ "execution_id": id }));
        let pairs = [
            (flow(&foreign_fixture.workload.slug), flow(UNKNOWN_SLUG)),
            (search(&foreign_fixture.knowledge.slug), search(UNKNOWN_SLUG)),
            (inspect(&foreign_fixture.execution), inspect(UNKNOWN_ID)),
        ];
        for (foreign, unknown) in pairs {
            let (foreign, unknown) = (foreign.await, unknown.await);
            if !self.verdict("call_tool", &foreign, &unknown) {
                wrong.push(format!("by {}: {foreign}", self.actor));
            }
        }
    }

    /// Identifiers of foreign resources that responses must not contain. Within a tenant, everybody sees its
    /// workspaces.
    fn hidden_identifiers(&self) -> BTreeSet<&str> {
        let foreign = self.foreign;
        let versions = foreign.workload.versions.iter().chain([&foreign.flow, &foreign.knowledge]);
        let assets = versions.flat_map(|version| [&version.asset_id, &version.asset_version_id]);
        let foreign_ids =
            [&foreign.workload.workload_id, &foreign.workload.release_id, &foreign.execution, &foreign.binding];
        let tenant = [&foreign.tenant, &foreign.workspace].into_iter().filter(|_| !self.shares_tenant());
        assets.chain(foreign_ids).chain([&foreign.grant]).chain(tenant).map(String::as_str).collect()
    }

    /// Reads the caller's own resources, with and without optional filters. Searches the responses for foreign
    /// identifiers, and returns the number of successful responses.
    async fn check_read(&self, route: &Route, wrong: &mut Vec<String>) -> usize {
        if route.method != "get" {
            return 0;
        }
        let filtered = self.own.successful_request(route.operation_id()).await;
        let mut parts = Parts::from_request(&filtered);
        parts.query.retain(|name, _| is_required(route, name));
        // The audit log may name the foreign tenant, because a platform operator created that tenant from here.
        let recorded = (route.operation_id() == "list_audit_events").then_some(self.foreign.tenant.as_str());
        let hidden: Vec<&str> = self.hidden_identifiers().into_iter().filter(|id| Some(*id) != recorded).collect();
        let mut read_count = 0;
        for request in [filtered.clone(), parts.request(&filtered)] {
            let response = request.as_actor(self.actor).await;
            read_count += usize::from(response.status == 200);
            let text = response.text();
            if let Some(id) = hidden.iter().find(|id| text.contains(**id)) {
                wrong.push(format!("{} by {} shows {id}: {response}", route.operation_id(), self.actor));
            }
        }
        read_count
    }

    async fn check(&self) {
        let document = openapi_document();
        let mut differences = Vec::new();
        let (mut cases, mut reads) = (0, 0);
        for route in routes() {
            cases += self.check_route(&document, &route, &mut differences).await;
            reads += self.check_read(&route, &mut differences).await;
        }
        self.check_arguments_of_tools(&mut differences).await;
        assert!(
            differences.is_empty(),
            "{} differences in {cases} cases\n{}",
            differences.len(),
            differences.join("\n")
        );
        assert!(cases > 150 && reads > 100, "only {cases} cases and {reads} reads");
    }
}

#[tokio::test]
async fn identifiers_of_another_tenant_look_like_unknown_ones() {
    let app = TestApp::start().await;
    let (own_fixture, foreign) = (WorkspaceFixture::create(&app).await, WorkspaceFixture::in_other_tenant(&app).await);
    View { actor: TENANT_ADMIN, own: &own_fixture, foreign: &foreign }.check().await;
}

#[tokio::test]
async fn identifiers_of_another_workspace_look_like_unknown_ones() {
    let app = TestApp::start().await;
    let (own_fixture, foreign) =
        (WorkspaceFixture::create(&app).await, WorkspaceFixture::in_other_workspace(&app).await);
    own_fixture.fixtures.bind_role(WORKSPACE_ADMIN, "workspace_admin", "workspace", Some(&own_fixture.workspace)).await;
    View { actor: WORKSPACE_ADMIN, own: &own_fixture, foreign: &foreign }.check().await;
}
