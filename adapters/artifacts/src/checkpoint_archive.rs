//! The archive of checkpoints: one object for each, named by the size of the log, below the tenant's prefix.

use crate::{CALL_TIMEOUT, Location, OpenError, PAGE_TIMEOUT, open_store};
use async_trait::async_trait;
use fairway_domain::{
    id::TenantId,
    transparency_log::{ArchiveError, CheckpointArchive},
};
use futures_util::TryStreamExt as _;
use object_store::{Error as StoreFailure, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, path::Path};
use std::{error::Error, io, sync::Arc, time::Duration};
use tokio::time::timeout;
use uuid::Uuid;

/// The prefix of all checkpoints.
const PREFIX: &str = "checkpoints";
/// The maximum length of a checkpoint, in bytes. Longer objects are foreign.
const MAX_BYTES: u64 = 64 << 10;

/// Checkpoints in a directory or a bucket. A bucket with object lock keeps them from everybody.
pub struct CheckpointObjects {
    store: Arc<dyn ObjectStore>,
}

impl CheckpointObjects {
    /// Sets up the archive without a call to it. A missing directory is created for the owner only.
    ///
    /// # Errors
    /// When the directory cannot be created, or the bucket's settings (with the `AWS_*` variables) are invalid.
    pub fn open(location: &Location) -> Result<Self, OpenError> {
        Ok(Self { store: open_store(location)? })
    }

    async fn read(&self, path: &Path) -> Result<Vec<u8>, ArchiveError> {
        let found = self.store.get(path).await.map_err(unavailable)?;
        if found.meta.size > MAX_BYTES {
            return Err(unavailable(io::Error::other("an archived checkpoint is too long")));
        }
        Ok(found.bytes().await.map_err(unavailable)?.to_vec())
    }

    async fn list_tenants(&self) -> Result<Vec<TenantId>, ArchiveError> {
        let listed = self.store.list_with_delimiter(Some(&Path::from(PREFIX))).await.map_err(unavailable)?;
        let names = listed.common_prefixes.iter().filter_map(|prefix| prefix.filename()?.parse::<Uuid>().ok());
        let mut tenants: Vec<TenantId> = names.map(TenantId::from).collect();
        tenants.sort_unstable();
        Ok(tenants)
    }

    async fn find_newest(&self, tenant: TenantId, size: u64) -> Result<Option<Vec<u8>>, ArchiveError> {
        let prefix = Path::from_iter([PREFIX, &tenant.to_string()]);
        // The offset is exclusive.
        let listed = match size.checked_sub(1) {
            None => self.store.list(Some(&prefix)),
            Some(before) => self.store.list_with_offset(Some(&prefix), &object_path(tenant, before)),
        };
        let newest = listed
            .try_fold(None, |newest: Option<Path>, object| async move {
                let is_checkpoint = object.location.filename().is_some_and(is_object_name);
                Ok(newest.max(is_checkpoint.then_some(object.location)))
            })
            .await
            .map_err(unavailable)?;
        match newest {
            Some(path) => self.read(&path).await.map(Some),
            None => Ok(None),
        }
    }
}

/// The path of a checkpoint. Names have equal lengths, so that their order is that of the sizes.
fn object_path(tenant: TenantId, size: u64) -> Path {
    Path::from_iter([PREFIX, &tenant.to_string(), &format!("{size:020}")])
}

fn is_object_name(name: &str) -> bool {
    name.len() == 20 && name.bytes().all(|digit| digit.is_ascii_digit())
}

#[async_trait]
impl CheckpointArchive for CheckpointObjects {
    async fn keep(&self, tenant: TenantId, size: u64, note: &str) -> Result<Vec<u8>, ArchiveError> {
        let path = object_path(tenant, size);
        let kept = async {
            match self.store.put_opts(&path, note.to_owned().into(), PutOptions::from(PutMode::Create)).await {
                Ok(_) => Ok(note.as_bytes().to_vec()),
                Err(StoreFailure::AlreadyExists { .. }) => self.read(&path).await,
                Err(failure) => Err(unavailable(failure)),
            }
        };
        with_timeout(CALL_TIMEOUT, kept).await
    }

    async fn newest_from(&self, tenant: TenantId, size: u64) -> Result<Option<Vec<u8>>, ArchiveError> {
        with_timeout(PAGE_TIMEOUT, self.find_newest(tenant, size)).await
    }

    async fn tenants(&self) -> Result<Vec<TenantId>, ArchiveError> {
        with_timeout(PAGE_TIMEOUT, self.list_tenants()).await
    }
}

async fn with_timeout<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, ArchiveError>>,
) -> Result<T, ArchiveError> {
    timeout(limit, call).await.unwrap_or_else(|elapsed| Err(unavailable(elapsed)))
}

fn unavailable(source: impl Error + Send + Sync + 'static) -> ArchiveError {
    ArchiveError::Unavailable(Box::new(source))
}
