//! Tests of the builder with in-memory stores that fail at a chosen write.

mod concurrency;
mod witnesses;

use super::{
    Progress, TreeBuilder,
    log_step::{BuildError, LogStepper},
};
use crate::transparency_log::{
    LogAccessError,
    verified_tiles::{VerifiedTileLoader, new_tile_cache},
    witnesses::Witnesses,
};
use async_trait::async_trait;
use fairway_domain::{
    asset::{
        artifact_integrity::UnverifiedBytes,
        artifact_store::{ArtifactPath, ArtifactStore, ArtifactStoreError, ObjectListing, PutOutcome},
    },
    id::{FactId, TenantId},
    store::{StoreError, StoreFault},
    tenant::TenantScope,
    transparency_log::{
        ArchiveError, Checkpoint, CheckpointArchive, CheckpointSigner, LogOriginBase, LoggedFact, NoteSigningKey,
        PendingLog, SignedNote, SigningError, StoredEntry, TreeAdvance, TreeEdge, TreeHash, TreeState, TreeStore,
        VerifierKey, Witness,
    },
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard},
};
use uuid::Uuid;

/// Whether a failing write takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    None,
    Written,
}

#[derive(Default)]
struct State {
    facts: Vec<TreeHash>,
    tree: Option<TreeState>,
    signed_by: String,
    tiles: HashMap<String, Vec<u8>>,
    archive: BTreeMap<u64, Vec<u8>>,
    /// The number of the next write that fails, counted from now, and the effect of this write.
    fails_in: Option<(usize, Effect)>,
    writes: usize,
    seeds: Vec<u8>,
}

impl State {
    /// Applies a write, or fails. After a failure, all writes fail until the test resets it, as if the process had
    /// crashed.
    fn write<T>(&mut self, apply: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.writes += 1;
        match self.fails_in {
            Some((0, _)) => None,
            Some((1, effect)) => {
                self.fails_in = Some((0, effect));
                if effect == Effect::Written {
                    apply(self);
                }
                None
            }
            Some((remaining, effect)) => {
                self.fails_in = Some((remaining - 1, effect));
                Some(apply(self))
            }
            None => Some(apply(self)),
        }
    }
}

#[derive(Clone, Default)]
struct TestStores(Arc<Mutex<State>>);

fn tenant() -> TenantId {
    Uuid::from_u128(7).into()
}

fn origin() -> LogOriginBase {
    LogOriginBase::parse("logs.example").unwrap()
}

fn leaf(number: usize) -> TreeHash {
    TreeHash::new(fairway_domain::audit::leaf_hash(&number.to_be_bytes()))
}

fn root(facts: &[TreeHash]) -> TreeHash {
    let mut edge = TreeEdge::default();
    for fact in facts {
        drop(edge.append(*fact));
    }
    edge.root()
}

impl TreeBuilder {
    /// Executes one step in each log whose tree lags.
    async fn build_once(&mut self) -> Result<Progress, LogAccessError> {
        let mut progress = self.start_pass().await?;
        while let Some(ended) = self.join_step().await {
            progress = progress.max(ended);
        }
        Ok(progress)
    }
}

impl TestStores {
    fn with_facts(count: usize) -> Self {
        let stores = Self::default();
        stores.state().seeds = vec![1];
        stores.add_facts(count);
        stores
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn add_facts(&self, count: usize) {
        let facts = &mut self.state().facts;
        let start = facts.len();
        facts.extend((start..start + count).map(leaf));
    }

    fn builder(&self) -> TreeBuilder {
        self.builder_with(&[])
    }

    fn builder_with(&self, witnesses: &[Arc<dyn Witness>]) -> TreeBuilder {
        TreeBuilder::with_stepper(self.stepper_with(witnesses))
    }

    fn stepper_with(&self, witnesses: &[Arc<dyn Witness>]) -> LogStepper {
        LogStepper {
            tree_store: Arc::new(self.clone()),
            artifact_store: Arc::new(self.clone()),
            archive: Arc::new(self.clone()),
            signer: Arc::new(self.clone()),
            origin: origin(),
            witnesses: Witnesses::new(witnesses, VerifiedTileLoader::new(Arc::new(self.clone()), new_tile_cache())),
            cosign_again_at: Mutex::default(),
        }
    }

    /// Builds until no backlog remains.
    async fn build(&self) {
        let mut builder = self.builder();
        while builder.build_once().await.unwrap() == Progress::Backlog {}
    }

    fn published(&self) -> SignedNote {
        let note = self.state().tree.clone().unwrap().checkpoint.unwrap();
        SignedNote::parse(note.as_bytes()).unwrap()
    }

    /// Asserts that each published checkpoint is a prefix of the log, and that the last one covers the whole log.
    fn assert_one_history(&self) {
        let state = self.state();
        for (size, note) in &state.archive {
            let note = SignedNote::parse(note).unwrap();
            let checkpoint = Checkpoint::parse(note.text()).unwrap();
            assert_eq!(checkpoint.size, *size);
            assert_eq!(checkpoint.root, root(&state.facts[..usize::try_from(*size).unwrap()]), "at {size}");
        }
        let tree = state.tree.clone().unwrap();
        let checkpoint = tree.parse_checkpoint().unwrap();
        assert_eq!(usize::try_from(checkpoint.size).unwrap(), state.facts.len());
        assert_eq!(checkpoint.root, tree.edge.root());
        assert!(state.archive.contains_key(&checkpoint.size), "a published checkpoint is archived");
        let mut model = TreeEdge::default();
        let tiles: Vec<_> = state.facts.iter().flat_map(|fact| model.append(*fact)).collect();
        assert_eq!(state.tiles.len(), tiles.len());
        for tile in tiles {
            let path = ArtifactPath::of_log_tile(tenant(), tile.coordinate);
            assert_eq!(state.tiles.get(path.as_str()), Some(&tile.to_bytes()), "{path}");
        }
    }
}

fn unavailable() -> StoreError {
    StoreError { source: "stopped".into(), fault: StoreFault::Unavailable }
}

#[async_trait]
impl TreeStore for TestStores {
    async fn pending_logs(
        &self,
        signed_by: &str,
        after: Option<TenantId>,
        _: u32,
    ) -> Result<Vec<PendingLog>, StoreError> {
        tokio::task::yield_now().await;
        let log = self.find_log(TenantScope::for_background_task(tenant())).await?;
        let is_signed = self.state().signed_by == signed_by;
        let is_pending = |log: &PendingLog| log.log_size > log.tree.edge.size() || !is_signed;
        Ok(log.filter(|log| after.is_none() && is_pending(log)).into_iter().collect())
    }

    async fn find_log(&self, _: TenantScope) -> Result<Option<PendingLog>, StoreError> {
        tokio::task::yield_now().await;
        let state = self.state();
        let log_size = u64::try_from(state.facts.len()).unwrap();
        Ok(Some(PendingLog { tenant: tenant(), tree: state.tree.clone().unwrap_or_default(), log_size }))
    }

    async fn leaves(&self, _: TenantScope, from: u64, limit: u32) -> Result<Vec<TreeHash>, StoreError> {
        tokio::task::yield_now().await;
        let from = usize::try_from(from).unwrap();
        Ok(self.state().facts.iter().skip(from).take(usize::try_from(limit).unwrap()).copied().collect())
    }

    async fn entries(&self, _: TenantScope, _: u64, _: u32) -> Result<Vec<StoredEntry>, StoreError> {
        Ok(Vec::new())
    }

    async fn logged_tenants(&self, _: Option<TenantId>, _: u32) -> Result<Vec<TenantId>, StoreError> {
        Ok(vec![tenant()])
    }

    async fn advance_tree(&self, _: TenantScope, advance: TreeAdvance) -> Result<bool, StoreError> {
        tokio::task::yield_now().await;
        let committed = self.state().write(|state| {
            let stored = state.tree.clone().unwrap_or_default();
            if stored.edge.size() != advance.from_size {
                return false;
            }
            if advance.checkpoint.is_some() {
                state.signed_by = advance.signed_by;
            }
            state.tree = Some(TreeState { edge: advance.edge, checkpoint: advance.checkpoint.or(stored.checkpoint) });
            true
        });
        committed.ok_or_else(unavailable)
    }

    async fn facts_about(
        &self,
        _: TenantScope,
        _: &[Uuid],
        _: &'static [&'static str],
        _: u32,
    ) -> Result<Vec<LoggedFact>, StoreError> {
        Ok(Vec::new())
    }

    async fn find_logged_fact(&self, _: TenantScope, _: FactId) -> Result<Option<LoggedFact>, StoreError> {
        Ok(None)
    }
}

#[async_trait]
impl ArtifactStore for TestStores {
    async fn put_if_absent(&self, path: &ArtifactPath, bytes: Vec<u8>) -> Result<PutOutcome, ArtifactStoreError> {
        tokio::task::yield_now().await;
        let outcome = self.state().write(|state| match state.tiles.get(path.as_str()) {
            Some(stored_bytes) if *stored_bytes == bytes => Ok(PutOutcome::AlreadyExists),
            Some(_) => Err(ArtifactStoreError::Conflict),
            None => {
                state.tiles.insert(path.as_str().to_owned(), bytes);
                Ok(PutOutcome::Created)
            }
        });
        outcome.unwrap_or_else(|| Err(ArtifactStoreError::Unavailable("stopped".into())))
    }

    async fn read(&self, path: &ArtifactPath, _: usize) -> Result<Option<UnverifiedBytes>, ArtifactStoreError> {
        Ok(self.state().tiles.get(path.as_str()).cloned().map(UnverifiedBytes::new))
    }

    fn list(&self, _: &'static str) -> Box<dyn ObjectListing + '_> {
        unreachable!("the builder lists nothing")
    }

    async fn remove(&self, _: &ArtifactPath) -> Result<(), ArtifactStoreError> {
        Ok(())
    }

    async fn ready(&self) -> Result<(), ArtifactStoreError> {
        Ok(())
    }
}

#[async_trait]
impl CheckpointArchive for TestStores {
    async fn store_if_absent(&self, _: TenantId, size: u64, note: &str) -> Result<Vec<u8>, ArchiveError> {
        tokio::task::yield_now().await;
        let stored_note = self.state().write(|state| state.archive.entry(size).or_insert_with(|| note.into()).clone());
        stored_note.ok_or_else(|| ArchiveError::Unavailable("stopped".into()))
    }

    async fn newest_from(&self, _: TenantId, size: u64) -> Result<Option<Vec<u8>>, ArchiveError> {
        tokio::task::yield_now().await;
        Ok(self.state().archive.range(size..).next_back().map(|(_, note)| note.clone()))
    }

    async fn tenants(&self) -> Result<Vec<TenantId>, ArchiveError> {
        Ok(vec![tenant()])
    }
}

#[async_trait]
impl CheckpointSigner for TestStores {
    async fn public_keys(&self) -> Result<Vec<[u8; 32]>, SigningError> {
        let seeds = self.state().seeds.clone();
        Ok(seeds.into_iter().map(|seed| NoteSigningKey::from_seed(&[seed; 32]).public_key()).collect())
    }

    async fn sign(&self, message: &[u8]) -> Result<Vec<([u8; 32], [u8; 64])>, SigningError> {
        let keys = self.state().seeds.clone().into_iter().map(|seed| NoteSigningKey::from_seed(&[seed; 32]));
        Ok(keys.map(|key| (key.public_key(), key.sign(message))).collect())
    }
}

fn verifier(seed: u8) -> VerifierKey {
    let key = NoteSigningKey::from_seed(&[seed; 32]).public_key();
    VerifierKey::new(&origin().origin_of_tenant(tenant()), &key).unwrap()
}

#[tokio::test]
async fn publishes_signed_checkpoint_over_every_fact() {
    for facts in [0, 1, 255, 256, 257, 4_096, 4_097, 10_000] {
        let stores = TestStores::with_facts(facts);
        stores.build().await;
        stores.assert_one_history();
        assert!(stores.published().is_signed_by(&verifier(1)), "{facts}");
        assert_eq!(stores.builder().build_once().await.unwrap(), Progress::UpToDate);
        let writes = stores.state().writes;
        stores.build().await;
        assert_eq!(stores.state().writes, writes, "a log without new facts is not written");
    }
}

/// Kills a builder at each write, with and without the effect of this write. The next builder must create neither a gap
/// nor a fork.
#[tokio::test]
async fn next_builder_continues_one_history_after_a_kill() {
    for effect in [Effect::None, Effect::Written] {
        for failing_write in 1..14 {
            let stores = TestStores::with_facts(700);
            stores.build().await;
            stores.add_facts(1_900);
            stores.state().fails_in = Some((failing_write, effect));
            // The killed builder fails, which the test expects.
            drop(stores.builder().build_once().await);
            stores.state().fails_in = None;
            // The log grows before the next builder starts.
            stores.add_facts(3);
            stores.build().await;
            stores.assert_one_history();
        }
    }
}

#[tokio::test]
async fn concurrent_builders_publish_one_history() {
    let stores = TestStores::with_facts(100);
    let build = |number: usize| {
        let stores = stores.clone();
        async move {
            let mut builder = stores.builder();
            for _ in 0..20 {
                stores.add_facts(50 * number + 7);
                builder.build_once().await.unwrap();
            }
        }
    };
    tokio::join!(build(1), build(2), build(3));
    stores.build().await;
    stores.assert_one_history();
    assert!(stores.state().archive.len() > 10);
}

async fn refusal(stores: &TestStores) -> BuildError {
    let stepper = stores.stepper_with(&[]);
    loop {
        let log = stores.find_log(TenantScope::for_background_task(tenant())).await.unwrap().unwrap();
        match stepper.step(log, "keys").await {
            Ok(Progress::Backlog) => {}
            Ok(Progress::UpToDate) => panic!("the log was published"),
            Err(error) => return error,
        }
    }
}

/// If a fact below a published checkpoint is changed, the builder stops publishing.
#[tokio::test]
async fn refuses_to_publish_logs_that_contradict_the_archive() {
    type Change = fn(&mut State);
    let changes: [(&str, Change); 6] = [
        ("a restored dump", |state| {
            state.facts.truncate(500);
            state.tree = None;
        }),
        ("a dump that was written again", |state| {
            state.facts.truncate(500);
            state.facts.extend((9_000..10_000).map(leaf));
            state.tree = None;
        }),
        ("an edited fact in a rebuilt tree", |state| {
            state.facts[3] = leaf(9_999);
            state.tree = None;
            state.facts.push(leaf(1));
        }),
        ("a deleted fact in a rebuilt tree", |state| {
            state.facts.remove(650);
            state.facts.push(leaf(9_999));
            state.tree = None;
        }),
        ("swapped facts in a rebuilt tree without tiles", |state| {
            state.facts.swap(10, 11);
            state.tree = None;
            state.tiles.clear();
        }),
        ("a forged tree and checkpoint", |state| {
            state.facts.swap(10, 11);
            let mut edge = TreeEdge::default();
            for fact in &state.facts {
                drop(edge.append(*fact));
            }
            state.tree = Some(TreeState { edge, checkpoint: state.tree.clone().unwrap().checkpoint });
        }),
    ];
    for (name, change) in changes {
        let stores = TestStores::with_facts(700);
        stores.build().await;
        let archive = stores.state().archive.clone();
        change(&mut stores.state());
        let refusal = refusal(&stores).await;
        assert!(matches!(refusal, BuildError::Truncated { .. } | BuildError::Forked(_)), "{name}: {refusal:?}");
        assert_eq!(stores.state().archive, archive, "{name}: nothing is published");
    }
}

/// A running builder detects that its tree was restored from a backup, even if the backup contains the result of its
/// own last step.
#[tokio::test]
async fn running_builder_compares_restored_trees_again() {
    for is_own_last_step in [false, true] {
        let stores = TestStores::with_facts(300);
        let mut running_builder = stores.builder();
        running_builder.build_once().await.unwrap();
        let restored = {
            let state = stores.state();
            (state.facts.clone(), state.tree.clone())
        };
        stores.add_facts(100);
        if is_own_last_step {
            stores.build().await;
        } else {
            running_builder.build_once().await.unwrap();
        }
        let archive = {
            let mut state = stores.state();
            (state.facts, state.tree) = restored;
            state.facts.extend((5_000..5_200).map(leaf));
            state.archive.clone()
        };
        for _ in 0..3 {
            running_builder.build_once().await.unwrap();
        }
        assert_eq!(stores.state().archive, archive, "own last step: {is_own_last_step}");
    }
}

#[tokio::test]
async fn foreign_bytes_in_the_archive_stop_publication() {
    for note in
        ["", "text", "other.example/log\n700\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n\u{2014} a AAAAAAA=\n"]
    {
        let stores = TestStores::with_facts(700);
        stores.state().archive.insert(10, note.into());
        assert!(matches!(refusal(&stores).await, BuildError::ForeignCheckpoint), "{note:?}");
    }
}

#[tokio::test]
async fn rotated_keys_sign_the_checkpoint_of_an_idle_log_again() {
    let stores = TestStores::with_facts(300);
    stores.build().await;
    stores.state().seeds = vec![2, 1];
    stores.build().await;
    let note = stores.published();
    assert!(note.is_signed_by(&verifier(1)) && note.is_signed_by(&verifier(2)));
    stores.state().seeds = vec![2];
    stores.build().await;
    let note = stores.published();
    assert!(!note.is_signed_by(&verifier(1)) && note.is_signed_by(&verifier(2)));
    stores.assert_one_history();
}
