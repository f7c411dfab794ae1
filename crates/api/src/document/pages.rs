//! Routes without handlers that describe themselves: the document, its pages, and the pages that others may frame.

#![expect(dead_code, reason = "only their description is used")]

use super::{ErrorBody, ReadRefusals, ServiceRefusals, TokenParams};

/// This document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "read_document",
    tag = "service",
    responses((status = 200, description = "An OpenAPI 3.1 document", body = Value), ServiceRefusals)
)]
pub(super) fn read_document() {}

/// This document as pages for people. They load nothing from elsewhere.
#[utoipa::path(
    get,
    path = "/docs/",
    operation_id = "read_reference",
    tag = "service",
    responses((status = 200, description = "The first page", body = String, content_type = "text/html"), ServiceRefusals)
)]
pub(super) fn read_reference() {}

/// A runtime interface as a page that other sites may frame: of `ticket-classifier` and of the workloads that the server's
/// settings name. Refusals are pages too.
#[utoipa::path(
    get,
    path = "/{slug}",
    operation_id = "read_page",
    tag = "workloads",
    params(("slug" = String, Path, description = "The workload's slug"), TokenParams),
    responses(
        (status = 200, description = "The page", body = String, content_type = "text/html"),
        ReadRefusals,
        (status = 401, description = "The page is not open to you", body = String, content_type = "text/html"),
        (status = 404, description = "There is no such page; a page itself for whom `Accept` prefers one", body = ErrorBody),
        (status = 429, description = "You ask too often", body = String, content_type = "text/html"),
        (status = 500, description = "A fault of the server", body = String, content_type = "text/html"),
        (
            status = 503,
            description = "A dependency is away; try again after `Retry-After`",
            body = String,
            content_type = "text/html"
        ),
    )
)]
pub(super) fn read_page() {}
