//! Adds response headers to the OpenAPI document by rules, because handlers describe only bodies.

use crate::http::{
    idempotency::IDEMPOTENCY_REPLAYED,
    paging::{TOTAL_COUNT, TOTAL_COUNT_CAPPED},
    rate_limit_headers::{RATE_LIMIT_HEADER, RATE_LIMIT_REMAINING_HEADER, RATE_LIMIT_RESET_HEADER},
    request_id_log_and_metrics::REQUEST_ID,
};
use actix_web::http::header::{self, HeaderName};
use utoipa::openapi::{
    KnownFormat, OpenApi, Ref, RefOr, SchemaFormat,
    content::Content,
    header::{Header, HeaderBuilder},
    path::Operation,
    schema::{ArrayItems, ObjectBuilder, Schema, Type},
};

/// Schemas of bodies whose responses carry an `ETag`.
const ETAG_SCHEMAS: [&str; 19] = [
    "AccessRequest",
    "Approval",
    "Asset",
    "Binding",
    "Connection",
    "ConnectionDetail",
    "Destination",
    "EnvironmentSettings",
    "Erasure",
    "Flow",
    "Notification",
    "NotificationProfile",
    "Refinement",
    "ReleaseDetail",
    "RolloutAdvance",
    "TenantSettings",
    "Transition",
    "UseCase",
    "Workload",
];

/// Item schemas of lists that form one resource with one `ETag`.
const ETAG_ITEM_SCHEMAS: [&str; 2] = ["DefaultPreference", "NotificationPreference"];

/// A response header with its schema and description.
struct HeaderDescription {
    name: HeaderName,
    schema: ObjectBuilder,
    description: &'static str,
}

fn described_headers() -> Vec<HeaderDescription> {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let count = || ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
    let flag = || text().enum_values(Some(["true"]));
    let describe = |name, schema, description| HeaderDescription { name, schema, description };
    let id = text().format(Some(SchemaFormat::KnownFormat(KnownFormat::Uuid)));
    vec![
        describe(REQUEST_ID, id, "The identifier of the request, as in the log and in audit events."),
        describe(header::ETAG, text(), "The revision, for `If-Match`."),
        describe(header::LOCATION, text(), "The URL of the resource."),
        describe(header::CONTENT_LOCATION, text(), "The URL of the run's events, if the response is an event stream."),
        describe(header::LINK, text(), "The URL of the next page as `rel=\"next\"`, if there is one."),
        describe(TOTAL_COUNT, count(), "The length of the list, counted up to 10000."),
        describe(TOTAL_COUNT_CAPPED, flag(), "The list is longer than the count."),
        describe(header::RETRY_AFTER, count(), "Seconds to wait before a retry."),
        describe(RATE_LIMIT_HEADER, count(), "Allowed requests per minute."),
        describe(RATE_LIMIT_REMAINING_HEADER, count(), "Remaining requests."),
        describe(RATE_LIMIT_RESET_HEADER, count(), "Seconds until the next allowed request."),
        describe(
            IDEMPOTENCY_REPLAYED,
            flag(),
            "An earlier request with the same key had the effect. The resource is shown as it is now.",
        ),
    ]
}

/// Adds the headers to the components and to all operations.
pub(super) fn add(document: &mut OpenApi) {
    let components = document.components.get_or_insert_default();
    for HeaderDescription { name, schema, description } in described_headers() {
        let header: Header = HeaderBuilder::new().schema(Some(schema.build())).description(Some(description)).build();
        components.headers.insert(name.to_string(), RefOr::T(header));
    }
    for item in document.paths.paths.values_mut() {
        super::operations_mut(item).for_each(add_to_operation);
    }
}

fn add_to_operation(operation: &mut Operation) {
    let has_parameter = |name: &str| {
        operation.parameters.iter().flatten().any(|item| matches!(item, RefOr::T(parameter) if parameter.name == name))
    };
    let is_execute = operation.operation_id.as_deref() == Some("execute_workload");
    // The idempotency key of a refinement is in its body. A replay creates nothing, so its status is 200.
    let is_refine = operation.operation_id.as_deref() == Some("refine_use_case");
    // Lists with a `cursor` parameter have page headers. A lineage page has that metadata in its body instead.
    let (has_cursor, has_key) = (has_parameter("cursor"), has_parameter("Idempotency-Key"));
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        let is_success = status.starts_with('2');
        let carries_etag = is_success && response.content.values().any(has_etag);
        let names = [
            (REQUEST_ID, true),
            (header::ETAG, carries_etag),
            (header::LOCATION, ["201", "202"].contains(&status.as_str())),
            (header::CONTENT_LOCATION, is_execute && status == "200"),
            (header::LINK, is_success && has_cursor),
            (TOTAL_COUNT, is_success && has_cursor),
            (TOTAL_COUNT_CAPPED, is_success && has_cursor),
            (header::RETRY_AFTER, ["429", "503"].contains(&status.as_str())),
            (RATE_LIMIT_HEADER, status == "429"),
            (RATE_LIMIT_REMAINING_HEADER, status == "429"),
            (RATE_LIMIT_RESET_HEADER, status == "429"),
            // Failed runs are replayed too, so error responses may have this header.
            (IDEMPOTENCY_REPLAYED, has_key || (is_refine && status == "200")),
        ];
        for (name, _) in names.into_iter().filter(|(_, is_present)| *is_present) {
            let reference = Ref::new(format!("#/components/headers/{name}"));
            response.headers.insert(name.to_string(), RefOr::Ref(reference));
        }
    }
}

fn has_etag(content: &RefOr<Content>) -> bool {
    let (reference, names) = match content {
        RefOr::T(Content { schema: Some(RefOr::Ref(schema)), .. }) => (schema, &ETAG_SCHEMAS[..]),
        RefOr::T(Content { schema: Some(RefOr::T(Schema::Array(list))), .. }) => match &list.items {
            ArrayItems::RefOrSchema(items) => match &**items {
                RefOr::Ref(items) => (items, &ETAG_ITEM_SCHEMAS[..]),
                RefOr::T(_) => return false,
            },
            ArrayItems::False => return false,
        },
        RefOr::T(_) | RefOr::Ref(_) => return false,
    };
    reference.ref_location.rsplit('/').next().is_some_and(|name| names.contains(&name))
}
