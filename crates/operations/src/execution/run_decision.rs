//! The decision on a run: selects the release that serves its lane, loads the plan of that release, and evaluates the
//! policy on the inputs. Requests and workers use the same decision; `start_attempt` and `worker` then admit the run.

use super::plan::{CachedPlan, RunPlans};
use crate::{Failure, workload::position_of};
use fairway_domain::{
    access::{ActorRef, Caller},
    evidence::RecordedDecision,
    execution::{
        plan::RunPolicyAttributes,
        ports::{ExpectedRevisions, WorkloadWithDeployment},
    },
    id::{DecisionId, ReleaseId},
    policy::PolicyDecision,
    release::lane::Lane,
    slug::Slug,
    tenant::TenantScope,
};
use serde_json::{Map, Value};
use std::sync::Arc;

/// A requested run on which a decision is made.
#[derive(Clone, Copy)]
pub(super) struct RunDecisionRequest<'r> {
    pub(super) scope: TenantScope,
    /// The principal under whose rights the run would execute.
    pub(super) caller: &'r Caller,
    pub(super) workload: &'r WorkloadWithDeployment,
    pub(super) environment: &'r Slug,
    /// The lane that must serve the run.
    pub(super) lane: Lane,
    pub(super) inputs: &'r Map<String, Value>,
    /// Whether the run executes the steps of its plan; a script run does not.
    pub(super) has_steps: bool,
}

/// The decision on a run; it may be a denial by the policy.
pub(super) struct RunDecision {
    pub(super) lane: Lane,
    pub(super) release_id: ReleaseId,
    pub(super) plan: Arc<CachedPlan>,
    pub(super) attributes: RunPolicyAttributes,
    pub(super) decision: PolicyDecision,
    pub(super) recorded: RecordedDecision,
    /// The revisions on which the decision is based.
    pub(super) expected_revisions: ExpectedRevisions,
}

/// Reason why no decision on a run is possible.
pub(super) enum RunDecisionRefusal {
    /// No release serves the lane.
    NoActiveRelease,
    /// The release binds neither a flow nor a prompt with a model policy.
    NothingToRun,
    /// The release lost its lane after the workload was read.
    Stale,
    /// The plan of the release cannot be built.
    Failed(Failure),
}

impl RunPlans {
    /// Decides on a run, with the release that serves its lane.
    pub(super) async fn decide_run(&self, request: RunDecisionRequest<'_>) -> Result<RunDecision, RunDecisionRefusal> {
        let RunDecisionRequest { scope, caller, workload: entry, environment, lane, inputs, has_steps } = request;
        let deployment = entry.deployment.as_ref().ok_or(RunDecisionRefusal::NoActiveRelease)?;
        let (lane, release_id) = deployment.serving_release(lane).ok_or(RunDecisionRefusal::NoActiveRelease)?;
        let plan = match self.plan(scope, &entry.workload, release_id, deployment.revision).await {
            Err(Failure::Contended) => return Err(RunDecisionRefusal::Stale),
            plan => plan.map_err(RunDecisionRefusal::Failed)?,
        };
        if has_steps && !plan.plan.has_executable_content() {
            return Err(RunDecisionRefusal::NothingToRun);
        }
        let attributes = policy_attributes(caller, entry, environment, lane);
        let now = self.context.clock.now();
        let decision = attributes.decide_by_plan(&plan.plan, inputs, now);
        let recorded = RecordedDecision::from_decision(self.context.new_id::<DecisionId>(), &decision, now);
        let expected_revisions = ExpectedRevisions {
            deployment: deployment.revision,
            workload: entry.workload.revision,
            access: caller.access_revision,
        };
        Ok(RunDecision { lane, release_id, plan, attributes, decision, recorded, expected_revisions })
    }
}

/// Returns the attributes that the policy of a run evaluates.
pub(super) fn policy_attributes(
    caller: &Caller,
    entry: &WorkloadWithDeployment,
    environment: &Slug,
    lane: Lane,
) -> RunPolicyAttributes {
    let position = position_of(caller, &entry.workload);
    RunPolicyAttributes {
        actor: caller.actor.to_string(),
        actor_kind: caller.actor.kind().as_str(),
        groups: caller.groups.iter().map(ActorRef::to_string).collect(),
        roles: caller.rights.roles_at(&position).iter().map(|role| role.as_str().to_owned()).collect(),
        workload_slug: entry.workload.slug.to_string(),
        owner_ref: entry.workload.owner_ref.to_string(),
        environment: environment.to_string(),
        lane,
    }
}
