//! Tests of the store on a real S3 server.

use super::{in_bucket, path};
use crate::{MARKED_PREFIXES, ObjectArtifactStore, marker_in};
use fairway_domain::{
    asset::artifact_store::{ArtifactPath, ArtifactStore, ArtifactStoreError, PutOutcome, StoredObject},
    id::{AssetId, AssetVersionId},
};
use fairway_testkit::S3Server;
use object_store::ObjectStoreExt as _;
use std::{collections::BTreeSet, sync::Arc};

/// Number of concurrent writers of one path.
const WRITERS: u8 = 16;
/// Number of rounds. Each round has its own path.
const ROUNDS: u128 = 12;

fn numbered(number: u128) -> ArtifactPath {
    let ids = (AssetId::from(uuid::Uuid::from_u128(7)), AssetVersionId::from(uuid::Uuid::from_u128(number)));
    ArtifactPath::of_version(ids.0, ids.1)
}

async fn paths(store: &ObjectArtifactStore, limit: usize) -> BTreeSet<String> {
    let mut listing = store.list(ArtifactPath::VERSION_PREFIX);
    let mut found = BTreeSet::new();
    loop {
        let objects: Vec<StoredObject> = listing.next(limit).await.unwrap();
        assert!(objects.len() <= limit);
        if objects.is_empty() {
            return found;
        }
        found.extend(objects.into_iter().map(|object| object.path));
    }
}

#[tokio::test]
async fn stores_lists_and_removes_objects_in_a_bucket() {
    let server = S3Server::start().unwrap();
    let store = in_bucket(&server.create_bucket("plain").await.unwrap());
    store.ready().await.unwrap();
    assert!(store.read(&path(), 7).await.unwrap().is_none());
    assert_eq!(store.put_if_absent(&path(), b"one".to_vec()).await.unwrap(), PutOutcome::Created);
    assert_eq!(store.put_if_absent(&path(), b"one".to_vec()).await.unwrap(), PutOutcome::AlreadyExists);
    assert!(matches!(store.put_if_absent(&path(), b"two".to_vec()).await, Err(ArtifactStoreError::Conflict)));
    assert!(store.read(&path(), 7).await.unwrap().unwrap().is_equal_to(b"one"));

    for number in 0..7 {
        store.put_if_absent(&numbered(number), vec![1]).await.unwrap();
    }
    let expected: BTreeSet<String> =
        (0..7).map(numbered).chain([path()]).map(|path| path.as_str().to_owned()).collect();
    assert_eq!(paths(&store, 3).await, expected, "the listing excludes the marker");
    for path in [path(), path(), numbered(99)] {
        store.remove(&path).await.unwrap();
    }
    assert!(store.read(&path(), 7).await.unwrap().is_none());
    assert_eq!(paths(&store, 100).await.len(), 7);
    store.ready().await.unwrap();
}

#[tokio::test]
async fn one_of_sixteen_concurrent_writers_creates_the_object() {
    let server = S3Server::start().unwrap();
    let store = Arc::new(in_bucket(&server.create_bucket("race").await.unwrap()));
    for round in 0..ROUNDS {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { (writer, store.put_if_absent(&numbered(round), vec![writer]).await) })
            })
            .collect();
        let mut winners = Vec::new();
        for writer in writers {
            match writer.await.unwrap() {
                (writer, Ok(PutOutcome::Created)) => winners.push(writer),
                (_, Err(ArtifactStoreError::Conflict)) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        assert!(store.read(&numbered(round), 7).await.unwrap().unwrap().is_equal_to(&winners));
    }
}

#[tokio::test]
async fn concurrent_writers_of_equal_bytes_succeed() {
    let server = S3Server::start().unwrap();
    let store = Arc::new(in_bucket(&server.create_bucket("equal-bytes").await.unwrap()));
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.put_if_absent(&path(), b"same".to_vec()).await.unwrap() })
        })
        .collect();
    let mut created = 0;
    for writer in writers {
        created += u32::from(writer.await.unwrap() == PutOutcome::Created);
    }
    assert_eq!(created, 1);
}

#[tokio::test]
async fn emptied_bucket_is_not_ready() {
    let server = S3Server::start().unwrap();
    let location = server.create_bucket("emptied").await.unwrap();
    for prefix in MARKED_PREFIXES {
        let store = in_bucket(&location);
        store.ready().await.unwrap();
        store.store.delete(&marker_in(prefix)).await.unwrap();
        assert!(matches!(store.ready().await, Err(ArtifactStoreError::Unavailable(_))));
        in_bucket(&location).ready().await.unwrap();
    }
}
