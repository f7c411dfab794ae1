//! Lists of use cases: a later page costs as much as the first page.
//!
//! All rows belong to one workspace. PostgreSQL may therefore count the first 10,001 of them with a sequential scan.

use crate::{
    fixture::{Fixture, scope},
    indexes::measure,
};
use fairway_domain::{
    store::{Cursor, PageRequest, PageStart},
    tenant::{DEFAULT_TENANT_ID, DEFAULT_WORKSPACE_ID},
    use_case::{
        UseCaseStatus,
        ports::{UseCaseFilter, UseCaseStore},
    },
};
use uuid::Uuid;

/// SQL that adds 100,000 use cases, numbered from 1. Every second use case waits for access to a connection that
/// exists.
fn fill() -> String {
    let bundle = r#"{
        "name": "Triage", "summary": "", "connections": ["crm"], "model_policy_ref": "main-model",
        "flow": { "entry_step": "done", "steps": [{ "id": "done", "type": "return", "output": "{{trigger.ticket}}" }] },
        "prompt_template": { "template": "Sort $arg:ticket" }
    }"#;
    format!(
        "INSERT INTO use_case (tenant_id, use_case_id, workspace_id, status, name, summary, source_description, bundle,
            connections, revision, created_at, created_by, updated_at)
         SELECT '{DEFAULT_TENANT_ID}', lpad(to_hex(n), 32, '0')::uuid, '{DEFAULT_WORKSPACE_ID}',
            CASE n % 2 WHEN 0 THEN 'draft' ELSE 'pending_access' END, 'x', '', 'x', '{bundle}', ARRAY['crm'], 1, now(),
            'user:eve', now()
         FROM generate_series(1, 100000) AS n;
         INSERT INTO connection VALUES ('{DEFAULT_TENANT_ID}', gen_random_uuid(), '{DEFAULT_WORKSPACE_ID}', 'crm', 'other', NULL,
            '{{}}', NULL, 'active', 'unchecked', NULL, NULL, 1, now(), 'user:eve', now());
         ANALYZE use_case, connection"
    )
}

#[tokio::test]
async fn thousandth_page_reads_as_many_blocks_as_the_first() {
    let fixture = Fixture::new().await;
    fixture.run(&fill()).await;
    let mut database = fixture.into_database();
    // The last page of the list contains the numbers 1 to 100. Half of them match the filters.
    let last: Cursor = Uuid::from_u128(101).into();
    for (status, is_activation_ready, limit) in
        [(None, false, 100), (Some(UseCaseStatus::Draft), false, 50), (None, true, 50)]
    {
        let filter = UseCaseFilter { workspace: DEFAULT_WORKSPACE_ID.into(), status, is_activation_ready };
        let mut blocks_of = Vec::new();
        for start in [PageStart::Skip(0), PageStart::After(last)] {
            let (returned_database, counts) = measure(database, async |_, store| {
                let page = UseCaseStore::list(store, scope(), filter, PageRequest { limit, start }).await.unwrap();
                assert_eq!(page.rows.len(), usize::try_from(limit).unwrap(), "{filter:?}");
            })
            .await;
            database = returned_database;
            blocks_of.push(counts["use_case"].blocks);
        }
        assert!(blocks_of[1] * 10 <= blocks_of[0] * 13, "{filter:?}: blocks of both pages: {blocks_of:?}");
    }
}
