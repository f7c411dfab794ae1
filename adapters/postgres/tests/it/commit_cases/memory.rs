//! Commits of conversation turns, which are part of the end of their runs, and of erasures.

use super::{Decision, execution::accepted, store};
use crate::fixture::{Fixture, acceptance, actor, ending, fresh, scope, stamp};
use fairway_domain::{
    execution::{Acceptance, FinishRecord, ports::RunStore},
    id::WorkloadId,
    memory::{
        BoundMemory, ConversationErasure, ConversationKey, ConversationSessionId, MemoryConfig, MemoryScope, OnRevoke,
        PersonalDataPolicy, WritePolicy, Writeback, WritebackTurn, ports::MemoryStore,
    },
};
use uuid::Uuid;

pub(crate) fn conversation_key(workload: WorkloadId, session: &str) -> ConversationKey {
    ConversationKey { workload, owner: actor(), session: ConversationSessionId::parse(session).unwrap() }
}

/// The end of a run that belongs to a conversation with memory.
pub(crate) fn ending_with_turn(run: &Acceptance, session: &str) -> FinishRecord {
    let config = MemoryConfig {
        scope: MemoryScope::Session,
        max_turns: 10,
        retention_days: 1,
        write_policy: WritePolicy::Auto,
        personal_data: PersonalDataPolicy::Mask,
        on_revoke: OnRevoke::Keep,
    };
    let turn = WritebackTurn {
        memory: BoundMemory { asset: fresh(), slug: "memory".to_owned(), config },
        last_erasure: None,
        question: "Where is my parcel?".to_owned(),
        response: "At the door.".to_owned(),
    };
    let conversation = conversation_key(run.workload_id, session);
    let writeback = Writeback { conversation, turn, salt: [4; 16], contracts: vec!["handbook".to_owned()] };
    FinishRecord { writeback: Some(writeback), ..ending(run) }
}

async fn accepted_run(fixture: &Fixture) -> Acceptance {
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let run = acceptance(&deployed_release);
    accepted(&fixture.store, &run, revisions, None).await.unwrap();
    run
}

/// Ends a run with a conversation turn.
pub(super) async fn end(fixture: &Fixture) -> Decision {
    let run = accepted_run(fixture).await;
    let (ending, id, store) = (ending_with_turn(&run, "end"), run.execution_id, store(fixture));
    Decision::new(async move |_| store.finish(scope(), &ending).await)
        .stale_after(format!("UPDATE execution_lease SET token = gen_random_uuid() WHERE execution_id = '{id}'"))
        .stale_after(format!("DELETE FROM execution_lease WHERE execution_id = '{id}'"))
}

/// Erases a conversation with one turn. A turn that is written concurrently invalidates the decision.
pub(super) async fn erasure(fixture: &Fixture) -> Decision {
    let run = accepted_run(fixture).await;
    fixture.store.finish(scope(), &ending_with_turn(&run, "erasure")).await.unwrap();
    let workload =
        fairway_domain::workload::ports::WorkloadStore::find(&*fixture.store, scope(), run.workload_id).await;
    let conversation = conversation_key(run.workload_id, "erasure");
    let erasure = ConversationErasure::create(conversation, 1, &workload.unwrap().unwrap(), &stamp());
    let (id, other_id) = (run.execution_id, Uuid::now_v7());
    let columns = "workload_id, asset_id, owner, session_id, said, answered, bytes, salt, digest, clean, contracts,
        erased_on_revoke, remembered_at, expires_at";
    let store = store(fixture);
    Decision::new(async move |_| store.commit_erasure(scope(), &erasure).await)
        .stale_after(format!(
            "INSERT INTO memory_turn (tenant_id, execution_id, {columns})
             SELECT tenant_id, '{other_id}', {columns} FROM memory_turn WHERE execution_id = '{id}'"
        ))
        .stale_after(format!("DELETE FROM memory_turn WHERE execution_id = '{id}'"))
}
