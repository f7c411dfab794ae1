//! Notification profiles: the settings by which a person is reached outside the inbox.

use crate::{
    access::ActorRef,
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{NotificationProfileId, TenantId},
    notification::digest::{DigestFrequency, Zone},
    notification_category::NotificationCategory,
    secret::SecretRef,
    store::{Change, Revision, aggregate},
    time::Timestamp,
};
use serde_json::json;
use std::collections::BTreeMap;

/// The profile of a person: how Fairway reaches the person outside the inbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotificationProfile(pub(crate) NotificationProfileRecord);

/// The fields of [`NotificationProfile`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotificationProfileRecord {
    /// The identifier of the profile.
    pub profile_id: NotificationProfileId,
    /// The person to whom the profile belongs.
    pub principal: ActorRef,
    /// The settings that the person chose.
    pub settings: ProfileSettings,
    /// The time of the last change.
    pub updated_at: Timestamp,
    /// The change counter, which increments with each change.
    pub revision: Revision,
}

aggregate!(NotificationProfile, NotificationProfileRecord);

/// The settings in a notification profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfileSettings {
    /// The time zone whose clock determines the windows of digests.
    pub zone: Zone,
    /// The digest frequency of each category. Notifications of a category without an entry are sent individually.
    pub digest: BTreeMap<NotificationCategory, DigestFrequency>,
    /// The reference to the secret address of the person's own chat, if the person has one.
    pub chat_secret_ref: Option<String>,
}

/// The reference to the chat's secret address has an invalid form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a secret reference has the form `env:NAME`, `file:name` or `vault:path#key`")]
pub struct InvalidChatSecretRef;

impl NotificationProfile {
    /// Replaces the settings in a person's profile; `None` if nothing changes.
    ///
    /// # Errors
    /// If the secret reference has an invalid form.
    pub fn replace(
        tenant: TenantId,
        profile_id: NotificationProfileId,
        previous: Option<&Self>,
        settings: ProfileSettings,
        stamp: &Stamp,
    ) -> Result<Option<Change<Self>>, InvalidChatSecretRef> {
        if let Some(reference) = &settings.chat_secret_ref {
            SecretRef::parse(reference).map_err(|_| InvalidChatSecretRef)?;
        }
        if previous.is_some_and(|previous| previous.settings == settings) {
            return Ok(None);
        }
        let next = Self(NotificationProfileRecord {
            profile_id: previous.map_or(profile_id, |previous| previous.profile_id),
            principal: stamp.actor.clone(),
            settings,
            updated_at: stamp.at,
            revision: previous.map_or(Revision::FIRST, |previous| previous.revision.next()),
        });
        let subject = FactSubject { kind: "notification_profile", id: next.profile_id.uuid() };
        let digest: BTreeMap<&str, &str> =
            next.settings.digest.iter().map(|(category, frequency)| (category.as_str(), frequency.as_str())).collect();
        let detail = json!({
            "tenant_id": tenant,
            "digest": digest,
            "has_chat_secret_ref": next.settings.chat_secret_ref.is_some(),
        });
        let fact = Fact::new(FactKind::NotificationProfileChanged, subject, None, stamp, detail);
        Ok(Some(match previous {
            Some(previous) => Change::replace(next, previous.revision, fact),
            None => Change::create(next, fact),
        }))
    }
}

impl Default for ProfileSettings {
    /// The settings of a person without a profile: the time zone UTC, no digests and no chat.
    fn default() -> Self {
        Self { zone: Zone::utc(), digest: BTreeMap::new(), chat_secret_ref: None }
    }
}

impl ProfileSettings {
    /// How often the person receives the notifications of this category.
    #[must_use]
    pub fn digest_frequency(&self, category: NotificationCategory) -> DigestFrequency {
        self.digest.get(&category).copied().unwrap_or(DigestFrequency::Off)
    }
}
