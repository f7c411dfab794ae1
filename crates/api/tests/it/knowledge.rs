//! Knowledge bases: ingest, revocation of access contracts, and retrieval.

mod vector_search;

use crate::support::workspace_fixture::{TENANT, WORKSPACE, knowledge_content};
use fairway_domain::{
    access::ActorRef,
    id::WorkspaceId,
    knowledge::{KnowledgeBase, contract::AccessMode},
    tenant::TenantScope,
};
use fairway_operations::knowledge::{Retrieval, RetrievalFailure, RetrievalRequest};
use fairway_testkit::{FaultProxy, ProxyFault, ScriptedEndpoint, ScriptedResponse, TestApp, app::Version};
use serde_json::{Value, json};
use uuid::Uuid;

pub(crate) fn documents_path(base: &Version) -> String {
    format!("/v1/assets/{}/documents?workspace_id={WORKSPACE}", base.asset_id)
}

fn text_document(document_id: &str, text: &str) -> Value {
    json!({ "documents": [{ "document_id": document_id, "text": text }] })
}

fn default_scope() -> TenantScope {
    TenantScope::for_background_task(TENANT.parse::<Uuid>().unwrap().into())
}

fn default_workspace() -> WorkspaceId {
    WORKSPACE.parse::<Uuid>().unwrap().into()
}

/// Retrieves documents as a principal, with the knowledge base settings in `content`.
async fn retrieve_as(
    app: &TestApp,
    base: &Version,
    content: &Value,
    principal: &str,
    query: &str,
) -> Result<Retrieval, RetrievalFailure> {
    let principals = [ActorRef::parse(principal).unwrap()];
    let request = RetrievalRequest {
        asset: base.asset_id.parse::<Uuid>().unwrap().into(),
        base: &KnowledgeBase::parse(content).unwrap(),
        pinned: None,
        principals: &principals,
        workspace: default_workspace(),
        mode: AccessMode::Retrieve,
        query,
        top_k: None,
        sovereignty: None,
    };
    app.services().knowledge_bases.retrieve(default_scope(), &request).await
}

pub(crate) async fn retrieve(
    app: &TestApp,
    base: &Version,
    content: &Value,
    query: &str,
) -> Result<Retrieval, RetrievalFailure> {
    retrieve_as(app, base, content, "user:local", query).await
}

pub(crate) fn document_ids(retrieval: &Retrieval) -> Vec<&str> {
    retrieval.chunks.iter().map(|chunk| chunk.document_id.as_str()).collect()
}

#[tokio::test]
async fn retrieves_added_documents() {
    let app = TestApp::start().await;
    let content = knowledge_content("handbook");
    let base = app.fixtures().asset_with_version("knowledge_base", "handbook", content.clone()).await;
    assert_eq!(app.get(documents_path(&base)).await.expect(200), json!([]));
    assert_eq!(document_ids(&retrieve(&app, &base, &content, "leave").await.unwrap()), [""; 0]);
    let body = json!({ "documents": [
        { "document_id": "leave", "title": "Holidays", "text": "Everybody has thirty days of leave a year.",
          "metadata": { "language": "en" } },
        { "document_id": "hr/travel.md", "text": "Take the train." },
    ] });
    let response = app.post(documents_path(&base), body).await;
    let created = response.expect(201);
    assert_eq!(response.header("location"), Some(documents_path(&base).as_str()));
    assert_eq!((&created["index_revision"], &created["asset_id"]), (&json!(1), &json!(base.asset_id)));
    let leave = &created["documents"][0];
    let digest = format!("blake3:{}", blake3::hash(b"Everybody has thirty days of leave a year.").to_hex());
    let expected = json!({
        "entry_id": leave["entry_id"], "document_id": "leave", "title": "Holidays", "source_ref": null,
        "metadata": { "language": "en" }, "digest": digest, "text_bytes": 42, "chunk_count": 1, "index_revision": 1,
        "current": true, "created_at": leave["created_at"], "created_by": "user:local",
    });
    assert_eq!(*leave, expected);
    let second_response =
        app.post(documents_path(&base), text_document("leave", "Forty days of leave.")).await.expect(201);
    assert_eq!(second_response["index_revision"], 2);
    let listed = app.get(documents_path(&base)).await.expect(200);
    let rows: Vec<Value> =
        listed.as_array().unwrap().iter().map(|row| json!([row["document_id"], row["current"]])).collect();
    assert_eq!(json!(rows), json!([["leave", true], ["hr/travel.md", true], ["leave", false]]));
    // The audit log records the ingest and its size, but no names and no texts.
    let facts = "SELECT count(*) FROM fact WHERE kind = 'knowledge.documents_added'
        AND convert_from(body, 'UTF8') NOT SIMILAR TO '%(leave|Holidays|travel|language)%'";
    assert_eq!(crate::share_link::query_number(&app, facts).await, 2);
    let found = retrieve(&app, &base, &content, "How many days of LEAVE have I?").await.unwrap();
    assert_eq!((document_ids(&found), found.index_revision.get(), found.is_capped), (vec!["leave"], 2, false));
    let chunk = &found.chunks[0];
    assert_eq!((chunk.text.as_str(), chunk.index, chunk.title.as_deref()), ("Forty days of leave.", 0, None));
    assert_eq!(chunk.digest.as_str(), format!("blake3:{}", blake3::hash(b"Forty days of leave.").to_hex()));
    assert!(chunk.tokens >= 4 && chunk.score > 0.0 && chunk.score < 1.0);
    assert!(found.decision.is_allowed());
    assert_eq!(found.decision.contract_id.as_deref(), Some("handbook"));
    // Retrieves at an earlier index revision, as a release with pinned documents does.
    let principals = [ActorRef::local()];
    let parsed = KnowledgeBase::parse(&content).unwrap();
    let request = RetrievalRequest {
        asset: base.asset_id.parse::<Uuid>().unwrap().into(),
        base: &parsed,
        pinned: Some(fairway_domain::knowledge::IndexRevision::new(1)),
        principals: &principals,
        workspace: default_workspace(),
        mode: AccessMode::Retrieve,
        query: "holidays",
        top_k: Some(1),
        sovereignty: None,
    };
    let hits_before = app.services().knowledge_bases.retrieve(default_scope(), &request).await.unwrap();
    assert_eq!((document_ids(&hits_before), hits_before.index_revision.get()), (vec!["leave"], 1));
    assert_eq!(hits_before.chunks[0].text, "Everybody has thirty days of leave a year.", "search covers titles");
}

#[tokio::test]
async fn rejects_invalid_documents_with_the_path_of_the_field() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let base = fixtures.asset_with_version("knowledge_base", "handbook", knowledge_content("handbook")).await;
    let assert_refused = async |body: Value, path: &str, code: &str| {
        let detail = app.post(documents_path(&base), body).await.expect_refusal(422, "validation_error");
        assert_eq!((&detail["fields"][0]["path"], &detail["fields"][0]["code"]), (&json!(path), &json!(code)));
    };
    assert_refused(json!({ "documents": [] }), "documents", "out_of_bounds").await;
    let too_many: Vec<Value> =
        (0..101).map(|number| json!({ "document_id": format!("d{number}"), "text": "x" })).collect();
    assert_refused(json!({ "documents": too_many }), "documents", "out_of_bounds").await;
    for (document, field, code) in [
        (json!({ "document_id": "[a]", "text": "x" }), "document_id", "invalid_document_id"),
        (json!({ "document_id": "good", "text": "x" }), "document_id", "duplicate_document_id"),
        (json!({ "document_id": "a", "text": " \n " }), "text", "empty_document"),
        (json!({ "document_id": "a" }), "text", "missing"),
        (json!({ "document_id": "a", "text": "x", "source_ref": "y" }), "source_ref", "invalid"),
        (json!({ "document_id": "a", "source_ref": "y" }), "text", "text_expected"),
        (json!({ "document_id": "a", "text": "x", "title": "a\nb" }), "title", "invalid_title"),
        (
            json!({ "document_id": "a", "text": "x", "metadata": { "n": "x".repeat(9_000) } }),
            "metadata",
            "invalid_metadata",
        ),
        (json!({ "document_id": "a", "text": "x", "owner": "me" }), "owner", "unknown_field"),
        (json!({ "document_id": "a", "text": "x".repeat((1 << 20) + 1) }), "text", "document_too_long"),
    ] {
        let body = json!({ "documents": [{ "document_id": "good", "text": "x" }, document] });
        assert_refused(body, &format!("documents[1].{field}"), code).await;
    }
    // The body exceeds the limit of the route.
    let five = json!({ "documents": [{ "document_id": "a", "text": "x".repeat(5 << 20) }] });
    app.post(documents_path(&base), five).await.expect_refusal(413, "payload_too_large");
    // The text splits into too many chunks.
    let mut short_content = knowledge_content("short");
    short_content["retrieval"] = json!({ "chunk_size_tokens": 16 });
    let short_base = fixtures.asset_with_version("knowledge_base", "short", short_content).await;
    let words = "one two three four five six seven eight. ".repeat(5_000);
    let detail =
        app.post(documents_path(&short_base), text_document("a", &words)).await.expect_refusal(422, "validation_error");
    assert_eq!(detail["fields"][0]["code"], "too_many_chunks");
    let prompt = fixtures.ticket_prompt("prompt").await;
    app.post(documents_path(&prompt), text_document("a", "x")).await.expect_refusal(409, "not_a_knowledge_base");
    assert_eq!(app.get(documents_path(&prompt)).await.expect(200), json!([]));
    let empty = fixtures.asset_without_versions("knowledge_base", "empty").await;
    let path = format!("/v1/assets/{empty}/documents?workspace_id={WORKSPACE}");
    app.post(path, text_document("a", "x")).await.expect_refusal(409, "knowledge_base_without_version");
    app.post(format!("/v1/assets/{}/archive?workspace_id={WORKSPACE}", base.asset_id), json!({})).await.expect(200);
    assert_eq!(app.post(documents_path(&base), text_document("a", "x")).await.status, 409);
    app.get(documents_path(&base)).await.expect(200);
    let counts = "SELECT (SELECT count(*) FROM knowledge_document) + (SELECT count(*) FROM knowledge_chunk)
        + (SELECT count(*) FROM knowledge_word)";
    assert_eq!(crate::share_link::query_number(&app, counts).await, 0, "rejected ingests leave no rows");
}

/// Of two concurrent ingests, the one that commits later decides again on the new revision.
#[tokio::test]
async fn concurrent_ingests_each_create_a_revision() {
    let app = TestApp::start().await;
    let content = knowledge_content("handbook");
    let base = app.fixtures().asset_with_version("knowledge_base", "handbook", content.clone()).await;
    let ingests = (0..8)
        .map(|number| app.post(documents_path(&base), text_document(&format!("d{number}"), "leave")).into_future());
    let responses = futures_util::future::join_all(ingests).await;
    let mut revisions: Vec<i64> =
        responses.iter().map(|response| response.expect(201)["index_revision"].as_i64().unwrap()).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, [1, 2, 3, 4, 5, 6, 7, 8]);
    let found = retrieve(&app, &base, &content, "leave").await.unwrap();
    assert_eq!((found.chunks.len(), found.index_revision.get()), (5, 8), "the default number of chunks");
    let counted = "SELECT chunks FROM knowledge_word WHERE word = 'leave' ORDER BY revision DESC LIMIT 1";
    assert_eq!(crate::share_link::query_number(&app, counted).await, 8, "the word count includes every ingest");
}

/// Threat T19 in `docs/security.md`: the server reads a source asset with the caller's permissions.
#[tokio::test]
async fn reads_only_sources_that_the_caller_may_read() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let other_workspace = fixtures.workspace("other", "other").await;
    let content = |contract: &str, source: &str, endpoint: &str| {
        let mut content = knowledge_content(contract);
        content["source_type"] = json!(source);
        content["source_ref"] = json!(endpoint);
        content
    };
    let artifacts =
        fixtures.asset_with_version("knowledge_base", "artifacts", content("artifacts", "artifact", "assets")).await;
    let outside_content = content("outside", "http", "https://example.org/handbook");
    let outside_base = fixtures.asset_with_version("knowledge_base", "outside", outside_content).await;
    let skill = json!({ "name": "leave", "description": "x", "body": "Thirty days of leave." });
    let visible_skill = fixtures.asset_with_version("skill", "seen", skill.clone()).await;
    let hidden = fixtures.in_workspace(&other_workspace).asset_with_version("skill", "hidden", skill).await;
    fixtures.bind_role("user:ada", "author", "workspace", Some(WORKSPACE)).await;
    let source = |version: &Version| format!("assets/{}/{}/content.json", version.asset_id, version.asset_version_id);
    let by_source = |source: &str| json!({ "documents": [{ "document_id": "a", "source_ref": source }] });
    let created =
        app.post(documents_path(&artifacts), by_source(&source(&visible_skill))).as_actor("user:ada").await.expect(201);
    assert_eq!(created["documents"][0]["source_ref"], source(&visible_skill));
    let found = retrieve(&app, &artifacts, &content("artifacts", "artifact", "assets"), "leave").await.unwrap();
    assert!(found.chunks[0].text.contains("Thirty days of leave."), "{found:?}");
    for invalid_source in [
        source(&hidden),
        format!("assets/{}/{}/content.json", visible_skill.asset_id, hidden.asset_version_id),
        format!("assets/{}/../{}/content.json", visible_skill.asset_id, visible_skill.asset_version_id),
        format!("/{}", source(&visible_skill)),
        "evidence/x".to_owned(),
        "installation".to_owned(),
        "/etc/passwd".to_owned(),
    ] {
        let response = app.post(documents_path(&artifacts), by_source(&invalid_source)).as_actor("user:ada").await;
        let detail = response.expect_refusal(422, "validation_error");
        assert_eq!(detail["fields"][0]["code"], "source_not_found", "{invalid_source}");
        assert!(!response.text().contains(&invalid_source), "{response}");
    }
    // Fetching documents from a URL requires the permission to manage connections.
    let address = by_source("https://example.org/handbook");
    let response = app.post(documents_path(&outside_base), address.clone()).as_actor("user:ada").await;
    assert_eq!(response.expect_refusal(403, "forbidden")["permission"], "connection.manage");
}

#[tokio::test]
async fn fetches_documents_only_from_allowed_addresses() {
    let endpoint = ScriptedEndpoint::start().await;
    let allowed = TestApp::builder().setting("FAIRWAY_EGRESS_ALLOW", "127.0.0.1/32").start().await;
    let server_without_egress = TestApp::start().await;
    let source = json!({ "documents": [{ "document_id": "handbook", "source_ref": endpoint.url("/handbook") }] });
    let mut content = knowledge_content("handbook");
    content["source_type"] = json!("http");
    content["source_ref"] = json!("https://example.org/handbook");
    // Without a setting that allows them, loopback addresses are refused.
    let base = server_without_egress.fixtures().asset_with_version("knowledge_base", "handbook", content.clone()).await;
    let detail =
        server_without_egress.post(documents_path(&base), source.clone()).await.expect_refusal(422, "validation_error");
    assert_eq!(detail["fields"][0]["code"], "source_not_fetched");
    assert_eq!(endpoint.request_count(), 0, "the endpoint gets no request");
    let base = allowed.fixtures().asset_with_version("knowledge_base", "handbook", content.clone()).await;
    // Error responses and redirects are not stored as documents.
    for script in [ScriptedResponse::status(404, "no"), ScriptedResponse::status(302, "elsewhere")] {
        endpoint.respond_with(script);
        let detail = allowed.post(documents_path(&base), source.clone()).await.expect_refusal(422, "validation_error");
        assert_eq!(detail["fields"][0]["code"], "source_not_fetched");
    }
    endpoint.respond_with(ScriptedResponse::json(&json!({ "a": 1 })));
    allowed.post(documents_path(&base), source).await.expect(201);
    let found = retrieve(&allowed, &base, &content, "a").await.unwrap();
    assert_eq!((document_ids(&found), found.chunks[0].text.as_str()), (vec!["handbook"], "{\"a\":1}"));
}

#[tokio::test]
async fn revokes_a_contract_once_and_permanently() {
    let app = TestApp::start().await;
    let content = knowledge_content("handbook");
    let base = app.fixtures().asset_with_version("knowledge_base", "handbook", content.clone()).await;
    app.post(documents_path(&base), text_document("leave", "Thirty days of leave.")).await.expect(201);
    assert_eq!(document_ids(&retrieve(&app, &base, &content, "leave").await.unwrap()), ["leave"]);
    let path = format!("/v1/assets/{}/access-contract/revoke?workspace_id={WORKSPACE}", base.asset_id);
    let revoke = |contract: &str, reason: &str| app.post(&path, json!({ "contract_id": contract, "reason": reason }));
    revoke("other", "x").await.expect_refusal(404, "not_found");
    for reason in ["", " \n", "a\u{202e}b", &"x".repeat(2_001)] {
        let detail = revoke("handbook", reason).await.expect_refusal(422, "validation_error");
        assert_eq!(detail["fields"][0]["path"], "reason");
    }
    let first_response = revoke("handbook", "Our works council says so.").await.expect(200);
    let expected = json!({
        "revocation_id": first_response["revocation_id"], "asset_id": base.asset_id, "contract_id": "handbook",
        "reason": "Our works council says so.", "revoked_at": first_response["revoked_at"], "revoked_by": "user:local",
    });
    assert_eq!(first_response, expected);
    assert_eq!(
        revoke("handbook", "Another.").await.expect(200),
        first_response,
        "the second request returns the first revocation"
    );
    // The revocation applies although the release binds the version from before.
    match retrieve(&app, &base, &content, "leave").await {
        Err(RetrievalFailure::Refused(decision)) => {
            assert!(decision.reasons.iter().any(|reason| reason.as_str() == "contract_revoked"), "{decision:?}");
        }
        outcome => panic!("{outcome:?}"),
    }
    let versions = format!("/v1/assets/{}/versions", base.asset_id);
    let refusal = app.post(&versions, json!({ "content": content })).await.expect_refusal(400, "invalid_content");
    assert_eq!(refusal["fields"][0]["code"], "contract_revoked");
    let mut revoked_content = content.clone();
    revoked_content["access_contract"]["revoked"] = json!(true);
    revoked_content["access_contract"]["revoked_at"] = first_response["revoked_at"].clone();
    app.post(&versions, json!({ "content": revoked_content })).await.expect(201);
    let mut renamed = content.clone();
    renamed["access_contract"]["contract_id"] = json!("handbook-2");
    app.post(&versions, json!({ "content": renamed })).await.expect(201);
    assert_eq!(document_ids(&retrieve(&app, &base, &renamed, "leave").await.unwrap()), ["leave"]);
    let facts = "SELECT count(*) FROM fact WHERE kind = 'access_contract.revoked'
        AND convert_from(body, 'UTF8') LIKE '%compliance_findings%'
        AND convert_from(body, 'UTF8') NOT LIKE '%council%'";
    assert_eq!(crate::share_link::query_number(&app, facts).await, 1);
}

/// Promise R16 in `docs/security.md`: retrieval validates the stored contract again. Content that bypassed the schema
/// therefore permits nothing.
#[tokio::test]
async fn refuses_retrieval_unless_the_contract_allows_it() {
    let app = TestApp::start().await;
    let content = knowledge_content("handbook");
    let base = app.fixtures().asset_with_version("knowledge_base", "handbook", content.clone()).await;
    app.post(documents_path(&base), text_document("leave", "Thirty days of leave.")).await.expect(201);
    let assert_refused = async |content: &Value, principal: &str, code: &str| match retrieve_as(
        &app, &base, content, principal, "leave",
    )
    .await
    {
        Err(RetrievalFailure::Refused(decision)) => {
            let codes: Vec<&str> = decision.reasons.iter().map(|reason| reason.as_str()).collect();
            assert!(!decision.is_allowed() && codes.contains(&code), "{codes:?}");
        }
        outcome => panic!("{outcome:?}"),
    };
    assert_refused(&content, "user:eve", "principal_not_allowed").await;
    assert_refused(&content, "anonymous", "principal_not_allowed").await;
    for (field, value, code) in [
        ("default_decision", json!("allow"), "contract_malformed"),
        ("allowed_principals", json!("user:local"), "contract_malformed"),
        ("allowed_workspaces", json!([]), "workspace_not_allowed"),
        ("allowed_access_modes", json!(["memory_replay"]), "access_mode_not_allowed"),
        ("contract_id", json!("nobodys"), "contract_unknown"),
        ("revoked", json!(null), "contract_malformed"),
    ] {
        let mut mutant = content.clone();
        mutant["access_contract"][field] = value;
        assert_refused(&mutant, "user:local", code).await;
    }
    let mut bare = content.clone();
    bare.as_object_mut().unwrap().remove("access_contract");
    assert_refused(&bare, "user:local", "contract_malformed").await;
}

#[tokio::test]
async fn limits_the_total_size_of_fetched_sources() {
    let endpoint = ScriptedEndpoint::start().await;
    let app = TestApp::builder().setting("FAIRWAY_EGRESS_ALLOW", "127.0.0.1/32").start().await;
    let mut content = knowledge_content("handbook");
    content["source_type"] = json!("http");
    content["source_ref"] = json!("https://example.org/handbook");
    let base = app.fixtures().asset_with_version("knowledge_base", "handbook", content).await;
    endpoint.respond_with(ScriptedResponse::json(&json!("a".repeat(1_000_000))));
    let source = |name| json!({ "document_id": format!("d{name}"), "source_ref": endpoint.url("/handbook") });
    let sources: Vec<Value> = (0..20).map(source).collect();
    let detail =
        app.post(documents_path(&base), json!({ "documents": sources })).await.expect_refusal(422, "validation_error");
    assert_eq!(detail["fields"][0]["code"], "documents_too_long");
    assert_eq!(endpoint.request_count(), 9, "the server stops fetching at the limit");
}

/// A release records the index revisions of its approval. The environment setting `pin_documents` determines whether
/// runs read these revisions.
#[tokio::test]
async fn releases_record_the_document_revisions_of_their_approval() {
    use fairway_domain::{id::ReleaseId, knowledge::IndexRevision, slug::Slug};
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let base = fixtures.asset_with_version("knowledge_base", "handbook", knowledge_content("handbook")).await;
    let empty = fixtures.asset_with_version("knowledge_base", "empty", knowledge_content("empty")).await;
    app.post(documents_path(&base), text_document("leave", "Thirty days.")).await.expect(201);
    let workload = fixtures.workload("main").await;
    let policy = fixtures.allow_all_policy("policy").await;
    let release = fixtures.approved_release(&workload, &[policy, base.clone(), empty.clone()]).await;
    let gate = async || {
        let gates = app.get(format!("/v1/releases/{release}/gates")).await.expect(200);
        let gate = gates.as_array().unwrap().iter().find(|gate| gate["gate"] == "documents").cloned();
        gate.map(|gate| (gate["verdict"].clone(), gate["code"].clone()))
    };
    assert_eq!(gate().await, Some((json!("pass"), json!("documents"))));
    app.post(documents_path(&base), text_document("travel", "By train.")).await.expect(201);
    assert_eq!(gate().await, Some((json!("warn"), json!("documents_drifted"))));
    fixtures.transition(&release, "active").await;
    assert_eq!(gate().await, Some((json!("warn"), json!("documents_drifted"))), "the gate also covers active releases");
    let read_served = async || {
        let release: ReleaseId = release.parse::<Uuid>().unwrap().into();
        let dev = Slug::parse("dev").unwrap();
        let served_revisions = app
            .services()
            .knowledge_bases
            .served_revisions(default_scope(), release, default_workspace(), &dev)
            .await
            .unwrap();
        let revisions_of =
            |base: &Version| served_revisions.pinned_revision_of(base.asset_id.parse::<Uuid>().unwrap().into());
        (revisions_of(&base), revisions_of(&empty))
    };
    assert_eq!(read_served().await, (None, None));
    let settings = format!("/v1/workspaces/{WORKSPACE}/environments/dev/settings");
    let pinning = json!({ "min_approvals": 1, "allow_self_approval": true, "pin_documents": true });
    app.put(settings, pinning).await.expect(200);
    assert_eq!(read_served().await, (Some(IndexRevision::new(1)), Some(IndexRevision::new(0))));
}

/// Promise R3 in `docs/security.md`: if an ingest commits but cannot be read back, the response reports
/// `may_have_happened`.
#[tokio::test]
async fn ingest_that_cannot_be_read_back_reports_an_unknown_outcome() {
    let direct = TestApp::start().await;
    let base = direct.fixtures().asset_with_version("knowledge_base", "handbook", knowledge_content("handbook")).await;
    let proxy = FaultProxy::start_for_database(direct.database(), 1);
    let proxied = TestApp::builder().sharing_storage_of(&direct).through_proxy(&proxy).start().await;
    proxy.set_fault(ProxyFault::Matching("SELECT \"knowledge_ingest\".\"revision\""));
    let response = proxied.post(documents_path(&base), text_document("leave", "Thirty days.")).await.expect(503);
    assert_eq!(response["detail"]["may_have_happened"], true, "{response}");
    let keyed = || {
        proxied.post(documents_path(&base), text_document("travel", "Take the train.")).header("idempotency-key", "one")
    };
    assert_eq!(keyed().await.expect(503)["detail"]["error"], "unavailable");
    proxy.set_fault(ProxyFault::None);
    let ingest = keyed().await.expect(201);
    assert_eq!(ingest["index_revision"], 2);
    let listed = direct.get(documents_path(&base)).await.expect(200);
    assert_eq!(listed.as_array().unwrap().len(), 2, "each ingest took effect once: {listed}");
}
