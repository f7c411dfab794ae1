//! Principal bindings: who is bound to a workload, and which lane serves whom.

use super::{ActorKind, ActorRef};
use crate::{
    audit::{Fact, FactKind, Stamp, Subject},
    id::{PrincipalBindingId, WorkloadId},
    idempotency::KeyedOutcome,
    release::lane::Lane,
    store::{Change, CommitError, Listed, Paging, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
    workload::Workload,
};
use async_trait::async_trait;
use serde_json::json;
use std::collections::BTreeMap;

/// A principal that is bound to a workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrincipalBinding {
    /// Its identifier. It stays when the lane changes.
    pub principal_binding_id: PrincipalBindingId,
    /// The workload.
    pub workload_id: WorkloadId,
    /// A user, group or service; bound to a workload once at most.
    pub principal: ActorRef,
    /// The lane that serves it; `None` for none of its own.
    pub lane: Option<Lane>,
    /// When it was bound.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: ActorRef,
    /// When its lane was last settled.
    pub updated_at: Timestamp,
    /// By whom.
    pub updated_by: ActorRef,
    /// Counts the changes.
    pub revision: Revision,
}

/// The principal is none that can be bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("only users, groups and services are bound to workloads")]
pub struct PrincipalRefusal;

impl PrincipalRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        "invalid_principal"
    }
}

impl PrincipalBinding {
    /// Binds a principal that is not bound to the workload yet.
    ///
    /// # Errors
    /// When the principal is no user, group or service.
    pub fn bind(
        principal_binding_id: PrincipalBindingId,
        workload: &Workload,
        (principal, lane): (ActorRef, Option<Lane>),
        stamp: &Stamp,
    ) -> Result<Change<Self>, PrincipalRefusal> {
        match principal.kind() {
            ActorKind::User | ActorKind::Group | ActorKind::Service => {}
            ActorKind::System | ActorKind::ShareLink | ActorKind::Anonymous => return Err(PrincipalRefusal),
        }
        let next = Self {
            principal_binding_id,
            workload_id: workload.workload_id,
            principal,
            lane,
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
            updated_at: stamp.at,
            updated_by: stamp.actor.clone(),
            revision: Revision::FIRST,
        };
        let fact = next.fact(FactKind::PrincipalBindingCreated, workload, stamp);
        Ok(Change::creating(next, fact))
    }

    /// Settles the lane anew.
    pub fn rebind(&self, workload: &Workload, lane: Option<Lane>, stamp: &Stamp) -> Change<Self> {
        let (updated_at, updated_by) = (stamp.at, stamp.actor.clone());
        let next = Self { lane, updated_at, updated_by, revision: self.revision.next(), ..self.clone() };
        let fact = next.fact(FactKind::PrincipalBindingChanged, workload, stamp);
        Change::replacing(next, self.revision, fact)
    }

    /// The fact of this binding or of its end.
    #[must_use]
    pub fn fact(&self, kind: FactKind, workload: &Workload, stamp: &Stamp) -> Fact {
        let subject = Subject { kind: "principal_binding", id: self.principal_binding_id.uuid() };
        let detail = json!({
            "workload_id": self.workload_id,
            "principal": self.principal.to_string(),
            "lane": self.lane,
        });
        Fact::new(kind, subject, Some(workload.workspace_id), stamp, detail)
    }
}

/// A lane that a principal binding gives, as it is read for a caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundLane {
    /// The caller or one of its groups.
    pub principal: ActorRef,
    /// The workload.
    pub workload_id: WorkloadId,
    /// The lane.
    pub lane: Lane,
}

/// The lanes that serve a caller by its principal bindings and those of its groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallerLanes(BTreeMap<WorkloadId, Lane>);

impl CallerLanes {
    /// What the bindings come to: the actor's own goes before those of its groups, and of these counts the most careful.
    #[must_use]
    pub fn of(actor: &ActorRef, bound: Vec<BoundLane>) -> Self {
        let (own, of_groups): (Vec<_>, Vec<_>) = bound.into_iter().partition(|bound| bound.principal == *actor);
        let mut lanes = BTreeMap::new();
        for BoundLane { workload_id, lane, .. } in of_groups {
            lanes.entry(workload_id).and_modify(|most: &mut Lane| *most = lane.min(*most)).or_insert(lane);
        }
        lanes.extend(own.into_iter().map(|bound| (bound.workload_id, bound.lane)));
        Self(lanes)
    }

    /// An estimate of the heap memory that the lanes take, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        // A node of the tree has room for eleven entries and holds six on average.
        self.0.len().saturating_mul(2 * size_of::<(WorkloadId, Lane)>())
    }

    /// The lane that serves the caller in a workload, where some binding says.
    #[must_use]
    pub fn lane(&self, workload: WorkloadId) -> Option<Lane> {
        self.0.get(&workload).copied()
    }
}

/// Keeps principal bindings.
#[async_trait]
pub trait PrincipalBindingStore: Send + Sync {
    /// One binding.
    async fn find(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        principal: &ActorRef,
    ) -> Result<Option<PrincipalBinding>, StoreError>;
    /// A page of a workload's bindings, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        page: Paging,
    ) -> Result<Listed<PrincipalBinding>, StoreError>;
    /// Stores a binding and raises the access revision.
    async fn commit_principal(
        &self,
        scope: TenantScope,
        change: Change<PrincipalBinding>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Ends a binding, if it still is as it was seen, and raises the access revision.
    async fn commit_end(&self, scope: TenantScope, seen: &PrincipalBinding, fact: Fact) -> Result<(), CommitError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn actor(text: &str) -> ActorRef {
        ActorRef::parse(text).unwrap()
    }

    #[test]
    fn the_actors_own_lane_goes_before_the_most_careful_of_its_groups() {
        let [first, second, third] = [1, 2, 3].map(|number| WorkloadId::from(Uuid::from_u128(number)));
        let bound = [
            ("user:ada", first, Lane::Standard),
            ("group:wary", first, Lane::Restricted),
            ("group:bold", second, Lane::Standard),
            ("group:wary", second, Lane::Restricted),
            ("group:calm", second, Lane::Guided),
        ];
        let lanes = |turned: bool| {
            let one = |(principal, workload_id, lane)| BoundLane { principal: actor(principal), workload_id, lane };
            let mut bound: Vec<BoundLane> = bound.into_iter().map(one).collect();
            if turned {
                bound.reverse();
            }
            CallerLanes::of(&actor("user:ada"), bound)
        };
        for turned in [false, true] {
            let lanes = [first, second, third].map(|workload| lanes(turned).lane(workload));
            assert_eq!(lanes, [Some(Lane::Standard), Some(Lane::Restricted), None]);
        }
    }
}
