//! Builds the queries for lists of assets and of versions.

use super::{ASSET_COLUMNS, versions::VERSION_COLUMNS};
use crate::{
    guarded_commit::Input,
    pagination::{COUNT_LIMIT, ListQuery, PageByteLimit, SortKey, UNBOUNDED_ROW_BYTES, UnionArm},
};
use fairway_domain::{
    access::{ActorRef, rights::VisibleScopes},
    asset::ports::{AssetFilter, AssetVisibility},
    id::AssetId,
    tenant::TenantScope,
};
use uuid::Uuid;

const KEY: SortKey = SortKey::Id("asset.asset_id", "asset_id");
const FROM: &str = "FROM asset";
const BUILTIN: &str = "ownership_tier = 'platform_builtin'";

/// The list of assets that a caller sees and that match the filter.
pub(super) fn asset_list_query(scope: TenantScope, filter: &AssetFilter) -> ListQuery {
    let mut values = Input::of_params(scope);
    let mut conditions = vec!["asset.tenant_id = {tenant_id}".to_owned()];
    if let Some(kind) = filter.kind {
        conditions.push(format!("asset_kind = {}", values.bind("asset_kind", kind.as_str())));
    }
    if let Some(state) = filter.lifecycle {
        conditions.push(format!("lifecycle_state = {}", values.bind("lifecycle_state", state.as_str())));
    }
    let (with, arms) = visible_arms(&filter.visibility, &conditions, &mut values);
    ListQuery {
        with,
        columns: ASSET_COLUMNS,
        key: KEY,
        post_join: None,
        byte_limit: PageByteLimit::Small,
        arms,
        values,
        is_append_only: false,
        stored_count: None,
    }
}

/// The `WITH` clause and the union arms for the assets that a caller sees and that meet the conditions.
fn visible_arms(
    visibility: &AssetVisibility,
    conditions: &[String],
    values: &mut Input<'static>,
) -> (String, Vec<UnionArm>) {
    match visibility {
        AssetVisibility::Tenant => (String::new(), vec![arm(conditions, None, &[])]),
        AssetVisibility::FromWorkspace { namespace, workspace, principals } => {
            let namespace = values.bind("namespace_id", namespace.uuid());
            let in_other_namespace = format!("namespace_id <> {namespace}");
            let workspaces =
                values.bind_list("viewing_workspaces", workspace.iter().map(|id| id.uuid()).collect::<Vec<Uuid>>());
            let granted = granted_condition(&workspaces, principals, values);
            let arms = vec![
                arm(conditions, None, &[format!("namespace_id = {namespace}")]),
                arm(conditions, None, &[BUILTIN.to_owned(), in_other_namespace.clone()]),
                arm(conditions, None, &[format!("NOT {BUILTIN}"), in_other_namespace, granted]),
            ];
            (String::new(), arms)
        }
        AssetVisibility::InScopes { scopes, principals } => arms_in_scopes(scopes, principals, conditions, values),
    }
}

fn arms_in_scopes(
    scopes: &VisibleScopes,
    principals: &[ActorRef],
    conditions: &[String],
    values: &mut Input<'static>,
) -> (String, Vec<UnionArm>) {
    let workspaces: Vec<Uuid> = scopes.workspaces.iter().map(|id| id.uuid()).collect();
    let namespaces: Vec<Uuid> = scopes.namespaces.iter().map(|id| id.uuid()).collect();
    let workspaces = values.bind_list("visible_workspaces", workspaces);
    let namespaces = values.bind_list("visible_namespaces", namespaces);
    // A grant to a workspace makes the asset visible to callers that may view the workspace, directly or through
    // its namespace.
    let with = format!(
        "WITH visible_namespace AS MATERIALIZED (
            SELECT unnest({namespaces}) AS visible_id
            UNION
            SELECT namespace_id FROM workspace WHERE tenant_id = {{tenant_id}} AND workspace_id = ANY({workspaces})
         ),
         visible_workspace AS MATERIALIZED (
            SELECT array_agg(workspace_id) AS workspace_ids FROM workspace
            WHERE tenant_id = {{tenant_id}} AND (workspace_id = ANY({workspaces}) OR namespace_id = ANY({namespaces}))
         )"
    );
    let in_other_namespace = "NOT EXISTS (SELECT FROM visible_namespace WHERE visible_id = namespace_id)".to_owned();
    let granted = granted_condition("(SELECT workspace_ids FROM visible_workspace)::uuid[]", principals, values);
    let mut arms = vec![
        arm(conditions, Some("visible_namespace"), &["namespace_id = visible_namespace.visible_id".to_owned()]),
        arm(conditions, None, &[format!("NOT {BUILTIN}"), in_other_namespace.clone(), granted]),
    ];
    // A caller without any view rights sees only assets that were granted to it, so it does not see built-in
    // assets.
    if !(scopes.workspaces.is_empty() && scopes.namespaces.is_empty()) {
        arms.push(arm(conditions, None, &[BUILTIN.to_owned(), in_other_namespace]));
    }
    (with, arms)
}

/// A union arm with the conditions of the filter and the extra conditions.
fn arm(filter_conditions: &[String], lateral: Option<&str>, extra_conditions: &[String]) -> UnionArm {
    UnionArm {
        from: FROM.to_owned(),
        conditions: filter_conditions.iter().chain(extra_conditions).cloned().collect(),
        lateral: lateral.map(str::to_owned),
    }
}

/// The SQL condition that an asset is granted to one of the principals or workspaces.
fn granted_condition(workspaces: &str, principals: &[ActorRef], values: &mut Input<'static>) -> String {
    let principals =
        values.bind_list("principals", principals.iter().map(ToString::to_string).collect::<Vec<String>>());
    format!(
        "asset_id IN (
            SELECT asset_id FROM asset_grant WHERE tenant_id = {{tenant_id}} AND principal = ANY({principals})
            UNION ALL
            SELECT asset_id FROM asset_grant WHERE tenant_id = {{tenant_id}} AND grantee_workspace_id = ANY({workspaces}))"
    )
}

/// The versions of an asset in commit order, by their ordinal. Identifiers do not have this order, because several
/// processes create them before the commit.
pub(super) fn version_list_query(scope: TenantScope, asset: AssetId) -> ListQuery {
    const FROM: &str = "FROM asset_version AS version \
        LEFT JOIN asset_version_note AS note USING (tenant_id, asset_version_id)";
    let mut values = Input::of_params(scope);
    let id = values.bind("asset_id", asset.uuid());
    let conditions = vec!["version.tenant_id = {tenant_id}".to_owned(), format!("version.asset_id = {id}")];
    // Ordinals are consecutive from 1 and versions are never deleted, so the last ordinal is the number of
    // versions.
    let stored_count = format!(
        "SELECT LEAST(last_ordinal, {COUNT_LIMIT})::bigint AS count FROM asset WHERE tenant_id = {{tenant_id}} AND asset_id = {id}"
    );
    let key = SortKey::Position("version.ordinal", "version_ordinal");
    let byte_limit = PageByteLimit::Measured { sql: "octet_length(content)", largest: UNBOUNDED_ROW_BYTES };
    let plain = ListQuery::single(VERSION_COLUMNS, key, FROM, byte_limit, conditions, values);
    ListQuery { stored_count: Some(stored_count), ..plain }
}
