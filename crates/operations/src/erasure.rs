//! Erasures of a person's texts: the request, the decision by another person, and the background task that deletes
//! the texts.

use crate::{
    Failure, MaybeReplayed, Precondition, Stores,
    access::{Operation, authorize::authorize},
    commit_context::CommitContext,
    idempotency::{KeyedRequests, MAX_ATTEMPTS, keyed_outcome},
    services::{CommonOperations, SharedState},
};
use fairway_domain::{
    access::{ActorRef, Caller, ResourcePosition},
    audit::{AuditStore, Stamp},
    erasure::{ErasureBatchOutcome, ErasureRefusal, ErasureStatus, ErasureStore, SubjectErasure},
    id::ErasureId,
    idempotency::RequestKey,
    store::{Change, CommitError, Page, PageRequest},
    tenant::TenantScope,
};
use std::{sync::Arc, time::Duration};

/// Interval between two passes over the approved erasures. An erasure that awaits the end of active runs checks them in
/// each pass.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of batches of one erasure in a pass, so that a long erasure does not delay the erasures of other
/// tenants.
const MAX_BATCHES: usize = 20;

/// Executes approved erasures in an endless loop. Several processes may run this task concurrently.
pub async fn run_erasures(erasures: Arc<Erasures>) {
    loop {
        match erasures.erase_next_batches().await {
            Ok(true) => {}
            Ok(false) => tokio::time::sleep(POLL_INTERVAL).await,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to list approved erasures; retrying in 2 s"
                );
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }
}

/// Requests, decides and executes erasures of a subject's texts.
#[derive(Clone)]
pub struct Erasures {
    context: CommitContext,
    erasure_store: Arc<dyn ErasureStore>,
    audit_store: Arc<dyn AuditStore>,
    keyed_requests: Arc<KeyedRequests>,
}

/// A decision on a requested erasure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Decision {
    Approve,
    Refuse,
}

impl Decision {
    const fn operation(self) -> Operation {
        match self {
            Self::Approve => Operation::ApproveErasure,
            Self::Refuse => Operation::RefuseErasure,
        }
    }

    fn decide(self, erasure: &SubjectErasure, stamp: &Stamp) -> Result<Change<SubjectErasure>, ErasureRefusal> {
        match self {
            Self::Approve => erasure.approve(stamp),
            Self::Refuse => erasure.refuse(stamp),
        }
    }
}

impl Erasures {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, common: &CommonOperations) -> Self {
        Self {
            context: shared.context.clone(),
            erasure_store: Arc::clone(&stores.erasures),
            audit_store: Arc::clone(&stores.audit),
            keyed_requests: Arc::clone(&common.keyed_requests),
        }
    }
}

impl Erasures {
    /// Lists the erasures of the caller's tenant, newest first.
    ///
    /// # Errors
    /// When the caller does not manage the tenant.
    pub async fn list_erasures(
        &self,
        caller: &Caller,
        status: Option<ErasureStatus>,
        page: PageRequest,
    ) -> Result<Page<SubjectErasure>, Failure> {
        let scope = authorize_in_tenant(caller, Operation::ListErasures)?;
        Ok(self.erasure_store.list(scope, status, page).await?)
    }

    /// Returns one erasure with its status and counts.
    ///
    /// # Errors
    /// When the caller does not manage the tenant, or the erasure is not found in it.
    pub async fn read_erasure(&self, caller: &Caller, id: ErasureId) -> Result<SubjectErasure, Failure> {
        let scope = authorize_in_tenant(caller, Operation::ReadErasure)?;
        self.find(scope, id).await
    }

    /// Requests the erasure of a subject's texts. The erasure starts only after another person approves it.
    ///
    /// # Errors
    /// When the caller does not manage the tenant, or the subject matches no principal.
    pub async fn request_erasure(
        &self,
        caller: &Caller,
        subject: ActorRef,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<SubjectErasure>, Failure> {
        let scope = authorize_in_tenant(caller, Operation::RequestErasure)?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let id: ErasureId = self.context.new_id();
                    let change = SubjectErasure::request(id, subject, &self.context.stamp(caller))?;
                    let requested_erasure = change.next.clone();
                    let outcome = keyed_outcome(key, 201, id.uuid());
                    self.erasure_store.commit_request(scope, change, outcome.as_ref()).await?;
                    self.context.notify_facts();
                    Ok(requested_erasure)
                },
                async |id| self.find(scope, id.into()).await,
            )
            .await
    }

    /// Approves an erasure. A background task then deletes the texts.
    ///
    /// # Errors
    /// In these cases: the caller does not manage the tenant or is the requester; the erasure is not found; its
    /// revision differs from the expected one; it is already decided.
    pub async fn approve_erasure(
        &self,
        caller: &Caller,
        id: ErasureId,
        expected: &Precondition,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<SubjectErasure>, Failure> {
        self.decide(caller, id, Decision::Approve, expected, key).await
    }

    /// Refuses an erasure. The requester can also refuse it, to withdraw the request.
    ///
    /// # Errors
    /// In these cases: the caller does not manage the tenant; the erasure is not found; its revision differs from the
    /// expected one; it is already decided.
    pub async fn refuse_erasure(
        &self,
        caller: &Caller,
        id: ErasureId,
        expected: &Precondition,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<SubjectErasure>, Failure> {
        self.decide(caller, id, Decision::Refuse, expected, key).await
    }

    async fn decide(
        &self,
        caller: &Caller,
        id: ErasureId,
        decision: Decision,
        expected: &Precondition,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<SubjectErasure>, Failure> {
        let scope = authorize_in_tenant(caller, decision.operation())?;
        self.find(scope, id).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    for _ in 0..MAX_ATTEMPTS {
                        let erasure = self.find(scope, id).await?;
                        expected.check(erasure.revision)?;
                        let change = match decision.decide(&erasure, &self.context.stamp(caller)) {
                            Err(ErasureRefusal::SelfApproval) => {
                                let fact = erasure.self_approval_refused_fact(&self.context.stamp(caller));
                                self.audit_store.commit_fact(scope, fact).await?;
                                self.context.notify_facts();
                                return Err(ErasureRefusal::SelfApproval.into());
                            }
                            decided => decided?,
                        };
                        let decided_erasure = change.next.clone();
                        let outcome = keyed_outcome(key, 200, id.uuid());
                        match self.erasure_store.commit_decision(scope, change, outcome.as_ref()).await {
                            Err(CommitError::Stale) => {}
                            committed => {
                                committed?;
                                self.context.notify_facts();
                                return Ok(decided_erasure);
                            }
                        }
                    }
                    Err(Failure::Contended)
                },
                async |_| self.find(scope, id).await,
            )
            .await
    }

    /// Executes a part of each approved erasure. Returns whether more texts can be erased at once. An erasure that
    /// fails does not stop the other erasures: its earlier batches remain committed, and a later pass continues after
    /// them.
    ///
    /// # Errors
    /// When the approved erasures cannot be listed.
    pub async fn erase_next_batches(&self) -> Result<bool, Failure> {
        let mut has_more = false;
        for (scope, id) in self.erasure_store.list_approved().await? {
            match self.carry_out(scope, id).await {
                Ok(is_unfinished) => has_more |= is_unfinished,
                Err(error) => {
                    tracing::warn!(
                        tenant_id = %scope.tenant(),
                        erasure_id = %id,
                        error = &error as &dyn std::error::Error,
                        "failed to carry out a batch of an erasure; retrying within 2 s"
                    );
                }
            }
        }
        Ok(has_more)
    }

    async fn carry_out(&self, scope: TenantScope, id: ErasureId) -> Result<bool, Failure> {
        for _ in 0..MAX_BATCHES {
            match self.erasure_store.erase_batch(scope, id).await? {
                ErasureBatchOutcome::More => {}
                ErasureBatchOutcome::Waiting | ErasureBatchOutcome::Taken => return Ok(false),
                ErasureBatchOutcome::Done => {
                    self.complete(scope, id).await?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Records the completion of an erasure, unless another process has done so.
    async fn complete(&self, scope: TenantScope, id: ErasureId) -> Result<(), Failure> {
        let erasure = self.find(scope, id).await?;
        let stamp = Stamp {
            fact_id: self.context.new_id(),
            at: self.context.clock.now(),
            actor: ActorRef::system("erasure"),
            request_id: self.context.new_id(),
        };
        let Ok(change) = erasure.complete(&stamp) else { return Ok(()) };
        match self.erasure_store.commit_completion(scope, change).await {
            Err(CommitError::Stale) => Ok(()),
            committed => {
                committed?;
                self.context.notify_facts();
                tracing::info!(tenant_id = %scope.tenant(), erasure_id = %id, "completed an erasure");
                Ok(())
            }
        }
    }

    async fn find(&self, scope: TenantScope, id: ErasureId) -> Result<SubjectErasure, Failure> {
        self.erasure_store.find(scope, id).await?.ok_or(Failure::NotFound)
    }
}

fn authorize_in_tenant(caller: &Caller, operation: Operation) -> Result<TenantScope, Failure> {
    authorize(caller, operation, &ResourcePosition::tenant(caller.tenant))
}
