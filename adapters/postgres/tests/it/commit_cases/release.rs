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
        advance::AdvanceTrigger,
        lane::{DeploymentChange, Lane},
        ports::{DeploymentStore, RecommendationStore, ReleaseStore, ReleaseWithDeployment},
        recommendation::RollbackRecommendation,
        review::Verdict,
    },
    rollout::{AdvanceMode, HoldReason, RolloutPlan, ports::RolloutStore},
    store::Conflict,
    tenant::DEFAULT_TENANT,
    workload::Workload,
};
use uuid::Uuid;

pub(super) async fn release(stage: &Fixture) -> Decision {
    let workload = stage.workload().await;
    let change = Release::draft(new_release(&workload), &stamp());
    let store = store(stage);
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

pub(super) async fn binding(stage: &Fixture) -> Decision {
    let draft = stage.draft(&stage.workload().await).await;
    let version = stage.bindable().await;
    let change = draft.bind(fresh(), AssetKind::PolicyBundle, &version, &stamp()).unwrap();
    let id = draft.release_id;
    let taken = format!(
        "INSERT INTO release_binding VALUES ('{DEFAULT_TENANT}', '{}', '{id}', 'policy_bundle', '{}', now(),
         'user:eve')",
        Uuid::now_v7(),
        version.asset_version_id
    );
    let store = store(stage);
    Decision::new(async move |key| store.commit_binding(scope(), change, key.as_ref()).await)
        .stale_after(increment_revision(&draft))
        .stale_after(format!("UPDATE release SET state = 'retired' WHERE release_id = '{id}'"))
        .stale_after(format!("UPDATE asset SET lifecycle_state = 'retired' WHERE asset_id = '{}'", version.asset_id))
        .conflict_after(Conflict::DuplicateRole, taken)
}

pub(super) async fn unbinding(stage: &Fixture) -> Decision {
    let draft = stage.draft(&stage.workload().await).await;
    let bound = draft.bind(fresh(), AssetKind::PolicyBundle, &stage.bindable().await, &stamp()).unwrap();
    let (draft, id) = (bound.next.clone(), bound.next.bindings[0].binding_id);
    stage.store.commit_binding(scope(), bound, None).await.unwrap();
    let change = draft.unbind(id, &stamp()).unwrap();
    let store = store(stage);
    Decision::new(async move |_| store.commit_binding_removal(scope(), change, id).await)
        .stale_after(increment_revision(&draft))
        .stale_after(format!("DELETE FROM release_binding WHERE binding_id = '{id}'"))
        .stale_after(format!("UPDATE release SET state = 'retired' WHERE release_id = '{}'", draft.release_id))
}

pub(super) async fn review(stage: &Fixture) -> Decision {
    let placed = stage.submitted(&stage.workload().await, &stage.bindable().await).await;
    let change = placed
        .release
        .review(fresh(), Verdict::ChangesRequested, Note::parse("not yet"), crate::fixture::RULE, &stamp())
        .unwrap();
    let store = store(stage);
    Decision::new(async move |key| store.commit_review(scope(), change, key.as_ref()).await)
        .stale_after(increment_revision(&placed.release))
}

/// Reviews a release that holds lanes. The commit also increments the deployment's revision.
pub(super) async fn review_of_live(stage: &Fixture) -> Decision {
    let (_, placed) = stage.active().await;
    let change = placed.release.review(fresh(), Verdict::Rejected, None, crate::fixture::RULE, &stamp()).unwrap();
    let store = store(stage);
    Decision::new(async move |key| store.commit_review(scope(), change, key.as_ref()).await)
        .stale_after(increment_revision(&placed.release))
}

pub(super) async fn transition(stage: &Fixture) -> Decision {
    let placed = stage.submitted(&stage.workload().await, &stage.bindable().await).await;
    let change = placed.release.reopen(&placed.deployment, &stamp()).unwrap();
    let store = store(stage);
    Decision::new(async move |key| store.commit_transition(scope(), change, key.as_ref()).await)
        .stale_after(increment_revision(&placed.release))
}

/// Submits a release for review. The commit also freezes a reference.
pub(super) async fn submission(stage: &Fixture) -> Decision {
    let (draft, version) = (stage.draft(&stage.workload().await).await, stage.bindable().await);
    let placed = stage.current_release(&draft).await;
    let change = placed.release.submit(Ok(vec![self_reference(&version)]), &placed.deployment, &stamp()).unwrap();
    let (id, store) = (version.asset_id, store(stage));
    Decision::new(async move |key| store.commit_transition(scope(), change, key.as_ref()).await)
        .stale_after(increment_revision(&placed.release))
        .stale_after(format!("UPDATE asset SET lifecycle_state = 'retired' WHERE asset_id = '{id}'"))
        .stale_after(format!("UPDATE asset SET lifecycle_state = 'archived' WHERE asset_id = '{id}'"))
}

pub(super) async fn deployment(stage: &Fixture) -> Decision {
    let (workload, holder) = stage.active().await;
    let next = stage.approved(&workload, &stage.bindable().await).await;
    let change = activation(&next, None);
    let store = store(stage);
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

pub(super) async fn rollback(stage: &Fixture) -> Decision {
    let (workload, old) = stage.active().await;
    let next = stage.approved(&workload, &stage.bindable().await).await;
    stage.store.commit_lane_change(scope(), activation(&next, None), None).await.unwrap();
    let holder = stage.current_release(&next.release).await;
    let back = old.release.release_id;
    let old = stage.current_release(&old.release).await.release;
    let rollbacks = Lane::ALL.map(|lane| (lane, &old));
    let change = holder
        .release
        .roll_back(&rollbacks, &holder.deployment, fresh(), "The answers are incomprehensible.", &stamp())
        .unwrap();
    let store = store(stage);
    Decision::new(async move |key| store.commit_lane_change(scope(), change, key.as_ref()).await.map(|_| ()))
        .stale_after(increment_revision(&holder.release))
        .stale_after(format!(
            "UPDATE deployment SET revision = revision + 1 WHERE workload_id = '{}'",
            workload.workload_id
        ))
        .stale_after(retire_workload(&workload))
        .stale_after(format!("UPDATE release SET state = 'retired' WHERE release_id = '{back}'"))
}

/// Starts a rollout on the current lane of another rollout, which ends the other rollout.
pub(super) async fn rollout(stage: &Fixture) -> Decision {
    let (workload, other) = release_in_rollout(stage).await;
    let next = stage.approved(&workload, &stage.bindable().await).await;
    let change = first_lane_of_plan(&stage.current_release(&next.release).await);
    assert_eq!(
        (change.stopped_rollouts.as_slice(), change.superseded.len()),
        ([other.release.release_id].as_slice(), 0)
    );
    let store = store(stage);
    Decision::new(async move |key| store.commit_lane_change(scope(), change, key.as_ref()).await.map(|_| ()))
        .stale_after(increment_revision(&next.release))
        .stale_after(format!(
            "UPDATE deployment SET revision = revision + 1 WHERE workload_id = '{}'",
            workload.workload_id
        ))
        .stale_after(retire_workload(&workload))
        .stale_after(format!(
            "UPDATE release SET rollout_status = 'rolled_back', state = 'retired' WHERE release_id = '{}'",
            other.release.release_id
        ))
}

/// Advances a rollout as the rollout controller does. The guard requires that the soak has ended.
pub(super) async fn advance(stage: &Fixture) -> Decision {
    let (workload, placed) = release_in_rollout(stage).await;
    let record = stage.store.soak_status(scope(), placed.release.release_id, 20).await.unwrap().unwrap();
    let by = AdvanceTrigger::Automatic(record);
    let change = placed.release.advance(by, &placed.deployment, &passing_checks(), RULE, &stamp()).unwrap();
    let (id, store) = (placed.release.release_id, store(stage));
    Decision::new(async move |key| store.commit_lane_change(scope(), change, key.as_ref()).await.map(|_| ()))
        .stale_after(increment_revision(&placed.release))
        .stale_after(format!(
            "UPDATE deployment SET revision = revision + 1 WHERE workload_id = '{}'",
            workload.workload_id
        ))
        .stale_after(retire_workload(&workload))
        .stale_after(format!(
            "UPDATE release SET soak_ends_at = fairway_now() + interval '1 s' WHERE release_id = '{id}'"
        ))
}

pub(super) async fn refusal(stage: &Fixture) -> Decision {
    let (_, placed) = stage.active().await;
    let fact = placed.release.self_approval_refused_fact(&stamp());
    let store = store(stage);
    Decision::new(async move |_| store.commit_fact(scope(), fact).await)
}

pub(super) async fn advice(stage: &Fixture) -> Decision {
    let (_, placed) = stage.active().await;
    let recommendation =
        RollbackRecommendation { is_recommended: true, error_rate: 0.5, sample_size: 20, threshold: 0.3 };
    let change = placed.release.record_recommendation(&recommendation, &stamp()).unwrap();
    let (id, store) = (placed.release.release_id, store(stage));
    Decision::new(async move |_| store.commit_recommendation(scope(), change).await)
        .stale_after(format!("UPDATE release SET rollback_advised = true WHERE release_id = '{id}'"))
        .stale_after(format!("UPDATE release SET state = 'superseded' WHERE release_id = '{id}'"))
}

pub(super) async fn hold(stage: &Fixture) -> Decision {
    let (_, placed) = release_in_rollout(stage).await;
    let change = placed.release.record_hold(HoldReason::TooFewRuns, &stamp()).unwrap();
    let (id, store) = (placed.release.release_id, store(stage));
    Decision::new(async move |_| store.commit_hold(scope(), change).await)
        .stale_after(format!("UPDATE release SET rollout_since = rollout_since + 1 WHERE release_id = '{id}'"))
        .stale_after(format!("UPDATE release SET rollout_holds = '{{too_few_runs}}' WHERE release_id = '{id}'"))
        .stale_after(format!("UPDATE release SET rollout_status = 'completed' WHERE release_id = '{id}'"))
}

/// A release that holds all lanes except `guided`, which is the next lane of its rollout.
async fn release_in_rollout(stage: &Fixture) -> (Workload, ReleaseWithDeployment) {
    let workload = stage.workload().await;
    let approved = stage.approved(&workload, &stage.bindable().await).await;
    let store = &stage.store;
    store.commit_lane_change(scope(), activation(&approved, Some(Lane::Standard)), None).await.unwrap();
    let change = first_lane_of_plan(&stage.current_release(&approved.release).await);
    store.commit_lane_change(scope(), change, None).await.unwrap();
    let placed = stage.current_release(&approved.release).await;
    (workload, placed)
}

/// Activates a release on the first lane of a rollout plan without a soak time.
fn first_lane_of_plan(placed: &ReleaseWithDeployment) -> DeploymentChange {
    let plan = RolloutPlan::new(&[Lane::Restricted, Lane::Guided], 0, AdvanceMode::Automatic).unwrap();
    placed
        .release
        .activate(&LaneSelection::Planned(plan), &placed.deployment, &passing_checks(), RULE, &stamp())
        .unwrap()
}
