//! Operations on destinations: shared external endpoints of a workspace or of the organization.

use super::Notifications;
use crate::{
    Failure, MaybeReplayed, Precondition,
    access::{Operation, authorize},
    idempotency::{MAX_ATTEMPTS, keyed_outcome},
};
use fairway_domain::{
    access::{Caller, ResourcePosition},
    id::DestinationId,
    idempotency::RequestKey,
    notification::{
        Channel,
        destination::{Destination, DestinationPatch, DestinationScope, NewDestination},
    },
    store::{CommitError, ConstraintConflict, Page, PageRequest},
    tenant::TenantScope,
};
use serde_json::{Map, Value};

/// The state of a destination that a request submits.
#[derive(Clone, Debug)]
pub struct DestinationDraft {
    /// The external channel through which the destination is reached.
    pub destination_type: Channel,
    /// The name of the destination in lists, unique for its type within the scope.
    pub display_name: String,
    /// The configuration as submitted. It is redacted before its first use, because it may contain secrets.
    pub configuration: Map<String, Value>,
    /// Reference to the secret with which messages are sent, if the channel needs one.
    pub secret_ref: Option<String>,
    /// Whether notifications are sent to the destination.
    pub is_enabled: bool,
}

impl Notifications {
    /// Authorizes an operation on the destinations of a scope: the organization or a workspace.
    pub(super) async fn authorize_destinations(
        &self,
        caller: &Caller,
        destination_scope: DestinationScope,
        [organization, workspace]: [Operation; 2],
    ) -> Result<TenantScope, Failure> {
        let (operation, position) = match destination_scope {
            DestinationScope::Organization => (organization, ResourcePosition::tenant(caller.tenant)),
            DestinationScope::Workspace(id) => (workspace, self.scope_resolver.workspace_position(caller, id).await?),
        };
        let scope = authorize::authorize(caller, operation, &position)?;
        self.require_enabled(scope).await?;
        Ok(scope)
    }

    /// Lists the destinations of a scope, newest first.
    ///
    /// # Errors
    /// When the caller may not manage destinations in the scope, or the tenant's notifications are off; not found
    /// when the caller does not see the workspace.
    pub async fn list_destinations(
        &self,
        caller: &Caller,
        destination_scope: DestinationScope,
        page: PageRequest,
    ) -> Result<Page<Destination>, Failure> {
        let operations = [Operation::ListOrganizationDestinations, Operation::ListWorkspaceDestinations];
        let scope = self.authorize_destinations(caller, destination_scope, operations).await?;
        Ok(self.destination_store.list(scope, destination_scope, page).await?)
    }

    /// Creates a destination.
    ///
    /// # Errors
    /// As [`Self::list_destinations`]. Also in these cases: a field is invalid; the scope already has a destination of
    /// this type and name; the scope has reached its maximum number of destinations.
    pub async fn create_destination(
        &self,
        caller: &Caller,
        destination_scope: DestinationScope,
        draft: DestinationDraft,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<Destination>, Failure> {
        let operations = [Operation::CreateOrganizationDestination, Operation::CreateWorkspaceDestination];
        let scope = self.authorize_destinations(caller, destination_scope, operations).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let destination_id: DestinationId = self.context.new_id();
                    let new_destination = NewDestination {
                        destination_id,
                        scope: destination_scope,
                        destination_type: draft.destination_type,
                        display_name: draft.display_name,
                        configuration: draft.configuration,
                        secret_ref: draft.secret_ref,
                        is_enabled: draft.is_enabled,
                    };
                    let change = Destination::create(new_destination, &self.context.stamp(caller))?;
                    let destination = change.next.clone();
                    let outcome = keyed_outcome(key, 201, destination_id.uuid());
                    match self.destination_store.commit_new(scope, change, outcome.as_ref()).await {
                        Err(CommitError::Stale) => {
                            return Err(Failure::Conflict(ConstraintConflict::TooManyDestinations));
                        }
                        committed => committed?,
                    }
                    Ok(destination)
                },
                async |id| {
                    self.destination_store.find(scope, destination_scope, id.into()).await?.ok_or(Failure::NotFound)
                },
            )
            .await
    }

    /// Returns a destination of a scope.
    ///
    /// # Errors
    /// As [`Self::list_destinations`]; not found when the scope has no such destination.
    pub async fn read_destination(
        &self,
        caller: &Caller,
        destination_scope: DestinationScope,
        id: DestinationId,
    ) -> Result<Destination, Failure> {
        let operations = [Operation::ReadOrganizationDestination, Operation::ReadWorkspaceDestination];
        let scope = self.authorize_destinations(caller, destination_scope, operations).await?;
        self.destination_store.find(scope, destination_scope, id).await?.ok_or(Failure::NotFound)
    }

    /// Changes a destination. If all values stay the same, nothing is committed.
    ///
    /// # Errors
    /// As [`Self::read_destination`] and [`Self::create_destination`]; also when the destination changed concurrently.
    pub async fn change_destination(
        &self,
        caller: &Caller,
        destination_scope: DestinationScope,
        id: DestinationId,
        patch: &DestinationPatch,
        expected: &Precondition,
    ) -> Result<Destination, Failure> {
        let operations = [Operation::ChangeOrganizationDestination, Operation::ChangeWorkspaceDestination];
        let scope = self.authorize_destinations(caller, destination_scope, operations).await?;
        for _ in 0..MAX_ATTEMPTS {
            let destination =
                self.destination_store.find(scope, destination_scope, id).await?.ok_or(Failure::NotFound)?;
            expected.check(destination.revision)?;
            let Some(change) = destination.apply_patch(patch.clone(), &self.context.stamp(caller))? else {
                return Ok(destination);
            };
            let changed_destination = change.next.clone();
            match self.destination_store.commit_change(scope, change).await {
                Err(CommitError::Stale) => match expected.stale_failure() {
                    Some(failure) => return Err(failure),
                    None => continue,
                },
                committed => committed?,
            }
            self.context.notify_facts();
            return Ok(changed_destination);
        }
        Err(Failure::Contended)
    }

    /// Deletes a destination.
    ///
    /// # Errors
    /// As [`Self::read_destination`]; also when the revision of the destination differs from the expected one.
    pub async fn delete_destination(
        &self,
        caller: &Caller,
        destination_scope: DestinationScope,
        id: DestinationId,
        expected: &Precondition,
    ) -> Result<(), Failure> {
        let operations = [Operation::DeleteOrganizationDestination, Operation::DeleteWorkspaceDestination];
        let scope = self.authorize_destinations(caller, destination_scope, operations).await?;
        for _ in 0..MAX_ATTEMPTS {
            let destination =
                self.destination_store.find(scope, destination_scope, id).await?.ok_or(Failure::NotFound)?;
            expected.check(destination.revision)?;
            let fact = destination.deletion_fact(&self.context.stamp(caller));
            match self.destination_store.commit_deletion(scope, id, destination.revision, fact).await {
                // A concurrent request changed or deleted the destination, so this request decides again.
                Err(CommitError::Stale) => continue,
                committed => committed?,
            }
            self.context.notify_facts();
            return Ok(());
        }
        Err(Failure::Contended)
    }
}
