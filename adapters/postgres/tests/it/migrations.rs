//! Migrations: once, concurrently, after a kill at any point, and never backwards.

use crate::fixture::connect;
use fairway_postgres::{MigrationError, migrate};
use fairway_testkit::TestDatabase;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use tokio_postgres::Client;
use uuid::Uuid;

/// An empty database on the server of a clone.
struct EmptyDatabase {
    name: String,
    server_clone: TestDatabase,
}

impl EmptyDatabase {
    async fn create() -> Self {
        let beside = TestDatabase::create().await.unwrap();
        let name = format!("empty_{}", Uuid::now_v7().simple());
        let owner = beside.connect_as_owner().await.unwrap();
        owner.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0")).await.unwrap();
        Self { name, server_clone: beside }
    }

    fn url(&self) -> String {
        let url = self.server_clone.url();
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

/// The whole schema as text: columns, constraints, indexes, functions, triggers and rights.
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
        UNION ALL SELECT format('%s %s %s', version, name, checksum) FROM refinery_schema_history
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
    let applied = "SELECT max(applied_on) FROM refinery_schema_history";
    let when: String = owner.query_one(applied, &[]).await.unwrap().get(0);
    migrate(&clone.url()).await.unwrap();
    assert_eq!(schema_text(&owner).await, before);
    assert_eq!(owner.query_one(rows, &[]).await.unwrap().get::<_, i64>(0), count);
    assert_eq!(owner.query_one(applied, &[]).await.unwrap().get::<_, String>(0), when);
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
    let (one, other) = (EmptyDatabase::create().await, EmptyDatabase::create().await);
    let (one_url, other_url) = (one.url(), other.url());
    let results = tokio::join!(migrate(&one_url), migrate(&other_url));
    results.0.unwrap();
    results.1.unwrap();
    assert_eq!(schema_text(&one.client().await).await, schema_text(&other.client().await).await);
    one.drop_database().await;
    other.drop_database().await;
}

#[tokio::test]
async fn refuses_a_newer_schema_without_changes() {
    let clone = TestDatabase::create().await.unwrap();
    let owner = clone.connect_as_owner().await.unwrap();
    let newer = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
        VALUES (9999, 'from_the_future', '2030-01-01T00:00:00Z', '1')";
    owner.batch_execute(newer).await.unwrap();
    let before = schema_text(&owner).await;
    let refused = migrate(&clone.url()).await.unwrap_err();
    assert!(matches!(refused, MigrationError::Schema(_)), "{refused:?}");
    assert_eq!(schema_text(&owner).await, before);
}

#[tokio::test]
async fn refuses_an_edited_applied_migration() {
    let clone = TestDatabase::create().await.unwrap();
    let owner = clone.connect_as_owner().await.unwrap();
    owner.batch_execute("UPDATE refinery_schema_history SET checksum = '1' WHERE version = 2").await.unwrap();
    assert!(matches!(migrate(&clone.url()).await, Err(MigrationError::Schema(_))));
}

/// PostgreSQL's messages quote names and rows, so the error contains only their SQLSTATE.
#[tokio::test]
async fn reports_sqlstate_of_a_failed_migration_without_its_message() {
    let empty = EmptyDatabase::create().await;
    empty.client().await.batch_execute("CREATE TABLE tenant (canary text)").await.unwrap();
    let failed = migrate(&empty.url()).await.unwrap_err();
    let chain: Vec<String> = std::iter::successors(Some(&failed as &dyn std::error::Error), |error| error.source())
        .map(ToString::to_string)
        .collect();
    let chain = chain.join(": ");
    assert!(chain.contains("SQLSTATE 42P07") && chain.contains("error applying migration"), "{chain}");
    assert!(!chain.contains("already exists"), "{chain}");
    empty.drop_database().await;
}

/// The object whose creation kills the connection: one in each of several migrations, early and late.
const KILLED_AT: [&str; 8] = [
    "fairway_now",
    "role_binding",
    "fact_order",
    "asset_version_source",
    "deployment_history",
    "execution_step",
    "fairway_partitions_until",
    "withdrawn_route",
];

#[tokio::test]
async fn next_start_completes_a_killed_migration() {
    let expected = migrated_schema().await;
    let empty = EmptyDatabase::create().await;
    let owner = empty.client().await;
    for killed_at in KILLED_AT {
        // The migrating connection is killed at the statement that creates this object, inside its transaction.
        let trap = format!(
            "CREATE SCHEMA IF NOT EXISTS trap;
             CREATE FUNCTION trap.kill() RETURNS event_trigger LANGUAGE plpgsql AS $$
             BEGIN
                IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE object_identity ~ '^public.{killed_at}\\M')
                THEN PERFORM pg_terminate_backend(pg_backend_pid());
                END IF;
             END $$;
             CREATE EVENT TRIGGER trap ON ddl_command_end EXECUTE FUNCTION trap.kill()"
        );
        owner.batch_execute(&trap).await.unwrap();
        let killed = migrate(&empty.url()).await;
        owner.batch_execute("DROP EVENT TRIGGER trap; DROP SCHEMA trap CASCADE").await.unwrap();
        assert!(killed.is_err(), "{killed_at} was created without a kill");
        let made = "SELECT to_regclass($1) IS NULL AND to_regproc($1) IS NULL";
        let undone: bool = owner.query_one(made, &[&killed_at]).await.unwrap().get(0);
        assert!(undone, "{killed_at} survived the rollback of its transaction");
    }
    migrate(&empty.url()).await.unwrap();
    assert_eq!(schema_text(&owner).await, expected);
    drop(owner);
    empty.drop_database().await;
}

/// The migrations in numeric order: V10 comes after V9.
fn migration_scripts() -> BTreeMap<u32, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations");
    let script = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let number = name.trim_start_matches('V').split("__").next().unwrap().parse().unwrap();
        (number, fs::read_to_string(path).unwrap())
    };
    fs::read_dir(folder).unwrap().map(|entry| script(entry.unwrap().path())).collect()
}

/// A model policy with versions from before ordinals and withdrawn routes existed, and one inserted between two
/// migrations.
#[tokio::test]
async fn numbers_older_versions_in_their_listed_order() {
    let empty = EmptyDatabase::create().await;
    let client = empty.client().await;
    let version = |number: u32, state: &str| {
        let route = format!(r#"{{"provider_route":{{"route_id":"primary","state":"{state}"}}}}"#);
        format!(
            "INSERT INTO asset_version (tenant_id, asset_version_id, asset_id, version_label, content, artifact_ref,
                checksum, created_at, created_by)
             SELECT tenant_id, '00000000-0000-7000-8000-00000000000{number}', asset_id, 'l{number}', '{route}', 'x',
                'blake3:' || repeat('0', 64), now(), 'user:eve' FROM asset"
        )
    };
    let tenant = "
        INSERT INTO tenant SELECT gen_random_uuid(), 'one', 'x', true, false, '{}', 1, 1, now(), 'user:eve';
        INSERT INTO namespace SELECT tenant_id, gen_random_uuid(), 'home' FROM tenant;
        INSERT INTO workspace SELECT tenant_id, gen_random_uuid(), namespace_id, 'home', 'x', now(), 'user:eve'
            FROM namespace;
        INSERT INTO asset SELECT tenant_id, gen_random_uuid(), 'models', 'model_policy', 'team:x', 'active',
            'workspace', workspace_id, namespace_id, 0, 1, now(), 'user:eve' FROM workspace";
    for (number, script) in migration_scripts() {
        client.batch_execute(&format!("BEGIN; {script}; COMMIT")).await.unwrap();
        let meanwhile = match number {
            60 => vec![tenant.to_owned(), version(5, "retired"), version(3, "approved")],
            62 => vec![version(1, "suspended")],
            _ => Vec::new(),
        };
        for sql in meanwhile {
            client.batch_execute(&sql).await.unwrap();
        }
    }
    client.batch_execute(&version(2, "approved")).await.unwrap();
    let sql = "SELECT string_agg(version_label || ' ' || ordinal, ', ' ORDER BY ordinal) || ' of ' || max(last_ordinal)
        FROM asset_version JOIN asset USING (tenant_id, asset_id)";
    let order: String = client.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(order, "l3 1, l5 2, l1 3, l2 4 of 4");
    let sql =
        "SELECT string_agg(route_id || ' ' || state || ' ' || ordinal, ', ' ORDER BY ordinal) FROM withdrawn_route";
    let withdrawn: String = client.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(withdrawn, "primary retired 2, primary suspended 3");
    let refused = client.batch_execute("UPDATE asset_version SET ordinal = 9").await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "FW003");
    drop(client);
    empty.drop_database().await;
}

/// Chunks from before models were counted for each revision, and the next ingest.
#[tokio::test]
async fn counts_models_of_older_chunks() {
    let empty = EmptyDatabase::create().await;
    let client = empty.client().await;
    let piece = |model: &str, from: i64, until: &str| {
        format!(
            "INSERT INTO knowledge_chunk (tenant_id, chunk_id, asset_id, entry_id, document_id, position, starts, ends,
                tokens, digest, from_revision, until_revision, embedded_by, words, body, embedding)
             VALUES (fairway_uuid_floor('2026-01-01'), gen_random_uuid(), fairway_uuid_floor('2026-01-01'),
                gen_random_uuid(), 'd', 0, 0, 1, 1, 'x', {from}, {until}, '{model}', '', 'x', '\\x00000000')"
        )
    };
    for (number, script) in migration_scripts() {
        if number == 115 {
            for (model, from, until) in [("old", 1, "3"), ("old", 1, "NULL"), ("new", 3, "NULL"), ("old", 3, "4")] {
                client.batch_execute(&piece(model, from, until)).await.unwrap();
            }
        }
        client.batch_execute(&format!("BEGIN; {script}; COMMIT")).await.unwrap();
    }
    let replaced = "UPDATE knowledge_chunk SET until_revision = 5 WHERE until_revision IS NULL AND embedded_by = 'old'";
    client.batch_execute(&format!("{replaced}; {}", piece("new", 5, "NULL"))).await.unwrap();
    let sql = "SELECT string_agg(format('%s@%s=%s', embedded_by, revision, chunks), ' ' ORDER BY embedded_by, revision)
        FROM knowledge_index_model";
    let counts: String = client.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(counts, "new@3=1 new@5=2 old@1=2 old@3=2 old@4=1 old@5=0");
    drop(client);
    empty.drop_database().await;
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
