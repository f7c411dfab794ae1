//! Operations on announcements, which require the advanced tier.

use super::Notifications;
use crate::{
    Failure, MaybeReplayed,
    access::{Operation, authorize},
    idempotency::keyed_outcome,
};
use fairway_domain::{
    access::{Caller, ResourcePosition},
    id::AnnouncementId,
    idempotency::RequestKey,
    notification::announcement::{Announcement, Audience},
    store::CommitError,
};

impl Notifications {
    /// Returns an announcement of the caller's tenant.
    ///
    /// # Errors
    /// When the caller may not read announcements, a notification setting of the tenant is off, or the announcement is
    /// not found.
    pub async fn read_announcement(&self, caller: &Caller, id: AnnouncementId) -> Result<Announcement, Failure> {
        let position = ResourcePosition::tenant(caller.tenant);
        let scope = authorize::authorize(caller, Operation::ReadAnnouncement, &position)?;
        self.require_advanced_tier(scope).await?;
        self.announcement_store.find(scope, id).await?.ok_or(Failure::NotFound)
    }

    /// Sends a text to the inboxes of an audience.
    ///
    /// # Errors
    /// In these cases: the caller may not manage destinations in the whole tenant; a notification setting of the tenant
    /// is off; a text is invalid; the audience names an unknown workspace.
    pub async fn announce(
        &self,
        caller: &Caller,
        title: String,
        body: String,
        audience: Audience,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<Announcement>, Failure> {
        let position = ResourcePosition::tenant(caller.tenant);
        let scope = authorize::authorize(caller, Operation::MakeAnnouncement, &position)?;
        self.require_advanced_tier(scope).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let id: AnnouncementId = self.context.new_id();
                    let id_and_salt = (id, self.context.ids.salt());
                    let change = Announcement::create(id_and_salt, title, body, audience, &self.context.stamp(caller))?;
                    let announcement = change.next.clone();
                    let outcome = keyed_outcome(key, 201, id.uuid());
                    match self.announcement_store.commit(scope, change, outcome.as_ref()).await {
                        Err(CommitError::Stale) => {
                            let message = "names a workspace that does not exist";
                            Err(Failure::invalid_field("audience.workspaces", "not_found", message))
                        }
                        committed => {
                            committed?;
                            self.context.notify_facts();
                            Ok(announcement)
                        }
                    }
                },
                async |id| self.announcement_store.find(scope, id.into()).await?.ok_or(Failure::NotFound),
            )
            .await
    }
}
