//! OpenAPI descriptions of routes whose handlers have none: the OpenAPI document, the documentation pages and the
//! embeddable pages.

#![expect(dead_code, reason = "only their description is used")]

use super::{ErrorBody, ReadRefusals, RefusalsWithoutIdentity, ShareTokenParams};

/// Reads this OpenAPI document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "read_document",
    tag = "service",
    responses((status = 200, description = "An OpenAPI 3.1 document", body = Value), RefusalsWithoutIdentity)
)]
pub(super) fn read_document() {}

/// Reads this document as HTML pages, without resources of other servers.
#[utoipa::path(
    get,
    path = "/docs/",
    operation_id = "read_reference",
    tag = "service",
    responses((status = 200, description = "The start page", body = String, content_type = "text/html"), RefusalsWithoutIdentity)
)]
pub(super) fn read_reference() {}

/// Reads a runtime interface as an embeddable page, for `ticket-classifier` and the workloads in the server's settings.
/// Errors are pages too.
#[utoipa::path(
    get,
    path = "/{slug}",
    operation_id = "read_page",
    tag = "workloads",
    params(("slug" = String, Path, description = "The workload's slug"), ShareTokenParams),
    responses(
        (status = 200, description = "The page", body = String, content_type = "text/html"),
        ReadRefusals,
        (status = 401, description = "The page requires a valid share token", body = String, content_type = "text/html"),
        (status = 404, description = "The page does not exist; the response is HTML if `Accept` prefers it", body = ErrorBody),
        (status = 429, description = "The rate limit is exceeded", body = String, content_type = "text/html"),
        (status = 500, description = "The server failed", body = String, content_type = "text/html"),
        (
            status = 503,
            description = "A dependency is unavailable; try again after `Retry-After`",
            body = String,
            content_type = "text/html"
        ),
    )
)]
pub(super) fn read_page() {}
