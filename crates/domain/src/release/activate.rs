//! Activation and retirement of a release. These transitions reassign lanes.

use super::{
    BindingsDigest, Release, ReleaseRefusal, State,
    deployment::{Deployment, DeploymentChange, DeploymentChangeRecord, SoakEffect},
    lane::{Lane, LaneMove, MoveReason},
    missing_policy_input::{self, UndeclaredInput},
    provider_account_gate::{self, RouteAccount},
    review::ApprovalRule,
    tool_requirements::{self, ToolStatus},
    unpassed_prompt_variable::{UnpassedVariable, unpassed_warnings},
};
use crate::{
    asset::kind::AssetKind,
    audit::{Fact, Stamp},
    environment::is_production,
    field_path,
    flow::ToolChoice,
    id::{AssetId, ReleaseId},
    rollout::{Rollout, RolloutPlan},
    slug::Slug,
};
use serde::Serialize;
use serde_json::json;

/// A requirement of activation that a release does not meet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct UnmetRequirement {
    /// The name of the gate that reports this requirement.
    #[serde(skip)]
    pub gate: &'static str,
    /// The stable code of the problem, such as `flow_invalid`.
    pub code: &'static str,
    /// The text that explains the problem to people.
    pub message: String,
}

/// Whether the primary route of the bound model policy may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrimaryRouteApproval {
    /// The bound version approves the route, the model policy is active, and no later version withdraws the route.
    Approved,
    /// At least one condition of an approved route is not met.
    NotApproved,
}

/// Whether the release binds a flow, and the properties of that flow which activation checks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlowStatus {
    /// The release binds no flow. Its runs render the prompt in one step.
    Absent,
    /// The bound flow cannot be executed.
    Invalid,
    /// The bound flow can be executed.
    Valid {
        /// Whether a step of the flow calls a model provider.
        provider_routed: bool,
        /// The roles of bindings to which steps refer.
        referenced_roles: Vec<AssetKind>,
        /// The step types and actions of the flow that this server does not support.
        unsupported_steps: Vec<String>,
        /// The tools that the flow's agents may use, one entry for each agent.
        agent_tools: Vec<ToolChoice>,
        /// The names of the inputs that the trigger of the flow declares.
        declared_inputs: Vec<String>,
    },
}

/// Facts about the bound contents that the activation rules evaluate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActivationReport {
    /// The status of the bound model policy's primary route; `None` without a model policy.
    pub primary_route: Option<PrimaryRouteApproval>,
    /// The approved routes of the bound model policy, each with the state of its provider account.
    pub route_accounts: Vec<RouteAccount>,
    /// The status of the bound flow.
    pub flow: FlowStatus,
    /// The bound tools, and whether this server can call each of them.
    pub tools: Vec<ToolStatus>,
    /// The names of the obligations that the bound policy can impose and that this server cannot fulfil.
    pub unsupported_obligations: Vec<String>,
    /// The inputs that rules of the bound policy require and that nothing declares. They only cause warnings.
    pub undeclared_inputs: Vec<UndeclaredInput>,
    /// The variables of the bound prompt that no step and no declared input supplies. They only cause warnings.
    pub unpassed_variables: Vec<UnpassedVariable>,
    /// The features of the bound memory that this server does not support, as texts for people.
    pub unsupported_memory: Vec<String>,
    /// The features of bound guardrails and hooks that this server does not support. They block activation in every
    /// environment, because runs would fail or would use unchecked values.
    pub unsupported_controls: Vec<UnenforcedControl>,
    /// The fail-closed controls in bound and referenced contents that this server does not enforce. They block
    /// activation in production only.
    pub unenforced_controls: Vec<UnenforcedControl>,
    /// Whether runs would find no allowed route now. This does not block activation, because each run evaluates
    /// accounts and profiles again.
    pub has_no_route: bool,
    /// Whether the workload is retired. A release of a retired workload can take no lane.
    pub is_workload_retired: bool,
    /// Whether the workload came from a use case, and that use case is not active.
    pub is_use_case_inactive: bool,
}

impl ActivationReport {
    /// A report without findings, for decisions that do not depend on the bound contents.
    #[must_use]
    pub const fn unchecked() -> Self {
        Self {
            primary_route: None,
            route_accounts: Vec::new(),
            flow: FlowStatus::Absent,
            tools: Vec::new(),
            unsupported_obligations: Vec::new(),
            undeclared_inputs: Vec::new(),
            unpassed_variables: Vec::new(),
            unsupported_memory: Vec::new(),
            unsupported_controls: Vec::new(),
            unenforced_controls: Vec::new(),
            has_no_route: false,
            is_workload_retired: false,
            is_use_case_inactive: false,
        }
    }
}

impl ActivationReport {
    /// The unmet requirement that the use case of the workload is active; `None` if it is met.
    fn unmet_use_case_requirement(&self) -> Option<UnmetRequirement> {
        let message = "the use case of the workload is not active: it waits for access to its connections, was reopened, or \
            is archived";
        self.is_use_case_inactive.then(|| unmet("use_case", "use_case_not_active", message))
    }
}

/// A control in bound content that this server does not enforce.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnenforcedControl {
    /// The kind of the asset whose content has the control.
    pub kind: AssetKind,
    /// The slug of the asset whose content has the control.
    pub asset: Slug,
    /// The JSON pointer to the control within the content.
    pub pointer: String,
}

impl UnenforcedControl {
    fn unenforced_requirement(&self) -> UnmetRequirement {
        let (kind, asset, path) = (self.kind.as_str(), &self.asset, field_path::from_pointer("content", &self.pointer));
        let message =
            format!("`{path}` of the `{kind}` `{asset}` is declared fail-closed but not enforced by this server");
        unmet("controls", "control_not_enforced", message)
    }

    fn unsupported_requirement(&self) -> UnmetRequirement {
        let (kind, asset, path) = (self.kind.as_str(), &self.asset, field_path::from_pointer("content", &self.pointer));
        let message = format!("this server does not support `{path}` of the `{kind}` `{asset}`");
        unmet("controls", "control_not_enforced", message)
    }
}

/// The lanes that an activation takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LaneSelection {
    /// All target lanes that the release does not hold yet.
    All,
    /// This lane only.
    One(Lane),
    /// The first lane of this plan. The rollout takes the other lanes later.
    Planned(RolloutPlan),
}

impl LaneSelection {
    /// The lane that the activation takes now; `None` if it can take several.
    #[must_use]
    pub const fn single_lane(&self) -> Option<Lane> {
        match self {
            Self::All => None,
            Self::One(lane) => Some(*lane),
            Self::Planned(plan) => Some(plan.first_lane()),
        }
    }

    fn includes(&self, lane: Lane) -> bool {
        match self {
            Self::All => true,
            Self::One(selected) => *selected == lane,
            Self::Planned(plan) => plan.lanes().any(|planned| planned == lane),
        }
    }
}

/// A reassignment of lanes, with its effect on the rollout of the release.
pub(super) struct LaneReassignment<'a> {
    pub(super) lanes: &'a [Lane],
    /// The new holder; `None` empties the lanes.
    pub(super) holder: Option<ReleaseId>,
    /// The reason that the lane history records.
    pub(super) reason: MoveReason,
    /// The lane whose soak in the rollout ends, if any.
    pub(super) soaked_lane: Option<Lane>,
    /// The lane whose soak in the rollout starts, if any.
    pub(super) soaking_lane: Option<Lane>,
    /// Whether the soak time of the rollout starts anew.
    pub(super) soak: SoakEffect,
    /// Whether the commit must verify that the soak has ended.
    pub(super) requires_ended_soak: bool,
}

/// The maximum number of controls that a list of requirements or warnings contains. Further controls are omitted.
const MAX_LISTED_CONTROLS: usize = 50;

pub(super) fn unmet(gate: &'static str, code: &'static str, message: impl Into<String>) -> UnmetRequirement {
    UnmetRequirement { gate, code, message: message.into() }
}

impl Release {
    /// Whether the environment of the release is production, which has stricter requirements.
    #[must_use]
    pub fn is_for_production(&self) -> bool {
        is_production(&self.environment)
    }

    /// All unmet requirements that would block an activation now.
    #[must_use]
    pub fn unmet_requirements(&self, report: &ActivationReport) -> Vec<UnmetRequirement> {
        let mut missing = Vec::new();
        missing.extend(self.unmet_policy_requirement());
        self.add_unmet_flow_requirements(report, &mut missing);
        missing.extend(provider_account_gate::unmet_account_requirements(&report.route_accounts));
        for name in &report.unsupported_obligations {
            let message = format!("this server cannot fulfil the obligation `{name}`");
            missing.push(unmet("obligations", "obligation_unavailable", message));
        }
        for setting in &report.unsupported_memory {
            missing.push(unmet(
                "memory",
                "memory_unavailable",
                format!("this server does not support the bound memory: {setting}"),
            ));
        }
        missing.extend(
            report
                .unsupported_controls
                .iter()
                .take(MAX_LISTED_CONTROLS)
                .map(UnenforcedControl::unsupported_requirement),
        );
        missing.extend(report.unmet_use_case_requirement());
        // Other environments permit trials. There, warnings and gates report these controls.
        if self.is_for_production() {
            missing.extend(
                report
                    .unenforced_controls
                    .iter()
                    .take(MAX_LISTED_CONTROLS)
                    .map(UnenforcedControl::unenforced_requirement),
            );
        }
        missing
    }

    fn unmet_policy_requirement(&self) -> Option<UnmetRequirement> {
        match (self.bound_asset(AssetKind::PolicyBundle), self.policy_bundle_id) {
            (None, _) => {
                Some(unmet("policy_bundle", "policy_bundle_missing", "bind a version with the role `policy_bundle`"))
            }
            (Some(bound), Some(named)) if bound != named => Some(unmet(
                "policy_bundle",
                "policy_bundle_mismatch",
                "the bound policy bundle is not the one that the release names",
            )),
            (Some(_), _) => None,
        }
    }

    /// Adds the unmet requirements of the flow, and those of the model policy if the flow calls a provider.
    fn add_unmet_flow_requirements(&self, report: &ActivationReport, missing: &mut Vec<UnmetRequirement>) {
        let needs_provider = match &report.flow {
            FlowStatus::Absent => false,
            FlowStatus::Invalid => {
                missing.push(unmet("flow", "flow_invalid", "the bound flow is not executable"));
                false
            }
            FlowStatus::Valid {
                provider_routed,
                referenced_roles,
                unsupported_steps,
                agent_tools,
                declared_inputs: _,
            } => {
                for role in referenced_roles.iter().filter(|role| self.bound_asset(**role).is_none()) {
                    let message = format!("the flow references the role `{}`, which is not bound", role.as_str());
                    missing.push(unmet("references", "reference_unresolved", message));
                }
                for name in unsupported_steps {
                    missing.push(unmet(
                        "flow",
                        "step_type_unavailable",
                        format!("this server cannot run `{name}` steps"),
                    ));
                }
                missing.extend(tool_requirements::unmet_tool_requirements(agent_tools, &report.tools));
                *provider_routed
            }
        };
        let has_model_config = self.bound_asset(AssetKind::ModelConfig).is_some();
        match report.primary_route {
            None if needs_provider && !has_model_config => missing.push(unmet(
                "model_policy",
                "model_policy_missing",
                "the flow calls a provider: bind a version with the role `model_policy`",
            )),
            Some(PrimaryRouteApproval::NotApproved) => missing.push(unmet(
                "model_policy",
                "model_policy_not_approved",
                "the primary route of the bound model policy is not approved",
            )),
            None | Some(PrimaryRouteApproval::Approved) => {}
        }
    }

    /// The problems that do not block an activation.
    #[must_use]
    pub(super) fn activation_warnings(&self, report: &ActivationReport) -> Vec<UnmetRequirement> {
        let mut warnings = Vec::new();
        if report.has_no_route {
            let message = "no route is allowed: runs that call a model or use vector search will fail";
            warnings.push(unmet("model_policy", "no_compliant_route", message));
        }
        warnings.extend(provider_account_gate::account_warnings(&report.route_accounts));
        warnings.extend(missing_policy_input::undeclared_warnings(&report.undeclared_inputs));
        warnings.extend(unpassed_warnings(&report.unpassed_variables));
        // In production, these controls already block the activation.
        if !self.is_for_production() {
            let listed = report.unenforced_controls.iter().take(MAX_LISTED_CONTROLS);
            warnings.extend(listed.map(UnenforcedControl::unenforced_requirement));
        }
        warnings
    }

    /// Activates the release on one lane, on all target lanes that it does not hold, or on the first lane of a plan.
    ///
    /// # Errors
    /// If the state does not allow it, the lane is held or not targeted, or a rollout is in progress. Also if approvals
    /// are missing or a requirement is unmet.
    pub fn activate(
        &self,
        selection: &LaneSelection,
        deployment: &Deployment,
        report: &ActivationReport,
        rule: ApprovalRule,
        stamp: &Stamp,
    ) -> Result<DeploymentChange, ReleaseRefusal> {
        let digest = match &self.state {
            State::Approved { digest } | State::Active { digest } => digest.clone(),
            State::Draft | State::ReviewReady { .. } | State::Superseded { .. } | State::Retired { .. } => {
                return Err(self.invalid_transition(deployment));
            }
        };
        let targets = self.target_lane.lanes();
        let is_untargeted = |lane: &Lane| !targets.contains(lane) && selection.includes(*lane);
        if *selection != LaneSelection::All && Lane::ALL.iter().any(is_untargeted) {
            return Err(ReleaseRefusal::LaneNotTargeted);
        }
        let untaken_lanes = deployment.target_lanes_not_held(self);
        let lanes_to_take: Vec<Lane> = untaken_lanes
            .into_iter()
            .filter(|untaken| selection.single_lane().is_none_or(|lane| lane == *untaken))
            .collect();
        if lanes_to_take.is_empty() {
            return Err(self.invalid_transition(deployment));
        }
        let planned = match selection {
            LaneSelection::All | LaneSelection::One(_) => None,
            LaneSelection::Planned(_) if self.rollout.as_ref().is_some_and(Rollout::is_in_progress) => {
                return Err(ReleaseRefusal::RolloutInProgress);
            }
            LaneSelection::Planned(plan) => Some(plan),
        };
        self.check_requirements(&digest, report, rule)?;
        let mut release = self.with_state(State::Active { digest }, stamp);
        release.record_superseded(&lanes_to_take, deployment);
        if let Some(plan) = planned {
            release.0.rollout = Some(Rollout::start(plan.clone(), deployment.revision.next(), stamp.at));
        }
        let reassignment = LaneReassignment {
            lanes: &lanes_to_take,
            holder: Some(self.release_id),
            reason: MoveReason::Activation,
            soaked_lane: None,
            soaking_lane: planned.map(RolloutPlan::first_lane),
            soak: if planned.is_some() { SoakEffect::Begun } else { SoakEffect::Kept },
            requires_ended_soak: false,
        };
        let fact = self.transition_fact(&release.state, stamp);
        let fact =
            planned.into_iter().fold(fact, |fact, plan| fact.merge_detail(json!({ "rollout_plan": plan.to_json() })));
        Ok(self.reassign_lanes(release, &reassignment, deployment, fact))
    }

    /// Retires the release and leaves its lanes without a holder.
    ///
    /// # Errors
    /// If the release is already retired.
    pub fn retire(&self, deployment: &Deployment, stamp: &Stamp) -> Result<DeploymentChange, ReleaseRefusal> {
        match self.state {
            State::Draft
            | State::ReviewReady { .. }
            | State::Approved { .. }
            | State::Active { .. }
            | State::Superseded { .. } => {}
            State::Retired { .. } => return Err(self.invalid_transition(deployment)),
        }
        let held_lanes: Vec<Lane> =
            Lane::ALL.into_iter().filter(|lane| deployment.holder(*lane) == Some(self.release_id)).collect();
        let retired = State::Retired { digest: self.state.digest().cloned() };
        let fact = self.transition_fact(&retired, stamp);
        let mut release = self.with_state(retired, stamp);
        release.0.rollout = self.rollout.as_ref().map(Rollout::stop);
        let reassignment = LaneReassignment {
            lanes: &held_lanes,
            holder: None,
            reason: MoveReason::Retirement,
            soaked_lane: None,
            soaking_lane: None,
            soak: SoakEffect::Kept,
            requires_ended_soak: false,
        };
        Ok(self.reassign_lanes(release, &reassignment, deployment, fact))
    }

    /// Checks the requirements that hold for every lane.
    ///
    /// # Errors
    /// If the workload is retired, approvals are missing, or a requirement is unmet.
    pub(super) fn check_requirements(
        &self,
        digest: &BindingsDigest,
        report: &ActivationReport,
        rule: ApprovalRule,
    ) -> Result<(), ReleaseRefusal> {
        if report.is_workload_retired {
            return Err(ReleaseRefusal::WorkloadRetired);
        }
        self.check_approvals(digest, rule)?;
        let missing = self.unmet_requirements(report);
        if missing.is_empty() { Ok(()) } else { Err(ReleaseRefusal::ActivationBlocked(missing)) }
    }

    /// Records the holder of the first of these lanes as replaced, unless the release already replaced another one.
    pub(super) fn record_superseded(&mut self, lanes: &[Lane], deployment: &Deployment) {
        let replaced = || lanes.iter().find_map(|lane| deployment.holder(*lane));
        self.0.supersedes_release_id = self.supersedes_release_id.or_else(replaced);
    }

    /// Assigns the lanes to the new holder, and starts or ends the soaks that this affects.
    pub(super) fn reassign_lanes(
        &self,
        release: Self,
        reassignment: &LaneReassignment<'_>,
        deployment: &Deployment,
        fact: Fact,
    ) -> DeploymentChange {
        let LaneReassignment { lanes, holder, reason, soaked_lane, soaking_lane, soak, requires_ended_soak } =
            *reassignment;
        let moves: Vec<LaneMove> =
            lanes.iter().map(|lane| LaneMove { lane: *lane, from: deployment.holder(*lane), to: holder }).collect();
        let mut next = lanes.iter().fold(deployment.clone(), |next, lane| next.with_holder(*lane, holder));
        next.0.soaking = deployment.next_soaking_lanes(&next, soaked_lane, soaking_lane);
        if !lanes.is_empty() || next.soaking != deployment.soaking {
            next.0.revision = deployment.revision.next();
        }
        let mut superseded = deployment.releases_superseded_by(&next);
        superseded.retain(|id| *id != self.release_id);
        let mut stopped = deployment.rollouts_stopped_by(&next);
        stopped.retain(|id| *id != self.release_id);
        let names: Vec<&str> = lanes.iter().map(|lane| lane.as_str()).collect();
        let detail = json!({ "lanes": names, "superseded": superseded, "rollouts_stopped": stopped });
        DeploymentChange::new(DeploymentChangeRecord {
            release,
            expected_release_revision: self.revision,
            deployment: next,
            expected_deployment_revision: deployment.revision,
            superseded,
            stopped_rollouts: stopped,
            soak,
            requires_ended_soak,
            reinstated: Vec::new(),
            moves,
            reason,
            evidence: None,
            fact: fact.merge_detail(detail),
        })
    }

    fn bound_asset(&self, role: AssetKind) -> Option<AssetId> {
        self.bindings.iter().find(|binding| binding.role == role).map(|binding| binding.asset_id)
    }
}
