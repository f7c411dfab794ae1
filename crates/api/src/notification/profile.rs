//! Routes of the caller's notification profile: digests and a personal chat. They require the tenant setting
//! `advanced_notifications_enabled`.

use super::parse_category;
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{body::Body, etag::IfMatch},
    openapi::{IfMatchParams, ReadRefusals, RevisionRefusal, WriteRefusals},
    response::ResourceResponse,
};
use actix_web::{HttpResponse, get, put, web};
use fairway_domain::{
    notification::{
        digest::{DigestFrequency, Zone},
        profile::ProfileSettings,
    },
    store::Revision,
};
use fairway_operations::notification::profile::ProfileState;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;
use validator::Validate;

/// How a person is reached outside the inbox.
#[derive(Deserialize, Serialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[schema(as = NotificationProfile)]
pub(crate) struct ProfileBody {
    /// Name in the IANA time zone database, such as `Europe/Berlin`. A daily digest is due at midnight there.
    time_zone: String,
    /// `off`, `hourly` or `daily` by category. A category without an entry is sent at once.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, String>)]
    digest: BTreeMap<String, String>,
    /// `env:NAME`, `file:name` or `vault:path#key`: the address of the person's own chat. Null for none.
    #[serde(default)]
    chat_secret_ref: Option<String>,
}

impl ProfileBody {
    fn of(settings: &ProfileSettings) -> Self {
        let digest = settings.digest.iter();
        Self {
            time_zone: settings.zone.name().to_owned(),
            digest: digest
                .map(|(category, frequency)| (category.as_str().to_owned(), frequency.as_str().to_owned()))
                .collect(),
            chat_secret_ref: settings.chat_secret_ref.clone(),
        }
    }

    fn into_settings(self) -> Result<ProfileSettings, ApiError> {
        let mut fields = FieldErrors::default();
        let unknown = || FieldProblem::new("time_zone", "invalid", "must be a name of the IANA time zone database");
        let zone = fields.check(Zone::parse(&self.time_zone).ok_or_else(unknown));
        let mut digest = BTreeMap::new();
        for (name, frequency) in &self.digest {
            let category = fields.check(parse_category("digest", name));
            let rule = || FieldProblem::new("digest", "invalid", "must be `off`, `hourly` or `daily`");
            let frequency = fields.check(DigestFrequency::parse(frequency).ok_or_else(rule));
            digest.extend(category.zip(frequency));
        }
        fields.finish(|| Some(ProfileSettings { zone: zone?, digest, chat_secret_ref: self.chat_secret_ref }))
    }
}

fn respond(state: &ProfileState) -> HttpResponse {
    let view = ProfileBody::of(&state.settings);
    ResourceResponse::ok(&view).with_etag(state.revision.unwrap_or(Revision::UNSET)).into_response()
}

/// Reads the caller's notification profile. Requires the tenant setting `advanced_notifications_enabled`.
#[utoipa::path(
    operation_id = "read_notification_profile",
    tag = "notifications",
    responses((status = 200, description = "The profile", body = ProfileBody), ReadRefusals)
)]
#[get("/v1/notifications/profile")]
pub(crate) async fn read_notification_profile(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
) -> Result<HttpResponse, ApiError> {
    Ok(respond(&api.services.notifications.profile(&caller).await?))
}

/// Replaces the caller's notification profile. Requires the tenant setting `advanced_notifications_enabled`.
#[utoipa::path(
    operation_id = "change_notification_profile",
    tag = "notifications",
    params(IfMatchParams),
    request_body = ProfileBody,
    responses((status = 200, description = "The profile", body = ProfileBody), RevisionRefusal, WriteRefusals)
)]
#[put("/v1/notifications/profile")]
pub(crate) async fn change_notification_profile(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    expected: IfMatch,
    body: Body<ProfileBody>,
) -> Result<HttpResponse, ApiError> {
    let settings = body.into_inner().into_settings()?;
    Ok(respond(&api.services.notifications.replace_profile(&caller, &settings, &expected).await?))
}
