//! The fact log: under concurrent writers and sequencers, each fact gets one index, without gaps.

use crate::fixture::{Fixture, actor, fresh, new_asset, now, open_store, scope, stamp};
use fairway_domain::{
    asset::{Asset, kind::AssetKind, ports::AssetStore},
    audit::{AuditFilter, AuditStore, Fact, FactKind, FactSequencer, FactSubject, Stamp, leaf_hash},
    id::TenantId,
    store::{Page, PageRequest},
    tenant::{DEFAULT_TENANT_ID, Tenant, TenantScope, TenantStore, Workspace, WorkspaceIds, WorkspaceStore},
    transparency_log::{TreeHash, TreeStore},
};
use fairway_postgres::Database;
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::task::JoinSet;
use tokio_postgres::GenericClient;
use uuid::Uuid;

const WRITERS: usize = 16;
const ENTRIES: usize = 100;
const SEQUENCERS: usize = 3;

/// A second tenant with a workspace for assets.
async fn second_tenant(store: &Database) -> (TenantScope, Workspace) {
    let change = Tenant::create(fresh(), "second", "Second", &stamp()).unwrap();
    let second_scope = TenantScope::for_background_task(change.next.tenant_id);
    TenantStore::commit_new(store, scope(), second_scope, change, None).await.unwrap();
    let change = Workspace::create(
        WorkspaceIds { workspace_id: fresh(), namespace_id: fresh(), assistant_id: fresh() },
        "home",
        "Home",
        "home",
        &stamp(),
    )
    .unwrap();
    let workspace = WorkspaceStore::commit_new(store, second_scope, change, None).await.unwrap();
    (second_scope, workspace)
}

/// Runs a sequencer until no writer is active and no fact is pending. Returns the number of sequenced facts.
async fn sequence(store: Arc<Database>, writing: Arc<AtomicUsize>) -> u64 {
    let mut all = 0;
    loop {
        let is_last_pass = writing.load(Ordering::SeqCst) == 0;
        let sequenced = store.sequence().await.unwrap();
        all += sequenced;
        if is_last_pass && sequenced == 0 {
            return all;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_and_sequencers_produce_gapless_logs() {
    let fixture = Fixture::with_connections(WRITERS).await;
    let (second_scope, workspace) = second_tenant(&fixture.store).await;
    let writing = Arc::new(AtomicUsize::new(WRITERS));
    let mut sequencers = JoinSet::new();
    for _ in 0..SEQUENCERS {
        let store = open_store(&fixture.database.url_for_owner(), 1);
        sequencers.spawn(sequence(store, Arc::clone(&writing)));
    }
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let (store, writing, workspace) = (Arc::clone(&fixture.store), Arc::clone(&writing), workspace.clone());
        writers.spawn(async move {
            for _ in 0..ENTRIES {
                let mut new = new_asset(AssetKind::Skill);
                let scope = if number % 4 == 0 {
                    (new.workspace_id, new.namespace_id) = (workspace.workspace_id, workspace.namespace_id);
                    second_scope
                } else {
                    scope()
                };
                AssetStore::commit_new(&*store, scope, Asset::create(new, &stamp()), None).await.unwrap();
            }
            writing.fetch_sub(1, Ordering::SeqCst);
        });
    }
    writers.join_all().await;
    let sequenced: u64 = sequencers.join_all().await.into_iter().sum();
    // Because of each other's locks, the sequencers may have skipped the last facts. One more pass sequences them.
    let sequenced = sequenced + sequence(Arc::clone(&fixture.store), writing).await;

    let facts = fixture.query_number("SELECT count(*) FROM fact").await;
    assert_eq!(facts, i64::try_from(WRITERS * ENTRIES).unwrap() + 2);
    assert_eq!(i64::try_from(sequenced).unwrap(), facts, "each fact gets one index");
    assert_eq!(fixture.query_number("SELECT count(*) FROM fact_pending").await, 0);
    let logs = "SELECT tenant_id, count(*), min(index), max(index), count(DISTINCT fact_id), max(size)
        FROM fact_order JOIN fact_log USING (tenant_id) GROUP BY tenant_id ORDER BY count(*)";
    let rows = fixture.owner.query(logs, &[]).await.unwrap();
    let second_tenant_facts = i64::try_from(WRITERS / 4 * ENTRIES).unwrap();
    let expected =
        [(second_scope.tenant().uuid(), second_tenant_facts + 2), (DEFAULT_TENANT_ID, 3 * second_tenant_facts)];
    assert_eq!(rows.len(), expected.len());
    for (row, (tenant, entries)) in rows.iter().zip(expected) {
        assert_eq!(row.get::<_, Uuid>(0), tenant);
        let numbers: Vec<i64> = (1..6).map(|column| row.get(column)).collect();
        assert_eq!(numbers, [entries, 0, entries - 1, entries, entries]);
    }
    let mismatched_rows = "SELECT count(*) FROM fact_order JOIN fact USING (fact_id)
        WHERE fact.tenant_id <> fact_order.tenant_id
            OR fact.workspace_id IS DISTINCT FROM fact_order.workspace_id";
    assert_eq!(fixture.query_number(mismatched_rows).await, 0);
}

/// Writes a fact as a store does.
async fn record(client: &impl GenericClient, fact_id: Uuid) {
    let stamp = Stamp { fact_id: fact_id.into(), at: now(), actor: actor(), request_id: fresh() };
    let subject = FactSubject { kind: "asset", id: Uuid::now_v7() };
    let fact = Fact::new(FactKind::AssetCreated, subject, None, &stamp, json!({ "slug": "x" }));
    let body = fact.canonical_bytes(TenantId::from(DEFAULT_TENANT_ID));
    let leaf = leaf_hash(&body).to_vec();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let sql = format!(
        "SELECT fairway_commit(true, '{DEFAULT_TENANT_ID}', '{fact_id}', NULL, '{}', '\\x{}', '\\x{}', NULL, NULL, NULL, NULL, NULL, NULL)",
        fact.kind.as_str(),
        hex(&body),
        hex(&leaf)
    );
    client.batch_execute(&sql).await.unwrap();
}

async fn order(fixture: &Fixture) -> Vec<(i64, Uuid)> {
    let rows = fixture.owner.query("SELECT index, fact_id FROM fact_order ORDER BY index", &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test]
async fn late_commit_gets_the_next_index_and_shifts_no_other() {
    let fixture = Fixture::new().await;
    let (early, late) = (Uuid::now_v7(), Uuid::now_v7());
    let mut slow_client = fixture.database.connect_as_owner().await.unwrap();
    let transaction = slow_client.transaction().await.unwrap();
    record(&transaction, early).await;
    record(&fixture.owner, late).await;
    assert_eq!(fixture.store.sequence().await.unwrap(), 1);
    assert_eq!(order(&fixture).await, [(0, late)]);
    transaction.commit().await.unwrap();
    assert_eq!(fixture.store.sequence().await.unwrap(), 1);
    assert_eq!(order(&fixture).await, [(0, late), (1, early)]);
}

#[tokio::test]
async fn crashed_sequencer_leaves_no_gap_and_no_duplicate_index() {
    let fixture = Fixture::new().await;
    let facts: Vec<Uuid> = (0..5).map(|_| Uuid::now_v7()).collect();
    for fact in &facts {
        record(&fixture.owner, *fact).await;
    }
    let mut crashing_client = fixture.database.connect_as_owner().await.unwrap();
    let transaction = crashing_client.transaction().await.unwrap();
    let sql = format!("SELECT fairway_sequence('{DEFAULT_TENANT_ID}', 3)");
    let sequenced: i64 = transaction.query_one(&sql, &[]).await.unwrap().get(0);
    assert_eq!(sequenced, 3);
    assert_eq!(fixture.store.sequence().await.unwrap(), 0, "a second sequencer must skip a locked log");
    transaction.rollback().await.unwrap();
    assert_eq!(fixture.store.sequence().await.unwrap(), 5);
    let expected: Vec<(i64, Uuid)> = (0..).zip(facts).collect();
    assert_eq!(order(&fixture).await, expected);
}

#[tokio::test]
async fn leaves_are_the_hashes_that_the_facts_were_sequenced_with() {
    let fixture = Fixture::new().await;
    let facts: Vec<Uuid> = (0..3).map(|_| Uuid::now_v7()).collect();
    for fact in &facts {
        record(&fixture.owner, *fact).await;
    }
    assert_eq!(fixture.store.sequence().await.unwrap(), 3);
    let rows = fixture.owner.query("SELECT leaf_hash FROM fact ORDER BY fact_id", &[]).await.unwrap();
    let recorded: Vec<TreeHash> = rows.iter().map(|row| TreeHash::from_slice(row.get(0)).unwrap()).collect();
    // The second fact is edited before the tree covers it. The third fact has no hash in `fact_order`, like a fact that
    // was indexed before migration 0024.
    let edit = format!(
        "ALTER TABLE fact DISABLE TRIGGER append_only; ALTER TABLE fact_order DISABLE TRIGGER append_only;
        UPDATE fact SET body = 'x', leaf_hash = sha256('\\x0078') WHERE fact_id = '{}';
        UPDATE fact_order SET leaf_hash = NULL WHERE fact_id = '{}'",
        facts[1], facts[2]
    );
    fixture.run(&edit).await;
    assert_eq!(fixture.store.leaves(scope(), 0, 10).await.unwrap(), recorded);
}

#[tokio::test]
async fn plan_from_an_empty_log_reads_each_fact_once() {
    const FACTS: i64 = 3_000;
    let fixture = Fixture::new().await;
    let new_store = open_store(&fixture.database.url_for_owner(), 1);
    // The tables have no statistics yet, and this connection caches the plans that it makes now.
    fixture.run("DELETE FROM fact_pending").await;
    record(&fixture.owner, Uuid::now_v7()).await;
    assert_eq!(new_store.sequence().await.unwrap(), 1);
    let fill = format!(
        "WITH made AS (
            INSERT INTO fact SELECT '{DEFAULT_TENANT_ID}', gen_random_uuid(), NULL, 'x', 'x', sha256('x')
            FROM generate_series(1, {FACTS})
            RETURNING fact_id)
         INSERT INTO fact_pending SELECT '{DEFAULT_TENANT_ID}', fact_id FROM made"
    );
    fixture.run(&fill).await;
    let mut sequenced = 0;
    while sequenced < FACTS.unsigned_abs() {
        sequenced += new_store.sequence().await.unwrap();
    }
    drop(new_store);
    let database = fixture.into_database();
    let client = crate::indexes::wait_for_other_connections(&database).await;
    let sql = "SELECT relname::text, idx_tup_read FROM pg_stat_user_indexes WHERE relname IN ('fact', 'fact_pending')";
    for row in client.query(sql, &[]).await.unwrap() {
        let (table, read): (String, i64) = (row.get(0), row.get(1));
        // Each of the four calls checks for pending facts and takes a batch. Both steps may scan dead entries of
        // earlier batches. The plan that must be avoided reads all facts for each fact, which is a hundred times more.
        assert!(read <= 2 * 4 * FACTS, "{read} index entries of `{table}` were read for {FACTS} facts");
    }
}

#[tokio::test]
async fn order_survives_a_copy_to_another_cluster() {
    let (source, target) = (Fixture::new().await, Fixture::new().await);
    let facts: Vec<Uuid> = (0..20).map(|_| Uuid::now_v7()).collect();
    // Facts are inserted in reverse order, so that the log's order differs from the order of transaction identifiers.
    for fact in facts.iter().rev() {
        record(&source.owner, *fact).await;
        source.store.sequence().await.unwrap();
    }
    let pending_fact = Uuid::now_v7();
    record(&source.owner, pending_fact).await;
    target.run("DELETE FROM fact_log").await;
    for table in ["fact", "fact_pending", "fact_order", "fact_log"] {
        let read = format!("SELECT coalesce(json_agg(row ORDER BY md5(row::text)), '[]') FROM {table} AS row");
        let rows: Value = source.owner.query_one(&read, &[]).await.unwrap().get(0);
        let rows = rows.to_string().replace('\'', "''");
        let write = format!("INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, '{rows}')");
        target.run(&write).await;
    }
    assert_eq!(order(&target).await, order(&source).await);
    assert_eq!(target.store.sequence().await.unwrap(), 1);
    assert_eq!(order(&target).await.last(), Some(&(20, pending_fact)));
    let page = PageRequest::first(200);
    let copied = AuditStore::list(&*target.store, scope(), AuditFilter::default(), None, page).await.unwrap().rows;
    source.store.sequence().await.unwrap();
    let listed = AuditStore::list(&*source.store, scope(), AuditFilter::default(), None, page).await;
    let Page { rows: original, total, .. } = listed.unwrap();
    assert_eq!(copied, original);
    assert_eq!(total, 21);
}

#[tokio::test]
async fn stored_bytes_are_canonical_and_match_their_hash() {
    let fixture = Fixture::new().await;
    for commit in crate::commit_cases::COMMITS {
        (commit.decide(&fixture).await.send)(None).await.unwrap();
    }
    let sql = "SELECT tenant_id, fact_id, kind, body, leaf_hash,
        sha256('\\x00'::bytea || body) AS hashed FROM fact";
    let rows = fixture.owner.query(sql, &[]).await.unwrap();
    assert!(rows.len() > crate::commit_cases::COMMITS.len());
    for row in rows {
        let body: &[u8] = row.get("body");
        // PostgreSQL's hash function computes the leaf hash independently.
        assert_eq!(row.get::<_, &[u8]>("leaf_hash"), row.get::<_, &[u8]>("hashed"));
        assert_eq!(leaf_hash(body), row.get::<_, &[u8]>("leaf_hash"));
        let document: Value = serde_json::from_slice(body).unwrap();
        assert_eq!(serde_json_canonicalizer::to_vec(&document).unwrap(), body);
        assert_eq!(document["fact_id"], json!(row.get::<_, Uuid>("fact_id")));
        assert_eq!(document["tenant_id"], json!(row.get::<_, Uuid>("tenant_id")));
        assert_eq!(document["kind"], json!(row.get::<_, &str>("kind")));
    }
}
