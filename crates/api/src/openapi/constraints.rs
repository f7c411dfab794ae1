//! Constraints of texts in the OpenAPI document: the values of closed sets, from the domain, and the patterns of free
//! texts.
//!
//! Wire types contain plain strings, so the derived schemas have no constraints. [`add`] adds them to the collected
//! document by schema and property name. The bounds of request bodies are attributes of their fields. The tests of
//! [`super`] compare them with the values that the server refuses.

mod patterns;

use crate::execution::list::MAX_ERROR_CODE;
use fairway_domain::{
    access::{ActorRef, OwnerRef, Role},
    access_request::AccessRequestStatus,
    asset::{Lifecycle, VersionLabel, kind::AssetKind},
    connection::{ConnectionStatus, ConnectorKind, HealthState},
    erasure::{ErasureStatus, SubjectErasure},
    evidence::lineage::{ActionClass, InfluenceRole, Origin},
    execution::{
        ExecutionOutcome, Status as RunStatus, resolve_unknown::Resolution, review::AnswerVerdict as ReviewVerdict,
        script::Language,
    },
    knowledge::document::DocumentId,
    memory::{ConversationSessionId, MAX_SESSION_CHARS},
    notification::{
        Channel, Severity,
        inbox::InboxStatus,
        preference::{DecidingScope, SuppressionReason},
    },
    notification_category::NotificationCategory,
    policy::{ConditionResult, DecisionOutcome as PolicyOutcome},
    release::{StateName, lane::Lane, review::ReleaseVerdict},
    rollout::RolloutStatus,
    slug::MAX_SLUG,
    tenant::MAX_WORKSPACE_SLUG,
    use_case::{UseCaseStatus, gaps::ReferenceProvision},
    workload::{IntendedUse, WorkloadStatus},
};
use patterns::{
    ACTOR, CHECKSUM, ENTITY_TAGS, ERASED_ACTOR, ERROR_CODE, EVENT_NUMBER, GROUPING, IDEMPOTENCY_KEY, LABEL, NAME,
    OWNER, PRINCIPAL, PROSE, REASON, SECRET_REF, SLUG,
};
use serde_json::Value;
use std::collections::BTreeSet;
use utoipa::openapi::{
    OpenApi, RefOr,
    path::{Operation, Parameter},
    schema::{AdditionalProperties, Object, Schema, SchemaType, Type},
};

/// Matches every schema or operation.
const ANY: &str = "*";
/// Matches the schemas of request bodies.
const BODY: &str = "request bodies";

/// A constraint of a value.
enum Constraint {
    /// One of these values.
    Enumeration(Vec<&'static str>),
    /// A text with this pattern, a minimum length of 1 and this maximum length in characters. Bounds on the field
    /// take precedence.
    Pattern(&'static str, usize),
    /// A text with this pattern and the bounds of its field.
    Text(&'static str),
    /// The value of `If-Match`: `*` or entity tags.
    Tags,
}

/// A schema with a property, or an operation with a parameter, and its constraint.
type Entry = (&'static str, &'static str, fn() -> Constraint);

/// Constraints by schema and property.
const PROPERTIES: &[Entry] = &[
    (ANY, "lane", lanes),
    (ANY, "target_lane", target_lanes),
    (ANY, "advanced_to_lane", lanes),
    (ANY, "environment", slug),
    // The bounds of the first matching entry apply.
    ("Workspace", "slug", || Constraint::Pattern(SLUG, MAX_WORKSPACE_SLUG)),
    (ANY, "slug", slug),
    (ANY, "asset_slug", slug),
    (ANY, "namespace", slug),
    (BODY, "name", || Constraint::Text(NAME)),
    (BODY, "label", || Constraint::Text(NAME)),
    ("NewDocument", "title", || Constraint::Text(NAME)),
    (BODY, "description", || Constraint::Text(PROSE)),
    (BODY, "note", || Constraint::Text(PROSE)),
    (BODY, "change_note", || Constraint::Text(PROSE)),
    (BODY, "reason", || Constraint::Text(REASON)),
    (ANY, "asset_kind", kinds),
    ("AssetKind", "kind", kinds),
    ("Binding", "role", kinds),
    ("NewBinding", "role", kinds),
    ("BindingSection", "role", kinds),
    ("Role", "role", roles),
    ("RoleBinding", "role", roles),
    ("NewRoleBinding", "role", roles),
    (ANY, "scope_kind", || Constraint::Enumeration(vec!["platform", "tenant", "namespace", "workspace", "workload"])),
    (ANY, "owner_ref", owner),
    (ANY, "principal", principal),
    (ANY, "version_label", label),
    (ANY, "session_id", session),
    (ANY, "document_id", || Constraint::Pattern(DocumentId::PATTERN, DocumentId::MAX_CHARS)),
    (ANY, "digest", || Constraint::Pattern(CHECKSUM, 71)),
    (ANY, "checksum", || Constraint::Pattern(CHECKSUM, 71)),
    ("Asset", "lifecycle_state", lifecycles),
    ("Release", "state", states),
    ("ImpactedRelease", "state", states),
    ("ReleaseSection", "lifecycle_state", states),
    ("TransitionRequest", "to_state", states),
    ("Execution", "status", run_statuses),
    ("ExecutionSection", "status", run_statuses),
    ("ExecutionResult", "status", || {
        Constraint::Enumeration(vec![RunStatus::Completed.as_str(), RunStatus::Failed.as_str()])
    }),
    ("CodeResult", "status", || {
        one_of([RunStatus::Completed, RunStatus::Failed, RunStatus::Cancelled].map(RunStatus::as_str))
    }),
    ("RunCode", "language", || one_of(Language::ALL.map(Language::as_str))),
    ("RunCode", "workload_slug", slug),
    ("SettleRequest", "outcome", || one_of(Resolution::ALL.map(Resolution::as_str))),
    ("QueuedExecution", "state", || Constraint::Enumeration(vec![RunStatus::Queued.as_str()])),
    ("QueuedExecution", "review", pending),
    ("ReviewRequest", "outcome", || one_of(ReviewVerdict::ALL.map(ReviewVerdict::as_str))),
    ("Execution", "outcome", outcomes),
    ("ExecutionSection", "outcome", outcomes),
    ("DecisionSection", "outcome", policy_outcomes),
    ("TrialDecision", "outcome", policy_outcomes),
    ("TrialRule", "outcome", policy_outcomes),
    ("TrialRule", "holds", || one_of(ConditionResult::ALL.map(ConditionResult::as_str))),
    ("TrialClause", "holds", || one_of(ConditionResult::ALL.map(ConditionResult::as_str))),
    ("Approval", "outcome", verdicts),
    ("NewApproval", "outcome", verdicts),
    ("NewApproval", "subject_kind", subjects),
    ("Approval", "subject_kind", subjects),
    ("RolloutState", "status", || one_of(RolloutStatus::ALL.map(RolloutStatus::as_str))),
    ("Notification", "status", || one_of(InboxStatus::ALL.map(InboxStatus::as_str))),
    ("InboxStatusChange", "status", || one_of(InboxStatus::ALL.map(InboxStatus::as_str))),
    ("Notification", "severity", || one_of(Severity::ALL.map(Severity::as_str))),
    ("Destination", "destination_type", destination_types),
    ("NewDestination", "destination_type", destination_types),
    ("Destination", "scope", || Constraint::Enumeration(vec!["organization", "workspace"])),
    (BODY, "display_name", || Constraint::Text(NAME)),
    ("NewDestination", "secret_ref", secret_ref),
    ("DestinationChange", "secret_ref", secret_ref),
    (ANY, "category", categories),
    (ANY, "channel", || one_of(Channel::ALL.map(Channel::as_str))),
    ("DefaultPreference", "profile_ref", roles),
    ("EffectivePreference", "scope", deciding_scopes),
    ("SuppressedDecision", "scope", deciding_scopes),
    ("SuppressedDecision", "reason_code", || one_of(SuppressionReason::ALL.map(SuppressionReason::as_str))),
    (ANY, "invocation_mode", || one_of(IntendedUse::ALL.map(IntendedUse::as_str))),
    ("Workload", "status", workload_statuses),
    (ANY, "connector_kind", || from_domain(&ConnectorKind::ALL, ConnectorKind::as_str)),
    (ANY, "health", || from_domain(&HealthState::ALL, HealthState::as_str)),
    ("Connection", "status", connection_statuses),
    ("NewConnection", "status", connection_statuses),
    ("ConnectionChange", "status", connection_statuses),
    ("AccessRequest", "status", request_statuses),
    ("Erasure", "status", erasure_statuses),
    ("NewErasure", "subject", || Constraint::Pattern(ERASED_ACTOR, SubjectErasure::MAX_SUBJECT_CHARS)),
    ("UseCase", "status", use_case_statuses),
    ("Gap", "kind", || from_domain(&ReferenceProvision::ALL, ReferenceProvision::as_str)),
    (BODY, "source_description", || Constraint::Text(REASON)),
    ("WorkloadChange", "status", workload_statuses),
    ("GraphEvidence", "format", || Constraint::Enumeration(vec!["graph"])),
    ("Health", "status", || Constraint::Enumeration(vec!["ok"])),
    ("Readiness", "status", || Constraint::Enumeration(vec!["ready", "unready", "leaving"])),
    ("Readiness", "database", readiness),
    ("Readiness", "artifacts", readiness),
    ("Readiness", "partitions", readiness),
];

/// Constraints by operation and parameter.
const PARAMETERS: &[Entry] = &[
    (ANY, "asset_kind", kinds),
    (ANY, "kind", kinds),
    (ANY, "lifecycle_state", lifecycles),
    ("list_executions", "status", run_statuses),
    ("list_executions", "review", pending),
    ("list_executions", "error_code", || Constraint::Pattern(ERROR_CODE, MAX_ERROR_CODE)),
    ("list_executions", "submitted_by", || Constraint::Pattern(ACTOR, 138)),
    ("read_usage", "group_by", || Constraint::Pattern(GROUPING, 18)),
    ("list_workloads", "status", workload_statuses),
    ("list_access_requests", "status", request_statuses),
    ("list_erasures", "status", erasure_statuses),
    ("list_use_cases", "status", use_case_statuses),
    ("list_inbox", "status", || one_of(InboxStatus::ALL.map(InboxStatus::as_str))),
    (ANY, "category", categories),
    (ANY, "state", states),
    (ANY, "environment", slug),
    (ANY, "lane", lanes),
    (ANY, "slug", slug),
    (ANY, "owner_ref", owner),
    (ANY, "principal", principal),
    (ANY, "session_id", session),
    ("erase_session_memory", "owner", principal),
    (ANY, "origin", || one_of(Origin::ALL.map(Origin::as_str))),
    (ANY, "influence_role", || one_of(InfluenceRole::ALL.map(InfluenceRole::as_str))),
    (ANY, "action_class", || one_of(ActionClass::ALL.map(ActionClass::as_str))),
    (ANY, "format", || Constraint::Enumeration(vec!["flat", "graph"])),
    (ANY, "presentation_mode", || Constraint::Enumeration(vec!["chat", "form", "block"])),
    (ANY, "mode", || Constraint::Enumeration(vec!["async"])),
    (ANY, "include", || Constraint::Enumeration(vec!["citations"])),
    (ANY, "Idempotency-Key", || Constraint::Pattern(IDEMPOTENCY_KEY, 255)),
    (ANY, "If-Match", || Constraint::Tags),
    (ANY, "Last-Event-ID", || Constraint::Text(EVENT_NUMBER)),
];

fn destination_types() -> Constraint {
    let external = Channel::ALL.into_iter().filter(|channel| *channel != Channel::Portal);
    Constraint::Enumeration(external.map(Channel::as_str).collect())
}

fn secret_ref() -> Constraint {
    Constraint::Text(SECRET_REF)
}

fn one_of<const N: usize>(all: [&'static str; N]) -> Constraint {
    Constraint::Enumeration(all.to_vec())
}

fn pending() -> Constraint {
    Constraint::Enumeration(vec!["pending"])
}

fn lanes() -> Constraint {
    one_of(Lane::ALL.map(Lane::as_str))
}

fn target_lanes() -> Constraint {
    Constraint::Enumeration(["all"].into_iter().chain(Lane::ALL.map(Lane::as_str)).collect())
}

const fn slug() -> Constraint {
    Constraint::Pattern(SLUG, MAX_SLUG)
}

fn kinds() -> Constraint {
    one_of(AssetKind::ALL.map(AssetKind::as_str))
}

fn roles() -> Constraint {
    one_of(Role::ALL.map(|role| role.as_str()))
}

const fn owner() -> Constraint {
    Constraint::Pattern(OWNER, OwnerRef::MAX_CHARS)
}

const fn principal() -> Constraint {
    Constraint::Pattern(PRINCIPAL, ActorRef::MAX_PRINCIPAL_CHARS)
}

const fn session() -> Constraint {
    Constraint::Pattern(ConversationSessionId::PATTERN, MAX_SESSION_CHARS)
}

const fn label() -> Constraint {
    Constraint::Pattern(LABEL, VersionLabel::MAX_CHARS)
}

fn lifecycles() -> Constraint {
    one_of(Lifecycle::ALL.map(Lifecycle::as_str))
}

fn states() -> Constraint {
    one_of(StateName::ALL.map(StateName::as_str))
}

fn run_statuses() -> Constraint {
    one_of(RunStatus::ALL.map(RunStatus::as_str))
}

fn policy_outcomes() -> Constraint {
    one_of(PolicyOutcome::ALL.map(PolicyOutcome::as_str))
}

fn outcomes() -> Constraint {
    one_of(ExecutionOutcome::ALL.map(ExecutionOutcome::as_str))
}

fn verdicts() -> Constraint {
    one_of(ReleaseVerdict::ALL.map(ReleaseVerdict::as_str))
}

fn subjects() -> Constraint {
    Constraint::Enumeration(vec!["release"])
}

fn categories() -> Constraint {
    one_of(NotificationCategory::ALL.map(NotificationCategory::as_str))
}

fn deciding_scopes() -> Constraint {
    one_of(DecidingScope::ALL.map(DecidingScope::as_str))
}

fn from_domain<T: Copy>(all: &[T], as_str: fn(T) -> &'static str) -> Constraint {
    Constraint::Enumeration(all.iter().copied().map(as_str).collect())
}

fn connection_statuses() -> Constraint {
    from_domain(&ConnectionStatus::ALL, ConnectionStatus::as_str)
}

fn request_statuses() -> Constraint {
    from_domain(&AccessRequestStatus::ALL, AccessRequestStatus::as_str)
}

fn erasure_statuses() -> Constraint {
    from_domain(&ErasureStatus::ALL, ErasureStatus::as_str)
}

fn use_case_statuses() -> Constraint {
    from_domain(&UseCaseStatus::ALL, UseCaseStatus::as_str)
}

fn workload_statuses() -> Constraint {
    one_of(WorkloadStatus::ALL.map(WorkloadStatus::as_str))
}

fn readiness() -> Constraint {
    Constraint::Enumeration(vec!["ok", "unavailable"])
}

/// Adds the constraints to a document, and returns the entries that matched.
pub(super) fn add(document: &mut OpenApi) -> BTreeSet<(&'static str, &'static str)> {
    let mut matched = BTreeSet::new();
    let bodies = body_schemas(document);
    let schemas = document.components.iter_mut().flat_map(|components| components.schemas.iter_mut());
    for (schema_name, schema) in schemas {
        if let RefOr::T(schema) = schema {
            mark_open_objects(schema);
            let owners =
                if bodies.contains(schema_name) { [schema_name.as_str(), BODY] } else { [schema_name.as_str(), ANY] };
            visit_properties(schema, &mut |name, object| {
                apply_constraint(PROPERTIES, owners, name, object, &mut matched);
            });
        }
    }
    for item in document.paths.paths.values_mut() {
        for operation in super::operations_mut(item) {
            let id = operation.operation_id.clone().unwrap_or_default();
            for parameter in parameters_of(operation) {
                let name = parameter.name.clone();
                if let Some(RefOr::T(Schema::Object(object))) = &mut parameter.schema {
                    remove_null(object);
                    apply_constraint(PARAMETERS, [&id, ANY], &name, object, &mut matched);
                }
            }
        }
    }
    matched
}

/// The names of the schemas of request bodies.
fn body_schemas(document: &mut OpenApi) -> BTreeSet<String> {
    let operations = document.paths.paths.values_mut().flat_map(super::operations_mut);
    let bodies = operations.filter_map(|operation| match &operation.request_body {
        Some(RefOr::T(body)) => Some(body),
        Some(RefOr::Ref(_)) | None => None,
    });
    let contents = bodies.flat_map(|body| body.content.values()).filter_map(|content| match content {
        RefOr::T(content) => content.schema.as_ref(),
        RefOr::Ref(_) => None,
    });
    let name = |schema: &RefOr<Schema>| match schema {
        RefOr::Ref(reference) => reference.ref_location.rsplit('/').next().map(str::to_owned),
        RefOr::T(_) => None,
    };
    contents.filter_map(name).collect()
}

fn parameters_of(operation: &mut Operation) -> impl Iterator<Item = &mut Parameter> {
    operation.parameters.iter_mut().flatten().filter_map(|parameter| match parameter {
        RefOr::T(parameter) => Some(parameter),
        RefOr::Ref(_) => None,
    })
}

/// Marks objects without described members as open: some clients would treat them as empty.
fn mark_open_objects(schema: &mut Schema) {
    let parts: Vec<&mut RefOr<Schema>> = match schema {
        Schema::Object(object) => {
            let is_object = match &object.schema_type {
                SchemaType::Type(schema_type) => matches!(schema_type, Type::Object),
                SchemaType::Array(types) => types.iter().any(|schema_type| matches!(schema_type, Type::Object)),
                SchemaType::AnyValue => false,
            };
            if is_object && object.properties.is_empty() && object.additional_properties.is_none() {
                object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(true)));
            }
            object.properties.values_mut().collect()
        }
        Schema::OneOf(one) => one.items.iter_mut().collect(),
        Schema::AllOf(all) => all.items.iter_mut().collect(),
        Schema::AnyOf(any) => any.items.iter_mut().collect(),
        // Schemas of arrays contain no objects with undeclared fields. The wildcard is for variants that a later
        // version of the library adds.
        Schema::Array(_) | _ => Vec::new(),
    };
    for part in parts {
        if let RefOr::T(part) = part {
            mark_open_objects(part);
        }
    }
}

/// Removes null from the type of a parameter, because a request cannot send null as a parameter.
fn remove_null(object: &mut Object) {
    if let SchemaType::Array(types) = &object.schema_type {
        let mut non_null = types.iter().filter(|schema_type| !matches!(schema_type, Type::Null)).cloned();
        if let (Some(single), None) = (non_null.next(), non_null.next()) {
            object.schema_type = SchemaType::Type(single);
        }
    }
}

/// Visits the properties of a schema and of its parts.
fn visit_properties(schema: &mut Schema, visit: &mut dyn FnMut(&str, &mut Object)) {
    let parts = match schema {
        Schema::Object(object) => {
            for (name, property) in &mut object.properties {
                if let RefOr::T(Schema::Object(property)) = property {
                    visit(name, property);
                }
            }
            return;
        }
        Schema::OneOf(one) => &mut one.items,
        Schema::AllOf(all) => &mut all.items,
        Schema::AnyOf(any) => &mut any.items,
        // The library may add further variants.
        Schema::Array(_) | _ => return,
    };
    for part in parts {
        if let RefOr::T(part) = part {
            visit_properties(part, visit);
        }
    }
}

fn apply_constraint(
    entries: &[Entry],
    owners: [&str; 2],
    name: &str,
    object: &mut Object,
    matched: &mut BTreeSet<(&'static str, &'static str)>,
) {
    let types = match &object.schema_type {
        SchemaType::Type(single) => std::slice::from_ref(single),
        SchemaType::Array(types) => types.as_slice(),
        SchemaType::AnyValue => &[],
    };
    let has_type = |expected: &Type| types.contains(expected);
    let null = has_type(&Type::Null);
    if !has_type(&Type::String) || object.format.is_some() {
        return;
    }
    for (schema, property, constraint) in entries {
        if *property != name || (*schema != ANY && !owners.contains(schema)) {
            continue;
        }
        matched.insert((*schema, *property));
        match constraint() {
            Constraint::Enumeration(values) => {
                let null = null.then_some(Value::Null);
                object.enum_values = Some(values.into_iter().map(Value::from).chain(null).collect());
            }
            Constraint::Pattern(pattern, max_length) => {
                object.pattern = Some(pattern.to_owned());
                object.min_length.get_or_insert(1);
                object.max_length.get_or_insert(max_length);
            }
            Constraint::Text(pattern) => object.pattern = Some(pattern.to_owned()),
            Constraint::Tags => {
                object.pattern = Some(ENTITY_TAGS.to_owned());
                object.examples = vec![Value::from("\"1\"")];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constraint_matches_a_property() {
        let mut document = crate::openapi::document();
        let matched = add(&mut document);
        let entries: BTreeSet<(&str, &str)> =
            PROPERTIES.iter().chain(PARAMETERS).map(|(schema, name, _)| (*schema, *name)).collect();
        let unmatched: Vec<_> = entries.difference(&matched).collect();
        assert!(unmatched.is_empty(), "{unmatched:?}");
    }
}
