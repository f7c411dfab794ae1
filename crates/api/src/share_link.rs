//! Routes of share links, which give token holders access to a workload.

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{
        body::Body,
        idempotency::IdempotencyHeader,
        paging::{ListRequest, NoFilter},
        path::{Path, PathId},
    },
    openapi::{DeleteRefusals, IdempotencyKeyParams, PageParams, ReadRefusals, WriteRefusals},
    release::parse_lane,
    response::ResourceResponse,
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, delete, get, post, web};
use fairway_domain::{
    id::{ShareLinkId, WorkloadId},
    release::lane::Lane,
    share_link::{
        ALLOWED_MAX_USES, ALLOWED_TTL_HOURS, DEFAULT_MAX_USES, DEFAULT_TTL_HOURS, MAX_LABEL_CHARS, ShareLink,
        ShareTerms, ShareTermsRefusal, ShareToken,
    },
    text::is_name,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// A share link of a workload.
#[derive(Serialize, ToSchema)]
#[schema(as = ShareLink)]
pub(crate) struct ShareLinkView {
    share_link_id: Uuid,
    workload_id: Uuid,
    /// Label for managers of the link.
    label: Option<String>,
    /// `restricted`, `guided` or `standard`: the lane of the link's runs; null for the default lane.
    lane: Option<&'static str>,
    /// Maximum number of runs that the server accepts with the link.
    max_uses: u32,
    /// Number of runs that the server has accepted with the link.
    use_count: u32,
    #[schema(format = DateTime)]
    expires_at: String,
    /// Whether a manager revoked the link. The value stays `false` if the link only expires or reaches `max_uses`.
    revoked: bool,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
}

/// A new share link with its token.
#[derive(Serialize, ToSchema)]
#[schema(as = MadeShareLink)]
pub(crate) struct CreatedShareLinkView {
    #[serde(flatten)]
    link: ShareLinkView,
    /// The token, for `?token=` or `X-Share-Token`. It is returned only once; null if an earlier request with the
    /// same idempotency key created the link.
    token: Option<String>,
}

impl ShareLinkView {
    fn of(link: &ShareLink) -> Self {
        Self {
            share_link_id: link.share_link_id.uuid(),
            workload_id: link.workload_id.uuid(),
            label: link.label.clone(),
            lane: link.lane.map(Lane::as_str),
            max_uses: link.max_uses,
            use_count: link.use_count,
            expires_at: link.expires_at.to_string(),
            revoked: link.is_revoked,
            created_at: link.created_at.to_string(),
            created_by: link.created_by.to_string(),
        }
    }
}

/// A share link to create.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewShareLink {
    /// Lifetime of the link in hours.
    #[schema(minimum = 1, maximum = 720, default = 24)]
    #[validate(range(min = *ALLOWED_TTL_HOURS.start(), max = *ALLOWED_TTL_HOURS.end()))]
    ttl_hours: Option<u32>,
    /// Maximum number of runs that the server accepts with the link.
    #[schema(minimum = 1, maximum = 10_000, default = 1)]
    #[validate(range(min = *ALLOWED_MAX_USES.start(), max = *ALLOWED_MAX_USES.end()))]
    max_uses: Option<u32>,
    /// Label for managers of the link: one line of at most 200 characters.
    #[schema(min_length = 1, max_length = 200)]
    #[validate(length(min = 1, max = limit(MAX_LABEL_CHARS)), custom(function = label_rule))]
    label: Option<String>,
    /// `restricted`, `guided` or `standard`: the lane of the link's runs; null or absent for the default lane.
    #[validate(custom(function = value_rules::lane))]
    lane: Option<String>,
}

fn label_rule(text: &str) -> RuleResult {
    let refusal = (!is_name(text, MAX_LABEL_CHARS)).then_some(ShareTermsRefusal::Label);
    let problem = |refusal: ShareTermsRefusal| FieldProblem::new(refusal.field(), refusal.code(), refusal.to_string());
    value_rules::accept_unless(refusal.map(problem))
}

/// Lists the share links of a workload, newest first.
#[utoipa::path(
    operation_id = "list_share_links",
    tag = "workloads",
    params(("workload_id" = Uuid, Path, description = "The workload"), PageParams),
    responses((status = 200, description = "A page of links, without their tokens", body = Vec<ShareLinkView>), ReadRefusals)
)]
#[get("/v1/workloads/{workload_id}/share-links")]
pub(crate) async fn list_share_links(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    workload: PathId<WorkloadId>,
    list: ListRequest<NoFilter>,
) -> Result<HttpResponse, ApiError> {
    let links = api.services.share_links.list_share_links(&caller, *workload, list.paging()).await?;
    Ok(list.respond(&links.map(|link| ShareLinkView::of(&link))))
}

/// Reads a share link of a workload, without its token.
#[utoipa::path(
    operation_id = "read_share_link",
    tag = "workloads",
    params(
        ("workload_id" = Uuid, Path, description = "The workload"),
        ("link_id" = Uuid, Path, description = "The link"),
    ),
    responses((status = 200, description = "The link, without its token", body = ShareLinkView), ReadRefusals)
)]
#[get("/v1/workloads/{workload_id}/share-links/{link_id}")]
pub(crate) async fn read_share_link(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<WorkloadId>, PathId<ShareLinkId>)>,
) -> Result<HttpResponse, ApiError> {
    let (workload, link) = path.into_inner();
    let link = api.services.share_links.read_share_link(&caller, *workload, *link).await?;
    Ok(ResourceResponse::ok(&ShareLinkView::of(&link)).into_response())
}

/// Creates a share link. Only this response contains its token.
#[utoipa::path(
    operation_id = "create_share_link",
    tag = "workloads",
    params(("workload_id" = Uuid, Path, description = "The workload"), IdempotencyKeyParams),
    request_body = NewShareLink,
    responses((status = 201, description = "The new link, with its token", body = CreatedShareLinkView), WriteRefusals)
)]
#[post("/v1/workloads/{workload_id}/share-links")]
pub(crate) async fn create_share_link(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    workload: PathId<WorkloadId>,
    idempotency: IdempotencyHeader,
    body: Body<NewShareLink>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let NewShareLink { ttl_hours, max_uses, label, lane: requested_lane } = body.into_inner();
    let mut fields = FieldErrors::default();
    let terms = ShareTerms {
        ttl_hours: ttl_hours.unwrap_or(DEFAULT_TTL_HOURS),
        max_uses: max_uses.unwrap_or(DEFAULT_MAX_USES),
        label,
        lane: fields.check(parse_lane(requested_lane.as_deref())).flatten(),
    };
    let terms = fields.finish(|| Some(terms))?;
    let (created, outcome) =
        api.services.share_links.create_share_link(&caller, *workload, terms, key.as_ref()).await?.into_parts();
    let location = format!("/v1/workloads/{}/share-links/{}", *workload, created.link.share_link_id);
    let token = created.token.as_ref().map(|token| ShareToken::reveal(token).to_owned());
    let view = CreatedShareLinkView { link: ShareLinkView::of(&created.link), token };
    Ok(ResourceResponse::created(&outcome, &view, location)?.into_response())
}

/// Revokes a share link with immediate effect.
#[utoipa::path(
    operation_id = "revoke_share_link",
    tag = "workloads",
    params(
        ("workload_id" = Uuid, Path, description = "The workload"),
        ("link_id" = Uuid, Path, description = "The link"),
    ),
    responses((status = 204, description = "The link is revoked"), DeleteRefusals)
)]
#[delete("/v1/workloads/{workload_id}/share-links/{link_id}")]
pub(crate) async fn revoke_share_link(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<WorkloadId>, PathId<ShareLinkId>)>,
) -> Result<HttpResponse, ApiError> {
    let (workload, link) = path.into_inner();
    api.services.share_links.revoke_share_link(&caller, *workload, *link).await?;
    Ok(HttpResponse::NoContent().finish())
}
