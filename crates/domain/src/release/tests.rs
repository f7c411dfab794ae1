mod binding_limit;
mod frozen_references;
mod verdict_limits;

use super::{
    activate::{ActivationReport, FlowStatus, LaneSelection, PrimaryRouteApproval, UnenforcedControl},
    advance_rollout::AdvanceTrigger,
    deployment::{DeploymentChange, DeploymentRecord},
    frozen_reference::REFERENCE_UNRESOLVED,
    gate::{GateContext, GateResult},
    lane::Lane,
    missing_policy_input::UndeclaredInput,
    recommendation::EndedRuns,
    review::{ApprovalRule, ReleaseVerdict, SelfApproval},
    *,
};
use crate::rollout::{AdvanceMode, RolloutPlan, SoakStatus};
use ::time::{OffsetDateTime, macros::datetime};
use uuid::Uuid;

const NOW: OffsetDateTime = datetime!(2026-01-01 00:00 UTC);
const APPROVAL_RULE: ApprovalRule = ApprovalRule::new(1, SelfApproval::Allowed);

fn stamp(actor: &str) -> Stamp {
    Stamp {
        fact_id: Uuid::from_u128(1).into(),
        at: Timestamp::new(NOW),
        actor: ActorRef::parse(actor).unwrap(),
        request_id: Uuid::from_u128(2).into(),
    }
}

fn empty_deployment() -> Deployment {
    Deployment(DeploymentRecord {
        workload_id: Uuid::from_u128(10).into(),
        environment: Slug::parse("dev").unwrap(),
        restricted: None,
        guided: None,
        standard: None,
        soaking: Vec::new(),
        revision: Revision::FIRST,
    })
}

fn draft(number: u128) -> Release {
    let new_release = NewRelease {
        release_id: Uuid::from_u128(number).into(),
        workload_id: Uuid::from_u128(10).into(),
        workspace_id: Uuid::from_u128(11).into(),
        environment: Slug::parse("dev").unwrap(),
        target_lane: TargetLane::All,
        policy_bundle_id: None,
    };
    Release::draft(new_release, &stamp("user:ada")).next.clone()
}

fn version(kind: AssetKind, number: u128) -> BindableVersion {
    BindableVersion {
        asset_version_id: Uuid::from_u128(number).into(),
        checksum: Checksum::parse(&format!("blake3:{number:064x}")).unwrap(),
        version_label: VersionLabel::parse("v1").unwrap(),
        asset_id: Uuid::from_u128(number + 100).into(),
        asset_slug: Slug::parse("thing").unwrap(),
        kind,
        lifecycle: Lifecycle::Active,
    }
}

fn bind(release: &Release, kind: AssetKind, number: u128) -> Result<Release, ReleaseRefusal> {
    release
        .bind(Uuid::from_u128(number + 200).into(), kind, &version(kind, number), &stamp("user:ada"))
        .map(|change| change.next.clone())
}

fn approved(number: u128) -> Release {
    let bound = bind(&draft(number), AssetKind::PolicyBundle, 20).unwrap();
    let ready = bound.submit(Ok(Vec::new()), &empty_deployment(), &stamp("user:ada")).unwrap().next.clone();
    let reviewed = review(&ready, "user:bob", ReleaseVerdict::Approved);
    reviewed.move_to_approved(APPROVAL_RULE, &empty_deployment(), &stamp("user:ops")).unwrap().next.clone()
}

fn review(release: &Release, reviewer: &str, verdict: ReleaseVerdict) -> Release {
    let change = release.record_verdict(Uuid::from_u128(30).into(), verdict, None, APPROVAL_RULE, &stamp(reviewer));
    change.unwrap().next.release.clone()
}

fn met_requirements() -> ActivationReport {
    ActivationReport {
        primary_route: None,
        flow: FlowStatus::Absent,
        tools: Vec::new(),
        unsupported_obligations: Vec::new(),
        undeclared_inputs: Vec::new(),
        unpassed_variables: Vec::new(),
        unsupported_memory: Vec::new(),
        unsupported_controls: Vec::new(),
        unenforced_controls: Vec::new(),
        has_no_route: false,
        route_accounts: Vec::new(),
        is_workload_retired: false,
        is_use_case_inactive: false,
    }
}

fn release_in_state(name: StateName) -> (Release, Deployment) {
    let ready = bind(&draft(1), AssetKind::PolicyBundle, 20)
        .unwrap()
        .submit(Ok(Vec::new()), &empty_deployment(), &stamp("user:ada"))
        .unwrap();
    let activation = approved(1)
        .activate(&LaneSelection::All, &empty_deployment(), &met_requirements(), APPROVAL_RULE, &stamp("user:ops"))
        .unwrap();
    match name {
        StateName::Draft => (draft(1), empty_deployment()),
        StateName::ReviewReady => (ready.next.clone(), empty_deployment()),
        StateName::Approved => (approved(1), empty_deployment()),
        StateName::Active => (activation.release.clone(), activation.deployment.clone()),
        StateName::Superseded => {
            let later_activation = approved(2)
                .activate(
                    &LaneSelection::All,
                    &activation.deployment,
                    &met_requirements(),
                    APPROVAL_RULE,
                    &stamp("user:ops"),
                )
                .unwrap();
            assert_eq!(later_activation.superseded, [activation.release.release_id]);
            let digest = activation.release.bindings_digest();
            (
                Release(ReleaseRecord { state: State::Superseded { digest }, ..activation.release.0.clone() }),
                later_activation.deployment.clone(),
            )
        }
        StateName::Retired => {
            let retired = activation.release.retire(&activation.deployment, &stamp("user:ops")).unwrap();
            (retired.release.clone(), retired.deployment.clone())
        }
    }
}

/// A release that held lanes before, so that a rollback can return lanes to it.
fn earlier_holder() -> Release {
    let digest = approved(9).bindings_digest();
    Release(ReleaseRecord { state: State::Superseded { digest }, ..approved(9).0 })
}

/// Tries every transition from this state. Each entry has the new state or the refusal.
fn try_transitions(from: StateName) -> [(StateName, &'static str, Result<StateName, ReleaseRefusal>); 7] {
    let (release, deployment) = release_in_state(from);
    assert_eq!(release.state.name(), from);
    let stamp = stamp("user:ops");
    let reviewed = review(&release, "user:bob", ReleaseVerdict::Approved);
    let earlier_release = earlier_holder();
    let (artifact_id, reason) = (Uuid::from_u128(40).into(), "It answers in riddles.");
    let rollbacks = Lane::ALL.map(|lane| (lane, &earlier_release));
    let with_rollout = Release(ReleaseRecord { rollout: Some(started_rollout()), ..release.0.clone() });
    let trigger = AdvanceTrigger::Manual(SoakStatus { soak_seconds_left: 0, runs: EndedRuns { ended: 0, failed: 0 } });
    let next_state = |change: Change<Release>| change.next.state.name();
    let state = |change: DeploymentChange| change.release.state.name();
    let approval = reviewed.move_to_approved(APPROVAL_RULE, &deployment, &stamp);
    [
        (StateName::ReviewReady, "review_ready", release.submit(Ok(Vec::new()), &deployment, &stamp).map(next_state)),
        (StateName::Draft, "draft", release.reopen(&deployment, &stamp).map(next_state)),
        (StateName::Approved, "approved", approval.map(next_state)),
        (
            StateName::Active,
            "active",
            release.activate(&LaneSelection::All, &deployment, &met_requirements(), APPROVAL_RULE, &stamp).map(state),
        ),
        (StateName::Retired, "retired", release.retire(&deployment, &stamp).map(state)),
        (
            StateName::Superseded,
            "rollback",
            release.roll_back(&rollbacks, &deployment, artifact_id, reason, &stamp).map(state),
        ),
        // An advance needs a rollout, so the release has one in every state.
        (
            StateName::Active,
            "rollout/advance",
            with_rollout.advance(trigger, &deployment, &met_requirements(), APPROVAL_RULE, &stamp).map(state),
        ),
    ]
}

fn started_rollout() -> Rollout {
    let plan = RolloutPlan::new(&[Lane::Restricted, Lane::Guided], 0, AdvanceMode::Manual).unwrap();
    Rollout::start(plan, Revision::FIRST, Timestamp::new(NOW))
}

/// Builds the table in docs/release-states.md. `cargo xtask docs` copies the snapshot there.
#[test]
fn tabulates_every_transition_from_every_state() {
    let names: Vec<&str> = try_transitions(StateName::Draft).iter().map(|(_, name, _)| *name).collect();
    let mut table = format!("| from | {} |\n|---{}|\n", names.join(" | "), "|---".repeat(names.len()));
    for from in StateName::ALL {
        let cells = try_transitions(from).map(|(_, _, result)| match result {
            Ok(to) => format!("**{}**", to.as_str()),
            Err(refusal) => format!("`{}`", refusal.code()),
        });
        table.push_str(&format!("| {} | {} |\n", from.as_str(), cells.join(" | ")));
    }
    insta::assert_snapshot!("moves", table);
}

/// Checks that `valid_transitions` lists exactly the transitions that succeed.
#[test]
fn valid_transitions_match_possible_ones() {
    let mut table = String::new();
    for from in StateName::ALL {
        let (release, deployment) = release_in_state(from);
        let valid_states = release.valid_transitions(&deployment);
        for (to, name, result) in try_transitions(from) {
            // A transition whose name is no state has an API route of its own, so `valid_transitions` omits it.
            if StateName::parse(name).is_some() {
                assert_eq!(valid_states.contains(&to), result.is_ok(), "{from:?} -> {name}");
            }
        }
        let names: Vec<_> = valid_states.iter().map(|name| name.as_str()).collect();
        table.push_str(&format!("{} -> {}\n", from.as_str(), names.join(", ")));
    }
    insta::assert_snapshot!(table, @r"
    draft -> review_ready, retired
    review_ready -> approved, draft, retired
    approved -> active, retired
    active -> retired
    superseded -> retired
    retired -> 
    ");
}

/// A valid transition succeeds if and only if neither a general gate nor the gates of all lanes are blocked.
#[test]
fn gates_agree_with_transitions() {
    for from in StateName::ALL {
        let (release, deployment) = release_in_state(from);
        let reviewed = review(&release, "user:bob", ReleaseVerdict::Approved);
        let context = GateContext {
            deployment: &deployment,
            approval_rule: APPROVAL_RULE,
            activation_report: &met_requirements(),
            unresolved_references: &[],
        };
        let (gates, valid_states) = (reviewed.gates(&context), reviewed.valid_transitions(&deployment));
        for (to, name, result) in
            try_transitions(from).into_iter().filter(|(_, name, _)| StateName::parse(name).is_some())
        {
            let target_gates = || gates.iter().filter(|gate| gate.to == to);
            let blocked = target_gates().any(|gate| gate.lane.is_none() && gate.verdict == GateResult::Blocked);
            let lanes_blocked = target_gates().any(|gate| gate.lane.is_some())
                && target_gates().filter(|gate| gate.lane.is_some()).all(|gate| gate.verdict == GateResult::Blocked);
            assert_eq!(valid_states.contains(&to) && !blocked && !lanes_blocked, result.is_ok(), "{from:?} -> {name}");
        }
    }
}

#[test]
fn active_release_takes_remaining_lanes() {
    let release = approved(1);
    let change = release
        .activate(
            &LaneSelection::One(Lane::Restricted),
            &empty_deployment(),
            &met_requirements(),
            APPROVAL_RULE,
            &stamp("user:ops"),
        )
        .unwrap();
    assert_eq!(change.deployment.serving_release(Lane::Standard), None);
    assert_eq!(change.deployment.representative_release(), Some((Lane::Restricted, release.release_id)));
    let valid_states = change.release.valid_transitions(&change.deployment);
    assert_eq!(valid_states, [StateName::Active, StateName::Retired]);
    let repeated = change.release.activate(
        &LaneSelection::One(Lane::Restricted),
        &change.deployment,
        &met_requirements(),
        APPROVAL_RULE,
        &stamp("user:ops"),
    );
    assert!(matches!(repeated, Err(ReleaseRefusal::InvalidTransition { .. })));
    let remaining = change
        .release
        .activate(&LaneSelection::All, &change.deployment, &met_requirements(), APPROVAL_RULE, &stamp("user:ops"))
        .unwrap();
    assert_eq!(remaining.moves.len(), 2);
    assert_eq!(remaining.deployment.serving_release(Lane::Guided), Some((Lane::Guided, release.release_id)));
}

#[test]
fn lanes_fall_back_to_more_general_lanes_only() {
    let standard = approved(1)
        .activate(
            &LaneSelection::One(Lane::Standard),
            &empty_deployment(),
            &met_requirements(),
            APPROVAL_RULE,
            &stamp("user:ops"),
        )
        .unwrap();
    assert_eq!(standard.deployment.serving_release(Lane::Restricted).unwrap().0, Lane::Standard);
    let restricted = approved(1)
        .activate(
            &LaneSelection::One(Lane::Restricted),
            &empty_deployment(),
            &met_requirements(),
            APPROVAL_RULE,
            &stamp("user:ops"),
        )
        .unwrap();
    assert_eq!(restricted.deployment.serving_release(Lane::Guided), None);
}

#[test]
fn holder_of_another_lane_is_not_superseded() {
    let first = approved(1)
        .activate(&LaneSelection::All, &empty_deployment(), &met_requirements(), APPROVAL_RULE, &stamp("user:ops"))
        .unwrap();
    let second = approved(2)
        .activate(
            &LaneSelection::One(Lane::Guided),
            &first.deployment,
            &met_requirements(),
            APPROVAL_RULE,
            &stamp("user:ops"),
        )
        .unwrap();
    assert!(second.superseded.is_empty());
    assert_eq!(second.release.supersedes_release_id, Some(first.release.release_id));
}

#[test]
fn refuses_binding_outside_drafts() {
    let (ready, _) = release_in_state(StateName::ReviewReady);
    let refusal = bind(&ready, AssetKind::ModelPolicy, 21);
    assert_eq!(refusal, Err(ReleaseRefusal::NotEditable { state: StateName::ReviewReady }));
}

#[test]
fn refuses_duplicate_and_mismatched_roles() {
    let release = bind(&draft(1), AssetKind::PolicyBundle, 20).unwrap();
    assert_eq!(bind(&release, AssetKind::PolicyBundle, 21), Err(ReleaseRefusal::DuplicateRole));
    let mismatched = release.bind(
        Uuid::from_u128(5).into(),
        AssetKind::ModelPolicy,
        &version(AssetKind::PromptTemplate, 22),
        &stamp("user:ada"),
    );
    assert_eq!(mismatched.map(|_| ()), Err(ReleaseRefusal::RoleKindMismatch));
    let retired_version = BindableVersion { lifecycle: Lifecycle::Retired, ..version(AssetKind::ModelPolicy, 23) };
    let result = release.bind(Uuid::from_u128(5).into(), AssetKind::ModelPolicy, &retired_version, &stamp("user:ada"));
    assert_eq!(result.map(|_| ()), Err(ReleaseRefusal::AssetNotActive));
    let with_several_skills = bind(&bind(&release, AssetKind::Skill, 24).unwrap(), AssetKind::Skill, 25);
    assert_eq!(with_several_skills.unwrap().bindings.len(), 3);
}

#[test]
fn reads_min_approvals_in_any_number_notation() {
    for spelling in ["2", "2.0", "2e0", "20e-1"] {
        let profile =
            serde_json::from_str(&format!(r#"{{"approval_policy": {{"min_approvals": {spelling}}}}}"#)).unwrap();
        assert_eq!(ApprovalRule::from_profile(&profile).min_approvals, 2, "{spelling}");
    }
}

#[test]
fn approvals_count_only_for_reviewed_digest() {
    let (ready, _) = release_in_state(StateName::ReviewReady);
    let stamp = stamp("user:ops");
    let approve = |release: &Release, rule| release.move_to_approved(rule, &empty_deployment(), &stamp).map(|_| ());
    assert_eq!(
        approve(&ready, APPROVAL_RULE),
        Err(ReleaseRefusal::ApprovalRequired { counted: 0, needed: 1, refused: false, excludes_authors: false })
    );
    let reviewed = review(&ready, "user:bob", ReleaseVerdict::Approved);
    let changed =
        bind(&reviewed.reopen(&empty_deployment(), &stamp).unwrap().next, AssetKind::ModelPolicy, 21).unwrap();
    let resubmitted = changed.submit(Ok(Vec::new()), &empty_deployment(), &stamp).unwrap().next.clone();
    assert!(approve(&resubmitted, APPROVAL_RULE).is_err());
    let rule = ApprovalRule { min_approvals: 2, ..APPROVAL_RULE };
    let approved_twice = review(&reviewed, "user:bob", ReleaseVerdict::Approved);
    assert!(approve(&approved_twice, rule).is_err(), "one person counts once");
    assert!(approve(&review(&approved_twice, "user:eve", ReleaseVerdict::Approved), rule).is_ok());
    let rejected = review(&approved_twice, "user:eve", ReleaseVerdict::Rejected);
    let refusal = ReleaseRefusal::ApprovalRequired { counted: 1, needed: 1, refused: true, excludes_authors: false };
    assert_eq!(approve(&rejected, APPROVAL_RULE), Err(refusal));
    let reapproved = review(&rejected, "user:bob", ReleaseVerdict::Approved);
    assert!(approve(&reapproved, APPROVAL_RULE).is_ok());
}

#[test]
fn refuses_approval_by_authors() {
    let (ready, _) = release_in_state(StateName::ReviewReady);
    let strict = ApprovalRule { self_approval: SelfApproval::Refused, ..APPROVAL_RULE };
    let approved = ReleaseVerdict::Approved;
    let result = ready.record_verdict(Uuid::from_u128(9).into(), approved, None, strict, &stamp("user:ada"));
    assert_eq!(result.map(|_| ()).unwrap_err(), ReleaseRefusal::SelfApprovalNotAllowed);
    let self_approved = review(&ready, "user:ada", ReleaseVerdict::Approved);
    assert!(
        self_approved.move_to_approved(strict, &empty_deployment(), &stamp("user:ops")).is_err(),
        "an earlier own approval does not count"
    );
}

#[test]
fn changes_requested_returns_release_to_draft() {
    let (ready, _) = release_in_state(StateName::ReviewReady);
    assert_eq!(review(&ready, "user:bob", ReleaseVerdict::ChangesRequested).state, State::Draft);
    let (active, _) = release_in_state(StateName::Active);
    assert_eq!(review(&active, "user:bob", ReleaseVerdict::ChangesRequested).state.name(), StateName::Active);
}

#[test]
fn reports_all_unmet_requirements_at_once() {
    let mut release = approved(1);
    release.0.policy_bundle_id = Some(Uuid::from_u128(999).into());
    let report = ActivationReport {
        primary_route: None,
        flow: FlowStatus::Valid {
            provider_routed: true,
            referenced_roles: vec![AssetKind::PromptTemplate],
            unsupported_steps: vec!["agent".to_owned()],
            agent_tools: Vec::new(),
            declared_inputs: Vec::new(),
        },
        tools: Vec::new(),
        unsupported_obligations: vec!["human_review".to_owned()],
        undeclared_inputs: vec![UndeclaredInput { rule: "r".to_owned(), input: "i".to_owned() }],
        unpassed_variables: Vec::new(),
        unsupported_memory: vec!["`/type` of the `memory` `notes`".to_owned()],
        unsupported_controls: vec![UnenforcedControl {
            kind: AssetKind::GuardrailConfig,
            asset: Slug::parse("rails").unwrap(),
            pointer: "/guardrails/0/detector".to_owned(),
        }],
        unenforced_controls: Vec::new(),
        has_no_route: false,
        route_accounts: Vec::new(),
        is_workload_retired: false,
        is_use_case_inactive: true,
    };
    let codes: Vec<_> = release.unmet_requirements(&report).into_iter().map(|requirement| requirement.code).collect();
    insta::assert_debug_snapshot!(codes, @r#"
    [
        "policy_bundle_mismatch",
        "reference_unresolved",
        "step_type_unavailable",
        "model_policy_missing",
        "obligation_unavailable",
        "memory_unavailable",
        "control_not_enforced",
        "use_case_not_active",
    ]
    "#);
    let report = ActivationReport {
        primary_route: Some(PrimaryRouteApproval::NotApproved),
        flow: FlowStatus::Invalid,
        ..met_requirements()
    };
    let codes: Vec<_> = draft(1).unmet_requirements(&report).into_iter().map(|requirement| requirement.code).collect();
    assert_eq!(codes, ["policy_bundle_missing", "flow_invalid", "model_policy_not_approved"]);
}

#[test]
fn production_refuses_unenforced_controls() {
    let control = UnenforcedControl {
        kind: AssetKind::McpServer,
        asset: Slug::parse("tickets").unwrap(),
        pointer: "/on_drift".to_owned(),
    };
    let report = ActivationReport { unenforced_controls: vec![control], ..met_requirements() };
    let mut release = approved(1);
    assert!(release.unmet_requirements(&report).is_empty(), "other environments permit it");
    release.0.environment = Slug::parse("production").unwrap();
    let missing = release.unmet_requirements(&report);
    assert_eq!(missing.len(), 1);
    assert_eq!(missing[0].code, "control_not_enforced");
    assert!(missing[0].message.contains("`content.on_drift`") && missing[0].message.contains("`mcp_server` `tickets`"));
}

#[test]
fn refuses_untargeted_lane() {
    let mut release = approved(1);
    release.0.target_lane = TargetLane::One(Lane::Guided);
    let digest = release.bindings_digest();
    release.0.state = State::Approved { digest };
    release = review(&release, "user:bob", ReleaseVerdict::Approved);
    let untargeted = release.activate(
        &LaneSelection::One(Lane::Standard),
        &empty_deployment(),
        &met_requirements(),
        APPROVAL_RULE,
        &stamp("user:ops"),
    );
    assert_eq!(untargeted.map(|_| ()).unwrap_err(), ReleaseRefusal::LaneNotTargeted);
    let activated = release
        .activate(&LaneSelection::All, &empty_deployment(), &met_requirements(), APPROVAL_RULE, &stamp("user:ops"))
        .unwrap();
    assert_eq!(activated.moves.len(), 1);
}
