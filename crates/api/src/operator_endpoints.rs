//! The routes for operators and probes: liveness, readiness and metrics.

use crate::{
    compose::Api,
    error::ApiError,
    http::{HttpState, proxy_detection::is_forwarded, shutdown_signal::ShutdownStateInBody},
    openapi::{ErrorBody, RefusalsWithoutIdentity},
};
use actix_web::{HttpRequest, HttpResponse, get, http::StatusCode, web};
use serde::Serialize;
use utoipa::ToSchema;

/// The liveness of the process.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// Always `ok`.
    status: &'static str,
}

/// The readiness of the service and its dependencies. A forwarded request gets only `status`.
#[derive(Serialize, ToSchema)]
pub(crate) struct Readiness {
    /// `ready`, `unready`, or `leaving` during shutdown.
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    database: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    artifacts: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    partitions: Option<&'static str>,
}

/// Reads the liveness of the process.
#[utoipa::path(
    operation_id = "healthz",
    tag = "service",
    responses((status = 200, description = "The process is alive", body = Health), RefusalsWithoutIdentity)
)]
#[get("/healthz")]
pub(crate) async fn healthz() -> HttpResponse {
    HttpResponse::Ok().json(Health { status: "ok" })
}

/// Reads the readiness of the service.
#[utoipa::path(
    operation_id = "readyz",
    tag = "service",
    responses(
        (status = 200, description = "All dependencies are available", body = Readiness),
        (status = 503, description = "A dependency is unavailable, or the process is shutting down", body = Readiness),
        RefusalsWithoutIdentity,
    )
)]
#[get("/readyz")]
pub(crate) async fn readyz(request: HttpRequest, api: web::Data<Api>, base: web::Data<HttpState>) -> HttpResponse {
    let readiness = api.readiness().await;
    let shows_parts = !is_external(&api, &request);
    let part_status = |is_available: bool| shows_parts.then_some(if is_available { "ok" } else { "unavailable" });
    let is_ready = readiness.database && readiness.artifacts && readiness.partitions;
    let is_shutting_down = base.shutdown.is_announced();
    let (status, state) = match (is_ready, is_shutting_down) {
        (true, false) => (StatusCode::OK, "ready"),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "unready"),
        (true | false, true) => (StatusCode::SERVICE_UNAVAILABLE, "leaving"),
    };
    let mut response = HttpResponse::build(status).json(Readiness {
        status: state,
        database: part_status(readiness.database),
        artifacts: part_status(readiness.artifacts),
        partitions: part_status(readiness.partitions),
    });
    response.extensions_mut().insert(ShutdownStateInBody(is_shutting_down));
    response
}

/// Reads the metrics in the Prometheus text format.
#[utoipa::path(
    operation_id = "metrics",
    tag = "service",
    responses(
        (status = 200, description = "The metrics", body = String, content_type = "text/plain"),
        (status = 404, description = "A proxy forwarded the request", body = ErrorBody),
        RefusalsWithoutIdentity,
    )
)]
#[get("/metrics")]
pub(crate) async fn metrics(request: HttpRequest, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    if is_external(&api, &request) {
        return Err(ApiError::not_found());
    }
    let text = api.metrics.render().map_err(|error| ApiError::internal().log_cause(&error))?;
    Ok(HttpResponse::Ok().content_type("text/plain; version=0.0.4").body(text))
}

fn is_external(api: &Api, request: &HttpRequest) -> bool {
    let is_loopback_peer = request.peer_addr().is_some_and(|peer| peer.ip().is_loopback());
    !api.mode.is_local_operator_request(is_forwarded(request), is_loopback_peer)
}
