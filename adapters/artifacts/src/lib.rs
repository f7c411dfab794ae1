//! The artifact store: immutable objects in files or in an S3 bucket.
//!
//! Every call has a timeout, so that an unresponsive store fails requests instead of blocking them. Every read is
//! limited to the length that the database recorded, so that an overlong object does not exhaust memory.
//!
//! An interrupted put may have succeeded. Repeating it is safe, because a put of equal bytes at an existing path
//! succeeds.

mod bounded_read;
mod checkpoint_archive;
mod location;

use async_trait::async_trait;
use bytes::Bytes;
pub use checkpoint_archive::ObjectCheckpointArchive;
use fairway_domain::{
    asset::{
        artifact_integrity::UnverifiedBytes,
        artifact_store::{ArtifactPath, ArtifactStore, ArtifactStoreError, ObjectListing, PutOutcome, StoredObject},
    },
    time::Timestamp,
};
use futures_util::{
    StreamExt as _,
    future::try_join_all,
    stream::{BoxStream, Fuse},
};
pub use location::{Location, LocationRefusal, S3Location};
use object_store::{
    ClientOptions, Error as StoreFailure, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions,
    RetryConfig,
    aws::{AmazonS3Builder, S3ConditionalPut},
    local::LocalFileSystem,
    path::Path,
    prefix::PrefixStore,
};
use std::{
    error::Error,
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt as _,
    path::Path as FilePath,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use time::OffsetDateTime;
use tokio::time::timeout;
use tracing::{Instrument as _, Span};

/// Timeout of a connection to the bucket.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of one call, including its retries.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of one page of a listing, which may need several calls.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of retries within a call.
const MAX_RETRIES: usize = 2;
/// Name of the marker object whose presence shows that a store is ready. Each prefix has a marker, because a volume
/// may be mounted at only one prefix.
const MARKER: &str = ".fairway-artifacts";
const MARKED_PREFIXES: [&str; 2] = [ArtifactPath::VERSION_PREFIX, ArtifactPath::EVIDENCE_PREFIX];
const MARKER_TEXT: &[u8] = b"Fairway keeps its artifacts here.\n";

/// The artifact store, in a directory or a bucket.
pub struct ObjectArtifactStore {
    store: Arc<dyn ObjectStore>,
    /// Whether this process has seen the markers. If they are missing later, the volume or bucket was removed, and
    /// the store reports itself as unavailable instead of using the empty replacement.
    has_seen_markers: AtomicBool,
}

/// Failure to set up the store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be created or used.
    #[error("the artifact directory cannot be used")]
    Directory(#[source] io::Error),
    /// The storage library refused the settings.
    #[error("the artifact store cannot be set up")]
    Store(#[source] StoreFailure),
}

impl ObjectArtifactStore {
    /// Sets up the store without accessing a bucket. A missing directory is created, readable only by its owner.
    ///
    /// # Errors
    /// When the directory cannot be created, or the bucket's settings (including the `AWS_*` variables) are
    /// invalid.
    pub fn open(location: &Location) -> Result<Self, OpenError> {
        Ok(Self::with_store(open_store(location)?))
    }

    const fn with_store(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, has_seen_markers: AtomicBool::new(false) }
    }

    async fn put(&self, path: &Path, bytes: Bytes) -> Result<PutOutcome, ArtifactStoreError> {
        let create = PutOptions::from(PutMode::Create);
        match self.store.put_opts(path, bytes.clone().into(), create).await {
            Ok(_) => Ok(PutOutcome::Created),
            Err(StoreFailure::AlreadyExists { .. }) => match self.get(path, bytes.len()).await? {
                Some(stored) if stored.is_equal_to(&bytes) => Ok(PutOutcome::AlreadyExists),
                Some(_) => Err(ArtifactStoreError::Conflict),
                // Another writer's put of this object is unfinished or was rolled back, so the caller retries.
                None => Err(unavailable(io::Error::other("an object was reported but cannot be read"))),
            },
            Err(failure) => Err(unavailable(failure)),
        }
    }

    async fn get(&self, path: &Path, expected_len: usize) -> Result<Option<UnverifiedBytes>, ArtifactStoreError> {
        match self.store.get(path).await {
            Ok(object) => bounded_read::collect(object, expected_len).await.map(Some).map_err(unavailable),
            Err(StoreFailure::NotFound { .. }) => Ok(None),
            Err(failure) => Err(unavailable(failure)),
        }
    }

    async fn check_markers(&self) -> Result<(), ArtifactStoreError> {
        try_join_all(MARKED_PREFIXES.map(|prefix| self.check_marker(prefix))).await?;
        self.has_seen_markers.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn check_marker(&self, prefix: &str) -> Result<(), ArtifactStoreError> {
        let marker = marker_in(prefix);
        if self.get(&marker, MARKER_TEXT.len()).await?.is_none() {
            if self.has_seen_markers.load(Ordering::Relaxed) {
                return Err(unavailable(io::Error::other("a marker of the store is missing")));
            }
            self.put(&marker, Bytes::from_static(MARKER_TEXT)).await?;
        }
        Ok(())
    }
}

fn marker_in(prefix: &str) -> Path {
    Path::from_iter([prefix, MARKER])
}

#[async_trait]
impl ArtifactStore for ObjectArtifactStore {
    async fn put_if_absent(&self, path: &ArtifactPath, bytes: Vec<u8>) -> Result<PutOutcome, ArtifactStoreError> {
        let path = Path::parse(path.as_str()).map_err(unavailable)?;
        with_timeout(CALL_TIMEOUT, self.put(&path, bytes.into())).instrument(span("artifact put")).await
    }

    async fn read(
        &self,
        path: &ArtifactPath,
        expected_len: usize,
    ) -> Result<Option<UnverifiedBytes>, ArtifactStoreError> {
        let path = Path::parse(path.as_str()).map_err(unavailable)?;
        with_timeout(CALL_TIMEOUT, self.get(&path, expected_len)).instrument(span("artifact get")).await
    }

    fn list(&self, prefix: &'static str) -> Box<dyn ObjectListing + '_> {
        Box::new(Listing { objects: self.store.list(Some(&Path::from(prefix))).fuse() })
    }

    async fn remove(&self, path: &ArtifactPath) -> Result<(), ArtifactStoreError> {
        let path = Path::parse(path.as_str()).map_err(unavailable)?;
        let delete = async {
            match self.store.delete(&path).await {
                Ok(()) | Err(StoreFailure::NotFound { .. }) => Ok(()),
                Err(failure) => Err(unavailable(failure)),
            }
        };
        with_timeout(CALL_TIMEOUT, delete).instrument(span("artifact delete")).await
    }

    async fn ready(&self) -> Result<(), ArtifactStoreError> {
        with_timeout(CONNECT_TIMEOUT, self.check_markers()).await
    }
}

/// A listing in progress. The storage library requests the pages of a bucket on demand.
struct Listing {
    objects: Fuse<BoxStream<'static, object_store::Result<ObjectMeta>>>,
}

#[async_trait]
impl ObjectListing for Listing {
    async fn next(&mut self, limit: usize) -> Result<Vec<StoredObject>, ArtifactStoreError> {
        let page = async {
            let mut objects = Vec::new();
            while objects.len() < limit
                && let Some(object) = self.objects.next().await
            {
                let object = object.map_err(unavailable)?;
                if object.location.filename() == Some(MARKER) {
                    continue;
                }
                let put_at = OffsetDateTime::from_unix_timestamp(object.last_modified.timestamp());
                let put_at = Timestamp::new(put_at.map_err(unavailable)?);
                objects.push(StoredObject { path: object.location.to_string(), put_at });
            }
            Ok(objects)
        };
        with_timeout(PAGE_TIMEOUT, page).await
    }
}

/// Creates the client of a store without accessing a bucket.
fn open_store(location: &Location) -> Result<Arc<dyn ObjectStore>, OpenError> {
    match location {
        Location::Directory(directory) => Ok(Arc::new(file_store(directory)?)),
        Location::Bucket(bucket) => bucket_store(AmazonS3Builder::from_env(), bucket),
    }
}

/// Creates a store of files that survive a power loss: the library syncs each file and its directory.
fn file_store(directory: &FilePath) -> Result<LocalFileSystem, OpenError> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(OpenError::Directory)?;
    let store = LocalFileSystem::new_with_prefix(directory).map_err(OpenError::Store)?;
    // Automatic cleanup: the removal of an artifact also removes directories that it leaves empty.
    Ok(store.with_fsync(true).with_automatic_cleanup(true))
}

/// Creates the client of a bucket. `credentials` is a builder that has already read the `AWS_*` variables.
fn bucket_store(credentials: AmazonS3Builder, bucket: &S3Location) -> Result<Arc<dyn ObjectStore>, OpenError> {
    let retry = RetryConfig { max_retries: MAX_RETRIES, retry_timeout: CALL_TIMEOUT, ..RetryConfig::default() };
    let client = ClientOptions::new().with_connect_timeout(CONNECT_TIMEOUT).with_timeout(CALL_TIMEOUT);
    let mut builder = credentials
        .with_client_options(client)
        .with_bucket_name(&bucket.bucket)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_virtual_hosted_style_request(!bucket.path_style)
        .with_retry(retry);
    if let Some(region) = &bucket.region {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &bucket.endpoint {
        builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
    }
    let store = builder.build().map_err(OpenError::Store)?;
    if bucket.prefix.is_empty() {
        return Ok(Arc::new(store));
    }
    let prefix = Path::parse(&bucket.prefix).map_err(|failure| OpenError::Store(failure.into()))?;
    Ok(Arc::new(PrefixStore::new(store, prefix)))
}

async fn with_timeout<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, ArtifactStoreError>>,
) -> Result<T, ArtifactStoreError> {
    timeout(limit, call).await.unwrap_or_else(|elapsed| Err(unavailable(elapsed)))
}

/// The trace span of a store call. It omits the path, because the span around it already names the resource.
fn span(call: &'static str) -> Span {
    tracing::debug_span!("artifact", otel.name = call, otel.kind = "client")
}

fn unavailable(source: impl Error + Send + Sync + 'static) -> ArtifactStoreError {
    ArtifactStoreError::Unavailable(Box::new(source))
}

#[cfg(test)]
mod tests;
