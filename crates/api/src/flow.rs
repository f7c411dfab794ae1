//! Routes of flows, assets with YAML content.

use crate::{
    asset::{
        AssetView, CONTENT_LIMIT, VersionView, VisibleFromQuery, WorkspaceQuery, parse_label, parse_owner, parse_slug,
    },
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors},
    http::{body::DeferredBody, idempotency::IdempotencyHeader, paging::ListRequest, path::PathId, query::Query},
    note_field::parse_note,
    openapi::{IdempotencyKeyParams, PageParams, ReadRefusals, WriteRefusals},
    response::ResourceResponse,
    value_rules::{self, limit},
};
use actix_web::{HttpResponse, get, post, web};
use fairway_domain::{
    access::OwnerRef,
    asset::{AssetVersion, VersionLabel, kind::AssetKind},
    flow::FlowProblem,
    id::AssetId,
    note::MAX_NOTE_CHARS,
    slug::MAX_SLUG,
};
use fairway_operations::{
    access::Operation,
    asset::AssetQuery,
    flow::{FlowVersion, FlowView as Flow, NewFlow, NewFlowVersion},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use validator::Validate;

/// A flow with its newest version.
#[derive(Serialize, ToSchema)]
#[schema(as = Flow)]
pub(crate) struct FlowView {
    #[serde(flatten)]
    asset: AssetView,
    /// Identifier of the newest version; null if there is none.
    asset_version_id: Option<Uuid>,
    /// The newest version; null if there is none.
    version: Option<VersionView>,
    /// The original YAML of the newest version; null if it was created from JSON.
    content_yaml: Option<String>,
}

impl FlowView {
    fn of(flow: &Flow) -> Result<Self, ApiError> {
        Ok(Self {
            asset: AssetView::of(&flow.asset),
            asset_version_id: flow.newest.as_ref().map(|newest| newest.version.asset_version_id.uuid()),
            version: flow.newest.as_ref().map(|newest| version_view(newest.version.clone())).transpose()?,
            content_yaml: flow.newest.as_ref().and_then(|newest| newest.content_yaml.clone()),
        })
    }
}

fn version_view(version: AssetVersion) -> Result<VersionView, ApiError> {
    VersionView::with_warnings(AssetKind::OrchestrationFlow, version)
}

/// A flow to create from YAML.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(as = NewFlow)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewFlowBody {
    /// Slug of the flow, unique in the tenant.
    #[schema(max_length = 63)]
    #[validate(length(min = 1, max = limit(MAX_SLUG)), custom(function = value_rules::slug))]
    slug: String,
    /// Owner of the flow: `team:<name>` or `user:<name>`.
    #[validate(length(min = 1, max = limit(OwnerRef::MAX_CHARS)), custom(function = value_rules::owner))]
    owner_ref: String,
    /// Label of the first version; default `v1`.
    #[schema(max_length = 64)]
    #[validate(length(min = 1, max = limit(VersionLabel::MAX_CHARS)), custom(function = value_rules::version_label))]
    version_label: Option<String>,
    /// The steps of the flow in YAML.
    #[schema(max_length = 262_144)]
    content_yaml: String,
    /// Your reason for the version.
    #[schema(max_length = 2000)]
    #[validate(length(max = limit(MAX_NOTE_CHARS)), custom(function = value_rules::note))]
    change_note: Option<String>,
    /// The workspace of the flow; default the workspace that your roles determine.
    workspace_id: Option<Uuid>,
}

/// A version to add to a flow.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(as = NewFlowVersion)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewFlowVersionBody {
    /// The steps of the flow in YAML.
    #[schema(max_length = 262_144)]
    content_yaml: String,
    /// Label that is unique among the flow's versions; by default the next label of the form `vN`.
    #[schema(max_length = 64)]
    #[validate(length(min = 1, max = limit(VersionLabel::MAX_CHARS)), custom(function = value_rules::version_label))]
    version_label: Option<String>,
    /// Your reason for the version.
    #[schema(max_length = 2000)]
    #[validate(length(max = limit(MAX_NOTE_CHARS)), custom(function = value_rules::note))]
    change_note: Option<String>,
    /// Workspace from which the flow must be visible; by default any workspace.
    workspace_id: Option<Uuid>,
}

/// A flow in YAML to validate.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct FlowText {
    /// The steps of the flow in YAML.
    #[schema(max_length = 262_144)]
    content_yaml: String,
}

/// The result of validating a flow.
#[derive(Serialize, ToSchema)]
pub(crate) struct FlowValidation {
    /// Whether the flow could become a version.
    valid: bool,
    /// All errors, in no particular order; empty if the flow is valid.
    errors: Vec<FlowErrorView>,
}

/// An error that the validation of a flow found.
#[derive(Serialize, ToSchema)]
#[schema(as = FlowError)]
pub(crate) struct FlowErrorView {
    /// Line of the error in the YAML, from 1.
    line: Option<u32>,
    /// Column of the error in characters, from 1.
    column: Option<u32>,
    /// A stable code, such as `unknown_step`.
    code: &'static str,
    /// Human-readable message, without the text of the flow.
    message: String,
}

impl FlowErrorView {
    pub(crate) fn of(problem: &FlowProblem) -> Self {
        let message = problem.message.clone().into_owned();
        Self { line: problem.line, column: problem.column, code: problem.code, message }
    }
}

/// Filters of the list of flows.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct FlowListQuery {
    /// Only flows that are visible from this workspace.
    workspace_id: Option<Uuid>,
}

/// Creates a flow with its first version from YAML.
#[utoipa::path(
    operation_id = "create_flow",
    tag = "assets",
    params(WorkspaceQuery, IdempotencyKeyParams),
    request_body = NewFlowBody,
    responses((status = 201, description = "The new flow", body = FlowView), WriteRefusals)
)]
#[post("/v1/flows")]
pub(crate) async fn create_flow(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    idempotency: IdempotencyHeader,
    query: Query<WorkspaceQuery>,
    body: DeferredBody<NewFlowBody, CONTENT_LIMIT>,
) -> Result<HttpResponse, ApiError> {
    let body = body
        .read_authorizing_first_if_large(api.services.flows.preauthorize_new_flow(&caller, query.query_workspace()))
        .await?;
    let key = idempotency.into_request_key(&caller.actor, || query.digest(body.digest()));
    let new = body.into_inner();
    let mut fields = FieldErrors::default();
    let (slug, owner_ref) = (fields.check(parse_slug(&new.slug)), fields.check(parse_owner(&new.owner_ref)));
    let version_label = fields.check(parse_label(new.version_label.as_deref()));
    let change_note = fields.check(parse_note("change_note", new.change_note.as_deref()));
    let workspace_id = fields.check(query.resolve_with_body(new.workspace_id));
    let new_flow = fields.finish(|| {
        Some(NewFlow {
            slug: slug?,
            owner_ref: owner_ref?,
            version_label: version_label?,
            change_note: change_note?,
            workspace_id: workspace_id?,
            content_yaml: new.content_yaml,
        })
    })?;
    let outcome = api.services.flows.create_flow(&caller, new_flow, key.as_ref()).await?;
    let view = FlowView::of(&outcome.value)?;
    let asset = &outcome.value.asset;
    let location = format!("/v1/flows/{}?workspace_id={}", asset.asset_id, asset.workspace_id);
    Ok(ResourceResponse::created(&outcome, &view, location)?.with_etag(asset.revision).into_response())
}

/// Lists flows, newest first.
#[utoipa::path(
    operation_id = "list_flows",
    tag = "assets",
    params(FlowListQuery, PageParams),
    responses((status = 200, description = "A page of flows", body = Vec<AssetView>), ReadRefusals)
)]
#[get("/v1/flows")]
pub(crate) async fn list_flows(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<FlowListQuery>,
) -> Result<HttpResponse, ApiError> {
    let filter = AssetQuery {
        workspace_id: list.filter.workspace_id.map(Into::into),
        kind: Some(AssetKind::OrchestrationFlow),
        lifecycle: None,
    };
    let flows = api.services.assets.list_assets(&caller, Operation::ListFlows, &filter, list.paging()).await?;
    Ok(list.respond(&flows.map(|flow| AssetView::of(&flow))))
}

/// Reads a flow with its newest version.
#[utoipa::path(
    operation_id = "read_flow",
    tag = "assets",
    params(("flow_id" = Uuid, Path, description = "The asset of the flow"), VisibleFromQuery),
    responses((status = 200, description = "The flow", body = FlowView), ReadRefusals)
)]
#[get("/v1/flows/{flow_id}")]
pub(crate) async fn read_flow(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    flow: PathId<AssetId>,
    visible_from: Query<VisibleFromQuery>,
) -> Result<HttpResponse, ApiError> {
    let flow = api.services.flows.read_flow(&caller, *flow, visible_from.id()).await?;
    Ok(ResourceResponse::ok(&FlowView::of(&flow)?).with_etag(flow.asset.revision).into_response())
}

/// Adds a version to a flow from YAML.
#[utoipa::path(
    operation_id = "create_flow_version",
    tag = "assets",
    params(("flow_id" = Uuid, Path, description = "The flow's asset"), WorkspaceQuery, IdempotencyKeyParams),
    request_body = NewFlowVersionBody,
    responses((status = 201, description = "The new version", body = VersionView), WriteRefusals)
)]
#[post("/v1/flows/{flow_id}/versions")]
pub(crate) async fn create_flow_version(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    flow: PathId<AssetId>,
    query: Query<WorkspaceQuery>,
    idempotency: IdempotencyHeader,
    body: DeferredBody<NewFlowVersionBody, CONTENT_LIMIT>,
) -> Result<HttpResponse, ApiError> {
    let authorize = api.services.assets.preauthorize_asset_write(
        &caller,
        Operation::CreateFlowVersion,
        *flow,
        query.query_workspace(),
    );
    let body = body.read_authorizing_first_if_large(authorize).await?;
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let new = body.into_inner();
    let mut fields = FieldErrors::default();
    let label = fields.check(parse_label(new.version_label.as_deref()));
    let change_note = fields.check(parse_note("change_note", new.change_note.as_deref()));
    let workspace = fields.check(query.resolve_with_body(new.workspace_id));
    let content_yaml = new.content_yaml;
    let (new_version, workspace) = fields
        .finish(|| Some((NewFlowVersion { content_yaml, label: label?, change_note: change_note? }, workspace?)))?;
    let (asset, outcome) =
        api.services.flows.create_flow_version(&caller, *flow, workspace, new_version, key.as_ref()).await?;
    let (FlowVersion { version, content_yaml }, outcome) = outcome.into_parts();
    let view = version_view(version)?.with_yaml(content_yaml);
    let location = view.location(&asset);
    Ok(ResourceResponse::created(&outcome, &view, location)?.into_response())
}

/// Validates a flow without storing it.
#[utoipa::path(
    operation_id = "validate_flow",
    tag = "assets",
    params(("flow_id" = Uuid, Path, description = "The flow's asset"), WorkspaceQuery),
    request_body = FlowText,
    responses((status = 200, description = "The result of the validation", body = FlowValidation), WriteRefusals)
)]
#[post("/v1/flows/{flow_id}/validate")]
pub(crate) async fn validate_flow(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    flow: PathId<AssetId>,
    query: Query<WorkspaceQuery>,
    body: DeferredBody<FlowText, CONTENT_LIMIT>,
) -> Result<HttpResponse, ApiError> {
    let workspace = query.resolve_with_body(None)?;
    let authorize = api.services.assets.preauthorize_asset_write(&caller, Operation::ValidateFlow, *flow, workspace);
    let body = body.read_authorizing_first_if_large(authorize).await?;
    let problems = api.services.flows.validate_flow(&caller, *flow, workspace, body.into_inner().content_yaml).await?;
    let errors: Vec<FlowErrorView> = problems.iter().map(FlowErrorView::of).collect();
    Ok(ResourceResponse::ok(&FlowValidation { valid: errors.is_empty(), errors }).into_response())
}
