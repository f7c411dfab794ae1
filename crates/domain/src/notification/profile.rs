//! Notification profiles: how a person is reached outside the inbox.

use crate::{
    access::ActorRef,
    audit::{Fact, FactKind, Stamp, Subject},
    fact_category::FactCategory,
    id::{NotificationProfileId, TenantId},
    notification::digest::{DigestFrequency, Zone},
    secret::SecretRef,
    store::{Change, Revision, aggregate},
    time::Timestamp,
};
use serde_json::json;
use std::collections::BTreeMap;

/// How a person is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotificationProfile(pub(crate) NotificationProfileRecord);

/// The fields of [`NotificationProfile`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotificationProfileRecord {
    /// Its identifier.
    pub profile_id: NotificationProfileId,
    /// The person.
    pub principal: ActorRef,
    /// The settings.
    pub settings: ProfileSettings,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Increments with each change.
    pub revision: Revision,
}

aggregate!(NotificationProfile, NotificationProfileRecord);

/// The settings of a profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfileSettings {
    /// The time zone of digests.
    pub zone: Zone,
    /// The frequency of digests; a category without an entry is sent at once.
    pub digest: BTreeMap<FactCategory, DigestFrequency>,
    /// The reference to the address of the person's chat.
    pub chat_secret_ref: Option<String>,
}

/// The reason why a profile is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a secret reference has the form `env:NAME`, `file:name` or `vault:path#key`")]
pub struct InvalidChatSecret;

impl NotificationProfile {
    /// Replaces the profile of a person; `None` if nothing changes.
    ///
    /// # Errors
    /// When the secret reference has another form.
    pub fn replace(
        tenant: TenantId,
        profile_id: NotificationProfileId,
        before: Option<&Self>,
        settings: ProfileSettings,
        stamp: &Stamp,
    ) -> Result<Option<Change<Self>>, InvalidChatSecret> {
        if let Some(reference) = &settings.chat_secret_ref {
            SecretRef::parse(reference).map_err(|_| InvalidChatSecret)?;
        }
        if before.is_some_and(|before| before.settings == settings) {
            return Ok(None);
        }
        let next = Self(NotificationProfileRecord {
            profile_id: before.map_or(profile_id, |before| before.profile_id),
            principal: stamp.actor.clone(),
            settings,
            updated_at: stamp.at,
            revision: before.map_or(Revision::FIRST, |before| before.revision.next()),
        });
        let subject = Subject { kind: "notification_profile", id: next.profile_id.uuid() };
        let digest: BTreeMap<&str, &str> =
            next.settings.digest.iter().map(|(category, frequency)| (category.as_str(), frequency.as_str())).collect();
        let detail = json!({
            "tenant_id": tenant,
            "digest": digest,
            "has_chat_secret_ref": next.settings.chat_secret_ref.is_some(),
        });
        let fact = Fact::new(FactKind::NotificationProfileChanged, subject, None, stamp, detail);
        Ok(Some(match before {
            Some(before) => Change::replace(next, before.revision, fact),
            None => Change::create(next, fact),
        }))
    }
}

impl Default for ProfileSettings {
    /// Each notification at once.
    fn default() -> Self {
        Self { zone: Zone::utc(), digest: BTreeMap::new(), chat_secret_ref: None }
    }
}

impl ProfileSettings {
    /// The frequency of a category.
    #[must_use]
    pub fn frequency(&self, category: FactCategory) -> DigestFrequency {
        self.digest.get(&category).copied().unwrap_or(DigestFrequency::Off)
    }
}
