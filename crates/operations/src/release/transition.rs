//! Transitions of releases between states.

use super::activation_checks::CheckScope;
use crate::{Failure, MaybeReplayed, Precondition, access::Operation, idempotency::keyed_outcome, release::Releases};
use fairway_domain::{
    access::{Caller, ResourcePosition},
    audit::Fact,
    id::{FactId, ReleaseId},
    idempotency::RequestKey,
    release::{
        Release, ReleaseRefusal, State, StateName,
        activate::LaneSelection,
        lane::{DeploymentChange, Lane, TargetLane},
        ports::ReleaseWithDeployment,
    },
    store::{Change, CommitError},
    tenant::TenantScope,
    time::Timestamp,
};
use serde_json::Value;

/// A requested transition.
#[derive(Clone, Debug)]
pub struct Transition {
    /// The target state.
    pub to: StateName,
    /// The lanes to take, for an activation.
    pub lanes: LaneSelection,
}

/// A completed transition.
#[derive(Clone, Debug)]
pub struct TransitionResult {
    /// The release in its new state.
    pub release: ReleaseWithDeployment,
    /// The previous state; `None` for a replay without a record of the transition.
    pub previous: Option<StateName>,
    /// When the transition happened.
    pub at: Timestamp,
    /// The lane that was taken, if it was a single one.
    pub lane: Option<Lane>,
}

/// Attempts of a change of lanes. It is above `idempotency::MAX_ATTEMPTS`, because all releases of a deployment share its
/// revision: each conflict means that a concurrent change of the same lanes was committed. A refused caller thus gets the
/// state that those changes led to.
pub(crate) const MAX_LANE_CONFLICTS: usize = 100;

/// A decided transition: of the release alone, or of lanes too.
enum DecidedTransition {
    ReleaseOnly(Box<Change<Release>>),
    WithLanes(Box<DeploymentChange>),
}

impl DecidedTransition {
    fn fact(&self) -> &Fact {
        match self {
            Self::ReleaseOnly(change) => &change.fact,
            Self::WithLanes(change) => &change.fact,
        }
    }
}

impl Transition {
    /// The single lane that is taken, by request or because the release targets no other.
    fn single_lane(&self, release: &Release) -> Option<Lane> {
        match (self.to, self.lanes.single_lane(), release.target_lane) {
            (StateName::Active, None, TargetLane::One(lane)) => Some(lane),
            (_, lane, TargetLane::All | TargetLane::One(_)) => lane,
        }
    }
}

impl Releases {
    /// Moves a release to another state.
    ///
    /// # Errors
    /// When the release is not found, the caller may not make the transition, the state or a missing requirement
    /// does not allow it, or the revision is not expected.
    pub async fn transition_release(
        &self,
        caller: &Caller,
        id: ReleaseId,
        transition: Transition,
        expected: &Precondition,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<TransitionResult>, Failure> {
        let operation = match transition.to {
            StateName::Draft | StateName::ReviewReady => Operation::SubmitRelease,
            StateName::Approved | StateName::Active | StateName::Superseded | StateName::Retired => {
                Operation::MoveRelease
            }
        };
        let (scope, position, first) = self.authorize_release(caller, operation, id).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let mut current = first;
                    for _ in 0..MAX_LANE_CONFLICTS {
                        expected.check(current.release.revision)?;
                        let decided = self.decide_transition(caller, scope, &position, &current, &transition).await?;
                        match self.commit_decided(scope, &current, decided, key).await {
                            // A caller that named a revision gets 412. Otherwise the transition is decided again on the
                            // current state, and refused with that state if it no longer applies.
                            Err(CommitError::Stale) => match expected.stale_failure() {
                                Some(failure) => return Err(failure),
                                None => {
                                    let found = self.release_store.find(scope, id).await?;
                                    current = found.ok_or(Failure::NotFound)?;
                                }
                            },
                            committed => {
                                let (release, at) = committed?;
                                let lane = transition.single_lane(&release.release);
                                let previous = Some(current.release.state.name());
                                return Ok(TransitionResult { release, previous, at, lane });
                            }
                        }
                    }
                    Err(Failure::Contended)
                },
                async |fact| self.replayed_transition(caller, scope, id, &transition, fact.into()).await,
            )
            .await
    }

    /// Commits a decided transition. Returns the release in its new state, and when the transition happened.
    async fn commit_decided(
        &self,
        scope: TenantScope,
        current: &ReleaseWithDeployment,
        decided: DecidedTransition,
        key: Option<&RequestKey>,
    ) -> Result<(ReleaseWithDeployment, Timestamp), CommitError> {
        // The key refers to the fact of this transition, from which a replay reads its time.
        let fact = decided.fact();
        let (outcome, at) = (keyed_outcome(key, 200, fact.fact_id.uuid()), fact.occurred_at);
        let (placed, soak_start) = match decided {
            DecidedTransition::ReleaseOnly(change) => {
                let placed =
                    ReleaseWithDeployment { release: change.next.clone(), deployment: current.deployment.clone() };
                self.release_store.commit_transition(scope, *change, outcome.as_ref()).await?;
                (placed, None)
            }
            DecidedTransition::WithLanes(change) => {
                let placed =
                    ReleaseWithDeployment { release: change.release.clone(), deployment: change.deployment.clone() };
                (placed, self.deployment_store.commit_lane_change(scope, *change, outcome.as_ref()).await?)
            }
        };
        Ok((placed.with_soak_start(soak_start), at))
    }

    /// The result of an earlier request with the same key, read from the fact of its transition.
    async fn replayed_transition(
        &self,
        caller: &Caller,
        scope: TenantScope,
        id: ReleaseId,
        transition: &Transition,
        fact: FactId,
    ) -> Result<TransitionResult, Failure> {
        let placed = self.read_release(caller, id).await?;
        let lane = transition.single_lane(&placed.release);
        let event = self.audit_store.find(scope, fact).await?;
        // Keys written before this format refer to the release; a key lives for a day.
        let event = event.filter(|event| event.subject_id == id.uuid());
        let from = event.as_ref().and_then(|event| event.detail.get("from")).and_then(Value::as_str);
        let previous = from.and_then(StateName::parse);
        let at = event.as_ref().map_or(placed.release.updated_at, |event| event.occurred_at);
        Ok(TransitionResult { release: placed, previous, at, lane })
    }

    async fn decide_transition(
        &self,
        caller: &Caller,
        scope: TenantScope,
        position: &ResourcePosition,
        seen: &ReleaseWithDeployment,
        transition: &Transition,
    ) -> Result<DecidedTransition, Failure> {
        let ReleaseWithDeployment { release, deployment } = seen;
        let stamp = self.context.stamp(caller);
        Ok(match transition.to {
            StateName::Draft => DecidedTransition::ReleaseOnly(Box::new(release.reopen(deployment, &stamp)?)),
            StateName::ReviewReady => {
                // Only a draft's references are resolved: other states refuse the transition anyway.
                let references = match release.state {
                    State::Draft => {
                        let size = self.check_bound_size(scope, release).await?;
                        let references = self.resolve_references(caller, position, release).await?;
                        if let Ok(frozen) = &references {
                            self.check_referenced_size(scope, release, frozen, size).await?;
                        }
                        references
                    }
                    State::ReviewReady { .. }
                    | State::Approved { .. }
                    | State::Active { .. }
                    | State::Superseded { .. }
                    | State::Retired { .. } => Ok(Vec::new()),
                };
                DecidedTransition::ReleaseOnly(Box::new(release.submit(references, deployment, &stamp)?))
            }
            StateName::Approved => {
                let rule = self.approval_rule(scope, release).await?;
                DecidedTransition::ReleaseOnly(Box::new(release.approve(rule, deployment, &stamp)?))
            }
            StateName::Active => {
                let report = self.activation_report(scope, release, CheckScope::Decisive).await?;
                let rule = self.approval_rule(scope, release).await?;
                let change = release.activate(&transition.lanes, deployment, &report, rule, &stamp)?;
                DecidedTransition::WithLanes(Box::new(change))
            }
            StateName::Retired => DecidedTransition::WithLanes(Box::new(release.retire(deployment, &stamp)?)),
            // A release becomes superseded only when others take its lanes.
            StateName::Superseded => {
                let (from, valid) = (release.state.name(), release.valid_transitions(deployment));
                return Err(ReleaseRefusal::InvalidTransition { from, valid }.into());
            }
        })
    }
}
