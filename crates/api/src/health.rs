//! Whether the service lives, is ready, and how it does.

use crate::{
    compose::Api,
    document::ServiceRefusals,
    error::ApiError,
    http::{HttpBase, leaving::SaidLeaving},
};
use actix_web::{HttpResponse, get, http::StatusCode, web};
use serde::Serialize;
use utoipa::ToSchema;

/// The process answers.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`.
    status: &'static str,
}

/// What the service needs, and whether it has it.
#[derive(Serialize, ToSchema)]
pub(crate) struct Readiness {
    /// `ready`, `unready`, or `leaving` when the process is about to end.
    status: &'static str,
    database: &'static str,
    artifacts: &'static str,
    partitions: &'static str,
}

/// Whether the process lives.
#[utoipa::path(
    operation_id = "healthz",
    tag = "service",
    responses((status = 200, description = "It does", body = Health), ServiceRefusals)
)]
#[get("/healthz")]
pub(crate) async fn healthz() -> HttpResponse {
    HttpResponse::Ok().json(Health { status: "ok" })
}

/// Whether everything that the service needs is there.
#[utoipa::path(
    operation_id = "readyz",
    tag = "service",
    responses(
        (status = 200, description = "Everything is there", body = Readiness),
        (status = 503, description = "Something is away, or the process is about to end", body = Readiness),
        ServiceRefusals,
    )
)]
#[get("/readyz")]
pub(crate) async fn readyz(api: web::Data<Api>, base: web::Data<HttpBase>) -> HttpResponse {
    let readiness = api.readiness().await;
    let say = |well: bool| if well { "ok" } else { "unavailable" };
    let everything = readiness.database && readiness.artifacts && readiness.partitions;
    let leaving = base.leaving.is_announced();
    let (status, word) = match (everything, leaving) {
        (true, false) => (StatusCode::OK, "ready"),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "unready"),
        (true | false, true) => (StatusCode::SERVICE_UNAVAILABLE, "leaving"),
    };
    let mut answer = HttpResponse::build(status).json(Readiness {
        status: word,
        database: say(readiness.database),
        artifacts: say(readiness.artifacts),
        partitions: say(readiness.partitions),
    });
    answer.extensions_mut().insert(SaidLeaving(leaving));
    answer
}

/// Counters and timings in the Prometheus text format.
#[utoipa::path(
    operation_id = "metrics",
    tag = "service",
    responses((status = 200, description = "The metrics", body = String, content_type = "text/plain"), ServiceRefusals)
)]
#[get("/metrics")]
pub(crate) async fn metrics(api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let text = api.metrics.render().map_err(|error| ApiError::internal().caused_by(&error))?;
    Ok(HttpResponse::Ok().content_type("text/plain; version=0.0.4").body(text))
}
