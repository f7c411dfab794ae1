//! Routes of use cases. Each requires the workspace in its query.

pub(crate) mod changes;
pub(crate) mod generate;

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldProblem},
    http::{
        body::Body,
        etag::IfMatch,
        idempotency::{IdempotencyHeader, digest_in_workspace},
        paging::ListRequest,
        path::PathId,
        query::Query,
    },
    openapi::{IdempotencyKeyParams, IfMatchParams, PageParams, ReadRefusals, RevisionRefusal, WriteRefusals},
    response::ResourceResponse,
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, get, http::StatusCode, post, web};
use fairway_domain::{
    generator::MAX_DESCRIPTION,
    id::{ReleaseId, UseCaseId, WorkloadId, WorkspaceId},
    secret::contains_likely_credential,
    text::{is_blank, is_blank_or_prose},
    use_case::{UseCase, UseCaseStatus, UseCaseSummary, gaps::Gap},
};
use fairway_operations::{
    MaybeReplayed,
    use_case::{BundlePiece, BundlePieces},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use validator::Validate;

/// A use case with its description and status.
#[derive(Serialize, ToSchema)]
#[schema(as = UseCase)]
pub(crate) struct UseCaseView {
    use_case_id: Uuid,
    workspace_id: Uuid,
    name: String,
    summary: String,
    /// `draft`, `pending_access`, `active` or `archived`.
    status: &'static str,
    /// The description that the bundle was generated from.
    source_description: String,
    /// The predecessor that this use case refines; null if there is none.
    supersedes: Option<Uuid>,
    /// The successor that refines this use case; null if there is none.
    superseded_by: Option<Uuid>,
    /// The workload that the publication created; null before the publication.
    workload_id: Option<Uuid>,
    /// The release draft that the publication created; null before the publication.
    release_id: Option<Uuid>,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
    #[schema(format = DateTime)]
    updated_at: String,
}

impl UseCaseView {
    pub(crate) fn of(use_case: &UseCase) -> Self {
        Self::of_summary(use_case.into())
    }

    fn of_summary(use_case: UseCaseSummary) -> Self {
        Self {
            use_case_id: use_case.use_case_id.uuid(),
            workspace_id: use_case.workspace_id.uuid(),
            name: use_case.name,
            summary: use_case.summary,
            status: use_case.status.as_str(),
            source_description: use_case.source_description,
            supersedes: use_case.supersedes.map(UseCaseId::uuid),
            superseded_by: use_case.superseded_by.map(UseCaseId::uuid),
            workload_id: use_case.workload_id.map(WorkloadId::uuid),
            release_id: use_case.release_id.map(ReleaseId::uuid),
            created_at: use_case.created_at.to_string(),
            created_by: use_case.created_by.to_string(),
            updated_at: use_case.updated_at.to_string(),
        }
    }
}

/// An asset or a connection that is part of a use case.
#[derive(Serialize, ToSchema)]
#[schema(as = BundlePiece)]
pub(crate) struct BundlePieceView {
    /// `flow`, `prompt`, `model_policy`, `policy_bundle` or `connection`.
    piece: &'static str,
    /// Kind of the asset or connector kind of the connection; null if the connection does not exist.
    kind: Option<&'static str>,
    /// Slug of the asset or name of the connection; null until it is known.
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// Identifier of the asset or connection; null until it exists.
    id: Option<Uuid>,
}

/// A step of the bundle's flow.
#[derive(Serialize, ToSchema)]
#[schema(as = BundleStep)]
pub(crate) struct BundleStepView {
    id: String,
    #[serde(rename = "type")]
    step_type: String,
}

/// A reference of the bundle, with the way to resolve it.
#[derive(Serialize, ToSchema)]
#[schema(as = Gap)]
pub(crate) struct GapView {
    /// `reused`, `mint_fresh`, `needs_access` or `needs_admin`.
    kind: &'static str,
    /// Slug or name of the target; null if there is none, or you may not see it.
    #[serde(rename = "ref")]
    reference: Option<String>,
}

impl GapView {
    pub(crate) fn of(gap: &Gap) -> Self {
        Self { kind: gap.availability.as_str(), reference: gap.reference.clone() }
    }
}

/// The stored bundle of a use case.
#[derive(Serialize, ToSchema)]
#[schema(as = PersistedBundle)]
pub(crate) struct PersistedBundleView {
    pieces: Vec<BundlePieceView>,
    flow_steps: Vec<BundleStepView>,
    open_connection_gaps: Vec<GapView>,
    /// Whether the bundle is hidden from you, because you lack `connection.read`.
    redacted: bool,
}

impl PersistedBundleView {
    fn of(bundle: BundlePieces) -> Self {
        let piece = |BundlePiece { piece, kind, reference, id }| {
            let piece = piece.as_str();
            BundlePieceView { piece, kind, reference, id }
        };
        Self {
            pieces: bundle.pieces.into_iter().map(piece).collect(),
            flow_steps: bundle.flow_steps.into_iter().map(|(id, step_type)| BundleStepView { id, step_type }).collect(),
            open_connection_gaps: bundle.open_connection_gaps.iter().map(GapView::of).collect(),
            redacted: bundle.redacted,
        }
    }
}

/// The workspace of a use case.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UseCaseWorkspaceQuery {
    /// The workspace of the use case.
    workspace_id: Uuid,
}

impl UseCaseWorkspaceQuery {
    pub(crate) fn id(&self) -> WorkspaceId {
        self.workspace_id.into()
    }

    /// Digest that identifies a repeated request in the workspace.
    pub(crate) fn digest(&self, body: [u8; 32]) -> [u8; 32] {
        digest_in_workspace(body, self.workspace_id)
    }
}

/// Filters of the list of use cases.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UseCaseListQuery {
    /// The workspace of the use cases.
    workspace_id: Uuid,
    /// Only use cases in this status: `draft`, `pending_access`, `active` or `archived`.
    status: Option<String>,
    /// `true` for use cases that wait for access and whose connections are all resolved.
    activation_ready: Option<bool>,
}

/// A use case to create.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewUseCase {
    /// The description that the bundle was generated from.
    #[schema(min_length = 1, max_length = 4000)]
    #[validate(length(min = 1, max = limit(MAX_DESCRIPTION)), custom(function = description_rule))]
    source_description: String,
    /// The bundle plan, as generated or written by hand.
    #[schema(value_type = Object)]
    bundle: Value,
}

/// Empty body of a state transition of a use case.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct UseCaseMove {}

fn parse_status(text: &str) -> Result<UseCaseStatus, FieldProblem> {
    UseCaseStatus::parse(text).ok_or_else(|| FieldProblem::invalid("status"))
}

pub(crate) fn description_rule(text: &str) -> RuleResult {
    let is_valid = is_blank_or_prose(text, MAX_DESCRIPTION) && !is_blank(text);
    let rule = "a description has 1 to 4000 characters, and no invisible ones except line breaks and tabs";
    let invalid = (!is_valid).then(|| FieldProblem::new("description", "invalid_text", rule));
    value_rules::accept_unless(invalid.or_else(|| credential_problem("description", text)))
}

/// The problem to report if a text contains a credential; otherwise the generator's run would store the text and send
/// it to a provider.
pub(crate) fn credential_problem(field: &str, text: &str) -> Option<FieldProblem> {
    contains_likely_credential(text)
        .then(|| FieldProblem::new(field, "contains_secret", "the text contains a credential"))
}

fn respond(outcome: &MaybeReplayed<UseCase>) -> Result<HttpResponse, ApiError> {
    let view = UseCaseView::of(&outcome.value);
    Ok(ResourceResponse::idempotent(outcome, &view, StatusCode::OK)?.with_etag(outcome.value.revision).into_response())
}

/// Creates a use case as a draft. The server checks the bundle plan completely, with your rights.
#[utoipa::path(
    operation_id = "create_use_case",
    tag = "use cases",
    params(UseCaseWorkspaceQuery, IdempotencyKeyParams),
    request_body = NewUseCase,
    responses((status = 201, description = "The new use case", body = UseCaseView), WriteRefusals)
)]
#[post("/v1/use-cases")]
pub(crate) async fn create_use_case(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    query: Query<UseCaseWorkspaceQuery>,
    idempotency: IdempotencyHeader,
    body: Body<NewUseCase>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || query.digest(body.digest()));
    let NewUseCase { source_description, bundle } = body.into_inner();
    let use_cases = &api.services.use_cases;
    let outcome = use_cases.create_use_case(&caller, query.id(), source_description, bundle, key.as_ref()).await?;
    let view = UseCaseView::of(&outcome.value);
    let location = format!("/v1/use-cases/{}?workspace_id={}", view.use_case_id, view.workspace_id);
    Ok(ResourceResponse::created(&outcome, &view, location)?.with_etag(outcome.value.revision).into_response())
}

/// Lists the use cases of a workspace, newest first.
#[utoipa::path(
    operation_id = "list_use_cases",
    tag = "use cases",
    params(UseCaseListQuery, PageParams),
    responses((status = 200, description = "A page of use cases", body = Vec<UseCaseView>), ReadRefusals)
)]
#[get("/v1/use-cases")]
pub(crate) async fn list_use_cases(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<UseCaseListQuery>,
) -> Result<HttpResponse, ApiError> {
    let status = list.filter.status.as_deref().map(parse_status).transpose()?;
    let is_ready = list.filter.activation_ready.unwrap_or(false);
    let workspace = list.filter.workspace_id.into();
    let use_cases = api.services.use_cases.list_use_cases(&caller, workspace, status, is_ready, list.paging()).await?;
    Ok(list.respond(&use_cases.map(UseCaseView::of_summary)))
}

/// Reads a use case without its bundle.
#[utoipa::path(
    operation_id = "read_use_case",
    tag = "use cases",
    params(("use_case_id" = Uuid, Path, description = "The use case"), UseCaseWorkspaceQuery),
    responses((status = 200, description = "The use case", body = UseCaseView), ReadRefusals)
)]
#[get("/v1/use-cases/{use_case_id}")]
pub(crate) async fn read_use_case(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    use_case: PathId<UseCaseId>,
    query: Query<UseCaseWorkspaceQuery>,
) -> Result<HttpResponse, ApiError> {
    let use_case = api.services.use_cases.read_use_case(&caller, query.id(), *use_case).await?;
    Ok(ResourceResponse::ok(&UseCaseView::of(&use_case)).with_etag(use_case.revision).into_response())
}

/// Reads the bundle of a use case. Without `connection.read`, it is empty and `redacted` is true.
#[utoipa::path(
    operation_id = "read_use_case_bundle",
    tag = "use cases",
    params(("use_case_id" = Uuid, Path, description = "The use case"), UseCaseWorkspaceQuery),
    responses((status = 200, description = "The bundle", body = PersistedBundleView), ReadRefusals)
)]
#[get("/v1/use-cases/{use_case_id}/bundle")]
pub(crate) async fn read_use_case_bundle(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    use_case: PathId<UseCaseId>,
    query: Query<UseCaseWorkspaceQuery>,
) -> Result<HttpResponse, ApiError> {
    let bundle = api.services.use_cases.read_bundle_pieces(&caller, query.id(), *use_case).await?;
    Ok(ResourceResponse::ok(&PersistedBundleView::of(bundle)).into_response())
}

/// Publishes a draft: creates its assets, a workload and a release draft, and requests access to missing
/// connections. It submits, approves or activates no release.
#[utoipa::path(
    operation_id = "publish_use_case",
    tag = "use cases",
    params(("use_case_id" = Uuid, Path, description = "The use case"), UseCaseWorkspaceQuery, IdempotencyKeyParams, IfMatchParams),
    request_body = UseCaseMove,
    responses((status = 200, description = "The published use case", body = UseCaseView), RevisionRefusal, WriteRefusals)
)]
#[post("/v1/use-cases/{use_case_id}/publish")]
pub(crate) async fn publish_use_case(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    use_case: PathId<UseCaseId>,
    query: Query<UseCaseWorkspaceQuery>,
    idempotency: IdempotencyHeader,
    expected: IfMatch,
    body: Body<UseCaseMove>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || query.digest(body.digest()));
    let use_cases = &api.services.use_cases;
    respond(&use_cases.publish_use_case(&caller, query.id(), *use_case, &expected, key.as_ref()).await?)
}

/// Activates a use case that waits for access, if all its connections are resolved.
#[utoipa::path(
    operation_id = "activate_use_case",
    tag = "use cases",
    params(("use_case_id" = Uuid, Path, description = "The use case"), UseCaseWorkspaceQuery, IdempotencyKeyParams, IfMatchParams),
    request_body = UseCaseMove,
    responses((status = 200, description = "The active use case", body = UseCaseView), RevisionRefusal, WriteRefusals)
)]
#[post("/v1/use-cases/{use_case_id}/activate")]
pub(crate) async fn activate_use_case(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    use_case: PathId<UseCaseId>,
    query: Query<UseCaseWorkspaceQuery>,
    idempotency: IdempotencyHeader,
    expected: IfMatch,
    body: Body<UseCaseMove>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || query.digest(body.digest()));
    let use_cases = &api.services.use_cases;
    respond(&use_cases.activate_use_case(&caller, query.id(), *use_case, &expected, key.as_ref()).await?)
}

/// Archives a use case and withdraws its pending access requests.
#[utoipa::path(
    operation_id = "archive_use_case",
    tag = "use cases",
    params(("use_case_id" = Uuid, Path, description = "The use case"), UseCaseWorkspaceQuery, IdempotencyKeyParams, IfMatchParams),
    request_body = UseCaseMove,
    responses((status = 200, description = "The archived use case", body = UseCaseView), RevisionRefusal, WriteRefusals)
)]
#[post("/v1/use-cases/{use_case_id}/archive")]
pub(crate) async fn archive_use_case(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    use_case: PathId<UseCaseId>,
    query: Query<UseCaseWorkspaceQuery>,
    idempotency: IdempotencyHeader,
    expected: IfMatch,
    body: Body<UseCaseMove>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || query.digest(body.digest()));
    let use_cases = &api.services.use_cases;
    respond(&use_cases.archive_use_case(&caller, query.id(), *use_case, &expected, key.as_ref()).await?)
}

/// Moves a use case that waits for access back to draft, and withdraws its pending access requests.
#[utoipa::path(
    operation_id = "reopen_use_case",
    tag = "use cases",
    params(("use_case_id" = Uuid, Path, description = "The use case"), UseCaseWorkspaceQuery, IdempotencyKeyParams, IfMatchParams),
    request_body = UseCaseMove,
    responses((status = 200, description = "The draft", body = UseCaseView), RevisionRefusal, WriteRefusals)
)]
#[post("/v1/use-cases/{use_case_id}/reopen")]
pub(crate) async fn reopen_use_case(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    use_case: PathId<UseCaseId>,
    query: Query<UseCaseWorkspaceQuery>,
    idempotency: IdempotencyHeader,
    expected: IfMatch,
    body: Body<UseCaseMove>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || query.digest(body.digest()));
    let use_cases = &api.services.use_cases;
    respond(&use_cases.return_use_case_to_draft(&caller, query.id(), *use_case, &expected, key.as_ref()).await?)
}
