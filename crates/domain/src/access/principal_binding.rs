//! Principal bindings: the principals of a workload and the lane that serves each.

use super::{ActorKind, ActorRef};
use crate::{
    audit::{Fact, FactKind, Stamp, Subject},
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

/// A principal bound to a workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrincipalBinding(pub(crate) PrincipalBindingRecord);

/// The fields of [`PrincipalBinding`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrincipalBindingRecord {
    /// The identifier of the binding. It is stable across lane changes.
    pub principal_binding_id: PrincipalBindingId,
    /// The workload.
    pub workload_id: WorkloadId,
    /// A user, group or service; bound to a workload at most once.
    pub principal: ActorRef,
    /// The lane that serves the principal; `None` selects no lane.
    pub lane: Option<Lane>,
    /// When the principal was bound.
    pub created_at: Timestamp,
    /// The actor that bound the principal.
    pub created_by: ActorRef,
    /// When the lane last changed.
    pub updated_at: Timestamp,
    /// The actor that last changed the binding.
    pub updated_by: ActorRef,
    /// Increments with each change.
    pub revision: Revision,
}

aggregate!(PrincipalBinding, PrincipalBindingRecord);

/// The principal kind cannot be bound.
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
    /// Binds a principal that is not yet bound to the workload.
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

    /// Replaces the lane.
    pub fn rebind(&self, workload: &Workload, lane: Option<Lane>, stamp: &Stamp) -> Change<Self> {
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

    /// The audit fact for this binding or its removal.
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

/// A lane that a principal binding selects, as loaded for a caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneBinding {
    /// The caller or one of its groups.
    pub principal: ActorRef,
    /// The workload.
    pub workload_id: WorkloadId,
    /// The lane.
    pub lane: Lane,
}

/// The lanes that a caller's own bindings and its groups' bindings select, by workload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BoundLanes(BTreeMap<WorkloadId, Lane>);

impl BoundLanes {
    /// Selects a lane for each workload. The actor's own binding overrides the bindings of its groups. Among the
    /// groups' bindings, the most restrictive lane applies.
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

    /// An estimate of the heap memory of the lanes, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        // A B-tree node has space for eleven entries and contains six on average.
        self.0.len().saturating_mul(2 * size_of::<(WorkloadId, Lane)>())
    }

    /// The lane that the bindings select for the caller in a workload.
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
    /// A page of a workload's bindings, newest first.
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
    /// Removes a binding if it is unchanged since it was read, and increments the access revision.
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
