//! Steps and context lineage of runs.

use super::{EXECUTION_COLUMNS, NULL_OUTPUT, NULL_REASON_CODE, execution, input_of_runs, run_condition, select_runs};
use crate::{
    batch_load::BatchLoader,
    database::{Database, StatementPool, read},
    guarded_commit::Query,
    row::{Row, parse_json, require_decoded},
    schema::execution_step,
};
use async_trait::async_trait;
use diesel::{BoolExpressionMethods as _, ExpressionMethods as _, QueryDsl as _};
use fairway_domain::{
    evidence::lineage::{ActionClass, InfluenceRole, LineageFilter, LineagePage, LineageRow, Origin, decisions_before},
    execution::StepRow,
    id::{DecisionId, ExecutionId, LineageId},
    policy::DecisionOutcome,
    store::StoreError,
    tenant::TenantScope,
    time::Timestamp,
};
use serde::Deserialize;
use std::{collections::HashMap, time::Duration};
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

/// Loads pages of lineage. A run has at most 1,000 items and a mark of truncation, so filters and offsets need no
/// index.
pub(crate) struct LineageLoader(pub(crate) StatementPool);

fn page_sql() -> String {
    let [decision, inputs, item] = ["decision", "inputs", "item"].map(run_condition);
    let columns = format!(
        "input.number, {EXECUTION_COLUMNS}, {NULL_OUTPUT}, {NULL_REASON_CODE}, matching.total, matching.items,
            (SELECT json_agg(json_build_object('decision_id', decision_id, 'outcome', decision.outcome)
                ORDER BY decision_id DESC)::text
             FROM policy_decision AS decision WHERE {decision}) AS decisions,
            EXISTS (SELECT FROM execution_input AS inputs WHERE {inputs}) AS inputs_exist"
    );
    let items = format!(
        ", LATERAL (
            WITH matching AS MATERIALIZED (
                SELECT lineage_id, item.origin, item.influence_role, item.action_class, ref,
                    'blake3:' || encode(digest, 'hex') AS digest, size_bytes, untrusted_reason, created_at
                FROM context_lineage AS item
                WHERE {item} AND (input.origin IS NULL OR item.origin = input.origin)
                    AND (input.influence_role IS NULL OR item.influence_role = input.influence_role)
                    AND (input.action_class IS NULL OR item.action_class = input.action_class)
            )
            SELECT (SELECT count(*) FROM matching) AS total, (SELECT json_agg(page)::text FROM (
                SELECT * FROM matching ORDER BY lineage_id DESC LIMIT input.page_limit OFFSET input.page_offset) AS page) AS items
        ) AS matching"
    );
    select_runs(&columns, &items)
}

#[async_trait]
impl BatchLoader for LineageLoader {
    type Key = LineagePageKey;
    type Value = LineagePage;
    const LABEL: &'static str = "lineage of runs";

    async fn load_batch(&self, keys: &[LineagePageKey]) -> Result<HashMap<LineagePageKey, LineagePage>, StoreError> {
        static READ_PAGES: Query = Query::from_fn(page_sql);
        let runs: Vec<(Uuid, Uuid)> = keys.iter().map(|key| (key.tenant, key.run)).collect();
        let input = input_of_runs(&runs)
            .with_column("origin", keys.iter().map(|key| key.origin))
            .with_column("influence_role", keys.iter().map(|key| key.role))
            .with_column("action_class", keys.iter().map(|key| key.class))
            .with_column("page_limit", keys.iter().map(|key| key.limit))
            .with_column("page_offset", keys.iter().map(|key| key.offset))
            .with_column("number", (0_i64..).take(keys.len()));
        let rows = read(&self.0, READ_PAGES.text(&input)?, &input.params()).await?;
        let found = rows.iter().map(|row| {
            let number = usize::try_from(row.column::<i64>("number")?).ok();
            let key = number.and_then(|number| keys.get(number));
            Ok((require_decoded("number", key.cloned())?, page(row)?))
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
        .map(|decision| {
            Ok((decision.decision_id, require_decoded("outcome", DecisionOutcome::parse(&decision.outcome))?))
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    let inputs_exist = row.column("inputs_exist")?;
    Ok(LineagePage {
        execution: execution(row)?,
        total: require_decoded("total", u64::try_from(row.column::<i64>("total")?).ok())?,
        items: items.into_iter().map(|item| item.read(&decisions, inputs_exist)).collect::<Result<_, _>>()?,
    })
}

pub(super) async fn read_lineage(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
    filter: LineageFilter,
    limit: u32,
    offset: u32,
) -> Result<Option<LineagePage>, StoreError> {
    let key = LineagePageKey {
        tenant: scope.tenant().uuid(),
        run: id.uuid(),
        origin: filter.origin.map(Origin::as_str),
        role: filter.influence_role.map(InfluenceRole::as_str),
        class: filter.action_class.map(ActionClass::as_str),
        limit: i64::from(limit),
        offset: i64::from(offset),
    };
    database.lineages.load(key).await
}

impl ItemBody {
    fn read(self, decisions: &[(DecisionId, DecisionOutcome)], inputs_exist: bool) -> Result<LineageRow, StoreError> {
        let origin = require_decoded("origin", Origin::parse(&self.origin))?;
        Ok(LineageRow {
            lineage_id: self.lineage_id,
            origin,
            influence_role: require_decoded("influence_role", InfluenceRole::parse(&self.influence_role))?,
            action_class: require_decoded("action_class", ActionClass::parse(&self.action_class))?,
            digest: self.digest,
            size_bytes: self.size_bytes,
            untrusted: self.untrusted_reason,
            redacted: origin.is_text_unavailable(&self.reference, inputs_exist),
            decisions: decisions_before(decisions, self.lineage_id),
            created_at: self.created_at,
            reference: self.reference,
        })
    }
}

pub(super) async fn read_steps(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
) -> Result<Vec<StepRow>, StoreError> {
    let (tenant, run) = (scope.tenant().uuid(), id.uuid());
    let steps = || {
        execution_step::table
            .filter(execution_step::tenant_id.eq(tenant).and(execution_step::execution_id.eq(run)))
            .order(execution_step::position)
            .select((
                execution_step::step_id,
                execution_step::step_type,
                execution_step::failure,
                execution_step::duration_us,
            ))
    };
    let rows: Vec<(String, String, Option<String>, i64)> = database.load("steps of a run", steps).await?;
    let step = |(step_id, step_type, failure, microseconds): (String, String, Option<String>, i64)| {
        let duration = Duration::from_micros(u64::try_from(microseconds).unwrap_or(0));
        StepRow { step_id, step_type, failure, duration }
    };
    Ok(rows.into_iter().map(step).collect())
}
