//! Migrations are applied once, also concurrently and after a kill at any point, and never backwards.

use crate::fixture::connect;
use fairway_postgres::{MigrationError, matches_schema, migrate};
use fairway_testkit::TestDatabase;
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio_postgres::Client;
use uuid::Uuid;

/// An empty database on the server of a cloned test database.
struct EmptyDatabase {
    name: String,
    server_clone: TestDatabase,
}

impl EmptyDatabase {
    async fn create() -> Self {
        let server_clone = TestDatabase::create().await.unwrap();
        let name = format!("empty_{}", Uuid::now_v7().simple());
        let owner = server_clone.connect_as_owner().await.unwrap();
        owner.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0")).await.unwrap();
        Self { name, server_clone }
    }

    fn url(&self) -> String {
        let url = self.server_clone.url_for_owner();
        let (server, _) = url.rsplit_once('/').unwrap();
        format!("{server}/{}", self.name)
    }

    async fn client(&self) -> Client {
        connect(&self.url()).await
    }

    async fn drop_database(self) {
        let owner = self.server_clone.connect_as_owner().await.unwrap();
        owner.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name)).await.unwrap();
    }
}

/// The whole schema as lines of text: columns, constraints, indexes, functions, triggers and rights.
async fn schema_text(client: &Client) -> Vec<String> {
    let sql = "
        SELECT format('%s %s %s %s', table_name, column_name, data_type, is_nullable) FROM information_schema.columns
            WHERE table_schema = 'public'
        UNION ALL SELECT format('%s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
            FROM pg_constraint WHERE connamespace = 'public'::regnamespace
        UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
        UNION ALL SELECT format('%s %s', oid::regprocedure, md5(prosrc)) FROM pg_proc
            WHERE pronamespace = 'public'::regnamespace
        UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
        UNION ALL SELECT format('%s %s', relname, relacl) FROM pg_class WHERE relnamespace = 'public'::regnamespace
        UNION ALL SELECT format('migration %s', version) FROM __diesel_schema_migrations
        ORDER BY 1";
    client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

async fn migrated_schema() -> Vec<String> {
    let clone = TestDatabase::create().await.unwrap();
    schema_text(&clone.connect_as_owner().await.unwrap()).await
}

#[tokio::test]
async fn a_second_run_changes_nothing() {
    let clone = TestDatabase::create().await.unwrap();
    let owner = clone.connect_as_owner().await.unwrap();
    let rows = "SELECT count(*) FROM tenant, namespace, workspace, fact_log";
    let (before, count): (_, i64) = (schema_text(&owner).await, owner.query_one(rows, &[]).await.unwrap().get(0));
    let applied_sql = "SELECT max(run_on)::text FROM __diesel_schema_migrations";
    let applied_at: String = owner.query_one(applied_sql, &[]).await.unwrap().get(0);
    migrate(&clone.url_for_owner()).await.unwrap();
    assert_eq!(schema_text(&owner).await, before);
    assert_eq!(owner.query_one(rows, &[]).await.unwrap().get::<_, i64>(0), count);
    assert_eq!(owner.query_one(applied_sql, &[]).await.unwrap().get::<_, String>(0), applied_at);
}

#[tokio::test]
async fn concurrent_servers_migrate_one_database() {
    let empty = EmptyDatabase::create().await;
    let url = empty.url();
    let results = tokio::join!(migrate(&url), migrate(&url), migrate(&url));
    results.0.unwrap();
    results.1.unwrap();
    results.2.unwrap();
    assert_eq!(schema_text(&empty.client().await).await, migrated_schema().await);
    empty.drop_database().await;
}

#[tokio::test]
async fn migrates_two_databases_of_one_cluster_concurrently() {
    let (first, second) = (EmptyDatabase::create().await, EmptyDatabase::create().await);
    let (first_url, second_url) = (first.url(), second.url());
    let results = tokio::join!(migrate(&first_url), migrate(&second_url));
    results.0.unwrap();
    results.1.unwrap();
    assert_eq!(schema_text(&first.client().await).await, schema_text(&second.client().await).await);
    first.drop_database().await;
    second.drop_database().await;
}

#[tokio::test]
async fn refuses_a_newer_schema_without_changes() {
    let clone = TestDatabase::create().await.unwrap();
    let owner = clone.connect_as_owner().await.unwrap();
    let newer = "INSERT INTO __diesel_schema_migrations (version) VALUES ('9999')";
    owner.batch_execute(newer).await.unwrap();
    let before = schema_text(&owner).await;
    let error = migrate(&clone.url_for_owner()).await.unwrap_err();
    assert!(matches!(error, MigrationError::Schema(_)), "{error:?}");
    assert!(error_chain(&error).contains("has migration 9999"), "{error:?}");
    assert!(!matches_schema(&clone.url_for_owner()).await.unwrap());
    assert_eq!(schema_text(&owner).await, before);
}

#[tokio::test]
async fn refuses_a_missing_migration_before_an_applied_one() {
    let clone = TestDatabase::create().await.unwrap();
    let owner = clone.connect_as_owner().await.unwrap();
    owner.batch_execute("DELETE FROM __diesel_schema_migrations WHERE version = '0004'").await.unwrap();
    let error = migrate(&clone.url_for_owner()).await.unwrap_err();
    assert!(error_chain(&error).contains("0004_assets is missing"), "{error:?}");
}

#[tokio::test]
async fn refuses_a_database_of_another_migration_runner() {
    let clone = TestDatabase::create().await.unwrap();
    let owner = clone.connect_as_owner().await.unwrap();
    owner.batch_execute("CREATE TABLE refinery_schema_history (version integer)").await.unwrap();
    let before = schema_text(&owner).await;
    let error = migrate(&clone.url_for_owner()).await.unwrap_err();
    assert!(error_chain(&error).contains("create it anew"), "{error:?}");
    assert_eq!(schema_text(&owner).await, before);
}

/// The migration runner stores no checksums. This list reveals if a committed migration is edited.
#[test]
fn migrations_have_their_committed_checksums() {
    let folder = migrations_folder();
    let lines = migration_scripts().into_iter().map(|(name, script)| {
        let digest: String = Sha256::digest(script).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{digest}  {name}/up.sql\n")
    });
    let committed = fs::read_to_string(folder.join("checksums.txt")).unwrap();
    assert_eq!(committed, lines.collect::<String>(), "run `sha256sum */up.sql > checksums.txt` in `migrations`");
}

/// The messages of an error and of all its sources.
fn error_chain(error: &MigrationError) -> String {
    let mut messages = vec![error.to_string()];
    let mut source = error.source();
    while let Some(error) = source {
        messages.push(error.to_string());
        source = error.source();
    }
    messages.join(": ")
}

/// PostgreSQL's messages may contain names and rows. The error therefore contains only the migration and the
/// position within it.
#[tokio::test]
async fn reports_a_failed_migration_without_its_message() {
    let empty = EmptyDatabase::create().await;
    empty.client().await.batch_execute("CREATE TABLE tenant (canary text)").await.unwrap();
    let chain = error_chain(&migrate(&empty.url()).await.unwrap_err());
    assert!(chain.contains("error applying migration 0002_tenants_and_access"), "{chain}");
    assert!(!chain.contains("already exists"), "{chain}");
    empty.drop_database().await;
}

#[tokio::test]
async fn reports_the_constraint_that_a_migration_violates() {
    let empty = EmptyDatabase::create().await;
    let sql = "CREATE FUNCTION reject() RETURNS event_trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'canary', TABLE = 'a_table', CONSTRAINT = 'a_rule';
        END $$;
        CREATE EVENT TRIGGER reject ON ddl_command_start WHEN TAG IN ('CREATE FUNCTION') EXECUTE FUNCTION reject()";
    empty.client().await.batch_execute(sql).await.unwrap();
    let chain = error_chain(&migrate(&empty.url()).await.unwrap_err());
    assert!(chain.contains("0001_foundation") && chain.contains("table `a_table`, constraint `a_rule`"), "{chain}");
    assert!(!chain.contains("canary"), "{chain}");
    empty.drop_database().await;
}

/// For each migration, an object or a column (`table.column`) at whose creation the connection is killed.
const KILLED_AT: [&str; 25] = [
    "fairway_now",
    "role_binding",
    "fact_order",
    "asset_version_source",
    "principal_binding",
    "deployment_history",
    "execution_step",
    "fairway_partitions_until",
    "knowledge_pin",
    "memory_session",
    "identity",
    "notification_position",
    "log_tree",
    "use_case",
    "notification_destination",
    "connection_expiry_notice",
    "notification_delivery",
    "suppressed_decision_by_recipient",
    "session_by_end",
    "connection_by_check",
    "fact_order_categorized",
    "suppressed_decision.unreachable_channels",
    "subject_erasure_approved",
    "fact_order.leaf_hash",
    "execution.has_stored_usage",
];

#[tokio::test]
async fn next_start_completes_a_killed_migration() {
    let expected = migrated_schema().await;
    let empty = EmptyDatabase::create().await;
    let owner = empty.client().await;
    for killed_at in KILLED_AT {
        let is_created = match killed_at.split_once('.') {
            Some((table, column)) => format!(
                "EXISTS (SELECT FROM information_schema.columns WHERE table_name = '{table}' AND column_name = '{column}')"
            ),
            None => format!("to_regclass('{killed_at}') IS NOT NULL OR to_regproc('{killed_at}') IS NOT NULL"),
        };
        // Kills the migrating connection right after the statement that creates the object, within the migration's
        // transaction.
        let kill_trigger = format!(
            "CREATE SCHEMA IF NOT EXISTS trap;
             CREATE FUNCTION trap.kill() RETURNS event_trigger LANGUAGE plpgsql AS $$
             BEGIN
                IF {is_created} THEN PERFORM pg_terminate_backend(pg_backend_pid());
                END IF;
             END $$;
             CREATE EVENT TRIGGER trap ON ddl_command_end EXECUTE FUNCTION trap.kill()"
        );
        owner.batch_execute(&kill_trigger).await.unwrap();
        let result = migrate(&empty.url()).await;
        owner.batch_execute("DROP EVENT TRIGGER trap; DROP SCHEMA trap CASCADE").await.unwrap();
        assert!(result.is_err(), "{killed_at} was created without a kill");
        let is_undone: bool = owner.query_one(&format!("SELECT NOT ({is_created})"), &[]).await.unwrap().get(0);
        assert!(is_undone, "{killed_at} survived the rollback of its transaction");
    }
    migrate(&empty.url()).await.unwrap();
    assert_eq!(schema_text(&owner).await, expected);
    drop(owner);
    empty.drop_database().await;
}

/// While a migration waits for a lock, it repeatedly withdraws its lock request, so that the statements that queue
/// behind it can run. It succeeds once the lock is free.
#[tokio::test]
async fn migration_that_waits_for_a_lock_blocks_no_reader() {
    let empty = EmptyDatabase::create().await;
    let (owner, reader, mut holder) = (empty.client().await, empty.client().await, empty.client().await);
    // The trigger makes the first migration run fail at `0024_ordered_leaves`, which alters `fact_order`.
    let failing_trigger = "CREATE FUNCTION reject() RETURNS event_trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF EXISTS (
                SELECT FROM information_schema.columns WHERE table_name = 'fact_order' AND column_name = 'leaf_hash')
            THEN RAISE EXCEPTION 'refused';
            END IF;
        END $$;
        CREATE EVENT TRIGGER reject ON ddl_command_end EXECUTE FUNCTION reject()";
    owner.batch_execute(failing_trigger).await.unwrap();
    let error = migrate(&empty.url()).await.unwrap_err();
    assert!(error_chain(&error).contains("0024_ordered_leaves"), "{error:?}");
    owner.batch_execute("DROP EVENT TRIGGER reject; DROP FUNCTION reject").await.unwrap();

    let transaction = holder.transaction().await.unwrap();
    transaction.batch_execute("SELECT FROM fact_order").await.unwrap();
    let migration = tokio::spawn({
        let url = empty.url();
        async move { migrate(&url).await }
    });
    // Each of these reads queues behind a lock request of the migration.
    for _ in 0..2 {
        let is_waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'fact_order'::regclass AND NOT granted)";
        while !owner.query_one(is_waiting, &[]).await.unwrap().get::<_, bool>(0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let read = reader.batch_execute("SELECT FROM fact_order");
        tokio::time::timeout(Duration::from_secs(60), read).await.expect("the migration blocks readers").unwrap();
    }
    assert!(!migration.is_finished(), "the migration waits for the lock");
    transaction.commit().await.unwrap();
    migration.await.unwrap().unwrap();
    assert_eq!(schema_text(&owner).await, migrated_schema().await);
    drop((owner, reader, holder));
    empty.drop_database().await;
}

fn migrations_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations")
}

/// The SQL texts of the migrations, by name and in order.
fn migration_scripts() -> BTreeMap<String, String> {
    let entries = fs::read_dir(migrations_folder()).unwrap().map(|entry| entry.unwrap().path());
    let script = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(path.join("up.sql")).unwrap())
    };
    entries.filter(|path| path.is_dir()).map(script).collect()
}

#[test]
fn kills_one_statement_of_each_migration() {
    let scripts = migration_scripts();
    let creates = |script: &str, object: &str| match object.split_once('.') {
        Some((table, column)) => {
            script.contains(&format!("ALTER TABLE {table}")) && script.contains(&format!("ADD COLUMN {column} "))
        }
        None => ["TABLE ", "FUNCTION ", "INDEX "].iter().any(|kind| script.contains(&format!("CREATE {kind}{object}"))),
    };
    let uncovered: Vec<&String> = scripts
        .iter()
        .filter(|(_, script)| !KILLED_AT.iter().any(|object| creates(script, object)))
        .map(|(name, _)| name)
        .collect();
    assert!(uncovered.is_empty(), "no kill in {uncovered:?}");
}

#[tokio::test]
async fn abandoned_transaction_leaves_no_migration_behind() {
    let empty = EmptyDatabase::create().await;
    let client = empty.client().await;
    client.batch_execute("BEGIN").await.unwrap();
    for (_, script) in migration_scripts().iter().take(3) {
        client.batch_execute(script).await.unwrap();
    }
    drop(client);
    migrate(&empty.url()).await.unwrap();
    assert_eq!(schema_text(&empty.client().await).await, migrated_schema().await);
    empty.drop_database().await;
}

/// The migration's trigger stores the withdrawn routes of model policy versions. The ordinals of the versions remain.
#[tokio::test]
async fn stores_withdrawn_routes_and_keeps_ordinals() {
    let clone = TestDatabase::create().await.unwrap();
    let owner = clone.connect_as_owner().await.unwrap();
    let asset = "INSERT INTO asset (tenant_id, asset_id, slug, asset_kind, owner_ref, lifecycle_state, ownership_tier,
            workspace_id, namespace_id, revision, created_at, created_by)
        SELECT tenant_id, gen_random_uuid(), 'models', 'model_policy', 'team:x', 'active', 'workspace', workspace_id,
            namespace_id, 1, now(), 'user:eve' FROM workspace";
    owner.batch_execute(asset).await.unwrap();
    for (ordinal, state) in [(1, "approved"), (2, "retired"), (3, "suspended")] {
        let route = format!(r#"{{"provider_route":{{"route_id":"primary","state":"{state}"}}}}"#);
        let version = format!(
            "INSERT INTO asset_version (tenant_id, asset_version_id, asset_id, version_label, content, artifact_ref,
                checksum, created_at, created_by, ordinal)
             SELECT tenant_id, gen_random_uuid(), asset_id, 'l{ordinal}', '{route}', 'x',
                'blake3:' || repeat('0', 64), now(), 'user:eve', {ordinal} FROM asset WHERE slug = 'models'"
        );
        owner.batch_execute(&version).await.unwrap();
    }
    let sql =
        "SELECT string_agg(route_id || ' ' || state || ' ' || ordinal, ', ' ORDER BY ordinal) FROM withdrawn_route";
    let withdrawn: String = owner.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(withdrawn, "primary retired 2, primary suspended 3");
    let error = owner.batch_execute("UPDATE asset_version SET ordinal = 9").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "FW003");
}

/// When an ingest adds or replaces chunks, triggers update the number of chunks with vectors of each model.
#[tokio::test]
async fn counts_models_of_chunks() {
    let clone = TestDatabase::create().await.unwrap();
    let owner = clone.connect_as_owner().await.unwrap();
    let chunk = |model: &str, from: i64, until: &str| {
        format!(
            "INSERT INTO knowledge_chunk (tenant_id, chunk_id, asset_id, entry_id, document_id, position, starts, ends,
                tokens, digest, from_revision, until_revision, embedded_by, words, body, embedding)
             VALUES (fairway_uuid_floor('2026-01-01'), gen_random_uuid(), fairway_uuid_floor('2026-01-01'),
                gen_random_uuid(), 'd', 0, 0, 1, 1, 'x', {from}, {until}, '{model}', '', 'x', '\\x00000000')"
        )
    };
    for (model, from) in [("old", 1), ("old", 1), ("new", 3)] {
        owner.batch_execute(&chunk(model, from, "NULL")).await.unwrap();
    }
    let replaced = "UPDATE knowledge_chunk SET until_revision = 5 WHERE until_revision IS NULL AND embedded_by = 'old'";
    owner.batch_execute(&format!("{replaced}; {}", chunk("new", 5, "NULL"))).await.unwrap();
    let sql = "SELECT string_agg(format('%s@%s=%s', embedded_by, revision, chunks), ' ' ORDER BY embedded_by, revision)
        FROM knowledge_index_model";
    let counts: String = owner.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(counts, "new@3=1 new@5=2 old@1=2 old@5=0");
}
