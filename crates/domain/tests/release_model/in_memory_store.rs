//! An in-memory store of releases. Like the database store, it rejects a stale decision at the commit.

use crate::model::{Decision, DecisionInput, LaneIndex, Model, Operation, Refusal, StoredState, decide};
use fairway_domain::{
    access::ActorRef,
    asset::{Lifecycle, VersionLabel, canonical::Checksum, kind::AssetKind},
    audit::Stamp,
    id::{ReleaseId, RequestId},
    release::{
        BindableVersion, NewRelease, Release, State,
        deployment::{Deployment, DeploymentChange, DeploymentRecord},
        lane::{Lane, LaneHistoryEntry, TargetLane},
    },
    rollout::{Rollout, RolloutRecord, RolloutStatus},
    slug::Slug,
    store::{ChangeRecord, Revision},
    time::Timestamp,
};
use time::OffsetDateTime;
use uuid::Uuid;

/// The refusal of a commit, because the state changed after its decision.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct StaleDecision;

/// An in-memory store with the state of one history.
#[derive(Clone)]
pub(crate) struct InMemoryStore {
    pub(crate) state: StoredState,
}

/// The stamp and the asset versions that all histories share. They are created once, because creating them takes longer
/// than a decision.
pub(crate) struct Fixtures {
    stamp: Stamp,
    policy_version: BindableVersion,
    knowledge_base_version: BindableVersion,
}

impl Fixtures {
    pub(crate) fn new() -> Self {
        let stamp = Stamp {
            fact_id: Uuid::from_u128(1).into(),
            at: Timestamp::new(OffsetDateTime::UNIX_EPOCH),
            actor: ActorRef::parse("user:ada").unwrap(),
            request_id: RequestId::from(Uuid::from_u128(2)),
        };
        let version = |kind, number: u128| BindableVersion {
            asset_version_id: Uuid::from_u128(number).into(),
            checksum: Checksum::parse(&format!("blake3:{number:064x}")).unwrap(),
            version_label: VersionLabel::parse("v1").unwrap(),
            asset_id: Uuid::from_u128(number + 1).into(),
            asset_slug: Slug::parse("thing").unwrap(),
            kind,
            lifecycle: Lifecycle::Active,
        };
        Self {
            stamp,
            policy_version: version(AssetKind::PolicyBundle, 10),
            knowledge_base_version: version(AssetKind::KnowledgeBase, 20),
        }
    }

    fn decision_input(&self) -> DecisionInput<'_> {
        DecisionInput { stamp: self.stamp.clone(), new_id: Uuid::from_u128(3), version: &self.knowledge_base_version }
    }

    /// Creates a store with one draft for each target lane. Each draft binds a policy.
    pub(crate) fn store_with_drafts(&self, targets: &[Option<LaneIndex>]) -> InMemoryStore {
        let (workload_id, environment) = (Uuid::from_u128(4).into(), Slug::parse("dev").unwrap());
        let draft = |(number, target): (u128, &Option<LaneIndex>)| {
            let new_release = NewRelease {
                release_id: Uuid::from_u128(number).into(),
                workload_id,
                workspace_id: Uuid::from_u128(5).into(),
                environment: environment.clone(),
                target_lane: target.map_or(TargetLane::All, |lane| TargetLane::One(Lane::ALL[lane])),
                policy_bundle_id: None,
            };
            let draft = Release::draft(new_release, &self.stamp).next.clone();
            draft
                .bind(Uuid::from_u128(6).into(), AssetKind::PolicyBundle, &self.policy_version, &self.stamp)
                .unwrap()
                .next
                .clone()
        };
        let releases = (100..).zip(targets).map(draft).collect();
        let deployment = Deployment::restore(DeploymentRecord {
            workload_id,
            environment: environment.clone(),
            restricted: None,
            guided: None,
            standard: None,
            soaking: Vec::new(),
            revision: Revision::FIRST,
        });
        InMemoryStore { state: StoredState { releases, deployment, lane_history: Vec::new() } }
    }
}

impl InMemoryStore {
    pub(crate) fn decide(&self, operation: &Operation, fixtures: &Fixtures) -> Result<Decision, Refusal> {
        decide(&self.state, operation, &fixtures.decision_input())
    }

    /// Decides an operation, commits it in the store, and applies it to the model.
    ///
    /// # Errors
    /// Describes the first difference between the store and the model.
    pub(crate) fn execute(
        &mut self,
        model: &mut Model,
        operation: &Operation,
        fixtures: &Fixtures,
    ) -> Result<(), String> {
        let decided = self.decide(operation, fixtures);
        let expected = model.apply(operation);
        match (decided, expected) {
            (Ok(decision), Ok(())) => {
                self.commit(decision).map_err(|StaleDecision| "stale without a concurrent change".to_owned())
            }
            (Err(actual), Err(model)) if actual == model => Ok(()),
            (decided, expected) => {
                let actual = decided.map(|_| ());
                Err(format!("{operation:?}: expected {expected:?} from the model, got {actual:?}"))
            }
        }
    }

    pub(crate) fn commit(&mut self, decision: Decision) -> Result<(), StaleDecision> {
        match decision {
            Decision::Binding(change) | Decision::Transition(change) => {
                let ChangeRecord { next, expected_revision, .. } = change.into_record();
                self.commit_release(next, expected_revision)
            }
            Decision::Verdict(change) => {
                let ChangeRecord { next, expected_revision, .. } = change.into_record();
                let is_active = next.release.state.can_hold_lanes();
                self.commit_release(next.release, expected_revision)?;
                if is_active {
                    let mut deployment = self.state.deployment.clone().into_record();
                    deployment.revision = deployment.revision.next();
                    self.state.deployment = Deployment::restore(deployment);
                }
                Ok(())
            }
            Decision::Lanes(change) => self.commit_lane_change(*change),
        }
    }

    fn commit_release(&mut self, next: Release, expected_revision: Option<Revision>) -> Result<(), StaleDecision> {
        let stored = self.release_mut(next.release_id);
        if Some(stored.revision) != expected_revision {
            return Err(StaleDecision);
        }
        *stored = next;
        Ok(())
    }

    fn commit_lane_change(&mut self, change: DeploymentChange) -> Result<(), StaleDecision> {
        let id = change.release.release_id;
        let is_stale = self.state.deployment.revision != change.expected_deployment_revision
            || self.release_mut(id).revision != change.expected_release_revision
            || change.reinstated.iter().any(|id| !matches!(self.release_mut(*id).state, State::Superseded { .. }));
        if is_stale {
            return Err(StaleDecision);
        }
        let changed_at = change.release.updated_at;
        *self.release_mut(id) = change.release.clone();
        for release in self.state.releases.iter_mut() {
            let id = release.release_id;
            let is_affected =
                [&change.superseded, &change.stopped_rollouts, &change.reinstated].iter().any(|ids| ids.contains(&id));
            let Some(digest) = release.state.digest().cloned().filter(|_| is_affected) else { continue };
            let mut fields = release.clone().into_record();
            fields.revision = fields.revision.next();
            if change.superseded.contains(&id) {
                fields.state = State::Superseded { digest };
            } else if change.reinstated.contains(&id) {
                fields.state = State::Active { digest };
            }
            if change.stopped_rollouts.contains(&id) {
                fields.rollout = fields.rollout.map(|rollout| {
                    Rollout::restore(RolloutRecord { status: RolloutStatus::RolledBack, ..rollout.into_record() })
                });
            }
            *release = Release::restore(fields);
        }
        for lane_move in change.moves.clone() {
            let revision = change.deployment.revision;
            let (lane, from, to) = (lane_move.lane, lane_move.from, lane_move.to);
            self.state
                .lane_history
                .insert(0, LaneHistoryEntry { revision, lane, from, to, reason: change.reason, at: changed_at });
        }
        self.state.deployment = change.deployment.clone();
        Ok(())
    }

    fn release_mut(&mut self, id: ReleaseId) -> &mut Release {
        self.state.releases.iter_mut().find(|release| release.release_id == id).unwrap()
    }
}
