//! A witness on loopback cosigns checkpoints, and `verify_bundle` requires its cosignature.

use actix_web::{App, HttpResponse, HttpServer, dev::ServerHandle, web};
use fairway_domain::{
    evidence::bundle::{TrustedInputs, verify_bundle},
    transparency_log::{
        Checkpoint, ConsistencyClaim, NoteSigningKey, SignedNote, TreeHash, VerifierKey, WitnessKey, cosigned_message,
    },
};
use fairway_testkit::{TestApp, app::Response};
use serde_json::json;
use std::{
    sync::{Arc, Mutex, atomic::AtomicBool, atomic::Ordering},
    time::Duration,
};

const SECONDS: u64 = 1_790_000_000;

/// The state of the witness: its key, and the checkpoint that it cosigned last.
struct WitnessState {
    key: WitnessKey,
    signing: NoteSigningKey,
    tree: Mutex<(u64, TreeHash)>,
    is_down: AtomicBool,
}

/// A witness over HTTP; stopped when dropped.
struct LoopbackWitness {
    state: Arc<WitnessState>,
    address: String,
    server: ServerHandle,
}

impl LoopbackWitness {
    fn start(seed: u8) -> Self {
        let signing = NoteSigningKey::from_seed(&[seed; 32]);
        let key = WitnessKey::new("witness.example/w", &signing.public_key()).unwrap();
        let tree = Mutex::new((0, TreeHash::of_empty_tree()));
        let state = Arc::new(WitnessState { key, signing, tree, is_down: AtomicBool::new(false) });
        let data = web::Data::from(Arc::clone(&state));
        let server = HttpServer::new(move || {
            App::new().app_data(data.clone()).route("/prefix/add-checkpoint", web::post().to(add_checkpoint))
        });
        let server = server.workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/prefix", server.addrs()[0]);
        let server = server.run();
        let handle = server.handle();
        tokio::spawn(server);
        Self { state, address, server: handle }
    }

    /// The value of the server setting that configures this witness.
    fn setting(&self) -> String {
        format!("{} {}", self.state.key, self.address)
    }
}

impl Drop for LoopbackWitness {
    fn drop(&mut self) {
        // The returned future need not be awaited, because the server has received the stop command.
        drop(self.server.stop(false));
    }
}

/// The witness protocol (C2SP `tlog-witness`), reduced to what a witness of one log needs.
async fn add_checkpoint(state: web::Data<WitnessState>, body: String) -> HttpResponse {
    if state.is_down.load(Ordering::SeqCst) {
        return HttpResponse::ServiceUnavailable().finish();
    }
    let (head, note) = body.split_once("\n\n").unwrap();
    let mut lines = head.lines();
    let old_size: u64 = lines.next().unwrap().strip_prefix("old ").unwrap().parse().unwrap();
    let proof: Vec<TreeHash> = lines
        .map(|line| {
            use base64::{Engine as _, prelude::BASE64_STANDARD};
            TreeHash::from_slice(&BASE64_STANDARD.decode(line).unwrap()).unwrap()
        })
        .collect();
    let note = SignedNote::parse(note.as_bytes()).unwrap();
    let checkpoint = Checkpoint::parse(note.text()).unwrap();
    let mut tree = state.tree.lock().unwrap();
    if old_size != tree.0 {
        return HttpResponse::Conflict().content_type("text/x.tlog.size").body(format!("{}\n", tree.0));
    }
    let (to_size, to_root) = (checkpoint.size, checkpoint.root);
    if !(ConsistencyClaim { from_size: tree.0, from_root: tree.1, to_size, to_root }).is_proved_by(&proof) {
        return HttpResponse::UnprocessableEntity().finish();
    }
    *tree = (to_size, to_root);
    let signature = state.signing.sign(&cosigned_message(note.text(), SECONDS));
    let cosigned =
        SignedNote::new(note.text().to_owned(), vec![state.key.cosignature_line(SECONDS, &signature)]).unwrap();
    let (_, lines) =
        cosigned.to_string().rsplit_once("\n\n").map(|(text, lines)| (text.len(), lines.to_owned())).unwrap();
    HttpResponse::Ok().body(lines)
}

fn note_of(response: &Response) -> Option<(SignedNote, Checkpoint)> {
    let note = (response.status == 200).then(|| SignedNote::parse(&response.body).unwrap())?;
    let checkpoint = Checkpoint::parse(note.text()).unwrap();
    Some((note, checkpoint))
}

/// The latest checkpoint, as soon as it passes the check.
async fn checkpoint_where(app: &TestApp, check: impl Fn(&SignedNote, &Checkpoint) -> bool) -> Checkpoint {
    let wait_for_checkpoint = async {
        loop {
            if let Some((note, checkpoint)) = note_of(&app.get("/v1/audit/checkpoint").await)
                && check(&note, &checkpoint)
            {
                return checkpoint;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait_for_checkpoint).await.unwrap()
}

#[tokio::test]
async fn witness_cosigns_checkpoints_and_verifiers_require_it() {
    let witness = LoopbackWitness::start(41);
    let app = TestApp::builder().setting("FAIRWAY_WITNESSES", witness.setting()).start().await;
    let workload = app.active_workload("main").await;
    let first_checkpoint = checkpoint_where(&app, |note, _| witness.state.key.cosigned_at(note) == Some(SECONDS)).await;
    let run = app.post(workload.execute_path(), json!({ "environment": "dev", "inputs": { "ticket": "x" } })).await;
    let run = run.expect(200)["execution_id"].as_str().unwrap().to_owned();
    let later_checkpoint = checkpoint_where(&app, |note, checkpoint| {
        checkpoint.size > first_checkpoint.size && witness.state.key.cosigned_at(note).is_some()
    })
    .await;
    assert!(later_checkpoint.size > first_checkpoint.size);

    let bundle = format!("/v1/executions/{run}/evidence-bundle");
    let bundle = loop {
        let response = app.get(&bundle).await;
        if response.status == 200 {
            break response.body;
        }
        assert_eq!(response.status, 503);
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let keys = app.get("/v1/audit/keys").await.expect(200);
    let log = [VerifierKey::parse(keys[0]["verifier_key"].as_str().unwrap()).unwrap()];
    let verify = |witnesses: &[WitnessKey]| {
        let required_witnesses = witnesses.len();
        let verifier_inputs = TrustedInputs {
            log_keys: &log,
            witnesses,
            required_witnesses,
            second_checkpoint: None,
            policy_input: None,
        };
        verify_bundle(&bundle, verifier_inputs)
    };
    let report = verify(std::slice::from_ref(&witness.state.key));
    assert!(report.has_passed() && report.is_witnessed, "{report:#?}");
    let other_witness =
        WitnessKey::new("witness.example/w", &NoteSigningKey::from_seed(&[42; 32]).public_key()).unwrap();
    assert!(!verify(&[other_witness]).has_passed());

    // While the witness is down, the log publishes checkpoints without its cosignature.
    witness.state.is_down.store(true, Ordering::SeqCst);
    app.post(workload.execute_path(), json!({ "environment": "dev", "inputs": { "ticket": "y" } })).await.expect(200);
    checkpoint_where(&app, |note, checkpoint| {
        checkpoint.size > later_checkpoint.size && witness.state.key.cosigned_at(note).is_none()
    })
    .await;
}
