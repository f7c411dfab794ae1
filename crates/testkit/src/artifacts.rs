//! An artifact store that fails when the test says so.

use async_trait::async_trait;
use fairway_domain::asset::ports::{ArtifactError, ArtifactPath, ArtifactStore, ArtifactWalk, Put, StoredObject};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::watch;

/// What is wrong with the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArtifactFault {
    /// Nothing.
    None,
    /// It does not answer anything, and stores nothing.
    Unavailable,
    /// It stores, and then says that it could not.
    FailsAfterPut,
    /// It answers reads with other bytes than were stored.
    WrongBytes,
    /// It answers nothing until the fault changes.
    Holds,
}

/// Stands before a real store and gets in its way.
pub struct FaultyArtifacts {
    inner: OnceLock<Arc<dyn ArtifactStore>>,
    fault: watch::Sender<ArtifactFault>,
    puts: AtomicUsize,
}

impl FaultyArtifacts {
    /// A store that begins with this fault.
    #[must_use]
    pub fn new(fault: ArtifactFault) -> Arc<Self> {
        Arc::new(Self { inner: OnceLock::new(), fault: watch::Sender::new(fault), puts: AtomicUsize::new(0) })
    }

    /// Goes on with this fault; whoever is held gets it too.
    pub fn becomes(&self, fault: ArtifactFault) {
        self.fault.send_replace(fault);
    }

    /// How often something was to be stored.
    #[must_use]
    pub fn puts(&self) -> usize {
        self.puts.load(Ordering::Relaxed)
    }

    /// The store that really keeps the bytes; the first one stays.
    pub(crate) fn stand_before(&self, inner: Arc<dyn ArtifactStore>) {
        let _ = self.inner.set(inner);
    }

    fn inner(&self) -> Result<&Arc<dyn ArtifactStore>, ArtifactError> {
        self.inner.get().ok_or_else(|| ArtifactError::Unavailable("no store stands behind the faults".into()))
    }

    /// The fault, once it is not to wait any longer.
    async fn settled(&self) -> ArtifactFault {
        let mut fault = self.fault.subscribe();
        let settled = fault.wait_for(|fault| *fault != ArtifactFault::Holds).await;
        settled.map_or(ArtifactFault::Unavailable, |fault| *fault)
    }
}

/// A walk that is in the way when the test says so.
struct FaultyWalk<'a> {
    store: &'a FaultyArtifacts,
    prefix: &'static str,
    inner: Option<Box<dyn ArtifactWalk + 'a>>,
}

#[async_trait]
impl ArtifactWalk for FaultyWalk<'_> {
    async fn next(&mut self, most: usize) -> Result<Vec<StoredObject>, ArtifactError> {
        match self.store.settled().await {
            ArtifactFault::Unavailable | ArtifactFault::Holds => return Err(away()),
            ArtifactFault::None | ArtifactFault::FailsAfterPut | ArtifactFault::WrongBytes => {}
        }
        let walk = match self.inner.take() {
            Some(walk) => walk,
            None => self.store.inner()?.walk(self.prefix),
        };
        self.inner.insert(walk).next(most).await
    }
}

fn away() -> ArtifactError {
    ArtifactError::Unavailable("the test says so".into())
}

#[async_trait]
impl ArtifactStore for FaultyArtifacts {
    async fn put_if_absent(&self, path: &ArtifactPath, bytes: Vec<u8>) -> Result<Put, ArtifactError> {
        self.puts.fetch_add(1, Ordering::Relaxed);
        match self.settled().await {
            ArtifactFault::None | ArtifactFault::WrongBytes => self.inner()?.put_if_absent(path, bytes).await,
            ArtifactFault::FailsAfterPut => {
                self.inner()?.put_if_absent(path, bytes).await?;
                Err(away())
            }
            ArtifactFault::Unavailable | ArtifactFault::Holds => Err(away()),
        }
    }

    async fn read(&self, path: &ArtifactPath) -> Result<Option<Vec<u8>>, ArtifactError> {
        match self.settled().await {
            ArtifactFault::None | ArtifactFault::FailsAfterPut => self.inner()?.read(path).await,
            ArtifactFault::WrongBytes => {
                let stored = self.inner()?.read(path).await?;
                Ok(stored.map(|mut bytes| {
                    bytes.push(b' ');
                    bytes
                }))
            }
            ArtifactFault::Unavailable | ArtifactFault::Holds => Err(away()),
        }
    }

    fn walk(&self, prefix: &'static str) -> Box<dyn ArtifactWalk + '_> {
        Box::new(FaultyWalk { store: self, prefix, inner: None })
    }

    async fn remove(&self, path: &ArtifactPath) -> Result<(), ArtifactError> {
        match self.settled().await {
            ArtifactFault::None | ArtifactFault::FailsAfterPut | ArtifactFault::WrongBytes => {
                self.inner()?.remove(path).await
            }
            ArtifactFault::Unavailable | ArtifactFault::Holds => Err(away()),
        }
    }

    async fn ready(&self) -> Result<(), ArtifactError> {
        match self.settled().await {
            ArtifactFault::None | ArtifactFault::FailsAfterPut | ArtifactFault::WrongBytes => {
                self.inner()?.ready().await
            }
            ArtifactFault::Unavailable | ArtifactFault::Holds => Err(away()),
        }
    }
}
