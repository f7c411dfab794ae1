//! The archive of checkpoints. Each checkpoint is one object below the tenant's prefix. Its name is the number of
//! facts in the log that the checkpoint covers.
//!
//! A name has 20 digits, so that names sort by size. The first 14 and the first 17 digits of a name are the names
//! of the folders that contain the object. A directory therefore finds the newest checkpoint without listing all
//! names.

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

/// The first path segment of all checkpoint objects.
const PREFIX: &str = "checkpoints";
/// The maximum length of a checkpoint, in bytes. A longer object is not a checkpoint of this archive.
const MAX_BYTES: u64 = 64 << 10;

/// The number of leading digits of an object's name that form the name of each folder, outermost folder first.
const FOLDER_DIGITS: [usize; 2] = [14, 17];

/// Checkpoints in a directory or a bucket. A bucket with object lock prevents every account from changing or
/// deleting them.
pub struct ObjectCheckpointArchive {
    store: Arc<dyn ObjectStore>,
    search: Search,
}

/// The method that finds the newest checkpoint.
#[derive(Clone, Copy)]
enum Search {
    /// One list request that starts at a name. A bucket serves it without reading earlier names.
    FromName,
    /// Descent into the last folder of each level, because a directory cannot be listed from a given name.
    LastFolder,
}

impl ObjectCheckpointArchive {
    /// Sets up the archive without accessing a bucket. A missing directory is created, readable only by its owner.
    ///
    /// # Errors
    /// When the directory cannot be created, or the bucket's settings (including the `AWS_*` variables) are
    /// invalid.
    pub fn open(location: &Location) -> Result<Self, OpenError> {
        let search = match location {
            Location::Directory(_) => Search::LastFolder,
            Location::Bucket(_) => Search::FromName,
        };
        Ok(Self { store: open_store(location)?, search })
    }

    /// Creates the archive over an existing bucket store.
    #[cfg(test)]
    pub(crate) const fn in_bucket(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, search: Search::FromName }
    }

    async fn read(&self, path: &Path) -> Result<Vec<u8>, ArchiveError> {
        let object = self.store.get(path).await.map_err(unavailable)?;
        if object.meta.size > MAX_BYTES {
            return Err(unavailable(io::Error::other("an archived checkpoint is too long")));
        }
        Ok(object.bytes().await.map_err(unavailable)?.to_vec())
    }

    async fn list_tenants(&self) -> Result<Vec<TenantId>, ArchiveError> {
        let listing = self.store.list_with_delimiter(Some(&Path::from(PREFIX))).await.map_err(unavailable)?;
        let names = listing.common_prefixes.iter().filter_map(|prefix| prefix.filename()?.parse::<Uuid>().ok());
        let mut tenants: Vec<TenantId> = names.map(TenantId::from).collect();
        tenants.sort_unstable();
        Ok(tenants)
    }

    async fn find_newest(&self, tenant: TenantId, size: u64) -> Result<Option<Vec<u8>>, ArchiveError> {
        let newest = match self.search {
            Search::FromName => self.list_from(tenant, size).await?,
            Search::LastFolder => self.last_of_folders(tenant).await?,
        };
        match newest {
            Some(newest) if newest >= size => self.read(&object_path(tenant, newest)).await.map(Some),
            Some(_) | None => Ok(None),
        }
    }

    /// Finds the largest archived size that is at least `size`.
    async fn list_from(&self, tenant: TenantId, size: u64) -> Result<Option<u64>, ArchiveError> {
        let prefix = tenant_path(tenant);
        // `list_with_offset` excludes its offset, so the offset is one below `size`.
        let listing = match size.checked_sub(1) {
            None => self.store.list(Some(&prefix)),
            Some(offset) => self.store.list_with_offset(Some(&prefix), &object_path(tenant, offset)),
        };
        let newest = listing.try_fold(None, |newest: Option<u64>, object| async move {
            Ok(newest.max(size_of(tenant, &object.location)))
        });
        newest.await.map_err(unavailable)
    }

    /// Finds the largest archived size. A crash can leave a folder without a checkpoint, so the search skips such
    /// folders.
    async fn last_of_folders(&self, tenant: TenantId) -> Result<Option<u64>, ArchiveError> {
        let mut unsearched = vec![tenant_path(tenant)];
        while let Some(folder) = unsearched.pop() {
            let listing = self.store.list_with_delimiter(Some(&folder)).await.map_err(unavailable)?;
            let newest = listing.objects.iter().filter_map(|object| size_of(tenant, &object.location)).max();
            if newest.is_some() {
                return Ok(newest);
            }
            let is_folder =
                |path: &Path| path.filename().is_some_and(|name| name.bytes().all(|digit| digit.is_ascii_digit()));
            let mut folders: Vec<Path> = listing.common_prefixes.into_iter().filter(is_folder).collect();
            folders.sort_unstable();
            unsearched.append(&mut folders);
        }
        Ok(None)
    }
}

fn tenant_path(tenant: TenantId) -> Path {
    Path::from_iter([PREFIX, &tenant.to_string()])
}

fn object_path(tenant: TenantId, size: u64) -> Path {
    let name = format!("{size:020}");
    let folders = FOLDER_DIGITS.iter().filter_map(|digits| name.get(..*digits));
    folders.chain([name.as_str()]).fold(tenant_path(tenant), |path, part| path.join(part))
}

/// Parses the size from a checkpoint's path; `None` for an object that is not a checkpoint of this tenant.
fn size_of(tenant: TenantId, path: &Path) -> Option<u64> {
    let size = path.filename()?.parse().ok()?;
    (object_path(tenant, size) == *path).then_some(size)
}

#[async_trait]
impl CheckpointArchive for ObjectCheckpointArchive {
    async fn store_if_absent(&self, tenant: TenantId, size: u64, note: &str) -> Result<Vec<u8>, ArchiveError> {
        let path = object_path(tenant, size);
        let store_checkpoint = async {
            match self.store.put_opts(&path, note.to_owned().into(), PutOptions::from(PutMode::Create)).await {
                Ok(_) => Ok(note.as_bytes().to_vec()),
                Err(StoreFailure::AlreadyExists { .. }) => self.read(&path).await,
                Err(failure) => Err(unavailable(failure)),
            }
        };
        with_timeout(CALL_TIMEOUT, store_checkpoint).await
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
