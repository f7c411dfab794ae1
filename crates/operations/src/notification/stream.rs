//! The live stream of an inbox: notifications in the order of the audit log, from any position.

use super::Notifications;
pub use super::inbox_wakeups::ProjectionSubscription;
use crate::{Failure, access::Operation};
use fairway_domain::{access::Caller, notification::inbox::Notification, tenant::TenantScope};

/// Maximum number of notifications that one read returns.
const MAX_BATCH: u32 = 100;

/// A page of an inbox stream.
#[derive(Clone, Debug)]
pub struct InboxBatch {
    /// The notifications of this page, oldest first.
    pub notifications: Vec<Notification>,
    /// The position from which the next page starts: an index in the audit log.
    pub next: u64,
    /// The number of unread notifications, counted up to 10,001; `None` if the number is unchanged or was not compared.
    pub unread: Option<u64>,
    /// Whether the page is full, so that further notifications may be stored.
    pub has_more: bool,
}

impl Notifications {
    /// Opens the stream with the notifications that the caller missed since `last_seen`, and with the number of its
    /// unread notifications. Without `last_seen`, the stream starts at the current end of the log. It also starts there
    /// if `last_seen` is beyond the end, because the log may have been restored from an older backup. Otherwise no
    /// notification would arrive until the log reaches that position.
    ///
    /// # Errors
    /// As [`Self::list_inbox`].
    pub async fn open_inbox_stream(&self, caller: &Caller, last_seen: Option<u64>) -> Result<InboxBatch, Failure> {
        let scope = self.authorize_own(caller, Operation::ReadInboxStream).await?;
        // The end is read before the count. A notification that is created in between is then counted, and the stream
        // returns it too.
        let end = self.inbox_store.count_projected(scope).await?;
        let mut batch = match last_seen.filter(|last_seen| *last_seen <= end) {
            Some(position) => self.inbox_since(caller, position, None).await?,
            None => InboxBatch { notifications: Vec::new(), next: end, unread: None, has_more: false },
        };
        if batch.unread.is_none() {
            batch.unread = Some(self.inbox_store.count_unread(scope, &caller.actor).await?);
        }
        Ok(batch)
    }

    /// Returns the caller's notifications about facts from `first_index` on. If there are none, the number of unread
    /// notifications is returned only if it differs from `known_unread`. Each read authorizes the caller again.
    ///
    /// # Errors
    /// As [`Self::list_inbox`].
    pub async fn inbox_since(
        &self,
        caller: &Caller,
        first_index: u64,
        known_unread: Option<u64>,
    ) -> Result<InboxBatch, Failure> {
        let scope = self.authorize_own(caller, Operation::ReadInboxStream).await?;
        let notifications = self.inbox_store.list_from(scope, &caller.actor, first_index, MAX_BATCH).await?;
        let Some(last_notification) = notifications.last() else {
            let unread = match known_unread {
                None => None,
                Some(known_count) => {
                    let current_count = self.inbox_store.count_unread(scope, &caller.actor).await?;
                    (current_count != known_count).then_some(current_count)
                }
            };
            return Ok(InboxBatch { notifications, next: first_index, unread, has_more: false });
        };
        let next = last_notification.log_index.saturating_add(1);
        let unread = Some(self.inbox_store.count_unread(scope, &caller.actor).await?);
        let has_more = u32::try_from(notifications.len()).unwrap_or(MAX_BATCH) >= MAX_BATCH;
        Ok(InboxBatch { notifications, next, unread, has_more })
    }

    /// Subscribes to the projections of this process for the caller's tenant, starting now.
    #[must_use]
    pub fn subscribe_to_projections(&self, caller: &Caller) -> ProjectionSubscription {
        self.inbox_wakeups.subscribe(TenantScope::for_caller(caller).tenant())
    }
}
