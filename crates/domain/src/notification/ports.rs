//! The stores of notifications.

use crate::{
    access::{
        ActorRef, ResourcePosition, Role,
        rights::{GrantScope, VisibleScopes},
    },
    audit::Fact,
    fact_category::FactCategory,
    id::{AnnouncementId, DeliveryId, DestinationId, FactId, NotificationId, TenantId, WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    notification::{
        announcement::Announcement,
        burst::BurstKey,
        delivery::{Delivery, DeliveryStatus},
        destination::{ActiveDestination, Destination, DestinationScope},
        inbox::{InboxStatus, Notification},
        message::{OutgoingMessage, SendFailure},
        preference::{DefaultProfiles, PreferenceScope, PreferenceSet, Switches},
        profile::NotificationProfile,
        projection::{NotifiableFact, Projection, SettingsTurnedOnAt, SubjectContext, SuppressedDecision},
    },
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

/// The filters of an inbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InboxFilter {
    /// Only this status.
    pub status: Option<InboxStatus>,
    /// Only this category.
    pub category: Option<FactCategory>,
}

/// Stores inboxes. Every method reads or writes the rows of one recipient.
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
    /// Stores a status.
    async fn commit_status(&self, scope: TenantScope, change: Change<Notification>) -> Result<(), CommitError>;
    /// Marks all unread notifications of the recipient as read, in bounded steps, the last of which writes the fact and
    /// claims the key.
    async fn commit_all_read(
        &self,
        scope: TenantScope,
        recipient: &ActorRef,
        fact: Fact,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// The recipient's notifications about facts from the index `from` of the log, oldest first, at most `limit`.
    async fn list_from(
        &self,
        scope: TenantScope,
        recipient: &ActorRef,
        from: u64,
        limit: u32,
    ) -> Result<Vec<Notification>, StoreError>;
    /// The number of projected facts of the tenant's log: notifications about them exist.
    async fn count_projected(&self, scope: TenantScope) -> Result<u64, StoreError>;
    /// The number of unread notifications of the recipient, counted up to 10,001.
    async fn count_unread(&self, scope: TenantScope, recipient: &ActorRef) -> Result<u64, StoreError>;
}

/// Stores preferences and default profiles.
#[async_trait]
pub trait PreferenceStore: Send + Sync {
    /// The preferences of a person in these scopes; scopes without any are left out.
    async fn find_sets(
        &self,
        scope: TenantScope,
        principal: &ActorRef,
        scopes: &[PreferenceScope],
    ) -> Result<Vec<PreferenceSet>, StoreError>;
    /// Stores the preferences of a person in one scope.
    async fn commit_set(&self, scope: TenantScope, change: Change<PreferenceSet>) -> Result<(), CommitError>;
    /// The default profiles of the tenant's roles, if any were set.
    async fn find_profiles(&self, scope: TenantScope) -> Result<Option<DefaultProfiles>, StoreError>;
    /// Stores the default profiles.
    async fn commit_profiles(&self, scope: TenantScope, change: Change<DefaultProfiles>) -> Result<(), CommitError>;
    /// The tenant's notification settings.
    async fn switches(&self, scope: TenantScope) -> Result<Switches, StoreError>;
    /// The environments that a workload is released to, in alphabetical order.
    async fn environments(&self, scope: TenantScope, workload: WorkloadId) -> Result<Vec<Slug>, StoreError>;
}

/// Stores destinations. A destination of another scope is not found.
#[async_trait]
pub trait DestinationStore: Send + Sync {
    /// Finds a destination of the scope `at`.
    async fn find(
        &self,
        scope: TenantScope,
        at: DestinationScope,
        id: DestinationId,
    ) -> Result<Option<Destination>, StoreError>;
    /// Lists the destinations of the scope `at`, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        at: DestinationScope,
        page: PageRequest,
    ) -> Result<Page<Destination>, StoreError>;
    /// Stores a new destination. Fails with `Stale` if the scope has
    /// [`MAX_DESTINATIONS`](super::destination::MAX_DESTINATIONS) already. Concurrent creations can
    /// exceed the limit by their number.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Destination>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a changed destination.
    async fn commit_change(&self, scope: TenantScope, change: Change<Destination>) -> Result<(), CommitError>;
    /// Records that a test message was sent to a destination. Fails with `Stale` if it does not exist.
    async fn commit_test(&self, scope: TenantScope, id: DestinationId, fact: Fact) -> Result<(), CommitError>;
    /// Deletes a destination at a revision. Fails with `Stale` if it has another one, or does not exist.
    async fn commit_deletion(
        &self,
        scope: TenantScope,
        id: DestinationId,
        decided_on: Revision,
        fact: Fact,
    ) -> Result<(), CommitError>;
}

/// The filters of delivery health.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeliveryFilter {
    /// Only deliveries about facts of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Only this status.
    pub status: Option<DeliveryStatus>,
    /// Only this destination.
    pub destination: Option<DestinationId>,
}

/// Stores deliveries, for people who watch them.
#[async_trait]
pub trait DeliveryStore: Send + Sync {
    /// Finds a delivery, with the position of its fact.
    async fn find(
        &self,
        scope: TenantScope,
        id: DeliveryId,
    ) -> Result<Option<(Delivery, ResourcePosition)>, StoreError>;
    /// Lists deliveries, newest first. `visible_scopes` restricts the list to its scopes.
    async fn list(
        &self,
        scope: TenantScope,
        filter: DeliveryFilter,
        visible_scopes: Option<&VisibleScopes>,
        page: PageRequest,
    ) -> Result<Page<Delivery>, StoreError>;
    /// Returns a failed delivery to the outbox, under the present settings of its tenant and its destination.
    async fn commit_retry(
        &self,
        scope: TenantScope,
        change: Change<Delivery>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
}

/// What a sender claims.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeliveryClaim {
    /// Identifies the claim.
    pub claim_id: Uuid,
    /// The maximum number of deliveries.
    pub limit: u32,
    /// The maximum number of deliveries of one lane, those in progress included.
    pub per_lane: u32,
    /// The number of deliveries in progress by lane.
    pub in_progress: Vec<(Uuid, u32)>,
    /// The maximum number of lanes of one tenant.
    pub lanes_per_tenant: u32,
    /// The tenants that have their share of the sender; none of their deliveries is claimed.
    pub busy_tenants: Vec<TenantId>,
    /// The time after which another sender may claim the deliveries again.
    pub lease: Duration,
}

/// A claimed delivery.
#[derive(Clone, PartialEq, Debug)]
pub struct ClaimedDelivery {
    /// The claim.
    pub claim_id: Uuid,
    /// The lane: deliveries of one lane have one receiver.
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
    /// The number of due deliveries that became suppressed or cancelled, or are not readable by this version.
    pub passed_over: usize,
}

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttemptOutcome {
    /// The receiver accepted the message, with this status.
    Sent(Option<u16>),
    /// The attempt failed, and another one follows after the delay.
    Retry(SendFailure, Duration),
    /// The attempt failed, and no other one follows.
    Failed(SendFailure),
}

/// The outbox, for senders.
#[async_trait]
pub trait OutboxStore: Send + Sync {
    /// Claims due deliveries of all tenants. Deliveries whose tenant's setting or destination went off since they were
    /// decided become suppressed or cancelled instead. A delivery whose lease has ended is claimed again.
    async fn claim(&self, claim: &DeliveryClaim) -> Result<ClaimResult, StoreError>;
    /// Stores the outcome of an attempt. Nothing changes if the claim was lost.
    async fn finish(&self, claimed: &ClaimedDelivery, outcome: AttemptOutcome) -> Result<(), StoreError>;
    /// Returns deliveries that were claimed and not sent, each with its tenant and claim, as if the claim had not happened.
    async fn release(&self, claimed: &[(TenantId, DeliveryId, Uuid)]) -> Result<(), StoreError>;
}

/// Stores notification profiles.
#[async_trait]
pub trait ProfileStore: Send + Sync {
    /// The profile of a person, if it set one.
    async fn find(&self, scope: TenantScope, principal: &ActorRef) -> Result<Option<NotificationProfile>, StoreError>;
    /// The profiles of these people; those without one are left out.
    async fn find_many(&self, scope: TenantScope, people: &[ActorRef]) -> Result<Vec<NotificationProfile>, StoreError>;
    /// Stores a profile.
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

/// The filters of the records of notifications that were not delivered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SuppressedFilter {
    /// Only records about facts of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Only records of this recipient.
    pub recipient: Option<ActorRef>,
    /// Only records about this fact.
    pub source_event: Option<FactId>,
}

/// Reads the records of notifications that were not delivered.
#[async_trait]
pub trait SuppressedDecisionStore: Send + Sync {
    /// Lists the records, newest first. `visible_scopes` restricts the list to its scopes.
    async fn list(
        &self,
        scope: TenantScope,
        filter: &SuppressedFilter,
        visible_scopes: Option<&VisibleScopes>,
        page: PageRequest,
    ) -> Result<Page<SuppressedDecision>, StoreError>;
}

/// The next facts of a tenant's log.
#[derive(Clone, Debug)]
pub struct FactBatch {
    /// The number of facts that were projected before.
    pub position: u64,
    /// The number of projected facts after this batch.
    pub end: u64,
    /// The time of the database, by which windows of digests begin and end.
    pub at: Timestamp,
    /// How often a setting of the tenant went off. A digest holds notifications of one generation.
    pub generation: u64,
    /// When the tenant's settings were turned on.
    pub turned_on: SettingsTurnedOnAt,
    /// The facts of the batch that carry categories, in the order of the log, each with its subject.
    pub facts: Vec<(NotifiableFact, SubjectContext)>,
}

/// A role of a principal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldRole {
    /// The principal.
    pub principal: ActorRef,
    /// The role.
    pub role: Role,
    /// The scope in which it applies.
    pub scope: GrantScope,
}

/// The roles of the people whom the facts of a batch can concern.
#[derive(Clone, Debug, Default)]
pub struct HeldRoles {
    /// The roles.
    pub roles: Vec<HeldRole>,
    /// Those of the named people who never held a role anywhere.
    pub never_bound: Vec<ActorRef>,
}

/// Reads facts for the projector, and commits what it decides.
#[async_trait]
pub trait ProjectionStore: Send + Sync {
    /// The tenants after `after` whose log has facts that were not projected, in the order of their identifiers, at most
    /// `limit`.
    async fn tenants_with_unprojected_facts(
        &self,
        after: Option<TenantId>,
        limit: usize,
    ) -> Result<Vec<TenantId>, StoreError>;
    /// The next facts of a tenant's log, at most `limit`, and none if it has no further ones.
    async fn next_batch(&self, scope: TenantScope, limit: u32) -> Result<Option<FactBatch>, StoreError>;
    /// The roles that apply in any of these positions, and all roles of the named people.
    async fn held_roles(
        &self,
        scope: TenantScope,
        positions: &[ResourcePosition],
        people: &[ActorRef],
    ) -> Result<HeldRoles, StoreError>;
    /// The preferences of the named people in the global scope, in these workspaces, for these workloads and, of these
    /// workloads, for these environments.
    async fn preferences(
        &self,
        scope: TenantScope,
        people: &[ActorRef],
        workspaces: &[WorkspaceId],
        workloads: &[WorkloadId],
        environments: &[&str],
    ) -> Result<Vec<PreferenceSet>, StoreError>;
    /// The enabled destinations of the organization and of these workspaces.
    async fn destinations(
        &self,
        scope: TenantScope,
        workspaces: &[WorkspaceId],
    ) -> Result<Vec<ActiveDestination>, StoreError>;
    /// Those of these people who have a verified e-mail address.
    async fn people_with_mailbox(
        &self,
        scope: TenantScope,
        people: &[ActorRef],
    ) -> Result<HashSet<ActorRef>, StoreError>;
    /// The numbers of deliveries that these people were queued one by one since a moment.
    async fn count_recent_single_deliveries(
        &self,
        scope: TenantScope,
        people: &[ActorRef],
        since: Timestamp,
    ) -> Result<HashMap<BurstKey, u32>, StoreError>;
    /// Writes the rows of a batch and moves the position over `positions`, all or nothing. Rows that exist stay as
    /// they are. Returns the number of new notifications. `decided` is the time and the generation of the batch. Fails with
    /// `Stale` if another projector moved the position, a setting of the tenant went off since, or the batch is half a
    /// minute old, because its digests could be due.
    async fn commit_batch(
        &self,
        scope: TenantScope,
        positions: Range<u64>,
        decided: (Timestamp, u64),
        projection: &Projection,
    ) -> Result<u64, CommitError>;
}
