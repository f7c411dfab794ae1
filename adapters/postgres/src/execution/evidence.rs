//! All that stands behind one execution, in one read, and the documents that it names.

use super::{EXECUTION_COLUMNS, NO_ANSWER, NO_REASON, execution};
use crate::{
    database::{Database, read},
    look::Look,
    row::{Columns, known, parsed},
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{
    evidence::{ArtifactDocument, ArtifactRow, DecisionRow, EvidenceRecord},
    execution::Execution,
    id::{ApprovalId, ArtifactId, DecisionId, ExecutionId},
    policy::Outcome,
    store::StoreError,
    tenant::TenantScope,
    time::Timestamp,
};
use serde::Deserialize;
use std::collections::HashMap;
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
            outcome: known("decisions", Outcome::parse(&self.outcome))?,
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
}

#[derive(Deserialize)]
struct FulfilmentBody {
    obligation: String,
    fulfilled_at: Timestamp,
}

#[derive(Deserialize)]
struct NoteBody {
    approval_id: ApprovalId,
    /// Erased, or never written, where it is null.
    body: Option<String>,
}

// The run is named as a value and not as the column of the row beside: see `reason_code`.

fn decisions(tenant: &str, run: &str) -> String {
    format!(
        "(SELECT json_agg(json_build_object('decision_id', decision_id, 'outcome', outcome, 'reason_code', reason_code,
        'obligations', obligations, 'rules', rules, 'evaluated_at', evaluated_at) ORDER BY decision_id)::text
     FROM policy_decision AS decision
     WHERE decision.tenant_id = {tenant} AND decision.execution_id = {run}) AS decisions"
    )
}

fn fulfilments(tenant: &str, run: &str) -> String {
    format!(
        "(SELECT json_agg(json_build_object('obligation', obligation, 'fulfilled_at', fulfilled_at))::text
     FROM obligation_fulfilment AS owed
     WHERE owed.tenant_id = {tenant} AND owed.execution_id = {run}) AS fulfilments"
    )
}

fn artifacts(tenant: &str, run: &str) -> String {
    format!(
        "(SELECT json_agg(json_build_object('artifact_id', artifact_id, 'artifact_kind', artifact_kind,
        'storage_ref', storage_ref, 'created_at', created_at) ORDER BY artifact_id)::text
     FROM evidence_artifact AS artifact
     WHERE artifact.tenant_id = {tenant} AND artifact.execution_id = {run}) AS artifacts"
    )
}

// What is named by the run is looked up for its row and not joined: a join would rather read all that the tenant has, for
// as long as that is little.

const NOTES: &str = "
    (SELECT json_agg(json_build_object('approval_id', approval_id, 'body', (
        SELECT body FROM approval_note AS note
        WHERE note.tenant_id = approval.tenant_id AND note.approval_id = approval.approval_id)))::text
     FROM approval
     WHERE approval.tenant_id = execution.tenant_id AND approval.release_id = execution.release_id) AS notes";

const CHAIN: &str = "
    (SELECT body FROM evidence_snapshot AS chain
     WHERE chain.tenant_id = execution.tenant_id AND chain.digest = execution.snapshot) AS chain";

/// Rows that were put together as JSON; null where there are none.
fn rows<T: for<'a> Deserialize<'a>>(row: &Row, name: &'static str) -> Result<Vec<T>, StoreError> {
    row.column::<Option<&str>>(name)?.map(parsed).transpose().map(Option::unwrap_or_default)
}

/// What stands behind a run, as columns of its row; the run is named by its tenant and identifier.
fn columns(tenant: &str, run: &str) -> String {
    format!(
        "execution.tenant_id, {EXECUTION_COLUMNS}, {NO_ANSWER}, {NO_REASON}, input_digest, output_digest, {CHAIN},
            {}, {}, {}, {NOTES}",
        decisions(tenant, run),
        fulfilments(tenant, run),
        artifacts(tenant, run),
    )
}

/// What stands behind runs, by tenant and identifier.
pub(crate) struct Evidence(pub(crate) Pool);

#[async_trait]
impl Look for Evidence {
    type Key = (Uuid, Uuid);
    type Found = EvidenceRecord;
    const WHAT: &'static str = "evidence of runs";

    async fn look(&self, keys: &[(Uuid, Uuid)]) -> Result<HashMap<(Uuid, Uuid), EvidenceRecord>, StoreError> {
        let rows = match keys {
            // Named as a value: see `reason_code`.
            [(tenant, run)] => {
                let of = "FROM execution WHERE execution.tenant_id = $1 AND execution.execution_id = $2";
                read(&self.0, &format!("SELECT {} {of}", columns("$1", "$2")), &[tenant, run]).await?
            }
            // Months that nobody asks for are opened too, once for all.
            _ => {
                let (tenants, runs): (Vec<Uuid>, Vec<Uuid>) = keys.iter().copied().unzip();
                let sql = format!(
                    "SELECT told.* FROM unnest($1::uuid[], $2::uuid[]) AS asked (tenant, run), LATERAL (
                        SELECT {} FROM execution
                        WHERE execution.tenant_id = asked.tenant AND execution.execution_id = asked.run OFFSET 0) AS told",
                    columns("asked.tenant", "asked.run")
                );
                read(&self.0, &sql, &[&tenants, &runs]).await?
            }
        };
        rows.iter()
            .map(|row| {
                let found = record(row)?;
                Ok(((row.column("tenant_id")?, found.execution.execution_id.uuid()), found))
            })
            .collect()
    }
}

fn record(row: &Row) -> Result<EvidenceRecord, StoreError> {
    let digest = |name: &'static str| -> Result<Option<[u8; 32]>, StoreError> {
        row.column::<Option<&[u8]>>(name)?.map(|bytes| known(name, bytes.try_into().ok())).transpose()
    };
    let decisions: Vec<DecisionBody> = rows(row, "decisions")?;
    let fulfilled: Vec<FulfilmentBody> = rows(row, "fulfilments")?;
    let artifacts: Vec<ArtifactBody> = rows(row, "artifacts")?;
    let notes: Vec<NoteBody> = rows(row, "notes")?;
    let mut record = EvidenceRecord {
        execution: execution(row)?,
        input_digest: known("input_digest", digest("input_digest")?)?,
        output_digest: digest("output_digest")?,
        chain: parsed(row.column("chain")?)?,
        decisions: decisions.into_iter().map(DecisionBody::read).collect::<Result<_, _>>()?,
        fulfilled: fulfilled.into_iter().map(|owed| (owed.obligation, owed.fulfilled_at)).collect(),
        artifacts: artifacts
            .into_iter()
            .map(|artifact| ArtifactRow {
                artifact_id: artifact.artifact_id,
                artifact_kind: artifact.artifact_kind,
                storage_ref: artifact.storage_ref,
                created_at: artifact.created_at,
            })
            .collect(),
        notes: notes.into_iter().filter_map(|note| Some((note.approval_id, note.body?))).collect(),
        notes_withheld: false,
    };
    // Of all decisions, which are here anyway.
    record.execution.reason_code = record.decision().map(|decision| decision.reason_code.clone()).unwrap_or_default();
    Ok(record)
}

pub(super) async fn artifact(
    database: &Database,
    scope: TenantScope,
    (id, artifact): (ExecutionId, ArtifactId),
) -> Result<Option<(Execution, ArtifactDocument)>, StoreError> {
    let sql = format!(
        "SELECT {EXECUTION_COLUMNS}, {NO_ANSWER}, {NO_REASON}, artifact.artifact_id, artifact.artifact_kind, artifact.storage_ref,
            artifact.body, artifact.created_at, payload.body AS payload
         FROM execution
         JOIN evidence_artifact AS artifact ON artifact.tenant_id = execution.tenant_id
            AND artifact.execution_id = execution.execution_id
         LEFT JOIN evidence_payload AS payload ON payload.tenant_id = execution.tenant_id
            AND payload.execution_id = execution.execution_id AND payload.artifact_id = artifact.artifact_id
            AND execution.finished_at + make_interval(secs => $4) > fairway_now()
         WHERE execution.tenant_id = $1 AND execution.execution_id = $2 AND artifact.artifact_id = $3"
    );
    let kept = database.result_retention.as_secs_f64();
    let params: [crate::database::Param<'_>; 4] = [&scope.tenant().uuid(), &id.uuid(), &artifact.uuid(), &kept];
    let Some(row) = database.read_one(&sql, &params).await? else { return Ok(None) };
    let document = ArtifactDocument {
        artifact: ArtifactRow {
            artifact_id: row.id("artifact_id")?,
            artifact_kind: row.column("artifact_kind")?,
            storage_ref: row.column("storage_ref")?,
            created_at: row.moment("created_at")?,
        },
        body: parsed(row.column("body")?)?,
        payload: row.column::<Option<&str>>("payload")?.map(parsed).transpose()?,
        payload_withheld: false,
    };
    Ok(Some((execution(&row)?, document)))
}
