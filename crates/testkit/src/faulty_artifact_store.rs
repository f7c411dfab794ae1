//! An artifact store with injected faults.

use async_trait::async_trait;
use fairway_domain::asset::{
    artifact_integrity::UnverifiedBytes,
    artifact_store::{ArtifactPath, ArtifactStore, ArtifactStoreError, ObjectListing, PutOutcome, StoredObject},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::watch;

/// The kind of fault that the store injects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArtifactFault {
    /// No fault.
    None,
    /// Every operation fails, and nothing is stored.
    Unavailable,
    /// Writes store the object but return an error.
    FailsAfterPut,
    /// Reads return the stored bytes with one additional byte.
    WrongBytes,
    /// Reads return the first half of the stored bytes.
    TruncatedRead,
    /// Reads find no object, as on an outdated replica.
    StaleRead,
    /// Reads return the bytes of another object.
    OtherObject,
    /// Writes store only the first half, and report success.
    TruncatedPut,
    /// Operations block until the fault changes.
    Blocks,
}

impl ArtifactFault {
    /// Whether the store responds at all.
    const fn is_responding(self) -> bool {
        !matches!(self, Self::Unavailable | Self::Blocks)
    }
}

/// Wraps a store and injects faults.
pub struct FaultyArtifactStore {
    inner: OnceLock<Arc<dyn ArtifactStore>>,
    fault: watch::Sender<ArtifactFault>,
    put_count: AtomicUsize,
    /// The bytes that callers stored, by path. Faulty reads are derived from them.
    stored: Mutex<HashMap<ArtifactPath, Vec<u8>>>,
}

impl FaultyArtifactStore {
    /// Creates a store that starts with this fault.
    #[must_use]
    pub fn new(fault: ArtifactFault) -> Arc<Self> {
        Arc::new(Self {
            inner: OnceLock::new(),
            fault: watch::Sender::new(fault),
            put_count: AtomicUsize::new(0),
            stored: Mutex::default(),
        })
    }

    /// Changes the fault. Blocked operations continue with the new fault.
    pub fn set_fault(&self, fault: ArtifactFault) {
        self.fault.send_replace(fault);
    }

    /// The number of writes that the store has received, including failed ones.
    #[must_use]
    pub fn put_count(&self) -> usize {
        self.put_count.load(Ordering::Relaxed)
    }

    /// Sets the wrapped store; later calls have no effect.
    pub(crate) fn wrap(&self, inner: Arc<dyn ArtifactStore>) {
        let _ = self.inner.set(inner);
    }

    fn inner(&self) -> Result<&Arc<dyn ArtifactStore>, ArtifactStoreError> {
        self.inner.get().ok_or_else(|| ArtifactStoreError::Unavailable("no wrapped store is set".into()))
    }

    fn stored(&self) -> MutexGuard<'_, HashMap<ArtifactPath, Vec<u8>>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the fault is [`ArtifactFault::Blocks`], and returns the fault that follows.
    async fn unblocked_fault(&self) -> ArtifactFault {
        let mut fault = self.fault.subscribe();
        let next_fault = fault.wait_for(|fault| *fault != ArtifactFault::Blocks).await;
        next_fault.map_or(ArtifactFault::Unavailable, |fault| *fault)
    }
}

/// A listing with injected faults.
struct FaultyListing<'a> {
    store: &'a FaultyArtifactStore,
    prefix: &'static str,
    inner: Option<Box<dyn ObjectListing + 'a>>,
}

#[async_trait]
impl ObjectListing for FaultyListing<'_> {
    async fn next(&mut self, limit: usize) -> Result<Vec<StoredObject>, ArtifactStoreError> {
        if !self.store.unblocked_fault().await.is_responding() {
            return Err(unavailable());
        }
        let listing = match self.inner.take() {
            Some(listing) => listing,
            None => self.store.inner()?.list(self.prefix),
        };
        self.inner.insert(listing).next(limit).await
    }
}

fn first_half(bytes: &[u8]) -> Vec<u8> {
    bytes.get(..bytes.len() / 2).unwrap_or_default().to_vec()
}

fn unavailable() -> ArtifactStoreError {
    ArtifactStoreError::Unavailable("injected fault".into())
}

#[async_trait]
impl ArtifactStore for FaultyArtifactStore {
    async fn put_if_absent(&self, path: &ArtifactPath, bytes: Vec<u8>) -> Result<PutOutcome, ArtifactStoreError> {
        self.put_count.fetch_add(1, Ordering::Relaxed);
        self.stored().entry(path.clone()).or_insert_with(|| bytes.clone());
        match self.unblocked_fault().await {
            ArtifactFault::TruncatedPut => self.inner()?.put_if_absent(path, first_half(&bytes)).await,
            ArtifactFault::FailsAfterPut => {
                self.inner()?.put_if_absent(path, bytes).await?;
                Err(unavailable())
            }
            ArtifactFault::Unavailable | ArtifactFault::Blocks => Err(unavailable()),
            ArtifactFault::None
            | ArtifactFault::WrongBytes
            | ArtifactFault::TruncatedRead
            | ArtifactFault::StaleRead
            | ArtifactFault::OtherObject => self.inner()?.put_if_absent(path, bytes).await,
        }
    }

    async fn read(
        &self,
        path: &ArtifactPath,
        expected_len: usize,
    ) -> Result<Option<UnverifiedBytes>, ArtifactStoreError> {
        let fault = self.unblocked_fault().await;
        let stored = || self.stored().get(path).cloned();
        let faulty_bytes = match fault {
            ArtifactFault::Unavailable | ArtifactFault::Blocks => return Err(unavailable()),
            ArtifactFault::None | ArtifactFault::FailsAfterPut | ArtifactFault::TruncatedPut => {
                return self.inner()?.read(path, expected_len).await;
            }
            ArtifactFault::StaleRead => None,
            ArtifactFault::WrongBytes => stored().map(|bytes| [bytes.as_slice(), b" "].concat()),
            ArtifactFault::TruncatedRead => stored().map(|bytes| first_half(&bytes)),
            ArtifactFault::OtherObject => {
                self.stored().iter().find(|(other, _)| *other != path).map(|(_, bytes)| bytes.clone())
            }
        };
        Ok(faulty_bytes.map(UnverifiedBytes::new))
    }

    fn list(&self, prefix: &'static str) -> Box<dyn ObjectListing + '_> {
        Box::new(FaultyListing { store: self, prefix, inner: None })
    }

    async fn remove(&self, path: &ArtifactPath) -> Result<(), ArtifactStoreError> {
        if !self.unblocked_fault().await.is_responding() {
            return Err(unavailable());
        }
        self.inner()?.remove(path).await
    }

    async fn ready(&self) -> Result<(), ArtifactStoreError> {
        if !self.unblocked_fault().await.is_responding() {
            return Err(unavailable());
        }
        self.inner()?.ready().await
    }
}
