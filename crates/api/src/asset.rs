//! Routes of assets and their versions.

pub(crate) mod diff;
pub(crate) mod draft_generation;
pub(crate) mod dry_run;
pub(crate) mod grant;
pub(crate) mod impact;
pub(crate) mod lifecycle;

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{
        body::{Body, DeferredBody, DeferredMember},
        deserialize_error::truncate_path,
        idempotency::{IdempotencyHeader, digest_in_workspace},
        paging::ListRequest,
        path::{Path, PathId},
        query::Query,
    },
    note_field::parse_note,
    openapi::{IdempotencyKeyParams, PageParams, ReadRefusals, WriteRefusals},
    response::ResourceResponse,
    value_rules::{self, limit},
};
use actix_web::{HttpResponse, get, http::StatusCode, post, web};
use fairway_domain::{
    access::OwnerRef,
    asset::{
        Asset, AssetVersion, Lifecycle, VersionLabel,
        content::{self, ContentWarning},
        kind::AssetKind,
    },
    field_path,
    id::{AssetId, AssetVersionId, WorkspaceId},
    note::MAX_NOTE_CHARS,
    slug::{MAX_SLUG, Slug},
};
use fairway_operations::{
    access::Operation,
    asset::{AssetQuery, CreateAssetParams, CreateVersionParams},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use validator::Validate;

/// Maximum size of a body that contains asset content, in bytes.
pub(crate) const CONTENT_LIMIT: usize = 4 << 20;

/// A governed configuration object.
#[derive(Serialize, ToSchema)]
#[schema(as = Asset)]
pub(crate) struct AssetView {
    asset_id: Uuid,
    slug: String,
    asset_kind: &'static str,
    owner_ref: String,
    lifecycle_state: &'static str,
    ownership_tier: &'static str,
    workspace_id: Uuid,
    namespace_id: Uuid,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
}

impl AssetView {
    pub(crate) fn of(asset: &Asset) -> Self {
        Self {
            asset_id: asset.asset_id.uuid(),
            slug: asset.slug.to_string(),
            asset_kind: asset.kind.as_str(),
            owner_ref: asset.owner_ref.to_string(),
            lifecycle_state: asset.lifecycle.as_str(),
            ownership_tier: asset.ownership_tier.as_str(),
            workspace_id: asset.workspace_id.uuid(),
            namespace_id: asset.namespace_id.uuid(),
            created_at: asset.created_at.to_string(),
            created_by: asset.created_by.to_string(),
        }
    }
}

/// An immutable version of an asset.
#[derive(Serialize, ToSchema)]
#[schema(as = AssetVersion)]
pub(crate) struct VersionView {
    asset_version_id: Uuid,
    asset_id: Uuid,
    version_label: String,
    /// The content, in canonical JSON.
    #[schema(value_type = Object)]
    content: Box<RawValue>,
    artifact_ref: String,
    /// BLAKE3 digest of the canonical JSON of the content: `blake3:<hex>`.
    checksum: String,
    /// The author's reason for the version; null if there is none, or it was erased.
    change_note: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
    /// The original YAML of a flow version. Lists omit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    content_yaml: Option<String>,
    /// Warnings for the author, such as fields that are stored but not enforced yet. Lists omit them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<VersionWarning>,
}

/// A warning for the author of a version.
#[derive(Serialize, ToSchema)]
pub(crate) struct VersionWarning {
    code: &'static str,
    /// Path of the field, such as `content.rules[0].outcome`, truncated to 256 characters.
    path: String,
    /// JSON pointer of the field in the content, truncated to 256 characters; empty for the whole content.
    pointer: String,
    message: String,
    /// For a legacy kind: the closest equivalent content of its successor kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    conversion: Option<Value>,
}

impl VersionWarning {
    fn of(warning: ContentWarning) -> Self {
        let ContentWarning { pointer, code, message, conversion } = warning;
        let path = truncate_path(field_path::from_pointer("content", &pointer));
        Self { code, path, pointer: truncate_path(pointer), message, conversion }
    }
}

impl VersionView {
    /// Converts a version to its JSON view. It consumes the version, because copying large content is expensive.
    pub(crate) fn of(version: AssetVersion) -> Result<Self, ApiError> {
        Ok(Self {
            asset_version_id: version.asset_version_id.uuid(),
            asset_id: version.asset_id.uuid(),
            version_label: version.version_label.to_string(),
            content: RawValue::from_string(version.canonical)
                .map_err(|error| ApiError::internal().log_cause(&error))?,
            artifact_ref: version.artifact_ref.to_string(),
            checksum: version.checksum.as_str().to_owned(),
            change_note: version.change_note.map(|note| note.as_str().to_owned()),
            created_at: version.created_at.to_string(),
            created_by: version.created_by.to_string(),
            content_yaml: None,
            warnings: Vec::new(),
        })
    }

    /// Sets the original YAML of a flow version.
    pub(crate) fn with_yaml(self, content_yaml: Option<String>) -> Self {
        Self { content_yaml, ..self }
    }

    /// Length of the content in bytes. All other fields are small.
    fn content_bytes(&self) -> usize {
        self.content.get().len()
    }

    /// The URL of the version in the asset's own workspace.
    pub(crate) fn location(&self, asset: &Asset) -> String {
        let workspace = asset.workspace_id;
        format!("/v1/assets/{}/versions/{}?workspace_id={workspace}", self.asset_id, self.asset_version_id)
    }

    /// Converts a version of an asset of this kind to its JSON view, with warnings for the author.
    pub(crate) fn with_warnings(kind: AssetKind, version: AssetVersion) -> Result<Self, ApiError> {
        let warnings = {
            let content = version.content().map_err(|error| ApiError::internal().log_cause(&error))?;
            content::warnings(kind, &content).into_iter().map(VersionWarning::of).collect()
        };
        Ok(Self { warnings, ..Self::of(version)? })
    }
}

/// An asset to create.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAsset {
    /// Slug of the asset, unique in the tenant.
    #[schema(max_length = 63)]
    #[validate(length(min = 1, max = limit(MAX_SLUG)), custom(function = value_rules::slug))]
    slug: String,
    /// Kind of the asset; it determines the schema of the content.
    asset_kind: String,
    /// Owner of the asset: `team:<name>` or `user:<name>`.
    #[validate(length(min = 1, max = limit(OwnerRef::MAX_CHARS)), custom(function = value_rules::owner))]
    owner_ref: String,
    /// The workspace of the asset; default the workspace that your roles determine.
    workspace_id: Option<Uuid>,
}

/// A version to add to an asset.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewVersion {
    /// An object that matches the schema of the asset's kind.
    #[schema(value_type = Object)]
    #[expect(dead_code, reason = "the handler moves it out of the document")]
    content: DeferredMember,
    /// Label that is unique among the asset's versions; by default the next label of the form `vN`.
    #[schema(max_length = 64)]
    #[validate(length(min = 1, max = limit(VersionLabel::MAX_CHARS)), custom(function = value_rules::version_label))]
    version_label: Option<String>,
    /// Your reason for the version.
    #[schema(max_length = 2000)]
    #[validate(length(max = limit(MAX_NOTE_CHARS)), custom(function = value_rules::note))]
    change_note: Option<String>,
    /// Workspace from which the asset must be visible; by default any workspace.
    workspace_id: Option<Uuid>,
}

/// Filters of the list of assets.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AssetListQuery {
    /// Only assets that are visible from this workspace.
    workspace_id: Option<Uuid>,
    /// Only assets of this kind.
    asset_kind: Option<String>,
    /// Only assets in this state: `draft`, `active`, `retired` or `archived`.
    lifecycle_state: Option<String>,
}

/// The workspace from which the asset must be visible.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct VisibleFromQuery {
    /// The asset must be visible from this workspace.
    workspace_id: Uuid,
}

impl VisibleFromQuery {
    pub(crate) fn id(&self) -> WorkspaceId {
        self.workspace_id.into()
    }
}

/// The workspace of a request, in the query or in the body; 422 if the two differ.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WorkspaceQuery {
    /// The workspace, as an alternative to `workspace_id` in the body.
    workspace_id: Option<Uuid>,
}

impl WorkspaceQuery {
    pub(crate) fn resolve_with_body(&self, body: Option<Uuid>) -> Result<Option<WorkspaceId>, FieldProblem> {
        match (self.workspace_id, body) {
            (Some(query), Some(body)) if query != body => {
                let rule = "query and body name different workspaces";
                Err(FieldProblem::new("workspace_id", "invalid", rule))
            }
            (query, body) => Ok(query.or(body).map(Into::into)),
        }
    }

    /// Digest that identifies a repeated creation request: the digest of the body, combined with the query's
    /// workspace.
    pub(crate) fn digest(&self, body: [u8; 32]) -> [u8; 32] {
        self.workspace_id.map_or(body, |workspace| digest_in_workspace(body, workspace))
    }

    pub(crate) fn query_workspace(&self) -> Option<WorkspaceId> {
        self.workspace_id.map(Into::into)
    }

    /// The workspace of the query or the body; an error if both are missing.
    pub(crate) fn resolve_required(&self, body: Option<Uuid>) -> Result<WorkspaceId, FieldProblem> {
        self.resolve_with_body(body)?.ok_or_else(|| FieldProblem::missing("workspace_id"))
    }
}

pub(crate) fn parse_slug(text: &str) -> Result<Slug, FieldProblem> {
    Slug::parse(text).map_err(|refusal| FieldProblem::new("slug", refusal.code(), refusal.to_string()))
}

pub(crate) fn parse_owner(text: &str) -> Result<OwnerRef, FieldProblem> {
    let rule = "expected `team:<name>` or `user:<name>`";
    OwnerRef::parse(text).map_err(|_| FieldProblem::new("owner_ref", "invalid", rule))
}

pub(crate) fn parse_label(text: Option<&str>) -> Result<Option<VersionLabel>, FieldProblem> {
    let rule = "a label has 1 to 64 letters, digits, dots, hyphens and underscores";
    text.map(|text| VersionLabel::parse(text).ok_or_else(|| FieldProblem::new("version_label", "invalid", rule)))
        .transpose()
}

/// Creates an asset, which has no version yet.
#[utoipa::path(
    operation_id = "create_asset",
    tag = "assets",
    params(WorkspaceQuery, IdempotencyKeyParams),
    request_body = NewAsset,
    responses((status = 201, description = "The new asset", body = AssetView), WriteRefusals)
)]
#[post("/v1/assets")]
pub(crate) async fn create_asset(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    idempotency: IdempotencyHeader,
    query: Query<WorkspaceQuery>,
    body: Body<NewAsset>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || query.digest(body.digest()));
    let new = body.into_inner();
    let mut fields = FieldErrors::default();
    let (slug, owner_ref) = (fields.check(parse_slug(&new.slug)), fields.check(parse_owner(&new.owner_ref)));
    let workspace_id = fields.check(query.resolve_with_body(new.workspace_id));
    let (slug, owner_ref, workspace_id) = fields.finish(|| Some((slug?, owner_ref?, workspace_id?)))?;
    let kind = AssetKind::parse(&new.asset_kind)
        .ok_or_else(|| ApiError::new(StatusCode::BAD_REQUEST, "invalid_asset_kind", "the asset kind is unknown"))?;
    let draft = CreateAssetParams { slug, kind, owner_ref, workspace_id };
    let outcome = api.services.assets.create_asset(&caller, draft, key.as_ref()).await?;
    let view = AssetView::of(&outcome.value);
    let location = format!("/v1/assets/{}?workspace_id={}", view.asset_id, view.workspace_id);
    Ok(ResourceResponse::created(&outcome, &view, location)?.with_etag(outcome.value.revision).into_response())
}

/// Lists assets, newest first.
#[utoipa::path(
    operation_id = "list_assets",
    tag = "assets",
    params(AssetListQuery, PageParams),
    responses((status = 200, description = "A page of assets", body = Vec<AssetView>), ReadRefusals)
)]
#[get("/v1/assets")]
pub(crate) async fn list_assets(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<AssetListQuery>,
) -> Result<HttpResponse, ApiError> {
    let kind = list.filter.asset_kind.as_deref();
    let state = list.filter.lifecycle_state.as_deref();
    let kind = kind.map(|text| AssetKind::parse(text).ok_or_else(|| FieldProblem::invalid("asset_kind"))).transpose();
    let state =
        state.map(|text| Lifecycle::parse(text).ok_or_else(|| FieldProblem::invalid("lifecycle_state"))).transpose();
    let mut fields = FieldErrors::default();
    let (kind, state) = (fields.check(kind), fields.check(state));
    let (kind, lifecycle) = fields.finish(|| Some((kind?, state?)))?;
    let filter = AssetQuery { workspace_id: list.filter.workspace_id.map(Into::into), kind, lifecycle };
    let assets = api.services.assets.list_assets(&caller, Operation::ListAssets, &filter, list.paging()).await?;
    Ok(list.respond(&assets.map(|asset| AssetView::of(&asset))))
}

/// Reads an asset without its versions.
#[utoipa::path(
    operation_id = "read_asset",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The asset"), VisibleFromQuery),
    responses((status = 200, description = "The asset", body = AssetView), ReadRefusals)
)]
#[get("/v1/assets/{asset_id}")]
pub(crate) async fn read_asset(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    asset: PathId<AssetId>,
    visible_from: Query<VisibleFromQuery>,
) -> Result<HttpResponse, ApiError> {
    let asset = api.services.assets.read_asset(&caller, *asset, visible_from.id()).await?;
    Ok(ResourceResponse::ok(&AssetView::of(&asset)).with_etag(asset.revision).into_response())
}

/// Adds a version to an asset.
#[utoipa::path(
    operation_id = "create_asset_version",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The asset"), WorkspaceQuery, IdempotencyKeyParams),
    request_body = NewVersion,
    responses((status = 201, description = "The new version", body = VersionView), WriteRefusals)
)]
#[post("/v1/assets/{asset_id}/versions")]
pub(crate) async fn create_asset_version(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    asset: PathId<AssetId>,
    query: Query<WorkspaceQuery>,
    idempotency: IdempotencyHeader,
    body: DeferredBody<NewVersion, CONTENT_LIMIT>,
) -> Result<HttpResponse, ApiError> {
    let authorize = api.services.assets.preauthorize_asset_write(
        &caller,
        Operation::CreateAssetVersion,
        *asset,
        query.query_workspace(),
    );
    let body = body.read_authorizing_first_if_large(authorize).await?;
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let (new, content) = body.split_member("content");
    let mut fields = FieldErrors::default();
    if !content.is_object() {
        fields.extend([FieldProblem::new("content", "invalid", "content must be an object")]);
    }
    let label = fields.check(parse_label(new.version_label.as_deref()));
    let change_note = fields.check(parse_note("change_note", new.change_note.as_deref()));
    let workspace = fields.check(query.resolve_with_body(new.workspace_id));
    let (draft, workspace) = fields
        .finish(|| Some((CreateVersionParams { content, label: label?, change_note: change_note? }, workspace?)))?;
    let (asset, outcome) =
        api.services.assets.create_asset_version(&caller, *asset, workspace, draft, key.as_ref()).await?;
    let (version, outcome) = outcome.into_parts();
    let view = VersionView::with_warnings(asset.kind, version)?;
    let location = view.location(&asset);
    Ok(ResourceResponse::created(&outcome, &view, location)?.with_capacity(view.content_bytes()).into_response())
}

/// Lists the versions of an asset, newest first.
#[utoipa::path(
    operation_id = "list_asset_versions",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The asset"), VisibleFromQuery, PageParams),
    responses((status = 200, description = "A page of versions", body = Vec<VersionView>), ReadRefusals)
)]
#[get("/v1/assets/{asset_id}/versions")]
pub(crate) async fn list_asset_versions(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    asset: PathId<AssetId>,
    list: ListRequest<VisibleFromQuery>,
) -> Result<HttpResponse, ApiError> {
    let versions = api.services.assets.list_asset_versions(&caller, *asset, list.filter.id(), list.paging()).await?;
    Ok(list.respond(&versions.try_map(VersionView::of)?))
}

/// Reads a version of an asset with its content.
#[utoipa::path(
    operation_id = "read_asset_version",
    tag = "assets",
    params(
        ("asset_id" = Uuid, Path, description = "The asset"),
        ("asset_version_id" = Uuid, Path, description = "The version"),
        VisibleFromQuery,
    ),
    responses((status = 200, description = "The version", body = VersionView), ReadRefusals)
)]
#[get("/v1/assets/{asset_id}/versions/{asset_version_id}")]
pub(crate) async fn read_asset_version(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<AssetId>, PathId<AssetVersionId>)>,
    visible_from: Query<VisibleFromQuery>,
) -> Result<HttpResponse, ApiError> {
    let (asset, version) = path.into_inner();
    let (kind, version, source) =
        api.services.assets.read_asset_version(&caller, *asset, *version, visible_from.id()).await?;
    let view = VersionView::with_warnings(kind, version)?.with_yaml(source);
    Ok(ResourceResponse::ok(&view).with_capacity(view.content_bytes()).into_response())
}
