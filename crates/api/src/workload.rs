//! Routes of workloads.

pub(crate) mod runtime_interface;

use crate::{
    asset::{WorkspaceQuery, parse_owner, parse_slug},
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{
        body::{Body, deserialize_present},
        etag::IfMatch,
        idempotency::IdempotencyHeader,
        paging::ListRequest,
        path::PathId,
        query::Query,
    },
    openapi::{IdempotencyKeyParams, IfMatchParams, PageParams, ReadRefusals, RevisionRefusal, WriteRefusals},
    response::ResourceResponse,
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, get, patch, post, web};
use fairway_domain::{
    access::OwnerRef,
    id::WorkloadId,
    slug::MAX_SLUG,
    tenant::MAX_DISPLAY_NAME_CHARS,
    workload::{
        BuiltinManagementSource, IntendedUse, MAX_DESCRIPTION, Workload, WorkloadPatch, WorkloadRefusal,
        WorkloadStatus, interface::InterfaceConfig, text_refusals,
    },
};
use fairway_operations::workload::CreateWorkloadParams;
use runtime_interface::{InterfaceDocument, InterfaceShape};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use validator::Validate;

/// A named runnable unit.
#[derive(Serialize, ToSchema)]
#[schema(as = Workload)]
pub(crate) struct WorkloadView {
    workload_id: Uuid,
    slug: String,
    name: String,
    description: String,
    owner_ref: String,
    /// `registered`, `suspended` or `retired`.
    status: &'static str,
    /// `chat`, `form`, `block`, `api`, `batch` or `event`.
    invocation_mode: &'static str,
    /// The runtime interface as configured; null if there is none.
    #[schema(value_type = Option<InterfaceShape>)]
    interface_config: Option<Value>,
    /// `workspace_builtin` for a built-in workload of its workspace; null for an ordinary workload.
    management_source: Option<&'static str>,
    workspace_id: Uuid,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
    #[schema(format = DateTime)]
    updated_at: String,
}

impl WorkloadView {
    fn of(workload: &Workload) -> Self {
        Self {
            workload_id: workload.workload_id.uuid(),
            slug: workload.slug.to_string(),
            name: workload.name.clone(),
            description: workload.description.clone(),
            owner_ref: workload.owner_ref.to_string(),
            status: workload.status.as_str(),
            invocation_mode: workload.invocation_mode.as_str(),
            interface_config: workload.interface_config.as_ref().map(InterfaceConfig::to_document),
            management_source: workload.management_source.map(BuiltinManagementSource::as_str),
            workspace_id: workload.workspace_id.uuid(),
            created_at: workload.created_at.to_string(),
            created_by: workload.created_by.to_string(),
            updated_at: workload.updated_at.to_string(),
        }
    }
}

/// A workload to create.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewWorkload {
    /// Slug that is unique among the tenant's workloads.
    #[schema(max_length = 63)]
    #[validate(length(min = 1, max = limit(MAX_SLUG)), custom(function = value_rules::slug))]
    slug: String,
    /// Owner of the workload: `team:<name>` or `user:<name>`.
    #[validate(length(min = 1, max = limit(OwnerRef::MAX_CHARS)), custom(function = value_rules::owner))]
    owner_ref: String,
    /// `chat`, `form`, `block`, `api`, `batch` or `event`.
    #[validate(custom(function = mode_rule))]
    invocation_mode: String,
    /// Human-readable name; by default derived from the slug.
    #[schema(min_length = 1, max_length = 200)]
    #[validate(length(min = 1, max = limit(MAX_DISPLAY_NAME_CHARS)), custom(function = name_rule))]
    name: Option<String>,
    #[schema(max_length = 2000)]
    #[validate(length(max = limit(MAX_DESCRIPTION)), custom(function = description_rule))]
    description: Option<String>,
    /// The workspace of the workload; default the workspace that your roles determine.
    workspace_id: Option<Uuid>,
}

/// Fields of a workload to replace; absent fields stay unchanged.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkloadChange {
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = String, min_length = 1, max_length = 200)]
    #[validate(length(min = 1, max = limit(MAX_DISPLAY_NAME_CHARS)), custom(function = name_rule))]
    name: Option<String>,
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = String, max_length = 2000)]
    #[validate(length(max = limit(MAX_DESCRIPTION)), custom(function = description_rule))]
    description: Option<String>,
    /// Owner of the workload: `team:<name>` or `user:<name>`.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = String)]
    #[validate(length(min = 1, max = limit(OwnerRef::MAX_CHARS)), custom(function = value_rules::owner))]
    owner_ref: Option<String>,
    /// `chat`, `form`, `block`, `api`, `batch` or `event`.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = String)]
    #[validate(custom(function = mode_rule))]
    invocation_mode: Option<String>,
    /// `registered`, `suspended` or `retired`. Requires `workload.suspend`.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = String)]
    #[validate(custom(function = status_rule))]
    status: Option<String>,
    /// The complete interface, or null to remove it. A change of `access_mode` requires `workload.expose`.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = Option<InterfaceShape>)]
    #[validate(nested)]
    interface_config: Option<Option<InterfaceDocument>>,
}

impl WorkloadChange {
    /// Parses the change, or returns all its problems.
    fn parse(self) -> Result<WorkloadPatch, ApiError> {
        let mut fields = FieldErrors::default();
        let owner_ref = self.owner_ref.as_deref().and_then(|text| fields.check(parse_owner(text)));
        let invocation_mode = self.invocation_mode.as_deref().and_then(|text| fields.check(parse_mode(text)));
        let status = self.status.as_deref().and_then(|text| fields.check(parse_status(text)));
        let interface_config = match self.interface_config {
            None => None,
            Some(None) => Some(None),
            Some(Some(document)) => match document.parse() {
                Ok(config) => Some(Some(config)),
                Err(problems) => {
                    fields.extend(problems);
                    None
                }
            },
        };
        let (name, description) = (self.name, self.description);
        fields
            .finish(|| Some(WorkloadPatch { name, description, owner_ref, invocation_mode, status, interface_config }))
    }
}

fn name_rule(text: &str) -> RuleResult {
    text_rule(Some(text), None)
}

fn description_rule(text: &str) -> RuleResult {
    text_rule(None, Some(text))
}

fn text_rule(name: Option<&str>, description: Option<&str>) -> RuleResult {
    let to_problem = |refusal: WorkloadRefusal| {
        refusal.field().map(|field| FieldProblem::new(field, refusal.code(), refusal.to_string()))
    };
    value_rules::accept_unless(text_refusals(name, description).find_map(to_problem))
}

fn mode_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_mode(text))
}

fn status_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_status(text))
}

/// Filters of the list of workloads.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WorkloadListQuery {
    /// Only workloads in this status: `registered`, `suspended` or `retired`.
    status: Option<String>,
    /// Only workloads in this workspace.
    workspace_id: Option<Uuid>,
}

fn parse_mode(text: &str) -> Result<IntendedUse, FieldProblem> {
    IntendedUse::parse(text).ok_or_else(|| FieldProblem::invalid("invocation_mode"))
}

fn parse_status(text: &str) -> Result<WorkloadStatus, FieldProblem> {
    WorkloadStatus::parse(text).ok_or_else(|| FieldProblem::invalid("status"))
}

/// Creates a workload, which has no release yet.
#[utoipa::path(
    operation_id = "create_workload",
    tag = "workloads",
    params(WorkspaceQuery, IdempotencyKeyParams),
    request_body = NewWorkload,
    responses((status = 201, description = "The new workload", body = WorkloadView), WriteRefusals)
)]
#[post("/v1/workloads")]
pub(crate) async fn create_workload(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    idempotency: IdempotencyHeader,
    query: Query<WorkspaceQuery>,
    body: Body<NewWorkload>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || query.digest(body.digest()));
    let new = body.into_inner();
    let mut fields = FieldErrors::default();
    let (slug, owner_ref) = (fields.check(parse_slug(&new.slug)), fields.check(parse_owner(&new.owner_ref)));
    let invocation_mode = fields.check(parse_mode(&new.invocation_mode));
    let workspace_id = fields.check(query.resolve_with_body(new.workspace_id));
    let draft = fields.finish(|| {
        Some(CreateWorkloadParams {
            slug: slug?,
            owner_ref: owner_ref?,
            invocation_mode: invocation_mode?,
            workspace_id: workspace_id?,
            name: new.name,
            description: new.description,
        })
    })?;
    let outcome = api.services.workloads.create_workload(&caller, draft, key.as_ref()).await?;
    let view = WorkloadView::of(&outcome.value);
    let location = format!("/v1/workloads/{}", view.workload_id);
    Ok(ResourceResponse::created(&outcome, &view, location)?.with_etag(outcome.value.revision).into_response())
}

/// Lists workloads, newest first.
#[utoipa::path(
    operation_id = "list_workloads",
    tag = "workloads",
    params(WorkloadListQuery, PageParams),
    responses((status = 200, description = "A page of workloads", body = Vec<WorkloadView>), ReadRefusals)
)]
#[get("/v1/workloads")]
pub(crate) async fn list_workloads(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<WorkloadListQuery>,
) -> Result<HttpResponse, ApiError> {
    let status = list.filter.status.as_deref().map(parse_status).transpose()?;
    let workspace = list.filter.workspace_id.map(Into::into);
    let workloads = api.services.workloads.list_workloads(&caller, workspace, status, list.paging()).await?;
    Ok(list.respond(&workloads.map(|workload| WorkloadView::of(&workload))))
}

/// Reads a workload with its configured interface.
#[utoipa::path(
    operation_id = "read_workload",
    tag = "workloads",
    params(("workload_id" = Uuid, Path, description = "The workload")),
    responses((status = 200, description = "The workload", body = WorkloadView), ReadRefusals)
)]
#[get("/v1/workloads/{workload_id}")]
pub(crate) async fn read_workload(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    workload: PathId<WorkloadId>,
) -> Result<HttpResponse, ApiError> {
    let workload = api.services.workloads.read_workload(&caller, *workload).await?;
    Ok(ResourceResponse::ok(&WorkloadView::of(&workload)).with_etag(workload.revision).into_response())
}

/// Changes a workload. A suspended workload refuses new runs immediately.
#[utoipa::path(
    operation_id = "change_workload",
    tag = "workloads",
    params(("workload_id" = Uuid, Path, description = "The workload"), IfMatchParams),
    request_body = WorkloadChange,
    responses((status = 200, description = "The changed workload", body = WorkloadView), RevisionRefusal, WriteRefusals)
)]
#[patch("/v1/workloads/{workload_id}")]
pub(crate) async fn change_workload(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    workload: PathId<WorkloadId>,
    expected: IfMatch,
    body: Body<WorkloadChange>,
) -> Result<HttpResponse, ApiError> {
    let patch = body.into_inner().parse()?;
    let workload = api.services.workloads.change_workload(&caller, *workload, &patch, &expected).await?;
    Ok(ResourceResponse::ok(&WorkloadView::of(&workload)).with_etag(workload.revision).into_response())
}
