//! Notifications: inboxes, preferences, default profiles, destinations and records of suppressed notifications.

mod announcement;
mod backlog;
pub mod delivery;
pub mod destination;
pub(crate) mod inbox_wakeups;
pub mod profile;
pub(crate) mod projector;
mod sender;
pub mod stream;

use crate::{
    Failure, MaybeReplayed, Precondition, Stores,
    access::{Operation, ScopeResolver, authorize},
    commit_context::CommitContext,
    idempotency::{KeyedRequests, MAX_ATTEMPTS, convert_failure_after_commit, keyed_outcome},
    services::{CommonOperations, SharedState},
    workload::Workloads,
};
pub use backlog::{BacklogMeter, run_backlog_meter};
use fairway_domain::{
    access::{Caller, ResourcePosition},
    id::{NotificationId, WorkloadId, WorkspaceId},
    idempotency::RequestKey,
    notification::{
        NotificationSwitch, RequiredSettingOff, Tier,
        inbox::{InboxStatus, Notification, inbox_all_read_fact},
        message::MessageSender,
        ports::{
            AnnouncementStore, DeliveryStore, DestinationStore, InboxFilter, InboxStore, PreferenceStore, ProfileStore,
            SuppressedDecisionStore, SuppressedFilter,
        },
        preference::{
            DefaultPreference, DefaultPreferences, EffectivePreference, NotificationSettings, Preference,
            PreferenceLayers, PreferenceScope, PreferenceSet,
        },
        projection::SuppressedDecision,
    },
    notification_category::NotificationCategory,
    slug::Slug,
    store::{CommitError, Page, PageRequest, Revision},
    tenant::{TenantScope, TenantStore},
};
use inbox_wakeups::InboxWakeups;
pub use projector::{Projector, run_projector};
pub use sender::{NotificationSender, run_notification_sender};
use std::sync::Arc;
use tokio::sync::Notify;

/// Operations on inboxes, preferences, destinations and deliveries of notifications.
#[derive(Clone)]
pub struct Notifications {
    context: CommitContext,
    inbox_store: Arc<dyn InboxStore>,
    preference_store: Arc<dyn PreferenceStore>,
    destination_store: Arc<dyn DestinationStore>,
    suppressed_store: Arc<dyn SuppressedDecisionStore>,
    delivery_store: Arc<dyn DeliveryStore>,
    profile_store: Arc<dyn ProfileStore>,
    announcement_store: Arc<dyn AnnouncementStore>,
    tenant_store: Arc<dyn TenantStore>,
    message_sender: Arc<dyn MessageSender>,
    outbox_wakeup: Arc<Notify>,
    inbox_wakeups: Arc<InboxWakeups>,
    keyed_requests: Arc<KeyedRequests>,
    scope_resolver: Arc<ScopeResolver>,
    workloads: Arc<Workloads>,
}

/// The scope of preferences that a request selects.
#[derive(Clone, Debug)]
pub enum RequestedPreferenceScope {
    /// All notifications of the tenant.
    Global,
    /// Notifications of a workspace.
    Workspace(WorkspaceId),
    /// Notifications about a workload of the workspace.
    Workload(WorkspaceId, WorkloadId),
    /// Notifications about a workload of the workspace in one environment.
    Environment(WorkspaceId, WorkloadId, Slug),
}

/// The context of the notifications whose settings are explained. Without a part, it covers the wider scope.
#[derive(Clone, Debug, Default)]
pub struct PreferenceContext {
    /// The workspace of the notification; `None` for the whole tenant.
    pub workspace: Option<WorkspaceId>,
    /// The workload of the notification; `None` for the whole workspace.
    pub workload: Option<WorkloadId>,
    /// The environment of the notification; `None` for all environments.
    pub environment: Option<Slug>,
}

/// The settings that were set explicitly in one scope, without the settings that the scope inherits.
#[derive(Clone, Debug)]
pub struct ExplicitSettings<T> {
    /// The settings that were set in this scope.
    pub settings: Vec<T>,
    /// The revision of the settings; `None` if none were ever set.
    pub revision: Option<Revision>,
}

impl ExplicitSettings<Preference> {
    fn of_set(set: Option<&PreferenceSet>) -> Self {
        Self {
            settings: set.map(|set| set.preferences().collect()).unwrap_or_default(),
            revision: set.map(|set| set.revision),
        }
    }
}

impl ExplicitSettings<DefaultPreference> {
    fn of_profiles(profiles: Option<&DefaultPreferences>) -> Self {
        Self {
            settings: profiles.map(|profiles| profiles.defaults().collect()).unwrap_or_default(),
            revision: profiles.map(|profiles| profiles.revision),
        }
    }
}

impl Notifications {
    pub(crate) fn new(
        stores: &Stores,
        shared: &SharedState,
        common: &CommonOperations,
        workloads: &Arc<Workloads>,
    ) -> Self {
        Self {
            context: shared.context.clone(),
            inbox_store: Arc::clone(&stores.inboxes),
            preference_store: Arc::clone(&stores.preferences),
            destination_store: Arc::clone(&stores.destinations),
            suppressed_store: Arc::clone(&stores.suppressed_decisions),
            delivery_store: Arc::clone(&stores.deliveries),
            profile_store: Arc::clone(&stores.notification_profiles),
            announcement_store: Arc::clone(&stores.announcements),
            tenant_store: Arc::clone(&stores.tenants),
            message_sender: Arc::clone(&shared.message_sender),
            outbox_wakeup: Arc::clone(&shared.outbox_wakeup),
            inbox_wakeups: Arc::clone(&shared.inbox_wakeups),
            keyed_requests: Arc::clone(&common.keyed_requests),
            scope_resolver: Arc::clone(&common.scope_resolver),
            workloads: Arc::clone(workloads),
        }
    }

    /// Refuses the operation if the tenant's notifications are off; otherwise returns the tenant's tier.
    async fn require_enabled(&self, scope: TenantScope) -> Result<Tier, Failure> {
        match self.preference_store.switches(scope).await? {
            NotificationSettings::Disabled => Err(RequiredSettingOff(NotificationSwitch::Notifications).into()),
            NotificationSettings::Enabled(tier) => Ok(tier),
        }
    }

    /// Authorizes an operation on the caller's own data. The permission may apply in any scope of the tenant.
    async fn authorize_own(&self, caller: &Caller, operation: Operation) -> Result<TenantScope, Failure> {
        let (scope, _) = authorize::authorize_list(caller, operation)?;
        self.require_enabled(scope).await?;
        Ok(scope)
    }

    /// Lists the caller's notifications, newest first.
    ///
    /// # Errors
    /// When the caller may not read its inbox, or the tenant's notifications are off.
    pub async fn list_inbox(
        &self,
        caller: &Caller,
        filter: InboxFilter,
        page: PageRequest,
    ) -> Result<Page<Notification>, Failure> {
        let scope = self.authorize_own(caller, Operation::ListInbox).await?;
        Ok(self.inbox_store.list(scope, &caller.actor, filter, page).await?)
    }

    /// Sets the status of one of the caller's notifications. Setting the status that it already has changes nothing.
    ///
    /// # Errors
    /// As [`Self::list_inbox`]; also not found when the caller has no such notification or it changed concurrently.
    pub async fn change_inbox_status(
        &self,
        caller: &Caller,
        id: NotificationId,
        status: InboxStatus,
        expected: &Precondition,
    ) -> Result<Notification, Failure> {
        let scope = self.authorize_own(caller, Operation::ChangeInboxStatus).await?;
        for _ in 0..MAX_ATTEMPTS {
            let notification = self.inbox_store.find(scope, &caller.actor, id).await?.ok_or(Failure::NotFound)?;
            expected.check(notification.revision)?;
            let Some(change) = notification.set_status(status, &self.context.stamp(caller)) else {
                return Ok(notification);
            };
            let changed_notification = change.next.clone();
            match self.inbox_store.commit_status(scope, change).await {
                Err(CommitError::Stale) => match expected.stale_failure() {
                    Some(failure) => return Err(failure),
                    None => continue,
                },
                committed => committed?,
            }
            self.context.notify_facts();
            return Ok(changed_notification);
        }
        Err(Failure::Contended)
    }

    /// Marks all notifications of the caller as read; returns the number of notifications that are unread afterwards.
    ///
    /// # Errors
    /// As [`Self::list_inbox`].
    pub async fn mark_all_read(
        &self,
        caller: &Caller,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<u64>, Failure> {
        let scope = self.authorize_own(caller, Operation::MarkInboxRead).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let outcome = keyed_outcome(key, 200, scope.tenant().uuid());
                    let fact = inbox_all_read_fact(scope.tenant(), &self.context.stamp(caller));
                    self.inbox_store.commit_all_read(scope, &caller.actor, fact, outcome.as_ref()).await?;
                    let unread = self.inbox_store.count_unread(scope, &caller.actor).await;
                    convert_failure_after_commit(unread.map_err(Failure::from), key)
                },
                async |_| Ok(self.inbox_store.count_unread(scope, &caller.actor).await?),
            )
            .await
    }

    /// Authorizes an operation on preferences, and checks that the tenant has the tier that the requested scope needs.
    async fn authorize_preferences(
        &self,
        caller: &Caller,
        requested_scope: RequestedPreferenceScope,
        operations: [Operation; 4],
    ) -> Result<(TenantScope, PreferenceScope), Failure> {
        let [global, workspace, project, environment] = operations;
        let (scope, preference_scope) = match requested_scope {
            RequestedPreferenceScope::Global => (authorize::authorize_list(caller, global)?.0, PreferenceScope::Global),
            RequestedPreferenceScope::Workspace(id) => {
                let position = self.scope_resolver.workspace_position(caller, id).await?;
                (authorize::authorize(caller, workspace, &position)?, PreferenceScope::Workspace(id))
            }
            RequestedPreferenceScope::Workload(workspace_id, id) => {
                (self.authorize_workload(caller, project, workspace_id, id).await?, PreferenceScope::Project(id))
            }
            RequestedPreferenceScope::Environment(workspace_id, id, name) => {
                let scope = self.authorize_workload(caller, environment, workspace_id, id).await?;
                (scope, PreferenceScope::Environment(id, name))
            }
        };
        let tier = self.require_enabled(scope).await?;
        if preference_scope.requires_advanced_tier() && tier == Tier::Standard {
            return Err(RequiredSettingOff(NotificationSwitch::AdvancedTier).into());
        }
        if let PreferenceScope::Environment(workload, name) = &preference_scope
            && !self.preference_store.environments(scope, *workload).await?.contains(name)
        {
            let message = "must be an environment that the workload has releases in";
            return Err(Failure::invalid_field("environment", "not_found", message));
        }
        Ok((scope, preference_scope))
    }

    /// Authorizes an operation on a workload of this workspace. Workloads of other workspaces are not found.
    async fn authorize_workload(
        &self,
        caller: &Caller,
        operation: Operation,
        workspace: WorkspaceId,
        id: WorkloadId,
    ) -> Result<TenantScope, Failure> {
        let (scope, workload) = self.workloads.authorize_workload(caller, operation, id).await?;
        if workload.workspace_id == workspace { Ok(scope) } else { Err(Failure::NotFound) }
    }

    async fn find_set(
        &self,
        scope: TenantScope,
        caller: &Caller,
        preference_scope: &PreferenceScope,
    ) -> Result<Option<PreferenceSet>, Failure> {
        let scopes = std::slice::from_ref(preference_scope);
        Ok(self.preference_store.find_sets(scope, &caller.actor, scopes).await?.pop())
    }

    /// Returns the explicit preferences of the caller in a scope.
    ///
    /// # Errors
    /// Not found when the caller does not see the workspace or the workload. Refused without the permission for
    /// preferences in this scope, or when the tenant's notifications, or its advanced tier for workloads, are off.
    pub async fn explicit_preferences(
        &self,
        caller: &Caller,
        requested_scope: RequestedPreferenceScope,
    ) -> Result<ExplicitSettings<Preference>, Failure> {
        let operations = [
            Operation::ReadPreferences,
            Operation::ReadWorkspacePreferences,
            Operation::ReadWorkloadPreferences,
            Operation::ReadEnvironmentPreferences,
        ];
        let (scope, preference_scope) = self.authorize_preferences(caller, requested_scope, operations).await?;
        let stored_set = self.find_set(scope, caller, &preference_scope).await?;
        Ok(ExplicitSettings::of_set(stored_set.as_ref()))
    }

    /// Sets preferences of the caller in a scope. Preferences that the request omits remain unchanged.
    ///
    /// # Errors
    /// As [`Self::explicit_preferences`]; also when a category and channel repeat, or preferences changed concurrently.
    pub async fn set_preferences(
        &self,
        caller: &Caller,
        requested_scope: RequestedPreferenceScope,
        preferences: &[Preference],
        expected: &Precondition,
    ) -> Result<ExplicitSettings<Preference>, Failure> {
        let operations = [
            Operation::ChangePreferences,
            Operation::ChangeWorkspacePreferences,
            Operation::ChangeWorkloadPreferences,
            Operation::ChangeEnvironmentPreferences,
        ];
        let (scope, target) = self.authorize_preferences(caller, requested_scope, operations).await?;
        for _ in 0..MAX_ATTEMPTS {
            let stored = self.find_set(scope, caller, &target).await?;
            match &stored {
                Some(stored) => expected.check(stored.revision)?,
                None => expected.check_absent()?,
            }
            let (id, stamp) = (self.context.new_id(), self.context.stamp(caller));
            let change =
                PreferenceSet::upsert(id, stored.as_ref(), &caller.actor, target.clone(), preferences, &stamp)?;
            let Some(change) = change else { return Ok(ExplicitSettings::of_set(stored.as_ref())) };
            let changed_set = change.next.clone();
            match self.preference_store.commit_set(scope, change).await {
                Err(CommitError::Stale) => match expected.stale_failure() {
                    Some(failure) => return Err(failure),
                    None => continue,
                },
                committed => committed?,
            }
            self.context.notify_facts();
            return Ok(ExplicitSettings::of_set(Some(&changed_set)));
        }
        Err(Failure::Contended)
    }

    /// Explains on which channels the caller receives a category in a context, and which settings decide. The
    /// explanation is available even if notifications are off.
    ///
    /// # Errors
    /// When the caller may not manage its preferences; not found when the caller does not see the workspace or the
    /// workload, or the workload belongs to another workspace.
    pub async fn explain_preferences(
        &self,
        caller: &Caller,
        category: NotificationCategory,
        context: PreferenceContext,
    ) -> Result<Vec<EffectivePreference>, Failure> {
        let (scope, _) = authorize::authorize_list(caller, Operation::ReadEffectivePreferences)?;
        let (position, scopes) = self.context_scopes(caller, scope, context).await?;
        let sets = self.preference_store.find_sets(scope, &caller.actor, &scopes).await?;
        let profiles = self.preference_store.find_default_profiles(scope).await?;
        let tier = match self.preference_store.switches(scope).await? {
            NotificationSettings::Enabled(tier) => tier,
            NotificationSettings::Disabled => Tier::Standard,
        };
        let mut layers = PreferenceLayers {
            profiles: profiles.as_ref(),
            roles: caller.rights.roles_at(&position),
            ..Default::default()
        };
        for set in &sets {
            match set.scope {
                PreferenceScope::Global => layers.global = Some(set),
                PreferenceScope::Workspace(_) => layers.workspace = Some(set),
                PreferenceScope::Project(_) => layers.project = Some(set),
                PreferenceScope::Environment(..) => layers.environment = Some(set),
            }
        }
        Ok(layers.effective_preferences(category, tier).into())
    }

    /// Returns the resource position of a context, and the preference scopes that apply in it.
    async fn context_scopes(
        &self,
        caller: &Caller,
        scope: TenantScope,
        context: PreferenceContext,
    ) -> Result<(ResourcePosition, Vec<PreferenceScope>), Failure> {
        let mut scopes = vec![PreferenceScope::Global];
        let workspace = match context.workload {
            None => context.workspace,
            Some(id) => {
                let (_, workload) = self.workloads.authorize_workload(caller, Operation::ReadWorkload, id).await?;
                if context.workspace.is_some_and(|named| named != workload.workspace_id) {
                    return Err(Failure::NotFound);
                }
                scopes.push(PreferenceScope::Project(id));
                scopes.extend(context.environment.map(|name| PreferenceScope::Environment(id, name)));
                Some(workload.workspace_id)
            }
        };
        let Some(workspace) = workspace else { return Ok((ResourcePosition::tenant(scope.tenant()), scopes)) };
        let position = self.scope_resolver.workspace_position(caller, workspace).await?;
        scopes.push(PreferenceScope::Workspace(workspace));
        Ok((context.workload.map_or(position, |workload| position.for_workload(workload)), scopes))
    }

    /// Lists the environments in which a workload has releases.
    ///
    /// # Errors
    /// As [`Self::explicit_preferences`] for a workload, except that the advanced tier is not required.
    pub async fn list_workload_environments(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        workload: WorkloadId,
    ) -> Result<Vec<Slug>, Failure> {
        let operation = Operation::ListWorkloadEnvironments;
        let scope = self.authorize_workload(caller, operation, workspace, workload).await?;
        self.require_enabled(scope).await?;
        Ok(self.preference_store.environments(scope, workload).await?)
    }

    async fn authorize_profiles(&self, caller: &Caller, operation: Operation) -> Result<TenantScope, Failure> {
        let scope = authorize::authorize(caller, operation, &ResourcePosition::tenant(caller.tenant))?;
        self.require_enabled(scope).await?;
        Ok(scope)
    }

    /// Returns the default preferences of the tenant's roles.
    ///
    /// # Errors
    /// When the caller may not manage default preferences, or the tenant's notifications are off.
    pub async fn default_profiles(&self, caller: &Caller) -> Result<ExplicitSettings<DefaultPreference>, Failure> {
        let scope = self.authorize_profiles(caller, Operation::ReadDefaultProfiles).await?;
        Ok(ExplicitSettings::of_profiles(self.preference_store.find_default_profiles(scope).await?.as_ref()))
    }

    /// Sets default preferences of roles. Defaults that the request omits remain unchanged.
    ///
    /// # Errors
    /// As [`Self::default_profiles`]; also when a role repeats a category and channel, or the defaults changed
    /// concurrently.
    pub async fn set_default_profiles(
        &self,
        caller: &Caller,
        defaults: &[DefaultPreference],
        expected: &Precondition,
    ) -> Result<ExplicitSettings<DefaultPreference>, Failure> {
        let scope = self.authorize_profiles(caller, Operation::ChangeDefaultProfiles).await?;
        for _ in 0..MAX_ATTEMPTS {
            let stored_profiles = self.preference_store.find_default_profiles(scope).await?;
            match &stored_profiles {
                Some(stored_profiles) => expected.check(stored_profiles.revision)?,
                None => expected.check_absent()?,
            }
            let stamp = self.context.stamp(caller);
            let change = DefaultPreferences::upsert(scope.tenant(), stored_profiles.as_ref(), defaults, &stamp)?;
            let Some(change) = change else { return Ok(ExplicitSettings::of_profiles(stored_profiles.as_ref())) };
            let changed_profiles = change.next.clone();
            match self.preference_store.commit_default_profiles(scope, change).await {
                Err(CommitError::Stale) => match expected.stale_failure() {
                    Some(failure) => return Err(failure),
                    None => continue,
                },
                committed => committed?,
            }
            self.context.notify_facts();
            return Ok(ExplicitSettings::of_profiles(Some(&changed_profiles)));
        }
        Err(Failure::Contended)
    }

    /// Lists the records of suppressed notifications, newest first: those of one workspace, or of all scopes that the
    /// caller may audit.
    ///
    /// # Errors
    /// When the caller may not read the records in that scope, or the tenant's notifications are off.
    pub async fn list_suppressed_decisions(
        &self,
        caller: &Caller,
        filter: &SuppressedFilter,
        page: PageRequest,
    ) -> Result<Page<SuppressedDecision>, Failure> {
        let operation = Operation::ListSuppressedDecisions;
        let (scope, visible_scopes) =
            self.scope_resolver.authorize_list_of(caller, operation, filter.workspace).await?;
        self.require_enabled(scope).await?;
        Ok(self.suppressed_store.list(scope, filter, visible_scopes.as_ref(), page).await?)
    }
}
