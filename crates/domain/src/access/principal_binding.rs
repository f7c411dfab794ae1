//! Principal bindings: the principals that may use a workload, and the lane that serves each of them.

use super::{ActorKind, ActorRef};
use crate::{
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{PrincipalBindingId, WorkloadId},
    idempotency::KeyedOutcome,
    release::lane::Lane,
    store::{Change, CommitError, Page, PageRequest, Revision, StoreError, aggregate},
    tenant::TenantScope,
    time::Timestamp,
    workload::Workload,
};
use async_trait::async_trait;
use serde_json::json;
use std::collections::BTreeMap;

/// A principal that is bound to a workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrincipalBinding(pub(crate) PrincipalBindingRecord);

/// The fields of [`PrincipalBinding`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrincipalBindingRecord {
    /// The identifier of the binding, which stays the same when the lane changes.
    pub principal_binding_id: PrincipalBindingId,
    /// The workload to which the principal is bound.
    pub workload_id: WorkloadId,
    /// The user, group or service. A workload has at most one binding for each principal.
    pub principal: ActorRef,
    /// The lane that serves the principal; `None` if the binding selects no lane.
    pub lane: Option<Lane>,
    /// When the principal was bound.
    pub created_at: Timestamp,
    /// The actor that bound the principal.
    pub created_by: ActorRef,
    /// When the lane last changed.
    pub updated_at: Timestamp,
    /// The actor that last changed the binding.
    pub updated_by: ActorRef,
    /// The change counter, which increments with each change.
    pub revision: Revision,
}

aggregate!(PrincipalBinding, PrincipalBindingRecord);

/// A principal of this kind cannot be bound to a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("only users, groups and services can be bound to workloads")]
pub struct PrincipalRefusal;

impl PrincipalRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        "invalid_principal"
    }
}

impl PrincipalBinding {
    /// Binds a principal to a workload to which it is not bound yet.
    ///
    /// # Errors
    /// When the principal is not a user, group or service.
    pub fn bind(
        principal_binding_id: PrincipalBindingId,
        workload: &Workload,
        principal: ActorRef,
        lane: Option<Lane>,
        stamp: &Stamp,
    ) -> Result<Change<Self>, PrincipalRefusal> {
        match principal.kind() {
            ActorKind::User | ActorKind::Group | ActorKind::Service => {}
            ActorKind::System | ActorKind::ShareLink | ActorKind::Anonymous => return Err(PrincipalRefusal),
        }
        let next = Self(PrincipalBindingRecord {
            principal_binding_id,
            workload_id: workload.workload_id,
            principal,
            lane,
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
            updated_at: stamp.at,
            updated_by: stamp.actor.clone(),
            revision: Revision::FIRST,
        });
        let fact = next.fact(FactKind::PrincipalBindingCreated, workload, stamp);
        Ok(Change::create(next, fact))
    }

    /// Replaces the lane that the binding selects.
    pub fn change_lane(&self, workload: &Workload, lane: Option<Lane>, stamp: &Stamp) -> Change<Self> {
        let (updated_at, updated_by) = (stamp.at, stamp.actor.clone());
        let next = Self(PrincipalBindingRecord {
            lane,
            updated_at,
            updated_by,
            revision: self.revision.next(),
            ..self.0.clone()
        });
        let fact = next.fact(FactKind::PrincipalBindingChanged, workload, stamp);
        Change::replace(next, self.revision, fact)
    }

    /// Builds the fact that this binding was created, changed or removed. `kind` says which.
    #[must_use]
    pub fn fact(&self, kind: FactKind, workload: &Workload, stamp: &Stamp) -> Fact {
        let subject = FactSubject { kind: "principal_binding", id: self.principal_binding_id.uuid() };
        let detail = json!({
            "workload_id": self.workload_id,
            "principal": self.principal.to_string(),
            "lane": self.lane,
        });
        Fact::new(kind, subject, Some(workload.workspace_id), stamp, detail)
    }
}

/// A lane that a principal binding selects, as the store loads it for a caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneBinding {
    /// The bound principal: the caller or one of its groups.
    pub principal: ActorRef,
    /// The workload to which the principal is bound.
    pub workload_id: WorkloadId,
    /// The lane that the binding selects.
    pub lane: Lane,
}

/// The lane of each workload that the bindings of a caller and its groups select.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BoundLanes(BTreeMap<WorkloadId, Lane>);

impl BoundLanes {
    /// Selects the lane of each workload. The binding of the actor itself overrides the bindings of its groups. Among
    /// the groups' bindings, the most restrictive lane wins.
    #[must_use]
    pub fn from_bindings(actor: &ActorRef, bindings: Vec<LaneBinding>) -> Self {
        let (own_bindings, group_bindings): (Vec<_>, Vec<_>) =
            bindings.into_iter().partition(|binding| binding.principal == *actor);
        let mut lanes = BTreeMap::new();
        for LaneBinding { workload_id, lane, .. } in group_bindings {
            lanes
                .entry(workload_id)
                .and_modify(|strictest: &mut Lane| *strictest = lane.min(*strictest))
                .or_insert(lane);
        }
        lanes.extend(own_bindings.into_iter().map(|binding| (binding.workload_id, binding.lane)));
        Self(lanes)
    }

    /// The estimated heap memory of the lanes, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        // A B-tree node has space for eleven entries and contains six on average.
        self.0.len().saturating_mul(2 * size_of::<(WorkloadId, Lane)>())
    }

    /// The lane that the bindings select for the caller in this workload, if any.
    #[must_use]
    pub fn lane(&self, workload: WorkloadId) -> Option<Lane> {
        self.0.get(&workload).copied()
    }
}

/// Stores principal bindings.
#[async_trait]
pub trait PrincipalBindingStore: Send + Sync {
    /// Finds the binding of a principal to a workload.
    async fn find(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        principal: &ActorRef,
    ) -> Result<Option<PrincipalBinding>, StoreError>;
    /// Lists one page of a workload's bindings, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        page: PageRequest,
    ) -> Result<Page<PrincipalBinding>, StoreError>;
    /// Stores a binding and increments the access revision.
    async fn commit_binding(
        &self,
        scope: TenantScope,
        change: Change<PrincipalBinding>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Deletes a binding if it is unchanged since it was read, and increments the access revision.
    async fn commit_removal(
        &self,
        scope: TenantScope,
        expected: &PrincipalBinding,
        fact: Fact,
    ) -> Result<(), CommitError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn actor(text: &str) -> ActorRef {
        ActorRef::parse(text).unwrap()
    }

    #[test]
    fn own_lane_overrides_most_restrictive_group_lane() {
        let [first, second, third] = [1, 2, 3].map(|number| WorkloadId::from(Uuid::from_u128(number)));
        let bindings = [
            ("user:ada", first, Lane::Standard),
            ("group:wary", first, Lane::Restricted),
            ("group:bold", second, Lane::Standard),
            ("group:wary", second, Lane::Restricted),
            ("group:calm", second, Lane::Guided),
        ];
        let lanes = |is_reversed: bool| {
            let to_binding =
                |(principal, workload_id, lane)| LaneBinding { principal: actor(principal), workload_id, lane };
            let mut bindings: Vec<LaneBinding> = bindings.into_iter().map(to_binding).collect();
            if is_reversed {
                bindings.reverse();
            }
            BoundLanes::from_bindings(&actor("user:ada"), bindings)
        };
        for is_reversed in [false, true] {
            let lanes = [first, second, third].map(|workload| lanes(is_reversed).lane(workload));
            assert_eq!(lanes, [Some(Lane::Standard), Some(Lane::Restricted), None]);
        }
    }
}
