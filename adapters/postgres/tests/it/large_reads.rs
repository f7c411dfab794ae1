//! Reads of large rows: they wait for memory of the process, and small ones do not.
//!
//! Each test limits its process to a byte of memory once everything is stored, so that no large read is admitted.

use crate::stage::{Stage, acceptance, ending, scope};
use fairway_domain::{
    execution::{
        Acceptance, Ending,
        ports::{Accepted, ExecutionStore},
    },
    id::ApprovalId,
    store::{StoreError, StoreFault},
};

/// More than a batch returns, in bytes.
const LARGE: usize = 65_537;

/// A run that was accepted, and its end.
async fn accepted(stage: &Stage) -> (Acceptance, Ending) {
    let (workload, placed) = stage.active().await;
    let run = acceptance(&placed);
    let on = stage.accepted_on(&workload, &placed).await;
    assert_eq!(stage.store.accept(scope(), &run, on, None).await.unwrap(), Accepted::Yes);
    let end = ending(&run);
    (run, end)
}

fn is_unavailable<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError { fault: StoreFault::Unavailable, .. }))
}

#[tokio::test]
async fn notes_are_read_after_evidence_and_large_ones_wait_for_memory() {
    let stage = Stage::new().await;
    let mut read = Vec::new();
    for bytes in [LARGE - 1, LARGE] {
        let (run, end) = accepted(&stage).await;
        stage.store.finish(scope(), &end).await.unwrap();
        let note = "UPDATE approval_note SET body = repeat('x', $1) FROM approval
            WHERE approval.approval_id = approval_note.approval_id AND release_id = $2";
        let bytes = i32::try_from(bytes).unwrap();
        assert_eq!(stage.owner.execute(note, &[&bytes, &run.release_id.uuid()]).await.unwrap(), 1);
        let approval = "SELECT approval_id FROM approval WHERE release_id = $1";
        let approval = stage.owner.query_one(approval, &[&run.release_id.uuid()]).await.unwrap();
        let evidence = stage.store.evidence(scope(), run.execution_id).await.unwrap().unwrap();
        assert!(evidence.has_notes);
        assert_eq!(evidence.notes, [], "a batch load of evidence returned notes");
        read.push(ApprovalId::from(approval.get::<_, uuid::Uuid>(0)));
    }
    let lengths = async |approvals: &[ApprovalId]| {
        let notes = stage.store.approval_notes(scope(), approvals).await?;
        Ok::<_, StoreError>(notes.iter().map(|(_, note)| note.len()).sum::<usize>())
    };
    assert_eq!(lengths(&read).await.unwrap(), 2 * LARGE - 1);
    assert_eq!(lengths(&read[1..]).await.unwrap(), LARGE);
    fairway_memory_limit::limit_process(1);
    assert_eq!(lengths(&read[..1]).await.unwrap(), LARGE - 1);
    assert_eq!(lengths(&[]).await.unwrap(), 0);
    for large in [&read[..], &read[1..]] {
        assert!(is_unavailable(&lengths(large).await), "large notes were read without memory");
    }
}
