//! Adds response headers to the OpenAPI document by rules, because handlers describe only bodies.

use crate::http::{
    idempotency::IDEMPOTENCY_REPLAYED,
    outermost_middleware::REQUEST_ID,
    paging::{TOTAL_COUNT, TOTAL_COUNT_CAPPED},
    rate_limit_headers::{RATE_LIMIT_HEADER, RATE_LIMIT_REMAINING_HEADER, RATE_LIMIT_RESET_HEADER},
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
    let whole = || ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
    let truth = || text().enum_values(Some(["true"]));
    let described = |name, schema, what| HeaderDescription { name, schema, description: what };
    let id = text().format(Some(SchemaFormat::KnownFormat(KnownFormat::Uuid)));
    vec![
        described(REQUEST_ID, id, "The identifier of the request, as in the log and in audit events."),
        described(header::ETAG, text(), "The revision, for `If-Match`."),
        described(header::LOCATION, text(), "The URL of the resource."),
        described(header::CONTENT_LOCATION, text(), "The URL of the run's events, if the response is an event stream."),
        described(header::LINK, text(), "The URL of the next page as `rel=\"next\"`, if there is one."),
        described(TOTAL_COUNT, whole(), "The length of the list, counted up to 10000."),
        described(TOTAL_COUNT_CAPPED, truth(), "The list is longer than the count."),
        described(header::RETRY_AFTER, whole(), "Seconds to wait before a retry."),
        described(RATE_LIMIT_HEADER, whole(), "Allowed requests per minute."),
        described(RATE_LIMIT_REMAINING_HEADER, whole(), "Remaining requests."),
        described(RATE_LIMIT_RESET_HEADER, whole(), "Seconds until the next allowed request."),
        described(IDEMPOTENCY_REPLAYED, truth(), "The response is that of an earlier request with the same key."),
    ]
}

/// Adds the headers to the components and to all operations.
pub(super) fn add(document: &mut OpenApi) {
    let components = document.components.get_or_insert_default();
    for HeaderDescription { name, schema, description: what } in described_headers() {
        let header: Header = HeaderBuilder::new().schema(Some(schema.build())).description(Some(what)).build();
        components.headers.insert(name.to_string(), RefOr::T(header));
    }
    for item in document.paths.paths.values_mut() {
        super::operations_mut(item).for_each(add_to_operation);
    }
}

fn add_to_operation(operation: &mut Operation) {
    let named = |name: &str| {
        operation.parameters.iter().flatten().any(|one| matches!(one, RefOr::T(parameter) if parameter.name == name))
    };
    let executes = operation.operation_id.as_deref() == Some("execute_workload");
    // The idempotency key of a refinement is in its body. A replay creates nothing, so its status is 200.
    let refines = operation.operation_id.as_deref() == Some("refine_use_case");
    // Lists with a `cursor` parameter have page headers. A lineage page has that metadata in its body instead.
    let (lists, keyed) = (named("cursor"), named("Idempotency-Key"));
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        let succeeds = status.starts_with('2');
        let tagged = succeeds && response.content.values().any(has_etag);
        let names = [
            (REQUEST_ID, true),
            (header::ETAG, tagged),
            (header::LOCATION, ["201", "202"].contains(&status.as_str())),
            (header::CONTENT_LOCATION, executes && status == "200"),
            (header::LINK, succeeds && lists),
            (TOTAL_COUNT, succeeds && lists),
            (TOTAL_COUNT_CAPPED, succeeds && lists),
            (header::RETRY_AFTER, ["429", "503"].contains(&status.as_str())),
            (RATE_LIMIT_HEADER, status == "429"),
            (RATE_LIMIT_REMAINING_HEADER, status == "429"),
            (RATE_LIMIT_RESET_HEADER, status == "429"),
            // Failed runs are replayed too, so error responses may have this header.
            (IDEMPOTENCY_REPLAYED, keyed || (refines && status == "200")),
        ];
        for (name, _) in names.into_iter().filter(|(_, there)| *there) {
            let of = Ref::new(format!("#/components/headers/{name}"));
            response.headers.insert(name.to_string(), RefOr::Ref(of));
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
