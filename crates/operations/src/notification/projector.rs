//! The projector: a background task that reads each tenant's audit log and writes the notifications of its facts.

use crate::{
    FactWakeups, Failure, Settings, Stores,
    access::{IdentityMode, effective_rights},
    commit_context::CommitContext,
    notification::inbox_wakeups::InboxWakeups,
    services::SharedState,
};
use fairway_domain::{
    access::{ActorRef, CallerAccess, Grant, Role},
    id::{TenantId, WorkloadId, WorkspaceId},
    notification::{
        Tier,
        burst::{self, BurstCounts},
        ports::{FactBatch, HeldRoles, PreferenceStore, ProfileStore, ProjectionBasis, ProjectionStore},
        preference::{NotificationSettings, PreferenceSet},
        projection::{
            CandidateReceivers, NotifiableFact, Projection, SettingsTurnedOnAt, SubjectContext, project, recipients_of,
        },
        recipient::RecipientRights,
    },
    store::{CommitError, Revision},
    tenant::TenantScope,
    time::Timestamp,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// Maximum number of facts in one batch.
const MAX_FACTS: u32 = 500;
/// Divisor of a log's batch size after a batch of the log failed.
const BATCH_DIVISOR: u32 = 8;
/// Maximum number of rows in one commit. Only a single fact with more rows may exceed it.
const MAX_ROWS: usize = 2_000;
/// Maximum number of logs that one query returns.
const MAX_LOGS: usize = 20;
/// Poll interval if no wakeup arrives. It bounds the delay of facts that other processes sequence.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Delay of the next attempt after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Role of the local user on a local server; it needs no role binding.
const LOCAL_ROLE: Role = Role::PlatformAdmin;

/// Writes the notifications of sequenced facts.
pub struct Projector {
    context: CommitContext,
    settings: Arc<Settings>,
    projection_store: Arc<dyn ProjectionStore>,
    preference_store: Arc<dyn PreferenceStore>,
    profile_store: Arc<dyn ProfileStore>,
    outbox_wakeup: Arc<Notify>,
    inbox_wakeups: Arc<InboxWakeups>,
    last_failures: Mutex<HashMap<TenantId, Instant>>,
    /// The batch size of each log whose last batch failed. A success removes the entry.
    batch_limits: Mutex<HashMap<TenantId, u32>>,
}

/// Returns the number of rows that a projection's commit writes.
fn row_count(projection: &Projection) -> usize {
    let Projection { notifications, deliveries, suppressed, omitted_recipients: _ } = projection;
    notifications.len().saturating_add(deliveries.len()).saturating_add(suppressed.len())
}

impl Projector {
    pub(crate) fn new(stores: &Stores, shared: &SharedState) -> Self {
        Self {
            profile_store: Arc::clone(&stores.notification_profiles),
            outbox_wakeup: Arc::clone(&shared.outbox_wakeup),
            inbox_wakeups: Arc::clone(&shared.inbox_wakeups),
            last_failures: Mutex::default(),
            batch_limits: Mutex::default(),
            context: shared.context.clone(),
            settings: Arc::clone(&shared.settings),
            projection_store: Arc::clone(&stores.projections),
            preference_store: Arc::clone(&stores.preferences),
        }
    }

    /// Projects one batch of each log that has facts after its projected position. Returns the number of projected
    /// facts. A log that fails is skipped for a second, so that it does not delay other logs.
    ///
    /// # Errors
    /// When the list of logs cannot be read. If another projector commits the same batch first, this is not an error.
    pub async fn project_pending(&self) -> Result<u64, Failure> {
        let (mut fact_count, mut last_tenant) = (0_u64, None);
        loop {
            let tenants = self.projection_store.tenants_with_unprojected_facts(last_tenant, MAX_LOGS).await?;
            for tenant in &tenants {
                if self.is_in_retry_delay(*tenant) {
                    continue;
                }
                match self.project_tenant(*tenant).await {
                    Ok(count) => fact_count = fact_count.saturating_add(count),
                    Err(error) => {
                        tracing::warn!(
                            tenant_id = %tenant,
                            error = &error as &dyn std::error::Error,
                            "failed to create the notifications of a tenant from its audit log; retrying in 1 s"
                        );
                        self.last_failures().insert(*tenant, Instant::now());
                    }
                }
            }
            last_tenant = tenants.last().copied();
            if last_tenant.is_none() || tenants.len() < MAX_LOGS {
                return Ok(fact_count);
            }
        }
    }

    /// Returns the time of the last failure of each log.
    fn last_failures(&self) -> MutexGuard<'_, HashMap<TenantId, Instant>> {
        // A panic leaves the map consistent, because each change is a single call.
        self.last_failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_in_retry_delay(&self, tenant: TenantId) -> bool {
        let mut last_failures = self.last_failures();
        last_failures.retain(|_, failed_at| failed_at.elapsed() < RETRY_DELAY);
        last_failures.contains_key(&tenant)
    }

    async fn project_tenant(&self, tenant: TenantId) -> Result<u64, Failure> {
        let scope = TenantScope::for_background_task(tenant);
        let limit = self.batch_limits().get(&tenant).copied().unwrap_or(MAX_FACTS);
        let outcome = self.project_facts(scope, limit).await;
        // The batch may have failed because its statements timed out, so the next attempt has fewer facts.
        let _ = match &outcome {
            Ok(_) => self.batch_limits().remove(&tenant),
            Err(_) => self.batch_limits().insert(tenant, (limit / BATCH_DIVISOR).max(1)),
        };
        outcome
    }

    /// Returns the batch size of each log whose last batch failed.
    fn batch_limits(&self) -> MutexGuard<'_, HashMap<TenantId, u32>> {
        self.batch_limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn project_facts(&self, scope: TenantScope, limit: u32) -> Result<u64, Failure> {
        let Some(batch) = self.projection_store.next_batch(scope, limit).await? else { return Ok(0) };
        let (position, end) = (batch.position, batch.end);
        match self.project_batch(scope, batch).await {
            Ok(()) => Ok(end.saturating_sub(position)),
            // Another projector advanced the position, or a notification setting was turned off. The next call reads
            // the batch again.
            Err(CommitError::Stale) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    async fn project_batch(&self, scope: TenantScope, batch: FactBatch) -> Result<(), CommitError> {
        let FactBatch { mut position, end, at, generation, turned_on, mut facts } = batch;
        let basis = ProjectionBasis { at, generation };
        let mut pending = Projection::default();
        if !facts.is_empty() {
            self.complete_audiences(&mut facts);
            let directory = self.directory(scope, &facts).await?;
            let receivers = self.candidate_receivers(scope, &directory, &facts, (generation, turned_on)).await?;
            let mut bursts = self.burst_counts(scope, &directory, &receivers, at).await?;
            for (fact, subject) in &facts {
                let mut projection = project(fact, subject, &directory, &receivers, at);
                if let Some(bursts) = &mut bursts {
                    bursts.combine_excess_deliveries(&mut projection.deliveries);
                }
                let omitted_recipients = projection.omitted_recipients;
                if omitted_recipients > 0 {
                    tracing::warn!(
                        tenant_id = %scope.tenant(),
                        fact_id = %fact.fact_id,
                        omitted_recipients,
                        "a fact exceeds the recipient limit; the remaining recipients get no notification"
                    );
                }
                pending.append(projection);
                if row_count(&pending) >= MAX_ROWS {
                    let next_position = fact.index.saturating_add(1);
                    self.commit(scope, position..next_position, basis, &pending).await?;
                    (position, pending) = (next_position, Projection::default());
                }
            }
        }
        if position < end { self.commit(scope, position..end, basis, &pending).await } else { Ok(()) }
    }

    async fn commit(
        &self,
        scope: TenantScope,
        positions: Range<u64>,
        basis: ProjectionBasis,
        projection: &Projection,
    ) -> Result<(), CommitError> {
        self.projection_store.commit_batch(scope, positions, basis, projection).await?;
        if !projection.suppressed.is_empty() {
            self.context.notify_facts();
        }
        if !projection.deliveries.is_empty() {
            self.outbox_wakeup.notify_one();
        }
        if !projection.notifications.is_empty() {
            self.inbox_wakeups.notify(scope.tenant());
        }
        Ok(())
    }

    /// Adds the local user to announcements whose audience is everybody or [`LOCAL_ROLE`]. The store does not list this
    /// user, because its role needs no role binding.
    fn complete_audiences(&self, facts: &mut [(NotifiableFact, SubjectContext)]) {
        if self.settings.identity != IdentityMode::Local {
            return;
        }
        let announcements = facts.iter_mut().filter_map(|(_, subject)| subject.announcement.as_mut());
        for announcement in announcements {
            let includes_local_user = announcement.roles.is_empty() || announcement.roles.contains(&LOCAL_ROLE);
            if includes_local_user && !announcement.audience.contains(&ActorRef::local()) {
                announcement.audience.insert(0, ActorRef::local());
            }
        }
    }

    /// Returns the rights of all recipients of the facts. It first reads the rights of the people whom the facts name,
    /// determines the recipients, and then reads all roles of the recipients.
    async fn directory(
        &self,
        scope: TenantScope,
        facts: &[(NotifiableFact, SubjectContext)],
    ) -> Result<RecipientRights, CommitError> {
        let positions: Vec<_> = facts.iter().map(|(_, subject)| subject.position).collect();
        let actors = facts.iter().flat_map(|(fact, subject)| {
            subject
                .owner
                .iter()
                .chain(&subject.owner_team)
                .chain(&subject.submitter)
                .chain(&subject.author)
                .chain([&fact.actor])
        });
        let mut people: BTreeSet<ActorRef> = actors.cloned().collect();
        // The local user has every permission without a role binding, so the store does not list it.
        if self.settings.identity == IdentityMode::Local {
            people.insert(ActorRef::local());
        }
        let people: Vec<ActorRef> = people.into_iter().collect();
        let holders = self.projection_store.held_roles(scope, &positions, &people).await?;
        let people_rights = self.rights(scope, holders, &people);
        let recipients: BTreeSet<ActorRef> = facts
            .iter()
            .filter_map(|(fact, subject)| recipients_of(fact, subject, &people_rights))
            .flat_map(|recipients| recipients.actors)
            .collect();
        let recipients: Vec<ActorRef> = recipients.into_iter().collect();
        let holders = self.projection_store.held_roles(scope, &[], &recipients).await?;
        Ok(self.rights(scope, holders, &recipients))
    }

    /// Returns the rights of the given people, and of everyone who holds one of the listed roles.
    fn rights(&self, scope: TenantScope, holders: HeldRoles, people: &[ActorRef]) -> RecipientRights {
        let HeldRoles { roles, without_role_history } = holders;
        let mut grants: BTreeMap<ActorRef, Vec<Grant>> =
            people.iter().map(|person| (person.clone(), Vec::new())).collect();
        for role in roles {
            grants.entry(role.principal).or_default().push(Grant::of_role(role.role, role.scope));
        }
        let rights = grants.into_iter().map(|(actor, grants)| {
            let access = CallerAccess {
                tenant: scope.tenant(),
                ever_bound: !without_role_history.contains(&actor),
                grants,
                lanes: Vec::new(),
                access_revision: Revision::FIRST,
            };
            let rights = effective_rights(self.settings.identity, &actor, &access);
            (actor, rights)
        });
        RecipientRights { rights: rights.collect() }
    }

    /// Returns how many single messages each person received in the current time window. Returns `None` below the
    /// advanced tier, because only that tier combines bursts of messages into one.
    async fn burst_counts(
        &self,
        scope: TenantScope,
        directory: &RecipientRights,
        receivers: &CandidateReceivers,
        at: Timestamp,
    ) -> Result<Option<BurstCounts>, CommitError> {
        let window = match receivers.switches {
            NotificationSettings::Enabled(Tier::Advanced) => burst::window(at),
            NotificationSettings::Enabled(Tier::Standard) | NotificationSettings::Disabled => None,
        };
        let Some(window) = window else { return Ok(None) };
        let people: Vec<ActorRef> = directory.rights.keys().cloned().collect();
        let single_counts = self.projection_store.count_recent_single_deliveries(scope, &people, window.start).await?;
        Ok(Some(BurstCounts::new(receivers.tenant, receivers.generation, window, single_counts)))
    }

    async fn candidate_receivers(
        &self,
        scope: TenantScope,
        directory: &RecipientRights,
        facts: &[(NotifiableFact, SubjectContext)],
        (generation, turned_on): (u64, SettingsTurnedOnAt),
    ) -> Result<CandidateReceivers, CommitError> {
        let people: Vec<ActorRef> = directory.rights.keys().cloned().collect();
        let workspaces: BTreeSet<WorkspaceId> =
            facts.iter().filter_map(|(_, subject)| subject.position.workspace).collect();
        let workloads: BTreeSet<WorkloadId> = facts.iter().filter_map(|(_, subject)| subject.workload_id).collect();
        let environments: BTreeSet<&str> =
            facts.iter().filter_map(|(_, subject)| subject.environment.as_deref()).collect();
        let (workspaces, workloads): (Vec<_>, Vec<_>) =
            (workspaces.into_iter().collect(), workloads.into_iter().collect());
        let environments: Vec<&str> = environments.into_iter().collect();
        let stored_sets =
            self.projection_store.preferences(scope, &people, &workspaces, &workloads, &environments).await?;
        let mut sets: HashMap<ActorRef, Vec<PreferenceSet>> = HashMap::new();
        for set in stored_sets {
            sets.entry(set.principal.clone()).or_default().push(set);
        }
        let profiles = self.preference_store.find_default_profiles(scope).await?;
        let switches = self.preference_store.switches(scope).await?;
        let destinations = self.projection_store.destinations(scope, &workspaces).await?;
        let profiles_of_people = match switches {
            NotificationSettings::Enabled(Tier::Advanced) => self.profile_store.find_many(scope, &people).await?,
            NotificationSettings::Enabled(Tier::Standard) | NotificationSettings::Disabled => Vec::new(),
        };
        let settings = profiles_of_people.into_iter().map(|profile| {
            let profile = profile.into_record();
            (profile.principal, profile.settings)
        });
        let mut receivers = CandidateReceivers {
            sets,
            profiles,
            switches,
            turned_on,
            tenant: scope.tenant(),
            generation,
            destinations,
            people: settings.collect(),
            mailboxes: HashSet::new(),
        };
        let people_to_check: Vec<ActorRef> =
            people.into_iter().filter(|person| receivers.has_inbox_disabling_setting(person)).collect();
        if !people_to_check.is_empty() {
            receivers.mailboxes = self.projection_store.people_with_mailbox(scope, &people_to_check).await?;
        }
        Ok(receivers)
    }
}

/// Projects sequenced facts in an endless loop. Several processes may run this task concurrently.
pub async fn run_projector(projector: Arc<Projector>, wakeups: Arc<FactWakeups>) {
    loop {
        match projector.project_pending().await {
            Ok(0) => {
                // After the timeout, the loop polls even if no wakeup arrived.
                let _ = tokio::time::timeout(POLL_INTERVAL, wakeups.wait_for_sequenced()).await;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to list the audit logs with new facts for notifications; retrying in 1 s"
                );
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}
