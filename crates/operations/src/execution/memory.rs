//! Conversation memory of runs. A run reads its conversation under the lease before the first model call, and writes
//! the new turn with its end. The decisions of access contracts are read from the database each time.

use super::{retrieval::RetrievalContext, run::MAX_INLINE_BYTES};
use crate::{
    blocking::{ProcessorWait, run_blocking},
    execution::engine::RunEngine,
};
use fairway_domain::{
    execution::run::{History, RunEnd, all_allow},
    id::ExecutionId,
    knowledge::contract::AccessMode,
    memory::{Writeback, ports::RecallQuery},
};
use std::sync::Arc;

impl RunEngine {
    /// Reads the run's conversation. If an access contract does not allow the replay of turns, no turn is read.
    pub(super) async fn recall(&self, reader: &RetrievalContext<'_>) -> History {
        let (Some(memory), Some(conversation)) = (&reader.plan.memory, &reader.conversation) else {
            return History::Unavailable;
        };
        let Some(decisions) = self.contract_decisions_for(reader, AccessMode::MemoryReplay).await else {
            return History::Unavailable;
        };
        let config = &memory.config;
        let query = RecallQuery {
            asset: memory.asset,
            scope: config.scope,
            limit: if all_allow(&reader.plan.knowledge, &decisions) { config.max_turns } else { 0 },
            max_age_days: config.retention_days,
            personal_data: config.personal_data,
        };
        match self.memory_store.recall(reader.scope, conversation, &query).await {
            Ok(recalled) => History::Loaded(decisions, recalled),
            Err(error) => {
                tracing::warn!(
                    tenant_id = %reader.scope.tenant(),
                    execution_id = %reader.execution_id,
                    error = &error as &dyn std::error::Error,
                    "failed to read a conversation; the run continues without it"
                );
                History::Unavailable
            }
        }
    }

    /// Returns the turn to write with the end of a run, if the access contracts currently allow it. A long turn is
    /// processed on the blocking pool.
    pub(super) async fn prepare_writeback(
        &self,
        run_outcome: &mut RunEnd,
        execution_id: ExecutionId,
        reader: &RetrievalContext<'_>,
    ) -> Option<Writeback> {
        let (bytes, conversation) = (run_outcome.offered_turn.as_ref()?.bytes(), reader.conversation.clone()?);
        let decisions = self.contract_decisions_for(reader, AccessMode::MemoryWriteback).await;
        let knowledge = &reader.plan.knowledge;
        if bytes <= MAX_INLINE_BYTES {
            let (moment, redactor) = (self.context.moment(), &self.settings.redactor);
            return run_outcome.decide_writeback(
                execution_id,
                conversation,
                knowledge,
                decisions.as_deref(),
                moment,
                redactor,
            );
        }
        let (context, redactor, knowledge) =
            (self.context.clone(), Arc::clone(&self.settings.redactor), knowledge.clone());
        let mut evaluated_outcome = run_outcome.clone();
        let work = run_blocking(reader.scope, ProcessorWait::Run, move || {
            let moment = context.moment();
            let writeback = evaluated_outcome.decide_writeback(
                execution_id,
                conversation,
                &knowledge,
                decisions.as_deref(),
                moment,
                &redactor,
            );
            (evaluated_outcome, writeback)
        });
        let (evaluated_outcome, writeback) = work.await.ok()?;
        *run_outcome = evaluated_outcome;
        writeback
    }
}
