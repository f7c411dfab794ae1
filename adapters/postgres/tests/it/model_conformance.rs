//! Model conformance: random histories of releases, lanes and rollouts are executed in PostgreSQL and in the
//! domain's reference model. The results must be equal.

use crate::{
    fixture::{Fixture, environment, fresh, new_release, scope, stamp},
    model::{
        Decision, DecisionInput, History, Model, Operation, Refusal, ReleaseStatuses, RequestOutcome, Step,
        StoredState, check_conformance, check_invariants, decide, first_seed, history_seed,
    },
};
use fairway_domain::{
    asset::kind::AssetKind,
    id::{ReleaseId, WorkloadId},
    release::{
        BindableVersion, NewRelease, Release,
        lane::{Lane, TargetLane},
        ports::{DeploymentStore, ReleaseStore, ReleaseWithDeployment},
    },
    store::CommitError,
};
use fairway_testkit::is_long_form_requested;
use futures_util::future::join_all;
use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::task::JoinSet;

const SHORT: u64 = 1_500;
const LONG: u64 = 100_000;
/// Number of histories that run concurrently, each with its own workload.
const CONCURRENT_HISTORIES: usize = 6;
/// A limit that exceeds the number of lane changes in a history.
const ALL_MOVES: u32 = 200;

/// The versions that the releases of every history bind.
struct BoundVersions {
    policy: BindableVersion,
    knowledge: BindableVersion,
}

/// A workload, and the releases that a history has created for it, by number.
struct StoredHistory<'a> {
    fixture: &'a Fixture,
    bound: &'a BoundVersions,
    workload: WorkloadId,
    releases: Vec<ReleaseId>,
    /// The state at the last read. It stays valid between reads, because no other history changes this workload.
    state: Option<StoredState>,
}

impl<'a> StoredHistory<'a> {
    async fn new(fixture: &'a Fixture, bound: &'a BoundVersions, history: &History) -> Self {
        let workload = fixture.workload().await;
        let mut releases = Vec::new();
        for target in &history.target_lanes {
            let target_lane = target.map_or(TargetLane::All, |lane| TargetLane::One(Lane::ALL[lane]));
            let change = Release::draft(NewRelease { target_lane, ..new_release(&workload) }, &stamp());
            let draft = change.next.clone();
            ReleaseStore::commit_draft(&*fixture.store, scope(), change, None).await.unwrap();
            let change = draft.bind(fresh(), AssetKind::PolicyBundle, &bound.policy, &stamp()).unwrap();
            fixture.store.commit_binding(scope(), change, None).await.unwrap();
            releases.push(draft.release_id);
        }
        Self { fixture, bound, workload: workload.workload_id, releases, state: None }
    }

    /// Reads the stored state of the workload and its releases.
    async fn read_state(&mut self) -> &StoredState {
        let store = &self.fixture.store;
        let found = self.releases.iter().map(|id| ReleaseStore::find(&**store, scope(), *id));
        let found: Vec<ReleaseWithDeployment> =
            join_all(found).await.into_iter().map(|found| found.unwrap().unwrap()).collect();
        let lane_history = store.lane_history(scope(), self.workload, &environment(), ALL_MOVES).await.unwrap();
        let deployment = found[0].deployment.clone();
        let releases = found.into_iter().map(|found| found.release).collect();
        self.state.insert(StoredState { releases, deployment, lane_history })
    }

    fn decide(&self, operation: &Operation) -> Result<Decision, Refusal> {
        let input = DecisionInput { stamp: stamp(), new_id: fresh(), version: &self.bound.knowledge };
        decide(self.state.as_ref().unwrap(), operation, &input)
    }

    async fn commit(&self, decision: Decision) -> Result<(), CommitError> {
        let store = &self.fixture.store;
        match decision {
            Decision::Binding(change) => store.commit_binding(scope(), change, None).await,
            Decision::Transition(change) => store.commit_transition(scope(), change, None).await,
            Decision::Verdict(change) => store.commit_review(scope(), change, None).await,
            Decision::Lanes(change) => store.commit_lane_change(scope(), *change, None).await.map(|_| ()),
        }
    }

    /// Executes one operation: decides, commits, and compares the result with the model.
    async fn execute(&mut self, model: &mut Model, operation: &Operation) -> Result<(), String> {
        let before = self.state.as_ref().map(StoredState::release_statuses);
        let decided = self.decide(operation);
        let result = decided.as_ref().map(|_| ()).map_err(Clone::clone);
        let expected = model.apply(operation);
        if result != expected {
            return Err(format!("{operation:?}: expected {expected:?} from the model, got {result:?}"));
        }
        if let Ok(decision) = decided {
            let committed = self.commit(decision).await;
            committed.map_err(|error| format!("{operation:?} failed without a concurrent change: {error:?}"))?;
        }
        self.compare(model, before).await
    }

    async fn compare(&mut self, model: &Model, before: Option<ReleaseStatuses>) -> Result<(), String> {
        let state = self.read_state().await;
        check_conformance(model, state)?;
        before.map_or(Ok(()), |before| check_invariants(&before, state))
    }

    async fn execute_step(&mut self, step: &Step, model: &mut Model) -> Result<(), String> {
        let Step { operation, outcome } = step;
        match outcome {
            RequestOutcome::Answered => self.execute(model, operation).await,
            RequestOutcome::CrashedBeforeCommit => {
                drop(self.decide(operation));
                self.compare(model, None).await
            }
            RequestOutcome::CrashedAfterCommit => {
                self.execute(model, operation).await?;
                self.execute(model, operation).await
            }
            RequestOutcome::PrecededBy(preceding) => {
                let (decided, basis) = (self.decide(operation), model.decision_basis(operation));
                self.execute(model, preceding).await?;
                let Ok(decision) = decided else { return self.execute(model, operation).await };
                let is_current = model.decision_basis(operation) == basis;
                match (self.commit(decision).await, is_current) {
                    (Ok(()), true) => {
                        model.apply(operation).map_err(|failure| format!("{operation:?}: {failure:?}"))?
                    }
                    (Err(CommitError::Stale), false) => {}
                    (committed, _) => {
                        return Err(format!(
                            "{operation:?} after {preceding:?}: {committed:?}, but is_current is {is_current}"
                        ));
                    }
                }
                self.compare(model, None).await
            }
        }
    }
}

async fn run(fixture: &Fixture, bound: &BoundVersions, history: &History) -> Result<(), String> {
    let mut stored = StoredHistory::new(fixture, bound, history).await;
    let mut model = Model::new(&history.target_lanes);
    stored.compare(&model, None).await?;
    for (number, step) in history.steps.iter().enumerate() {
        stored.execute_step(step, &mut model).await.map_err(|failure| format!("step {number}: {failure}"))?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_state_conforms_to_the_model() {
    let start = first_seed(env::var("FAIRWAY_TEST_SEED").ok().as_deref());
    let request_goal = if is_long_form_requested() { LONG } else { SHORT };
    let fixture = Arc::new(Fixture::new().await);
    let knowledge = fixture.bindable_as(AssetKind::KnowledgeBase).await;
    let bound = Arc::new(BoundVersions { policy: fixture.bindable().await, knowledge });
    let (next, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut workers = JoinSet::new();
    for _ in 0..CONCURRENT_HISTORIES {
        let (fixture, bound) = (Arc::clone(&fixture), Arc::clone(&bound));
        let (next, done) = (Arc::clone(&next), Arc::clone(&done));
        workers.spawn(async move {
            while done.load(Ordering::Relaxed) < request_goal {
                let history = History::from_seed(history_seed(start, next.fetch_add(1, Ordering::Relaxed)));
                if let Err(failure) = run(&fixture, &bound, &history).await {
                    done.store(request_goal, Ordering::Relaxed);
                    return Some((history, failure));
                }
                done.fetch_add(u64::try_from(history.request_count()).unwrap(), Ordering::Relaxed);
            }
            None
        });
    }
    let failed_history = workers.join_all().await.into_iter().flatten().min_by_key(|(history, _)| history.seed);
    if let Some((history, failure)) = failed_history {
        panic!("{failure}\n{history}");
    }
    let (histories, requests) = (next.load(Ordering::Relaxed), done.load(Ordering::Relaxed));
    println!("{histories} histories from seed {start}, {requests} requests, conform to the model");
    assert!(requests >= request_goal, "{requests} of {request_goal} requests");
}
