//! Reads of releases: notes of approvals, and the digest and references of a retired release.

use crate::fixture::{Fixture, scope, stamp};
use fairway_domain::{
    release::ports::{DeploymentStore, ReleaseStore},
    store::PageRequest,
};
use uuid::Uuid;

#[tokio::test]
async fn approval_notes_are_read_only_by_approval_reads() {
    let fixture = Fixture::new().await;
    let version = fixture.bindable().await;
    let deployed_release = fixture.approved(&fixture.workload().await, &version).await;
    let read = fixture.store.find(scope(), deployed_release.release.release_id).await.unwrap().unwrap().release;
    let [verdict] = &*read.approvals else { panic!("expected one verdict") };
    assert_eq!(verdict.note, None, "decisions do not depend on notes");
    let approval = fixture.store.approval(scope(), read.release_id, verdict.approval_id).await.unwrap().unwrap();
    assert_eq!(approval.note.as_deref(), Some("read it"));
    assert_eq!((approval.by, approval.at, approval.verdict), (verdict.by.clone(), verdict.at, verdict.verdict));
    let approval_of_other_release =
        fixture.store.approval(scope(), Uuid::nil().into(), verdict.approval_id).await.unwrap();
    assert_eq!(approval_of_other_release, None);
    let page = fixture.store.approvals(scope(), read.release_id, PageRequest::first(5)).await.unwrap();
    assert_eq!((page.rows.len(), page.total, page.rows[0].note.as_deref()), (1, 1, Some("read it")));
}

/// A retired release still has the digest and the references that were reviewed.
#[tokio::test]
async fn retired_release_is_read_as_it_was_committed() {
    let fixture = Fixture::new().await;
    let deployed_release = fixture.submitted(&fixture.workload().await, &fixture.bindable().await).await;
    let change = deployed_release.release.retire(&deployed_release.deployment, &stamp()).unwrap();
    let committed = change.release.clone();
    assert_eq!(committed.references.len(), 1);
    fixture.store.commit_lane_change(scope(), change, None).await.unwrap();
    let read = fixture.current_release(&committed).await.release;
    assert_eq!((&read.state, &read.references), (&committed.state, &committed.references));
    assert_eq!(read.state.digest(), deployed_release.release.state.digest());
}
