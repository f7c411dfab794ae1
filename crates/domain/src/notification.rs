//! Notifications: which committed fact reaches whom, on which channels, and the record of those that were not sent.
//!
//! A projector reads the audit log in its order. [`rule`] says which kinds of facts concern people, [`recipient`] whom,
//! [`preference`] on which channels, and [`projection`] combines them into inbox rows and suppressed decisions.

pub mod announcement;
pub mod backlog;
pub mod burst;
pub mod cloud_event;
pub mod delivery;
pub mod derived_identifier;
pub mod destination;
pub mod destination_redaction;
pub mod digest;
pub mod inbox;
pub mod link;
pub mod message;
pub mod ports;
pub mod preference;
pub mod profile;
pub mod projection;
pub mod recipient;
pub mod rule;
pub mod text;

/// A channel of delivery. The chat and paging names stand for a tenant's own channels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Channel {
    /// The inbox.
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
    /// A signed webhook.
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

    /// The built-in preference, for a person who set none and whose role has no default: the inbox alone.
    #[must_use]
    pub const fn is_enabled_by_default(self) -> bool {
        match self {
            Self::Portal => true,
            Self::Email | Self::ChatA | Self::ChatB | Self::ChatC | Self::Paging | Self::Webhook => false,
        }
    }
}

/// How urgent a notification is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// For information.
    Info,
    /// Somebody should look at it.
    Warning,
    /// Somebody should act now.
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

/// Whether the tenant has the advanced notification tier: digests, announcements, and preferences of workloads and
/// environments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tier {
    /// Preferences of workloads and environments do not count.
    Standard,
    /// All scopes count.
    Advanced,
}

/// A notification setting of a tenant that is off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the tenant setting {} is off", .0.as_str())]
pub struct SettingOff(pub Setting);

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
