//! Every statement of the stores finds its rows through an index, even if tables are large.
//!
//! PostgreSQL counts the sequential scans of each table. The counters cover the statements that were really
//! executed, so they are stronger evidence than query plans of copied statements.

mod execute_all_statements;
mod execute_reads_of_absent_rows;

use crate::{
    commit_cases::COMMITS,
    fixture::{Fixture, acceptance, ending, open_store, scope},
};
use execute_all_statements::{execute_lists, execute_point_statements};
use execute_reads_of_absent_rows::execute_lists_of_absent_rows;
use fairway_domain::{
    access::OwnerRef,
    asset::impact::{BindingTarget, ImpactStore},
    audit::FactSequencer,
    execution::ports::{AcceptOutcome, ExecutionReadStore, RunStore},
    store::PageRequest,
    workload::{
        interface::PresentationMode,
        ports::{RuntimeInterfaceFilter, WorkloadStore},
    },
};
use fairway_postgres::Database;
use fairway_testkit::TestDatabase;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use tokio_postgres::Row;

/// Minimum number of rows of a large table. PostgreSQL may scan smaller tables sequentially.
const LARGE_TABLE_ROWS: i64 = 2_000;

/// Maximum number of blocks (of table and indexes) that are read to find or write one row. A full index scan reads
/// more than fifty.
pub(crate) const MAX_BLOCKS_PER_ROW: i64 = 10;

/// Number of repetitions. After five executions of a statement, PostgreSQL may choose a generic plan.
pub(crate) const TURNS: usize = 8;

/// SQL that adds twenty tenants with a few hundred rows in each table.
const FILL: &str = "
    INSERT INTO tenant SELECT fairway_uuid_floor(now() + n * interval '1 ms'), 'tenant-' || n, 'x', true, false, '{}',
        1, 1, now(), 'user:eve' FROM generate_series(1, 20) AS n ON CONFLICT DO NOTHING;
    INSERT INTO fact_log SELECT tenant_id, 0 FROM tenant ON CONFLICT DO NOTHING;
    INSERT INTO namespace SELECT tenant_id, gen_random_uuid(), 'home' FROM tenant ON CONFLICT DO NOTHING;
    INSERT INTO workspace SELECT tenant_id, gen_random_uuid(), namespace_id, 'home', 'x', now(), 'user:eve'
        FROM namespace WHERE slug = 'home' ON CONFLICT DO NOTHING;
    INSERT INTO role_binding SELECT tenant_id, gen_random_uuid(), 'user:' || n, 'tenant_admin', 'tenant', tenant_id,
        now(), 'user:eve' FROM tenant, generate_series(1, 400) AS n ON CONFLICT DO NOTHING;
    INSERT INTO bound_principal SELECT 'user:' || n FROM generate_series(1, 8000) AS n ON CONFLICT DO NOTHING;
    INSERT INTO asset (tenant_id, asset_id, slug, asset_kind, owner_ref, lifecycle_state, ownership_tier,
            workspace_id, namespace_id, last_label, revision, created_at, created_by, last_ordinal)
        SELECT workspace.tenant_id, gen_random_uuid(), 'a-' || n, 'policy_bundle', 'team:x', 'active',
        'workspace', workspace_id, namespace_id, 1, 1, now(), 'user:eve', 1
        FROM workspace, generate_series(1, 400) AS n WHERE slug IN ('home') ON CONFLICT DO NOTHING;
    INSERT INTO asset_version SELECT tenant_id, gen_random_uuid(), asset_id, 'v1', 1, '{}', 'x',
        'blake3:' || repeat('0', 64), now(), 'user:eve' FROM asset ON CONFLICT DO NOTHING;
    INSERT INTO withdrawn_route SELECT tenant_id, asset_id, 'primary', 1, asset_version_id, 'retired' FROM asset_version ON CONFLICT DO NOTHING;
    INSERT INTO asset_version_source SELECT tenant_id, asset_version_id, 'x' FROM asset_version ON CONFLICT DO NOTHING;
    INSERT INTO asset_version_note SELECT tenant_id, asset_version_id, 'x' FROM asset_version ON CONFLICT DO NOTHING;
    INSERT INTO asset_reference SELECT tenant_id, asset_version_id, 0, 'other-' || row_number() OVER (), NULL, '/a'
        FROM asset_version ON CONFLICT DO NOTHING;
    INSERT INTO asset_grant SELECT tenant_id, gen_random_uuid(), asset_id, 'user:' || row_number() OVER (), NULL, now(),
        'user:eve' FROM asset ON CONFLICT DO NOTHING;
    INSERT INTO workload SELECT workspace.tenant_id, gen_random_uuid(), 'w-' || n, 'x', '', 'team:x', 'registered',
        'api', workspace_id, 1, now(), 'user:eve', now(), NULL, '{\"presentation_mode\": \"form\"}',
        array_to_tsvector(ARRAY[workspace.tenant_id || '/word' || n, workspace.tenant_id || '/all'])
        FROM workspace, generate_series(1, 400) AS n WHERE slug IN ('home') ON CONFLICT DO NOTHING;
    INSERT INTO principal_binding SELECT tenant_id, workload_id, 'user:' || row_number() OVER (), gen_random_uuid(),
        'guided', 1, now(), 'user:eve', now(), 'user:eve' FROM workload ON CONFLICT DO NOTHING;
    INSERT INTO release SELECT tenant_id, gen_random_uuid(), workload_id, workspace_id, 'dev', 'all', 'active', 'x',
        NULL, NULL, 1, now(), 'user:eve', now() FROM workload ON CONFLICT DO NOTHING;
    INSERT INTO release_binding SELECT tenant_id, gen_random_uuid(), release_id, 'policy_bundle', (
            SELECT asset_version_id FROM asset_version WHERE asset_version.tenant_id = release.tenant_id LIMIT 1),
        now(), 'user:eve' FROM release ON CONFLICT DO NOTHING;
    INSERT INTO release_reference SELECT tenant_id, release_id, 'x', asset_version_id, 'a', '', asset_version_id
        FROM release_binding ON CONFLICT DO NOTHING;
    INSERT INTO approval SELECT tenant_id, gen_random_uuid(), release_id, 'approved', 'x', 'user:eve', now(), 1
        FROM release ON CONFLICT DO NOTHING;
    INSERT INTO approval_note SELECT tenant_id, approval_id, 'x' FROM approval ON CONFLICT DO NOTHING;
    INSERT INTO deployment SELECT tenant_id, workload_id, 'dev', NULL, NULL, release_id, 2 FROM release ON CONFLICT DO NOTHING;
    INSERT INTO deployment_history SELECT tenant_id, workload_id, 'dev', 2, 'standard', NULL, release_id, 'activation',
        'user:eve', now() FROM release ON CONFLICT DO NOTHING;
    INSERT INTO evidence_snapshot SELECT tenant_id, sha256(release_id::text::bytea), '{}' FROM release ON CONFLICT DO NOTHING;
    INSERT INTO execution (tenant_id, execution_id, workload_id, workspace_id, release_id, environment, lane, submitter,
            snapshot, input_digest, status, outcome, started_at, finished_at)
        SELECT tenant_id, fairway_uuid_floor(now() + row_number() OVER () * interval '1 ms'), workload_id,
            workspace_id, release_id, 'dev', 'standard', 'user:eve', sha256(release_id::text::bytea), '\\x00',
            'completed', 'success', now(), now()
        FROM release ON CONFLICT DO NOTHING;
    INSERT INTO execution_lease SELECT tenant_id, execution_id, gen_random_uuid(), interval '30 s',
        now() + interval '1 day', now() + interval '1 day' FROM execution ON CONFLICT DO NOTHING;
    INSERT INTO execution_review SELECT tenant_id, execution_id, workload_id, workspace_id, release_id, now() - interval '1 day',
        now() + interval '1 day' FROM execution ON CONFLICT DO NOTHING;
    INSERT INTO execution_input SELECT tenant_id, execution_id, substr(sha256('x'), 1, 16), '{}' FROM execution ON CONFLICT DO NOTHING;
    INSERT INTO execution_result SELECT tenant_id, execution_id, substr(sha256('x'), 1, 16), '{}' FROM execution ON CONFLICT DO NOTHING;
    INSERT INTO policy_decision SELECT tenant_id, execution_id, gen_random_uuid(), 'allow', 'x', '{}', '{}', now()
        FROM execution ON CONFLICT DO NOTHING;
    INSERT INTO execution_step SELECT tenant_id, execution_id, 1, 'x', 'return', NULL, 1 FROM execution ON CONFLICT DO NOTHING;
    INSERT INTO evidence_artifact SELECT tenant_id, execution_id, gen_random_uuid(), 'x', 'x', '{}', now()
        FROM execution ON CONFLICT DO NOTHING;
    INSERT INTO execution_progress SELECT tenant_id, execution_id, 1, NULL, '[]' FROM execution ON CONFLICT DO NOTHING;
    INSERT INTO execution_queue SELECT tenant_id, fairway_uuid_floor(now() + interval '1 hour' + n * interval '1 ms')
        FROM tenant, generate_series(1, 400) AS n ON CONFLICT DO NOTHING;
    INSERT INTO evidence_payload SELECT tenant_id, execution_id, artifact_id, '\\x00000000000000000000000000000000', '{}'
        FROM evidence_artifact ON CONFLICT DO NOTHING;
    INSERT INTO obligation_fulfilment SELECT tenant_id, execution_id, 'notify_owner', now() FROM execution ON CONFLICT DO NOTHING;
    INSERT INTO context_lineage SELECT tenant_id, execution_id, gen_random_uuid(), 'user_input', 'input', 'generate',
        'inputs', sha256('x'), 1, NULL, now() FROM execution ON CONFLICT DO NOTHING;
    INSERT INTO fact SELECT tenant_id, fact_id, NULL, 'asset.created', convert_to(json_build_object(
            'fact_id', fact_id, 'kind', 'asset.created', 'subject', json_build_object('kind', 'asset', 'id', tenant_id),
            'actor', 'user:eve', 'request_id', fact_id, 'occurred_at', '2026-01-01T00:00:00Z')::text, 'UTF8'),
        sha256('x')
        FROM tenant, generate_series(1, 500) AS n, fairway_uuid_floor(now() + n * interval '1 ms') AS fact_id ON CONFLICT DO NOTHING;
    INSERT INTO fact_order SELECT tenant_id, row_number() OVER (PARTITION BY tenant_id ORDER BY fact_id) - 1, fact_id,
        NULL FROM fact ON CONFLICT DO NOTHING;
    UPDATE fact_log SET size = (SELECT count(*) FROM fact_order WHERE fact_order.tenant_id = fact_log.tenant_id);
    INSERT INTO suppressed_decision SELECT tenant_id, fact_id, 'user:' || row_number() OVER (), 'incidents', 'workload.changed',
        fact_id, 'preference_off', 'global', 1, NULL, NULL, now() FROM fact ON CONFLICT DO NOTHING;
    INSERT INTO access_contract SELECT tenant_id, 'contract-' || asset_id, asset_id, false FROM asset ON CONFLICT DO NOTHING;
    INSERT INTO contract_revocation SELECT tenant_id, contract_id, gen_random_uuid(), asset_id, now(), 'user:eve'
        FROM access_contract WHERE contract_id LIKE 'contract-%' ON CONFLICT DO NOTHING;
    INSERT INTO contract_revocation_reason SELECT tenant_id, revocation_id, 'x' FROM contract_revocation ON CONFLICT DO NOTHING;
    INSERT INTO knowledge_index SELECT tenant_id, asset_id, 1, 1 FROM asset ON CONFLICT DO NOTHING;
    INSERT INTO knowledge_ingest SELECT tenant_id, asset_id, 1, gen_random_uuid(), 'sentence', 512, NULL, NULL, 1, now(),
        'user:eve' FROM asset ON CONFLICT DO NOTHING;
    INSERT INTO knowledge_document SELECT tenant_id, gen_random_uuid(), asset_id, 'd', 1, 'blake3:' || repeat('0', 64), 1, 1,
        now(), 'user:eve' FROM asset ON CONFLICT DO NOTHING;
    INSERT INTO knowledge_document_text SELECT tenant_id, entry_id, 'x', NULL, '{}', 'x' FROM knowledge_document ON CONFLICT DO NOTHING;
    INSERT INTO knowledge_chunk SELECT tenant_id, gen_random_uuid(), asset_id, entry_id, document_id, 0, 0, 1, 1, 'x', 1,
        NULL, '', '', 'x', NULL FROM knowledge_document ON CONFLICT DO NOTHING;
    INSERT INTO knowledge_word SELECT tenant_id, asset_id, 'x', 1, 1 FROM asset ON CONFLICT DO NOTHING;
    INSERT INTO knowledge_pin SELECT tenant_id, release_id, asset_id, 1 FROM release JOIN LATERAL (
            SELECT asset_id FROM asset WHERE asset.tenant_id = release.tenant_id LIMIT 1) AS one ON true ON CONFLICT DO NOTHING;
    INSERT INTO idempotency_key SELECT tenant_id, 'user:eve', 'POST /v1/assets', 'k' || n, sha256('x'), 201,
        tenant_id, now() FROM tenant, generate_series(1, 400) AS n ON CONFLICT DO NOTHING;
    INSERT INTO identity SELECT tenant_id, gen_random_uuid(), 'https://idp.example', 's-' || n, 'user:s-' || n, '{}', NULL,
        now(), now() FROM tenant, generate_series(1, 400) AS n ON CONFLICT DO NOTHING;
    INSERT INTO session SELECT tenant_id, gen_random_uuid(), sha256(identity_id::text::bytea), identity_id, NULL, 'x', '{}',
        now(), '', now(), now(), now() + interval '1 day', NULL FROM identity ON CONFLICT DO NOTHING;
    INSERT INTO share_link SELECT tenant_id, gen_random_uuid(), workload_id, sha256(workload_id::text::bytea), NULL, NULL, 9,
        0, now() + interval '1 day', NULL, NULL, now(), 'user:eve' FROM workload ON CONFLICT DO NOTHING;
    INSERT INTO memory_turn SELECT tenant_id, execution_id, workload_id, gen_random_uuid(), 'user:eve', 's', 'x', 'x', 2,
        substr(sha256('x'), 1, 16), sha256('x'), true, '{}', false, now(), now() + interval '1 day'
        FROM execution ON CONFLICT DO NOTHING;
    INSERT INTO memory_session SELECT tenant_id, workload_id, 'user:eve', 's', NULL, now() FROM workload ON CONFLICT DO NOTHING;
    INSERT INTO connection SELECT tenant_id, gen_random_uuid(), workspace_id, 'c-' || n, 'other', NULL, '{}', NULL, 'active',
        'unchecked', NULL, NULL, 1, now(), 'user:eve', now()
        FROM workspace, generate_series(1, 200) AS n WHERE slug IN ('home') ON CONFLICT DO NOTHING;
    INSERT INTO use_case SELECT tenant_id, gen_random_uuid(), workspace_id, 'draft', 'x', 'x', 'x', '{}', '{}', NULL, NULL,
        NULL, NULL, NULL, 1, now(), 'user:eve', now()
        FROM workspace, generate_series(1, 200) AS n WHERE slug IN ('home') ON CONFLICT DO NOTHING;
    INSERT INTO connection_check SELECT tenant_id, gen_random_uuid(), connection_id, 'healthy', NULL, now(), 'user:eve'
        FROM connection ON CONFLICT DO NOTHING;
    INSERT INTO notification_preference SELECT tenant_id, 'user:p-' || n, 'global', tenant_id, '', gen_random_uuid(), '[]', 1,
        now() FROM tenant, generate_series(1, 200) AS n ON CONFLICT DO NOTHING;
    INSERT INTO notification_profile SELECT tenant_id, 'user:p-' || n, gen_random_uuid(), 'UTC', '{}', NULL, 1, now()
        FROM tenant, generate_series(1, 200) AS n ON CONFLICT DO NOTHING;
    INSERT INTO notification (tenant_id, notification_id, recipient, status, category, severity, title, body, event_kind,
            event_id, log_index, created_at, revision)
        SELECT tenant_id, fact_id, 'user:' || row_number() OVER (), 'unread', 'incidents', 'info', 'x', 'x', 'asset.created',
            fact_id, 1, now(), 1 FROM fact ON CONFLICT DO NOTHING;
    INSERT INTO notification_delivery (tenant_id, delivery_id, lane, channel, recipient, status, due_at,
            notification_generation, category, severity, title, body, event_kind, event_id, created_at, revision)
        SELECT tenant_id, fact_id, gen_random_uuid(), 'email', 'user:' || row_number() OVER (), 'failed', now(), 1,
            'incidents', 'info', 'x', 'x', 'asset.created', fact_id, now(), 1 FROM fact ON CONFLICT DO NOTHING;
    ANALYZE;";

/// Waits until no other client is connected, because a connection reports its statistics at the latest when it ends.
pub(crate) async fn wait_for_other_connections(database: &TestDatabase) -> tokio_postgres::Client {
    let client = database.connect_as_owner().await.unwrap();
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    while client.query_one(others, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        tokio::task::yield_now().await;
    }
    client
}

/// SQL that adds interfaces in the first tenant: many forms, and one chat of the same owner.
const FORMS: &str = "
    INSERT INTO workload SELECT tenant_id, gen_random_uuid(), 'form-' || n, 'x', '', 'team:x', 'registered', 'form',
        workspace_id, 1, now(), 'user:eve', now(), NULL, '{\"presentation_mode\": \"form\"}'
        FROM workspace, generate_series(1, 4000) AS n WHERE slug = 'default';
    INSERT INTO workload SELECT tenant_id, gen_random_uuid(), 'chat', 'x', '', 'team:x', 'registered', 'chat',
        workspace_id, 1, now(), 'user:eve', now(), NULL, '{\"presentation_mode\": \"chat\"}'
        FROM workspace WHERE slug = 'default';
    ANALYZE;";

#[tokio::test]
async fn finds_a_rare_mode_without_scanning_all_interfaces() {
    let database = TestDatabase::create().await.unwrap();
    database.connect_as_owner().await.unwrap().batch_execute(FORMS).await.unwrap();
    let (_database, counts) = measure(database, async |_, store| {
        for owner in [None, Some(OwnerRef::parse("team:x").unwrap())] {
            let presentation_mode = Some(PresentationMode::Chat);
            let filter = RuntimeInterfaceFilter { presentation_mode, owner, ..RuntimeInterfaceFilter::default() };
            let found = WorkloadStore::list_runtime(store, scope(), &filter, PageRequest::first(20)).await.unwrap();
            assert_eq!((found.rows.len(), found.total), (1, 1));
        }
    })
    .await;
    assert_no_seq_scans(&counts);
    let blocks = counts["workload"].blocks_per_access();
    assert!(blocks <= MAX_BLOCKS_PER_ROW, "{blocks} blocks were read for each row");
}

/// The access statistics of a table.
#[derive(Debug)]
pub(crate) struct AccessCounts {
    /// Number of sequential scans.
    seq_scans: i64,
    /// Number of index scans and of written rows.
    row_accesses: i64,
    /// Number of blocks of the table and its indexes that were read.
    pub(crate) blocks: i64,
}

impl AccessCounts {
    pub(crate) fn blocks_per_access(&self) -> i64 {
        self.blocks / self.row_accesses.max(1)
    }
}

/// Runs `work`, and returns the access statistics of the large tables for it.
pub(crate) async fn measure(
    database: TestDatabase,
    work: impl AsyncFn(&Fixture, &Database),
) -> (TestDatabase, BTreeMap<String, AccessCounts>) {
    wait_for_other_connections(&database).await.batch_execute("SELECT pg_stat_reset()").await.unwrap();
    let fixture = Fixture::over(database, 1).await;
    let store = open_store(&fixture.database.url_for_owner(), 1);
    for _ in 0..TURNS {
        work(&fixture, &store).await;
    }
    drop(store);
    read_counts(fixture.into_database()).await
}

/// The access statistics of the large tables since their last reset.
pub(crate) async fn read_counts(database: TestDatabase) -> (TestDatabase, BTreeMap<String, AccessCounts>) {
    let client = wait_for_other_connections(&database).await;
    let sql = format!(
        "SELECT relname::text, seq_scan, coalesce(idx_scan, 0) + n_tup_ins + n_tup_upd + n_tup_del,
            (heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0))::bigint
        FROM pg_stat_user_tables JOIN pg_statio_user_tables USING (relid, relname)
        WHERE relid IN (SELECT oid FROM pg_class WHERE reltuples > {LARGE_TABLE_ROWS})"
    );
    let rows = client.query(&sql, &[]).await.unwrap();
    let count =
        |row: &Row| (row.get(0), AccessCounts { seq_scans: row.get(1), row_accesses: row.get(2), blocks: row.get(3) });
    let counts: BTreeMap<String, AccessCounts> = rows.iter().map(count).collect();
    (database, counts)
}

pub(crate) fn assert_no_seq_scans(counts: &BTreeMap<String, AccessCounts>) {
    let scanned: Vec<_> = counts.iter().filter(|(_, count)| count.seq_scans > 0).collect();
    assert!(scanned.is_empty(), "sequential scans: {scanned:?}");
}

#[tokio::test]
async fn no_statement_scans_a_whole_large_table_or_index() {
    let database = TestDatabase::create().await.unwrap();
    database.connect_as_owner().await.unwrap().batch_execute(FILL).await.unwrap();

    let (database, points) =
        measure(database, async |fixture, store| execute_point_statements(fixture, store).await).await;
    assert!(points.len() >= 19, "too few large tables: {points:?}");
    assert_no_seq_scans(&points);
    // A full index scan counts as a single index scan, so the number of blocks is compared as well.
    let exceeding: Vec<_> = points.iter().filter(|(_, count)| count.blocks_per_access() > MAX_BLOCKS_PER_ROW).collect();
    assert!(exceeding.is_empty(), "too many blocks were read for each row: {exceeding:?}");
    let accessed_tables = points.values().filter(|count| count.row_accesses > 0).count();
    assert!(accessed_tables >= 14, "too few tables were accessed: {points:?}");

    let (_database, lists) = measure(database, async |fixture, store| {
        execute_lists(fixture, store).await;
        execute_lists_of_absent_rows(store).await;
        for commit in COMMITS {
            (commit.decide(fixture).await.send)(None).await.unwrap();
        }
    })
    .await;
    assert_no_seq_scans(&lists);
}

/// SQL that copies the first release and its binding many times.
const COPY_RELEASES: &str = "
    INSERT INTO release
    SELECT (jsonb_populate_record(release, jsonb_build_object('release_id', md5(number::text)::uuid))).*
    FROM release, generate_series(1, 20000) AS number;
    INSERT INTO release_binding
    SELECT (jsonb_populate_record(binding, jsonb_build_object(
        'release_id', md5(number::text)::uuid, 'binding_id', md5('binding ' || number)::uuid))).*
    FROM release_binding AS binding, generate_series(1, 20000) AS number;
    ANALYZE;";

/// PostgreSQL expects that most bindings of the tenant match, so it prefers to join whole tables.
#[tokio::test]
async fn releases_that_bind_a_common_version_are_read_up_to_the_limit() {
    const LIMIT: u32 = 10;
    let fixture = Fixture::new().await;
    let workload = fixture.workload().await;
    let version = fixture.bindable().await;
    fixture.submitted(&workload, &version).await;
    fixture.run(COPY_RELEASES).await;
    let asset = version.asset_id;
    for target in [BindingTarget::Asset(asset), BindingTarget::Versions(&[version.asset_version_id])] {
        let found = fixture.store.binding_releases(scope(), target, LIMIT).await.unwrap();
        assert_eq!(found.len(), usize::try_from(LIMIT).unwrap());
        assert!(found.is_sorted_by(|left, right| left.release_id > right.release_id));
    }
    let (_database, counts) = measure(fixture.into_database(), async |_, store| {
        store.binding_releases(scope(), BindingTarget::Asset(asset), LIMIT).await.unwrap();
    })
    .await;
    assert_no_seq_scans(&counts);
    let read = counts["release"].row_accesses;
    let limit = i64::from(LIMIT) * i64::try_from(TURNS).unwrap();
    assert!(read <= limit, "{read} releases were read instead of {limit}");
}

/// In a partition without statistics, every index that starts with the tenant seems equally cheap. PostgreSQL must
/// still use the index that contains the run.
#[tokio::test]
async fn finds_runs_by_key_in_a_partition_without_statistics() {
    let fixture = Fixture::new().await;
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    for _ in 0..TURNS {
        let run = acceptance(&deployed_release);
        assert_eq!(fixture.store.accept(scope(), &run, revisions, None).await.unwrap(), AcceptOutcome::Accepted);
        fixture.store.finish(scope(), &ending(&run)).await.unwrap();
        ExecutionReadStore::find(&*fixture.store, scope(), run.execution_id).await.unwrap().unwrap();
    }
    let database = fixture.into_database();
    let client = wait_for_other_connections(&database).await;
    let sql = "SELECT coalesce(sum(idx_scan) FILTER (WHERE indexrelid::regclass::text LIKE '%\\_pkey'), 0)::bigint,
            coalesce(sum(idx_scan) FILTER (WHERE indexrelid::regclass::text NOT LIKE '%\\_pkey'), 0)::bigint
        FROM pg_stat_user_indexes WHERE relname LIKE 'execution\\_20%'";
    let row = client.query_one(sql, &[]).await.unwrap();
    assert!(row.get::<_, i64>(0) >= 2 * i64::try_from(TURNS).unwrap(), "{row:?}");
    assert_eq!(row.get::<_, i64>(1), 0);
}

/// SQL that disables autovacuum for every table. On a busy machine, an ANALYZE of a filled table keeps a snapshot
/// for seconds. Index scans then also read the entries of deleted rows.
const WITHOUT_AUTOVACUUM: &str = "DO $$
    DECLARE name regclass;
    BEGIN
        FOR name IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
            EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = false)', name);
        END LOOP;
    END $$";

/// On a new server, generic plans are made while the tables have no statistics. These plans must still use selective
/// indexes.
#[tokio::test]
async fn plans_of_a_new_server_use_selective_indexes() {
    /// Maximum index entries that one scan may read: the requested entries, and entries of recently deleted rows.
    const ENTRIES: i64 = 40;
    let fixture = Fixture::over(TestDatabase::create().await.unwrap(), 1).await;
    fixture.owner.batch_execute(WITHOUT_AUTOVACUUM).await.unwrap();
    let new_store = open_store(&fixture.database.url_for_owner(), 1);
    let work = async || {
        execute_point_statements(&fixture, &new_store).await;
        for commit in COMMITS {
            (commit.decide(&fixture).await.send)(None).await.unwrap();
            // Facts are sequenced after each commit, as a running server does. A backlog of a whole round would
            // distort the counts.
            while new_store.sequence().await.unwrap() > 0 {}
        }
    };
    let start = Instant::now();
    work().await;
    while new_store.sequence().await.unwrap() > 0 {}
    // A connection discards its plans whenever its age doubles (`plan_generation` in the pool). This wait is longer
    // than the age of the connections, so that they discard the plans that they made while the tables had no
    // statistics.
    tokio::time::sleep(start.elapsed() + Duration::from_secs(1)).await;
    let fill = FILL.strip_suffix("ANALYZE;").unwrap();
    fixture.owner.batch_execute(fill).await.unwrap();
    fixture.owner.batch_execute("SELECT pg_stat_reset()").await.unwrap();
    for _ in 0..TURNS {
        work().await;
    }
    drop(new_store);
    let database = fixture.into_database();
    let client = wait_for_other_connections(&database).await;
    let sql = format!(
        "SELECT indexrelname::text, idx_scan, idx_tup_read FROM pg_stat_user_indexes
         WHERE idx_scan > 0 AND idx_tup_read > {ENTRIES} * idx_scan"
    );
    let exceeding: Vec<(String, i64, i64)> =
        client.query(&sql, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    assert!(exceeding.is_empty(), "index, scans, entries read: {exceeding:?}");
}
