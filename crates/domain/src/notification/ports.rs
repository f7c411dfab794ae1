//! The ports that store notifications, preferences, destinations and deliveries.

use crate::{
    access::{
        ActorRef, ResourcePosition, Role,
        rights::{GrantScope, VisibleScopes},
    },
    audit::Fact,
    id::{AnnouncementId, DeliveryId, DestinationId, FactId, NotificationId, TenantId, WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    notification::{
        announcement::Announcement,
        burst::BurstKey,
        delivery::{Delivery, DeliveryStatus},
        destination::{ActiveDestination, Destination, DestinationScope},
        inbox::{InboxStatus, Notification},
        message::{OutgoingMessage, SendFailure},
        preference::{DefaultPreferences, NotificationSettings, PreferenceScope, PreferenceSet},
        profile::NotificationProfile,
        projection::{NotifiableFact, Projection, SettingsTurnedOnAt, SubjectContext, SuppressedDecision},
    },
    notification_category::NotificationCategory,
    slug::Slug,
    store::{Change, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use async_trait::async_trait;
use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    time::Duration,
};
use uuid::Uuid;

/// The conditions of a list of inbox notifications. A notification must meet all that are set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InboxFilter {
    /// Only notifications with this status.
    pub status: Option<InboxStatus>,
    /// Only notifications of this category.
    pub category: Option<NotificationCategory>,
}

/// Stores inboxes. Each method except `count_projected` accesses only the rows of one recipient.
#[async_trait]
pub trait InboxStore: Send + Sync {
    /// Finds one notification of the recipient.
    async fn find(
        &self,
        scope: TenantScope,
        recipient: &ActorRef,
        id: NotificationId,
    ) -> Result<Option<Notification>, StoreError>;
    /// Lists one page of the recipient's notifications, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        recipient: &ActorRef,
        filter: InboxFilter,
        page: PageRequest,
    ) -> Result<Page<Notification>, StoreError>;
    /// Stores the new status of a notification.
    async fn commit_status(&self, scope: TenantScope, change: Change<Notification>) -> Result<(), CommitError>;
    /// Marks all unread notifications of the recipient as read, in several steps of limited size. The last step stores
    /// the fact and the idempotency key.
    async fn commit_all_read(
        &self,
        scope: TenantScope,
        recipient: &ActorRef,
        fact: Fact,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Lists the recipient's notifications about facts from log index `start` on, oldest first. The list has at most
    /// `limit` notifications.
    async fn list_from(
        &self,
        scope: TenantScope,
        recipient: &ActorRef,
        start: u64,
        limit: u32,
    ) -> Result<Vec<Notification>, StoreError>;
    /// Counts the facts of the tenant's audit log for which the projector has written the notifications.
    async fn count_projected(&self, scope: TenantScope) -> Result<u64, StoreError>;
    /// Counts the unread notifications of the recipient. The result 10,001 means more than 10,000.
    async fn count_unread(&self, scope: TenantScope, recipient: &ActorRef) -> Result<u64, StoreError>;
}

/// Stores the preferences of people and the default profiles of roles.
#[async_trait]
pub trait PreferenceStore: Send + Sync {
    /// Finds the preferences of a person in these scopes. The result omits scopes without preferences.
    async fn find_sets(
        &self,
        scope: TenantScope,
        principal: &ActorRef,
        scopes: &[PreferenceScope],
    ) -> Result<Vec<PreferenceSet>, StoreError>;
    /// Stores the preferences of a person in one scope.
    async fn commit_set(&self, scope: TenantScope, change: Change<PreferenceSet>) -> Result<(), CommitError>;
    /// Finds the default profiles of the tenant's roles; `None` if an administrator never set any.
    async fn find_default_profiles(&self, scope: TenantScope) -> Result<Option<DefaultPreferences>, StoreError>;
    /// Stores the default profiles of the tenant's roles.
    async fn commit_default_profiles(
        &self,
        scope: TenantScope,
        change: Change<DefaultPreferences>,
    ) -> Result<(), CommitError>;
    /// Loads the notification settings of the tenant.
    async fn switches(&self, scope: TenantScope) -> Result<NotificationSettings, StoreError>;
    /// Lists the environments to which a workload is released, in alphabetical order.
    async fn environments(&self, scope: TenantScope, workload: WorkloadId) -> Result<Vec<Slug>, StoreError>;
}

/// Stores destinations. A lookup in one scope finds no destination of another scope.
#[async_trait]
pub trait DestinationStore: Send + Sync {
    /// Finds one destination in `destination_scope`.
    async fn find(
        &self,
        scope: TenantScope,
        destination_scope: DestinationScope,
        id: DestinationId,
    ) -> Result<Option<Destination>, StoreError>;
    /// Lists one page of the destinations in `destination_scope`, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        destination_scope: DestinationScope,
        page: PageRequest,
    ) -> Result<Page<Destination>, StoreError>;
    /// Stores a new destination. Fails with `Stale` if the scope already has
    /// [`MAX_DESTINATIONS_PER_SCOPE`](super::destination::MAX_DESTINATIONS_PER_SCOPE). Concurrent creations can exceed this number
    /// slightly.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Destination>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a changed destination.
    async fn commit_change(&self, scope: TenantScope, change: Change<Destination>) -> Result<(), CommitError>;
    /// Records that a test message was sent to a destination. Fails with `Stale` if the destination does not exist.
    async fn commit_test(&self, scope: TenantScope, id: DestinationId, fact: Fact) -> Result<(), CommitError>;
    /// Deletes a destination. Fails with `Stale` if it has another revision than the expected one, or does not exist.
    async fn commit_deletion(
        &self,
        scope: TenantScope,
        id: DestinationId,
        expected_revision: Revision,
        fact: Fact,
    ) -> Result<(), CommitError>;
}

/// The conditions of a list of deliveries. A delivery must meet all that are set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeliveryFilter {
    /// Only deliveries about facts of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Only deliveries with this status.
    pub status: Option<DeliveryStatus>,
    /// Only deliveries to this destination.
    pub destination: Option<DestinationId>,
}

/// Reads and retries deliveries, for the people who monitor them.
#[async_trait]
pub trait DeliveryStore: Send + Sync {
    /// Finds a delivery, with the resource position of its fact.
    async fn find(
        &self,
        scope: TenantScope,
        id: DeliveryId,
    ) -> Result<Option<(Delivery, ResourcePosition)>, StoreError>;
    /// Lists one page of deliveries, newest first. It contains only deliveries within `visible_scopes`, which the
    /// caller may see.
    async fn list(
        &self,
        scope: TenantScope,
        filter: DeliveryFilter,
        visible_scopes: Option<&VisibleScopes>,
        page: PageRequest,
    ) -> Result<Page<Delivery>, StoreError>;
    /// Returns a failed delivery to the outbox. The current settings of its tenant and destination apply to the next
    /// attempt.
    async fn commit_retry(
        &self,
        scope: TenantScope,
        change: Change<Delivery>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
}

/// A sender's request to claim due deliveries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeliveryClaimRequest {
    /// The identifier of this claim, which later writes must name.
    pub claim_id: Uuid,
    /// The maximum number of deliveries that the claim takes.
    pub limit: u32,
    /// The maximum number of deliveries of one receiver (lane), including those that are already in progress.
    pub per_lane: u32,
    /// The number of deliveries that this sender has in progress, by lane.
    pub in_progress: Vec<(Uuid, u32)>,
    /// The maximum number of lanes from which the claim takes deliveries of one tenant.
    pub lanes_per_tenant: u32,
    /// Tenants from which the claim takes nothing, because they have used their share of this sender.
    pub busy_tenants: Vec<TenantId>,
    /// The time after which another sender may claim the same deliveries.
    pub lease: Duration,
}

/// A delivery that a sender has claimed, with the data that it needs for the attempt.
#[derive(Clone, PartialEq, Debug)]
pub struct ClaimedDelivery {
    /// The identifier of the sender's claim.
    pub claim_id: Uuid,
    /// The lane of the delivery. All deliveries of one lane have the same receiver.
    pub lane: Uuid,
    /// The number of this attempt, starting at 1.
    pub attempt: u32,
    /// The message to send, with its receiver.
    pub outgoing: OutgoingMessage,
}

/// The result of a sender's claim.
#[derive(Debug, Default)]
pub struct ClaimResult {
    /// The deliveries that the sender must attempt.
    pub deliveries: Vec<ClaimedDelivery>,
    /// The number of due deliveries that were suppressed or cancelled, or that this version of the server cannot read.
    pub skipped: usize,
}

/// The outcome of a delivery attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttemptOutcome {
    /// The receiver accepted the message. The value is the status of its response, if there is one.
    Sent(Option<u16>),
    /// The attempt failed, and the delivery is attempted again after this delay.
    Retry(SendFailure, Duration),
    /// The attempt failed, and the delivery is not attempted again.
    Failed(SendFailure),
}

/// One sender's claim of one delivery.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryClaimRef {
    /// The tenant to which the delivery belongs.
    pub tenant: TenantId,
    /// The claimed delivery.
    pub delivery_id: DeliveryId,
    /// The identifier of the claim. A later claim of another sender replaces it.
    pub claim_id: Uuid,
}

/// The port to the outbox, which contains the deliveries that wait for a sender.
#[async_trait]
pub trait OutboxStore: Send + Sync {
    /// Claims due deliveries of all tenants, including deliveries whose lease has expired. A due delivery is suppressed
    /// or cancelled instead if a setting of its tenant or its destination was turned off after the decision.
    async fn claim(&self, claim: &DeliveryClaimRequest) -> Result<ClaimResult, StoreError>;
    /// Stores the outcome of an attempt. Stores nothing if another sender has claimed the delivery meanwhile.
    async fn finish(&self, claimed: &ClaimedDelivery, outcome: AttemptOutcome) -> Result<(), StoreError>;
    /// Releases claims of deliveries that were not sent. The deliveries are due at once, and the attempt does not
    /// count.
    async fn release(&self, claims: &[DeliveryClaimRef]) -> Result<(), StoreError>;
}

/// Stores the notification profiles of people.
#[async_trait]
pub trait ProfileStore: Send + Sync {
    /// Finds the profile of a person; `None` if the person never set one.
    async fn find(&self, scope: TenantScope, principal: &ActorRef) -> Result<Option<NotificationProfile>, StoreError>;
    /// Finds the profiles of these people. The result omits people without a profile.
    async fn find_many(&self, scope: TenantScope, people: &[ActorRef]) -> Result<Vec<NotificationProfile>, StoreError>;
    /// Stores the new profile of a person.
    async fn commit(&self, scope: TenantScope, change: Change<NotificationProfile>) -> Result<(), CommitError>;
}

/// Stores the announcements of administrators.
#[async_trait]
pub trait AnnouncementStore: Send + Sync {
    /// Finds one announcement.
    async fn find(&self, scope: TenantScope, id: AnnouncementId) -> Result<Option<Announcement>, StoreError>;
    /// Stores a new announcement. Fails with `Stale` if a workspace of its audience does not exist.
    async fn commit(
        &self,
        scope: TenantScope,
        change: Change<Announcement>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
}

/// The conditions of a list of suppressed notifications. A record must meet all that are set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SuppressedFilter {
    /// Only records about facts of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Only records for this recipient.
    pub recipient: Option<ActorRef>,
    /// Only records about this fact.
    pub source_event: Option<FactId>,
}

/// Reads the records of suppressed notifications.
#[async_trait]
pub trait SuppressedDecisionStore: Send + Sync {
    /// Lists one page of records, newest first. It contains only records within `visible_scopes`, which the caller may
    /// see.
    async fn list(
        &self,
        scope: TenantScope,
        filter: &SuppressedFilter,
        visible_scopes: Option<&VisibleScopes>,
        page: PageRequest,
    ) -> Result<Page<SuppressedDecision>, StoreError>;
}

/// The next facts of a tenant's audit log that the projector reads.
#[derive(Clone, Debug)]
pub struct FactBatch {
    /// The number of facts that the projector read before this batch.
    pub position: u64,
    /// The number of facts that the projector has read after this batch.
    pub end: u64,
    /// The current time of the database, which selects the windows of digests.
    pub at: Timestamp,
    /// The generation of the tenant's notification settings, which increases when a setting is turned off. A digest
    /// contains notifications of one generation only.
    pub generation: u64,
    /// The times at which the tenant's notification settings were turned on.
    pub turned_on: SettingsTurnedOnAt,
    /// The facts of the batch with notification categories, in log order, each with data about its subject.
    pub facts: Vec<(NotifiableFact, SubjectContext)>,
}

/// A role that a principal has in a scope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldRole {
    /// The principal that has the role.
    pub principal: ActorRef,
    /// The role that the principal has.
    pub role: Role,
    /// The scope in which the role applies.
    pub scope: GrantScope,
}

/// The roles of all people whom the facts of a batch can concern.
#[derive(Clone, Debug, Default)]
pub struct HeldRoles {
    /// The roles of these people, one entry for each role and scope.
    pub roles: Vec<HeldRole>,
    /// Those of the named people who never had a role.
    pub without_role_history: Vec<ActorRef>,
}

/// The state on which the decisions about a batch are based. The commit fails if the state changed.
#[derive(Clone, Copy, Debug)]
pub struct ProjectionBasis {
    /// The time of the decisions, by the database's clock.
    pub at: Timestamp,
    /// The generation of the tenant's notification settings.
    pub generation: u64,
}

/// Reads facts for the projector, and stores its decisions.
#[async_trait]
pub trait ProjectionStore: Send + Sync {
    /// Lists the tenants whose audit log has facts that the projector has not read, ordered by identifier. The list
    /// starts after the tenant `after` and has at most `limit` tenants.
    async fn tenants_with_unprojected_facts(
        &self,
        after: Option<TenantId>,
        limit: usize,
    ) -> Result<Vec<TenantId>, StoreError>;
    /// Loads the next facts of a tenant's audit log, at most `limit`; `None` if the projector has read all of them.
    async fn next_batch(&self, scope: TenantScope, limit: u32) -> Result<Option<FactBatch>, StoreError>;
    /// Loads the roles that apply at any of these resource positions, and all roles of these people.
    async fn held_roles(
        &self,
        scope: TenantScope,
        positions: &[ResourcePosition],
        people: &[ActorRef],
    ) -> Result<HeldRoles, StoreError>;
    /// Loads the preferences of these people in several scopes: the global scope, these workspaces, these workloads,
    /// and the combinations of these workloads and environments.
    async fn preferences(
        &self,
        scope: TenantScope,
        people: &[ActorRef],
        workspaces: &[WorkspaceId],
        workloads: &[WorkloadId],
        environments: &[&str],
    ) -> Result<Vec<PreferenceSet>, StoreError>;
    /// Loads the enabled destinations of the organization and of these workspaces.
    async fn destinations(
        &self,
        scope: TenantScope,
        workspaces: &[WorkspaceId],
    ) -> Result<Vec<ActiveDestination>, StoreError>;
    /// Selects those of these people who have a verified e-mail address.
    async fn people_with_mailbox(
        &self,
        scope: TenantScope,
        people: &[ActorRef],
    ) -> Result<HashSet<ActorRef>, StoreError>;
    /// Counts the individual deliveries that were queued for these people since this time.
    async fn count_recent_single_deliveries(
        &self,
        scope: TenantScope,
        people: &[ActorRef],
        since: Timestamp,
    ) -> Result<HashMap<BurstKey, u32>, StoreError>;
    /// Writes the rows of a batch and moves the projector's position over `positions` in one transaction. Existing rows
    /// stay unchanged. Returns the number of new notifications. Fails with `Stale` if another projector moved the
    /// position, or if a setting was turned off. It also fails with `Stale` if the batch is half a minute old, because
    /// its digests could already be due.
    async fn commit_batch(
        &self,
        scope: TenantScope,
        positions: Range<u64>,
        basis: ProjectionBasis,
        projection: &Projection,
    ) -> Result<u64, CommitError>;
}
