//! `fairway-server audit verify` on logs that an attacker with access to the database has changed.

use crate::server_process::{Server, ServerSetup, wait_until};
use fairway_testkit::{TestDatabase, is_long_form_requested};
use serde_json::Value;
use std::{fs, path::PathBuf, time::Duration};

const TENANT: &str = "00000000-0000-7000-8000-000000000001";
const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const OTHER_KEY: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";

/// Minimum number of facts in the audited log: enough for more than two tiles of the Merkle tree.
const FACTS: u64 = 600;
/// Time limit until a checkpoint covers all facts.
const PATIENCE: Duration = Duration::from_secs(60);

/// SQL that disables the append-only triggers, and copies the log so that `RESTORE` can undo changes.
const KEEP: &str = "ALTER TABLE fact DISABLE TRIGGER append_only;
    ALTER TABLE fact_order DISABLE TRIGGER append_only;
    CREATE TABLE kept_fact AS TABLE fact;
    CREATE TABLE kept_order AS TABLE fact_order;
    CREATE TABLE kept_log AS TABLE fact_log";
const RESTORE: &str = "DELETE FROM fact_order;
    DELETE FROM fact WHERE NOT EXISTS (SELECT FROM kept_fact WHERE kept_fact.fact_id = fact.fact_id);
    INSERT INTO fact_order SELECT * FROM kept_order;
    UPDATE fact SET body = kept_fact.body, leaf_hash = kept_fact.leaf_hash FROM kept_fact
        WHERE fact.tenant_id = kept_fact.tenant_id AND fact.fact_id = kept_fact.fact_id;
    UPDATE fact_log SET size = kept_log.size FROM kept_log WHERE fact_log.tenant_id = kept_log.tenant_id";

/// SQL that copies changed hashes of facts into the log order, as an attacker who knows the schema does after an edit.
const COPY_HASHES: &str = "UPDATE fact_order SET leaf_hash = fact.leaf_hash FROM fact
    WHERE fact.tenant_id = fact_order.tenant_id AND fact.fact_id = fact_order.fact_id
        AND fact.leaf_hash <> fact_order.leaf_hash";

/// An SQL subquery for the identifiers of the facts at these indexes.
fn facts_at(indexes: &str) -> String {
    format!("(SELECT fact_id FROM fact_order WHERE tenant_id = '{TENANT}' AND index IN ({indexes}))")
}

/// A stopped server whose log has many facts. The newest archived checkpoint covers all of them.
struct AuditedServer {
    database: TestDatabase,
    setup: ServerSetup,
    /// The verifier key of the log.
    key: String,
    /// The file of the newest archived checkpoint.
    newest_checkpoint: PathBuf,
}

impl AuditedServer {
    async fn prepare() -> Self {
        let database = TestDatabase::create().await.unwrap();
        let setup = ServerSetup::new(&database.url_for_owner())
            .setting("FAIRWAY_CHECKPOINT_KEY_REF", "env:LOG_KEY")
            .setting("LOG_KEY", KEY)
            .setting("RETIRED_KEY", OTHER_KEY);
        let mut server: Server = setup.start().await;
        let keys = server.client.get("/v1/audit/keys").await.unwrap().body;
        let key = keys.pointer("/0/verifier_key").and_then(Value::as_str).unwrap().to_owned();
        let owner = database.connect_as_owner().await.unwrap();
        let insert_sql = format!(
            "WITH made AS (
                INSERT INTO fact (tenant_id, fact_id, kind, body, leaf_hash)
                SELECT '{TENANT}', fact_id, 'made', body, sha256('\\x00'::bytea || body)
                FROM (SELECT gen_random_uuid() AS fact_id, convert_to('fact ' || number, 'UTF8') AS body
                    FROM generate_series(1, {FACTS}) AS number) AS numbered
                RETURNING tenant_id, fact_id)
             INSERT INTO fact_pending SELECT tenant_id, fact_id FROM made"
        );
        owner.batch_execute(&insert_sql).await.unwrap();
        // The server writes the row after the archive, so an up-to-date row means that both cover the log.
        let is_covered = format!(
            "SELECT EXISTS (
                SELECT FROM fact_log JOIN log_tree USING (tenant_id)
                WHERE tenant_id = '{TENANT}' AND fact_log.size >= {FACTS} AND fact_log.size = log_tree.size
                    AND split_part(checkpoint, E'\n', 2) = fact_log.size::text
                    AND NOT EXISTS (SELECT FROM fact_pending)) AS is_covered"
        );
        let covered = async || owner.query_one(&is_covered, &[]).await.unwrap().get::<_, bool>("is_covered");
        wait_until("a checkpoint covers the facts", PATIENCE, covered).await;
        server.kill();
        let folder = setup.work_dir.path().join("data/facts/checkpoints").join(TENANT);
        let last_of = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
        // The archive has two levels of folders below the tenant's folder.
        let newest_checkpoint = last_of(last_of(last_of(folder)));
        owner.batch_execute(KEEP).await.unwrap();
        Self { database, setup, key, newest_checkpoint }
    }

    /// Runs an audit. Returns its exit code and the first line of its output.
    fn audit(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.setup.run_with(&[&["audit", "verify"], arguments].concat());
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code(), format!("{}{stderr}", stdout.lines().next().unwrap_or_default()))
    }
}

#[tokio::test]
async fn names_the_first_bad_index_of_a_changed_log() {
    let audited = AuditedServer::prepare().await;
    let owner = audited.database.connect_as_owner().await.unwrap();
    let (code, output) = audited.audit(&[]);
    assert!(code == Some(0) && output.ends_with("nothing is wrong"), "{output}");
    let edited = |indexes: &str| format!("UPDATE fact SET body = body || ' ' WHERE fact_id IN {}", facts_at(indexes));
    let rehashed = |indexes: &str| {
        format!(
            "UPDATE fact SET body = body || ' ', leaf_hash = sha256('\\x00'::bytea || body || ' ') WHERE fact_id IN {}",
            facts_at(indexes)
        )
    };
    let everywhere = |change: String| format!("{change}; {COPY_HASHES}");
    let swap_sql = format!(
        "UPDATE fact SET body = other.body, leaf_hash = other.leaf_hash FROM fact AS other
         WHERE fact.fact_id IN {0} AND other.fact_id IN {0} AND fact.fact_id <> other.fact_id",
        facts_at("100, 101")
    );
    let truncate_sql = format!(
        "DELETE FROM fact_order WHERE index >= 400; UPDATE fact_log SET size = 400 WHERE tenant_id = '{TENANT}'"
    );
    let changes = [
        ("an edited entry", edited("300, 500"), "300: the bytes of the entry do not have its recorded hash"),
        (
            "an edited entry with one of its hashes",
            rehashed("20, 500"),
            "20: the bytes of the entry do not have its recorded hash",
        ),
        ("an edited entry with its hashes", everywhere(rehashed("20, 500")), "20: the checkpoint covers another entry"),
        (
            "the last entries, edited with their hashes",
            everywhere(rehashed("590")),
            "590: the checkpoint covers another entry",
        ),
        ("swapped entries", everywhere(swap_sql), "100: the checkpoint covers another entry"),
        ("a deleted entry", "DELETE FROM fact_order WHERE index = 42".to_owned(), "42: the entry is missing"),
        ("a cut log", truncate_sql, "400: the log ends here"),
    ];
    for (name, change, expected) in changes {
        owner.batch_execute(&change).await.unwrap();
        let (code, output) = audited.audit(&["--tenant", TENANT]);
        assert!(code == Some(1) && output.contains(&format!("first bad index {expected}")), "{name}: {output}");
        owner.batch_execute(RESTORE).await.unwrap();
    }
    // The archive still has checkpoints of a tenant whose rows are all deleted, so the audit covers this tenant.
    owner.batch_execute("DELETE FROM fact_order; DELETE FROM log_tree; DELETE FROM fact_log").await.unwrap();
    let (code, output) = audited.audit(&[]);
    assert!(code == Some(1) && output.contains("first bad index 0: the log ends here"), "{output}");
}

/// A row that cannot be decoded fails the audit of its tenant. The logs of subsequent tenants are audited nevertheless.
#[tokio::test]
async fn unreadable_log_of_one_tenant_does_not_end_the_audit() {
    const UNREADABLE: &str = "00000000-0000-7000-8000-000000000000";
    let audited = AuditedServer::prepare().await;
    let owner = audited.database.connect_as_owner().await.unwrap();
    // This tenant comes first in the order of audits. Its tree lacks the edge hash that its size requires.
    let insert_sql = format!(
        "INSERT INTO tenant (tenant_id, slug, name, notifications_enabled, advanced_notifications_enabled, public_hosts,
            revision, created_at, created_by)
         SELECT '{UNREADABLE}', 'unreadable', 'Unreadable', true, false, '{{}}', 1, created_at, created_by FROM tenant
         WHERE tenant_id = '{TENANT}';
         INSERT INTO fact_log (tenant_id, size) VALUES ('{UNREADABLE}', 1);
         INSERT INTO log_tree (tenant_id, size, edge, signed_by) VALUES ('{UNREADABLE}', 1, '{{}}', '')"
    );
    owner.batch_execute(&insert_sql).await.unwrap();
    let audit = || {
        let output = audited.setup.run_with(&["audit", "verify"]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(output.status.code(), Some(1), "{}{}", text(&output.stdout), text(&output.stderr));
        let lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
        let unreadable = format!("tenant {UNREADABLE}: not read to its end (database_inconsistent): ");
        assert!(lines.len() == 3 && lines[0].starts_with(&unreadable), "{lines:?}");
        lines
    };
    let lines = audit();
    assert!(lines[1].starts_with(&format!("tenant {TENANT}: ")) && lines[1].ends_with("nothing is wrong"), "{lines:?}");
    assert_eq!(lines[2], "2 logs compared, 1 with something wrong");
    let edit = format!("UPDATE fact SET body = body || ' ' WHERE fact_id IN {}", facts_at("300"));
    owner.batch_execute(&edit).await.unwrap();
    let lines = audit();
    assert!(lines[1].contains("first bad index 300: "), "{lines:?}");
    assert_eq!(lines[2], "2 logs compared, 2 with something wrong");
}

#[tokio::test]
async fn audit_accepts_a_saved_checkpoint_and_retired_keys() {
    let audited = AuditedServer::prepare().await;
    let newest_checkpoint = audited.newest_checkpoint.to_str().unwrap();
    let (code, output) = audited.audit(&["--checkpoint", newest_checkpoint]);
    assert!(code == Some(0) && output.contains(&format!("tenant {TENANT}: ")), "{output}");
    let forged = audited.setup.work_dir.path().join("forged");
    fs::write(
        &forged,
        fs::read_to_string(newest_checkpoint).unwrap().replacen(TENANT, "00000000-0000-7000-8000-000000000002", 1),
    )
    .unwrap();
    let (code, output) = audited.audit(&["--checkpoint", forged.to_str().unwrap(), "--tenant", TENANT]);
    assert!(code == Some(1) && output.contains("the checkpoint is of another tenant"), "{output}");
    fs::write(&forged, "no checkpoint").unwrap();
    let (code, output) = audited.audit(&["--checkpoint", forged.to_str().unwrap()]);
    assert!(code == Some(1) && output.contains("the file holds no checkpoint"), "{output}");
    let rotated =
        AuditedServer { setup: audited.setup.setting("FAIRWAY_CHECKPOINT_KEY_REF", "env:RETIRED_KEY"), ..audited };
    let (code, output) = rotated.audit(&[]);
    assert!(code == Some(1) && output.contains("no present key of the log signed it"), "{output}");
    let (code, output) = rotated.audit(&["--key", &rotated.key]);
    assert!(code == Some(0) && output.ends_with("nothing is wrong"), "{output}");
}

/// The number of random changes: in every test run, and in the long form.
const CHANGES: [u32; 2] = [100, 1_000];
/// Random changes affect only entries below this index. They are in full tiles, whose hashes a checkpoint covers one
/// by one.
const CHANGED: u64 = 512;
const NO_HASH: &str = "the bytes of the entry do not have its recorded hash";
const OTHER_ENTRY: &str = "the checkpoint covers another entry";

/// A pseudo-random sequence (SplitMix64) from a seed, so that a failure is reproducible.
struct RandomSource(u64);

impl RandomSource {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// SQL that inserts another fact at an index.
fn put_at(index: u64) -> String {
    format!(
        "WITH made AS (
            INSERT INTO fact (tenant_id, fact_id, kind, body, leaf_hash)
            SELECT '{TENANT}', gen_random_uuid(), 'made', body, sha256('\\x00'::bytea || body)
            FROM convert_to('another fact', 'UTF8') AS body RETURNING tenant_id, fact_id)
         INSERT INTO fact_order (tenant_id, index, fact_id) SELECT tenant_id, {index}, fact_id FROM made;"
    )
}

/// A random change of the log by an attacker who knows the schema: its name, its SQL, and the expected message of
/// the audit.
fn random_change(random: &mut RandomSource) -> (&'static str, String, String) {
    let index = random.below(CHANGED);
    let matching_facts = facts_at(&index.to_string());
    let of_tenant = format!("tenant_id = '{TENANT}'");
    let byte = random.below(30);
    let edit = format!("set_byte(body, {byte} % length(body), get_byte(body, {byte} % length(body)) # 1)");
    match random.below(7) {
        0 => ("edit", format!("UPDATE fact SET body = {edit} WHERE fact_id IN {matching_facts}"), format!("{index}: {NO_HASH}")),
        1 => (
            "edit with its hash",
            format!(
                "UPDATE fact SET body = {edit}, leaf_hash = sha256('\\x00'::bytea || {edit}) WHERE fact_id IN {matching_facts};
                 {COPY_HASHES}"
            ),
            format!("{index}: {OTHER_ENTRY}"),
        ),
        2 => (
            "delete",
            format!("DELETE FROM fact_order WHERE {of_tenant} AND index = {index}"),
            format!("{index}: the entry is missing"),
        ),
        3 => (
            "insert",
            format!(
                "UPDATE fact_order SET index = index + 1000001 WHERE {of_tenant} AND index >= {index};
                 UPDATE fact_order SET index = index - 1000000 WHERE {of_tenant} AND index > 1000000;
                 {} UPDATE fact_log SET size = size + 1 WHERE {of_tenant}",
                put_at(index)
            ),
            format!("{index}: {OTHER_ENTRY}"),
        ),
        4 => {
            let other_index = (index + 1 + random.below(CHANGED - 1)) % CHANGED;
            let (lower_index, higher_index) = (index.min(other_index), index.max(other_index));
            let swap_sql = format!(
                "UPDATE fact_order SET index = 1000000 WHERE {of_tenant} AND index = {lower_index};
                 UPDATE fact_order SET index = {lower_index} WHERE {of_tenant} AND index = {higher_index};
                 UPDATE fact_order SET index = {higher_index} WHERE {of_tenant} AND index = 1000000"
            );
            ("swap", swap_sql, format!("{lower_index}: {OTHER_ENTRY}"))
        }
        5 => (
            "truncate",
            format!(
                "DELETE FROM fact_order WHERE {of_tenant} AND index >= {index}; UPDATE fact_log SET size = {index} WHERE {of_tenant}"
            ),
            format!("{index}: the log ends here"),
        ),
        _ => (
            "old dump that was continued",
            format!(
                "DELETE FROM fact_order WHERE {of_tenant} AND index >= {index}; {} UPDATE fact_log SET size = {index} + 1 WHERE {of_tenant}",
                put_at(index)
            ),
            format!("{index}: {OTHER_ENTRY}"),
        ),
    }
}

#[tokio::test]
async fn every_random_change_is_named_by_its_index() {
    let seed = std::env::var("FAIRWAY_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let audited = AuditedServer::prepare().await;
    let owner = audited.database.connect_as_owner().await.unwrap();
    let mut random = RandomSource(seed);
    for number in 0..CHANGES[usize::from(is_long_form_requested())] {
        let (name, change, expected) = random_change(&mut random);
        owner.batch_execute(&change).await.unwrap();
        let (code, output) = audited.audit(&["--tenant", TENANT]);
        let found = code == Some(1) && output.contains(&format!("first bad index {expected}"));
        assert!(found, "seed {seed}, change {number}: {name}: expected {expected}: {output}");
        owner.batch_execute(RESTORE).await.unwrap();
    }
    let (code, output) = audited.audit(&[]);
    assert!(code == Some(0), "the restored log: {output}");
}
