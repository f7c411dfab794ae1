//! Notices that the credentials of a connection expire: 14 and 3 days before, and at the expiry.

use super::Connection;
use crate::{
    audit::{FactKind, Stamp},
    id::{ConnectionId, TenantId},
    notification_category::NotificationCategory,
    store::Change,
    time::Timestamp,
};
use serde_json::json;

/// The numbers of days before the expiry at which people are notified. At most one notice is due at a time: the one
/// with the fewest remaining days.
pub const NOTICE_DAYS: [u16; 3] = [14, 3, 0];

/// A connection about whose expiry people must be notified now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DueNotice {
    /// The tenant that owns the connection.
    pub tenant: TenantId,
    /// The connection whose credentials expire.
    pub connection_id: ConnectionId,
    /// The days before the expiry: one of [`NOTICE_DAYS`].
    pub days: u16,
}

/// The record that people were notified of an expiry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpiryNotice {
    /// The connection whose credentials expire.
    pub connection_id: ConnectionId,
    /// When the credentials expire. A notice applies to this expiry only.
    pub expires_at: Timestamp,
    /// The days before the expiry: one of [`NOTICE_DAYS`].
    pub days: u16,
    /// When people were notified.
    pub noticed_at: Timestamp,
}

impl Connection {
    /// Decides on a notice of the expiry; `None` for a connection without an expiry.
    #[must_use]
    pub fn record_expiry_notice(&self, days: u16, stamp: &Stamp) -> Option<Change<ExpiryNotice>> {
        let expires_at = self.expires_at?;
        let notice = ExpiryNotice { connection_id: self.connection_id, expires_at, days, noticed_at: stamp.at };
        let detail = json!({ "days": days, "expires_at": expires_at.to_string() });
        let fact = self
            .fact(FactKind::ConnectionExpiring, stamp, detail)
            .with_notification_categories([NotificationCategory::CredentialExpiry]);
        Some(Change::replace(notice, self.revision, fact))
    }
}
