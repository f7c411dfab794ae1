//! Interfaces of workloads: stored unchanged, found by their words, and rejected if they are unreadable.

use crate::fixture::{Fixture, scope, stamp};
use fairway_domain::{
    search_words::WordSet,
    store::PageRequest,
    workload::{
        WorkloadPatch,
        interface::InterfaceConfig,
        ports::{RuntimeInterfaceFilter, WorkloadStore},
    },
};
use serde_json::{Value, json};

async fn workload_with_interface(fixture: &Fixture, document: &Value) -> fairway_domain::workload::Workload {
    let workload = fixture.workload().await;
    let config = InterfaceConfig::parse(document).unwrap();
    let patch = WorkloadPatch { interface_config: Some(Some(config)), ..WorkloadPatch::default() };
    let change = workload.apply_patch(patch, &stamp()).unwrap().unwrap();
    let next = change.next.clone();
    WorkloadStore::commit_change(&*fixture.store, scope(), change).await.unwrap();
    next
}

#[tokio::test]
async fn reads_back_the_committed_interface() {
    let fixture = Fixture::new().await;
    let document = json!({
        "presentation_mode": "form", "description": "Sorts 'tickets' \\ with \"care\".",
        "input_fields": [
            { "name": "amount", "type": "number", "min": -0.5, "max": 1e300, "default": 0.1 },
            { "name": "tone", "type": "select", "options": ["ä", "it's"] },
        ],
        "rollout_config": { "error_threshold": 0.30 },
    });
    let workload = workload_with_interface(&fixture, &document).await;
    let read = WorkloadStore::find(&*fixture.store, scope(), workload.workload_id).await.unwrap().unwrap();
    assert_eq!(read, workload);
    assert_eq!(WorkloadStore::find_by_slug(&*fixture.store, scope(), &workload.slug).await.unwrap(), Some(workload));
}

#[tokio::test]
async fn words_find_workloads_within_one_tenant() {
    let fixture = Fixture::new().await;
    let workload =
        workload_with_interface(&fixture, &json!({ "presentation_mode": "chat", "description": "Größe, it's 100%" }))
            .await;
    let found = async |text: &str| {
        let filter =
            RuntimeInterfaceFilter { words: Some(WordSet::from_texts([text])), ..RuntimeInterfaceFilter::default() };
        let page = PageRequest::first(10);
        let found = WorkloadStore::list_runtime(&*fixture.store, scope(), &filter, page).await.unwrap();
        let (rows, total) = (found.rows, found.total);
        assert_eq!(u64::try_from(rows.len()).unwrap(), total);
        rows.iter().any(|row| row.workload_id == workload.workload_id)
    };
    for text in ["größe", "GRÖ", "100", "s it", "gro\u{308}ße"] {
        assert!(found(text).await, "{text}");
    }
    for text in ["rösse", "größer", "größe missing"] {
        assert!(!found(text).await, "{text}");
    }
    // In the search index, every word has the tenant as a prefix.
    let unprefixed_words = "SELECT count(*) FROM workload, unnest(search) AS word
        WHERE NOT starts_with(word.lexeme, tenant_id || '/')";
    assert_eq!(fixture.query_number(unprefixed_words).await, 0);
    assert!(fixture.query_number("SELECT count(*) FROM workload, unnest(search)").await > 3);
}

#[tokio::test]
async fn rejects_an_unreadable_interface_document() {
    let fixture = Fixture::new().await;
    let workload = fixture.workload().await;
    for document in [
        json!([]),
        json!("form"),
        json!({}),
        json!({ "presentation_mode": null }),
        json!({ "presentation_mode": "window" }),
        json!({ "presentation_mode": "form", "access_mode": "everybody" }),
        json!({ "presentation_mode": "form", "access_mode": null }),
    ] {
        let id = workload.workload_id;
        let sql = format!("UPDATE workload SET interface_config = '{document}' WHERE workload_id = '{id}'");
        let error = fixture.owner.batch_execute(&sql).await.unwrap_err();
        let constraint = error.as_db_error().and_then(|error| error.constraint()).unwrap_or_default().to_owned();
        assert!(constraint.starts_with("workload_interface_"), "{document}: {error:?}");
    }
}
