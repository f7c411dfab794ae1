//! Documents that the subject of an erasure added to knowledge bases.

use super::{CANARY, SUBJECT, approve, complete, request_erasure};
use crate::{
    knowledge::{document_ids, documents_path, retrieve},
    rejected_results::tables_with,
    share_link::query_number,
    support::workspace_fixture::knowledge_content,
};
use fairway_testkit::TestApp;
use serde_json::{Value, json};

/// SQL that counts rows whose stored number of chunks differs from the actual number.
const WRONG_COUNTS: &str = "SELECT count(*) FROM knowledge_index_model AS model WHERE chunks <> (
    SELECT count(*) FROM knowledge_chunk AS chunk
    WHERE chunk.tenant_id = model.tenant_id AND chunk.asset_id = model.asset_id AND chunk.embedded_by = model.embedded_by
        AND from_revision <= model.revision AND coalesce(until_revision > model.revision, true))";

#[tokio::test]
async fn erased_documents_keep_their_digests_and_are_not_found() {
    let app = TestApp::start().await;
    let content = knowledge_content("handbook");
    let base = app.fixtures().asset_with_version("knowledge_base", "handbook", content.clone()).await;
    let add = |actor: &str, id: &str, text: String| {
        let document = json!({ "document_id": id, "title": text, "text": text, "metadata": { "about": text } });
        app.post(documents_path(&base), json!({ "documents": [document] })).as_actor(actor)
    };
    add("user:local", "kept", "Days of leave.".to_owned()).await.expect(201);
    add(SUBJECT, "first", format!("Leave of {CANARY}.")).await.expect(201);
    // The replaced document and its replacement were both added by the subject.
    add(SUBJECT, "first", format!("Later leave of {CANARY}.")).await.expect(201);
    add("user:local", "last", "Travel by train.".to_owned()).await.expect(201);
    let documents_before = app.get(documents_path(&base)).await.expect(200);
    assert_eq!(document_ids(&retrieve(&app, &base, &content, CANARY).await.unwrap()), ["first"]);
    assert_eq!(query_number(&app, WRONG_COUNTS).await, 0);

    let erasure = request_erasure(&app, SUBJECT).await;
    approve(&app, &erasure).await;
    complete(&app).await;
    let completed_erasure = app.get(&erasure).await.expect(200);
    assert_eq!(
        (&completed_erasure["status"], &completed_erasure["erased_documents"]),
        (&json!("completed"), &json!(2)),
        "{completed_erasure}"
    );
    assert_eq!(tables_with(app.database(), CANARY).await, [""; 0]);
    let documents_after = app.get(documents_path(&base)).await.expect(200);
    for (earlier, later) in documents_before.as_array().unwrap().iter().zip(documents_after.as_array().unwrap()) {
        assert_eq!(earlier["digest"], later["digest"]);
        let is_erased = later["created_by"] == SUBJECT;
        assert_eq!(later["title"] == Value::Null, is_erased, "{later}");
    }
    assert_eq!(document_ids(&retrieve(&app, &base, &content, CANARY).await.unwrap()), [""; 0]);
    assert_eq!(document_ids(&retrieve(&app, &base, &content, "leave").await.unwrap()), ["kept"]);
    assert_eq!(query_number(&app, WRONG_COUNTS).await, 0);
    // A word that also occurs in other documents keeps its count, so that the ranking in pinned revisions does not
    // change.
    let words = "SELECT count(*) FROM knowledge_word WHERE word IN ('leave', 'later')";
    assert_eq!(query_number(&app, words).await, 3);
    // A subsequent ingest succeeds on the erased index.
    add(SUBJECT, "first", "New leave.".to_owned()).await.expect(201);
    let found = retrieve(&app, &base, &content, "new leave").await.unwrap();
    assert_eq!(document_ids(&found)[0], "first");
    assert_eq!(query_number(&app, WRONG_COUNTS).await, 0);
}
