//! The ports of the stores of notifications, preferences, destinations and deliveries.

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

/// The filters for the notifications of an inbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InboxFilter {
    /// Include only notifications with this status.
    pub status: Option<InboxStatus>,
    /// Include only notifications of this category.
    pub category: Option<NotificationCategory>,
}

/// Stores inboxes. Each method accesses only the rows of one recipient.
#[async_trait]
pub trait InboxStore: Send + Sync {
    /// Finds a notification of the recipient.
    async fn find(
        &self,
        scope: TenantScope,
        recipient: &ActorRef,
        id: NotificationId,
    ) -> Result<Option<Notification>, StoreError>;
    /// Lists the recipient's notifications, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        recipient: &ActorRef,
        filter: InboxFilter,
        page: PageRequest,
    ) -> Result<Page<Notification>, StoreError>;
    /// Stores the changed status of a notification.
    async fn commit_status(&self, scope: TenantScope, change: Change<Notification>) -> Result<(), CommitError>;
    /// Marks all unread notifications of the recipient as read, in steps of limited size. The last step stores the
    /// fact and the idempotency key.
    async fn commit_all_read(
        &self,
        scope: TenantScope,
        recipient: &ActorRef,
        fact: Fact,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Lists the recipient's notifications about facts from log index `start` on, oldest first, at most `limit`.
    async fn list_from(
        &self,
        scope: TenantScope,
        recipient: &ActorRef,
        start: u64,
        limit: u32,
    ) -> Result<Vec<Notification>, StoreError>;
    /// Counts the facts of the tenant's log for which the projector has written the notifications.
    async fn count_projected(&self, scope: TenantScope) -> Result<u64, StoreError>;
    /// Counts the unread notifications of the recipient, up to 10,001.
    async fn count_unread(&self, scope: TenantScope, recipient: &ActorRef) -> Result<u64, StoreError>;
}

/// Stores preferences and default profiles.
#[async_trait]
pub trait PreferenceStore: Send + Sync {
    /// Finds the preferences of a person in these scopes. A scope without preferences is absent from the result.
    async fn find_sets(
        &self,
        scope: TenantScope,
        principal: &ActorRef,
        scopes: &[PreferenceScope],
    ) -> Result<Vec<PreferenceSet>, StoreError>;
    /// Stores the preferences of a person in one scope.
    async fn commit_set(&self, scope: TenantScope, change: Change<PreferenceSet>) -> Result<(), CommitError>;
    /// Finds the default profiles of the tenant's roles; `None` if none were set.
    async fn find_default_profiles(&self, scope: TenantScope) -> Result<Option<DefaultPreferences>, StoreError>;
    /// Stores the default profiles.
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

/// Stores destinations. A lookup in a scope does not find destinations of other scopes.
#[async_trait]
pub trait DestinationStore: Send + Sync {
    /// Finds a destination within `destination_scope`.
    async fn find(
        &self,
        scope: TenantScope,
        destination_scope: DestinationScope,
        id: DestinationId,
    ) -> Result<Option<Destination>, StoreError>;
    /// Lists the destinations of `destination_scope`, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        destination_scope: DestinationScope,
        page: PageRequest,
    ) -> Result<Page<Destination>, StoreError>;
    /// Stores a new destination. Fails with `Stale` if the scope already has
    /// [`MAX_DESTINATIONS`](super::destination::MAX_DESTINATIONS). Concurrent creations can exceed this limit
    /// slightly.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Destination>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a changed destination.
    async fn commit_change(&self, scope: TenantScope, change: Change<Destination>) -> Result<(), CommitError>;
    /// Records that a test message was sent to a destination. Fails with `Stale` if the destination does not
    /// exist.
    async fn commit_test(&self, scope: TenantScope, id: DestinationId, fact: Fact) -> Result<(), CommitError>;
    /// Deletes a destination at a revision. Fails with `Stale` if the destination has another revision or does not
    /// exist.
    async fn commit_deletion(
        &self,
        scope: TenantScope,
        id: DestinationId,
        expected_revision: Revision,
        fact: Fact,
    ) -> Result<(), CommitError>;
}

/// The filters for the list of deliveries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeliveryFilter {
    /// Include only deliveries about facts of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Include only deliveries with this status.
    pub status: Option<DeliveryStatus>,
    /// Include only deliveries to this destination.
    pub destination: Option<DestinationId>,
}

/// Reads deliveries and retries them, for the people who monitor them.
#[async_trait]
pub trait DeliveryStore: Send + Sync {
    /// Finds a delivery, with the resource position of its fact.
    async fn find(
        &self,
        scope: TenantScope,
        id: DeliveryId,
    ) -> Result<Option<(Delivery, ResourcePosition)>, StoreError>;
    /// Lists deliveries, newest first. `visible_scopes` restricts the list to the scopes that the caller can see.
    async fn list(
        &self,
        scope: TenantScope,
        filter: DeliveryFilter,
        visible_scopes: Option<&VisibleScopes>,
        page: PageRequest,
    ) -> Result<Page<Delivery>, StoreError>;
    /// Returns a failed delivery to the outbox. The current settings of its tenant and destination then apply to
    /// it.
    async fn commit_retry(
        &self,
        scope: TenantScope,
        change: Change<Delivery>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
}

/// The request of a sender to claim deliveries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeliveryClaim {
    /// The identifier of the claim.
    pub claim_id: Uuid,
    /// The maximum number of deliveries to claim.
    pub limit: u32,
    /// The maximum number of deliveries in one lane, including those that are already in progress.
    pub per_lane: u32,
    /// The number of deliveries in progress, by lane.
    pub in_progress: Vec<(Uuid, u32)>,
    /// The maximum number of lanes in which deliveries of one tenant are claimed.
    pub lanes_per_tenant: u32,
    /// The tenants that have used their share of the sender; their deliveries are not claimed.
    pub busy_tenants: Vec<TenantId>,
    /// The time after which another sender may claim the deliveries.
    pub lease: Duration,
}

/// A delivery that a sender has claimed, with everything that is needed to send it.
#[derive(Clone, PartialEq, Debug)]
pub struct ClaimedDelivery {
    /// The identifier of the claim.
    pub claim_id: Uuid,
    /// The lane of the delivery. All deliveries of a lane have the same receiver.
    pub lane: Uuid,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// The message and its receiver.
    pub outgoing: OutgoingMessage,
}

/// The result of a claim.
#[derive(Debug, Default)]
pub struct ClaimResult {
    /// The deliveries to send.
    pub deliveries: Vec<ClaimedDelivery>,
    /// The number of due deliveries that were suppressed, were cancelled, or cannot be read by this version of the
    /// server.
    pub skipped: usize,
}

/// The outcome of a delivery attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttemptOutcome {
    /// The receiver accepted the message. Contains the status of the response, if any.
    Sent(Option<u16>),
    /// The attempt failed, and the next attempt follows after this delay.
    Retry(SendFailure, Duration),
    /// The attempt failed, and no further attempt follows.
    Failed(SendFailure),
}

/// A sender's claim of a delivery.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryClaimRef {
    /// The tenant of the delivery.
    pub tenant: TenantId,
    /// The claimed delivery.
    pub delivery_id: DeliveryId,
    /// The claim, which a later claim of another sender replaces.
    pub claim_id: Uuid,
}

/// The outbox: deliveries that wait for a sender.
#[async_trait]
pub trait OutboxStore: Send + Sync {
    /// Claims due deliveries of all tenants. A due delivery is suppressed or cancelled instead if a setting of its
    /// tenant or its destination was turned off after the decision. Deliveries with an expired lease are claimed
    /// again.
    async fn claim(&self, claim: &DeliveryClaim) -> Result<ClaimResult, StoreError>;
    /// Stores the outcome of an attempt. If another sender has claimed the delivery meanwhile, nothing is stored.
    async fn finish(&self, claimed: &ClaimedDelivery, outcome: AttemptOutcome) -> Result<(), StoreError>;
    /// Releases the claims of deliveries that were not sent. The deliveries become due at once, and the attempt does
    /// not count.
    async fn release(&self, claims: &[DeliveryClaimRef]) -> Result<(), StoreError>;
}

/// Stores notification profiles.
#[async_trait]
pub trait ProfileStore: Send + Sync {
    /// Finds the profile of a person; `None` if the person set none.
    async fn find(&self, scope: TenantScope, principal: &ActorRef) -> Result<Option<NotificationProfile>, StoreError>;
    /// Finds the profiles of these people. People without a profile are absent from the result.
    async fn find_many(&self, scope: TenantScope, people: &[ActorRef]) -> Result<Vec<NotificationProfile>, StoreError>;
    /// Stores the changed profile of a person.
    async fn commit(&self, scope: TenantScope, change: Change<NotificationProfile>) -> Result<(), CommitError>;
}

/// Stores announcements.
#[async_trait]
pub trait AnnouncementStore: Send + Sync {
    /// Finds an announcement.
    async fn find(&self, scope: TenantScope, id: AnnouncementId) -> Result<Option<Announcement>, StoreError>;
    /// Stores an announcement. Fails with `Stale` if a workspace of its audience does not exist.
    async fn commit(
        &self,
        scope: TenantScope,
        change: Change<Announcement>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
}

/// The filters for the records of suppressed notifications.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SuppressedFilter {
    /// Include only records about facts of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Include only records for this recipient.
    pub recipient: Option<ActorRef>,
    /// Include only records about this fact.
    pub source_event: Option<FactId>,
}

/// Reads the records of suppressed notifications.
#[async_trait]
pub trait SuppressedDecisionStore: Send + Sync {
    /// Lists the records, newest first. `visible_scopes` restricts the list to the scopes that the caller can see.
    async fn list(
        &self,
        scope: TenantScope,
        filter: &SuppressedFilter,
        visible_scopes: Option<&VisibleScopes>,
        page: PageRequest,
    ) -> Result<Page<SuppressedDecision>, StoreError>;
}

/// The next facts of a tenant's audit log to project.
#[derive(Clone, Debug)]
pub struct FactBatch {
    /// The number of facts that were projected before this batch.
    pub position: u64,
    /// The number of projected facts once this batch is committed.
    pub end: u64,
    /// The time of the database, which selects the windows of digests.
    pub at: Timestamp,
    /// The generation of the tenant's settings, which increments when a setting is turned off. A digest contains
    /// notifications of one generation only.
    pub generation: u64,
    /// The times at which the settings of the tenant were turned on.
    pub turned_on: SettingsTurnedOnAt,
    /// The facts of the batch that have categories, in log order, each with its subject.
    pub facts: Vec<(NotifiableFact, SubjectContext)>,
}

/// A role that a principal holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldRole {
    /// The principal that holds the role.
    pub principal: ActorRef,
    /// The held role.
    pub role: Role,
    /// The scope in which the role applies.
    pub scope: GrantScope,
}

/// The roles of all people whom the facts of a batch can concern.
#[derive(Clone, Debug, Default)]
pub struct HeldRoles {
    /// The roles of these people.
    pub roles: Vec<HeldRole>,
    /// The named people who never held any role.
    pub without_role_history: Vec<ActorRef>,
}

/// The time and the settings on which the decisions about a batch are based.
#[derive(Clone, Copy, Debug)]
pub struct ProjectionBasis {
    /// The time of the decision, by the database's clock.
    pub at: Timestamp,
    /// The generation of the tenant's notification settings.
    pub generation: u64,
}

/// Reads facts for the projector, and commits the projector's decisions.
#[async_trait]
pub trait ProjectionStore: Send + Sync {
    /// Lists the tenants whose log has unprojected facts, in the order of their identifiers. The list starts after
    /// `after` and has at most `limit` tenants.
    async fn tenants_with_unprojected_facts(
        &self,
        after: Option<TenantId>,
        limit: usize,
    ) -> Result<Vec<TenantId>, StoreError>;
    /// Loads at most `limit` next facts of a tenant's log; `None` if there are no further facts.
    async fn next_batch(&self, scope: TenantScope, limit: u32) -> Result<Option<FactBatch>, StoreError>;
    /// Loads the roles that apply in any of these resource positions, and all roles of the named people.
    async fn held_roles(
        &self,
        scope: TenantScope,
        positions: &[ResourcePosition],
        people: &[ActorRef],
    ) -> Result<HeldRoles, StoreError>;
    /// Loads the preferences of the named people. The scopes are the global scope, these workspaces, these
    /// workloads, and the combinations of these workloads and environments.
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
    /// Returns those of the given people who have a verified e-mail address.
    async fn people_with_mailbox(
        &self,
        scope: TenantScope,
        people: &[ActorRef],
    ) -> Result<HashSet<ActorRef>, StoreError>;
    /// Counts the individual deliveries that were queued for these people since a time.
    async fn count_recent_single_deliveries(
        &self,
        scope: TenantScope,
        people: &[ActorRef],
        since: Timestamp,
    ) -> Result<HashMap<BurstKey, u32>, StoreError>;
    /// Writes the rows of a batch and advances the projector's position over `positions`, atomically. Existing rows
    /// remain unchanged. Returns the number of new notifications. Fails with `Stale` if another projector advanced the
    /// position, or if a setting was turned off. It also fails with `Stale` if the batch is half a minute old, because
    /// its digests could be due.
    async fn commit_batch(
        &self,
        scope: TenantScope,
        positions: Range<u64>,
        basis: ProjectionBasis,
        projection: &Projection,
    ) -> Result<u64, CommitError>;
}
