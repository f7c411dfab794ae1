//! Announcements: texts that an administrator sends to the inboxes of an audience.

use crate::{
    access::{ActorRef, Role},
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{AnnouncementId, WorkspaceId},
    notification_category::NotificationCategory,
    store::{Change, aggregate},
    text::{is_blank, is_blank_or_prose, is_name},
    time::Timestamp,
};
use serde_json::json;
use sha2::{Digest as _, Sha256};

/// The maximum length of an announcement's title, in characters.
pub const MAX_TITLE: usize = 200;
/// The maximum length of an announcement's body, in characters.
pub const MAX_BODY: usize = 4_000;
/// The maximum number of workspaces that an audience can name.
pub const MAX_AUDIENCE_WORKSPACES: usize = 100;

/// The recipients of an announcement: all people who have one of the roles in one of the workspaces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Audience {
    /// The roles of the recipients; empty for any role.
    pub roles: Vec<Role>,
    /// The workspaces of the recipients; empty for any workspace.
    pub workspaces: Vec<WorkspaceId>,
}

/// An announcement: a text that an administrator sends to the inboxes of an audience.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announcement(pub(crate) AnnouncementRecord);

/// The fields of [`Announcement`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnnouncementRecord {
    /// The identifier of the announcement.
    pub announcement_id: AnnouncementId,
    /// The title, which is one line of text.
    pub title: String,
    /// The body, which can have several lines.
    pub body: String,
    /// The salt of the text's digest; `None` if an earlier version of Fairway created the announcement.
    pub text_salt: Option<[u8; 16]>,
    /// The people who receive the announcement.
    pub audience: Audience,
    /// The time at which the announcement was created.
    pub created_at: Timestamp,
    /// The administrator who created the announcement.
    pub created_by: ActorRef,
}

aggregate!(Announcement, AnnouncementRecord);

/// The reason why an announcement cannot be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnnouncementRefusal {
    /// The title is empty, too long, or has invisible characters.
    #[error("a title is one line of 1 to {MAX_TITLE} visible characters")]
    Title,
    /// The body is empty, too long, or has hidden characters, such as those that change the direction of the text.
    #[error("a body has 1 to {MAX_BODY} visible characters and line breaks")]
    Body,
    /// The audience names more workspaces than [`MAX_AUDIENCE_WORKSPACES`].
    #[error("an audience names at most {MAX_AUDIENCE_WORKSPACES} workspaces")]
    Audience,
}

impl AnnouncementRefusal {
    /// The request field that has the problem.
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
    is_blank_or_prose(text, MAX_BODY) && !is_blank(text)
}

impl Announcement {
    /// The digest `sha256:<hex>` of the salt and the canonical JSON of identifier, title and body. The fact of the
    /// announcement contains this digest, which proves the text without revealing it. `None` if an earlier version of
    /// Fairway created the announcement.
    #[must_use]
    pub fn text_digest(&self) -> Option<String> {
        let record = json!({ "announcement_id": self.announcement_id, "title": self.title, "body": self.body });
        // A JSON map has string keys and finite numbers, so its serialization cannot fail.
        let bytes = serde_json_canonicalizer::to_vec(&record).unwrap_or_default();
        let digest = Sha256::new().chain_update(self.text_salt?).chain_update(bytes).finalize();
        Some(digest.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}")))
    }

    /// Creates an announcement. Its fact contains the audience and omits the text.
    ///
    /// # Errors
    /// If the title, the body or the audience is invalid.
    pub fn create(
        (announcement_id, text_salt): (AnnouncementId, [u8; 16]),
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
        if audience.workspaces.len() > MAX_AUDIENCE_WORKSPACES {
            return Err(AnnouncementRefusal::Audience);
        }
        let subject = FactSubject { kind: "announcement", id: announcement_id.uuid() };
        let next = Self(AnnouncementRecord {
            announcement_id,
            title,
            body,
            text_salt: Some(text_salt),
            audience,
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
        });
        let roles: Vec<&str> = next.audience.roles.iter().map(|role| role.as_str()).collect();
        let detail =
            json!({ "roles": roles, "workspaces": next.audience.workspaces, "text_digest": next.text_digest() });
        let fact = Fact::new(FactKind::AnnouncementMade, subject, None, stamp, detail);
        let fact = fact.with_notification_categories([NotificationCategory::Reports]);
        Ok(Change::create(next, fact))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::disclosed_detail::disclosed_detail;
    use uuid::Uuid;

    fn make(title: &str, body: &str) -> Result<Change<Announcement>, AnnouncementRefusal> {
        let stamp = Stamp {
            fact_id: Uuid::from_u128(1).into(),
            at: Timestamp::parse("2026-11-27T07:00:00Z").unwrap(),
            actor: ActorRef::parse("user:ada").unwrap(),
            request_id: Uuid::from_u128(2).into(),
        };
        let audience = Audience { roles: vec![Role::Viewer], workspaces: Vec::new() };
        Announcement::create((Uuid::from_u128(3).into(), [7; 16]), title.to_owned(), body.to_owned(), audience, &stamp)
    }

    #[test]
    fn texts_have_bounds_and_stay_out_of_the_fact() {
        let change = make("Maintenance", "Tonight.\nFrom ten.").unwrap();
        let fact = String::from_utf8(change.fact.canonical_bytes(Uuid::from_u128(9).into())).unwrap();
        assert!(!fact.contains("Maintenance") && !fact.contains("Tonight"), "{fact}");
        assert_eq!(change.fact.detail["text_digest"], json!(change.next.text_digest().unwrap()));
        let disclosed = disclosed_detail(change.fact.kind.as_str(), change.fact.detail.clone());
        assert_eq!(disclosed.as_ref(), Some(&change.fact.detail), "an auditor recomputes the leaf hash from it");
        let mut altered = change.next.clone();
        altered.0.body.push('.');
        assert_ne!(altered.text_digest(), change.next.text_digest());
        for (title, body, refusal) in [
            ("", "text", AnnouncementRefusal::Title),
            ("two\nlines", "text", AnnouncementRefusal::Title),
            ("title", " \n", AnnouncementRefusal::Body),
            ("title", "bell \u{7}", AnnouncementRefusal::Body),
            ("title", "a\u{202e}b", AnnouncementRefusal::Body),
            ("title", "a\u{2066}b", AnnouncementRefusal::Body),
            ("title", "a\u{200b}b", AnnouncementRefusal::Body),
            ("a\u{202e}b", "text", AnnouncementRefusal::Title),
            ("title", &"a".repeat(MAX_BODY + 1), AnnouncementRefusal::Body),
        ] {
            assert_eq!(make(title, body).unwrap_err(), refusal, "{title:?}");
        }
    }
}
