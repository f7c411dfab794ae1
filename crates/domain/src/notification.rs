//! Notifications: the recipients of a committed fact, the channels on which they receive it, and the records of
//! suppressed notifications.
//!
//! A projector reads the audit log in order. [`rule`] selects the kinds of facts that concern people, [`recipient`]
//! selects the people, and [`preference`] selects the channels. [`projection`] combines these decisions into inbox
//! rows, deliveries and suppressed decisions.

pub mod announcement;
pub mod backlog;
pub mod burst;
pub mod cloud_event;
pub mod console_link;
pub mod delivery;
pub mod derived_identifier;
pub mod destination;
pub mod digest;
pub mod inbox;
pub mod message;
pub mod ports;
pub mod preference;
pub mod profile;
pub mod projection;
pub mod recipient;
pub mod rule;
pub mod text;

/// A channel on which a person or a destination receives notifications. Each tenant decides which of its systems the
/// chat and paging channels represent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Channel {
    /// The inbox in the portal, which needs no address.
    Portal,
    /// E-mail to a person or to a shared mailbox.
    Email,
    /// The first of the three team chats.
    ChatA,
    /// The second of the three team chats.
    ChatB,
    /// The third of the three team chats.
    ChatC,
    /// The pager of the people on call.
    Paging,
    /// An HTTP request to a webhook. The request is signed if the destination has a secret.
    Webhook,
}

impl Channel {
    /// Every channel.
    pub const ALL: [Self; 7] =
        [Self::Portal, Self::Email, Self::ChatA, Self::ChatB, Self::ChatC, Self::Paging, Self::Webhook];

    /// The wire form, such as `chat_a`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Portal => "portal",
            Self::Email => "email",
            Self::ChatA => "chat_a",
            Self::ChatB => "chat_b",
            Self::ChatC => "chat_c",
            Self::Paging => "paging",
            Self::Webhook => "webhook",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|channel| channel.as_str() == text)
    }

    /// Whether the channel is on for a person without preferences, if no role of the person has a default. Only the
    /// inbox is.
    #[must_use]
    pub const fn is_enabled_by_default(self) -> bool {
        match self {
            Self::Portal => true,
            Self::Email | Self::ChatA | Self::ChatB | Self::ChatC | Self::Paging | Self::Webhook => false,
        }
    }
}

/// The urgency of a notification.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// The notification informs and demands no action.
    Info,
    /// The notification demands attention.
    Warning,
    /// The notification demands immediate action.
    Critical,
}

impl Severity {
    /// Every severity.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Critical];

    /// The wire form, such as `info`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.as_str() == text)
    }
}

/// The notification tier of a tenant. The advanced tier adds digests, announcements, and preferences for workloads
/// and environments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tier {
    /// Preferences for workloads and environments have no effect, and there are no digests or announcements.
    Standard,
    /// Preferences of all scopes have an effect, and there are digests and announcements.
    Advanced,
}

/// The request needs a notification setting that is off in the tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the tenant setting {} is off", .0.as_str())]
pub struct RequiredSettingOff(pub NotificationSwitch);

/// A notification setting of a tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotificationSwitch {
    /// The setting that decides whether facts cause notifications.
    Notifications,
    /// The setting that selects the advanced tier.
    AdvancedTier,
}

impl NotificationSwitch {
    /// The name of the setting, which an error response contains as `detail.setting`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Notifications => "notifications_enabled",
            Self::AdvancedTier => "advanced_notifications_enabled",
        }
    }
}
