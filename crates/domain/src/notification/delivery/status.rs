//! The statuses of a delivery, and the transitions between them. Tests compare the SQL statements of the outbox with
//! this table.

/// The status of a delivery in the outbox.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DeliveryStatus {
    /// The delivery waits for its next attempt.
    Pending,
    /// A sender has claimed the delivery under a lease.
    Claimed,
    /// The receiver accepted the delivery.
    Sent,
    /// The last permitted attempt failed, or the failure is permanent.
    Failed,
    /// A notification setting of the tenant was turned off while the delivery waited.
    Suppressed,
    /// The destination was disabled or deleted while the delivery waited.
    Cancelled,
}

/// An event that moves a delivery to another status.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DeliveryEvent {
    /// A sender claims the delivery, because it is due or because the lease of another sender has expired.
    Claimed,
    /// A sender finds the due delivery after a notification setting of the tenant was turned off.
    SettingDisabled,
    /// A sender finds the due delivery after its destination was turned off.
    DestinationDisabled,
    /// The sender that claimed the delivery returns it without an attempt.
    Returned,
    /// The receiver accepted the delivery.
    Accepted,
    /// The attempt failed, and a further attempt will follow.
    AttemptFailed,
    /// The attempt failed, and no further attempt will follow.
    GivenUp,
    /// A person retries the delivery.
    RetriedByHand,
}

impl DeliveryStatus {
    /// Every status.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Claimed, Self::Sent, Self::Failed, Self::Suppressed, Self::Cancelled];

    /// The wire form, such as `pending`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Claimed => "claimed",
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Suppressed => "suppressed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// The status after this event; `None` if the event cannot occur in this status.
    #[must_use]
    pub const fn after(self, event: DeliveryEvent) -> Option<Self> {
        match (self, event) {
            (Self::Pending | Self::Claimed, DeliveryEvent::Claimed) => Some(Self::Claimed),
            (Self::Pending | Self::Claimed, DeliveryEvent::SettingDisabled) => Some(Self::Suppressed),
            (Self::Pending | Self::Claimed, DeliveryEvent::DestinationDisabled) => Some(Self::Cancelled),
            (Self::Claimed, DeliveryEvent::Returned | DeliveryEvent::AttemptFailed)
            | (Self::Failed, DeliveryEvent::RetriedByHand) => Some(Self::Pending),
            (Self::Claimed, DeliveryEvent::Accepted) => Some(Self::Sent),
            (Self::Claimed, DeliveryEvent::GivenUp) => Some(Self::Failed),
            (
                Self::Pending,
                DeliveryEvent::Returned
                | DeliveryEvent::Accepted
                | DeliveryEvent::AttemptFailed
                | DeliveryEvent::GivenUp
                | DeliveryEvent::RetriedByHand,
            )
            | (Self::Claimed, DeliveryEvent::RetriedByHand)
            | (
                Self::Failed,
                DeliveryEvent::Claimed
                | DeliveryEvent::SettingDisabled
                | DeliveryEvent::DestinationDisabled
                | DeliveryEvent::Returned
                | DeliveryEvent::Accepted
                | DeliveryEvent::AttemptFailed
                | DeliveryEvent::GivenUp,
            )
            | (Self::Sent | Self::Suppressed | Self::Cancelled, _) => None,
        }
    }
}

impl DeliveryEvent {
    /// Every event.
    pub const ALL: [Self; 8] = [
        Self::Claimed,
        Self::SettingDisabled,
        Self::DestinationDisabled,
        Self::Returned,
        Self::Accepted,
        Self::AttemptFailed,
        Self::GivenUp,
        Self::RetriedByHand,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_waiting_and_failed_deliveries_change() {
        let changes = |status: DeliveryStatus| {
            DeliveryEvent::ALL.into_iter().filter_map(|event| status.after(event)).collect::<Vec<_>>()
        };
        for status in DeliveryStatus::ALL {
            assert_eq!(DeliveryStatus::parse(status.as_str()), Some(status));
        }
        for final_status in [DeliveryStatus::Sent, DeliveryStatus::Suppressed, DeliveryStatus::Cancelled] {
            assert_eq!(changes(final_status), [], "{final_status:?}");
        }
        assert_eq!(changes(DeliveryStatus::Failed), [DeliveryStatus::Pending]);
        let (pending, claimed) = (changes(DeliveryStatus::Pending), changes(DeliveryStatus::Claimed));
        assert_eq!(pending, [DeliveryStatus::Claimed, DeliveryStatus::Suppressed, DeliveryStatus::Cancelled]);
        assert_eq!(claimed[..3], pending[..], "the lease of a claim may end");
        assert_eq!(
            claimed[3..],
            [DeliveryStatus::Pending, DeliveryStatus::Sent, DeliveryStatus::Pending, DeliveryStatus::Failed]
        );
    }
}
