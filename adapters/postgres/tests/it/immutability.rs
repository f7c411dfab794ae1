//! History is immutable: the service role lacks the rights to change it, and triggers refuse changes by the owner.

use crate::{
    commit_cases::COMMITS,
    fixture::{Fixture, fresh, scope, stamp},
};
use fairway_domain::asset::{canonical::Canonical, kind::AssetKind, ports::VersionStore};
use std::collections::BTreeSet;
use tokio_postgres::{Client, error::SqlState};

/// All append-only tables.
const APPEND_ONLY: [&str; 23] = [
    "approval",
    "asset_reference",
    "asset_version",
    "asset_version_source",
    "connection_check",
    "connection_expiry_notice",
    "context_lineage",
    "contract_revocation",
    "deployment_history",
    "evidence_artifact",
    "evidence_snapshot",
    "execution_step",
    "fact",
    "fact_order",
    "knowledge_document",
    "knowledge_ingest",
    "knowledge_pin",
    "obligation_fulfilment",
    "policy_decision",
    "release_reference",
    "suppressed_decision",
    "use_case_refinement",
    "withdrawn_route",
];
/// The SQLSTATE that the append-only triggers raise.
const REFUSED_SQLSTATE: &str = "FW003";

/// A database in which every append-only table has rows.
async fn fixture_with_history() -> Fixture {
    let fixture = Fixture::new().await;
    for commit in COMMITS {
        (commit.decide(&fixture).await.send)(None).await.unwrap();
    }
    let policy = fixture.asset(AssetKind::ModelPolicy).await;
    let route = serde_json::json!({ "provider_route": { "route_id": "primary", "state": "suspended" } });
    let content = Canonical::of(&route).unwrap();
    let change = policy.add_version(fresh(), None, content.into(), &stamp()).unwrap();
    fixture.store.commit_version(scope(), change, None).await.unwrap();
    fixture
        .run("INSERT INTO knowledge_pin SELECT tenant_id, release_id, gen_random_uuid(), 0 FROM release LIMIT 1")
        .await;
    fairway_domain::audit::FactSequencer::sequence(&*fixture.store).await.unwrap();
    fixture
}

async fn service(fixture: &Fixture) -> Client {
    let client = fixture.database.connect_as_owner().await.unwrap();
    client.batch_execute("SET ROLE fairway_service").await.unwrap();
    client
}

/// The append-only tables and their partitions.
async fn all_relations(fixture: &Fixture) -> Vec<String> {
    let names = APPEND_ONLY.join(",");
    let sql = format!(
        "SELECT relname::text FROM pg_class
         WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace
            AND (relname = ANY('{{{names}}}') OR oid IN (
                SELECT inhrelid FROM pg_inherits JOIN pg_class AS parent ON parent.oid = inhparent
                WHERE parent.relname = ANY('{{{names}}}')))"
    );
    fixture.owner.query(&sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

async fn sqlstate_of(client: &Client, sql: &str) -> String {
    match client.batch_execute(sql).await {
        Ok(()) => "done".to_owned(),
        Err(error) => error.code().map_or_else(|| "lost".to_owned(), |code| code.code().to_owned()),
    }
}

#[tokio::test]
async fn service_and_owner_cannot_change_or_delete_history() {
    let fixture = fixture_with_history().await;
    let service = service(&fixture).await;
    for table in APPEND_ONLY {
        assert!(fixture.query_number(&format!("SELECT count(*) FROM {table}")).await > 0, "{table} has no rows");
    }
    let relations = all_relations(&fixture).await;
    assert!(relations.len() > APPEND_ONLY.len(), "partitions must be included");
    for relation in relations {
        let rows = fixture.query_number(&format!("SELECT count(*) FROM \"{relation}\"")).await;
        for (sql, needs_row) in [
            (format!("UPDATE \"{relation}\" SET tenant_id = tenant_id"), true),
            (format!("DELETE FROM \"{relation}\""), true),
            (format!("TRUNCATE \"{relation}\" CASCADE"), false),
        ] {
            assert_eq!(sqlstate_of(&service, &sql).await, SqlState::INSUFFICIENT_PRIVILEGE.code(), "service: {sql}");
            if rows > 0 || !needs_row {
                assert_eq!(sqlstate_of(&fixture.owner, &sql).await, REFUSED_SQLSTATE, "owner: {sql}");
            }
        }
        assert_eq!(fixture.query_number(&format!("SELECT count(*) FROM \"{relation}\"")).await, rows, "{relation}");
    }
}

#[tokio::test]
async fn append_only_list_matches_the_triggers_in_the_schema() {
    let fixture = Fixture::new().await;
    let sql = "SELECT DISTINCT relname::text FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
        WHERE tgname = 'append_only' AND NOT relispartition";
    let marked: BTreeSet<String> = fixture.owner.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(marked, APPEND_ONLY.map(str::to_owned).into());
}

#[tokio::test]
async fn new_partitions_of_history_are_append_only() {
    let fixture = fixture_with_history().await;
    fixture.database.set_clock_offset(150 * 24 * 60 * 60).await.unwrap();
    assert!(fairway_postgres::create_partitions(&fixture.database.url_for_owner()).await.unwrap() > 0);
    let sql = "SELECT count(*) FROM pg_inherits JOIN pg_class AS parent ON parent.oid = inhparent
        JOIN pg_class AS child ON child.oid = inhrelid
        WHERE child.relkind = 'r' AND EXISTS (
            SELECT FROM pg_trigger WHERE tgrelid = inhparent AND tgname = 'append_only')
        AND (SELECT count(*) FROM pg_trigger WHERE tgrelid = inhrelid
            AND tgname IN ('append_only', 'never_truncated') AND tgenabled = 'O') <> 2";
    assert_eq!(fixture.query_number(sql).await, 0);
}

#[tokio::test]
async fn service_role_cannot_change_the_schema() {
    let fixture = fixture_with_history().await;
    let service = service(&fixture).await;
    let denied = SqlState::INSUFFICIENT_PRIVILEGE;
    for sql in [
        "CREATE TABLE extra (id integer)",
        "CREATE FUNCTION extra() RETURNS integer LANGUAGE sql RETURN 1",
        "CREATE OR REPLACE FUNCTION fairway_now() RETURNS timestamptz LANGUAGE sql STABLE RETURN now()",
        "CREATE OR REPLACE FUNCTION fairway_refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE SCHEMA extra",
        "CREATE INDEX extra ON fact (kind)",
        "CREATE TRIGGER extra BEFORE INSERT ON fact FOR EACH ROW EXECUTE FUNCTION fairway_refuse_rewrite()",
        "CREATE RULE extra AS ON INSERT TO fact DO INSTEAD NOTHING",
        "ALTER TABLE fact ADD COLUMN extra integer",
        "ALTER TABLE fact DISABLE TRIGGER append_only",
        "ALTER TABLE fact DISABLE TRIGGER ALL",
        "ALTER TABLE fact OWNER TO fairway_service",
        "ALTER TABLE execution DETACH PARTITION execution_209901",
        "DROP TRIGGER append_only ON fact",
        "DROP TABLE fact",
        "DROP FUNCTION fairway_refuse_rewrite() CASCADE",
        "SET session_replication_role = replica",
        "SELECT fairway_make_partitions(1)",
        "SELECT fairway_make_append_only('workload')",
        "UPDATE __diesel_schema_migrations SET version = version",
        "DELETE FROM execution",
        "DELETE FROM tenant",
        "DELETE FROM release",
        "DELETE FROM deployment",
        "UPDATE execution_input SET body = ''",
        "UPDATE workspace SET name = ''",
    ] {
        // PostgreSQL looks up the partition before it checks rights, so the statement must name an existing partition.
        if sql.contains("DETACH") {
            let partition: String = fixture
                .owner
                .query_one(
                    "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'execution'::regclass LIMIT 1",
                    &[],
                )
                .await
                .unwrap()
                .get(0);
            let sql = sql.replace("execution_209901", &partition);
            assert_eq!(sqlstate_of(&service, &sql).await, denied.code(), "{sql}");
            continue;
        }
        assert_eq!(sqlstate_of(&service, sql).await, denied.code(), "{sql}");
    }
}

#[tokio::test]
async fn service_role_owns_nothing_and_cannot_access_partitions_directly() {
    let fixture = Fixture::new().await;
    let owned = "SELECT count(*) FROM pg_class WHERE relowner = 'fairway_service'::regrole";
    assert_eq!(fixture.query_number(owned).await, 0);
    let direct = "SELECT count(*) FROM pg_class WHERE relispartition AND relkind = 'r'
        AND has_table_privilege('fairway_service', oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER')";
    assert_eq!(fixture.query_number(direct).await, 0);
    let login = "SELECT count(*) FROM pg_roles WHERE rolname = 'fairway_service'
        AND (rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls OR rolreplication)";
    assert_eq!(fixture.query_number(login).await, 0);
}
