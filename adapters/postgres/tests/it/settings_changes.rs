//! A commit that creates or changes the same row never creates a row again that was deleted meanwhile.

use crate::{
    fixture::{Fixture, actor, fresh, scope, stamp},
    lock_order::wait_for_lock_waits,
};
use fairway_domain::{
    access::principal_binding::{PrincipalBinding, PrincipalBindingStore},
    release::lane::Lane,
    store::CommitError,
};
use std::sync::Arc;

#[tokio::test]
async fn change_that_waits_for_the_deletion_of_its_row_is_stale() {
    let fixture = Arc::new(Fixture::new().await);
    let workload = fixture.workload().await;
    let creation = PrincipalBinding::bind(fresh(), &workload, actor(), None, &stamp()).unwrap();
    let binding = creation.next.clone();
    PrincipalBindingStore::commit_binding(&*fixture.store, scope(), creation, None).await.unwrap();

    let deleting = fixture.database.connect_as_owner().await.unwrap();
    deleting.batch_execute("BEGIN; DELETE FROM principal_binding").await.unwrap();
    let change = binding.change_lane(&workload, Some(Lane::Restricted), &stamp());
    let waiting = {
        let fixture = Arc::clone(&fixture);
        tokio::spawn(async move { PrincipalBindingStore::commit_binding(&*fixture.store, scope(), change, None).await })
    };
    wait_for_lock_waits(&fixture, 1).await;
    deleting.batch_execute("COMMIT").await.unwrap();

    assert!(matches!(waiting.await.unwrap(), Err(CommitError::Stale)));
    assert_eq!(fixture.query_number("SELECT count(*) FROM principal_binding").await, 0);
}
