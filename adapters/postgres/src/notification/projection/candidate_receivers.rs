//! Reads the possible receivers of a batch of facts: destinations, and people with their preferences and mailboxes.

use super::super::preference::StoredPreferences;
use crate::{
    database::Database,
    row::require_decoded,
    schema::{identity, notification_destination, notification_preference},
};
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, NullableExpressionMethods as _, QueryDsl as _,
    SelectableHelper as _,
};
use fairway_domain::{
    access::ActorRef,
    id::{WorkloadId, WorkspaceId},
    notification::{
        Channel,
        destination::{ActiveDestination, DestinationScope},
        preference::PreferenceSet,
    },
    store::StoreError,
    tenant::TenantScope,
};
use std::collections::HashSet;
use uuid::Uuid;

impl Database {
    /// Reads the preferences of people in the global scope, and in the scopes of these workspaces, workloads and
    /// environments of the workloads.
    pub(super) async fn preferences_in(
        &self,
        scope: TenantScope,
        people: &[ActorRef],
        workspaces: &[WorkspaceId],
        workloads: &[WorkloadId],
        environments: &[&str],
    ) -> Result<Vec<PreferenceSet>, StoreError> {
        let tenant = scope.tenant().uuid();
        let people: Vec<String> = people.iter().map(ToString::to_string).collect();
        let workspaces: Vec<Uuid> = workspaces.iter().map(|id| id.uuid()).collect();
        let workloads: Vec<Uuid> = workloads.iter().map(|id| id.uuid()).collect();
        let environments: Vec<String> = environments.iter().map(ToString::to_string).collect();
        let find = || {
            let is_kind = |kind: &'static str| notification_preference::scope_kind.eq(kind);
            let of_workspace = is_kind("workspace").and(notification_preference::scope_ref.eq_any(workspaces.clone()));
            let of_workload = is_kind("project").and(notification_preference::scope_ref.eq_any(workloads.clone()));
            let of_environment = is_kind("environment")
                .and(notification_preference::scope_ref.eq_any(workloads.clone()))
                .and(notification_preference::environment.eq_any(environments.clone()));
            notification_preference::table
                .filter(notification_preference::tenant_id.eq(tenant))
                .filter(notification_preference::principal.eq_any(people.clone()))
                .filter(is_kind("global").or(of_workspace).or(of_workload).or(of_environment))
                .select(StoredPreferences::as_select())
        };
        let found: Vec<StoredPreferences> = self.load("preferences of people", find).await?;
        found.into_iter().map(StoredPreferences::into_value).collect()
    }

    /// Reads the enabled destinations of the tenant and of these workspaces.
    pub(super) async fn active_destinations(
        &self,
        scope: TenantScope,
        workspaces: &[WorkspaceId],
    ) -> Result<Vec<ActiveDestination>, StoreError> {
        let tenant = scope.tenant().uuid();
        let workspaces: Vec<Uuid> = workspaces.iter().map(|id| id.uuid()).collect();
        let find = || {
            let of_scope = notification_destination::workspace_id
                .is_null()
                .or(notification_destination::workspace_id.eq_any(workspaces.clone()));
            notification_destination::table
                .filter(notification_destination::tenant_id.eq(tenant).and(notification_destination::is_enabled))
                .filter(of_scope.assume_not_null())
                .select((
                    notification_destination::destination_id,
                    notification_destination::workspace_id,
                    notification_destination::destination_type,
                ))
        };
        let found: Vec<(Uuid, Option<Uuid>, String)> = self.load("enabled destinations", find).await?;
        let destination = |(id, workspace, channel): (Uuid, Option<Uuid>, String)| {
            let scope = workspace
                .map_or(DestinationScope::Organization, |workspace| DestinationScope::Workspace(workspace.into()));
            let destination_type = require_decoded("destination_type", Channel::parse(&channel))?;
            Ok(ActiveDestination { destination_id: id.into(), scope, destination_type })
        };
        found.into_iter().map(destination).collect()
    }

    /// Returns those of `people` that have a verified e-mail address.
    pub(super) async fn people_with_verified_mailbox(
        &self,
        scope: TenantScope,
        people: &[ActorRef],
    ) -> Result<HashSet<ActorRef>, StoreError> {
        let tenant = scope.tenant().uuid();
        let people: Vec<String> = people.iter().map(ToString::to_string).collect();
        let find = || {
            identity::table
                .filter(identity::tenant_id.eq(tenant).and(identity::email.is_not_null()))
                .filter(identity::actor.eq_any(people.clone()))
                .select(identity::actor)
        };
        let found: Vec<String> = self.load("verified mailboxes", find).await?;
        found.iter().map(|actor| require_decoded("actor", ActorRef::parse(actor).ok())).collect()
    }
}
