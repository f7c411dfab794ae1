//! Preferences: the channels on which a person receives a category, and the scope that decides about each channel. The
//! functions are pure, and both the projector and the explanation of preferences use them.

use crate::{
    access::{ActorRef, Role, Roles},
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{PreferenceSetId, TenantId, WorkloadId, WorkspaceId},
    notification::{Channel, Tier},
    notification_category::NotificationCategory,
    slug::Slug,
    store::{Change, Revision, aggregate},
    time::Timestamp,
};
use serde_json::json;
use std::collections::BTreeMap;

/// The number of pairs of one category and one channel.
pub const CATEGORY_CHANNEL_PAIR_COUNT: usize = NotificationCategory::ALL.len() * Channel::ALL.len();
/// The maximum number of default settings: one for each combination of role, category and channel.
pub const MAX_DEFAULTS: usize = Role::ALL.len() * CATEGORY_CHANNEL_PAIR_COUNT;

/// The scope in which a person's preferences apply. A narrower scope has precedence over a wider one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PreferenceScope {
    /// The preferences apply to all notifications of the tenant.
    Global,
    /// The preferences apply to notifications about one workspace.
    Workspace(WorkspaceId),
    /// The preferences apply to notifications about one workload.
    Project(WorkloadId),
    /// The preferences apply to notifications about one workload in one environment.
    Environment(WorkloadId, Slug),
}

impl PreferenceScope {
    /// The wire form of the scope's kind, such as `workspace`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        self.deciding().as_str()
    }

    /// Whether preferences in this scope have an effect in the advanced tier only.
    #[must_use]
    pub const fn requires_advanced_tier(&self) -> bool {
        match self {
            Self::Global | Self::Workspace(_) => false,
            Self::Project(_) | Self::Environment(..) => true,
        }
    }

    /// The identifier of the workspace or workload, and the name of the environment, as far as the scope has them.
    #[must_use]
    pub fn reference(&self) -> (Option<uuid::Uuid>, Option<&str>) {
        match self {
            Self::Global => (None, None),
            Self::Workspace(id) => (Some(id.uuid()), None),
            Self::Project(id) => (Some(id.uuid()), None),
            Self::Environment(id, environment) => (Some(id.uuid()), Some(environment.as_str())),
        }
    }

    const fn deciding(&self) -> DecidingScope {
        match self {
            Self::Global => DecidingScope::Global,
            Self::Workspace(_) => DecidingScope::Workspace,
            Self::Project(_) => DecidingScope::Project,
            Self::Environment(..) => DecidingScope::Environment,
        }
    }
}

/// The source of the setting that decides about a channel, in order of precedence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DecidingScope {
    /// A preference of the person for the workload in the environment.
    Environment,
    /// A preference of the person for the workload.
    Project,
    /// A preference of the person for the workspace.
    Workspace,
    /// A preference of the person for the whole tenant.
    Global,
    /// A default setting of one of the person's roles.
    DefaultProfile,
    /// The built-in setting of the channel, if nothing else decides.
    Fallback,
}

impl DecidingScope {
    /// Every source, in order of precedence.
    pub const ALL: [Self; 6] =
        [Self::Environment, Self::Project, Self::Workspace, Self::Global, Self::DefaultProfile, Self::Fallback];

    /// The wire form, such as `environment`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Project => "project",
            Self::Workspace => "workspace",
            Self::Global => "global",
            Self::DefaultProfile => "default_profile",
            Self::Fallback => "fallback",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text)
    }
}

/// Whether a person receives one category on one channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Preference {
    /// The category of the notifications.
    pub category: NotificationCategory,
    /// The channel to which the setting applies.
    pub channel: Channel,
    /// Whether the person receives the category on the channel.
    pub enabled: bool,
}

/// A default setting for all people who have a role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DefaultPreference {
    /// The role to whose holders the setting applies.
    pub role: Role,
    /// The category, the channel, and whether the channel is on.
    pub preference: Preference,
}

/// The explicit preferences of a person in one scope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreferenceSet(pub(crate) PreferenceSetRecord);

/// The fields of [`PreferenceSet`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreferenceSetRecord {
    /// The identifier of the set, which facts about it name as their subject.
    pub preference_set_id: PreferenceSetId,
    /// The person to whom the preferences belong.
    pub principal: ActorRef,
    /// The scope in which the preferences apply.
    pub scope: PreferenceScope,
    /// Whether a channel is on, by category and channel. For a pair without an entry, a wider scope decides.
    pub settings: BTreeMap<(NotificationCategory, Channel), bool>,
    /// The time of the last change.
    pub updated_at: Timestamp,
    /// The change counter, which increments with each change.
    pub revision: Revision,
}

aggregate!(PreferenceSet, PreferenceSetRecord);

/// The default profiles of all roles of a tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DefaultPreferences(pub(crate) DefaultPreferencesRecord);

/// The fields of [`DefaultPreferences`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DefaultPreferencesRecord {
    /// Whether a channel is on, by role, category and channel.
    pub settings: BTreeMap<(Role, NotificationCategory, Channel), bool>,
    /// The time of the last change.
    pub updated_at: Timestamp,
    /// The actor that made the last change.
    pub updated_by: ActorRef,
    /// The change counter, which increments with each change.
    pub revision: Revision,
}

aggregate!(DefaultPreferences, DefaultPreferencesRecord);

/// The request sets the same category and channel twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("each category and channel occurs once")]
pub struct RepeatedPreference {
    /// The position of the second entry in the request.
    pub position: usize,
}

/// Checks that no key occurs twice. The error contains the position of the second occurrence.
fn check_distinct<K: Ord>(keys: impl Iterator<Item = K>) -> Result<(), RepeatedPreference> {
    let mut unique_keys = std::collections::BTreeSet::new();
    for (position, key) in keys.enumerate() {
        if !unique_keys.insert(key) {
            return Err(RepeatedPreference { position });
        }
    }
    Ok(())
}

impl PreferenceSet {
    /// Sets preferences of a person in one scope. `previous` contains the earlier ones. Settings that the request does
    /// not name stay unchanged, and a setting cannot be removed. Returns `None` if nothing changes.
    ///
    /// # Errors
    /// If a pair of category and channel occurs twice.
    pub fn upsert(
        new_id: PreferenceSetId,
        previous: Option<&Self>,
        principal: &ActorRef,
        scope: PreferenceScope,
        preferences: &[Preference],
        stamp: &Stamp,
    ) -> Result<Option<Change<Self>>, RepeatedPreference> {
        check_distinct(preferences.iter().map(|preference| (preference.category, preference.channel)))?;
        let mut settings = previous.map(|previous| previous.settings.clone()).unwrap_or_default();
        let mut changed = Vec::new();
        for Preference { category, channel, enabled } in preferences.iter().copied() {
            if settings.insert((category, channel), enabled) != Some(enabled) {
                changed.push(json!({ "category": category, "channel": channel.as_str(), "enabled": enabled }));
            }
        }
        if changed.is_empty() {
            return Ok(None);
        }
        let preference_set_id = previous.map_or(new_id, |previous| previous.preference_set_id);
        let workspace = match &scope {
            PreferenceScope::Workspace(id) => Some(*id),
            PreferenceScope::Global | PreferenceScope::Project(_) | PreferenceScope::Environment(..) => None,
        };
        let (reference, environment) = scope.reference();
        let subject = FactSubject { kind: "notification_preferences", id: preference_set_id.uuid() };
        let detail = json!({
            "principal": principal,
            "scope_kind": scope.kind(),
            "scope_ref": reference,
            "environment": environment,
            "changed": changed,
        });
        let fact = Fact::new(FactKind::PreferencesChanged, subject, workspace, stamp, detail);
        let revision = previous.map_or(Revision::FIRST, |previous| previous.revision.next());
        let principal = principal.clone();
        let next =
            Self(PreferenceSetRecord { preference_set_id, principal, scope, settings, updated_at: stamp.at, revision });
        Ok(Some(match previous {
            None => Change::create(next, fact),
            Some(previous) => Change::replace(next, previous.revision, fact),
        }))
    }

    /// The settings of the set, ordered by category and channel.
    pub fn preferences(&self) -> impl Iterator<Item = Preference> {
        self.settings.iter().map(|(&(category, channel), &enabled)| Preference { category, channel, enabled })
    }
}

impl DefaultPreferences {
    /// Sets default settings of roles. `previous` contains the earlier ones. Returns `None` if nothing changes.
    ///
    /// # Errors
    /// If a role, category and channel occur twice.
    pub fn upsert(
        tenant: TenantId,
        previous: Option<&Self>,
        defaults: &[DefaultPreference],
        stamp: &Stamp,
    ) -> Result<Option<Change<Self>>, RepeatedPreference> {
        check_distinct(defaults.iter().map(|entry| (entry.role, entry.preference.category, entry.preference.channel)))?;
        let mut settings = previous.map(|previous| previous.settings.clone()).unwrap_or_default();
        let mut changed = Vec::new();
        for DefaultPreference { role, preference: Preference { category, channel, enabled } } in
            defaults.iter().copied()
        {
            if settings.insert((role, category, channel), enabled) != Some(enabled) {
                changed.push(json!({
                    "profile_ref": role.as_str(), "category": category, "channel": channel.as_str(), "enabled": enabled,
                }));
            }
        }
        if changed.is_empty() {
            return Ok(None);
        }
        let subject = FactSubject { kind: "tenant", id: tenant.uuid() };
        let fact = Fact::new(FactKind::DefaultProfilesChanged, subject, None, stamp, json!({ "changed": changed }));
        let fact = fact.with_notification_categories([NotificationCategory::PolicyChanges]);
        let revision = previous.map_or(Revision::FIRST, |previous| previous.revision.next());
        let (updated_at, updated_by) = (stamp.at, stamp.actor.clone());
        let next = Self(DefaultPreferencesRecord { settings, updated_at, updated_by, revision });
        Ok(Some(match previous {
            None => Change::create(next, fact),
            Some(previous) => Change::replace(next, previous.revision, fact),
        }))
    }

    /// The default settings, ordered by role, category and channel.
    pub fn defaults(&self) -> impl Iterator<Item = DefaultPreference> {
        self.settings.iter().map(|(&(role, category, channel), &enabled)| DefaultPreference {
            role,
            preference: Preference { category, channel, enabled },
        })
    }

    /// The default for a person with these roles; `None` if no role has one. If the roles differ, the channel is on.
    fn role_default(&self, roles: Roles, category: NotificationCategory, channel: Channel) -> Option<bool> {
        let settings = roles.iter().filter_map(|role| self.settings.get(&(role, category, channel)).copied());
        settings.reduce(|left, right| left || right)
    }
}

/// All settings that can decide on which channels one recipient receives a fact.
#[derive(Clone, Copy, Debug, Default)]
pub struct PreferenceLayers<'p> {
    /// The recipient's preferences for the workload in the environment.
    pub environment: Option<&'p PreferenceSet>,
    /// The recipient's preferences for the workload.
    pub project: Option<&'p PreferenceSet>,
    /// The recipient's preferences for the workspace.
    pub workspace: Option<&'p PreferenceSet>,
    /// The recipient's preferences for the whole tenant.
    pub global: Option<&'p PreferenceSet>,
    /// The default profiles of the tenant's roles.
    pub profiles: Option<&'p DefaultPreferences>,
    /// The recipient's roles at the resource position of the fact.
    pub roles: Roles,
}

/// The setting that applies to a channel, and its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EffectivePreference {
    /// The channel to which the setting applies.
    pub channel: Channel,
    /// Whether the recipient receives the category on the channel.
    pub enabled: bool,
    /// The source that decided.
    pub scope: DecidingScope,
    /// The revision of the deciding settings; `None` if the fallback decided.
    pub revision: Option<Revision>,
}

impl PreferenceLayers<'_> {
    /// The setting that applies to a channel. The narrowest explicit preference decides, then the default of the
    /// recipient's roles, then the fallback. Without the advanced tier, preferences for workloads and environments have
    /// no effect.
    #[must_use]
    pub fn effective_preference(
        &self,
        category: NotificationCategory,
        channel: Channel,
        tier: Tier,
    ) -> EffectivePreference {
        let narrow_sets = match tier {
            Tier::Advanced => [self.environment, self.project],
            Tier::Standard => [None, None],
        };
        let sets = narrow_sets.into_iter().chain([self.workspace, self.global]).flatten();
        let mut explicit = sets.filter_map(|set| {
            let enabled = *set.settings.get(&(category, channel))?;
            Some((enabled, set.scope.deciding(), set.revision))
        });
        if let Some((enabled, scope, revision)) = explicit.next() {
            return EffectivePreference { channel, enabled, scope, revision: Some(revision) };
        }
        let default = self
            .profiles
            .and_then(|profiles| Some((profiles.role_default(self.roles, category, channel)?, profiles.revision)));
        match default {
            Some((enabled, revision)) => {
                let scope = DecidingScope::DefaultProfile;
                EffectivePreference { channel, enabled, scope, revision: Some(revision) }
            }
            None => {
                let (enabled, scope) = (channel.is_enabled_by_default(), DecidingScope::Fallback);
                EffectivePreference { channel, enabled, scope, revision: None }
            }
        }
    }

    /// The settings that apply to all channels for one category.
    #[must_use]
    pub fn effective_preferences(
        &self,
        category: NotificationCategory,
        tier: Tier,
    ) -> [EffectivePreference; Channel::ALL.len()] {
        Channel::ALL.map(|channel| self.effective_preference(category, channel, tier))
    }

    /// Decides on which channels a recipient receives a fact in one category. `has_receiver` says whether a channel has
    /// a receiver for the fact, such as a destination or a mailbox. Without an enabled channel that has a receiver, the
    /// notification is suppressed.
    #[must_use]
    pub fn decide_delivery(
        &self,
        category: NotificationCategory,
        settings: NotificationSettings,
        has_receiver: impl Fn(Channel) -> bool,
    ) -> DeliveryDecision {
        let NotificationSettings::Enabled(tier) = settings else {
            let reason = SuppressionReason::NotificationsDisabled;
            let (scope, revision, channel, unreachable) = (None, None, None, Vec::new());
            return DeliveryDecision::Suppressed(Suppression { reason, scope, revision, channel, unreachable });
        };
        let effective = self.effective_preferences(category, tier);
        let enabled_channels: Vec<Channel> =
            effective.iter().filter(|setting| setting.enabled).map(|setting| setting.channel).collect();
        if enabled_channels.iter().any(|channel| has_receiver(*channel)) {
            return DeliveryDecision::Channels(enabled_channels);
        }
        let with_tier = self.effective_preferences(category, Tier::Advanced);
        let needs_tier =
            with_tier.iter().find(|setting| setting.enabled && !enabled_channels.contains(&setting.channel));
        let (reason, deciding) = match needs_tier {
            // A preference for a workload or environment would turn a channel on, but it has no effect without the
            // advanced tier.
            Some(needs_tier) => (SuppressionReason::CapabilityDisabled, *needs_tier),
            None => {
                // The inbox always has a receiver and is on by default, so a setting must have turned it off.
                let inbox = self.effective_preference(category, Channel::Portal, tier);
                let reason = if inbox.scope == DecidingScope::DefaultProfile {
                    SuppressionReason::DefaultProfileOff
                } else {
                    SuppressionReason::PreferenceOff
                };
                (reason, inbox)
            }
        };
        let EffectivePreference { channel, enabled: _, scope, revision } = deciding;
        let (scope, channel, unreachable) = (Some(scope), Some(channel), enabled_channels);
        DeliveryDecision::Suppressed(Suppression { reason, scope, revision, channel, unreachable })
    }
}

/// Whether facts cause notifications in a tenant, and in which tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotificationSettings {
    /// Facts cause no notifications in the tenant.
    Disabled,
    /// Facts cause notifications by the rules of this tier.
    Enabled(Tier),
}

/// Whether a recipient receives a fact in one category, and on which channels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeliveryDecision {
    /// The recipient receives the fact on these channels, at least one of which has a receiver.
    Channels(Vec<Channel>),
    /// The recipient does not receive the fact, for this reason.
    Suppressed(Suppression),
}

/// The reason why a recipient does not receive a fact in one category, with the setting that decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suppression {
    /// The code of the reason.
    pub reason: SuppressionReason,
    /// The source of the deciding setting; `None` if a setting of the tenant decided.
    pub scope: Option<DecidingScope>,
    /// The revision of the deciding settings, if they have one.
    pub revision: Option<Revision>,
    /// The channel whose setting decided; `None` if a setting of the tenant decided.
    pub channel: Option<Channel>,
    /// The channels that are on but have no receiver.
    pub unreachable: Vec<Channel>,
}

/// The code of the reason why a notification was suppressed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SuppressionReason {
    /// A preference of the recipient turned the inbox off, and no other enabled channel has a receiver.
    PreferenceOff,
    /// A default of the recipient's roles turned the inbox off, and no other enabled channel has a receiver.
    DefaultProfileOff,
    /// Notifications are off in the tenant.
    NotificationsDisabled,
    /// Only preferences that need the advanced tier turn a channel on, and that tier is off in the tenant.
    CapabilityDisabled,
}

impl SuppressionReason {
    /// Every reason.
    pub const ALL: [Self; 4] =
        [Self::PreferenceOff, Self::DefaultProfileOff, Self::NotificationsDisabled, Self::CapabilityDisabled];

    /// The wire form, such as `preference_off`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PreferenceOff => "preference_off",
            Self::DefaultProfileOff => "default_profile_off",
            Self::NotificationsDisabled => "notifications_disabled",
            Self::CapabilityDisabled => "capability_disabled",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

#[cfg(test)]
mod tests;
