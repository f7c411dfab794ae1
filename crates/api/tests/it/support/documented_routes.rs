//! Routes of the OpenAPI document, for tests that cover every route.

use fairway_api::openapi;
use serde_json::Value;

/// A route: one method of one path in the OpenAPI document.
pub(crate) struct Route {
    pub(crate) method: String,
    /// The path template, such as `/v1/assets/{asset_id}`.
    pub(crate) path: String,
    /// The OpenAPI operation object.
    pub(crate) operation: Value,
}

impl Route {
    pub(crate) fn operation_id(&self) -> &str {
        self.operation["operationId"].as_str().unwrap()
    }

    /// The names of the path parameters, in order.
    pub(crate) fn placeholders(&self) -> Vec<&str> {
        self.path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}')).collect()
    }

    /// Whether the route only reports the effect of a change, and stores nothing.
    pub(crate) fn is_dry_run(&self) -> bool {
        ["validate_flow", "preview_prompt", "try_policy"].contains(&self.operation_id())
    }

    pub(crate) fn takes_body(&self) -> bool {
        self.operation.get("requestBody").is_some()
    }

    /// Whether the request body is a JSON list.
    pub(crate) fn takes_list(&self) -> bool {
        self.operation["requestBody"]["content"]["application/json"]["schema"]["type"] == "array"
    }

    /// The object in a request body whose fields the schema describes: the body, or the first item of a list. Also
    /// returns the prefix of the field paths.
    pub(crate) fn described_object<'b>(&self, body: &'b mut Value) -> (&'b mut Value, &'static str) {
        if self.takes_list() { (&mut body[0], "[0].") } else { (body, "") }
    }

    /// The schema of the request body, or of the items of a list.
    pub(crate) fn body_schema<'d>(&self, document: &'d Value) -> &'d Value {
        let schema = &self.operation["requestBody"]["content"]["application/json"]["schema"];
        let schema = if self.takes_list() { &schema["items"] } else { schema };
        let reference = schema["$ref"].as_str();
        document.pointer(reference.unwrap().strip_prefix('#').unwrap()).unwrap()
    }

    /// A query string with those of the given `parameters` that the route accepts.
    pub(crate) fn query(&self, parameters: &[(&str, &str)]) -> String {
        let accepted = parameters.iter().filter(|(name, _)| self.has_query_parameter(name));
        accepted.fold("?".to_owned(), |query, (name, value)| format!("{query}{name}={value}&"))
    }

    /// Whether the route accepts a query parameter of this name.
    pub(crate) fn has_query_parameter(&self, name: &str) -> bool {
        let parameters = self.operation["parameters"].as_array();
        let is_match = |parameter: &Value| parameter["name"] == name && parameter["in"] == "query";
        parameters.is_some_and(|entries| entries.iter().any(is_match))
    }

    /// Whether the route accepts a parameter of this name in any location.
    pub(crate) fn has_parameter(&self, name: &str) -> bool {
        let parameters = self.operation["parameters"].as_array();
        parameters.is_some_and(|entries| entries.iter().any(|parameter| parameter["name"] == name))
    }
}

/// The OpenAPI document that the server generates.
pub(crate) fn openapi_document() -> Value {
    serde_json::from_str(&openapi::as_json().unwrap()).unwrap()
}

/// Operations of sign-in. In local mode they access no row, so database faults do not affect them. The module
/// `sign_in` tests them with an identity provider.
pub(crate) const SIGN_IN_OPERATIONS: [&str; 2] = ["read_sign_in_settings", "end_session"];

/// Every route of the OpenAPI document. If a body is a list, its schema is stored in the operation.
pub(crate) fn routes() -> Vec<Route> {
    let mut routes = Vec::new();
    let document = openapi_document();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if ["get", "put", "post", "patch", "delete"].contains(&method.as_str()) {
                let mut operation = operation.clone();
                if let Some(schema) = operation.pointer_mut("/requestBody/content/application~1json/schema") {
                    let target = schema["$ref"].as_str().and_then(|target| document.pointer(target.strip_prefix('#')?));
                    if let Some(array) = target.filter(|target| target["type"] == "array") {
                        *schema = array.clone();
                    }
                }
                routes.push(Route { method: method.clone(), path: path.clone(), operation });
            }
        }
    }
    assert!(routes.len() > 35, "the document lacks routes");
    routes
}
