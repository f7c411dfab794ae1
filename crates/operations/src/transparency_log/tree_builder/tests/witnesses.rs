//! Tests of the builder with witnesses. Each witness cosigns only one history, and a failing witness does not stop the
//! log.

use super::{TestStores, origin, tenant, verifier};
use crate::transparency_log::{
    tree_builder::{MAX_STEPS, Progress},
    verified_tiles::{VerifiedTileLoader, new_tile_cache},
    witnesses::{RETRY_DELAY, Witnesses},
};
use async_trait::async_trait;
use fairway_domain::{
    id::TenantId,
    tenant::TenantScope,
    transparency_log::{
        Checkpoint, ConsistencyClaim, NoteSignature, NoteSigningKey, SignedNote, TreeEdge, TreeHash, VerifierKey,
        Witness, WitnessError, WitnessKey, WitnessRequest, WitnessResponse, cosigned_message,
    },
};
use futures_util::{StreamExt as _, stream};
use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use uuid::Uuid;

/// Behaviour of a test witness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Behaviour {
    Honest,
    Unreachable,
    Hanging,
    /// Signs with a key other than its own.
    Forging,
    /// Refuses each request, and names the size in the request as the required tree size.
    Contrary,
    /// Follows the protocol, but takes 900 ms.
    Slow,
}

struct WitnessState {
    behaviour: Behaviour,
    size: u64,
    root: TreeHash,
    requests: usize,
}

/// An in-memory witness that follows the protocol, unless its [`Behaviour`] deviates.
struct TestWitness {
    key: WitnessKey,
    signing: NoteSigningKey,
    state: Mutex<WitnessState>,
}

impl TestWitness {
    fn new(seed: u8) -> Arc<Self> {
        let signing = NoteSigningKey::from_seed(&[seed; 32]);
        let key = WitnessKey::new(&format!("witness.example/{seed}"), &signing.public_key()).unwrap();
        let root = TreeHash::of_empty_tree();
        let state = Mutex::new(WitnessState { behaviour: Behaviour::Honest, size: 0, root, requests: 0 });
        Arc::new(Self { key, signing, state })
    }

    fn state(&self) -> MutexGuard<'_, WitnessState> {
        self.state.lock().unwrap()
    }

    fn set_behaviour(&self, behaviour: Behaviour) {
        self.state().behaviour = behaviour;
    }
}

#[async_trait]
impl Witness for TestWitness {
    fn key(&self) -> &WitnessKey {
        &self.key
    }

    async fn add_checkpoint(&self, request: &WitnessRequest) -> Result<WitnessResponse, WitnessError> {
        self.state().requests += 1;
        let behaviour = self.state().behaviour;
        match behaviour {
            Behaviour::Unreachable => return Err(WitnessError::Unavailable("down".into())),
            Behaviour::Hanging => std::future::pending().await,
            Behaviour::Contrary => return Ok(WitnessResponse::SizeMismatch(request.old_size)),
            Behaviour::Slow => tokio::time::sleep(Duration::from_millis(900)).await,
            Behaviour::Honest | Behaviour::Forging => {}
        }
        if !request.checkpoint.is_signed_by(&verifier(1)) {
            return Err(WitnessError::UnknownLog);
        }
        let mut state = self.state();
        if request.old_size != state.size {
            return Ok(WitnessResponse::SizeMismatch(state.size));
        }
        let checkpoint = Checkpoint::parse(request.checkpoint.text()).unwrap();
        let claim = ConsistencyClaim {
            from_size: state.size,
            from_root: state.root,
            to_size: checkpoint.size,
            to_root: checkpoint.root,
        };
        if !claim.is_proved_by(&request.proof) {
            return Err(WitnessError::Contradicted);
        }
        (state.size, state.root) = (checkpoint.size, checkpoint.root);
        let message = cosigned_message(request.checkpoint.text(), 1_700_000_000);
        let signing = match behaviour {
            Behaviour::Forging => NoteSigningKey::from_seed(&[99; 32]),
            Behaviour::Honest | Behaviour::Unreachable | Behaviour::Hanging | Behaviour::Contrary | Behaviour::Slow => {
                self.signing.clone()
            }
        };
        Ok(WitnessResponse::Cosigned(vec![self.key.cosignature_line(1_700_000_000, &signing.sign(&message))]))
    }
}

fn as_dyn_witnesses(witnesses: &[Arc<TestWitness>]) -> Vec<Arc<dyn Witness>> {
    witnesses.iter().map(|witness| Arc::clone(witness) as Arc<dyn Witness>).collect()
}

impl TestStores {
    /// Builds until no backlog remains, with a new builder that has no state of earlier requests.
    async fn build_with(&self, witnesses: &[Arc<TestWitness>]) {
        let mut builder = self.builder_with(&as_dyn_witnesses(witnesses));
        while builder.build_once().await.unwrap() == Progress::Backlog {}
    }

    /// Returns for each witness whether it cosigned the published checkpoint.
    fn cosigners(&self, witnesses: &[Arc<TestWitness>]) -> Vec<bool> {
        let note = self.published();
        assert!(note.is_signed_by(&verifier(1)));
        witnesses.iter().map(|witness| witness.key.cosigned_at(&note).is_some()).collect()
    }
}

#[tokio::test]
async fn witnesses_cosign_each_checkpoint_of_a_growing_log() {
    let (stores, witnesses) = (TestStores::with_facts(3), [TestWitness::new(11), TestWitness::new(12)]);
    for added in [0, 1, 300, 5_000, 256] {
        stores.add_facts(added);
        // A new builder does not know the tree size of a witness, so its first request fails. Its second request uses
        // the size that the witness returned.
        stores.build_with(&witnesses).await;
        assert_eq!(stores.cosigners(&witnesses), [true, true], "{added}");
        stores.assert_one_history();
    }
    let writes = stores.state().writes;
    stores.build_with(&witnesses).await;
    assert_eq!(stores.state().writes, writes, "a cosigned log without new facts is not written");
}

#[tokio::test(start_paused = true)]
async fn failed_witness_neither_blocks_nor_cosigns_the_checkpoint() {
    for behaviour in [Behaviour::Unreachable, Behaviour::Hanging, Behaviour::Forging, Behaviour::Contrary] {
        let (stores, witnesses) = (TestStores::with_facts(10), [TestWitness::new(11), TestWitness::new(12)]);
        witnesses[0].set_behaviour(behaviour);
        let mut builder = stores.builder_with(&as_dyn_witnesses(&witnesses));
        assert_eq!(builder.build_once().await.unwrap(), Progress::UpToDate, "{behaviour:?}");
        assert_eq!(stores.cosigners(&witnesses), [false, true], "{behaviour:?}");
        // Until `RETRY_DELAY` has elapsed, the failed witness receives no request, and the log continues without it.
        let (requests, writes) = (witnesses[0].state().requests, stores.state().writes);
        builder.build_once().await.unwrap();
        assert_eq!(stores.state().writes, writes, "{behaviour:?}: an idle log waits for its witnesses");
        stores.add_facts(5);
        builder.build_once().await.unwrap();
        assert_eq!(stores.cosigners(&witnesses), [false, true], "{behaviour:?}");
        assert_eq!(witnesses[0].state().requests, requests, "{behaviour:?}");
        // After this delay, even a log without new facts receives the missing cosignature.
        witnesses[0].set_behaviour(Behaviour::Honest);
        tokio::time::advance(RETRY_DELAY).await;
        builder.build_once().await.unwrap();
        assert_eq!(stores.cosigners(&witnesses), [true, true], "{behaviour:?}");
        stores.assert_one_history();
    }
}

/// A witness that cosigned one history refuses another history, even if the log's own key signed it.
#[tokio::test]
async fn second_history_gets_no_cosignature() {
    let witnesses = [TestWitness::new(11)];
    let first = TestStores::with_facts(20);
    first.build_with(&witnesses).await;
    assert_eq!(first.cosigners(&witnesses), [true]);
    for facts in [20, 30] {
        let second = TestStores::with_facts(facts);
        second.state().facts[3] = super::leaf(1_000_000);
        second.build_with(&witnesses).await;
        assert_eq!(second.cosigners(&witnesses), [false], "{facts}");
    }
    // The checkpoint of the truncated log is smaller than the tree that the witness has cosigned.
    let truncated = TestStores::with_facts(15);
    truncated.build_with(&witnesses).await;
    assert_eq!(truncated.cosigners(&witnesses), [false]);
    assert_eq!(witnesses[0].state().size, 20, "the witness of log {} kept its history", tenant());
}

/// Requests cosignatures for a log with one fact; returns the fingerprint of the witnesses that cosigned.
async fn cosign(witnesses: &Witnesses, log: TenantId) -> String {
    let mut edge = TreeEdge::default();
    assert!(edge.append(super::leaf(1)).is_empty());
    let checkpoint = Checkpoint { origin: origin().origin_of_tenant(log), size: 1, root: edge.root() };
    let (text, signing) = (checkpoint.to_string(), NoteSigningKey::from_seed(&[1; 32]));
    let key = VerifierKey::new(&checkpoint.origin, &signing.public_key()).unwrap();
    let signature = NoteSignature::new(&key, &signing.sign(text.as_bytes()));
    let note = SignedNote::new(text, vec![signature]).unwrap();
    witnesses.cosign(TenantScope::for_background_task(log), &edge, &checkpoint, note).await.1
}

fn witnesses_of(witness: &Arc<TestWitness>) -> Witnesses {
    let loader = VerifiedTileLoader::new(Arc::new(TestStores::default()), new_tile_cache());
    Witnesses::new(&as_dyn_witnesses(std::slice::from_ref(witness)), loader)
}

#[tokio::test(start_paused = true)]
async fn log_unknown_to_a_witness_blocks_no_other_log() {
    let witness = TestWitness::new(11);
    let witnesses = witnesses_of(&witness);
    let unknown = TenantId::from(Uuid::from_u128(6));
    assert_eq!(cosign(&witnesses, unknown).await, "");
    assert_eq!(cosign(&witnesses, tenant()).await, witness.key.id_hex());
    // Until `RETRY_DELAY` has elapsed, the witness receives no further request about the unknown log.
    let requests = witness.state().requests;
    assert_eq!(cosign(&witnesses, unknown).await, "");
    assert_eq!(witness.state().requests, requests);
}

#[tokio::test(start_paused = true)]
async fn slow_witness_delays_a_pass_over_many_logs_by_its_budget() {
    let witness = TestWitness::new(11);
    witness.set_behaviour(Behaviour::Slow);
    let witnesses = witnesses_of(&witness);
    let started_at = tokio::time::Instant::now();
    // As many requests are concurrent as a pass has concurrent steps.
    let logs = (1..=80).map(|log| cosign(&witnesses, TenantId::from(Uuid::from_u128(log))));
    let cosigned: Vec<String> = stream::iter(logs).buffer_unordered(MAX_STEPS).collect().await;
    let requests = witness.state().requests;
    assert_eq!((cosigned.len(), requests), (80, 3 * MAX_STEPS), "a request begins while a part of the budget is left");
    assert!(started_at.elapsed() < Duration::from_secs(3), "{:?}", started_at.elapsed());
    witnesses.begin_pass();
    cosign(&witnesses, tenant()).await;
    assert_eq!(witness.state().requests, requests + 1);
}
