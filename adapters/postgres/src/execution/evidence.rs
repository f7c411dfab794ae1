//! The evidence of an execution in one read, and its documents.

use super::{EXECUTION_COLUMNS, NULL_OUTPUT, NULL_REASON_CODE, execution};
use crate::{
    batch_load::BatchLoader,
    database::{Database, read},
    large_reads::{LargeRead, MAX_SMALL_BYTES, small_text_columns},
    row::{RowExt, decode, parse_json},
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{
    evidence::{ArtifactDocument, ArtifactRow, DecisionRow, EvidenceRecord, RetrievalRow},
    execution::Execution,
    id::{ApprovalId, ArtifactId, AssetId, DecisionId, ExecutionId},
    policy::Outcome,
    store::StoreError,
    tenant::TenantScope,
    time::Timestamp,
};
use serde::Deserialize;
use serde_json::Value;
use std::{collections::HashMap, time::Duration};
use tokio_postgres::Row;
use uuid::Uuid;

#[derive(Deserialize)]
struct DecisionBody {
    decision_id: DecisionId,
    outcome: String,
    reason_code: String,
    obligations: Vec<String>,
    rules: Vec<String>,
    evaluated_at: Timestamp,
}

impl DecisionBody {
    fn read(self) -> Result<DecisionRow, StoreError> {
        Ok(DecisionRow {
            decision_id: self.decision_id,
            outcome: decode("decisions", Outcome::parse(&self.outcome))?,
            reason_code: self.reason_code,
            obligations: self.obligations,
            rules: self.rules,
            evaluated_at: self.evaluated_at,
        })
    }
}

#[derive(Deserialize)]
struct ArtifactBody {
    artifact_id: ArtifactId,
    artifact_kind: String,
    storage_ref: String,
    created_at: Timestamp,
    /// The knowledge base and the number of retrieved chunks; null for other documents.
    retrieval: Option<RetrievalBody>,
}

#[derive(Deserialize)]
struct RetrievalBody {
    knowledge_base_asset_id: AssetId,
    retrieved_chunk_count: u32,
}

#[derive(Deserialize)]
struct QueryBody {
    query: String,
}

fn decisions(asked: RunSelector) -> String {
    format!(
        "(SELECT json_agg(json_build_object('decision_id', decision_id, 'outcome', outcome, 'reason_code', reason_code,
        'obligations', obligations, 'rules', rules, 'evaluated_at', evaluated_at) ORDER BY decision_id)::text
     FROM policy_decision AS decision WHERE {}) AS decisions",
        asked.condition("decision")
    )
}

fn artifacts(asked: RunSelector) -> String {
    format!(
        "(SELECT json_agg(json_build_object('artifact_id', artifact_id, 'artifact_kind', artifact_kind,
        'storage_ref', storage_ref, 'created_at', created_at,
        'retrieval', CASE WHEN artifact_kind = 'retrieval_event' THEN artifact.body::json END) ORDER BY artifact_id)::text
     FROM evidence_artifact AS artifact WHERE {}) AS artifacts",
        asked.condition("artifact")
    )
}

/// How a statement addresses its runs.
#[derive(Clone, Copy)]
enum RunSelector {
    /// One run as a parameter: PostgreSQL opens the one monthly partition that contains it.
    Single,
    /// Each run of the input rows. The first and the last identifier let PostgreSQL prune monthly partitions.
    Batch,
}

impl RunSelector {
    /// The condition that a row of `table` belongs to the run.
    fn condition(self, table: &str) -> String {
        match self {
            Self::Single => format!("{table}.tenant_id = $1 AND {table}.execution_id = $2"),
            Self::Batch => format!(
                "{table}.tenant_id = asked.tenant AND {table}.execution_id = asked.run
                    AND {table}.execution_id >= $3 AND {table}.execution_id <= $4"
            ),
        }
    }
}

// Rows of a run are read by subqueries and not joined: while a tenant has few rows, the planner would choose to join
// all of them.

const HAS_NOTES_COLUMN: &str = "
    EXISTS (SELECT 1 FROM approval JOIN approval_note USING (tenant_id, approval_id)
     WHERE approval.tenant_id = execution.tenant_id AND approval.release_id = execution.release_id) AS has_notes";

const CHAIN_COLUMN: &str = "
    (SELECT body FROM evidence_snapshot AS chain
     WHERE chain.tenant_id = execution.tenant_id AND chain.digest = execution.snapshot) AS chain";

/// Decodes rows from a JSON aggregate; null means none.
fn json_rows<T: for<'a> Deserialize<'a>>(row: &Row, name: &'static str) -> Result<Vec<T>, StoreError> {
    row.column::<Option<&str>>(name)?.map(parse_json).transpose().map(Option::unwrap_or_default)
}

/// The evidence of a run, as columns of its row.
fn evidence_columns(asked: RunSelector) -> String {
    format!(
        "execution.tenant_id, {EXECUTION_COLUMNS}, {NULL_OUTPUT}, {NULL_REASON_CODE}, input_digest, output_digest, {CHAIN_COLUMN},
            {}, {}, {HAS_NOTES_COLUMN}",
        decisions(asked),
        artifacts(asked),
    )
}

/// Loads the evidence of runs by tenant and identifier.
pub(crate) struct EvidenceLoader {
    pub(crate) pool: Pool,
    /// Retention of payloads.
    pub(crate) retention: Duration,
}

#[async_trait]
impl BatchLoader for EvidenceLoader {
    type Key = (Uuid, Uuid);
    type Value = EvidenceRecord;
    const LABEL: &'static str = "evidence of runs";

    async fn load_batch(&self, keys: &[(Uuid, Uuid)]) -> Result<HashMap<(Uuid, Uuid), EvidenceRecord>, StoreError> {
        let rows = match keys {
            [(tenant, run)] => {
                let (columns, of) = (evidence_columns(RunSelector::Single), RunSelector::Single.condition("execution"));
                read(&self.pool, &format!("SELECT {columns} FROM execution WHERE {of}"), &[tenant, run]).await?
            }
            _ => {
                let (tenants, runs): (Vec<Uuid>, Vec<Uuid>) = keys.iter().copied().unzip();
                let (first, last) = (runs.iter().min(), runs.iter().max());
                let sql = format!(
                    "SELECT told.* FROM unnest($1::uuid[], $2::uuid[]) AS asked (tenant, run), LATERAL (
                        SELECT {} FROM execution WHERE {} OFFSET 0) AS told",
                    evidence_columns(RunSelector::Batch),
                    RunSelector::Batch.condition("execution"),
                );
                read(&self.pool, &sql, &[&tenants, &runs, &first, &last]).await?
            }
        };
        let mut found = HashMap::with_capacity(rows.len());
        for row in &rows {
            let record = record(row)?;
            found.insert((row.column("tenant_id")?, record.execution.execution_id.uuid()), record);
        }
        self.add_fulfilments(&mut found).await?;
        self.add_queries(&mut found).await?;
        Ok(found)
    }
}

impl EvidenceLoader {
    /// Adds the times at which obligations were fulfilled. Skips the statement if no decision imposed an obligation,
    /// the common case.
    async fn add_fulfilments(&self, found: &mut HashMap<(Uuid, Uuid), EvidenceRecord>) -> Result<(), StoreError> {
        const SQL: &str = "SELECT told.* FROM unnest($1::uuid[], $2::uuid[]) AS asked (tenant, run), LATERAL (
                SELECT tenant_id, execution_id, obligation, fulfilled_at FROM obligation_fulfilment AS owed
                WHERE owed.tenant_id = asked.tenant AND owed.execution_id = asked.run
                    AND owed.execution_id >= $3 AND owed.execution_id <= $4 OFFSET 0) AS told";
        let owes = |record: &EvidenceRecord| record.decisions.iter().any(|decision| !decision.obligations.is_empty());
        let owing = found.iter().filter(|(_, record)| owes(record)).map(|(key, _)| *key);
        let (tenants, runs): (Vec<Uuid>, Vec<Uuid>) = owing.unzip();
        let (Some(first), Some(last)) = (runs.iter().min(), runs.iter().max()) else { return Ok(()) };
        for row in read(&self.pool, SQL, &[&tenants, &runs, first, last]).await? {
            if let Some(record) = found.get_mut(&(row.column("tenant_id")?, row.column("execution_id")?)) {
                record.fulfilled.push((row.column("obligation")?, row.timestamp("fulfilled_at")?));
            }
        }
        Ok(())
    }
}

impl EvidenceLoader {
    /// Adds the retrieval queries that have not expired. Skips the statement if no run retrieved documents, the common
    /// case.
    async fn add_queries(&self, found: &mut HashMap<(Uuid, Uuid), EvidenceRecord>) -> Result<(), StoreError> {
        let sql = format!(
            "SELECT told.* FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) AS asked (tenant, run, artifact),
                LATERAL (
                    SELECT payload.tenant_id, payload.execution_id, payload.artifact_id, payload.body
                    FROM evidence_payload AS payload
                    JOIN execution ON execution.tenant_id = asked.tenant AND execution.execution_id = asked.run
                        AND execution.execution_id >= $4 AND execution.execution_id <= $5
                    WHERE payload.tenant_id = asked.tenant AND payload.execution_id = asked.run
                        AND payload.artifact_id = asked.artifact
                        AND payload.execution_id >= $4 AND payload.execution_id <= $5
                        AND NOT {IS_UNDISCLOSED}
                        AND (execution.finished_at IS NULL
                            OR execution.finished_at + make_interval(secs => $6) > fairway_now()) OFFSET 0) AS told"
        );
        let (mut tenants, mut runs, mut artifacts) = (Vec::new(), Vec::new(), Vec::new());
        for ((tenant, run), record) in &*found {
            for retrieval in &record.retrievals {
                tenants.push(*tenant);
                runs.push(*run);
                artifacts.push(retrieval.artifact_id.uuid());
            }
        }
        let (Some(first), Some(last)) = (runs.iter().min(), runs.iter().max()) else { return Ok(()) };
        let kept = self.retention.as_secs_f64();
        for row in read(&self.pool, &sql, &[&tenants, &runs, &artifacts, first, last, &kept]).await? {
            let body: QueryBody = parse_json(row.column("body")?)?;
            let key = (row.column("tenant_id")?, row.column("execution_id")?);
            let artifact: ArtifactId = row.id("artifact_id")?;
            let of = |record: &mut EvidenceRecord| {
                let told = record.retrievals.iter_mut().find(|retrieval| retrieval.artifact_id == artifact);
                told.into_iter().for_each(|retrieval| retrieval.query = Some(body.query.clone()));
            };
            found.get_mut(&key).into_iter().for_each(of);
        }
        Ok(())
    }
}

fn record(row: &Row) -> Result<EvidenceRecord, StoreError> {
    let digest = |name: &'static str| -> Result<Option<[u8; 32]>, StoreError> {
        row.column::<Option<&[u8]>>(name)?.map(|bytes| decode(name, bytes.try_into().ok())).transpose()
    };
    let decisions: Vec<DecisionBody> = json_rows(row, "decisions")?;
    let artifacts: Vec<ArtifactBody> = json_rows(row, "artifacts")?;
    let mut record = EvidenceRecord {
        execution: execution(row)?,
        input_digest: decode("input_digest", digest("input_digest")?)?,
        output_digest: digest("output_digest")?,
        chain: parse_json(row.column("chain")?)?,
        decisions: decisions.into_iter().map(DecisionBody::read).collect::<Result<_, _>>()?,
        fulfilled: Vec::new(),
        retrievals: artifacts.iter().filter_map(retrieval).collect(),
        artifacts: artifacts
            .into_iter()
            .map(|artifact| ArtifactRow {
                artifact_id: artifact.artifact_id,
                artifact_kind: artifact.artifact_kind,
                storage_ref: artifact.storage_ref,
                created_at: artifact.created_at,
            })
            .collect(),
        has_notes: row.column("has_notes")?,
        notes: Vec::new(),
        notes_withheld: false,
    };
    // Computed from the decisions, which are already loaded.
    record.execution.reason_code =
        record.effective_decision().map(|decision| decision.reason_code.clone()).unwrap_or_default();
    Ok(record)
}

/// The retrieval that a document describes, if it is a retrieval event.
fn retrieval(artifact: &ArtifactBody) -> Option<RetrievalRow> {
    let told = artifact.retrieval.as_ref()?;
    Some(RetrievalRow {
        artifact_id: artifact.artifact_id,
        asset: told.knowledge_base_asset_id,
        query: None,
        chunks: told.retrieved_chunk_count,
        at: artifact.created_at,
    })
}

/// The existing notes to these approvals. They are read as one large read if their total length is large.
pub(super) async fn approval_notes(
    database: &Database,
    scope: TenantScope,
    approvals: &[ApprovalId],
) -> Result<Vec<(ApprovalId, String)>, StoreError> {
    const SMALL: &str = "SELECT approval_id, CASE WHEN bytes <= $3 THEN body END AS body, bytes FROM (
            SELECT approval_id, body, sum(octet_length(body)) OVER () AS bytes FROM approval_note
            WHERE tenant_id = $1 AND approval_id = ANY ($2)) AS note";
    const LARGE: &str = "SELECT approval_id, body FROM approval_note WHERE tenant_id = $1 AND approval_id = ANY ($2)";
    let approvals: Vec<Uuid> = approvals.iter().map(|id| id.uuid()).collect();
    let tenant = scope.tenant().uuid();
    let rows = database.read(SMALL, &[&tenant, &approvals, &i64::from(MAX_SMALL_BYTES)]).await?;
    let bytes: i64 = rows.first().map(|row| row.column("bytes")).transpose()?.unwrap_or_default();
    let note = |row: &Row| Ok((row.id("approval_id")?, row.column("body")?));
    if bytes <= i64::from(MAX_SMALL_BYTES) {
        return rows.iter().map(note).collect();
    }
    let large = LargeRead::acquire(scope, bytes).await?;
    let (rows, _permit) = large.rows(database, LARGE, &[&tenant, &approvals]).await?;
    rows.iter().map(note).collect()
}

/// Whether the payloads of a run may contain an undisclosed output: its review is pending, or ended without approval.
/// A run that was denied or cancelled before a review has no output. The reviewer's note is not part of the output.
const IS_UNDISCLOSED: &str = "(execution.status = 'awaiting_review'
    OR execution.status IN ('denied', 'cancelled') AND execution.output_digest IS NOT NULL)";

pub(super) async fn artifact(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
    artifact: ArtifactId,
) -> Result<Option<(Execution, ArtifactDocument)>, StoreError> {
    let sql = format!(
        "SELECT {EXECUTION_COLUMNS}, {NULL_OUTPUT}, {NULL_REASON_CODE}, artifact.artifact_id, artifact.artifact_kind, artifact.storage_ref,
            artifact.body, artifact.created_at, {},
            payload.body IS NOT NULL AND (execution.finished_at IS NULL OR held_back) AS is_held_back
         FROM execution
         JOIN evidence_artifact AS artifact ON artifact.tenant_id = execution.tenant_id
            AND artifact.execution_id = execution.execution_id
         LEFT JOIN evidence_payload AS payload ON payload.tenant_id = execution.tenant_id
            AND payload.execution_id = execution.execution_id AND payload.artifact_id = artifact.artifact_id
         CROSS JOIN LATERAL (SELECT {IS_UNDISCLOSED} AND artifact.artifact_kind <> 'review' AS held_back) AS review
         CROSS JOIN LATERAL (SELECT CASE WHEN execution.finished_at + make_interval(secs => $4) > fairway_now()
            AND NOT held_back THEN payload.body END AS shown) AS said
         WHERE execution.tenant_id = $1 AND execution.execution_id = $2 AND artifact.artifact_id = $3",
        small_text_columns("shown", "payload"),
    );
    let kept = database.result_retention.as_secs_f64();
    let params: [crate::database::Param<'_>; 4] = [&scope.tenant().uuid(), &id.uuid(), &artifact.uuid(), &kept];
    let Some(row) = database.read_one(&sql, &params).await? else { return Ok(None) };
    let payload = match row.column::<Option<i64>>("payload_bytes")? {
        Some(bytes) => read_large_payload(database, scope, id, artifact, bytes).await?,
        None => row.column::<Option<&str>>("payload")?.map(parse_json).transpose()?,
    };
    let document = ArtifactDocument {
        artifact: ArtifactRow {
            artifact_id: row.id("artifact_id")?,
            artifact_kind: row.column("artifact_kind")?,
            storage_ref: row.column("storage_ref")?,
            created_at: row.timestamp("created_at")?,
        },
        body: parse_json(row.column("body")?)?,
        payload,
        // A payload may contain the output, which is withheld until the run ends.
        payload_withheld: row.column("is_held_back")?,
    };
    Ok(Some((execution(&row)?, document)))
}

/// Reads a large disclosed payload, unless it expired. A disclosed payload is never withheld again, so this read does
/// not check it.
async fn read_large_payload(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
    artifact: ArtifactId,
    bytes: i64,
) -> Result<Option<Value>, StoreError> {
    const SQL: &str = "SELECT body FROM evidence_payload JOIN execution USING (tenant_id, execution_id)
        WHERE tenant_id = $1 AND execution_id = $2 AND artifact_id = $3
            AND execution.finished_at + make_interval(secs => $4) > fairway_now()";
    let kept = database.result_retention.as_secs_f64();
    let large = LargeRead::acquire(scope, bytes).await?;
    let params: [crate::database::Param<'_>; 4] = [&scope.tenant().uuid(), &id.uuid(), &artifact.uuid(), &kept];
    let (rows, _permit) = large.rows(database, SQL, &params).await?;
    rows.first().map(|row| parse_json(row.column("body")?)).transpose()
}
