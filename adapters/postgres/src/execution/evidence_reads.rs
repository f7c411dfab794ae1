//! Reads the evidence of an execution in one statement, single evidence documents, and all documents of a run.

use super::{
    EXECUTION_COLUMNS, NULL_OUTPUT, NULL_REASON_CODE, execution, input_of_runs, run_condition, run_params, select_runs,
    stored_decision::StoredDecision,
};
use crate::{
    batch_load::BatchLoader,
    database::{Database, StatementPool, read},
    guarded_commit::{Input, Query},
    large_reads::{LargeRead, MAX_SMALL_TEXT_BYTES, small_text_columns},
    row::{Row, parse_json, require_decoded},
    schema::evidence_artifact,
};
use async_trait::async_trait;
use diesel::{BoolExpressionMethods as _, ExpressionMethods as _, QueryDsl as _};
use fairway_domain::{
    erasure::CoveringErasure,
    evidence::{EvidenceArtifactRow, EvidenceArtifactWithContent, RetrievalRow, RunEvidence, StoredEvidenceArtifact},
    execution::Execution,
    id::{ApprovalId, ArtifactId, AssetId, ExecutionId},
    store::StoreError,
    tenant::TenantScope,
    time::Timestamp,
};
use serde::Deserialize;
use serde_json::Value;
use std::{collections::HashMap, time::Duration};
use uuid::Uuid;

#[derive(Deserialize)]
struct ArtifactBody {
    artifact_id: ArtifactId,
    artifact_kind: String,
    storage_ref: String,
    created_at: Timestamp,
    /// The knowledge base and the number of retrieved chunks; null unless the document is a retrieval event.
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

fn decisions() -> String {
    format!(
        "(SELECT json_agg(json_build_object('decision_id', decision_id, 'outcome', outcome, 'reason_code', reason_code,
        'obligations', obligations, 'rules', rules, 'evaluated_at', evaluated_at) ORDER BY decision_id)::text
     FROM policy_decision AS decision WHERE {}) AS decisions",
        run_condition("decision")
    )
}

fn artifacts() -> String {
    format!(
        "(SELECT json_agg(json_build_object('artifact_id', artifact_id, 'artifact_kind', artifact_kind,
        'storage_ref', storage_ref, 'created_at', created_at,
        'retrieval', CASE WHEN artifact_kind = 'retrieval_event' THEN artifact.body::json END) ORDER BY artifact_id)::text
     FROM evidence_artifact AS artifact WHERE {}) AS artifacts",
        run_condition("artifact")
    )
}

// Rows of a run are read by subqueries and not by joins. While a tenant has few rows, the planner would otherwise
// join all of them.

const HAS_NOTES_COLUMN: &str = "
    EXISTS (SELECT 1 FROM approval JOIN approval_note USING (tenant_id, approval_id)
     WHERE approval.tenant_id = execution.tenant_id AND approval.release_id = execution.release_id) AS has_notes";

const CHAIN_COLUMN: &str = "
    (SELECT body FROM evidence_snapshot AS chain
     WHERE chain.tenant_id = execution.tenant_id AND chain.digest = execution.snapshot) AS chain";

/// Decodes rows from a JSON aggregate; null means no rows.
fn json_rows<T: for<'a> Deserialize<'a>>(row: &Row, name: &'static str) -> Result<Vec<T>, StoreError> {
    row.column::<Option<&str>>(name)?.map(parse_json).transpose().map(Option::unwrap_or_default)
}

/// The columns with the evidence of a run, for a `SELECT` from `execution`.
fn evidence_columns() -> String {
    format!(
        "execution.tenant_id, {EXECUTION_COLUMNS}, {NULL_OUTPUT}, {NULL_REASON_CODE}, input_digest, output_digest, erasure_id, erased_at, {CHAIN_COLUMN},
            {}, {}, {HAS_NOTES_COLUMN}",
        decisions(),
        artifacts(),
    )
}

fn evidence_sql() -> String {
    select_runs(&evidence_columns(), "")
}

/// Loads the evidence of runs by tenant and identifier.
pub(crate) struct EvidenceLoader {
    pub(crate) pool: StatementPool,
    /// Retention period of payloads.
    pub(crate) retention: Duration,
}

#[async_trait]
impl BatchLoader for EvidenceLoader {
    type Key = (Uuid, Uuid);
    type Value = RunEvidence;
    const LABEL: &'static str = "evidence of runs";

    async fn load_batch(&self, keys: &[(Uuid, Uuid)]) -> Result<HashMap<(Uuid, Uuid), RunEvidence>, StoreError> {
        static READ: Query = Query::from_fn(evidence_sql);
        let input = input_of_runs(keys);
        let rows = read(&self.pool, READ.text(&input)?, &input.params()).await?;
        let mut records = HashMap::with_capacity(rows.len());
        for row in &rows {
            let record = record(row)?;
            records.insert((row.column("tenant_id")?, record.execution.execution_id.uuid()), record);
        }
        self.add_fulfilments(&mut records).await?;
        self.add_queries(&mut records).await?;
        Ok(records)
    }
}

impl EvidenceLoader {
    /// Adds the times at which obligations were fulfilled. Sends no statement if no decision imposed an obligation,
    /// which is the common case.
    async fn add_fulfilments(&self, records: &mut HashMap<(Uuid, Uuid), RunEvidence>) -> Result<(), StoreError> {
        static READ_FULFILMENT: Query = Query::from_fn(|| {
            let condition = run_condition("fulfilment");
            format!(
                "SELECT found.* FROM input, LATERAL (
                    SELECT tenant_id, execution_id, obligation, fulfilled_at FROM obligation_fulfilment AS fulfilment
                    WHERE {condition} OFFSET 0) AS found"
            )
        });
        let has_obligations =
            |record: &RunEvidence| record.decisions.iter().any(|decision| !decision.obligations.is_empty());
        let runs_with_obligations: Vec<(Uuid, Uuid)> =
            records.iter().filter(|(_, record)| has_obligations(record)).map(|(key, _)| *key).collect();
        if runs_with_obligations.is_empty() {
            return Ok(());
        }
        let input = input_of_runs(&runs_with_obligations);
        for row in read(&self.pool, READ_FULFILMENT.text(&input)?, &input.params()).await? {
            if let Some(record) = records.get_mut(&(row.column("tenant_id")?, row.column("execution_id")?)) {
                record.fulfilled.push((row.column("obligation")?, row.timestamp("fulfilled_at")?));
            }
        }
        Ok(())
    }
}

impl EvidenceLoader {
    /// Adds the retrieval queries that have not expired. Sends no statement if no run retrieved documents, which is
    /// the common case.
    async fn add_queries(&self, records: &mut HashMap<(Uuid, Uuid), RunEvidence>) -> Result<(), StoreError> {
        static READ_QUERIES: Query = Query::from_fn(queries_sql);
        let mut runs = Vec::new();
        let mut artifacts = Vec::new();
        for (key, record) in &*records {
            for retrieval in &record.retrievals {
                runs.push(*key);
                artifacts.push(retrieval.artifact_id.uuid());
            }
        }
        if runs.is_empty() {
            return Ok(());
        }
        let input = input_of_runs(&runs)
            .with_column("artifact_id", artifacts)
            .with_param("retention", self.retention.as_secs_f64());
        for row in read(&self.pool, READ_QUERIES.text(&input)?, &input.params()).await? {
            let body: QueryBody = parse_json(row.column("body")?)?;
            let key = (row.column("tenant_id")?, row.column("execution_id")?);
            let artifact: ArtifactId = row.id("artifact_id")?;
            let set_query = |record: &mut RunEvidence| {
                let matching = record.retrievals.iter_mut().find(|retrieval| retrieval.artifact_id == artifact);
                matching.into_iter().for_each(|retrieval| retrieval.query = Some(body.query.clone()));
            };
            records.get_mut(&key).into_iter().for_each(set_query);
        }
        Ok(())
    }
}

/// The statement that reads the retrieval queries that may be disclosed and have not expired.
fn queries_sql() -> String {
    let (run, payload) = (run_condition("execution"), run_condition("payload"));
    format!(
        "SELECT found.* FROM input, LATERAL (
            SELECT payload.tenant_id, payload.execution_id, payload.artifact_id, payload.body
            FROM evidence_payload AS payload JOIN execution ON {run}
            WHERE {payload} AND payload.artifact_id = input.artifact_id AND NOT {IS_UNDISCLOSED}
                AND (execution.finished_at IS NULL
                    OR execution.finished_at + make_interval(secs => {{retention}}) > fairway_now()) OFFSET 0) AS found"
    )
}

fn record(row: &Row) -> Result<RunEvidence, StoreError> {
    let digest = |name: &'static str| -> Result<Option<[u8; 32]>, StoreError> {
        row.column::<Option<&[u8]>>(name)?.map(|bytes| require_decoded(name, bytes.try_into().ok())).transpose()
    };
    let decisions: Vec<StoredDecision> = json_rows(row, "decisions")?;
    let artifacts: Vec<ArtifactBody> = json_rows(row, "artifacts")?;
    let mut record = RunEvidence {
        execution: execution(row)?,
        input_digest: require_decoded("input_digest", digest("input_digest")?)?,
        output_digest: digest("output_digest")?,
        erasure: erasure(row)?,
        chain: parse_json(row.column("chain")?)?,
        decisions: decisions.into_iter().map(StoredDecision::into_decision).collect::<Result<_, _>>()?,
        fulfilled: Vec::new(),
        retrievals: artifacts.iter().filter_map(retrieval).collect(),
        artifacts: artifacts
            .into_iter()
            .map(|artifact| EvidenceArtifactRow {
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
    // The reason code is derived from the loaded decisions, which saves a subquery.
    record.execution.reason_code =
        record.strictest_decision().map(|decision| decision.reason_code.clone()).unwrap_or_default();
    Ok(record)
}

/// The erasure of the run's texts, if any.
fn erasure(row: &Row) -> Result<Option<CoveringErasure>, StoreError> {
    let (erasure_id, erased_at) = (row.optional_id("erasure_id")?, row.optional_timestamp("erased_at")?);
    Ok(erasure_id.zip(erased_at).map(|(erasure_id, erased_at)| CoveringErasure { erasure_id, erased_at }))
}

/// The retrieval that a document describes, if it is a retrieval event.
fn retrieval(artifact: &ArtifactBody) -> Option<RetrievalRow> {
    let body = artifact.retrieval.as_ref()?;
    Some(RetrievalRow {
        artifact_id: artifact.artifact_id,
        asset: body.knowledge_base_asset_id,
        query: None,
        chunks: body.retrieved_chunk_count,
        at: artifact.created_at,
    })
}

/// Reads the notes of these approvals. If their total length is large, a second statement reads them under a
/// permit.
pub(super) async fn approval_notes(
    database: &Database,
    scope: TenantScope,
    approvals: &[ApprovalId],
) -> Result<Vec<(ApprovalId, String)>, StoreError> {
    static SMALL: Query = Query::new(
        "SELECT approval_id, CASE WHEN bytes <= {max_small_bytes} THEN body END AS body, bytes FROM (
            SELECT approval_id, body, sum(octet_length(body)) OVER () AS bytes FROM approval_note
            WHERE tenant_id = {tenant_id} AND approval_id = ANY ({approvals})) AS note",
    );
    static LARGE: Query = Query::new(
        "SELECT approval_id, body FROM approval_note WHERE tenant_id = {tenant_id} AND approval_id = ANY ({approvals})",
    );
    let input_of_approvals =
        || Input::of_params(scope).with_list_param("approvals", approvals.iter().map(|id| id.uuid()).collect());
    let input = input_of_approvals().with_param("max_small_bytes", i64::from(MAX_SMALL_TEXT_BYTES));
    let rows = database.fetch(&SMALL, input).await?;
    let bytes: i64 = rows.first().map(|row| row.column("bytes")).transpose()?.unwrap_or_default();
    let note = |row: &Row| Ok((row.id("approval_id")?, row.column("body")?));
    if bytes <= i64::from(MAX_SMALL_TEXT_BYTES) {
        return rows.iter().map(note).collect();
    }
    let large = LargeRead::acquire(scope, bytes).await?;
    let input = input_of_approvals();
    let (rows, _permit) = large.rows(database, LARGE.text(&input)?, &input.params()).await?;
    rows.iter().map(note).collect()
}

/// The condition that the payloads of a run may contain an undisclosed output: its review is pending, or ended
/// without approval. A run that was denied or cancelled before a review has no output. The reviewer's note is not
/// part of the output.
const IS_UNDISCLOSED: &str = "(execution.status = 'awaiting_review'
    OR execution.status IN ('denied', 'cancelled') AND execution.output_digest IS NOT NULL)";

/// The statement that reads an evidence document with its run, and with its payload until the payload expires.
fn artifact_sql() -> String {
    format!(
        "SELECT {EXECUTION_COLUMNS}, {NULL_OUTPUT}, {NULL_REASON_CODE}, artifact.artifact_id, artifact.artifact_kind, artifact.storage_ref,
            artifact.body, artifact.created_at, {},
            payload.body IS NOT NULL AND (execution.finished_at IS NULL OR held_back) AS is_held_back
         FROM execution
         JOIN evidence_artifact AS artifact ON artifact.tenant_id = execution.tenant_id
            AND artifact.execution_id = execution.execution_id
         LEFT JOIN evidence_payload AS payload ON payload.tenant_id = execution.tenant_id
            AND payload.execution_id = execution.execution_id AND payload.artifact_id = artifact.artifact_id
         CROSS JOIN LATERAL (SELECT {IS_UNDISCLOSED} AND artifact.artifact_kind <> 'review' AS held_back) AS review
         CROSS JOIN LATERAL (SELECT CASE WHEN execution.finished_at + make_interval(secs => {{retention}}) > fairway_now()
            AND NOT held_back THEN payload.body END AS disclosed_body) AS disclosed
         WHERE execution.tenant_id = {{tenant_id}} AND execution.execution_id = {{execution_id}} AND artifact.artifact_id = {{artifact_id}}",
        small_text_columns("disclosed_body", "payload"),
    )
}

pub(super) async fn find_artifact(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
    artifact: ArtifactId,
) -> Result<Option<(Execution, EvidenceArtifactWithContent)>, StoreError> {
    static READ_ARTIFACT: Query = Query::from_fn(artifact_sql);
    let input = run_params(scope, id)
        .with_param("artifact_id", artifact.uuid())
        .with_param("retention", database.result_retention.as_secs_f64());
    let Some(row) = database.fetch_one(&READ_ARTIFACT, input).await? else { return Ok(None) };
    let payload = match row.column::<Option<i64>>("payload_bytes")? {
        Some(bytes) => read_large_payload(database, scope, id, artifact, bytes).await?,
        None => row.column::<Option<&str>>("payload")?.map(parse_json).transpose()?,
    };
    let document = EvidenceArtifactWithContent {
        artifact: EvidenceArtifactRow {
            artifact_id: row.id("artifact_id")?,
            artifact_kind: row.column("artifact_kind")?,
            storage_ref: row.column("storage_ref")?,
            created_at: row.timestamp("created_at")?,
        },
        body: parse_json(row.column("body")?)?,
        payload,
        // A payload may contain the output, so it is withheld until the run ends and its output is disclosed.
        payload_withheld: row.column("is_held_back")?,
    };
    Ok(Some((execution(&row)?, document)))
}

/// Reads a large disclosed payload, unless it has expired. A disclosed payload is never withheld again, so this
/// read does not check for that.
async fn read_large_payload(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
    artifact: ArtifactId,
    bytes: i64,
) -> Result<Option<Value>, StoreError> {
    static READ_PAYLOAD: Query = Query::new(
        "SELECT body FROM evidence_payload JOIN execution USING (tenant_id, execution_id)
         WHERE tenant_id = {tenant_id} AND execution_id = {execution_id} AND artifact_id = {artifact_id}
            AND execution.finished_at + make_interval(secs => {retention}) > fairway_now()",
    );
    let large = LargeRead::acquire(scope, bytes).await?;
    let input = run_params(scope, id)
        .with_param("artifact_id", artifact.uuid())
        .with_param("retention", database.result_retention.as_secs_f64());
    let (rows, _permit) = large.rows(database, READ_PAYLOAD.text(&input)?, &input.params()).await?;
    rows.first().map(|row| parse_json(row.column("body")?)).transpose()
}

pub(super) async fn read_documents(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
) -> Result<Vec<StoredEvidenceArtifact>, StoreError> {
    let (tenant, run) = (scope.tenant().uuid(), id.uuid());
    let documents = || {
        evidence_artifact::table
            .filter(evidence_artifact::tenant_id.eq(tenant).and(evidence_artifact::execution_id.eq(run)))
            .order(evidence_artifact::artifact_id)
            .select((evidence_artifact::artifact_id, evidence_artifact::artifact_kind, evidence_artifact::body))
    };
    let rows: Vec<(Uuid, String, String)> = database.load("evidence documents of a run", documents).await?;
    let document = |(artifact_id, artifact_kind, body): (Uuid, String, String)| StoredEvidenceArtifact {
        artifact_id: artifact_id.into(),
        artifact_kind,
        body,
    };
    Ok(rows.into_iter().map(document).collect())
}
