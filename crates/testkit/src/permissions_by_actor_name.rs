//! Test callers with arbitrary sets of permissions, which no built-in role grants.

use async_trait::async_trait;
use fairway_api::compose::AccessStoreDecorator;
use fairway_domain::{
    access::{
        AccessStore, ActorNameScope, ActorRef, CallerAccess, GrantScope, Permission, Permissions, ResourcePosition,
        RoleBinding,
    },
    audit::Fact,
    id::{RoleBindingId, TenantId, WorkspaceId},
    idempotency::KeyedOutcome,
    store::{Change, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
};
use std::sync::Arc;

/// Wraps the store of role bindings. An actor named by [`Self::holding`] or [`Self::lacking`] receives the
/// permissions in its name instead of those of its bound role. The actor still needs a role binding.
pub struct PermissionsByActorName {
    inner: Arc<dyn AccessStore>,
}

const HOLDING_PREFIX: &str = "user:holding";
const LACKING_PREFIX: &str = "user:lacking";

impl PermissionsByActorName {
    /// Creates the store decorator for a test server.
    #[must_use]
    pub fn decorator() -> AccessStoreDecorator {
        Arc::new(|inner| Arc::new(Self { inner }))
    }

    /// The name of an actor with exactly these permissions.
    #[must_use]
    pub fn holding(permissions: &[&str]) -> String {
        actor_name(HOLDING_PREFIX, permissions)
    }

    /// The name of an actor with all permissions except these.
    #[must_use]
    pub fn lacking(permissions: &[&str]) -> String {
        actor_name(LACKING_PREFIX, permissions)
    }
}

fn actor_name(prefix: &str, permissions: &[&str]) -> String {
    permissions.iter().fold(prefix.to_owned(), |name, permission| name + "+" + permission)
}

/// The permissions in an actor's name, if it has any.
fn permissions_in_name(actor: &str) -> Option<Permissions> {
    let (is_holding, names) = match (actor.strip_prefix(HOLDING_PREFIX), actor.strip_prefix(LACKING_PREFIX)) {
        (Some(names), _) => (true, names),
        (None, Some(names)) => (false, names),
        (None, None) => return None,
    };
    let listed: Vec<&str> = names.split('+').collect();
    let permissions = Permission::ALL.iter().copied();
    let permissions = permissions.filter(|permission| listed.contains(&permission.as_str()) == is_holding);
    Some(Permissions::of(&permissions.collect::<Vec<_>>()))
}

#[async_trait]
impl AccessStore for PermissionsByActorName {
    async fn load_principal(
        &self,
        tenant: Option<TenantId>,
        principals: &[ActorRef],
        names: ActorNameScope,
    ) -> Result<Option<CallerAccess>, StoreError> {
        let mut access = self.inner.load_principal(tenant, principals, names).await?;
        let permissions = principals.first().and_then(|actor| permissions_in_name(&actor.to_string()));
        if let (Some(access), Some(permissions)) = (&mut access, permissions) {
            for grant in &mut access.grants {
                grant.permissions = permissions;
            }
        }
        Ok(access)
    }

    async fn access_revision(&self, tenant: TenantId) -> Result<Option<Revision>, StoreError> {
        self.inner.access_revision(tenant).await
    }

    async fn resolve_scope(
        &self,
        scope: TenantScope,
        grant: &GrantScope,
    ) -> Result<Option<ResourcePosition>, StoreError> {
        self.inner.resolve_scope(scope, grant).await
    }

    async fn bindings_of(
        &self,
        scope: TenantScope,
        principals: &[ActorRef],
        names: ActorNameScope,
    ) -> Result<Vec<RoleBinding>, StoreError> {
        self.inner.bindings_of(scope, principals, names).await
    }

    async fn find(&self, scope: TenantScope, id: RoleBindingId) -> Result<Option<RoleBinding>, StoreError> {
        self.inner.find(scope, id).await
    }

    async fn list(
        &self,
        scope: TenantScope,
        workspace: Option<WorkspaceId>,
        page: PageRequest,
    ) -> Result<Page<RoleBinding>, StoreError> {
        self.inner.list(scope, workspace, page).await
    }

    async fn commit_grant(
        &self,
        scope: TenantScope,
        change: Change<RoleBinding>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        self.inner.commit_grant(scope, change, key).await
    }

    async fn commit_revocation(&self, scope: TenantScope, id: RoleBindingId, fact: Fact) -> Result<(), CommitError> {
        self.inner.commit_revocation(scope, id, fact).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_permissions_from_actor_names() {
        let permission_names =
            |actor: &str| -> Vec<&str> { permissions_in_name(actor).unwrap().iter().map(Permission::as_str).collect() };
        assert_eq!(permission_names(&PermissionsByActorName::holding(&[])), [""; 0]);
        assert_eq!(
            permission_names(&PermissionsByActorName::holding(&["asset.view", "audit.view"])),
            ["asset.view", "audit.view"]
        );
        let other_permissions = permission_names(&PermissionsByActorName::lacking(&["asset.view"]));
        assert_eq!(other_permissions.len(), Permission::ALL.len() - 1);
        assert!(!other_permissions.contains(&"asset.view"));
        assert_eq!(permissions_in_name("user:ada"), None);
    }
}
