//! Notifications: which person receives which committed fact on which channels, and records of suppressed
//! notifications.
//!
//! A projector reads the audit log in order. [`rule`] selects the kinds of facts that concern people,
//! [`recipient`] the people, and [`preference`] the channels. [`projection`] combines the three into inbox rows
//! and suppressed decisions.

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

/// A channel of delivery. Each tenant decides which of its own systems the chat and paging channels represent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Channel {
    /// The inbox in the portal.
    Portal,
    /// E-mail.
    Email,
    /// The first team chat.
    ChatA,
    /// The second team chat.
    ChatB,
    /// The third team chat.
    ChatC,
    /// The on-call pager.
    Paging,
    /// A webhook. Its requests are signed if the destination has a secret.
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

    /// Parses the wire form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|channel| channel.as_str() == text)
    }

    /// Whether the channel is enabled for a person without own preferences whose role has no default profile. Only
    /// the inbox is.
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
    /// The notification is for information.
    Info,
    /// The notification needs attention.
    Warning,
    /// The notification needs immediate action.
    Critical,
}

impl Severity {
    /// Every severity.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Critical];

    /// The wire form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// Parses the wire form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.as_str() == text)
    }
}

/// The notification tier of a tenant. The advanced tier adds digests, announcements, and preferences for workloads
/// and environments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tier {
    /// Preferences for workloads and environments have no effect.
    Standard,
    /// Preferences of all scopes have effect.
    Advanced,
}

/// A required notification setting of the tenant is off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the tenant setting {} is off", .0.as_str())]
pub struct RequiredSettingOff(pub Setting);

/// A notification setting of a tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// Whether facts produce notifications.
    Notifications,
    /// Whether the advanced tier is on.
    AdvancedTier,
}

impl Setting {
    /// The name of the setting in `detail.setting`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Notifications => "notifications_enabled",
            Self::AdvancedTier => "advanced_notifications_enabled",
        }
    }
}
