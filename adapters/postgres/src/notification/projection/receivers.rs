//! The receivers that facts of a batch can reach: destinations, and mailboxes of people.

use crate::{
    database::Database,
    row::decode,
    schema::{identity, notification_destination},
};
use diesel::{BoolExpressionMethods as _, ExpressionMethods as _, NullableExpressionMethods as _, QueryDsl as _};
use fairway_domain::{
    access::ActorRef,
    id::WorkspaceId,
    notification::{
        Channel,
        destination::{ActiveDestination, DestinationScope},
    },
    store::StoreError,
    tenant::TenantScope,
};
use std::collections::HashSet;
use uuid::Uuid;

impl Database {
    /// The enabled destinations of the organization and of these workspaces.
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
            let destination_type = decode("destination_type", Channel::parse(&channel))?;
            Ok(ActiveDestination { destination_id: id.into(), scope, destination_type })
        };
        found.into_iter().map(destination).collect()
    }

    /// Those of these people who have a verified e-mail address.
    pub(super) async fn verified_mailboxes(
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
        found.iter().map(|actor| decode("actor", ActorRef::parse(actor).ok())).collect()
    }
}
