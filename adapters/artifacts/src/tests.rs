mod bucket;
mod checkpoints;
mod oversized;

use super::*;
use fairway_domain::id::{AssetId, AssetVersionId};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse};
use std::{fs, time::Instant};

const A: &str = "00000000-0000-7000-8000-00000000000a";
const B: &str = "00000000-0000-7000-8000-00000000000b";

fn path() -> ArtifactPath {
    ArtifactPath::of_version(
        AssetId::from(A.parse::<uuid::Uuid>().unwrap()),
        AssetVersionId::from(B.parse::<uuid::Uuid>().unwrap()),
    )
}

fn in_directory(directory: &FilePath) -> ObjectArtifactStore {
    ObjectArtifactStore::open(&Location::Directory(directory.to_owned())).unwrap()
}

#[tokio::test]
async fn stores_an_object_once_and_refuses_other_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let store = in_directory(&directory.path().join("deep/store"));
    assert!(store.read(&path(), 7).await.unwrap().is_none());
    assert_eq!(store.put_if_absent(&path(), b"one".to_vec()).await.unwrap(), PutOutcome::Created);
    assert_eq!(store.put_if_absent(&path(), b"one".to_vec()).await.unwrap(), PutOutcome::AlreadyExists);
    assert!(matches!(store.put_if_absent(&path(), b"two".to_vec()).await, Err(ArtifactStoreError::Conflict)));
    assert!(store.read(&path(), 7).await.unwrap().unwrap().is_equal_to(b"one"));
}

#[tokio::test]
async fn one_of_many_writers_creates_the_object() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(in_directory(directory.path()));
    let writers: Vec<_> = (0..16u8)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.put_if_absent(&path(), vec![writer]).await })
        })
        .collect();
    let mut created = 0;
    for writer in writers {
        match writer.await.unwrap() {
            Ok(PutOutcome::Created) => created += 1,
            Err(ArtifactStoreError::Conflict) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(created, 1);
}

#[tokio::test]
async fn is_ready_until_the_directory_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let store = in_directory(directory.path());
    store.ready().await.unwrap();
    store.ready().await.unwrap();
    fs::remove_dir_all(directory.path()).unwrap();
    assert!(matches!(store.ready().await, Err(ArtifactStoreError::Unavailable(_))));
    // An empty directory at the same path is not the original store.
    fs::create_dir(directory.path()).unwrap();
    assert!(matches!(store.ready().await, Err(ArtifactStoreError::Unavailable(_))));
    // A new process has not seen the markers, so it may initialize the empty directory.
    in_directory(directory.path()).ready().await.unwrap();
}

#[tokio::test]
async fn is_not_ready_if_a_prefix_is_not_writable() {
    for prefix in ["assets", "evidence"] {
        let directory = tempfile::tempdir().unwrap();
        let (store, prefix) = (in_directory(directory.path()), directory.path().join(prefix));
        store.ready().await.unwrap();
        fs::remove_dir_all(&prefix).unwrap();
        assert!(matches!(store.ready().await, Err(ArtifactStoreError::Unavailable(_))));
        fs::write(&prefix, "a file").unwrap();
        assert!(matches!(store.ready().await, Err(ArtifactStoreError::Unavailable(_))));
        // A new process, which has not seen the markers, also reports the store as unavailable.
        assert!(matches!(in_directory(directory.path()).ready().await, Err(ArtifactStoreError::Unavailable(_))));
    }
}

/// Opens a store in a bucket, with explicit credentials.
fn in_bucket(address: &str) -> ObjectArtifactStore {
    let Location::Bucket(bucket) = Location::parse(address).unwrap() else { panic!("no bucket") };
    let credentials = AmazonS3Builder::new().with_access_key_id("key").with_secret_access_key("secret");
    ObjectArtifactStore::with_store(bucket_store(credentials, &bucket).unwrap())
}

#[tokio::test]
async fn silent_bucket_times_out() {
    // The socket accepts connections in its backlog, but no response ever arrives.
    let unresponsive_listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", unresponsive_listener.local_addr().unwrap());
    let store = in_bucket(&format!("s3://bucket/p?endpoint={endpoint}&region=x-1&path_style=true"));
    let before = Instant::now();
    assert!(matches!(store.ready().await, Err(ArtifactStoreError::Unavailable(_))));
    assert!((CONNECT_TIMEOUT..CALL_TIMEOUT).contains(&before.elapsed()), "{:?}", before.elapsed());
}

#[tokio::test]
async fn unreachable_bucket_is_unavailable() {
    let unused_address = fairway_testkit::unused_address().unwrap();
    let store = in_bucket(&format!("s3://bucket?endpoint=http://{unused_address}&region=x-1&path_style=true"));
    let before = Instant::now();
    assert!(matches!(store.put_if_absent(&path(), b"one".to_vec()).await, Err(ArtifactStoreError::Unavailable(_))));
    assert!(matches!(store.read(&path(), 7).await, Err(ArtifactStoreError::Unavailable(_))));
    assert!(before.elapsed() < CALL_TIMEOUT * 2, "{:?}", before.elapsed());
}

#[tokio::test]
async fn truncated_response_is_unavailable() {
    let endpoint = ScriptedEndpoint::start().await;
    let store = in_bucket(&format!("s3://bucket/p?endpoint={}&region=x-1&path_style=true", endpoint.url("")));
    let response = ScriptedResponse::status(200, "{\"a\":1}").header("ETag", "\"x\"");
    endpoint.respond_with(response.clone());
    assert!(store.read(&path(), 7).await.unwrap().unwrap().is_equal_to(b"{\"a\":1}"));
    for incomplete_response in [response.clone().truncated(), response.reset_before_end()] {
        endpoint.respond_with(incomplete_response);
        // The response announces the recorded length, but its body ends early.
        let read = store.read(&path(), 1024).await;
        assert!(matches!(read, Err(ArtifactStoreError::Unavailable(_))), "{read:?}");
    }
}

#[test]
fn uncreatable_directory_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(
        ObjectArtifactStore::open(&Location::Directory(file.join("below"))),
        Err(OpenError::Directory(_))
    ));
}
