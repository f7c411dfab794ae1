//! Checks that the document states the same bounds as the rules of the request bodies.

use super::document;
use crate::{
    access::{NewRoleBinding, principal_binding::WantedPrincipalBinding},
    access_request::{AccessDenial, AccessGrant},
    asset::{
        NewAsset, NewVersion,
        draft_generation::DraftRequest,
        dry_run::{PolicyDraft, PromptDraft},
        grant::NewAssetGrant,
        lifecycle::AssetMove,
    },
    builtin_tool::ToolCallBody,
    connection::{CheckRequest, ConnectionChange, NewConnectionBody},
    environment::EnvironmentChange,
    erasure::{ErasureDecision, NewErasure},
    execution::{
        Execute, cancel::CancelRequest, resolve_unknown::SettleRequest, review::ReviewRequest, script::RunCode,
    },
    flow::{FlowText, NewFlowBody, NewFlowVersionBody},
    http::body::deserialize_strict,
    knowledge::{NewContractRevocation, NewDocuments, NewReembedding},
    notification::{
        announcement::NewAnnouncement,
        delivery::DeliveryRetry,
        destination::{DestinationChange, NewDestination},
        inbox::{InboxStatusChange, ReadAllRequest},
        preference::{DefaultPreferencesBody, PreferenceList},
        profile::ProfileBody,
    },
    release::{
        request::{NewApproval, NewBinding, NewRelease, TransitionRequest},
        rollback::RollbackRequest,
    },
    rollout::AdvanceRequest,
    share_link::NewShareLink,
    sign_in::EndSessionRequest,
    tenant::{NewTenant, SettingsChange},
    use_case::{
        NewUseCase, UseCaseMove,
        generate::{GenerateRequest, RefineUseCase},
    },
    workload::{NewWorkload, WorkloadChange},
    workspace::NewWorkspace,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use validator::{Validate, ValidationErrors, ValidationErrorsKind};

/// The bounds of the rules that a body breaks, by JSON pointer: minimum and maximum.
type BrokenBounds = BTreeMap<String, (Option<i64>, Option<i64>)>;

/// Validates a body of one type.
type Probe = fn(&Value) -> BrokenBounds;

/// The type of each schema of a request body.
const BODIES: &[(&str, Probe)] = &[
    ("AccessDenial", broken_bounds::<AccessDenial>),
    ("AccessGrant", broken_bounds::<AccessGrant>),
    ("AdvanceRequest", broken_bounds::<AdvanceRequest>),
    ("AssetMove", broken_bounds::<AssetMove>),
    ("CallOfTool", broken_bounds::<ToolCallBody>),
    ("CancelRequest", broken_bounds::<CancelRequest>),
    ("CheckRequest", broken_bounds::<CheckRequest>),
    ("ConnectionChange", broken_bounds::<ConnectionChange>),
    ("DefaultPreferenceList", broken_bounds::<DefaultPreferencesBody>),
    ("EndSessionRequest", broken_bounds::<EndSessionRequest>),
    ("DestinationChange", broken_bounds::<DestinationChange>),
    ("DraftRequest", broken_bounds::<DraftRequest>),
    ("EnvironmentChange", broken_bounds::<EnvironmentChange>),
    ("ErasureDecision", broken_bounds::<ErasureDecision>),
    ("Execute", broken_bounds::<Execute>),
    ("FlowText", broken_bounds::<FlowText>),
    ("GenerateRequest", broken_bounds::<GenerateRequest>),
    ("InboxStatusChange", broken_bounds::<InboxStatusChange>),
    ("NewApproval", broken_bounds::<NewApproval>),
    ("NewAsset", broken_bounds::<NewAsset>),
    ("NewAssetGrant", broken_bounds::<NewAssetGrant>),
    ("NewBinding", broken_bounds::<NewBinding>),
    ("DeliveryRetry", broken_bounds::<DeliveryRetry>),
    ("NewAnnouncement", broken_bounds::<NewAnnouncement>),
    ("NotificationProfile", broken_bounds::<ProfileBody>),
    ("NewConnection", broken_bounds::<NewConnectionBody>),
    ("NewContractRevocation", broken_bounds::<NewContractRevocation>),
    ("NewDestination", broken_bounds::<NewDestination>),
    ("NewDocuments", broken_bounds::<NewDocuments>),
    ("NewErasure", broken_bounds::<NewErasure>),
    ("NewFlow", broken_bounds::<NewFlowBody>),
    ("NewFlowVersion", broken_bounds::<NewFlowVersionBody>),
    ("NewReembedding", broken_bounds::<NewReembedding>),
    ("NewRelease", broken_bounds::<NewRelease>),
    ("NewRoleBinding", broken_bounds::<NewRoleBinding>),
    ("NewShareLink", broken_bounds::<NewShareLink>),
    ("NewTenant", broken_bounds::<NewTenant>),
    ("NewUseCase", broken_bounds::<NewUseCase>),
    ("NewVersion", broken_bounds::<NewVersion>),
    ("NewWorkload", broken_bounds::<NewWorkload>),
    ("NewWorkspace", broken_bounds::<NewWorkspace>),
    ("NotificationPreferenceList", broken_bounds::<PreferenceList>),
    ("PolicyDraft", broken_bounds::<PolicyDraft>),
    ("PromptDraft", broken_bounds::<PromptDraft>),
    ("ReadAllRequest", broken_bounds::<ReadAllRequest>),
    ("RefineUseCase", broken_bounds::<RefineUseCase>),
    ("ReviewRequest", broken_bounds::<ReviewRequest>),
    ("RollbackRequest", broken_bounds::<RollbackRequest>),
    ("RunCode", broken_bounds::<RunCode>),
    ("SettingsChange", broken_bounds::<SettingsChange>),
    ("SettleRequest", broken_bounds::<SettleRequest>),
    ("TransitionRequest", broken_bounds::<TransitionRequest>),
    ("UseCaseMove", broken_bounds::<UseCaseMove>),
    ("WantedPrincipalBinding", broken_bounds::<WantedPrincipalBinding>),
    ("WorkloadChange", broken_bounds::<WorkloadChange>),
];

/// Fields whose bounds are not compared, because the domain parses their value as a document: a flow in YAML, and
/// an interface.
const DOCUMENTS_OF_THE_DOMAIN: [&str; 2] = ["content_yaml", "interface_config"];
/// Length of a text that exceeds every bound, in characters.
const ENDLESS: usize = 2 << 20;

fn broken_bounds<T: DeserializeOwned + Validate>(body: &Value) -> BrokenBounds {
    let mut broken = BrokenBounds::new();
    let parsed =
        deserialize_strict::<T>(body).unwrap_or_else(|problems| panic!("the body has the wrong shape: {problems:?}"));
    if let Err(errors) = parsed.validate() {
        collect(&errors, "", &mut broken);
    }
    broken
}

fn collect(errors: &ValidationErrors, prefix: &str, broken: &mut BrokenBounds) {
    for (name, kind) in errors.errors() {
        // Errors of a body that is a list have no name.
        let path = if name == "__all__" { prefix.to_owned() } else { format!("{prefix}/{name}") };
        match kind {
            ValidationErrorsKind::Struct(errors) => collect(errors, &path, broken),
            ValidationErrorsKind::List(items) => {
                items.iter().for_each(|(index, errors)| collect(errors, &format!("{path}/{index}"), broken));
            }
            ValidationErrorsKind::Field(errors) => {
                let bound = |name: &str| errors.iter().find_map(|error| error.params.get(name)?.as_i64());
                if let bounds @ ((Some(_), _) | (_, Some(_))) = (bound("min"), bound("max")) {
                    broken.insert(path, bounds);
                }
            }
        }
    }
}

/// Resolves a reference, or the alternatives of a nullable schema, to the schema of the value.
fn resolve<'d>(document: &'d Value, schema: &'d Value) -> &'d Value {
    if let Some(target) = schema["$ref"].as_str() {
        return resolve(document, document.pointer(target.trim_start_matches('#')).unwrap());
    }
    let alternatives = schema["oneOf"].as_array().into_iter().flatten();
    alternatives.clone().find(|part| part["type"] != "null").map_or(schema, |part| resolve(document, part))
}

fn has_type(schema: &Value, name: &str) -> bool {
    schema["type"] == name || schema["type"].as_array().is_some_and(|types| types.contains(&json!(name)))
}

/// A value of the schema's shape, with the required members only.
fn sample(document: &Value, schema: &Value) -> Value {
    let schema = resolve(document, schema);
    if has_type(schema, "object") {
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let member = |name: &str| (name.to_owned(), sample(document, &schema["properties"][name]));
        return Value::Object(required.map(member).collect::<Map<_, _>>());
    }
    if has_type(schema, "array") {
        return json!([sample(document, &schema["items"])]);
    }
    if has_type(schema, "integer") {
        return schema["minimum"].as_i64().unwrap_or(1).into();
    }
    if has_type(schema, "boolean") {
        return json!(false);
    }
    if schema["format"] == "uuid" { json!("00000000-0000-7000-8000-000000000001") } else { json!("a") }
}

/// Every property of a schema with its JSON pointer; items of lists have the index 0. A list has an empty pointer.
fn body_properties<'d>(document: &'d Value, schema: &'d Value) -> Vec<(String, &'d Value)> {
    let mut entries = Vec::new();
    if has_type(schema, "array") {
        entries.push((String::new(), schema));
        properties(document, &schema["items"], "/0", &mut entries);
    } else {
        properties(document, schema, "", &mut entries);
    }
    entries
}

fn properties<'d>(document: &'d Value, schema: &'d Value, at: &str, entries: &mut Vec<(String, &'d Value)>) {
    let schema = resolve(document, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let (at, property) = (format!("{at}/{name}"), resolve(document, property));
        entries.push((at.clone(), property));
        if name != "interface_config" {
            properties(document, property, &at, entries);
            if has_type(property, "array") {
                properties(document, &property["items"], &format!("{at}/0"), entries);
            }
        }
    }
}

/// Builds a minimal body with a value at a pointer.
fn body_with(document: &Value, schema: &Value, at: &str, value: Value) -> Value {
    if at.is_empty() {
        return value;
    }
    let schema = resolve(document, schema);
    let (name, remaining) = at.trim_start_matches('/').split_once('/').unwrap_or((at.trim_start_matches('/'), ""));
    let mut body = sample(document, schema);
    let member_schema = if name == "0" { &schema["items"] } else { &schema["properties"][name] };
    let value = if remaining.is_empty() { value } else { body_with(document, member_schema, remaining, value) };
    if name == "0" {
        body = json!([value])
    } else {
        body[name] = value
    }
    body
}

/// The minimum or maximum of a property, as the OpenAPI document states it.
struct Bound {
    limit: i64,
    is_maximum: bool,
    /// Creates a value of this length or amount. A list repeats the given item.
    value: fn(&Value, i64) -> Value,
}

fn bounds_of(property: &Value) -> Vec<Bound> {
    let text: fn(&Value, i64) -> Value = |_, length| json!("a".repeat(usize::try_from(length).unwrap()));
    let list: fn(&Value, i64) -> Value = |item, length| json!(vec![item; usize::try_from(length).unwrap()]);
    let number: fn(&Value, i64) -> Value = |_, number| json!(number);
    let bounds = [
        ("minLength", false, text),
        ("maxLength", true, text),
        ("minItems", false, list),
        ("maxItems", true, list),
        ("minimum", false, number),
        ("maximum", true, number),
    ];
    let documented = bounds.into_iter().filter_map(|(name, is_maximum, value)| {
        property[name].as_i64().map(|limit| Bound { limit, is_maximum, value })
    });
    documented.collect()
}

#[test]
fn document_states_the_bounds_of_request_bodies() {
    let document = serde_json::to_value(document()).unwrap();
    let mut compared = 0;
    for name in body_schemas(&document) {
        let (_, probe) = BODIES.iter().find(|(schema, _)| *schema == name).unwrap_or_else(|| panic!("add {name}"));
        let schema = &document["components"]["schemas"][&name];
        for (at, property) in body_properties(&document, schema) {
            let location = format!("{name}{at}");
            if DOCUMENTS_OF_THE_DOMAIN.iter().any(|field| at.ends_with(field)) {
                continue;
            }
            let item = sample(&document, &property["items"]);
            let check = |value: Value| probe(&body_with(&document, schema, &at, value)).get(&at).copied();
            let bounds = bounds_of(property);
            for Bound { limit, is_maximum, value } in &bounds {
                let beyond = if *is_maximum { limit + 1 } else { limit - 1 };
                let reported = check(value(&item, beyond)).unwrap_or_else(|| panic!("{location} accepts {beyond}"));
                assert_eq!(Some(*limit), if *is_maximum { reported.1 } else { reported.0 }, "{location}");
                assert_eq!(check(value(&item, *limit)), None, "{location} refuses {limit}");
                compared += 1;
            }
            // If the document omits a bound, the rule must not have one either.
            let is_text = has_type(property, "string") && property["format"].is_null();
            if is_text && !bounds.iter().any(|bound| bound.is_maximum) {
                assert_eq!(check(json!("a".repeat(ENDLESS))), None, "{location}: the document has no maximum");
            }
            if is_text && bounds.iter().all(|bound| bound.is_maximum) {
                assert_eq!(check(json!("")), None, "{location}: the document has no minimum");
            }
        }
    }
    assert!(compared > 60, "only {compared} bounds");
}

fn body_schemas(document: &Value) -> BTreeSet<String> {
    let operations =
        document["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap().values());
    let schemas = operations.map(|operation| &operation["requestBody"]["content"]["application/json"]["schema"]);
    let references = schemas.filter_map(|schema| {
        assert_ne!(schema["type"], "array", "name the schema of this body, so that its bounds are compared: {schema}");
        schema["$ref"].as_str()
    });
    references.filter_map(|target| target.rsplit('/').next()).map(str::to_owned).collect()
}
