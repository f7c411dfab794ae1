//! Route of announcements.

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{body::Body, idempotency::IdempotencyHeader},
    openapi::{KeyParams, WriteRefusals},
    response::ResourceResponse,
    value_rules::limit,
};
use actix_web::{HttpResponse, http::StatusCode, post, web};
use fairway_domain::{
    access::Role,
    notification::announcement::{Announcement, Audience, MAX_BODY, MAX_TITLE, MAX_WORKSPACES},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// Whom an announcement reaches: holders of one of the roles that applies in one of the workspaces.
#[derive(Deserialize, Serialize, ToSchema, Validate, Default)]
#[serde(deny_unknown_fields)]
#[schema(as = AnnouncementAudience)]
pub(crate) struct AudienceBody {
    /// Names of roles; empty for any role.
    #[serde(default)]
    #[schema(max_items = 20)]
    #[validate(length(max = 20))]
    roles: Vec<String>,
    /// Workspaces; empty for any workspace.
    #[serde(default)]
    #[schema(max_items = 100)]
    #[validate(length(max = limit(MAX_WORKSPACES)))]
    workspaces: Vec<Uuid>,
}

/// A text for the inboxes of an audience.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAnnouncement {
    /// One line.
    #[schema(min_length = 1, max_length = 200)]
    #[validate(length(min = 1, max = limit(MAX_TITLE)))]
    title: String,
    /// The text, without markup.
    #[schema(min_length = 1, max_length = 4000)]
    #[validate(length(min = 1, max = limit(MAX_BODY)))]
    body: String,
    /// Default: everybody who has a role.
    #[serde(default)]
    #[validate(nested)]
    audience: AudienceBody,
}

/// An announcement.
#[derive(Serialize, ToSchema)]
#[schema(as = Announcement)]
pub(crate) struct AnnouncementView {
    announcement_id: Uuid,
    title: String,
    body: String,
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

/// Announces a text to the inboxes of an audience. Requires the advanced tier.
#[utoipa::path(
    operation_id = "make_announcement",
    tag = "notifications",
    params(KeyParams),
    request_body = NewAnnouncement,
    responses((status = 201, description = "The announcement", body = AnnouncementView), WriteRefusals)
)]
#[post("/v1/notifications/announcements")]
pub(crate) async fn make_announcement(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    keyed: IdempotencyHeader,
    body: Body<NewAnnouncement>,
) -> Result<HttpResponse, ApiError> {
    let key = keyed.into_request_key(&caller.actor, || body.digest());
    let NewAnnouncement { title, body, audience: of } = body.into_inner();
    let audience = audience(&of)?;
    let done = api.services.notifications.announce(&caller, title, body, audience, key.as_ref()).await?;
    let view = AnnouncementView::of(&done.value);
    Ok(ResourceResponse::idempotent(&done, &view, StatusCode::CREATED)?.into_response())
}
