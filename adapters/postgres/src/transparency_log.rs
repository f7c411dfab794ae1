//! The Merkle trees over the tenants' audit logs.

use crate::{
    database::Database,
    guarded_commit::{Input, Query},
    row::{Row, require_decoded},
    schema::{fact, fact_log, fact_order, log_tree},
    store_error,
};
use async_trait::async_trait;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, JoinOnDsl as _, NullableExpressionMethods as _,
    PgExpressionMethods as _, QueryDsl as _, dsl::case_when,
};
use fairway_domain::{
    id::{FactId, TenantId},
    store::StoreError,
    tenant::TenantScope,
    transparency_log::{LoggedFact, PendingLog, StoredEntry, TreeAdvance, TreeEdge, TreeHash, TreeState, TreeStore},
};
use uuid::Uuid;

/// Columns: tenant, number of facts in the log, and three columns of the tree: its number of facts, its edge and
/// its checkpoint. The tree's columns are null if the log has no tree.
type LogRow = (Uuid, i64, Option<i64>, Option<Vec<Vec<u8>>>, Option<String>);

/// Columns: the index of a fact, the hash in `fact_order`, and, if that is null, the hash in the fact's own row.
type LeafRow = (i64, Option<Vec<u8>>, Option<Vec<u8>>);

/// A query for the audit logs with their trees.
#[diesel::dsl::auto_type(no_type_alias)]
fn logs_with_tree() -> _ {
    fact_log::table.left_join(log_tree::table.on(log_tree::tenant_id.eq(fact_log::tenant_id))).select((
        fact_log::tenant_id,
        fact_log::size,
        log_tree::size.nullable(),
        log_tree::edge.nullable(),
        log_tree::checkpoint.nullable(),
    ))
}

fn log((tenant, log_size, tree_size, edge, checkpoint): LogRow) -> Result<PendingLog, StoreError> {
    let size = |name, number| require_decoded(name, u64::try_from(number).ok());
    let tree_size = size("tree_size", tree_size.unwrap_or(0))?;
    Ok(PendingLog {
        tenant: tenant.into(),
        tree: TreeState {
            edge: require_decoded("edge", TreeEdge::restore(tree_size, &edge.unwrap_or_default()))?,
            checkpoint,
        },
        log_size: size("log_size", log_size)?,
    })
}

/// Columns of a fact with an index: index, bytes, workspace and workload.
type LoggedRow = (i64, Vec<u8>, Option<Uuid>, Option<Uuid>);

fn logged_fact((index, body, workspace, workload): LoggedRow) -> Result<LoggedFact, StoreError> {
    Ok(LoggedFact {
        index: require_decoded("index", u64::try_from(index).ok())?,
        body,
        workspace: workspace.map(Into::into),
        workload: workload.map(Into::into),
    })
}

fn to_bigint(number: u64) -> Result<i64, StoreError> {
    require_decoded("index", i64::try_from(number).ok())
}

#[async_trait]
impl TreeStore for Database {
    async fn pending_logs(
        &self,
        signed_by: &str,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<PendingLog>, StoreError> {
        let (signed_by, after) = (signed_by.to_owned(), after.map_or_else(Uuid::nil, TenantId::uuid));
        let pending = || {
            // The comparison is also true for a log without a tree, whose signer is null.
            let is_signed_by_another = log_tree::signed_by.nullable().is_distinct_from(signed_by.clone());
            let has_grown = fact_log::size.nullable().gt(log_tree::size.nullable());
            logs_with_tree()
                .filter(fact_log::tenant_id.gt(after).and(has_grown.or(is_signed_by_another)))
                .order(fact_log::tenant_id)
                .limit(i64::from(limit))
        };
        let found: Vec<LogRow> = self.load("pending audit logs", pending).await?;
        // An unreadable row, which another program may have damaged, is skipped, so that only its own log stops.
        let decode = |row: LogRow| {
            let tenant = row.0;
            log(row)
                .inspect_err(|error| {
                    tracing::error!(
                        tenant_id = %tenant,
                        error = error as &dyn std::error::Error,
                        "stored tree of an audit log is unreadable; publishing no checkpoint of it"
                    );
                })
                .ok()
        };
        Ok(found.into_iter().filter_map(decode).collect())
    }

    async fn find_log(&self, scope: TenantScope) -> Result<Option<PendingLog>, StoreError> {
        let tenant = scope.tenant().uuid();
        let find = || logs_with_tree().filter(fact_log::tenant_id.eq(tenant));
        self.first("audit log", find).await?.map(log).transpose()
    }

    async fn leaves(&self, scope: TenantScope, from_index: u64, limit: u32) -> Result<Vec<TreeHash>, StoreError> {
        let (tenant, first) = (scope.tenant().uuid(), to_bigint(from_index)?);
        let leaves = || {
            // Facts that were indexed before migration 0024 have their hash only in their own row.
            let of_fact = fact::table
                .filter(fact::tenant_id.eq(fact_order::tenant_id).and(fact::fact_id.eq(fact_order::fact_id)))
                .select(fact::leaf_hash)
                .single_value();
            fact_order::table
                .filter(fact_order::tenant_id.eq(tenant).and(fact_order::index.ge(first)))
                .filter(fact_order::index.lt(first.saturating_add(i64::from(limit))))
                .order(fact_order::index)
                .select((fact_order::index, fact_order::leaf_hash, case_when(fact_order::leaf_hash.is_null(), of_fact)))
        };
        let found: Vec<LeafRow> = self.load("leaves of an audit log", leaves).await?;
        let leaves = (from_index..).zip(found).map(|(index, (stored_index, hash, of_fact))| {
            // If a fact were missing, every later leaf would be at a wrong index of the tree.
            if stored_index != to_bigint(index)? {
                return Err(store_error::inconsistent("the audit log has a gap".into()));
            }
            require_decoded("leaf_hash", hash.or(of_fact).and_then(|hash| TreeHash::from_slice(&hash)))
        });
        leaves.collect()
    }

    async fn entries(&self, scope: TenantScope, from_index: u64, limit: u32) -> Result<Vec<StoredEntry>, StoreError> {
        // The hash is null if `fact_order` and the fact's row contain different hashes. An edit of facts that the
        // tree does not cover yet has this effect. `OFFSET 0` makes the planner read each fact by its key instead
        // of joining all facts of the tenant.
        static ENTRIES: Query = Query::new(
            "SELECT fact_order.index, entry.body, CASE
                WHEN entry.leaf_hash = coalesce(fact_order.leaf_hash, entry.leaf_hash) THEN entry.leaf_hash END AS leaf_hash
            FROM input JOIN fact_order ON fact_order.tenant_id = input.tenant_id
                AND fact_order.index >= input.first AND fact_order.index < input.first + input.max_entries
            LEFT JOIN LATERAL (
                SELECT fact.body, fact.leaf_hash FROM fact
                WHERE fact.tenant_id = fact_order.tenant_id AND fact.fact_id = fact_order.fact_id OFFSET 0
            ) AS entry ON true
            ORDER BY fact_order.index",
        );
        let input = Input::new(scope).with("first", to_bigint(from_index)?).with("max_entries", i64::from(limit));
        let rows = self.fetch(&ENTRIES, input).await?;
        let entry = |row: &Row| {
            let hash: Option<&[u8]> = row.column("leaf_hash")?;
            Ok(StoredEntry {
                index: require_decoded("index", u64::try_from(row.column::<i64>("index")?).ok())?,
                body: row.column("body")?,
                leaf_hash: hash.and_then(TreeHash::from_slice),
            })
        };
        rows.iter().map(entry).collect()
    }

    async fn logged_tenants(&self, after: Option<TenantId>, limit: u32) -> Result<Vec<TenantId>, StoreError> {
        let after = after.map_or_else(Uuid::nil, TenantId::uuid);
        let list = || {
            fact_log::table
                .filter(fact_log::tenant_id.gt(after))
                .order(fact_log::tenant_id)
                .limit(i64::from(limit))
                .select(fact_log::tenant_id)
        };
        let found: Vec<Uuid> = self.load("tenants with a log", list).await?;
        Ok(found.into_iter().map(Into::into).collect())
    }

    async fn advance_tree(&self, scope: TenantScope, advance: TreeAdvance) -> Result<bool, StoreError> {
        static ADVANCE: Query = Query::new(
            "INSERT INTO log_tree (tenant_id, size, edge, checkpoint, signed_by)
            SELECT tenant_id, size, edge, checkpoint, signed_by FROM input
            WHERE from_size = 0 OR EXISTS (SELECT FROM log_tree WHERE log_tree.tenant_id = input.tenant_id)
            ON CONFLICT (tenant_id) DO UPDATE
            SET size = excluded.size, edge = excluded.edge,
                checkpoint = coalesce(excluded.checkpoint, log_tree.checkpoint),
                signed_by = CASE WHEN excluded.checkpoint IS NULL THEN log_tree.signed_by ELSE excluded.signed_by END
            WHERE log_tree.size = (SELECT from_size FROM input)
            RETURNING 1",
        );
        let TreeAdvance { from_size, edge, checkpoint, signed_by } = advance;
        let input = Input::new(scope)
            .with("from_size", to_bigint(from_size)?)
            .with("size", to_bigint(edge.size())?)
            .with_list("edge", edge.to_bytes())
            .with("checkpoint", checkpoint)
            .with("signed_by", signed_by);
        let rows = self.write_idempotent(ADVANCE.text(&input)?, &input.params()).await?;
        Ok(!rows.is_empty())
    }

    async fn find_logged_fact(&self, scope: TenantScope, id: FactId) -> Result<Option<LoggedFact>, StoreError> {
        let (tenant, id) = (scope.tenant().uuid(), id.uuid());
        let find = || {
            fact_order::table
                .inner_join(
                    fact::table
                        .on(fact::tenant_id.eq(fact_order::tenant_id).and(fact::fact_id.eq(fact_order::fact_id))),
                )
                .filter(fact_order::tenant_id.eq(tenant))
                .filter(fact_order::fact_id.eq(id))
                .select((fact_order::index, fact::body, fact_order::workspace_id, fact_order::workload_id))
        };
        let found: Option<LoggedRow> = self.first("logged fact", find).await?;
        found.map(logged_fact).transpose()
    }

    async fn facts_about(
        &self,
        scope: TenantScope,
        subjects: &[Uuid],
        kinds: &'static [&'static str],
        limit: u32,
    ) -> Result<Vec<LoggedFact>, StoreError> {
        let (tenant, subjects) = (scope.tenant().uuid(), subjects.to_vec());
        let list = move || {
            fact_order::table
                .inner_join(
                    fact::table
                        .on(fact::tenant_id.eq(fact_order::tenant_id).and(fact::fact_id.eq(fact_order::fact_id))),
                )
                .filter(fact_order::tenant_id.eq(tenant))
                .filter(fact_order::subject_id.eq_any(subjects.clone()))
                .filter(fact::kind.eq_any(kinds.to_vec()))
                .order(fact_order::index.desc())
                .limit(i64::from(limit))
                .select((fact_order::index, fact::body, fact_order::workspace_id, fact_order::workload_id))
        };
        let mut found: Vec<LoggedRow> = self.load("facts about subjects", list).await?;
        found.reverse();
        found.into_iter().map(logged_fact).collect()
    }
}
