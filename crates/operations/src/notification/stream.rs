//! The live stream of an inbox: notifications in the order of the log, from any position.

use super::Notifications;
use crate::{Failure, access::Operation};
use fairway_domain::{access::Caller, notification::inbox::Notification};
use std::time::Duration;
use tokio::sync::watch;

/// Maximum number of notifications of one read.
const MAX_BATCH: u32 = 100;

/// Notifications since a position.
#[derive(Clone, Debug)]
pub struct InboxBatch {
    /// The notifications, oldest first.
    pub notifications: Vec<Notification>,
    /// The position after them: the index of the first fact that was not read.
    pub next: u64,
    /// The number of unread notifications, up to 10,001; `None` if nothing new was read.
    pub unread: Option<u64>,
    /// Whether further notifications are already stored.
    pub has_more: bool,
}

impl Notifications {
    /// The caller's notifications about facts from the index `from`; without one, only the present position and the number of
    /// unread notifications. Each read authorizes the caller again.
    ///
    /// # Errors
    /// As [`Self::list_inbox`].
    pub async fn inbox_since(&self, caller: &Caller, from: Option<u64>) -> Result<InboxBatch, Failure> {
        let scope = self.authorize_own(caller, Operation::ReadInboxStream).await?;
        let Some(from) = from else {
            // The position is read first, so that no notification lies between the count and the stream.
            let next = self.inbox_store.projected(scope).await?;
            let unread = Some(self.inbox_store.count_unread(scope, &caller.actor).await?);
            return Ok(InboxBatch { notifications: Vec::new(), next, unread, has_more: false });
        };
        let notifications = self.inbox_store.list_from(scope, &caller.actor, from, MAX_BATCH).await?;
        let Some(last) = notifications.last() else {
            return Ok(InboxBatch { notifications, next: from, unread: None, has_more: false });
        };
        let next = last.log_index.saturating_add(1);
        let unread = Some(self.inbox_store.count_unread(scope, &caller.actor).await?);
        let has_more = u32::try_from(notifications.len()).unwrap_or(MAX_BATCH) >= MAX_BATCH;
        Ok(InboxBatch { notifications, next, unread, has_more })
    }

    /// Follows the projections of this process from now on.
    #[must_use]
    pub fn inbox_changes(&self) -> InboxChanges {
        InboxChanges(self.inbox_wakeup.subscribe())
    }
}

/// The projections of this process since the last wait.
pub struct InboxChanges(watch::Receiver<()>);

impl InboxChanges {
    /// Waits until this process has projected further facts since the last wait, or the time is over: other processes project
    /// too.
    pub async fn wait(&mut self, most: Duration) {
        let _ = tokio::time::timeout(most, self.0.changed()).await;
    }
}
