//! Commits of releases, lanes and rollouts.

use super::{Decision, store};
use crate::fixture::{Fixture, RULE, activation, fresh, new_release, passing_checks, scope, self_reference, stamp};
use fairway_domain::{
    asset::kind::AssetKind,
    audit::AuditStore,
    note::Note,
    release::{
        Release,
        activate::LaneSelection,
        advance_rollout::AdvanceTrigger,
        deployment::DeploymentChange,
        lane::Lane,
        ports::{DeploymentStore, RecommendationStore, ReleaseStore, ReleaseWithDeployment},
        recommendation::RollbackAssessment,
        review::ReleaseVerdict,
    },
    rollout::{AdvanceMode, HoldReason, RolloutPlan, ports::RolloutStore},
    store::ConstraintConflict,
    tenant::DEFAULT_TENANT_ID,
    workload::Workload,
};
use uuid::Uuid;

pub(super) async fn release(fixture: &Fixture) -> Decision {
    let workload = fixture.workload().await;
    let change = Release::draft(new_release(&workload), &stamp());
    let store = store(fixture);
    Decision::new(async move |key| ReleaseStore::commit_draft(&*store, scope(), change, key.as_ref()).await)
        .stale_after(retire_workload(&workload))
        .stale_after(format!("DELETE FROM workload WHERE workload_id = '{}'", workload.workload_id))
}

/// SQL that retires a workload, which then permits no lane changes.
fn retire_workload(workload: &Workload) -> String {
    format!("UPDATE workload SET status = 'retired' WHERE workload_id = '{}'", workload.workload_id)
}

fn increment_revision(release: &Release) -> String {
    format!("UPDATE release SET revision = revision + 1 WHERE release_id = '{}'", release.release_id)
}

pub(super) async fn binding(fixture: &Fixture) -> Decision {
    let draft = fixture.draft(&fixture.workload().await).await;
    let version = fixture.bindable().await;
    let change = draft.bind(fresh(), AssetKind::PolicyBundle, &version, &stamp()).unwrap();
    let id = draft.release_id;
    let duplicate = format!(
        "INSERT INTO release_binding VALUES ('{DEFAULT_TENANT_ID}', '{}', '{id}', 'policy_bundle', '{}', now(),
         'user:eve')",
        Uuid::now_v7(),
        version.asset_version_id
    );
    let store = store(fixture);
    Decision::new(async move |key| store.commit_binding(scope(), change, key.as_ref()).await)
        .stale_after(increment_revision(&draft))
        .stale_after(format!("UPDATE release SET state = 'retired' WHERE release_id = '{id}'"))
        .stale_after(format!("UPDATE asset SET lifecycle_state = 'retired' WHERE asset_id = '{}'", version.asset_id))
        .conflict_after(ConstraintConflict::DuplicateRole, duplicate)
}

pub(super) async fn unbinding(fixture: &Fixture) -> Decision {
    let draft = fixture.draft(&fixture.workload().await).await;
    let binding_change = draft.bind(fresh(), AssetKind::PolicyBundle, &fixture.bindable().await, &stamp()).unwrap();
    let (draft, id) = (binding_change.next.clone(), binding_change.next.bindings[0].binding_id);
    fixture.store.commit_binding(scope(), binding_change, None).await.unwrap();
    let change = draft.unbind(id, &stamp()).unwrap();
    let store = store(fixture);
    Decision::new(async move |_| store.commit_binding_removal(scope(), change, id).await)
        .stale_after(increment_revision(&draft))
        .stale_after(format!("DELETE FROM release_binding WHERE binding_id = '{id}'"))
        .stale_after(format!("UPDATE release SET state = 'retired' WHERE release_id = '{}'", draft.release_id))
}

pub(super) async fn review(fixture: &Fixture) -> Decision {
    let deployed_release = fixture.submitted(&fixture.workload().await, &fixture.bindable().await).await;
    let change = deployed_release
        .release
        .record_verdict(
            fresh(),
            ReleaseVerdict::ChangesRequested,
            Note::parse("not yet"),
            crate::fixture::RULE,
            &stamp(),
        )
        .unwrap();
    let store = store(fixture);
    Decision::new(async move |key| store.commit_review(scope(), change, key.as_ref()).await)
        .stale_after(increment_revision(&deployed_release.release))
}

/// Reviews a release that holds lanes. The commit also increments the deployment's revision.
pub(super) async fn review_of_live(fixture: &Fixture) -> Decision {
    let (_, deployed_release) = fixture.active().await;
    let change = deployed_release
        .release
        .record_verdict(fresh(), ReleaseVerdict::Rejected, None, crate::fixture::RULE, &stamp())
        .unwrap();
    let store = store(fixture);
    Decision::new(async move |key| store.commit_review(scope(), change, key.as_ref()).await)
        .stale_after(increment_revision(&deployed_release.release))
}

pub(super) async fn transition(fixture: &Fixture) -> Decision {
    let deployed_release = fixture.submitted(&fixture.workload().await, &fixture.bindable().await).await;
    let change = deployed_release.release.reopen(&deployed_release.deployment, &stamp()).unwrap();
    let store = store(fixture);
    Decision::new(async move |key| store.commit_transition(scope(), change, key.as_ref()).await)
        .stale_after(increment_revision(&deployed_release.release))
}

/// Submits a release for review. The commit also freezes a reference.
pub(super) async fn submission(fixture: &Fixture) -> Decision {
    let (draft, version) = (fixture.draft(&fixture.workload().await).await, fixture.bindable().await);
    let deployed_release = fixture.current_release(&draft).await;
    let change = deployed_release
        .release
        .submit(Ok(vec![self_reference(&version)]), &deployed_release.deployment, &stamp())
        .unwrap();
    let (id, store) = (version.asset_id, store(fixture));
    Decision::new(async move |key| store.commit_transition(scope(), change, key.as_ref()).await)
        .stale_after(increment_revision(&deployed_release.release))
        .stale_after(format!("UPDATE asset SET lifecycle_state = 'retired' WHERE asset_id = '{id}'"))
        .stale_after(format!("UPDATE asset SET lifecycle_state = 'archived' WHERE asset_id = '{id}'"))
}

pub(super) async fn deployment(fixture: &Fixture) -> Decision {
    let (workload, holder) = fixture.active().await;
    let next = fixture.approved(&workload, &fixture.bindable().await).await;
    let change = activation(&next, None);
    let store = store(fixture);
    Decision::new(async move |key| store.commit_lane_change(scope(), change, key.as_ref()).await.map(|_| ()))
        .stale_after(increment_revision(&next.release))
        .stale_after(format!(
            "UPDATE deployment SET revision = revision + 1 WHERE workload_id = '{}'",
            workload.workload_id
        ))
        .stale_after(retire_workload(&workload))
        .stale_after(format!(
            "UPDATE release SET state = 'superseded' WHERE release_id = '{}'",
            holder.release.release_id
        ))
}

pub(super) async fn rollback(fixture: &Fixture) -> Decision {
    let (workload, previous) = fixture.active().await;
    let next = fixture.approved(&workload, &fixture.bindable().await).await;
    fixture.store.commit_lane_change(scope(), activation(&next, None), None).await.unwrap();
    let holder = fixture.current_release(&next.release).await;
    let previous_id = previous.release.release_id;
    let previous = fixture.current_release(&previous.release).await.release;
    let rollbacks = Lane::ALL.map(|lane| (lane, &previous));
    let change = holder
        .release
        .roll_back(&rollbacks, &holder.deployment, fresh(), "The answers are incomprehensible.", &stamp())
        .unwrap();
    let store = store(fixture);
    Decision::new(async move |key| store.commit_lane_change(scope(), change, key.as_ref()).await.map(|_| ()))
        .stale_after(increment_revision(&holder.release))
        .stale_after(format!(
            "UPDATE deployment SET revision = revision + 1 WHERE workload_id = '{}'",
            workload.workload_id
        ))
        .stale_after(retire_workload(&workload))
        .stale_after(format!("UPDATE release SET state = 'retired' WHERE release_id = '{previous_id}'"))
}

/// Starts a rollout on the current lane of another rollout, which ends the other rollout.
pub(super) async fn rollout(fixture: &Fixture) -> Decision {
    let (workload, other_release) = release_in_rollout(fixture).await;
    let next = fixture.approved(&workload, &fixture.bindable().await).await;
    let change = first_lane_of_plan(&fixture.current_release(&next.release).await);
    assert_eq!(
        (change.stopped_rollouts.as_slice(), change.superseded.len()),
        ([other_release.release.release_id].as_slice(), 0)
    );
    let store = store(fixture);
    Decision::new(async move |key| store.commit_lane_change(scope(), change, key.as_ref()).await.map(|_| ()))
        .stale_after(increment_revision(&next.release))
        .stale_after(format!(
            "UPDATE deployment SET revision = revision + 1 WHERE workload_id = '{}'",
            workload.workload_id
        ))
        .stale_after(retire_workload(&workload))
        .stale_after(format!(
            "UPDATE release SET rollout_status = 'rolled_back', state = 'retired' WHERE release_id = '{}'",
            other_release.release.release_id
        ))
}

/// Advances a rollout as the rollout controller does. The guard requires that the soak has ended.
pub(super) async fn advance(fixture: &Fixture) -> Decision {
    let (workload, deployed_release) = release_in_rollout(fixture).await;
    let record = fixture.store.soak_status(scope(), deployed_release.release.release_id, 20).await.unwrap().unwrap();
    let trigger = AdvanceTrigger::Automatic(record);
    let change = deployed_release
        .release
        .advance(trigger, &deployed_release.deployment, &passing_checks(), RULE, &stamp())
        .unwrap();
    let (id, store) = (deployed_release.release.release_id, store(fixture));
    Decision::new(async move |key| store.commit_lane_change(scope(), change, key.as_ref()).await.map(|_| ()))
        .stale_after(increment_revision(&deployed_release.release))
        .stale_after(format!(
            "UPDATE deployment SET revision = revision + 1 WHERE workload_id = '{}'",
            workload.workload_id
        ))
        .stale_after(retire_workload(&workload))
        .stale_after(format!(
            "UPDATE release SET soak_ends_at = fairway_now() + interval '1 s' WHERE release_id = '{id}'"
        ))
}

pub(super) async fn refusal(fixture: &Fixture) -> Decision {
    let (_, deployed_release) = fixture.active().await;
    let fact = deployed_release.release.self_approval_refused_fact(&stamp());
    let store = store(fixture);
    Decision::new(async move |_| store.commit_fact(scope(), fact).await)
}

pub(super) async fn advice(fixture: &Fixture) -> Decision {
    let (_, deployed_release) = fixture.active().await;
    let recommendation = RollbackAssessment { is_recommended: true, error_rate: 0.5, sample_size: 20, threshold: 0.3 };
    let change = deployed_release.release.record_recommendation(&recommendation, &stamp()).unwrap();
    let (id, store) = (deployed_release.release.release_id, store(fixture));
    Decision::new(async move |_| store.commit_recommendation(scope(), change).await)
        .stale_after(format!("UPDATE release SET rollback_advised = true WHERE release_id = '{id}'"))
        .stale_after(format!("UPDATE release SET state = 'superseded' WHERE release_id = '{id}'"))
}

pub(super) async fn hold(fixture: &Fixture) -> Decision {
    let (_, deployed_release) = release_in_rollout(fixture).await;
    let change = deployed_release.release.record_hold(HoldReason::TooFewRuns, &stamp()).unwrap();
    let (id, store) = (deployed_release.release.release_id, store(fixture));
    Decision::new(async move |_| store.commit_hold(scope(), change).await)
        .stale_after(format!("UPDATE release SET rollout_since = rollout_since + 1 WHERE release_id = '{id}'"))
        .stale_after(format!("UPDATE release SET rollout_holds = '{{too_few_runs}}' WHERE release_id = '{id}'"))
        .stale_after(format!("UPDATE release SET rollout_status = 'completed' WHERE release_id = '{id}'"))
}

/// A release that holds all lanes except `guided`, which is the next lane of its rollout.
async fn release_in_rollout(fixture: &Fixture) -> (Workload, ReleaseWithDeployment) {
    let workload = fixture.workload().await;
    let approved = fixture.approved(&workload, &fixture.bindable().await).await;
    let store = &fixture.store;
    store.commit_lane_change(scope(), activation(&approved, Some(Lane::Standard)), None).await.unwrap();
    let change = first_lane_of_plan(&fixture.current_release(&approved.release).await);
    store.commit_lane_change(scope(), change, None).await.unwrap();
    let deployed_release = fixture.current_release(&approved.release).await;
    (workload, deployed_release)
}

/// Activates a release on the first lane of a rollout plan without a soak time.
fn first_lane_of_plan(deployed_release: &ReleaseWithDeployment) -> DeploymentChange {
    let plan = RolloutPlan::new(&[Lane::Restricted, Lane::Guided], 0, AdvanceMode::Automatic).unwrap();
    deployed_release
        .release
        .activate(&LaneSelection::Planned(plan), &deployed_release.deployment, &passing_checks(), RULE, &stamp())
        .unwrap()
}
