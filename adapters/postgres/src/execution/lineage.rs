//! What the steps of a run did and read.

use super::{EXECUTION_COLUMNS, NO_ANSWER, NO_REASON, execution};
use crate::{
    database::{Database, Param},
    row::{Columns, known, parsed},
};
use fairway_domain::{
    evidence::lineage::{ActionClass, InfluenceRole, LineageFilter, LineagePage, LineageRow, Origin, taken_before},
    execution::StepRow,
    id::{DecisionId, ExecutionId, LineageId},
    policy::Outcome,
    store::StoreError,
    tenant::TenantScope,
    time::Timestamp,
};
use serde::Deserialize;
use std::time::Duration;

#[derive(Deserialize)]
struct ItemBody {
    lineage_id: LineageId,
    origin: String,
    influence_role: String,
    action_class: String,
    #[serde(rename = "ref")]
    reference: String,
    digest: String,
    size_bytes: u64,
    untrusted_reason: Option<String>,
    created_at: Timestamp,
}

#[derive(Deserialize)]
struct DecisionBody {
    decision_id: DecisionId,
    outcome: String,
}

/// The whole of a run's lineage is short, so that a page of it needs no index of its own: a run notes a thousand things at
/// most.
const MATCHING: &str = "FROM context_lineage
     WHERE tenant_id = $1 AND execution_id = $2 AND ($3::text IS NULL OR origin = $3)
        AND ($4::text IS NULL OR influence_role = $4) AND ($5::text IS NULL OR action_class = $5)";

pub(super) async fn lineage(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
    (filter, limit, offset): (LineageFilter, u32, u32),
) -> Result<Option<LineagePage>, StoreError> {
    let sql = format!(
        "SELECT {EXECUTION_COLUMNS}, {NO_ANSWER}, {NO_REASON}, (SELECT count(*) {MATCHING}) AS total,
            (SELECT json_agg(item)::text FROM (
                SELECT lineage_id, origin, influence_role, action_class, ref, 'blake3:' || encode(digest, 'hex') AS digest, size_bytes,
                    untrusted_reason, created_at
                {MATCHING} ORDER BY lineage_id DESC LIMIT $6 OFFSET $7) AS item) AS items,
            (SELECT json_agg(json_build_object('decision_id', decision_id, 'outcome', outcome) ORDER BY decision_id DESC)::text
             FROM policy_decision WHERE tenant_id = $1 AND execution_id = $2) AS decisions,
            EXISTS (SELECT FROM execution_input WHERE tenant_id = $1 AND execution_id = $2) AS inputs_kept
         FROM execution WHERE tenant_id = $1 AND execution_id = $2"
    );
    let (origin, role, class) = (
        filter.origin.map(Origin::as_str),
        filter.influence_role.map(InfluenceRole::as_str),
        filter.action_class.map(ActionClass::as_str),
    );
    let (limit, offset) = (i64::from(limit), i64::from(offset));
    let params: [Param<'_>; 7] = [&scope.tenant().uuid(), &id.uuid(), &origin, &role, &class, &limit, &offset];
    let Some(row) = database.read_one(&sql, &params).await? else { return Ok(None) };
    let items: Vec<ItemBody> = row.column::<Option<&str>>("items")?.map(parsed).transpose()?.unwrap_or_default();
    let decisions: Vec<DecisionBody> =
        row.column::<Option<&str>>("decisions")?.map(parsed).transpose()?.unwrap_or_default();
    let decisions = decisions
        .into_iter()
        .map(|decision| Ok((decision.decision_id, known("outcome", Outcome::parse(&decision.outcome))?)))
        .collect::<Result<Vec<_>, StoreError>>()?;
    let inputs_kept = row.column("inputs_kept")?;
    Ok(Some(LineagePage {
        execution: execution(&row)?,
        total: known("total", u64::try_from(row.column::<i64>("total")?).ok())?,
        items: items.into_iter().map(|item| item.read(&decisions, inputs_kept)).collect::<Result<_, _>>()?,
    }))
}

impl ItemBody {
    fn read(self, decisions: &[(DecisionId, Outcome)], inputs_kept: bool) -> Result<LineageRow, StoreError> {
        let origin = known("origin", Origin::parse(&self.origin))?;
        Ok(LineageRow {
            lineage_id: self.lineage_id,
            origin,
            influence_role: known("influence_role", InfluenceRole::parse(&self.influence_role))?,
            action_class: known("action_class", ActionClass::parse(&self.action_class))?,
            digest: self.digest,
            size_bytes: self.size_bytes,
            untrusted: self.untrusted_reason,
            redacted: origin.is_redacted(&self.reference, inputs_kept),
            decisions: taken_before(decisions, self.lineage_id),
            created_at: self.created_at,
            reference: self.reference,
        })
    }
}

pub(super) async fn steps(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
) -> Result<Vec<StepRow>, StoreError> {
    const SQL: &str = "SELECT step_id, step_type, failure, duration_us FROM execution_step
        WHERE tenant_id = $1 AND execution_id = $2 ORDER BY position";
    let rows = database.read(SQL, &[&scope.tenant().uuid(), &id.uuid()]).await?;
    rows.iter()
        .map(|row| {
            Ok(StepRow {
                step_id: row.column("step_id")?,
                step_type: row.column("step_type")?,
                failure: row.column("failure")?,
                duration: Duration::from_micros(u64::try_from(row.column::<i64>("duration_us")?).unwrap_or(0)),
            })
        })
        .collect()
}
