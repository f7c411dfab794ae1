//! Refinement of a draft use case: generates a new plan from the description and the notes, and replaces the draft in
//! one commit.

use super::{
    UseCases,
    generate::{GenerationInput, PlanOrQuestion},
};
use crate::{Failure, Precondition, access::Operation, generator::GeneratedObject, idempotency::MAX_ATTEMPTS};
use fairway_domain::{
    access::Caller,
    id::{UseCaseId, WorkspaceId},
    idempotency::RequestKey,
    note::Note,
    store::{CommitError, ConstraintConflict},
    tenant::TenantScope,
    use_case::{UseCase, UseCaseRefusal, bundle::BundleRefusal, gaps::Gaps, ports::RefinementKey},
};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Maximum time for which a repeated request waits for the run that the first request started.
const MAX_WAIT: Duration = Duration::from_secs(120);
/// Interval at which it reads the state of this run.
const PAUSE: Duration = Duration::from_millis(100);

/// A request to refine a use case.
#[derive(Clone, Debug)]
pub struct RefineRequest {
    /// The description, which must equal that of the draft to refine.
    pub description: String,
    /// Changes that the author requests, in the order of the conversation.
    pub notes: Vec<Note>,
    /// The idempotency key of the refinement, with the digest of the request.
    pub key: RefinementKey,
}

/// The outcome of a request to refine a draft.
#[derive(Clone, Debug)]
pub enum RefinementOutcome {
    /// The refinement created a successor, and archived the draft.
    Successor {
        /// The successor, which is a draft.
        use_case: Box<UseCase>,
        /// Whether an earlier request with the same key created the successor.
        is_replay: bool,
    },
    /// The generator has a question. Nothing was created or archived, and the key can be used again.
    Question {
        /// The text of the question.
        question: String,
        /// An answer that the generator proposes, if any.
        proposed_answer: Option<String>,
    },
}

impl UseCases {
    /// Refines a draft. One commit creates the successor, archives the predecessor and stores the key.
    ///
    /// # Errors
    /// In these cases: the use case is not found; the caller may not author it; its revision differs from the expected
    /// one; it is not a draft; the description is not the original one. Also when the key was used for another request,
    /// the generator is unavailable, or its plan is invalid or has redacted references.
    pub async fn refine_use_case(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        id: UseCaseId,
        request: RefineRequest,
        expected: &Precondition,
    ) -> Result<RefinementOutcome, Failure> {
        let (scope, position, authorized_use_case) =
            self.authorize_use_case(caller, Operation::RefineUseCase, workspace, id).await?;
        if let Some(successor) = self.earlier_refinement(scope, workspace, id, &request.key).await? {
            return Ok(successor);
        }
        expected.check(authorized_use_case.revision)?;
        authorized_use_case.check_refinable()?;
        if request.description != authorized_use_case.source_description {
            return Err(UseCaseRefusal::DescriptionChanged.into());
        }
        let input = GenerationInput {
            description: &request.description,
            notes: &request.notes,
            current: Some(&authorized_use_case.plan),
        };
        let message = self.generation_message(caller, scope, &position, input).await?;
        let generated_object =
            self.await_generated(caller, workspace, &message, &generation_key(caller, id, &request.key)).await?;
        let generated = self.check_generated_plan(caller, scope, &position, generated_object, input).await?;
        let plan = match generated.outcome {
            PlanOrQuestion::Question { question, proposed_answer } => {
                return Ok(RefinementOutcome::Question { question, proposed_answer });
            }
            PlanOrQuestion::Plan(generated) => {
                if is_redacted(&generated.gaps) {
                    return Err(BundleRefusal::Redacted.into());
                }
                generated.plan
            }
        };
        let mut use_case = authorized_use_case;
        for _ in 0..MAX_ATTEMPTS {
            expected.check(use_case.revision)?;
            let change = use_case.refine(self.context.new_id(), plan.clone(), &self.context.stamp(caller));
            let change = match change {
                // The use case is no longer a draft. A concurrent request with the same key may have refined it; its
                // successor is then the response.
                Err(refusal) => {
                    let earlier = self.earlier_refinement(scope, workspace, id, &request.key).await?;
                    return earlier.ok_or(refusal.into());
                }
                Ok(change) => change,
            };
            let successor = change.next.successor.clone();
            match self.use_case_store.commit_refinement(scope, change, &request.key).await {
                Err(CommitError::Stale | CommitError::Conflict(ConstraintConflict::RefinementKeyTaken)) => {
                    if let Some(successor) = self.earlier_refinement(scope, workspace, id, &request.key).await? {
                        return Ok(successor);
                    }
                    use_case = self.use_case_store.find(scope, id).await?.ok_or(Failure::NotFound)?;
                }
                committed => {
                    committed?;
                    self.context.notify_facts();
                    return Ok(RefinementOutcome::Successor { use_case: Box::new(successor), is_replay: false });
                }
            }
        }
        Err(Failure::Contended)
    }

    /// Returns the generator's answer. If the first request with the same key has started a run, this request waits for
    /// that run, and polls only its state.
    async fn await_generated(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        message: &str,
        key: &RequestKey,
    ) -> Result<GeneratedObject, Failure> {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            match self.draft_generator.generate_object(caller, workspace, message, Some(key)).await {
                Err(Failure::KeyInProgress) if Instant::now() < deadline => sleep(PAUSE).await,
                result => return result,
            }
        }
    }

    /// Returns the successor that an earlier request with this key created, if any.
    async fn earlier_refinement(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        id: UseCaseId,
        key: &RefinementKey,
    ) -> Result<Option<RefinementOutcome>, Failure> {
        let Some(refinement) = self.use_case_store.find_refinement(scope, workspace, &key.key).await? else {
            return Ok(None);
        };
        if refinement.predecessor_id != id || refinement.body_digest != key.body_digest {
            return Err(UseCaseRefusal::RefinementKeyConflict.into());
        }
        let successor = self.use_case_store.find(scope, refinement.successor_id).await?.ok_or(Failure::NotFound)?;
        Ok(Some(RefinementOutcome::Successor { use_case: Box::new(successor), is_replay: true }))
    }
}

/// Whether the plan has connections that the caller may not see.
fn is_redacted(gaps: &Gaps) -> bool {
    gaps.redacted && !gaps.connections.is_empty()
}

/// Returns the idempotency key of the generator's run. Concurrent requests with the same key and body share one run.
/// Another body starts another run, because a question leaves the key unused.
fn generation_key(caller: &Caller, id: UseCaseId, key: &RefinementKey) -> RequestKey {
    let digest: String = key.body_digest.iter().map(|byte| format!("{byte:02x}")).collect();
    RequestKey {
        key: digest,
        caller: caller.actor.clone(),
        route: format!("refine use case {id} {}", key.key),
        body_digest: key.body_digest,
    }
}
