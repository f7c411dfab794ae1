//! Routes of announcements.

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{body::Body, idempotency::IdempotencyHeader, path::PathId},
    openapi::{IdempotencyKeyParams, ReadRefusals, WriteRefusals},
    response::ResourceResponse,
    value_rules::limit,
};
use actix_web::{HttpResponse, get, post, web};
use fairway_domain::{
    access::Role,
    id::AnnouncementId,
    notification::announcement::{Announcement, Audience, MAX_AUDIENCE_WORKSPACES, MAX_BODY, MAX_TITLE},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// The audience of an announcement: people with one of these roles, if the role applies in one of these workspaces.
#[derive(Deserialize, Serialize, ToSchema, Validate, Default)]
#[serde(deny_unknown_fields)]
#[schema(as = AnnouncementAudience)]
pub(crate) struct AudienceBody {
    /// Only people with one of these roles get the announcement; empty for any role.
    #[serde(default)]
    #[schema(max_items = 20)]
    #[validate(length(max = 20))]
    roles: Vec<String>,
    /// Only people with a role in one of these workspaces get the announcement; empty for any workspace.
    #[serde(default)]
    #[schema(max_items = 100)]
    #[validate(length(max = limit(MAX_AUDIENCE_WORKSPACES)))]
    workspaces: Vec<Uuid>,
}

/// A text for the inboxes of an audience.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAnnouncement {
    /// The title, in one line.
    #[schema(min_length = 1, max_length = 200)]
    #[validate(length(min = 1, max = limit(MAX_TITLE)))]
    title: String,
    /// The text, without markup.
    #[schema(min_length = 1, max_length = 4000)]
    #[validate(length(min = 1, max = limit(MAX_BODY)))]
    body: String,
    /// The audience; by default everybody who has a role.
    #[serde(default)]
    #[validate(nested)]
    audience: AudienceBody,
}

/// A stored announcement with its audience.
#[derive(Serialize, ToSchema)]
#[schema(as = Announcement)]
pub(crate) struct AnnouncementView {
    announcement_id: Uuid,
    title: String,
    body: String,
    /// The salt of the digest, in hex; null for an announcement of an earlier version.
    text_salt: Option<String>,
    /// `sha256:` and the SHA-256 of the salt and the canonical JSON (RFC 8785) of `announcement_id`, `body` and
    /// `title`. The event `notification.announcement_made` contains it as `detail.text_digest`.
    text_digest: Option<String>,
    audience: AudienceBody,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
}

impl AnnouncementView {
    fn of(announcement: &Announcement) -> Self {
        let Audience { roles, workspaces } = &announcement.audience;
        Self {
            announcement_id: announcement.announcement_id.uuid(),
            title: announcement.title.clone(),
            body: announcement.body.clone(),
            text_salt: announcement.text_salt.map(|salt| format!("{:032x}", u128::from_be_bytes(salt))),
            text_digest: announcement.text_digest(),
            audience: AudienceBody {
                roles: roles.iter().map(|role| role.as_str().to_owned()).collect(),
                workspaces: workspaces.iter().map(|id| id.uuid()).collect(),
            },
            created_at: announcement.created_at.to_string(),
            created_by: announcement.created_by.to_string(),
        }
    }
}

fn audience(body: &AudienceBody) -> Result<Audience, ApiError> {
    let mut fields = FieldErrors::default();
    let mut roles = Vec::new();
    for (position, name) in body.roles.iter().enumerate() {
        let role = Role::parse(name).ok_or_else(|| FieldProblem::invalid(format!("audience.roles[{position}]")));
        roles.push(fields.check(role));
    }
    let workspaces = body.workspaces.iter().copied().map(Into::into).collect();
    fields.finish(|| Some(Audience { roles: roles.into_iter().collect::<Option<_>>()?, workspaces }))
}

/// Announces a text to the inboxes of an audience. Requires the tenant setting `advanced_notifications_enabled`.
#[utoipa::path(
    operation_id = "make_announcement",
    tag = "notifications",
    params(IdempotencyKeyParams),
    request_body = NewAnnouncement,
    responses((status = 201, description = "The announcement", body = AnnouncementView), WriteRefusals)
)]
#[post("/v1/notifications/announcements")]
pub(crate) async fn make_announcement(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    idempotency: IdempotencyHeader,
    body: Body<NewAnnouncement>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let NewAnnouncement { title, body, audience: new_audience } = body.into_inner();
    let audience = audience(&new_audience)?;
    let outcome = api.services.notifications.announce(&caller, title, body, audience, key.as_ref()).await?;
    let view = AnnouncementView::of(&outcome.value);
    let location = format!("/v1/notifications/announcements/{}", view.announcement_id);
    Ok(ResourceResponse::created(&outcome, &view, location)?.into_response())
}

/// Reads an announcement. Requires the tenant setting `advanced_notifications_enabled`.
#[utoipa::path(
    operation_id = "read_announcement",
    tag = "notifications",
    params(("announcement_id" = Uuid, Path, description = "The announcement")),
    responses((status = 200, description = "The announcement", body = AnnouncementView), ReadRefusals)
)]
#[get("/v1/notifications/announcements/{announcement_id}")]
pub(crate) async fn read_announcement(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    id: PathId<AnnouncementId>,
) -> Result<HttpResponse, ApiError> {
    let announcement = api.services.notifications.read_announcement(&caller, *id).await?;
    Ok(ResourceResponse::ok(&AnnouncementView::of(&announcement)).into_response())
}
