//! Routes of notifications.

pub(crate) mod announcement;
pub(crate) mod delivery;
pub(crate) mod destination;
pub(crate) mod inbox;
pub(crate) mod preference;
pub(crate) mod profile;
pub(crate) mod stream;
pub(crate) mod suppressed;

use crate::error::FieldProblem;
use fairway_domain::{id::FactId, notification::Channel, notification_category::NotificationCategory};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// The fact that a notification is about.
#[derive(Serialize, ToSchema)]
#[schema(as = SourceEvent)]
pub(crate) struct SourceEventView {
    /// Kind of the fact, as in the audit log.
    kind: String,
    /// Identifier of the fact, which is an event of the audit log.
    id: Uuid,
}

impl SourceEventView {
    const fn new(kind: String, id: FactId) -> Self {
        Self { kind, id: id.uuid() }
    }
}

fn parse_category(path: &str, text: &str) -> Result<NotificationCategory, FieldProblem> {
    let rule = "must be a notification category";
    NotificationCategory::parse(text).ok_or_else(|| FieldProblem::new(path, "invalid", rule))
}

fn parse_channel(path: &str, text: &str) -> Result<Channel, FieldProblem> {
    Channel::parse(text).ok_or_else(|| FieldProblem::new(path, "invalid", "must be a notification channel"))
}
