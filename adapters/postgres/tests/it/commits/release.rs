//! Commits of releases, lanes and rollouts.

use super::{Decision, store};
use crate::stage::{RULE, Stage, activation, fresh, new_release, referring, scope, sound, stamp};
use fairway_domain::{
    asset::kind::AssetKind,
    audit::AuditStore,
    release::{
        Release,
        activate::Taking,
        advance::Advance,
        lane::{DeploymentChange, Lane},
        ports::{ReleaseWithDeployment, ReleaseStore},
        recommendation::Recommendation,
        review::Verdict,
    },
    rollout::{HoldReason, Pace, RolloutPlan, ports::RolloutStore},
    store::Conflict,
    tenant::DEFAULT_TENANT,
    workload::Workload,
};
use uuid::Uuid;

pub(super) async fn release(stage: &Stage) -> Decision {
    let workload = stage.workload().await;
    let change = Release::draft(new_release(&workload), &stamp());
    let store = store(stage);
    Decision::new(async move |key| ReleaseStore::commit_new(&*store, scope(), change, key.as_ref()).await)
        .stale(retire_workload(&workload))
        .stale(format!("DELETE FROM workload WHERE workload_id = '{}'", workload.workload_id))
}

/// A retired workload allows no lane changes.
fn retire_workload(workload: &Workload) -> String {
    format!("UPDATE workload SET status = 'retired' WHERE workload_id = '{}'", workload.workload_id)
}

fn increment_revision(release: &Release) -> String {
    format!("UPDATE release SET revision = revision + 1 WHERE release_id = '{}'", release.release_id)
}

pub(super) async fn binding(stage: &Stage) -> Decision {
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
        .stale(increment_revision(&draft))
        .stale(format!("UPDATE release SET state = 'retired' WHERE release_id = '{id}'"))
        .stale(format!("UPDATE asset SET lifecycle_state = 'retired' WHERE asset_id = '{}'", version.asset_id))
        .conflict(Conflict::DuplicateRole, taken)
}

pub(super) async fn unbinding(stage: &Stage) -> Decision {
    let draft = stage.draft(&stage.workload().await).await;
    let bound = draft.bind(fresh(), AssetKind::PolicyBundle, &stage.bindable().await, &stamp()).unwrap();
    let (draft, id) = (bound.next.clone(), bound.next.bindings[0].binding_id);
    stage.store.commit_binding(scope(), bound, None).await.unwrap();
    let change = draft.unbind(id, &stamp()).unwrap();
    let store = store(stage);
    Decision::new(async move |_| store.commit_unbinding(scope(), change, id).await)
        .stale(increment_revision(&draft))
        .stale(format!("DELETE FROM release_binding WHERE binding_id = '{id}'"))
        .stale(format!("UPDATE release SET state = 'retired' WHERE release_id = '{}'", draft.release_id))
}

pub(super) async fn review(stage: &Stage) -> Decision {
    let placed = stage.submitted(&stage.workload().await, &stage.bindable().await).await;
    let verdict = (Verdict::ChangesRequested, Some("not yet".to_owned()));
    let change = placed.release.review(fresh(), verdict, crate::stage::RULE, &stamp()).unwrap();
    let store = store(stage);
    Decision::new(async move |key| store.commit_review(scope(), change, key.as_ref()).await)
        .stale(increment_revision(&placed.release))
}

/// A verdict on a release that holds lanes also increments the deployment's revision.
pub(super) async fn review_of_live(stage: &Stage) -> Decision {
    let (_, placed) = stage.active().await;
    let change = placed.release.review(fresh(), (Verdict::Rejected, None), crate::stage::RULE, &stamp()).unwrap();
    let store = store(stage);
    Decision::new(async move |key| store.commit_review(scope(), change, key.as_ref()).await)
        .stale(increment_revision(&placed.release))
}

pub(super) async fn transition(stage: &Stage) -> Decision {
    let placed = stage.submitted(&stage.workload().await, &stage.bindable().await).await;
    let change = placed.release.reopen(&placed.deployment, &stamp()).unwrap();
    let store = store(stage);
    Decision::new(async move |key| store.commit_transition(scope(), change, key.as_ref()).await)
        .stale(increment_revision(&placed.release))
}

/// A submission also freezes a reference.
pub(super) async fn submission(stage: &Stage) -> Decision {
    let (draft, version) = (stage.draft(&stage.workload().await).await, stage.bindable().await);
    let placed = stage.placed(&draft).await;
    let change = placed.release.submit(Ok(vec![referring(&version)]), &placed.deployment, &stamp()).unwrap();
    let (id, store) = (version.asset_id, store(stage));
    Decision::new(async move |key| store.commit_transition(scope(), change, key.as_ref()).await)
        .stale(increment_revision(&placed.release))
        .stale(format!("UPDATE asset SET lifecycle_state = 'retired' WHERE asset_id = '{id}'"))
        .stale(format!("UPDATE asset SET lifecycle_state = 'archived' WHERE asset_id = '{id}'"))
}

pub(super) async fn deployment(stage: &Stage) -> Decision {
    let (workload, holder) = stage.active().await;
    let next = stage.approved(&workload, &stage.bindable().await).await;
    let change = activation(&next, None);
    let store = store(stage);
    Decision::new(async move |key| store.commit_deployment(scope(), change, key.as_ref()).await.map(|_| ()))
        .stale(increment_revision(&next.release))
        .stale(format!("UPDATE deployment SET revision = revision + 1 WHERE workload_id = '{}'", workload.workload_id))
        .stale(retire_workload(&workload))
        .stale(format!("UPDATE release SET state = 'superseded' WHERE release_id = '{}'", holder.release.release_id))
}

pub(super) async fn rollback(stage: &Stage) -> Decision {
    let (workload, old) = stage.active().await;
    let next = stage.approved(&workload, &stage.bindable().await).await;
    stage.store.commit_deployment(scope(), activation(&next, None), None).await.unwrap();
    let holder = stage.placed(&next.release).await;
    let back = old.release.release_id;
    let old = stage.placed(&old.release).await.release;
    let ways = Lane::ALL.map(|lane| (lane, &old));
    let told = (fresh(), "It answers in riddles.");
    let change = holder.release.roll_back(&ways, &holder.deployment, told, &stamp()).unwrap();
    let store = store(stage);
    Decision::new(async move |key| store.commit_deployment(scope(), change, key.as_ref()).await.map(|_| ()))
        .stale(increment_revision(&holder.release))
        .stale(format!("UPDATE deployment SET revision = revision + 1 WHERE workload_id = '{}'", workload.workload_id))
        .stale(retire_workload(&workload))
        .stale(format!("UPDATE release SET state = 'retired' WHERE release_id = '{back}'"))
}

/// Takes the current lane of another rollout, which ends that rollout.
pub(super) async fn rollout(stage: &Stage) -> Decision {
    let (workload, other) = release_in_rollout(stage).await;
    let next = stage.approved(&workload, &stage.bindable().await).await;
    let change = first_lane_of_plan(&stage.placed(&next.release).await);
    assert_eq!((change.stopped.as_slice(), change.superseded.len()), ([other.release.release_id].as_slice(), 0));
    let store = store(stage);
    Decision::new(async move |key| store.commit_deployment(scope(), change, key.as_ref()).await.map(|_| ()))
        .stale(increment_revision(&next.release))
        .stale(format!("UPDATE deployment SET revision = revision + 1 WHERE workload_id = '{}'", workload.workload_id))
        .stale(retire_workload(&workload))
        .stale(format!(
            "UPDATE release SET rollout_status = 'rolled_back', state = 'retired' WHERE release_id = '{}'",
            other.release.release_id
        ))
}

/// An advance by the rollout controller, which requires an ended soak.
pub(super) async fn advance(stage: &Stage) -> Decision {
    let (workload, placed) = release_in_rollout(stage).await;
    let record = stage.store.lane_record(scope(), placed.release.release_id, 20).await.unwrap().unwrap();
    let by = Advance::Pilot(record);
    let change = placed.release.advance(by, &placed.deployment, (&sound(), RULE), &stamp()).unwrap();
    let (id, store) = (placed.release.release_id, store(stage));
    Decision::new(async move |key| store.commit_deployment(scope(), change, key.as_ref()).await.map(|_| ()))
        .stale(increment_revision(&placed.release))
        .stale(format!("UPDATE deployment SET revision = revision + 1 WHERE workload_id = '{}'", workload.workload_id))
        .stale(retire_workload(&workload))
        .stale(format!("UPDATE release SET soak_ends_at = fairway_now() + interval '1 s' WHERE release_id = '{id}'"))
}

pub(super) async fn refusal(stage: &Stage) -> Decision {
    let (_, placed) = stage.active().await;
    let fact = placed.release.self_approval_refused_fact(&stamp());
    let store = store(stage);
    Decision::new(async move |_| store.commit_alone(scope(), fact).await)
}

pub(super) async fn advice(stage: &Stage) -> Decision {
    let (_, placed) = stage.active().await;
    let recommendation = Recommendation { recommended: true, error_rate: 0.5, sample_size: 20, threshold: 0.3 };
    let change = placed.release.advise(&recommendation, &stamp()).unwrap();
    let (id, store) = (placed.release.release_id, store(stage));
    Decision::new(async move |_| store.commit_advice(scope(), change).await)
        .stale(format!("UPDATE release SET rollback_advised = true WHERE release_id = '{id}'"))
        .stale(format!("UPDATE release SET state = 'superseded' WHERE release_id = '{id}'"))
}

pub(super) async fn hold(stage: &Stage) -> Decision {
    let (_, placed) = release_in_rollout(stage).await;
    let change = placed.release.hold(HoldReason::TooFewRuns, &stamp()).unwrap();
    let (id, store) = (placed.release.release_id, store(stage));
    Decision::new(async move |_| store.commit_hold(scope(), change).await)
        .stale(format!("UPDATE release SET rollout_since = rollout_since + 1 WHERE release_id = '{id}'"))
        .stale(format!("UPDATE release SET rollout_holds = '{{too_few_runs}}' WHERE release_id = '{id}'"))
        .stale(format!("UPDATE release SET rollout_status = 'completed' WHERE release_id = '{id}'"))
}

/// A release that holds all lanes except `guided`, the next lane of its rollout.
async fn release_in_rollout(stage: &Stage) -> (Workload, ReleaseWithDeployment) {
    let workload = stage.workload().await;
    let approved = stage.approved(&workload, &stage.bindable().await).await;
    let store = &stage.store;
    store.commit_deployment(scope(), activation(&approved, Some(Lane::Standard)), None).await.unwrap();
    let change = first_lane_of_plan(&stage.placed(&approved.release).await);
    store.commit_deployment(scope(), change, None).await.unwrap();
    let placed = stage.placed(&approved.release).await;
    (workload, placed)
}

/// Activates the first lane of a rollout plan without a soak.
fn first_lane_of_plan(placed: &ReleaseWithDeployment) -> DeploymentChange {
    let plan = RolloutPlan::new(&[Lane::Restricted, Lane::Guided], 0, Pace::Automatic).unwrap();
    placed.release.activate(&Taking::Planned(plan), &placed.deployment, (&sound(), RULE), &stamp()).unwrap()
}
