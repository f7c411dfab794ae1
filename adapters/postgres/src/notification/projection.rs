//! Reads for the projector: facts of the audit log, and the context that determines their recipients.

mod candidate_receivers;
mod commit;

use crate::{
    database::Database,
    guarded_commit::{Input, Query},
    row::{Row, require_decoded},
    schema::{fact_log, notification_delivery, notification_position},
    store_error::inconsistent,
};
use async_trait::async_trait;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, JoinOnDsl as _, NullableExpressionMethods as _, QueryDsl as _,
    dsl::count_star,
};
use fairway_domain::{
    access::{ActorRef, GrantScope, ResourcePosition, Role},
    audit::FactKind,
    id::{FactId, RequestId, TenantId, WorkloadId, WorkspaceId},
    notification::{
        Channel,
        burst::BurstKey,
        destination::ActiveDestination,
        ports::{FactBatch, HeldRole, HeldRoles, ProjectionBasis, ProjectionStore},
        preference::PreferenceSet,
        projection::{AnnouncementContext, NotifiableFact, Projection, SettingsTurnedOnAt, SubjectContext},
        recipient::MAX_RECIPIENTS,
        rule::base_rule_of_kind,
    },
    notification_category::NotificationCategory,
    store::{CommitError, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ops::Range,
    sync::LazyLock,
};
use uuid::Uuid;

/// The kinds of facts that can cause notifications.
static NOTIFYING_KINDS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    FactKind::ALL.iter().filter(|kind| base_rule_of_kind(**kind).is_some()).map(|kind| kind.as_str()).collect()
});
/// The roles whose holders may act on a fact of any kind.
static ACTING_ROLES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let acting: Vec<_> = FactKind::ALL.iter().filter_map(|kind| base_rule_of_kind(*kind)?.acting_permission).collect();
    let can_act = |role: &Role| acting.iter().any(|permission| role.permissions().has(*permission));
    Role::ALL.iter().filter(|role| can_act(role)).map(|role| role.as_str()).collect()
});

#[derive(Deserialize)]
struct FactBody {
    fact_id: FactId,
    kind: String,
    subject: SubjectBody,
    workspace_id: Option<WorkspaceId>,
    actor: String,
    request_id: RequestId,
    occurred_at: Timestamp,
    #[serde(default)]
    categories: Vec<String>,
    detail: Map<String, Value>,
}

#[derive(Deserialize)]
struct SubjectBody {
    kind: String,
    id: Uuid,
}

/// Decodes the fact of a row; `None` if it causes no notifications.
fn notifiable(row: &Row) -> Result<Option<NotifiableFact>, StoreError> {
    let bytes: &[u8] = row.column("body")?;
    let body: FactBody = require_decoded("body", serde_json::from_slice(bytes).ok())?;
    let Some(kind) = FactKind::parse(&body.kind) else { return Ok(None) };
    let categories: Vec<_> = body.categories.iter().filter_map(|name| NotificationCategory::parse(name)).collect();
    if categories.is_empty() {
        return Ok(None);
    }
    Ok(Some(NotifiableFact {
        index: require_decoded("index", u64::try_from(row.column::<i64>("index")?).ok())?,
        fact_id: body.fact_id,
        kind,
        subject_kind: body.subject.kind,
        subject_id: body.subject.id,
        workspace_id: body.workspace_id,
        actor: require_decoded("body.actor", ActorRef::parse(&body.actor).ok())?,
        request_id: body.request_id,
        occurred_at: body.occurred_at,
        categories,
        detail: body.detail,
    }))
}

/// Reads the next facts of a log after the projector's position. A batch has up to `limit` facts with categories,
/// and all facts without categories before the last of them. If there are fewer facts with categories than the
/// limit, the batch extends to the end of the log. `OFFSET 0` makes the planner read each fact by its key.
static NEXT_FACTS: Query = Query::new(
    "WITH start AS MATERIALIZED (
        SELECT coalesce((SELECT position FROM notification_position WHERE tenant_id = {tenant_id}), 0) AS position
     ),
     batch AS MATERIALIZED (
        SELECT index, fact_id FROM fact_order
        WHERE tenant_id = {tenant_id} AND index >= (SELECT position FROM start) AND is_categorized
        ORDER BY index LIMIT {limit}
     ),
     ending AS MATERIALIZED (
        SELECT CASE WHEN count(*) < {limit}
            THEN (SELECT size FROM fact_log WHERE tenant_id = {tenant_id}) ELSE max(index) + 1 END AS index
        FROM batch
     )
     SELECT start.position, coalesce(ending.index, start.position) - start.position AS facts, fairway_now() AS at,
        tenant.notification_generation + tenant.advanced_notification_generation AS generation,
        tenant.notifications_on_since, tenant.advanced_notifications_on_since, batch_fact.index, batch_fact.body
     FROM start CROSS JOIN ending JOIN tenant ON tenant.tenant_id = {tenant_id} LEFT JOIN (
        SELECT index, body FROM batch CROSS JOIN LATERAL (
            SELECT body FROM fact
            WHERE fact.tenant_id = {tenant_id} AND fact.fact_id = batch.fact_id AND kind = ANY({kinds})
            OFFSET 0
        ) AS concerning
     ) AS batch_fact ON true
     ORDER BY batch_fact.index",
);

/// Reads the subject of each fact: its name, its owner and its position. A fact identifies its subject directly, or
/// names a workload or an asset in its detail.
static SUBJECTS: Query = Query::new(
    "SELECT input.number, coalesce(workload.slug, asset.slug) AS name,
        coalesce(workload.owner_ref, asset.owner_ref) AS owner_ref, team.people AS owner_team, run.submitter, release.created_by AS author,
        workload.workload_id, coalesce(input.environment, run.environment, release.environment) AS environment,
        workspace.workspace_id, workspace.namespace_id, announced.title AS announcement_title,
        announced.body AS announcement_body, announced.audience_roles AS announcement_roles, audience.people AS announcement_audience
    FROM input
    LEFT JOIN LATERAL (
        SELECT workload_id, submitter, environment FROM execution
        WHERE execution.tenant_id = input.tenant_id AND execution.execution_id = input.execution_id OFFSET 0
    ) AS run ON true
    LEFT JOIN LATERAL (
        SELECT workload_id, created_by, environment FROM release
        WHERE release.tenant_id = input.tenant_id AND release.release_id = input.release_id OFFSET 0
    ) AS release ON true
    LEFT JOIN LATERAL (
        SELECT asset_id FROM asset_version
        WHERE asset_version.tenant_id = input.tenant_id AND asset_version.asset_version_id = input.asset_version_id OFFSET 0
    ) AS version ON true
    LEFT JOIN LATERAL (
        SELECT workload_id, slug, owner_ref, workspace_id FROM workload
        WHERE workload.tenant_id = input.tenant_id
            AND workload.workload_id = coalesce(input.workload_id, run.workload_id, release.workload_id) OFFSET 0
    ) AS workload ON true
    LEFT JOIN LATERAL (
        SELECT slug, owner_ref, workspace_id FROM asset
        WHERE asset.tenant_id = input.tenant_id AND asset.asset_id = coalesce(input.asset_id, version.asset_id) OFFSET 0
    ) AS asset ON true
    LEFT JOIN LATERAL (
        SELECT workspace_id, namespace_id FROM workspace
        WHERE workspace.tenant_id = input.tenant_id
            AND workspace.workspace_id = coalesce(workload.workspace_id, asset.workspace_id, input.workspace_id) OFFSET 0
    ) AS workspace ON true
    LEFT JOIN LATERAL (
        SELECT array_agg(actor) AS people FROM (
            SELECT actor FROM identity
            WHERE identity.tenant_id = input.tenant_id
                AND groups @> ARRAY[regexp_replace(coalesce(workload.owner_ref, asset.owner_ref), '^team:', 'group:')]
            ORDER BY actor LIMIT {max_people}
        ) AS members
        WHERE coalesce(workload.owner_ref, asset.owner_ref) LIKE 'team:%'
    ) AS team ON true
    LEFT JOIN LATERAL (
        SELECT title, body, audience_roles, audience_workspaces FROM announcement
        WHERE announcement.tenant_id = input.tenant_id AND announcement.announcement_id = input.announcement_id OFFSET 0
    ) AS announced ON true
    LEFT JOIN LATERAL (
        SELECT array_agg(person ORDER BY person) AS people FROM (
            SELECT DISTINCT coalesce(member.actor, binding.principal) AS person
            FROM role_binding AS binding
            -- PostgreSQL uses the index on groups only for the operator @>.
            LEFT JOIN LATERAL (
                SELECT actor FROM identity
                WHERE identity.tenant_id = binding.tenant_id AND binding.principal LIKE 'group:%'
                    AND groups @> ARRAY[binding.principal]
            ) AS member ON true
            WHERE binding.tenant_id = input.tenant_id
                AND (announced.audience_roles = '{}' OR binding.role = ANY(announced.audience_roles))
                AND (announced.audience_workspaces = '{}' OR EXISTS (
                    SELECT FROM workspace AS target
                    WHERE target.tenant_id = input.tenant_id AND target.workspace_id = ANY(announced.audience_workspaces)
                        AND (binding.scope_ref IN (target.workspace_id, target.namespace_id) OR binding.scope_kind = 'tenant')))
            ORDER BY person LIMIT {max_people}
        ) AS selected
        WHERE input.announcement_id IS NOT NULL
    ) AS audience ON true
    ORDER BY input.number",
);

/// Replaces each group that holds a role by the people whose tokens listed the group. Other holders are kept.
const MEMBERS: &str = "LEFT JOIN LATERAL (
        SELECT actor FROM identity
        WHERE identity.tenant_id = {tenant_id} AND binding.principal LIKE 'group:%' AND groups @> ARRAY[binding.principal]
     ) AS member ON true";

static HELD_ROLES: Query = Query::of_parts(&[
    "SELECT coalesce(member.actor, binding.principal) AS principal, binding.role, binding.scope_kind, binding.scope_ref,
        false AS without_role_history
    FROM scope_key CROSS JOIN LATERAL (
        SELECT principal, role, scope_kind, scope_ref FROM role_binding
        WHERE tenant_id = {tenant_id} AND role_binding.scope_kind = scope_key.scope_kind
            AND role_binding.scope_ref = scope_key.scope_ref AND role = ANY({acting_roles})
        OFFSET 0
    ) AS binding ",
    MEMBERS,
    " UNION
    SELECT coalesce(member.actor, binding.principal), binding.role, binding.scope_kind, binding.scope_ref, false
    FROM (
        SELECT principal, role, scope_kind, scope_ref FROM role_binding
        WHERE tenant_id = {tenant_id} AND scope_kind = 'platform' AND scope_ref IS NULL AND role = ANY({acting_roles})
    ) AS binding ",
    MEMBERS,
    " UNION
    SELECT principal, role, scope_kind, scope_ref, false FROM role_binding
    WHERE tenant_id = {tenant_id} AND principal = ANY({people})
    UNION
    SELECT member.actor, role, scope_kind, scope_ref, false
    FROM identity AS member JOIN role_binding
        ON role_binding.tenant_id = {tenant_id} AND role_binding.principal = ANY(member.groups)
    WHERE member.tenant_id = {tenant_id} AND member.actor = ANY({people})
    UNION ALL
    SELECT person, '', '', NULL, true FROM unnest({people}) AS person
    WHERE NOT EXISTS (SELECT FROM bound_principal WHERE principal = person)",
]);

/// Columns: recipient, channel, category, and number of messages.
type SinglesRow = (Option<String>, String, String, i64);

fn identifier(detail: &Map<String, Value>, member: &str) -> Option<Uuid> {
    detail.get(member).and_then(Value::as_str).and_then(|text| Uuid::parse_str(text).ok())
}

fn subjects_input(scope: TenantScope, facts: &[NotifiableFact]) -> Input<'_> {
    let subject_of = |kind: &'static str| -> Vec<Option<Uuid>> {
        facts.iter().map(|fact| (fact.subject_kind == kind).then_some(fact.subject_id)).collect()
    };
    let or_detail = |kind: &'static str, member: &'static str| -> Vec<Option<Uuid>> {
        let of_subject = subject_of(kind);
        facts
            .iter()
            .zip(of_subject)
            .map(|(fact, subject)| subject.or_else(|| identifier(&fact.detail, member)))
            .collect()
    };
    let environments = facts.iter().map(|fact| fact.detail.get("environment").and_then(Value::as_str));
    Input::many()
        .with_column("tenant_id", vec![scope.tenant().uuid(); facts.len()])
        .with_column("number", (0_i64..).take(facts.len()))
        .with_column("execution_id", subject_of("execution"))
        .with_column("release_id", subject_of("release"))
        .with_column("asset_version_id", subject_of("asset_version"))
        .with_column("workload_id", or_detail("workload", "workload_id"))
        .with_column("asset_id", subject_of("asset"))
        .with_column("workspace_id", facts.iter().map(|fact| fact.workspace_id.map(WorkspaceId::uuid)))
        .with_column("environment", environments)
        .with_column("announcement_id", subject_of("announcement"))
        .with_param("max_people", i64::try_from(MAX_RECIPIENTS + 1).unwrap_or(i64::MAX))
}

/// Decodes the announcement of a subject. The local user has a role without a binding and is not in the audience;
/// the operations layer adds it.
fn announcement(row: &Row) -> Result<Option<AnnouncementContext>, StoreError> {
    let Some(title) = row.column::<Option<String>>("announcement_title")? else { return Ok(None) };
    let names: Vec<String> = row.column("announcement_roles")?;
    let roles = names.iter().map(|name| require_decoded("announcement_roles", Role::parse(name)));
    Ok(Some(AnnouncementContext {
        title,
        body: row.column("announcement_body")?,
        roles: roles.collect::<Result<_, _>>()?,
        audience: people(row, "announcement_audience")?,
    }))
}

/// Decodes the people in an array column, in which null means no people.
fn people(row: &Row, name: &'static str) -> Result<Vec<ActorRef>, StoreError> {
    let names: Vec<&str> = row.column::<Option<_>>(name)?.unwrap_or_default();
    names.iter().map(|text| require_decoded(name, ActorRef::parse(text).ok())).collect()
}

fn subject(scope: TenantScope, row: &Row) -> Result<SubjectContext, StoreError> {
    let person = |name: &'static str| -> Result<Option<ActorRef>, StoreError> {
        // The owner may be a team, which is not an actor and is therefore omitted.
        Ok(row.column::<Option<&str>>(name)?.and_then(|text| ActorRef::parse(text).ok()))
    };
    let workload_id: Option<WorkloadId> = row.optional_id("workload_id")?;
    let position = match (row.optional_id("namespace_id")?, row.optional_id("workspace_id")?) {
        (Some(namespace), Some(workspace)) => ResourcePosition::workspace(scope.tenant(), namespace, workspace),
        (Some(_) | None, _) => ResourcePosition::tenant(scope.tenant()),
    };
    Ok(SubjectContext {
        name: row.column("name")?,
        owner: person("owner_ref")?,
        owner_team: people(row, "owner_team")?,
        submitter: person("submitter")?,
        author: person("author")?,
        workload_id,
        environment: row.column("environment")?,
        position: workload_id.map_or(position, |workload| position.for_workload(workload)),
        announcement: announcement(row)?,
    })
}

/// The scopes of the role bindings that apply at any of the positions.
fn binding_scopes(positions: &[ResourcePosition]) -> BTreeSet<(&'static str, Uuid)> {
    let scopes = positions.iter().flat_map(|position| {
        [
            position.tenant.map(GrantScope::Tenant),
            position.namespace.map(GrantScope::Namespace),
            position.workspace.map(GrantScope::Workspace),
            position.workload.map(GrantScope::Workload),
        ]
    });
    scopes.flatten().filter_map(|scope| Some((scope.kind(), scope.reference()?))).collect()
}

#[async_trait]
impl ProjectionStore for Database {
    async fn tenants_with_unprojected_facts(
        &self,
        after: Option<TenantId>,
        limit: usize,
    ) -> Result<Vec<TenantId>, StoreError> {
        let after = after.map_or_else(Uuid::nil, TenantId::uuid);
        let find = || {
            let position = || notification_position::position.nullable();
            let has_new_facts =
                position().is_null().and(fact_log::size.gt(0)).or(fact_log::size.nullable().gt(position()));
            fact_log::table
                .left_join(notification_position::table.on(notification_position::tenant_id.eq(fact_log::tenant_id)))
                .filter(fact_log::tenant_id.gt(after).and(has_new_facts))
                .order(fact_log::tenant_id)
                .limit(i64::try_from(limit).unwrap_or(i64::MAX))
                .select(fact_log::tenant_id)
        };
        let found: Vec<Uuid> = self.load("tenants with new facts", find).await?;
        Ok(found.into_iter().map(Into::into).collect())
    }

    async fn next_batch(&self, scope: TenantScope, limit: u32) -> Result<Option<FactBatch>, StoreError> {
        let input = Input::of_params(scope)
            .with_param("limit", i64::from(limit))
            .with_list_param("kinds", NOTIFYING_KINDS.clone());
        let rows = self.fetch(&NEXT_FACTS, input).await?;
        let first = require_decoded("position", rows.first())?;
        let count = require_decoded("facts", u64::try_from(first.column::<i64>("facts")?).ok())?;
        let position = require_decoded("position", u64::try_from(first.column::<i64>("position")?).ok())?;
        if count == 0 {
            return Ok(None);
        }
        let mut facts = Vec::new();
        for row in &rows {
            if row.column::<Option<i64>>("index")?.is_some() {
                facts.extend(notifiable(row)?);
            }
        }
        let subjects = if facts.is_empty() {
            Vec::new()
        } else {
            let rows = self.fetch(&SUBJECTS, subjects_input(scope, &facts)).await?;
            rows.iter().map(|row| subject(scope, row)).collect::<Result<_, _>>()?
        };
        if subjects.len() != facts.len() {
            return Err(inconsistent("a fact has no or several subjects".into()));
        }
        let facts = facts.into_iter().zip(subjects).collect();
        Ok(Some(FactBatch {
            position,
            end: position.saturating_add(count),
            at: first.timestamp("at")?,
            generation: require_decoded("generation", u64::try_from(first.column::<i64>("generation")?).ok())?,
            turned_on: SettingsTurnedOnAt {
                notifications: first.optional_timestamp("notifications_on_since")?,
                advanced: first.optional_timestamp("advanced_notifications_on_since")?,
            },
            facts,
        }))
    }

    async fn held_roles(
        &self,
        scope: TenantScope,
        positions: &[ResourcePosition],
        people: &[ActorRef],
    ) -> Result<HeldRoles, StoreError> {
        let (kinds, references): (Vec<&str>, Vec<_>) = binding_scopes(positions).into_iter().unzip();
        let input = Input::of_params(scope)
            .with_rows("scope_key")
            .with_column("scope_kind", kinds)
            .with_column("scope_ref", references)
            .with_list_param("acting_roles", ACTING_ROLES.clone())
            .with_list_param("people", people.iter().map(ToString::to_string).collect());
        let mut held_roles = HeldRoles::default();
        for row in &self.fetch(&HELD_ROLES, input).await? {
            let principal = row.actor("principal")?;
            if row.column("without_role_history")? {
                held_roles.without_role_history.push(principal);
                continue;
            }
            let role = row.parse_column("role", Role::parse)?;
            let scope = GrantScope::from_parts(row.column("scope_kind")?, row.column("scope_ref")?);
            held_roles.roles.push(HeldRole { principal, role, scope: require_decoded("scope_kind", scope)? });
        }
        Ok(held_roles)
    }

    async fn preferences(
        &self,
        scope: TenantScope,
        people: &[ActorRef],
        workspaces: &[WorkspaceId],
        workloads: &[WorkloadId],
        environments: &[&str],
    ) -> Result<Vec<PreferenceSet>, StoreError> {
        self.preferences_in(scope, people, workspaces, workloads, environments).await
    }

    async fn destinations(
        &self,
        scope: TenantScope,
        workspaces: &[WorkspaceId],
    ) -> Result<Vec<ActiveDestination>, StoreError> {
        self.active_destinations(scope, workspaces).await
    }

    async fn people_with_mailbox(
        &self,
        scope: TenantScope,
        people: &[ActorRef],
    ) -> Result<HashSet<ActorRef>, StoreError> {
        self.people_with_verified_mailbox(scope, people).await
    }

    async fn count_recent_single_deliveries(
        &self,
        scope: TenantScope,
        people: &[ActorRef],
        since: Timestamp,
    ) -> Result<HashMap<BurstKey, u32>, StoreError> {
        let (tenant, since) = (scope.tenant().uuid(), since.to_datetime());
        let people: Vec<String> = people.iter().map(ToString::to_string).collect();
        let singles = || {
            let key =
                (notification_delivery::recipient, notification_delivery::channel, notification_delivery::category);
            notification_delivery::table
                .filter(notification_delivery::tenant_id.eq(tenant))
                .filter(notification_delivery::recipient.eq_any(people.clone()))
                .filter(notification_delivery::digest.is_null().and(notification_delivery::queued_at.ge(since)))
                .group_by(key)
                .select((key.0, key.1, key.2, count_star()))
        };
        let found: Vec<SinglesRow> = self.load("recent single messages", singles).await?;
        let count = |(recipient, channel, category, singles): SinglesRow| {
            let recipient = require_decoded("recipient", recipient.and_then(|name| ActorRef::parse(&name).ok()))?;
            let channel = require_decoded("channel", Channel::parse(&channel))?;
            let category = require_decoded("category", NotificationCategory::parse(&category))?;
            Ok(((recipient, channel, category), require_decoded("singles", u32::try_from(singles).ok())?))
        };
        found.into_iter().map(count).collect()
    }

    async fn commit_batch(
        &self,
        scope: TenantScope,
        positions: Range<u64>,
        basis: ProjectionBasis,
        projection: &Projection,
    ) -> Result<u64, CommitError> {
        self.commit_projection(scope, positions, basis, projection).await
    }
}
