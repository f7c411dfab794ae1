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
        deployment::DeploymentChange,
        lane::{Lane, TargetLane},
        ports::ReleaseWithDeployment,
    },
    store::{Change, CommitError},
    tenant::TenantScope,
    time::Timestamp,
};
use serde_json::Value;

/// A requested transition of a release.
#[derive(Clone, Debug)]
pub struct Transition {
    /// The state that the release shall enter.
    pub to: StateName,
    /// The lanes that the release takes, if the transition is an activation.
    pub lanes: LaneSelection,
}

/// A completed transition.
#[derive(Clone, Debug)]
pub struct TransitionResult {
    /// The release in its new state.
    pub release: ReleaseWithDeployment,
    /// The state before the transition; `None` for a replay whose transition fact is not found.
    pub previous: Option<StateName>,
    /// The time at which the transition was committed.
    pub at: Timestamp,
    /// The lane that the release took; `None` unless it took exactly one.
    pub lane: Option<Lane>,
}

/// Maximum number of attempts to change lanes. Each conflict means that a concurrent change of the same deployment was
/// committed. The limit exceeds `idempotency::MAX_ATTEMPTS`, because all releases of a deployment share its revision.
pub(crate) const MAX_LANE_CONFLICTS: usize = 100;

/// A decided transition that changes only the release, or the release and lanes.
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
    /// Returns the lane that the release takes, if the request or the target lane of the release selects exactly one.
    fn single_lane(&self, release: &Release) -> Option<Lane> {
        match (self.to, self.lanes.single_lane(), release.target_lane) {
            (StateName::Active, None, TargetLane::One(lane)) => Some(lane),
            (_, lane, TargetLane::All | TargetLane::One(_)) => lane,
        }
    }
}

impl Releases {
    /// Changes the state of a release.
    ///
    /// # Errors
    /// In these cases: the release is not found; the caller may not make the transition; the state or an unmet
    /// requirement does not allow the transition; the revision differs from the expected one.
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
                Operation::TransitionRelease
            }
        };
        let (scope, position, release_with_deployment) = self.authorize_release(caller, operation, id).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let mut current = release_with_deployment;
                    for _ in 0..MAX_LANE_CONFLICTS {
                        expected.check(current.release.revision)?;
                        let decision = self.decide_transition(caller, scope, &position, &current, &transition).await?;
                        match self.commit_decided(scope, &current, decision, key).await {
                            // A caller that named a revision receives 412. Otherwise the transition is decided again on
                            // the current state, which may no longer allow it.
                            Err(CommitError::Stale) => match expected.stale_failure() {
                                Some(failure) => return Err(failure),
                                None => {
                                    let stored = self.release_store.find(scope, id).await?;
                                    current = stored.ok_or(Failure::NotFound)?;
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

    /// Commits a decided transition. Returns the release in its new state, and the time of the transition.
    async fn commit_decided(
        &self,
        scope: TenantScope,
        current: &ReleaseWithDeployment,
        decision: DecidedTransition,
        key: Option<&RequestKey>,
    ) -> Result<(ReleaseWithDeployment, Timestamp), CommitError> {
        // The stored outcome of the key refers to the fact of this transition. A replay reads the time from that fact.
        let fact = decision.fact();
        let (outcome, at) = (keyed_outcome(key, 200, fact.fact_id.uuid()), fact.occurred_at);
        let (release_with_deployment, soak_start) = match decision {
            DecidedTransition::ReleaseOnly(change) => {
                let release_with_deployment =
                    ReleaseWithDeployment { release: change.next.clone(), deployment: current.deployment.clone() };
                self.release_store.commit_transition(scope, *change, outcome.as_ref()).await?;
                (release_with_deployment, None)
            }
            DecidedTransition::WithLanes(change) => {
                let release_with_deployment =
                    ReleaseWithDeployment { release: change.release.clone(), deployment: change.deployment.clone() };
                (
                    release_with_deployment,
                    self.deployment_store.commit_lane_change(scope, *change, outcome.as_ref()).await?,
                )
            }
        };
        Ok((release_with_deployment.with_soak_start(soak_start), at))
    }

    /// Returns the result of an earlier request with the same key, from the fact of its transition.
    async fn replayed_transition(
        &self,
        caller: &Caller,
        scope: TenantScope,
        id: ReleaseId,
        transition: &Transition,
        fact: FactId,
    ) -> Result<TransitionResult, Failure> {
        let release_with_deployment = self.read_release(caller, id).await?;
        let lane = transition.single_lane(&release_with_deployment.release);
        let event = self.audit_store.find(scope, fact).await?;
        // Older versions stored outcomes that refer to the release instead of the fact. Their keys expire after a day.
        let event = event.filter(|event| event.subject_id == id.uuid());
        let previous_name = event.as_ref().and_then(|event| event.detail.get("from")).and_then(Value::as_str);
        let previous = previous_name.and_then(StateName::parse);
        let at = event.as_ref().map_or(release_with_deployment.release.updated_at, |event| event.occurred_at);
        Ok(TransitionResult { release: release_with_deployment, previous, at, lane })
    }

    async fn decide_transition(
        &self,
        caller: &Caller,
        scope: TenantScope,
        position: &ResourcePosition,
        current: &ReleaseWithDeployment,
        transition: &Transition,
    ) -> Result<DecidedTransition, Failure> {
        let ReleaseWithDeployment { release, deployment } = current;
        let stamp = self.context.stamp(caller);
        Ok(match transition.to {
            StateName::Draft => DecidedTransition::ReleaseOnly(Box::new(release.reopen(deployment, &stamp)?)),
            StateName::ReviewReady => {
                // References are resolved only for a draft, because no other state allows a submission.
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
                DecidedTransition::ReleaseOnly(Box::new(release.move_to_approved(rule, deployment, &stamp)?))
            }
            StateName::Active => {
                let report = self.activation_report(scope, release, CheckScope::Decisive).await?;
                let rule = self.approval_rule(scope, release).await?;
                let change = release.activate(&transition.lanes, deployment, &report, rule, &stamp)?;
                DecidedTransition::WithLanes(Box::new(change))
            }
            StateName::Retired => DecidedTransition::WithLanes(Box::new(release.retire(deployment, &stamp)?)),
            // Other releases supersede a release by taking its lanes; a request cannot.
            StateName::Superseded => {
                let (from, valid) = (release.state.name(), release.valid_transitions(deployment));
                return Err(ReleaseRefusal::InvalidTransition { from, valid }.into());
            }
        })
    }
}
