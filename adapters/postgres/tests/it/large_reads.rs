//! Reads of large rows wait until the process has memory for them. Reads of small rows do not wait.
//!
//! Each test sets the memory limit to one byte after it has stored its rows. No large read is admitted after that.

use crate::fixture::{Fixture, acceptance, content_with_attachments, ending, fresh, run_ref, scope, stamp};
use fairway_domain::{
    asset::{
        VersionContent,
        canonical::Canonical,
        kind::AssetKind,
        ports::{AssetStore, VersionStore},
    },
    execution::{
        Acceptance, FinishRecord, Payload, Status,
        ports::{AcceptOutcome, EventStore, ExecutionReadStore, RunStore},
        progress::RunEvent,
        review::ReviewStore,
    },
    id::ApprovalId,
    store::{StoreError, StoreFault},
};
use serde_json::json;
use std::time::Duration;

/// The size of the smallest text that counts as large, in bytes.
const LARGE: usize = 65_537;

/// An accepted run, and the record of its end.
async fn accepted(fixture: &Fixture) -> (Acceptance, FinishRecord) {
    let (workload, deployed_release) = fixture.active().await;
    let run = acceptance(&deployed_release);
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    assert_eq!(fixture.store.accept(scope(), &run, revisions, None).await.unwrap(), AcceptOutcome::Accepted);
    let end = ending(&run);
    (run, end)
}

fn is_unavailable<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError { fault: StoreFault::Unavailable, .. }))
}

#[tokio::test]
async fn large_approval_notes_wait_for_memory() {
    let fixture = Fixture::new().await;
    let mut approval_ids = Vec::new();
    for bytes in [LARGE - 1, LARGE] {
        let (run, end) = accepted(&fixture).await;
        fixture.store.finish(scope(), &end).await.unwrap();
        let release = run.release_id;
        let note = format!(
            "UPDATE approval_note SET body = repeat('x', {bytes}) FROM approval
             WHERE approval.approval_id = approval_note.approval_id AND release_id = '{release}'"
        );
        assert_eq!(fixture.owner.execute(&note, &[]).await.unwrap(), 1);
        let approval = format!("SELECT approval_id FROM approval WHERE release_id = '{release}'");
        let approval = fixture.owner.query_one(&approval, &[]).await.unwrap();
        let evidence = fixture.store.evidence(scope(), run.execution_id).await.unwrap().unwrap();
        assert!(evidence.has_notes);
        assert_eq!(evidence.notes, [], "a batch load of evidence returned notes");
        approval_ids.push(ApprovalId::from(approval.get::<_, uuid::Uuid>(0)));
    }
    let lengths = async |approvals: &[ApprovalId]| {
        let notes = fixture.store.approval_notes(scope(), approvals).await?;
        Ok::<_, StoreError>(notes.iter().map(|(_, note)| note.len()).sum::<usize>())
    };
    assert_eq!(lengths(&approval_ids).await.unwrap(), 2 * LARGE - 1);
    assert_eq!(lengths(&approval_ids[1..]).await.unwrap(), LARGE);
    fairway_memory_limit::limit_process(1);
    assert_eq!(lengths(&approval_ids[..1]).await.unwrap(), LARGE - 1);
    assert_eq!(lengths(&[]).await.unwrap(), 0);
    for large in [&approval_ids[..], &approval_ids[1..]] {
        assert!(is_unavailable(&lengths(large).await), "large notes were read without memory");
    }
}

#[tokio::test]
async fn large_versions_and_sources_wait_for_memory() {
    let fixture = Fixture::new().await;
    let mut versions = Vec::new();
    for bytes in [LARGE - 1, LARGE] {
        let asset = fixture.asset(AssetKind::PolicyBundle).await;
        // A JSON string of `bytes` bytes, including its quotes.
        let canonical = Canonical::of(&json!("x".repeat(bytes - 2))).unwrap();
        let content = VersionContent { canonical, source_text: Some("y".repeat(bytes)), ..content_with_attachments() };
        let change = asset.add_version(fresh(), None, content, &stamp()).unwrap();
        let version = fixture.store.commit_version(scope(), change, None).await.unwrap();
        assert_eq!(version.canonical.len(), bytes);
        versions.push((asset, version));
    }
    let store = &fixture.store;
    for is_limited in [false, true] {
        for (asset, version) in &versions {
            let (id, label) = (version.asset_version_id, Some(&version.version_label));
            let found = store.find_version(scope(), id).await;
            let newest = store.find_by_slug(scope(), &asset.slug, None).await;
            let labelled = store.find_by_slug(scope(), &asset.slug, label).await;
            let source = store.source_text(scope(), id).await;
            if is_limited && version.canonical.len() == LARGE {
                assert!(is_unavailable(&found), "a large version was read without memory");
                assert!(is_unavailable(&newest), "a large newest version was read without memory");
                assert!(is_unavailable(&labelled), "a large labelled version was read without memory");
                assert!(is_unavailable(&source), "a large source was read without memory");
            } else {
                assert_eq!(found.unwrap(), Some((asset.clone(), version.clone())));
                for found in [newest, labelled] {
                    assert_eq!(found.unwrap(), Some((asset.clone(), Some(version.clone()))));
                }
                assert_eq!(source.unwrap(), Some("y".repeat(version.canonical.len())));
            }
        }
        fairway_memory_limit::limit_process(1);
    }
}

#[tokio::test]
async fn large_payloads_and_outputs_wait_for_memory() {
    let fixture = Fixture::new().await;
    let mut runs = Vec::new();
    for bytes in [LARGE - 1, LARGE] {
        let (run, mut end) = accepted(&fixture).await;
        let text = json!("x".repeat(bytes - 2));
        let payload = Payload { body: text.to_string().into(), salt: [4; 16] };
        end.output = Some(payload.clone());
        end.artifacts[0].payload = Some(payload);
        fixture.store.finish(scope(), &end).await.unwrap();
        runs.push((bytes, (run.execution_id, end.artifacts[0].artifact_id), text));
    }
    for is_limited in [false, true] {
        for (bytes, document, text) in &runs {
            let artifact = fixture.store.artifact(scope(), document.0, document.1).await;
            let run = ExecutionReadStore::find(&*fixture.store, scope(), document.0).await;
            if is_limited && *bytes == LARGE {
                assert!(is_unavailable(&artifact), "a large payload was read without memory");
                assert!(is_unavailable(&run), "a large output was read without memory");
            } else {
                assert_eq!(artifact.unwrap().unwrap().1.payload.as_ref(), Some(text));
                assert_eq!(run.unwrap().unwrap().output, Some(text.to_string().into()));
            }
        }
        fairway_memory_limit::limit_process(1);
    }
}

#[tokio::test]
async fn large_outputs_under_review_wait_for_memory() {
    let fixture = Fixture::new().await;
    let mut runs = Vec::new();
    for bytes in [LARGE - 1, LARGE] {
        let (run, mut end) = accepted(&fixture).await;
        let text = json!("x".repeat(bytes - 2)).to_string();
        end.status = Status::AwaitingReview;
        end.review_timeout = Some(Duration::from_secs(600));
        end.output = Some(Payload { body: text.clone().into(), salt: [4; 16] });
        end.fact = run_ref(&run).review_requested_fact(end.output.as_ref(), &stamp());
        fixture.store.finish(scope(), &end).await.unwrap();
        runs.push((run.execution_id, text));
    }
    for is_limited in [false, true] {
        for (id, text) in &runs {
            let pending_answer = fixture.store.find_pending(scope(), *id).await;
            if is_limited && text.len() == LARGE {
                assert!(is_unavailable(&pending_answer), "a large output was read without memory");
            } else {
                assert_eq!(pending_answer.unwrap().unwrap().stored_answer, *text);
            }
        }
        fairway_memory_limit::limit_process(1);
    }
}

#[tokio::test]
async fn pages_events_and_large_chunks_wait_for_memory() {
    let fixture = Fixture::new().await;
    let (run, _) = accepted(&fixture).await;
    let id = run.execution_id;
    // Three chunks fill the first page. The sixth chunk fills a page but is not a large read. The seventh is a large
    // read.
    let mut sizes = vec![10_000; 5];
    sizes.extend([40_000, 66_000]);
    sizes.extend([100; 200]);
    let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    let insert = format!(
        r#"INSERT INTO execution_progress (tenant_id, execution_id, position, events)
        SELECT tenant_id, execution_id, position,
            format('[{{"kind":"output.delta","data":{{"delta":"%s"}}}}]', repeat('x', size))
        FROM execution, unnest(ARRAY[{}]) WITH ORDINALITY AS chunk (size, position) WHERE execution_id = '{id}'"#,
        sizes.join(", ")
    );
    fixture.run(&insert).await;
    let (mut pages, mut after, mut read_bytes) = (Vec::new(), 0, 0);
    loop {
        let page = fixture.store.events(scope(), id, after).await.unwrap();
        read_bytes += page.records.iter().flat_map(|record| &record.events).map(RunEvent::delta_bytes).sum::<usize>();
        pages.push((after + 1, page.records.len()));
        after = page.records.last().map_or(after, |record| record.position);
        if !page.has_more {
            break;
        }
    }
    assert_eq!(
        pages,
        [(1, 3), (4, 2), (6, 1), (7, 1), (8, 128), (136, 72)],
        "the first chunk of each page and the number of chunks"
    );
    assert_eq!(read_bytes, 5 * 10_000 + 40_000 + 66_000 + 200 * 100);
    fairway_memory_limit::limit_process(1);
    assert_eq!(fixture.store.events(scope(), id, 5).await.unwrap().records.len(), 1);
    assert!(is_unavailable(&fixture.store.events(scope(), id, 6).await), "a large chunk was read without memory");
}
