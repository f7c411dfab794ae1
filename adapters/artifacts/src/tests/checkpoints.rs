use crate::{Location, ObjectCheckpointArchive, bucket_store};
use fairway_domain::{id::TenantId, transparency_log::CheckpointArchive};
use fairway_testkit::S3Server;
use object_store::aws::AmazonS3Builder;
use uuid::Uuid;

fn tenant(number: u128) -> TenantId {
    Uuid::from_u128(number).into()
}

#[tokio::test]
async fn keeps_the_first_checkpoint_of_a_size_and_finds_the_newest() {
    let directory = tempfile::tempdir().unwrap();
    let archive = ObjectCheckpointArchive::open(&Location::Directory(directory.path().join("deep/facts"))).unwrap();
    assert_eq!(archive.newest_from(tenant(1), 0).await.unwrap(), None);
    for (size, note) in [(0, "zero"), (9, "nine"), (10, "ten"), (1_000, "thousand")] {
        assert_eq!(archive.store_if_absent(tenant(1), size, note).await.unwrap(), note.as_bytes());
    }
    assert_eq!(archive.store_if_absent(tenant(1), 10, "other").await.unwrap(), b"ten");
    assert_eq!(archive.store_if_absent(tenant(2), 5_000, "of another tenant").await.unwrap(), b"of another tenant");
    // A crash during a write can leave an empty folder.
    let folder = directory.path().join("deep/facts/checkpoints").join(tenant(1).to_string());
    std::fs::create_dir_all(folder.join("00000000000001/00000000000001000")).unwrap();
    for (min_size, newest) in [(0, Some("thousand")), (10, Some("thousand")), (1_000, Some("thousand")), (1_001, None)]
    {
        let found = archive.newest_from(tenant(1), min_size).await.unwrap();
        assert_eq!(found.as_deref(), newest.map(str::as_bytes), "from {min_size}");
    }
}

#[tokio::test]
async fn lists_the_tenants_with_checkpoints() {
    let directory = tempfile::tempdir().unwrap();
    let archive = ObjectCheckpointArchive::open(&Location::Directory(directory.path().to_owned())).unwrap();
    assert_eq!(archive.tenants().await.unwrap(), []);
    for number in [3, 1, 2] {
        archive.store_if_absent(tenant(number), 1, "one").await.unwrap();
    }
    std::fs::create_dir_all(directory.path().join("checkpoints/notes")).unwrap();
    std::fs::write(directory.path().join("checkpoints/notes/a.txt"), "x").unwrap();
    assert_eq!(archive.tenants().await.unwrap(), [tenant(1), tenant(2), tenant(3)]);
}

#[tokio::test]
async fn ignores_foreign_objects_and_refuses_long_ones() {
    let directory = tempfile::tempdir().unwrap();
    let archive = ObjectCheckpointArchive::open(&Location::Directory(directory.path().to_owned())).unwrap();
    archive.store_if_absent(tenant(1), 7, "seven").await.unwrap();
    let folder = directory.path().join("checkpoints").join(tenant(1).to_string());
    std::fs::write(folder.join("zz-notes.txt"), "x").unwrap();
    assert_eq!(archive.newest_from(tenant(1), 0).await.unwrap().as_deref(), Some(b"seven".as_slice()));
    std::fs::write(folder.join("00000000000000000009"), "in no folder").unwrap();
    assert_eq!(archive.newest_from(tenant(1), 0).await.unwrap().as_deref(), Some(b"seven".as_slice()));
    let folder = folder.join("00000000000000/00000000000000000");
    std::fs::write(folder.join("00000000000000000008"), vec![b'x'; 70_000]).unwrap();
    assert!(archive.newest_from(tenant(1), 0).await.is_err());
}

/// Archives checkpoints in several folders, and searches for the newest checkpoint after each of them.
async fn assert_newest_is_found(archive: &ObjectCheckpointArchive) {
    let mut newest = 0;
    for size in [999, 1_000, 999_999, 1_000_000, 1_000_001, 20_000_000_000] {
        archive.store_if_absent(tenant(1), size, &size.to_string()).await.unwrap();
        archive.store_if_absent(tenant(2), size + 1, "of another tenant").await.unwrap();
        for min_size in [0, newest, size] {
            let found = archive.newest_from(tenant(1), min_size).await.unwrap();
            assert_eq!(found, Some(size.to_string().into_bytes()), "from {min_size}");
        }
        assert_eq!(archive.newest_from(tenant(1), size + 1).await.unwrap(), None);
        newest = size;
    }
}

#[tokio::test]
async fn newest_checkpoint_is_found_across_folders() {
    let directory = tempfile::tempdir().unwrap();
    let archive = ObjectCheckpointArchive::open(&Location::Directory(directory.path().to_owned())).unwrap();
    assert_newest_is_found(&archive).await;
}

#[tokio::test]
async fn newest_checkpoint_of_a_bucket_is_found() {
    let server = S3Server::start().unwrap();
    let location = Location::parse(&server.create_bucket("checkpoints").await.unwrap()).unwrap();
    let Location::Bucket(bucket) = location else { panic!("no bucket") };
    let credentials = AmazonS3Builder::new().with_access_key_id("key").with_secret_access_key("secret");
    assert_newest_is_found(&ObjectCheckpointArchive::in_bucket(bucket_store(credentials, &bucket).unwrap())).await;
}
