//! Announcements: a text of an administrator for the inboxes of an audience.

use crate::{
    access::{ActorRef, Role},
    audit::{Fact, FactKind, Stamp, Subject},
    fact_category::FactCategory,
    id::{AnnouncementId, WorkspaceId},
    store::{Change, aggregate},
    text::is_name,
    time::Timestamp,
};
use serde_json::json;

/// The maximum length of a title, in characters.
pub const MAX_TITLE: usize = 200;
/// The maximum length of a body, in characters.
pub const MAX_BODY: usize = 4_000;
/// The maximum number of workspaces of an audience.
pub const MAX_WORKSPACES: usize = 100;

/// Whom an announcement reaches: holders of one of the roles that applies in one of the workspaces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Audience {
    /// The roles; empty for any.
    pub roles: Vec<Role>,
    /// The workspaces; empty for any.
    pub workspaces: Vec<WorkspaceId>,
}

/// An announcement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announcement(pub(crate) AnnouncementRecord);

/// The fields of [`Announcement`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnnouncementRecord {
    /// Its identifier.
    pub announcement_id: AnnouncementId,
    /// One line.
    pub title: String,
    /// The text.
    pub body: String,
    /// Whom it reaches.
    pub audience: Audience,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: ActorRef,
}

aggregate!(Announcement, AnnouncementRecord);

/// The reason why an announcement is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnnouncementRefusal {
    /// The title is empty, too long, or contains invisible characters.
    #[error("a title is one line of 1 to {MAX_TITLE} visible characters")]
    Title,
    /// The body is empty, too long, or contains control characters.
    #[error("a body has 1 to {MAX_BODY} characters without control characters other than line breaks")]
    Body,
    /// The audience names too many workspaces.
    #[error("an audience names at most {MAX_WORKSPACES} workspaces")]
    Audience,
}

impl AnnouncementRefusal {
    /// The affected field of the request.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Title => "title",
            Self::Body => "body",
            Self::Audience => "audience.workspaces",
        }
    }
}

fn is_body(text: &str) -> bool {
    let has_text = text.chars().any(|character| !character.is_whitespace());
    has_text
        && text.chars().count() <= MAX_BODY
        && text.chars().all(|character| character == '\n' || character == '\t' || !character.is_control())
}

impl Announcement {
    /// Makes an announcement. Its fact names the audience and never the text.
    ///
    /// # Errors
    /// When the title, the body or the audience is invalid.
    pub fn make(
        announcement_id: AnnouncementId,
        title: String,
        body: String,
        audience: Audience,
        stamp: &Stamp,
    ) -> Result<Change<Self>, AnnouncementRefusal> {
        if !is_name(&title, MAX_TITLE) {
            return Err(AnnouncementRefusal::Title);
        }
        if !is_body(&body) {
            return Err(AnnouncementRefusal::Body);
        }
        if audience.workspaces.len() > MAX_WORKSPACES {
            return Err(AnnouncementRefusal::Audience);
        }
        let subject = Subject { kind: "announcement", id: announcement_id.uuid() };
        let roles: Vec<&str> = audience.roles.iter().map(|role| role.as_str()).collect();
        let detail = json!({ "roles": roles, "workspaces": audience.workspaces });
        let fact = Fact::new(FactKind::AnnouncementMade, subject, None, stamp, detail);
        let fact = fact.with_categories([FactCategory::Reports]);
        let next = Self(AnnouncementRecord {
            announcement_id,
            title,
            body,
            audience,
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
        });
        Ok(Change::create(next, fact))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn make(title: &str, body: &str) -> Result<Change<Announcement>, AnnouncementRefusal> {
        let stamp = Stamp {
            fact_id: Uuid::from_u128(1).into(),
            at: Timestamp::parse("2026-11-27T07:00:00Z").unwrap(),
            actor: ActorRef::parse("user:ada").unwrap(),
            request_id: Uuid::from_u128(2).into(),
        };
        let audience = Audience { roles: vec![Role::Viewer], workspaces: Vec::new() };
        Announcement::make(Uuid::from_u128(3).into(), title.to_owned(), body.to_owned(), audience, &stamp)
    }

    #[test]
    fn texts_have_bounds_and_stay_out_of_the_fact() {
        let change = make("Maintenance", "Tonight.\nFrom ten.").unwrap();
        let fact = String::from_utf8(change.fact.canonical_bytes(Uuid::from_u128(9).into())).unwrap();
        assert!(!fact.contains("Maintenance") && !fact.contains("Tonight"), "{fact}");
        for (title, body, refusal) in [
            ("", "text", AnnouncementRefusal::Title),
            ("two\nlines", "text", AnnouncementRefusal::Title),
            ("title", " \n", AnnouncementRefusal::Body),
            ("title", "bell \u{7}", AnnouncementRefusal::Body),
            ("title", &"a".repeat(MAX_BODY + 1), AnnouncementRefusal::Body),
        ] {
            assert_eq!(make(title, body).unwrap_err(), refusal, "{title:?}");
        }
    }
}
