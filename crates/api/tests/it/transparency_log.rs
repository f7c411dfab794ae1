//! The transparency log: checkpoints, proofs and tiles over HTTP.

use crate::audit::audit_log;
use fairway_domain::transparency_log::{
    Checkpoint, ConsistencyClaim, InclusionClaim, SignedNote, TILE_HASHES, TreeEdge, TreeHash, VerifierKey,
};
use fairway_testkit::{TestApp, app::Request};
use serde_json::{Value, json};
use std::time::Duration;

const DEFAULT_TENANT_ID: &str = "00000000-0000-7000-8000-000000000001";
const KEY_A: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const KEY_B: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";

/// Repeats a request until the check accepts its response.
async fn wait_for<T>(request: Request, check: impl Fn(&fairway_testkit::app::Response) -> Option<T>) -> T {
    let wait_for_checkpoint = async {
        loop {
            if let Some(found) = check(&request.clone().await) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait_for_checkpoint).await.unwrap()
}

fn parse(response: &fairway_testkit::app::Response) -> Option<(SignedNote, Checkpoint)> {
    let note = (response.status == 200).then(|| SignedNote::parse(&response.body).unwrap())?;
    let checkpoint = Checkpoint::parse(note.text()).unwrap();
    Some((note, checkpoint))
}

/// The latest checkpoint, as soon as it covers this number of events.
async fn checkpoint(app: &TestApp, size: usize) -> (SignedNote, Checkpoint) {
    let size = u64::try_from(size).unwrap();
    wait_for(app.get("/v1/audit/checkpoint"), |response| {
        parse(response).filter(|(_, checkpoint)| checkpoint.size >= size)
    })
    .await
}

async fn keys(app: &TestApp) -> Vec<VerifierKey> {
    let listed = app.get("/v1/audit/keys").await.expect(200);
    listed
        .as_array()
        .unwrap()
        .iter()
        .map(|key| VerifierKey::parse(key["verifier_key"].as_str().unwrap()).unwrap())
        .collect()
}

fn hash(value: &Value) -> TreeHash {
    TreeHash::from_hex(value.as_str().unwrap()).unwrap()
}

fn hashes(value: &Value) -> Vec<TreeHash> {
    value.as_array().unwrap().iter().map(hash).collect()
}

/// Appends sequenced facts to the log of the fixture.
async fn add_facts(app: &TestApp, count: u32) {
    let owner = app.database().connect_as_owner().await.unwrap();
    let sql = format!(
        "WITH made AS (
            INSERT INTO fact (tenant_id, fact_id, kind, body, leaf_hash)
            SELECT '{DEFAULT_TENANT_ID}', fact_id, 'made', body, sha256('\\x00'::bytea || body)
            FROM (SELECT gen_random_uuid() AS fact_id, convert_to('fact ' || number, 'UTF8') AS body
                FROM generate_series(1, {count}) AS number) AS numbered
            RETURNING tenant_id, fact_id)
         INSERT INTO fact_pending SELECT tenant_id, fact_id FROM made"
    );
    owner.batch_execute(&sql).await.unwrap();
}

/// The leaf hashes of the log, read with SQL.
async fn leaves(app: &TestApp) -> Vec<TreeHash> {
    let owner = app.database().connect_as_owner().await.unwrap();
    let sql = "SELECT sha256('\\x00'::bytea || body) AS leaf FROM fact_order JOIN fact USING (tenant_id, fact_id)
        WHERE tenant_id = $1::text::uuid ORDER BY index";
    let rows = owner.query(sql, &[&DEFAULT_TENANT_ID]).await.unwrap();
    rows.iter().map(|row| TreeHash::from_slice(row.get("leaf")).unwrap()).collect()
}

#[tokio::test]
async fn signed_checkpoint_and_proofs_cover_every_event() {
    let app = TestApp::start().await;
    let workload = app.active_workload("main").await;
    app.post(workload.execute_path(), json!({ "environment": "dev", "inputs": { "ticket": "x" } })).await.expect(200);
    let events = audit_log(&app).await;
    let (note, checkpoint) = checkpoint(&app, events.len()).await;
    assert_eq!(checkpoint.origin, format!("fairway.invalid/logs/{DEFAULT_TENANT_ID}"));
    let keys = keys(&app).await;
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0].name(), checkpoint.origin);
    assert!(note.is_signed_by(&keys[0]));
    // Published checkpoints are archived outside the database.
    let folder = app.data_dir().join(format!("facts/checkpoints/{DEFAULT_TENANT_ID}/00000000000000/00000000000000000"));
    let archived = folder.join(format!("{:020}", checkpoint.size));
    assert_eq!(std::fs::read_to_string(archived).unwrap(), note.to_string());
    let mut tree = TreeEdge::default();
    for event in events.iter().rev() {
        assert!(tree.append(hash(&event["leaf_hash"])).is_empty());
    }
    assert_eq!(tree.root(), checkpoint.root);
    for event in &events {
        let path = format!("/v1/audit/events/{}/inclusion-proof", event["event_id"].as_str().unwrap());
        let proof = app.get(&path).await.expect(200);
        assert_eq!(proof["index"], event["index"]);
        let members: Vec<&String> = proof.as_object().unwrap().keys().collect();
        assert_eq!(members, ["index", "proof", "root_hash", "tree_size"]);
        let claim = InclusionClaim {
            index: event["index"].as_u64().unwrap(),
            leaf: hash(&event["leaf_hash"]),
            tree_size: checkpoint.size,
            root: checkpoint.root,
        };
        assert_eq!(proof["root_hash"], checkpoint.root.to_string());
        assert!(claim.is_proved_by(&hashes(&proof["proof"])), "{proof}");
    }
    // Requests an inclusion proof against the tree of an earlier checkpoint.
    let first_event = events.last().unwrap()["event_id"].as_str().unwrap();
    let proof = app.get(format!("/v1/audit/events/{first_event}/inclusion-proof?tree_size=3")).await.expect(200);
    let mut early_edge = TreeEdge::default();
    for event in events.iter().rev().take(3) {
        drop(early_edge.append(hash(&event["leaf_hash"])));
    }
    assert_eq!((proof["tree_size"].as_u64(), hash(&proof["root_hash"])), (Some(3), early_edge.root()));
    let response = app.get("/v1/audit/checkpoint").await;
    assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn later_checkpoints_extend_earlier_ones_across_tiles() {
    let app = TestApp::start().await;
    add_facts(&app, 5).await;
    let (_, first_checkpoint) = checkpoint(&app, 1).await;
    add_facts(&app, 1_200).await;
    let (_, last_checkpoint) = checkpoint(&app, usize::try_from(first_checkpoint.size).unwrap() + 1_200).await;
    let leaves = leaves(&app).await;
    let root_at = |size: u64| {
        let mut tree = TreeEdge::default();
        for leaf in leaves.iter().take(usize::try_from(size).unwrap()) {
            drop(tree.append(*leaf));
        }
        tree.root()
    };
    assert_eq!(root_at(last_checkpoint.size), last_checkpoint.root);
    for (from, to) in [
        (0, 0),
        (0, last_checkpoint.size),
        (first_checkpoint.size, last_checkpoint.size),
        (256, 512),
        (255, 1_025),
        (last_checkpoint.size, last_checkpoint.size),
    ] {
        let proof = app.get(format!("/v1/audit/consistency-proof?from={from}&to={to}")).await.expect(200);
        assert_eq!((proof["from"].as_u64(), proof["tree_size"].as_u64()), (Some(from), Some(to)));
        let claim = ConsistencyClaim { from_size: from, from_root: root_at(from), to_size: to, to_root: root_at(to) };
        assert_eq!((hash(&proof["from_root_hash"]), hash(&proof["root_hash"])), (claim.from_root, claim.to_root));
        assert!(claim.is_proved_by(&hashes(&proof["proof"])), "{proof}");
    }
    // Tiles contain the hashes of their level. Complete tiles are in the artifact store, and partial ones in the
    // database.
    let remainder = usize::try_from(last_checkpoint.size).unwrap() % TILE_HASHES;
    let partial = last_checkpoint.size / 256;
    for (path, start, count) in [
        ("0/000".to_owned(), 0, 256),
        ("0/003".to_owned(), 768, 256),
        ("0/003.p/7".to_owned(), 768, 7),
        (format!("0/{partial:03}.p/{remainder}"), usize::try_from(partial).unwrap() * 256, remainder),
    ] {
        let tile = app.get(format!("/v1/audit/tile/{path}")).await;
        assert_eq!(tile.status, 200, "{path}: {tile}");
        assert_eq!(tile.header("cache-control"), Some("private, max-age=31536000, immutable"));
        assert_eq!(tile.header("content-type"), Some("application/octet-stream"));
        let expected: Vec<u8> = leaves[start..start + count].iter().flat_map(|leaf| *leaf.as_bytes()).collect();
        assert!(tile.body == expected, "{path}");
    }
    let upper_tile = app.get(format!("/v1/audit/tile/1/000.p/{partial}")).await;
    assert_eq!(upper_tile.body.len(), usize::try_from(partial).unwrap() * 32);
    for path in
        ["0/004", "0/000.p/256", "0/000.p/0", "1/000", "0/x000/000", "8/000", "0/999", "0/entries", "entries/000"]
    {
        app.get(format!("/v1/audit/tile/{path}")).await.expect_refusal(404, "not_found");
    }
    app.post("/v1/audit/tile/0/000", json!({})).await.expect_refusal(405, "method_not_allowed");
}

#[tokio::test]
async fn refuses_sizes_outside_the_log() {
    let app = TestApp::start().await;
    for slug in ["one", "two", "three"] {
        app.fixtures().workspace(slug, slug).await;
    }
    let events = audit_log(&app).await;
    let (_, checkpoint) = checkpoint(&app, events.len()).await;
    let newest_event = events[0]["event_id"].as_str().unwrap();
    let proof = format!("/v1/audit/events/{newest_event}/inclusion-proof");
    let consistency = "/v1/audit/consistency-proof";
    let beyond = checkpoint.size + 1_000_000;
    for (path, status, code) in [
        (format!("{proof}?tree_size=1"), 422, "validation_error"),
        (format!("{proof}?tree_size=0"), 422, "validation_error"),
        (format!("{proof}?tree_size=-1"), 422, "validation_error"),
        (format!("{proof}?size=1"), 422, "validation_error"),
        (format!("{proof}?tree_size={beyond}"), 422, "validation_error"),
        (format!("{consistency}?from=0"), 422, "validation_error"),
        (format!("{consistency}?to=1"), 422, "validation_error"),
        (format!("{consistency}?from=2&to=1"), 422, "validation_error"),
        (format!("{consistency}?from=x&to=1"), 422, "validation_error"),
        (format!("{consistency}?from=0&to=18446744073709551616"), 422, "validation_error"),
        (format!("{consistency}?from=0&to={beyond}"), 422, "validation_error"),
        ("/v1/audit/events/0190f000-0000-7000-8000-00000000abcd/inclusion-proof".to_owned(), 404, "not_found"),
    ] {
        app.get(&path).await.expect_refusal(status, code);
    }
    let field = app.get(format!("{proof}?tree_size=1")).await.expect_refusal(422, "validation_error");
    assert_eq!(field["fields"][0]["path"], "tree_size");
}

#[tokio::test]
async fn logs_and_proofs_stay_within_their_tenant_and_scope() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let (own_workspace, other_workspace) =
        (fixtures.workspace("here", "one").await, fixtures.workspace("there", "two").await);
    let other_tenant = fixtures.tenant("abroad").await;
    let foreign = fixtures.in_tenant(&other_tenant, "").workspace("far", "far").await;
    fixtures.bind_role("user:auditor", "auditor", "workspace", Some(&own_workspace)).await;
    fixtures.bind_role("user:viewer", "viewer", "workspace", Some(&own_workspace)).await;
    let events = audit_log(&app).await;
    let (note, own_checkpoint) = checkpoint(&app, events.len()).await;
    let newest_event = async |workspace: &str, tenant: &str| {
        let path = format!("/v1/audit/events?workspace_id={workspace}&limit=1");
        wait_for(app.get(path).in_tenant(tenant), |response| {
            response.expect(200)[0]["event_id"].as_str().map(|id| format!("/v1/audit/events/{id}/inclusion-proof"))
        })
        .await
    };
    let (own_event, other_event, foreign_event) = (
        newest_event(&own_workspace, DEFAULT_TENANT_ID).await,
        newest_event(&other_workspace, DEFAULT_TENANT_ID).await,
        newest_event(&foreign, &other_tenant).await,
    );
    // An auditor of a workspace can request proofs of the workspace's events, and read the checkpoint that the
    // proofs refer to.
    app.get(&own_event).as_actor("user:auditor").await.expect(200);
    assert_eq!(app.get("/v1/audit/checkpoint").as_actor("user:auditor").await.status, 200);
    app.get(&other_event).as_actor("user:auditor").await.expect_refusal(404, "not_found");
    for path in
        [own_event.as_str(), other_event.as_str(), "/v1/audit/checkpoint", "/v1/audit/keys", "/v1/audit/tile/0/000.p/1"]
    {
        let refusal = app.get(path).as_actor("user:viewer").await.expect_refusal(403, "forbidden");
        assert_eq!(refusal["permission"], "audit.view", "{path}");
    }
    // Another tenant has its own log. The log has another name and other signing keys.
    app.get(&foreign_event).await.expect_refusal(404, "not_found");
    let (foreign_note, foreign_checkpoint) =
        wait_for(app.get("/v1/audit/checkpoint").in_tenant(&other_tenant), |response| {
            parse(response).filter(|(_, checkpoint)| checkpoint.size > 0)
        })
        .await;
    assert_eq!(foreign_checkpoint.origin, format!("fairway.invalid/logs/{other_tenant}"));
    assert_ne!(foreign_checkpoint.root, own_checkpoint.root);
    let own_keys = keys(&app).await;
    assert!(note.is_signed_by(&own_keys[0]) && !foreign_note.is_signed_by(&own_keys[0]));
    app.get("/v1/audit/checkpoint")
        .in_tenant(&other_tenant)
        .as_actor("user:auditor")
        .await
        .expect_refusal(404, "not_found");
}

/// The server withholds proofs and tiles if stored bytes were changed.
#[tokio::test]
async fn changed_facts_and_tiles_are_not_proven() {
    let app = TestApp::start().await;
    add_facts(&app, 600).await;
    checkpoint(&app, 600).await;
    let events = audit_log_of_fixture(&app).await;
    let proof = |event: &str| format!("/v1/audit/events/{event}/inclusion-proof");
    app.get(proof(&events[0])).await.expect(200);
    let owner = app.database().connect_as_owner().await.unwrap();
    let edit = format!(
        "ALTER TABLE fact DISABLE TRIGGER append_only;
         UPDATE fact SET body = body || ' ' WHERE fact_id = '{}';
         ALTER TABLE fact ENABLE TRIGGER append_only",
        events[0]
    );
    owner.batch_execute(&edit).await.unwrap();
    app.get(proof(&events[0])).await.expect_refusal(500, "internal");
    app.get(proof(&events[1])).await.expect(200);
    let tile = app.data_dir().join(format!("artifacts/logs/{DEFAULT_TENANT_ID}/tile/0/000"));
    let mut bytes = std::fs::read(&tile).unwrap();
    assert_eq!(bytes.len(), 256 * 32);
    bytes[7] ^= 1;
    std::fs::write(&tile, bytes).unwrap();
    // This server has the verified tile in memory. The second server reads the changed tile.
    app.get("/v1/audit/tile/0/000").await;
    let second_server = TestApp::builder().sharing_storage_of(&app).start().await;
    second_server.get("/v1/audit/tile/0/000").await.expect_refusal(500, "internal");
    assert_eq!(second_server.get("/v1/audit/tile/0/001").await.status, 200);
}

async fn audit_log_of_fixture(app: &TestApp) -> Vec<String> {
    let owner = app.database().connect_as_owner().await.unwrap();
    let sql = "SELECT fact_id::text FROM fact_order WHERE tenant_id = $1::text::uuid ORDER BY index LIMIT 2";
    owner.query(sql, &[&DEFAULT_TENANT_ID]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn rotation_signs_with_both_keys_and_then_with_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let key_file = |name: &str, key: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, key).unwrap();
        format!("file:{}", path.display())
    };
    let (old_key_file, new_key_file) = (key_file("old", KEY_A), key_file("new", KEY_B));
    let app = TestApp::builder().setting("FAIRWAY_CHECKPOINT_KEY_REF", &old_key_file).start().await;
    add_facts(&app, 3).await;
    let (note, _) = checkpoint(&app, 1).await;
    let [old_key]: [VerifierKey; 1] = keys(&app).await.try_into().unwrap();
    assert!(note.is_signed_by(&old_key));
    let rotating = TestApp::builder()
        .sharing_storage_of(&app)
        .setting("FAIRWAY_CHECKPOINT_KEY_REF", &new_key_file)
        .setting("FAIRWAY_CHECKPOINT_PREVIOUS_KEY_REF", &old_key_file)
        .start()
        .await;
    app.shut_down_gracefully().await;
    let listed = rotating.get("/v1/audit/keys").await.expect(200);
    assert_eq!((&listed[0]["status"], &listed[1]["status"]), (&json!("current"), &json!("previous")));
    let [new_key, previous]: [VerifierKey; 2] = keys(&rotating).await.try_into().unwrap();
    assert_eq!(previous, old_key);
    let signed_by_both = |response: &fairway_testkit::app::Response| {
        parse(response).filter(|(note, _)| note.is_signed_by(&new_key) && note.is_signed_by(&old_key))
    };
    wait_for(rotating.get("/v1/audit/checkpoint"), signed_by_both).await;
    let rotated = TestApp::builder()
        .sharing_storage_of(&rotating)
        .setting("FAIRWAY_CHECKPOINT_KEY_REF", &new_key_file)
        .start()
        .await;
    rotating.shut_down_gracefully().await;
    wait_for(rotated.get("/v1/audit/checkpoint"), |response| {
        parse(response).filter(|(note, _)| note.is_signed_by(&new_key) && !note.is_signed_by(&old_key))
    })
    .await;
}

/// A database that was restored from an older dump contradicts the checkpoints that are archived outside it.
#[tokio::test]
async fn restored_log_publishes_no_checkpoint_and_others_do() {
    let app = TestApp::start().await;
    add_facts(&app, 40).await;
    let (_, published) = checkpoint(&app, 40).await;
    let owner = app.database().connect_as_owner().await.unwrap();
    // The simulated dump lacks the newest fact and the tree.
    let restore = format!(
        "BEGIN;
         ALTER TABLE fact_order DISABLE TRIGGER append_only;
         DELETE FROM fact_order WHERE tenant_id = '{DEFAULT_TENANT_ID}' AND index = {last};
         ALTER TABLE fact_order ENABLE TRIGGER append_only;
         UPDATE fact_log SET size = {last} WHERE tenant_id = '{DEFAULT_TENANT_ID}';
         DELETE FROM log_tree WHERE tenant_id = '{DEFAULT_TENANT_ID}';
         COMMIT",
        last = published.size - 1
    );
    owner.batch_execute(&restore).await.unwrap();
    // The log grows again, with a different fact at the index of the lost one. Logs of new tenants are not affected.
    for slug in ["abroad", "elsewhere"] {
        let tenant = app.fixtures().tenant(slug).await;
        wait_for(app.get("/v1/audit/checkpoint").in_tenant(&tenant), parse).await;
        app.get("/v1/audit/checkpoint").await.expect_refusal(503, "not_yet_in_checkpoint");
    }
    let folder = app.data_dir().join(format!("facts/checkpoints/{DEFAULT_TENANT_ID}/00000000000000/00000000000000000"));
    let newest_file = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name()).max().unwrap();
    assert_eq!(newest_file, *format!("{:020}", published.size), "nothing is published beyond the contradiction");
}
