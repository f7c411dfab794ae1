//! Operations on notification profiles, which require the advanced tier.

use super::Notifications;
use crate::{
    Failure, Precondition,
    access::{Operation, authorize},
    idempotency::MAX_ATTEMPTS,
};
use fairway_domain::{
    access::Caller,
    notification::{
        NotificationSwitch, RequiredSettingOff, Tier,
        profile::{NotificationProfile, ProfileSettings},
    },
    store::{CommitError, Revision},
    tenant::TenantScope,
};

/// The notification profile of a person, with its revision.
#[derive(Clone, Debug)]
pub struct ProfileState {
    /// The settings of the profile; the defaults if none were ever set.
    pub settings: ProfileSettings,
    /// The revision of the settings; `None` if none were ever set.
    pub revision: Option<Revision>,
}

impl ProfileState {
    fn of(profile: Option<NotificationProfile>) -> Self {
        match profile {
            Some(profile) => Self { revision: Some(profile.revision), settings: profile.into_record().settings },
            None => Self { settings: ProfileSettings::default(), revision: None },
        }
    }
}

impl Notifications {
    pub(super) async fn require_advanced_tier(&self, scope: TenantScope) -> Result<(), Failure> {
        match self.require_enabled(scope).await? {
            Tier::Advanced => Ok(()),
            Tier::Standard => Err(RequiredSettingOff(NotificationSwitch::AdvancedTier).into()),
        }
    }

    async fn authorize_profile(&self, caller: &Caller, operation: Operation) -> Result<TenantScope, Failure> {
        let (scope, _) = authorize::authorize_list(caller, operation)?;
        self.require_advanced_tier(scope).await?;
        Ok(scope)
    }

    /// Returns the notification profile of the caller.
    ///
    /// # Errors
    /// When the caller may not manage its preferences, or a notification setting of the tenant is off.
    pub async fn profile(&self, caller: &Caller) -> Result<ProfileState, Failure> {
        let scope = self.authorize_profile(caller, Operation::ReadNotificationProfile).await?;
        Ok(ProfileState::of(self.profile_store.find(scope, &caller.actor).await?))
    }

    /// Replaces the notification profile of the caller.
    ///
    /// # Errors
    /// As [`Self::profile`]; also when the secret reference is invalid, or the profile changed concurrently.
    pub async fn replace_profile(
        &self,
        caller: &Caller,
        settings: &ProfileSettings,
        expected: &Precondition,
    ) -> Result<ProfileState, Failure> {
        let scope = self.authorize_profile(caller, Operation::ChangeNotificationProfile).await?;
        for _ in 0..MAX_ATTEMPTS {
            let stored_profile = self.profile_store.find(scope, &caller.actor).await?;
            match &stored_profile {
                Some(stored_profile) => expected.check(stored_profile.revision)?,
                None => expected.check_absent()?,
            }
            let (id, stamp) = (self.context.new_id(), self.context.stamp(caller));
            let change =
                NotificationProfile::replace(scope.tenant(), id, stored_profile.as_ref(), settings.clone(), &stamp)
                    .map_err(|_| {
                        let message = "must have the form `env:NAME`, `file:name` or `vault:path#key`";
                        Failure::invalid_field("chat_secret_ref", "invalid_secret_ref", message)
                    })?;
            let Some(change) = change else { return Ok(ProfileState::of(stored_profile)) };
            let changed_profile = change.next.clone();
            match self.profile_store.commit(scope, change).await {
                Err(CommitError::Stale) => match expected.stale_failure() {
                    Some(failure) => return Err(failure),
                    None => continue,
                },
                committed => committed?,
            }
            self.context.notify_facts();
            return Ok(ProfileState::of(Some(changed_profile)));
        }
        Err(Failure::Contended)
    }
}
