//! The log: placing facts and reading them.

use crate::{
    database::Database,
    row::{Columns, count, known},
};
use async_trait::async_trait;
use fairway_domain::{
    audit::{AuditEvent, AuditStore, FactSequencer},
    id::{FactId, RequestId, WorkspaceId},
    store::{Paging, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use serde::Deserialize;
use tokio_postgres::Row;
use uuid::Uuid;

/// Facts that one turn of the sequencer places in one log.
const BATCH: i32 = 1_000;
/// Logs that one turn looks after, so that a turn stays short however many tenants wait.
const LOGS: i64 = 10;

/// The part of a fact's stored bytes that auditors list.
#[derive(Deserialize)]
struct FactBody {
    fact_id: FactId,
    kind: String,
    subject: SubjectBody,
    actor: String,
    request_id: RequestId,
    occurred_at: Timestamp,
}

#[derive(Deserialize)]
struct SubjectBody {
    kind: String,
    id: Uuid,
}

fn event(row: &Row) -> Result<AuditEvent, StoreError> {
    let bytes: &[u8] = row.column("body")?;
    let body: FactBody = known("body", serde_json::from_slice(bytes).ok())?;
    Ok(AuditEvent {
        event_id: body.fact_id,
        index: known("index", u64::try_from(row.column::<i64>("index")?).ok())?,
        kind: body.kind,
        subject_kind: body.subject.kind,
        subject_id: body.subject.id,
        actor: body.actor,
        occurred_at: body.occurred_at,
        request_id: body.request_id,
        leaf_hash: row.column("leaf_hash")?,
    })
}

#[async_trait]
impl AuditStore for Database {
    async fn list(
        &self,
        scope: TenantScope,
        workspace: Option<WorkspaceId>,
        page: Paging,
    ) -> Result<(Vec<AuditEvent>, u64), StoreError> {
        // The page is cut on the narrow table first; only its rows are joined to the wide one. The two spellings keep
        // the index on the workspace usable.
        let condition = match workspace {
            Some(_) => "tenant_id = $1 AND workspace_id = $2",
            None => "tenant_id = $1 AND $2::uuid IS NULL",
        };
        let (tenant, workspace) = (scope.tenant().uuid(), workspace.map(WorkspaceId::uuid));
        let sql = format!(
            "SELECT page.index, fact.body, fact.leaf_hash
             FROM (SELECT tenant_id, index, fact_id FROM fact_order WHERE {condition}
                ORDER BY index DESC LIMIT $3 OFFSET $4) AS page
             JOIN fact USING (tenant_id, fact_id) ORDER BY page.index DESC"
        );
        let (limit, offset) = (i64::from(page.limit), i64::from(page.offset));
        let rows = self.list(&sql, &[&tenant, &workspace, &limit, &offset]).await?;
        let counted = format!("SELECT count(*) FROM (SELECT FROM fact_order WHERE {condition} LIMIT 10001) AS few");
        let total = count(&self.list(&counted, &[&tenant, &workspace]).await?)?;
        Ok((rows.iter().map(event).collect::<Result<_, _>>()?, total))
    }
}

#[async_trait]
impl FactSequencer for Database {
    async fn sequence(&self) -> Result<u64, StoreError> {
        const SQL: &str = "SELECT coalesce(sum(fairway_sequence(tenant_id, $1)), 0)::bigint AS count FROM fact_log
            WHERE tenant_id IN (
                SELECT tenant_id FROM fact_log
                WHERE EXISTS (SELECT FROM fact_pending WHERE fact_pending.tenant_id = fact_log.tenant_id)
                LIMIT $2)";
        count(&self.write_repeatable(SQL, &[&BATCH, &LOGS]).await?)
    }
}
