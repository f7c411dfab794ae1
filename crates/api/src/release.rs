//! Routes of releases.

pub(crate) mod active_release_body_cache;
pub(crate) mod request;
pub(crate) mod rollback;
pub(crate) mod transition_artifact;
mod view;

use crate::{
    caller::{IdentifiedCaller, UnverifiedClaims},
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{
        body::Body,
        etag::IfMatch,
        idempotency::IdempotencyHeader,
        paging::{ListRequest, NoFilter},
        path::{Path, PathId},
        query::Query,
        request_id_log_and_metrics::request_id_or_new,
    },
    note_field::parse_note,
    openapi::{
        DeleteRefusals, IdempotencyKeyParams, IfMatchParams, PageParams, ReadRefusals, RevisionRefusal, WriteRefusals,
    },
    response::ResourceResponse,
    rollout,
};
use active_release_body_cache::{BodyKey, CachedBody};
use actix_web::{HttpResponse, delete, get, http::StatusCode, http::header::ContentType, post, web};
use fairway_domain::{
    id::{BindingId, ReleaseId, WorkloadId},
    release::{StateName, lane::Lane},
    slug::Slug,
};
use fairway_operations::{
    Failure,
    access::IdentityClaims,
    release::{ActiveReleaseQuery, ReleaseDraft, ReleaseQuery, Transition},
};
use request::{NewApproval, NewBinding, NewRelease, TransitionRequest};
use serde::Deserialize;
use std::sync::Arc;
use utoipa::IntoParams;
use uuid::Uuid;
use view::{ApprovalView, BindingView, GateView, LaneView, ReleaseDetail, ReleaseView, TransitionView};

/// Filters of the list of releases.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReleaseListQuery {
    /// Only releases of this workspace's workloads.
    workspace_id: Option<Uuid>,
    /// Only releases of this workload.
    workload_id: Option<Uuid>,
    /// Only releases in this environment.
    environment: Option<String>,
    /// Only releases in this state: `draft`, `review_ready`, `approved`, `active`, `superseded` or `retired`.
    state: Option<String>,
}

/// The environment and lane of an active release.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ActiveQuery {
    /// Slug of the environment in which the release serves.
    environment: String,
    /// Only the holder of this lane. By default the holder of `standard`, else of `guided`, else of `restricted`.
    lane: Option<String>,
}

/// The environment of the lanes.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LanesQuery {
    /// Slug of the environment whose lanes are listed.
    environment: String,
}

pub(crate) fn parse_environment(text: &str) -> Result<Slug, FieldProblem> {
    let to_problem = |refusal: fairway_domain::slug::SlugRefusal| {
        FieldProblem::new("environment", refusal.code(), format!("an environment must be a slug: {refusal}"))
    };
    Slug::parse(text).map_err(to_problem)
}

pub(crate) fn parse_lane(text: Option<&str>) -> Result<Option<Lane>, FieldProblem> {
    text.map(|text| Lane::parse(text).ok_or_else(|| FieldProblem::invalid("lane"))).transpose()
}

/// Creates a draft release of a workload for one environment.
#[utoipa::path(
    operation_id = "create_release",
    tag = "releases",
    params(IdempotencyKeyParams),
    request_body = NewRelease,
    responses((status = 201, description = "The new draft", body = ReleaseDetail), WriteRefusals)
)]
#[post("/v1/releases")]
pub(crate) async fn create_release(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    idempotency: IdempotencyHeader,
    body: Body<NewRelease>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let new = body.into_inner();
    let target = new.target_lane.as_deref().unwrap_or("all");
    let mut fields = FieldErrors::default();
    let environment = fields.check(parse_environment(&new.environment));
    let target = fields.check(request::parse_target(target));
    let draft = fields.finish(|| {
        Some(ReleaseDraft {
            workload_id: new.workload_id.into(),
            environment: environment?,
            target_lane: target?,
            policy_bundle_id: new.policy_bundle_id.map(Into::into),
        })
    })?;
    let outcome = api.services.releases.create_release(&caller, draft, key.as_ref()).await?;
    let view = ReleaseDetail::of(&outcome.value);
    let location = format!("/v1/releases/{}", outcome.value.release.release_id);
    Ok(ResourceResponse::created(&outcome, &view, location)?.with_etag(outcome.value.release.revision).into_response())
}

/// Lists releases without their bindings, newest first.
#[utoipa::path(
    operation_id = "list_releases",
    tag = "releases",
    params(ReleaseListQuery, PageParams),
    responses((status = 200, description = "A page of releases", body = Vec<ReleaseView>), ReadRefusals)
)]
#[get("/v1/releases")]
pub(crate) async fn list_releases(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<ReleaseListQuery>,
) -> Result<HttpResponse, ApiError> {
    let state = list.filter.state.as_deref();
    let state = state.map(|text| StateName::parse(text).ok_or_else(|| FieldProblem::invalid("state"))).transpose();
    let mut fields = FieldErrors::default();
    let environment = fields.check(list.filter.environment.as_deref().map(parse_environment).transpose());
    let state = fields.check(state);
    let (environment, state) = fields.finish(|| Some((environment?, state?)))?;
    let filter = ReleaseQuery {
        workspace_id: list.filter.workspace_id.map(Into::into),
        workload_id: list.filter.workload_id.map(Into::into),
        environment,
        state,
    };
    let releases = api.services.releases.list_releases(&caller, filter, list.paging()).await?;
    Ok(list.respond(&releases.map(|release| ReleaseView::of(&release))))
}

/// Lists the releases of a workload without their bindings, newest first.
#[utoipa::path(
    operation_id = "list_workload_releases",
    tag = "releases",
    params(("workload_id" = Uuid, Path, description = "The workload"), PageParams),
    responses((status = 200, description = "A page of releases", body = Vec<ReleaseView>), ReadRefusals)
)]
#[get("/v1/workloads/{workload_id}/releases")]
pub(crate) async fn list_workload_releases(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    workload: PathId<WorkloadId>,
    list: ListRequest<NoFilter>,
) -> Result<HttpResponse, ApiError> {
    let releases = api.services.releases.list_workload_releases(&caller, *workload, list.paging()).await?;
    Ok(list.respond(&releases.map(|release| ReleaseView::of(&release))))
}

/// Reads the release that serves a workload in an environment.
#[utoipa::path(
    operation_id = "read_active_release",
    tag = "releases",
    params(("workload_id" = Uuid, Path, description = "The workload"), ActiveQuery),
    responses((status = 200, description = "The release", body = ReleaseDetail), ReadRefusals)
)]
#[get("/v1/workloads/{workload_id}/active-release")]
pub(crate) async fn read_active_release(
    api: web::Data<Api>,
    claims: UnverifiedClaims,
    workload: PathId<WorkloadId>,
    query: Query<ActiveQuery>,
) -> Result<HttpResponse, ApiError> {
    let mut fields = FieldErrors::default();
    let (environment, lane) =
        (fields.check(parse_environment(&query.environment)), fields.check(parse_lane(query.lane.as_deref())));
    let (environment, lane) = fields.finish(|| Some((environment?, lane?)))?;
    let query = ActiveReleaseQuery { workload: *workload, environment: &environment, lane };
    let body = active_release_body(&api, &claims.0, &query).await?;
    Ok(HttpResponse::Ok().content_type(ContentType::json()).body(body.to_string()))
}

/// The body of an active release, from the cache if it is current.
async fn active_release_body(
    api: &Api,
    claims: &IdentityClaims,
    query: &ActiveReleaseQuery<'_>,
) -> Result<Arc<str>, ApiError> {
    let releases = &api.services.releases;
    let key = BodyKey::new(claims, query);
    if let Some(cached) = api.active_release_body_cache.get(&key) {
        if releases.is_active_release_current(&cached.version).await? {
            return Ok(cached.text);
        }
        api.active_release_body_cache.remove(&key);
    }
    let (active, version) = releases.active_release(api.mode, claims, request_id_or_new(), query).await?;
    let text = serde_json::to_string(&ReleaseDetail::of(&active.release))
        .map_err(|_| Failure::Inconsistent("a release that cannot be written as JSON"))?;
    let body = CachedBody { text: text.into(), version: Arc::new(version) };
    api.active_release_body_cache.insert(key, body.clone());
    Ok(body.text)
}

/// Reads a release with its bindings.
#[utoipa::path(
    operation_id = "read_release",
    tag = "releases",
    params(("release_id" = Uuid, Path, description = "The release")),
    responses((status = 200, description = "The release", body = ReleaseDetail), ReadRefusals)
)]
#[get("/v1/releases/{release_id}")]
pub(crate) async fn read_release(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    release: PathId<ReleaseId>,
) -> Result<HttpResponse, ApiError> {
    let (detail, use_case) = api.services.releases.read_release_with_origin(&caller, *release).await?;
    let view = ReleaseDetail::of(&detail).with_use_case(use_case);
    Ok(ResourceResponse::ok(&view).with_etag(detail.release.revision).into_response())
}

/// Evaluates the gates of each next state of a release, as the transition itself does.
///
/// Until the release is approved, each condition that would refuse the activation is a gate of the next state with the
/// verdict `warn`.
#[utoipa::path(
    operation_id = "read_release_gates",
    tag = "releases",
    params(("release_id" = Uuid, Path, description = "The release")),
    responses((status = 200, description = "All gates of each next state", body = Vec<GateView>), ReadRefusals)
)]
#[get("/v1/releases/{release_id}/gates")]
pub(crate) async fn read_release_gates(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    release: PathId<ReleaseId>,
) -> Result<HttpResponse, ApiError> {
    let gates = api.services.releases.release_gates(&caller, *release).await?;
    Ok(ResourceResponse::ok(&gates.iter().map(GateView::of).collect::<Vec<_>>()).into_response())
}

/// Binds a version to a draft release.
#[utoipa::path(
    operation_id = "bind_version",
    tag = "releases",
    params(("release_id" = Uuid, Path, description = "The release"), IdempotencyKeyParams),
    request_body = NewBinding,
    responses((status = 201, description = "The binding", body = BindingView), WriteRefusals)
)]
#[post("/v1/releases/{release_id}/bindings")]
pub(crate) async fn bind_version(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    release: PathId<ReleaseId>,
    idempotency: IdempotencyHeader,
    body: Body<NewBinding>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let new = body.into_inner();
    let role = request::parse_binding_role(&new.role)?;
    let version = new.asset_version_id.into();
    let outcome = api.services.releases.bind_version(&caller, *release, version, role, key.as_ref()).await?;
    let (release, binding) = &outcome.value;
    let view = BindingView::of(release.release_id, binding);
    let location = format!("/v1/releases/{}", release.release_id);
    Ok(ResourceResponse::created(&outcome, &view, location)?.with_etag(release.revision).into_response())
}

/// Removes a binding from a draft release.
#[utoipa::path(
    operation_id = "unbind_version",
    tag = "releases",
    params(
        ("release_id" = Uuid, Path, description = "The release"),
        ("binding_id" = Uuid, Path, description = "The binding"),
    ),
    responses((status = 204, description = "The binding is removed"), DeleteRefusals)
)]
#[delete("/v1/releases/{release_id}/bindings/{binding_id}")]
pub(crate) async fn unbind_version(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<ReleaseId>, PathId<BindingId>)>,
) -> Result<HttpResponse, ApiError> {
    let (release, binding) = path.into_inner();
    api.services.releases.unbind_version(&caller, *release, *binding).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Lists the lanes of a workload in an environment, with their current holders and the newest former ones.
#[utoipa::path(
    operation_id = "list_lanes",
    tag = "releases",
    params(("workload_id" = Uuid, Path, description = "The workload"), LanesQuery),
    responses((status = 200, description = "All lanes, the most restricted first", body = Vec<LaneView>), ReadRefusals)
)]
#[get("/v1/workloads/{workload_id}/lanes")]
pub(crate) async fn list_lanes(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    workload: PathId<WorkloadId>,
    query: Query<LanesQuery>,
) -> Result<HttpResponse, ApiError> {
    let environment = parse_environment(&query.environment)?;
    let lanes = api.services.releases.list_lanes(&caller, *workload, &environment).await?;
    Ok(ResourceResponse::ok(&lanes.iter().map(LaneView::of).collect::<Vec<_>>()).into_response())
}

/// Transitions a release to another state.
#[utoipa::path(
    operation_id = "transition_release",
    tag = "releases",
    params(("release_id" = Uuid, Path, description = "The release"), IdempotencyKeyParams, IfMatchParams),
    request_body = TransitionRequest,
    responses((status = 200, description = "The release in its new state", body = TransitionView), RevisionRefusal, WriteRefusals)
)]
#[post("/v1/releases/{release_id}/transition")]
pub(crate) async fn transition_release(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    release: PathId<ReleaseId>,
    idempotency: IdempotencyHeader,
    expected: IfMatch,
    body: Body<TransitionRequest>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let mut fields = FieldErrors::default();
    let target_state = fields.check(request::parse_state(&body.to_state));
    let lane = fields.check(parse_lane(body.lane.as_deref()));
    let selection = rollout::lane_selection(&mut fields, lane.flatten(), body.rollout_plan.as_ref());
    let transition = fields.finish(|| Some(Transition { to: target_state?, lanes: selection? }))?;
    let outcome =
        api.services.releases.transition_release(&caller, *release, transition, &expected, key.as_ref()).await?;
    let view = TransitionView::of(&outcome.value, &caller.actor);
    let revision = outcome.value.release.release.revision;
    Ok(ResourceResponse::idempotent(&outcome, &view, StatusCode::OK)?.with_etag(revision).into_response())
}

/// Records a verdict on the current bindings of a release.
#[utoipa::path(
    operation_id = "review_release",
    tag = "releases",
    params(("release_id" = Uuid, Path, description = "The release"), IdempotencyKeyParams, IfMatchParams),
    request_body = NewApproval,
    responses((status = 201, description = "The verdict", body = ApprovalView), RevisionRefusal, WriteRefusals)
)]
#[post("/v1/releases/{release_id}/approvals")]
pub(crate) async fn review_release(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    release: PathId<ReleaseId>,
    idempotency: IdempotencyHeader,
    expected: IfMatch,
    body: Body<NewApproval>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let new = body.into_inner();
    let mut fields = FieldErrors::default();
    let verdict = fields.check(request::parse_verdict(&new.outcome));
    if new.subject_ref != release.uuid() {
        fields.extend([FieldProblem::new("subject_ref", "invalid", "must match the release in the path")]);
    }
    let note = fields.check(parse_note("note", new.note.as_deref()));
    let (verdict, note) = fields.finish(|| verdict.zip(note))?;
    let outcome =
        api.services.releases.review_release(&caller, *release, verdict, note, &expected, key.as_ref()).await?;
    let (release, approval) = &outcome.value;
    let view = ApprovalView::of(release.release_id, approval);
    let location = format!("/v1/releases/{}/approvals", release.release_id);
    Ok(ResourceResponse::created(&outcome, &view, location)?.with_etag(release.revision).into_response())
}

/// Lists the verdicts on a release, newest first.
#[utoipa::path(
    operation_id = "list_approvals",
    tag = "releases",
    params(("release_id" = Uuid, Path, description = "The release"), PageParams),
    responses((status = 200, description = "A page of verdicts", body = Vec<ApprovalView>), ReadRefusals)
)]
#[get("/v1/releases/{release_id}/approvals")]
pub(crate) async fn list_approvals(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    release: PathId<ReleaseId>,
    list: ListRequest<NoFilter>,
) -> Result<HttpResponse, ApiError> {
    let approvals = api.services.releases.list_approvals(&caller, *release, list.paging()).await?;
    Ok(list.respond(&approvals.map(|approval| ApprovalView::of(*release, &approval))))
}
