//! The fact log: assignment of indexes to facts, and reads.

use crate::{
    database::Database,
    guarded_commit::{GuardedCommit, Input, Query},
    pagination::{ListQuery, PageByteLimit, SortKey, UNBOUNDED_ROW_BYTES, UnionArm, visible_arms},
    row::{Row, read_count, require_decoded},
    schema::fact,
};
use async_trait::async_trait;
use diesel::QueryDsl as _;
use fairway_domain::{
    access::rights::VisibleScopes,
    audit::{
        AuditEvent, AuditFilter, AuditStore, Fact, FactSequencer, StoredFact,
        disclosed_detail::{disclosed_detail, is_detail_disclosed},
    },
    id::{FactId, RequestId, WorkspaceId},
    store::{CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};
use uuid::Uuid;

/// Maximum number of facts that one sequencer pass indexes in the log of one tenant.
const MAX_FACTS: i32 = 1_000;
/// Maximum number of tenants' logs in one sequencer pass. It bounds the duration of the pass.
const MAX_LOGS: i64 = 10;

/// The fields of a stored fact that audit events show.
#[derive(Deserialize)]
struct FactBody<'b> {
    fact_id: FactId,
    kind: String,
    subject: SubjectBody,
    actor: String,
    request_id: RequestId,
    occurred_at: Timestamp,
    #[serde(default)]
    categories: Vec<String>,
    workspace_id: Option<WorkspaceId>,
    #[serde(borrow)]
    detail: Option<&'b RawValue>,
}

#[derive(Deserialize)]
struct SubjectBody {
    kind: String,
    id: Uuid,
}

fn event(row: &Row) -> Result<AuditEvent, StoreError> {
    let bytes: &[u8] = row.column("body")?;
    let body: FactBody<'_> = require_decoded("body", serde_json::from_slice(bytes).ok())?;
    // A withheld detail is not parsed, because most entries of the log have one.
    let detail = match body.detail {
        Some(detail) if is_detail_disclosed(&body.kind) => {
            let parsed = require_decoded("detail", serde_json::from_str(detail.get()).ok())?;
            disclosed_detail(&body.kind, parsed)
        }
        Some(_) | None => None,
    };
    Ok(AuditEvent {
        workspace_id: body.workspace_id,
        detail,
        event_id: body.fact_id,
        index: require_decoded("index", u64::try_from(row.column::<i64>("index")?).ok())?,
        kind: body.kind,
        subject_kind: body.subject.kind,
        subject_id: body.subject.id,
        actor: body.actor,
        occurred_at: body.occurred_at,
        request_id: body.request_id,
        categories: body.categories,
        leaf_hash: row.column("leaf_hash")?,
    })
}

/// The fields of a stored fact that operations read.
#[derive(Deserialize)]
struct StoredBody {
    kind: String,
    subject: SubjectBody,
    occurred_at: Timestamp,
    detail: Map<String, Value>,
}

#[async_trait]
impl AuditStore for Database {
    async fn find(&self, scope: TenantScope, id: FactId) -> Result<Option<StoredFact>, StoreError> {
        let key = (scope.tenant().uuid(), id.uuid());
        let found: Option<Vec<u8>> = self.first("fact", || fact::table.find(key).select(fact::body)).await?;
        let Some(bytes) = found else { return Ok(None) };
        let body: StoredBody = require_decoded("body", serde_json::from_slice(&bytes).ok())?;
        let StoredBody { kind, subject, occurred_at, detail } = body;
        Ok(Some(StoredFact { kind, subject_id: subject.id, occurred_at, detail }))
    }

    async fn list(
        &self,
        scope: TenantScope,
        filter: AuditFilter,
        visible_scopes: Option<&VisibleScopes>,
        page: PageRequest,
    ) -> Result<Page<AuditEvent>, StoreError> {
        // The join with `fact` follows the page limit, so it runs for the rows of the page only.
        const FROM: &str = "FROM fact_order";
        const COLUMNS: &str = "index, tenant_id, fact_id";
        let mut values = Input::of_params(scope);
        let mut conditions = vec!["tenant_id = {tenant_id}".to_owned()];
        if let Some(workspace) = filter.workspace {
            conditions.push(format!("workspace_id = {}", values.bind("workspace_id", workspace.uuid())));
        }
        if let Some(subject) = filter.subject {
            conditions.push(format!("subject_id = {}", values.bind("subject_id", subject)));
        }
        let (with, arms) = match visible_scopes {
            None => (String::new(), vec![UnionArm { from: FROM.to_owned(), conditions, lateral: None }]),
            Some(visible_scopes) => {
                visible_arms(visible_scopes, FROM, "workspace_id", "workload_id", &conditions, &mut values)
            }
        };
        let query = ListQuery {
            with,
            columns: COLUMNS,
            key: SortKey::Position("index", "index"),
            post_join: Some("JOIN fact USING (tenant_id, fact_id)".to_owned()),
            byte_limit: PageByteLimit::Measured { sql: "octet_length(body)", largest: UNBOUNDED_ROW_BYTES },
            arms,
            values,
            is_append_only: true,
            stored_count: None,
        };
        self.fetch_page(query, page, event).await
    }

    async fn commit_fact(&self, scope: TenantScope, fact: Fact) -> Result<(), CommitError> {
        // If the fact exists, an earlier attempt wrote it and its response was lost, so this attempt does nothing.
        static RECORD: GuardedCommit = GuardedCommit::when(
            "NOT EXISTS (
                SELECT FROM fact WHERE fact.tenant_id = input.tenant_id AND fact.fact_id = input.fact_id)",
            "",
            "true",
        );
        match self.commit_guarded(&RECORD, scope, &fact, None, Input::new(scope)).await {
            Err(CommitError::Store(error)) => Err(CommitError::Store(error.unknown_outcome_as_unavailable())),
            committed => committed.map(|_| ()),
        }
    }
}

#[async_trait]
impl FactSequencer for Database {
    async fn sequence(&self) -> Result<u64, StoreError> {
        static SEQUENCE: Query = Query::new(
            "SELECT coalesce(sum(fairway_sequence(tenant_id, max_facts)), 0)::bigint AS count FROM fact_log, input
            WHERE tenant_id IN (
                SELECT tenant_id FROM fact_log
                WHERE EXISTS (SELECT FROM fact_pending WHERE fact_pending.tenant_id = fact_log.tenant_id)
                LIMIT (SELECT max_logs FROM input))",
        );
        let input = Input::one().with("max_facts", MAX_FACTS).with("max_logs", MAX_LOGS);
        read_count(&self.write_idempotent(SEQUENCE.text(&input)?, &input.params()).await?)
    }
}
