//! Records of notifications that were suppressed, with the setting that decided.

use crate::{
    database::Database,
    guarded_commit::Input,
    pagination::{ListQuery, PageByteLimit, SortKey, UnionArm, visible_arms},
    row::{Row, require_decoded},
};
use async_trait::async_trait;
use fairway_domain::{
    access::rights::VisibleScopes,
    notification::{
        Channel,
        ports::{SuppressedDecisionStore, SuppressedFilter},
        preference::{DecidingScope, SuppressionReason},
        projection::SuppressedDecision,
    },
    notification_category::NotificationCategory,
    store::{Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
};

fn decision(row: &Row) -> Result<SuppressedDecision, StoreError> {
    let scope: Option<&str> = row.column("deciding_scope")?;
    let scope = scope.map(|scope| require_decoded("deciding_scope", DecidingScope::parse(scope)));
    let channel_of = |name: &str| require_decoded("channel", Channel::parse(name));
    let channel: Option<&str> = row.column("deciding_channel")?;
    let unreachable: Vec<&str> = row.column("unreachable_channels")?;
    Ok(SuppressedDecision {
        suppressed_decision_id: row.id("suppressed_decision_id")?,
        recipient: row.actor("recipient")?,
        category: row.parse_column("category", NotificationCategory::parse)?,
        event_kind: row.column("event_kind")?,
        event_id: row.id("event_id")?,
        reason: row.parse_column("reason_code", SuppressionReason::parse)?,
        scope: scope.transpose()?,
        revision: row.column::<Option<i64>>("deciding_revision")?.map(Revision::new),
        channel: channel.map(channel_of).transpose()?,
        unreachable_channels: unreachable.into_iter().map(channel_of).collect::<Result<_, _>>()?,
        workspace_id: row.optional_id("workspace_id")?,
        workload_id: row.optional_id("workload_id")?,
        created_at: row.timestamp("created_at")?,
    })
}

#[async_trait]
impl SuppressedDecisionStore for Database {
    async fn list(
        &self,
        scope: TenantScope,
        filter: &SuppressedFilter,
        visible_scopes: Option<&VisibleScopes>,
        page: PageRequest,
    ) -> Result<Page<SuppressedDecision>, StoreError> {
        const FROM: &str = "FROM suppressed_decision";
        const COLUMNS: &str = "suppressed_decision_id, recipient, category, event_kind, event_id, reason_code, \
            deciding_scope, deciding_revision, deciding_channel, unreachable_channels, workspace_id, workload_id, \
            created_at";
        let mut values = Input::of_params(scope);
        let mut conditions = vec!["tenant_id = {tenant_id}".to_owned()];
        if let Some(workspace) = filter.workspace {
            conditions.push(format!("workspace_id = {}", values.bind("workspace_id", workspace.uuid())));
        }
        if let Some(recipient) = &filter.recipient {
            conditions.push(format!("recipient = {}", values.bind("recipient", recipient.to_string())));
        }
        if let Some(event) = filter.source_event {
            conditions.push(format!("event_id = {}", values.bind("event_id", event.uuid())));
        }
        let (with, arms) = match visible_scopes {
            None => (String::new(), vec![UnionArm { from: FROM.to_owned(), conditions, lateral: None }]),
            Some(visible_scopes) => {
                visible_arms(visible_scopes, FROM, "workspace_id", "workload_id", &conditions, &mut values)
            }
        };
        let query = ListQuery {
            stored_count: None,
            with,
            columns: COLUMNS,
            key: SortKey::Id("suppressed_decision_id", "suppressed_decision_id"),
            post_join: None,
            byte_limit: PageByteLimit::Small,
            arms,
            values,
            is_append_only: true,
        };
        self.fetch_page(query, page, decision).await
    }
}
