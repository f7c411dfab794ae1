//! Steps and context lineage of runs.

use super::{EXECUTION_COLUMNS, NULL_OUTPUT, NULL_REASON_CODE, execution};
use crate::{
    batch_load::BatchLoader,
    database::{Database, Param, read},
    row::{RowExt, decode, parse_json},
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{
    evidence::lineage::{ActionClass, InfluenceRole, LineageFilter, LineagePage, LineageRow, Origin, decisions_before},
    execution::StepRow,
    id::{DecisionId, ExecutionId, LineageId},
    policy::Outcome,
    store::StoreError,
    tenant::TenantScope,
    time::Timestamp,
};
use serde::Deserialize;
use std::{collections::HashMap, time::Duration};
use tokio_postgres::Row;
use uuid::Uuid;

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

/// The key of a page of a run's lineage.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LineagePageKey {
    tenant: Uuid,
    run: Uuid,
    origin: Option<&'static str>,
    role: Option<&'static str>,
    class: Option<&'static str>,
    limit: i64,
    offset: i64,
}

/// Loads pages of lineage. A run records at most a thousand items, so filters and offsets need no index of their own.
/// The range of run identifiers (`$8`, `$9`) lets PostgreSQL prune monthly partitions.
pub(crate) struct LineageLoader(pub(crate) Pool);

fn page_sql() -> String {
    let of = |table: &str| {
        format!(
            "{table}.tenant_id = asked.tenant AND {table}.execution_id = asked.run
                AND {table}.execution_id >= $8 AND {table}.execution_id <= $9"
        )
    };
    format!(
        "SELECT told.*, asked.number FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::bigint[],
            $7::bigint[]) WITH ORDINALITY AS asked (tenant, run, origin, role, class, most, skipped, number), LATERAL (
            SELECT {EXECUTION_COLUMNS}, {NULL_OUTPUT}, {NULL_REASON_CODE}, matching.total, matching.items,
                (SELECT json_agg(json_build_object('decision_id', decision_id, 'outcome', decision.outcome)
                    ORDER BY decision_id DESC)::text
                 FROM policy_decision AS decision WHERE {}) AS decisions,
                EXISTS (SELECT FROM execution_input AS input WHERE {}) AS inputs_kept
            FROM execution, LATERAL (
                WITH matching AS MATERIALIZED (
                    SELECT lineage_id, item.origin, influence_role, action_class, ref,
                        'blake3:' || encode(digest, 'hex') AS digest, size_bytes, untrusted_reason, created_at
                    FROM context_lineage AS item
                    WHERE {} AND (asked.origin IS NULL OR item.origin = asked.origin)
                        AND (asked.role IS NULL OR influence_role = asked.role)
                        AND (asked.class IS NULL OR action_class = asked.class)
                )
                SELECT (SELECT count(*) FROM matching) AS total, (SELECT json_agg(page)::text FROM (
                    SELECT * FROM matching ORDER BY lineage_id DESC LIMIT asked.most OFFSET asked.skipped) AS page) AS items
            ) AS matching
            WHERE {} OFFSET 0) AS told",
        of("decision"),
        of("input"),
        of("item"),
        of("execution"),
    )
}

#[async_trait]
impl BatchLoader for LineageLoader {
    type Key = LineagePageKey;
    type Value = LineagePage;
    const LABEL: &'static str = "lineage of runs";

    async fn load_batch(&self, keys: &[LineagePageKey]) -> Result<HashMap<LineagePageKey, LineagePage>, StoreError> {
        let tenants: Vec<Uuid> = keys.iter().map(|key| key.tenant).collect();
        let runs: Vec<Uuid> = keys.iter().map(|key| key.run).collect();
        let origins: Vec<Option<&str>> = keys.iter().map(|key| key.origin).collect();
        let roles: Vec<Option<&str>> = keys.iter().map(|key| key.role).collect();
        let classes: Vec<Option<&str>> = keys.iter().map(|key| key.class).collect();
        let limits: Vec<i64> = keys.iter().map(|key| key.limit).collect();
        let offsets: Vec<i64> = keys.iter().map(|key| key.offset).collect();
        let (first, last) = (runs.iter().min(), runs.iter().max());
        let params: [Param<'_>; 9] = [&tenants, &runs, &origins, &roles, &classes, &limits, &offsets, &first, &last];
        let rows = read(&self.0, &page_sql(), &params).await?;
        let found = rows.iter().map(|row| {
            let number = usize::try_from(row.column::<i64>("number")?).ok();
            let key = number.and_then(|number| keys.get(number.checked_sub(1)?));
            Ok((decode("number", key.cloned())?, page(row)?))
        });
        found.collect()
    }
}

fn page(row: &Row) -> Result<LineagePage, StoreError> {
    let items: Vec<ItemBody> = row.column::<Option<&str>>("items")?.map(parse_json).transpose()?.unwrap_or_default();
    let decisions: Vec<DecisionBody> =
        row.column::<Option<&str>>("decisions")?.map(parse_json).transpose()?.unwrap_or_default();
    let decisions = decisions
        .into_iter()
        .map(|decision| Ok((decision.decision_id, decode("outcome", Outcome::parse(&decision.outcome))?)))
        .collect::<Result<Vec<_>, StoreError>>()?;
    let inputs_kept = row.column("inputs_kept")?;
    Ok(LineagePage {
        execution: execution(row)?,
        total: decode("total", u64::try_from(row.column::<i64>("total")?).ok())?,
        items: items.into_iter().map(|item| item.read(&decisions, inputs_kept)).collect::<Result<_, _>>()?,
    })
}

pub(super) async fn lineage(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
    filter: LineageFilter,
    limit: u32,
    offset: u32,
) -> Result<Option<LineagePage>, StoreError> {
    let asked = LineagePageKey {
        tenant: scope.tenant().uuid(),
        run: id.uuid(),
        origin: filter.origin.map(Origin::as_str),
        role: filter.influence_role.map(InfluenceRole::as_str),
        class: filter.action_class.map(ActionClass::as_str),
        limit: i64::from(limit),
        offset: i64::from(offset),
    };
    database.lineages.load(asked).await
}

impl ItemBody {
    fn read(self, decisions: &[(DecisionId, Outcome)], inputs_kept: bool) -> Result<LineageRow, StoreError> {
        let origin = decode("origin", Origin::parse(&self.origin))?;
        Ok(LineageRow {
            lineage_id: self.lineage_id,
            origin,
            influence_role: decode("influence_role", InfluenceRole::parse(&self.influence_role))?,
            action_class: decode("action_class", ActionClass::parse(&self.action_class))?,
            digest: self.digest,
            size_bytes: self.size_bytes,
            untrusted: self.untrusted_reason,
            redacted: origin.is_redacted(&self.reference, inputs_kept),
            decisions: decisions_before(decisions, self.lineage_id),
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
